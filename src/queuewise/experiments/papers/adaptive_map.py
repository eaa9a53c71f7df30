"""Every learning rule over the whole map: rates, loads, numbers of servers and service laws, with initial rates drawn afresh.

The question that the LASED paper's Section 7.4 leaves: which rule has least regret *everywhere*? Initial rates lie within a
factor of ten of the truth either way, drawn anew in every run and shared by all rules. Rates are geometric from 1 to r.

The goal that `optimistic_sed` is held to, at every point with n ≤ 10 servers: the upper 95 % limit of its mean regret is at
most 1.05 times the better of LASED and Greedy, plus 20(n − 1). With a hundred servers a rule that never learns but happens to
start from the right rates *is* the oracle, so there rules are judged by the mean delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dispatch import service
from ...dispatch.policies.greedy import greedy
from ...dispatch.policies.lased import lased
from ...dispatch.policies.optimistic_sed import optimistic_sed
from ...dispatch.policies.thompson_sed import thompson_sed
from ...dispatch.policy import Policy
from ...dispatch.result import ORACLE
from ...dispatch.service import Service
from ...dispatch.simulate import simulate
from ...dispatch.systems import System
from ...runs.plot import new_figure, save_figure
from ...runs.statistics import Estimate, interval
from ..claims import Claim, Part, Verdict
from ..registry import Outcome, Request
from ..report import Progress, Table, estimate_json, output_folder, short
from . import _figures, _lased

Floats = NDArray[np.float64]

NAME, REFERENCE = "adaptive-map", "Queuewise, beyond LASED's Section 7.4"
RATIOS = (1, 2, 4, 8, 16)
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)
SERVERS = (2, 3, 10)
MANY = 100
#: Initial rates lie within this factor of the truth, either way.
SPREAD = 10.0
#: The goal: so much worse than the better of LASED and Greedy at most, and so many decisions more per server but one.
FACTOR, ALLOWANCE = 1.05, 20.0
#: Runs with a hundred servers, of those asked for: their means are known well, and they take long.
SHARE_OF_RUNS = 4
#: Service that is not exponential.
LAWS: dict[str, Service] = {
    "deterministic": service.deterministic(),
    "Erlang, 4 phases": service.erlang(4),
    "hyperexponential, c² = 4": service.hyperexponential(4.0),
    "lognormal, c² = 4": service.lognormal(4.0),
}

OURS = "optimistic_sed"
GOAL = "optimistic_sed's mean regret is at most 1.05 × the better of LASED and Greedy + 20(n − 1), at every point"
DELAY = "With 100 servers optimistic_sed's mean delay is below both LASED's and Greedy's"
LABELS = {
    "lased": "LASED",
    "hybrid": "LASED, updated at every completion",
    "small": "LASED, threshold × 0.01",
    "greedy": "Greedy",
    "thompson_sed": "Thompson",
    "plain": "upper bounds, c = 0.1, no patience",
    OURS: "optimistic_sed",
}


def rules() -> list[Policy]:
    """The paper's two rules, ours, and its neighbours."""
    bounds = _lased.RATIO_BOUNDS
    return [
        lased(ratio_bounds=bounds),
        lased(ratio_bounds=bounds, update="completion", name="hybrid"),
        lased(ratio_bounds=bounds, scale=0.01, name="small"),
        greedy(),
        thompson_sed(),
        optimistic_sed(confidence=0.1, patience=1.0, samples=0.0, name="plain"),
        optimistic_sed(),
    ]


@dataclass(frozen=True)
class Point:
    """One system. regret, delay : rule → float64[run], decisions against the oracle at the end, and mean sojourn time;
    best_delay : the oracle's."""

    servers: int
    ratio: int
    load: float
    law: str
    regret: dict[str, Floats]
    delay: dict[str, Floats]
    best_delay: Floats

    @property
    def label(self) -> str:
        law = "" if self.law == "exponential" else f", {self.law}"
        return f"n = {self.servers}, r = {self.ratio}, load {self.load:g}{law}"

    def mean(self, rule: str) -> Estimate:
        """Mean regret."""
        return interval(self.regret[rule])

    @property
    def rival(self) -> str:
        """The better of the paper's two rules, by mean regret."""
        return min(("lased", "greedy"), key=lambda rule: float(self.regret[rule].mean()))

    @property
    def allowance(self) -> float:
        return ALLOWANCE * (self.servers - 1)

    @property
    def limit(self) -> float:
        """What the upper limit of our mean regret may be."""
        return FACTOR * float(self.regret[self.rival].mean()) + self.allowance

    @property
    def met(self) -> bool:
        """Whether the goal is met, as it is stated: by the 95 % interval of this point alone."""
        return self.mean(OURS).high <= self.limit

    @property
    def part(self) -> Part:
        """The goal as an inequality between paired means."""
        return Part(self.label, [interval(self.regret[OURS] - FACTOR * self.regret[self.rival])], self.allowance)


def rates(servers: int, ratio: int) -> list[str]:
    """Geometric from 1 to r, to three decimals, so that they are fractions that fit."""
    return [f"{rate:.3f}" for rate in np.geomspace(1.0, ratio, servers)]


def _plan(request: Request) -> list[tuple[int, int, float, str, int]]:
    """servers, ratio, load, law and runs of every point."""
    few = max(2, request.runs // SHARE_OF_RUNS)
    plan = [(n, r, load, "exponential", request.runs) for n in SERVERS for r in RATIOS for load in LOADS]
    plan += [(2, r, load, law, request.runs) for law in LAWS for r in (1, 4, 16) for load in (0.3, 0.9)]
    return plan + [(MANY, r, load, "exponential", few) for r in (1, 4, 16) for load in (0.3, 0.7, 0.9)]


def run(request: Request) -> Outcome:
    """Simulate the whole map, judge, and write everything to ``request.out``."""
    out = output_folder(request.out)
    plan = _plan(request)
    points = []
    with Progress(sum(runs for *_, runs in plan), shown=request.progress) as progress:
        for servers, ratio, load, law, runs in plan:
            speeds = rates(servers, ratio)
            system = System(
                arrival_rate=float(load * sum(map(float, speeds))),
                service_rates=speeds,
                service=LAWS.get(law),
                initial_spread=SPREAD,
            )
            folder = f"n{servers}-r{ratio}-load{load:g}" + (f"-{law.split(',')[0]}" if law in LAWS else "")
            result = simulate(
                system,
                rules(),
                arrivals=request.arrivals,
                runs=runs,
                seed=request.seed,
                workers=request.workers,
                checkpoints=[request.arrivals],
                folder=out / "rows" / folder,
                progress=progress.begin(f"{servers} servers, r = {ratio}, load {load:g}, {law}"),
            )
            delays = result.sojourn_time
            points.append(
                Point(
                    servers,
                    ratio,
                    load,
                    law,
                    {name: _lased.regrets(result, name)[:, -1] for name in result.policies},
                    {name: delays[name][:, -1] for name in result.policies},
                    delays[ORACLE][:, -1],
                )
            )
        progress.begin("drawing")
        words = f"{request.runs} runs of {request.arrivals:,} arrivals"
        files = [*draw_map(points, words, out), *draw_rules(points, words, out)]
    verdicts = claims(points)
    tables = [
        *(regret_table([p for p in points if p.servers == n and p.law == "exponential"], n) for n in SERVERS),
        law_table([p for p in points if p.law != "exponential"]),
        delay_table([p for p in points if p.servers == MANY]),
    ]
    results = {"points": [_as_json(point) for point in points]}
    return _lased.finish(request, NAME, REFERENCE, verdicts, tables, sentences(points), results, files)


def claims(points: Sequence[Point]) -> list[Verdict]:
    """The goal on the map, on other service laws, and the delay with a hundred servers."""
    runs = len(points[0].best_delay)
    exponential = [p for p in points if p.law == "exponential" and p.servers != MANY]
    other = [p for p in points if p.law != "exponential"]
    many = [p for p in points if p.servers == MANY]
    delays = [Part(p.label, [interval(p.delay[OURS] - p.delay[rule]) for rule in ("lased", "greedy")]) for p in many]
    return [
        Claim(GOAL, REFERENCE, f"exponential service, {runs} runs", [p.part for p in exponential]).judge(),
        Claim(GOAL, REFERENCE, f"other service laws, {runs} runs", [p.part for p in other]).judge(),
        Claim(DELAY, REFERENCE, f"{len(many[0].best_delay)} runs", delays).judge(),
    ]


def sentences(points: Sequence[Point]) -> list[str]:
    """Where the goal is met and where it is not, and which rule is best how often."""
    said = []
    for words, chosen in (
        ("exponential service", [p for p in points if p.law == "exponential" and p.servers != MANY]),
        ("other service laws", [p for p in points if p.law != "exponential"]),
    ):
        missed = sorted((p for p in chosen if not p.met), key=lambda p: -p.mean(OURS).high / p.limit)
        met = f"{len(chosen) - len(missed)} of {len(chosen)} points"
        text = f"{words.capitalize()}: the goal, as stated (each point by its own 95% limit), is met at {met}"
        if missed:
            worst = "; ".join(
                f"{p.label} ({short(p.mean(OURS).high)} against {short(p.limit)}, {p.mean(OURS).high / p.limit:.2f} times)"
                for p in missed[:4]
            )
            text += f"; it resists at {worst}"
            text += f", and {len(missed) - 4} more" if len(missed) > 4 else ""
        said.append(text + ".")
        best = [min(p.regret, key=lambda rule, p=p: float(p.regret[rule].mean())) for p in chosen]  # type: ignore[misc]
        counts = ", ".join(f"{LABELS[rule]} at {best.count(rule)}" for rule in LABELS if rule in best)
        said.append(f"{words.capitalize()}: least mean regret of all rules: {counts}.")
    return said


def regret_table(points: Sequence[Point], servers: int) -> Table:
    """Mean regret of every rule at every point."""
    rows = []
    for point in points:
        cells = [_lased.counted(point.mean(rule)) for rule in LABELS]
        rows.append((f"{point.ratio}", f"{point.load:g}", *cells, short(point.limit), "yes" if point.met else "no"))
    return Table(
        f"Mean regret with {servers} servers, exponential service",
        ("r", "load", *LABELS, "limit", "met"),
        tuple(rows),
        note="Decisions against SED, ± half the 95% interval of each mean by itself. limit: 1.05 × the better of LASED and "
        "Greedy + 20(n - 1), for the upper end of optimistic_sed's interval.",
    )


def law_table(points: Sequence[Point]) -> Table:
    """The same where service is not exponential."""
    rows = []
    for point in points:
        cells = [_lased.counted(point.mean(rule)) for rule in ("lased", "greedy", OURS)]
        rows.append(
            (
                point.law,
                f"{point.ratio}",
                f"{point.load:g}",
                *cells,
                short(point.limit),
                "yes" if point.met else "no",
            )
        )
    return Table(
        "Mean regret where service is not exponential, 2 servers",
        ("service", "r", "load", "lased", "greedy", OURS, "limit", "met"),
        tuple(rows),
    )


def delay_table(points: Sequence[Point]) -> Table:
    """A hundred servers: how much longer jobs take than with the oracle."""
    rows = []
    for point in points:
        base = float(point.best_delay.mean())
        cells = []
        for rule in LABELS:
            extra = interval(100.0 * (point.delay[rule] - point.best_delay) / base)
            cells.append(f"{extra.mean:+.1f} ± {extra.half_width:.1f}")
        rows.append((f"{point.ratio}", f"{point.load:g}", f"{base:.4g}", *cells))
    return Table(
        f"Mean delay with {MANY} servers beyond the oracle's, in per cent",
        ("r", "load", "oracle", *LABELS),
        tuple(rows),
        note="Paired by run, with the 95% interval of each by itself.",
    )


def _as_json(point: Point) -> dict[str, Any]:
    return {
        "servers": point.servers,
        "ratio": point.ratio,
        "load": point.load,
        "service": point.law,
        "limit": point.limit,
        "met": point.met,
        "regret": {rule: estimate_json(point.mean(rule)) for rule in LABELS},
        "delay": {rule: estimate_json(interval(point.delay[rule])) for rule in LABELS},
        "oracle_delay": estimate_json(interval(point.best_delay)),
    }


def draw_map(points: Sequence[Point], words: str, out: Path) -> list[Path]:
    """A heat map per number of servers: our regret over that of the better of the paper's two rules."""
    from matplotlib.colors import LogNorm

    figure = new_figure(13.2, 4.6)
    axes = figure.subplots(1, len(SERVERS))
    image: Any = None
    for axis, servers in zip(axes, SERVERS, strict=True):
        at = {(p.ratio, p.load): p for p in points if p.servers == servers and p.law == "exponential"}
        ratio = np.array([[_relative(at[r, load]) for r in RATIOS] for load in LOADS])
        image = axis.imshow(ratio, origin="lower", aspect="auto", cmap="RdBu_r", norm=LogNorm(1e-3, 1e3))
        for row, load in enumerate(LOADS):
            for column, r in enumerate(RATIOS):
                point = at[r, load]
                mark = "" if point.met else "!"
                text = f"{_brief(point.mean(OURS).mean)}{mark}\n{_brief(float(point.regret[point.rival].mean()))}"
                dark = abs(np.log10(max(ratio[row, column], 1e-9))) > 1.9
                axis.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
        axis.set_title(f"{servers} servers", fontsize=11, loc="left")
        axis.set_xticks(range(len(RATIOS)), [str(r) for r in RATIOS])
        axis.set_yticks(range(len(LOADS)), [f"{load:g}" for load in LOADS])
        axis.set_xlabel("fastest rate / slowest rate")
        axis.tick_params(length=0, labelsize=9)
        for side in axis.spines.values():
            side.set_visible(False)
    axes[0].set_ylabel("load")
    bar = figure.colorbar(image, ax=axes, location="right", shrink=0.9, pad=0.015)
    bar.set_label("ratio (blue: optimistic SED has less)")
    figure.suptitle(
        f"Optimistic SED's mean regret (above) and that of the better of LASED and Greedy (below): {words}",
        fontsize=11.5,
    )
    return save_figure(figure, out, "figure")


def _relative(point: Point) -> float:
    """Our mean regret over the rival's; one decision is added to both, since either may be near zero."""
    return (point.mean(OURS).mean + 1.0) / (float(point.regret[point.rival].mean()) + 1.0)


def _brief(value: float) -> str:
    if value >= 9_950:
        return f"{value / 1000:.0f}k"
    return f"{value / 1000:.1f}k" if value >= 995 else f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def draw_rules(points: Sequence[Point], words: str, out: Path) -> list[Path]:
    """Every rule's regret at every point, one row per rule: how bad it can be, and how often."""
    figure = new_figure(13.2, 4.8)
    axes = figure.subplots(1, len(SERVERS), sharey=True, sharex=True)
    colour = {0.1: "#56B4E9", 0.3: "#0072B2", 0.5: "#009E73", 0.7: "#E69F00", 0.9: "#D55E00"}
    order = list(LABELS)
    for axis, servers in zip(axes, SERVERS, strict=True):
        chosen = [p for p in points if p.servers == servers and p.law == "exponential"]
        for point in chosen:
            shift = 0.12 * (LOADS.index(point.load) - 2)
            for row, rule in enumerate(order):
                axis.plot(
                    max(float(point.regret[rule].mean()), 0.3),
                    row + shift,
                    "o",
                    markersize=4.5,
                    color=colour[point.load],
                )
        axis.set_xscale("log")
        axis.set_title(f"{servers} servers", fontsize=11, loc="left")
        axis.set_xlabel("mean regret")
        axis.set_yticks(range(len(order)), [LABELS[rule] for rule in order], fontsize=9)
        _figures.bare(axis)
    for load in LOADS:
        axes[0].plot([], [], "o", color=colour[load], label=f"load {load:g}")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LOADS), frameon=False)
    figure.suptitle(f"Every rule at every point of the map (r = {', '.join(map(str, RATIOS))}): {words}", fontsize=11.5)
    return save_figure(figure, out, "rules")
