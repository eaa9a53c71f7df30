"""What the contextual policies share: their common options, the estimator, and the optimistic choice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..._compile import options
from ..._random import Stream, below
from ...fields import number
from .. import logistic
from ..confidence import FIXED, FORMULAS, Radius, follow_design, optimism, radius_at, squared_norms
from ..logistic import Logistic, Settings
from ..policy import EXPLOIT, RANDOM, TIE, PerJob, PerServer, Shape, Ticket, Waiting


class Columns(NamedTuple):
    """Per waiting job: ‖φ(x, k)‖²_{V⁻¹} and the moves of V that it has followed (minus one for a newcomer)."""

    squares: PerServer
    met: PerJob


#: Options of every contextual policy; None stands for "as the law suggests, else as the policy's own paper has it".
COMMON: dict[str, Any] = {
    "radius": None,
    "radius_scale": 1.0,
    "ridge": 1.0,
    "initial_design": None,
    "parameter_bound": None,
    "kappa": None,
    "delta": None,
    "tolerance": 1e-8,
}


def share_of_rounds(options: Mapping[str, Any], key: str, rounds: int) -> int:
    """A round given as a whole number, or as a share of the horizon (a float in [0, 1])."""
    value = options[key]
    if isinstance(value, float) and 0.0 <= value <= 1.0:
        return round(value * rounds)
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 0:
        return int(value)
    raise ValueError(
        f"{key}: must be a number of rounds, or a share of the horizon as a float in [0, 1], not {value!r}"
    )


def estimation(options: Mapping[str, Any], shape: Shape, formula: str) -> tuple[Settings, Radius]:
    """The estimator's settings and the radius from the common options. `formula` is the paper's own radius."""
    ridge = number(options, "ridge", 0.0)
    bound = shape.parameter_bound if options["parameter_bound"] is None else number(options, "parameter_bound", 0.0)
    kappa = shape.kappa if options["kappa"] is None else number(options, "kappa", 0.0)
    delta = 1.0 / max(shape.rounds, 2) if options["delta"] is None else number(options, "delta", 0.0, 1.0)
    scale = number(options, "radius_scale", 0.0)
    chosen = options["radius"]
    suggested = chosen is None and not math.isnan(shape.suggested_radius)
    if suggested:
        chosen = shape.suggested_radius
    elif chosen is None:
        chosen = formula
    if isinstance(chosen, str):
        if chosen not in FORMULAS:
            raise ValueError(f"radius: must be a number above 0 or one of {sorted(FORMULAS)}, not {chosen!r}")
        if math.isinf(kappa):
            raise ValueError(
                "radius: the papers' formulas need kappa = 1/μ̇(S·max‖φ‖), which is beyond floating point for this "
                "system; give a number, or kappa"
            )
        radius = Radius(FORMULAS[chosen], scale, kappa, bound, shape.dimension, ridge, delta)
    else:
        fixed = number({"radius": chosen}, "radius", 0.0, strict=False)
        radius = Radius(FIXED, scale * fixed, kappa, bound, shape.dimension, ridge, delta)
    if options["initial_design"] is not None:
        initial = number(options, "initial_design", 0.0)
    elif not math.isnan(shape.suggested_initial_design):
        initial = shape.suggested_initial_design
    else:  # WISE: V₀ = κI; CQB-η-2, Algorithm 1: V₀ = λ₀I
        initial = kappa if formula == "wise" else ridge
    if shape.blocks not in (1, shape.servers) or shape.dimension % shape.blocks:
        raise ValueError(
            f"blocks: must be 1, or the number of servers ({shape.servers}) where it divides the dimension "
            f"({shape.dimension}), not {shape.blocks!r}"
        )
    return Settings(ridge, bound, initial, number(options, "tolerance", 0.0), shape.blocks), radius


def newcomer(columns: Columns, slot: int) -> None:
    """A newcomer has followed no move of V yet."""
    columns.met[slot] = -1


@options(inline="always")
def block_of(estimate: Logistic, ticket: Ticket) -> int:
    """The block in which an attempt's features are nonzero: its server's, or the only one."""
    return ticket.server if estimate.known.shape[0] > 1 else 0


@options(inline="always")
def move(estimate: Logistic, ticket: Ticket, sign: float) -> None:
    """An attempt enters V (sign +1), or leaves it because its outcome never came (−1)."""
    logistic.move_design(estimate, ticket.features, sign, block_of(estimate, ticket))


@options(inline="always")
def learn(settings: Settings, estimate: Logistic, ticket: Ticket, success: bool) -> None:
    """The outcome of an attempt reaches the estimate."""
    logistic.learn(settings, estimate, ticket.features, success, block_of(estimate, ticket))


def most_optimistic(
    radius: Radius, estimate: Logistic, columns: Columns, waiting: Waiting, ties: int, stream: Stream
) -> tuple[int, int, int]:
    """argmax over waiting pairs of μ(⟨φ, θ̂_{t−1}⟩) + β_{t−1}‖φ‖_{V⁻¹_{t−1}} (CQB-η-2 (1)); ties by the rule `ties`."""
    beta = radius_at(radius, waiting.round - 1)
    servers, blocks = waiting.allowed.shape[0], estimate.known.shape[0]
    follow_design(estimate, columns.met, columns.squares, waiting.features, waiting.slots, waiting.jobs)
    theta = estimate.theta
    index = np.empty(servers)
    best, slot, server, tied = -math.inf, -1, -1, 0
    for position in range(waiting.jobs):
        candidate = waiting.slots[position]
        optimism(theta, beta, columns.squares[candidate], waiting.features[candidate], blocks, index)
        for k in range(servers):
            if not waiting.allowed[k]:
                continue
            if index[k] > best + TIE * math.fabs(best) or slot < 0:
                best, slot, server, tied = index[k], candidate, k, 1
            elif ties == RANDOM and index[k] >= best - TIE * math.fabs(best):
                tied += 1
                if below(stream, tied) == 0:
                    slot, server = candidate, k
    return slot, server, EXPLOIT


def random_allowed(allowed: Any, stream: Stream) -> int:
    """A uniform server among those allowed."""
    count = 0
    for k in range(allowed.shape[0]):
        if allowed[k]:
            count += 1
    pick = below(stream, count)
    for k in range(allowed.shape[0]):
        if allowed[k]:
            if pick == 0:
                return int(k)
            pick -= 1
    return -1


def next_allowed(allowed: Any, turn: Any) -> int:
    """Round robin over the servers: the next allowed one from turn[0] on; the counter moves past it."""
    servers = allowed.shape[0]
    for step in range(servers):
        k = (turn[0] + step) % servers
        if allowed[k]:
            turn[0] = (k + 1) % servers
            return int(k)
    return -1


def explain_optimism(radius: Radius, estimate: Logistic, waiting: Waiting, slot: int, server: int) -> dict[str, Any]:
    """What an optimistic rule saw in one pair: estimated probability, bonus β‖φ‖_{V⁻¹}, index."""
    squares = np.empty(waiting.features.shape[2])
    squared_norms(estimate.inverse, waiting.features[slot], squares)
    z = float(waiting.features[slot, :, server] @ estimate.theta)
    beta = radius_at(radius, waiting.round - 1)
    bonus = beta * math.sqrt(max(float(squares[server]), 0.0))
    probability = float(logistic.logistic(z))
    return {"probability": probability, "bonus": bonus, "index": probability + bonus, "radius": beta}
