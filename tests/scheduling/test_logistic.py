"""The estimate against the slow twin, its certificate, and the design over many updates."""

import mpmath
import numpy as np
import pytest

from queuewise import _compile
from queuewise.scheduling import logistic
from tests.naive import logistic as naive

learn, move = _compile.jit(logistic.learn), _compile.jit(logistic.move_design)
ULP = 2.0**-53  # half a unit in the last place of 1.0: the relative error of one rounding


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
    yield "hard on the boundary", 3 * ordinary, rng.random(60) < 0.9, 0.05, 1.0
    yield "separable", ordinary, ordinary[:, 0] > 0, 50.0, 1e-2
    yield "all success", ordinary, np.ones(60, dtype=bool), 5.0, 1.0
    yield "all failure", ordinary, np.zeros(60, dtype=bool), 5.0, 1.0
    yield "one direction succeeds", np.abs(ordinary), np.ones(60, dtype=bool), 2.0, 1e-2
    yield "duplicates", np.repeat(ordinary[:6], 10, axis=0), rng.random(60) < 0.3, 3.0, 1.0
    yield "contradictions", np.repeat(ordinary[:1], 60, axis=0), np.arange(60) % 2 == 0, 3.0, 1.0
    yield "no features", np.zeros((60, 3)), rng.random(60) < 0.3, 3.0, 1.0
    yield "one dimension", rng.normal(size=(60, 1)), rng.random(60) < 0.5, 2.0, 1.0
    yield "one dimension on the boundary", rng.normal(size=(60, 1)) + 2, np.ones(60, dtype=bool), 0.3, 1.0
    yield "huge logits", 60 * ordinary, rng.random(60) < 0.5, 10.0, 1.0
    yield "dear Hessian", rng.normal(size=(60, 15)), rng.random(60) < 0.5, 2.0, 1.0
    yield "dear Hessian on the boundary", 2 * rng.normal(size=(60, 15)), rng.random(60) < 0.8, 0.4, 1.0


@pytest.mark.parametrize(("phi", "outcomes", "bound", "ridge"), [c[1:] for c in _cases()], ids=[c[0] for c in _cases()])
def test_estimate_is_the_constrained_minimiser_after_every_outcome(phi, outcomes, bound, ridge) -> None:
    settings = logistic.Settings(ridge, bound, 1.0, 1e-8)
    for n, estimate in enumerate(_follow(phi, outcomes, settings), start=1):
        assert estimate.certificate[0] <= 1e-8, n
        if n <= 12 or n % 12 == 0:
            exact = naive.fit(phi[:n], outcomes[:n].astype(float), ridge, bound)
            assert np.linalg.norm(estimate.theta - exact) <= estimate.certificate[0] + 1e-10, n
            assert np.linalg.norm(estimate.theta) <= bound * (1 + 1e-12)
            assert estimate.multiplier[0] >= 0.0


@pytest.mark.parametrize("initial_design", [1e-6, 1.0, 1e12, 5e21])
def test_the_certificate_is_honest_whatever_the_initial_design(initial_design) -> None:
    """V₀ = κI is WISE's own choice, and κ is 5e21 on the law of its Figure 1."""
    rng = np.random.default_rng(5)
    phi, outcomes = rng.normal(size=(40, 3)), rng.random(40) < 0.5
    settings = logistic.Settings(1.0, 3.0, initial_design, 1e-8)
    for n, estimate in enumerate(_follow(phi, outcomes, settings), start=1):
        exact = naive.fit(phi[:n], outcomes[:n].astype(float), 1.0, 3.0)
        assert np.linalg.norm(estimate.theta - exact) <= estimate.certificate[0] + 1e-10, n


@pytest.mark.parametrize("reach", [10.0, 50.0, 200.0])
@pytest.mark.parametrize("ridge", [1.0, 1e-2])
def test_long_steps_are_followed_to_the_end(reach, ridge) -> None:
    """S·max‖φ‖ = 50 is the scale of WISE's Figure 1: the first Newton steps are then far longer than a safe one."""
    rng = np.random.default_rng(1)
    late = []
    for _ in range(60):
        d, bound = int(rng.choice([1, 2, 5])), 10 ** rng.uniform(-1, 1)
        phi = rng.normal(size=(25, d))
        phi *= reach / bound / np.linalg.norm(phi, axis=1, keepdims=True)
        outcomes = rng.random(25) < rng.choice([0.0, 0.5, 1.0])
        settings = logistic.Settings(ridge, bound, 1.0, 1e-8)
        late += [estimate.certificate[0] for estimate in _follow(phi, outcomes, settings)]
    assert np.max(late) <= 1e-8, f"{np.sum(np.array(late) > 1e-8)} of {len(late)} refits"


def test_two_failures_far_from_the_start() -> None:
    """The smallest history that stopped early: its first step moves the second logit by far more than 1."""
    phi, outcomes = np.array([[177.2, 395.0], [-39.5, -431.1]]), np.array([False, False])
    *_, estimate = _follow(phi, outcomes, logistic.Settings(1.0, 0.12, 1.0, 1e-8))
    exact = naive.fit(phi, outcomes.astype(float), 1.0, 0.12)
    assert estimate.certificate[0] <= 1e-8
    assert np.linalg.norm(estimate.theta - exact) <= 1e-8


def test_long_history_keeps_its_certificate() -> None:
    rng = np.random.default_rng(1)
    phi = rng.normal(size=(3000, 5))
    outcomes = rng.random(3000) < 1 / (1 + np.exp(-phi @ np.array([1.0, -1.0, 0.5, 0.0, 2.0])))
    settings = logistic.Settings(1.0, 10.0, 1.0, 1e-8)
    for n, estimate in enumerate(_follow(phi, outcomes, settings), start=1):
        assert estimate.certificate[0] <= 1e-8
        if n in (1023, 1024, 1025, 2048, 2049, 3000):  # about the length of one sweep
            assert naive.certificate(estimate.theta, phi[:n], outcomes[:n].astype(float), 1.0, 10.0) <= 1.1e-8


@pytest.mark.parametrize("bound", [0.5, 1.0, 10.0])
def test_the_order_of_outcomes_does_not_matter(bound) -> None:
    rng = np.random.default_rng(2)
    phi, outcomes = rng.normal(size=(80, 4)), rng.random(80) < 0.4
    settings, order = logistic.Settings(1.0, bound, 1.0, 1e-8), rng.permutation(80)
    *_, one = _follow(phi, outcomes, settings)
    *_, other = _follow(phi[order], outcomes[order], settings)
    assert np.linalg.norm(one.theta - other.theta) <= one.certificate[0] + other.certificate[0]


def test_outcomes_may_come_long_after_their_assignments() -> None:
    rng = np.random.default_rng(4)
    phi, outcomes = rng.normal(size=(60, 4)), rng.random(60) < 0.4
    settings = logistic.Settings(1.0, 2.0, 1.0, 1e-8)
    *_, prompt = _follow(phi, outcomes, settings)
    late = logistic.start(settings, 4, 60)
    for features in phi:
        move(late, features, 1.0)
    for i in rng.permutation(60):
        learn(settings, late, phi[i], bool(outcomes[i]))
        assert late.certificate[0] <= 1e-8
    assert np.linalg.norm(late.theta - prompt.theta) <= 2e-8
    np.testing.assert_allclose(late.design, prompt.design, rtol=1e-14)


@pytest.mark.parametrize(("dimension", "moves"), [(1, 100_000), (5, 100_000), (15, 20_000)])
def test_the_inverse_stays_accurate_over_a_hundred_thousand_moves(dimension, moves) -> None:
    rng = np.random.default_rng(3)
    settings = logistic.Settings(1.0, 10.0, 5.0, 1e-8)
    estimate = logistic.start(settings, dimension, 1)
    phi = 5 * rng.normal(size=(moves, dimension)) / np.sqrt(dimension)
    for i, features in enumerate(phi):
        move(estimate, features, 1.0)
        if i % 10 == 9:
            move(estimate, features, -1.0)  # an attempt that expired
    kept = phi[np.arange(len(phi)) % 10 != 9]
    fresh = 5.0 * np.eye(dimension) + kept.T @ kept
    assert np.abs(estimate.design - fresh).max() <= 1e-9 * np.abs(fresh).max()
    assert np.abs(estimate.inverse @ fresh - np.eye(dimension)).max() <= 1e-9


@pytest.mark.parametrize("initial_design", [1e-8, 1e-3, 1.0])
def test_a_design_whose_every_attempt_expired_is_the_initial_one(initial_design) -> None:
    rng = np.random.default_rng(6)
    estimate = logistic.start(logistic.Settings(1.0, 3.0, initial_design, 1e-8), 3, 1)
    phi = 3 * rng.normal(size=(100, 3))
    for features in phi:
        move(estimate, features, 1.0)
    for features in phi[rng.permutation(100)]:
        move(estimate, features, -1.0)
    # What is left of the design is rounding of its largest entries; a healthy inverse is that of what is left.
    left = np.abs(estimate.design - initial_design * np.eye(3)).max()
    assert left <= 1e-11
    assert np.isfinite(estimate.inverse).all()
    if initial_design == 1.0:
        assert np.abs(estimate.inverse - np.eye(3)).max() <= 1e-9


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_move_says_how_every_squared_norm_changed(sign) -> None:
    rng = np.random.default_rng(7)
    estimate = logistic.start(logistic.Settings(1.0, 3.0, 2.0, 1e-8), 4, 1)
    first, psi = rng.normal(size=4), rng.normal(size=(9, 4))
    move(estimate, first, 1.0)
    before = np.einsum("ni,ij,nj->n", psi, np.linalg.inv(estimate.design), psi)
    move(estimate, first if sign < 0 else rng.normal(size=4), sign)
    after = np.einsum("ni,ij,nj->n", psi, np.linalg.inv(estimate.design), psi)
    np.testing.assert_allclose(before - sign * (psi @ estimate.move) ** 2, after, rtol=1e-12)
    assert estimate.move_sign[0] == sign


def test_exponential_and_logistic_are_accurate_to_a_few_ulp() -> None:
    compiled, exponential = _compile.jit(logistic.logistic), _compile.jit(logistic.exp_of_negative)
    rng = np.random.default_rng(8)
    near = np.log(2.0) * (np.arange(-40, 41) / 2)  # where the argument reduction switches
    points = np.concatenate(
        [
            np.linspace(-690, 690, 2001),
            np.linspace(-1, 1, 201),
            near,
            np.nextafter(near, 1e3),
            10.0 ** -np.arange(0, 30.0),
        ]
        + [rng.normal(size=500) * scale for scale in (1, 30, 200)]
    )
    points = points[np.abs(points) <= 700.0]
    with mpmath.workdps(40):
        for z in points.tolist():
            exact = 1 / (1 + mpmath.exp(-mpmath.mpf(z)))
            assert abs(compiled(z) / exact - 1) <= 4 * 2 * ULP, z
            assert logistic.logistic(z) == pytest.approx(compiled(z), rel=4 * ULP)
            decay = mpmath.exp(mpmath.mpf(-abs(z)))
            assert abs(exponential(-abs(z)) / decay - 1) <= 4 * 2 * ULP, z
    assert compiled(0.0) == 0.5
    assert exponential(0.0) == 1.0
    assert compiled(-800.0) == compiled(-700.0) > 0.0
    assert compiled(800.0) == 1.0


def test_logistic_never_falls_where_it_should_rise() -> None:
    compiled = _compile.jit(logistic.logistic)
    grid = np.sort(np.concatenate([np.linspace(-60, 60, 4001), np.linspace(-0.01, 0.01, 401)]))
    values = np.array([compiled(z) for z in grid.tolist()])
    assert np.all(np.diff(values) >= -4 * ULP * values[1:])


@pytest.mark.parametrize("n", [1, 7, 1023, 1024, 1025, 2050])
def test_a_pass_over_the_history_is_the_same_compiled_and_interpreted(n) -> None:
    rng = np.random.default_rng(n)
    phi, theta = rng.normal(size=(n, 4)) * 3, rng.normal(size=4)
    outcomes = rng.random(n) < 0.5
    estimate = logistic.start(logistic.Settings(0.5, 9.0, 1.0, 1e-8), 4, n + 5)
    counts = rng.integers(1, 4, size=n)  # attempts of each, all of one outcome
    estimate.features[:, :n], estimate.attempts[0, :n], estimate.successes[0, :n] = phi.T, counts, counts * outcomes
    estimate.features[:, n:] = np.nan  # room that no pass may read
    each, all_outcomes = np.repeat(phi, counts, axis=0), np.repeat(outcomes, counts)
    exact = naive.gradient(theta, each, all_outcomes, 0.5).astype(float), naive.hessian(theta, each, 0.5)
    history = estimate.attempts[0, :n], estimate.successes[0, :n]
    for gradient in (logistic.gradient, _compile.jit(logistic.gradient)):
        slope, hessian = np.full(4, np.nan), np.full((4, 4), np.nan)
        gradient(estimate.features, *history, 0.5, theta, slope, hessian, True)
        np.testing.assert_allclose(slope, exact[0], atol=1e-12 * n + 1e-13)
        np.testing.assert_allclose(hessian, exact[1], atol=1e-12 * n + 1e-13)
        np.testing.assert_array_equal(hessian, hessian.T)
        untouched = hessian.copy()
        gradient(estimate.features, *history, 0.5, theta, slope, hessian, False)
        np.testing.assert_array_equal(hessian, untouched)


def test_histories_are_followed_alike_compiled_and_interpreted() -> None:
    rng = np.random.default_rng(9)
    phi, outcomes = rng.normal(size=(30, 3)), rng.random(30) < 0.6
    settings = logistic.Settings(1.0, 0.7, 1.0, 1e-8)
    plain = logistic.start(settings, 3, 30)
    for features, outcome, fast in zip(phi, outcomes, _follow(phi, outcomes, settings), strict=True):
        logistic.move_design(plain, features, 1.0)
        logistic.learn(settings, plain, features, bool(outcome))
        np.testing.assert_allclose(plain.theta, fast.theta, atol=2e-8)
        np.testing.assert_allclose(plain.inverse, fast.inverse, rtol=1e-12)


@pytest.mark.parametrize("bound", [0.1, 1.0, 100.0])
def test_the_newton_step_is_the_minimiser_of_its_model_in_the_ball(bound) -> None:
    rng = np.random.default_rng(10)
    newton = _compile.jit(logistic.newton_in_ball)
    for d in (1, 2, 6):
        root = rng.normal(size=(d, d))
        hessian, slope, theta = root @ root.T + 0.1 * np.eye(d), 5 * rng.normal(size=d), 0.1 * rng.normal(size=d)
        target = np.empty(d)
        nu = newton(theta, slope, hessian, bound, 0.0, np.ones(1, dtype=np.bool_), target)
        # Stationarity of the model with its multiplier, feasibility, and complementarity.
        assert nu >= 0.0
        assert np.linalg.norm(target) <= bound * (1 + 1e-12)
        residual = slope + hessian @ (target - theta) + nu * target
        assert np.linalg.norm(residual) <= 1e-9 * (1 + np.linalg.norm(slope) + nu * bound)
        assert nu == 0.0 or np.linalg.norm(target) == pytest.approx(bound, rel=1e-12)
