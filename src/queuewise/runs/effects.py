"""How large a difference between two policies is, in words that do not depend on the number of runs.

Three numbers, since none says all: the mean difference in standard deviations of a run's difference (how visible), the
share of runs in which one is better (how reliable), and the ratio of the means (how much).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .statistics import Moments, check_level, quantile


class Effect(NamedTuple):
    """A number with its interval. All are NaN where it is undefined, or where the runs that it needs were not kept."""

    value: float
    low: float
    high: float

    @property
    def defined(self) -> bool:
        """Whether there is such a number."""
        return not math.isnan(self.value)

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]" if self.defined else "undefined"


#: Beyond this variance of tS, that of Z (which is 1) is left out of the noncentral t distribution.
_LARGE = 1e4
#: What is not known.
UNDEFINED = Effect(math.nan, math.nan, math.nan)


class Effects(NamedTuple):
    """How large the difference `first` − `second` is. Each interval is for itself, at the level that was asked for.

    standardised : mean difference in standard deviations of one run's difference (Cohen's d_z with Hedges' correction);
    negative favours `first` · better : share of runs in which `first` is smaller, ties half · ratio : mean of `first` over
    mean of `second`; undefined where the interval of the second mean contains 0 · runs : int
    """

    first: str
    second: str
    standardised: Effect
    better: Effect
    ratio: Effect
    runs: int

    def __str__(self) -> str:
        return (
            f"{self.first} - {self.second}: {self.standardised} deviations of a run; smaller in a share {self.better} of "
            f"{self.runs} runs; ratio of means {self.ratio}"
        )


def standardised(moments: Moments, level: float = 0.95) -> Effect:
    """Cohen's d_z of paired differences, mean/sd, times Hedges' (1981) exact factor against its bias.

    The interval is the exact one for normal differences: those δ for which the noncentral t distribution with
    noncentrality δ√n has the observed t between its quantiles (Steiger and Fouladi 1997). Undefined for fewer than two runs
    or differences without spread; two runs have an interval, and no unbiased value.
    """
    check_level(level)
    n, sd = moments.count, float(moments.sd)
    if n < 2 or not sd > 1e-12 * abs(float(moments.mean)):
        return UNDEFINED
    d = float(moments.mean) / sd
    tail = (1.0 - level) / 2.0
    root = math.sqrt(n)
    low, high = (_noncentrality(d * root, n - 1, share) / root for share in (1.0 - tail, tail))
    return Effect(d * hedges(n - 1) if n > 2 else math.nan, low, high)


def hedges(degrees: int) -> float:
    """Hedges' factor J(m) = Γ(m/2) / (√(m/2) Γ((m − 1)/2)), which makes d unbiased; 0 at one degree of freedom, where d has
    no mean."""
    if degrees < 2:
        return 0.0
    return math.exp(math.lgamma(degrees / 2) - math.lgamma((degrees - 1) / 2)) / math.sqrt(degrees / 2)


def _noncentrality(t: float, degrees: int, share: float) -> float:
    """The noncentrality at which so large a share of the noncentral t distribution lies below t.

    A share P(Z + δ ≤ tS) of it does, with Z normal and S² = χ²/degrees. So δ is a quantile of tS − Z, which for large t is one
    of tS alone.
    """
    from scipy import optimize, stats

    if t < 0.0:  # by symmetry, since SciPy's function is exact to more digits on this side
        return -_noncentrality(-t, degrees, 1.0 - share)
    variance = t * t / (2.0 * degrees)  # of tS, about
    if variance > _LARGE:
        return t * math.sqrt(float(stats.chi2.isf(share, degrees)) / degrees)

    def excess(centre: float) -> float:
        below = float(stats.nct.cdf(t, degrees, centre))
        if math.isnan(below):  # SciPy gives up far out on either side
            below = 1.0 if centre < t else 0.0
        return below - share

    # The large-sample approximation, and a bracket around it that is widened until it holds the root.
    spread = math.sqrt(1.0 + variance)
    middle, reach = t - float(stats.norm.ppf(share)) * spread, spread
    while excess(middle - reach) < 0.0 or excess(middle + reach) > 0.0:
        reach *= 2.0
    return float(optimize.brentq(excess, middle - reach, middle + reach, xtol=1e-10))


def better(first: Any, second: Any, level: float = 0.95) -> Effect:
    """Share of runs in which `first` is smaller than `second` (float[n] each), ties counted half, with Wilson's (1927)
    interval. Ties only take variance away, so with them it is wider than need be. NaN runs are left out."""
    check_level(level)
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    difference = difference[~np.isnan(difference)]
    n = len(difference)
    if n == 0:
        return UNDEFINED
    share = float(((difference < 0).sum() + (difference == 0).sum() / 2.0) / n)
    from scipy.special import ndtri

    z2 = float(ndtri(0.5 + level / 2.0)) ** 2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2) / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Effect(share, max(0.0, centre - half), min(1.0, centre + half))


def ratio(first: Moments, second: Moments, difference: Moments, level: float = 0.95) -> Effect:
    """Mean of `first` over mean of `second`, from their moments and those of first − second, with Fieller's (1954) interval.

    Those ρ for which the t interval of the mean of first − ρ·second contains 0. Undefined where the second mean's own
    interval contains 0: the set is then no interval.
    """
    check_level(level)
    n = second.count
    if n < 2:
        return UNDEFINED
    a, b = float(first.mean), float(second.mean)
    t2 = quantile(level, n - 1) ** 2 / n / (n - 1)
    saa, sbb = float(first.squares) * t2, float(second.squares) * t2
    sab = (float(first.squares) + float(second.squares) - float(difference.squares)) / 2.0 * t2
    # (a − ρb)² ≤ saa − 2ρ sab + ρ² sbb
    leading = b * b - sbb
    if not leading > 0.0:
        return UNDEFINED
    middle = a * b - sab
    root = math.sqrt(max(0.0, middle * middle - leading * (a * a - saa)))
    return Effect(a / b, (middle - root) / leading, (middle + root) / leading)
