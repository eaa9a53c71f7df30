"""CQB-η-2: the numbers of its theorems and lemmas.

Symbols, as in the paper: d dimension, K servers, λ arrival rate (jobs per round), S the ball's radius, κ = 1/μ̇(S), λ₀ the
ridge, σ₀² the least eigenvalue of E[(1/K)Σφφᵀ], T the horizon in rounds. Its ε is the *context-wise* slack ε₀ = min p* − λ.

The constants c₁ and c₂ of the phase ends (4) are only called sufficiently large. They come from a matrix concentration bound
(Lemma 19) whose own constants are unnamed. The paper's Lemma 24 says the same with explicit ones, so that the defaults here,
c₁² = 8/e and c₂² = 8, are large enough for every step of the proof (docs/theory-scheduling.md); with them Theorem 5 is a
number.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...fields import require_count, require_number, require_positive
from ._checks import ROUNDING, require_ball, require_between, require_rate, require_round
from .wise import _last_failure

#: c₁ = √(8/e) and c₂ = √8: enough for the proofs of Lemma 20 and of Theorem 5, by Lemma 24.
C1, C2 = math.sqrt(8.0 / math.e), math.sqrt(8.0)


class Phases(NamedTuple):
    """Ends of CQB-η-2's phases, in rounds (CQB-η-2 (4)), and whether Theorem 5 accepts them.

    phase_1_end : τ₁ rounded up; every newcomer is explored until then · phase_2_end : τ₂ rounded down, negative where the
    horizon is too short for a second phase · spare : τ₂ − τ₁ − T/2, which Theorem 5 wants to be at least 0 · long_enough
    """

    phase_1_end: int
    phase_2_end: int
    spare: float

    @property
    def long_enough(self) -> bool:
        return self.spare >= 0.0


class Theorem5(NamedTuple):
    """Theorem 5 of CQB-η-2 term by term, without the constant in front: `shape` is (sum of the four terms) × `factor`.

    features : (d + ln T)/(λε₀σ₀⁴) · radius : κ²d ln T/(λε₀³σ₀²) · arrivals : ln T/(λε₀) · drift : ln T/ε₀², all rounds ·
    factor : κ√(d ln T)/(σ₀√(λε₀T)), a probability's scale
    """

    features: float
    radius: float
    arrivals: float
    drift: float
    factor: float

    @property
    def shape(self) -> float:
        return (self.features + self.radius + self.arrivals + self.drift) * self.factor


def cqb_eta_2_radius(
    t: int,
    *,
    dimension: int,
    parameter_bound: float,
    ridge: float,
    delta: float | None = None,
    kappa: float | None = None,
) -> float:
    """β_t = κ√(½d ln(1 + t/(κλ₀d)) + ½ ln(1/δ)) + S√(κλ₀) (CQB-η-2 (3)), t ≥ 0.

    delta : in (0, 1); None for t⁻⁴, what Theorem 5 has at its horizon (t ≥ 2).
    kappa : None for 1/μ̇(S), what features of norm at most 1 make of Assumption 2.
    """
    require_round(t, 0 if delta is not None else 2)
    kappa = _kappa(dimension, parameter_bound, kappa)
    require_positive("ridge", ridge)
    if delta is not None:
        require_between("delta", delta, 0.0, 1.0, "CQB-eta-2 (3)")
    log_inverse = 4.0 * math.log(t) if delta is None else -math.log(delta)
    return _radius(t, dimension, parameter_bound, ridge, log_inverse, kappa)


def cqb_eta_2_phases(
    rounds: int,
    *,
    dimension: int,
    parameter_bound: float,
    arrival_rate: float,
    context_slack: float,
    diversity: float,
    ridge: float = 1.0,
    kappa: float | None = None,
    c1: float = C1,
    c2: float = C2,
) -> Phases:
    """τ₁ = (2/λ)[((c₁√d + c₂√ln(1/δ))/σ₀²)² + 128β_T²/(ε₀²σ₀²)] + 8 ln(1/δ)/λ and τ₂ = T − 4τ₁/ε₀ − 128 ln T/ε₀² − 1, δ = T⁻⁴
    (CQB-η-2 (4)).

    The paper's displaced exponents are placed as its Lemma 20 needs them. Algorithm 1 takes these ends as `phase_1_end` and
    `phase_2_end`; the papers' experiments take shares of T instead.

    Raises
    ------
    ValueError : a number that Assumptions 1 to 4 rule out, or T below 2. A horizon that is too short is no error: see
        ``spare``.
    """
    require_round(rounds, 2, "rounds")
    kappa = _kappa(dimension, parameter_bound, kappa)
    _require_class(dimension, arrival_rate, context_slack, diversity)
    for field, value in (("ridge", ridge), ("c1", c1), ("c2", c2)):
        require_positive(field, value)
    log_t = math.log(rounds)
    beta = _radius(rounds, dimension, parameter_bound, ridge, 4.0 * log_t, kappa)
    explored = ((c1 * math.sqrt(dimension) + c2 * math.sqrt(4.0 * log_t)) / diversity) ** 2
    explored += 128.0 * beta**2 / (context_slack**2 * diversity)
    first = math.ceil(2.0 * explored / arrival_rate + 32.0 * log_t / arrival_rate)
    drift = math.ceil(4.0 * first / context_slack + 128.0 * log_t / context_slack**2)
    second = rounds - drift - 1
    return Phases(first, second, second - first - rounds / 2.0)


def theorem_5_terms(
    rounds: int,
    *,
    dimension: int,
    parameter_bound: float,
    arrival_rate: float,
    context_slack: float,
    diversity: float,
    kappa: float | None = None,
) -> Theorem5:
    """The terms of Theorem 5 of CQB-η-2, up to its unnamed constant: how its bound depends on each number, not a bound."""
    require_round(rounds, 2, "rounds")
    kappa = _kappa(dimension, parameter_bound, kappa)
    _require_class(dimension, arrival_rate, context_slack, diversity)
    log_t = math.log(rounds)
    rate = arrival_rate * context_slack
    return Theorem5(
        features=(dimension + log_t) / (rate * diversity**2),
        radius=kappa**2 * dimension * log_t / (arrival_rate * context_slack**3 * diversity),
        arrivals=log_t / rate,
        drift=log_t / context_slack**2,
        factor=kappa * math.sqrt(dimension * log_t) / math.sqrt(diversity * rate * rounds),
    )


def theorem_5(
    rounds: int,
    *,
    dimension: int,
    parameter_bound: float,
    arrival_rate: float,
    context_slack: float,
    diversity: float,
    ridge: float = 1.0,
    kappa: float | None = None,
    c1: float = C1,
    c2: float = C2,
) -> float:
    """√(3 + 19ε₀⁻²)/T + (T − 1 − τ₂)√(T⁻⁴ + ν + 128β_T²/(λε₀σ₀²T)), in jobs: the explicit bound of the proof of Theorem 5 on
    CQB-η-2's regret at round T, with δ = T⁻⁴ and the phase ends (4) (CQB-η-2, (5), (6), Lemmas 8 and 9);
    ν = exp(−λε₀(τ₂−τ₁)/32) + d exp(−λε₀(τ₂−τ₁)σ₀²/64).

    Raises
    ------
    ValueError : T is too short for τ₂ − τ₁ ≥ T/2, with how much is missing.
    """
    phases = cqb_eta_2_phases(
        rounds,
        dimension=dimension,
        parameter_bound=parameter_bound,
        arrival_rate=arrival_rate,
        context_slack=context_slack,
        diversity=diversity,
        ridge=ridge,
        kappa=kappa,
        c1=c1,
        c2=c2,
    )
    if not phases.long_enough:
        raise ValueError(
            f"rounds must be so many that tau_2 - tau_1 >= T/2 (CQB-eta-2, Theorem 5), and with {rounds} it misses that by "
            f"{-phases.spare:.4g} rounds: phase 1 alone asks for {phases.phase_1_end:.4g}"
        )
    beta = _radius(
        rounds, dimension, parameter_bound, ridge, 4.0 * math.log(rounds), _kappa(dimension, parameter_bound, kappa)
    )
    before = math.sqrt(3.0 + 19.0 / context_slack**2) / rounds
    gap = lemma_8(
        rounds,
        phases.phase_2_end - phases.phase_1_end,
        dimension=dimension,
        arrival_rate=arrival_rate,
        context_slack=context_slack,
        diversity=diversity,
        beta=beta,
    )
    return before + (rounds - 1 - phases.phase_2_end) * gap


def theorem_5_first_round(
    *,
    dimension: int,
    parameter_bound: float,
    arrival_rate: float,
    context_slack: float,
    diversity: float,
    ridge: float = 1.0,
    kappa: float | None = None,
    c1: float = C1,
    c2: float = C2,
) -> float:
    """The horizon from which on τ₂ − τ₁ ≥ T/2, what Theorem 5 of CQB-η-2 asks for, to a relative 1e-9."""

    def met(log_t: float) -> bool:
        rounds = max(2, round(math.exp(log_t)))
        return cqb_eta_2_phases(
            rounds,
            dimension=dimension,
            parameter_bound=parameter_bound,
            arrival_rate=arrival_rate,
            context_slack=context_slack,
            diversity=diversity,
            ridge=ridge,
            kappa=kappa,
            c1=c1,
            c2=c2,
        ).long_enough

    return math.exp(_last_failure(met, "tau_2 - tau_1 >= T/2 of CQB-eta-2's Theorem 5"))


def lemma_8(
    rounds: int,
    phase_2: int,
    *,
    dimension: int,
    arrival_rate: float,
    context_slack: float,
    diversity: float,
    beta: float,
) -> float:
    """√(T⁻⁴ + ν + 128β_T²/(λε₀σ₀²T)): root mean square of the departure rate gap after τ₂ (CQB-η-2, Lemma 8).

    phase_2 : τ₂ − τ₁, in rounds · beta : β_T.

    Raises
    ------
    ValueError : τ₂ − τ₁ below T/2.
    """
    require_round(rounds, 2, "rounds")
    _require_class(dimension, arrival_rate, context_slack, diversity)
    require_positive("beta", beta)
    require_number("phase_2", phase_2)
    if 2 * phase_2 < rounds:
        raise ValueError(
            f"phase_2 must be at least T/2 = {rounds / 2:g} (CQB-eta-2, Lemma 8: tau_2 - tau_1 >= T/2), not {phase_2!r}"
        )
    rate = arrival_rate * context_slack
    rare = math.exp(-rate * phase_2 / 32.0) + dimension * math.exp(-rate * phase_2 * diversity / 64.0)
    return math.sqrt(float(rounds) ** -4 + rare + 128.0 * beta**2 / (rate * diversity * rounds))


def lemma_9(t: int, rounds: int, *, phase_1_end: int, context_slack: float) -> float:
    """The bound on the root of E[ψ̃_t(T)], the chance that an extra job of round t is still extra at T (CQB-η-2, Lemma 9): 1 for
    t > T − 4τ₁/ε₀ − 1, else min{1, √(3T⁻⁴ + 19ε₀⁻² exp(−(ε₀²/32)(T − t − 1 − 4τ₁/ε₀)))}."""
    require_round(rounds, 2, "rounds")
    require_round(t)
    if t >= rounds:
        raise ValueError(f"t must be below rounds = {rounds}, not {t!r}")
    require_count("phase_1_end", phase_1_end, 0)
    require_between("context_slack", context_slack, 0.0, 1.0, "CQB-eta-2, Assumption 4")
    left = rounds - t - 1 - 4.0 * phase_1_end / context_slack
    if left < 0:
        return 1.0
    decay = 19.0 / context_slack**2 * math.exp(-(context_slack**2) / 32.0 * left)
    return min(1.0, math.sqrt(3.0 * float(rounds) ** -4 + decay))


def theorem_10_least_bound(dimension: int, *, arrival_rate: float, context_slack: float) -> float:
    """B√d with B = ln((8 − 3γ)/(3γ)), γ = 1 − λ − ε₀: the least S for which CQB-η-2's Theorem 10 has its hard instances."""
    require_count("dimension", dimension, 2)
    gamma = _gamma(arrival_rate, context_slack)
    return math.log((8.0 - 3.0 * gamma) / (3.0 * gamma)) * math.sqrt(dimension)


def theorem_10(
    rounds: int,
    *,
    dimension: int,
    servers: int,
    arrival_rate: float,
    context_slack: float,
    parameter_bound: float,
    diversity: float | None = None,
) -> float:
    """λ(1 − λ − ε₀)e^{−1/6}/(16√T), in jobs (CQB-η-2, Theorem 10): the average over the two hard instances of Lemma 12 of any
    policy's regret at round T is at least that, and so is the larger of the two.

    diversity : σ₀² of the class; None for 1/d, the instances' own.

    Raises
    ------
    ValueError : d or K below 2, T below 3, λ + ε₀ not below 1, S below B√d, or σ₀² above 1/d.
    """
    require_round(rounds, 3, "rounds")
    require_count("servers", servers, 2)
    least = theorem_10_least_bound(dimension, arrival_rate=arrival_rate, context_slack=context_slack)
    require_positive("parameter_bound", parameter_bound)
    if parameter_bound < least * (1 - ROUNDING):
        raise ValueError(
            f"parameter_bound must be at least B sqrt(d) = {least:.6g} (CQB-eta-2, Theorem 10), not {parameter_bound!r}"
        )
    if diversity is not None:
        _require_diversity(dimension, diversity, "CQB-eta-2, Theorem 10")
    return arrival_rate * _gamma(arrival_rate, context_slack) * math.exp(-1.0 / 6.0) / (16.0 * math.sqrt(rounds))


def theorem_10_probabilities(rounds: int, *, arrival_rate: float, context_slack: float) -> tuple[float, float]:
    """p_T and q_T = 1 − γ/2 ± γ/(8√T), γ = 1 − λ − ε₀: what the right and the wrong servers of the hard instances succeed with
    (CQB-η-2, Lemma 12)."""
    require_round(rounds, 3, "rounds")
    gamma = _gamma(arrival_rate, context_slack)
    shift = gamma / (8.0 * math.sqrt(rounds))
    return 1.0 - gamma / 2.0 + shift, 1.0 - gamma / 2.0 - shift


# --- helpers ---------------------------------------------------------------------------------------------------------


def _kappa(dimension: int, parameter_bound: float, kappa: float | None) -> float:
    least = require_ball(dimension, parameter_bound)
    if kappa is None:
        return least
    require_positive("kappa", kappa)
    if kappa < 4.0:
        raise ValueError(f"kappa must be at least 4, since mu' is at most 1/4 (CQB-eta-2, Assumption 2), not {kappa!r}")
    return float(kappa)


def _radius(t: int, dimension: int, bound: float, ridge: float, log_inverse_delta: float, kappa: float) -> float:
    growth = 0.5 * dimension * math.log1p(t / (kappa * ridge * dimension)) + 0.5 * log_inverse_delta
    return kappa * math.sqrt(growth) + bound * math.sqrt(kappa * ridge)


def _gamma(arrival_rate: float, context_slack: float) -> float:
    require_rate(arrival_rate)
    require_between(
        "context_slack", context_slack, 0.0, 1.0 - arrival_rate, "1 - arrival_rate; CQB-eta-2, Assumption 4"
    )
    return 1.0 - arrival_rate - context_slack


def _require_diversity(dimension: int, diversity: float, source: str) -> None:
    require_positive("diversity", diversity)
    if diversity > (1.0 + ROUNDING) / dimension:
        raise ValueError(
            f"diversity must be at most 1/d = {1.0 / dimension:.6g} ({source}; features of norm at most 1 have no more), not "
            f"{diversity!r}"
        )


def _require_class(dimension: int, arrival_rate: float, context_slack: float, diversity: float) -> None:
    _gamma(arrival_rate, context_slack)
    require_count("dimension", dimension)
    _require_diversity(dimension, diversity, "CQB-eta-2, Assumption 3")
