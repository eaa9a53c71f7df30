"""Slow obvious twins of the simultaneous intervals and effect sizes."""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats


def largest_t(table: np.ndarray, counts: np.ndarray) -> list[float]:
    """The largest |t| of each resample of whole rows; counts[b, i] is how often resample b has row i."""
    found = []
    for times in counts:
        sample = np.repeat(table, times, axis=0)
        n = len(sample)
        best = 0.0
        for column in range(table.shape[1]):
            values = sample[:, column]
            error = values.std(ddof=1) / math.sqrt(n)
            best = max(best, abs(values.mean() - table[:, column].mean()) / error)
        found.append(best)
    return found


def noncentrality(t: float, degrees: int, share: float) -> float:
    """By bisection over a wide range."""
    low, high = -1000.0, 1000.0
    for _ in range(200):
        middle = (low + high) / 2
        if stats.nct.cdf(t, degrees, middle) > share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def ratios_that_fit(a: np.ndarray, b: np.ndarray, level: float, grid: np.ndarray) -> np.ndarray:
    """The ratios of a grid for which the t interval of mean(a − ρb) contains 0."""
    n = len(a)
    reach = stats.t.ppf(0.5 + level / 2, n - 1)
    keep = []
    for rho in grid:
        d = a - rho * b
        keep.append(abs(d.mean()) <= reach * d.std(ddof=1) / math.sqrt(n))
    return grid[np.array(keep)]


def below(t: float, degrees: int, centre: float) -> float:
    """P(T ≤ t) of the noncentral t distribution by its definition, over 200,000 equally likely values of S."""
    shares = (np.arange(200_000) + 0.5) / 200_000
    s = np.sqrt(stats.chi2.ppf(shares, degrees) / degrees)
    return float(special.ndtr(t * s - centre).mean())
