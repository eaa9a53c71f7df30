"""What the reproductions of LASED's numerical section share: the learner, checkpoints, estimates, and the report.

The paper gives neither horizons nor numbers of runs, nor most of the rates; what is chosen here is said in each module and
in ``docs/reproductions-lased.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...dispatch.policies.lased import lased
from ...dispatch.policy import Policy
from ...dispatch.result import Result
from ...dispatch.systems import Rate, System
from ...runs.statistics import Estimate, interval
from ..claims import Estimated, Verdict, parts_table, sentence
from ..registry import Outcome, Request
from ..report import Table
from . import _report
from ._figures import BLACK, BLUE, GREEN, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

#: r_min and r_max, to which LASED's estimated ratio is clipped: in the paper the rates lie in known bounds.
RATIO_BOUNDS = (1 / 20, 20.0)
#: Share of a run's regret in its last third below which it has levelled off. A constant slope gives a third.
LEVEL = 0.01
LOOK: dict[str, dict[str, Any]] = {
    "lased": {"color": BLUE, "linestyle": "-"},
    "greedy": {"color": VERMILION, "linestyle": "--"},
    "esed": {"color": GREEN, "linestyle": "-"},
    "sed": {"color": BLACK, "linestyle": ":"},
}
LABELS = {"lased": "LASED", "greedy": "Greedy", "esed": "ESED", "sed": "SED (oracle)"}
#: Checkpoints per factor of ten, and evenly spaced ones.
_PER_DECADE, _EVENLY = 16, 60


def learner(initial_rates: Sequence[Rate] | None = None, name: str = "") -> Policy:
    """LASED as in all these figures: power 4, quota "fill", r̄ within [1/20, 20]."""
    return lased(initial_rates, name=name, ratio_bounds=RATIO_BOUNDS)


def system_of(rates: Sequence[str], load: float, **options: Any) -> System:
    """Two servers with these rates at this load."""
    return System(arrival_rate=float(load * sum(map(float, rates))), service_rates=list(rates), **options)


def checkpoints(arrivals: int) -> list[int]:
    """Where a run is looked at: evenly, which has its tenth, half and two thirds, and evenly on a logarithmic axis."""
    decades = math.log10(arrivals)
    even = {arrivals * i // _EVENLY for i in range(1, _EVENLY + 1)}
    fine = {round(x) for x in np.logspace(0.0, decades, 1 + math.ceil(_PER_DECADE * decades))}
    return sorted(mark for mark in even | fine if 1 <= mark <= arrivals)


# --- estimates -------------------------------------------------------------------------------------------------------


def linearised(numerator: Any, denominator: Any, at: float | None = None) -> Floats:
    """A number a run whose mean is mean/mean, and whose spread is that of numerator − `at`·denominator (Fieller).

    at : the value that the ratio is compared with, so that the interval lies on one side of it just where the mean of that
        difference is known to. None for the ratio itself (delta method), which trusts a ratio that one huge run has made.
        0/0 is 0: what never grew has levelled off.
    """
    above, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    mean = float(below.mean())
    if mean == 0.0:
        return np.zeros(len(below))
    value = float(above.mean()) / mean
    spread = above - (value if at is None else at) * below
    return np.asarray(value + (spread - spread.mean()) / mean)


def ratio(numerator: Any, denominator: Any, at: float | None = None) -> Estimate:
    """A mean over a mean, with its interval."""
    found = interval(linearised(numerator, denominator, at))
    # Rounding apart that is the mean already; 0 shall be 0.
    value = float(np.mean(numerator)) / float(np.mean(denominator)) if np.any(denominator) else 0.0
    return found._replace(mean=value)


def regrets(result: Result, name: str) -> Floats:
    """Decisions against the oracle so far: float64[run, checkpoint]."""
    return result.regrets(name)


def regret_at(result: Result, name: str, share: float) -> Floats:
    """The same at this share of the arrivals: float64[run]."""
    mark = int(result.arrivals[-1] * round(share * _EVENLY)) // _EVENLY
    if mark == 0:
        return np.zeros(result.runs)
    return np.asarray(regrets(result, name)[:, int(np.searchsorted(result.arrivals, mark))])


def grown(result: Result, name: str, since: float) -> Floats:
    """Regret from this share of the arrivals to the end: float64[run]."""
    return np.asarray(regret_at(result, name, 1.0) - regret_at(result, name, since))


def last_share(result: Result, name: str, since: float = 2 / 3, at: float | None = None) -> Estimate:
    """The share of the mean regret that comes after this share of the arrivals; `at` is what it is compared with."""
    return ratio(grown(result, name, since), regret_at(result, name, 1.0), at)


def levels_off(result: Result, name: str) -> Estimate:
    """The share of the mean regret in the last third, to compare with LEVEL."""
    return last_share(result, name, at=LEVEL)


def slope(result: Result, name: str) -> Estimate:
    """Regret per arrival over the whole run."""
    return interval(regret_at(result, name, 1.0) / result.arrivals[-1])


def settling(result: Result, name: str, share: float = 0.95) -> Floats:
    """Per run, log10 of the arrivals after which its regret has reached this share of what it is at the end."""
    found = regrets(result, name)
    first = (found >= share * found[:, [-1]]).argmax(axis=1)
    return np.asarray(np.log10(result.arrivals[first]))


def stuck(result: Result) -> NDArray[np.int64]:
    """Runs in which LASED spent the last third in a single episode, and so learned nothing in it."""
    episodes = result._columns["lased.episode"]
    since = int(np.searchsorted(result.arrivals, int(result.arrivals[-1]) * 40 // _EVENLY))
    return np.flatnonzero(episodes[:, since] == episodes[:, -1])


# --- words -----------------------------------------------------------------------------------------------------------


def count(value: float) -> str:
    """A number of decisions: whole, with separators; small ones with a decimal."""
    if not math.isfinite(value):
        return "?"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}".replace("-0.0", "0.0")


def counted(found: Estimated) -> str:
    """A mean number of decisions with half the length of its 95% interval."""
    from ...runs.statistics import quantile

    if found.runs < 2:
        return count(found.mean)
    half = quantile(0.95, found.runs - 1) * found.sd / math.sqrt(found.runs)
    return f"{count(found.mean)} ± {count(half)}"


# --- figures ---------------------------------------------------------------------------------------------------------


def logarithmic(axes: Axes, result: Result, least: int = 10) -> None:
    """Both axes: arrivals on a logarithmic axis, regret linear up to one decision and logarithmic above."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(least, int(result.arrivals[-1]))
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("arrivals")


def millions(axes: Axes) -> None:
    """Arrivals in millions on a linear axis."""
    from matplotlib.ticker import FuncFormatter

    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g}"))
    axes.set_xlabel("arrivals (millions)")


# --- the report ------------------------------------------------------------------------------------------------------


def finish(
    request: Request,
    name: str,
    reference: str,
    verdicts: Sequence[Verdict],
    tables: Sequence[Table],
    said: Sequence[str],
    results: dict[str, Any],
    files: Sequence[Path],
) -> Outcome:
    """The report with what every claim rests on, each claim in words first."""
    sentences = [*map(sentence, verdicts), *said]
    numbers = {"arrivals": request.arrivals, **results}
    return _report.finish(
        request, name, reference, verdicts, tables, sentences, numbers, files, below=[parts_table(verdicts)]
    )
