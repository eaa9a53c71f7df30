"""The estimate against the slow twin, its certificate, and the design over many updates."""

import mpmath
import numpy as np
import pytest

from queuewise import _compile
from queuewise.scheduling import logistic
from tests.naive import logistic as naive

learn, move = _compile.jit(logistic.learn), _compile.jit(logistic.move_design)


def _follow(phi, outcomes, settings):
    estimate = logistic.start(settings, phi.shape[1], len(phi) + 1)
    for features, outcome in zip(phi, outcomes, strict=True):
        move(estimate, features, 1.0)
        learn(settings, estimate, features, bool(outcome))
        yield estimate


def _cases():
    rng = np.random.default_rng(0)
    ordinary = rng.normal(size=(60, 5))
    yield "ordinary", ordinary, rng.random(60) < 0.5, 10.0, 1.0
    yield "boundary of the ball", 3 * ordinary, 3 * ordinary[:, 0] > 0, 0.8, 1.0
    yield "separable", ordinary, ordinary[:, 0] > 0, 50.0, 1e-2
    yield "all success", ordinary, np.ones(60, dtype=bool), 5.0, 1.0
    yield "all failure", ordinary, np.zeros(60, dtype=bool), 5.0, 1.0
    yield "duplicates", np.repeat(ordinary[:6], 10, axis=0), rng.random(60) < 0.3, 3.0, 1.0
    yield "one dimension", rng.normal(size=(60, 1)), rng.random(60) < 0.5, 2.0, 1.0
    yield "huge logits", 60 * ordinary, rng.random(60) < 0.5, 10.0, 1.0
    yield "dear Hessian", rng.normal(size=(60, 15)), rng.random(60) < 0.5, 2.0, 1.0


@pytest.mark.parametrize(("phi", "outcomes", "bound", "ridge"), [c[1:] for c in _cases()], ids=[c[0] for c in _cases()])
def test_estimate_is_the_constrained_minimiser_after_every_outcome(phi, outcomes, bound, ridge) -> None:
    settings = logistic.Settings(ridge, bound, 1.0, 1e-8)
    for n, estimate in enumerate(_follow(phi, outcomes, settings), start=1):
        assert estimate.certificate[0] <= 1e-8
        if n in (1, 2, 7, 23, len(phi)):
            exact = naive.fit(phi[:n], outcomes[:n].astype(float), ridge, bound)
            assert np.linalg.norm(estimate.theta - exact) <= estimate.certificate[0] + 1e-9
            assert np.linalg.norm(estimate.theta) <= bound * (1 + 1e-12)


def test_long_history_keeps_its_certificate() -> None:
    rng = np.random.default_rng(1)
    phi = rng.normal(size=(3000, 5))
    outcomes = rng.random(3000) < 1 / (1 + np.exp(-phi @ np.array([1.0, -1.0, 0.5, 0.0, 2.0])))
    settings = logistic.Settings(1.0, 10.0, 1.0, 1e-8)
    for estimate in _follow(phi, outcomes, settings):
        assert estimate.certificate[0] <= 1e-8
    assert naive.certificate(estimate.theta, phi, outcomes.astype(float), 1.0, 10.0) <= 1.1e-8


def test_the_order_of_outcomes_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    phi, outcomes = rng.normal(size=(80, 4)), rng.random(80) < 0.4
    settings, order = logistic.Settings(1.0, 1.0, 1.0, 1e-8), rng.permutation(80)
    *_, one = _follow(phi, outcomes, settings)
    *_, other = _follow(phi[order], outcomes[order], settings)
    assert np.linalg.norm(one.theta - other.theta) <= 2e-8


def test_the_inverse_stays_accurate_over_a_hundred_thousand_moves() -> None:
    rng = np.random.default_rng(3)
    settings = logistic.Settings(1.0, 10.0, 5.0, 1e-8)
    estimate = logistic.start(settings, 5, 1)
    phi = 5 * rng.normal(size=(100_000, 5)) / np.sqrt(5)
    for i, features in enumerate(phi):
        move(estimate, features, 1.0)
        if i % 10 == 9:
            move(estimate, features, -1.0)  # an attempt that expired
    kept = phi[np.arange(len(phi)) % 10 != 9]
    fresh = 5.0 * np.eye(5) + kept.T @ kept
    assert np.abs(estimate.design - fresh).max() <= 1e-9 * np.abs(fresh).max()
    assert np.abs(estimate.inverse @ fresh - np.eye(5)).max() <= 1e-9


def test_exponential_and_logistic_are_accurate_to_a_few_ulp() -> None:
    compiled = _compile.jit(logistic.logistic)
    points = np.concatenate([np.linspace(-690, 690, 2001), np.linspace(-1, 1, 201)])
    for z in points:
        with mpmath.workdps(40):
            exact = 1 / (1 + mpmath.exp(-mpmath.mpf(float(z))))
            assert abs(compiled(float(z)) / exact - 1) <= 4 * 2.3e-16
        assert logistic.logistic(float(z)) == pytest.approx(compiled(float(z)), rel=1e-15)
