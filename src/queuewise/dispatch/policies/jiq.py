"""Join an idle queue: a server with a free slot, if there is one, else a uniformly random server."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._random import Stream, below
from ...fields import choice
from ..choice import HIGHEST, LOWEST, RANDOM
from ..policy import EXPLOIT, Policy, Seen, Shape
from ._delay import Floats, Ints

#: Which of several idle servers; the rates are unknown to the rule, so there is no "fastest".
IDLE = {"lowest": LOWEST, "highest": HIGHEST, "random": RANDOM}


class Params(NamedTuple):
    """Which of several idle servers."""

    ties: int


def configure(options: Any, shape: Shape) -> Params:
    """The tie rule."""
    return Params(choice(options, "ties", IDLE))


def decide(params: Params, state: Any, seen: Seen, stream: Stream) -> tuple[int, int]:
    """An idle server, else any."""
    idle, found = 0, -1
    for i in range(seen.queue.shape[0]):
        if seen.queue[i] < seen.slots[i]:
            idle += 1
            if idle == 1 or params.ties == HIGHEST or (params.ties == RANDOM and below(stream, idle) == 0):
                found = i
    if idle == 0:
        return below(stream, seen.queue.shape[0]), EXPLOIT
    return found, EXPLOIT


def law(params: Params, weights: Floats, queue: Ints, slots: Ints) -> Floats:
    """The choice in many states at once."""
    idle = queue < slots
    chosen = idle.astype(np.float64)
    if params.ties != RANDOM:
        columns = np.arange(queue.shape[1])
        order = np.where(idle, columns if params.ties == LOWEST else -columns, queue.shape[1])
        chosen = (order == order.min(axis=1, keepdims=True)).astype(np.float64)
    chosen[~idle.any(axis=1)] = 1.0
    return np.asarray(chosen / chosen.sum(axis=1, keepdims=True))


def jiq(*, name: str = "", **options: Any) -> Policy:
    """Join an idle server if there is one, else a random one.

    ties : which of several idle servers: "lowest" (default), "highest" or "random".
    """
    return Policy("jiq", decide, configure=configure, options=options, defaults={"ties": "lowest"}, name=name, law=law)
