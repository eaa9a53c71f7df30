"""The shortest wait: the server at which a job that joins now begins its service first. It knows every job's size in advance,
so it is a bound to compare with, not a rule for practice."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..._random import Stream, below
from ..choice import FASTEST, HIGHEST, RANDOM
from ..policy import EXPLOIT, Policy, Seen, Shape
from ._delay import ties_of


class Params(NamedTuple):
    """Which of several servers that can begin at once."""

    ties: int


def configure(options: Any, shape: Shape) -> Params:
    """The tie rule."""
    return Params(ties_of(options))


def decide(params: Params, state: Any, seen: Seen, stream: Stream) -> tuple[int, int]:
    """argmin of the wait."""
    best, least, tied = 0, max(seen.free[0], seen.now), 1
    for i in range(1, seen.queue.shape[0]):
        begins = max(seen.free[i], seen.now)
        if begins < least:
            best, least, tied = i, begins, 1
        elif begins == least:
            tied += 1
            if (
                params.ties == HIGHEST
                or (params.ties == FASTEST and seen.weights[i] > seen.weights[best])
                or (params.ties == RANDOM and below(stream, tied) == 0)
            ):
                best = i
    return best, EXPLOIT


def least_loaded(*, name: str = "", **options: Any) -> Policy:
    """The server that can begin first, knowing every size in advance.

    ties : among servers that can begin at once: "lowest" (default), "highest", "fastest" or "random".
    """
    return Policy(
        "least_loaded",
        decide,
        configure=configure,
        options=options,
        defaults={"ties": "lowest"},
        name=name,
        clairvoyant=True,
    )
