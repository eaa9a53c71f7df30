"""What a result says of its policies: their order by a measure, and how sure it is. In words and numbers, for a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..dispatch.result import Result as DispatchResult
from ..runs.convergence import Convergence
from ..runs.effects import Effect, Effects
from ..runs.result import Result, Window
from ..runs.simultaneous import Comparison, Comparisons
from ..runs.statistics import Difference, Estimate
from .report import interval, short

LEVEL = 0.95


@dataclass(frozen=True)
class Measure:
    """What policies are ranked by.

    key : dispatching's name of it; None for the scheduling model · words, unit : what it is called · rounds : those that are
    averaged over (scheduling); None for all
    """

    key: str | None
    words: str
    unit: str
    rounds: Window | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The keywords that a result's methods take for it."""
        return {"rounds": self.rounds} if self.key is None else {"of": self.key}


_DISPATCH = {
    "sojourn_time": Measure("sojourn_time", "mean sojourn time", "units of time"),
    "regret": Measure("regret", "regret", "decisions"),
    "number_in_system": Measure("number_in_system", "mean number in system", "jobs"),
}


def measures(routes: bool, run: Mapping[str, Any]) -> tuple[Measure, ...]:
    """What policies are ranked by.

    routes : whether the model is dispatching · run : the table [run] that an experiment was described with, whose `measure`
    comes first and whose `over` are the rounds; may be empty.
    """
    if routes:
        wanted = dict.fromkeys(key for key in (run.get("measure"), "sojourn_time", "regret") if key in _DISPATCH)
        return tuple(_DISPATCH[str(key)] for key in wanted)
    over = run.get("over")
    if isinstance(over, list) and len(over) == 2:
        first, last = over
        return (Measure(None, f"mean regret over rounds {first}–{last}", "jobs", (int(first), int(last))),)
    return (Measure(None, "mean regret", "jobs"),)


@dataclass(frozen=True)
class Account:
    """One result by one measure: policies in order of their means, and how sure that order is.

    effects : of each policy but the first, against the first · convergence : policy → its own; empty where the runs were not
    kept, or where there are fewer than two · behind : the same of differences to the first · values : policy → what it had in
    every run · against : all others against a baseline, where one was named before the runs
    """

    measure: Measure
    order: list[str]
    means: dict[str, Estimate]
    pairs: Comparisons
    effects: dict[str, Effects] = field(default_factory=dict)
    convergence: dict[str, Convergence] = field(default_factory=dict)
    behind: dict[str, Convergence] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    against: Comparisons | None = None

    def comparison(self, name: str) -> Comparison:
        """A policy against the first."""
        return self.pairs.of(name, self.order[0])


def account(
    result: Result | DispatchResult, measure: Measure, full: bool = True, baseline: str | None = None
) -> Account:
    """Rank the policies of a result by a measure, with intervals that hold together over all pairs.

    full : effect sizes and convergence too · baseline : a policy that was named before the runs, to compare the others with.
    """
    options = measure.options
    means: dict[str, Estimate] = {}
    for name in result.policies:
        if isinstance(result, Result):
            means[name] = result.mean_regret(name, measure.rounds, LEVEL)
        elif measure.key == "regret":
            means[name] = result.total_regret(name, LEVEL)
        elif measure.key == "sojourn_time":
            means[name] = result.mean_sojourn_time(name, LEVEL)
        else:
            means[name] = result.mean_number_in_system(name, LEVEL)
    order = sorted(result.policies, key=lambda name: (math.isnan(means[name].mean), means[name].mean))
    pairs = result.compare_all(level=LEVEL, **options)
    if not full:
        return Account(measure, order, means, pairs)
    best = order[0]
    effects = {name: result.effects(name, best, level=LEVEL, **options) for name in order[1:]}
    values: dict[str, Any] = {}
    own: dict[str, Convergence] = {}
    behind: dict[str, Convergence] = {}
    if result.runs > 1:
        try:
            values = {name: result.run_means(name, **options) for name in order}
        except ValueError:  # only moments were kept
            values = {}
        finite = [name for name in values if np.isfinite(values[name]).all()]
        own = {name: result.convergence(name, level=LEVEL, **options) for name in finite}
        if best in finite:
            behind = {n: result.convergence((n, best), level=LEVEL, **options) for n in finite if n != best}
    against = None
    if baseline in result.policies and len(order) > 1:
        against = result.compare_all(level=LEVEL, against=baseline, **options)
    return Account(measure, order, means, pairs, effects, own, behind, values, against)


def conclusion(found: Account, runs: int) -> str:
    """Who is first, and from whom these runs can tell it."""
    best = found.order[0]
    words, unit = found.measure.words, found.measure.unit
    mean = found.means[best]
    value = f"{value_text(mean.mean, mean.low, mean.high)} {unit}"
    if len(found.order) == 1:
        return f"{best} is the only policy: {words} {value}."
    if math.isnan(mean.mean):
        return f"No policy has a {words}: in some runs of each the system outgrew its cap."
    others = [name for name in found.order[1:] if not math.isnan(found.means[name].mean)]
    unstable = [name for name in found.order[1:] if name not in others]
    ended = f" {and_(unstable)} outgrew the system's cap in some run." if unstable else ""
    if not others:
        return f"{best} is the only policy with a {words} in every run: {value}.{ended}"
    close = [name for name in others if found.comparison(name).difference.smaller != best]
    second = found.comparison(others[0]).difference
    gap = f"{value_text(second.mean, second.low, second.high)} {unit}"
    if runs < 2:
        return f"{best} has the smallest {words} ({short(mean.mean)} {unit}) in the single run, which decides nothing."
    if not close:
        return (
            f"{best} has the smallest {words}, {value}, and all others are significantly above it: {others[0]}, the next, by "
            f"{gap}.{ended}"
        )
    beaten = [name for name in others if name not in close]
    rest = f" {and_(beaten)} {'is' if len(beaten) == 1 else 'are'} significantly above {best}." if beaten else ""
    return (
        f"{best} has the smallest {words}, {value}, but {runs} runs cannot tell it from {or_(close)}: {others[0]} is {gap} "
        f"above.{rest}{ended}"
    )


def and_(names: Sequence[str]) -> str:
    return _joined(names, "and")


def or_(names: Sequence[str]) -> str:
    return _joined(names, "or")


def _joined(names: Sequence[str], word: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def p_value(p: float) -> str:
    """A p-value as one prints it."""
    return "" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def value_text(value: float, low: float, high: float) -> str:
    """A value with its interval: no decimals where it is wide, no interval where there is no doubt."""
    if low == value == high:
        return f"{value:g}" if abs(value) < 1e6 else short(value)
    if 20.0 <= high - low < math.inf:
        return f"{value:.0f} [{low:.0f}, {high:.0f}]"
    return interval(value, low, high)


def estimate_text(value: Estimate | Difference) -> str:
    if math.isnan(value.mean):
        return ""
    return value_text(value.mean, value.low, value.high)


def effect_text(effect: Effect, scale: float = 1.0, unit: str = "") -> str:
    if not effect.defined:
        return "undefined"
    if scale == 1.0:
        return value_text(effect.value, effect.low, effect.high)
    return f"{scale * effect.value:.0f}{unit} [{scale * effect.low:.0f}, {scale * effect.high:.0f}]"
