"""The lower bounds of WISE and CQB-η-2 on the families that prove them: every policy's average regret, over the bound.

A lower bound says that no policy does better than so much *on average over a family* of systems that are hard to tell apart;
on one of them a policy may be lucky, and the oracle's regret is 0 on each. The family depends on the horizon: instances come
closer as there is more to learn from. So each horizon has a family of its own, every run draws a member of it at random, and
the mean over runs estimates the family's average. (WISE, Theorems 7 and 8, Appendices C and D; CQB-η-2, Theorem 10, Lemma 12.)

What is averaged is not Q^π(t) − Q*(t) itself, of which most runs are 0, but its exact conditional mean given the policy's
decisions (:func:`queuewise.scheduling.exact.conditional_regret`): in all three families every context has the same best success
probability, so that what becomes of one job too many is known exactly. Both are reported.

Where a family has two members, the best that *any* policy can do on average is found by dynamic programming: what lies between
it and the bound is the proof's, what lies above it the policies'.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._version import VERSION
from ...runs.experiment import policy_settings
from ...runs.plot import new_figure, save_figure
from ...runs.statistics import Estimate, interval
from ...scheduling.contexts import hard
from ...scheduling.contexts.hard import HardSystem
from ...scheduling.contexts.table import FiniteLaw
from ...scheduling.exact import conditional_regret, least_average_regret
from ...scheduling.policies import REGISTER, make
from ...scheduling.policy import Policy
from ...scheduling.simulate import simulate
from ...scheduling.systems import family
from ...streams import instance_seed
from ..claims import Claim, Part, Verdict, in_words, simultaneous
from ..registry import Outcome, Request
from ..report import Progress, Table, estimate_json, output_folder, short, to_json, write_text
from ._report import finish
from ._scheduling import LABELS, STYLES

Floats = NDArray[np.float64]

NAME = "lower-bounds"
REFERENCE = "WISE, Theorems 7 and 8; CQB-η-2, Theorem 10"
#: Decisions that are held in memory at a time, over all runs.
_DECISIONS = 400_000
_ALL_LABELS = LABELS | {"fifo_random": "FIFO + Random"}
_ALL_STYLES = STYLES | {
    "fifo_random": {"color": "#444444", "linestyle": (0, (4, 1, 1, 1)), "linewidth": 1.1, "zorder": 3}
}


@dataclass(frozen=True)
class Setting:
    """One theorem's families.

    Attributes
    ----------
    key, theorem : str
        For file names, and as the claim cites it.
    law : function
        The family at a horizon.
    horizons, quick_horizons : tuple of int
    parameters : function of the horizon to the law's other arguments
    words : str
        What the family is, for titles.
    """

    key: str
    theorem: str
    law: Callable[..., HardSystem]
    horizons: tuple[int, ...]
    quick_horizons: tuple[int, ...]
    parameters: Callable[[int], Mapping[str, Any]]
    words: str

    def arguments(self, horizon: int) -> dict[str, Any]:
        """Arguments of the law at one horizon."""
        return {"rounds": horizon, **self.parameters(horizon)}


#: Of WISE's families: d₀ = 3 coordinates, so eight servers and eight members.
_SIGNS = {"dimension": 4, "servers": 8}
SETTINGS = (
    Setting(
        "wise-theorem-7",
        "WISE, Theorem 7",
        hard.wise_theorem_7,
        (10, 30, 100, 300, 1000, 3000),
        (10, 100, 1000),
        lambda horizon: {**_SIGNS, "arrival_rate": 0.25},
        "d = 4, K = 8, λ = 1/4",
    ),
    Setting(
        "wise-theorem-8",
        "WISE, Theorem 8",
        hard.wise_theorem_8,
        (4096, 9216, 16384),
        (4096,),
        # The largest slack that the theorem allows is 1/8, and t ≥ 64/ε²: the least t for each slack.
        lambda horizon: {**_SIGNS, "capacity_slack": 8.0 / math.sqrt(horizon)},
        "d = 4, K = 8, slack 8/√t",
    ),
    Setting(
        "cqb-eta-2-theorem-10",
        "CQB-η-2, Theorem 10",
        hard.cqb_eta_2_theorem_10,
        (10, 30, 100, 300, 1000, 3000),
        (10, 100, 1000),
        lambda horizon: {"dimension": 3, "servers": 4, "arrival_rate": 0.5, "context_slack": 0.1},
        "d = 3, K = 4, λ = 1/2, slack 0.1",
    ),
)


#: Horizons at which the least average over all policies is computed (time grows with their cube).
_LEAST_AT = (10, 30, 100)


def policies() -> list[Policy]:
    """Every registered policy but the oracle, with its paper's own parameters (radius by formula, η from the slack)."""
    return [make(name) for name in REGISTER if name != "oracle"]


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One family at one horizon. Mappings are by policy, one number a run.

    Attributes
    ----------
    horizon : int
    bound : float
        What no policy's average is below, in jobs.
    members : list of str
        Which member of the family each run had.
    conditional : mapping to float64[run]
        Regret at the horizon given the policy's decisions.
    plain : mapping to float64[run]
        Q^π(t) − Q*(t) itself.
    """

    horizon: int
    bound: float
    members: Sequence[str]
    conditional: Mapping[str, Floats]
    plain: Mapping[str, Floats]

    def over_bound(self, name: str) -> Estimate:
        """A policy's average regret as a multiple of the bound."""
        return interval(self.conditional[name] / self.bound)

    @property
    def least(self) -> str:
        """The policy of smallest average."""
        return min(self.conditional, key=lambda name: float(self.conditional[name].mean()))

    def luckiest(self) -> tuple[float, str, str]:
        """The smallest average on one member, over the bound, with policy and member."""
        which = np.array(self.members)
        found = [
            (float(values[which == member].mean() / self.bound), name, member)
            for name, values in self.conditional.items()
            for member in sorted(set(self.members))
        ]
        return min(found)


def measure(
    setting: Setting,
    horizon: int,
    runs: int,
    *,
    seed: int,
    workers: int | None,
    path: Path | None,
    progress: Callable[[int, int], None] | None = None,
    played: Sequence[Policy] | None = None,
) -> Measured:
    """Play every policy on members of one family, and keep one number a run; runs that the file `path` holds are not repeated.

    Raises
    ------
    ValueError : `path` holds runs of another experiment.
    """
    listed = list(policies() if played is None else played)
    arguments = setting.arguments(horizon)
    hard_family = family(setting.law, **arguments)
    reference = setting.law(**arguments)
    settings = {
        "family": hard_family.settings(),
        "seed": seed,
        "policies": [policy_settings(policy) for policy in listed],
        "version": VERSION,
    }
    kept = None if path is None else read_rows(path, settings)
    names = [policy.name for policy in listed]
    rows = kept or {"members": [], "conditional": {n: [] for n in names}, "plain": {n: [] for n in names}}
    chunk = max(1, _DECISIONS // horizon)
    while len(rows["members"]) < runs:
        done = len(rows["members"])
        some = min(chunk, runs - done)
        result = simulate(
            hard_family,
            listed,
            rounds=horizon,
            runs=some,
            seed=seed,
            workers=workers,
            first_run=done,
            trace=True,
            progress=None if progress is None else _from(progress, done, runs),
        )
        oracle = result.oracle_queue_length[:, -1]
        for name in names:
            queue = result.queue_length[name]
            conditional = conditional_regret(result.trace[name].gap, queue, reference.arrival_rate, reference.best)
            rows["conditional"][name] += conditional.tolist()
            rows["plain"][name] += (queue[:, -1] - oracle).tolist()
        for run in range(done, done + some):
            member = hard_family.instance(instance_seed(seed, run))
            assert isinstance(member, HardSystem)
            rows["members"].append("".join("+" if sign > 0 else "−" for sign in member.signs))
        if path is not None:
            write_text(path, to_json({"settings": settings, **rows}) + "\n")
    return Measured(
        horizon,
        reference.bound,
        rows["members"][:runs],
        {name: np.array(rows["conditional"][name][:runs], dtype=np.float64) for name in names},
        {name: np.array(rows["plain"][name][:runs], dtype=np.float64) for name in names},
    )


def _from(progress: Callable[[int, int], None], before: int, runs: int) -> Callable[[int, int], None]:
    """Progress of a part of the runs, reported as progress of all."""
    return lambda done, _: progress(before + done, runs)


def read_rows(path: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an earlier call left, if it was the same experiment."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        same = found.pop("settings") == json.loads(to_json(settings))
    except (ValueError, KeyError, AttributeError, TypeError):
        same = False
    if not same:
        raise ValueError(f"out: {str(path)!r} holds runs of another experiment; name another folder")
    return dict(found)


def least_averages() -> dict[str, dict[int, tuple[float, float]]]:
    """The least average of all policies and the bound, by theorem and horizon, for families of two members: Theorem 10's own,
    and Theorem 7's with two servers."""
    tenth = SETTINGS[-1]
    laws: dict[str, Callable[[int], HardSystem]] = {
        "WISE, Theorem 7": lambda t: hard.wise_theorem_7(t, dimension=2, servers=2, arrival_rate=0.25),
        tenth.theorem: lambda t: tenth.law(**tenth.arguments(t)),
    }
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for theorem, law in laws.items():
        found[theorem] = {}
        for t in _LEAST_AT:
            member = law(t)
            assert isinstance(member.law, FiniteLaw)
            wrong = float(member.law.probabilities.min())
            found[theorem][t] = (least_average_regret(member.arrival_rate, member.best, wrong, t), member.bound)
    return found


# --- claims and tables -----------------------------------------------------------------------------------------------


def claim(setting: Setting, measured: Sequence[Measured]) -> Claim:
    """No policy's average over the family is below the bound: one part for every policy and horizon."""
    parts = [
        Part(f"{_label(name)}, t = {each.horizon:,}", [each.over_bound(name)], 1.0, "above")
        for each in measured
        for name in each.conditional
    ]
    runs = len(measured[0].members)
    return Claim(
        "No policy's average regret over the family is below the bound",
        setting.theorem,
        f"{runs} random members",
        parts,
    )


def _label(name: str) -> str:
    return _ALL_LABELS.get(name, name)


def above_table(results: Mapping[str, Sequence[Measured]]) -> Table:
    """How far above the bound the policies are: the best of them, and all together."""
    rows = []
    sections = []
    for setting in SETTINGS:
        for each in results[setting.key]:
            comparisons = len(each.conditional) * len(results[setting.key])
            ratios = {name: each.over_bound(name) for name in each.conditional}
            lowest = min(simultaneous(ratio, 0.95, comparisons)[0] for ratio in ratios.values())
            least = each.least
            most = max(ratios.values(), key=lambda ratio: ratio.mean)
            lucky, policy, member = each.luckiest()
            rows.append(
                (
                    setting.theorem,
                    f"{each.horizon:,}",
                    short(each.bound),
                    f"{_times(ratios[least].mean)} ({_label(least)})",
                    _times(most.mean),
                    _times(lowest),
                    f"{_times(lucky)} ({_label(policy)} on {member})",
                )
            )
        sections.append(len(rows) - 1)
    return Table(
        "How far above the bound",
        ("theorem", "t", "bound", "least average", "largest", "least lower end", "least on one member"),
        tuple(rows),
        note="Bound in jobs, averages in bounds. The lower end is that of intervals which hold for all policies and horizons "
        "of a theorem together (95%); the last column is no average over the family, and no theorem bounds it.",
        sections=tuple(sections),
    )


def policy_table(setting: Setting, measured: Sequence[Measured]) -> Table:
    """One theorem: every policy's average at every horizon, in bounds."""
    names = list(measured[0].conditional)
    return Table(
        f"{setting.theorem} ({setting.words}): average regret in bounds",
        ("policy", *(f"t = {each.horizon:,}" for each in measured)),
        tuple(
            (
                _label(name),
                *(
                    f"{_times(each.over_bound(name).mean)} ± {_times(each.over_bound(name).half_width)}"
                    for each in measured
                ),
            )
            for name in names
        ),
        note="With the half width of the 95% interval of each by itself.",
    )


def least_table(least: Mapping[str, Mapping[int, tuple[float, float]]]) -> Table:
    """What the best policy would have, beside the bound."""
    rows = [
        (theorem, f"{t:,}", short(bound), short(regret), _times(regret / bound))
        for theorem, horizons in least.items()
        for t, (regret, bound) in horizons.items()
    ]
    return Table(
        "The best that any policy can do on families of two members, exactly",
        ("theorem", "t", "bound", "least average", "in bounds"),
        tuple(rows),
        note="In jobs. Theorem 7 with d = K = 2, Theorem 10 as above. By dynamic programming over all that can be seen.",
        sections=(len(_LEAST_AT) - 1,),
    )


def estimator_table(results: Mapping[str, Sequence[Measured]]) -> Table:
    """What averaging out everything after the decisions gains, and whether both ways agree."""
    rows = []
    sections = []
    for setting in SETTINGS:
        for each in results[setting.key]:
            plain = [values.std(ddof=1) for values in each.plain.values()]
            conditional = [values.std(ddof=1) for values in each.conditional.values()]
            gains = [(a / b) ** 2 for a, b in zip(plain, conditional, strict=True) if a > 0 and b > 0]
            rows.append(
                (
                    setting.theorem,
                    f"{each.horizon:,}",
                    short(float(np.mean(plain))),
                    short(float(np.mean(conditional))),
                    f"{_times(float(np.median(gains)))}" if gains else "",
                    short(_disagreement(each)),
                )
            )
        sections.append(len(rows) - 1)
    return Table(
        "Regret given the decisions, beside the difference of queue lengths itself",
        ("theorem", "t", "sd of Q^π − Q*", "sd given decisions", "runs saved (factor)", "z of their difference"),
        tuple(rows),
        note="Standard deviations of one run in jobs, mean over policies; the factor is the median over policies of the ratio "
        "of variances. Both have the same mean: z is that of the paired difference, averaged over policies ('?': "
        "fewer than ten runs have any).",
        sections=tuple(sections),
    )


def _disagreement(measured: Measured) -> float:
    """z of plain less conditional regret, averaged over policies within each run (runs are independent, policies are not); nan
    where so few runs have a difference of queue lengths at all that a mean of them is not nearly normal."""
    if sum(any(values[run] for values in measured.plain.values()) for run in range(len(measured.members))) < 10:
        return math.nan
    both = [measured.plain[name] - measured.conditional[name] for name in measured.plain]
    each = np.mean(both, axis=0)
    spread = each.std(ddof=1) / math.sqrt(len(each))
    return float(each.mean() / spread) if spread > 0 else 0.0


def _times(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else short(number)


def sentences(
    verdicts: Sequence[Verdict],
    results: Mapping[str, Sequence[Measured]],
    least: Mapping[str, Mapping[int, tuple[float, float]]],
) -> list[str]:
    """What the bounds are worth on their own families."""
    said = []
    for setting, verdict in zip(SETTINGS, verdicts, strict=True):
        measured = results[setting.key]
        ratios = [each.over_bound(name).mean for each in measured for name in each.conditional]
        lucky, policy, member = min(each.luckiest() for each in measured)
        said.append(
            f"{setting.theorem}: {in_words(verdict.claim.way, verdict, 'averages')}; they lie {_times(min(ratios))} to "
            f"{_times(max(ratios))} times above the bound, and on a single member {_times(lucky)} times ({_label(policy)} on "
            f"{member})."
        )
    for theorem, horizons in least.items():
        ratios = [regret / bound for regret, bound in horizons.values()]
        said.append(
            f"{theorem}, two members: the best of all policies has an average of {_times(min(ratios))} to "
            f"{_times(max(ratios))} bounds at t = {', '.join(map(str, horizons))} (exact); no proof can raise the "
            "bound further on this family."
        )
    return said


# --- the figure ------------------------------------------------------------------------------------------------------


def draw(
    results: Mapping[str, Sequence[Measured]], least: Mapping[str, Mapping[int, tuple[float, float]]], out: Path
) -> list[Path]:
    """Regret and bound over t, and below it regret in bounds, a column per theorem. Where it is known for the very family, also
    what the best of all policies has."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    figure = new_figure(12.6, 7.4, layout=None)
    axes = figure.subplots(
        2,
        len(SETTINGS),
        gridspec_kw={"left": 0.065, "right": 0.985, "bottom": 0.075, "top": 0.875, "wspace": 0.22, "hspace": 0.16},
    )
    for column, setting in enumerate(SETTINGS):
        above, below = axes[0, column], axes[1, column]
        measured = results[setting.key]
        horizons = np.array([each.horizon for each in measured], dtype=np.float64)
        bound = np.array([each.bound for each in measured])
        names = list(measured[0].conditional)
        above.plot(
            horizons, bound, color="black", linewidth=1.8, marker="_", markersize=9, label="lower bound", zorder=6
        )
        best = least[setting.theorem] if setting is SETTINGS[-1] else {}
        if best:
            above.plot(
                list(best),
                [regret for regret, _ in best.values()],
                color="black",
                linewidth=1.2,
                linestyle=(0, (2, 1.5)),
                marker="x",
                markersize=5,
                label="best of all policies",
                zorder=6,
            )
            for place, each in enumerate(measured):
                if each.horizon in best:
                    height = best[each.horizon][0] / each.bound
                    below.plot(
                        [place - 0.4, place + 0.4], [height] * 2, color="black", linewidth=1.2, linestyle=(0, (2, 1.5))
                    )
        highest = 0.0
        for place, name in enumerate(names):
            style = dict(_ALL_STYLES.get(name, {}))
            found = [interval(each.conditional[name]) for each in measured]
            mean = np.array([each.mean for each in found])
            above.plot(horizons, mean, **style, marker=".", markersize=4, label=_label(name))
            # Side by side within a seventh of the step between horizons, so that intervals can be told apart.
            shift = (place - (len(names) - 1) / 2) / max(len(names) - 1, 1)
            ratios = [each.over_bound(name) for each in measured]
            x = np.arange(len(measured)) + 0.62 * shift
            half = [ratio.half_width for ratio in ratios]
            middle = np.array([ratio.mean for ratio in ratios])
            below.errorbar(
                x,
                middle,
                yerr=half,
                fmt="o",
                markersize=3.6,
                linewidth=1.1,
                color=style.get("color", "black"),
                zorder=3,
            )
            highest = max(highest, float((middle + half).max()))
        above.set_xscale("log")
        above.set_yscale("log")
        above.set_title(f"{setting.theorem}\n{setting.words}", fontsize=10.5)
        above.xaxis.set_major_locator(FixedLocator(horizons.tolist()))
        above.xaxis.set_minor_locator(NullLocator())
        above.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        above.grid(True, which="major", linewidth=0.4, alpha=0.5)
        above.tick_params(labelsize=8.5)
        below.axhline(1.0, color="black", linewidth=1.8)
        below.text(-0.47, 1.0, " bound", fontsize=8.5, ha="left", va="bottom")
        below.set_ylim(0.0, 1.12 * highest)
        below.set_xlim(-0.5, len(measured) - 0.5)
        below.set_xticks(np.arange(len(measured)), [f"{each.horizon:,}" for each in measured])
        below.yaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        for edge in np.arange(0.5, len(measured) - 0.5):
            below.axvline(edge, color="#cccccc", linewidth=0.6, zorder=0)
        below.set_xlabel("round t", fontsize=10)
        below.tick_params(labelsize=8.5)
    axes[0, 0].set_ylabel("average regret at t (jobs)", fontsize=10)
    axes[1, 0].set_ylabel("average regret at t, in bounds", fontsize=10)
    handles, labels = axes[0, -1].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="upper center",
        ncol=len(labels),
        fontsize=9,
        frameon=False,
        handlelength=2.2,
        columnspacing=1.2,
    )
    return save_figure(figure, out, "figure")


# --- the whole -------------------------------------------------------------------------------------------------------


def run(request: Request) -> Outcome:
    """Measure all families, judge the claims and write figure, tables and numbers."""
    out = output_folder(request.out)
    results: dict[str, list[Measured]] = {}
    plan = [(setting, setting.quick_horizons if request.quick else setting.horizons) for setting in SETTINGS]
    with Progress(request.runs * sum(len(horizons) for _, horizons in plan), shown=request.progress) as progress:
        for setting, horizons in plan:
            results[setting.key] = [
                measure(
                    setting,
                    horizon,
                    request.runs,
                    seed=request.seed,
                    workers=request.workers,
                    path=out / "rows" / f"{setting.key}-t{horizon}.json",
                    progress=progress.begin(f"{setting.theorem}, t = {horizon:,}"),
                )
                for horizon in horizons
            ]
        progress.begin("the best of all policies")
        least = least_averages()
        progress.begin("drawing")
        files = draw(results, least, out)
    verdicts = tuple(claim(setting, results[setting.key]).judge() for setting in SETTINGS)
    tables = (
        *(policy_table(setting, results[setting.key]) for setting in SETTINGS),
        estimator_table(results),
        least_table(least),
        above_table(results),
    )
    numbers = {
        "least_average": [
            {"theorem": theorem, "horizon": t, "regret": regret, "bound": bound}
            for theorem, horizons in least.items()
            for t, (regret, bound) in horizons.items()
        ],
        "settings": [_as_json(setting, each) for setting in SETTINGS for each in results[setting.key]],
    }
    said = sentences(verdicts, results, least)
    return finish(
        request,
        NAME,
        REFERENCE,
        verdicts,
        tables,
        said,
        numbers,
        files,
        heading="Lower bounds",
        title="Claims of the lower bounds",
    )


def _as_json(setting: Setting, measured: Measured) -> dict[str, Any]:
    return {
        "theorem": setting.theorem,
        **setting.arguments(measured.horizon),
        "bound": measured.bound,
        "regret": {name: estimate_json(interval(values)) for name, values in measured.conditional.items()},
        "queue_length_difference": {name: estimate_json(interval(values)) for name, values in measured.plain.items()},
        "in_bounds": {name: estimate_json(measured.over_bound(name)) for name in measured.conditional},
    }
