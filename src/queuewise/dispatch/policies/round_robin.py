"""Every server in turn, blind to queues and rates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._random import Stream
from ..policy import EXPLOIT, Policy, Seen, Shape, Ticket
from ._delay import Ints


class State(NamedTuple):
    """The server whose turn it is: int64[1]."""

    turn: Ints


def start(params: Any, shape: Shape, stream: Stream) -> State:
    """The first server is first."""
    return State(np.zeros(1, dtype=np.int64))


def decide(params: Any, state: State, seen: Seen, stream: Stream) -> tuple[int, int]:
    """Whose turn it is."""
    return state.turn[0], EXPLOIT


def assigned(params: Any, state: State, seen: Seen, ticket: Ticket) -> None:
    """The next one's turn."""
    state.turn[0] = (ticket.server + 1) % seen.queue.shape[0]


def round_robin(*, name: str = "") -> Policy:
    """Every server in turn."""
    return Policy("round_robin", decide, assigned=assigned, start=start, name=name)
