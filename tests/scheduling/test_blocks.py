"""Servers that share no parameter: the estimate, the widths and every decision are those of the dense treatment."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise import _compile
from queuewise.scheduling import confidence, engine, from_outcomes, intervals, logistic
from queuewise.scheduling.policies import make
from tests.naive import logistic as naive
from tests.naive import policies as twins
from tests.naive import simulate as slow

learn, move = _compile.jit(logistic.learn), _compile.jit(logistic.move_design)
CONTEXTUAL = ["wise", "cqb_opt", "cqb_epsilon", "cqb_eta_2", "acqb"]


def _history(rng, blocks, length, n, scale=1.0):
    """Features float64[n, d], each nonzero in its block alone, and the blocks, some of them rare."""
    where = rng.choice(blocks, size=n, p=rng.dirichlet(np.full(blocks, 0.7)))
    phi = np.zeros((n, blocks * length))
    for i, block in enumerate(where):
        phi[i, block * length : (block + 1) * length] = scale * rng.normal(size=length)
    return phi, where


def _dense(matrix, blocks):
    """The whole matrix of diagonal blocks that lie one under the other."""
    d, length = matrix.shape
    whole = np.zeros((d, d))
    for first in range(0, d, length):
        whole[first : first + length, first : first + length] = matrix[first : first + length]
    assert d == blocks * length
    return whole


def _both(blocks, length, bound, ridge, n, initial_design=1.0):
    made = [
        logistic.start(logistic.Settings(ridge, bound, initial_design, 1e-8, count), blocks * length, n)
        for count in (blocks, 1)
    ]
    return made, [logistic.Settings(ridge, bound, initial_design, 1e-8, count) for count in (blocks, 1)]


def _cases():
    yield "inside the ball", 4, 3, 50.0, 1.0, 1.0
    yield "in and out of the ball", 4, 3, 2.0, 1.0, 1.0
    yield "on the boundary", 4, 3, 0.5, 1.0, 2.0
    yield "hard on the boundary", 3, 2, 0.05, 1.0, 3.0
    yield "a small ridge", 3, 4, 6.0, 1e-2, 2.0
    yield "huge logits", 3, 3, 0.3, 1.0, 60.0
    yield "blocks of one entry", 6, 1, 1.0, 1.0, 1.0
    yield "one server", 1, 4, 0.5, 1.0, 1.0
    yield "dear Hessians", 3, 14, 50.0, 1.0, 1.0
    yield "dear Hessians on the boundary", 3, 14, 0.7, 1.0, 1.0


@pytest.mark.parametrize(
    ("blocks", "length", "bound", "ridge", "scale"), [c[1:] for c in _cases()], ids=[c[0] for c in _cases()]
)
def test_estimate_and_design_are_those_of_the_dense_treatment(blocks, length, bound, ridge, scale) -> None:
    rng = np.random.default_rng(blocks * length)
    phi, where = _history(rng, blocks, length, 300, scale)
    outcomes = rng.random(300) < 0.7
    (split, whole), options = _both(blocks, length, bound, ridge, 300)
    touched = 0.0
    for i, block in enumerate(where):
        if i % 7 != 3:  # every seventh attempt expires before its outcome
            move(split, phi[i], 1.0, int(block))
            move(whole, phi[i], 1.0)
        learn(options[0], split, phi[i], bool(outcomes[i]), int(block))
        learn(options[1], whole, phi[i], bool(outcomes[i]))
        assert split.certificate[0] <= 1e-8, i
        assert np.linalg.norm(split.theta - whole.theta) <= split.certificate[0] + whole.certificate[0] + 1e-13, i
        assert np.linalg.norm(split.theta) <= bound * (1 + 1e-12)
        touched = max(touched, split.multiplier[0])
        if i in (1, 20, 150, 299):
            true = naive.certificate(split.theta, phi[: i + 1], outcomes[: i + 1].astype(float), ridge, bound)
            assert true <= split.certificate[0] * (1 + 1e-6) + 1e-12
    assert (touched > 0) == (bound < 50.0)
    np.testing.assert_array_equal(_dense(split.design, blocks), whole.design)
    np.testing.assert_allclose(_dense(split.inverse, blocks), whole.inverse, rtol=1e-10, atol=1e-15)
    assert split.distinct.sum() == split.counts[0] == split.attempts.sum() == 300


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    blocks=st.integers(1, 6),
    length=st.integers(1, 5),
    bound=st.sampled_from([0.2, 1.0, 5.0, 100.0]),
    scale=st.sampled_from([0.5, 3.0, 30.0]),
)
def test_blocks_of_any_size_give_the_constrained_minimiser(seed, blocks, length, bound, scale) -> None:
    rng = np.random.default_rng(seed)
    phi, where = _history(rng, blocks, length, 25, scale)
    outcomes = rng.random(25) < rng.choice([0.0, 0.3, 0.9])
    option = logistic.Settings(1.0, bound, 1.0, 1e-8, blocks)
    estimate = logistic.start(option, blocks * length, 25)
    for i, block in enumerate(where):
        learn(option, estimate, phi[i], bool(outcomes[i]), int(block))
        assert estimate.certificate[0] <= 1e-8
    exact = naive.fit(phi, outcomes.astype(float), 1.0, bound)
    assert np.linalg.norm(estimate.theta - exact) <= estimate.certificate[0] + 1e-10


def test_inside_the_ball_an_outcome_moves_its_own_block_alone() -> None:
    rng = np.random.default_rng(1)
    phi, where = _history(rng, 5, 3, 200)
    option = logistic.Settings(1.0, 50.0, 1.0, 1e-8, 5)
    estimate = logistic.start(option, 15, 200)
    for i, block in enumerate(where):
        before = estimate.theta.copy()
        learn(option, estimate, phi[i], bool(rng.random() < 0.4), int(block))
        assert set(np.flatnonzero(estimate.theta != before) // 3) <= {block}


@pytest.mark.parametrize("bound", [0.6, 50.0])
@pytest.mark.parametrize("length", [3, 13])
def test_blocks_are_followed_alike_compiled_and_interpreted(bound, length) -> None:
    rng = np.random.default_rng(9)
    phi, where = _history(rng, 3, length, 30)
    outcomes = rng.random(30) < 0.7
    option = logistic.Settings(1.0, bound, 1.0, 1e-8, 3)
    plain, fast = (logistic.start(option, 3 * length, 30) for _ in range(2))
    for features, block, outcome in zip(phi, where.tolist(), outcomes.tolist(), strict=True):
        for moved, learned, estimate in ((move, learn, fast), (logistic.move_design, logistic.learn, plain)):
            moved(estimate, features, 1.0, block)
            learned(option, estimate, features, outcome, block)
        assert plain.certificate[0] <= 1e-8
        np.testing.assert_allclose(plain.theta, fast.theta, atol=2e-8)
        np.testing.assert_allclose(plain.inverse, fast.inverse, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(plain.move, fast.move, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("initial_design", [1e-8, 1.0, 1e6])
def test_the_design_of_blocks_survives_refreshes_and_expired_attempts(initial_design) -> None:
    """Two refreshes of the inverse, and attempts taken out again where V₀ is next to nothing."""
    rng = np.random.default_rng(2)
    phi, where = _history(rng, 4, 3, 700, 2.0)
    (split, whole), _ = _both(4, 3, 3.0, 1.0, 1, initial_design)
    flying: list[int] = []
    for i in range(700):
        move(split, phi[i], 1.0, int(where[i]))
        move(whole, phi[i], 1.0)
        flying.append(i)
        if rng.random() < 0.3:
            j = flying.pop(int(rng.integers(len(flying))))
            move(split, phi[j], -1.0, int(where[j]))
            move(whole, phi[j], -1.0)
    assert split.counts[1] >= 2 * logistic.REFRESH
    fresh = initial_design * np.eye(12) + phi[flying].T @ phi[flying]
    np.testing.assert_allclose(_dense(split.design, 4), fresh, atol=1e-9 * np.abs(fresh).max())
    if initial_design >= 1.0:
        np.testing.assert_allclose(_dense(split.inverse, 4), np.linalg.inv(fresh), rtol=1e-8, atol=1e-14)
        np.testing.assert_allclose(_dense(split.inverse, 4), whole.inverse, rtol=1e-8, atol=1e-14)


def test_widths_of_blocks_follow_the_design() -> None:
    rng = np.random.default_rng(3)
    phi, where = _history(rng, 3, 2, 600, 2.0)
    (split, _), _ = _both(3, 2, 3.0, 1.0, 1, 0.5)
    features = np.zeros((4, 6, 3))
    for k in range(3):
        features[:, 2 * k : 2 * k + 2, k] = rng.normal(size=(4, 2))
    squares, met = np.full((4, 3), np.nan), np.full(4, -1)
    follow = _compile.jit(confidence.follow_design)
    for i in range(600):
        move(split, phi[i], 1.0, int(where[i]))
        looking = np.array([slot for slot in range(4) if rng.random() < 1 / (1 + slot)], dtype=np.int64)
        follow(split, met, squares, features, looking, len(looking))
        inverse = np.linalg.inv(_dense(split.design, 3))
        fresh = np.einsum("nik,ij,njk->nk", features[looking], inverse, features[looking])
        np.testing.assert_allclose(squares[looking], fresh, rtol=1e-9)
        out, scores = np.empty(3), np.empty(3)
        confidence.squared_norms(split.inverse, features[0], out)
        np.testing.assert_allclose(out, np.einsum("ik,ij,jk->k", features[0], inverse, features[0]), rtol=1e-9)
        confidence.scores(phi[i], features[0], 3, scores)
        np.testing.assert_allclose(scores, features[0].T @ phi[i], atol=1e-14)


# --- WISE's log ------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    beta=st.sampled_from([0.1, 0.5, 3.0]),
    bound=st.sampled_from([0.5, 50.0]),
    events=st.lists(st.sampled_from("aaoox."), min_size=1, max_size=50),
)
def test_intervals_of_blocks_are_those_of_the_dense_log(seed, beta, bound, events) -> None:
    """a: an attempt is assigned, o: some outcome arrives, x: an attempt expires, full stop: a decision is due."""
    rng = np.random.default_rng(seed)
    blocks, length, room = 3, 2, 60
    estimates, options = _both(blocks, length, bound, 1.0, room)
    logs = [intervals.start(blocks * length, 2 * room, count) for count in (blocks, 1)]
    features = np.zeros((blocks * length, blocks))
    for k in range(blocks):
        features[k * length : (k + 1) * length, k] = rng.normal(size=length)
    held, met, radius = [np.zeros((4, blocks)) for _ in range(2)], 0, beta
    for log, estimate in zip(logs, estimates, strict=True):
        intervals.begin_epoch(log, estimate, 1, beta)
    flying: list[tuple[np.ndarray, int]] = []
    for event in [*events, "."]:
        radius += 0.01
        if event == "a":
            block = int(rng.integers(blocks))
            phi = np.zeros(blocks * length)
            phi[block * length : (block + 1) * length] = rng.normal(size=length)
            flying.append((phi, block))
        elif event in "ox" and flying:
            phi, block = flying.pop(int(rng.integers(len(flying))))
        elif event != ".":
            continue
        success = bool(rng.random() < 0.5)
        for i, (log, estimate) in enumerate(zip(logs, estimates, strict=True)):
            of = block if i == 0 and event != "." else 0
            if event in "ax":
                logistic.move_design(estimate, phi, 1.0 if event == "a" else -1.0, of)
                intervals.log_move(log, estimate)
            elif event == "o":
                logistic.learn(options[i], estimate, phi, success, of)
                intervals.log_outcome(log, estimate, radius)
            else:
                intervals.close(log, radius)
                intervals.meet(log, 3.0, met, *held[i], np.empty(blocks), features)
        if event == ".":
            met = int(logs[0].counts[1])
            assert met == logs[1].counts[1]
            newcomer = np.zeros((4, blocks))
            _compile.jit(intervals.meet)(logs[0], 3.0, 0, *newcomer, np.empty(blocks), features)
            np.testing.assert_allclose(newcomer, held[0], atol=1e-12)
            if np.array_equal(held[0][2], held[1][2]):  # rounding may decide whether an intersection is empty
                np.testing.assert_allclose(held[0], held[1], atol=1e-6)
            else:
                return


# --- policies ----------------------------------------------------------------------------------------------------------


def _recorded(jobs=40, servers=4, features=2, seed=5, **options):
    rng = np.random.default_rng(seed)
    known = rng.normal(size=(jobs, features))
    truth = 1 / (1 + np.exp(-(known @ rng.normal(size=(features, servers)) * 2 + rng.normal(size=servers))))
    return from_outcomes(known, truth.clip(0.05, 0.95), load=0.85, suggested_radius=1.0, **options)


def _policy(name, **options):
    return make(name, **({"exploration": 0.3} if name == "cqb_eta_2" else {}), **options)


@pytest.mark.parametrize("name", CONTEXTUAL)
@pytest.mark.parametrize(
    "options",
    [{}, {"parameter_bound": 0.5}, {"initial_design": 1e-6, "radius": 0.1}, {"radius": "wise", "kappa": 4.0}],
    ids=["as suggested", "ball active", "tiny V0", "growing radius"],
)
def test_policies_decide_as_in_the_dense_treatment(name, options) -> None:
    """Over enough rounds that V⁻¹ has been recomputed from V twice."""
    rounds = 700
    system = _recorded()
    assert system.blocks == system.servers == 4
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, 1, 0)
    split, whole = (
        engine.play(_policy(name, **options), shape._replace(blocks=blocks), draws, seed=1, trace=True)
        for blocks in (4, 1)
    )
    for one, other in zip(split.record, whole.record, strict=True):
        np.testing.assert_array_equal(one, other)
    one, other = split.state.estimate, whole.state.estimate
    assert np.linalg.norm(one.theta - other.theta) <= one.certificate[0] + other.certificate[0]
    np.testing.assert_array_equal(_dense(one.design, 4), other.design)
    assert one.counts[1] >= 2 * logistic.REFRESH
    if "parameter_bound" in options:
        assert one.multiplier[0] > 0.0


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_policies_decide_alike_compiled_and_interpreted(name) -> None:
    system = _recorded()
    shape, draws = engine.shape_of(system, 120), engine.draw(system, 120, 2, 0)
    fast, plain = (
        engine.play(_policy(name), shape, draws, seed=1, trace=True, compiled=compiled) for compiled in (True, False)
    )
    for one, other in zip(fast.record, plain.record, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("bound", [None, 0.6])
@pytest.mark.parametrize("radius", [0.1, 0.5, 3.0])
def test_wise_serves_the_widest_candidate_of_its_slow_twin(radius, bound) -> None:
    rounds, system = 90, _recorded(servers=3)
    policy = make("wise", radius=radius, initial_design=1.0, parameter_bound=bound)
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, 1, 0)
    played = engine.play(policy, shape, draws, seed=1, trace=True)
    record = played.record
    services = [
        None if record.job[t] < 0 else (int(record.job[t]), int(record.server[t]), bool(record.departure[t]))
        for t in range(rounds)
    ]
    history = slow.history(draws, services)
    history.check()
    told = twins.Settings(
        system.dimension, lambda t: radius, 1.0, 1.0, bound or system.parameter_bound, system.feature_bound
    )
    estimates = twins.Estimates(history, told)
    served = [(t, service[:2]) for t, service in enumerate(services, start=1) if service is not None]
    judged = 0
    for t, pair in served:
        ruling = twins.wise(estimates, t, float(played.state.shift[0]))
        if ruling.margin() >= 1e-9:
            judged += 1
            assert ruling.excess(pair, tolerance=1e-9) <= 1e-9, t
    assert judged > 0.8 * len(served)
    estimate = played.state.estimate
    assert estimate.distinct.shape == (3,)
    assert (estimate.multiplier[0] > 0.0) == (bound is not None)
    assert np.linalg.norm(estimates.theta(rounds) - estimate.theta) <= estimate.certificate[0] + 1e-10
    np.testing.assert_allclose(_dense(estimate.design, 3), estimates.design(rounds), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("blocks", [0, 2, 3, 8])
def test_a_shape_says_one_block_or_one_per_server(blocks) -> None:
    shape = engine.shape_of(_recorded(), 100)._replace(blocks=blocks)
    with pytest.raises(ValueError, match=r"wise: blocks: must be 1, or the number of servers \(4\)"):
        engine.prepare(make("wise"), shape)


def test_a_law_that_says_blocks_where_there_are_none_is_refused() -> None:
    system = _recorded()
    full = dataclasses.replace(system.law, features=system.law.features + 0.1)
    with pytest.raises(ValueError, match=r"outside the k-th of 4 equal parts"):
        engine.draw(dataclasses.replace(system, law=full), 50, 1, 0)
    with pytest.raises(ValueError, match=r"number of servers \(4\)"):
        engine.draw(dataclasses.replace(system, law=dataclasses.replace(system.law, blocks=2)), 50, 1, 0)


def test_one_server_is_one_block() -> None:
    system = _recorded(servers=1)
    assert system.blocks == 1
    shape, draws = engine.shape_of(system, 200), engine.draw(system, 200, 1, 0)
    assert engine.play(make("wise"), shape, draws, seed=1).state.estimate.certificate[0] <= 1e-8
