"""Shortest Expected Delay among d randomly chosen servers, with the true rates."""

from __future__ import annotations

from typing import Any

from ..._random import Stream
from ..policy import EXPLOIT, Policy, Seen
from ._delay import Floats, Ints
from ._sampled import Params, State, best_of_sample, configure, law_of_sample, start


def decide(params: Params, state: State, seen: Seen, stream: Stream) -> tuple[int, int]:
    """The shortest expected delay of the sample, by the rates of now."""
    return best_of_sample(params, State(state.order, seen.slots, seen.weights), seen, stream), EXPLOIT


def law(params: Params, weights: Floats, queue: Ints, slots: Ints) -> Floats:
    """The choice in many states at once."""
    return law_of_sample(params, weights, queue, slots)


def sed_of_d(choices: int = 2, *, name: str = "", **options: Any) -> Policy:
    """Shortest Expected Delay among d random servers, with the true rates.

    choices : d, from 1 to the number of servers (default 2).
    ties : "lowest" (default), "highest", "fastest" or "random".
    """
    return Policy(
        "sed_of_d",
        decide,
        configure=configure,
        start=start,
        options={"choices": choices, **options},
        defaults={"choices": 2, "ties": "lowest"},
        name=name,
        clairvoyant=True,
        law=law,
    )
