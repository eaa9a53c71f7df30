"""Radii against the papers' formulas, and widths that follow the design without being computed afresh."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from queuewise import _compile
from queuewise.scheduling import confidence, engine, logistic, table_law
from queuewise.scheduling.confidence import CQB_ETA_2, FIXED, WISE, Radius
from queuewise.scheduling.policies import make
from queuewise.scheduling.policies.acqb import draw
from queuewise.scheduling.policy import Shape, Waiting
from tests.naive import confidence as naive

ROUNDS = [0, 1, 2, 3, 10, 100, 2_000, 100_000, 10**8]


@pytest.mark.parametrize("t", ROUNDS)
@pytest.mark.parametrize(("dimension", "bound"), [(1, 0.5), (5, 1.0), (10, 4.0)])
def test_radii_are_those_of_the_papers(t, dimension, bound) -> None:
    kappa = naive.kappa(bound)
    for scale in (1.0, 0.1):
        wise = Radius(WISE, scale, kappa, bound, dimension, 1.0, math.nan)
        expected = scale * naive.wise_radius(t, dimension, kappa, bound)
        assert confidence.radius_at(wise, t) == pytest.approx(expected, rel=1e-14)
        for ridge, delta in ((1.0, 1e-3), (0.2, 1.0)):
            cqb = Radius(CQB_ETA_2, scale, kappa, bound, dimension, ridge, delta)
            expected = scale * naive.cqb_eta_2_radius(t, dimension, kappa, bound, ridge, delta)
            assert confidence.radius_at(cqb, t) == pytest.approx(expected, rel=1e-14)
    assert confidence.radius_at(Radius(FIXED, 100.0, kappa, bound, dimension, 1.0, 0.5), t) == 100.0


def test_radii_grow_and_are_the_same_compiled() -> None:
    compiled = _compile.jit(confidence.radius_at)
    for formula in (WISE, CQB_ETA_2):
        radius = Radius(formula, 1.0, 5.1, 1.0, 4, 1.0, 0.01)
        values = [compiled(radius, t) for t in ROUNDS]
        assert all(a < b for a, b in itertools.pairwise(values))
        assert values == pytest.approx([confidence.radius_at(radius, t) for t in ROUNDS], rel=1e-15)


def test_a_radius_of_a_huge_curvature_is_finite_and_right() -> None:
    """κ is about 5e21 on the law of WISE's Figure 1, and t/(dκ) far below the rounding of 1 + t/(dκ)."""
    kappa = naive.kappa(10.0, 5.0)
    value = confidence.radius_at(Radius(WISE, 1.0, kappa, 10.0, 5, 1.0, math.nan), 2000)
    with mpmath.workdps(50):
        inside = 5 * mpmath.log(1 + mpmath.mpf(2000) / (5 * kappa)) + 4 * mpmath.log(2001)
        exact = mpmath.mpf(kappa) / 2 * mpmath.sqrt(inside) + mpmath.sqrt(kappa) * 10
    assert value == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize(("dimension", "servers"), [(1, 1), (1, 4), (3, 1), (5, 10), (15, 2)])
def test_norms_and_scores_are_the_plain_products(dimension, servers) -> None:
    rng = np.random.default_rng(dimension * servers)
    features, vector = rng.normal(size=(dimension, servers)), rng.normal(size=dimension)
    root = rng.normal(size=(dimension, dimension))
    inverse = np.linalg.inv(root @ root.T + np.eye(dimension))
    for wrap in (lambda f: f, _compile.jit):
        out = np.full(servers, np.nan)
        wrap(confidence.squared_norms)(inverse, features, out)
        np.testing.assert_allclose(out, np.einsum("ik,ij,jk->k", features, inverse, features), rtol=1e-12)
        wrap(confidence.scores)(vector, features, 1, out)
        np.testing.assert_allclose(out, features.T @ vector, rtol=1e-12, atol=1e-14)


def test_optimism_is_the_index_of_the_paper() -> None:
    rng = np.random.default_rng(1)
    theta, features, squares = 3 * rng.normal(size=4), rng.normal(size=(4, 6)), rng.random(6)
    out, index = np.empty(6), _compile.jit(confidence.optimism)
    index(theta, 1.7, squares, features, 1, out)
    expected = 1 / (1 + np.exp(-features.T @ theta)) + 1.7 * np.sqrt(squares)
    np.testing.assert_allclose(out, expected, rtol=1e-14)
    squares[2] = -1e-18  # rounding may leave a width of nothing just below zero
    index(theta, 1.7, squares, features, 1, out)
    assert out[2] == pytest.approx(1 / (1 + np.exp(-features[:, 2] @ theta)), rel=1e-14)


@pytest.mark.parametrize("moves", [700, 2_500])
def test_widths_follow_the_design_over_many_moves(moves) -> None:
    """Jobs come and go, some look at every round, some rarely: each width is that of a fresh product."""
    rng = np.random.default_rng(moves)
    d, servers, slots = 4, 3, 5
    estimate = logistic.start(logistic.Settings(1.0, 3.0, 0.5, 1e-8), d, 1)
    move, follow = _compile.jit(logistic.move_design), _compile.jit(confidence.follow_design)
    features = np.ascontiguousarray(2 * rng.normal(size=(slots, d, servers)))
    squares, met = np.full((slots, servers), np.nan), np.full(slots, -1, dtype=np.int64)
    flying: list[np.ndarray] = []
    worst = 0.0
    for step in range(moves):
        if flying and rng.random() < 0.3:  # an attempt expired
            move(estimate, flying.pop(int(rng.integers(len(flying)))), -1.0)
        else:
            flying.append(2 * rng.normal(size=d))
            move(estimate, flying[-1], 1.0)
        if rng.random() < 0.02:  # the slot of a job that left is taken by a newcomer
            slot = int(rng.integers(slots))
            features[slot] = rng.normal(size=(d, servers))
            met[slot] = -1
        for slot in range(slots):
            if slot == 0 or rng.random() < 1 / (1 + slot):  # slot 0 looks at every round, slot 4 rarely
                follow(estimate, met, squares, features, np.array([slot]), 1)
                follow(estimate, met, squares, features, np.array([slot]), 1)  # looking twice changes nothing
                fresh = np.einsum("ik,ij,jk->k", features[slot], np.linalg.inv(estimate.design), features[slot])
                worst = max(worst, float(np.abs(squares[slot] / fresh - 1).max()))
                assert met[slot] == step + 1
    assert worst <= 1e-9


def test_a_newcomer_before_the_first_move_has_its_own_width() -> None:
    estimate = logistic.start(logistic.Settings(1.0, 3.0, 2.0, 1e-8), 2, 1)
    squares, met = np.full((1, 1), np.nan), np.array([-1])
    confidence.follow_design(estimate, met, squares, np.array([[[3.0], [4.0]]]), np.zeros(1, dtype=np.int64), 1)
    assert squares[0, 0] == pytest.approx(12.5)
    assert met[0] == 0


@pytest.mark.parametrize("t", [2, 10, 400])
def test_the_index_of_round_t_has_the_radius_of_round_t_minus_1(t: int) -> None:
    """CQB-η-2 (1). A sure pair and an unsure one are so placed that β_{t−1} prefers the first and β_t the second."""
    features = np.ascontiguousarray(np.array([[[2.0, 0.0], [0.0, 1.0]]]))  # φ of server 0 and of server 1, one job
    shape = Shape(2, 2, 1000, 0.5, 5.0, 2.0, 4.0, np.nan, np.nan, 0.1, 0.1)
    policy = make("cqb_opt", radius="wise", initial_design=1.0)
    params, state, stream = engine.prepare(policy, shape)
    state = policy.grow_state(state, 4)
    state.estimate.theta[:] = [1.0, 0.0]
    for _ in range(3):
        logistic.move_design(state.estimate, features[0, :, 0].copy(), 1.0)
    widths = np.sqrt(np.einsum("ik,ij,jk->k", features[0], state.estimate.inverse, features[0]))
    turning = (1 / (1 + np.exp(-2.0)) - 0.5) / (widths[1] - widths[0])
    now, then = (confidence.radius_at(params.radius, i) for i in (t - 1, t))
    params = params._replace(radius=params.radius._replace(scale=turning / ((now + then) / 2)))
    columns = policy.new_columns(1, 2)
    policy.admit(params, state, columns, None, 0)
    for current, expected in ((t, 0), (t + 1, 1)):
        waiting = Waiting(current, 1, np.arange(1), -1, np.ones(2, np.bool_), features, np.full((1, 2), np.nan))
        assert policy.decide(params, state, columns, waiting, stream)[1] == expected


def test_wise_logs_the_radius_of_the_round_just_played() -> None:
    """Algorithm 1, line 19: I_t has β_t; an epoch begins with I_{τ−1} and β_{τ−1}."""
    rounds = 200
    features = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.8], [0.8, -0.6]]])
    system = table_law(features, theta=[1.0, 0.5], arrival_rate=0.5, parameter_bound=2.0, feature_bound=1.0)
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, 1, 0)
    played = engine.play(make("wise", radius="wise"), shape, draws, seed=1, trace=True)
    log, shift = played.state.log, float(played.state.shift[0])
    last = int(np.flatnonzero(played.record.job >= 0)[-1]) + 1  # the last round with a decision
    _, tau = naive.epoch(last, shift)
    served = [t for t in range(tau, last + 1) if played.record.job[t - 1] >= 0]
    expected = [naive.wise_radius(t, 2, naive.kappa(2.0), 2.0) for t in [tau - 1, *served]]
    entries = int(log.counts[1])
    assert log.formed[:entries].all()
    np.testing.assert_allclose(log.radius[:entries], expected, rtol=1e-13)


def test_acqb_samples_with_the_radius_of_the_round_before() -> None:
    features = np.ascontiguousarray(np.random.default_rng(0).normal(size=(1, 2, 2)))
    shape = Shape(2, 2, 1000, 0.5, 5.0, 2.0, 4.0, np.nan, np.nan, 0.1, 0.1)
    policy = make("acqb", radius="wise", initial_design=1.0)
    params, state, stream = engine.prepare(policy, shape)
    waiting = Waiting(7, 1, np.arange(1), -1, np.ones(2, np.bool_), features, np.full((1, 2), np.nan))
    expected = np.zeros_like(state.draws)
    with np.errstate(over="ignore"):
        draw(state.estimate, confidence.radius_at(params.radius, 6), expected, stream.copy())
        policy.decide(params, state, policy.new_columns(1, 2), waiting, stream)
    np.testing.assert_array_equal(state.draws, expected)
