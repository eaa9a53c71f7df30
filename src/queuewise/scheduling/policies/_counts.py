"""What the context-free learners share: successes and attempts per server, exploration, and the choice of a server."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._random import Stream, below, uniform
from ...fields import choice, number
from ..policy import EXPLOIT, RANDOM, TIE, TIES, Shape, Ticket, Waiting


class Params(NamedTuple):
    """Scale of the exploration probability and the tie rule."""

    exploration_scale: float
    ties: int


class State(NamedTuple):
    """Attempts with a known outcome and successes among them: float64[K] each."""

    attempts: NDArray[np.float64]
    successes: NDArray[np.float64]


DEFAULTS: dict[str, Any] = {"exploration_scale": 1.0, "ties": "earliest"}


def configure(options: Any, shape: Shape) -> Params:
    """Check the options."""
    return Params(number(options, "exploration_scale", 0.0, strict=False), choice(options, "ties", TIES))


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """Nothing observed yet."""
    return State(np.zeros(shape.servers), np.zeros(shape.servers))


def observe(params: Params, state: State, columns: Any, waiting: Waiting, ticket: Ticket, success: bool) -> None:
    """Count the outcome."""
    state.attempts[ticket.server] += 1.0
    if success:
        state.successes[ticket.server] += 1.0


def log_squared(t: int) -> float:
    """ln²(max{t, 2}), the exploration of Krishnasamy et al. (2021) as in WISE Appendix F."""
    logarithm = math.log(max(t, 2))
    return logarithm * logarithm


def explores(params: Params, waiting: Waiting, stream: Stream) -> bool:
    """With probability min{1, 3K ln²(max{t, 2})/t}."""
    servers = waiting.allowed.shape[0]
    probability = params.exploration_scale * 3.0 * servers * log_squared(waiting.round) / waiting.round
    return bool(uniform(stream) < probability)


def best_server(index: NDArray[np.float64], waiting: Waiting, ties: int, stream: Stream) -> tuple[int, int, int]:
    """The earliest job at the allowed server of largest index."""
    best, server, tied = -math.inf, -1, 0
    for k in range(index.shape[0]):
        if not waiting.allowed[k]:
            continue
        if server < 0 or index[k] > best + TIE * math.fabs(best):
            best, server, tied = index[k], k, 1
        elif ties == RANDOM and (index[k] == best or index[k] >= best - TIE * math.fabs(best)):
            tied += 1
            if below(stream, tied) == 0:
                server = k
    return waiting.slots[0], server, EXPLOIT
