"""CQB-Opt: optimism over all waiting pairs (Bae et al. 2026a, as described in WISE Appendix F and CQB-η-2 (1)).

Serve argmax μ(⟨φ(x,k), θ̂_{t−1}⟩) + β_{t−1}‖φ(x,k)‖_{V⁻¹_{t−1}}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..._random import Stream
from ...fields import choice
from .. import logistic
from ..confidence import Radius
from ..logistic import Logistic, Settings
from ..policy import TIES, Policy, Shape, Ticket, Waiting
from ._contextual import (
    COMMON,
    Columns,
    estimation,
    explain_optimism,
    learn,
    most_optimistic,
    move,
    newcomer,
)


class Params(NamedTuple):
    """Estimation, radius and tie rule."""

    settings: Settings
    radius: Radius
    ties: int


class State(NamedTuple):
    """The estimate."""

    estimate: Logistic


def configure(options: Mapping[str, Any], shape: Shape) -> Params:
    """Check the options and fill in what the law suggests."""
    settings, radius = estimation(options, shape, "cqb_eta_2")
    return Params(settings, radius, choice(options, "ties", TIES))


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """Nothing observed yet."""
    return State(logistic.start(params.settings, shape.dimension, 0))


def admit(params: Params, state: State, columns: Columns, waiting: Waiting, slot: int) -> None:
    """A newcomer's widths are computed when it is first looked at."""
    newcomer(columns, slot)


def decide(params: Params, state: State, columns: Columns, waiting: Waiting, stream: Stream) -> tuple[int, int, int]:
    """The most optimistic pair."""
    return most_optimistic(params.radius, state.estimate, columns, waiting, params.ties, stream)


def assigned(params: Params, state: State, columns: Columns, waiting: Waiting, ticket: Ticket) -> None:
    """V_t = V_{t−1} + φφᵀ."""
    move(params.settings, state.estimate, ticket, 1.0)


def observe(params: Params, state: State, columns: Columns, waiting: Waiting, ticket: Ticket, success: bool) -> None:
    """θ̂_t by CQB-η-2 (2), WISE (8)."""
    learn(params.settings, state.estimate, ticket, success)


def expired(params: Params, state: State, columns: Columns, waiting: Waiting, ticket: Ticket) -> None:
    """An attempt whose outcome never came is taken out of V."""
    move(params.settings, state.estimate, ticket, -1.0)


def explain(params: Params, state: State, columns: Columns, waiting: Waiting, slot: int, server: int) -> dict[str, Any]:
    """Estimate, bonus and index of the pair, and how many pairs it beat."""
    return explain_optimism(params.radius, state.estimate, waiting, slot, server)


def cqb_opt(*, name: str = "", **options: Any) -> Policy:
    """Optimism over every waiting (job, server) pair.

    Parameters
    ----------
    ties : "earliest" (default; then the lowest server) or "random".
    radius, radius_scale, ridge, initial_design, parameter_bound, kappa, delta, tolerance :
        the estimator's common options (see docs/policies.md).
    """
    return Policy(
        "cqb_opt",
        decide,
        admit=admit,
        assigned=assigned,
        observe=observe,
        expired=expired,
        configure=configure,
        start=start,
        columns=Columns,
        options=options,
        defaults={**COMMON, "ties": "earliest"},
        name=name,
        explain=explain,
    )
