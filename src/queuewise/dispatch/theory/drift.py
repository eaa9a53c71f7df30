"""The potential of SED(r) and its drift: Lemmas 2 and 3 of LASED."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .ratios import to_first
from .servers import Pair, require_state

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Moments(NamedTuple):
    """Bounds on the first two moments of a time: `mean` in time, `second` in time²."""

    mean: float
    second: float


def _states(first: ArrayLike, second: ArrayLike) -> tuple[Ints, Ints]:
    q1, q2 = np.broadcast_arrays(first, second)
    for name, queue in (("first", q1), ("second", q2)):
        if not np.issubdtype(queue.dtype, np.integer) or (queue.size and queue.min() < 0):
            raise ValueError(f"{name} must be whole queue lengths of at least 0")
    return q1.astype(np.int64), q2.astype(np.int64)


def _largest(queue: Ints) -> int:
    return int(queue.max()) if queue.size else 0


def potential(pair: Pair, first: ArrayLike, second: ArrayLike) -> Floats:
    """φ_r(q) = r q₁(q₁ + 1)/2 + q₂(q₂ + 1)/2 (LASED (17)).

    first, second : q₁ and q₂, whole numbers of at least 0 of any shapes that broadcast; ValueError otherwise.
    Returns float64 of their shape, without unit.
    """
    q1, q2 = _states(first, second)
    return np.asarray(float(pair.ratio) * q1 * (q1 + 1) / 2.0 + q2 * (q2 + 1) / 2.0)


def in_core(pair: Pair, first: ArrayLike, second: ArrayLike) -> NDArray[np.bool_]:
    """Whether q lies in C_r = {rq₁ + q₂ ≤ κ_r} (LASED (23)), compared exactly. Arguments as of :func:`potential`."""
    q1, q2 = _states(first, second)
    tops = np.array(pair.core_tops(_largest(q1)), dtype=np.int64)
    return np.asarray(q2 <= tops[q1])


def generator(pair: Pair, function: Callable[[Ints, Ints], ArrayLike], first: ArrayLike, second: ArrayLike) -> Floats:
    """(L_r ψ)(q), the mean change of ψ(Q) per time under SED(r), at state q (LASED (16)).

    function : ψ of q₁ and q₂, int64 arrays of one shape · first, second : as of :func:`potential`.
    Returns float64 of their shape, in the unit of ψ per time.
    """
    q1, q2 = _states(first, second)
    here = np.asarray(function(q1, q2), dtype=np.float64)
    to_one = q2 >= to_first(pair.ratio, _largest(q1))[q1]
    arrived = np.asarray(function(q1 + to_one, q2 + ~to_one), dtype=np.float64)
    found = float(pair.arrival_rate) * (arrived - here)
    for rate, less, busy in (
        (pair.service_rates[0], (np.maximum(q1 - 1, 0), q2), q1 > 0),
        (pair.service_rates[1], (q1, np.maximum(q2 - 1, 0)), q2 > 0),
    ):
        found = found + float(rate) * busy * (np.asarray(function(*less), dtype=np.float64) - here)
    return np.asarray(found)


def potential_drift(pair: Pair, first: ArrayLike, second: ArrayLike) -> Floats:
    """(L_r φ_r)(q) = λ min(r(q₁ + 1), q₂ + 1) − μ₁rq₁ − μ₂q₂, per time (LASED (16), (17)).

    Arguments as of :func:`potential`.
    """
    q1, q2 = _states(first, second)
    r, (mu1, mu2) = float(pair.ratio), map(float, pair.service_rates)
    return np.asarray(float(pair.arrival_rate) * np.minimum(r * (q1 + 1), q2 + 1) - mu1 * r * q1 - mu2 * q2)


def drift_bound(pair: Pair, first: ArrayLike, second: ArrayLike) -> Floats:
    """−a_r √φ_r(q) + b_r 1{q ∈ C_r} ≥ (L_r φ_r)(q), per time (LASED, Lemma 2). Arguments as of :func:`potential`."""
    return np.asarray(
        -pair.pull * np.sqrt(potential(pair, first, second)) + float(pair.push) * in_core(pair, first, second)
    )


def entrance_time(pair: Pair, start: Sequence[int]) -> Moments:
    """Bounds on the time until C_r from state q: E[T] ≤ 2√φ_r(q)/a_r and E[T²] ≤ 4φ_r(q)/a_r² (LASED, Lemma 3).

    start : q, two queue lengths; ValueError otherwise. Both are 0 in C_r, where T is.
    """
    queue = require_state("start", start)
    if pair.in_core(queue):
        return Moments(0.0, 0.0)
    energy = pair.potential(queue)
    return Moments(2.0 * energy**0.5 / pair.pull, 4.0 * energy / pair.pull**2)
