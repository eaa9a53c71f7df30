"""The routing of two servers with the least mean delay under Poisson arrivals and exponential service: what SED itself is
judged by. The optimum of the truncated Markov decision process, by policy iteration from SED; see
:func:`queuewise.dispatch.chains.best_routing`. Beyond its table it is SED.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._random import Stream
from ...fields import whole
from ..chains import Best, best_routing, lattice
from ..choice import LOWEST, law_of, shortest_delay
from ..policy import EXPLOIT, Policy, Seen, Shape
from ._delay import Floats, Ints

#: Load up to which the decision process is solved, and states that the table may hold in one direction.
MOST_LOAD, MOST_LEVEL = 0.95, 400
#: ρ^L at the default L, and the least of them.
EDGE, LEAST_LEVEL = 1e-5, 20


class Params(NamedTuple):
    """table : int8[L + 1, L + 1], the server at q₁, q₂; −1 where q₁ + q₂ > L."""

    table: NDArray[np.int8]


@lru_cache(maxsize=32)
def solve(
    arrival_rate: float,
    rates: tuple[float, ...],
    slots: tuple[int, ...],
    weights: tuple[float, ...],
    level: int | None,
) -> tuple[NDArray[np.int8], Best]:
    """The table and what it was read from: states with up to 2L jobs, so that the arrivals lost at their edge do not bend it.

    arrival_rate : λ · rates : μ_i · slots : c_i · weights : c_i μ_i up to a factor, for SED · level : L, or None
    """
    if len(rates) != 2:
        raise ValueError(f"optimal is a rule for 2 servers, not {len(rates)}")
    load = arrival_rate / sum(rate * count for rate, count in zip(rates, slots, strict=True))
    if load > MOST_LOAD:
        raise ValueError(f"optimal is solved for loads of at most {MOST_LOAD:g}, not {load:.4g}")
    if level is None:
        level = max(LEAST_LEVEL, math.ceil(math.log(EDGE) / math.log(load))) + sum(slots)
    if level > MOST_LEVEL:
        raise ValueError(f"level: must be at most {MOST_LEVEL} (with room for the slots), not {level}")
    states = lattice(2, 2 * level)
    counts = np.array(slots, dtype=np.int64)
    start = law_of(states.queue, counts, np.array(weights), LOWEST)
    best = best_routing(states, arrival_rate, np.array(rates), counts, start)
    table = np.full((level + 1, level + 1), -1, dtype=np.int8)
    inside = states.queue[: states.levels[level + 1]]
    table[inside[:, 0], inside[:, 1]] = best.action[: len(inside)]
    table.setflags(write=False)
    return table, best


def configure(options: Any, shape: Shape) -> Params:
    """Solve the decision process, or take the table solved before."""
    level = None if options["level"] is None else whole(options, "level", 2)
    rates = tuple(float(rate) for rate in shape.rates)
    slots = tuple(int(count) for count in shape.slots)
    weights = tuple(rate * count for rate, count in zip(rates, slots, strict=True))
    return Params(solve(float(shape.arrival_rate), rates, slots, weights, level)[0].copy())


def decide(params: Params, state: Any, seen: Seen, stream: Stream) -> tuple[int, int]:
    """The table's server; the shortest delay beyond it."""
    first, second = seen.queue[0], seen.queue[1]
    if first < params.table.shape[0] and second < params.table.shape[0]:
        server = params.table[first, second]
        if server >= 0:
            return int(server), EXPLOIT
    return shortest_delay(seen.queue, seen.slots, seen.weights, LOWEST, stream), EXPLOIT


def law(params: Params, weights: Floats, queue: Ints, slots: Ints) -> Floats:
    """The choice in many states at once."""
    found = law_of(queue, slots, weights, LOWEST)
    inside = np.flatnonzero(queue.sum(axis=1) < params.table.shape[0])
    found[inside] = 0.0
    found[inside, params.table[queue[inside, 0], queue[inside, 1]]] = 1.0
    return found


def optimal(level: int | None = None, *, name: str = "", **options: Any) -> Policy:
    """Two servers: the least mean delay there is, if arrivals are Poisson and service is exponential.

    level : jobs in the system up to which decisions are solved, SED beyond; None (default) for so many as the load asks for.
    """
    return Policy(
        "optimal",
        decide,
        configure=configure,
        options={"level": level, **options},
        defaults={"level": None},
        name=name,
        clairvoyant=True,
        law=law,
    )
