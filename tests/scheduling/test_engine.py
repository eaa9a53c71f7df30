"""The engine against exact laws, its conservation laws, and numbers that nothing else may change."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from queuewise import growing
from queuewise.scheduling import engine, simulate, table_law, wise_figure_law
from queuewise.scheduling.policies import REGISTER, make
from tests.naive import queueing


def _policy(name):
    return make(name, exploration=0.3) if name == "cqb_eta_2" else make(name)


def test_one_context_is_a_geo_geo_1_queue() -> None:
    """WISE (78): the stationary law, and the exact law of every round before it."""
    rate, p, rounds, runs = 0.5, 0.7, 200, 4000
    features = np.full((1, 1, 1), np.log(p / (1 - p)))
    system = table_law(features, theta=np.ones(1), arrival_rate=rate, parameter_bound=1.0, feature_bound=1.0)
    queue = simulate(system, ["random"], rounds=rounds, runs=runs, seed=5).queue_length["random"]
    laws = queueing.geo_geo_1_transient(rate, p, rounds)
    for t in (1, 2, 3, 10, 50, 200):
        for q in (0, 1, 2, 4):
            exact = laws[t - 1, q] if q < laws.shape[1] else 0.0
            error = np.sqrt(max(exact * (1 - exact), 1e-12) / runs)
            assert abs(np.mean(queue[:, t - 1] == q) - exact) <= 5 * error, (t, q)
    for q in (1, 2, 3, 5):
        tail = queueing.geo_geo_1_tail(rate, p, q)
        assert abs(np.mean(queue[:, -1] >= q) - tail) <= 5 * np.sqrt(tail * (1 - tail) / runs)
    mean, variance = laws[-1] @ np.arange(rounds), laws[-1] @ np.arange(rounds) ** 2.0
    assert mean == pytest.approx(queueing.geo_geo_1_mean(rate, p), rel=1e-4)
    assert abs(queue[:, -1].mean() - mean) <= 5 * np.sqrt((variance - mean**2) / runs)


def test_the_oracle_has_the_exact_law_of_its_chain() -> None:
    """Three contexts of unequal weight: the law of Q(t) from the chain on the counts of waiting jobs per context."""
    rate, weights, runs, rounds = 0.45, np.array([0.5, 0.3, 0.2]), 4000, 18
    probabilities = np.array([[0.9, 0.3], [0.2, 0.6], [0.45, 0.4]])
    features = np.random.default_rng(0).normal(size=(3, 2, 2))
    system = table_law(features, probabilities, weights=weights, arrival_rate=rate, parameter_bound=1.0)
    laws = queueing.oracle_transient(rate, weights, probabilities.max(axis=1), rounds)
    queue = simulate(system, ["oracle"], rounds=rounds, runs=runs, seed=6).queue_length["oracle"]
    for t in (2, 5, 9, 18):
        for q in range(5):
            exact = laws[t - 1, q]
            error = np.sqrt(max(exact * (1 - exact), 1e-12) / runs)
            assert abs(np.mean(queue[:, t - 1] == q) - exact) <= 5 * error, (t, q)


def test_the_oracle_settles_to_the_stationary_law_of_its_chain() -> None:
    rate, weights, runs = 0.4, np.array([0.6, 0.4]), 3000
    probabilities = np.array([[0.9, 0.3], [0.2, 0.5]])
    features = np.random.default_rng(0).normal(size=(2, 2, 2))
    system = table_law(features, probabilities, weights=weights, arrival_rate=rate, parameter_bound=1.0)
    law = queueing.oracle_stationary(rate, weights, probabilities.max(axis=1), 30)
    assert law[-1] < 1e-6
    queue = simulate(system, ["oracle"], rounds=400, runs=runs, seed=7).queue_length["oracle"][:, -1]
    for q in range(6):
        assert abs(np.mean(queue == q) - law[q]) <= 5 * np.sqrt(law[q] * (1 - law[q]) / runs), q


@pytest.mark.parametrize("name", sorted(REGISTER))
def test_jobs_are_conserved_and_served_once(name) -> None:
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    shape, draws = engine.shape_of(system, 600), engine.draw(system, 600, 2, 0)
    record = engine.play(_policy(name), shape, draws, trace=True).record
    assert record.queue_length[0] == 0
    change = draws.arrivals[:-1].astype(int) - record.departure[:-1]
    assert np.array_equal(np.diff(record.queue_length), change)
    for column in (record.job, record.server, record.reason):
        assert np.array_equal(column < 0, record.queue_length == 0)
    served = record.job[record.departure]
    assert len(set(served)) == len(served)
    assert record.server.max() < system.servers
    # A departure is what the shared uniform number of the round says, and nothing else.
    busy = record.job >= 0
    p = draws.probabilities[draws.contexts[record.job[busy]], record.server[busy]]
    assert np.array_equal(record.departure[busy], draws.service[busy] <= p)
    assert not record.departure[~busy].any()
    assert not record.gap[~busy].any()
    # Arrivals and departures of every job, and g_t against the best pair that waits in the round.
    assert np.array_equal(record.born, np.flatnonzero(draws.arrivals) + 1)
    assert np.array_equal(np.sort(record.gone[served]), np.flatnonzero(record.departure) + 1)
    assert np.array_equal(np.flatnonzero(record.gone > 0), np.sort(served))
    until = np.where(record.gone > 0, record.gone, 601)
    best = draws.probabilities.max(axis=1)[draws.contexts]
    for t in np.flatnonzero(busy) + 1:
        waiting = np.flatnonzero((record.born < t) & (until >= t))
        assert len(waiting) == record.queue_length[t - 1]
        assert record.job[t - 1] in waiting
        chosen = draws.probabilities[draws.contexts[record.job[t - 1]], record.server[t - 1]]
        assert record.gap[t - 1] == best[waiting].max() - chosen
    if name == "oracle":
        assert not record.gap.any()


def test_a_trace_changes_nothing_and_is_absent_unless_asked_for() -> None:
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    shape, draws = engine.shape_of(system, 400), engine.draw(system, 400, 2, 0)
    for name in ("wise", "acqb", "q_ths"):
        plain, traced = (engine.play(_policy(name), shape, draws, trace=trace).record for trace in (False, True))
        assert np.array_equal(plain.queue_length, traced.queue_length)
        assert all(column.size == 0 for column in plain[1:])


def test_other_policies_and_threads_change_no_number_of_a_policy() -> None:
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    alone = simulate(system, ["acqb"], rounds=200, runs=4, seed=9, workers=1)
    among = simulate(system, ["random", "q_ths", "acqb", "wise"], rounds=200, runs=4, seed=9, workers=2)
    assert np.array_equal(alone.queue_length["acqb"], among.queue_length["acqb"])
    assert np.array_equal(alone.oracle_queue_length, among.oracle_queue_length)
    assert not np.array_equal(alone.queue_length["acqb"][0], alone.queue_length["acqb"][1])


def test_a_longer_horizon_extends_the_same_run() -> None:
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    short, long = (engine.draw(system, rounds, 3, 1) for rounds in (300, 700))
    for name in ("wise", "acqb", "q_ucb", "oracle"):  # anytime policies
        lengths = [
            engine.play(_policy(name), engine.shape_of(system, len(draws.arrivals)), draws, seed=3, run=1).record
            for draws in (short, long)
        ]
        assert np.array_equal(lengths[0].queue_length, lengths[1].queue_length[:300])


def test_a_policys_stream_is_that_of_its_name() -> None:
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    shape, draws = engine.shape_of(system, 300), engine.draw(system, 300, 2, 0)
    lengths = [engine.play(make("random").named(name), shape, draws).record.queue_length for name in ("a", "b", "a")]
    assert np.array_equal(lengths[0], lengths[2])
    assert not np.array_equal(lengths[0], lengths[1])


@pytest.mark.parametrize("name", sorted(REGISTER))
def test_plain_python_makes_the_same_decisions(name) -> None:
    system = wise_figure_law(q=0.15, slack=0.1, seed=0, servers=4)
    shape, draws = engine.shape_of(system, 80), engine.draw(system, 80, 4, 0)
    fast = engine.play(_policy(name), shape, draws, seed=4, trace=True).record
    plain = engine.play(_policy(name), shape, draws, seed=4, trace=True, compiled=False).record
    for a, b in zip(fast, plain, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("name", ["random", "wise", "cqb_opt", "acqb"])
def test_room_for_jobs_changes_nothing(monkeypatch, name) -> None:
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    shape, draws = engine.shape_of(system, 3000), engine.draw(system, 3000, 2, 0)
    wide = engine.play(_policy(name), shape, draws, trace=True).record
    assert name != "random" or wide.queue_length.max() > 64  # more jobs than the first slots
    for slots in (1, 4, 4096):
        monkeypatch.setattr(engine, "FIRST_SLOTS", slots)
        other = engine.play(_policy(name), shape, draws, trace=True).record
        assert all(np.array_equal(a, b) for a, b in zip(wide, other, strict=True)), slots


@pytest.mark.parametrize("name", ["wise", "cqb_opt"])
def test_room_for_the_history_changes_nothing(name) -> None:
    """A long run makes room on its way; one that starts with all the room it needs never does."""
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    rounds = 4600
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, 2, 0)
    policy = make(name)
    roomy = replace(policy, start=lambda *known: growing.grow(policy.start(*known), rounds + 2))
    grown, at_once = (engine.play(p, shape, draws) for p in (policy, roomy))
    assert np.array_equal(grown.record.queue_length, at_once.record.queue_length)
    states = growing.flatten(grown.state), growing.flatten(at_once.state)
    assert states[0].keys() == states[1].keys()
    assert grown.state.estimate.counts[0] > 0.5 * rounds
    assert grown.state.estimate.features.shape[1] < 2 * at_once.state.estimate.features.shape[1]
    for field, one in states[0].items():
        other = states[1][field]
        both = tuple(slice(min(sizes)) for sizes in zip(one.shape, other.shape, strict=True))
        assert np.array_equal(one[both], other[both]), field
        assert field != "estimate.features" or one[both].any(axis=0).sum() == grown.state.estimate.distinct[0]


def test_a_choice_that_is_none_ends_the_run_with_its_round() -> None:
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    shape, draws = engine.shape_of(system, 50), engine.draw(system, 50, 2, 0)
    first = int(np.flatnonzero(draws.arrivals)[0]) + 2
    for chosen in ((-1, 0, 0), (5, 0, 0), (0, -1, 0), (0, 10, 0)):
        policy = replace(make("random"), rule="wrong", decide=lambda *seen, chosen=chosen: chosen)
        with pytest.raises(ValueError, match=rf"decide\(\) of round {first} named"):
            engine.play(policy, shape, draws, compiled=False)


# --- coupling --------------------------------------------------------------------------------------------------------
def _switched(record, draws, last: int) -> list[frozenset[int]]:
    """Waiting jobs at the beginning of every round of π_last: the recorded policy up to round `last`, then the oracle."""
    waiting: list[int] = []
    arrived, states = 0, []
    for t in range(len(draws.arrivals)):
        states.append(frozenset(waiting))
        if waiting:
            if t < last:
                job, server = int(record.job[t]), int(record.server[t])
            else:
                table = draws.probabilities[draws.contexts[waiting]]
                best, server = np.unravel_index(np.argmax(table), table.shape)
                job = waiting[best]
            if draws.service[t] <= draws.probabilities[draws.contexts[job], server]:
                waiting.remove(job)
        if draws.arrivals[t]:
            waiting.append(arrived)
            arrived += 1
    return states


def _tied_law():
    """Few distinct probabilities, so that ties between jobs are the rule."""
    levels = np.random.default_rng(0).choice([0.3, 0.6, 0.6, 0.8], size=(6, 3))
    features = np.random.default_rng(1).normal(size=(6, 3, 2))
    return table_law(features, levels, arrival_rate=0.5, parameter_bound=1.0, allow_unstable=True)


@pytest.mark.parametrize("name", ["random", "cqb_opt", "wise"])
@pytest.mark.parametrize("law", ["figure", "ties"])
def test_policy_switching_queues_keep_the_coupling_lemma_path_by_path(name, law) -> None:
    """WISE, Lemma 16, and CQB-η-2, Lemmas 7 and 21, about π_i (the policy up to round i, then the oracle).

    Where round i costs a departure (p_i < U_i ≤ p_i*), the queue of π_i holds that of π_{i−1} ever after, with at most
    one job more, and once it is empty the two are one. Everywhere else the difference is 0 or −1. The differences add
    up to the regret. All queues share arrivals, uniform numbers and the priority order (ties by arrival).
    """
    system = wise_figure_law(q=0.5, slack=0.05, seed=0) if law == "figure" else _tied_law()
    rounds, costly, negative = 120, 0, 0
    for seed in (3, 4):
        shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, seed, 0)
        record = engine.play(make(name), shape, draws, seed=seed, trace=True).record
        paths = [_switched(record, draws, i) for i in range(rounds)]
        total = 0
        for i, (before, after) in enumerate(itertools.pairwise(paths), start=1):  # π_{i−1} and π_i part in round i
            total += len(after[-1]) - len(before[-1])
            assert before[:i] == after[:i]
            p = p_star = 0.0
            if record.job[i - 1] >= 0:
                p = draws.probabilities[draws.contexts[record.job[i - 1]], record.server[i - 1]]
                p_star = p + record.gap[i - 1]
            event = len(after[i]) == len(before[i]) + 1  # one left, the other's job did not
            assert event == bool(p < draws.service[i - 1] <= p_star)
            costly += event
            emptied = False
            for one, other in zip(before[i:], after[i:], strict=True):
                difference = len(other) - len(one)
                assert difference in ((0, 1) if event else (-1, 0))
                negative += difference < 0
                if event:
                    emptied = emptied or not other
                    assert one <= other
                    assert not emptied or one == other
        oracle = engine.play(make("oracle"), shape, draws, seed=seed).record.queue_length
        assert total == record.queue_length[-1] - oracle[-1]
        assert [len(state) for state in paths[0]] == oracle.tolist()
        assert [len(state) for state in _switched(record, draws, rounds)] == record.queue_length.tolist()
    assert costly > 5
    assert negative > 0 or name != "random"  # the −1 of the lemma does occur


def test_the_oracle_is_never_longer_than_any_policy_on_a_single_context() -> None:
    """With one context every job is alike, and the oracle's queue is the shorter one in every round of every run."""
    features = np.random.default_rng(2).normal(size=(1, 3, 2))
    system = table_law(features, [[0.4, 0.6, 0.75]], arrival_rate=0.5, parameter_bound=1.0)
    result = simulate(system, ["random", "q_ucb", "cqb_opt"], rounds=300, runs=20, seed=1)
    for lengths in result.queue_length.values():
        assert np.all(lengths >= result.oracle_queue_length)


@pytest.mark.parametrize("name", sorted(REGISTER))
def test_a_job_is_given_up_after_its_last_attempt_and_not_before(name) -> None:
    system = table_law(
        np.random.default_rng(3).normal(size=(4, 2, 3)),
        np.array([[0.7, 0.1], [0.0, 0.0], [0.2, 0.5], [0.05, 0.0]]),
        arrival_rate=0.3,
        parameter_bound=2.0,
        max_attempts=3,
        suggested_radius=1.0,
    )
    shape, draws = engine.shape_of(system, 500), engine.draw(system, 500, 2, 0)
    record = engine.play(_policy(name), shape, draws, trace=True).record
    plain = engine.play(_policy(name), shape, draws, trace=True, compiled=False).record
    assert all(np.array_equal(a, b) for a, b in zip(record, plain, strict=True))
    leaves = record.departure | record.given_up
    assert not (record.departure & record.given_up).any()
    assert np.array_equal(np.diff(record.queue_length), draws.arrivals[:-1].astype(int) - leaves[:-1])
    assert record.given_up.any() and record.departure.any()
    for job in range(len(draws.contexts)):
        rounds = np.flatnonzero(record.job == job)
        assert len(rounds) <= 3
        failed = ~record.departure[rounds]
        assert np.array_equal(record.given_up[rounds], np.cumsum(failed) == 3)
        left = rounds[leaves[rounds]]
        assert list(left + 1) == ([record.gone[job]] if record.gone[job] else [])
        assert len(left) == 0 or left[0] == rounds[-1]  # nobody is served after leaving


def test_no_limit_and_one_that_is_never_met_are_the_same() -> None:
    arguments = {"arrival_rate": 0.5, "parameter_bound": 2.0, "suggested_radius": 1.0}
    table, p = np.random.default_rng(3).normal(size=(2, 2, 3)), [[0.7, 0.1], [0.2, 0.9]]
    played = []
    for limit in (None, 10_000):
        system = table_law(table, p, max_attempts=limit, **arguments)
        shape, draws = engine.shape_of(system, 400), engine.draw(system, 400, 2, 0)
        played.append(engine.play(make("cqb_opt"), shape, draws).record)
    assert np.array_equal(played[0].queue_length, played[1].queue_length)
    assert played[0].given_up.size == 0
    assert not played[1].given_up.any()


def test_the_law_of_a_queue_whose_only_kind_of_job_is_given_up() -> None:
    """One context, one server, p = 0.3, at most two attempts: the chain on (jobs, failed attempts of the one in service)."""
    rate, p, rounds, runs = 0.4, 0.3, 60, 20_000
    system = table_law([[[1.0]]], [[p]], arrival_rate=rate, parameter_bound=1.0, max_attempts=2)
    result = simulate(system, ["fifo_random"], rounds=rounds, runs=runs, seed=9)
    law = {(0, 0): 1.0}
    given_up = 0.0
    for _ in range(rounds - 1):
        following: dict[tuple[int, int], float] = {}
        for (jobs, failed), weight in law.items():
            after = [((jobs, 0), 1.0)]
            if jobs:
                after = [((jobs - 1, 0), p), ((jobs - 1, 0) if failed else (jobs, 1), 1 - p)]
                given_up += weight * (1 - p) * (failed == 1)
            for (left, tried), share in after:
                for arrives, chance in ((0, 1 - rate), (1, rate)):
                    state = (left + arrives, tried)
                    following[state] = following.get(state, 0.0) + weight * share * chance
        law = following
    queue = result.queue_length["fifo_random"][:, -1]
    for q in range(4):
        exact = sum(weight for (jobs, _), weight in law.items() if jobs == q)
        assert abs(np.mean(queue == q) - exact) <= 5 * np.sqrt(exact * (1 - exact) / runs), q
    found = result.mean_given_up("fifo_random", rounds=(1, rounds - 1))
    assert abs(found.mean - given_up) <= 5 * found.sd / np.sqrt(runs)
