"""The paper's quantities as functions: numbers in, numbers out, each with its equation."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..fields import require_count


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


def ratio_gap(ratio: Fraction | int | str, m: int) -> float:
    """u_r(m) = min{|n₁/n₂ − r| : 1 ≤ n₁, n₂ ≤ m + 1, n₁/n₂ ≠ r} (LASED (3)); ∞ where no such fraction exists.

    Two ratios closer than this agree on every decision while no queue exceeds m (LASED, Lemma 1).
    """
    require_count("m", m, 0)
    exact = Fraction(ratio)
    if exact <= 0:
        raise ValueError(f"ratio must be positive, not {ratio!r}")
    return float(ratio_gaps(exact, m)[-1])


def safe_queue(episode: int, depth: float) -> int:
    """m(k) = ⌊c₁ ln k⌋, the queue length up to which episode k should agree with SED; c₁ = depth (LASED, section 3.3)."""
    return math.floor(depth * math.log(episode))
