"""What the reproductions' figures share, whatever the model: colours, axes, and curves with their bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...runs.plot import COLOURS, frameless
from ...runs.statistics import Moments

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = COLOURS


def bare(axes: Axes) -> None:
    """Light grid, no frame above and to the right."""
    axes.grid(color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)
    frameless(axes)


def jobs_axis(axes: Axes, linear_up_to: float, ticks: Sequence[float]) -> None:
    """Vertical axis of queue lengths that differ by factors: linear near 0, logarithmic above, with plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_yscale("symlog", linthresh=linear_up_to, linscale=1.0)
    axes.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def draw_curve(axes: Axes, places: Any, values: NDArray[np.float64], label: str, **look: Any) -> None:
    """The mean over runs (float64[run, place]) with its 95% interval."""
    moments = Moments.of(values)
    style = {"linewidth": 1.7, **look}
    axes.plot(places, moments.mean, label=label, **style)
    if moments.count > 1:
        low, high = moments.interval(0.95)
        axes.fill_between(places, np.maximum(low, 0.0), high, color=style["color"], alpha=0.16, linewidth=0)
