"""What the figures of diagnostics show: every run, every interval, and which differences are decided."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from queuewise.runs.convergence import Convergence, convergence
from queuewise.runs.diagnostics import draw_comparisons, draw_distribution, draw_half_widths, draw_means
from queuewise.runs.plot import style
from queuewise.runs.simultaneous import Comparison
from queuewise.runs.statistics import Difference

RNG = np.random.default_rng(23)


def axes() -> Axes:
    return Figure().add_subplot()


def two() -> list[Convergence]:
    return [convergence("a $x$", RNG.normal(5, 1, 100)), convergence("b", RNG.normal(9, 3, 100))]


def test_means_are_drawn_with_their_intervals() -> None:
    found, panel = two(), axes()
    draw_means(panel, found, [3, 0], "regret")
    assert [line.get_label() for line in panel.lines] == ["a $x$", "b"]
    for line, one, place in zip(panel.lines, found, [3, 0], strict=True):
        np.testing.assert_array_equal(line.get_ydata(), one.mean)
        assert line.get_color() == style(place)["color"]
    assert len(panel.collections) == 2
    # The view is that of the intervals from 5 runs on: the first two or three would flatten the rest.
    low, high = panel.get_ylim()
    assert low < found[0].mean[-1] < found[1].mean[-1] < high
    assert high < max(one.high.max() for one in found)
    assert panel.get_xlim()[0] == 2


def test_half_widths_fall_beside_the_guide() -> None:
    found, panel = two(), axes()
    draw_half_widths(panel, found, [0, 1], "half width")
    *lines, guide = panel.lines
    for line, one in zip(lines, found, strict=True):
        np.testing.assert_allclose(line.get_ydata(), one.half_width)
    assert guide.get_label() == "1/√n"
    runs, width = np.asarray(guide.get_xdata()), np.asarray(guide.get_ydata())
    np.testing.assert_allclose(width * np.sqrt(runs), width[0] * np.sqrt(runs[0]))
    assert width[-1] == max(one.half_width[-1] for one in found)
    assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")


def test_no_width_at_all_is_drawn_too() -> None:
    panel = axes()
    draw_half_widths(panel, [convergence("a", np.ones(20))], [0], "half width")
    panel.figure.draw_without_rendering()  # type: ignore[union-attr]


def test_distribution_shows_every_run_and_the_mean() -> None:
    values = {"a": RNG.normal(5, 1, 40), "b": np.where(np.arange(40) < 3, np.nan, RNG.normal(6, 1, 40))}
    panel = axes()
    draw_distribution(panel, values, [0, 1], "regret")
    points = [np.asarray(part.get_offsets()) for part in panel.collections]
    assert [len(part) for part in points] == [40, 37]
    np.testing.assert_array_equal(points[0][:, 0], values["a"])
    assert (np.abs(points[1][:, 1] - 1) < 0.3).all()
    diamonds = [line for line in panel.lines if line.get_marker() == "D"]
    assert [float(np.asarray(d.get_xdata())[0]) for d in diamonds] == pytest.approx(
        [values["a"].mean(), np.nanmean(values["b"])]
    )
    assert [label.get_text() for label in panel.get_yticklabels()] == ["a", "b"]
    assert panel.get_xscale() == "linear"
    top, bottom = panel.get_ylim()[1], panel.get_ylim()[0]
    assert top < 0 < 1 < bottom  # the first policy on top


def test_distribution_over_orders_of_magnitude_is_logarithmic() -> None:
    for low, scale in ((1.0, "log"), (0.0, "symlog")):
        panel = axes()
        draw_distribution(panel, {"a": np.full(9, low), "b": RNG.uniform(900, 1000, 9)}, [0, 1], "regret")
        assert panel.get_xscale() == scale and "logarithmic" in panel.get_xlabel()
        assert panel.get_xlim()[0] <= low
        panel.figure.draw_without_rendering()  # type: ignore[union-attr]


def test_undecided_differences_are_hollow() -> None:
    found = [
        Comparison(Difference(1.0, 0.5, 1.5, 1.0, 20, "$a$", "best"), 0.001),
        Comparison(Difference(1.0, -0.5, 2.5, 3.0, 20, "b", "best"), 0.4),
    ]
    panel = axes()
    draw_comparisons(panel, found, [0, 1], "above best")
    points = [line for line in panel.lines if line.get_marker() == "o"]
    assert [point.get_markerfacecolor() for point in points] == [style(0)["color"], "white"]
    bars = [np.asarray(line.get_xdata()).tolist() for line in panel.lines if line.get_linewidth() == 2.4]
    assert bars == [[0.5, 1.5], [-0.5, 2.5]]
    assert not any(label.get_parse_math() for label in panel.get_yticklabels())
