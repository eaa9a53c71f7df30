"""ACQB: Thompson sampling with vanishing exploration, without a horizon (Bae et al. 2026b; WISE Appendix F).

Draw M parameters from N(θ̂_{t−1}, β²V⁻¹_{t−1}), shared by all pairs, and serve the pair whose largest sampled
probability is largest. After an arrival, with probability min{1, c₁(t + 1)^{−1/2}}, serve the newcomer instead, at the
next server in round robin. Sampled *logits* are compared: probabilities round to 1 together when β is large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._random import Stream, below, normal, uniform
from ...fields import choice, number, whole
from .. import logistic
from ..confidence import Radius, radius_now, scores
from ..logistic import Logistic, Settings, cholesky, solve_upper
from ..policy import EXPLOIT, EXPLORE, RANDOM, TIE, TIES, NoColumns, Policy, Shape, Ticket, Waiting
from ._contextual import (
    COMMON,
    estimation,
    explain_optimism,
    learn,
    move,
    next_allowed,
)


class Params(NamedTuple):
    """M, c₁, estimation, radius and tie rule."""

    settings: Settings
    radius: Radius
    ties: int
    samples: int
    exploration_scale: float


class State(NamedTuple):
    """The estimate, the round-robin counter (int64[1]) and the last draws (float64[M, d])."""

    estimate: Logistic
    turn: NDArray[np.int64]
    draws: NDArray[np.float64]


def configure(options: Mapping[str, Any], shape: Shape) -> Params:
    """Check the options and fill in what the law suggests."""
    settings, radius = estimation(options, shape, "cqb_eta_2")
    scale = number(options, "exploration_scale", 0.0, strict=False)
    return Params(settings, radius, choice(options, "ties", TIES), whole(options, "samples", 1), scale)


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """Nothing observed yet."""
    estimate = logistic.start(params.settings, shape.dimension, 0)
    return State(estimate, np.zeros(1, dtype=np.int64), np.zeros((params.samples, shape.dimension)))


def draw(estimate: Logistic, beta: float, draws: NDArray[np.float64], stream: Stream) -> None:
    """draws[m] ~ N(θ̂, β²V⁻¹): with V = LLᵀ, θ̂ + βL⁻ᵀn for a standard normal n."""
    d, b = estimate.design.shape
    lower = np.zeros((d, b))
    for first in range(0, d, b):
        cholesky(estimate.design[first : first + b], 0.0, lower[first : first + b])
    for m in range(draws.shape[0]):
        for j in range(d):
            draws[m, j] = normal(stream)
        for first in range(0, d, b):
            solve_upper(lower[first : first + b], draws[m, first : first + b])
        for j in range(d):
            draws[m, j] = estimate.theta[j] + beta * draws[m, j]


def decide(params: Params, state: State, columns: Any, waiting: Waiting, stream: Stream) -> tuple[int, int, int]:
    """Explore the newcomer, or serve argmax_pair max_m ⟨φ, draw_m⟩."""
    if waiting.newest >= 0 and uniform(stream) < params.exploration_scale / math.sqrt(waiting.round + 1.0):
        return waiting.newest, next_allowed(waiting.allowed, state.turn), EXPLORE
    draw(state.estimate, radius_now(params.radius, waiting.round - 1, state.estimate.log_det), state.draws, stream)
    servers, blocks = waiting.allowed.shape[0], state.estimate.distinct.shape[0]
    index, largest = np.empty(servers), np.empty(servers)
    best, slot, server, tied = -math.inf, -1, -1, 0
    for position in range(waiting.jobs):
        candidate = waiting.slots[position]
        for m in range(params.samples):
            scores(state.draws[m], waiting.features[candidate], blocks, index)
            for k in range(servers):
                largest[k] = index[k] if m == 0 else max(largest[k], index[k])
        for k in range(servers):
            if not waiting.allowed[k]:
                continue
            if slot < 0 or largest[k] > best + TIE * math.fabs(best):
                best, slot, server, tied = largest[k], candidate, k, 1
            elif params.ties == RANDOM and largest[k] >= best - TIE * math.fabs(best):
                tied += 1
                if below(stream, tied) == 0:
                    slot, server = candidate, k
    return slot, server, EXPLOIT


def assigned(params: Params, state: State, columns: Any, waiting: Waiting, ticket: Ticket) -> None:
    """V_t = V_{t−1} + φφᵀ."""
    move(params.settings, state.estimate, ticket, 1.0)


def observe(params: Params, state: State, columns: Any, waiting: Waiting, ticket: Ticket, success: bool) -> None:
    """θ̂_t by WISE (8)."""
    learn(params.settings, state.estimate, ticket, success)


def expired(params: Params, state: State, columns: Any, waiting: Waiting, ticket: Ticket) -> None:
    """An attempt whose outcome never came is taken out of V."""
    move(params.settings, state.estimate, ticket, -1.0)


def explain(params: Params, state: State, columns: Any, waiting: Waiting, slot: int, server: int) -> dict[str, Any]:
    """Estimate and spread of the pair, and the logit that each of the last draws gave it."""
    seen = explain_optimism(params.radius, state.estimate, waiting, slot, server)
    logits = state.draws @ waiting.features[slot, :, server]
    return {"probability": seen["probability"], "spread": seen["bonus"], "sampled_logits": [float(z) for z in logits]}


def acqb(*, name: str = "", **options: Any) -> Policy:
    """Thompson sampling over waiting pairs, with exploration of newcomers that vanishes like t^{−1/2}.

    Parameters
    ----------
    samples : M, draws per round (default 5, the papers' value).
    exploration_scale : c₁ (default 1, WISE's experiments; CQB-η-2's have 20).
    ties : "earliest" (default) or "random". Common options of the estimator: see docs/policies.md; `radius` is the β of
        the sampling covariance.
    """
    return Policy(
        "acqb",
        decide,
        assigned=assigned,
        observe=observe,
        expired=expired,
        configure=configure,
        start=start,
        columns=NoColumns,
        options=options,
        defaults={**COMMON, "ties": "earliest", "samples": 5, "exploration_scale": 1.0},
        name=name,
        explain=explain,
    )
