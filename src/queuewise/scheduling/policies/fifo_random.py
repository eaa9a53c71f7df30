"""Earliest job, uniform server (CQB-η-2 section 5, "FIFO+random")."""

from __future__ import annotations

from typing import Any

from ..._random import Stream
from ..policy import EXPLORE, Policy, Waiting
from ._contextual import random_allowed


def decide(params: Any, state: Any, columns: Any, waiting: Waiting, stream: Stream) -> tuple[int, int, int]:
    """The earliest arrival, at a uniform server."""
    return waiting.slots[0], random_allowed(waiting.allowed, stream), EXPLORE


def fifo_random(*, name: str = "", **options: Any) -> Policy:
    """Serve the earliest waiting job at a uniformly random server."""
    return Policy("fifo_random", decide, options=options, name=name)
