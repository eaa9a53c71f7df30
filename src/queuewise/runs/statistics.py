"""Means over independent runs, and how well they are known.

Runs are independent and each gives one number (or one curve), so every interval here is Student's t interval over
runs. Differences between policies are taken run by run before averaging: both policies met the same arrivals, contexts
and service uniforms, so that most of the noise cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Estimate(NamedTuple):
    """A mean over runs with its interval.

    mean, low, high : in the unit of what was averaged (jobs, for queue lengths and regret). `sd` is the standard deviation
    of one run, not of the mean. With one run `sd` is NaN and the interval is the whole line.
    """

    mean: float
    low: float
    high: float
    sd: float
    runs: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2.0

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


class Difference(NamedTuple):
    """The mean difference `first` − `second` between two policies, paired by run, with its interval.

    Fields are those of :class:`Estimate`, and the two names.
    """

    mean: float
    low: float
    high: float
    sd: float
    runs: int
    first: str
    second: str

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2.0

    @property
    def smaller(self) -> str | None:
        """The policy whose mean is the smaller one for sure (at the interval's level); None while it is undecided."""
        if self.high < 0.0:
            return self.first
        return self.second if self.low > 0.0 else None

    def __str__(self) -> str:
        found = {self.first: "the first is smaller", self.second: "the second is smaller"}
        verdict = found[self.smaller] if self.smaller else "undecided"
        interval = f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.first} - {self.second}: {interval}, {self.runs} runs ({verdict})"


class Curve(NamedTuple):
    """A mean over runs for every round.

    rounds : int64[T], 1..T · mean, low, high, sd : float64[T], as in :class:`Estimate`, round by round (the interval is
    of each round alone, not of all rounds at once).
    """

    rounds: Ints
    mean: Floats
    low: Floats
    high: Floats
    sd: Floats
    runs: int

    def smooth(self, window: int) -> Curve:
        """Every column averaged over a centred window of so many rounds; see :func:`moving_average`.

        The smoothed band is the average band of the rounds in the window. It is no narrower for the averaging, so it
        errs on the wide side as a band of the averaged mean.
        """
        mean, low, high, sd = (moving_average(column, window) for column in (self.mean, self.low, self.high, self.sd))
        return self._replace(mean=mean, low=low, high=high, sd=sd)

    def band(self, deviations: float = 2.0) -> tuple[Floats, Floats]:
        """mean ± so many standard deviations of one run: the spread of runs, not the error of the mean (WISE, Figure 1)."""
        return self.mean - deviations * self.sd, self.mean + deviations * self.sd


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and sum of squared deviations of equally shaped arrays, element by element.

    Two of them merge into those of both samples together (Chan, Golub and LeVeque 1983), so nothing else of the runs need
    be kept. Floating point makes the last bits depend on the order: merge in the order of runs.
    """

    count: int
    mean: Floats
    squares: Floats

    @classmethod
    def none(cls, shape: int | tuple[int, ...] = ()) -> Moments:
        """The moments of no sample at all."""
        return cls(0, np.zeros(shape), np.zeros(shape))

    @classmethod
    def of(cls, values: NDArray[Any]) -> Moments:
        """The moments of a sample along the first axis, in two passes (the accurate way where all values are at hand)."""
        count = values.shape[0]
        if count == 0:
            return cls.none(values.shape[1:])
        mean = np.asarray(values.mean(axis=0, dtype=np.float64))
        return cls(count, mean, np.asarray(np.square(values - mean).sum(axis=0)))

    def add(self, value: NDArray[Any]) -> Moments:
        """One more value (Welford's update)."""
        count = self.count + 1
        step = value - self.mean
        mean = self.mean + step / count
        return Moments(count, mean, self.squares + step * (value - mean))

    def merge(self, other: Moments) -> Moments:
        """Both samples together."""
        count = self.count + other.count
        if count == 0:
            return self
        step = other.mean - self.mean
        return Moments(
            count,
            self.mean + step * (other.count / count),
            self.squares + other.squares + np.square(step) * (self.count * other.count / count),
        )

    def negated(self) -> Moments:
        """The moments of minus the values."""
        return replace(self, mean=-self.mean)

    @property
    def sd(self) -> Floats:
        """Standard deviation with the divisor count − 1; NaN below two values."""
        if self.count < 2:
            return np.full(np.shape(self.mean), np.nan)
        return np.asarray(np.sqrt(self.squares / (self.count - 1)))

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Student's t interval of the mean; the whole line below two values."""
        check_level(level)
        if self.count < 2:
            shape = np.shape(self.mean)
            return np.full(shape, -np.inf), np.full(shape, np.inf)
        half = quantile(level, self.count - 1) * self.sd / math.sqrt(self.count)
        return self.mean - half, self.mean + half

    def estimate(self, level: float) -> Estimate:
        """The same as an :class:`Estimate`, where there is one number a run."""
        low, high = self.interval(level)
        return Estimate(float(self.mean), float(low), float(high), float(self.sd), self.count)

    def curve(self, level: float) -> Curve:
        """The same as a :class:`Curve`, where there is one number a round."""
        low, high = self.interval(level)
        return Curve(np.arange(1, self.mean.shape[0] + 1), self.mean, low, high, self.sd, self.count)


def check_level(level: float) -> None:
    """Refuse what is not a confidence level."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.floating) or not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1 (0.95 for 95 % intervals), not {level!r}")


def quantile(level: float, degrees: int) -> float:
    """The half width of a two-sided t interval in standard errors, for so many degrees of freedom."""
    from scipy.special import (
        stdtrit,
    )  # here, since loading it takes longer than everything else that a simulation loads

    return float(stdtrit(degrees, 0.5 + level / 2.0))


def interval(values: Any, level: float = 0.95) -> Estimate:
    """Student's t interval of the mean of independent values.

    Parameters
    ----------
    values : float[n], n ≥ 1
    level : confidence level, strictly between 0 and 1.

    Raises
    ------
    ValueError : no values, or a level out of range.
    """
    check_level(level)
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"values must be a non-empty list of numbers, not an array of shape {array.shape}")
    return Moments.of(array).estimate(level)


def difference(first: Any, second: Any, names: tuple[str, str], level: float = 0.95) -> Difference:
    """The mean of `first` − `second`, paired element by element (float[n] each), with its t interval."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"a paired difference needs equally many runs of both, not {a.shape[0]} and {b.shape[0]}")
    return Difference(*interval(a - b, level), *names)


def simultaneous_level(level: float, intervals: int) -> float:
    """The level of each of several intervals such that all of them hold together with probability `level` (Bonferroni)."""
    check_level(level)
    return 1.0 - (1.0 - level) / max(1, intervals)


def simultaneous(samples: Sequence[Any], level: float = 0.95) -> list[Estimate]:
    """t intervals of several means that hold together with probability `level`, however the samples depend on each other."""
    each = simultaneous_level(level, len(samples))
    return [interval(sample, each) for sample in samples]


def moving_average(values: NDArray[Any], window: int) -> Floats:
    """The mean over a centred window that shrinks at both ends, so that it stays centred.

    Parameters
    ----------
    values : float[n]
    window : number of values, odd; an even one is widened by one. 1 changes nothing.

    Raises
    ------
    ValueError : a window below 1.
    """
    if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1:
        raise ValueError(f"window must be a whole number of rounds of at least 1, not {window!r}")
    array = np.asarray(values, dtype=np.float64)
    if window == 1 or not np.isfinite(array).all():  # one run: an infinite interval stays infinite
        return array.copy()
    count = array.shape[0]
    position = np.arange(count)
    half = np.minimum(int(window) // 2, np.minimum(position, count - 1 - position))
    sums = np.concatenate([[0.0], np.cumsum(array)])
    return np.asarray((sums[position + half + 1] - sums[position - half]) / (2 * half + 1))
