"""What WISE and CQB-η-2 prove about numbers, against other ways to the same numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from queuewise.scheduling import exact, table_law, theory
from queuewise.scheduling.confidence import CQB_ETA_2, WISE, Radius, radius_at
from queuewise.scheduling.theory import cqb_eta_2 as cqb_theory
from queuewise.scheduling.theory import wise as wise_theory

BALL: dict[str, Any] = {"dimension": 4, "parameter_bound": 1.5}
#: Everything that Theorem 6 depends on, but t.
SIX: dict[str, Any] = {**BALL, "arrival_rate": 0.4, "capacity_slack": 0.3}
#: The same for Theorem 5 of CQB-η-2, but T.
FIVE: dict[str, Any] = {**BALL, "arrival_rate": 0.6, "context_slack": 0.2, "diversity": 0.2}


def kappa(bound: float) -> float:
    return 2 + math.exp(bound) + math.exp(-bound)


# --- radii


@pytest.mark.parametrize("t", [0, 1, 17, 2000, 10**7])
@pytest.mark.parametrize(("d", "bound"), [(1, 0.3), (5, 2.0), (10, 4.0)])
def test_radii_are_those_that_the_policies_use(t: int, d: int, bound: float) -> None:
    compiled = Radius(WISE, 1.0, kappa(bound), bound, d, 1.0, 0.5)
    assert theory.wise_radius(t, dimension=d, parameter_bound=bound) == pytest.approx(radius_at(compiled, t), rel=1e-12)
    compiled = Radius(CQB_ETA_2, 1.0, kappa(bound), bound, d, 0.7, 1e-3)
    found = theory.cqb_eta_2_radius(t, dimension=d, parameter_bound=bound, ridge=0.7, delta=1e-3)
    assert found == pytest.approx(radius_at(compiled, t), rel=1e-12)
    if t >= 2:
        at_the_horizon = theory.cqb_eta_2_radius(t, dimension=d, parameter_bound=bound, ridge=0.7)
        assert at_the_horizon == pytest.approx(radius_at(compiled._replace(delta=float(t) ** -4), t), rel=1e-12)
    given = theory.cqb_eta_2_radius(t, dimension=d, parameter_bound=bound, ridge=0.7, delta=1e-3, kappa=50.0)
    assert given == pytest.approx(radius_at(compiled._replace(kappa=50.0), t), rel=1e-12)


# --- elliptical potential and workload


def test_no_sequence_of_unit_vectors_beats_the_elliptical_potential() -> None:
    rng = np.random.default_rng(4)
    for d, initial in itertools.product((1, 2, 5), (1.0, 6.7)):
        for spread in (0.0, 1.0):
            design, total = initial * np.eye(d), 0.0
            for t in range(1, 200):
                phi = (
                    rng.normal(size=d) if spread else np.linalg.eigh(design)[1][:, 0]
                )  # or always the widest direction
                phi /= max(np.linalg.norm(phi), 1.0)
                total += float(phi @ np.linalg.solve(design, phi))
                design += np.outer(phi, phi)
                assert total <= theory.elliptical_potential(t, dimension=d, kappa=initial) * (1 + 1e-12)
    # In one dimension with unit features the sum is Σ 1/(κ + i) and the bound 2 ln(1 + t/κ): less than a factor 2.2 apart.
    assert theory.elliptical_potential(199, dimension=1, kappa=6.7) < 2.2 * sum(1 / (6.7 + i) for i in range(199))


def test_wide_intervals_are_counted_by_the_potential() -> None:
    beta = theory.wise_radius(90, **BALL)
    wanted = beta**2 / 4 * theory.elliptical_potential(61, dimension=4, kappa=kappa(1.5)) / 0.2**2
    assert theory.wide_intervals(0.2, 30, 90, **BALL) == pytest.approx(wanted, rel=1e-13)
    assert theory.wide_intervals(0.1, 30, 90, **BALL) == pytest.approx(4 * wanted, rel=1e-13)


def test_workload_lies_between_the_queue_length_and_its_least_part() -> None:
    best = np.array([0.3, 0.7, 0.7, 0.55])
    found = theory.workload(best, parameter_bound=1.5)
    floor = 1 / (1 + math.exp(1.5))
    assert found == pytest.approx(floor * (1 / 0.3 + 2 / 0.7 + 1 / 0.55), rel=1e-14)
    assert floor * 4 <= found <= 4
    assert theory.workload([], parameter_bound=1.5) == 0.0
    with pytest.raises(ValueError, match=r"^best must lie in \[mu\(-S\), 1\]"):
        theory.workload([0.1], parameter_bound=1.5)


def test_the_workload_drifts_as_one_round_enumerated() -> None:
    probabilities = np.array([[0.6, 0.3], [0.35, 0.5]])
    weights = np.array([0.25, 0.75])
    system = table_law(np.ones((2, 2, 1)), probabilities, arrival_rate=0.3, weights=weights)
    floor = theory.least_probability(1.5)
    best = probabilities.max(axis=1)
    for x, k in itertools.product(range(2), range(2)):
        p = probabilities[x, k]
        expected = 0.0
        for done, chance in ((1, p), (0, 1 - p)):
            for arrives, of_arrival in ((0, 0.7), (1, 0.3)):
                new = weights @ (1 / best) if arrives else 0.0
                expected += chance * of_arrival * floor * (new - done / best[x])
        found = theory.workload_drift(p, best[x], capacity_slack=system.slack(), parameter_bound=1.5)
        assert found == pytest.approx(expected, rel=1e-12)
        gap = best.max() - p  # the largest departure rate gap that this choice can have
        assert found <= -system.slack() * floor + gap + 1e-15
    with pytest.raises(ValueError, match=r"^chosen must lie between mu\(-S\) = 0.182426 and best = 0.5, not 0.6"):
        theory.workload_drift(0.6, 0.5, capacity_slack=0.2, parameter_bound=1.5)


def test_workload_growth_adds_up_its_three_parts() -> None:
    drift = 0.3 * theory.least_probability(1.5)
    wide = theory.wide_intervals(drift / 4, 11, 1000, **BALL)
    wanted = -drift * 990 / 2 + wide + math.sqrt(8 * 990 * math.log(20))
    assert theory.workload_growth(11, 1000, **BALL, capacity_slack=0.3, delta=0.05) == pytest.approx(wanted, rel=1e-13)
    # 8d/(ε²p̲²) β² ln(1 + ℓ/(dκ)) is what the paper writes for the second.
    beta = theory.wise_radius(1000, **BALL)
    assert wide == pytest.approx(8 * 4 * beta**2 / drift**2 * math.log(1 + 990 / (4 * kappa(1.5))), rel=1e-13)


def test_lemma_12_holds_from_13_on() -> None:
    t = 10**13
    numbers: dict[str, Any] = {**BALL, "capacity_slack": 0.3}
    found = theory.lemma_12(t, t, **numbers)
    drift = 0.3 * theory.least_probability(1.5)
    assert found.length == theory.proof_lengths(t, **numbers)[0]
    assert found.never_empty == pytest.approx((1024**2 + 2) / (drift * t) ** 2)
    assert found.mean_workload == pytest.approx(found.length + found.workload_tail * t)
    assert theory.lemma_12(t // 2, t, **numbers) == found
    with pytest.raises(ValueError, match=r"^at must lie in \[t/3, t\]"):
        theory.lemma_12(t // 4, t, **numbers)
    with pytest.raises(
        ValueError, match=r"^t must be at least C4 d beta_t\^2 ln t .*\(WISE \(13\), C4 = 1536\), and is a factor"
    ):
        theory.lemma_12(10**6, 10**6, **numbers)
    # What the proof derives from (13): (19), (22), (24), (25), (26).
    ell, _ = theory.proof_lengths(t, **numbers)
    beta, log_t, d = theory.wise_radius(t, **BALL), math.log(t), 4
    edge = t * math.exp(wise_theory._margin_13(t, wise_theory.CONDITION_CONSTANT, **numbers) * -1)
    assert edge < t
    assert ell <= t / 12
    assert 8 * d * beta**2 / drift**2 * log_t <= drift * (t / 3) / 64
    assert drift**2 * t / 1536 >= 2 * log_t
    assert ell >= 384 * log_t / drift**2 >= 16 / drift


def test_lemma_13_is_its_formula() -> None:
    beta = theory.wise_radius(101, **BALL)
    floor = theory.least_probability(1.5)
    wanted = (
        2 / (0.3 * floor * 60) * (floor * 4 * beta**2 / (2 * 0.4 * 0.25) * math.log(1 + 60 / (4 * kappa(1.5))) + 3 + 7)
    )
    found = theory.wide_newcomers(0.5, 41, 100, **SIX, mean_workload=3.0, large_gaps=7.0)
    assert found == pytest.approx(wanted, rel=1e-13)


def test_lemma_17_bounds_the_exact_persistence() -> None:
    rate, p = 0.3, 0.6
    slack = 1 - rate / p
    bound = math.log(0.6 / 0.4)  # S such that p is p̄
    kept = exact.persistence(rate, p, 9000, 4)
    floor = theory.least_probability(bound)
    for remaining, q in itertools.product((1, 10, 500, 9000), (1, 3)):
        found = theory.persistence_bound(remaining, floor * q / p, capacity_slack=slack, parameter_bound=bound)
        # After the error the queue has q jobs where it would have q − 1, before the arrival.
        truth = (1 - rate) * kept[remaining - 1, q - 1] + rate * kept[remaining - 1, q]
        assert truth <= found
    assert theory.persistence_bound(9000, 1.0, capacity_slack=slack, parameter_bound=bound) < 1.0


# --- Theorem 6


def naive_condition(t: int, power: int, drift_power: int, constant: float) -> Any:
    """The right-hand sides of (53) and (62), second, with 60 digits."""
    with mp.workdps(60):
        lam, eps, p, d = mp.mpf("0.4"), mp.mpf("0.3"), 1 / (1 + mp.e ** mp.mpf("1.5")), 4
        k = 2 + mp.e ** mp.mpf("1.5") + mp.e ** mp.mpf("-1.5")
        beta = k / 2 * mp.sqrt(d * mp.log(1 + t / (d * k)) + 4 * mp.log(t + 1)) + mp.sqrt(k) * mp.mpf("1.5")
        top = constant * eps * (eps * p**2 + lam) ** 2 * (d * beta**2) ** power * mp.log(t) ** 6
        return top / (lam * (eps * p) ** drift_power * mp.log(mp.e / lam))


@pytest.mark.parametrize("t", [3, 1000, 10**30, 10**80])
def test_conditions_of_theorem_6_with_their_margins(t: int) -> None:
    found = theory.theorem_6_conditions(t, **SIX, constant=2000.0)
    assert [condition.name.split(":")[0] for condition in found] == [
        "t >= 3",
        "(13)",
        "(53)",
        "(62), first",
        "(62), second",
    ]
    for condition, powers in ((found[2], (5, 16)), (found[4], (7, 20))):
        need = naive_condition(t, *powers, 2000.0)
        assert condition.margin == pytest.approx(float(mp.log(t / need)), rel=1e-9, abs=1e-9)
        assert condition.holds is bool(t >= need)
    drift = math.log(0.3 * theory.least_probability(1.5))
    assert found[1].margin - found[3].margin == pytest.approx(-drift, rel=1e-12)
    assert not theory.theorem_6_conditions(2, **SIX)[0].holds


def test_the_first_round_of_theorem_6_is_where_its_conditions_begin_to_hold() -> None:
    first = theory.theorem_6_first_round(**SIX)
    assert first > 1e30
    for factor, wanted in ((1.001, True), (0.999, False)):
        met = all(condition.holds for condition in theory.theorem_6_conditions(int(first * factor), **SIX))
        assert met is wanted
    assert theory.theorem_6_first_round(**SIX, constant=1e6) > 100 * first
    with pytest.raises(
        ValueError, match=r"^conditions \(62\) of WISE's Theorem 6 must be met by some round below 1e300"
    ):
        theory.theorem_6_first_round(**{**SIX, "parameter_bound": 40.0})


def test_theorem_6_falls_like_one_over_the_root_of_t() -> None:
    first = theory.theorem_6_first_round(**SIX)
    t = int(2 * first)
    found = theory.theorem_6(t, **SIX)
    floor, beta = theory.least_probability(1.5), theory.wise_radius(t, **BALL)
    wanted = 0.3**-4.5 * floor**-4 * beta * math.log(t) ** 2 * math.sqrt(0.4 * 4 * math.log(math.e / 0.4) / t)
    assert found == pytest.approx(wanted, rel=1e-12)
    assert theory.theorem_6(t, **SIX, absolute_constant=3.0) == pytest.approx(3 * found, rel=1e-14)
    assert theory.theorem_6(100 * t, **SIX) * 10 == pytest.approx(found, rel=0.5)
    gap = theory.lemma_5_shape(t, **SIX)
    assert gap == pytest.approx(
        0.3**-2.5 * floor**-2 * beta * math.log(t) * math.sqrt(1.6 * math.log(math.e / 0.4) / t)
    )
    with pytest.raises(ValueError, match=r"^t must meet \(13\): .*, and is a factor .* too small at 1000000000"):
        theory.theorem_6(10**9, **SIX)


# --- lower bounds


def test_theorem_7_is_the_last_line_of_its_proof() -> None:
    slope = math.exp(0.25) / (1 + math.exp(0.25)) ** 2
    p0 = 1 / (1 + math.exp(0.25))
    for t, d, servers, rate in itertools.product((3, 50, 10**5), (2, 5), (2, 9, 64), (0.01, 0.25)):
        d0 = min(d - 1, math.floor(math.log2(servers)))
        wanted = 3 * slope / 4 * min(rate / 8, math.sqrt(p0) * d0 * math.sqrt(rate / t) / 2)
        assert theory.theorem_7(t, dimension=d, servers=servers, arrival_rate=rate) == pytest.approx(wanted, rel=1e-13)
        # The theorem as stated: C₀⁻¹ min{λ, min{d, log K}√(λ/t)} with one C₀ for all.
        stated = min(rate, min(d, math.log(servers)) * math.sqrt(rate / t))
        assert wanted >= stated / 70


def test_theorem_8_is_the_last_line_of_its_proof() -> None:
    for slack, d, servers in itertools.product((1 / 8, 0.02), (2, 9), (2, 1000)):
        for t in (math.ceil(64 / slack**2), 10**7):
            d0 = min(d - 1, math.floor(math.log2(servers)))
            wanted = min(1 / (8 * slack**2), d0 / (slack**2 * math.sqrt(t))) / (51200 * (2 + math.e**2 + math.e**-2))
            found = theory.theorem_8(t, dimension=d, servers=servers, capacity_slack=slack)
            assert found == pytest.approx(wanted, rel=1e-13)
            # ℓη/80/(2 + e² + e⁻²) with ℓ = ⌊1/(16ε²)⌋ is what the proof has before it rounds ℓ down to 1/(32ε²).
            eta = theory.theorem_8_separation(t, dimension=d, servers=servers, capacity_slack=slack)
            assert found <= theory.lemma_18(slack).busy * eta / 80 / (2 + math.e**2 + math.e**-2) * (1 + 1e-12)


@pytest.mark.parametrize("slack", [1 / 8, 1 / 12])
def test_lemma_18_holds_exactly(slack: float) -> None:
    best = 0.25 / (1 - slack)
    numbers = theory.lemma_18(slack)
    system = table_law([[[1.0]]], [[best]], arrival_rate=0.25)
    settled = exact.transient(system, numbers.settled, limit=150)
    tail = settled.probabilities[-1, numbers.queue :].sum()
    assert tail >= 1 / 20  # part (i): what is beyond the limit only adds to it
    # Part (ii): a queue of q₀ − 1 jobs that still differs from one of q₀ − 2 has not been empty.
    kept = exact.persistence(0.25, best, numbers.busy + 1, numbers.queue)
    assert kept[numbers.busy, numbers.queue - 2] >= 1 / 2


def test_theorem_10_is_its_formula() -> None:
    least = theory.theorem_10_least_bound(5, arrival_rate=0.6, context_slack=0.2)
    assert least == pytest.approx(math.log((8 - 0.6) / 0.6) * math.sqrt(5), rel=1e-13)
    numbers: dict[str, Any] = {"dimension": 5, "servers": 3, "arrival_rate": 0.6, "context_slack": 0.2}
    found = theory.theorem_10(900, **numbers, parameter_bound=least, diversity=0.2)
    assert found == pytest.approx(0.6 * 0.2 * math.exp(-1 / 6) / (16 * 30), rel=1e-13)
    right, wrong = theory.theorem_10_probabilities(900, arrival_rate=0.6, context_slack=0.2)
    assert (right, wrong) == pytest.approx((0.9 + 0.2 / 240, 0.9 - 0.2 / 240), rel=1e-14)
    # λ(p_T − q_T)·½e^{−1/6}, halved for the average of the two.
    assert found == pytest.approx(0.6 * (right - wrong) * math.exp(-1 / 6) / 4, rel=1e-10)


def test_bernoulli_divergence_to_many_digits() -> None:
    with mp.workdps(60):
        for p, q in ((0.3, 0.7), (0.5, 0.5 + 1e-5), (0.99, 0.98), (1e-6, 2e-6), (0.2, 0.2)):
            a, b = mp.mpf(p), mp.mpf(q)
            wanted = float(a * mp.log(a / b) + (1 - a) * mp.log((1 - a) / (1 - b)))
            assert theory.bernoulli_divergence(p, q) == pytest.approx(wanted, rel=1e-9, abs=1e-25)


# --- CQB-η-2's upper bound


def test_phases_are_those_of_equation_4() -> None:
    t = 10**12
    found = theory.cqb_eta_2_phases(t, **FIVE, c1=2.0, c2=3.0)
    beta = theory.cqb_eta_2_radius(t, **BALL, ridge=1.0, delta=float(t) ** -4)
    log_inverse = 4 * math.log(t)
    first = ((2.0 * math.sqrt(4) + 3.0 * math.sqrt(log_inverse)) / 0.2) ** 2 + 128 * beta**2 / (0.2**2 * 0.2)
    first = 2 / 0.6 * first + 8 * log_inverse / 0.6
    assert found.phase_1_end == math.ceil(first)
    second = t - 4 * math.ceil(first) / 0.2 - 128 * math.log(t) / 0.04 - 1
    assert found.phase_2_end == math.floor(second)
    assert found.long_enough and found.spare == pytest.approx(second - math.ceil(first) - t / 2, abs=1.5)
    short = theory.cqb_eta_2_phases(2000, **FIVE)
    assert not short.long_enough and short.phase_2_end < 0


def test_the_default_constants_are_large_enough() -> None:
    """c₁ and c₂ in the two places of the proofs that need them large (Lemma 20 through Lemma 24; the end of Theorem 5's)."""
    for d, log_t, share in itertools.product((1, 2, 3, 10, 1000), (math.log(2), 5.0, 60.0), (1.0, 0.1, 1e-3)):
        diversity, log_inverse = share / d, 4 * log_t
        samples = ((cqb_theory.C1 * math.sqrt(d) + cqb_theory.C2 * math.sqrt(log_inverse)) / diversity) ** 2
        assert samples * diversity / 8 >= math.log(d) + log_inverse - 1e-9  # d·exp(−nσ₀²/8) ≤ δ
        assert (
            2 * samples * diversity / 16 >= math.log(d) + 4 * log_t - 1e-9
        )  # λσ₀²τ₁/16, from the first term of (4) alone


def test_theorem_5_as_a_number_and_term_by_term() -> None:
    first = theory.theorem_5_first_round(**FIVE)
    assert theory.cqb_eta_2_phases(int(first * 1.001), **FIVE).long_enough
    assert not theory.cqb_eta_2_phases(int(first * 0.999), **FIVE).long_enough
    t = int(100 * first)
    phases = theory.cqb_eta_2_phases(t, **FIVE)
    beta = theory.cqb_eta_2_radius(t, **BALL, ridge=1.0, delta=float(t) ** -4)
    # ν is at most T⁻⁴ by then (what the proof shows), so that the gap is its third term.
    gap = theory.lemma_8(
        t,
        phases.phase_2_end - phases.phase_1_end,
        dimension=4,
        arrival_rate=0.6,
        context_slack=0.2,
        diversity=0.2,
        beta=beta,
    )
    assert gap == pytest.approx(math.sqrt(128 * beta**2 / (0.6 * 0.2 * 0.2 * t)), rel=1e-6)
    found = theory.theorem_5(t, **FIVE)
    assert found == pytest.approx(math.sqrt(3 + 19 / 0.04) / t + (t - 1 - phases.phase_2_end) * gap, rel=1e-12)
    terms = theory.theorem_5_terms(t, **FIVE)
    log_t, k = math.log(t), kappa(1.5)
    assert terms == pytest.approx(
        (
            (4 + log_t) / (0.6 * 0.2 * 0.2**2),
            k**2 * 4 * log_t / (0.6 * 0.2**3 * 0.2),
            log_t / (0.6 * 0.2),
            log_t / 0.04,
            k * math.sqrt(4 * log_t) / (math.sqrt(0.2) * math.sqrt(0.6 * 0.2 * t)),
        ),
        rel=1e-12,
    )
    assert terms.shape == pytest.approx(sum(terms[:4]) * terms[4], rel=1e-14)
    # One constant in front of the shape does for all horizons.
    ratios = [
        theory.theorem_5(int(s * first), **FIVE) / theory.theorem_5_terms(int(s * first), **FIVE).shape
        for s in (2, 1e5, 1e20)
    ]
    assert max(ratios) < 1.5 * min(ratios)
    with pytest.raises(
        ValueError, match=r"^rounds must be so many that tau_2 - tau_1 >= T/2 .* with 2000 it misses that by"
    ):
        theory.theorem_5(2000, **FIVE)


def test_lemma_9_is_one_near_the_end_and_falls_before() -> None:
    numbers: dict[str, Any] = {"phase_1_end": 50, "context_slack": 0.4}
    assert theory.lemma_9(99_600, 100_000, **numbers) == 1.0
    far = theory.lemma_9(10_000, 100_000, **numbers)
    assert far == pytest.approx(math.sqrt(3) * 1e-10, rel=1e-6)
    middle = theory.lemma_9(95_000, 100_000, **numbers)
    assert middle == pytest.approx(math.sqrt(3e-20 + 19 / 0.16 * math.exp(-0.16 / 32 * (4999 - 500))), rel=1e-12)
    with pytest.raises(ValueError, match=r"^t must be below rounds = 10, not 10"):
        theory.lemma_9(10, 10, **numbers)


# --- assumptions are checked


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: theory.elliptical_potential(5, dimension=2, kappa=0.5), r"^kappa must be at least 1 \(WISE, Lemma 21"),
        (lambda: theory.wise_radius(-1, **BALL), r"^t must be a whole number of at least 0, not -1"),
        (lambda: theory.wise_radius(10**301, **BALL), r"^t must be at most 1e300"),
        (lambda: theory.wise_radius(1, dimension=2, parameter_bound=800.0), r"^parameter_bound must be below 700"),
        (lambda: theory.wide_intervals(1.5, 1, 9, **BALL), r"^width must lie strictly between 0 and 1"),
        (lambda: theory.wide_intervals(0.5, 9, 8, **BALL), r"^last must be a whole number of at least 9, not 8"),
        (
            lambda: theory.theorem_6_conditions(9, **{**SIX, "capacity_slack": 0.7}),
            r"^capacity_slack must be at most 0.6 \(1 - lam",
        ),
        (
            lambda: theory.theorem_6_conditions(9, **{**SIX, "capacity_slack": 0.0}),
            r"^capacity_slack must be positive, not 0.0",
        ),
        (
            lambda: theory.theorem_6_conditions(9, **{**SIX, "arrival_rate": 1.0}),
            r"^arrival_rate must lie strictly between 0 and 1",
        ),
        (lambda: theory.theorem_6_conditions(9, **SIX, constant=-1.0), r"^constant must be positive, not -1.0"),
        (
            lambda: theory.workload_growth(1, 9, **BALL, capacity_slack=0.2, delta=1.0),
            r"^delta must lie strictly between 0 and 1",
        ),
        (
            lambda: theory.theorem_7(2, dimension=2, servers=2, arrival_rate=0.2),
            r"^t must be a whole number of at least 3, not 2",
        ),
        (
            lambda: theory.theorem_7(9, dimension=2, servers=2, arrival_rate=0.26),
            r"^arrival_rate must be at most 0.25 \(WISE, Theo",
        ),
        (
            lambda: theory.theorem_8(4095, dimension=2, servers=2, capacity_slack=0.125),
            r"^t must be at least 64/capacity_slack\^2",
        ),
        (lambda: theory.lemma_18(0.2), r"^capacity_slack must be at most 0.125 \(WISE, Lemma 18\), not 0.2"),
        (
            lambda: theory.theorem_10(
                9, dimension=2, servers=2, arrival_rate=0.5, context_slack=0.2, parameter_bound=1.0
            ),
            r"^parameter_bound must be at least B sqrt\(d\) = ",
        ),
        (
            lambda: theory.theorem_10(
                9, dimension=2, servers=2, arrival_rate=0.5, context_slack=0.2, parameter_bound=9.0, diversity=0.6
            ),
            r"^diversity must be at most 1/d = 0.5 \(CQB-eta-2, Theorem 10; ",
        ),
        (
            lambda: theory.cqb_eta_2_phases(99, **{**FIVE, "diversity": 0.3}),
            r"^diversity must be at most 1/d = 0.25 \(CQB-eta-2, Assum",
        ),
        (
            lambda: theory.cqb_eta_2_phases(99, **{**FIVE, "context_slack": 0.4}),
            r"^context_slack must lie strictly between 0 and 0.4",
        ),
        (
            lambda: theory.cqb_eta_2_phases(99, **FIVE, kappa=3.0),
            r"^kappa must be at least 4, since mu' is at most 1/4",
        ),
        (lambda: theory.cqb_eta_2_radius(9, **BALL, ridge=1.0, delta=0.0), r"^delta must lie strictly between 0 and 1"),
        (
            lambda: theory.lemma_8(100, 49, dimension=4, arrival_rate=0.6, context_slack=0.2, diversity=0.2, beta=1.0),
            r"^phase_2 must be at least T/2 = 50 \(CQB-eta-2, Lemma 8",
        ),
        (
            lambda: theory.wide_newcomers(0.5, 1, 9, **SIX, mean_workload=-1.0, large_gaps=0.0),
            r"^mean_workload must be at least 0, not -1.0",
        ),
        (
            lambda: theory.bernoulli_divergence(0.0, 0.5),
            r"^p must lie strictly between 0 and 1 \(a probability\), not 0.0",
        ),
    ],
)
def test_an_assumption_that_is_not_met_is_an_error(call: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
