"""Effect sizes against definitions, slow twins and their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from queuewise.runs.effects import UNDEFINED, Effect, better, hedges, ratio, standardised
from queuewise.runs.statistics import Moments
from tests.naive import statistics as twin

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("degrees", [2, 5, 29, 4000])
def test_hedges_factor(degrees: int) -> None:
    expected = special.poch((degrees - 1) / 2, 0.5) / math.sqrt(degrees / 2)
    assert hedges(degrees) == pytest.approx(expected, rel=1e-10)
    assert hedges(degrees) == pytest.approx(1 - 3 / (4 * degrees - 1), rel=0.02)  # Hedges' approximation


def test_hedges_factor_takes_the_bias_away() -> None:
    rows = RNG.normal(0.7, 1.0, (20_000, 6))
    d = rows.mean(axis=1) / rows.std(axis=1, ddof=1) * hedges(5)
    assert d.mean() == pytest.approx(0.7, abs=4.5 * d.std() / math.sqrt(20_000))


@pytest.mark.parametrize(("mean", "n"), [(0.0, 5), (0.4, 12), (-3.0, 30), (8.0, 100), (-25.0, 6)])
def test_standardised_is_the_noncentral_t(mean: float, n: int) -> None:
    values = RNG.normal(mean, 1.0, n)
    found = standardised(Moments.of(values), 0.9)
    d = values.mean() / values.std(ddof=1)
    assert found.value == pytest.approx(d * hedges(n - 1))
    t = d * math.sqrt(n)
    # The twin looks from the positive side too, where SciPy's distribution function is exact.
    ends = sorted(
        math.copysign(1, t) * twin.noncentrality(abs(t), n - 1, share) / math.sqrt(n) for share in (0.05, 0.95)
    )
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-6, abs=1e-7)
    turned = standardised(Moments.of(-values), 0.9)
    assert (turned.value, turned.low, turned.high) == pytest.approx((-found.value, -found.high, -found.low))


@pytest.mark.parametrize(("d", "n"), [(20.0, 2), (3.0, 3), (140.0, 3), (150.0, 20), (1e4, 20), (1e3, 5000), (-1e9, 5)])
def test_standardised_far_out(d: float, n: int) -> None:
    """Where SciPy's distribution function gives up, and where the normal part no longer matters."""
    found = standardised(Moments(n, np.array(d), np.array(n - 1.0)), 0.9)
    low, high = sorted((abs(found.low), abs(found.high)))
    root = math.sqrt(n)
    assert twin.below(abs(d) * root, n - 1, low * root) == pytest.approx(0.95, abs=1e-4)
    assert twin.below(abs(d) * root, n - 1, high * root) == pytest.approx(0.05, abs=1e-4)


def test_standardised_covers() -> None:
    trials, delta = 250, 0.8
    hits = 0
    for _ in range(trials):
        found = standardised(Moments.of(RNG.normal(delta, 1.0, 10)), 0.9)
        hits += found.low <= delta <= found.high
    assert abs(hits / trials - 0.9) < 4.5 * math.sqrt(0.09 / trials)


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0, 2.0], [0.1, 0.1, 0.1], [0.0, 0.0]])
def test_standardised_needs_spread(values: list[float]) -> None:
    found = standardised(Moments.of(np.array(values)))
    assert not found.defined and str(found) == "undefined"


def test_better_counts_runs_with_wilsons_interval() -> None:
    first, second = np.arange(20.0), np.arange(20.0) + np.where(np.arange(20) < 13, 1.0, -1.0)
    found = better(first, second)
    expected = stats.binomtest(13, 20).proportion_ci(0.95, method="wilson")
    assert found.value == 13 / 20
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert better(second, first).low == pytest.approx(1 - found.high)


def test_better_with_ties_and_unstable_runs() -> None:
    assert better([1, 2, 3, 4], [1, 2, 4, 3]).value == 0.5
    assert better([1, 1], [1, 1]).value == 0.5
    assert better([1.0, math.nan], [2.0, 1.0]) == better([1.0], [2.0])
    assert better([math.nan], [1.0]) is UNDEFINED
    sure = better(np.zeros(50), np.ones(50))
    assert sure.value == sure.high == 1.0 and 0.9 < sure.low < 1.0


def moments(a: np.ndarray, b: np.ndarray) -> tuple[Moments, Moments, Moments]:
    return Moments.of(a), Moments.of(b), Moments.of(a - b)


def test_ratio_is_fiellers() -> None:
    common = RNG.gamma(4.0, size=25)
    a, b = 2.0 * common + RNG.normal(0, 0.5, 25), common + RNG.normal(0, 0.5, 25) + 1.0
    found = ratio(*moments(a, b), 0.9)
    assert found.value == pytest.approx(a.mean() / b.mean())
    grid = np.linspace(found.low - 1, found.high + 1, 200_001)
    kept = twin.ratios_that_fit(a, b, 0.9, grid[::50])
    assert (kept[0], kept[-1]) == pytest.approx((found.low, found.high), abs=2 * 50 * (grid[1] - grid[0]))


def test_ratio_is_undefined_where_the_denominator_may_be_0() -> None:
    a, b = RNG.normal(5.0, 1.0, 20), RNG.normal(0.0, 1.0, 20)
    assert ratio(*moments(a, b - b.mean() + 0.01)) is UNDEFINED
    assert ratio(*moments(a[:1], b[:1])) is UNDEFINED
    turned = ratio(*moments(b - b.mean() + 0.01, a))
    assert turned.defined and turned.low < 0 < turned.high
    negative = ratio(*moments(a, -a))  # negative means have a ratio too
    assert (negative.value, negative.low, negative.high) == pytest.approx((-1, -1, -1))


def test_ratio_covers() -> None:
    hits, trials = 0, 2000
    for _ in range(trials):
        common = RNG.normal(size=8)
        found = ratio(*moments(3.0 + common + RNG.normal(size=8), 6.0 + common + RNG.normal(size=8)), 0.9)
        hits += found.low <= 0.5 <= found.high
    assert abs(hits / trials - 0.9) < 4.5 * math.sqrt(0.09 / trials)


def test_a_policy_beside_itself() -> None:
    a = RNG.gamma(2.0, size=9)
    found = ratio(*moments(a, a))
    assert (found.value, found.low, found.high) == pytest.approx((1, 1, 1))
    assert str(Effect(1.0, 0.5, 1.5)) == "1 [0.5, 1.5]"


@pytest.mark.parametrize("level", [0.0, 1.0, 95, True])
def test_bad_level(level: float) -> None:
    values = Moments.of(RNG.normal(size=5))
    for call in (
        lambda: standardised(values, level),
        lambda: better([1.0], [2.0], level),
        lambda: ratio(values, values, values, level),
    ):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
            call()
