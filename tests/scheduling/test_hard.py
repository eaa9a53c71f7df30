"""The hard instances, recomputed from scratch: success probabilities, separations, norms, divergences."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from queuewise.scheduling import exact, family, hard_instances, simulate, table_law
from queuewise.scheduling.contexts import hard

mu = lambda z: 1 / (1 + math.exp(-z))  # noqa: E731
LAWS = (hard_instances.wise_theorem_7, hard_instances.wise_theorem_8, hard_instances.cqb_eta_2_theorem_10)


def kl(p: float, q: float) -> float:
    """D_KL(Bern(p) ‖ Bern(q)) as the textbook has it."""
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def sign_vectors(d: int, servers: int) -> list[tuple[int, ...]]:
    d0 = min(d - 1, math.floor(math.log2(servers)))
    return list(itertools.product((-1, 1), repeat=d0))


def check_sign_family(members: list[Any], d: int, servers: int, top: float, eta: float) -> float:
    """Success probabilities from Hamming distances; features of norm 1. Gives the largest divergence between neighbours."""
    vectors = sign_vectors(d, servers)
    d0 = len(vectors[0])
    assert [member.signs for member in members] == vectors
    tables = {}
    for member in members:
        law = member.law
        assert law.features.shape == (1, d, servers)
        np.testing.assert_allclose(np.linalg.norm(law.features, axis=1), 1.0, rtol=1e-14)
        for k in range(servers):
            phi = law.features[0, :, k]
            assert phi[0] == pytest.approx(1 / math.sqrt(2), rel=1e-15)
            np.testing.assert_allclose(np.abs(phi[1 : d0 + 1]), 1 / math.sqrt(2 * d0), rtol=1e-14)
            np.testing.assert_array_equal(phi[d0 + 1 :], 0.0)
            wrong = sum(np.sign(phi[1 + a]) != member.signs[a] for a in range(d0))
            assert law.probabilities[0, k] == pytest.approx(mu(top - 2 * eta / d0 * wrong), rel=1e-13)
        # Every sign vector has a server, and d₀ coordinates are all that K servers can have.
        assert len({tuple(np.sign(law.features[0, 1 : d0 + 1, k])) for k in range(servers)}) == 2**d0
        tables[member.signs] = law.probabilities[0]
    worst = 0.0
    for signs, table in tables.items():
        for a in range(d0):
            other = tables[tuple(-s if a == b else s for b, s in enumerate(signs))]
            for p, q in zip(table, other, strict=True):
                assert abs(math.log(p / (1 - p)) - math.log(q / (1 - q))) == pytest.approx(2 * eta / d0, rel=1e-9)
                worst = max(worst, kl(p, q))
    return worst


@pytest.mark.parametrize(
    ("t", "d", "servers", "rate"),
    [(3, 2, 2, 0.25), (40, 3, 5, 0.1), (1000, 4, 8, 0.25), (5000, 6, 9, 0.02), (300, 3, 16, 0.2)],
)
def test_the_family_of_wise_theorem_7(t: int, d: int, servers: int, rate: float) -> None:
    members = hard_instances.members(
        hard_instances.wise_theorem_7, rounds=t, dimension=d, servers=servers, arrival_rate=rate
    )
    d0 = min(d - 1, math.floor(math.log2(servers)))
    p0 = mu(-0.25)
    eta = min(1 / 8, math.sqrt(p0) * d0 / (2 * math.sqrt(rate * t)))
    worst = check_sign_family(members, d, servers, 0.0, eta)
    assert worst <= (2 * eta / d0) ** 2 / 8 * (1 + 1e-9)
    assert rate * t / p0 * worst <= 1 / 8 * (1 + 1e-9)
    for member in members:
        assert member.arrival_rate == rate and member.parameter_bound == 0.25
        assert member.separation == pytest.approx(eta, rel=1e-14)
        assert member.theta is not None
        assert member.theta @ member.theta == pytest.approx(4 * eta**2, rel=1e-13)
        assert member.theta @ member.theta <= 1 / 16 * (1 + 1e-12)
        assert member.best == pytest.approx(0.5, rel=1e-14)
        assert member.law.probabilities.min() >= p0 * (1 - 1e-12)
        assert member.slack() == pytest.approx(1 - 2 * rate, rel=1e-12)
        assert member.bound == pytest.approx(0.75 * mu(0.25) * (1 - mu(0.25)) * rate * eta, rel=1e-13)


@pytest.mark.parametrize(
    ("t", "d", "servers", "slack"),
    [(4096, 2, 2, 1 / 8), (4096, 4, 8, 1 / 8), (20_000, 5, 40, 0.06), (10**6, 3, 3, 0.01)],
)
def test_the_family_of_wise_theorem_8(t: int, d: int, servers: int, slack: float) -> None:
    members = hard_instances.members(
        hard_instances.wise_theorem_8, rounds=t, dimension=d, servers=servers, capacity_slack=slack
    )
    d0 = min(d - 1, math.floor(math.log2(servers)))
    eta = min(1 / 8, d0 / math.sqrt(t)) / 20
    best = 0.25 / (1 - slack)
    worst = check_sign_family(members, d, servers, math.log(best / (1 - best)), eta)
    assert t * worst <= 1 / 800
    for member in members:
        assert member.arrival_rate == 0.25 and member.parameter_bound == 2.0
        assert member.theta is not None and member.theta @ member.theta < 4.0
        assert member.slack() == pytest.approx(slack, rel=1e-10)
        assert member.best == pytest.approx(best, rel=1e-14)
        wanted = min(1 / (8 * slack**2), d0 / (slack**2 * math.sqrt(t))) / (51200 * (2 + math.e**2 + math.e**-2))
        assert member.bound == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize(
    ("t", "d", "servers", "rate", "slack"),
    [(3, 2, 2, 0.5, 0.1), (1000, 3, 4, 0.5, 0.1), (50, 5, 3, 0.1, 0.05), (400, 4, 6, 0.8, 0.15)],
)
def test_the_two_instances_of_cqb_eta_2_theorem_10(t: int, d: int, servers: int, rate: float, slack: float) -> None:
    minus, plus = hard_instances.members(
        hard_instances.cqb_eta_2_theorem_10,
        rounds=t,
        dimension=d,
        servers=servers,
        arrival_rate=rate,
        context_slack=slack,
    )
    assert (minus.signs, plus.signs) == ((-1,), (1,))
    gamma = 1 - rate - slack
    right = 1 - gamma / 2 + gamma / (8 * math.sqrt(t))
    wrong = 1 - gamma / 2 - gamma / (8 * math.sqrt(t))
    bound = math.log((8 - 3 * gamma) / (3 * gamma)) * math.sqrt(d)
    for sign, member in ((-1, minus), (1, plus)):
        law = member.law
        assert law.features.shape == (2 ** (d - 1), d, servers)
        np.testing.assert_allclose(law.weights, 2.0 ** (1 - d))
        contexts = {tuple(np.sign(law.features[x, :, 0])) for x in range(len(law.weights))}
        assert contexts == {(1, *signs) for signs in itertools.product((-1, 1), repeat=d - 1)}
        for x in range(len(law.weights)):
            own = law.features[x, :, 0]
            np.testing.assert_allclose(np.abs(own), 1 / math.sqrt(d), rtol=1e-14)
            mirrored = own * np.where(np.arange(d) == 1, -1, 1)
            first_is_right = np.sign(own[1]) == sign
            for k in range(servers):
                np.testing.assert_array_equal(law.features[x, :, k], own if k == 0 else mirrored)
                expected = right if (k == 0) == first_is_right else wrong
                assert law.probabilities[x, k] == pytest.approx(expected, rel=1e-13)
        pairs = law.features.transpose(0, 2, 1).reshape(-1, d)
        np.testing.assert_allclose(pairs.T @ pairs / len(pairs), np.eye(d) / d, atol=1e-14)
        assert member.feature_diversity().value == pytest.approx(1 / d, rel=1e-12)
        assert np.linalg.norm(member.theta) <= bound * (1 + 1e-12)
        assert member.parameter_bound == pytest.approx(bound, rel=1e-14)
        assert member.context_slack().value >= slack
        assert member.bound == pytest.approx(rate * gamma * math.exp(-1 / 6) / (16 * math.sqrt(t)), rel=1e-14)
        assert member.separation == pytest.approx(gamma / (4 * math.sqrt(t)), rel=1e-12)
        assert all(check.holds for check in member.assumptions().values())
    assert (t - 2) * max(kl(right, wrong), kl(wrong, right)) <= 1 / 6


def test_divergences_are_those_of_the_attempts() -> None:
    one, other = hard_instances.members(hard_instances.cqb_eta_2_theorem_10, rounds=100)
    found = hard_instances.divergences(one, other)
    wanted = [
        [kl(p, q) for p, q in zip(a, b, strict=True)]
        for a, b in zip(one.law.probabilities, other.law.probabilities, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    np.testing.assert_allclose(hard_instances.divergences(one, one), 0.0, atol=1e-30)
    with pytest.raises(ValueError, match=r"^one and other must share one table of contexts"):
        hard_instances.divergences(one, table_law([[[1.0]]], [[0.8]], arrival_rate=0.5))


@pytest.mark.parametrize("law", LAWS)
def test_every_fact_holds_and_says_what_it_compares(law: Any) -> None:
    member = law()
    assert len(member.facts) >= 9
    assert all(fact.holds for fact in member.facts)
    assert len({fact.name for fact in member.facts}) == len(member.facts)
    assert "no policy's average regret" in member.describe()


@pytest.mark.parametrize(
    ("fact", "holds"),
    [
        (hard.Fact("", 1.0, "<=", 1.0), True),
        (hard.Fact("", 1.0 + 1e-6, "<=", 1.0), False),
        (hard.Fact("", 1e-8 * 1.001, "<=", 1e-8), False),  # rounding is relative: small limits are not forgiven
        (hard.Fact("", 0.9, ">=", 1.0), False),
        (hard.Fact("", 1.0, "=", 1.0 + 1e-12), True),
        (hard.Fact("", 1.0, "=", 1.0 + 1e-6), False),
    ],
)
def test_facts_are_compared_up_to_rounding(fact: hard.Fact, holds: bool) -> None:
    assert fact.holds is holds


def test_an_instance_that_fails_a_fact_does_not_come_into_being(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hard, "theorem_7_separation", lambda *_, **__: 0.2)
    with pytest.raises(
        ArithmeticError, match=r"^WISE Theorem 7: \|\|theta\|\|\^2 = 4 eta\^2 must be <= 0.0625, but is 0.16"
    ):
        hard_instances.wise_theorem_7(rounds=10)


def test_seeds_draw_every_member_alike() -> None:
    signs = [hard_instances.wise_theorem_7(rounds=50, seed=seed).signs for seed in range(400)]
    counts = np.unique(signs, axis=0, return_counts=True)[1]
    assert len(counts) == 8
    assert ((counts - 50) ** 2 / 50).sum() < 24.3  # 0.999 quantile of χ²(7)
    assert hard_instances.wise_theorem_7(seed=3).signs == hard_instances.wise_theorem_7(seed=3).signs
    assert {hard_instances.cqb_eta_2_theorem_10(seed=seed).signs for seed in range(20)} == {(1,), (-1,)}


@pytest.mark.parametrize("law", LAWS)
def test_a_family_draws_a_member_per_run_and_the_oracle_does_not_see_which(law: Any) -> None:
    rounds = 4096 if law is hard_instances.wise_theorem_8 else 60
    result = simulate(family(law, rounds=rounds), ["fifo_random"], rounds=60, runs=6, seed=2)
    one = simulate(law(rounds=rounds), ["fifo_random"], rounds=60, runs=6, seed=2)
    np.testing.assert_array_equal(result.oracle_queue_length, one.oracle_queue_length)
    assert len(exact.classes(law(rounds=rounds))[0]) == 1


@pytest.mark.parametrize(
    ("law", "arguments", "sentence"),
    [
        (LAWS[0], {"arrival_rate": 0.3}, r"^arrival_rate must be at most 0.25 \(WISE, Theorem 7\), not 0.3"),
        (LAWS[0], {"rounds": 2}, r"^t must be a whole number of at least 3, not 2"),
        (LAWS[0], {"dimension": 1}, r"^dimension must be a whole number of at least 2, not 1"),
        (LAWS[0], {"servers": 1}, r"^servers must be a whole number of at least 2, not 1"),
        (LAWS[0], {"signs": (1, 1)}, r"^signs must be 3 numbers -1 or \+1, not \[1, 1\]"),
        (LAWS[0], {"signs": (1, 0, 1)}, r"^signs must be 3 numbers -1 or \+1"),
        (LAWS[0], {"seed": -1}, r"^seed must be a whole number of at least 0, not -1"),
        (LAWS[1], {"capacity_slack": 0.2}, r"^capacity_slack must be at most 0.125 \(WISE, Theorem 8\), not 0.2"),
        (LAWS[1], {"rounds": 4000}, r"^t must be at least 64/capacity_slack\^2 = 4096 \(WISE, Theorem 8\), not 4000"),
        (LAWS[2], {"context_slack": 0.5}, r"^context_slack must lie strictly between 0 and 0.5 \(1 - arrival_rate"),
        (
            LAWS[2],
            {"parameter_bound": 2.0},
            r"^parameter_bound must be at least B sqrt\(d\) = 3.00442 \(CQB-eta-2, Theorem 10\), not 2",
        ),
        (
            LAWS[2],
            {"dimension": 15},
            r"^dimension must be at most 14, since the instance has 2\^\(dimension - 1\) contexts",
        ),
    ],
)
def test_numbers_out_of_range_are_refused(law: Any, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        law(**arguments)


def test_members_are_all_of_them() -> None:
    with pytest.raises(ValueError, match=r"^seed must be left out: members gives"):
        hard_instances.members(hard_instances.wise_theorem_7, seed=1)
    assert len(hard_instances.members(hard_instances.wise_theorem_8)) == 8
