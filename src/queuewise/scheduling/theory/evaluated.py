"""Every bound of WISE and CQB-η-2, evaluated on one system at one horizon."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...bounds import Assumption, Bound, all_hold
from ...fields import require_positive
from ..systems import System
from . import cqb_eta_2, wise
from ._checks import require_round

_LOWER = (
    "on average over the theorem's family of hard systems with this {what}, no policy's regret is smaller; it says nothing "
    "about this system itself"
)


def bounds(
    system: System,
    rounds: int,
    *,
    ridge: float = 1.0,
    width: float = 0.5,
    condition_constant: float = wise.CONDITION_CONSTANT,
    c1: float = cqb_eta_2.C1,
    c2: float = cqb_eta_2.C2,
) -> list[Bound]:
    """Every bound of both papers for one system at one horizon, each with the assumptions that it meets and fails.

    Parameters
    ----------
    system : the system; its slacks, norms, S and σ₀² are its own.
    rounds : the horizon t (WISE) or T (CQB-η-2), at least 3.
    ridge : λ₀ of CQB-η-2's estimate.
    width : r of WISE's Lemma 10.
    condition_constant : C₄ of WISE (62), which the paper does not name; the default is the least that its proofs use, so that
        with it (62) can fail for certain but never hold for certain.
    c1, c2 : of CQB-η-2 (4); the defaults are large enough (see :mod:`queuewise.scheduling.theory.cqb_eta_2`).

    Returns
    -------
    list of Bound
        A bound without a value is one whose assumptions are not met. Of upper bounds with an unnamed constant in front the
        value is what stands behind it, and ``reads`` says so.
    """
    if not isinstance(system, System):
        raise ValueError(f"system must be a scheduling System (of a family, one instance), not {system!r}")
    require_round(rounds, 3, "rounds")
    for field, number in (
        ("ridge", ridge),
        ("width", width),
        ("condition_constant", condition_constant),
        ("c1", c1),
        ("c2", c2),
    ):
        require_positive(field, number)
    if condition_constant < wise.CONDITION_CONSTANT:
        raise ValueError(
            f"condition_constant must be at least {wise.CONDITION_CONSTANT:g} (the proof of WISE's Lemma 12), not "
            f"{condition_constant!r}"
        )
    return [
        *_wise_upper(system, rounds, width, condition_constant),
        *_cqb_upper(system, rounds, ridge, c1, c2),
        *_lower(system, rounds),
    ]


def _bound(
    name: str, source: str, unit: str, reads: str, assumptions: Sequence[Assumption], value: Callable[[], float]
) -> Bound:
    """A bound whose value is asked for only where no assumption fails."""
    number = None if all_hold(assumptions) is False else float(value())
    if number is not None and not math.isfinite(number):
        number = None
    return Bound(name, source, number, False, unit, tuple(assumptions), reads)


def _of(system: System, theorem: str) -> dict[str, Assumption]:
    """The system's own checks, by name."""
    return {each.name: each for each in system.assumptions()[theorem].assumptions}


def _curved(system: System) -> Assumption:
    """κ = 1/μ̇(S) is finite in floating point."""
    finite = system.parameter_bound < 700.0
    return Assumption("S is below 700", finite, system.parameter_bound, "1/mu'(S) is finite in floating point")


def _wise_upper(system: System, rounds: int, width: float, constant: float) -> list[Bound]:
    checks = [*_of(system, "WISE Theorem 6").values(), _curved(system)]
    geometry = [each for each in checks if "capacity" not in each.name]
    ball: dict[str, Any] = {"dimension": system.dimension, "parameter_bound": system.parameter_bound}
    slack = system.slack()
    found = [
        _bound(
            "confidence_radius",
            "WISE (9)",
            "",
            "at every round from t on the parameter is that close to the estimate, in the norm of V_t, with probability "
            "1 - (t+1)^-2",
            geometry,
            lambda: wise.wise_radius(rounds, **ball),
        ),
        _bound(
            "elliptical_potential",
            "WISE Lemma 21",
            "",
            "the sum of squared widths ||phi||^2 in the norm of V^-1 over rounds 1..t, V_0 = kappa I",
            geometry,
            lambda: wise.elliptical_potential(
                rounds, dimension=system.dimension, kappa=1.0 / _slope(system.parameter_bound)
            ),
        ),
        _bound(
            "wide_intervals",
            "WISE Lemma 10",
            "rounds",
            f"rounds up to t in which WISE's chosen interval is wider than {width:g}, in every run",
            geometry,
            lambda: wise.wide_intervals(width, 1, rounds, **ball),
        ),
    ]
    timed = [*checks]
    if all_hold(checks) is not False:
        for condition in wise.theorem_6_conditions(
            rounds, **ball, arrival_rate=system.arrival_rate, capacity_slack=slack, constant=constant
        ):
            if not condition.name.startswith("(53)"):
                timed.append(_condition(condition, constant))
    lemma_12 = [each for each in timed if not each.name.startswith("(62)")]
    numbers: dict[str, Any] = {**ball, "capacity_slack": slack}
    found += [
        _bound(
            "work_left",
            "WISE Lemma 12",
            "probability",
            "WISE's workload at t exceeds l_0 of (12), and so does the time since the queue was empty",
            lemma_12,
            lambda: min(1.0, wise.lemma_12(rounds, rounds, **numbers, condition_constant=constant).workload_tail),
        ),
        _bound(
            "mean_workload",
            "WISE Lemma 12",
            "attempts",
            "WISE's mean workload at t, in mu(-S) attempts; mean queue length times mu(-S) is at most that",
            lemma_12,
            lambda: wise.lemma_12(rounds, rounds, **numbers, condition_constant=constant).mean_workload,
        ),
        _bound(
            "regret",
            "WISE Theorem 6",
            "jobs",
            "WISE's regret at t is at most C_1 times that, for an absolute constant C_1 that the paper does not name",
            timed,
            lambda: wise.theorem_6_shape(rounds, **numbers, arrival_rate=system.arrival_rate),
        ),
    ]
    return found


def _slope(z: float) -> float:
    p = wise.least_probability(z)
    return p * (1.0 - p)


def _condition(condition: wise.Condition, constant: float) -> Assumption:
    """A condition on t. Where the paper's C₄ is unnamed, meeting it with the given one decides nothing."""
    known = not condition.name.startswith("(62)")
    holds = condition.holds and (True if known else None)
    reason = f"t is e^{condition.margin:.3g} times what is asked"
    if not known:
        reason += f" with C4 = {constant:g}; the paper's C4 is larger by an unnamed factor"
    return Assumption(condition.name, holds if condition.holds else False, f"e^{condition.margin:.3g}", reason)


def _cqb_upper(system: System, rounds: int, ridge: float, c1: float, c2: float) -> list[Bound]:
    checks = [*_of(system, "CQB-eta-2 Theorem 5").values(), _curved(system)]
    ball: dict[str, Any] = {"dimension": system.dimension, "parameter_bound": system.parameter_bound}
    geometry = [each for each in checks if "slack" not in each.name and "diverse" not in each.name]
    found = [
        _bound(
            "confidence_radius",
            "CQB-eta-2 (3)",
            "",
            "with probability 1 - T^-4 every estimated probability is at most that times ||phi|| (norm of V^-1) from the truth",
            geometry,
            lambda: cqb_eta_2.cqb_eta_2_radius(rounds, **ball, ridge=ridge),
        )
    ]
    numbers: dict[str, Any] = {
        **ball,
        "arrival_rate": system.arrival_rate,
        "context_slack": system.context_slack().value,
        "diversity": min(system.feature_diversity().value, 1.0 / system.dimension),
    }
    timed = [*checks]
    phases = None
    if all_hold(checks) is not False:
        phases = cqb_eta_2.cqb_eta_2_phases(rounds, **numbers, ridge=ridge, c1=c1, c2=c2)
        timed.append(
            Assumption(
                "tau_2 - tau_1 >= T/2",
                phases.long_enough,
                float(phases.spare),
                f"tau_1 = {phases.phase_1_end:.4g}, tau_2 = {phases.phase_2_end:.4g}: "
                f"{abs(phases.spare):.4g} rounds {'to spare' if phases.long_enough else 'too few'}",
            )
        )
    if phases is not None:
        first = phases.phase_1_end
        found.append(
            _bound(
                "phase_1_end",
                "CQB-eta-2 (4)",
                "rounds",
                "how long Theorem 5 has CQB-eta-2 explore every newcomer",
                checks,
                lambda: float(first),
            )
        )
    found += [
        _bound(
            "regret",
            "CQB-eta-2 Theorem 5",
            "jobs",
            "CQB-eta-2's regret at T with delta = T^-4 and the phase ends (4), with the constants of the proof",
            timed,
            lambda: cqb_eta_2.theorem_5(rounds, **numbers, ridge=ridge, c1=c1, c2=c2),
        ),
        _bound(
            "regret_shape",
            "CQB-eta-2 Theorem 5",
            "jobs",
            "CQB-eta-2's regret at T is at most an unnamed constant times that",
            timed,
            lambda: cqb_eta_2.theorem_5_terms(rounds, **numbers).shape,
        ),
    ]
    return found


def _lower(system: System, rounds: int) -> list[Bound]:
    d, servers, rate = system.dimension, system.servers, system.arrival_rate
    slack, context = system.capacity_slack(), system.context_slack()
    many = [
        Assumption("d is at least 2", d >= 2, float(d), "entries of a feature vector"),
        Assumption("K is at least 2", servers >= 2, float(servers), "servers"),
    ]
    least = None
    if d >= 2 and 0 < context.value < 1 - rate:
        least = cqb_eta_2.theorem_10_least_bound(d, arrival_rate=rate, context_slack=context.value)
    return [
        _bound(
            "regret_of_any_policy",
            "WISE Theorem 7",
            "jobs",
            _LOWER.format(what="d, K and lambda, S = 1/4, at round t"),
            [*many, Assumption("lambda is at most 1/4", rate <= 0.25, rate, "jobs per round")],
            lambda: wise.theorem_7(rounds, dimension=d, servers=servers, arrival_rate=rate),
        ),
        _bound(
            "regret_of_any_policy",
            "WISE Theorem 8",
            "jobs",
            _LOWER.format(what="d, K and capacity slack, lambda = 1/4 and S = 2, at round t"),
            [
                *many,
                Assumption("lambda is 1/4", math.isclose(rate, 0.25, rel_tol=1e-9), rate, "the family's arrival rate"),
                Assumption("capacity slack is at most 1/8", 0 < slack.value <= 0.125, slack, "1 - lambda E[1/p*]"),
                Assumption(
                    "t is at least 64/eps^2",
                    slack.value > 0 and rounds * slack.value**2 >= 64.0 * (1 - 1e-12),
                    float(rounds),
                    f"64/eps^2 = {64.0 / slack.value**2:.4g}" if slack.value > 0 else "there is no capacity slack",
                ),
            ],
            lambda: wise.theorem_8(rounds, dimension=d, servers=servers, capacity_slack=slack.value),
        ),
        _bound(
            "regret_of_any_policy",
            "CQB-eta-2 Theorem 10",
            "jobs",
            _LOWER.format(what="d, K, lambda and context-wise slack, and S and sigma_0^2 in range, at round T"),
            [
                *many,
                Assumption(
                    "context-wise slack is positive and below 1 - lambda",
                    (0 < context.value < 1 - rate) if context.exact or context.value <= 0 else None,
                    context,
                    "min p* - lambda",
                ),
                Assumption(
                    "S is at least B sqrt(d)",
                    least is not None and system.parameter_bound >= least,
                    system.parameter_bound,
                    "no context-wise slack to form B with" if least is None else f"B sqrt(d) = {least:.4g}",
                ),
                Assumption(
                    "sigma_0^2 is at most 1/d",
                    system.feature_diversity().value <= (1 + 1e-9) / d,
                    system.feature_diversity(),
                    f"1/d = {1.0 / d:.4g}",
                ),
            ],
            lambda: cqb_eta_2.theorem_10(
                rounds,
                dimension=d,
                servers=servers,
                arrival_rate=rate,
                context_slack=context.value,
                parameter_bound=system.parameter_bound,
            ),
        ),
    ]
