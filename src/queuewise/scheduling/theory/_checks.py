"""Assumptions as errors: a number of a theorem is not given out where the theorem does not hold."""

from __future__ import annotations

import math

from ...fields import require_count, require_number, require_positive
from ..systems import inverse_slope

#: Rounds beyond which formulas leave the range of floating point.
LAST_ROUND = 10**300
#: How far rounding may carry a number over its limit before an assumption counts as unmet.
ROUNDING = 1e-12


def require_round(t: int, least: int = 1, field: str = "t") -> None:
    """Refuse what is not a round from `least` on."""
    require_count(field, t, least)
    if t > LAST_ROUND:
        raise ValueError(f"{field} must be at most 1e300, where formulas leave floating point, not {t!r}")


def require_between(field: str, value: float, low: float, high: float, source: str) -> None:
    """Refuse a number outside (low, high), or at an end."""
    require_number(field, value)
    if not low < value < high:
        raise ValueError(f"{field} must lie strictly between {low:g} and {high:g} ({source}), not {value!r}")


def require_most(field: str, value: float, most: float, source: str) -> None:
    """Refuse a number above `most`, rounding apart."""
    require_positive(field, value)
    if value > most * (1 + ROUNDING):
        raise ValueError(f"{field} must be at most {most:.6g} ({source}), not {value!r}")


def require_rate(arrival_rate: float) -> None:
    """Refuse what is no arrival rate."""
    require_between("arrival_rate", arrival_rate, 0.0, 1.0, "jobs per round")


def require_ball(dimension: int, parameter_bound: float) -> float:
    """Check d and S; gives κ = 1/μ̇(S), which features of norm at most 1 make the least slope over the ball (WISE,
    Assumption 1-2)."""
    require_count("dimension", dimension)
    require_positive("parameter_bound", parameter_bound)
    kappa = inverse_slope(parameter_bound)
    if math.isinf(kappa):
        raise ValueError(f"parameter_bound must be below 700, where 1/mu'(S) is still finite, not {parameter_bound!r}")
    return kappa


def require_capacity(arrival_rate: float, capacity_slack: float) -> None:
    """Check λ and the capacity slack ε = 1 − λE[1/p*], which is at most 1 − λ (WISE, Assumption 2)."""
    require_rate(arrival_rate)
    require_most(
        "capacity_slack", capacity_slack, 1.0 - arrival_rate, "1 - lambda E[1/p*] with p* <= 1; WISE, Assumption 2"
    )
