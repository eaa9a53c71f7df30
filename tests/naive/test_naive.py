"""The twins judge everybody else; here they are judged by closed forms, by other optimisers and by each other."""

from __future__ import annotations

import math
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from . import confidence, logistic, policies, queueing, simulate


class Draw(NamedTuple):
    arrivals: np.ndarray
    contexts: np.ndarray
    features: np.ndarray
    probabilities: np.ndarray
    service: np.ndarray


def small_draw(seed, rounds, d=3, servers=3, rows=12, arrival_rate=0.5, norm=2.0, theta_norm=2.0):
    """A random finite law with logistic truth."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=d)
    theta *= theta_norm / np.linalg.norm(theta)
    features = rng.normal(size=(rows, d, servers))
    features *= norm / np.linalg.norm(features, axis=1, keepdims=True)
    probabilities = expit(np.einsum("rdk,d->rk", features, theta))
    arrivals = rng.random(rounds) < arrival_rate
    contexts = rng.integers(rows, size=int(arrivals.sum()))
    return Draw(arrivals, contexts, features, probabilities, rng.random(rounds))


def figure_draw(seed, rounds, servers=10):
    """WISE's figure law with q = 0 and slack 0.1: every probability within 0.01 of lambda / 0.9."""
    rng = np.random.default_rng(seed)
    d, arrival_rate = 5, 0.6
    u = rng.normal(size=d)
    u /= np.linalg.norm(u)
    directions = rng.normal(size=(64, d))
    directions -= np.outer(directions @ u, u)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    arrivals = rng.random(rounds) < arrival_rate
    jobs = int(arrivals.sum())
    p = 0.657 + 0.02 * (rng.integers(256, size=(jobs, servers)) + 0.5) / 256
    v = directions[rng.integers(64, size=(jobs, servers))]
    z = logit(p)
    phi = (z / 10)[..., None] * u + np.sqrt(25 - z**2 / 100)[..., None] * v
    return Draw(arrivals, np.arange(jobs), np.ascontiguousarray(phi.transpose(0, 2, 1)), p, rng.random(rounds))


# --- logistic --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bound", [0.3, 1.0, 30.0])
def test_fit_agrees_with_a_general_constrained_optimiser(seed, bound):
    rng = np.random.default_rng(seed)
    d, n, ridge = 1 + seed % 3, 4 + 5 * seed, [1.0, 0.2][seed % 2]
    phi, outcomes = rng.normal(size=(n, d)), rng.random(n) < 0.5
    theta = logistic.fit(phi, outcomes, ridge, bound)
    other = minimize(
        lambda x: logistic.objective(x, phi, outcomes, ridge),
        np.zeros(d),
        jac=lambda x: logistic.gradient(x, phi, outcomes, ridge).astype(float),
        constraints={"type": "ineq", "fun": lambda x: bound**2 - x @ x, "jac": lambda x: -2 * x},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    ).x
    assert np.linalg.norm(theta) <= bound * (1 + 1e-15)
    np.testing.assert_allclose(theta, other, atol=1e-5)
    assert logistic.objective(theta, phi, outcomes, ridge) <= logistic.objective(other, phi, outcomes, ridge) + 1e-9
    assert logistic.certificate(theta, phi, outcomes, ridge, bound) <= 1e-10


@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("bound", [0.5, 50.0])
def test_fit_of_one_sided_histories(success, d, bound):
    phi = np.abs(np.random.default_rng(d).normal(size=(40, d)))
    theta = logistic.fit(phi, np.full(40, success), 1e-3, bound)
    assert (theta > 0).all() == success
    assert logistic.certificate(theta, phi, np.full(40, success), 1e-3, bound) <= 1e-10
    assert (np.linalg.norm(theta) == pytest.approx(bound, rel=1e-15)) == (bound == 0.5)


def test_fit_of_separable_duplicate_and_empty_histories():
    phi = np.repeat([[3.0, 1.0], [-1.0, 2.0]], 30, axis=0)
    outcomes = np.repeat([True, False], 30)
    for bound in (0.01, 1.0, 1e3):
        theta = logistic.fit(phi, outcomes, 1.0, bound)
        assert logistic.certificate(theta, phi, outcomes, 1.0, bound) <= 1e-10
    assert not logistic.fit(np.zeros((0, 3)), np.zeros(0), 1.0, 1.0).any()


def test_fit_solves_the_one_dimensional_equation():
    # d = 1, n equal features x, s successes: ridge theta = x (s - n mu(x theta)).
    theta = logistic.fit(np.full((50, 1), 2.0), np.arange(50) < 35, 1.0, 10.0)[0]
    root = mpmath.findroot(lambda y: y - 2 * (35 - 50 / (1 + mpmath.exp(-2 * y))), 0.4)
    assert abs(theta - float(root)) <= 1e-14


def test_certificate_bounds_the_distance():
    rng = np.random.default_rng(3)
    for bound in (0.4, 5.0):
        phi, outcomes = rng.normal(size=(60, 3)) * 2, rng.random(60) < 0.8
        theta = logistic.fit(phi, outcomes, 0.5, bound)
        for scale in (1e-9, 1e-6, 1e-3, 1e-1):
            moved = theta + scale * rng.normal(size=3)
            assert logistic.certificate(moved, phi, outcomes, 0.5, bound) >= np.linalg.norm(moved - theta) - 1e-10
            if np.linalg.norm(moved) > bound:
                moved *= bound / np.linalg.norm(moved)
            assert logistic.certificate(moved, phi, outcomes, 0.5, bound) <= 1e4 * scale


def test_log_loss_at_large_logits():
    phi, outcomes = np.array([[700.0], [700.0], [-700.0]]), np.array([True, False, True])
    assert logistic.log_loss(np.ones(1), phi, outcomes) == pytest.approx(1400.0, rel=1e-15)
    assert float(logistic.gradient(np.ones(1), phi, outcomes, 1.0)[0]) == pytest.approx(1401.0, rel=1e-15)
    assert logistic.certificate(logistic.fit(phi, outcomes, 1.0, 5.0), phi, outcomes, 1.0, 5.0) <= 1e-10


# --- confidence ------------------------------------------------------------------------------------------------------
def test_radii_by_hand():
    assert confidence.wise_radius(0, 5, 4.0, 10.0) == pytest.approx(20.0)  # sqrt(kappa) S, Algorithm 1, line 2
    assert confidence.wise_radius(3, 2, 4.0, 1.0) == pytest.approx(
        2 * math.sqrt(2 * math.log(1.375) + 4 * math.log(4)) + 2
    )
    assert confidence.cqb_eta_2_radius(8, 2, 4.0, 3.0, 1.0, math.exp(-2)) == pytest.approx(
        4 * math.sqrt(math.log(2) + 1) + 6
    )
    assert confidence.kappa(0.0) == 4.0
    assert confidence.kappa(10.0, 5.0) == pytest.approx(math.exp(50))


def test_epochs():
    assert [confidence.epoch_start(m, 0.5) for m in range(6)] == [1, 2, 3, 6, 12, 23]
    assert [confidence.epoch(t, 0.5) for t in (1, 2, 3, 5, 6, 22, 23)] == [
        (0, 1), (1, 2), (2, 3), (2, 3), (3, 6), (4, 12), (5, 23),
    ]  # fmt: skip
    assert [confidence.epoch_start(m, 0.0) for m in range(5)] == [1, 1, 2, 4, 8]
    assert confidence.epoch(1, 0.0) == (1, 1)


# --- WISE ------------------------------------------------------------------------------------------------------------
WISE_CASES = {
    # name: (draw, settings). A small radius makes intervals cross, so that freezes and eliminations happen.
    "figure": (figure_draw(1, 60, servers=4), 100.0, 5.0, 10.0, 5.0),
    "narrow": (small_draw(2, 60, arrival_rate=0.6), 0.6, 2.0, 2.0, 2.0),
    "tiny radius": (small_draw(5, 60, arrival_rate=0.6), 0.05, 1.0, 2.0, 2.0),
    "paper radius": (small_draw(3, 60, theta_norm=1.0, norm=1.0), None, 1.0, 1.0, 1.0),
}


def wise_case(name):
    draw, radius, initial_design, parameter_bound, feature_bound = WISE_CASES[name]
    d = draw.features.shape[1]
    if radius is None:
        curvature = confidence.kappa(parameter_bound, feature_bound)
        initial_design = curvature

        def beta(t):
            return confidence.wise_radius(t, d, curvature, parameter_bound)

    else:

        def beta(t):
            return radius

    settings = policies.Settings(d, beta, 1.0, initial_design, parameter_bound, feature_bound)
    arguments = {
        "radius": beta,
        "initial_design": initial_design,
        "parameter_bound": parameter_bound,
        "feature_bound": feature_bound,
    }
    return draw, settings, arguments


@pytest.mark.parametrize("name", WISE_CASES)
def test_wise_in_floats_obeys_wise_in_high_precision(name):
    draw, settings, arguments = wise_case(name)
    shift = 0.37
    literal = simulate.wise_literal(draw, shift, **arguments)
    history = simulate.history(draw, literal.services)
    history.check()
    estimates = policies.Estimates(history, settings)
    judged = frozen = eliminated = 0
    for t, service in enumerate(literal.services, start=1):
        if service is None:
            continue
        ruling = policies.wise(estimates, t, shift)
        frozen += sum(held.frozen for held in ruling.intervals.values())
        eliminated += len(ruling.intervals) - len(ruling.candidates())
        if ruling.margin() > 1e-9:
            assert ruling.excess(service[:2]) <= 1e-9, t
            judged += 1
    assert judged > 20
    if name in ("narrow", "tiny radius"):
        assert frozen > 5 and eliminated > 5


@pytest.mark.parametrize("name", WISE_CASES)
def test_the_float_versions_of_wise_agree(name):
    draw, _, arguments = wise_case(name)
    literal = simulate.wise_literal(draw, 0.37, **arguments)
    assert simulate.wise_arrays(draw, 0.37, **arguments).services == literal.services
    assert simulate.wise_newton(draw, 0.37, **arguments).services == literal.services
    # L-BFGS stops about 1e-6 from the estimate: the intervals differ in the seventh digit, the queue hardly ever.
    assert len(simulate.wise_lbfgs(draw, 0.37, **arguments).queue_length) == 60


def test_held_intervals_are_nested_within_an_epoch_also_for_a_late_job():
    draw, settings, arguments = wise_case("narrow")
    run = simulate.wise_newton(draw, 0.1, **arguments)
    estimates = policies.Estimates(simulate.history(draw, run.services), settings)
    before, before_start = {}, None
    nested = 0
    for t in range(2, 61):
        start = confidence.epoch(t, 0.1)[1]
        now = policies.wise(estimates, t, 0.1).intervals
        for pair, held in now.items():
            assert estimates.limits()[0] <= held.low <= held.high <= estimates.limits()[1]
            if start == before_start and pair in before:
                assert before[pair].low <= held.low <= held.high <= before[pair].high
                nested += 1
            if not held.frozen:  # a job's past counts from the epoch's start, whenever it arrived
                low = max(estimates.interval(*pair, i)[0] for i in range(start - 1, t))
                assert held.low == low
        before, before_start = now, start
    assert nested > 20


def test_freeze_is_at_the_midpoint_in_probability():
    # For logits [-5, 1] the midpoint of the probabilities has logit -0.54, not -2.
    assert float(simulate._midpoint(np.array(-5.0), np.array(1.0))) == pytest.approx(-0.537, abs=1e-3)
    exact = policies.logit((policies.sigmoid(mpmath.mpf(-5)) + policies.sigmoid(mpmath.mpf(1))) / 2)
    assert float(simulate._midpoint(np.array(-5.0), np.array(1.0))) == pytest.approx(float(exact), rel=1e-13)
    # A hand-made case with one context: theta jumps from far below to far above, the radius is tiny.
    arrivals = [np.array([[1.0]]), np.array([[1.0]])] + [None] * 6
    services = [None, (0, 0, False), (0, 0, False), (0, 0, True)]
    settings = policies.Settings(1, lambda t: 0.01, 1.0, 1.0, 3.0, 1.0)
    estimates = policies.Estimates(policies.History(arrivals, services), settings)
    ruling = policies.wise(estimates, 5, 0.9)  # tau_2 = 4: intersect I_3 and I_4
    held = ruling.intervals[1, 0]
    low, high = estimates.interval(1, 0, 3)
    assert held.frozen and held.low == held.high and low < held.low < high
    assert float(held.low) == pytest.approx(float(low + high) / 2, rel=1e-15)
    assert ruling.best() == (1, 0)


def test_wise_widths_do_not_tie_where_doubles_would():
    # Ends at +-49 and +-50 in logits: both widths round to 1.0.
    with mpmath.workdps(policies.DIGITS):

        def held(z):
            low, high = policies.sigmoid(mpmath.mpf(-z)), policies.sigmoid(mpmath.mpf(z))
            return policies.HeldInterval(low, high, high - low, mpmath.mpf(-z), mpmath.mpf(z), False, mpmath.inf)

        ruling = policies.WiseRuling({(0, 0): held(49), (0, 1): held(50)})
    assert float(ruling.widths()[0, 0]) == float(ruling.widths()[0, 1]) == 1.0
    assert ruling.best() == (0, 1)
    assert ruling.excess((0, 1)) == 0
    assert ruling.excess((0, 0)) == pytest.approx(1 - math.exp(-1), rel=1e-12)
    wideness = simulate._wideness(np.array([-49.0, -50.0, 0.0]), np.array([49.0, 50.0, 1e-12]))
    assert wideness[0] < wideness[1] and wideness[2] == pytest.approx(math.log(0.25e-12), rel=1e-12)


def test_wise_excess_near_the_elimination_threshold():
    with mpmath.workdps(policies.DIGITS):

        def held(a, b):
            low, high = policies.sigmoid(mpmath.mpf(a)), policies.sigmoid(mpmath.mpf(b))
            return policies.HeldInterval(low, high, high - low, mpmath.mpf(a), mpmath.mpf(b), False, mpmath.inf)

        # The widest pair ends a hair below the threshold 1; whoever rounds differently may serve it.
        ruling = policies.WiseRuling({(0, 0): held(-4.0, 1 - 1e-12), (0, 1): held(1.0, 2.0), (1, 0): held(0.5, 2.5)})
        out = policies.WiseRuling({(0, 0): held(-4.0, 1 - 1e-6), (0, 1): held(1.0, 2.0), (1, 0): held(0.5, 2.5)})
    assert ruling.candidates() == [(0, 1), (1, 0)] and ruling.best() == (1, 0)
    assert ruling.excess((0, 0)) == ruling.excess((1, 0)) == 0 < ruling.excess((0, 1))
    assert out.excess((0, 0)) == math.inf and out.excess((1, 0)) == 0


# --- the other rules -------------------------------------------------------------------------------------------------
@pytest.fixture
def example():
    """Job 0 at round 1, job 1 at round 2, job 2 at round 4; job 0 leaves in round 3."""
    rng = np.random.default_rng(0)
    feature = [rng.normal(size=(2, 3)) for _ in range(3)]
    arrivals = [feature[0], feature[1], None, feature[2]]
    services = [None, (0, 1, False), (0, 0, True), (1, 1, False)]
    history = policies.History(arrivals, services)
    history.check()
    return history, policies.Estimates(history, policies.Settings(3, lambda t: 1.0 + t, 1.0, 2.0, 5.0, 3.0))


def test_history(example):
    history, _ = example
    assert [history.waiting(t) for t in range(1, 6)] == [[], [0], [0, 1], [1], [1, 2]]
    assert [history.newcomer(t) for t in range(1, 6)] == [None, 0, 1, None, 2]
    phi, outcomes = history.observations(3)
    np.testing.assert_array_equal(phi, [history.features(0)[1], history.features(0)[0]])
    assert outcomes.tolist() == [False, True]
    with pytest.raises(AssertionError, match="not among"):
        policies.History(history.arrivals, [None, (1, 0, True)]).check()
    with pytest.raises(AssertionError, match="served None"):
        policies.History(history.arrivals, [None, None]).check()


def test_upper_confidence_by_hand(example):
    history, estimates = example
    ruling = policies.cqb_opt(estimates, 5)
    phi, outcomes = history.observations(4)
    matrix = 2 * np.eye(3) + phi.T @ phi
    x = history.features(2)[1]
    theta = logistic.fit(phi, outcomes, 1.0, 5.0)
    expected = expit(x @ theta) + 5.0 * math.sqrt(x @ np.linalg.inv(matrix) @ x)  # beta_4 = 5
    assert ruling.scores[2, 1] == pytest.approx(expected, rel=1e-13)
    assert ruling.excess(ruling.best()) == 0
    assert ruling.excess((0, 0)) == math.inf  # no longer waiting
    worst = min(ruling.scores, key=ruling.scores.get)
    assert ruling.excess(worst) == ruling.scores[ruling.best()] - ruling.scores[worst] > 0


def test_exploration_rules(example):
    history, estimates = example
    # cqb_epsilon: newcomers at rounds 2, 3 and 5; round 5's is the third exploration.
    assert policies.cqb_epsilon(estimates, 2, 9, 0.1).exploration == ((0, 0),)
    assert policies.cqb_epsilon(estimates, 3, 9, 0.1).exploration == ((1, 1),)
    assert policies.cqb_epsilon(estimates, 5, 9, 0.1).exploration == ((2, 0),)
    assert policies.cqb_epsilon(estimates, 4, 9, 0.1).exploration_probability == 0
    assert policies.cqb_epsilon(estimates, 5, 9, 0.1).excess((1, 0)) == math.inf
    later = policies.cqb_epsilon(estimates, 5, 4, 0.1)
    assert later.exploration == ((2, 0), (2, 1)) and later.exploration_probability == 0.1
    assert later.excess((2, 0), explored=True) == later.excess((2, 1), explored=True) == 0
    # cqb_eta_2: t <= tau_1 explores every newcomer, after tau_2 none.
    assert policies.cqb_eta_2(estimates, 5, 5, 7, 0.3).exploration_probability == 1
    assert policies.cqb_eta_2(estimates, 5, 4, 5, 0.3).exploration_probability == 0.3
    assert policies.cqb_eta_2(estimates, 5, 3, 4, 0.3).exploration_probability == 0
    assert policies.cqb_eta_2(estimates, 4, 5, 7, 0.3).scores == policies.cqb_opt(estimates, 4).scores
    # random and fifo_random accept what they should.
    assert len(policies.random(history, 5).exploration) == 4
    assert policies.random(history, 5).excess((2, 1)) == 0
    assert policies.fifo_random(history, 5).exploration == ((1, 0), (1, 1))
    assert policies.fifo_random(history, 5).excess((2, 0)) == math.inf


def test_acqb(example):
    history, estimates = example
    mean, covariance = policies.acqb_law(estimates, 5)
    np.testing.assert_allclose(covariance, 25 * np.linalg.inv(estimates.design(4)), rtol=1e-12)
    np.testing.assert_array_equal(mean, estimates.theta(4))
    samples = np.random.default_rng(1).multivariate_normal(mean, covariance, size=5)
    ruling = policies.acqb(estimates, 5, samples, explorations_before=3)
    assert ruling.scores[1, 0] == pytest.approx((samples @ history.features(1)[0]).max())
    assert ruling.exploration == ((2, 1),) and ruling.exploration_probability == pytest.approx(6**-0.5)
    assert policies.acqb(estimates, 5, samples, 20.0).exploration_probability == 1
    assert policies.acqb(estimates, 4, samples).exploration_probability == 0


def test_q_rules(example):
    history, _ = example
    ruling = policies.q_ucb(history, 5)
    assert ruling.scores == {
        (1, 0): 1 + math.log(5) / math.sqrt(2),
        (1, 1): 0 + math.log(5) / math.sqrt(4),
    }
    assert policies.q_ucb(history, 3).scores[0, 0] == math.inf
    assert policies.q_ucb(history, 3).excess((0, 0), explored=False) == math.inf  # round 3 certainly explores
    assert ruling.exploration_probability == 1.0
    assert policies.q_exploration(1, 1) == min(1.0, 3 * math.log(2) ** 2)
    assert policies.q_exploration(2000, 1) == pytest.approx(3 * math.log(2000) ** 2 / 2000)
    a, b = policies.q_ths_posterior(history, 5)
    assert a.tolist() == [2, 1] and b.tolist() == [1, 3]
    assert policies.q_ths(history, 5, [0.2, 0.9]).best() == (1, 1)


def test_oracle_rule(example):
    history, _ = example
    ruling = policies.oracle(history, 5, np.array([[0.9, 0.9], [0.5, 0.7], [0.7, 0.6]]))
    assert ruling.best() == (1, 1) and ruling.excess((2, 0)) == 0 and ruling.excess((1, 0)) == pytest.approx(0.2)


@pytest.mark.parametrize("law", [small_draw, figure_draw])
@pytest.mark.parametrize("simulator", [simulate.cqb_opt_newton, simulate.cqb_opt_lbfgs])
def test_cqb_opt_loops_obey_the_rule(law, simulator):
    draw = law(4, 80)
    bound = 2.0 if law is small_draw else 10.0
    run = simulator(draw, 100.0, parameter_bound=bound)
    history = simulate.history(draw, run.services)
    history.check()
    settings = policies.Settings(draw.features.shape[1], lambda t: 100.0, 1.0, 5.0, bound, 5.0)
    estimates = policies.Estimates(history, settings)
    tolerance = 1e-9 if simulator is simulate.cqb_opt_newton else 1e-5
    for t, service in enumerate(run.services, start=1):
        if service is not None:
            assert policies.cqb_opt(estimates, t).excess(service[:2]) <= tolerance


@pytest.mark.parametrize("refit", [simulate.refit_newton, simulate.refit_lbfgs])
@pytest.mark.parametrize("bound", [0.5, 20.0])
def test_fast_refits_reach_the_estimate(refit, bound):
    rng = np.random.default_rng(9)
    phi, outcomes = 2 * rng.normal(size=(300, 4)), (rng.random(300) < 0.7).astype(float)
    exact = logistic.fit(phi, outcomes, 1.0, bound)
    for start in (np.zeros(4), exact + 0.1, 5 * np.ones(4)):
        np.testing.assert_allclose(refit(phi, outcomes, 1.0, bound, start), exact, atol=1e-5)


# --- simulation and queueing -----------------------------------------------------------------------------------------
def test_oracle_run():
    # Two waiting jobs with the same best probability: the tie rule decides who leaves first.
    draw = Draw(
        np.array([True, True, True, False, False, False]),
        np.array([0, 1, 2]),
        np.zeros((3, 1, 2)),
        np.array([[0.1, 0.5], [0.9, 0.5], [0.5, 0.9]]),
        np.array([0.99, 0.6, 0.8, 0.85, 0.4, 0.1]),
    )
    run = simulate.oracle(draw)
    assert run.queue_length.tolist() == [0, 1, 2, 2, 1, 0]
    assert run.departures == [1, 2, 0]
    assert run.services[2] == (1, 0, True) and run.services[3] == (2, 1, True)
    assert simulate.oracle(draw, ties="latest").departures == [1, 2, 0]


def test_stationary_law():
    for arrival_rate, p in ((0.6, 0.7), (0.1, 0.15), (0.5, 0.99)):
        law = queueing.geo_geo_1_law(arrival_rate, p, 600)
        assert law.sum() == pytest.approx(1, abs=1e-12)
        assert law @ np.arange(600) == pytest.approx(queueing.geo_geo_1_mean(arrival_rate, p), rel=1e-10)
        np.testing.assert_allclose(law @ queueing.geo_geo_1_matrix(arrival_rate, p, 600), law, atol=1e-14)
        slack = 1 - arrival_rate / p  # the second form of equation (78)
        assert queueing.geo_geo_1_tail(arrival_rate, p, 4) == pytest.approx(
            (1 - slack) * (1 - slack / (1 - arrival_rate)) ** 3
        )


def test_transient_law_against_itself_and_simulation():
    laws = queueing.geo_geo_1_transient(0.5, 0.7, 40)
    np.testing.assert_allclose(laws.sum(axis=1), 1, atol=1e-13)
    assert laws[0, 0] == 1 and laws[1, 1] == 0.5
    # The oracle's chain with two contexts of the same quality is the one-context queue.
    np.testing.assert_allclose(queueing.oracle_transient(0.5, [0.3, 0.7], [0.7, 0.7], 40), laws, atol=1e-13)
    far = queueing.geo_geo_1_transient(0.5, 0.7, 400, size=150)[-1]
    np.testing.assert_allclose(far, queueing.geo_geo_1_law(0.5, 0.7, 150), atol=1e-10)
    stationary = queueing.oracle_stationary(0.5, [0.3, 0.7], [0.7, 0.7], 30)
    np.testing.assert_allclose(stationary[:20], queueing.geo_geo_1_law(0.5, 0.7, 20), atol=1e-8)
    rng = np.random.default_rng(11)
    runs, rounds, weights, best = 400, 25, np.array([0.4, 0.6]), np.array([0.9, 0.6])
    total = np.zeros((runs, rounds))
    for n in range(runs):
        arrivals = rng.random(rounds) < 0.55
        draw = Draw(
            arrivals,
            rng.choice(2, p=weights, size=int(arrivals.sum())),
            np.zeros((2, 1, 1)),
            best[:, None],
            rng.random(rounds),
        )
        total[n] = simulate.oracle(draw).queue_length
    exact = queueing.oracle_transient(0.55, weights, best, rounds)
    mean = exact @ np.arange(rounds)
    variance = exact @ np.arange(rounds) ** 2 - mean**2
    assert (np.abs(total.mean(axis=0) - mean) <= 4.5 * np.sqrt(variance / runs) + 1e-12).all()


def test_oracle_chain_settles_where_its_stationary_law_is():
    weights, best = [0.4, 0.6], [0.9, 0.7]
    stationary = queueing.oracle_stationary(0.4, weights, best, 20)
    assert stationary.sum() == pytest.approx(1) and stationary[-1] < 1e-5
    # Work conservation: the server is busy a share lambda E[1/p*] of the time.
    assert 1 - stationary[0] == pytest.approx(0.4 * (0.4 / 0.9 + 0.6 / 0.7), abs=1e-5)
    transient = queueing.oracle_transient(0.4, weights, best, 45)[-1]
    np.testing.assert_allclose(transient[:15], stationary[:15], atol=2e-3)
