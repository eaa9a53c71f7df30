"""Curves of dispatching results. Plotting never simulates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..runs.plot import crowded, frameless, label_of, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Result


def regrets(
    result: Result, policies: Sequence[str] | None = None, *, level: float = 0.95, title: str | None = None
) -> Figure:
    """Mean regret of several policies over arrivals, each with the interval of its mean.

    policies : names; None for all. Raises ValueError for an unknown one.
    """
    figure = new_figure(8.0, 5.0)
    axes = figure.add_subplot()
    draw_regrets(axes, result, policies, level=level)
    runs = f"{result.runs} run{'s' * (result.runs != 1)}"
    axes.set_title(title or f"{runs}, {100 * level:g} % intervals of the mean", fontsize=10, loc="left")
    axes.legend(frameon=False, **crowded(len(result.policies if policies is None else policies)))
    return figure


def draw_regrets(
    axes: Axes, result: Result, policies: Sequence[str] | None = None, *, level: float = 0.95, linear: bool = False
) -> None:
    """The same in one panel of a figure of one's own. linear : plain axes instead of logarithmic ones."""
    places = {name: position for position, name in enumerate(result.policies)}
    for name in result.policies if policies is None else policies:
        curve = result.regret(name, level)
        look = style(places.get(name, len(places)))
        axes.plot(curve.arrivals, curve.mean, label=label_of(result.label(name), name), linewidth=1.6, **look)
        if result.runs > 1:
            axes.fill_between(curve.arrivals, curve.low, curve.high, color=look["color"], alpha=0.15, linewidth=0)
    if not linear:
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("arrivals")
    axes.set_ylabel("regret (decisions against SED)")
    frameless(axes)
