"""WISE's intervals: widths without cancellation, midpoints in probability, epochs, and newcomers."""

import mpmath
import numpy as np
import pytest

from queuewise.scheduling import intervals, logistic
from tests.naive import confidence as naive


def _width(low: float, high: float) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-mpmath.mpf(high))) - 1 / (1 + mpmath.exp(-mpmath.mpf(low)))


def test_width_keys_order_intervals_as_exact_widths_do() -> None:
    rng = np.random.default_rng(0)
    with mpmath.workdps(60):
        for _ in range(3000):
            kind = rng.integers(4)
            if kind == 0:  # nearly the whole line
                first, second = ((-50 + 3 * rng.random(), 50 - 3 * rng.random()) for _ in range(2))
            elif kind == 1:  # tiny, far out
                a, b = 40 * rng.normal(size=2)
                first, second = (a, a + 1e-9 * rng.random()), (b, b + 1e-9 * rng.random())
            elif kind == 2:  # near one half
                c = 1e-9 * rng.normal(size=2)
                first, second = (
                    (-1.0986122886681098 + c[0], 1.0986122886681098),
                    (-1.0986122886681098 + c[1], 1.0986122886681098),
                )
            else:
                first, second = (tuple(np.sort(10 * rng.normal(size=2))) for _ in range(2))
            exact = [_width(*map(float, pair)) for pair in (first, second)]
            scale = min(max(exact), 1 - min(exact))
            if abs(exact[0] - exact[1]) > 1e-14 * scale:
                keys = [intervals.width_key(*map(float, pair)) for pair in (first, second)]
                assert (keys[0] > keys[1]) == (exact[0] > exact[1]), (first, second)


def test_the_midpoint_is_one_of_probabilities() -> None:
    assert intervals.midpoint(-5.0, 1.0) == pytest.approx(-0.54, abs=5e-3)
    with mpmath.workdps(60):
        for low, high in [(-5.0, 1.0), (-50.0, 50.0), (40.0, 50.0), (-50.0, -40.0), (0.3, 0.3)]:
            p = (1 / (1 + mpmath.exp(-mpmath.mpf(low))) + 1 / (1 + mpmath.exp(-mpmath.mpf(high)))) / 2
            assert intervals.midpoint(low, high) == pytest.approx(float(mpmath.log(p / (1 - p))), rel=1e-13, abs=1e-15)


def test_epochs_are_those_of_the_paper() -> None:
    for shift in (0.0, 0.2, 0.5, 0.99):
        for t in range(1, 300):
            m, tau = naive.epoch(t, shift)
            assert intervals.epoch_start(intervals.epoch_of(t, shift), shift) == tau
            assert intervals.epoch_of(t, shift) == m


@pytest.mark.parametrize("beta", [0.2, 1.0, 4.0])
def test_a_newcomer_meets_the_epoch_as_if_it_had_been_there(beta: float) -> None:
    rng = np.random.default_rng(1)
    settings = logistic.Settings(1.0, 3.0, 1.0, 1e-8)
    estimate, log = logistic.start(settings, 3, 60), intervals.start(3, 130)
    features = np.ascontiguousarray(rng.normal(size=(3, 4)))
    lines = [np.zeros((4, 4)), np.zeros((4, 4))]
    intervals.begin_epoch(log, estimate, 1, beta)
    met, before = 0, None
    for i in range(60):
        phi = rng.normal(size=3)
        logistic.move_design(estimate, phi, 1.0)
        intervals.log_move(log, estimate)
        logistic.learn(settings, estimate, phi, bool(rng.random() < 0.7))
        intervals.log_outcome(log, estimate, beta)
        low, high, frozen, squares = lines[0]
        intervals.meet(log, 3.0, met, low, high, frozen, squares, features)
        met = log.counts[1]
        assert met == i + 2  # one interval a round, and the epoch's first
        if before is not None:  # nested within the epoch
            assert np.all(low >= before[0] - 1e-15)
            assert np.all(high <= before[1] + 1e-15)
        assert np.all(low <= high)
        before = low.copy(), high.copy()
        direct = np.einsum("ik,ij,jk->k", features, estimate.inverse, features)
        np.testing.assert_allclose(squares, direct, rtol=1e-11)
    low, high, frozen, squares = lines[1]
    intervals.meet(log, 3.0, 0, low, high, frozen, squares, features)
    np.testing.assert_array_equal(lines[0], lines[1])
    if beta == 0.2:
        assert lines[0][2].sum() > 0  # some did freeze
