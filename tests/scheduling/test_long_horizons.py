"""Estimators for long horizons: counts, a schedule, one pass; each beside its slow twin, and all beside the exact one."""

import dataclasses
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise import _compile, growing
from queuewise.scheduling import (
    check_policy,
    confidence,
    engine,
    from_outcomes,
    intervals,
    logistic,
    one_pass,
    table_law,
    wise_figure_law,
)
from queuewise.scheduling.policies import make
from queuewise.scheduling.policy import EXPLORE, Waiting
from tests.naive import confidence as slow_confidence
from tests.naive import logistic as naive
from tests.naive import long_horizons as slow
from tests.naive import policies as twins
from tests.naive import simulate as naive_simulate

CONTEXTUAL = ["wise", "cqb_opt", "cqb_epsilon", "cqb_eta_2", "acqb"]
ESTIMATORS = ["exact", "scheduled", "one_pass"]


def _policy(name, **options):
    return make(name, **({"exploration": 0.3} if name == "cqb_eta_2" else {}), **options)


def _system(contexts=8, dimension=3, servers=3, arrival_rate=0.5, bound=2.5, seed=3, **options):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(contexts, servers, dimension))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    theta = rng.normal(size=dimension)
    theta *= bound / np.linalg.norm(theta)
    options = {"suggested_radius": 0.5, "suggested_initial_design": 1.0} | options
    return table_law(
        features,
        theta=theta,
        arrival_rate=arrival_rate,
        parameter_bound=bound,
        feature_bound=1.0,
        allow_unstable=True,
        **options,
    )


def _blocks(servers=3):
    rng = np.random.default_rng(5)
    known = rng.normal(size=(40, 2))
    truth = 1 / (1 + np.exp(-(known @ rng.normal(size=(2, servers)) * 2 + rng.normal(size=servers))))
    return from_outcomes(known, truth.clip(0.05, 0.95), load=0.85, suggested_radius=1.0)


def _play(policy, system, rounds, seed=1, blocks=None, **options):
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, seed, 0)
    if blocks is not None:
        shape = shape._replace(blocks=blocks)
    return engine.play(policy, shape, draws, seed=seed, trace=True, **options)


def _same_decisions(one, other):
    for a, b in zip(one.record, other.record, strict=True):
        np.testing.assert_array_equal(a, b)


# --- counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_history_of_counts_has_the_estimate_of_its_attempts(bound, blocks) -> None:
    rng = np.random.default_rng(0)
    phi = np.zeros((12, 6))
    for i in range(12):
        first = 6 // blocks * (i % blocks)
        phi[i, first : first + 6 // blocks] = rng.normal(size=6 // blocks)
    drawn = rng.integers(12, size=400)
    outcomes = rng.random(400) < rng.random(12)[drawn]
    option = logistic.Settings(1.0, bound, 1.0, 1e-8, blocks)
    estimate, learn = logistic.start(option, 6, 12), _compile.jit(logistic.learn)
    for n, (i, outcome) in enumerate(zip(drawn, outcomes, strict=True), start=1):
        assert learn(option, estimate, phi[i], bool(outcome), int(i % blocks))
        assert estimate.certificate[0] <= 1e-8
        if n in (3, 50, 400):
            exact = naive.fit(phi[drawn[:n]], outcomes[:n].astype(float), 1.0, bound)
            assert np.linalg.norm(estimate.theta - exact) <= estimate.certificate[0] + 1e-10
    assert estimate.distinct.sum() == 12
    assert sorted(estimate.attempts[estimate.attempts > 0]) == sorted(np.bincount(drawn))
    assert estimate.successes.sum() == outcomes.sum()


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_counts_decide_as_one_row_an_attempt(monkeypatch, name) -> None:
    system, policy = _system(), _policy(name)
    counted = _play(policy, system, 150)
    monkeypatch.setattr(logistic, "place", lambda columns, branch, count, vector, adding: count)
    plain = _play(policy, system, 150, compiled=False)
    _same_decisions(counted, plain)
    one, other = counted.state.estimate, plain.state.estimate
    assert one.distinct[0] <= 24 < other.distinct[0] == one.counts[0]
    assert np.linalg.norm(one.theta - other.theta) <= 2e-8


def test_room_grows_with_distinct_vectors_and_not_with_rounds() -> None:
    rounds = 30_000
    played = _play(make("wise"), _system(contexts=40), rounds)
    estimate, memory = played.state.estimate, played.state.memory
    assert estimate.counts[0] > rounds / 3
    assert estimate.distinct[0] <= 120
    assert estimate.features.shape[1] <= 2 * (engine.ROUNDS_AT_ONCE + 2)
    assert memory.counts[0] == 40
    figure = _play(make("cqb_opt"), wise_figure_law(q=0.15, slack=0.1, seed=0), 6000).state.estimate
    assert figure.counts[0] > figure.distinct[0] > 1.5 * engine.ROUNDS_AT_ONCE  # repeated attempts are counted too
    assert figure.features.shape[1] >= figure.distinct[0]


# --- WISE's memory of contexts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [3, 4096])
@pytest.mark.parametrize("radius", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("blocks", [False, True])
def test_remembered_contexts_change_no_decision(monkeypatch, radius, blocks, most) -> None:
    """Over thousands of rounds, hence in epochs whose catching-up would be long."""
    system = _blocks() if blocks else _system()
    monkeypatch.setattr(intervals, "MOST_CONTEXTS", most)
    remembering = _play(make("wise", radius=radius), system, 3000)
    monkeypatch.setattr(intervals, "MOST_CONTEXTS", 0)
    forgetful = _play(make("wise", radius=radius), system, 3000)
    assert remembering.state.memory.counts[0] == min(most, 40 if blocks else 8)
    assert forgetful.state.memory.counts[0] == 0
    _same_decisions(remembering, forgetful)
    waiting = remembering.queue.slots[: remembering.queue.clock[1]]
    for field in ("low", "high", "frozen", "squares", "epoch", "met"):
        one, other = (getattr(played.columns, field)[waiting] for played in (remembering, forgetful))
        np.testing.assert_array_equal(one, other, err_msg=field)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), radius=st.sampled_from([0.05, 0.3, 1.0]), most=st.integers(0, 9))
def test_remembered_contexts_change_no_interval(seed, radius, most) -> None:
    system, kept = _system(seed=seed), intervals.MOST_CONTEXTS
    played = []
    for limit in (kept, most):
        intervals.MOST_CONTEXTS = limit
        try:
            played.append(_play(make("wise", radius=radius), system, 300, seed=seed))
        finally:
            intervals.MOST_CONTEXTS = kept
    _same_decisions(*played)


# --- the schedule ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTEXTUAL)
@pytest.mark.parametrize("blocks", [False, True])
def test_a_schedule_without_growth_is_the_exact_estimate(name, blocks) -> None:
    system, rounds = _blocks() if blocks else _system(), 400
    exact = _play(_policy(name), system, rounds)
    scheduled = _play(_policy(name, estimator="scheduled", growth=0.0), system, rounds)
    _same_decisions(exact, scheduled)
    assert np.linalg.norm(exact.state.estimate.theta - scheduled.state.estimate.theta) <= 2e-8


def _services(record):
    return [
        None if record.job[t] < 0 else (int(record.job[t]), int(record.server[t]), bool(record.departure[t]))
        for t in range(len(record.job))
    ]


def _judged(name, played, system, rounds, estimates_of, seed=1):
    """Every decision of a run judged by the twin with these estimates; how many were clear enough to be judged."""
    services = _services(played.record)
    history = naive_simulate.history(engine.draw(system, rounds, seed, 0), services)
    history.check()
    shift = float(played.state.shift[0]) if name == "wise" else 0.0
    starts = {slow_confidence.epoch_start(m, shift) - 1 for m in range(12)} if name == "wise" else set()
    estimates, judged = estimates_of(history, starts), 0
    for t, service in enumerate(services, start=1):
        if service is None:
            continue
        if name == "wise":
            ruling = twins.wise(estimates, t, shift)
            if ruling.margin() < 1e-7:
                continue
        else:
            ruling = twins.cqb_opt(estimates, t)
        judged += 1
        assert ruling.excess(service[:2]) <= 1e-8, t
    return judged, estimates


SHAPES = [(8, 2, 2, 0.35, 2.0), (8, 3, 3, 0.5, 2.5), (8, 5, 4, 0.6, 1.5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("growth", [0.1, 0.8])
@pytest.mark.parametrize("name", ["wise", "cqb_opt"])
def test_scheduled_policies_decide_as_their_slow_twins(name, growth, shape) -> None:
    system, rounds = _system(*shape), 120
    policy = make(name, estimator="scheduled", growth=growth, radius=0.4)
    played = _play(policy, system, rounds)
    told = twins.Settings(system.dimension, lambda t: 0.4, 1.0, 1.0, system.parameter_bound, 1.0)
    judged, estimates = _judged(
        name, played, system, rounds, lambda h, starts: slow.ScheduledEstimates(h, told, growth, starts)
    )
    busy = int((played.record.job >= 0).sum())
    assert judged > 0.8 * busy
    assert len(estimates.fits) < 0.8 * busy
    estimate = played.state.estimate
    assert np.linalg.norm(estimates.theta(rounds) - estimate.theta) <= estimate.certificate[0] + 1e-9
    stretch = math.exp(0.5 * (estimate.log_det[0] - estimate.log_det[1]))
    assert estimates.radius(rounds) == pytest.approx(0.4 * stretch, rel=1e-9)
    if name == "wise":
        assert played.state.log.counts[1] <= len(estimates.fits)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10_000), events=st.lists(st.sampled_from("aafx"), min_size=1, max_size=60))
def test_the_stretched_width_covers_that_of_the_last_fit(seed, events) -> None:
    """a: an attempt is assigned, x: one expires, f: θ̂ is fitted. The claim at the head of confidence.py, whatever the order."""
    rng = np.random.default_rng(seed)
    option = logistic.Settings(1.0, 3.0, 0.5, 1e-8)
    estimate, flying = logistic.start(option, 3, 1), []
    at_fit, psi = estimate.inverse.copy(), rng.normal(size=(20, 3))
    radius = confidence.Radius(confidence.FIXED, 2.0, 1.0, 3.0, 3, 1.0, 0.1, stretched=True)
    for event in events:
        if event == "a":
            flying.append(rng.normal(size=3) * rng.choice([0.1, 1.0, 5.0]))
            logistic.move_design(estimate, flying[-1], 1.0)
        elif event == "x" and flying:
            logistic.move_design(estimate, flying.pop(int(rng.integers(len(flying)))), -1.0)
        elif event == "f":
            estimate.log_det[1], at_fit = estimate.log_det[0], estimate.inverse.copy()
        beta = confidence.radius_now(radius, 7, estimate.log_det)
        now = beta * np.sqrt(np.einsum("ni,ij,nj->n", psi, estimate.inverse, psi))
        then = 2.0 * np.sqrt(np.einsum("ni,ij,nj->n", psi, at_fit, psi))
        assert np.all(now >= then * (1 - 1e-8))
        if "x" not in events:
            dets = np.linalg.slogdet(np.linalg.inv(estimate.inverse))[1] - 3 * math.log(0.5)
            assert estimate.log_det[0] == pytest.approx(dets, abs=1e-8)


def test_fits_are_few_and_their_certificate_is_kept() -> None:
    system = wise_figure_law(q=0.15, slack=0.1, seed=0)
    played = _play(make("wise", estimator="scheduled", growth=0.5), system, 4000)
    estimate, entries = played.state.estimate, int(played.state.log.counts[1])
    assert entries < 60
    assert estimate.certificate[0] <= 1e-8
    fitted = played.params.settings
    logistic.fit(fitted, estimate, logistic.ALL)
    n = int(estimate.distinct[0])
    counts = estimate.attempts[0, :n].astype(int)
    assert counts.sum() == estimate.counts[0]
    phi = np.repeat(estimate.features[:, :n].T, counts, axis=0)
    won = np.concatenate([np.arange(c) < s for c, s in zip(counts, estimate.successes[0, :n].astype(int), strict=True)])
    assert naive.certificate(estimate.theta, phi, won.astype(float), 1.0, system.parameter_bound) <= 1.1e-8


# --- one pass --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1.0, 4.0])
@pytest.mark.parametrize("bound", [0.3, 1.0, 50.0])
@pytest.mark.parametrize("compiled", [False, True])
def test_mirror_descent_is_that_of_the_slow_twin(bound, step, compiled) -> None:
    rng = np.random.default_rng(1)
    phi, outcomes = 2 * rng.normal(size=(60, 4)), rng.random(60) < 0.7
    option = logistic.Settings(1.0, bound, 0.8, 1e-8, 1, logistic.ONE_PASS, 0.0, step)
    estimate, learn = logistic.start(option, 4, 0), one_pass.learn
    if compiled:
        learn = _compile.jit(learn)
    theta, metric = np.zeros(4), 0.8 * np.eye(4)
    inside = 0
    for feature, outcome in zip(phi, outcomes.tolist(), strict=True):
        learn(option, estimate, feature, outcome)
        theta, metric = slow.mirror_step(theta, metric, feature, outcome, step, bound)
        np.testing.assert_allclose(estimate.theta, theta, atol=1e-10)
        np.testing.assert_allclose(estimate.design, metric, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(estimate.inverse, np.linalg.inv(metric), rtol=1e-9)
        inside += np.linalg.norm(theta) < bound * (1 - 1e-12)
        assert np.linalg.norm(estimate.theta) <= bound * (1 + 1e-12)
        dets = slow.log_det(metric) - 4 * math.log(0.8)
        assert estimate.log_det[0] == pytest.approx(dets, abs=1e-9)
    assert (inside < 60) == (bound < 50.0)
    assert estimate.counts[0] == estimate.counts[1] == 60
    assert estimate.features.size == estimate.attempts.size == estimate.branch.size == 0


@pytest.mark.parametrize("bound", [0.8, 50.0])
def test_mirror_descent_on_blocks_is_that_of_the_whole(bound) -> None:
    rng = np.random.default_rng(2)
    made = []
    for blocks in (3, 1):
        option = logistic.Settings(1.0, bound, 1.5, 1e-8, blocks, logistic.ONE_PASS, 0.0, 2.0)
        made.append((option, logistic.start(option, 6, 0), _compile.jit(one_pass.learn)))
    for _ in range(150):
        block, phi = int(rng.integers(3)), np.zeros(6)
        phi[2 * block : 2 * block + 2] = 2 * rng.normal(size=2)
        success = bool(rng.random() < 0.7)
        for (option, estimate, learn), of in zip(made, (block, 0), strict=True):
            learn(option, estimate, phi, success, of)
        np.testing.assert_allclose(made[0][1].theta, made[1][1].theta, atol=1e-9)
    for block in range(3):
        rows = slice(2 * block, 2 * block + 2)
        np.testing.assert_allclose(made[0][1].design[rows], made[1][1].design[rows, rows], rtol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("growth", [0.0, 0.3])
@pytest.mark.parametrize("name", ["wise", "cqb_opt"])
def test_one_pass_policies_decide_as_their_slow_twins(name, growth, shape) -> None:
    system, rounds = _system(*shape), 120
    policy = make(name, estimator="one_pass", growth=growth, radius=0.4, initial_design=0.5, step=2.0)
    played = _play(policy, system, rounds)
    told = twins.Settings(system.dimension, lambda t: 0.4, 1.0, 0.5, system.parameter_bound, 1.0)
    judged, estimates = _judged(
        name, played, system, rounds, lambda h, starts: slow.OnePassEstimates(h, told, 2.0, growth, starts)
    )
    assert judged > 0.8 * int((played.record.job >= 0).sum())
    np.testing.assert_allclose(played.state.estimate.theta, estimates.theta(rounds), atol=1e-8)


def test_acqb_samples_around_the_one_pass_estimate() -> None:
    """N(θ, β²H⁻¹): the spread of its draws is that of H."""
    system = _system()
    played = _play(make("acqb", estimator="one_pass", radius=2.0, exploration_scale=0.0, samples=400), system, 200)
    estimate = played.state.estimate
    centred = played.state.draws - estimate.theta
    whitened = np.linalg.solve(np.linalg.cholesky(np.linalg.inv(estimate.design)), centred.T) / 2.0
    assert np.abs(whitened @ whitened.T / 400 - np.eye(3)).max() <= 6 * math.sqrt(2 / 400)


def test_the_constants_go_with_the_radius() -> None:
    system = _system()
    shape = engine.shape_of(system, 1000)._replace(feature_bound=2.0)
    numbers = engine.prepare(make("wise", estimator="one_pass", ridge=0.7), shape)[0]
    assert (numbers.settings.step, numbers.settings.initial_design) == (1.0, 0.7)
    assert confidence.radius_at(numbers.radius, 50) == 0.25  # half of what is suggested for V
    named = engine.prepare(make("wise", estimator="one_pass", radius=0.5), shape)[0]
    assert confidence.radius_at(named.radius, 50) == 0.5
    for options, known in (
        ({"radius": "one_pass"}, shape),
        ({}, shape._replace(suggested_radius=math.nan)),
    ):
        params = engine.prepare(make("cqb_opt", estimator="one_pass", delta=0.01, **options), known)[0]
        assert (params.settings.step, params.settings.initial_design) == (1 + 2.5 * 2, 3 * 2.0**2)
        for t in (0, 1, 1000):
            expected = slow.one_pass_radius(t, 3, 2.5, 12.0, 6.0, 0.01, 2.0)
            assert confidence.radius_at(params.radius, t) == pytest.approx(expected, rel=1e-14)
    steep = engine.prepare(make("cqb_opt", estimator="one_pass", step=3.0, initial_design=9.0), shape)[0]
    assert (steep.settings.step, steep.settings.initial_design) == (3.0, 9.0)


def test_the_theorys_units_are_those_of_the_features() -> None:
    """Features twice as long and parameters half as large are the same problem: the same decisions."""
    system, radius = _system(), {"estimator": "one_pass", "radius": "one_pass", "radius_scale": 0.02}
    law = dataclasses.replace(system.law, features=2.0 * system.law.features)
    twice = dataclasses.replace(system, law=law, parameter_bound=1.25, feature_bound=2.0, theta=system.theta / 2)
    for name in ("wise", "cqb_opt"):
        _same_decisions(_play(make(name, **radius), system, 300), _play(make(name, **radius), twice, 300))


def test_the_one_pass_radius_covers_the_truth() -> None:
    """‖θ_t − θ*‖_H ≤ β_t in all rounds of all runs: the theory promises it in a share 1 − δ of them."""
    system, delta, runs, rounds, outside = _system(contexts=12), 0.05, 150, 400, 0
    policy = make("cqb_opt", estimator="one_pass", radius="one_pass", delta=delta)
    for run in range(runs):
        played = _play(policy, system, rounds, seed=run)
        params, estimate = played.params, logistic.start(played.params.settings, 3, 0)
        draws, learn = engine.draw(system, rounds, run, 0), _compile.jit(one_pass.learn)
        for t, service in enumerate(_services(played.record), start=1):
            if service is None:
                continue
            phi = np.ascontiguousarray(draws.features[draws.contexts[service[0]], :, service[1]])
            learn(params.settings, estimate, phi, service[2])
            off = estimate.theta - system.theta
            if math.sqrt(off @ estimate.design @ off) > confidence.radius_at(params.radius, t):
                outside += 1
                break
        np.testing.assert_array_equal(estimate.theta, played.state.estimate.theta)
    assert outside <= runs * delta + 4 * math.sqrt(runs * delta * (1 - delta))


def test_an_attempt_without_an_outcome_leaves_no_trace_in_a_one_pass_estimate() -> None:
    system = _system()
    for name in ("wise", "cqb_opt"):
        policy = make(name, estimator="one_pass")
        played = _play(policy, system, 100)
        before = {key: array.copy() for key, array in growing.flatten(played.state.estimate).items()}
        slots = np.arange(1)
        features = np.ascontiguousarray(np.random.default_rng(0).normal(size=(1, 3, 3)))
        waiting = Waiting(101, 1, slots, -1, np.ones(3, np.bool_), features, np.full((1, 3), np.nan))
        ticket = engine.loop.Ticket(101, 0, 1, 0, np.ascontiguousarray(features[0, :, 1]))
        policy.assigned(played.params, played.state, played.columns, waiting, ticket)
        policy.expired(played.params, played.state, played.columns, waiting, ticket)
        for key, array in growing.flatten(played.state.estimate).items():
            np.testing.assert_array_equal(array, before[key])


# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["scheduled", "one_pass"])
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_every_policy_keeps_the_contract_with_every_estimator(name, estimator) -> None:
    check_policy(_policy(name, estimator=estimator))


@pytest.mark.parametrize("estimator", ["scheduled", "one_pass"])
@pytest.mark.parametrize("name", CONTEXTUAL)
@pytest.mark.parametrize("blocks", [False, True])
def test_decisions_are_alike_compiled_and_interpreted(name, estimator, blocks) -> None:
    system, policy = _blocks() if blocks else _system(), _policy(name, estimator=estimator)
    _same_decisions(_play(policy, system, 120), _play(policy, system, 120, compiled=False))


@pytest.mark.parametrize("estimator", ["scheduled", "one_pass"])
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_blocks_decide_as_the_dense_treatment(name, estimator) -> None:
    system = _blocks()
    for options in ({}, {"parameter_bound": 0.6}):
        policy = _policy(name, estimator=estimator, **options)
        split, whole = (_play(policy, system, 500, blocks=blocks) for blocks in (3, 1))
        _same_decisions(split, whole)
        np.testing.assert_allclose(split.state.estimate.theta, whole.state.estimate.theta, atol=3e-8)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", ["wise", "cqb_opt"])
def test_room_for_observations_is_room_for_attempts_in_flight(name, estimator) -> None:
    """Plain Python raises where compiled code would write into other memory."""
    system = wise_figure_law(q=0.15, slack=0.1, seed=0, servers=3)
    shape, draws = engine.shape_of(system, 2000), engine.draw(system, 2000, 1, 0)
    policy, attempts = make(name, estimator=estimator, growth=0.0), 9
    params, state, stream = engine.prepare(policy, shape)
    columns = policy.new_columns(attempts, 3)
    features = np.ascontiguousarray(draws.features[draws.contexts[:attempts]])
    waiting = Waiting(
        1030, attempts, np.arange(attempts), -1, np.ones(3, np.bool_), features, np.full((attempts, 3), np.nan)
    )
    done = 0
    with np.errstate(over="ignore"):
        for wave in range(3):
            done += attempts
            state = policy.grow_state(state, done)
            for slot in range(attempts):
                policy.admit(params, state, columns, waiting, slot)
            flying = []
            for _ in range(attempts):
                slot, server, reason = policy.decide(params, state, columns, waiting, stream)
                flying.append(engine.loop.Ticket(1030, slot, server, reason, features[slot, :, server].copy()))
                policy.assigned(params, state, columns, waiting, flying[-1])
            for i, ticket in enumerate(reversed(flying)):
                if (i + wave) % 4 == 3:
                    policy.expired(params, state, columns, waiting, ticket)
                else:
                    policy.observe(params, state, columns, waiting, ticket, i % 2 == 0)
                policy.decide(params, state, columns, waiting, stream)
    assert estimator == "one_pass" or state.estimate.features.shape[1] <= 2 * done


@pytest.mark.parametrize("name", ["wise", "cqb_opt"])
def test_a_schedule_in_flight_fits_what_has_come_and_does_not_let_attempts_look_alike(name) -> None:
    """Ten attempts are issued before the first outcome: V moves with each, and with it the choice or its width."""
    system = _system(contexts=8, dimension=3)
    shape, draws = engine.shape_of(system, 2000), engine.draw(system, 2000, 1, 0)
    policy = make(name, estimator="scheduled", growth=0.1)
    params, state, stream = engine.prepare(policy, shape)
    state, columns = policy.grow_state(state, 40), policy.new_columns(8, 3)
    features = np.ascontiguousarray(draws.features[:8])
    waiting = Waiting(9, 8, np.arange(8), -1, np.ones(3, np.bool_), features, np.full((8, 3), np.nan))
    chosen = []
    with np.errstate(over="ignore"):
        for slot in range(8):
            policy.admit(params, state, columns, waiting, slot)
        for _ in range(10):
            slot, server, reason = policy.decide(params, state, columns, waiting, stream)
            ticket = engine.loop.Ticket(9, slot, server, reason, features[slot, :, server].copy())
            policy.assigned(params, state, columns, waiting, ticket)
            chosen.append(ticket)
        assert len({(t.slot, t.server) for t in chosen}) > 5
        for ticket in reversed(chosen):
            policy.observe(params, state, columns, waiting, ticket, True)
        logistic.fit(params.settings, state.estimate, logistic.ALL)
    phi = np.array([t.features for t in chosen])
    exact = naive.fit(phi, np.ones(10), 1.0, system.parameter_bound)
    assert np.linalg.norm(state.estimate.theta - exact) <= 2e-8


@pytest.mark.parametrize("estimator", ["scheduled", "one_pass"])
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_decision_can_be_explained(name, estimator) -> None:
    system = _system(arrival_rate=0.8)
    policy = _policy(name, estimator=estimator)
    played = _play(policy, system, 200)
    queue, jobs = played.queue, int(played.queue.clock[1])
    assert jobs > 0
    waiting = Waiting(201, jobs, queue.slots, -1, queue.allowed, queue.features, queue.truth)
    stream = np.array([1, 2, 3, 4], dtype=np.uint64)
    state = policy.grow_state(played.state, 210)
    with np.errstate(over="ignore"):
        slot, server, reason = policy.decide(played.params, state, played.columns, waiting, stream)
        said = policy.explain(played.params, state, played.columns, waiting, int(slot), int(server))
    if name == "wise":
        assert (slot, server) in said["candidates"]
    elif name.startswith("cqb") and reason != EXPLORE:
        pairs = [(int(s), k) for s in queue.slots[:jobs] for k in range(3)]
        best = max(policy.explain(played.params, state, played.columns, waiting, s, k)["index"] for s, k in pairs)
        assert said["index"] == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"estimator": "onepass"}, "estimator: must be one of"),
        ({"estimator": "scheduled", "growth": -0.1}, "growth: must be a number at least 0"),
        ({"estimator": "one_pass", "step": 0.0}, "step: must be a number above 0"),
        ({"estimator": "one_pass", "radius": "wise"}, "radius: 'wise' is no radius of the estimator 'one_pass'"),
        ({"radius": "one_pass"}, "radius: 'one_pass' is no radius of the estimator 'exact'"),
    ],
)
def test_options_out_of_range_are_named(options, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        _play(make("wise", **options), _system(), 20)


LONG = """
import json, sys
from queuewise.scheduling import engine, wise_figure_law
from queuewise.scheduling.policies import make
import time

rounds = int(sys.argv[1])
system = wise_figure_law(q=0.15, slack=0.05, seed=0)
shape, policy = engine.shape_of(system, rounds), make("wise", estimator="one_pass")
draws = engine.draw(system, rounds, 1, 0)
begin = time.process_time()
played = engine.play(policy, shape, draws, seed=1)
# VmHWM and not ru_maxrss: that one counts what the parent held when it forked.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(json.dumps({
    "seconds": time.process_time() - begin,
    "mebibytes": peak,
    "entries": played.state.log.theta.shape[0],
    "late_queue": float(played.record.queue_length[-200_000:].mean()),
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read in Linux's unit")
def test_a_million_rounds_of_one_pass_wise_take_a_minute_and_half_a_gibibyte() -> None:
    for rounds in ("100", "1000000"):  # the first process compiles, which takes memory of its own
        done = subprocess.run(
            [sys.executable, "-c", LONG, rounds], env=dict(os.environ), capture_output=True, text=True, check=True
        )
    found = json.loads(done.stdout)
    assert found["seconds"] <= 60
    assert found["mebibytes"] <= 500
    assert found["entries"] <= 3 * engine.ROUNDS_AT_ONCE * 2
    assert found["late_queue"] < 50.0
