"""What the papers prove about paths, held against the simulator: every path of every policy."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise import pool
from queuewise.runs.result import Result
from queuewise.scheduling import attribute, engine, family, simulate, table_law, uniform_law, wise_figure_law
from queuewise.scheduling.coupling import ALIKE, EMPTY, LOST, SWAPPED, WON, switched
from queuewise.scheduling.policies import REGISTER, make
from queuewise.scheduling.policy import Policy
from tests.naive import coupling as naive

RNG = np.random.default_rng(2)
#: Two contexts share a best probability, so that the oracle has ties to break.
TIED = table_law(
    RNG.normal(size=(4, 3, 2)),
    [[0.8, 0.2, 0.3], [0.1, 0.8, 0.7], [0.5, 0.4, 0.6], [0.9, 0.2, 0.1]],
    arrival_rate=0.55,
    parameter_bound=2.0,
    suggested_radius=1.0,
)
SYSTEMS = {
    "tied": TIED,
    "wise": wise_figure_law(q=0.5, slack=0.05, seed=1),
    "uniform": uniform_law(dimension=3, servers=3, pool=40, seed=2),
}


def _policy(name: str) -> Policy:
    return make(name, exploration=0.3) if name == "cqb_eta_2" else make(name)


def _played(system, name, rounds, run):
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, 5, run)
    return draws, engine.play(_policy(name), shape, draws, seed=5, run=run, trace=True).record


@pytest.mark.parametrize("system", sorted(SYSTEMS))
@pytest.mark.parametrize("name", sorted(REGISTER))
def test_it_is_what_the_queues_one_by_one_give(system: str, name: str) -> None:
    draws, record = _played(SYSTEMS[system], name, 90, 1)
    services = [(int(j), int(k)) if j >= 0 else None for j, k in zip(record.job, record.server, strict=True)]
    psi = naive.differences(draws, services)
    for window in ((1, 90), (90, 90), (30, 50)):
        found = switched(draws, record.job, record.server, window)
        np.testing.assert_array_equal(found.total, psi[:, window[0] - 1 : window[1]].sum(axis=1))
    for i in range(90):
        a, b = (naive.switching_queue(draws, services, switch) for switch in (i + 1, i))
        alike = [x == y for x, y in zip(a[i + 1 :], b[i + 1 :], strict=True)]
        first = i + 2 + alike.index(True) if True in alike else 91
        assert found.coalesced[i] == first, i
        assert first == 91 or all(alike[first - i - 2 :])


@pytest.mark.parametrize("system", sorted(SYSTEMS))
@pytest.mark.parametrize("name", sorted(REGISTER))
def test_the_lemma_of_coupling_on_every_path(system: str, name: str) -> None:
    """WISE, Lemma 16: ψ ∈ {−1, 0, 1}, positive only where the oracle alone succeeds; the inclusion; and emptying."""
    for run in range(3):
        draws, record = _played(SYSTEMS[system], name, 500, run)
        found = switched(draws, record.job, record.server)
        assert found.largest.max() <= 1
        assert found.least.min() >= -1
        lost = found.event == LOST
        assert not found.largest[~lost].any()
        assert not found.least[lost].any()
        assert found.nested.all()
        assert not found.outlived[lost].any()
        # p_i < U_i <= p_i*, and nothing else, is the event that only the oracle succeeds.
        busy = record.job >= 0
        p = np.zeros(500)
        p[busy] = draws.probabilities[draws.contexts[record.job[busy]], record.server[busy]]
        np.testing.assert_array_equal(lost, busy & (p < draws.service) & (draws.service <= p + record.gap))
        np.testing.assert_array_equal(found.event == EMPTY, ~busy)
        assert not (found.event == WON).any()
        assert set(np.unique(found.event)) <= {EMPTY, ALIKE, LOST, SWAPPED}
        if name == "oracle":
            assert not found.total.any()
        # The decomposition of regret, at every round t.
        oracle = _played(SYSTEMS[system], "oracle", 500, run)[1].queue_length
        for t in (2, 100, 250, 500):
            total = switched(draws, record.job, record.server, (t, t)).total.sum()
            assert total == record.queue_length[t - 1] - oracle[t - 1]


def test_after_the_oracle_alone_succeeds_emptying_ends_the_difference() -> None:
    draws, record = _played(TIED, "random", 400, 0)
    found = switched(draws, record.job, record.server)
    services = [(int(j), int(k)) if j >= 0 else None for j, k in zip(record.job, record.server, strict=True)]
    ended = 0
    for i in np.flatnonzero(found.event == LOST)[:60]:
        queue = naive.switching_queue(draws, services, i + 1)[i + 1 : 400]
        empty = [t for t, jobs in enumerate(queue, i + 2) if not jobs]
        if empty:
            ended += 1
            assert found.coalesced[i] <= empty[0]
    assert ended > 20


def test_the_lemma_of_coupling_bounds_regret_by_gaps() -> None:
    """R_t ≤ Σ E[g_i q_{i,t}]: the mean of Σ 1{only the oracle succeeds, and the job is still extra at t} exceeds R_t by what
    swaps take away, and by nothing else."""
    result = simulate(TIED, ["random"], rounds=60, runs=300, seed=3, trace=True)
    trace = result.trace["random"]
    bound = np.zeros(300)
    for run in range(300):
        found = switched(engine.draw(TIED, 60, 3, run), trace.job[run], trace.server[run], (60, 60))
        bound[run] = found.total[found.event == LOST].sum()
        assert found.total[found.event != LOST].sum() <= 0
    assert bound.mean() >= result.mean_regret("random", rounds=(60, 60)).mean


@pytest.fixture(scope="module")
def result() -> Result:
    system = family(wise_figure_law, q=0.15, slack=0.05)
    return simulate(system, ["random", "cqb_opt"], rounds=300, runs=6, seed=4, trace=True)


@pytest.mark.parametrize("window", [None, (200, 300), (300, 300)])
@pytest.mark.parametrize("name", ["random", "cqb_opt"])
def test_every_split_adds_up_to_the_regret(result: Result, name: str, window: tuple[int, int] | None) -> None:
    system = family(wise_figure_law, q=0.15, slack=0.05)
    found = attribute(result, system, name, window)
    regret = result.mean_regret(name, rounds=window)
    assert found.regret == pytest.approx(regret, abs=1e-9)
    for split in (found.by_server, found.by_reason, found.by_event, found.by_gap):
        assert sum(part.mean for part in split.values()) == pytest.approx(regret.mean, abs=1e-9)
    assert found.by_round.mean.sum() == pytest.approx(regret.mean, abs=1e-9)
    assert found.by_gap["none"].mean <= 0  # a decision as good as the oracle's adds no job
    assert found.remaining.mean > 0
    assert name in str(found)
    assert found.by_round.mean[(window or (1, 300))[1] - 1 :].sum() == 0.0  # nothing after the last round looked at


def test_what_cannot_be_attributed_is_refused(result: Result) -> None:
    system = family(wise_figure_law, q=0.15, slack=0.05)
    with pytest.raises(ValueError, match=r"^system: is not the one that was simulated"):
        attribute(result, family(wise_figure_law, q=0.15, slack=0.1), "random")
    with pytest.raises(ValueError, match="did you mean 'random'"):
        attribute(result, system, "randm")
    with pytest.raises(ValueError, match=r"^window must be a pair"):
        attribute(result, system, "random", (0, 3))
    untraced = simulate(TIED, ["random"], rounds=20, runs=2)
    with pytest.raises(ValueError, match="simulate with trace=True"):
        attribute(untraced, TIED, "random")
    own = simulate(TIED, ["random"], rounds=20, runs=2, trace=True, oracle="fifo_random")
    with pytest.raises(ValueError, match=r"^result: was measured against an oracle of one's own"):
        attribute(own, TIED, "random")
    impatient = table_law([[[1.0]]], [[0.5]], arrival_rate=0.3, max_attempts=2)
    given_up = simulate(impatient, ["random"], rounds=20, runs=2, trace=True)
    with pytest.raises(ValueError, match=r"^result: has jobs that were given up"):
        attribute(given_up, impatient, "random")


def test_pooled_runs_are_attributed_by_what_they_met() -> None:
    system = family(wise_figure_law, q=0.15, slack=0.1)
    parts = [
        simulate(system, ["acqb"], rounds=60, runs=3, seed=seed, first_run=first, trace=True)
        for seed, first in ((1, 0), (1, 9), (2, 4))
    ]
    pooled = pool(parts)
    whole = attribute(pooled, system, "acqb")
    alone = [attribute(part, system, "acqb") for part in parts]
    assert whole.regret.mean == pytest.approx(pooled.mean_regret("acqb").mean, abs=1e-12)
    np.testing.assert_allclose(whole.by_round.mean, np.mean([one.by_round.mean for one in alone], axis=0), atol=1e-12)


def test_jobs_left_behind_are_averaged_over_runs_that_have_some() -> None:
    oracle = simulate(TIED, [make("oracle").named("same")], rounds=30, runs=3, trace=True)
    assert np.isnan(attribute(oracle, TIED, "same").remaining.mean)
    short = simulate(TIED, ["random"], rounds=3, runs=40, trace=True)
    found = attribute(short, TIED, "random").remaining
    assert 0 < found.runs < 40
    assert found.mean >= 0.0
