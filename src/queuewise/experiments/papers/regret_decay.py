"""The decay of regret that the scheduling papers prove and could not draw: log–log over 10⁵ rounds and more, with slopes.

Three kinds of system, since "regret decays like t^{−1/2}" speaks of the worst system at every t:

- a *fixed* finite law that meets every assumption of both papers, and one of the same size in which context-wise slack is
  violated while capacity slack is not. A fixed law has gaps; once they are resolved regret is gone, faster than any power of t.
- the *family* of WISE's Theorem 7, whose separation shrinks with t, a fresh one for every horizon: that is where −1/2 shows,
  and where the lower bound belongs.
- a capacity slack that goes to 0: in the family of WISE's Theorem 8, and in the first law through its arrival rate.

The radius of the theory is so wide that little is decided in 10⁵ rounds, so the fixed laws are played twice: with the papers'
formulas, and with a fixed radius. Policies that are told their horizon (CQB-η-2 and CQB-ε) have a run per horizon and are
looked at in its last quarter; the others have one run and are looked at in windows of rounds from 2^k to 2^{k+1} − 1.
(WISE, Theorems 6 to 8; CQB-η-2, Theorems 5 and 10.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..._version import VERSION
from ...fields import number, require_choice, whole
from ...runs.experiment import policy_settings
from ...runs.statistics import interval
from ...scheduling.contexts import hard, table_law
from ...scheduling.policies.acqb import acqb
from ...scheduling.policies.cqb_epsilon import cqb_epsilon
from ...scheduling.policies.cqb_eta_2 import cqb_eta_2
from ...scheduling.policies.cqb_opt import cqb_opt
from ...scheduling.policies.wise import wise
from ...scheduling.policy import Policy
from ...scheduling.simulate import simulate
from ...scheduling.systems import System
from ..claims import Claim, Part, Verdict, parts_table, sentence
from ..registry import Outcome, Request
from ..report import Progress, Table, estimate_json, output_folder, short, to_json, write_text
from ..report import interval as in_brackets
from . import lower_bounds
from ._report import finish
from ._scheduling import LABELS
from ._slopes import Floats, Points, Slope, decay, dyadic, late_decay, middle, reach, slope

NAME = "regret-decay"
REFERENCE = "WISE, Theorems 6 to 8; CQB-η-2, Theorem 5"
ANYTIME, KNOWN = ("wise", "cqb_opt", "acqb"), ("cqb_eta_2", "cqb_epsilon")
#: In the order of tables and legends.
NAMES = ("wise", "cqb_eta_2", "cqb_epsilon", "acqb", "cqb_opt")

#: Contexts, servers and dimension of the fixed laws, and their S.
CONTEXTS, SERVERS, DIMENSION, BOUND = 8, 3, 3, 2.0
#: p* of the two contexts of the second law that violate context-wise slack.
SLOW = (0.25, 0.3)
#: Capacity slacks of the first law with its arrival rate as parameter, and those of Theorem 8's family: at most 1/8, and as
#: small as t ≥ 64/ε² allows at :data:`SLACK_ROUNDS`.
SLACKS = (0.2, 0.1, 0.05, 0.025, 0.0125)
FAMILY_SLACKS = (0.125, 0.1, 0.0625, 0.05, 0.025)
#: Least horizon that a policy is told, the factor from one to the next, and the first round that is looked at otherwise.
FIRST_HORIZON, HORIZON_STEP, FIRST_WINDOW = 256, 4, 16
#: How far a fitted slope may miss a rate that is claimed up to logarithms: 0.1 is one factor ln t from 10³ to 10⁵. And how far
#: one in ε may.
ROOM, SLACK_ROOM = 0.1, 0.2
#: Queue lengths in memory at a time.
_NUMBERS = 12_000_000

#: Of the longest runs.
ESTIMATORS = ("exact", "scheduled", "one_pass")

Radius = Literal["fixed", "theory"]


@dataclass(frozen=True)
class Choices:
    """The sizes and choices of one command, checked.

    Attributes
    ----------
    horizon : int
        Rounds of the fixed laws, a power of 2.
    family_horizon, slack_rounds, family_slack_rounds : int
        Largest horizon of Theorem 7's family; rounds at which regret is held against the slack, in the first law and in the
        family of Theorem 8.
    long_horizon, long_runs, long_estimator : int, int, str
        Of the longest runs, of which there may be none.
    runs, theory_runs, family_runs, family_slack_runs, slack_runs : int
        Of the fixed laws with either radius; of the families of Theorems 7 and 8; of the first law at every slack.
    radius, slack : float
        The fixed radius β, and the capacity slack of the fixed laws.
    law_seed : int
        Of the fixed laws.
    fit_from : int
        First round of fits over time.
    """

    horizon: int
    family_horizon: int
    slack_rounds: int
    family_slack_rounds: int
    long_horizon: int
    long_runs: int
    long_estimator: str
    runs: int
    theory_runs: int
    family_runs: int
    family_slack_runs: int
    slack_runs: int
    radius: float
    slack: float
    law_seed: int
    fit_from: int


def choices(request: Request) -> Choices:
    """The request's sizes and parameters. Raises ValueError for one out of range."""
    given = request.parameters
    sizes = {name: whole(given, name, 0) for name in _SIZES}
    for name in ("horizon", "family_horizon", "slack_rounds", "family_slack_rounds", "long_horizon"):
        size, least = sizes[name], _SIZES[name]
        if size < least or (size & (size - 1) and name not in ("slack_rounds", "family_slack_rounds")):
            power = "a power of 2, " if name not in ("slack_rounds", "family_slack_rounds") else ""
            raise ValueError(f"{name}: must be {power}at least {least}, not {size}")
        if request.quick:
            sizes[name] = min(size, _QUICK[name])
    for name in ("theory_runs", "family_runs", "family_slack_runs", "slack_runs", "long_runs"):
        if sizes[name] == 1:
            raise ValueError(f"{name}: must be 0 (leave out) or at least 2, since one run has no spread, not 1")
        # A user who asks for fewer runs than is usual wants fewer of everything.
        sizes[name] = min(sizes[name], request.runs)
    if sizes["fit_from"] < _SIZES["fit_from"]:
        raise ValueError(f"fit_from: must be at least {_SIZES['fit_from']}, not {sizes['fit_from']}")
    require_choice("long_estimator", given["long_estimator"], ESTIMATORS)
    return Choices(
        **{name: sizes[name] for name in _SIZES},
        runs=request.runs,
        radius=number(given, "radius", 0.0),
        slack=number(given, "slack", 0.0, 1.0),
        law_seed=whole(given, "law_seed", 0),
        long_estimator=given["long_estimator"],
    )


#: Sizes that can be set, and the least that makes sense (0 runs leave a part out).
_SIZES = {
    "horizon": 512,
    "family_horizon": 256,
    "slack_rounds": 64,
    "family_slack_rounds": 4096,
    "long_horizon": 512,
    "long_runs": 0,
    "theory_runs": 0,
    "family_runs": 0,
    "family_slack_runs": 0,
    "slack_runs": 0,
    "fit_from": 1,
}
_QUICK = {
    "horizon": 4096,
    "family_horizon": 1024,
    "slack_rounds": 1024,
    "family_slack_rounds": 4096,
    "long_horizon": 8192,
}


# --- systems ---------------------------------------------------------------------------------------------------------


def finite_law(seed: int = 0, slack: float = 0.25, *, slow: bool = False, arrival_rate: float | None = None) -> System:
    """A random law of eight equally likely contexts, three servers and three dimensions that meets every assumption.

    p*(x) is uniform in [0.6, 0.85], the other two servers succeed with a uniform share in [0.25, 0.97] of that (0.15 at
    least), and features are unit vectors that give these probabilities exactly: φ = (z/S)u + √(1 − z²/S²)v with z the logit,
    u = θ*/S and v a random direction orthogonal to u, as in WISE's Appendix F.

    Parameters
    ----------
    seed : of the probabilities and directions.
    slack : capacity slack 1 − λE[1/p*]; the arrival rate follows from it.
    slow : whether two contexts are slower than jobs arrive, so that context-wise slack is violated and capacity slack is not.
    arrival_rate : λ in place of what follows from `slack`.
    """
    rng = np.random.default_rng(seed)
    best = rng.uniform(0.6, 0.85, CONTEXTS)
    share = rng.uniform(0.25, 0.97, (CONTEXTS, SERVERS))
    right = rng.integers(0, SERVERS, CONTEXTS)
    angle = rng.uniform(0.0, 2.0 * math.pi, (CONTEXTS, SERVERS))
    if slow:
        best[: len(SLOW)] = SLOW
    # No logit leaves the ball that S allows.
    p = np.maximum(best[:, None] * share, 0.15)
    p[np.arange(CONTEXTS), right] = best
    z = np.log(p / (1.0 - p)) / BOUND
    across = np.sqrt(1.0 - z**2)
    features = np.stack([z, across * np.cos(angle), across * np.sin(angle)], axis=-1)
    rate = (1.0 - slack) / float(np.mean(1.0 / best)) if arrival_rate is None else arrival_rate
    return table_law(
        features,
        theta=[BOUND, 0.0, 0.0],
        arrival_rate=rate,
        parameter_bound=BOUND,
        feature_bound=1.0,
        name="finite law, context-wise slack violated" if slow else "finite law",
    )


def players(system: System, radius: Radius, beta: float, rounds: int, estimator: str = "exact") -> dict[str, Policy]:
    """The five policies, at the papers' formulas for their radius or at one fixed radius."""
    common: dict[str, Any] = {} if radius == "theory" else {"radius": beta, "initial_design": 1.0}
    if estimator != "exact":
        common["estimator"] = estimator
    if estimator == "one_pass":
        # Its H is V with weights μ̇ ≤ 1/4, so that half the radius makes intervals that are as wide.
        common["radius"] = beta / 2.0
    slack = system.context_slack().value
    # Where context-wise slack is violated CQB-η-2 has no η of its own; capacity slack takes its place.
    eta = (slack if slack > 0.0 else system.capacity_slack().value) / 4.0
    known = {**common, "delta": float(rounds) ** -4.0} if radius == "theory" else common
    return {
        "wise": wise(**common),
        "cqb_opt": cqb_opt(**common),
        "acqb": acqb(**common),
        "cqb_eta_2": cqb_eta_2(exploration=eta, **known),
        "cqb_epsilon": cqb_epsilon(**common),
    }


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """Regret of the policies on one kind of system.

    Attributes
    ----------
    key, words : str
        For files, and for people.
    points : mapping of policy to Points
    over : {"rounds", "slack"}
        What x is.
    fit_from : float
        First round of fits.
    bound : Points or None
        The lower bound (one row) at its own x, where there is one.
    """

    key: str
    words: str
    points: Mapping[str, Points]
    over: Literal["rounds", "slack"] = "rounds"
    fit_from: float = 1.0
    bound: Points | None = None

    @property
    def runs(self) -> int:
        """Of the policy with the fewest."""
        return min(len(points.values) for points in self.points.values())

    def slope(self, name: str) -> Slope:
        """The fitted slope of one policy."""
        return slope(self.points[name]) if self.over == "slack" else decay(self.points[name], self.fit_from)

    def gone(self, name: str) -> float | None:
        """The first x at which regret is nearly gone; None where it is told from 0 to the end."""
        x, end = self.points[name].x, reach(self.points[name], self.fit_from)
        return float(x[end]) if self.over == "rounds" and end < len(x) else None


class Bench:
    """Plays runs, keeps one row of numbers a run on disk, and says how far it is."""

    def __init__(self, request: Request, folder: Path, progress: Progress) -> None:
        self._request, self._folder, self._progress = request, folder, progress

    def windows(
        self,
        key: str,
        words: str,
        system: System,
        listed: Sequence[Policy],
        rounds: int,
        runs: int,
        windows: Sequence[tuple[int, int]],
    ) -> dict[str, Floats]:
        """Regret averaged over each window: policy → float64[run, window]. Runs that the folder holds are not repeated.

        Raises ValueError where it holds runs of another experiment.
        """
        path = self._folder / f"{key}.json"
        settings = {
            "system": system.settings(),
            "seed": self._request.seed,
            "rounds": rounds,
            "windows": [list(window) for window in windows],
            "policies": [policy_settings(policy) for policy in listed],
            "version": VERSION,
        }
        names = [policy.name for policy in listed]
        rows: dict[str, list[list[float]]] = (lower_bounds.read_rows(path, settings) or {}).get("regret") or {
            name: [] for name in names
        }
        advance = self._progress.begin(words)
        # At least as many as there are threads, so that none waits.
        chunk = max(4, _NUMBERS // (rounds * (len(names) + 1)))
        while (done := len(rows[names[0]])) < runs:
            result = simulate(
                system,
                listed,
                rounds=rounds,
                runs=min(chunk, runs - done),
                seed=self._request.seed,
                workers=self._request.workers,
                first_run=done,
                progress=partial(_after, advance, done, runs),
            )
            for name in names:
                means = np.stack([result.run_means(name, window) for window in windows], axis=1)
                rows[name] += means.tolist()
            write_text(path, to_json({"settings": settings, "regret": rows}) + "\n")
        advance(runs, runs)
        return {name: np.array(rows[name][:runs], dtype=np.float64) for name in names}

    def law(self, key: str, words: str, system: System, radius: Radius, chosen: Choices, runs: int) -> Panel:
        """All policies on one fixed law, over time."""
        windows = dyadic(chosen.horizon, FIRST_WINDOW)
        playing = players(system, radius, chosen.radius, chosen.horizon)
        anytime = self.windows(key, words, system, [playing[name] for name in ANYTIME], windows[-1][1], runs, windows)
        points = {name: Points(np.array([middle(each) for each in windows]), anytime[name]) for name in ANYTIME}
        horizons = _horizons(FIRST_HORIZON, chosen.horizon, HORIZON_STEP)
        columns: dict[str, list[Floats]] = {name: [] for name in KNOWN}
        for rounds in horizons:
            playing = players(system, radius, chosen.radius, rounds)
            known = self.windows(
                f"{key}-horizon-{rounds}",
                f"{words}, horizon {rounds:,}",
                system,
                [playing[name] for name in KNOWN],
                rounds,
                runs,
                [_last_quarter(rounds)],
            )
            for name in KNOWN:
                columns[name].append(known[name][:, 0])
        points |= {
            name: Points(np.array(horizons, dtype=np.float64), np.stack(columns[name], axis=1)) for name in KNOWN
        }
        return Panel(key, words, {name: points[name] for name in NAMES}, fit_from=chosen.fit_from)

    def longest(self, system: System, chosen: Choices) -> Panel:
        """The policies that are told no horizon on the first law, over the most rounds."""
        windows = dyadic(chosen.long_horizon, FIRST_WINDOW)
        playing = players(system, "fixed", chosen.radius, chosen.long_horizon, chosen.long_estimator)
        words = f"all assumptions met, radius {chosen.radius:g}, longest runs"
        listed = [playing[name] for name in ANYTIME]
        found = self.windows(_LONG, words, system, listed, windows[-1][1], chosen.long_runs, windows)
        x = np.array([middle(each) for each in windows])
        return Panel(
            _LONG, words, {name: Points(x, found[name]) for name in NAMES if name in found}, fit_from=chosen.fit_from
        )

    def slacks(self, system_at: Callable[[float], System], chosen: Choices) -> Panel:
        """All policies on the first law at every slack, over the last quarter of `slack_rounds`."""
        columns: dict[str, list[Floats]] = {name: [] for name in NAMES}
        rounds = chosen.slack_rounds
        for eps in SLACKS:
            system = system_at(eps)
            playing = players(system, "fixed", chosen.radius, rounds)
            found = self.windows(
                f"law-slack-{eps:g}",
                f"finite law, slack {eps:g}",
                system,
                [playing[name] for name in NAMES],
                rounds,
                chosen.slack_runs,
                [_last_quarter(rounds)],
            )
            for name in NAMES:
                columns[name].append(found[name][:, 0])
        x = np.array(SLACKS)
        points = {name: Points(x, np.stack(columns[name], axis=1)) for name in NAMES}
        return Panel("law-slack", f"finite law, t = {rounds:,}", points, over="slack")

    def family(self, setting: lower_bounds.Setting, xs: Mapping[float, int], runs: int, chosen: Choices) -> Panel:
        """All policies on families that prove a lower bound, regret at the horizon. `xs` : x of the drawing → horizon."""
        columns: dict[str, list[Floats]] = {name: [] for name in NAMES}
        bounds = []
        slack = setting.key == _THEOREM_8
        for x, horizon in xs.items():
            one = _at_slack(x, setting) if slack else setting
            reference = one.law(**one.arguments(horizon))
            playing = players(reference, "fixed", chosen.radius, horizon)
            words = f"{setting.theorem}, " + (f"slack {x:g}" if slack else f"t = {horizon:,}")
            advance = self._progress.begin(words)
            measured = lower_bounds.measure(
                one,
                horizon,
                runs,
                seed=self._request.seed,
                workers=self._request.workers,
                path=self._folder / f"{setting.key}-{x:g}.json",
                progress=advance,
                played=[playing[name] for name in NAMES],
            )
            advance(runs, runs)
            bounds.append(measured.bound)
            for name in NAMES:
                columns[name].append(measured.conditional[name])
        x_axis = np.array(list(xs), dtype=np.float64)
        return Panel(
            setting.key,
            f"family of {setting.theorem}" + (f", t = {chosen.family_slack_rounds:,}" if slack else ""),
            {name: Points(x_axis, np.stack(columns[name], axis=1)) for name in NAMES},
            over="slack" if slack else "rounds",
            fit_from=1.0,
            bound=Points(x_axis, np.array([bounds])),
        )


def _after(advance: Callable[[int, int], None], before: int, runs: int, done: int, _: int) -> None:
    """Progress of a part of the runs as progress of all."""
    advance(before + done, runs)


def _last_quarter(rounds: int) -> tuple[int, int]:
    return (3 * rounds // 4 + 1, rounds)


def _horizons(first: int, last: int, step: int) -> list[int]:
    found = [last]
    while found[0] // step >= first:
        found.insert(0, found[0] // step)
    return found


_THEOREM_7, _THEOREM_8, _LONG = "wise-theorem-7", "wise-theorem-8", "law-long"


def family_settings() -> tuple[lower_bounds.Setting, lower_bounds.Setting]:
    """The families of WISE's Theorems 7 and 8, as the reproduction of the lower bounds plays them; that of Theorem 8 at the
    least d and K, since queues are long at small slack."""
    found = {setting.key: setting for setting in lower_bounds.SETTINGS}
    return found[_THEOREM_7], found[_THEOREM_8]


def _at_slack(eps: float, setting: lower_bounds.Setting) -> lower_bounds.Setting:
    return lower_bounds.Setting(
        setting.key,
        setting.theorem,
        hard.wise_theorem_8,
        (),
        (),
        lambda horizon: {"dimension": 2, "servers": 2, "capacity_slack": eps},
        f"slack {eps:g}",
    )


# --- claims ----------------------------------------------------------------------------------------------------------

WISE_RATE = "WISE's regret decays at least as fast as t^(−1/2)"
KNOWN_RATE = "CQB-η-2's regret, its horizon known, decays at least as fast as T^(−1/2)"
QUARTER = "The regret of CQB-ε and ACQB decays at least as fast as t^(−1/4)"
PICTURE = "CQB-ε and ACQB decay more slowly than t^(−1/2)"
LOWER = "No policy decays faster than t^(−1/2) on the family whose separation shrinks with t"
SLACK_GROWTH = "As slack ε goes to 0, regret grows at least as fast as ε^(−2)"


def claims(panels: Mapping[str, Panel]) -> list[Verdict]:
    """What the papers claim about rates, on every panel that their assumptions cover."""
    fixed = [panels[key] for key in ("law-fixed", "slow-law-fixed") if key in panels]
    theory = [panels[key] for key in ("law-theory", "slow-law-theory") if key in panels]
    family = [panels[_THEOREM_7]] if _THEOREM_7 in panels else []
    # CQB-η-2's theorem, and CQB-ε's and ACQB's, assume context-wise slack.
    ways = [
        ("fixed radius", fixed + family, fixed[:1] + family),
        ("the papers' radii", theory, theory[:1]),
    ]
    judged: list[Verdict] = []

    def judge(
        text: str, reference: str, names: Sequence[str], bound: float, direction: Literal["below", "above"], slack: bool
    ) -> None:
        for way, all_panels, with_slack in ways:
            parts = [
                rate(panel, name, bound, direction) for panel in (with_slack if slack else all_panels) for name in names
            ]
            if parts:
                judged.append(Claim(text, reference, way, parts).judge())

    judge(WISE_RATE, "WISE, Theorem 6", ["wise"], -0.5 + ROOM, "below", False)
    judge(KNOWN_RATE, "CQB-η-2, Theorem 5", ["cqb_eta_2"], -0.5 + ROOM, "below", True)
    judge(
        QUARTER,
        "Bae et al. 2026a and 2026b, as both papers cite them",
        ["cqb_epsilon", "acqb"],
        -0.25 + ROOM,
        "below",
        True,
    )
    # On the family every policy has −1/2, so that the picture is about laws.
    ways = [(way, several, one[:1]) for way, several, one in ways]
    judge(PICTURE, "no claim, but what their proven rates suggest", ["cqb_epsilon", "acqb"], -0.5 + ROOM, "above", True)
    if family:
        parts = [Part(LABELS[name], [family[0].slope(name)], -0.5 - ROOM, "above") for name in NAMES]
        judged.append(Claim(LOWER, "WISE, Theorem 7; CQB-η-2, Theorem 10", family[0].words, parts).judge())
    for key in (_THEOREM_8, "law-slack"):
        if key in panels:
            parts = [Part(LABELS[name], [panels[key].slope(name)], -2.0 + SLACK_ROOM, "below") for name in NAMES]
            reference = "WISE, Theorem 8" if key == _THEOREM_8 else "the same picture on a law that no theorem is about"
            judged.append(Claim(SLACK_GROWTH, reference, panels[key].words, parts).judge())
    return judged


def rate(panel: Panel, name: str, bound: float, direction: Literal["below", "above"]) -> Part:
    """Whether one policy's regret decays faster (slower) than t^bound: by its slope, or by its ends where regret is gone
    before there is a slope to fit.

    By its ends: regret·t^{−bound} is smaller (larger) at the last point than at the first. That is a mean over runs, whatever
    is 0 or negative in it.
    """
    points, fit = panel.points[name], panel.slope(name)
    label = f"{LABELS[name]}, {panel.words}"
    if math.isfinite(fit.mean):
        return Part(label, [fit], bound, direction)
    scaled = points.values * points.x**-bound
    return Part(f"{label}, by its ends", [interval(scaled[:, -1] - scaled[:, 0])], 0.0, direction)


# --- tables and sentences --------------------------------------------------------------------------------------------


def number_of(x: float) -> str:
    """A round, or a slack."""
    return f"{x:,.0f}" if x >= 2.0 else f"{x:g}"


def slope_table(panel: Panel) -> Table:
    """One panel: every policy's slope, where it was fitted, the slope at the end, and where regret is gone."""
    rows = []
    for name, points in panel.points.items():
        fit = panel.slope(name)
        mean = points.moments.mean
        end = interval(points.values[:, -1])
        gone = panel.gone(name)
        row = [LABELS[name], short(float(mean[0])), in_brackets(end.mean, end.low, end.high), _bracketed(fit)]
        if panel.over == "rounds":
            row += [
                f"{number_of(fit.first)} to {number_of(fit.last)}" if fit.points > 1 else "",
                _bracketed(late_decay(points, panel.fit_from)),
                "" if gone is None else number_of(gone),
            ]
        if panel.bound is not None:
            row.append(f"{short(float((mean / panel.bound.values[0]).min()))}")
        rows.append(tuple(row))
    x = next(iter(panel.points.values())).x
    first, last = (number_of(float(each)) for each in (x[0], x[-1]))
    if panel.over == "rounds":
        columns = [
            "policy",
            "regret\nat first",
            "at the end",
            "slope in t",
            "fitted from",
            "slope of the\nlast four",
            "gone from",
        ]
        note = "Regret in jobs; 95% intervals of each by itself (jackknife over runs for slopes). From where regret is 'gone' "
        note += "most means are less than two standard errors above 0; fits end before."
    else:
        columns = ["policy", f"regret at\nslack {first}", f"at slack {last}", "slope in ε"]
        note = "Regret in jobs; 95% intervals of each by itself (jackknife over runs for slopes)."
    if panel.bound is not None:
        columns.append("least\nover bound")
    return Table(f"Regret: {panel.words} ({panel.runs} runs)", tuple(columns), tuple(rows), note=note)


def _bracketed(fit: Slope) -> str:
    return in_brackets(fit.mean, fit.low, fit.high) if math.isfinite(fit.mean) else "?"


def short_of(eps: float, rounds: int) -> bool:
    """Whether t ≥ 64/ε² fails, what WISE's Theorem 8 asks of t."""
    return rounds * eps**2 < 64.0 * (1 - 1e-12)


def sentences(panels: Mapping[str, Panel], verdicts: Sequence[Verdict], chosen: Choices) -> list[str]:
    """Plainly: what was found, and where it is not the papers' picture."""
    said = [sentence(verdict) for verdict in verdicts]
    for panel in panels.values():
        if panel.over == "rounds":
            gone = [f"{LABELS[n]} from {number_of(at)}" for n in panel.points if (at := panel.gone(n)) is not None]
            if gone:
                said.append(f"Regret is not told from 0 ({panel.words}): {', '.join(gone)}.")
    if any(key in panels for key in ("law-theory", "slow-law-theory")):
        said.append(
            "The papers' radii are proofs' radii: their theorems begin to say something long after these horizons (see "
            "`queuewise bounds`), so slopes here neither support nor contradict one."
        )
    if "law-slack" in panels:
        missed = [f"{eps:g}" for eps in SLACKS if short_of(eps, chosen.slack_rounds)]
        if missed:
            said.append(
                f"In the first law t = {chosen.slack_rounds:,} is below 64/ε² at slack {', '.join(missed)}: there the queue "
                "has not had the time to grow as long as it will."
            )
    if _THEOREM_8 in panels:
        left = [f"{eps:g}" for eps in FAMILY_SLACKS if short_of(eps, chosen.family_slack_rounds)]
        beyond = [f"{eps:g}" for eps in SLACKS if eps > 0.125]
        said.append(
            f"Theorem 8 has no family at slack {', '.join(beyond)} (above 1/8)"
            + (f", and none at {', '.join(left)} (t = {chosen.family_slack_rounds:,} is below 64/ε²)." if left else ".")
        )
    return said


# --- the whole -------------------------------------------------------------------------------------------------------


def run(request: Request) -> Outcome:
    """Play everything, fit slopes, judge the claims and write figures, rows, tables and numbers.

    Raises ValueError for a choice out of range, or a folder that cannot be written to or holds another experiment.
    """
    from ._regret_decay_figure import draw, draw_slopes

    chosen = choices(request)
    out = output_folder(request.out)
    horizons = len(_horizons(FIRST_HORIZON, chosen.horizon, HORIZON_STEP))
    seventh, eighth = family_settings()
    times = {float(t): t for t in _horizons(FIRST_HORIZON, chosen.family_horizon, HORIZON_STEP)}
    slacks = {e: chosen.family_slack_rounds for e in FAMILY_SLACKS if not short_of(e, chosen.family_slack_rounds)}
    total = 2 * (chosen.runs + chosen.theory_runs) * (1 + horizons)
    total += chosen.long_runs + chosen.slack_runs * len(SLACKS)
    total += chosen.family_runs * len(times) + chosen.family_slack_runs * len(slacks)
    panels: dict[str, Panel] = {}
    with Progress(total, shown=request.progress) as progress:
        bench = Bench(request, out / "rows", progress)
        for slow in (False, True):
            system = finite_law(chosen.law_seed, chosen.slack, slow=slow)
            kind = "context-wise slack violated" if slow else "all assumptions met"
            for radius, runs in (("fixed", chosen.runs), ("theory", chosen.theory_runs)):
                if runs:
                    key = f"{'slow-law' if slow else 'law'}-{radius}"
                    words = f"{kind}, {_RADIUS_WORDS[radius].format(chosen.radius)}"
                    panels[key] = bench.law(key, words, system, radius, chosen, runs)  # type: ignore[arg-type]
        if chosen.long_runs:
            panels[_LONG] = bench.longest(finite_law(chosen.law_seed, chosen.slack), chosen)
        if chosen.family_runs:
            panels[_THEOREM_7] = bench.family(seventh, times, chosen.family_runs, chosen)
        if chosen.family_slack_runs:
            panels[_THEOREM_8] = bench.family(eighth, slacks, chosen.family_slack_runs, chosen)
        if chosen.slack_runs:
            panels["law-slack"] = bench.slacks(lambda eps: finite_law(chosen.law_seed, eps), chosen)
        progress.begin("drawing")
        files = [*draw(panels, out), *draw_slopes(panels, out)]
    verdicts = claims(panels)
    tables = [*(slope_table(panel) for panel in panels.values()), parts_table(verdicts)]
    numbers = {"choices": dict(vars(chosen)), "panels": [_as_json(panel) for panel in panels.values()]}
    said = sentences(panels, verdicts, chosen)
    heading, title = "Decay of regret", "Claims about the decay of regret"
    return finish(request, NAME, REFERENCE, verdicts, tables, said, numbers, files, heading=heading, title=title)


_RADIUS_WORDS = {"fixed": "radius {0:g}", "theory": "the papers' radii"}


def _as_json(panel: Panel) -> dict[str, Any]:
    return {
        "system": panel.words,
        "over": panel.over,
        "lower_bound": None if panel.bound is None else panel.bound.values[0].tolist(),
        "policies": {
            name: {
                "x": points.x.tolist(),
                "regret": [estimate_json(interval(column)) for column in points.values.T],
                "slope": panel.slope(name)._asdict(),
                "late_slope": late_decay(points, panel.fit_from)._asdict() if panel.over == "rounds" else None,
                "gone_from": panel.gone(name),
            }
            for name, points in panel.points.items()
        },
    }
