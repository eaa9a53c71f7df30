"""Intervals against SciPy, running moments against whole arrays, the moving average against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from queuewise.runs.statistics import (
    Difference,
    Moments,
    difference,
    interval,
    moving_average,
    simultaneous,
    simultaneous_level,
)

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("count", [2, 3, 30, 1000])
def test_interval_is_student_t(level: float, count: int) -> None:
    values = RNG.gamma(0.3, size=count) - 4.0
    found = interval(values, level)
    low, high = stats.t.interval(level, count - 1, loc=values.mean(), scale=stats.sem(values))
    assert found.mean == pytest.approx(values.mean(), rel=1e-14)
    assert found.sd == pytest.approx(values.std(ddof=1), rel=1e-13)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)
    assert found.half_width == pytest.approx((high - low) / 2, rel=1e-12)
    assert found.runs == count


def test_one_value_says_nothing_about_the_spread() -> None:
    found = interval([3.0])
    assert (found.mean, found.low, found.high, found.runs) == (3.0, -math.inf, math.inf, 1)
    assert math.isnan(found.sd)


def test_interval_covers_at_its_level() -> None:
    hits = sum(e.low <= 1.0 <= e.high for e in (interval(row, 0.9) for row in RNG.normal(1.0, 2.0, (4000, 5))))
    assert abs(hits / 4000 - 0.9) < 4.5 * math.sqrt(0.9 * 0.1 / 4000)


def test_difference_is_paired() -> None:
    common = RNG.normal(0, 100.0, 40)
    a, b = common + RNG.normal(1.0, 0.1, 40), common
    found = difference(a, b, ("a", "b"))
    assert found[:5] == interval(a - b)
    assert (found.first, found.second, found.smaller) == ("a", "b", "b")
    assert difference(b, a, ("b", "a")).smaller == "b"
    undecided = Difference(0.1, -1.0, 1.2, 1.0, 9, "a", "b")
    assert undecided.smaller is None
    assert "undecided" in str(undecided)
    assert str(found).endswith("40 runs (the second is smaller)")
    with pytest.raises(ValueError, match="equally many runs of both, not 40 and 39"):
        difference(a, b[1:], ("a", "b"))


def test_simultaneous_intervals_are_bonferroni() -> None:
    assert simultaneous_level(0.95, 5) == pytest.approx(0.99)
    assert simultaneous_level(0.95, 1) == simultaneous_level(0.95, 0) == pytest.approx(0.95)
    samples = RNG.normal(size=(4, 12))
    assert simultaneous(samples, 0.9) == [interval(sample, simultaneous_level(0.9, 4)) for sample in samples]


def test_moments_in_steps_are_those_of_the_whole() -> None:
    values = RNG.integers(0, 200, (500, 7)) + 1e6  # an offset that a naive sum of squares would trip over
    whole = Moments.of(values)
    one_by_one = Moments.none(7)
    for value in values:
        one_by_one = one_by_one.add(value)
    merged = Moments.none(7)
    for part in np.array_split(values, [1, 1, 60, 300]):
        merged = merged.merge(Moments.of(part))
    for found in (one_by_one, merged):
        assert found.count == 500
        np.testing.assert_allclose(found.mean, values.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.squares, whole.squares, rtol=1e-11)
    np.testing.assert_allclose(whole.sd, values.std(axis=0, ddof=1), rtol=1e-12)


def test_curve_is_an_interval_per_round() -> None:
    values = RNG.integers(0, 9, (20, 6))
    curve = Moments.of(values).curve(0.9)
    assert curve.rounds.tolist() == [1, 2, 3, 4, 5, 6]
    for column in range(6):
        expected = interval(values[:, column], 0.9)
        found = (curve.mean[column], curve.low[column], curve.high[column], curve.sd[column])
        assert found == pytest.approx(expected[:4], rel=1e-12)
    low, high = curve.band()
    np.testing.assert_allclose(high - low, 4 * curve.sd)
    np.testing.assert_allclose(curve.smooth(3).mean, moving_average(curve.mean, 3))


@pytest.mark.parametrize("window", [1, 2, 3, 25, 1000])
def test_moving_average(window: int) -> None:
    values = RNG.normal(size=40)
    half = window // 2
    expected = []
    for i in range(40):
        reach = min(half, i, 39 - i)
        expected.append(values[i - reach : i + reach + 1].mean())
    np.testing.assert_allclose(moving_average(values, window), expected, rtol=1e-11, atol=1e-13)


def test_moving_average_leaves_a_line_alone_and_infinity_too() -> None:
    line = np.arange(50.0)
    np.testing.assert_allclose(moving_average(line, 9), line, atol=1e-12)
    assert np.isinf(moving_average(np.full(5, np.inf), 3)).all()


@pytest.mark.parametrize("level", [0, 1, 95, -0.1, math.nan, True, "high"])
def test_bad_level(level: object) -> None:
    with pytest.raises(ValueError, match=r"level must lie strictly between 0 and 1"):
        interval([1.0, 2.0], level)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]]])
def test_bad_values(values: object) -> None:
    with pytest.raises(ValueError, match="values must be a non-empty list"):
        interval(values)


@pytest.mark.parametrize("window", [0, -3, 2.5, True])
def test_bad_window(window: object) -> None:
    with pytest.raises(ValueError, match="window must be a whole number of rounds of at least 1"):
        moving_average(np.zeros(3), window)  # type: ignore[arg-type]
