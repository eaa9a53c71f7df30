"""Figure 1 of WISE: queue length regret in nine settings, with the paper's claims about it.

The grid is q (share of jobs whose best server is slower than jobs arrive) in {0, 0.15, 0.5} times capacity slack in
{0.05, 0.1, 0.15}, 2000 rounds each. It is measured in two ways: the paper's, with one instance (one true parameter and
one list of feature directions, from seed 0) and a few runs on it; and with a fresh instance in every run, which is what
a claim about the *law* is about. (WISE, Section 6 and Appendix F.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runs.plot import new_figure, save_figure
from ...runs.result import Result
from ...runs.statistics import Curve, Difference, Estimate
from ...scheduling import presets
from ...scheduling.contexts import wise_figure_law
from ...scheduling.simulate import simulate
from ...scheduling.systems import Family, System, family
from ..claims import Claim, Part, Verdict, in_words
from ..registry import Outcome, Request
from ..report import Progress, Table, estimate_json, interval, output_folder
from ._figures import bare, jobs_axis
from ._report import finish
from ._scheduling import LABELS, STYLES

ROUNDS = 2000
LATE = (1500, 2000)
SLOW_SHARES = (0.0, 0.15, 0.5)
SLACKS = (0.05, 0.1, 0.15)
SETTINGS = tuple((q, slack) for q in SLOW_SHARES for slack in SLACKS)
#: Rounds of the centred moving average through which curves are drawn.
SMOOTHING = 25
#: The paper's wording of its rows.
ROW_NAMES = {0.0: "pointwise", 0.15: "average", 0.5: "average"}
#: Seed of the one instance of the paper's way.
INSTANCE = 0

SMALLEST = "WISE has the smallest mean regret over rounds 1-2000 in five of the nine settings"
SECOND = "WISE has the smallest or second smallest mean regret over rounds 1-2000 in all nine settings"
BELOW_ONE = "WISE's mean regret over rounds 1500-2000 is below 1 in all nine settings"
REFERENCE = "WISE, Section 6"


@dataclass(frozen=True)
class Setting:
    """One panel, measured one way.

    Attributes
    ----------
    q, slack : float
    curves : mapping of policy to Curve
        Regret per round, smoothed.
    mean, late : mapping of policy to Estimate
        Mean regret over all rounds, and over rounds 1500-2000.
    difference : mapping of policy to Difference
        WISE's mean regret minus that policy's, paired by run.
    """

    q: float
    slack: float
    curves: Mapping[str, Curve]
    mean: Mapping[str, Estimate]
    late: Mapping[str, Estimate]
    difference: Mapping[str, Difference]

    @property
    def label(self) -> str:
        return label(self.q, self.slack)

    @property
    def order(self) -> list[str]:
        """Policies by mean regret, smallest first."""
        return sorted(self.mean, key=lambda name: self.mean[name].mean)

    @property
    def best_other(self) -> str:
        """The policy with the smallest mean regret but for WISE."""
        return next(name for name in self.order if name != "wise")

    @property
    def rank(self) -> int:
        """WISE's rank, from 1."""
        return self.order.index("wise") + 1


@dataclass(frozen=True)
class Way:
    """One way of measuring: its name for folders and files, its words, its runs and its nine settings."""

    name: str
    words: str
    runs: int
    settings: tuple[Setting, ...]


def label(q: float, slack: float) -> str:
    """A setting in words."""
    return f"q = {q:g}, slack = {slack:g}"


def summarise(result: Result, q: float, slack: float) -> Setting:
    """What the figure and the claims need of one setting's result, which may then be dropped."""
    everything = (1, result.rounds)
    late = (min(LATE[0], result.rounds), min(LATE[1], result.rounds))
    names = list(result.policies)
    return Setting(
        q,
        slack,
        curves={name: result.regret(name).smooth(SMOOTHING) for name in names},
        mean={name: result.mean_regret(name, rounds=everything) for name in names},
        late={name: result.mean_regret(name, rounds=late) for name in names},
        difference={name: result.compare("wise", name, rounds=everything) for name in names if name != "wise"},
    )


def claims(way: Way) -> tuple[Verdict, Verdict, Verdict]:
    """The paper's three claims, judged on one way of measuring."""
    words = way.words
    differences = [(setting.label, list(setting.difference.values())) for setting in way.settings]
    return (
        Claim(SMALLEST, REFERENCE, words, [Part(name, values) for name, values in differences], needed=5).judge(),
        Claim(SECOND, REFERENCE, words, [Part(name, values, rank=2) for name, values in differences]).judge(),
        Claim(BELOW_ONE, REFERENCE, words, [Part(s.label, [s.late["wise"]], bound=1.0) for s in way.settings]).judge(),
    )


def settings_table(way: Way, verdict: Verdict) -> Table:
    """Per setting: WISE against the best of the others, and its rank. `verdict` is that of the first claim."""
    rows = []
    for setting, part in zip(way.settings, verdict.parts, strict=True):
        difference = interval(part.value, part.low, part.high)
        rows.append(
            (f"{setting.q:g}", f"{setting.slack:g}", str(setting.rank), setting.best_other, difference, part.verdict)
        )
    return Table(
        f"WISE against the others, {way.words}",
        ("q", "slack", "rank", "best other", "WISE - best other", "smallest"),
        tuple(rows),
        note="Differences of mean regret over rounds 1-2000 in jobs, paired by run; negative is in WISE's favour. The "
        "nine intervals hold together with 95% confidence, whichever of the others is truly best.",
        sections=_section_ends(),
    )


def late_table(ways: Sequence[Way], verdicts: Sequence[Verdict]) -> Table:
    """Per setting: WISE's mean regret over rounds 1500-2000, every way. `verdicts` are those of the third claim."""
    columns = ["q", "slack"]
    for way in ways:
        columns += [way.words.replace(" on ", "\non "), "below 1"]
    rows = []
    for i, (q, slack) in enumerate(SETTINGS):
        row = [f"{q:g}", f"{slack:g}"]
        for verdict in verdicts:
            part = verdict.parts[i]
            row += [interval(part.value, part.low, part.high), part.verdict]
        rows.append(tuple(row))
    return Table(
        "WISE's mean regret over rounds 1500-2000",
        tuple(columns),
        tuple(rows),
        note="In jobs; the nine intervals of a column hold together with 95% confidence.",
        sections=_section_ends(),
    )


def facts_table(way: Way) -> Table:
    """Mean regret of every policy in every setting, with plain 95 % intervals."""
    rows: list[tuple[str, ...]] = []
    ends = []
    for q in SLOW_SHARES:
        row_settings = [setting for setting in way.settings if setting.q == q]
        rows.append((f"q = {q:g}", *("" for _ in SLACKS)))
        for name in row_settings[0].mean:
            cells = [interval(s.mean[name].mean, s.mean[name].low, s.mean[name].high) for s in row_settings]
            rows.append((name, *cells))
        ends.append(len(rows) - 1)
    return Table(
        f"Mean regret over rounds 1-2000, {way.words}",
        ("policy", *(f"slack = {slack:g}" for slack in SLACKS)),
        tuple(rows),
        note="In jobs, with the 95% interval of each mean by itself.",
        sections=tuple(ends),
    )


def _section_ends() -> tuple[int, ...]:
    return tuple(len(SLACKS) * (i + 1) - 1 for i in range(len(SLOW_SHARES)))


def sentences(paper: tuple[Way, Sequence[Verdict]] | None, fresh: tuple[Way, Sequence[Verdict]] | None) -> list[str]:
    """Plainly: which claim holds, which does not, and which the paper's number of runs could not decide."""
    said = []
    for index, claim in enumerate((SMALLEST, SECOND, BELOW_ONE)):
        parts = []
        if paper is not None:
            parts.append(in_words(paper[0].words, paper[1][index], "settings"))
        if fresh is not None:
            parts.append(in_words(fresh[0].words, fresh[1][index], "settings"))
        said.append(f"{claim}: {'; '.join(parts)}.")
    for measured in (paper, fresh):
        if measured is not None:
            ranks = [setting.rank for setting in measured[0].settings]
            said.append(
                f"By the means alone, over {measured[0].words}: WISE is first in {ranks.count(1)} settings, second in "
                f"{ranks.count(2)}, lower in {sum(rank > 2 for rank in ranks)} (the paper: first in 5, second in 4)."
            )
    return said


#: Every so many rounds a point is drawn; after smoothing over 25 rounds more of them cannot be told apart.
_DRAW_EVERY = 8


def _band_alpha(name: str, band: str) -> float:
    """Eight bands of two standard deviations lie on top of each other, so all but the first two are a hint only."""
    if band == "interval":
        return 0.2
    return 0.16 if name in ("wise", "cqb_opt") else 0.035


def draw(way: Way, band: str, stem: Path) -> list[Path]:
    """Draw the 3 × 3 panels to ``stem.png`` and ``stem.svg``.

    `band` is ``"sd"`` (the paper's: mean ± 2 standard deviations of a run) or ``"interval"`` (95 % interval of the mean).
    """
    figure = new_figure(11.0, 9.0, layout=None)
    axes = figure.subplots(
        len(SLOW_SHARES),
        len(SLACKS),
        sharex=True,
        sharey="row",
        gridspec_kw={"left": 0.075, "right": 0.985, "bottom": 0.115, "top": 0.895, "wspace": 0.06, "hspace": 0.1},
    )
    ticks = [0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500]
    top = dict.fromkeys(SLOW_SHARES, 1.0)
    for setting in way.settings:
        axis = axes[SLOW_SHARES.index(setting.q), SLACKS.index(setting.slack)]
        for name, curve in setting.curves.items():
            style = STYLES.get(name, {})
            rounds, mean = curve.rounds[::_DRAW_EVERY], curve.mean[::_DRAW_EVERY]
            if band == "sd":
                low, high = curve.mean - 2.0 * curve.sd, curve.mean + 2.0 * curve.sd
            else:
                low, high = curve.low, curve.high
            low, high = low[::_DRAW_EVERY], high[::_DRAW_EVERY]
            axis.fill_between(
                rounds, low, high, color=style.get("color"), alpha=_band_alpha(name, band), linewidth=0, zorder=1
            )
            axis.plot(rounds, mean, label=LABELS.get(name, name), **style)
            top[setting.q] = max(top[setting.q], float(high.max() if band == "interval" else mean.max() * 1.5))
        if setting.q == SLOW_SHARES[0]:
            axis.set_title(f"capacity slack {setting.slack:g}", fontsize=11)
        if setting.slack == SLACKS[0]:
            axis.set_ylabel(f"{ROW_NAMES[setting.q]} (q = {setting.q:g})\nregret (jobs)", fontsize=10)
        if setting.q == SLOW_SHARES[-1]:
            axis.set_xlabel("round", fontsize=10)
    for row, q in enumerate(SLOW_SHARES):
        # Linear up to one job, logarithmic above: WISE's claims are about values near 1, Random's are 50 times that.
        jobs_axis(axes[row, 0], 1.0, ticks)
        axes[row, 0].set_ylim(-0.5, top[q] * 1.15)
    for axis in axes.flat:
        axis.set_xlim(0, ROUNDS)
        axis.set_xticks(range(500, ROUNDS + 1, 500))  # no 0: it would run into the neighbour's 2000
        axis.axhline(0.0, color="black", linewidth=0.6, zorder=2)
        axis.axhline(1.0, color="black", linewidth=0.5, linestyle=(0, (4, 3)), zorder=2)
        bare(axis)
    shown = "mean ± 2 standard deviations" if band == "sd" else "mean and its 95% interval"
    figure.suptitle(f"Queue length regret, {way.words}: {shown}", fontsize=13, x=0.075, ha="left", y=0.975)
    figure.text(
        0.075,
        0.935,
        f"Moving average over {SMOOTHING} rounds. Vertical axis linear up to 1 job, logarithmic above.",
        fontsize=9.5,
        color="#444444",
    )
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="lower center", ncols=len(names), frameon=False, fontsize=10, bbox_to_anchor=(0.53, 0.01)
    )
    return save_figure(figure, stem.parent, stem.name)


def run(request: Request) -> Outcome:
    """Simulate, judge the claims, and write figures, rows and claims to ``request.out``.

    Raises ValueError where the folder cannot be written to or holds rows of another experiment.
    """
    out = output_folder(request.out)
    plan = []
    if request.runs:
        plan.append(("one-instance", f"{request.runs} runs on one instance", request.runs))
    if request.instances:
        plan.append(("fresh-instances", f"{request.instances} fresh instances", request.instances))
    ways = []
    with Progress(len(SETTINGS) * sum(runs for _, _, runs in plan), shown=request.progress) as progress:
        for name, words, runs in plan:
            settings = []
            for q, slack in SETTINGS:
                advance = progress.begin(f"{words}: {label(q, slack)}")
                system: System | Family
                if name == "one-instance":
                    system = wise_figure_law(q=q, slack=slack, seed=INSTANCE)
                else:
                    system = family(wise_figure_law, q=q, slack=slack)
                result = simulate(
                    system,
                    policies=presets.wise_figure_1(),
                    rounds=ROUNDS,
                    runs=runs,
                    seed=request.seed,
                    workers=request.workers,
                    folder=out / "rows" / name / f"q{q:g}-slack{slack:g}",
                    progress=advance,
                )
                settings.append(summarise(result, q, slack))
            ways.append(Way(name, words, runs, tuple(settings)))
        progress.begin("drawing")
        files = []
        for way in ways:
            stem = "figure" if way.name == "one-instance" else "figure-fresh-instances"
            files += draw(way, "sd" if way.name == "one-instance" else "interval", out / stem)
    return _report(request, ways, files)


def _report(request: Request, ways: Sequence[Way], files: Sequence[Path]) -> Outcome:
    judged = [(way, claims(way)) for way in ways]
    verdicts = tuple(verdict for trio in zip(*(verdicts for _, verdicts in judged), strict=True) for verdict in trio)
    paper = next((pair for pair in judged if pair[0].name == "one-instance"), None)
    fresh = next((pair for pair in judged if pair[0].name == "fresh-instances"), None)
    tables = (
        *(facts_table(way) for way in ways),
        *(settings_table(way, trio[0]) for way, trio in judged),
        late_table(ways, [trio[2] for _, trio in judged]),
    )
    results = {"rounds": ROUNDS, "settings": [_as_json(way, setting) for way in ways for setting in way.settings]}
    return finish(
        request,
        "wise-figure-1",
        "WISE, Figure 1, Section 6, Appendix F",
        verdicts,
        tables,
        sentences(paper, fresh),
        results,
        files,
        heading="WISE, Figure 1",
        title="Claims of WISE about its Figure 1",
    )


def _as_json(way: Way, setting: Setting) -> dict[str, Any]:
    return {
        "way": way.words,
        "q": setting.q,
        "slack": setting.slack,
        "rank": setting.rank,
        "best_other": setting.best_other,
        "mean_regret": {name: estimate_json(estimate) for name, estimate in setting.mean.items()},
        "late_regret": {name: estimate_json(estimate) for name, estimate in setting.late.items()},
        "wise_minus": {name: estimate_json(estimate) for name, estimate in setting.difference.items()},
    }
