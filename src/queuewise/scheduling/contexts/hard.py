"""The hard instances behind the papers' lower bounds, exactly as constructed: families on which no policy does well on average.

``wise_theorem_7``
    one context, 2^d₀ sign vectors, separation of order 1/√(λt) (WISE, Appendix C)
``wise_theorem_8``
    the same servers near p* = λ/(1−ε): errors last for ε⁻² rounds (WISE, Appendix D)
``cqb_eta_2_theorem_10``
    2^{d−1} contexts, two instances whose right servers are complementary (CQB-η-2, Lemma 12)

Each is a context law with `signs` for one member, or `seed` for a uniformly random one, so that
``family(wise_theorem_7, rounds=100)`` draws a fresh member per run and averages over the family, which is what the theorems
bound. A family belongs to one horizon: the separation shrinks with `rounds`. :func:`members` gives all of them.

What the papers say of an instance is checked on every one that is made, and ``.facts`` has the numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...fields import require_count
from ..systems import Floats, System, logistic
from ..theory.cqb_eta_2 import theorem_10, theorem_10_least_bound, theorem_10_probabilities
from ..theory.wise import (
    THEOREM_8_ARRIVAL_RATE,
    bernoulli_divergence,
    least_probability,
    sign_coordinates,
    theorem_7,
    theorem_7_separation,
    theorem_8,
    theorem_8_separation,
)
from .table import FiniteLaw, probabilities_at

#: How far rounding may carry what the papers state of an instance.
_ROUNDING = 1e-9
#: Contexts of CQB-η-2's instances are 2^{d−1}: from this dimension on a table of them is too large.
_MOST_DIMENSION = 14


@dataclass(frozen=True)
class Fact:
    """Something that a paper states of an instance, checked on its table: `value` is at most `limit` (or at least, or equal).

    A :class:`HardSystem` does not come into being where one fails.
    """

    name: str
    value: float
    relation: str
    limit: float

    @property
    def holds(self) -> bool:
        room = _ROUNDING * abs(self.limit) + 1e-14
        if self.relation == "=":
            return abs(self.value - self.limit) <= room
        return self.value <= self.limit + room if self.relation == "<=" else self.value >= self.limit - room


@dataclass(frozen=True, eq=False, kw_only=True)
class HardSystem(System):
    """A member of a lower bound's family.

    Attributes
    ----------
    rounds : int
        The horizon that the family belongs to: its bound is on the regret at this round.
    signs : tuple of int
        Which member: v for WISE's, (+1,) or (−1,) for CQB-η-2's.
    separation : float
        η of WISE's instances (a logit), p_T − q_T of CQB-η-2's.
    bound : float
        What the average regret over the family at round `rounds` is at least, in jobs, for every policy.
    best : float
        p*, the same for every context: the oracle's queue length is that of a Geo/Geo/1 queue.
    facts : tuple of Fact
        What the paper states of the instance, checked.
    """

    rounds: int
    signs: tuple[int, ...]
    separation: float
    bound: float
    best: float
    facts: tuple[Fact, ...]


def wise_theorem_7(
    rounds: int = 1000,
    dimension: int = 4,
    servers: int = 8,
    arrival_rate: float = 0.25,
    *,
    signs: Sequence[int] | None = None,
    seed: int = 0,
) -> HardSystem:
    """A member of the family of WISE's Theorem 7 (WISE, Appendix C).

    One context. Servers are sign vectors u ∈ {−1, +1}^d₀, d₀ = min{d − 1, ⌊log₂ K⌋} (further servers are copies), with features
    (71); the instance v has the parameter (72). Server u succeeds with probability μ(−2η·d_H(u, v)/d₀), so that the server of
    the same signs is best, at 1/2.

    Parameters
    ----------
    rounds : t, at least 3.
    dimension, servers : d and K, each at least 2.
    arrival_rate : λ, at most 1/4.
    signs : v, d₀ numbers −1 or +1; None for a random one.
    seed : draws v where it is not given.

    Raises
    ------
    ValueError : a number out of range.
    """
    d0 = sign_coordinates(dimension, servers)
    eta = theorem_7_separation(rounds, dimension=dimension, servers=servers, arrival_rate=arrival_rate)
    law, theta, vector, divergence, shared = _sign_instance(dimension, servers, d0, 0.0, eta, signs, seed)
    least = float(logistic(-0.25))
    facts = (
        *shared,
        Fact("||theta||^2 = 4 eta^2", float(theta @ theta), "<=", 1.0 / 16.0),
        Fact("p* is 1/2", float(law.probabilities.max()), "=", 0.5),
        Fact("every p is at least mu(-1/4)", float(law.probabilities.min()), ">=", least),
        Fact("capacity slack is 1 - 2 lambda", 1.0 - arrival_rate * law.mean_attempts(), "=", 1.0 - 2.0 * arrival_rate),
        Fact("KL between neighbours' histories", arrival_rate * rounds / least * divergence, "<=", 1.0 / 8.0),
    )
    return _system(
        "WISE Theorem 7",
        law,
        theta,
        0.25,
        facts,
        rounds=rounds,
        signs=vector,
        separation=eta,
        bound=theorem_7(rounds, dimension=dimension, servers=servers, arrival_rate=arrival_rate),
        arrival_rate=arrival_rate,
        identification={"dimension": dimension, "servers": servers, "arrival_rate": arrival_rate},
    )


def wise_theorem_8(
    rounds: int = 4096,
    dimension: int = 4,
    servers: int = 8,
    capacity_slack: float = 0.125,
    *,
    signs: Sequence[int] | None = None,
    seed: int = 0,
) -> HardSystem:
    """A member of the family of WISE's Theorem 8 (WISE, Appendix D): λ = 1/4 and p* = λ/(1 − ε).

    Servers and signs as in :func:`wise_theorem_7`; server u succeeds with probability μ(logit p* − 2η·d_H(u, v)/d₀),
    η = min{1/8, d₀/√t}/20.

    Parameters
    ----------
    rounds : t, at least 64/ε².
    dimension, servers : d and K, each at least 2.
    capacity_slack : ε, at most 1/8.
    signs, seed : as in :func:`wise_theorem_7`.

    Raises
    ------
    ValueError : a number out of range.
    """
    d0 = sign_coordinates(dimension, servers)
    eta = theorem_8_separation(rounds, dimension=dimension, servers=servers, capacity_slack=capacity_slack)
    rate = THEOREM_8_ARRIVAL_RATE
    best = rate / (1.0 - capacity_slack)
    top = math.log(best / (1.0 - best))
    law, theta, vector, divergence, shared = _sign_instance(dimension, servers, d0, top, eta, signs, seed)
    facts = (
        *shared,
        Fact("||theta||^2", float(theta @ theta), "<=", 4.0),
        Fact("p* is lambda/(1 - eps)", float(law.probabilities.max()), "=", best),
        Fact("p* is at most 2/7", float(law.probabilities.max()), "<=", 2.0 / 7.0),
        Fact("every p is at least mu(-2)", float(law.probabilities.min()), ">=", least_probability(2.0)),
        Fact("capacity slack is eps", 1.0 - rate * law.mean_attempts(), "=", capacity_slack),
        Fact("KL between neighbours' histories", rounds * divergence, "<=", 1.0 / 800.0),
    )
    return _system(
        "WISE Theorem 8",
        law,
        theta,
        2.0,
        facts,
        rounds=rounds,
        signs=vector,
        separation=eta,
        bound=theorem_8(rounds, dimension=dimension, servers=servers, capacity_slack=capacity_slack),
        arrival_rate=rate,
        identification={"dimension": dimension, "servers": servers, "capacity_slack": capacity_slack},
    )


def cqb_eta_2_theorem_10(
    rounds: int = 1000,
    dimension: int = 3,
    servers: int = 4,
    arrival_rate: float = 0.5,
    context_slack: float = 0.1,
    *,
    parameter_bound: float | None = None,
    signs: Sequence[int] | None = None,
    seed: int = 0,
) -> HardSystem:
    """One of the two instances ν± of CQB-η-2's Theorem 10 (CQB-η-2, Lemma 12).

    Contexts x(σ) = (1, σ₂, …, σ_d)/√d, all 2^{d−1} equally likely; φ(x, 1) = x, and every other server has the sign of the
    second entry flipped. In ν₊ server 1 is right (p_T) for contexts with σ₂ = +1 and all others are for σ₂ = −1; in ν₋ it is
    the other way round. Wrong servers have q_T = p_T − (1−λ−ε₀)/(4√T).

    Parameters
    ----------
    rounds : T, at least 3.
    dimension, servers : d from 2 to 14 and K, at least 2.
    arrival_rate, context_slack : λ and ε₀ with λ + ε₀ < 1.
    parameter_bound : S; None for the least that the theorem allows, B√d.
    signs : (+1,) or (−1,); None for a random one.
    seed : draws it where it is not given.

    Raises
    ------
    ValueError : a number out of range.
    """
    require_count("dimension", dimension, 2)
    if dimension > _MOST_DIMENSION:
        raise ValueError(
            f"dimension must be at most {_MOST_DIMENSION}, since the instance has 2^(dimension - 1) contexts, not {dimension}"
        )
    least = theorem_10_least_bound(dimension, arrival_rate=arrival_rate, context_slack=context_slack)
    bound = least if parameter_bound is None else float(parameter_bound)
    value = theorem_10(
        rounds,
        dimension=dimension,
        servers=servers,
        arrival_rate=arrival_rate,
        context_slack=context_slack,
        parameter_bound=bound,
    )
    right, wrong = theorem_10_probabilities(rounds, arrival_rate=arrival_rate, context_slack=context_slack)
    vector = _signs(signs, 1, seed)
    cube = np.array(list(itertools.product((1.0, -1.0), repeat=dimension - 1)))
    contexts = np.column_stack([np.ones(len(cube)), cube]) / math.sqrt(dimension)
    mirror = np.ones(dimension)
    mirror[1] = -1.0
    features = np.empty((len(contexts), dimension, servers))
    features[:, :, 0] = contexts
    features[:, :, 1:] = (contexts * mirror)[:, :, None]
    law, other = (
        FiniteLaw(features, probabilities_at(features, theta), np.full(len(contexts), 1.0 / len(contexts)))
        for theta in (_two_parameters(dimension, right, wrong, sign) for sign in (vector[0], -vector[0]))
    )
    theta = _two_parameters(dimension, right, wrong, vector[0])
    gamma = 1.0 - arrival_rate - context_slack
    constants = law.constants()
    middle = 0.5 * (right + wrong)
    goes_right = law.probabilities > middle
    first_right = float((goes_right[:, 0] == (cube[:, 0] == vector[0])).all())
    complementary = float((goes_right != (other.probabilities > middle)).all())
    divergence = _divergence(law, other)
    facts = (
        Fact("largest ||phi||", constants.largest_norm.value, "=", 1.0),
        Fact("||theta||", float(np.linalg.norm(theta)), "<=", least),
        Fact("sigma_0^2 is 1/d", constants.diversity.value, "=", 1.0 / dimension),
        Fact("p* is p_T in every context", constants.lowest_best.value, "=", right),
        Fact("context-wise slack", constants.lowest_best.value - arrival_rate, ">=", context_slack),
        Fact(
            "q_T - lambda - eps", float(law.probabilities.min()) - arrival_rate - context_slack, ">=", 3.0 * gamma / 8.0
        ),
        Fact("p_T - q_T", float(np.ptp(law.probabilities)), "=", gamma / (4.0 * math.sqrt(rounds))),
        Fact("server 1 is right where the second sign is v", first_right, "=", 1.0),
        Fact("right servers are complementary", complementary, "=", 1.0),
        Fact("least u(1 - u)", constants.least_variance.value, ">=", 3.0 * gamma / 16.0),
        Fact("KL per attempt between the two", divergence, "<=", gamma / (6.0 * rounds)),
        Fact("KL between the two histories", (rounds - 2) * divergence, "<=", 1.0 / 6.0),
    )
    return _system(
        "CQB-η-2 Theorem 10",
        law,
        theta,
        bound,
        facts,
        rounds=rounds,
        signs=vector,
        separation=right - wrong,
        bound=value,
        arrival_rate=arrival_rate,
        identification={
            "dimension": dimension,
            "servers": servers,
            "arrival_rate": arrival_rate,
            "context_slack": context_slack,
            "parameter_bound": parameter_bound,
        },
    )


def members(law: Callable[..., HardSystem], **parameters: Any) -> list[HardSystem]:
    """Every instance of a family, ``members(wise_theorem_7, rounds=100)``, in the order of their sign vectors.

    Raises
    ------
    ValueError : `signs` or `seed` among the parameters.
    """
    for field in ("signs", "seed"):
        if field in parameters:
            raise ValueError(f"{field} must be left out: members gives the instance of every sign vector")
    count = len(law(**parameters).signs)
    return [law(signs=signs, **parameters) for signs in itertools.product((-1, 1), repeat=count)]


def divergences(one: System, other: System) -> Floats:
    """D_KL(Bern(p) ‖ Bern(p′)) of one attempt, in nats, per context and server: float64[contexts, K].

    Raises
    ------
    ValueError : the two are not over one table of contexts.
    """
    first, second = one.law, other.law
    if (
        isinstance(first, FiniteLaw)
        and isinstance(second, FiniteLaw)
        and np.array_equal(first.features, second.features)
    ):
        return _divergences(first, second)
    raise ValueError("one and other must share one table of contexts, as members of one family do")


# --- parts -----------------------------------------------------------------------------------------------------------


def _sign_instance(
    dimension: int, servers: int, d0: int, top: float, eta: float, signs: Sequence[int] | None, seed: int
) -> tuple[FiniteLaw, Floats, tuple[int, ...], float, tuple[Fact, ...]]:
    """What WISE's two families share, with the best server's logit at `top`: law, θ, v, the largest KL distance of an attempt
    to a neighbour's, and the facts that both proofs use."""
    features, codes = _sign_features(dimension, servers, d0)
    vector = _signs(signs, d0, seed)
    theta = _sign_parameter(dimension, top - eta, eta, vector)
    law = _one_context(features, theta)
    neighbours = [_one_context(features, _sign_parameter(dimension, top - eta, eta, each)) for each in _flipped(vector)]
    divergence = max(_divergence(law, other) for other in neighbours)
    wrong = _distances(codes, vector)
    facts = (
        Fact("largest ||phi||", law.constants().largest_norm.value, "=", 1.0),
        Fact("the best server has the instance's signs", float(wrong[int(law.probabilities[0].argmax())]), "=", 0.0),
        Fact("neighbours' logits differ by 2 eta/d0", _shift(law, neighbours), "=", 2.0 * eta / d0),
        Fact("KL per attempt between neighbours", divergence, "<=", eta**2 / (2.0 * d0**2)),
    )
    return law, theta, vector, divergence, facts


def _sign_features(dimension: int, servers: int, d0: int) -> tuple[Floats, Floats]:
    """φ(x₀, k_u) of WISE (71) as float64[1, d, K], and every server's u: float64[K, d₀]."""
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=d0)))
    codes = signs[np.arange(servers) % len(signs)]  # copies beyond 2^d₀ servers
    features = np.zeros((1, dimension, servers))
    features[0, 0] = 1.0 / math.sqrt(2.0)
    features[0, 1 : d0 + 1] = codes.T / math.sqrt(2.0 * d0)
    return features, codes


def _sign_parameter(dimension: int, first: float, eta: float, signs: Sequence[int]) -> Floats:
    """√2(first·e₀ + (η/√d₀) Σ v_a e_a): WISE (72) and Appendix D, with first = z* − η."""
    theta = np.zeros(dimension)
    theta[0] = math.sqrt(2.0) * first
    theta[1 : len(signs) + 1] = math.sqrt(2.0 / len(signs)) * eta * np.array(signs, dtype=np.float64)
    return theta


def _two_parameters(dimension: int, right: float, wrong: float, sign: int) -> Floats:
    """θ± = ½√d((z_p + z_q)e₁ ± (z_p − z_q)e₂) (CQB-η-2, Lemma 12)."""
    high, low = (math.log(p / (1.0 - p)) for p in (right, wrong))
    theta = np.zeros(dimension)
    theta[:2] = 0.5 * math.sqrt(dimension) * np.array([high + low, sign * (high - low)])
    return theta


def _signs(signs: Sequence[int] | None, count: int, seed: int) -> tuple[int, ...]:
    if signs is None:
        require_count("seed", seed, 0)
        return tuple(int(sign) for sign in np.random.default_rng(seed).choice((-1, 1), size=count))
    if len(signs) != count or any(sign not in (-1, 1) for sign in signs):
        raise ValueError(f"signs must be {count} numbers -1 or +1, not {list(signs)!r}")
    return tuple(int(sign) for sign in signs)


def _flipped(signs: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The sign vectors that differ in one coordinate."""
    return [tuple(-sign if a == b else sign for b, sign in enumerate(signs)) for a in range(len(signs))]


def _distances(codes: Floats, signs: Sequence[int]) -> Floats:
    """Hamming distance d_H(u, v) of every server's signs to the instance's."""
    return np.asarray((codes != np.array(signs)).sum(axis=1), dtype=np.float64)


def _one_context(features: Floats, theta: Floats) -> FiniteLaw:
    return FiniteLaw(features, probabilities_at(features, theta), np.ones(1))


def _shift(law: FiniteLaw, neighbours: Sequence[FiniteLaw]) -> float:
    """The largest distance of a logit to a neighbour's (they are all equal)."""
    return max(float(np.abs(_logit(law.probabilities) - _logit(each.probabilities)).max()) for each in neighbours)


def _logit(p: Floats) -> Floats:
    return np.asarray(np.log(p) - np.log1p(-p), dtype=np.float64)


def _divergences(one: FiniteLaw, other: FiniteLaw) -> Floats:
    pairs = zip(one.probabilities.ravel().tolist(), other.probabilities.ravel().tolist(), strict=True)
    return np.array([bernoulli_divergence(p, q) for p, q in pairs]).reshape(one.probabilities.shape)


def _divergence(one: FiniteLaw, other: FiniteLaw) -> float:
    return float(max(_divergences(one, other).max(), _divergences(other, one).max()))


def _system(
    theorem: str,
    law: FiniteLaw,
    theta: Floats,
    parameter_bound: float,
    facts: tuple[Fact, ...],
    *,
    rounds: int,
    signs: tuple[int, ...],
    separation: float,
    bound: float,
    arrival_rate: float,
    identification: dict[str, Any],
) -> HardSystem:
    for fact in facts:
        if not fact.holds:
            raise ArithmeticError(
                f"{theorem}: {fact.name} must be {fact.relation} {fact.limit:.12g}, but is {fact.value:.12g}; the numbers "
                "are too extreme for floating point"
            )
    name = f"hard instance of {theorem}, t={rounds}"
    return HardSystem(
        name=name,
        arrival_rate=float(arrival_rate),
        law=law,
        theta=theta,
        parameter_bound=float(parameter_bound),
        feature_bound=1.0,
        notes=(
            f"separation {separation:.4g}; no policy's average regret over the family at round {rounds} is below {bound:.4g}",
        ),
        identification={"law": theorem, "rounds": int(rounds), "signs": list(signs), **identification},
        rounds=int(rounds),
        signs=signs,
        separation=separation,
        bound=bound,
        best=float(law.probabilities.max()),
        facts=facts,
    )
