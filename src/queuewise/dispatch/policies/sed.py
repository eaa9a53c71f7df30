"""Shortest Expected Delay with the true rates: the oracle that regret is measured against (LASED, section 2.2).

argmin_i (q_i + 1)/μ_i; with c_i slots, argmin_i max(c_i, q_i + 1)/(c_i μ_i). Where rates change it uses those of now.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._random import Stream
from ..choice import law_of
from ..policy import EXPLOIT, Policy, Seen, Shape
from ._delay import (
    Delays,
    Floats,
    Ints,
    all_changed,
    assigned,
    estimates,
    explain,
    new_delays,
    observe,
    shortest,
    ties_of,
)


class Params(NamedTuple):
    """True rates (for exact solutions), and the tie rule."""

    rates: Floats
    ties: int


def configure(options: Any, shape: Shape) -> Params:
    """The tie rule."""
    return Params(shape.rates, ties_of(options))


def start(params: Params, shape: Shape, stream: Stream) -> Delays:
    """Weights are read off when the first job is routed."""
    delays = new_delays(np.ones(shape.servers), shape.slots, params.ties)
    delays.changes[0] = -1
    return delays


def decide(params: Params, state: Delays, seen: Seen, stream: Stream) -> tuple[int, int]:
    """The server of shortest expected delay under the rates of now."""
    if state.changes[0] != seen.changes:
        state.changes[0] = seen.changes
        for i in range(seen.weights.shape[0]):
            state.weights[i] = seen.weights[i]
        all_changed(state, seen, params.ties)
    return shortest(state, seen, params.ties, stream), EXPLOIT


def law(params: Params, weights: Floats, queue: Ints, slots: Ints) -> Floats:
    """The choice in many states at once."""
    return law_of(queue, slots, weights, params.ties)


def sed(*, name: str = "", **options: Any) -> Policy:
    """Shortest Expected Delay with the true rates: the oracle.

    ties : "lowest" (default, the paper's), "highest", "fastest" or "random".
    """
    return Policy(
        "sed",
        decide,
        assigned=assigned,
        observe=observe,
        estimates=estimates,
        configure=configure,
        start=start,
        options=options,
        defaults={"ties": "lowest"},
        name=name,
        clairvoyant=True,
        explain=explain,
        law=law,
    )
