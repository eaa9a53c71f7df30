"""Rules that look at d randomly chosen servers only: the sample, and the best of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..._random import Stream, below
from ...fields import whole
from ..choice import FASTEST, HIGHEST, RANDOM, law_of, level
from ..policy import Seen, Shape
from ._delay import Floats, Ints, ties_of

#: Subsets of servers that an exact solution looks at, at most.
MOST_SUBSETS = 10_000


class Params(NamedTuple):
    """d, the tie rule, and the true rates (NaN where the rule does not know them)."""

    choices: int
    ties: int
    rates: Floats


class State(NamedTuple):
    """Server numbers in some order (int64[n]), and slots and weights as the rule counts them."""

    order: Ints
    slots: Ints
    weights: Floats


def configure(options: Mapping[str, Any], shape: Shape) -> Params:
    """d between 1 and n."""
    choices = whole(options, "choices", 1)
    if choices > shape.servers:
        raise ValueError(f"choices: must be at most the number of servers {shape.servers}, not {choices}")
    return Params(choices, ties_of(options), shape.rates)


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """Any order will do."""
    return State(np.arange(shape.servers), np.ones(shape.servers, np.int64), np.ones(shape.servers))


def best_of_sample(params: Params, state: State, seen: Seen, stream: Stream) -> int:
    """argmin of x_i/w_i over d different servers, each subset as likely as any other (Fisher and Yates)."""
    n = state.order.shape[0]
    best, tied = -1, 1
    for k in range(params.choices):
        other = k + below(stream, n - k)
        i = state.order[other]
        state.order[other], state.order[k] = state.order[k], i
        if best < 0:
            best = i
            continue
        here = level(seen.queue, state.slots, i) * state.weights[best]
        there = level(seen.queue, state.slots, best) * state.weights[i]
        if here < there:
            best, tied = i, 1
        elif here == there:
            tied += 1
            if params.ties == RANDOM:
                if below(stream, tied) == 0:
                    best = i
            elif params.ties == FASTEST and state.weights[i] != state.weights[best]:
                if state.weights[i] > state.weights[best]:
                    best = i
            elif (i > best) == (params.ties == HIGHEST):
                best = i
    return int(best)


def law_of_sample(params: Params, weights: Floats, queue: Ints, slots: Ints) -> Floats:
    """The choice in many states at once: the mean over all subsets."""

    subsets = list(itertools.combinations(range(queue.shape[1]), params.choices))
    if len(subsets) > MOST_SUBSETS:
        raise ValueError(f"choices: {len(subsets)} subsets of servers are too many for an exact solution")
    found = np.zeros(queue.shape)
    for subset in subsets:
        columns = list(subset)
        found[:, columns] += law_of(queue[:, columns], slots[columns], weights[columns], params.ties)
    return np.asarray(found / len(subsets))
