"""The power of d choices: the shortest queue among d randomly chosen servers (Mitzenmacher 2001; Vvedenskaya et al. 1996)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._random import Stream
from ..policy import EXPLOIT, Policy, Seen
from ._delay import Floats, Ints
from ._sampled import Params, State, best_of_sample, configure, law_of_sample, start


def decide(params: Params, state: State, seen: Seen, stream: Stream) -> tuple[int, int]:
    """The shortest queue of the sample."""
    return best_of_sample(params, state, seen, stream), EXPLOIT


def law(params: Params, weights: Floats, queue: Ints, slots: Ints) -> Floats:
    """The choice in many states at once, blind to rates and slots."""
    return law_of_sample(params, np.ones(queue.shape[1]), queue, np.ones(queue.shape[1], np.int64))


def power_of_d(choices: int = 2, *, name: str = "", **options: Any) -> Policy:
    """The shortest queue among d random servers.

    choices : d, from 1 to the number of servers (default 2).
    ties : "lowest" (default), "highest" or "random".
    """
    return Policy(
        "power_of_d",
        decide,
        configure=configure,
        start=start,
        options={"choices": choices, **options},
        defaults={"choices": 2, "ties": "lowest"},
        name=name,
        law=law,
    )
