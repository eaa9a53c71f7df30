"""Fixed estimates against learning (LASED, Section 7.1): ESED with an error of 1 % beside LASED, over loads.

The text has the error and the claim, not the rates. "1 % error" is read in two ways:

- *The ratio is off by 1 %*, r̂ = 1.01 r*. That matters only where a fraction (q₂+1)/(q₁+1) of small queue lengths lies
  between r* and r̂. With μ = (5, 10) and r̂ = 2.02 the first such state has q₁ ≥ 50 and is never seen; with μ = (1, 1) and
  r̂ = 1.01 it has q₁ ≥ 100, as at a tie every tied server is right. With μ = (5, 9.91), r* = 1.982 and r̂ = 2.00182 lie on
  both sides of 2, and the two rules differ at (0, 1), (1, 3), (2, 5), … . These rates are used.
- *1 % of the decisions are wrong*: μ = (5, 10), and the smallest whole percentage by which r̂ must be off so that the share of
  wrong decisions, from the exact stationary law at load 0.5, rounds to 1 %. The same r̂ is used at all loads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from ...dispatch.policies.esed import esed
from ...dispatch.result import Result
from ...dispatch.simulate import simulate
from ...dispatch.systems import System
from ...runs.plot import new_figure, save_figure
from ...runs.statistics import Estimate, interval
from ..claims import Claim, Part, Verdict
from ..registry import Outcome, Request
from ..report import Progress, Table, estimate_json, output_folder
from . import _figures, _lased

NAME, REFERENCE = "lased-fixed-estimates", "LASED, Section 7.1"
LOADS = (0.3, 0.5, 0.7, 0.9)
#: Their colours.
COLOURS = dict(zip(LOADS, (_figures.SKY, _figures.GREEN, _figures.ORANGE, _figures.VERMILION), strict=True))
#: Loads at which LASED is said to level off.
LOW = (0.3, 0.5)
#: Load at which 1 % of the decisions are to be wrong.
REFERENCE_LOAD = 0.5
#: ESED's slope must be within this factor of the exact one, its half of the regret within this of a half.
NEAR_SLOPE, NEAR_HALF = 0.05, 0.02

LINEAR = "ESED's regret is linear: its second half brings half of it (48% to 52%)"
EXACT = "ESED's slope is the exact probability of a wrong decision, within 5%"
FASTER = "ESED's regret grows faster at higher load"
SLOWER = "LASED's regret grows more slowly than ESED's at every load"
FLAT = "LASED's regret levels off at low loads: the last third brings less than 1% of it"
NOTHING = (
    "With μ = (5, 10) and r̂ = 2.02 a wrong decision needs 50 or more jobs at server 1: its exact probability is {} at load "
    "{} and {} at the others, so that this error would show nothing."
)
#: Accuracy of that probability.
UNSEEN = 1e-11


@dataclass(frozen=True)
class Reading:
    """One reading of "1 % error": rates, and the ratio that ESED believes in."""

    key: str
    words: str
    rates: tuple[str, str]
    believed: Fraction

    @property
    def ratio(self) -> Fraction:
        """r*."""
        return Fraction(self.rates[1]) / Fraction(self.rates[0])

    @property
    def belief(self) -> tuple[str, str]:
        """ESED's rates as fractions: that of server 1 is right."""
        return self.rates[0], str(Fraction(self.rates[0]) * self.believed)


def wrong(rates: Sequence[str], load: float, believed: Fraction, tolerance: float = 1e-8) -> float:
    """The exact share of wrong decisions of ESED with this ratio."""
    from ...dispatch import exact

    rule = esed(rates=[rates[0], str(Fraction(rates[0]) * believed)])
    return float(exact.disagreement(_lased.system_of(rates, load), rule, "sed", tolerance))


@cache
def readings() -> tuple[Reading, Reading]:
    """Both readings; the second one's ratio is found from the exact law."""
    off = Fraction("1.982") * Fraction("1.01")
    percent = next(
        signed
        for size in range(1, 100)
        for signed in (-size, size)
        if 0.005 <= wrong(("5", "10"), REFERENCE_LOAD, Fraction(2) * (100 + signed) / 100) < 0.015
    )
    believed = Fraction(2) * (100 + percent) / 100
    return (
        Reading("ratio", "ratio 1% too high", ("5", "9.91"), off),
        Reading(
            "decisions",
            f"1% of decisions wrong at load {REFERENCE_LOAD:g} (ratio {abs(percent)}% too {'low' if percent < 0 else 'high'})",
            ("5", "10"),
            believed,
        ),
    )


@dataclass(frozen=True)
class Cell:
    """One reading at one load."""

    reading: Reading
    load: float
    system: System
    result: Result
    exact: float

    @property
    def label(self) -> str:
        return f"load {self.load:g}"

    @property
    def slope(self) -> Estimate:
        """ESED's regret per arrival."""
        return _lased.slope(self.result, "esed")

    @property
    def z(self) -> float:
        """The simulated slope minus the exact one, in standard errors; 0 where nothing was ever wrong."""
        found = self.slope
        if not found.sd > 0.0:
            return 0.0 if abs(found.mean - self.exact) < 1e-5 else math.copysign(math.inf, found.mean - self.exact)
        return (found.mean - self.exact) / (found.sd / math.sqrt(found.runs))


def claims(cells: Sequence[Cell]) -> list[Verdict]:
    """The claims, judged for one reading."""
    way = cells[0].reading.words
    halves = [(cell.label, _lased.last_share(cell.result, "esed", 0.5)) for cell in cells]
    linear = [Part(f"{name}, above 48%", [half], 0.5 - NEAR_HALF, "above") for name, half in halves]
    linear += [Part(f"{name}, below 52%", [half], 0.5 + NEAR_HALF) for name, half in halves]
    slopes = []
    for cell in cells:
        relative = interval(_lased.regret_at(cell.result, "esed", 1.0) / (cell.result.arrivals[-1] * cell.exact))
        slopes.append(Part(f"{cell.label}, simulated/exact", [relative], 1.0 - NEAR_SLOPE, "above"))
        slopes.append(Part(f"{cell.label}, simulated/exact", [relative], 1.0 + NEAR_SLOPE))
    judged = [Claim(LINEAR, REFERENCE, way, linear).judge(), Claim(EXACT, "theory", way, slopes).judge()]
    for unit in ("per arrival", "per unit of time"):
        parts = []
        for low, high in itertools.pairwise(cells):
            first, second = (
                _lased.regret_at(cell.result, "esed", 1.0)
                / cell.result.arrivals[-1]
                * (cell.system.rate if unit == "per unit of time" else 1.0)
                for cell in (low, high)
            )
            parts.append(Part(f"load {high.load:g} - {low.load:g}", [interval(second - first)], 0.0, "above"))
        judged.append(Claim(FASTER, REFERENCE, f"{way}; {unit}", parts).judge())
    for words, since in (("over the whole run", 0.0), ("over the last third", 2 / 3)):
        parts = []
        for cell in cells:
            grown = [_lased.grown(cell.result, name, since) for name in ("lased", "esed")]
            parts.append(Part(cell.label, [interval(grown[0] - grown[1])]))
        judged.append(Claim(SLOWER, REFERENCE, f"{way}; {words}", parts).judge())
    flat = [
        Part(cell.label, [_lased.levels_off(cell.result, "lased")], _lased.LEVEL) for cell in cells if cell.load in LOW
    ]
    return [*judged, Claim(FLAT, REFERENCE, way, flat).judge()]


def slopes_table(cells: Sequence[Cell]) -> Table:
    """ESED's simulated slope beside the exact one, and LASED's regret."""
    rows = []
    for cell in cells:
        found = cell.slope
        half = 0.0 if found.runs < 2 else found.half_width
        rows.append(
            (
                f"{cell.load:g}",
                f"{cell.exact:.6f}",
                f"{found.mean:.6f} ± {half:.6f}",
                f"{cell.z:+.2f}",
                f"{cell.exact * cell.system.rate:.4f}",
                _lased.counted(cell.result.total_regret("lased")),
                f"{100 * _lased.last_share(cell.result, 'lased').mean:.2f}%",
            )
        )
    reading = cells[0].reading
    return Table(
        f"{reading.words}: μ = ({', '.join(reading.rates)}), r* = {float(reading.ratio):g}, r̂ = {float(reading.believed):g}",
        (
            "load",
            "exact slope",
            "simulated slope",
            "difference\n(std. errors)",
            "exact slope\nper time",
            "LASED's\nregret",
            "its last\nthird",
        ),
        tuple(rows),
        note="Slopes are wrong decisions per arrival; ± half a 95% interval.",
    )


def stuck_in_words(cell: Cell) -> str:
    """What endless episodes do to LASED's mean; nothing where there are none."""
    found, total = _lased.stuck(cell.result), _lased.regret_at(cell.result, "lased", 1.0)
    if not len(found):
        return ""
    rates = cell.result.estimates["lased"][found, -1]
    ratios = ", ".join(f"{ratio:.3g}" for ratio in rates[:5, 1] / rates[:5, 0])
    return (
        f"{cell.reading.words}, load {cell.load:g}: in {len(found)} of {cell.result.runs} runs LASED spent the last third in a "
        f"single episode, and they make {100 * total[found].sum() / max(total.sum(), 1.0):.0f}% of its mean regret there. "
        f"Their estimated ratios are {ratios}{', …' if len(found) > 5 else ''}, before the clip to [1/20, 20]: nearly all jobs "
        "go to one server, the system does not empty, and nothing is learned."
    )


def draw(cells: Sequence[Sequence[Cell]], out: Path) -> list[Path]:
    """A row per reading: ESED on plain axes with the exact line, LASED on logarithmic ones beside it."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter

    figure = new_figure(10.4, 7.6)
    axes = figure.subplots(2, 2, width_ratios=[1.0, 1.15])
    for row, group in enumerate(cells):
        plain, fine = axes[row]
        for cell in group:
            arrivals, colour = cell.result.arrivals, COLOURS[cell.load]
            _figures.draw_curve(plain, arrivals, _lased.regrets(cell.result, "esed"), "", color=colour)
            plain.plot(arrivals, cell.exact * arrivals, color="black", linestyle=(0, (1, 2.2)), linewidth=1.3)
            _figures.draw_curve(fine, arrivals, _lased.regrets(cell.result, "esed"), "", color=colour)
            fine.plot(arrivals, cell.exact * arrivals, color="black", linestyle=(0, (1, 2.2)), linewidth=1.0)
            for axis in (plain, fine):
                _figures.draw_curve(
                    axis, arrivals, _lased.regrets(cell.result, "lased"), "", color=colour, linestyle="--"
                )
        plain.set_ylabel("regret (decisions against SED)")
        plain.set_xlim(0, int(group[0].result.arrivals[-1]))
        plain.set_ylim(bottom=0)
        plain.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        _lased.millions(plain)
        _lased.logarithmic(fine, group[0].result)
        reading = group[0].reading
        plain.set_title(
            f"{reading.words}\nμ = ({', '.join(reading.rates)}), r* = {float(reading.ratio):g}, "
            f"r̂ = {float(reading.believed):g}",
            fontsize=10,
            loc="left",
        )
        fine.set_title("the same on logarithmic axes", fontsize=10, loc="left")
        for axis in (plain, fine):
            _figures.bare(axis)
    handles = [Line2D([], [], color=COLOURS[load], linewidth=2.5, label=f"load {load:g}") for load in LOADS]
    handles += [
        Line2D([], [], color="0.35", linewidth=1.7, label="ESED"),
        Line2D([], [], color="black", linestyle=(0, (1, 2.2)), linewidth=1.3, label="ESED, exact stationary slope"),
        Line2D([], [], color="0.35", linestyle="--", linewidth=1.7, label="LASED"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False, fontsize=9.5)
    runs = cells[0][0].result.runs
    figure.suptitle(f"Fixed estimates against learning: mean of {runs} runs with 95% intervals", fontsize=12.5)
    return save_figure(figure, out, "figure")


def run(request: Request) -> Outcome:
    """Simulate, compare with the exact slopes, judge, and write everything to ``request.out``."""
    out = output_folder(request.out)
    groups = []
    with Progress(2 * len(LOADS) * request.runs, shown=request.progress) as progress:
        for reading in readings():
            group = []
            for load in LOADS:
                system = _lased.system_of(reading.rates, load)
                result = simulate(
                    system,
                    [_lased.learner(), esed(rates=reading.belief)],
                    arrivals=request.arrivals,
                    runs=request.runs,
                    seed=request.seed,
                    workers=request.workers,
                    checkpoints=_lased.checkpoints(request.arrivals),
                    folder=out / "rows" / reading.key / f"load{load:g}",
                    progress=progress.begin(f"{reading.words}, load {load:g}"),
                )
                exact = wrong(reading.rates, load, reading.believed)
                group.append(Cell(reading, load, system, result, exact))
            groups.append(group)
        progress.begin("drawing")
        files = draw(groups, out)
    verdicts = [verdict for trio in zip(*map(claims, groups), strict=True) for verdict in trio]
    cells = [cell for group in groups for cell in group]
    worst = max(cells, key=lambda cell: abs(cell.z))
    unseen = [wrong(("5", "10"), load, Fraction("2.02"), UNSEEN) for load in LOADS]
    said = [
        f"The simulated slopes of ESED differ from the exact ones by at most {abs(worst.z):.1f} standard errors "
        f"({len(cells)} slopes).",
        NOTHING.format(
            f"{unseen[-1]:.1e}",
            f"{LOADS[-1]:g}",
            f"at most {max(unseen[:-1]):.1e}" if max(unseen[:-1]) > UNSEEN else f"below {UNSEEN:g}",
        ),
        *filter(None, map(stuck_in_words, cells)),
    ]
    results = {
        "settings": [
            {
                "reading": cell.reading.words,
                "service_rates": list(cell.reading.rates),
                "believed_ratio": float(cell.reading.believed),
                "load": cell.load,
                "exact_slope": cell.exact,
                "simulated_slope": estimate_json(cell.slope),
                "standard_errors": cell.z,
                "lased": estimate_json(cell.result.total_regret("lased")),
                "lased_stuck_runs": _lased.stuck(cell.result).tolist(),
                "lased_last_third": estimate_json(_lased.last_share(cell.result, "lased")),
            }
            for cell in cells
        ]
    }
    return _lased.finish(request, NAME, REFERENCE, verdicts, [slopes_table(g) for g in groups], said, results, files)
