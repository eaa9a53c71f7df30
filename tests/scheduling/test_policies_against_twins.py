"""Every decision of the compiled policies is judged by the slow twins, which were written from the papers alone."""

import math

import numpy as np
import pytest
from scipy import stats

from queuewise import _compile, _random
from queuewise.scheduling import engine, table_law, wise_figure_law
from queuewise.scheduling.policies import make
from queuewise.scheduling.policy import EXPLOIT, EXPLORE, Waiting
from tests.naive import confidence as slow_confidence
from tests.naive import policies as twins
from tests.naive import simulate as slow

ROUNDS = 90
#: (d, K, arrival rate, bound S): few and many pairs, often and seldom empty.
SHAPES = [(2, 2, 0.35, 2.0), (3, 3, 0.5, 2.5), (5, 4, 0.6, 1.5)]


def _system(dimension=3, servers=3, arrival_rate=0.5, bound=2.5, seed=3):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(8, servers, dimension))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    theta = rng.normal(size=dimension)
    theta *= bound / np.linalg.norm(theta)
    return table_law(
        features, theta=theta, arrival_rate=arrival_rate, parameter_bound=bound, feature_bound=1.0, allow_unstable=True
    )


def _history(record, draws):
    services = [
        None if record.job[t] < 0 else (int(record.job[t]), int(record.server[t]), bool(record.departure[t]))
        for t in range(len(draws.arrivals))
    ]
    history = slow.history(draws, services)
    history.check()
    return services, history


def _played(policy, system, rounds=ROUNDS, seed=1):
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, seed, 0)
    played = engine.play(policy, shape, draws, seed=seed, trace=True)
    services, history = _history(played.record, draws)
    return played, draws, services, history


def _stepped(policy, system, rounds, seed=1):
    """The compiled loop, one round at a time: `steps` yields every busy round and the stream as it was before it."""
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, seed, 0)
    params, state, stream = engine.prepare(policy, shape, seed)
    state = policy.grow_state(state, rounds + 2)
    slots = rounds + 1
    queue, columns = engine.new_queue(slots, shape.dimension, shape.servers), policy.new_columns(slots, shape.servers)
    record, entry = engine._record(rounds, len(draws.contexts), True, False), engine._entry(policy, True)

    def steps():
        for t in range(1, rounds + 1):
            before = stream.copy()
            assert entry(params, state, columns, queue, draws, record, stream, t, policy.clairvoyant) == t
            if record.job[t - 1] >= 0:
                yield t, before

    return steps(), engine.Played(record, params, state, columns, queue), draws


def _served(services):
    return [(t, service[:2]) for t, service in enumerate(services, start=1) if service is not None]


def _settings(system, radius, ridge=1.0, initial_design=1.0):
    """What the twin is told; `radius` a number or t -> β_t."""
    beta = radius if callable(radius) else lambda t: float(radius)
    return twins.Settings(system.dimension, beta, ridge, initial_design, system.parameter_bound, system.feature_bound)


CONTEXTUAL = [
    ("cqb_opt", {}, lambda e, t: twins.cqb_opt(e, t)),
    ("cqb_eta_2", {"exploration": 0.3}, lambda e, t: twins.cqb_eta_2(e, t, 18, 27, 0.3)),
    ("cqb_epsilon", {"exploration_rounds": 30}, lambda e, t: twins.cqb_epsilon(e, t, 30, ROUNDS**-0.5)),
]


def _judge_estimate(played, services, estimates):
    """Where the run ended: θ̂ within its certificate, V a fresh sum."""
    estimate, rounds = played.state.estimate, len(services)
    assert np.linalg.norm(estimates.theta(rounds) - estimate.theta) <= estimate.certificate[0] + 1e-10
    np.testing.assert_allclose(estimate.design, estimates.design(rounds), rtol=1e-12, atol=1e-12)


def _judge(name, rule, played, services, estimates):
    for t, pair in _served(services):
        explored = None if name == "cqb_opt" else played.record.reason[t - 1] == EXPLORE
        assert rule(estimates, t).excess(pair, explored=explored) <= 1e-9, t
    _judge_estimate(played, services, estimates)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("radius", [0.0, 0.3, 5.0])
@pytest.mark.parametrize(("name", "options", "rule"), CONTEXTUAL, ids=[c[0] for c in CONTEXTUAL])
def test_optimistic_policies_choose_a_best_pair(name, options, rule, radius, shape) -> None:
    system = _system(*shape)
    policy = make(name, radius=radius, initial_design=1.0, **options)
    played, _, services, history = _played(policy, system)
    _judge(name, rule, played, services, twins.Estimates(history, _settings(system, radius)))


@pytest.mark.parametrize("ties", ["earliest", "random"])
@pytest.mark.parametrize(("name", "options", "rule"), CONTEXTUAL, ids=[c[0] for c in CONTEXTUAL])
def test_the_papers_radius_is_the_default_where_the_law_suggests_none(name, options, rule, ties) -> None:
    system = _system(*SHAPES[0])
    played, _, services, history = _played(make(name, ridge=0.5, ties=ties, **options), system)
    kappa = slow_confidence.kappa(2.0)

    def radius(t):
        return slow_confidence.cqb_eta_2_radius(t, 2, kappa, 2.0, 0.5, 1 / ROUNDS)

    _judge(name, rule, played, services, twins.Estimates(history, _settings(system, radius, 0.5, 0.5)))


@pytest.mark.parametrize(("name", "options", "rule"), CONTEXTUAL, ids=[c[0] for c in CONTEXTUAL])
def test_what_the_law_suggests_is_the_default(name, options, rule) -> None:
    system = wise_figure_law(q=0.15, slack=0.05, seed=0)
    played, _, services, history = _played(make(name, **options), system)
    _judge(name, rule, played, services, twins.Estimates(history, _settings(system, 100.0, 1.0, 5.0)))


def _judge_wise(played, services, estimates):
    frozen = eliminated = judged = 0
    for t, pair in _served(services):
        ruling = twins.wise(estimates, t, float(played.state.shift[0]))
        frozen += sum(interval.frozen for interval in ruling.intervals.values())
        eliminated += len(ruling.intervals) - len(ruling.candidates())
        if ruling.margin() >= 1e-9:
            judged += 1
            assert ruling.excess(pair, tolerance=1e-9) <= 1e-9, t
    _judge_estimate(played, services, estimates)
    return judged, eliminated, frozen


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("radius", [0.1, 0.3, 0.5, 1.0, 5.0])
def test_wise_serves_the_widest_candidate(radius, shape) -> None:
    system = _system(*shape)
    played, _, services, history = _played(make("wise", radius=radius, initial_design=1.0), system)
    estimates = twins.Estimates(history, _settings(system, radius))
    judged, eliminated, frozen = _judge_wise(played, services, estimates)
    assert judged > 0.9 * len(_served(services))
    assert eliminated > 0 or radius >= 1.0
    assert frozen > 0 or radius > 0.3  # the narrowest radii do exercise the freeze


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.02, 0.1])
def test_wise_with_a_growing_radius_and_many_empty_rounds(scale, seed) -> None:
    """β moves on in empty rounds, and an epoch's first interval has the radius of the round before the epoch."""
    system = _system(2, 3, 0.15, 2.0, seed=seed)
    policy = make("wise", radius="wise", radius_scale=scale, initial_design=1.0)
    played, _, services, history = _played(policy, system, rounds=150, seed=seed)
    kappa = slow_confidence.kappa(2.0)
    radius = lambda t: scale * slow_confidence.wise_radius(t, 2, kappa, 2.0)  # noqa: E731
    judged, _, _ = _judge_wise(played, services, twins.Estimates(history, _settings(system, radius)))
    assert judged > 15
    assert services.count(None) > 40


def test_wise_starts_from_the_curvature_where_the_law_suggests_nothing() -> None:
    system = _system(*SHAPES[0])
    played, _, services, history = _played(make("wise"), system, rounds=60)
    kappa = slow_confidence.kappa(2.0)
    radius = lambda t: slow_confidence.wise_radius(t, 2, kappa, 2.0)  # noqa: E731
    estimates = twins.Estimates(history, _settings(system, radius, 1.0, kappa))
    assert _judge_wise(played, services, estimates)[0] > 15


@pytest.mark.parametrize("seed", [0, 1])
def test_wise_on_its_own_law_where_intervals_are_nearly_the_whole_line(seed) -> None:
    system = wise_figure_law(q=0.15, slack=0.05, seed=seed)
    played, _, services, history = _played(make("wise"), system, rounds=40, seed=seed)
    estimates = twins.Estimates(history, _settings(system, 100.0, 1.0, 5.0))
    assert _judge_wise(played, services, estimates)[0] > 15


@pytest.mark.parametrize("shape", SHAPES)
def test_q_ucb_takes_the_largest_bound_of_the_earliest_job(shape) -> None:
    played, _, services, history = _played(make("q_ucb", exploration_scale=0.05), _system(*shape), rounds=300)
    exploited = 0
    for t, pair in _served(services):
        if played.record.reason[t - 1] == EXPLOIT:
            scores = twins.q_ucb(history, t).scores
            assert scores[pair] == max(scores.values()) or max(scores.values()) - scores[pair] <= 1e-9, t
            exploited += 1
    assert exploited > 40


@pytest.mark.parametrize("name", ["random", "fifo_random", "q_ths", "q_ucb"])
def test_context_free_choices_are_legal(name) -> None:
    _, _, services, history = _played(make(name), _system(), rounds=200)
    for t, (job, server) in _served(services):
        waiting = history.waiting(t)
        assert job in waiting
        assert 0 <= server < 3
        assert name == "random" or job == waiting[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_oracle_is_the_slow_oracle(shape) -> None:
    played, draws, services, history = _played(make("oracle"), _system(*shape), rounds=400)
    assert np.array_equal(played.record.queue_length, slow.oracle(draws).queue_length)
    probabilities = draws.probabilities[draws.contexts]
    for t, pair in _served(services):
        assert pair == twins.oracle(history, t, probabilities).best()


# --- randomised rules ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("radius", [0.5, 5.0])
def test_acqb_serves_the_best_of_its_draws_or_explores_in_turn(shape, radius) -> None:
    system, scale = _system(*shape), 2.0
    policy = make("acqb", radius=radius, initial_design=1.0, exploration_scale=scale)
    steps, played, draws = _stepped(policy, system, 120)
    seen = [
        (t, stream, played.state.draws.copy(), int(played.state.turn[0]), played.record.reason[t - 1])
        for t, stream in steps
    ]
    services, history = _history(played.record, draws)
    estimates = twins.Estimates(history, _settings(system, radius))
    explored, normals = 0, []
    for t, stream, samples, turn, reason in seen:
        ruling = twins.acqb(estimates, t, samples, scale, explored)
        assert ruling.excess(services[t - 1][:2], explored=reason == EXPLORE) <= 1e-9, t
        if ruling.exploration:  # the coin is the round's first uniform number
            with np.errstate(over="ignore"):
                coin = _random.uniform(stream)
            assert (coin < ruling.exploration_probability) == (reason == EXPLORE)
        if reason == EXPLORE:
            explored += 1
        else:
            mean, covariance = twins.acqb_law(estimates, t)
            normals.append(np.linalg.solve(np.linalg.cholesky(covariance), (samples - mean).T).ravel())
        assert turn == explored % system.servers
    assert explored > 5
    assert stats.kstest(np.concatenate(normals), stats.norm.cdf).pvalue > 1e-5
    _judge_estimate(played, services, estimates)


def test_acqb_draws_have_the_stated_law_and_its_choice_is_their_best() -> None:
    from queuewise.scheduling.policies.acqb import draw  # the function beside the factory of the same name

    policy = make("acqb", radius=2.0, initial_design=1.0, exploration_scale=0.0, samples=4)
    system = _system()
    played, _, _, history = _played(policy, system)
    estimate = played.state.estimate
    mean, covariance = twins.acqb_law(twins.Estimates(history, _settings(system, 2.0)), ROUNDS + 1)
    draws = np.zeros((40_000, 3))
    stream = np.arange(1, 5, dtype=np.uint64)
    _compile.jit(draw)(estimate, 2.0, draws, stream)
    error = np.sqrt(np.diag(covariance) / len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - mean) <= 5 * error)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    assert np.abs(whitened @ whitened.T / len(draws) - np.eye(3)).max() <= 5 * np.sqrt(2 / len(draws))
    for row in whitened:
        assert stats.kstest(row, stats.norm.cdf).pvalue > 1e-5
    features = np.ascontiguousarray(np.random.default_rng(0).normal(size=(4, 3, 3)))
    waiting = Waiting(50, 4, np.arange(4), -1, np.ones(3, np.bool_), features, np.full((4, 3), np.nan))
    with np.errstate(over="ignore"):
        slot, server, _ = policy.decide(played.params, played.state, played.columns, waiting, stream)
    scores = np.einsum("md,jdk->mjk", played.state.draws, features).max(axis=0)
    assert scores[slot, server] == pytest.approx(scores.max(), abs=1e-12)


def test_q_ths_draws_have_the_posterior_law() -> None:
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
        assert abs(seen[:, k].mean() - law.mean()) <= 5 * law.std() / math.sqrt(len(seen))
    assert np.abs(np.corrcoef(seen.T) - np.eye(3)).max() <= 5 / math.sqrt(len(seen))


@pytest.mark.parametrize("shape", SHAPES)
def test_q_ths_serves_the_best_of_its_posterior_draws(shape) -> None:
    """The round's draws are made again from its stream, by the posterior that the twin counts from the history."""
    from queuewise.scheduling.policies._counts import State
    from queuewise.scheduling.policies.q_ths import draw

    system, scale = _system(*shape), 0.05
    steps, played, draws = _stepped(make("q_ths", exploration_scale=scale), system, 250)
    seen = [(t, stream, played.record.reason[t - 1]) for t, stream in steps]
    services, history = _history(played.record, draws)
    exploited = 0
    for t, stream, reason in seen:
        chance = scale * 3 * system.servers * math.log(max(t, 2)) ** 2 / t
        with np.errstate(over="ignore"):
            assert (_random.uniform(stream) < chance) == (reason == EXPLORE)
            if reason == EXPLOIT:
                a, b = twins.q_ths_posterior(history, t)
                index = np.empty(system.servers)
                draw(State(a + b - 2, a - 1), index, stream)
                scores = twins.q_ths(history, t, index).scores
                assert scores[services[t - 1][:2]] == max(scores.values()), t
                exploited += 1
    assert exploited > 40
    assert played.state.attempts.sum() == len(seen)
    assert played.state.successes.sum() == sum(service[2] for service in services if service is not None)


# --- how often, and whom, exploration takes --------------------------------------------------------------------------
def _q_chance(t):
    return min(1.0, 0.1 * 3 * 3 * math.log(max(t, 2)) ** 2 / t)


EXPLORING = [
    ("cqb_eta_2", {"exploration": 0.3, "phase_1_end": 0, "phase_2_end": 1.0}, lambda t: 0.3),
    ("cqb_eta_2", {"exploration": 0.3, "phase_1_end": 1.0, "phase_2_end": 1.0}, lambda t: 1.0),
    ("cqb_eta_2", {"exploration": 0.3, "phase_1_end": 0, "phase_2_end": 0}, lambda t: 0.0),
    ("cqb_epsilon", {"exploration": 0.2, "exploration_rounds": 0}, lambda t: 0.2),
    ("cqb_epsilon", {"exploration_rounds": 0}, lambda t: 200**-0.5),
    ("acqb", {"exploration_scale": 3.0}, lambda t: min(1.0, 3.0 / math.sqrt(t + 1))),
    ("q_ucb", {"exploration_scale": 0.1}, _q_chance),
    ("q_ths", {"exploration_scale": 0.1}, _q_chance),
]


@pytest.mark.parametrize(("name", "options", "chance"), EXPLORING, ids=[f"{c[0]}-{i}" for i, c in enumerate(EXPLORING)])
def test_exploration_happens_as_often_as_it_should_at_every_server_alike(name, options, chance) -> None:
    of_newcomers = not name.startswith("q_")
    if of_newcomers:
        options = {"radius": 1.0, "initial_design": 1.0, **options}
    explored, mean, variance = 0, 0.0, 0.0
    servers = np.zeros(3)
    for run in range(25):
        played, _, services, history = _played(make(name, **options), _system(), rounds=200, seed=run)
        chances = [t for t, _ in _served(services) if not of_newcomers or history.newcomer(t) is not None]
        p = np.array([chance(t) for t in chances])
        explorations = np.flatnonzero(played.record.reason == EXPLORE) + 1
        assert set(explorations) <= set(chances)
        if of_newcomers:
            assert all(services[t - 1][0] == history.newcomer(t) for t in explorations)
        explored += len(explorations)
        mean, variance = mean + p.sum(), variance + (p * (1 - p)).sum()
        servers += np.bincount(played.record.server[explorations - 1], minlength=3)
    assert abs(explored - mean) <= 5 * math.sqrt(variance) + 1e-9
    if explored:
        assert np.all(np.abs(servers / explored - 1 / 3) <= 5 * math.sqrt(2 / 9 / explored))


def test_random_policies_choose_uniformly() -> None:
    system = _system(3, 3, 0.7)
    for name in ("random", "fifo_random"):
        deviation, variance, served = 0.0, 0.0, 0
        servers = np.zeros(3)
        for run in range(10):
            played, _, services, history = _played(make(name), system, rounds=200, seed=run)
            for t, (job, _) in _served(services):
                waiting = history.waiting(t)
                deviation += waiting.index(job) - (len(waiting) - 1) / 2
                variance += (len(waiting) ** 2 - 1) / 12
            busy = played.record.server >= 0
            served += int(busy.sum())
            servers += np.bincount(played.record.server[busy], minlength=3)
        assert np.all(np.abs(servers / served - 1 / 3) <= 5 * math.sqrt(2 / 9 / served))
        assert name == "fifo_random" or abs(deviation) <= 5 * math.sqrt(variance)


@pytest.mark.parametrize("name", ["cqb_opt", "q_ucb"])
def test_ties_go_to_the_lowest_server_or_to_any(name) -> None:
    """Nothing is known in the first busy round: every server of the first job ties (all features have norm 1)."""
    options = {"radius": 1.0, "initial_design": 1.0} if name == "cqb_opt" else {"exploration_scale": 0.0}
    system, first = _system(), {"earliest": np.zeros(3), "random": np.zeros(3)}
    for ties, counts in first.items():
        for run in range(300):
            shape, draws = engine.shape_of(system, 6), engine.draw(system, 6, run, 0)
            record = engine.play(make(name, ties=ties, **options), shape, draws, seed=run, trace=True).record
            busy = np.flatnonzero(record.server >= 0)
            if len(busy):
                counts[record.server[busy[0]]] += 1
    assert first["earliest"][1:].sum() == 0
    n = first["random"].sum()
    assert np.all(np.abs(first["random"] / n - 1 / 3) <= 5 * math.sqrt(2 / 9 / n))
