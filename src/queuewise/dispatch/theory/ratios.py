"""Ratios of two servers' rates: which decisions a wrong one changes, and which error m jobs per queue forgive (LASED, 2.2)."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...fields import require_count, require_positive
from ..systems import Rate, exact_rate


def _new_fractions(ratio: Fraction, n: int) -> Fraction | None:
    """The least distance from r to a fraction n₁/n₂ ≠ r with n₁ ∨ n₂ = n."""
    near: list[Fraction] = []
    for numerator in range(math.floor(ratio * n) - 1, math.ceil(ratio * n) + 2):
        if 1 <= numerator <= n:
            near.append(Fraction(numerator, n))
    for denominator in range(math.floor(n / ratio) - 1, math.ceil(n / ratio) + 2):
        if 1 <= denominator <= n:
            near.append(Fraction(n, denominator))
    near += [Fraction(1, n), Fraction(n, 1)]
    distances = [abs(fraction - ratio) for fraction in near if fraction != ratio]
    return min(distances, default=None)


@lru_cache(maxsize=256)
def ratio_gaps(ratio: Fraction, most: int) -> NDArray[np.float64]:
    """u_r(m) for m = 0..most: float64[most + 1], in one go, not to be changed; see :func:`ratio_gap`."""
    found = np.full(most + 1, math.inf)
    least: Fraction | None = None
    for m in range(most + 1):
        new = _new_fractions(ratio, m + 1)
        if new is not None and (least is None or new < least):
            least = new
        if least is not None:
            found[m] = float(least)
    found.setflags(write=False)
    return found


def ratio_gap(ratio: Rate, m: int) -> float:
    """u_r(m) = min{|n₁/n₂ − r| : 1 ≤ n₁, n₂ ≤ m + 1, n₁/n₂ ≠ r} (LASED (3)); ∞ where no such fraction exists.

    Two ratios closer than this agree on every decision while no queue exceeds m (LASED, Lemma 1).

    ratio : r, above 0; a decimal is the fraction that it spells · m : jobs, at least 0. ValueError otherwise.
    """
    require_count("m", m, 0)
    return float(ratio_gaps(exact_rate("ratio", ratio), int(m))[-1])


def ratio_gap_floor(ratio: Rate, m: int) -> float:
    """1/((m + 1)b) ≤ u_r(m) for r = a/b in lowest terms (LASED, Lemma 11).

    ratio : r, above 0; a decimal is the fraction that it spells · m : jobs, at least 1. ValueError otherwise.
    """
    require_count("m", m)
    return 1.0 / ((int(m) + 1) * exact_rate("ratio", ratio).denominator)


def to_first(ratio: Fraction, most: int) -> NDArray[np.int64]:
    """The least q₂ with which SED(r) sends an arrival to server 1, ⌈r(q₁ + 1)⌉ − 1, for q₁ = 0..most: int64[most + 1]."""
    return np.array([math.ceil(ratio * (q + 1)) - 1 for q in range(most + 1)], dtype=np.int64)


def disagreement(ratio: Rate, believed: Rate, m: int) -> NDArray[np.bool_]:
    """In which states SED(r̂) sends an arrival to a server that is not optimal for SED(r): bool[m + 1, m + 1], by q₁ and q₂.

    Where SED(r̂) has no tie these are the states with ((q₂+1)/(q₁+1) − r)((q₂+1)/(q₁+1) − r̂) < 0 (LASED (2)). At a tie it
    sends to server 1, which is wrong where r(q₁+1) > q₂+1, though the product is 0 there.

    ratio, believed : r and r̂, above 0; decimals are the fractions that they spell · m : largest queue, at least 0.
    ValueError otherwise.
    """
    require_count("m", m, 0)
    true, held = exact_rate("ratio", ratio), exact_rate("believed", believed)
    second = np.arange(int(m) + 1)
    chosen_first = second >= to_first(held, int(m))[:, None]
    first_is_right = second >= to_first(true, int(m))[:, None]
    # Server 2 is right where q₂ + 1 ≤ r(q₁ + 1): below the floor of it.
    most = np.array([math.floor(true * (q + 1)) - 1 for q in range(int(m) + 1)], dtype=np.int64)
    second_is_right = second <= most[:, None]
    return np.asarray(np.where(chosen_first, ~first_is_right, ~second_is_right))


def safe_queue(episode: int, depth: float) -> int:
    """m(k) = ⌊c₁ ln k⌋, the queue length up to which episode k should agree with SED; c₁ = depth (LASED, section 3.3).

    ValueError : an episode below 1, a depth that is not positive.
    """
    require_count("episode", episode)
    require_positive("depth", depth)
    return math.floor(depth * math.log(episode))
