"""Exact numbers held against closed forms, an obvious dense twin, each other, and the simulator."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest

from queuewise.dispatch import System, arrivals, chains, engine, exact, loop, schedule, service
from queuewise.dispatch.choice import TIES, law_of
from queuewise.dispatch.policies import make
from queuewise.dispatch.policies.esed import esed
from queuewise.dispatch.policies.jiq import jiq
from queuewise.dispatch.policies.jsq import jsq
from queuewise.dispatch.policies.optimal import optimal
from queuewise.dispatch.policies.power_of_d import power_of_d
from queuewise.dispatch.policies.random import random
from queuewise.dispatch.policies.sed import sed
from queuewise.dispatch.policies.sed_of_d import sed_of_d
from queuewise.dispatch.policies.sed_ratio import sed_ratio
from queuewise.dispatch.policies.weighted_random import weighted_random

#: μ = (5, 10) at load ρ is λ = 15ρ.
TWO = [5, 10]


# --- the slow, obvious twin -------------------------------------------------------------------------------------------


def twin(system, choose, level):
    """States, generator and stationary law by a dense solve. choose(q) → {server: probability}; 0-based."""
    n, rates, slots = system.servers, system.rates[0], system.slot_counts
    states = [q for q in itertools.product(range(level + 1), repeat=n) if sum(q) <= level]
    at = {q: k for k, q in enumerate(states)}
    generator = np.zeros((len(states), len(states)))
    for q, k in at.items():
        moves = {}
        if sum(q) < level:
            for i, p in choose(q).items():
                to = tuple(x + (j == i) for j, x in enumerate(q))
                moves[to] = moves.get(to, 0.0) + p * system.rate
        for i in range(n):
            if q[i] > 0:
                to = tuple(x - (j == i) for j, x in enumerate(q))
                moves[to] = min(q[i], slots[i]) * rates[i]
        for to, rate in moves.items():
            generator[k, at[to]] += rate
            generator[k, k] -= rate
    equations = generator.T.copy()
    equations[0] = 1.0
    law = np.linalg.solve(equations, np.eye(1, len(states))[0])
    return states, generator, law


def sed_choice(rates, slots, ties="lowest"):
    from fractions import Fraction

    def choose(q):
        delay = [
            Fraction(max(int(c), x + 1), 1) / (Fraction(int(c)) * Fraction(repr(float(m))))
            for x, m, c in zip(q, rates, slots, strict=True)
        ]
        tied = [i for i, d in enumerate(delay) if d == min(delay)]
        if ties == "random":
            return {i: 1 / len(tied) for i in tied}
        return {tied[0] if ties == "lowest" else tied[-1]: 1.0}

    return choose


SMALL = [
    (System(9.0, TWO), sed(), sed_choice(TWO, [1, 1]), 14),
    (System(9.0, TWO), sed(ties="random"), sed_choice(TWO, [1, 1], "random"), 14),
    (System(9.0, TWO), jsq(ties="highest"), sed_choice([1, 1], [1, 1], "highest"), 14),
    (System(7.0, [1, 2.5], slots=[3, 2]), sed(), sed_choice([1, 2.5], [3, 2]), 13),
    (System(2.0, [1, 1, 2]), sed(), sed_choice([1, 1, 2], [1, 1, 1]), 7),
    (System(4.0, [1, 1, 2], slots=[1, 2, 1]), esed([2, 1, 1]), sed_choice([2, 1, 1], [1, 2, 1]), 7),
    (System(1.0, [0.5, 0.25, 1, 2]), sed(), sed_choice([0.5, 0.25, 1, 2], [1] * 4), 4),
]


@pytest.mark.parametrize(("system", "policy", "choose", "level"), SMALL)
def test_dense_twin(system, policy, choose, level):
    states, generator, law = twin(system, choose, level)
    found = exact.stationary(system, policy, level=level)
    assert found.level == level and len(found.law) == len(states)
    for q, p in zip(states, law, strict=True):
        assert found.probability(q) == pytest.approx(p, rel=1e-10, abs=1e-14)
    number = np.array([sum(q) for q in states])
    assert found.mean_number == pytest.approx(law @ number, rel=1e-12)
    np.testing.assert_allclose(found.number, np.bincount(number, law), rtol=1e-10)
    queue = np.array(states)
    np.testing.assert_allclose(
        found.utilisation, law @ (np.minimum(queue, system.slot_counts) / system.slot_counts), atol=1e-13
    )
    shares = sum(
        p * np.array([choose(q).get(i, 0.0) for i in range(system.servers)]) for q, p in zip(states, law, strict=True)
    )
    np.testing.assert_allclose(found.shares, shares, rtol=1e-10, atol=1e-13)

    # First steps, with the empty state's row left out.
    inner = [k for k, q in enumerate(states) if sum(q) > 0]
    block = -generator[np.ix_(inner, inner)]
    first = np.linalg.solve(block, np.ones(len(inner)))
    second = np.linalg.solve(block, 2.0 * first)
    rule = exact._rule(system, policy)
    chain, solved = exact._solve_at(system, rule, level)
    start = choose((0,) * system.servers)
    places = {i: inner.index(states.index(tuple(int(j == i) for j in range(system.servers)))) for i in start}
    expected = [sum(p * values[places[i]] for i, p in start.items()) for values in (first, second)]
    np.testing.assert_allclose(exact._moments(chain, solved), expected, rtol=1e-9)


def test_lattice_knows_its_neighbours():
    for n, level in ((1, 5), (2, 6), (3, 5), (5, 3)):
        states = chains.lattice(n, level)
        assert len(states.queue) == chains.count_states(n, level) == len({tuple(q) for q in states.queue})
        number = states.queue.sum(axis=1)
        np.testing.assert_array_equal(np.searchsorted(number, np.arange(level + 1)), states.levels[:-1])
        for i in range(n):
            inside = np.flatnonzero(number < level)
            np.testing.assert_array_equal(
                states.queue[states.up[inside, i]], states.queue[inside] + np.eye(n, dtype=int)[i]
            )
            some = np.flatnonzero(states.queue[:, i] > 0)
            np.testing.assert_array_equal(
                states.queue[states.down[some, i]], states.queue[some] - np.eye(n, dtype=int)[i]
            )


# --- closed forms -----------------------------------------------------------------------------------------------------


def test_mm1():
    found = exact.mm1(3.0, 4.0)
    assert found.mean_number == pytest.approx(3.0)
    assert found.mean_sojourn_time == pytest.approx(1.0)
    assert found.wait_probability == found.utilisation == 0.75
    assert found.empty_probability == pytest.approx(0.25)
    assert found.mean_wait == pytest.approx(0.75) and found.mean_waiting == pytest.approx(2.25)


def test_mmc_by_its_birth_death_chain():
    for rate, mu, c in ((3.0, 1.0, 4), (0.2, 1.0, 3), (18.0, 1.0, 20), (1.0, 1.0, 400)):
        weights = np.cumprod(np.concatenate([[1.0], rate / (np.minimum(np.arange(1, 4000), c) * mu)]))
        law = weights / weights.sum()
        found = exact.mmc(rate, mu, c)
        k = np.arange(len(law))
        assert found.mean_number == pytest.approx(law @ k, rel=1e-10)
        assert found.wait_probability == pytest.approx(law[c:].sum(), rel=1e-9, abs=1e-300)
        assert found.empty_probability == pytest.approx(law[0], rel=1e-10)
        assert found.mean_sojourn_time == pytest.approx(found.mean_number / rate)


@pytest.mark.parametrize("slots", [1, 3])
def test_one_server_is_a_queue_in_closed_form(slots):
    system = System(0.8 * slots, [1], slots=[slots])
    known = exact.mmc(0.8 * slots, 1.0, slots)
    blind = exact.stationary(system, "sed")
    solved = exact.stationary(system, "sed", level=150)
    for found in (blind, solved):
        assert found.mean_number == pytest.approx(known.mean_number, rel=1e-10)
        assert found.mean_sojourn_time == pytest.approx(known.mean_sojourn_time, rel=1e-10)
        assert found.utilisation[0] == pytest.approx(known.utilisation, rel=1e-10)
        assert found.probability([0]) == pytest.approx(known.empty_probability, rel=1e-10)
        assert found.proven and found.truncation_error < 1e-7
    if slots == 1:  # E[B] = 1/(μ − λ), E[B²] = 2μ/(μ − λ)³
        busy = exact.busy_period(system, "sed")
        assert busy.mean == pytest.approx(1.0 / 0.2, rel=1e-8)
        assert busy.second_moment == pytest.approx(2.0 / 0.2**3, rel=1e-6)
        assert busy.arrivals_mean == pytest.approx(1.0 / 0.2, rel=1e-8)


@pytest.mark.parametrize(
    "policy", [random(), weighted_random(), weighted_random(weights=[1, 3]), power_of_d(choices=1)]
)
def test_random_splitting_has_product_form(policy):
    system = System(6.0, [3, 4], slots=[2, 3])
    found = exact.stationary(system, policy)
    queues = [exact.mmc(found.shares[i] * 6.0, [3.0, 4.0][i], [2, 3][i]) for i in range(2)]
    assert found.mean_number == pytest.approx(sum(queue.mean_number for queue in queues))
    assert found.law.sum() == pytest.approx(found.number.sum()) and found.truncation_error <= 1e-8
    assert found.probability([0, 0]) == pytest.approx(math.prod(queue.empty_probability for queue in queues))
    solved = exact.stationary(system, policy, level=60)  # the same as a chain, with its bound
    assert solved.mean_number == pytest.approx(found.mean_number, abs=solved.truncation_error)
    np.testing.assert_allclose(solved.number[:20], found.number[:20], rtol=1e-9)
    np.testing.assert_allclose(solved.utilisation, found.utilisation, atol=1e-8)


# --- identities -------------------------------------------------------------------------------------------------------

RULES = [
    sed(),
    sed(ties="random"),
    jsq(),
    jiq(),
    esed([5, 6]),
    sed_ratio("5/3"),
    power_of_d(choices=2),
    sed_of_d(),
    optimal(),
]


@pytest.mark.parametrize("policy", RULES, ids=lambda policy: policy.label)
def test_flow_balance_and_the_renewal_identity(policy):
    system = System(9.0, TWO)
    found = exact.stationary(system, policy)
    assert 0.0 < found.truncation_error <= 1e-8
    np.testing.assert_allclose(found.shares.sum(), 1.0)
    np.testing.assert_allclose(found.shares * system.rate, found.utilisation * system.rates[0], atol=1e-7)
    busy = exact.busy_period(system, policy)
    assert 1.0 / found.probability([0, 0]) == pytest.approx(1.0 + system.rate * busy.mean, rel=1e-8)
    assert busy.arrivals_mean == pytest.approx(1.0 / found.probability([0, 0]), rel=1e-8)
    # A cycle's ∫h dt over the busy period is E[B²]/2 as well.
    rule = exact._rule(system, policy)
    chain, law = exact._solve_at(system, rule, found.level)
    left = chains.until_empty(chain, np.ones(len(law)), law)
    assert busy.second_moment == pytest.approx(2.0 * law @ left / (system.rate * law[0]), rel=1e-6)


def test_shortest_queue_between_its_bounds():
    # Two equal servers do no better than one queue for both (M/M/2) and better than a random split (two M/M/1).
    for load in (0.3, 0.6, 0.9):
        system = System(2 * load, [1, 1])
        number = exact.stationary(system, "jsq").mean_number
        assert exact.mmc(2 * load, 1.0, 2).mean_number < number < 2 * exact.mm1(load, 1.0).mean_number
    system = System(1.0, [1, 1])
    states, _, law = twin(system, sed_choice([1, 1], [1, 1]), 34)
    expected = law @ np.array([sum(q) for q in states])
    assert exact.stationary(system, "jsq").mean_number == pytest.approx(expected, abs=1e-7)


def test_relabelling_servers_changes_nothing():
    one = exact.stationary(System(3.0, [1, 1.5, 2], slots=[1, 2, 1]), sed(ties="random"))
    other = exact.stationary(System(3.0, [2, 1, 1.5], slots=[1, 1, 2]), sed(ties="random"))
    assert one.mean_number == pytest.approx(other.mean_number, rel=1e-11)
    np.testing.assert_allclose(one.utilisation, other.utilisation[[1, 2, 0]], rtol=1e-9)
    for q in ((0, 0, 0), (1, 2, 3), (4, 0, 1)):
        assert one.probability(q) == pytest.approx(other.probability([q[2], q[0], q[1]]), rel=1e-9)


def test_units_of_time_change_nothing():
    one = exact.stationary(System(9.0, TWO), "sed")
    other = exact.stationary(System(9.0e3, [5000, 10000]), "sed")
    assert one.mean_number == pytest.approx(other.mean_number, rel=1e-12)
    assert one.mean_sojourn_time == pytest.approx(1e3 * other.mean_sojourn_time, rel=1e-12)


# --- the error bound --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "policy", "levels", "far"),
    [
        (System(9.0, TWO), sed(), (30, 40, 50), 120),
        (System(13.5, TWO), sed(), (150, 200, 250), 500),
        (System(13.5, TWO), jsq(), (170, 230), 500),
        (System(13.5, TWO), esed([5, 5.5]), (170, 230), 500),
        (System(9.0, TWO), sed_ratio("1/7"), (60, 80), 200),
        (System(9.0, TWO), jiq(), (50, 60), 200),
        (System(11.0, TWO), jiq(), (100, 130), 300),
        (System(9.0, [1, 2], slots=[4, 3]), sed(), (100, 130), 300),
        (System(7.0, [1, 2], slots=[4, 3]), jsq(), (60, 80), 200),
        (System(1.5, [1, 1, 1]), power_of_d(choices=2), (35, 45), 80),
    ],
    ids=lambda value: value.label if hasattr(value, "label") else None,
)
def test_bound_covers_the_error(system, policy, levels, far):
    best = exact.stationary(system, policy, level=far)
    for level in levels:
        found = exact.stationary(system, policy, level=level)
        bound = found.truncation_error
        assert math.isfinite(bound), level
        assert abs(found.mean_number - best.mean_number) <= bound
        assert 0.5 * np.abs(np.pad(found.law, (0, len(best.law) - len(found.law))) - best.law).sum() <= bound
        assert np.abs(found.shares - best.shares).max() <= bound
        assert abs(1 / found.law[0] - 1 / best.law[0]) * found.law[0] <= bound
    assert found.proven == (policy.rule in ("sed", "jsq", "esed", "sed_ratio"))


def test_bound_is_infinite_where_there_is_none():
    assert math.isinf(exact.stationary(System(13.5, TWO), "sed", level=10).truncation_error)


def test_drift_bound_holds_in_every_state():
    """Qφ ≤ K − σ(N + c), as the head of the module derives it."""
    for system, weights, slots in (
        (System(9.0, TWO), [5.0, 10.0], [1, 1]),
        (System(13.0, TWO), [9.0, 2.0], [1, 1]),
        (System(7.0, [1, 2], slots=[4, 3]), [4.0, 6.0], [4, 3]),
        (System(7.0, [1, 2], slots=[4, 3]), [1.0, 1.0], [1, 1]),
        (System(3.0, [1, 2, 3]), [3.0, 1.0, 1.0], [1, 1, 1]),
    ):
        w, c = np.array(weights), np.array(slots)
        queue = chains.lattice(system.servers, 40).queue
        true = system.slot_counts * system.rates[0]
        x_next, x_here = np.maximum(c, queue + 1) / w, np.maximum(c, queue) / w
        drift = system.rate * x_next.min(axis=1)
        drift = drift - (np.minimum(queue, system.slot_counts) * system.rates[0] * x_here).sum(axis=1)
        sigma = min((true / w).min(), (true.sum() - system.rate) / w.sum())
        constant = (c * true / w).sum() + (
            (c < system.slot_counts) * system.rates[0] * system.slot_counts**2 / (4 * w)
        ).sum()
        assert (drift <= constant - sigma * (queue.sum(axis=1) + c.sum()) + 1e-9).all()


# --- disagreement, and the best routing -------------------------------------------------------------------------------


def test_disagreement():
    system = System(9.0, TWO)
    assert exact.disagreement(system, "sed", "sed") == 0.0
    assert exact.disagreement(system, sed(ties="highest"), "sed") == 0.0  # every tied server is optimal
    assert exact.disagreement(system, sed_ratio(2), "sed") == 0.0
    assert exact.disagreement(system, esed([10, 20]), "sed") == 0.0
    slope = [exact.disagreement(system, esed([5, rate]), "sed") for rate in (9, 6, 4)]
    assert 0.0 < slope[0] < slope[1] < slope[2] < 1.0
    assert exact.disagreement(system, "random", "sed") > 0.3
    states, _, law = twin(system, sed_choice([5, 6], [1, 1]), 30)
    truth, wrong = sed_choice(TWO, [1, 1], "random"), sed_choice([5, 6], [1, 1])
    expected = sum(p for q, p in zip(states, law, strict=True) if not set(wrong(q)) <= set(truth(q)))
    assert slope[1] == pytest.approx(expected, abs=1e-6)


def value_iteration(system, level, rounds=20_000):
    """The least mean number of the truncated chain, by the book: relative value iteration on a uniformised chain."""
    (a, b), lam = system.rates[0], system.rate
    x, y = np.meshgrid(np.arange(level + 1), np.arange(level + 1), indexing="ij")
    fast = lam + (a * system.slot_counts[0] + b * system.slot_counts[1])
    da, db = a * np.minimum(x, system.slot_counts[0]), b * np.minimum(y, system.slot_counts[1])
    inside = x + y <= level
    v = np.zeros((level + 2, level + 2))
    gain = 0.0
    for _ in range(rounds):
        here = v[:-1, :-1]
        joined = np.where(x + y < level, np.minimum(v[1:, :-1], v[:-1, 1:]), here)
        left = np.where(x > 0, np.roll(here, 1, axis=0), here)
        down = np.where(y > 0, np.roll(here, 1, axis=1), here)
        new = x + y + lam * joined + da * left + db * down + (fast - lam - da - db) * here
        new = (new - (x + y)) / fast + (x + y) / fast
        gain = new[0, 0] - here[0, 0]
        span = np.ptp((new - here)[inside])
        v[:-1, :-1] = np.where(inside, new - new[0, 0], 0.0)
        if span < 1e-12:
            break
    return gain * fast


@pytest.mark.parametrize("slots", [[1, 1], [2, 1]])
def test_best_routing_by_value_iteration(slots):
    system = System(4.0, [1, 5], slots=slots)
    states = chains.lattice(2, 24)
    start = law_of(states.queue, system.slot_counts, system.weights[0], TIES["lowest"])
    found = chains.best_routing(states, system.rate, system.rates[0], system.slot_counts, start)
    assert found.mean_number == pytest.approx(value_iteration(system, 24), abs=1e-8)
    assert found.mean_number <= found.first


def test_sed_is_no_better_than_the_best():
    for rates, load in ((TWO, 0.6), ([1, 10], 0.6), ([1, 10], 0.8), ([1, 1], 0.8), ([1, 2], 0.3)):
        system = System(load * sum(rates), rates)
        best = exact.optimal(system)
        sed_number = exact.stationary(system, "sed").mean_number
        assert best.mean_number <= sed_number + 1e-8
        assert best.sed_mean_number == pytest.approx(sed_number, abs=1e-6)
        assert 0.0 <= best.gap < 0.15
        assert best.mean_sojourn_time == pytest.approx(best.mean_number / system.rate)
        again = exact.stationary(system, optimal(), tolerance=1e-6).mean_number
        assert again == pytest.approx(best.mean_number, abs=2e-6)
        others = [exact.stationary(system, policy).mean_number for policy in (jsq(), sed_ratio("3/2"))]
        assert best.mean_number <= min(others) + 1e-8
    assert exact.optimal(System(1.6, [1, 1])).gap < 1e-9  # equal servers: the shortest queue is optimal (Winston 1977)
    assert exact.optimal(System(8.8, [1, 10])).gap > 0.1


def test_table_and_policy_agree():
    system = System(9.9, [1, 10])
    table = exact.optimal(system, level=30).table
    assert table.shape == (31, 31) and table.dtype == np.int8
    q = np.add.outer(np.arange(31), np.arange(31))
    assert (table[q > 30] == -1).all() and set(np.unique(table[q <= 30])) == {0, 1}
    policy = optimal(level=30)
    params, _, _ = engine.prepare(policy, engine.shape_of(system, True))
    queue = np.array([[3, 4], [30, 0], [31, 0], [0, 40], [500, 900]])
    law = policy.law(params, system.weights[0], queue, system.slot_counts)
    fallback = law_of(queue, system.slot_counts, system.weights[0], TIES["lowest"])
    np.testing.assert_array_equal(law[2:], fallback[2:])
    assert law[0, table[3, 4]] == 1.0 and law[1, table[30, 0]] == 1.0
    with pytest.raises(ValueError, match="2 servers"):
        engine.prepare(optimal(), engine.shape_of(System(1.0, [1, 1, 1]), True))
    with pytest.raises(ValueError, match=r"at most 0\.95"):
        engine.prepare(optimal(), engine.shape_of(System(1.96, [1, 1]), True))
    with pytest.raises(ValueError, match="level"):
        engine.prepare(optimal(level=1.5), engine.shape_of(system, True))
    with pytest.raises(ValueError, match="level"):
        engine.prepare(optimal(level=1000), engine.shape_of(system, True))


# --- refusals ---------------------------------------------------------------------------------------------------------

PLAIN = System(9.0, TWO)


@pytest.mark.parametrize(
    ("system", "policy", "options", "says"),
    [
        (System(9.0, TWO, arrivals=arrivals.regular()), "sed", {}, "arrivals must be Poisson"),
        (System(arrivals=[0.0, 1.0, 2.0], service_rates=TWO), "sed", {}, "arrivals must be Poisson"),
        (System(9.0, TWO, service=service.deterministic()), "sed", {}, "service must be exponential"),
        (System(9.0, schedule([0, 5], [TWO, [6, 10]])), "sed", {}, "service_rates must be constant"),
        (System(19.0, TWO, allow_unstable=True), "sed", {}, "load below 1"),
        (PLAIN, "lased", {}, "policy must depend on the queue lengths alone"),
        (PLAIN, "round_robin", {}, "policy must depend on the queue lengths alone"),
        (PLAIN, "sedd", {}, "policy: no rule is called"),
        (PLAIN, esed(), {}, "rates"),
        (PLAIN, "sed", {"tolerance": 0.0}, "tolerance must be"),
        (PLAIN, "sed", {"tolerance": "x"}, "tolerance must be"),
        (PLAIN, "sed", {"tolerance": 1e-17}, "tolerance must be at least"),
        (PLAIN, "sed", {"level": 0}, "level must be"),
        (PLAIN, "sed", {"level": 10**6}, "level must leave at most"),
        (System(9.9, [1] * 11), "sed", {}, "cannot be met with"),
        (System(12.0, TWO), "random", {}, "server 1 6 jobs per time and it can serve 5"),
        (System(13.5, [1, 14]), "jiq", {}, "keep this system stable"),
    ],
)
def test_refusals(system, policy, options, says):
    with pytest.raises(ValueError, match=says) as caught:
        exact.stationary(system, policy, **options)
    assert "\n" not in str(caught.value)


def test_refusals_of_the_others():
    with pytest.raises(ValueError, match="2 servers"):
        exact.optimal(System(1.0, [1, 1, 1]))
    with pytest.raises(ValueError, match=r"at most 0\.95"):
        exact.optimal(System(1.98, [1, 1]))
    with pytest.raises(ValueError, match="policy must depend"):
        exact.disagreement(PLAIN, "sed", "greedy")
    with pytest.raises(ValueError, match="policy must depend"):
        exact.busy_period(PLAIN, "thompson_sed")
    with pytest.raises(ValueError, match="arrival_rate"):
        exact.mm1(2.0, 1.0)
    with pytest.raises(ValueError, match="servers"):
        exact.mmc(2.0, 1.0, 2.5)
    found = exact.stationary(PLAIN, "sed")
    with pytest.raises(ValueError, match="queue"):
        found.probability([1])
    with pytest.raises(ValueError, match="queue"):
        found.probability([1, -1])
    assert found.probability([500, 500]) == 0.0


# --- the simulator ----------------------------------------------------------------------------------------------------


@cache
def chunks(system, length, run):
    return list(engine.flows(system, length, 20, run))


def simulated(system, policy, length, runs, warm):
    """Per run: mean number over time, mean number found, mean sojourn time, shares, utilisation, disagreement."""
    n = system.servers
    rows = []
    for run in range(runs):
        player = engine.Player(policy, system, np.array([warm, length]), seed=20, run=run)
        for times, sizes in chunks(system, length, run):
            player.advance(times, sizes)
        first, last = player.record.rows
        change = last - first
        span, count = change[loop.TIME], length - warm
        served = change[loop.PER_SERVER : loop.PER_SERVER + n] / count
        busy = change[loop.PER_SERVER + n : loop.PER_SERVER + 2 * n] / span / system.slot_counts
        wrong = change[loop.WRONG : loop.WRONG + 3].sum() / count
        cycles = change[loop.BUSY_PERIODS] / span
        rows.append(
            [
                change[loop.AREA] / span,
                change[loop.FOUND] / count,
                change[loop.SOJOURN] / count,
                *served,
                *busy,
                wrong,
                cycles,
            ]
        )
    return np.array(rows)


def held_against(system, policies, length, runs=24, warm=5_000):
    for policy in policies:
        rows = simulated(system, policy, length, runs, warm)
        found = exact.stationary(system, policy, tolerance=1e-4)
        wrong = exact.disagreement(system, policy, "sed", tolerance=1e-4)
        cycles = system.rate * found.law[0]  # busy periods begin at rate λπ(0)
        known = [found.mean_number, found.mean_number, found.mean_sojourn_time]
        known += [*found.shares, *found.utilisation, wrong, cycles]
        error = rows.std(axis=0, ddof=1) / math.sqrt(runs)
        z = (rows.mean(axis=0) - known) / np.maximum(error, 1e-12)
        assert np.abs(z).max() <= 4.5, (policy.label, z)


@pytest.mark.parametrize(("load", "length"), [(0.3, 40_000), (0.6, 40_000), (0.9, 60_000), (0.95, 80_000)])
def test_simulator_of_two_servers(load, length):
    held_against(System(15 * load, TWO), [sed(), jsq(), sed_ratio("5/3")], length)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_simulator_of_three_servers(load):
    held_against(System(9 * load, [2, 3, 4]), [sed(), jsq()], 40_000)


def test_simulator_with_slots():
    held_against(System(8.0, [1, 2], slots=[4, 3]), [sed(), jsq(), jiq(), optimal()], 40_000)


def test_simulator_of_rules_that_draw():
    held_against(System(9.0, TWO), [sed(ties="random"), jiq(ties="random")], 40_000)
    held_against(System(1.8, [1, 1, 1]), [power_of_d(choices=2)], 40_000)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.6, 0.9, 0.95])
def test_simulator_of_two_servers_at_length(load):
    held_against(System(15 * load, TWO), [sed(), jsq(), sed_ratio("5/3")], 400_000, runs=40, warm=20_000)


@pytest.mark.slow
def test_simulator_of_three_servers_with_slots_at_length():
    held_against(System(9.6, [1, 1, 2], slots=[3, 1, 4]), [sed(), jsq()], 400_000, runs=40, warm=20_000)


@pytest.mark.slow
def test_three_servers_at_a_high_load_are_quick():
    import time

    system = System(2.4, [1, 1, 1])
    exact.stationary(system, make("sed"), tolerance=1e-2)
    began = time.perf_counter()
    exact.stationary(system, make("sed"), tolerance=1e-6)
    assert time.perf_counter() - began < 20.0
