"""What the contextual policies share: their common options, the estimator, and the optimistic choice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..._compile import options
from ..._random import Stream, below
from ...fields import choice, number
from .. import logistic, one_pass
from ..confidence import FIXED, FORMULAS, Radius, follow_design, optimism, radius_now, squared_norms
from ..logistic import EXACT, ONE_PASS, SCHEDULED, Logistic, Settings
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
    "estimator": "exact",
    "growth": 0.1,
    "step": None,
}

#: How θ̂ follows the outcomes (docs/long-horizons.md).
ESTIMATORS = {"exact": EXACT, "scheduled": SCHEDULED, "one_pass": ONE_PASS}


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
    """The estimator's settings and the radius from the common options. `formula` is the paper's own radius.

    What a law suggests is meant for V. A one-pass estimate takes half a suggested radius: H is V with weights μ̇ ≤ ¼, so that
    ½‖φ‖_{H⁻¹} ≥ ‖φ‖_{V⁻¹} but for their beginnings. Its constants go with its radius: those of its theory with its formula;
    with a number those that lose nothing, η = 1 and λ = ridge, which make H the Hessian of the regularised loss and the
    step Newton's.
    """
    estimator, length = choice(options, "estimator", ESTIMATORS), shape.feature_bound
    suggested = options["radius"] is None and not math.isnan(shape.suggested_radius)
    in_theory = options["radius"] == "one_pass" or (options["radius"] is None and not suggested)
    ridge = number(options, "ridge", 0.0)
    bound = shape.parameter_bound if options["parameter_bound"] is None else number(options, "parameter_bound", 0.0)
    kappa = shape.kappa if options["kappa"] is None else number(options, "kappa", 0.0)
    delta = 1.0 / max(shape.rounds, 2) if options["delta"] is None else number(options, "delta", 0.0, 1.0)
    if options["step"] is not None:
        step = number(options, "step", 0.0)
    else:
        step = 1.0 + bound * length if in_theory else 1.0
    if options["initial_design"] is not None:
        initial = number(options, "initial_design", 0.0)
    elif estimator == ONE_PASS:
        initial = shape.dimension * length**2 if in_theory else ridge
    elif not math.isnan(shape.suggested_initial_design):
        initial = shape.suggested_initial_design
    else:  # WISE: V₀ = κI; CQB-η-2, Algorithm 1: V₀ = λ₀I
        initial = kappa if formula == "wise" else ridge
    if shape.blocks not in (1, shape.servers) or shape.dimension % shape.blocks:
        raise ValueError(
            f"blocks: must be 1, or the number of servers ({shape.servers}) where it divides the dimension "
            f"({shape.dimension}), not {shape.blocks!r}"
        )
    growth = math.log1p(number(options, "growth", 0.0, strict=False))
    tolerance = number(options, "tolerance", 0.0)
    settings = Settings(ridge, bound, initial, tolerance, shape.blocks, estimator, growth, step)
    return settings, _radius(options, shape, "one_pass" if estimator == ONE_PASS else formula, settings, kappa, delta)


def _radius(
    options: Mapping[str, Any], shape: Shape, formula: str, settings: Settings, kappa: float, delta: float
) -> Radius:
    """The radius that is named, else suggested, else the formula's."""
    scale = number(options, "radius_scale", 0.0)
    chosen, value, mirror = options["radius"], 0.0, settings.estimator == ONE_PASS
    if chosen is None and not math.isnan(shape.suggested_radius):
        value = shape.suggested_radius * (0.5 if mirror else 1.0)
    elif chosen is None:
        chosen = formula
    elif not isinstance(chosen, str):
        value = number(options, "radius", 0.0, strict=False)
    if isinstance(chosen, str):
        if chosen not in FORMULAS:
            raise ValueError(f"radius: must be a number of at least 0 or one of {sorted(FORMULAS)}, not {chosen!r}")
        if (chosen == "one_pass") != mirror:
            raise ValueError(
                f"radius: {chosen!r} is no radius of the estimator {options['estimator']!r}; give a number, or "
                + ("'one_pass'" if mirror else "'wise' or 'cqb_eta_2'")
            )
        if math.isinf(kappa) and not mirror:
            raise ValueError(
                "radius: the papers' formulas need kappa = 1/μ̇(S·max‖φ‖), which is beyond floating point for this "
                "system; give a number, or kappa"
            )
    return Radius(
        FORMULAS[chosen] if isinstance(chosen, str) else FIXED,
        scale if isinstance(chosen, str) else scale * value,
        kappa,
        settings.bound,
        shape.dimension,
        settings.initial_design if mirror else settings.ridge,
        delta,
        settings.step,
        shape.feature_bound,
        settings.estimator == SCHEDULED,
    )


def newcomer(columns: Columns, slot: int) -> None:
    """A newcomer has followed no move of V yet."""
    columns.met[slot] = -1


@options(inline="always")
def block_of(estimate: Logistic, ticket: Ticket) -> int:
    """The block in which an attempt's features are nonzero: its server's, or the only one."""
    return ticket.server if estimate.distinct.shape[0] > 1 else 0


@options(inline="always")
def move(settings: Settings, estimate: Logistic, ticket: Ticket, sign: float) -> None:
    """An attempt enters V (sign +1), or leaves it because its outcome never came (−1). H of a one-pass estimate knows nothing
    of attempts without an outcome."""
    if settings.estimator != ONE_PASS:
        logistic.move_design(estimate, ticket.features, sign, block_of(estimate, ticket))


@options(inline="always")
def learn(settings: Settings, estimate: Logistic, ticket: Ticket, success: bool) -> bool:
    """The outcome of an attempt reaches the estimate; whether WISE's log is due to have an interval of it."""
    if settings.estimator == ONE_PASS:
        one_pass.learn(settings, estimate, ticket.features, success, block_of(estimate, ticket))
        return logistic.has_grown(settings, estimate.log_det)
    return logistic.learn(settings, estimate, ticket.features, success, block_of(estimate, ticket))


def most_optimistic(
    radius: Radius, estimate: Logistic, columns: Columns, waiting: Waiting, ties: int, stream: Stream
) -> tuple[int, int, int]:
    """argmax over waiting pairs of μ(⟨φ, θ̂_{t−1}⟩) + β_{t−1}‖φ‖_{V⁻¹_{t−1}} (CQB-η-2 (1)); ties by the rule `ties`."""
    beta = radius_now(radius, waiting.round - 1, estimate.log_det)
    servers, blocks = waiting.allowed.shape[0], estimate.distinct.shape[0]
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
    beta = radius_now(radius, waiting.round - 1, estimate.log_det)
    bonus = beta * math.sqrt(max(float(squares[server]), 0.0))
    probability = float(logistic.logistic(z))
    return {"probability": probability, "bonus": bonus, "index": probability + bonus, "radius": beta}
