"""The dispatching bandit of Choudhury et al. (2021): queue lengths are not looked at. Jobs are split at random by the static
fractions that would minimise the mean delay if the estimated rates were true, with decaying uniform exploration.

Of all p with λp_i < μ_i, Σ p_i/(μ_i − λp_i) is least for λp_i = μ_i − √μ_i (Σ_A μ_j − λ)/Σ_A √μ_j on the set A of fast servers
for which this is positive, and p_i = 0 on the others (Lagrange's condition, fastest servers first).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._compile import options
from ..._random import Stream, below, uniform
from ...fields import number
from ..estimation import Observed, count, discount, mean_rate, nothing_observed, set_observed
from ..policy import EXPLOIT, EXPLORE, Outcome, Policy, Seen, Shape, Ticket
from ..systems import Rate
from ._delay import Floats, Ints, initial_rates


class Params(NamedTuple):
    """Initial rates float64[n], slots int64[n], λ, and the scale of the exploration probability."""

    initial: Floats
    slots: Ints
    arrival_rate: float
    scale: float


class State(NamedTuple):
    """What was observed; fractions p : float64[n]; whether they are out of date : int64[1]; room for sorting."""

    observed: Observed
    fractions: Floats
    stale: Ints
    capacity: Floats
    order: Ints


@options(inline="never")
def best_fractions(capacity: Floats, arrival_rate: float, order: Ints, fractions: Floats) -> None:
    """The p that minimise Σ p_i/(C_i − λp_i); in proportion to C where λ ≥ ΣC, so that nothing is stable."""
    n = capacity.shape[0]
    for i in range(n):
        order[i] = i
        fractions[i] = 0.0
    for k in range(1, n):  # insertion sort, fastest first: the order changes little from call to call
        i = order[k]
        j = k
        while j > 0 and capacity[order[j - 1]] < capacity[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    total, roots = 0.0, 0.0
    spare = 0.0
    used = 0
    for k in range(n):
        c = capacity[order[k]]
        # A server is worth using iff √C_i exceeds the price (Σ_A C − λ)/Σ_A √C of those faster than it.
        if used > 0 and total > arrival_rate and math.sqrt(c) * roots <= total - arrival_rate:
            break
        total += c
        roots += math.sqrt(c)
        used = k + 1
    spare = total - arrival_rate
    for k in range(used):
        c = capacity[order[k]]
        share = (c - math.sqrt(c) * spare / roots) / arrival_rate if spare > 0.0 else c / total
        fractions[order[k]] = max(share, 0.0)


def configure(options: Any, shape: Shape) -> Params:
    """Check the options."""
    rate = shape.arrival_rate if options["arrival_rate"] is None else number(options, "arrival_rate", 0.0)
    return Params(initial_rates(options, shape), shape.slots, rate, number(options, "scale", 0.0, strict=False))


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """Fractions are computed when they are first asked for."""
    n = shape.servers
    return State(nothing_observed(n), np.zeros(n), np.ones(1, np.int64), np.zeros(n), np.zeros(n, np.int64))


def decide(params: Params, state: State, seen: Seen, stream: Stream) -> tuple[int, int]:
    """Explore with probability min(1, n ln k/k) at the k-th arrival; else draw from the best fractions."""
    n, k = seen.queue.shape[0], seen.arrivals
    if uniform(stream) * k < params.scale * n * math.log(k):
        return below(stream, n), EXPLORE
    if state.stale[0] != 0:
        for i in range(n):
            state.capacity[i] = params.slots[i] * mean_rate(state.observed, params.initial, i)
        best_fractions(state.capacity, params.arrival_rate, state.order, state.fractions)
        state.stale[0] = 0
    u, server = uniform(stream), 0
    for i in range(n):
        if state.fractions[i] > 0.0:
            server = i
            u -= state.fractions[i]
            if u < 0.0:
                break
    return server, EXPLOIT


def observe(params: Params, state: State, seen: Seen, ticket: Ticket, outcome: Outcome) -> None:
    """One completion more."""
    count(state.observed, ticket.server, outcome)
    state.stale[0] = 1


def forget(params: Params, state: State, factor: float) -> None:
    """Samples count for less."""
    discount(state.observed, factor)


def believe(params: Params, state: State, seen: Seen, server: int, completions: float, busy: float) -> None:
    """Other samples of one server."""
    set_observed(state.observed, server, completions, busy)
    state.stale[0] = 1


def estimates(params: Params, state: State, rates: Floats) -> tuple[int, bool]:
    """μ̂."""
    for i in range(rates.shape[0]):
        rates[i] = mean_rate(state.observed, params.initial, i)
    return 0, True


def dispatch_bandit(initial_rates: Sequence[Rate] | None = None, *, name: str = "", **options: Any) -> Policy:
    """The best static random split for the rates learned so far, with decaying exploration; blind to queues.

    initial_rates : one per server; None (default) for the system's, else all 1.
    arrival_rate : lambda in jobs per time; None (default) for the system's.
    scale : factor of the exploration probability n ln(k)/k (default 1).
    """
    return Policy(
        "dispatch_bandit",
        decide,
        observe=observe,
        estimates=estimates,
        forget=forget,
        believe=believe,
        configure=configure,
        start=start,
        options={"initial_rates": initial_rates, **options},
        defaults={"initial_rates": None, "arrival_rate": None, "scale": 1.0},
        name=name,
    )
