"""Slopes of regret in log–log, with intervals, from numbers that are noisy, dependent within a run, and at times not positive.

A run gives one number at every abscissa: regret averaged over the rounds from 2^k to 2^{k+1} − 1, say. The slope is that of the
least-squares line through (log x, log mean), a point weighing as its relative precision. Three things are decided here:

- *which points*: a mean has a logarithm where it is :data:`LEAST_Z` standard errors above 0. Along time the fit
  ends where regret is nearly gone, since what lies behind has no more to say than that.
- *which weights*: (mean/standard error)², but no point counts as known better than :data:`FLOOR`. No curve is a power law to
  that accuracy, and one early point should not outvote all later ones because it has less noise.
- *which interval*: the jackknife over runs. Whole runs are left out, so that points of one run may depend on each other as they
  like; weights are made anew each time; and the bias of a logarithm of a noisy mean is taken out. Every run has a
  pseudo-value, and the slope is their mean with Student's interval, so that slopes can be judged like means of runs are.
  (A mean at least :data:`LEAST_Z` standard errors above 0 is positive without any one run, too: leaving out run i makes it
  negative only if that run is more than all the others together, and then it is within √(n/(n−1)) standard errors of 0.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...runs.statistics import Moments, interval

Floats = NDArray[np.float64]

#: Standard errors above 0 from which on a mean's logarithm is used.
LEAST_Z = 2.0
#: Relative error below which precision brings a point no further weight.
FLOOR = 0.05
#: Fewest points of a slope; how many there are if need be by earlier ones, and in the slope at the end.
LEAST_FIT, FEWEST = 3, 4


@dataclass(frozen=True)
class Points:
    """One policy's regret over time, or over a parameter of the system.

    Attributes
    ----------
    x : float64[k]
        Rounds, or the parameter's values.
    values : float64[run, k]
        In jobs; row i is run i.
    """

    x: Floats
    values: Floats

    @property
    def moments(self) -> Moments:
        """Over runs, at every x."""
        return Moments.of(self.values)

    @property
    def z(self) -> Floats:
        """Means in their standard errors; 0 where all is 0, ∞ where all runs agree on something else."""
        moments = self.moments
        error = moments.sd / math.sqrt(len(self.values))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(moments.mean == 0.0, 0.0, moments.mean / error)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Where the mean is so far above 0 that it has a logarithm worth fitting."""
        return np.asarray(self.z >= LEAST_Z)


class Slope(NamedTuple):
    """A fitted slope over runs, as :class:`queuewise.runs.statistics.Estimate` has means, and where it was fitted.

    mean, low, high, sd, runs : of the pseudo-values; NaN and the whole line where nothing could be fitted · first, last : x
    of the first and the last point of the fit · points : how many · height : the fitted mean at x = 1 (its logarithm).
    """

    mean: float
    low: float
    high: float
    sd: float
    runs: int
    first: float
    last: float
    points: int
    height: float

    def at(self, x: Floats) -> Floats:
        """The fitted power law."""
        return np.asarray(np.exp(self.height) * x**self.mean)


def slope(points: Points, chosen: NDArray[np.bool_] | None = None, level: float = 0.95) -> Slope:
    """The slope of log mean regret on log x, by weighted least squares, with its jackknife interval over runs.

    Parameters
    ----------
    points : at least two runs.
    chosen : which points are fitted; None for all that are usable. Points that are not usable are never fitted.
    level : of the interval.

    Returns
    -------
    Slope
        Of NaN, with the whole line as its interval, where fewer than three points are left or fewer than three runs.
    """
    fitted = points.usable if chosen is None else points.usable & chosen
    runs = len(points.values)
    if fitted.sum() < LEAST_FIT or runs < 3:
        return Slope(math.nan, -math.inf, math.inf, math.nan, 1, math.nan, math.nan, int(fitted.sum()), math.nan)
    x, values = np.log(points.x[fitted]), points.values[:, fitted]
    total, squares = values.sum(axis=0), np.square(values).sum(axis=0)
    whole, height = _line(x, total, squares, runs)
    without, _ = _line(x, total - values, squares - np.square(values), runs - 1)
    pseudo = runs * whole - (runs - 1) * without
    mean, low, high, sd, count = interval(pseudo, level)
    # Through the middle of the points, with the slope that is reported.
    middle = float(x.mean())
    shifted = float(height) + (float(whole) - mean) * middle
    used = points.x[fitted]
    return Slope(mean, low, high, sd, count, float(used[0]), float(used[-1]), len(used), shifted)


def _line(x: Floats, total: Floats, squares: Floats, runs: int) -> tuple[Floats, Floats]:
    """Slope and height of the weighted line, from sums over so many runs at every x (leading axes: several samples)."""
    mean = total / runs
    variance = np.maximum(squares / runs - np.square(mean), 0.0) / (runs - 1)  # of the mean
    weight = 1.0 / np.maximum(variance / np.square(mean), FLOOR**2)
    y = np.log(mean)
    share = weight / weight.sum(axis=-1, keepdims=True)
    x_mean, y_mean = (share * x).sum(axis=-1), (share * y).sum(axis=-1)
    distance = x - x_mean[..., None]
    found = (share * distance * y).sum(axis=-1) / (share * distance * x).sum(axis=-1)
    return np.asarray(found), np.asarray(y_mean - found * x_mean)


def decay(points: Points, first: float, level: float = 0.95) -> Slope:
    """The slope over time: from round `first` to where regret is nearly gone (:func:`reach`). Where that is fewer than
    :data:`FEWEST` points, earlier ones are taken too, as far back as regret is told from 0."""
    return slope(points, _stretch(points, first), level)


def late_decay(points: Points, first: float, level: float = 0.95) -> Slope:
    """The slope over the last :data:`FEWEST` points of the same."""
    chosen = _stretch(points, first)
    chosen[np.flatnonzero(chosen)[:-FEWEST]] = False
    return slope(points, chosen, level)


def reach(points: Points, first: float) -> int:
    """How many points there are before regret is nearly gone: from x = `first` on, the stretch in which points that are told
    from 0 outnumber the others by most. (One that is not, among many that are, is bad luck; one that is, among many that are
    not, is good luck.)"""
    begin = int(np.searchsorted(points.x, first))
    lead = np.concatenate([[0], np.cumsum(np.where(points.usable[begin:], 1, -1))])
    return begin + int(np.argmax(lead))


def _stretch(points: Points, first: float) -> NDArray[np.bool_]:
    begin, end, usable = int(np.searchsorted(points.x, first)), reach(points, first), points.usable
    chosen = np.zeros(len(points.x), dtype=np.bool_)
    chosen[begin:end] = usable[begin:end]
    while chosen.sum() < FEWEST and begin > 0 and usable[begin - 1]:
        begin -= 1
        chosen[begin] = True
    return chosen


def dyadic(rounds: int, first: int = 16) -> list[tuple[int, int]]:
    """The windows (2^k, 2^{k+1} − 1) of rounds, both ends included, that lie in rounds `first` .. `rounds`.

    Raises
    ------
    ValueError : there is none.
    """
    windows = []
    start = 1 << max(first - 1, 0).bit_length()
    while 2 * start - 1 <= rounds:
        windows.append((start, 2 * start - 1))
        start *= 2
    if not windows:
        raise ValueError(f"rounds: must reach to {2 * start - 1} for a window of rounds from {start} on, not {rounds}")
    return windows


def middle(window: tuple[int, int]) -> float:
    """Where the mean over a dyadic window is drawn: its geometric middle."""
    first, last = window
    return math.sqrt(first * (last + 1.0))
