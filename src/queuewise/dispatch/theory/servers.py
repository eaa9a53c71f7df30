"""Two servers under SED(r), and the constants that LASED's Section 4 makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from ...bounds import Assumption
from ...fields import require_count, require_list
from ..systems import Rate, exact_rate

#: Jobs at server 1 up to which ξ_r is looked for.
MOST_WIDE = 2_000_000


def require(source: str, *assumptions: Assumption) -> None:
    """ValueError, in one sentence, for the first assumption that is not met."""
    for assumption in assumptions:
        if not assumption.holds:
            raise ValueError(f"{source} assumes that {assumption.name}, not {assumption.value} ({assumption.reason})")


@dataclass(frozen=True)
class Pair:
    """Two servers with one slot each, Poisson arrivals and exponential service, under SED(r).

    Server 1 gets an arrival iff r(q₁ + 1) ≤ q₂ + 1. All numbers are kept as the fractions that they spell. Made by
    :func:`pair`.

    Attributes
    ----------
    arrival_rate : λ, jobs per time · service_rates : (μ₁, μ₂), jobs per time · ratio : r
    """

    arrival_rate: Fraction
    service_rates: tuple[Fraction, Fraction]
    ratio: Fraction

    @property
    def true_ratio(self) -> Fraction:
        """r* = μ₂/μ₁, for which SED(r) is SED."""
        return self.service_rates[1] / self.service_rates[0]

    @property
    def wide(self) -> Fraction:
        """r ∨ 1."""
        return max(self.ratio, Fraction(1))

    @property
    def narrow(self) -> Fraction:
        """r ∧ 1."""
        return min(self.ratio, Fraction(1))

    @property
    def slower(self) -> float:
        """μ₁ ∧ μ₂, jobs per time."""
        return float(min(self.service_rates))

    @property
    def total_rate(self) -> float:
        """λ + μ₁ + μ₂, events per time at most."""
        return float(self.arrival_rate + sum(self.service_rates))

    @property
    def slack(self) -> Fraction:
        """δ_min = min{μ₂ − (λ − μ₁)⁺, μ₁ − (λ − μ₂)⁺}, jobs per time (LASED (20), deduced from Section A.2)."""
        first, second = self.service_rates
        zero = Fraction(0)
        return min(second - max(self.arrival_rate - first, zero), first - max(self.arrival_rate - second, zero))

    @property
    def pull(self) -> float:
        """a_r = √(r ∧ 1) δ_min/4, per time: how fast √φ_r falls, twice (LASED (21))."""
        return math.sqrt(self.narrow) * float(self.slack) / 4.0

    @property
    def push(self) -> Fraction:
        """b_r = 2(r ∨ 1)((μ₁ ∨ μ₂) + λ), per time: how fast φ_r may rise (LASED (22))."""
        return 2 * self.wide * (max(self.service_rates) + self.arrival_rate)

    @property
    def core(self) -> Fraction:
        """κ_r = 4b_r/δ_min, the size of C_r = {q : rq₁ + q₂ ≤ κ_r} (LASED (23))."""
        return 4 * self.push / self.slack

    @property
    def core_jobs(self) -> float:
        """κ_r((1/r) ∨ 1): no state of C_r has more jobs."""
        return float(self.core / self.narrow)

    def core_tops(self, most: int) -> list[int]:
        """⌊κ_r − rq₁⌋ for q₁ = 0..most: q lies in C_r iff q₂ is at most that."""
        r, core = self.ratio, self.core
        common = math.lcm(r.denominator, core.denominator)
        step, height = int(r * common), int(core * common)
        return [(height - step * q) // common for q in range(most + 1)]

    def in_core(self, queue: Sequence[int]) -> bool:
        """Whether q lies in C_r, exactly."""
        return self.ratio * queue[0] + queue[1] <= self.core

    def potential(self, queue: Sequence[int]) -> float:
        """φ_r(q) of one state, see :func:`queuewise.dispatch.theory.potential`."""
        return float(self.ratio) * queue[0] * (queue[0] + 1) / 2.0 + queue[1] * (queue[1] + 1) / 2.0

    def boundary(self) -> list[tuple[int, int]]:
        """B_r, the states outside C_r that one arrival leads to from C_r, by q₁ then q₂ (Section 4.2, deduced)."""
        tops = self._tops()
        found = [(q, top + 1) for q, top in enumerate(tops[:-1])]
        for q, top in enumerate(tops[:-1]):  # (q, k) lies in C_r and (q + 1, k) does not
            found += [(q + 1, k) for k in range(max(tops[q + 1] + 1, 0), top + 1)]
        return sorted(set(found))

    def _tops(self) -> list[int]:
        widest = math.floor(self.core / self.ratio)
        if widest > MOST_WIDE:
            raise ValueError(
                f"ξ_r is looked for along C_r, which must be at most {MOST_WIDE} jobs wide, not {widest}: the load is "
                "too close to 1, or r to 0"
            )
        return self.core_tops(widest + 1)

    @cached_property
    def ceiling(self) -> float:
        """ξ_r = max φ_r over B_r (LASED (31): the paper bounds this maximum by an expression that the text lacks).

        ValueError : C_r is too wide to go through (load close to 1, r close to 0).
        """
        tops = self._tops()
        above = [(q, top + 1) for q, top in enumerate(tops[:-1])]
        beside = [(q + 1, top) for q, top in enumerate(tops[:-1]) if top > tops[q + 1]]  # the highest of each column
        return max(map(self.potential, above + beside))

    @property
    def ceiling_closed(self) -> float:
        """A bound on ξ_r without going through B_r: rq₁ + q₂ ≤ z = κ_r + (r ∨ 1) there, and φ_r, being convex, is largest in a
        corner of that triangle, z(z/(r ∧ 1) + 1)/2. It falls in r up to 1 and rises from 1 on."""
        edge = self.core + self.wide
        return float(edge * (edge / self.narrow + 1) / 2)

    @property
    def decay(self) -> float:
        """θ_r = (1/D) ln((D + d)/(D − d)), D = √(r ∨ 1), d = a_r/(2(λ + μ₁ + μ₂)): a choice of ours where the text is cut.

        The largest θ with which exp(θ√φ_r) is a supermartingale outside C_r (Lemma 4) by what its proof uses: steps of at most
        D, and a mean step of at most −d. See ``docs/theory-lased.md``.
        """
        step = math.sqrt(self.wide)
        return 2.0 * math.atanh(self.pull / (2.0 * self.total_rate) / step) / step

    @property
    def exponent(self) -> float:
        """θ_r √((r ∧ 1)/2), by which Lemma 6 decays in m."""
        return self.decay * math.sqrt(self.narrow / 2)

    @property
    def log_return_chance(self) -> float:
        """ln p_r, p_r = (μ/(λ + μ))^{κ_r((1/r) ∨ 1)}, μ = μ₁ ∧ μ₂: from C_r, at most the chance to be empty before B_r
        (LASED (30))."""
        return -self.core_jobs * math.log1p(float(self.arrival_rate) / self.slower)

    @property
    def span(self) -> float:
        """ℓ_r = 2κ_r((1/r) ∨ 1)/(μ₁ ∧ μ₂), time: twice what C_r's jobs take (Section 4.3, deduced from Lemma 7's proof)."""
        return 2.0 * self.core_jobs / self.slower

    def first_state(self) -> tuple[int, int]:
        """Where the first arrival of a busy period leads: to server 1 iff r ≤ 1."""
        return (1, 0) if self.ratio <= 1 else (0, 1)


def stability(arrival_rate: Fraction, service_rates: Sequence[Fraction]) -> Assumption:
    """λ < μ₁ + μ₂ (LASED (7))."""
    total = sum(service_rates)
    return Assumption(
        "the arrival rate is below what the servers do together",
        arrival_rate < total,
        _short(arrival_rate),
        f"Σμ_i = {_short(Fraction(total))}, LASED (7)",
    )


def pair(arrival_rate: Rate, service_rates: Sequence[Rate], ratio: Rate | None = None) -> Pair:
    """Two servers under SED(r): what the bounds of LASED's Sections 4 and 5 are functions of.

    Parameters
    ----------
    arrival_rate : λ, jobs per time · service_rates : (μ₁, μ₂), jobs per time · ratio : r; None for r* = μ₂/μ₁.
        Numbers or fractions such as "1/3"; decimals are the fractions that they spell.

    Raises
    ------
    ValueError : rates that are not positive, not two of them, λ ≥ μ₁ + μ₂ (LASED (7)).
    """
    rates = [exact_rate("service_rates", rate) for rate in require_list("service_rates", service_rates, "rates")]
    if len(rates) != 2:
        raise ValueError(f"service_rates must be those of two servers, not of {len(rates)}")
    arriving = exact_rate("arrival_rate", arrival_rate)
    require("SED(r)", stability(arriving, rates))
    chosen = rates[1] / rates[0] if ratio is None else exact_rate("ratio", ratio)
    return Pair(arriving, (rates[0], rates[1]), chosen)


def require_state(name: str, queue: Sequence[int]) -> tuple[int, int]:
    """Two queue lengths; ValueError otherwise."""
    found = require_list(name, queue, "two queue lengths")
    if len(found) != 2:
        raise ValueError(f"{name} must be the lengths of two queues, not {list(found)!r}")
    for length in found:
        require_count(name, length, 0)
    return int(found[0]), int(found[1])


def _short(value: Fraction) -> str:
    return f"{float(value):.6g}"
