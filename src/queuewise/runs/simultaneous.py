"""Comparisons of several policies whose intervals hold all together.

Differences are taken run by run, so every comparison is the mean of one column of a table [run, comparison]. Two ways to
intervals that hold together with probability `level`:

``bonferroni``  each is a t interval at the level 1 − (1 − level)/comparisons: right however the columns depend on each
                other, and too wide where they depend strongly, as differences to a common policy do
``max_t``       the bootstrap distribution of the *largest* |t| among them (single-step max-t of Westfall and Young 1993,
                sections 2.5 and 2.6; studentised intervals of Romano and Wolf 2005, section 4). Whole runs are resampled,
                so the dependence between policies of one run is kept, and each resample is studentised by its own
                deviations, so skewed differences get the wider interval that they need

Measured coverage of both is in docs/statistics.md. The bootstrap of fewer than :data:`LEAST_RUNS` runs has quantiles that
say nothing (at 5 runs the largest |t| of 15 comparisons has a 95 % quantile of 23), so Bonferroni is used there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from .statistics import Difference, Floats, Moments, check_level, quantile, simultaneous_level

Method = Literal["max_t", "bonferroni"]
METHODS: tuple[str, ...] = get_args(Method)

#: Fewest runs that are resampled.
LEAST_RUNS = 8
#: Resamples unless told otherwise: the Monte Carlo error of a 95 % quantile's level is then 0.2 %.
RESAMPLES = 9999
#: Numbers in the largest table of resamples that is in memory at a time.
_BATCH = 2_000_000
#: A column whose deviation is so small beside its values is constant up to rounding.
_CONSTANT = 1e-12
#: Keeps these draws apart from those of the simulation, which has the same seed.
_STREAM = 0x6D61782D74


class Comparison(NamedTuple):
    """A paired difference whose interval holds together with those of its family, and its adjusted p-value.

    difference : mean `first` − `second` with the simultaneous interval · p : probability, were all true differences 0, of
    a family with a |t| at least as large as this one's. It is at most 1 − level exactly where the interval leaves out 0.
    """

    difference: Difference
    p: float

    def reversed(self) -> Comparison:
        """The same, second minus first."""
        d = self.difference
        return Comparison(Difference(-d.mean, -d.high, -d.low, d.sd, d.runs, d.second, d.first), self.p)

    def __str__(self) -> str:
        return f"{self.difference}, p = {self.p:.3g}"


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of which all intervals hold together with probability `level`.

    Attributes
    ----------
    comparisons : tuple of Comparison
    method : {"max_t", "bonferroni"}
        What was used in the end.
    reason : str
        Why not what was asked for; empty if it was.
    level : float
    family : int
        Intervals that hold together. More than there are comparisons where the common policy was chosen by its mean.
    critical : float
        Half width of every interval in standard errors of its difference.
    resamples : int
        Of the bootstrap; 0 for Bonferroni.
    """

    comparisons: tuple[Comparison, ...]
    method: str
    reason: str
    level: float
    family: int
    critical: float
    resamples: int

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.comparisons)

    def __len__(self) -> int:
        return len(self.comparisons)

    def of(self, first: str, second: str) -> Comparison:
        """The comparison of these two, as first − second. ValueError where it is not in the family."""
        for comparison in self.comparisons:
            names = comparison.difference.first, comparison.difference.second
            if names == (first, second):
                return comparison
            if names == (second, first):
                return comparison.reversed()
        raise ValueError(f"policies: {first!r} and {second!r} are not compared here")

    def describe(self) -> str:
        """How the intervals were made, in a sentence."""
        together = f"{self.family} interval{'s' * (self.family != 1)} hold{'s' * (self.family == 1)}"
        together += f"{' together' * (self.family != 1)} with {100 * self.level:g} % confidence"
        if self.method == "max_t":
            way = f"max-t, {self.resamples} bootstrap resamples of whole runs"
            return f"{together} ({way}; ± {self.critical:.2f} standard errors)"
        way = "Student's t" if self.family == 1 else "Student's t with Bonferroni's correction"
        return f"{together} ({way}; ± {self.critical:.2f} standard errors){'; ' * bool(self.reason)}{self.reason}"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.comparisons), self.describe()])


def compare_all(
    names: Sequence[str],
    mean: Mapping[str, float],
    moments: Callable[[str, str], Moments],
    values: Callable[[str], Floats] | None,
    *,
    against: str | None,
    level: float,
    method: str,
    resamples: int,
    seed: int,
) -> Comparisons:
    """All pairs of policies, or all policies against one.

    Parameters
    ----------
    names : policies, at least one.
    mean : each one's mean, to find the best, which is the smallest.
    moments : (a, b) → the moments over runs of a − b.
    values : name → float[run]; None where runs were not kept, and Bonferroni is used.
    against : None for all pairs; a name; "best" for whichever has the smallest mean (unless a policy is called so). The best
        is chosen by the same runs, so those intervals hold for *all pairs*, and thus for whichever is the best.
    level, method, resamples : as in :class:`Comparisons`.
    seed : of the resampling.

    Raises
    ------
    ValueError : an unknown name or method, a level outside (0, 1), or too few resamples for the level.
    """
    check_level(level)
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, not {method!r}")
    least = math.ceil(round(1.0 / (1.0 - level), 9))
    if isinstance(resamples, bool) or not isinstance(resamples, int | np.integer) or resamples < least:
        raise ValueError(
            f"resamples must be a whole number of at least {least} at the level {level:g}, not {resamples!r}"
        )
    pairs = list(itertools.combinations(names, 2))
    wanted = pairs
    if against is not None and against in names:
        wanted = pairs = [(name, against) for name in names if name != against]
    elif against == "best":
        best = min(names, key=lambda name: (math.isnan(mean[name]), mean[name]))
        wanted = [(name, best) for name in names if name != best]
    elif against is not None:
        raise ValueError(f"against must be None, 'best' or one of {', '.join(map(repr, names))}, not {against!r}")
    summary = {pair: moments(*pair) for pair in dict.fromkeys([*pairs, *wanted])}
    runs = min((found.count for found in summary.values()), default=0)
    reason = ""
    found: tuple[float, Floats] | None = None
    if method == "max_t" and pairs:
        if values is None:
            reason = "Bonferroni, since the runs were not kept (keep='moments')"
        elif runs < LEAST_RUNS:
            reason = f"Bonferroni, since {runs} runs are too few to resample (at least {LEAST_RUNS})"
        else:
            rows = {name: np.asarray(values(name), dtype=np.float64) for name in names}
            found = largest_t(np.stack([rows[a] - rows[b] for a, b in pairs], axis=1), level, int(resamples), seed)
            if found is None:
                reason = "Bonferroni, since some policies differ in too few runs to resample"
    critical = quantile(simultaneous_level(level, len(pairs)), runs - 1) if runs > 1 else math.inf
    if found is not None:
        critical = found[0]
    made = []
    for pair in wanted:
        moment = summary[pair]
        size, error = abs(float(moment.mean)), float(moment.sd) / math.sqrt(max(1, moment.count))
        half = critical * error if moment.count > 1 else math.inf
        difference = Difference(
            float(moment.mean),
            float(moment.mean) - half,
            float(moment.mean) + half,
            float(moment.sd),
            moment.count,
            *pair,
        )
        made.append(
            Comparison(difference, _p_value(size, error, moment.count, len(pairs), None if found is None else found[1]))
        )
    return Comparisons(
        tuple(made),
        "bonferroni" if found is None else "max_t",
        reason,
        level,
        len(pairs),
        critical,
        0 if found is None else int(resamples),
    )


def _p_value(size: float, error: float, runs: int, family: int, largest: Floats | None) -> float:
    """Adjusted p-value of a mean of this size and standard error. largest : the bootstrap's largest |t|, ascending."""
    if math.isnan(size) or math.isnan(error):
        return 1.0 if runs < 2 else math.nan
    if error <= _CONSTANT * size or error == 0.0:  # the same in every run
        return 1.0 if size == 0.0 else 0.0 if largest is None else 1.0 / (len(largest) + 1)
    t = size / error
    if largest is not None:
        reached = len(largest) - int(np.searchsorted(largest, t, side="left"))
        return (1 + reached) / (len(largest) + 1)
    from scipy.special import stdtr  # here, since loading it takes longer than everything else that a simulation loads

    return min(1.0, 2.0 * family * float(stdtr(runs - 1, -t)))


def largest_t(table: Floats, level: float, resamples: int, seed: int) -> tuple[float, Floats] | None:
    """The bootstrap distribution of the largest |t| among the columns of a table [run, comparison].

    Returns its quantile at `level`, and all values in ascending order (float[resamples]). The quantile is the
    ⌈level·(resamples + 1)⌉-th value, so that a comparison beyond it is one with p ≤ 1 − level. None where too many resamples
    have a column without spread, whose t is infinite: its policies differ in a few runs only.

    Columns that are the same in every run, or not known in some (NaN), take no part.
    """
    runs = table.shape[0]
    centred = table - table.mean(axis=0)
    with np.errstate(invalid="ignore"):
        kept = np.sqrt(np.square(centred).mean(axis=0)) > _CONSTANT * np.abs(table).max(axis=0)
    centred = centred[:, kept]
    if not centred.shape[1]:
        return quantile(level, runs - 1), np.zeros(resamples)
    # In units of each column's deviation, so that "no spread" means the same in all of them.
    centred = centred / np.sqrt(np.square(centred).mean(axis=0))
    squares = np.square(centred)
    rng = np.random.default_rng([_STREAM, seed])
    largest = np.empty(resamples)
    batch = max(1, _BATCH // max(centred.shape))
    even = np.full(runs, 1.0 / runs)
    for start in range(0, resamples, batch):
        stop = min(start + batch, resamples)
        times = rng.multinomial(runs, even, size=stop - start).astype(np.float64)  # how often each run is drawn
        mean = times @ centred / runs
        variance = (times @ squares / runs - np.square(mean)) * (runs / (runs - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(mean) / np.sqrt(variance / runs)
        t[variance <= _CONSTANT] = np.inf
        largest[start:stop] = t.max(axis=1)
    # A tenth of what may lie beyond the quantile: more, and infinite values would begin to shape it.
    if np.isinf(largest).mean() > (1.0 - level) / 10.0:
        return None
    largest.sort()
    return float(largest[math.ceil(round(level * (resamples + 1), 9)) - 1]), largest
