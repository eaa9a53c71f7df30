"""How far a busy period of SED(r) goes and how long it lasts: Lemmas 5 to 8 of LASED.

Most of these numbers do not fit a float, so they come as natural logarithms. A positive logarithm of a bound on a probability
says nothing, and is returned all the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...bounds import Assumption
from ...fields import require_count
from .servers import Pair, require, require_state


class LogMoments(NamedTuple):
    """Natural logarithms of bounds on the first two moments of a time (`mean` in time, `second` in time²)."""

    log_mean: float
    log_second: float


def _log_add(*terms: float) -> float:
    return float(np.logaddexp.reduce(terms))


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else -math.inf


def between(pair: Pair, start: tuple[int, int], m: int) -> tuple[Assumption, ...]:
    """What Lemma 5 asks of where the process starts."""
    value = f"({start[0]}, {start[1]})"
    core = f"{float(pair.ratio * start[0] + start[1]):g} against κ_r = {float(pair.core):g}"
    return (
        Assumption("the start lies outside C_r", not pair.in_core(start), value, core),
        Assumption("no queue is longer than m at the start", max(start) <= m, value, f"m = {m}"),
    )


def log_hitting_bound(pair: Pair, start: Sequence[int], m: int) -> float:
    """ln of exp(−θ_r(m√((r∧1)/2) − √φ_r(y))), a bound on the chance that from y some queue exceeds m before C_r (Lemma 5).

    start : y, outside C_r and with no queue longer than m · m : jobs, at least 1. ValueError otherwise.
    """
    require_count("m", m)
    state = require_state("start", start)
    require("LASED Lemma 5", *between(pair, state, m))
    return -(pair.exponent * m - pair.decay * math.sqrt(pair.potential(state)))


def log_overflow_bound(pair: Pair, m: int) -> float:
    """ln of p_r⁻¹ exp(−θ_r(m√((r∧1)/2) − √ξ_r)), a bound on the chance that some queue exceeds m in a busy period (Lemma 6).

    m : jobs, at least 1; ValueError otherwise.
    """
    require_count("m", m)
    return -pair.log_return_chance - pair.exponent * m + pair.decay * math.sqrt(pair.ceiling)


def telling_queue(pair: Pair) -> int:
    """The least m, jobs, from which Lemma 6's bound is below 1."""
    least = math.floor((-pair.log_return_chance + pair.decay * math.sqrt(pair.ceiling)) / pair.exponent)
    while log_overflow_bound(pair, max(1, least)) >= 0.0:
        least = max(1, least) + 1
    return max(1, least)


def log_leaving_time(pair: Pair) -> LogMoments:
    """ln of 2ℓ_r exp(λℓ_r) and 8ℓ_r² exp(2λℓ_r), bounds on the moments of the time from C_r until empty or in B_r (Lemma 7)."""
    growth = float(pair.arrival_rate) * pair.span
    return LogMoments(math.log(2.0 * pair.span) + growth, math.log(8.0 * pair.span**2) + 2.0 * growth)


def log_return_time(pair: Pair, start: Sequence[int]) -> LogMoments:
    """ln β_r(q) and ln γ_r(q), bounds on the moments of the time until the system is empty (LASED, Lemma 8).

    start : q, two queue lengths; ValueError otherwise.
    """
    return log_return_moments(pair, pair.potential(require_state("start", start)), pair.ceiling)


def log_return_moments(pair: Pair, energy: float, ceiling: float) -> LogMoments:
    """β_r and γ_r as :func:`log_return_time`, from φ_r(q) and any bound on ξ_r.

    β = 2√φ/a + (2ℓe^{λℓ} + 2√ξ/a)/p and γ = 8φ/a² + 16(8ℓ²e^{2λℓ} + 4ξ/a²)/p².
    """
    pull, odds, leaving = math.log(pair.pull), pair.log_return_chance, log_leaving_time(pair)
    mean = _log_add(leaving.log_mean, math.log(2.0) + _log(ceiling) / 2.0 - pull) - odds
    second = math.log(16.0) + _log_add(leaving.log_second, math.log(4.0) + _log(ceiling) - 2.0 * pull) - 2.0 * odds
    return LogMoments(
        _log_add(math.log(2.0) + _log(energy) / 2.0 - pull, mean),
        _log_add(math.log(8.0) + _log(energy) - 2.0 * pull, second),
    )


def log_busy_period(pair: Pair) -> LogMoments:
    """ln of Lemma 8's bounds on the moments of a busy period: from the first arrival until the system is empty again."""
    return log_return_time(pair, pair.first_state())
