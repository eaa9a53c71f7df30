"""The engine against exact laws, its conservation laws, and numbers that nothing else may change."""

import itertools

import numpy as np
import pytest

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
    stationary = rate / p * (1 - p) * rate / (p * (1 - rate))  # P(Q >= 2) in the long run
    assert abs(np.mean(queue[:, -1] >= 2) - stationary) <= 5 * np.sqrt(stationary / runs)


@pytest.mark.parametrize("name", ["wise", "acqb", "random", "oracle"])
def test_jobs_are_conserved_and_served_once(name) -> None:
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    shape, draws = engine.shape_of(system, 600), engine.draw(system, 600, 2, 0)
    record = engine.play(_policy(name), shape, draws, trace=True).record
    assert record.queue_length[0] == 0
    change = draws.arrivals[:-1].astype(int) - record.departure[:-1]
    assert np.array_equal(np.diff(record.queue_length), change)
    served = record.job[record.departure]
    assert len(set(served)) == len(served)
    assert np.array_equal(record.job < 0, record.queue_length == 0)
    assert record.gap.min() >= 0.0
    gone = record.gone[served]
    assert np.array_equal(np.sort(gone), np.flatnonzero(record.departure) + 1)
    assert np.all(record.born[served] < gone)


@pytest.mark.parametrize("name", sorted(REGISTER))
def test_plain_python_makes_the_same_decisions(name) -> None:
    system = wise_figure_law(q=0.15, slack=0.1, seed=0, servers=4)
    shape, draws = engine.shape_of(system, 80), engine.draw(system, 80, 4, 0)
    fast = engine.play(_policy(name), shape, draws, seed=4, trace=True).record
    plain = engine.play(_policy(name), shape, draws, seed=4, trace=True, compiled=False).record
    for a, b in zip(fast, plain, strict=True):
        assert np.array_equal(a, b)


def test_room_for_jobs_and_history_changes_nothing(monkeypatch) -> None:
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    shape, draws = engine.shape_of(system, 5000), engine.draw(system, 5000, 2, 0)
    for name in ("random", "wise"):
        small = engine.play(make(name), shape, draws).record.queue_length
        assert name != "random" or small.max() > 64  # more jobs than the first slots
        monkeypatch.setattr(engine, "FIRST_SLOTS", 4096)
        assert np.array_equal(small, engine.play(make(name), shape, draws).record.queue_length)
        monkeypatch.undo()


def test_the_oracle_beats_every_policy_path_by_path_in_the_coupling() -> None:
    """Policy-switching queues (both papers' coupling lemma): pi up to round i, the oracle after. Where the last round of
    pi costs a departure, the queue with it holds the other's jobs ever after (so emptying makes them one); elsewhere it
    is never the longer one. The differences add up to the regret."""
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    rounds = 120
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, 3, 0)
    record = engine.play(make("random"), shape, draws, seed=3, trace=True).record

    def switched(last: int) -> list[frozenset[int]]:
        waiting: list[int] = []
        arrived, states = 0, []
        for t in range(rounds):
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

    total = 0
    paths = [switched(i) for i in range(rounds)]
    for i, (before, after) in enumerate(itertools.pairwise(paths)):
        total += len(after[-1]) - len(before[-1])
        if i + 1 == rounds:
            continue
        if len(after[i + 1]) == len(before[i + 1]) + 1:  # the oracle's job left in round i, the policy's stayed
            for one, other in zip(before[i + 1 :], after[i + 1 :], strict=True):
                assert one <= other
                assert len(other) - len(one) in (0, 1)
        else:  # both left, or neither: the one who served worse can only have the better jobs still to serve
            for one, other in zip(before[i + 1 :], after[i + 1 :], strict=True):
                assert len(other) - len(one) in (-1, 0)
    oracle = engine.play(make("oracle"), shape, draws, seed=3).record.queue_length
    assert total == record.queue_length[-1] - oracle[-1]
    assert [len(state) for state in paths[0]] == oracle.tolist()
