"""The figures of ``regret-decay``: regret against t and against slack in log–log, and the slopes with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runs.plot import frameless, new_figure, save_figure
from ._scheduling import LABELS, STYLES
from ._slopes import Points, late_decay

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .regret_decay import Panel

_GUIDES = {-0.5: (0, (5, 2)), -0.25: (0, (1.5, 1.5)), -2.0: (0, (7, 2, 1.5, 2))}
_SLOPES = {-0.5: "−1/2", -0.25: "−1/4", -2.0: "−2"}


def draw(panels: Mapping[str, Panel], out: Path) -> list[Path]:
    """``figure``: the fixed laws, a column each, a row per radius; ``figure-families``: the families and the slack."""
    rows = [["law-fixed", "slow-law-fixed"], ["law-theory", "slow-law-theory"]]
    rows = [row for row in rows if row[0] in panels]
    files = save_figure(_grid(rows, panels, "Regret on two fixed laws"), out, "figure") if rows else []
    rest = [key for key in ("wise-theorem-7", "wise-theorem-8", "law-slack") if key in panels]
    if rest:
        title = "Regret where the law changes with t, and as slack goes to 0"
        files += save_figure(_grid([rest], panels, title), out, "figure-families")
    return files


def _grid(rows: Sequence[Sequence[str]], panels: Mapping[str, Panel], title: str) -> Figure:
    columns = max(len(row) for row in rows)
    width, height = 4.7 * columns + 0.5, 1.5 + 3.9 * len(rows)
    figure = new_figure(width, height, layout=None)
    axes = figure.subplots(
        len(rows),
        columns,
        squeeze=False,
        gridspec_kw={
            "left": 0.75 / width,
            "right": 1.0 - 0.15 / width,
            "bottom": 0.95 / height,
            "top": 1.0 - 0.95 / height,
            "wspace": 0.2,
            "hspace": 0.36,
        },
    )
    for i, row in enumerate(rows):
        for j, key in enumerate(row):
            longer = panels.get("law-long") if key == "law-fixed" else None
            _panel(axes[i, j], panels[key], longer)
        axes[i, 0].set_ylabel("regret (jobs)", fontsize=10)
    figure.suptitle(title, fontsize=13, x=0.15 / width, ha="left", y=1.0 - 0.12 / height)
    shown: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="lower center",
        ncols=len(shown),
        frameon=False,
        fontsize=9,
        handlelength=2.4,
        columnspacing=1.2,
    )
    return figure


def _panel(axis: Any, panel: Panel, longer: Panel | None) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    drawn = [(name, points, False) for name, points in panel.points.items()]
    drawn += [(name, points, True) for name, points in (longer.points if longer else {}).items()]
    ranges = [_curve(axis, points, name, long) for name, points, long in drawn]
    every = np.concatenate([points.x for _, points, _ in drawn])
    left, right = float(every.min()), float(every.max())
    lowest, highest = min(low for low, _ in ranges), max(high for _, high in ranges)
    if panel.bound is not None:
        bound = panel.bound.values[0]
        axis.plot(panel.bound.x, bound, color="black", linewidth=1.7, label="lower bound", zorder=6)
        lowest = min(lowest, float(bound.min()))
    low, high = lowest / 1.6, highest * 2.0
    slow = panel.over == "slack"
    for exponent in (-2.0,) if slow else (-0.5, -0.25):
        x = np.array([left, right])
        axis.plot(
            x,
            high / 1.25 * (x / left) ** exponent,
            color="#888888",
            linewidth=1.0,
            linestyle=_GUIDES[exponent],
            label=f"slope {_SLOPES[exponent]}",
            zorder=1,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(left / 1.15, right * 1.15)
    if 0.0 < low < high < np.inf:
        axis.set_ylim(low, high)
    if slow:
        axis.xaxis.set_major_locator(FixedLocator(sorted(set(every.tolist()))))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif right < 10.0 * left:
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("capacity slack ε" if slow else "round t", fontsize=10)
    axis.set_title(_folded(panel.words), fontsize=10)
    axis.grid(True, which="major", linewidth=0.5, color="#e4e4e4")
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8.5)
    frameless(axis)


def _curve(axis: Any, points: Points, name: str, long: bool) -> tuple[float, float]:
    """One policy's means with their intervals, hollow where they are not told from 0; the range of the means drawn.

    The longest runs, of another estimator, are squares on a thin line.
    """
    moments = points.moments
    low, high = moments.interval(0.95)
    usable, mean = points.usable, moments.mean
    seen = mean > 0.0
    if not seen.any():
        return np.inf, 0.0
    look = dict(STYLES[name])
    color = look["color"]
    if long:
        look |= {"linewidth": 0.8, "linestyle": (0, (3, 1.5))}
    # A logarithmic axis has no room for what is not told from 0: the band ends a little below the mean.
    certain = np.where(usable, mean, np.nan)
    low = np.maximum(low, mean / 8.0)
    marker = "s" if long else "o"
    label = None if long else LABELS[name]
    axis.plot(points.x, certain, **look, marker=marker, markersize=3.2, label=label)
    if not long:
        axis.fill_between(points.x, low, high, where=usable, color=color, alpha=0.14, linewidth=0, zorder=1)
    faint = seen & ~usable
    if faint.any():
        axis.errorbar(
            points.x[faint],
            mean[faint],
            yerr=[(mean - low)[faint], (high - mean)[faint]],
            fmt=marker,
            markersize=3.2,
            markerfacecolor="white",
            color=color,
            linewidth=0.6,
            alpha=0.55,
            zorder=2,
        )
    return float(mean[seen].min()), float(mean.max())


def draw_slopes(panels: Mapping[str, Panel], out: Path) -> list[Path]:
    """``slopes``: every fitted slope over t with its interval, beside −1/2 and −1/4; hollow: of its last four points."""
    from matplotlib.lines import Line2D

    shown = [panel for panel in panels.values() if panel.over == "rounds"]
    if not shown:
        return []
    width = 2.2 * len(shown) + 1.5
    figure = new_figure(width, 5.0, layout=None)
    axis = figure.add_axes((0.8 / width, 0.255, 1.0 - 1.35 / width, 0.645))
    ends = [-0.6, 0.0]
    for place, panel in enumerate(shown):
        count = len(panel.points)
        for order, (name, points) in enumerate(panel.points.items()):
            x = place + 0.8 * (order - (count - 1) / 2) / count
            for fit, shift, face in (
                (panel.slope(name), -0.03, None),
                (late_decay(points, panel.fit_from), 0.03, "white"),
            ):
                if fit.runs > 1:
                    axis.errorbar(
                        x + shift,
                        fit.mean,
                        yerr=fit.high - fit.mean,
                        fmt="o",
                        markersize=4.2,
                        linewidth=1.2,
                        color=STYLES[name]["color"],
                        markerfacecolor=face,
                        zorder=3,
                    )
                    # Wide intervals run out of the figure and leave room for the others.
                    ends += [fit.mean + part * min(fit.high - fit.mean, 1.0) for part in (-1, 1)]
        if place:
            axis.axvline(place - 0.5, color="#cccccc", linewidth=0.7)
    for exponent in (-0.5, -0.25):
        axis.axhline(exponent, color="#666666", linewidth=1.1, linestyle=_GUIDES[exponent], zorder=1)
        axis.text(len(shown) - 0.48, exponent, _SLOPES[exponent], va="center", ha="left", fontsize=9)
    axis.axhline(0.0, color="black", linewidth=0.6)
    axis.set_xlim(-0.5, len(shown) - 0.5)
    axis.set_ylim(min(ends) - 0.1, max(ends) + 0.1)
    axis.set_xticks(range(len(shown)), [panel.words.replace(", ", ",\n") for panel in shown])
    axis.set_ylabel("slope of log regret on log t", fontsize=10)
    axis.tick_params(labelsize=8.5)
    title = "Slopes with their 95% intervals: of the whole fit (filled), of its last four points (hollow)"
    axis.set_title(title, fontsize=11, loc="left")
    frameless(axis)
    names = list(shown[0].points)
    handles = [Line2D([], [], color=STYLES[name]["color"], marker="o", markersize=4.2) for name in names]
    figure.legend(handles, [LABELS[name] for name in names], loc="lower center", ncols=5, frameon=False, fontsize=9.5)
    return save_figure(figure, out, "slopes")


def _folded(words: str) -> str:
    """A title in two lines."""
    return ",\n".join(words.split(", ", 1))
