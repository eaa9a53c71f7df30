"""WISE: the numbers of its theorems and lemmas.

Symbols, as in the paper: d dimension, K servers, λ arrival rate (jobs per round), S the ball's radius, ε the *capacity* slack
1 − λE[1/p*(X)], κ = 1/μ̇(S) and p̲ = μ(−S), both functions of S because every feature vector has norm at most 1 (Assumption 1).
Times are rounds, queue lengths and regrets are jobs, the workload W is in p̲ attempts.

Where the paper has an absolute constant that it does not name, it is an argument. Where its proof names one, that is the
default. An assumption that is not met is a ``ValueError``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...fields import require_count, require_number, require_positive
from ..systems import logistic
from ._checks import (
    LAST_ROUND,
    require_ball,
    require_between,
    require_capacity,
    require_most,
    require_rate,
    require_round,
)

#: What condition (13) needs at least in the proof of Lemma 12, in (19), (22) and (24): C₄ ≥ 1536.
CONDITION_CONSTANT = 1536.0
#: What the proof of Lemma 12 gives in front of 1/(ε²p̲²t²): 1024² from (21), and twice t⁻² from (24) and (28).
LEMMA_12_CONSTANT = 1024.0**2 + 2.0


class Condition(NamedTuple):
    """One condition on t. `margin` is ln(t / least t of the right-hand side at this t): how many powers of e t is above what
    is asked (below it where negative)."""

    name: str
    holds: bool
    margin: float


class Lemma12(NamedTuple):
    """How long the queue stays nonempty under WISE, and how much work waits (WISE, Lemma 12).

    length : ℓ₀ of (12), in rounds · never_empty : bound on the probability that the queue is nonempty in all of the last ℓ₀+1
    rounds · workload_tail : bound on P(W > ℓ₀) · mean_workload : bound on E[W]
    """

    length: int
    never_empty: float
    workload_tail: float
    mean_workload: float


class Lemma18(NamedTuple):
    """The queue of Theorem 8 at its best server (WISE, Lemma 18): long enough (q₀ jobs) with probability 1/20 from round t₀
    on, and then busy for ℓ more rounds with probability 1/2."""

    queue: int
    settled: int
    busy: int


def least_probability(parameter_bound: float) -> float:
    """p̲ = μ(−S), the least success probability that a parameter in the ball allows (WISE, Assumption 1-2).

    Assumes features of norm at most 1.
    """
    require_positive("parameter_bound", parameter_bound)
    return float(logistic(-parameter_bound))


def wise_radius(t: int, *, dimension: int, parameter_bound: float) -> float:
    """β_t = (κ/2)√(d ln(1 + t/(dκ)) + 4 ln(t + 1)) + √κ S (WISE (9)), t ≥ 0, the radius of Algorithm 1.

    With probability at least 1 − (t₁+1)⁻² the parameter lies within β_t of the estimate, in the norm of V_t, at every
    t ≥ t₁ (Lemma 9), provided that features have norm at most 1 and V₀ = κI.
    """
    require_round(t, 0)
    kappa = require_ball(dimension, parameter_bound)
    growth = dimension * math.log1p(t / (dimension * kappa)) + 4.0 * math.log1p(t)
    return 0.5 * kappa * math.sqrt(growth) + math.sqrt(kappa) * parameter_bound


def elliptical_potential(t: int, *, dimension: int, kappa: float) -> float:
    """2d ln(1 + t/(dκ)): no t features of norm at most 1 have a larger Σ ‖φ_i‖²_{V⁻¹_{i−1}}, V₀ = κI (WISE, Lemma 21).

    Raises
    ------
    ValueError : κ below 1, for which single terms may exceed 1 and the lemma bounds min{1, ·} instead.
    """
    require_round(t)
    require_count("dimension", dimension)
    require_number("kappa", kappa)
    if kappa < 1:
        raise ValueError(f"kappa must be at least 1 (WISE, Lemma 21: no term of the sum exceeds 1), not {kappa!r}")
    return 2.0 * dimension * math.log1p(t / (dimension * kappa))


def wide_intervals(width: float, first: int, last: int, *, dimension: int, parameter_bound: float) -> float:
    """(dβ²/2r²) ln(1 + ℓ/(dκ)): in no run does WISE choose an interval wider than r more often in the ℓ rounds from `first`
    to `last` (WISE, Lemma 10: the elliptical potential count); β at the last round. In rounds.

    Needs features of norm at most 1 and V₀ = κI.
    """
    require_between("width", width, 0.0, 1.0 + 1e-15, "a difference of probabilities; WISE, Lemma 10")
    length = _length(first, last)
    kappa = require_ball(dimension, parameter_bound)
    beta = wise_radius(last, dimension=dimension, parameter_bound=parameter_bound)
    return dimension * beta**2 / (2.0 * width**2) * math.log1p(length / (dimension * kappa))


# --- workload --------------------------------------------------------------------------------------------------------


def workload(best: npt.ArrayLike, *, parameter_bound: float) -> float:
    """W = p̲ Σ 1/p*(x) over the waiting jobs (WISE, section 3.2): the attempts that they need at best, times p̲.

    best : p* of every waiting job, each in [p̲, 1]. p̲Q ≤ W ≤ Q.
    """
    floor = least_probability(parameter_bound)
    values = _best(best, floor)
    return float(floor * np.sum(1.0 / values))


def workload_drift(chosen: float, best: float, *, capacity_slack: float, parameter_bound: float) -> float:
    """E[W(t+1) − W(t)] = −εp̲ + p̲(p* − p)/p* on a nonempty round in which a job of best probability p* is served with
    probability p (WISE (1)); negative whenever the departure rate gap is below εp̲."""
    require_between("capacity_slack", capacity_slack, 0.0, 1.0, "WISE, Assumption 2")
    floor = least_probability(parameter_bound)
    values = _best([best], floor)
    require_number("chosen", chosen)
    if not floor * (1 - 1e-12) <= chosen <= values[0]:
        raise ValueError(f"chosen must lie between mu(-S) = {floor:.6g} and best = {best:.6g}, not {chosen!r}")
    return float(floor * (-capacity_slack + (values[0] - chosen) / values[0]))


def workload_growth(
    first: int, last: int, *, dimension: int, parameter_bound: float, capacity_slack: float, delta: float
) -> float:
    """−εp̲ℓ/2 + (8dβ²/(ε²p̲²)) ln(1 + ℓ/(dκ)) + √(8ℓ ln(1/δ)) (WISE, Lemma 11-(ii)).

    With probability at least 1 − δ, W(last + 1) − W(first) is at most that if the queue is nonempty and the intervals hold the
    truth from `first` to `last`. Where it is below minus the workload at `first`, the queue must have emptied.
    """
    require_between("delta", delta, 0.0, 1.0, "WISE, Lemma 11")
    require_between("capacity_slack", capacity_slack, 0.0, 1.0, "WISE, Assumption 2")
    length = _length(first, last)
    drift = capacity_slack * least_probability(parameter_bound)
    wide = wide_intervals(drift / 4.0, first, last, dimension=dimension, parameter_bound=parameter_bound)
    return -drift * length / 2.0 + wide + math.sqrt(8.0 * length * math.log(1.0 / delta))


def proof_lengths(t: int, *, dimension: int, parameter_bound: float, capacity_slack: float) -> tuple[int, int]:
    """ℓ₀ = ⌈64dβ_t² ln t/(εp̲)³⌉ and ℓ₁ = ⌈128 ln t/(εp̲)²⌉ (WISE (12)), in rounds; t ≥ 3."""
    require_round(t, 3)
    require_between("capacity_slack", capacity_slack, 0.0, 1.0, "WISE, Assumption 2")
    beta = wise_radius(t, dimension=dimension, parameter_bound=parameter_bound)
    drift = capacity_slack * least_probability(parameter_bound)
    return (
        math.ceil(64.0 * dimension * beta**2 * math.log(t) / drift**3),
        math.ceil(128.0 * math.log(t) / drift**2),
    )


def lemma_12(
    at: int,
    t: int,
    *,
    dimension: int,
    parameter_bound: float,
    capacity_slack: float,
    constant: float = LEMMA_12_CONSTANT,
    condition_constant: float = CONDITION_CONSTANT,
) -> Lemma12:
    """Round t₃ = `at`: P(nonempty in all of [t₃−ℓ₀, t₃]) and P(W(t₃) > ℓ₀) are at most C/(ε²p̲²t²), and E[W(t₃)] is at most
    ℓ₀ + C/(ε²p̲²t) (WISE, Lemma 12). The defaults are the constants of its proof.

    Raises
    ------
    ValueError : t₃ outside [t/3, t], or t too small for (13).
    """
    require_round(t, 3)
    require_positive("constant", constant)
    if not (t <= 3 * at and at <= t):
        raise ValueError(f"at must lie in [t/3, t] = [{t / 3:g}, {t}] (WISE, Lemma 12), not {at!r}")
    numbers: dict[str, Any] = {
        "dimension": dimension,
        "parameter_bound": parameter_bound,
        "capacity_slack": capacity_slack,
    }
    margin = _margin_13(t, condition_constant, **numbers)
    if margin < 0:
        raise ValueError(
            f"t must be at least C4 d beta_t^2 ln t / (eps p)^3 (WISE (13), C4 = {condition_constant:g}), and is "
            f"{_times(margin)} too small at {t}"
        )
    drift = capacity_slack * least_probability(parameter_bound)
    length, _ = proof_lengths(t, **numbers)
    tail = constant / (drift * t) ** 2
    return Lemma12(length, tail, tail, length + tail * t)


def wide_newcomers(
    width: float,
    first: int,
    last: int,
    *,
    arrival_rate: float,
    dimension: int,
    parameter_bound: float,
    capacity_slack: float,
    mean_workload: float,
    large_gaps: float,
) -> float:
    """The bound on E[z(r)] at `last`, the probability that a new job has a candidate interval wider than r (WISE, Lemma 13):
    (2/(εp̲ℓ)) (p̲dβ² ln(1+ℓ/(dκ))/(2λr²) + E[W(first)] + E[#{i : g_i > εp̲/2}]), β at last + 1.

    mean_workload, large_gaps : the two expectations of the formula. Needs intervals that are nested from `first` to
    `last` + 1, so one epoch of Algorithm 1.
    """
    require_capacity(arrival_rate, capacity_slack)
    for field, value in (("mean_workload", mean_workload), ("large_gaps", large_gaps)):
        require_number(field, value)
        if value < 0:
            raise ValueError(f"{field} must be at least 0, not {value!r}")
    require_between("width", width, 0.0, 1.0 + 1e-15, "WISE, Lemma 13")
    length = _length(first, last)
    kappa = require_ball(dimension, parameter_bound)
    floor = least_probability(parameter_bound)
    beta = wise_radius(last + 1, dimension=dimension, parameter_bound=parameter_bound)
    observed = floor * dimension * beta**2 / (2.0 * arrival_rate * width**2) * math.log1p(length / (dimension * kappa))
    return 2.0 / (capacity_slack * floor * length) * (observed + mean_workload + large_gaps)


def persistence_bound(remaining: int, workload_now: float, *, capacity_slack: float, parameter_bound: float) -> float:
    """The bound on q_{i,t}, the probability that the extra job of an error at round i is still extra at t = i + `remaining`,
    given W(i) = `workload_now`: exp(−ε²p̲²(t−i)/128) where W(i) + 1 ≤ εp̲(t−i)/32, else 1 (WISE, Lemma 17)."""
    require_count("remaining", remaining)
    require_between("capacity_slack", capacity_slack, 0.0, 1.0, "WISE, Assumption 2")
    require_number("workload_now", workload_now)
    drift = capacity_slack * least_probability(parameter_bound)
    if workload_now + 1.0 > drift * remaining / 32.0:
        return 1.0
    return math.exp(-(drift**2) * remaining / 128.0)


# --- Theorem 6 -------------------------------------------------------------------------------------------------------


def theorem_6_conditions(
    t: int,
    *,
    dimension: int,
    parameter_bound: float,
    arrival_rate: float,
    capacity_slack: float,
    constant: float = CONDITION_CONSTANT,
) -> tuple[Condition, ...]:
    """What WISE's lemmas and Theorem 6 ask of t: t ≥ 3, (13), (53) and the two conditions (62), each with its margin.

    constant : C₄, an absolute constant that the paper only calls sufficiently large; the default is the least that its proof of
    Lemma 12 uses, so that a condition which fails with it fails, while one which holds may still fail with the paper's.
    """
    require_round(t)
    require_positive("constant", constant)
    require_capacity(arrival_rate, capacity_slack)
    if t < 3:
        require_ball(dimension, parameter_bound)
        return (Condition("t >= 3", False, math.log(t / 3.0)),)
    log_t, loglog = math.log(t), math.log(math.log(t))
    beta = wise_radius(t, dimension=dimension, parameter_bound=parameter_bound)
    spread = math.log(dimension) + 2.0 * math.log(beta)
    floor = least_probability(parameter_bound)
    log_drift = math.log(capacity_slack) + math.log(floor)
    common = (
        math.log(constant)
        + math.log(capacity_slack)
        + 2.0 * math.log(capacity_slack * floor**2 + arrival_rate)
        + 6.0 * loglog
        - math.log(arrival_rate)
        - math.log(1.0 - math.log(arrival_rate))
    )
    needed = {
        "(13): t >= C4 d beta^2 ln t / (eps p)^3": math.log(constant) + spread + loglog - 3.0 * log_drift,
        "(53): t >= C4 eps (eps p^2 + lambda)^2 (d beta^2)^5 ln^6 t / (lambda (eps p)^16 ln(e/lambda))": common
        + 5.0 * spread
        - 16.0 * log_drift,
        "(62), first: t >= C4 d beta^2 ln t / (eps p)^4": math.log(constant) + spread + loglog - 4.0 * log_drift,
        "(62), second: t >= C4 eps (eps p^2 + lambda)^2 (d beta^2)^7 ln^6 t / (lambda (eps p)^20 ln(e/lambda))": common
        + 7.0 * spread
        - 20.0 * log_drift,
    }
    return (
        Condition("t >= 3", True, math.log(t / 3.0)),
        *(Condition(name, log_t >= need, log_t - need) for name, need in needed.items()),
    )


def theorem_6_first_round(
    *,
    dimension: int,
    parameter_bound: float,
    arrival_rate: float,
    capacity_slack: float,
    constant: float = CONDITION_CONSTANT,
) -> float:
    """t₀: the round from which on both conditions (62) of WISE's Theorem 6 hold, to a relative 1e-9.

    Raises
    ------
    ValueError : it lies beyond 1e300.
    """

    def met(log_t: float) -> bool:
        found = theorem_6_conditions(
            max(1, round(math.exp(log_t))),
            dimension=dimension,
            parameter_bound=parameter_bound,
            arrival_rate=arrival_rate,
            capacity_slack=capacity_slack,
            constant=constant,
        )
        return len(found) > 1 and all(condition.holds for condition in found)

    return math.exp(_last_failure(met, "conditions (62) of WISE's Theorem 6"))


def theorem_6(
    t: int,
    *,
    dimension: int,
    parameter_bound: float,
    arrival_rate: float,
    capacity_slack: float,
    absolute_constant: float = 1.0,
    condition_constant: float = CONDITION_CONSTANT,
) -> float:
    """C₁ ε^{−9/2} p̲⁻⁴ β_t ln²t √(λ d ln(e/λ)/t), the bound on WISE's regret at round t, in jobs (WISE, Theorem 6).

    absolute_constant : C₁, which the paper does not name; with the default 1 the value is the shape of the bound, not a bound.

    Raises
    ------
    ValueError : t does not meet (62), with how much it lacks.
    """
    for condition in theorem_6_conditions(
        t,
        dimension=dimension,
        parameter_bound=parameter_bound,
        arrival_rate=arrival_rate,
        capacity_slack=capacity_slack,
        constant=condition_constant,
    ):
        if not condition.holds:
            raise ValueError(
                f"t must meet {condition.name} (WISE, Theorem 6, C4 = {condition_constant:g}), and is "
                f"{_times(condition.margin)} too small at {t}"
            )
    require_positive("absolute_constant", absolute_constant)
    return absolute_constant * theorem_6_shape(
        t,
        dimension=dimension,
        parameter_bound=parameter_bound,
        arrival_rate=arrival_rate,
        capacity_slack=capacity_slack,
    )


def theorem_6_shape(
    t: int, *, dimension: int, parameter_bound: float, arrival_rate: float, capacity_slack: float
) -> float:
    """The right-hand side of WISE's Theorem 6 at C₁ = 1, whether or not t meets (62): to see how it falls, not a bound."""
    require_round(t, 3)
    require_capacity(arrival_rate, capacity_slack)
    beta = wise_radius(t, dimension=dimension, parameter_bound=parameter_bound)
    floor = least_probability(parameter_bound)
    spread = math.sqrt(arrival_rate * dimension * (1.0 - math.log(arrival_rate)) / t)
    return float(capacity_slack**-4.5 * floor**-4 * beta * math.log(t) ** 2 * spread)


def lemma_5_shape(
    t: int, *, dimension: int, parameter_bound: float, arrival_rate: float, capacity_slack: float
) -> float:
    """ε^{−5/2} p̲⁻² β_t ln t √(λ d ln(e/λ)/t): the bound on WISE's mean departure rate gap at round t is an unnamed absolute
    constant times that, for t that meet (13) and (53) (WISE, Lemma 5)."""
    whole = theorem_6_shape(
        t,
        dimension=dimension,
        parameter_bound=parameter_bound,
        arrival_rate=arrival_rate,
        capacity_slack=capacity_slack,
    )
    return whole * (capacity_slack * least_probability(parameter_bound)) ** 2 / math.log(t)


# --- lower bounds ----------------------------------------------------------------------------------------------------


def sign_coordinates(dimension: int, servers: int) -> int:
    """d₀ = min{d − 1, ⌊log₂ K⌋} (WISE, Appendices C and D): coordinates of the sign vectors that tell the hard instances
    apart. Both theorems need d ≥ 2 and K ≥ 2."""
    require_count("dimension", dimension, 2)
    require_count("servers", servers, 2)
    return min(int(dimension) - 1, int(servers).bit_length() - 1)


def theorem_7_separation(t: int, *, dimension: int, servers: int, arrival_rate: float) -> float:
    """η = min{1/8, √p₀ d₀/(2√(λt))}, p₀ = μ(−1/4) (WISE, Appendix C): how far the hard instances' logits are apart."""
    require_round(t, 3)
    require_rate(arrival_rate)
    require_most("arrival_rate", arrival_rate, 0.25, "WISE, Theorem 7")
    least = float(logistic(-0.25))
    d0 = sign_coordinates(dimension, servers)
    return min(0.125, math.sqrt(least) * d0 / (2.0 * math.sqrt(arrival_rate * t)))


def theorem_7(t: int, *, dimension: int, servers: int, arrival_rate: float) -> float:
    """(3μ̇(1/4)/4) min{λ/8, √p₀ d₀ √(λ/t)/2}, in jobs: the average over the 2^d₀ hard instances of any policy's regret at
    round t is at least that (WISE, Theorem 7, with the constants of its proof, (77)).

    Raises
    ------
    ValueError : λ above 1/4, t below 3, or d or K below 2.
    """
    separation = theorem_7_separation(t, dimension=dimension, servers=servers, arrival_rate=arrival_rate)
    p = float(logistic(0.25))
    return 0.75 * p * (1.0 - p) * arrival_rate * separation


#: Arrival rate of the hard instances of WISE's Theorem 8.
THEOREM_8_ARRIVAL_RATE = 0.25


def require_theorem_8(t: int, capacity_slack: float) -> None:
    """Refuse what WISE's Theorem 8 does not speak of: ε above 1/8, or t below 64/ε²."""
    require_most("capacity_slack", capacity_slack, 0.125, "WISE, Theorem 8")
    require_round(t)
    if t * capacity_slack**2 < 64.0 * (1 - 1e-12):
        raise ValueError(
            f"t must be at least 64/capacity_slack^2 = {64.0 / capacity_slack**2:.6g} (WISE, Theorem 8), not {t!r}"
        )


def theorem_8_separation(t: int, *, dimension: int, servers: int, capacity_slack: float) -> float:
    """η = min{1/8, d₀/√t}/20 (WISE, Appendix D)."""
    require_theorem_8(t, capacity_slack)
    return min(0.125, sign_coordinates(dimension, servers) / math.sqrt(t)) / 20.0


def theorem_8(t: int, *, dimension: int, servers: int, capacity_slack: float) -> float:
    """(1/(51200(2 + e² + e⁻²))) min{1/(8ε²), d₀/(ε²√t)}, in jobs: the average over the 2^d₀ hard instances of any policy's
    regret at round t is at least that (WISE, Theorem 8, with the constants of its proof). λ is 1/4 there.

    Raises
    ------
    ValueError : ε above 1/8, t below 64/ε², or d or K below 2.
    """
    require_theorem_8(t, capacity_slack)
    d0 = sign_coordinates(dimension, servers)
    return min(1.0 / 8.0, d0 / math.sqrt(t)) / capacity_slack**2 / (51200.0 * (2.0 + math.exp(2) + math.exp(-2)))


def lemma_18(capacity_slack: float) -> Lemma18:
    """q₀ = ⌈5/(8ε)⌉ + 1, t₀ = ⌈60/ε²⌉ and ℓ = ⌊1/(16ε²)⌋ (WISE, Lemma 18), ε ≤ 1/8, for λ = 1/4 and p* = λ/(1−ε)."""
    require_most("capacity_slack", capacity_slack, 0.125, "WISE, Lemma 18")
    return Lemma18(
        math.ceil(5.0 / (8.0 * capacity_slack)) + 1,
        math.ceil(60.0 / capacity_slack**2),
        math.floor(1.0 / (16.0 * capacity_slack**2)),
    )


def bernoulli_divergence(p: float, q: float) -> float:
    """D_KL(Bern(p) ‖ Bern(q)) in nats, p and q strictly between 0 and 1.

    Between logits it is at most (difference)²/8 (WISE (75)).
    """
    require_between("p", p, 0.0, 1.0, "a probability")
    require_between("q", q, 0.0, 1.0, "a probability")
    # In differences: the terms of the textbook formula nearly cancel where p is near q.
    return max(0.0, -p * math.log1p((q - p) / p) - (1.0 - p) * math.log1p((p - q) / (1.0 - p)))


# --- helpers ---------------------------------------------------------------------------------------------------------


def _length(first: int, last: int) -> int:
    require_round(first, 1, "first")
    require_round(last, first, "last")
    return last - first + 1


def _best(best: npt.ArrayLike, floor: float) -> Any:
    values = np.atleast_1d(np.asarray(best, dtype=np.float64))
    if values.size and not (values.min() >= floor * (1 - 1e-12) and values.max() <= 1.0):
        raise ValueError(
            f"best must lie in [mu(-S), 1] = [{floor:.6g}, 1] (WISE, Assumption 1), but reaches from {values.min():.6g} to "
            f"{values.max():.6g}"
        )
    return values


def _margin_13(t: int, constant: float, *, dimension: int, parameter_bound: float, capacity_slack: float) -> float:
    require_positive("condition_constant", constant)
    require_between("capacity_slack", capacity_slack, 0.0, 1.0, "WISE, Assumption 2")
    beta = wise_radius(t, dimension=dimension, parameter_bound=parameter_bound)
    drift = capacity_slack * least_probability(parameter_bound)
    need = math.log(constant * dimension) + 2 * math.log(beta) + math.log(math.log(t)) - 3 * math.log(drift)
    return math.log(t) - need


def _times(margin: float) -> str:
    """How far below what is asked, from a negative margin in powers of e."""
    tens = -margin / math.log(10.0)
    return f"a factor {math.exp(-margin):.3g}" if tens < 6 else f"a factor 1e{tens:.0f}"


def _last_failure(met: Any, what: str, step: float = 0.25) -> float:
    """The largest ln t at which `met` turns from False to True, up to ln LAST_ROUND; searched from above, since conditions of
    the form t ≥ polylog(t) may hold by accident at small t."""
    high = math.log(LAST_ROUND) - 1.0
    if not met(high):
        raise ValueError(
            f"{what} must be met by some round below 1e300, but are not: slack and p = mu(-S) are too small"
        )
    low = high
    while low > 0.0 and met(low):
        high, low = low, low - step
    if low <= 0.0 and met(0.0):
        return 0.0
    low = max(low, 0.0)
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        if met(middle):
            high = middle
        else:
            low = middle
    return high
