"""Exact laws of the oracle's queue against slow twins that enumerate everything."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from queuewise.scheduling import exact, family, function_law, hard_instances, simulate, table_law, uniform_law
from queuewise.scheduling.systems import System
from tests.naive import queueing as naive

RATE = 0.3
BEST = np.array([0.9, 0.5, 0.35])
WEIGHTS = np.array([0.5, 0.3, 0.2])


def system(
    best: np.ndarray = BEST, weights: np.ndarray | None = WEIGHTS, rate: float = RATE, **options: object
) -> System:
    """One context per best probability, with a second server that is worse."""
    features = np.ones((len(best), 2, 1))
    return table_law(features, np.column_stack([0.5 * best, best]), arrival_rate=rate, weights=weights, **options)  # type: ignore[arg-type]


# --- one class


@pytest.mark.parametrize(("rate", "p"), [(0.25, 0.5), (0.25, 2 / 7), (0.6, 0.9), (0.05, 1.0)])
def test_one_context_is_geo_geo_1(rate: float, p: float) -> None:
    law = exact.stationary(system(np.array([p]), None, rate))
    size = len(law.probabilities)
    np.testing.assert_allclose(law.probabilities, naive.geo_geo_1_law(rate, p, size), atol=1e-15)
    assert law.mean == pytest.approx(naive.geo_geo_1_mean(rate, p), rel=1e-13)
    assert exact.geo_geo_1_mean(rate, p) == pytest.approx(law.mean, rel=1e-14)
    for q in range(min(size, 6)):
        assert exact.geo_geo_1_tail(q, rate, p) == pytest.approx(naive.geo_geo_1_tail(rate, p, q), rel=1e-13)
        assert law.tail(q) == pytest.approx(naive.geo_geo_1_tail(rate, p, q), abs=1e-9)
    assert 1 - law.probabilities.sum() <= law.truncation_error <= 1e-9


def test_contexts_with_one_best_probability_are_one_class() -> None:
    many = table_law(np.ones((3, 2, 1)), [[0.8, 0.1], [0.2, 0.8], [0.8, 0.7]], arrival_rate=0.5)
    best, weights = exact.classes(many)
    np.testing.assert_allclose(best, [0.8])
    np.testing.assert_allclose(weights, [1.0])
    assert exact.stationary(many).mean == pytest.approx(naive.geo_geo_1_mean(0.5, 0.8), rel=1e-12)


def test_a_stable_queue_is_wanted() -> None:
    with pytest.raises(ValueError, match=r"^p must lie above arrival_rate = 0.5 and be at most 1, not 0.5"):
        exact.geo_geo_1_mean(0.5, 0.5)
    with pytest.raises(ValueError, match=r"^q must be a whole number of at least 0, not -1"):
        exact.geo_geo_1_tail(-1, 0.5, 0.8)
    unstable = system(np.array([0.4, 0.2]), None, 0.5, allow_unstable=True)
    with pytest.raises(ValueError, match=r"^system must have positive capacity slack, or no stationary law exists"):
        exact.stationary(unstable)
    assert exact.transient(unstable, 30).mean[-1] > 5.0


# --- several classes


@pytest.mark.parametrize(
    ("best", "weights", "rate", "limit"),
    [
        (BEST, WEIGHTS, RATE, 8),
        (np.array([0.9, 0.35]), np.array([0.7, 0.3]), 0.45, 20),
        (np.array([0.3, 0.8]), None, 0.3, 15),
    ],
)
def test_the_stationary_law_is_that_of_the_enumerated_chain(
    best: np.ndarray, weights: np.ndarray | None, rate: float, limit: int
) -> None:
    found = exact.stationary(system(best, weights, rate), limit=limit)
    shares = np.full(len(best), 1 / len(best)) if weights is None else weights
    np.testing.assert_allclose(found.probabilities, naive.oracle_stationary(rate, shares, best, limit), atol=1e-12)


@pytest.mark.parametrize("limit", [4, 8, 16])
def test_the_truncation_error_covers_the_truth(limit: int) -> None:
    cut, whole = exact.stationary(system(), limit=limit), exact.stationary(system(), limit=32)
    assert whole.truncation_error < 1e-10
    missing = whole.mean - cut.mean
    assert 0 <= missing <= cut.truncation_error + 1e-12
    # It is not merely large: classes differ by a factor of 0.9/0.35, so the bound may be that much above the truth.
    assert cut.truncation_error <= 0.9 / 0.35 * missing + 1e-9
    laws = np.zeros((2, 33))
    laws[0, : limit + 1], laws[1] = cut.probabilities, whole.probabilities
    assert 0.5 * np.abs(laws[0] - laws[1]).sum() <= cut.truncation_error + 1e-12


def test_without_a_limit_the_tolerance_is_met() -> None:
    law = exact.stationary(system(), tolerance=1e-8)
    assert law.truncation_error <= 1e-8
    assert law.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert law.probabilities[0] == pytest.approx(system().slack(), abs=1e-8)  # idle rounds are the capacity slack


def test_the_mean_workload_is_that_of_the_enumerated_chain() -> None:
    best, weights, rate, limit = np.array([0.9, 0.5]), np.array([0.6, 0.4]), 0.3, 20
    law = {(0, 0): 1.0}
    for _ in range(200):
        following: dict[tuple[int, ...], float] = {}
        for state, mass in law.items():
            for target, chance in naive._step(state, rate, weights, best):
                if sum(target) <= limit and mass > 1e-13:
                    following[target] = following.get(target, 0.0) + mass * chance
        law = following
    work = sum(mass * float(np.dot(state, 1 / best)) for state, mass in law.items())
    assert exact.mean_workload(system(best, weights, rate)) == pytest.approx(work, rel=1e-8)
    one = system(np.array([0.7]), None, 0.4)
    assert exact.mean_workload(one) == pytest.approx(naive.geo_geo_1_mean(0.4, 0.7) / 0.7, rel=1e-12)


def test_transient_laws_are_those_of_the_enumerated_chain() -> None:
    found = exact.transient(system(), 12)
    wanted = naive.oracle_transient(RATE, WEIGHTS, BEST, 12)
    np.testing.assert_allclose(found.probabilities, wanted, atol=1e-14)
    np.testing.assert_allclose(found.mean, wanted @ np.arange(12), atol=1e-13)
    np.testing.assert_array_equal(found.truncation_error, 0.0)


def test_a_limit_of_transient_laws_loses_no_more_than_it_says() -> None:
    cut, whole = exact.transient(system(), 40, limit=4), exact.transient(system(), 40)
    for t in range(40):
        lost = 1 - cut.probabilities[t].sum()
        assert lost == pytest.approx(cut.truncation_error[t], abs=1e-12)
        assert whole.mean[t] - cut.mean[t] <= cut.truncation_error[t] * (t + 1) + 1e-12
    assert 0 < cut.truncation_error[-1] < 0.05
    assert exact.transient(system(), 1).mean.tolist() == [0.0]


def test_transient_laws_are_what_the_simulator_plays() -> None:
    played = simulate(system(), ["random"], rounds=60, runs=2000, seed=3).oracle_queue_length
    wanted = exact.transient(system(), 60)
    error = played.std(axis=0, ddof=1) / np.sqrt(2000)
    z = (played.mean(axis=0) - wanted.mean)[1:] / error[1:]
    assert np.abs(z).max() < 4.5


def test_a_finite_law_is_wanted() -> None:
    def draw(rng: np.random.Generator, jobs: int) -> np.ndarray:
        return rng.uniform(-0.5, 0.5, size=(jobs, 2, 3))

    with pytest.raises(ValueError, match=r"^system must keep jobs until they are done, but gives them up after 3"):
        exact.stationary(system(max_attempts=3))
    no_server = table_law(np.ones((2, 1, 1)), [[0.5], [0.0]], arrival_rate=0.2, allow_unstable=True)
    with pytest.raises(ValueError, match=r"^system must have a server for every context, but some context has p\* = 0"):
        exact.transient(no_server, 5)
    sampled = function_law(draw, arrival_rate=0.2, theta=np.ones(3), feature_bound=1.0)
    with pytest.raises(ValueError, match=r"^system must have a finite context law"):
        exact.stationary(sampled)
    assert len(exact.classes(uniform_law(pool=20, seed=1))[0]) <= 20


# --- what becomes of one job too many


@pytest.mark.parametrize(("rate", "p"), [(0.25, 0.5), (0.25, 2 / 7), (0.5, 0.8)])
def test_persistence_is_the_difference_of_two_mean_queues(rate: float, p: float) -> None:
    rounds, largest = 12, 5
    found = exact.persistence(rate, p, rounds, largest)
    step = naive.geo_geo_1_matrix(rate, p, 40)
    mean = np.arange(40.0)
    for s in range(rounds):
        np.testing.assert_allclose(found[s], (mean[1:] - mean[:-1])[: largest + 1], atol=1e-13)
        mean = step @ mean


def test_conditional_regret_has_the_mean_of_the_regret() -> None:
    """Every path of a queue that is served at 0.4 where 0.7 would be best, six rounds."""
    rate, p, best, rounds = 0.35, 0.4, 0.7, 6
    chances, gaps, queues = [], [], []
    for arrivals in itertools.product((0, 1), repeat=rounds - 1):
        for done in itertools.product((0, 1), repeat=rounds - 1):
            queue, chance = [0], 1.0
            for arrives, departs in zip(arrivals, done, strict=True):
                chance *= rate if arrives else 1 - rate
                chance *= (p if departs else 1 - p) if queue[-1] else 1 - departs
                queue.append(queue[-1] + arrives - departs)
            if chance > 0:
                chances.append(chance)
                queues.append(queue)
                gaps.append([(best - p) * (q > 0) for q in queue])
    assert sum(chances) == pytest.approx(1.0)
    found = exact.conditional_regret(gaps, queues, rate, best)
    wanted = [naive.geo_geo_1_transient(rate, each, rounds)[-1] @ np.arange(rounds) for each in (p, best)]
    assert np.dot(chances, found) == pytest.approx(wanted[0] - wanted[1], rel=1e-12)
    assert found.min() >= 0


@pytest.mark.parametrize(
    ("law", "arguments"),
    [
        (hard_instances.wise_theorem_7, {"rounds": 200}),
        (hard_instances.cqb_eta_2_theorem_10, {"rounds": 200, "servers": 2}),
    ],
)
def test_random_on_a_hard_family_has_its_exact_regret(law: object, arguments: dict[str, int]) -> None:
    """Uniform servers succeed with the mean over servers, whichever job is served: the queue is Geo/Geo/1."""
    one = law(**arguments)  # type: ignore[operator]
    rounds = arguments["rounds"]
    result = simulate(family(law, **arguments), ["random"], rounds=rounds, runs=400, seed=11, trace=True)  # type: ignore[arg-type]
    queue = result.queue_length["random"]
    found = exact.conditional_regret(result.trace["random"].gap, queue, one.arrival_rate, one.best)
    mean = float(one.law.probabilities.mean())
    sizes = np.arange(rounds)
    wanted = [
        float(naive.geo_geo_1_transient(one.arrival_rate, p, rounds, 120)[-1] @ sizes[:120]) for p in (mean, one.best)
    ]
    exact_regret = wanted[0] - wanted[1]
    z = (found.mean() - exact_regret) / (found.std(ddof=1) / 20)
    assert abs(z) < 4
    plain = queue[:, -1] - result.oracle_queue_length[:, -1]
    assert abs(plain.mean() - exact_regret) < 4 * plain.std(ddof=1) / 20 + 0.02
    # What it is for: the same mean from far fewer runs.
    assert found.std() < 0.5 * np.sqrt(exact_regret)


def test_conditional_regret_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"^gaps and queue_lengths must have one shape \[runs, rounds\], not"):
        exact.conditional_regret(np.zeros((2, 3)), np.zeros((2, 4), dtype=int), 0.3, 0.5)
    np.testing.assert_array_equal(exact.conditional_regret(np.ones((2, 1)), np.zeros((2, 1), dtype=int), 0.3, 0.5), 0.0)
    with pytest.raises(ValueError, match=r"^p must lie strictly between 0 and 1, not 1.0"):
        exact.persistence(0.3, 1.0, 3, 2)


# --- the best of all policies


def best_of_all(rate: float, right: float, wrong: float, rounds: int) -> float:
    """The least average regret, by recursion over everything that can have been seen (counts of each kind and outcome)."""

    @functools.cache
    def cost(t: int, q: int, a1: int, a0: int, b1: int, b0: int) -> float:
        if t == rounds:
            return float(q)
        after = [(1 - rate, 0), (rate, 1)]
        if q == 0:
            return sum(chance * cost(t + 1, more, a1, a0, b1, b0) for chance, more in after)
        plus = right**a1 * (1 - right) ** a0 * wrong**b1 * (1 - wrong) ** b0
        minus = wrong**a1 * (1 - wrong) ** a0 * right**b1 * (1 - right) ** b0
        ways = []
        for first in (True, False):
            belief = (plus if first else minus) / (plus + minus)
            p = belief * right + (1 - belief) * wrong
            done, failed = ((a1 + 1, a0, b1, b0), (a1, a0 + 1, b1, b0))
            if not first:
                done, failed = ((a1, a0, b1 + 1, b0), (a1, a0, b1, b0 + 1))
            ways.append(
                sum(
                    chance * (p * cost(t + 1, q - 1 + more, *done) + (1 - p) * cost(t + 1, q + more, *failed))
                    for chance, more in after
                )
            )
        return min(ways)

    oracle = naive.geo_geo_1_transient(rate, right, rounds)[-1] @ np.arange(rounds)
    return float(cost(1, 0, 0, 0, 0, 0) - oracle)


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(("rate", "right", "wrong"), [(0.25, 0.5, 0.44), (0.5, 0.85, 0.75), (0.6, 0.9, 0.1)])
def test_the_least_average_is_that_of_every_history(rate: float, right: float, wrong: float, rounds: int) -> None:
    found = exact.least_average_regret(rate, right, wrong, rounds)
    assert found == pytest.approx(best_of_all(rate, right, wrong, rounds), abs=1e-13)


@pytest.mark.parametrize("t", [3, 4, 10, 60])
def test_no_policy_at_all_is_below_the_bounds(t: int) -> None:
    """The theorems themselves, on their families of two members: the minimum over all policies against the bound."""
    seventh = hard_instances.wise_theorem_7(rounds=t, dimension=2, servers=2)
    tenth = hard_instances.cqb_eta_2_theorem_10(rounds=t)
    for member in (seventh, tenth):
        wrong = float(member.law.probabilities.min())  # type: ignore[attr-defined]
        least = exact.least_average_regret(member.arrival_rate, member.best, wrong, t)
        assert member.bound <= least <= 16 * member.bound
    # Two rounds before the end nothing is known: half of the newcomers get the wrong server.
    if t == 3:
        assert least == pytest.approx(0.5 * tenth.separation / 2, rel=1e-9)


def test_the_least_average_wants_a_right_and_a_wrong_server() -> None:
    with pytest.raises(
        ValueError, match=r"^wrong and right must satisfy 0 < wrong < right < 1, not wrong = 0.6, right = 0.5"
    ):
        exact.least_average_regret(0.25, 0.5, 0.6, 10)
    few, many = (exact.least_average_regret(0.25, 0.5, 0.44, 60, limit=limit) for limit in (20, 59))
    assert few == pytest.approx(many, rel=1e-6)


def test_many_classes_get_a_short_chain_that_says_how_far_off_it_is() -> None:
    p = 0.6 + 1e-6 * np.arange(20)  # twenty classes, but all nearly one
    many = table_law(features=[[[1.0 + x]] for x in p], probabilities=[[x] for x in p], arrival_rate=0.2)
    law = exact.stationary(many)
    assert law.probabilities.sum() == pytest.approx(1.0)
    assert 1e-9 < law.truncation_error < 0.05
    assert abs(law.mean - exact.geo_geo_1_mean(0.2, 0.6)) <= law.truncation_error + 1e-4


def test_too_many_classes_are_refused() -> None:
    p = np.linspace(0.3, 0.9, 9000)
    many = table_law(features=[[[x]] for x in p], probabilities=[[x] for x in p], arrival_rate=0.2)
    with pytest.raises(ValueError, match="9000 classes of jobs, too many for an exact law"):
        exact.stationary(many)
