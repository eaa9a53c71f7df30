"""How an interval shrinks with the number of runs, how many runs a wanted width takes, and whether to trust it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .statistics import Floats, Ints, Moments, check_level, quantile

#: Points of the grid of numbers of runs.
_POINTS = 40
#: The mean is close to normal from 25·skewness² runs on (Cochran 1977, section 2.15), for 95 % intervals. A skewness that
#: normal runs have too, within so many of its standard errors, is not held against them.
_COCHRAN, _SKEWED = 25.0, 2.5
#: A single run with a larger share of all squared deviations makes the width its own; with few runs such a share is normal,
#: so the run must also be an outlier by Grubbs' test at this level.
_SHARE, _GRUBBS = 0.25, 0.001
#: Halves whose deviations differ by more standard errors have unlike spreads.
_UNLIKE = 3.0


@dataclass(frozen=True)
class Convergence:
    """A mean over the first n runs, for a grid of n.

    Attributes
    ----------
    name : str
        A policy, or ``"a - b"``.
    runs : int64[m]
        Numbers of runs, about evenly spaced in the logarithm, from 2 to all.
    mean, low, high, sd : float64[m]
        The mean of the first n runs, its t interval, and the deviation of one run.
    level : float
    skewness, kurtosis : float
        Of all runs; the kurtosis is 0 for a normal distribution. NaN without spread.
    largest_share : float
        The share of the sum of squared deviations that the run furthest from the mean has.
    drift : float
        Deviation of the later half of the runs over that of the earlier.
    warnings : tuple of str
        What speaks against trusting the interval; empty if nothing was found.
    """

    name: str
    runs: Ints
    mean: Floats
    low: Floats
    high: Floats
    sd: Floats
    level: float
    skewness: float
    kurtosis: float
    largest_share: float
    drift: float
    warnings: tuple[str, ...]

    @property
    def half_width(self) -> Floats:
        """float64[m]: half the length of each interval."""
        return (self.high - self.low) / 2.0

    def needed(self, half_width: float) -> int:
        """About how many runs make the interval so narrow: the least n with t·sd/√n ≤ half_width, sd that of all runs.

        Raises ValueError for a width that is not above 0.
        """
        if isinstance(half_width, bool) or not isinstance(half_width, int | float) or not 0.0 < half_width < math.inf:
            raise ValueError(f"half_width must be a number above 0, not {half_width!r}")
        sd = float(self.sd[-1])
        if not math.isfinite(sd) or sd / half_width > 1e8:
            raise ValueError(f"half_width: {half_width!r} cannot be reached, the deviation of a run is {sd:.3g}")

        def reached(n: int) -> bool:
            return quantile(self.level, n - 1) * sd <= half_width * math.sqrt(n)

        high = 2
        while not reached(high):
            high *= 2
        low = high // 2  # not reached, or 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(middle) else (middle, high)
        return high

    def __str__(self) -> str:
        grid = sorted({int(len(self.runs) * share) for share in (0.0, 0.25, 0.5, 0.75)} | {len(self.runs) - 1})
        lines = [f"{self.name}, {100 * self.level:g} % intervals:"]
        lines += [f"  {self.runs[i]:>6} runs: {self.mean[i]:.4g} ± {self.half_width[i]:.3g}" for i in grid]
        half = float(self.half_width[-1])
        if half > 0.0:
            lines.append(f"  half of that width would take about {self.needed(half / 2)} runs")
        return "\n".join([*lines, *(f"  {warning}" for warning in self.warnings)])


def convergence(name: str, values: Floats, level: float = 0.95) -> Convergence:
    """The convergence of the mean of independent runs.

    Parameters
    ----------
    name : for messages.
    values : float[n], in the order of runs, n ≥ 2, finite.

    Raises
    ------
    ValueError : fewer than two runs, a value that is not finite, or a level outside (0, 1).
    """
    check_level(level)
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < 2:
        raise ValueError(f"convergence needs at least 2 runs, not {array.size}")
    if not np.isfinite(array).all():
        raise ValueError(f"convergence: {name!r} has runs without a finite value")
    n = len(array)
    grid = np.unique(np.round(np.geomspace(2, n, _POINTS)).astype(np.int64))
    moments = [Moments.of(array[:count]) for count in grid]
    ends = np.array([[float(end) for end in found.interval(level)] for found in moments])
    spread = array.std()
    scaled = (array - array.mean()) / spread if spread > 1e-12 * np.abs(array).max() else None
    skewness = kurtosis = share = drift = math.nan
    said: tuple[str, ...] = ()
    if scaled is not None:
        skewness, kurtosis = float((scaled**3).mean()), float((scaled**4).mean()) - 3.0
        share = float(np.square(scaled).max()) / n
        first, last = array[: n // 2], array[n // 2 :]
        if n >= 4 and first.std() > 0.0:
            drift = float(last.std(ddof=1) / first.std(ddof=1))
        said = _warnings(n, skewness, kurtosis, share, drift)
    return Convergence(
        name,
        grid,
        np.array([float(found.mean) for found in moments]),
        ends[:, 0],
        ends[:, 1],
        np.array([float(found.sd) for found in moments]),
        level,
        skewness,
        kurtosis,
        share,
        drift,
        said,
    )


def _warnings(n: int, skewness: float, kurtosis: float, share: float, drift: float) -> tuple[str, ...]:
    found = []
    if n < 10:
        found.append(f"{n} runs are too few to see whether the deviation of a run is known")
    error = math.sqrt(6.0 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3))) if n > 2 else math.inf
    if n < _COCHRAN * skewness**2 and abs(skewness) > _SKEWED * error:
        wanted = math.ceil(_COCHRAN * skewness**2)
        found.append(
            f"runs are skewed (skewness {skewness:.2g}): a t interval can be trusted to its level from about {wanted} runs on"
        )
    if share > _SHARE and share > _outlier(n):
        found.append(
            f"heavy tail: one run has {100 * share:.0f} % of all squared deviations (excess kurtosis {kurtosis:.2g}), so the "
            "width depends on it"
        )
    # The logarithm of a deviation of m values has the variance (kurtosis + 2)/(4m), here of two halves.
    error = math.sqrt(max(kurtosis + 2.0, 0.5) / n)
    if n >= 10 and drift > 0.0 and abs(math.log(drift)) > _UNLIKE * error:
        found.append(
            f"the deviation is not stable: that of the later half of the runs is {drift:.2g} times that of the earlier"
        )
    return tuple(found)


def _outlier(n: int) -> float:
    """The largest share of all squared deviations that one of n normal values has in all but 0.1 % of samples (Grubbs 1950)."""
    if n < 3:
        return 1.0
    t2 = quantile(1.0 - _GRUBBS / n, n - 2) ** 2
    return (n - 1) / n * t2 / (n - 2 + t2)
