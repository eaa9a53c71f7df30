"""Figures about how sure a result is: how intervals converge, how runs are spread, which differences are decided.

They draw what was computed elsewhere, in panels of a caller's figure. Names of policies are drawn as they are: a ``$`` in
one is no formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .convergence import Convergence
from .plot import frameless, shortened, style
from .simultaneous import Comparison
from .statistics import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: From this many runs on, points are drawn smaller and paler.
_MANY = 60
#: Spread of the points of one policy across its row.
_JITTER = 0.26
#: Ratio of the largest typical value to the smallest, from which on an axis is logarithmic.
_SPREAD = 20.0


def draw_means(axes: Axes, found: Sequence[Convergence], places: Sequence[int], what: str) -> None:
    """Mean and interval of the first n runs. places : each one's place in ``result.policies``, for its colour."""
    for one, place in zip(found, places, strict=True):
        look = style(place)
        axes.plot(one.runs, one.mean, label=shortened(one.name), linewidth=1.5, **look)
        axes.fill_between(one.runs, one.low, one.high, color=look["color"], alpha=0.12, linewidth=0)
    # The interval of two or three runs is so wide that it would flatten all that follows.
    settled = [one.runs >= min(5, one.runs[-1]) for one in found]
    ends = [(one.low[kept].min(), one.high[kept].max()) for one, kept in zip(found, settled, strict=True)]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    room = 0.05 * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)
    axes.set_ylabel(what)
    _runs(axes, found)


def draw_half_widths(axes: Axes, found: Sequence[Convergence], places: Sequence[int], what: str) -> None:
    """Half the length of the interval of the first n runs, both axes logarithmic, beside 1/√n."""
    for one, place in zip(found, places, strict=True):
        width = np.where(one.half_width > 0.0, one.half_width, np.nan)
        axes.plot(one.runs, width, label=shortened(one.name), linewidth=1.5, **style(place))
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    end = max((float(one.half_width[-1]) for one in found), default=0.0)
    if end > 0.0:
        runs = np.geomspace(found[0].runs[0], found[0].runs[-1], 50)
        guide = end * np.sqrt(runs[-1] / runs)
        axes.plot(runs, guide, color="0.55", linewidth=1.0, linestyle=(0, (1, 2)), label="1/√n", zorder=0)
    axes.set_ylim(low, high)
    axes.set_ylabel(what)
    _plain_ticks(axes, "y")
    _runs(axes, found)


def _runs(axes: Axes, found: Sequence[Convergence]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(found[0].runs[0], found[0].runs[-1] * 1.001)
    axes.set_xlabel("runs")
    _plain_ticks(axes, "x")
    frameless(axes)


def _plain_ticks(axes: Axes, which: str) -> None:
    """Ticks at 1, 2, 5 times powers of ten, written out."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low) if low > 0 else 9.0
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 3 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def draw_distribution(axes: Axes, values: Mapping[str, Floats], places: Sequence[int], what: str) -> None:
    """Every run as a point, the first policy on top: box from quartile to quartile, line at the median, diamond at the mean.

    values : name → float[run], NaN left out. The axis is logarithmic where policies are orders of magnitude apart.
    """
    names = list(values)
    for row, (name, place) in enumerate(zip(names, places, strict=True)):
        runs = values[name][np.isfinite(values[name])]
        if not len(runs):
            continue
        colour = style(place)["color"]
        # Spread by the golden ratio: even, and the same in every drawing.
        across = row + _JITTER * (2.0 * ((np.arange(len(runs)) * 0.6180339887) % 1.0) - 1.0)
        many = len(runs) > _MANY
        axes.scatter(runs, across, s=5 if many else 11, color=colour, alpha=0.3 if many else 0.5, linewidth=0, zorder=2)
        line: dict[str, Any] = {"color": "0.15", "linewidth": 1.1}
        axes.boxplot(
            [runs],
            positions=[row],
            widths=0.62,
            orientation="horizontal",
            showfliers=False,
            manage_ticks=False,
            boxprops=line,
            whiskerprops=line,
            capprops=line,
            medianprops={**line, "linewidth": 2.0},
            zorder=3,
        )
        axes.plot([runs.mean()], [row], marker="D", markersize=5, color="white", markeredgecolor="0.15", zorder=4)
    _rows(axes, names)
    middles = [abs(float(np.nanmedian(v))) for v in values.values() if np.isfinite(v).any()]
    if middles and max(middles) > _SPREAD * max(min(middles), 1e-12):
        lowest = min(float(np.nanmin(v)) for v in values.values() if np.isfinite(v).any())
        if lowest > 0:
            axes.set_xscale("log")
            _plain_ticks(axes, "x")
        else:
            axes.set_xscale("symlog", linthresh=1.0)
            if lowest >= 0:
                axes.set_xlim(left=-0.5)
        what += ", logarithmic" + ("" if lowest > 0 else " beyond ±1")
    axes.set_xlabel(what)
    frameless(axes)


def draw_comparisons(axes: Axes, found: Sequence[Comparison], places: Sequence[int], what: str) -> None:
    """Differences with their simultaneous intervals, one below the other; open where the interval holds 0."""
    for row, (comparison, place) in enumerate(zip(found, places, strict=True)):
        difference = comparison.difference
        colour = style(place)["color"]
        decided = difference.smaller is not None
        axes.plot([difference.low, difference.high], [row, row], color=colour, linewidth=2.4, solid_capstyle="butt")
        axes.plot(
            [difference.mean],
            [row],
            marker="o",
            markersize=7,
            color=colour if decided else "white",
            markeredgecolor=colour,
            markeredgewidth=1.6,
        )
    axes.axvline(0.0, color="0.2", linewidth=1.0, zorder=1.5)
    _rows(axes, [comparison.difference.first for comparison in found])
    axes.set_xlabel(what)
    axes.grid(axis="x", color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    frameless(axes)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [shortened(name) for name in names], parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
