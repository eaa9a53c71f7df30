"""CQB-ε: explore newcomers, else be optimistic (Bae et al. 2026a, as described in WISE Appendix F).

For the first τ rounds every newly arrived job is served at the next server in round robin; afterwards, with
probability T^{−1/2}, at a uniform server. In every other round the CQB-Opt rule chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._random import Stream, uniform
from ...fields import choice, number
from .. import logistic
from ..confidence import Radius
from ..logistic import Logistic, Settings
from ..policy import EXPLORE, TIES, Policy, Shape, Waiting
from ._contextual import (
    COMMON,
    Columns,
    estimation,
    most_optimistic,
    next_allowed,
    random_allowed,
    share_of_rounds,
)
from .cqb_opt import admit, assigned, expired, explain, observe


class Params(NamedTuple):
    """τ in rounds, the later exploration probability, estimation, radius and tie rule."""

    settings: Settings
    radius: Radius
    ties: int
    exploration_rounds: int
    exploration: float


class State(NamedTuple):
    """The estimate and the round-robin counter (int64[1])."""

    estimate: Logistic
    turn: NDArray[np.int64]


def configure(options: Mapping[str, Any], shape: Shape) -> Params:
    """Check the options; the later exploration probability is T^{−1/2} unless given."""
    settings, radius = estimation(options, shape, "cqb_eta_2")
    later = shape.rounds**-0.5
    if options["exploration"] is not None:
        later = number(options, "exploration", 0.0, 1.0, strict=False)
    rounds = share_of_rounds(options, "exploration_rounds", shape.rounds)
    return Params(settings, radius, choice(options, "ties", TIES), rounds, later)


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """Nothing observed yet."""
    return State(logistic.start(params.settings, shape.dimension, 0), np.zeros(1, dtype=np.int64))


def decide(params: Params, state: State, columns: Columns, waiting: Waiting, stream: Stream) -> tuple[int, int, int]:
    """Explore the newcomer, or be optimistic."""
    if waiting.newest >= 0:
        if waiting.round <= params.exploration_rounds:
            return waiting.newest, next_allowed(waiting.allowed, state.turn), EXPLORE
        if uniform(stream) < params.exploration:
            return waiting.newest, random_allowed(waiting.allowed, stream), EXPLORE
    return most_optimistic(params.radius, state.estimate, columns, waiting, params.ties, stream)


def cqb_epsilon(*, name: str = "", **options: Any) -> Policy:
    """CQB-ε: exploration of newcomers for `exploration_rounds`, rarely afterwards, optimism otherwise.

    Parameters
    ----------
    exploration_rounds : τ, a number of rounds or a share of the horizon (default 200, WISE's experiments; CQB-η-2's own
        have 0.2).
    exploration : probability after τ; None (default) for T^{−1/2}.
    ties : "earliest" (default) or "random". Common options of the estimator: see docs/policies.md.
    """
    return Policy(
        "cqb_epsilon",
        decide,
        admit=admit,
        assigned=assigned,
        observe=observe,
        expired=expired,
        configure=configure,
        start=start,
        columns=Columns,
        options=options,
        defaults={**COMMON, "ties": "earliest", "exploration_rounds": 200, "exploration": None},
        name=name,
        explain=explain,
    )
