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

from ..._version import VERSION
from ...dispatch.policies.lased import lased
from ...dispatch.policy import Policy
from ...dispatch.result import Result
from ...dispatch.systems import Rate, System
from ...runs.plot import COLOURS
from ...runs.statistics import Estimate, Moments
from ..claims import HOLDS, UNDECIDED, Estimated, Verdict, claims_table
from ..registry import Outcome, Request
from ..report import Table, to_json, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

#: r_min and r_max, to which LASED's estimated ratio is clipped: in the paper the rates lie in known bounds.
RATIO_BOUNDS = (1 / 20, 20.0)
#: Share of a run's regret in its last third below which it has levelled off. A constant slope gives a third.
LEVEL = 0.01
#: How a claim was measured where nothing is random.
EXACTLY = "counted exactly"
#: The rules' colours, in every figure.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = COLOURS
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


def estimate(values: Any) -> Estimate:
    """The mean of one number a run."""
    return Moments.of(np.asarray(values, dtype=np.float64)).estimate(0.95)


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
    found = estimate(linearised(numerator, denominator, at))
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
    return estimate(regret_at(result, name, 1.0) / result.arrivals[-1])


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


def known(value: float) -> Estimate:
    """A number without error, for claims about what is computed and not simulated."""
    return Estimate(value, value, value, 0.0, 2)


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


def in_words(verdict: Verdict) -> str:
    """A claim, what its verdict is, and the numbers that it rests on."""
    said = {HOLDS: "holds", UNDECIDED: "is undecided"}.get(verdict.verdict, "does not hold")
    low, high = verdict.certain
    sure = f"{low}" if low == high else f"{low} to {high}"
    if verdict.claim.way == EXACTLY:
        numbers = f"in {verdict.agreeing} of {len(verdict.parts)} parts"
    elif len(verdict.parts) == 1:
        numbers = f"{verdict.measured} {verdict.interval}"
    else:
        numbers = f"by the means in {verdict.agreeing} of {len(verdict.parts)} parts, with confidence in {sure}"
    needed = "" if verdict.needed == len(verdict.parts) else f", {verdict.needed} needed"
    return f"{verdict.claim.text}: {said} ({verdict.claim.way}; {numbers}{needed})."


def parts_of(verdicts: Sequence[Verdict]) -> Table:
    """Every inequality behind the verdicts."""
    from ..report import interval

    rows, ends = [], []
    for verdict in verdicts:
        for i, (part, wanted) in enumerate(zip(verdict.parts, verdict.claim.parts, strict=True)):
            bound = f"{'<' if wanted.direction == 'below' else '>'} {wanted.bound:g}"
            text = f"{verdict.claim.text} ({verdict.claim.way})" if i == 0 else ""
            rows.append((text, part.label, interval(part.value, part.low, part.high), bound, part.verdict))
        ends.append(len(rows) - 1)
    return Table(
        "What the claims rest on",
        ("claim", "part", "measured", "wanted", "verdict"),
        tuple(rows),
        note="The intervals of one claim hold together with 95% confidence.",
        wide=(0, 1),
        sections=tuple(ends),
    )


# --- figures ---------------------------------------------------------------------------------------------------------


def new_figure(width: float, height: float) -> Figure:
    """An empty figure without pyplot, so that nothing global is touched."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def bare(axes: Axes) -> None:
    """Light grid, no frame above and to the right."""
    axes.grid(color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def logarithmic(axes: Axes, result: Result, least: int = 10) -> None:
    """Both axes: arrivals on a logarithmic axis, regret linear up to one decision and logarithmic above."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(least, int(result.arrivals[-1]))
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("arrivals")


def draw_curve(axes: Axes, arrivals: Any, values: Floats, label: str, **look: Any) -> None:
    """The mean over runs (float64[run, checkpoint]) with its 95% interval."""
    moments = Moments.of(values)
    style = {"linewidth": 1.7, **look}
    axes.plot(arrivals, moments.mean, label=label, **style)
    if moments.count > 1:
        low, high = moments.interval(0.95)
        axes.fill_between(arrivals, np.maximum(low, 0.0), high, color=style["color"], alpha=0.16, linewidth=0)


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
    """Write ``claims.json`` and ``claims.md`` and put everything together; the claims' table comes last."""
    title = f"Claims of {reference}" + (" (quick: few and short runs, for a first look)" if request.quick else "")
    tables = (*tables, claims_table(verdicts, title))
    sentences = [*(in_words(verdict) for verdict in verdicts), *said]
    found = {
        "reproduction": name,
        "reference": reference,
        "version": VERSION,
        "quick": request.quick,
        "seed": request.seed,
        "runs": request.runs,
        "arrivals": request.arrivals,
        "claims": [verdict.as_json() for verdict in verdicts],
        "conclusions": sentences,
        **results,
    }
    lines = [f"# {reference}", "", *(f"- {sentence}" for sentence in sentences), ""]
    lines += [table.markdown() for table in (tables[-1], *tables[:-1], parts_of(verdicts))]
    written = [
        write_text(request.out / "claims.json", to_json(found) + "\n"),
        write_text(request.out / "claims.md", "\n".join(lines)),
    ]
    rows = [request.out / "rows"] if request.runs else []
    return Outcome(tuple(verdicts), tuple(tables), tuple(sentences), (*files, *written, *rows), found)
