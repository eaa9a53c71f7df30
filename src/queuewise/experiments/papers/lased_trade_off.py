"""The exploration-exploitation trade-off (LASED, Section 7.4): a map of LASED's regret minus Greedy's.

r* = μ₂/μ₁ in {1, 2, 4, 8, 16} (all inside LASED's bounds), loads 0.1 to 0.9, initial ratio r̂₁ from r*/10 to 10 r*. The text has
the corners that it speaks of (r = 1, load 0.1, r̂₁ = 0.1 or 10); the grid, the horizon and what a wrong ratio means for the two
rates are ours: as in Section 7.3 one server is *underestimated* and the other right. That is the hard case. A server that is
overestimated instead is used at once, so Greedy learns its rate at once; the table of the second convention says how much.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dispatch.policies.greedy import greedy
from ...dispatch.policy import Policy
from ...dispatch.simulate import simulate
from ...runs.plot import new_figure, save_figure
from ...runs.statistics import Estimate, interval
from ..claims import HOLDS, Claim, Part, Verdict
from ..registry import Outcome, Request
from ..report import Progress, Table, estimate_json, output_folder
from . import _lased

Floats = NDArray[np.float64]

NAME, REFERENCE = "lased-trade-off", "LASED, Section 7.4"
RATIOS = (1, 2, 4, 8, 16)
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)
#: r̂₁/r*, as fractions so that file names and weights are exact.
ERRORS = ("1/10", "1/5", "1/2", "1", "2", "5", "10")
#: A large imbalance of the rates.
LARGE = 16

BETTER = "Equal servers, load 0.1, r̂₁ = 0.1 or 10: LASED has less regret than Greedy"
WORSE_IMBALANCED = "Large imbalance (r = 16), load 0.1: LASED has more regret than Greedy, whatever the initial error"
WORSE_LOADED = "Equal servers, load 0.9, initial error: LASED has more regret than Greedy"
IMPROVES = "Large imbalance (r = 16): LASED improves on Greedy with every step of the load (mean over initial errors)"
TURNS = "The difference is not monotone in the initial error (at some ratio and load)"


def error_label(error: str) -> str:
    """An error as a decimal."""
    return f"{float(Fraction(error)):g}"


def beliefs(ratio: int, error: str, over: bool = False) -> tuple[str, str]:
    """Initial rates for μ = (1, r): one right, the other too low (too high if `over`) by the factor of the error."""
    factor = Fraction(error)
    first = (factor < 1) == over
    if first and factor != 1:
        return str(1 / factor), str(ratio)
    return "1", str(ratio * factor)


def policies(ratio: int, over: bool) -> list[Policy]:
    """Both rules from every initial ratio; the second convention too if `over`."""
    found = []
    for error in ERRORS:
        for high in (False, True) if over and error != "1" else (False,):
            key = f"{'over' if high else 'from'}-{error.replace('/', '_')}"
            initial = beliefs(ratio, error, high)
            found += [_lased.learner(initial, f"lased-{key}"), greedy(initial, name=f"greedy-{key}")]
    return found


@dataclass(frozen=True)
class Cell:
    """One ratio and load. lased, greedy : float64[run, error], regret at the end, with one server underestimated;
    over : the same of both rules with one overestimated (only for equal servers at the lowest load)."""

    ratio: int
    load: float
    lased: Floats
    greedy: Floats
    over: tuple[Floats, Floats] | None = None

    @cached_property
    def difference(self) -> Floats:
        """LASED − Greedy: float64[run, error]."""
        return np.asarray(self.lased - self.greedy)

    def at(self, error: str) -> Estimate:
        """The mean difference at an initial error."""
        return interval(self.difference[:, ERRORS.index(error)])

    @property
    def label(self) -> str:
        return f"r = {self.ratio}, load {self.load:g}"


def _turns(cell: Cell, path: Sequence[str], words: str) -> list[Part]:
    """The middle of a path of errors above both its ends, or below both: the smaller of two differences is positive."""
    first, middle, last = (cell.difference[:, ERRORS.index(error)] for error in path)
    names = " → ".join(map(error_label, path))
    shapes = {"peak": (middle - first, middle - last), "dip": (first - middle, last - middle)}
    return [
        Part(f"{cell.label}, {words} {names}: {shape}", [*map(interval, pair)], 0.0, "above", rank=2)
        for shape, pair in shapes.items()
    ]


def claims(cells: Mapping[tuple[int, float], Cell]) -> list[Verdict]:
    """The section's five claims, the last one read in two ways."""
    way = f"{len(cells[RATIOS[0], LOADS[0]].lased)} runs"
    low, high = LOADS[0], LOADS[-1]
    better = [Part(f"r̂₁ = {error_label(error)}", [cells[1, low].at(error)]) for error in (ERRORS[0], ERRORS[-1])]
    imbalanced = [
        Part(f"r̂₁ = {error_label(error)} r*", [cells[LARGE, low].at(error)], 0.0, "above") for error in ERRORS
    ]
    loaded = [
        Part(f"r̂₁ = {error_label(error)}", [cells[1, high].at(error)], 0.0, "above") for error in ERRORS if error != "1"
    ]
    steps = []
    for before, after in itertools.pairwise(LOADS):
        change = cells[LARGE, after].difference.mean(axis=1) - cells[LARGE, before].difference.mean(axis=1)
        steps.append(Part(f"load {before:g} → {after:g}", [interval(change)]))
    ratio_turns = [part for cell in cells.values() for part in _turns(cell, (ERRORS[0], "1", ERRORS[-1]), "r̂₁/r*")]
    size_turns = [
        part
        for cell in cells.values()
        for path in (("1", "1/2", "1/10"), ("1", "1/5", "1/10"), ("1", "2", "10"), ("1", "5", "10"))
        for part in _turns(cell, path, "error")
    ]
    return [
        Claim(BETTER, REFERENCE, way, better).judge(),
        Claim(WORSE_IMBALANCED, REFERENCE, way, imbalanced).judge(),
        Claim(WORSE_LOADED, REFERENCE, way, loaded).judge(),
        Claim(IMPROVES, REFERENCE, way, steps).judge(),
        Claim(TURNS, REFERENCE, f"{way}; along r̂₁", ratio_turns, needed=1).judge(),
        Claim(TURNS, REFERENCE, f"{way}; along the size of the error", size_turns, needed=1).judge(),
    ]


def _sure(found: Estimate) -> bool:
    return found.low > 0.0 or found.high < 0.0


def maps(cells: Mapping[tuple[int, float], Cell], arrivals: int) -> list[Table]:
    """A table per ratio: the difference per load and initial error."""
    tables = []
    for ratio in RATIOS:
        rows = []
        for load in LOADS:
            cell = cells[ratio, load]
            rows.append((f"{load:g}", *(_lased.counted(cell.at(error)) for error in ERRORS)))
        tables.append(
            Table(
                f"LASED's regret minus Greedy's after {arrivals:,} arrivals, r = {ratio}",
                ("load", *(f"r̂₁ = {error_label(error)} r*" for error in ERRORS)),
                tuple(rows),
                note="Negative is in LASED's favour; ± half the 95% interval of each by itself.",
            )
        )
    return tables


def conventions(cell: Cell) -> Table:
    """Equal servers at low load: one server underestimated, or the other one overestimated, by the same ratio."""
    rows = []
    for position, error in enumerate(error for error in ERRORS if error != "1"):
        index = ERRORS.index(error)
        assert cell.over is not None
        over = [_lased.counted(interval(values[:, position])) for values in cell.over]
        under = [_lased.counted(interval(values[:, index])) for values in (cell.lased, cell.greedy)]
        rows.append((error_label(error), *under, *over))
    return Table(
        "What a wrong ratio means: regret with equal servers at load 0.1",
        (
            "r̂₁",
            "LASED, one\nunderestimated",
            "Greedy, one\nunderestimated",
            "LASED, one\noverestimated",
            "Greedy, one\noverestimated",
        ),
        tuple(rows),
        note="An overestimated server is used, and its rate known, at once.",
    )


def draw(cells: Mapping[tuple[int, float], Cell], words: str, out: Path) -> list[Path]:
    """A heat map per ratio: blue where LASED has less regret, red where Greedy has."""
    from matplotlib.colors import SymLogNorm

    means = np.array([[[cells[r, load].at(error).mean for error in ERRORS] for load in LOADS] for r in RATIOS])
    most = 10.0 ** np.ceil(np.log10(max(float(np.abs(means).max()), 10.0)))
    norm = SymLogNorm(linthresh=10.0, linscale=0.6, vmin=-most, vmax=most)
    figure = new_figure(13.2, 7.4)
    axes = figure.subplots(2, 3)
    image: Any = None
    for position, ratio in enumerate(RATIOS):
        axis = axes.flat[position]
        image = axis.imshow(means[position], origin="lower", aspect="auto", cmap="RdBu_r", norm=norm)
        for row, load in enumerate(LOADS):
            for column, error in enumerate(ERRORS):
                found = cells[ratio, load].at(error)
                strong = abs(float(norm(found.mean)) - 0.5) > 0.34
                text = _short(found.mean) if _sure(found) else f"({_short(found.mean)})"
                axis.text(
                    column, row, text, ha="center", va="center", fontsize=7.4, color="white" if strong else "black"
                )
        axis.set_title(f"r* = {ratio}", fontsize=11, loc="left")
        axis.set_xticks(range(len(ERRORS)), [error_label(error) for error in ERRORS])
        axis.set_yticks(range(len(LOADS)), [f"{load:g}" for load in LOADS])
        axis.set_xlabel("initial ratio r̂₁ / r*")
        axis.set_ylabel("load")
        axis.tick_params(length=0, labelsize=9)
        for side in axis.spines.values():
            side.set_visible(False)
    last = axes.flat[len(RATIOS)]
    last.set_axis_off()
    last.text(
        0.08,
        0.98,
        "Regret of LASED minus that of Greedy\n(decisions against SED).\n\n"
        "Blue: LASED has less regret.\nRed: Greedy has less.\n\n"
        "In brackets: the 95% interval\ncontains 0.\n\n"
        "μ = (1, r*). r̂₁ < r*: server 2 is\nunderestimated; r̂₁ > r*: server 1 is.",
        va="top",
        fontsize=10,
        transform=last.transAxes,
    )
    bar = figure.colorbar(image, ax=axes, location="right", shrink=0.85, aspect=30, pad=0.015)
    bar.set_label("regret of LASED − regret of Greedy")
    powers = [10.0**k for k in range(1, int(np.log10(most)) + 1)]
    bar.set_ticks([*(-p for p in reversed(powers)), 0.0, *powers])
    bar.set_ticklabels([*(f"−{p:,.0f}" for p in reversed(powers)), "0", *(f"{p:,.0f}" for p in powers)])
    figure.suptitle(f"The exploration-exploitation trade-off: {words}", fontsize=12.5)
    return save_figure(figure, out, "figure")


def _short(value: float) -> str:
    """A signed number in few letters: +1.2k."""
    size = abs(value)
    sign = "−" if value < 0 else "+"
    if size < 0.5:
        return "0"
    if size >= 9_950:
        return f"{sign}{size / 1000:.0f}k"
    return f"{sign}{size / 1000:.1f}k" if size >= 950 else f"{sign}{size:.0f}"


def run(request: Request) -> Outcome:
    """Simulate the whole map, judge, and write everything to ``request.out``."""
    out = output_folder(request.out)
    cells: dict[tuple[int, float], Cell] = {}
    with Progress(len(RATIOS) * len(LOADS) * request.runs, shown=request.progress) as progress:
        for ratio in RATIOS:
            for load in LOADS:
                both = ratio == 1 and load == LOADS[0]
                result = simulate(
                    _lased.system_of(("1", str(ratio)), load),
                    policies(ratio, both),
                    arrivals=request.arrivals,
                    runs=request.runs,
                    seed=request.seed,
                    workers=request.workers,
                    checkpoints=[request.arrivals],
                    folder=out / "rows" / f"r{ratio}-load{load:g}",
                    progress=progress.begin(f"r = {ratio}, load {load:g}"),
                )
                ends = {name: _lased.regrets(result, name)[:, -1] for name in result.policies}
                columns = {
                    (rule, way): np.stack([v for k, v in ends.items() if k.startswith(f"{rule}-{way}")], axis=1)
                    for rule in ("lased", "greedy")
                    for way in (("from", "over") if both else ("from",))
                }
                cells[ratio, load] = Cell(
                    ratio,
                    load,
                    columns["lased", "from"],
                    columns["greedy", "from"],
                    (columns["lased", "over"], columns["greedy", "over"]) if both else None,
                )
        progress.begin("drawing")
        files = draw(cells, f"{request.runs} runs of {request.arrivals:,} arrivals", out)
    verdicts = claims(cells)
    said = sentences(cells, verdicts)
    results = {
        "settings": [
            {
                "ratio": ratio,
                "load": load,
                "errors": [float(Fraction(error)) for error in ERRORS],
                "lased": [estimate_json(interval(column)) for column in cell.lased.T],
                "greedy": [estimate_json(interval(column)) for column in cell.greedy.T],
                "difference": [estimate_json(cell.at(error)) for error in ERRORS],
            }
            for (ratio, load), cell in cells.items()
        ]
    }
    tables = [*maps(cells, request.arrivals), conventions(cells[1, LOADS[0]])]
    return _lased.finish(request, NAME, REFERENCE, verdicts, tables, said, results, files)


def sentences(cells: Mapping[tuple[int, float], Cell], verdicts: Sequence[Verdict]) -> list[str]:
    """The map in numbers, and where the difference turns."""
    found = [cell.at(error) for cell in cells.values() for error in ERRORS]
    lower, higher = sum(e.high < 0.0 for e in found), sum(e.low > 0.0 for e in found)
    least = min(found, key=lambda e: e.mean)
    most = max(found, key=lambda e: e.mean)
    said = [
        f"LASED has less regret in {lower} of {len(found)} settings, more in {higher}, and {len(found) - lower - higher} are "
        f"undecided (each by its own 95% interval); the differences range from {_lased.count(least.mean)} to "
        f"{_lased.count(most.mean)} wrong decisions."
    ]
    for verdict in verdicts[-2:]:
        sure = [part.label for part in verdict.parts if part.verdict == HOLDS]
        if sure:
            more = f" and {len(sure) - 3} more" if len(sure) > 3 else ""
            said.append(f"It turns for certain at {'; '.join(sure[:3])}{more} ({verdict.claim.way}).")
    return said
