"""A random server with fixed probabilities, by default in proportion to the true rates c_i μ_i: the queue-blind rule that
is stable whenever any rule is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._random import Stream, uniform
from ...fields import require_list
from ..policy import EXPLOIT, Policy, Seen, Shape
from ..systems import exact_rate
from ._delay import Floats, Ints


class Params(NamedTuple):
    """cumulative : float64[n], of the probabilities."""

    cumulative: Floats


def configure(options: Any, shape: Shape) -> Params:
    """The given weights, or the true rates."""
    given = options["weights"]
    if given is None:
        weights = shape.rates * shape.slots
    elif len(require_list("weights", given, "numbers")) != shape.servers:
        raise ValueError(f"weights: must be one number per server, {shape.servers}, not {given!r}")
    else:
        weights = np.array([float(exact_rate("weights", weight)) for weight in given])
    cumulative = np.cumsum(weights / weights.sum())
    cumulative[-1] = 1.0
    return Params(cumulative)


def decide(params: Params, state: Any, seen: Seen, stream: Stream) -> tuple[int, int]:
    """The server whose stretch of [0, 1) a uniform number falls into."""
    u = uniform(stream)
    low, high = 0, params.cumulative.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if u < params.cumulative[middle]:
            high = middle
        else:
            low = middle + 1
    return low, EXPLOIT


def law(params: Params, weights: Floats, queue: Ints, slots: Ints) -> Floats:
    """The same in every state."""
    return np.tile(np.diff(params.cumulative, prepend=0.0), (len(queue), 1))


def weighted_random(*, name: str = "", **options: Any) -> Policy:
    """A random server in proportion to its rate, or to weights of your own.

    weights : one positive number per server; None (default) for the true rates.
    """
    return Policy(
        "weighted_random",
        decide,
        configure=configure,
        options=options,
        defaults={"weights": None},
        name=name,
        clairvoyant=options.get("weights") is None,
        law=law,
    )
