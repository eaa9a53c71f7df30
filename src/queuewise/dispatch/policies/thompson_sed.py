"""Thompson SED, a rule of this project for comparison: Shortest Expected Delay on rates drawn from their posterior.

With the prior density 1/μ, N completions in S units of busy time make μ Gamma distributed with shape N and rate S; one draw
per server and job. A server without a completion has its initial rate, one never busy is tried first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._random import Stream, gamma
from ..choice import shortest_delay
from ..estimation import count, nothing_observed
from ..policy import EXPLOIT, EXPLORE, Outcome, Policy, Seen, Shape, Ticket, elapsed
from ..systems import Rate
from ._delay import Floats, initial_rates, ties_of
from .optimistic_sed import UNBOUNDED, State, believe, estimates, forget


class Params(NamedTuple):
    """Initial rates float64[n], and the tie rule."""

    initial: Floats
    ties: int


def configure(options: Any, shape: Shape) -> Params:
    """Check the options."""
    return Params(initial_rates(options, shape), ties_of(options))


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """Nothing observed."""
    return State(nothing_observed(shape.servers), np.zeros(0), params.initial.copy())


def decide(params: Params, state: State, seen: Seen, stream: Stream) -> tuple[int, int]:
    """The shortest delay by drawn rates."""
    untried = False
    for i in range(seen.queue.shape[0]):
        n, s = state.observed.completions[i], state.observed.busy[i] + elapsed(seen, i)
        rate = UNBOUNDED
        if n > 0.0:
            shape = max(n, 1.0)  # samples that were discounted to less than one are as wide as one
            rate = gamma(stream, shape) / s * (n / shape)
        elif s > 0.0:
            rate = params.initial[i]
        else:
            untried = True
        state.weights[i] = seen.slots[i] * rate
    server = shortest_delay(seen.queue, seen.slots, state.weights, params.ties, stream)
    forced = untried and state.weights[server] == UNBOUNDED * seen.slots[server]
    return server, EXPLORE if forced else EXPLOIT


def observe(params: Params, state: State, seen: Seen, ticket: Ticket, outcome: Outcome) -> None:
    """One completion more."""
    count(state.observed, ticket.server, outcome)


def thompson_sed(initial_rates: Sequence[Rate] | None = None, *, name: str = "", **options: Any) -> Policy:
    """Shortest Expected Delay on rates drawn from their posterior.

    initial_rates : one per server; None (default) for the system's, else all 1. Each stands until
        its server's first completion.
    ties : "lowest" (default), "highest", "fastest" or "random".
    """
    return Policy(
        "thompson_sed",
        decide,
        observe=observe,
        estimates=estimates,
        forget=forget,
        believe=believe,
        configure=configure,
        start=start,
        options={"initial_rates": initial_rates, **options},
        defaults={"initial_rates": None, "ties": "lowest"},
        name=name,
    )
