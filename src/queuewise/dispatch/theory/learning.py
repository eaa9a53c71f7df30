"""What LASED learns, and what not knowing costs: Lemmas 9 to 17 of LASED and the constant behind Theorem 1.

Throughout α(k) = ln⁴(k + 1) and m(k) = ⌊c₁ ln k⌋; c₁ is called `depth`. Probabilities come as natural logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from ...bounds import Assumption
from ...fields import require_count, require_list, require_positive
from ..systems import Rate, exact_rate
from .excursions import LogMoments, _log_add, log_overflow_bound, log_return_moments
from .ratios import ratio_gaps, safe_queue
from .servers import Pair, require

#: Episodes below this never have Lemma 13's condition: there k − 1 < 4α(k).
_BEFORE_THIRTEEN = 60
#: Forced arrivals of an episode, and how many jobs they may leave at each server (Section A.15).
FORCED, LEFT = 14, (7, 7)


def exploration_threshold(episode: int) -> float:
    """α(k) = ln⁴(k + 1), completions per server below which episode k explores (LASED (8), deduced). ValueError below 1."""
    require_count("episode", episode)
    return math.log(int(episode) + 1) ** 4


# --- the estimate (5.1) -----------------------------------------------------------------------------------------------


def within(ratio: Fraction, accuracy: float) -> Assumption:
    """ε < 2r* (Lemma 12)."""
    return Assumption(
        "the accuracy ε is above 0 and below 2r*",
        0.0 < accuracy < 2 * ratio,
        f"{accuracy:.6g}",
        f"2r* = {float(2 * ratio):.6g}",
    )


def log_deviation_bound(ratio: Rate, samples: int, accuracy: float) -> float:
    """ln of 4 exp(−mε²/(128r*²)), a bound on the chance that r̂ is off by ε or more and both servers have m completions
    (LASED, Lemma 12).

    ratio : r* · samples : m, at least 1 · accuracy : ε, above 0 and below 2r*. ValueError otherwise.
    """
    require_count("samples", samples)
    require_positive("accuracy", accuracy)
    exact = exact_rate("ratio", ratio)
    require("LASED Lemma 12", within(exact, accuracy))
    return math.log(4.0) - samples * (accuracy / float(exact)) ** 2 / 128.0


def late(episode: int, depth: float) -> Assumption:
    """k ≥ max(2, e^{1/c₁}) (Lemma 10), with which m(k) ≥ 1."""
    # c₁ ln k ≥ 1 just as k ≥ e^{1/c₁}, and cannot overflow.
    holds = episode >= 2 and depth * math.log(episode) >= 1.0
    least = f"{max(2.0, math.exp(1.0 / depth)):.6g}" if 1.0 / depth < 700.0 else f"exp({1.0 / depth:.6g})"
    return Assumption("the episode is at least max(2, e^{1/c₁})", holds, str(episode), f"that is {least}")


def log_misestimation_bound(ratio: Rate, episode: int, depth: float) -> float:
    """ln of 4k^{−ln k/(512a²c₁²)}, a bound on the chance that r̂ of episode k, from α(k) completions of each server, is off by
    u_{r*}(m(k)) or more, r* = a/b in lowest terms (LASED, Lemma 10).

    ratio : r* · episode : k ≥ max(2, e^{1/c₁}) · depth : c₁, above 0. ValueError otherwise.
    """
    require_count("episode", episode)
    require_positive("depth", depth)
    numerator = exact_rate("ratio", ratio).numerator
    require("LASED Lemma 10", late(episode, depth))
    return math.log(4.0) - (math.log(episode) / (numerator * depth)) ** 2 / 512.0


def inside(pair: Pair, rate_bounds: Sequence[Rate]) -> Assumption:
    """μ₁, μ₂ ∈ (μ_min, μ_max) (Theorem 1)."""
    least, most = _bounds(rate_bounds)
    holds = all(least < rate < most for rate in pair.service_rates)
    rates = ", ".join(f"{float(rate):g}" for rate in pair.service_rates)
    return Assumption(
        "the service rates lie within the known bounds", holds, rates, f"({float(least):g}, {float(most):g})"
    )


def _bounds(rate_bounds: Sequence[Rate]) -> tuple[Fraction, Fraction]:
    found = [exact_rate("rate_bounds", rate) for rate in require_list("rate_bounds", rate_bounds, "two rates")]
    if len(found) != 2 or found[0] >= found[1]:
        raise ValueError(f"rate_bounds must be two rates, the smaller one first, not {list(rate_bounds)!r}")
    return found[0], found[1]


def first_settled_episode(pair: Pair, rate_bounds: Sequence[Rate], depth: float) -> int:
    """k₀, from which |r̂ − r*| < u_{r*}(m(k)) puts r̂ into [r_min, r_max] = [μ_min/μ_max, μ_max/μ_min] (LASED, Lemma 9).

    rate_bounds : (μ_min, μ_max), around both rates · depth : c₁, above 0. ValueError otherwise.
    """
    require_positive("depth", depth)
    require("LASED Lemma 9", inside(pair, rate_bounds))
    least, most = _bounds(rate_bounds)
    room = float(min(pair.true_ratio - least / most, most / least - pair.true_ratio))
    looked_at = 8
    while (gaps := ratio_gaps(pair.true_ratio, looked_at))[-1] >= room:
        looked_at *= 2
    return _first_episode(max(1, int((gaps < room).argmax())), depth)


def _first_episode(m: int, depth: float) -> int:
    """The least k with m(k) ≥ m."""
    return _least(lambda k: depth * math.log(k) >= m, 1)


def _least(holds: Callable[[int], bool], start: int) -> int:
    """The least whole number from `start` on at which a condition holds that holds ever after; of any size."""
    low, high = start - 1, start
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# --- exploration (5.2) ------------------------------------------------------------------------------------------------


def _log_reach(up: float, down: float, level: int) -> float:
    """ln of the chance that a birth and death chain reaches `level` from 1 before 0: 1/Σ_{i<level} (down/up)^i."""
    x = down / up
    if level == 1:
        return 0.0
    log_top = level * math.log(x)
    if abs(x - 1.0) < 1e-9:
        return -math.log(level)
    if log_top > 30.0:  # 1 is nothing beside x^level
        return math.log(x - 1.0) - log_top - math.log1p(-math.exp(-log_top))
    return math.log((1.0 - x) / (1.0 - x**level)) if x < 1.0 else math.log((x - 1.0) / math.expm1(log_top))


def log_both_serve(pair: Pair) -> float:
    """ln of the chance that both servers complete a job in a busy period of SED(r), exactly (LASED, Lemma 14's argument).

    r > 1: the busy period begins at server 2, and server 1 gets a job just if server 2 has ⌈r⌉ − 1 when one arrives, which is
    a queue of its own reaching ⌈r⌉ from 1 before 0. r ≤ 1: server 1 has to reach ⌊1/r⌋ + 1.
    """
    arriving, (first, second) = float(pair.arrival_rate), map(float, pair.service_rates)
    if pair.ratio > 1:
        return _log_reach(arriving, second, math.ceil(pair.ratio))
    return _log_reach(arriving, first, math.floor(1 / pair.ratio) + 1)


def log_both_serve_floor(pair: Pair) -> float:
    """ln v*: the least chance that both servers complete a job in a busy period of any SED(r̄) with |r̄ − r*| < r*/2, a choice
    of ours where the text is cut (Lemma 14; ``docs/theory-lased.md``). The ratio of `pair` plays no part.

    The chance falls with the level to be reached: at most ⌈3r*/2⌉ where r̄ > 1, and at most ⌈2/r*⌉ where r̄ ≤ 1.
    """
    arriving, (first, second) = float(pair.arrival_rate), map(float, pair.service_rates)
    true, found = pair.true_ratio, []
    if 3 * true / 2 > 1:
        found.append(_log_reach(arriving, second, math.ceil(3 * true / 2)))
    if true / 2 < 1:
        found.append(_log_reach(arriving, first, math.ceil(2 / true)))
    return min(found)


def _explored(episode: int, log_floor: float) -> bool:
    return episode > 1 and math.log(episode - 1) >= math.log(4.0) + 4.0 * math.log(math.log(episode + 1)) - log_floor


def explored(pair: Pair, episode: int) -> Assumption:
    """k ≥ 4α(k)/v* + 1 (Lemma 13)."""
    floor = log_both_serve_floor(pair)
    log_needed = math.log(4.0) + 4.0 * math.log(math.log(episode + 1)) - floor
    needed = f"{math.exp(log_needed) + 1.0:.4g}" if log_needed < 700.0 else f"exp({log_needed:.4g})"
    return Assumption(
        "the episode is at least 4α(k)/v* + 1", _explored(episode, floor), str(episode), f"that is {needed}"
    )


def first_explored_episode(pair: Pair) -> int:
    """The least k from which on k ≥ 4α(k)/v* + 1, the condition of Lemma 13: a whole number of any size."""
    floor = log_both_serve_floor(pair)
    return _least(lambda k: _explored(k, floor), _BEFORE_THIRTEEN)


def log_exploration_bound(pair: Pair, episode: int) -> float:
    """ln of 2 exp(−v*²k/64) + 2¹⁰e¹⁷(k − 1)⁻³, a bound on the chance that episode k explores (LASED, Lemma 13).

    episode : k ≥ 4α(k)/v* + 1; ValueError otherwise.
    """
    require_count("episode", episode)
    require("LASED Lemma 13", explored(pair, int(episode)))
    return _log_add(
        math.log(2.0) - _product(2.0 * log_both_serve_floor(pair), episode) / 64.0,
        10.0 * math.log(2.0) + 17.0 - 3.0 * math.log(episode - 1),
    )


def _product(log_factor: float, episode: int) -> float:
    """e^f k, ∞ where it does not fit."""
    exponent = log_factor + math.log(episode)
    return math.exp(exponent) if exponent < 709.0 else math.inf


# --- overflow and arrivals (5.3, 5.4) ---------------------------------------------------------------------------------


def log_episode_overflow_bound(pair: Pair, episode: int, depth: float) -> float:
    """ln of Lemma 6's bound at m(k), of which an episode makes use that neither explores nor misestimates (LASED, Section 5.3).

    episode : k ≥ e^{1/c₁} · depth : c₁, above 0. ValueError otherwise.
    """
    require_count("episode", episode)
    require_positive("depth", depth)
    require("LASED Section 5.3", late(episode, depth))
    return log_overflow_bound(pair, safe_queue(episode, depth))


def log_arrivals(pair: Pair, rate_bounds: Sequence[Rate]) -> LogMoments:
    """ln of bounds on E[A] and E[A²], A the arrivals of an episode, whatever is estimated (LASED (38), (39), deduced).

    A ≤ 14 + N(T): forced arrivals, and those of the time T from at most (7, 7) until empty. E[N(T)] = λE[T] and
    E[N(T)²] ≤ 2λE[T] + 2λ²E[T²] (optional stopping), so E[A] ≤ 14 + λβ and E[A²] ≤ 392 + 4λβ + 4λ²γ with the largest
    β_r(7, 7) and γ_r(7, 7) for r in [μ_min/μ_max, μ_max/μ_min]. These, with the closed bound on ξ_r, fall in r up to 1 and
    rise from there, so they are largest at an end.

    rate_bounds : (μ_min, μ_max), around both rates; ValueError otherwise.
    """
    require("LASED Section 5.4", inside(pair, rate_bounds))
    least, most = _bounds(rate_bounds)
    found = []
    for ratio in (least / most, most / least):
        end = Pair(pair.arrival_rate, pair.service_rates, ratio)
        found.append(log_return_moments(end, end.potential(LEFT), end.ceiling_closed))
    rate = math.log(float(pair.arrival_rate))
    mean, second = max(one.log_mean for one in found), max(one.log_second for one in found)
    return LogMoments(
        _log_add(math.log(FORCED), rate + mean),
        _log_add(math.log(2.0 * FORCED**2), math.log(4.0) + rate + mean, math.log(4.0) + 2.0 * rate + second),
    )


# --- Theorem 1 --------------------------------------------------------------------------------------------------------


def least_depth(pair: Pair) -> float:
    """2/θ*, above which c₁ has to be (LASED, Theorem 1 and (50)); θ* = θ_{r*}√((r* ∧ 1)/2), deduced."""
    return 2.0 / _true(pair).exponent


def _true(pair: Pair) -> Pair:
    return Pair(pair.arrival_rate, pair.service_rates, pair.true_ratio)


def deep(pair: Pair, depth: float) -> Assumption:
    """c₁ > 2/θ* (Theorem 1)."""
    least = least_depth(pair)
    return Assumption("c₁ is above 2/θ*", depth > least, f"{depth:.6g}", f"2/θ* = {least:.6g}")


class LogRegret(NamedTuple):
    """Natural logarithms of what Theorem 1's proof adds up, in decisions.

    Attributes
    ----------
    total : a bound on the regret after any number of arrivals
    early : the share of episodes 1, …, k* − 1, every arrival of which may be wrong
    exploration, misestimation, overflow : those of all later ones
    first_episode : k*, itself
    """

    total: float
    early: float
    exploration: float
    misestimation: float
    overflow: float
    first_episode: int


def log_regret_bound(pair: Pair, rate_bounds: Sequence[Rate], depth: float) -> LogRegret:
    """A number that LASED's regret never exceeds in the mean (LASED, Theorem 1: the paper says that there is one).

    Episodes k < k* bring at most E[A] each. From k* on E[A 1_E] ≤ √(E[A²] P(E)) for the three events E, with Lemmas 13, 10
    and 6 for P(E). The sums over k ≥ k* are bounded by integrals: see ``docs/theory-lased.md``.

    rate_bounds : (μ_min, μ_max), around both rates · depth : c₁ > 2/θ*; ValueError otherwise. The ratio of `pair` plays no
    part.
    """
    require_positive("depth", depth)
    require("LASED Theorem 1", inside(pair, rate_bounds), deep(pair, depth))
    oracle = _true(pair)
    arrivals = log_arrivals(oracle, rate_bounds)
    settled = first_settled_episode(oracle, rate_bounds, depth)
    first = max(2, settled, first_explored_episode(oracle), _first_episode(1, depth))
    root = arrivals.log_second / 2.0

    # √P ≤ √2 exp(−v*²k/128) + 2⁵e^{8.5}(k − 1)^{−3/2}
    rate = 2.0 * log_both_serve_floor(oracle) - math.log(128.0)
    explores = _log_add(
        math.log(2.0) / 2.0 + _log_geometric(rate, first),
        5.0 * math.log(2.0) + 8.5 + _log_powers(1.5, first - 1),
    )
    # √P ≤ 2 exp(−ln²k/(1024a²c₁²))
    misses = _log_misses(1024.0 * (oracle.true_ratio.numerator * depth) ** 2)
    # √P ≤ exp((−ln p + θ√ξ + θ*)/2) k^{−θ*c₁/2}, as m(k) ≥ c₁ ln k − 1
    height = (-oracle.log_return_chance + oracle.decay * math.sqrt(oracle.ceiling) + oracle.exponent) / 2.0
    overflows = height + _log_powers(oracle.exponent * depth / 2.0, first)

    early = math.log(first - 1) + arrivals.log_mean
    parts = (root + explores, root + misses, root + overflows)
    return LogRegret(_log_add(early, *parts), early, *parts, first)


def _log_geometric(log_rate: float, first: int) -> float:
    """ln Σ_{k ≥ first} exp(−ck), c = e^log_rate."""
    rate = math.exp(log_rate)
    whole = math.log(-math.expm1(-rate)) if rate > 0.0 else log_rate
    return -_product(log_rate, first) - whole


def _log_powers(power: float, first: int) -> float:
    """ln of first^{−p} + first^{1−p}/(p − 1) ≥ Σ_{k ≥ first} k^{−p}, p > 1."""
    return _log_add(-power * math.log(first), (1.0 - power) * math.log(first) - math.log(power - 1.0))


def _log_misses(spread: float) -> float:
    """ln of 2√(πs)e^{s/4} ≥ Σ_{k ≥ 2} 2 exp(−ln²k/s), the terms falling: the integral over ln k from −∞."""
    return math.log(2.0) + math.log(math.pi * spread) / 2.0 + spread / 4.0
