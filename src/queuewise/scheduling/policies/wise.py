"""WISE: Widest Interval Selection with Elimination (WISE, Algorithm 1). Anytime: no horizon is given to it.

Every waiting pair holds the intersection of its confidence intervals since the running epoch began. Pairs whose upper
end lies below some pair's lower end cannot be best and are out; of the others the *widest* is served, first in (arrival
order, server) at a tie. Epochs begin at τ_m = ⌈2^{m−1+U₀}⌉ with one uniform shift U₀ (WISE (10)); an intersection that
becomes empty is frozen at its midpoint until the next epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._compile import options
from ..._random import Stream, uniform
from ...fields import number
from ...growing import copied
from .. import intervals, logistic
from ..confidence import Radius, radius_at
from ..intervals import UNKNOWN, Log, Memory, width_key
from ..logistic import ALL, EXACT, SCHEDULED, Logistic, Settings
from ..policy import EXPLOIT, TIE, PerJob, PerServer, Policy, Shape, Ticket, Waiting
from ._contextual import (
    COMMON,
    estimation,
    learn,
    move,
)


class Columns(NamedTuple):
    """Per waiting job: ends of its intervals as logits, whether frozen (0 or 1), ‖φ‖²_{V⁻¹}, width keys as far as known; the
    epoch in which it last met the log, and how many entries of it; its context in the memory, −1 where it has none."""

    low: PerServer
    high: PerServer
    frozen: PerServer
    squares: PerServer
    keys: PerServer
    epoch: PerJob
    met: PerJob
    context: PerJob


class Params(NamedTuple):
    """Estimation, radius, and the logit of p̄ = μ(S·max‖φ‖) (p̲ is its mirror image)."""

    settings: Settings
    radius: Radius
    logit_bound: float


class State(NamedTuple):
    """The estimate, the running epoch's log, contexts met before, and the shift U₀ (float64[1])."""

    estimate: Logistic
    log: Log
    memory: Memory
    shift: NDArray[np.float64]


def configure(options: Mapping[str, Any], shape: Shape) -> Params:
    """Check the options and fill in what the law suggests."""
    settings, radius = estimation(options, shape, "wise")
    bound = settings.bound * shape.feature_bound
    if options["logit_bound"] is not None:
        bound = number(options, "logit_bound", 0.0)
    return Params(settings, radius, min(bound, 700.0))


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """Nothing observed yet; U₀ is drawn once."""
    estimator = params.settings.estimator
    return State(
        logistic.start(params.settings, shape.dimension, 0),
        intervals.start(shape.dimension, 2, shape.blocks, estimator),
        intervals.empty_memory(shape.dimension, shape.servers, estimator),
        np.array([uniform(stream)]),
    )


def admit(params: Params, state: State, columns: Columns, waiting: Waiting, slot: int) -> None:
    """A newcomer has met no epoch; it meets the running one when it is first looked at."""
    columns.epoch[slot] = -1
    columns.context[slot] = -1
    if state.memory.counts[1] > 0:
        columns.context[slot] = intervals.recognise(state.memory, waiting.features[slot])


@options(inline="always")
def recall(memory: Memory, columns: Columns, slot: int, context: int) -> None:
    """What the last job of this context knew becomes what this one knows."""
    held = memory.held[context]
    for k in range(held.shape[1]):
        columns.low[slot, k], columns.high[slot, k] = held[0, k], held[1, k]
        columns.frozen[slot, k], columns.squares[slot, k], columns.keys[slot, k] = held[2, k], held[3, k], held[4, k]


@options(inline="always")
def remember(memory: Memory, columns: Columns, slot: int, context: int) -> None:
    """What this job knows is kept for the next one of its context."""
    held = memory.held[context]
    for k in range(held.shape[1]):
        held[0, k], held[1, k] = columns.low[slot, k], columns.high[slot, k]
        held[2, k], held[3, k], held[4, k] = columns.frozen[slot, k], columns.squares[slot, k], columns.keys[slot, k]
    memory.met[context, 0], memory.met[context, 1] = columns.epoch[slot], columns.met[slot]


@options(inline="always")
def look(params: Params, state: State, columns: Columns, waiting: Waiting) -> float:
    """Bring every waiting pair's interval up to date; the largest lower end among allowed pairs (a logit)."""
    log, memory, log_det = state.log, state.memory, state.estimate.log_det
    last = radius_at(params.radius, waiting.round - 1)
    m = intervals.epoch_of(waiting.round, state.shift[0])
    if m != log.counts[0]:
        # Empty rounds since τ have changed nothing but β, and I_{τ−1} has β_{τ−1}.
        first = intervals.epoch_start(m, state.shift[0]) - 1
        log_det[1] = log_det[0]
        if params.settings.estimator == SCHEDULED:
            logistic.fit(params.settings, state.estimate, ALL)
        intervals.begin_epoch(log, state.estimate, m, radius_at(params.radius, first))
    if params.settings.estimator == EXACT:
        intervals.close(log, last)
    elif log_det[0] > log_det[1] and logistic.has_grown(params.settings, log_det):  # by attempts in flight
        logistic.fit(params.settings, state.estimate, ALL)
        intervals.log_interval(log, state.estimate, last)
    floor = -math.inf
    for position in range(waiting.jobs):
        slot = waiting.slots[position]
        met = columns.met[slot] if columns.epoch[slot] == m else 0
        context = columns.context[slot] if met == 0 else -1
        if context >= 0 and memory.met[context, 0] == m:
            recall(memory, columns, slot, context)
            met = columns.met[slot] = memory.met[context, 1]
            columns.epoch[slot] = m
        if met < log.counts[1]:
            intervals.meet(
                log,
                params.logit_bound,
                met,
                columns.low[slot],
                columns.high[slot],
                columns.frozen[slot],
                columns.squares[slot],
                columns.keys[slot],
                waiting.features[slot],
            )
            columns.met[slot] = log.counts[1]
            columns.epoch[slot] = m
            if context >= 0:
                remember(memory, columns, slot, context)
        for k in range(waiting.allowed.shape[0]):
            if waiting.allowed[k] and columns.low[slot, k] > floor:
                floor = columns.low[slot, k]
    return floor


def decide(params: Params, state: State, columns: Columns, waiting: Waiting, stream: Stream) -> tuple[int, int, int]:
    """The widest candidate (Algorithm 1, lines 16 and 17)."""
    floor = look(params, state, columns, waiting)
    widest, chosen, server = -1.0, -1, -1
    for position in range(waiting.jobs):
        slot = waiting.slots[position]
        for k in range(waiting.allowed.shape[0]):
            if waiting.allowed[k] and columns.high[slot, k] >= floor:
                key = columns.keys[slot, k]
                if key == UNKNOWN:
                    key = columns.keys[slot, k] = width_key(columns.low[slot, k], columns.high[slot, k])
                if key > widest + TIE * math.fabs(widest) or chosen < 0:
                    widest, chosen, server = key, slot, k
    return chosen, server, EXPLOIT


def assigned(params: Params, state: State, columns: Columns, waiting: Waiting, ticket: Ticket) -> None:
    """V_t = V_{t−1} + φφᵀ (line 19)."""
    move(params.settings, state.estimate, ticket, 1.0)
    if params.settings.estimator == EXACT:
        intervals.log_move(state.log, state.estimate)


def observe(params: Params, state: State, columns: Columns, waiting: Waiting, ticket: Ticket, success: bool) -> None:
    """θ̂_t by WISE (8), β_t by (9), and the interval I_t (line 19)."""
    formed = learn(params.settings, state.estimate, ticket, success)
    state.log.counts[3] += 1
    if params.settings.estimator == EXACT:
        intervals.log_outcome(state.log, state.estimate, radius_at(params.radius, waiting.round))
    elif formed:
        intervals.log_interval(state.log, state.estimate, radius_at(params.radius, waiting.round))


def expired(params: Params, state: State, columns: Columns, waiting: Waiting, ticket: Ticket) -> None:
    """An attempt whose outcome never came is taken out of V; intervals already intersected stay."""
    move(params.settings, state.estimate, ticket, -1.0)
    state.log.counts[3] += 1
    if params.settings.estimator == EXACT:
        intervals.log_move(state.log, state.estimate)


def explain(params: Params, state: State, columns: Columns, waiting: Waiting, slot: int, server: int) -> dict[str, Any]:
    """The pair's interval of probabilities, the candidates, and why it won."""
    state, columns = copied(state), copied(columns)  # looking forms intervals, and explaining must change nothing
    floor = look(params, state, columns, waiting)
    slots = waiting.slots[: waiting.jobs]
    candidates = (columns.high[slots] >= floor) & waiting.allowed
    probability = np.vectorize(logistic.logistic)
    pairs = [(int(slots[i]), int(k)) for i, k in np.argwhere(candidates)]
    interval = (float(probability(columns.low[slot, server])), float(probability(columns.high[slot, server])))
    return {
        "interval": interval,
        "width": interval[1] - interval[0],
        "frozen": bool(columns.frozen[slot, server]),
        "largest_lower_end": float(probability(floor)),
        "candidates": pairs,
        "eliminated": int(waiting.jobs * waiting.allowed.sum() - len(pairs)),
        "epoch": int(state.log.counts[0]),
        "why": "widest interval among the pairs that can still be best"
        if (slot, server) in pairs
        else "not a candidate: its upper end lies below the largest lower end",
    }


def wise(*, name: str = "", **options: Any) -> Policy:
    """WISE: serve the widest interval among the pairs that can still be best.

    Parameters
    ----------
    logit_bound : logit of p̄; p̲ is its mirror image. None (default) for S·max‖φ‖, 50 in the paper's experiments.
    radius, radius_scale, ridge, initial_design, parameter_bound, kappa, delta, tolerance :
        the estimator's common options (see docs/policies.md).
    """
    return Policy(
        "wise",
        decide,
        admit=admit,
        assigned=assigned,
        observe=observe,
        expired=expired,
        configure=configure,
        start=start,
        columns=Columns,
        options=options,
        defaults={**COMMON, "logit_bound": None},
        name=name,
        explain=explain,
    )
