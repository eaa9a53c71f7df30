"""A uniformly random server for every job, blind to queues and rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._random import Stream, below
from ..policy import EXPLOIT, Policy, Seen
from ._delay import Floats, Ints


def decide(params: Any, state: Any, seen: Seen, stream: Stream) -> tuple[int, int]:
    """Any server."""
    return below(stream, seen.queue.shape[0]), EXPLOIT


def law(params: Any, weights: Floats, queue: Ints, slots: Ints) -> Floats:
    """The same in every state."""
    return np.full(queue.shape, 1.0 / queue.shape[1])


def random(*, name: str = "") -> Policy:
    """A uniformly random server for every job."""
    return Policy("random", decide, name=name, law=law)
