"""Every decision of the compiled policies is judged by the slow twins, which were written from the papers alone."""

import numpy as np
import pytest

from queuewise import _compile
from queuewise.scheduling import engine, table_law, wise_figure_law
from queuewise.scheduling.policies import make
from queuewise.scheduling.policy import Waiting
from tests.naive import policies as twins
from tests.naive import simulate as slow

ROUNDS = 90


def _system(dimension=3, servers=3, bound=2.5, seed=3):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(8, servers, dimension))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    theta = rng.normal(size=dimension)
    theta *= bound / np.linalg.norm(theta)
    return table_law(
        features, theta=theta, arrival_rate=0.5, parameter_bound=bound, feature_bound=1.0, allow_unstable=True
    )


def _played(policy, system, rounds=ROUNDS, seed=1):
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, seed, 0)
    played = engine.play(policy, shape, draws, seed=seed, trace=True)
    record = played.record
    services = [
        None if record.job[t] < 0 else (int(record.job[t]), int(record.server[t]), bool(record.departure[t]))
        for t in range(rounds)
    ]
    history = slow.history(draws, services)
    history.check()
    return played, draws, services, history


def _served(services):
    return [(t, service[:2]) for t, service in enumerate(services, start=1) if service is not None]


CONTEXTUAL = [
    ("cqb_opt", {}, lambda e, t, o: twins.cqb_opt(e, t)),
    ("cqb_eta_2", {"exploration": 0.3}, lambda e, t, o: twins.cqb_eta_2(e, t, 18, 27, 0.3)),
    ("cqb_epsilon", {"exploration_rounds": 30}, lambda e, t, o: twins.cqb_epsilon(e, t, 30, ROUNDS**-0.5)),
]


@pytest.mark.parametrize("radius", [0.3, 5.0])
@pytest.mark.parametrize(("name", "options", "rule"), CONTEXTUAL, ids=[c[0] for c in CONTEXTUAL])
def test_optimistic_policies_choose_a_best_pair(name, options, rule, radius) -> None:
    policy = make(name, radius=radius, initial_design=1.0, **options)
    played, _, services, history = _played(policy, _system())
    estimates = twins.Estimates(history, twins.Settings(3, lambda t: radius, 1.0, 1.0, 2.5, 1.0))
    for t, pair in _served(services):
        explored = None if name == "cqb_opt" else bool(played.record.reason[t - 1])
        assert rule(estimates, t, options).excess(pair, explored=explored) <= 1e-9, t
    assert np.linalg.norm(estimates.theta(ROUNDS) - played.state.estimate.theta) <= 2e-8


@pytest.mark.parametrize("radius", [0.3, 1.0, 5.0])
def test_wise_serves_the_widest_candidate(radius) -> None:
    policy = make("wise", radius=radius, initial_design=1.0)
    played, _, services, history = _played(policy, _system())
    estimates = twins.Estimates(history, twins.Settings(3, lambda t: radius, 1.0, 1.0, 2.5, 1.0))
    frozen = eliminated = judged = 0
    for t, pair in _served(services):
        ruling = twins.wise(estimates, t, float(played.state.shift[0]))
        frozen += sum(interval.frozen for interval in ruling.intervals.values())
        eliminated += len(ruling.intervals) - len(ruling.candidates())
        if ruling.margin() >= 1e-9:
            judged += 1
            assert ruling.excess(pair) <= 1e-9, t
    assert judged > 40
    assert eliminated > 0 or radius == 5.0
    assert frozen > 0 or radius != 0.3  # the narrowest radius does exercise the freeze


def test_wise_on_its_own_law_where_intervals_are_nearly_the_whole_line() -> None:
    played, _, services, history = _played(make("wise"), wise_figure_law(q=0.15, slack=0.05, seed=0), rounds=40)
    estimates = twins.Estimates(history, twins.Settings(5, lambda t: 100.0, 1.0, 5.0, 10.0, 5.0))
    for t, pair in _served(services):
        assert twins.wise(estimates, t, float(played.state.shift[0])).excess(pair) <= 1e-9, t


def test_q_ucb_takes_the_largest_bound_of_the_earliest_job() -> None:
    played, _, services, history = _played(make("q_ucb", exploration_scale=0.05), _system(), rounds=300)
    exploited = 0
    for t, pair in _served(services):
        if played.record.reason[t - 1] == 0:
            scores = twins.q_ucb(history, t).scores
            assert scores[pair] == max(scores.values()) or max(scores.values()) - scores[pair] <= 1e-9, t
            exploited += 1
    assert exploited > 50


@pytest.mark.parametrize("name", ["random", "fifo_random", "q_ths"])
def test_context_free_choices_are_legal(name) -> None:
    _, _, services, history = _played(make(name), _system(), rounds=200)
    for t, (job, server) in _served(services):
        waiting = history.waiting(t)
        assert job in waiting
        assert 0 <= server < 3
        assert name == "random" or job == waiting[0]


def test_the_oracle_is_the_slow_oracle() -> None:
    played, draws, _, _ = _played(make("oracle"), _system(), rounds=400)
    assert np.array_equal(played.record.queue_length, slow.oracle(draws).queue_length)


def test_acqb_draws_have_the_stated_law_and_its_choice_is_their_best() -> None:
    from queuewise.scheduling.policies.acqb import draw  # the function beside the factory of the same name

    policy = make("acqb", radius=2.0, initial_design=1.0, exploration_scale=0.0, samples=4)
    played, _, _, history = _played(policy, _system())
    estimate = played.state.estimate
    estimates = twins.Estimates(history, twins.Settings(3, lambda t: 2.0, 1.0, 1.0, 2.5, 1.0))
    mean, covariance = twins.acqb_law(estimates, ROUNDS + 1)
    draws = np.zeros((40_000, 3))
    stream = np.arange(1, 5, dtype=np.uint64)
    _compile.jit(draw)(estimate, 2.0, draws, stream)
    error = np.sqrt(np.diag(covariance) / len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - mean) <= 5 * error)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    assert np.abs(whitened @ whitened.T / len(draws) - np.eye(3)).max() <= 5 * np.sqrt(2 / len(draws))
    features = np.ascontiguousarray(np.random.default_rng(0).normal(size=(4, 3, 3)))
    waiting = Waiting(50, 4, np.arange(4), -1, np.ones(3, np.bool_), features, np.full((4, 3), np.nan))
    with np.errstate(over="ignore"):
        slot, server, _ = policy.decide(played.params, played.state, played.columns, waiting, stream)
    scores = np.einsum("md,jdk->mjk", played.state.draws, features).max(axis=0)
    assert scores[slot, server] == pytest.approx(scores.max(), abs=1e-12)


def test_q_ths_draws_have_the_posterior_law() -> None:
    from scipy import stats

    from queuewise.scheduling.policies._counts import State
    from queuewise.scheduling.policies.q_ths import draw

    state = State(np.array([12.0, 0.0, 40.0]), np.array([9.0, 0.0, 2.0]))
    stream = np.array([9, 8, 7, 6], dtype=np.uint64)
    compiled = _compile.jit(draw)
    seen = np.empty((20_000, 3))
    for row in seen:
        compiled(state, row, stream)
    for k in range(3):
        law = stats.beta(1 + state.successes[k], 1 + state.attempts[k] - state.successes[k])
        assert stats.kstest(seen[:, k], law.cdf).pvalue > 1e-5


def test_exploration_happens_as_often_as_it_should() -> None:
    eta, explored, arrivals = 0.3, 0, 0
    for run in range(40):
        policy = make("cqb_eta_2", radius=1.0, initial_design=1.0, exploration=eta, phase_1_end=0, phase_2_end=1.0)
        played, draws, _, _ = _played(policy, _system(), rounds=200, seed=run)
        explored += int((played.record.reason == 1).sum())
        arrivals += int(draws.arrivals[:-1].sum())
    assert abs(explored - eta * arrivals) <= 5 * np.sqrt(arrivals * eta * (1 - eta))
