"""CQB-η-2: three phases of exploring newcomers at uniform servers (CQB-η-2, Algorithm 1).

If a job arrived in round t − 1 and a coin E(t − 1) ~ Bern(η) says so, that job is served at a uniform server; else the
CQB-Opt rule chooses. η = 1 for t ≤ τ₁, ε₀/4 for τ₁ < t ≤ τ₂ (ε₀ the context-wise slack), 0 afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..._random import Stream, uniform
from ...fields import choice, number
from ..confidence import Radius
from ..logistic import Settings
from ..policy import EXPLORE, TIES, Policy, Shape, Waiting
from ._contextual import (
    COMMON,
    Columns,
    estimation,
    most_optimistic,
    random_allowed,
    share_of_rounds,
)
from .cqb_opt import State, admit, assigned, expired, explain, observe, start


class Params(NamedTuple):
    """Phase ends τ₁ ≤ τ₂ in rounds, η of the second phase, estimation, radius and tie rule."""

    settings: Settings
    radius: Radius
    ties: int
    phase_1_end: int
    phase_2_end: int
    exploration: float


def configure(options: Mapping[str, Any], shape: Shape) -> Params:
    """Check the options; η of the second phase is ε₀/4 unless given."""
    settings, radius = estimation(options, shape, "cqb_eta_2")
    first = share_of_rounds(options, "phase_1_end", shape.rounds)
    second = share_of_rounds(options, "phase_2_end", shape.rounds)
    if second < first:
        raise ValueError(f"phase_2_end: must not lie before phase_1_end (round {first}), but is round {second}")
    if options["exploration"] is not None:
        eta = number(options, "exploration", 0.0, 1.0, strict=False)
    elif shape.context_slack > 0.0:
        eta = shape.context_slack / 4.0
    else:
        raise ValueError(
            "exploration: cqb_eta_2 takes a quarter of the context-wise slack, but this system has none "
            f"({shape.context_slack:.4g}); give a number in [0, 1]"
        )
    return Params(settings, radius, choice(options, "ties", TIES), first, second, eta)


def decide(params: Params, state: State, columns: Columns, waiting: Waiting, stream: Stream) -> tuple[int, int, int]:
    """Explore the newcomer by the phase's coin, or be optimistic (CQB-η-2, Algorithm 1, lines 2–14)."""
    eta = 0.0
    if waiting.round <= params.phase_1_end:
        eta = 1.0
    elif waiting.round <= params.phase_2_end:
        eta = params.exploration
    if waiting.newest >= 0 and uniform(stream) < eta:
        return waiting.newest, random_allowed(waiting.allowed, stream), EXPLORE
    return most_optimistic(params.radius, state.estimate, columns, waiting, params.ties, stream)


def cqb_eta_2(*, name: str = "", **options: Any) -> Policy:
    """CQB-η-2: pure exploration of newcomers, then exploration with probability η beside optimism, then optimism.

    Parameters
    ----------
    phase_1_end, phase_2_end : τ₁ and τ₂, numbers of rounds or shares of the horizon (defaults 0.2 and 0.3, the paper's
        experiments; WISE's have 0.3 and 0.7).
    exploration : η of the second phase; None (default) for a quarter of the system's context-wise slack.
    ties : "earliest" (default) or "random". Common options of the estimator: see docs/policies.md.
    """
    return Policy(
        "cqb_eta_2",
        decide,
        admit=admit,
        assigned=assigned,
        observe=observe,
        expired=expired,
        configure=configure,
        start=start,
        columns=Columns,
        options=options,
        defaults={**COMMON, "ties": "earliest", "phase_1_end": 0.2, "phase_2_end": 0.3, "exploration": None},
        name=name,
        explain=explain,
    )
