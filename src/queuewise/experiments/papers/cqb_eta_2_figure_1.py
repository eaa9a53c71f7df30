"""Figure 1 of CQB-η-2: queue length regret beside four other policies, for three slacks, and for three numbers of servers.

2000 rounds on the uniform law. Left: five policies at context-wise slack 0.1 with five servers. Middle: CQB-η-2 at slacks
0.05, 0.1 and 0.15. Right: CQB-η-2 with 3, 5 and 10 servers. It is measured in two ways: the paper's, with a few runs and
mean ± 1 standard deviation, and over many fresh instances with 95 % intervals of the mean. What the paper leaves open is
a parameter of the reproduction (``Choices``), and a table says how much each choice moves the result. (CQB-η-2,
Section 5, Algorithm 1 and equations (1) to (4).)

Comparisons between slacks, or between numbers of servers, are between different systems. They are paired by run all the
same: run i has the same arrivals, service uniforms and first candidate for the true parameter in every system, so that
the two regrets of a run are dependent (correlation 0.6 to 0.75), and the mean of their differences over independent runs
is the difference of the means, whose t interval is right whatever the dependence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...runs.plot import new_figure, save_figure
from ...runs.result import Result
from ...runs.statistics import Curve, Estimate, interval
from ...scheduling.contexts import uniform_law
from ...scheduling.contexts.uniform import UniformSystem
from ...scheduling.policy import Policy
from ...scheduling.simulate import simulate
from ...scheduling.systems import Family, System, family
from ...streams import instance_seed
from .. import report
from ..claims import Claim, Part, Verdict, in_words, inequality, simultaneous
from ..registry import Outcome, Request
from ..report import Progress, Table, estimate_json, output_folder
from ._cqb_eta_2_choices import ONE, PER_RUN, PHASE_2_END, ROUNDS, STATED, VARIATIONS, Choices, Setting
from ._figures import bare, jobs_axis
from ._report import finish
from ._scheduling import LABELS, STYLES

Floats = NDArray[np.float64]

BASE: Setting = (0.1, 5)
SLACKS = (0.05, 0.1, 0.15)
SERVERS = (3, 5, 10)
SETTINGS: tuple[Setting, ...] = (BASE, (0.05, 5), (0.15, 5), (0.1, 3), (0.1, 10))
#: The round where CQB-η-2's pure exploration ends in the paper, and regret is near its peak.
PEAK = 400
OURS, RIVALS = ("cqb_eta_2", "cqb_epsilon"), ("acqb", "random", "fifo_random")
#: Seed of the instance of "one for all runs".
INSTANCE = 0
#: Instances over which a choice's effect is measured in the quick size, where eighteen choices would take most of the time.
QUICK_CHOICE_INSTANCES = 10
#: Instances over which the law's own constants are averaged.
_LAW_INSTANCES = 100

REFERENCE = "CQB-η-2, Section 5"
SMALLEST = "CQB-η-2 and CQB-ε have the smallest final regret of the five policies"
SLACK_FINAL = "Larger slack gives smaller final regret"
SLACK_MEAN = "Larger slack gives smaller mean regret over rounds 1-2000"
SERVERS_FALL = "Stable in K: for each K the final regret is below half of that at round 400"

ALL_LABELS = LABELS | {"fifo_random": "FIFO + Random"}
ALL_STYLES = STYLES | {"fifo_random": {"color": "#e08a00", "linestyle": (0, (5, 1.5)), "zorder": 3}}


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One setting, measured one way. Mappings are by policy; arrays have one number a run, in the order of runs.

    Attributes
    ----------
    curves : mapping to Curve
        Regret per round.
    explored, final, mean : mapping to float64[run]
        Regret at round 400, when pure exploration ends; at round 2000; and averaged over all rounds.
    """

    curves: Mapping[str, Curve]
    explored: Mapping[str, Floats]
    final: Mapping[str, Floats]
    mean: Mapping[str, Floats]

    def first(self, runs: int) -> Measured:
        """The first so many runs, without curves."""
        cut = [{name: row[:runs] for name, row in rows.items()} for rows in (self.explored, self.final, self.mean)]
        return Measured({}, *cut)

    @property
    def order(self) -> list[str]:
        """Policies by mean final regret, smallest first."""
        return sorted(self.final, key=lambda name: float(self.final[name].mean()))


@dataclass(frozen=True)
class Way:
    """One way of measuring: its name for folders, its words, its runs and what it measured."""

    name: str
    words: str
    runs: int
    settings: Mapping[Setting, Measured]

    def ours(self, setting: Setting, what: str = "final") -> Floats:
        """CQB-η-2's regret in one setting, a number a run."""
        rows: Mapping[str, Floats] = getattr(self.settings[setting], what)
        return rows["cqb_eta_2"]


@dataclass(frozen=True)
class Effect:
    """What one choice moves, from the default and paired by run.

    Attributes
    ----------
    field, value, policy : the choice, its other value, and the policy whose regret is looked at.
    final, mean : Estimate
        Change of that policy's final regret and of its mean regret.
    swaps : list of (str, str, bool)
        Pairs of policies (a, b) with a before b by mean final regret where the default has b before a, and whether the
        difference is certain (intervals of all ten pairs together 95 %).
    """

    field: str
    value: Any
    policy: str
    final: Estimate
    mean: Estimate
    swaps: Sequence[tuple[str, str, bool]]

    @property
    def label(self) -> str:
        stated = f" (stated: {STATED[self.field]})" if self.field in STATED else ""
        return f"{self.field} = {self.value}{stated}"


def summarise(result: Result) -> Measured:
    """What figures, claims and tables need of one result, which may then be dropped."""
    oracle = result.oracle_queue_length
    regret = {name: rows - oracle for name, rows in result.queue_length.items()}
    return Measured(
        curves={name: result.regret(name) for name in regret},
        explored={name: rows[:, min(PEAK, result.rounds) - 1].astype(np.float64) for name, rows in regret.items()},
        final={name: rows[:, -1].astype(np.float64) for name, rows in regret.items()},
        mean={name: rows.mean(axis=1) for name, rows in regret.items()},
    )


def effect(field: str, value: Any, policy: str, default: Measured, other: Measured) -> Effect:
    """The change from `default` to `other`, which have the same runs."""
    before = {name: place for place, name in enumerate(default.order)}
    order = other.order
    swaps = []
    for place, first in enumerate(order):
        for second in order[place + 1 :]:
            if before[second] < before[first]:
                _, high = simultaneous(interval(other.final[first] - other.final[second]), 0.95, 10)
                swaps.append((first, second, high < 0.0))
    return Effect(
        field,
        value,
        policy,
        interval(other.final[policy] - default.final[policy]),
        interval(other.mean[policy] - default.mean[policy]),
        swaps,
    )


class _Bench:
    """Simulates for one request: which system, which policies, which folder."""

    def __init__(self, request: Request, choices: Choices, progress: Progress) -> None:
        self.request, self.choices, self.progress = request, choices, progress

    def measure(
        self, folder: str, words: str, system: System | Family, policies: Sequence[Policy], runs: int
    ) -> Measured:
        result = simulate(
            system,
            policies=list(policies),
            rounds=ROUNDS,
            runs=runs,
            seed=self.request.seed,
            workers=self.request.workers,
            folder=self.request.out / "rows" / folder,
            progress=self.progress.begin(words),
        )
        return summarise(result)

    def way(self, name: str, words: str, runs: int, instance: str) -> Way:
        settings = {}
        for setting in SETTINGS:
            policies = self.choices.policies()
            settings[setting] = self.measure(
                f"{name}/slack{setting[0]:g}-servers{setting[1]}",
                f"{words}: {label(setting)}",
                _system(self.choices, setting, instance),
                policies if setting == BASE else policies[:1],
                runs,
            )
        return Way(name, words, runs, settings)

    def effects(self, default: Measured, runs: int, varied: Sequence[tuple[str, Any, str]]) -> list[Effect]:
        default = default.first(runs)
        usual = {policy.name: policy.options for policy in self.choices.policies()}
        found = []
        for field, value, policy in varied:
            choices = replace(self.choices, **{field: value})
            same_law = choices.law(BASE) == self.choices.law(BASE) and field != "instance"
            # A policy's numbers depend on law, options and name alone: what a choice does not touch is known already.
            touched = [p for p in choices.policies() if not same_law or p.options != usual[p.name]]
            other = self.measure(
                f"choices/{field}-{str(value).replace('/', '-').replace(' ', '-')}",
                f"{field} = {value}",
                _system(choices, BASE, ONE if field == "instance" else PER_RUN),
                touched,
                runs,
            )
            merged = Measured(
                {}, *({**getattr(default, key), **getattr(other, key)} for key in ("explored", "final", "mean"))
            )
            found.append(effect(field, value, policy, default, merged))
        return found


def _system(choices: Choices, setting: Setting, instance: str) -> System | Family:
    if instance == ONE:
        return uniform_law(seed=INSTANCE, **choices.law(setting))
    return family(uniform_law, **choices.law(setting))


def label(setting: Setting) -> str:
    """A setting in words."""
    return f"slack {setting[0]:g}, K = {setting[1]}"


# --- claims ----------------------------------------------------------------------------------------------------------


def claims(way: Way, stable_within: float) -> tuple[Verdict, ...]:
    """The paper's claims, judged on one way of measuring."""
    base = way.settings[BASE]

    def judged(text: str, parts: Sequence[Part]) -> Verdict:
        return Claim(text, REFERENCE, way.words, parts).judge()

    smallest = [
        Part(f"{ALL_LABELS[ours]} below {ALL_LABELS[rival]}", [interval(base.final[ours] - base.final[rival])])
        for ours in OURS
        for rival in RIVALS
    ]
    slacks = {
        what: [
            Part(f"slack {more:g} below {less:g}", [interval(way.ours((more, 5), what) - way.ours((less, 5), what))])
            for less, more in itertools.pairwise(SLACKS)
        ]
        for what in ("final", "mean")
    }
    finals = [way.ours((BASE[0], servers)) for servers in SERVERS]
    # The largest of all differences, each taken both ways round, is the distance between the largest and the smallest.
    spread = Part("largest difference", [interval(a - b) for a in finals for b in finals if a is not b], stable_within)
    falls = [
        Part(
            f"K = {servers}: final less half of round {PEAK}",
            [interval(way.ours((BASE[0], servers)) - way.ours((BASE[0], servers), "explored") / 2.0)],
        )
        for servers in SERVERS
    ]
    return (
        judged(SMALLEST, smallest),
        judged(SLACK_FINAL, slacks["final"]),
        judged(SLACK_MEAN, slacks["mean"]),
        judged(servers_within(stable_within), [spread]),
        judged(SERVERS_FALL, falls),
    )


def servers_within(jobs: float) -> str:
    """The claim that CQB-η-2 is stable in K, made quantitative."""
    return f"Stable in K: the final regrets for K = 3, 5 and 10 lie within {jobs:g} jobs of each other"


def sentences(judged: Sequence[tuple[Way, Sequence[Verdict]]]) -> list[str]:
    """Plainly: which claim holds, which does not, and which a way's number of runs cannot decide; and CQB-η-2 against CQB-ε."""
    said = []
    for verdicts in zip(*(verdicts for _, verdicts in judged), strict=True):
        parts = (in_words(verdict.claim.way, verdict, "parts") for verdict in verdicts)
        said.append(f"{verdicts[0].claim.text}: {'; '.join(parts)}.")
    for way, _ in judged:
        base = way.settings[BASE]
        final, mean = (interval(rows["cqb_eta_2"] - rows["cqb_epsilon"]) for rows in (base.final, base.mean))
        said.append(
            f"CQB-η-2 less CQB-ε, over {way.words}: final regret {_cell(final)} jobs ({_smaller(final)}), mean regret "
            f"{_cell(mean)} jobs ({_smaller(mean)})."
        )
    return said


def choice_sentences(effects: Sequence[Effect]) -> list[str]:
    """Which choices move a final regret for certain, and whether the policies' order by final regret changes for certain."""
    if not effects:
        return []
    moved = []
    for each in effects:
        low, high = simultaneous(each.final, 0.95, len(effects))
        if low > 0.0 or high < 0.0:
            moved.append(f"{each.label} ({ALL_LABELS[each.policy]}: {each.final.mean:+.1f} jobs)")
    runs = effects[0].final.runs
    certain = [(each.label, [swap for swap in each.swaps if swap[2]]) for each in effects]
    swaps = [f"{choice} ({_swap_text(pairs)})" for choice, pairs in certain if pairs]
    return [
        f"Of {len(effects)} choices varied one at a time over {runs} instances, these move a final regret with 95% "
        f"confidence for all together: {'; '.join(moved) or 'none'}.",
        f"The order of the five by final regret is certainly another with: {'; '.join(swaps) or 'none of the choices'}.",
    ]


def _smaller(difference: Estimate) -> str:
    if difference.high < 0.0:
        return "CQB-η-2 has less"
    return "CQB-ε has less" if difference.low > 0.0 else "undecided"


# --- tables ----------------------------------------------------------------------------------------------------------


def _cell(estimate: Estimate) -> str:
    return report.interval(estimate.mean, estimate.low, estimate.high)


def facts_table(way: Way) -> Table:
    """Regret of every policy in the left panel, and of CQB-η-2 in the other two."""
    rows: list[tuple[str, ...]] = []
    for setting, measured in way.settings.items():
        for name in measured.final:
            cells = (_cell(interval(rows_of[name])) for rows_of in (measured.explored, measured.final, measured.mean))
            rows.append((label(setting), ALL_LABELS[name], *cells))
    return Table(
        f"Regret, {way.words}",
        ("setting", "policy", f"at round {PEAK}", f"at round {ROUNDS}", f"mean of 1-{ROUNDS}"),
        tuple(rows),
        note="In jobs, with the 95% interval of each mean by itself.",
        sections=(len(way.settings[BASE].final) - 1,),
    )


def law_rows(choices: Choices, seed: int, runs: int, advance: Callable[[int, int], None]) -> list[dict[str, Any]]:
    """What the law's instances are like, per setting: acceptance rates and the constants that theory asks for."""
    found = []
    for index, setting in enumerate(SETTINGS):
        drawn = [uniform_law(seed=instance_seed(seed, run), **choices.law(setting)) for run in range(runs)]
        found.append({"setting": label(setting), "instances": runs, **_law_constants(drawn)})
        advance(index + 1, len(SETTINGS))
    return found


def _law_constants(drawn: Sequence[UniformSystem]) -> dict[str, Any]:
    tried = sum(system.parameters_tried for system in drawn)
    norms = [system.parameter_bound for system in drawn]
    return {
        "parameters_accepted": len(drawn) / tried,
        "contexts_accepted": float(np.mean([system.context_acceptance for system in drawn])),
        "parameter_norm": float(np.mean(norms)),
        "capacity_slack": float(np.mean([float(system.slack()) for system in drawn])),
        "feature_diversity": float(np.mean([system.feature_diversity().value for system in drawn])),
        "largest_feature_norm": float(np.max([system.max_feature_norm().value for system in drawn])),
        "kappa_over_the_ball": float(np.median([system.kappa("ball").value for system in drawn])),
    }


def law_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The same as a table."""
    return Table(
        "The uniform law's instances",
        (
            "setting",
            "θ* accepted",
            "contexts accepted",
            "‖θ*‖",
            "capacity slack",
            "σ₀²",
            "largest ‖φ‖",
            "κ over the ball",
        ),
        tuple(
            (
                row["setting"],
                f"{row['parameters_accepted']:.0%}",
                f"{row['contexts_accepted']:.0%}",
                f"{row['parameter_norm']:.2f}",
                f"{row['capacity_slack']:.3f}",
                f"{row['feature_diversity']:.3f}",
                f"{row['largest_feature_norm']:.2f}",
                f"{row['kappa_over_the_ball']:.0f}",
            )
            for row in rows
        ),
        note=f"Over {rows[0]['instances']} instances: share of true parameters accepted, and means over instances (of κ the "
        "median, of ‖φ‖ the largest). Contexts accepted: of those drawn for an accepted parameter. The paper's theory wants "
        "‖φ‖ ≤ 1, and κ over the ball.",
    )


def parts_table(judged: Sequence[tuple[Way, Sequence[Verdict]]]) -> Table:
    """Every inequality behind the claims, measured every way."""
    columns = ["part", "wanted"]
    for way, _ in judged:
        columns += [way.words, ""]
    rows: list[tuple[str, ...]] = []
    ends = []
    for verdicts in zip(*(verdicts for _, verdicts in judged), strict=True):
        for i, part in enumerate(verdicts[0].claim.parts):
            row = [part.label, inequality(part)]
            for verdict in verdicts:
                found = verdict.parts[i]
                row += [report.interval(found.value, found.low, found.high), found.verdict]
            rows.append(tuple(row))
        ends.append(len(rows) - 1)
    return Table(
        "What the claims rest on",
        tuple(columns),
        tuple(rows),
        note="Differences in jobs, paired by run, also between systems; claims in the order of the last table. The "
        "intervals of one claim hold together with 95% confidence.",
        sections=tuple(ends),
    )


def choices_table(effects: Sequence[Effect]) -> Table:
    """How much each choice moves the result."""
    rows = [
        (e.label, ALL_LABELS[e.policy], _cell(e.final), _cell(e.mean), _swap_text(e.swaps) or "the same")
        for e in effects
    ]
    return Table(
        "What each choice moves",
        (
            "choice instead of the default",
            "policy",
            "change of final regret",
            "change of mean regret",
            "order of the five",
        ),
        tuple(rows),
        note=f"In jobs, over {effects[0].final.runs} instances, one choice at a time, paired by run; 95% intervals of each "
        "change by itself. The order is that of the mean final regrets; of pairs that change places it is said which is now "
        "smaller, with a question mark where the interval of their difference has 0 in it (all ten pairs together 95%). "
        "Above the line is what the paper leaves open, below it what it states.",
        sections=tuple(
            i for i, (a, b) in enumerate(itertools.pairwise(effects)) if a.field not in STATED and b.field in STATED
        ),
    )


def _swap_text(swaps: Sequence[tuple[str, str, bool]]) -> str:
    return ", ".join(f"{ALL_LABELS[a]} < {ALL_LABELS[b]}{'' if certain else ' ?'}" for a, b, certain in swaps)


# --- the figure ------------------------------------------------------------------------------------------------------

#: Colours of three slacks, or three numbers of servers: light to dark.
_SHADES = ("#7fc8a9", "#008a5c", "#00382a")
_DASHES: tuple[Any, ...] = ((0, (4, 1.5)), "-", (0, (1, 1)))
_DRAW_EVERY = 5


def draw(way: Way, band: str, stem: Path, phase_1_end: float) -> list[Path]:
    """Draw the three panels to ``stem.png`` and ``stem.svg``, with lines where CQB-η-2's phases end.

    `band` is ``"sd"`` (the paper's: mean ± 1 standard deviation of a run) or ``"interval"`` (95 % interval of the mean).
    """
    phases = tuple(round(share * ROUNDS) for share in (phase_1_end, PHASE_2_END))
    figure = new_figure(13.0, 4.9, layout=None)
    axes = figure.subplots(
        1, 3, gridspec_kw={"left": 0.052, "right": 0.98, "bottom": 0.12, "top": 0.79, "wspace": 0.16}
    )

    def line(axis: Any, curve: Curve, text: str, style: Mapping[str, Any], alpha: float) -> None:
        low, high = curve.band(1.0) if band == "sd" else (curve.low, curve.high)
        shown = slice(_DRAW_EVERY - 1, None, _DRAW_EVERY)
        axis.fill_between(
            curve.rounds[shown], low[shown], high[shown], color=style["color"], alpha=alpha, linewidth=0, zorder=1
        )
        axis.plot(curve.rounds[shown], curve.mean[shown], label=text, **{**style, "linewidth": 1.5})

    for name, curve in way.settings[BASE].curves.items():
        line(axes[0], curve, ALL_LABELS[name], ALL_STYLES[name], 0.13)
    for axis, settings, text in (
        (axes[1], [(slack, BASE[1]) for slack in SLACKS], "slack {0:g}"),
        (axes[2], [(BASE[0], servers) for servers in SERVERS], "K = {1}"),
    ):
        for setting, colour, dash in zip(settings, _SHADES, _DASHES, strict=True):
            curve = way.settings[setting].curves["cqb_eta_2"]
            line(
                axis, curve, text.format(*setting), {"color": colour, "linestyle": dash}, 0.14 if band == "sd" else 0.22
            )
    # Linear up to ten jobs, logarithmic above: Random's regret is fifty times that of CQB-η-2 at the end.
    jobs_axis(axes[0], 10.0, [0, 2, 5, 10, 20, 50, 100, 200, 400])
    axes[0].set_ylim(-6.0 if band == "sd" else -1.0, 1000.0)  # room for the legend
    top = max(float(axis.get_ylim()[1]) for axis in axes[1:])
    bottom = min(float(axis.get_ylim()[0]) for axis in axes[1:])
    titles = ("five policies (slack 0.1, K = 5)", "CQB-η-2, context-wise slack", "CQB-η-2, number of servers")
    for axis, title in zip(axes, titles, strict=True):
        if axis is not axes[0]:
            axis.set_ylim(bottom, top)
        axis.set_title(title, fontsize=11)
        axis.set_xlim(0, ROUNDS)
        axis.set_xlabel("round", fontsize=10)
        axis.axhline(0.0, color="black", linewidth=0.6, zorder=2)
        left = axis is axes[0]
        for end in phases:
            axis.axvline(end, ymax=0.84 if left else 1.0, color="black", linewidth=0.5, linestyle=(0, (4, 3)), zorder=0)
        bare(axis)
        axis.set_xticks(range(0, ROUNDS + 1, 500))
        columns, place = (3, "upper left") if left else (1, "upper right")
        axis.legend(fontsize=9, frameon=False, ncols=columns, loc=place, columnspacing=1.4)
    axes[0].set_ylabel("queue length regret (jobs)", fontsize=10)
    shown = "mean ± 1 standard deviation of a run" if band == "sd" else "mean and its 95% interval"
    figure.suptitle(f"Queue length regret, {way.words}: {shown}", fontsize=13, x=0.052, ha="left", y=0.97)
    figure.text(
        0.052,
        0.885,
        f"Left axis linear up to 10 jobs, logarithmic above. Dashed: rounds {phases[0]} and {phases[1]}, where CQB-η-2's "
        "phases end.",
        fontsize=9.5,
        color="#444444",
    )
    return save_figure(figure, stem.parent, stem.name)


# --- the command -----------------------------------------------------------------------------------------------------


def run(request: Request) -> Outcome:
    """Simulate, judge the claims, vary the choices, and write figures, rows and claims to ``request.out``.

    Raises ValueError where a parameter is out of range, or the folder cannot be written to or holds rows of another
    experiment.
    """
    choices = Choices.of(request.parameters)
    for setting in SETTINGS:
        uniform_law(seed=INSTANCE, **choices.law(setting))  # refuses what no instance can meet before anything is run
    out = output_folder(request.out)
    plan = []
    if request.runs:
        where = " on one instance" if choices.instance == ONE else ""
        plan.append(("paper", f"{request.runs} runs{where}", request.runs, choices.instance))
    if request.instances:
        plan.append(("fresh-instances", f"{request.instances} fresh instances", request.instances, PER_RUN))
    varied = [each for each in VARIATIONS if getattr(choices, each[0]) != each[1]]
    many = min(
        choices.choice_instances, request.instances, QUICK_CHOICE_INSTANCES if request.quick else request.instances
    )
    total = len(SETTINGS) * sum(each[2] for each in plan) + (len(varied) * many) + len(SETTINGS)
    effects: list[Effect] = []
    with Progress(total, shown=request.progress) as progress:
        bench = _Bench(request, choices, progress)
        ways = [bench.way(*each) for each in plan]
        if many:
            effects = bench.effects(ways[-1].settings[BASE], many, varied)
        instances = min(_LAW_INSTANCES, max(request.instances, request.runs))
        law = law_rows(choices, request.seed, instances, progress.begin("instances of the law"))
        progress.begin("drawing")
        files = []
        for way in ways:
            stem = "figure" if way.name == "paper" else "figure-fresh-instances"
            files += draw(way, "sd" if way.name == "paper" else "interval", out / stem, choices.phase_1_end)
    return _report(request, choices, ways, effects, law, files)


def _report(
    request: Request,
    choices: Choices,
    ways: Sequence[Way],
    effects: Sequence[Effect],
    law: Sequence[dict[str, Any]],
    files: Sequence[Path],
) -> Outcome:
    judged = [(way, claims(way, choices.stable_within)) for way in ways]
    verdicts = tuple(verdict for group in zip(*(found for _, found in judged), strict=True) for verdict in group)
    tables = (
        *(facts_table(way) for way in ways),
        law_table(law),
        *([choices_table(effects)] if effects else []),
        parts_table(judged),
    )
    results = {
        "rounds": ROUNDS,
        "parameters": vars(choices),
        "settings": [_as_json(way, setting) for way in ways for setting in SETTINGS],
        "choices": [
            {
                "choice": each.field,
                "value": each.value,
                "policy": each.policy,
                "change_of_final_regret": estimate_json(each.final),
                "change_of_mean_regret": estimate_json(each.mean),
                "order_changes": [{"first": a, "second": b, "certain": certain} for a, b, certain in each.swaps],
            }
            for each in effects
        ],
        "law": list(law),
    }
    return finish(
        request,
        "cqb-eta-2-figure-1",
        "CQB-η-2, Figure 1, Section 5",
        verdicts,
        tables,
        [*sentences(judged), *choice_sentences(effects)],
        results,
        files,
        heading="CQB-η-2, Figure 1",
        title="Claims of CQB-η-2 about its Figure 1",
    )


def _as_json(way: Way, setting: Setting) -> dict[str, Any]:
    measured = way.settings[setting]
    return {
        "way": way.words,
        "slack": setting[0],
        "servers": setting[1],
        **{
            key: {name: estimate_json(interval(values)) for name, values in rows.items()}
            for key, rows in (
                ("regret_at_round_400", measured.explored),
                ("final_regret", measured.final),
                ("mean_regret", measured.mean),
            )
        },
    }
