"""The figure of a replay: delays of every policy, and the number in the system over time. Plotting never simulates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs.plot import COLOURS, frameless, label_of, new_figure
from .logs import duration_text
from .standings import LEARNERS, Standing, rule_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .replay import Replay

#: Curves of the number in the system; more could not be told apart.
_CURVES = 4
#: Pieces of time that it is averaged over.
_PIECES = 100
#: Largest number in terms of the smallest, from which on a linear axis would hide the smallest.
_SPREAD = 15.0
_GREY = "0.55"


def draw(found: Replay) -> Figure:
    """Left: mean, 95th and 99th percentile of the delay, policy by policy. Right: jobs in the system over the log."""
    alive = [standing for standing in found.standings if math.isfinite(standing.delay.mean)]
    height = max(4.2, 1.4 + 0.34 * (len(found.standings) + len(_had(found))))
    figure = new_figure(11.5, height)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
    chosen = _chosen(alive)
    _delays(left, found, {standing.name: colour for standing, colour in zip(chosen, COLOURS, strict=False)})
    _numbers(right, found, chosen)
    figure.suptitle(f"{found.log.source}: load {found.results['load']:.3g}, {len(found.log):,} jobs", fontsize=11)
    return figure


def _chosen(alive: list[Standing]) -> list[Standing]:
    """The oracle's rule, the best of those that learn, JSQ, and the slowest; else the best. Best first."""
    wanted = [standing for standing in alive if standing.name in ("sed", "jsq")]
    wanted += [standing for standing in alive if rule_of(standing) in LEARNERS][:1]
    wanted += [standing for standing in alive[::-1] if standing not in wanted][:1]
    wanted += [standing for standing in alive if standing not in wanted]
    kept = wanted[:_CURVES]
    return [standing for standing in alive if standing in kept]


def _had(found: Replay) -> list[dict[str, Any]]:
    """What the log itself had, where it says so."""
    return list(found.results["recorded"])


def _delays(axes: Axes, found: Replay, colours: dict[str, str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    rows = [
        (one.delay.mean, one.p95.mean, one.p99.mean, label_of(one.label, one.name), colours.get(one.name, _GREY))
        for one in found.standings
    ]
    rows += [(one["mean_delay"], one["p95_delay"], one["p99_delay"], one["label"], "black") for one in _had(found)]
    rows.sort(key=lambda row: float(f"{row[0]:.9g}") if math.isfinite(row[0]) else math.inf)
    for y, (mean, p95, p99, _, colour) in enumerate(rows):
        if not math.isfinite(mean):
            axes.text(0.02, y, "overflowed", transform=axes.get_yaxis_transform(), va="center", color=_GREY)
            continue
        axes.plot([mean, p99], [y, y], color=colour, linewidth=1.2, zorder=2)
        axes.plot(mean, y, "o", color=colour, markersize=7, zorder=3)
        axes.plot(p95, y, "|", color=colour, markersize=11, markeredgewidth=2, zorder=3)
        axes.plot(p99, y, "o", color=colour, markerfacecolor="white", markersize=6, zorder=3)
    oracle = found.results["oracle"]["mean_delay"]["mean"]
    if math.isfinite(oracle):
        axes.axvline(oracle, color="0.75", linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
        axes.text(oracle, -0.75, "  mean of the oracle", fontsize=8, color="0.4", ha="left", va="center")
    axes.set_yticks(range(len(rows)), [label for *_, label, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -1.1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("delay (seconds, logarithmic):  ●  mean    |  95th percentile    ○  99th percentile")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    frameless(axes, "top", "right", "left")


def _numbers(axes: Axes, found: Replay, chosen: list[Standing]) -> None:
    """Means over equal pieces of time, over runs. Where the largest would flatten the others the axis is logarithmic."""
    from matplotlib.ticker import FuncFormatter, NullLocator, SymmetricalLogLocator

    result = found.result
    times = found.log.times[result.arrivals - 1]
    scale, unit = next(
        (
            (size, unit)
            for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
            if times[-1] >= 3 * size
        ),
        (1.0, "seconds"),
    )
    edges = np.linspace(0.0, times[-1], min(_PIECES, len(times)) + 1)
    least, most = math.inf, 0.0
    for standing, colour in zip(chosen, COLOURS, strict=False):
        areas = (result.number_in_system[standing.name] * times).mean(axis=0)
        areas[times == 0.0] = 0.0
        if not np.isfinite(areas).all():  # the oracle overflowed, and with it the clock of the result
            continue
        numbers = np.diff(np.interp(edges, np.append(0.0, times), np.append(0.0, areas))) / np.diff(edges)
        label = label_of(standing.label, standing.name)
        # The oracle's rule lies under the others, wide enough to be seen beside a rule that does as well.
        look: dict[str, Any] = {"linewidth": 4.0, "alpha": 0.4} if standing.name == "sed" else {"linewidth": 1.4}
        axes.stairs(numbers, edges / scale, color=colour, label=label, baseline=None, **look)
        least, most = min(least, float(np.median(numbers))), max(most, float(numbers.max()))
    if most > _SPREAD * max(least, 1.0):
        axes.set_yscale("symlog", linthresh=1.0)
        axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1.0, subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    logarithmic = ", logarithmic above 1" if axes.get_yscale() == "symlog" else ""
    axes.set_xlim(0.0, times[-1] / scale)
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(f"time of the replay ({unit})")
    axes.set_ylabel(f"jobs in the system (means over {duration_text(edges[1])}{logarithmic})")
    axes.grid(axis="y", color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    if chosen:
        axes.legend(frameon=False, fontsize=9, ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2)
    frameless(axes)
