"""Uniform job, uniform server: the floor that every learner must beat (WISE Appendix F, "Random")."""

from __future__ import annotations

from typing import Any

from ..._random import Stream, below
from ..policy import EXPLORE, Policy, Waiting
from ._contextual import random_allowed


def decide(params: Any, state: Any, columns: Any, waiting: Waiting, stream: Stream) -> tuple[int, int, int]:
    """A uniform waiting job and a uniform server."""
    slot = waiting.slots[below(stream, waiting.jobs)]
    return slot, random_allowed(waiting.allowed, stream), EXPLORE


def random(*, name: str = "", **options: Any) -> Policy:
    """Serve a uniformly random waiting job at a uniformly random server."""
    return Policy("random", decide, options=options, name=name)
