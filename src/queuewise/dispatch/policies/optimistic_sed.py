"""Optimistic SED, a rule of this project: Shortest Expected Delay on upper confidence bounds of the rates.

argmin_i x_i/(c_i U_i), with U_i the largest rate that N_i completions in S_i units of busy time leave possible:
N (y − 1 − ln y) = f at U = y N/S, y ≥ 1. This is the Chernoff bound of a Poisson count, equivalently the large deviations
bound for the sum of exponential service times that LASED's Lemma 12 rests on; f = c ln(arrivals) makes it hold for all
times at once. S_i counts the service in progress too, so that a server that has gone silent is believed less and less.
A server without a completion has U_i = max(initial rate, f/S_i); one that has never been busy is tried first.

Once N_i exceeds `enough` · ln(arrivals) the mean itself is used: a bound that stays above the mean would bend the boundary
between the servers for ever, and nothing can starve meanwhile, since ln(arrivals) grows. See docs/optimistic-sed.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._random import Stream
from ...fields import number
from ..choice import shortest_delay
from ..estimation import Observed, count, nothing_observed
from ..policy import EXPLOIT, EXPLORE, Outcome, Policy, Seen, Shape, Ticket, elapsed
from ..systems import Rate
from ._delay import Floats, initial_rates, ties_of

#: Stands for a rate without an upper bound: large, yet products with queue lengths stay finite.
UNBOUNDED = 1e200


class Params(NamedTuple):
    """Initial rates float64[n], c of f = c ln(arrivals), `enough`, and the tie rule."""

    initial: Floats
    confidence: float
    least: float
    enough: float
    ties: int


class State(NamedTuple):
    """What was observed, and room for the weights."""

    observed: Observed
    weights: Floats


def upper_factor(f_per_sample: float) -> float:
    """y ≥ 1 with y − 1 − ln y = f/N. Newton's steps come down from 1 + √(2f/N) + f/N, which is never below y."""
    y = 1.0 + math.sqrt(2.0 * f_per_sample) + f_per_sample
    for _ in range(3):
        y -= (y - 1.0 - math.log(y) - f_per_sample) * y / (y - 1.0) if y > 1.0 else 0.0
    return max(y, 1.0)


def upper_rate(params: Params, state: State, seen: Seen, i: int, log_arrivals: float) -> float:
    """U_i, or μ̂_i once there are samples enough."""
    n, f = state.observed.completions[i], params.confidence * log_arrivals
    s = state.observed.busy[i] + elapsed(seen, i)
    if n + seen.queue[i] < params.least * log_arrivals:
        return UNBOUNDED
    if n == 0.0:
        return max(params.initial[i], f / s) if s > 0.0 else UNBOUNDED
    if n >= params.enough * log_arrivals:
        return float(n / s)
    return float(n / s * upper_factor(f / n))


def configure(options: Any, shape: Shape) -> Params:
    """Check the options."""
    enough = options["enough"]
    return Params(
        initial_rates(options, shape),
        number(options, "confidence", 0.0),
        number(options, "least", 0.0, strict=False),
        math.inf if enough is None else number(options, "enough", 0.0),
        ties_of(options),
    )


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """Nothing observed."""
    return State(nothing_observed(shape.servers), params.initial.copy())


def decide(params: Params, state: State, seen: Seen, stream: Stream) -> tuple[int, int]:
    """The shortest delay by upper bounds."""
    log_arrivals = math.log(seen.arrivals + 1.0)
    for i in range(seen.queue.shape[0]):
        state.weights[i] = seen.slots[i] * upper_rate(params, state, seen, i, log_arrivals)
    server = shortest_delay(seen.queue, seen.slots, state.weights, params.ties, stream)
    return server, EXPLORE if state.weights[server] == UNBOUNDED * seen.slots[server] else EXPLOIT


def observe(params: Params, state: State, seen: Seen, ticket: Ticket, outcome: Outcome) -> None:
    """One completion more."""
    count(state.observed, ticket.server, outcome)


def estimates(params: Params, state: State, rates: Floats) -> tuple[int, bool]:
    """Means N/S, the initial rate where there is none."""
    for i in range(rates.shape[0]):
        n = state.observed.completions[i]
        rates[i] = n / state.observed.busy[i] if n > 0.0 else params.initial[i]
    return 0, True


def explain(params: Params, state: State, seen: Seen) -> dict[str, Any]:
    """Samples, mean and upper bound of every server."""
    log_arrivals = math.log(seen.arrivals + 1.0)
    rows = range(len(seen.queue))
    counts = state.observed.completions.tolist()
    return {
        "completions": counts,
        "rate": [counts[i] / float(state.observed.busy[i]) if counts[i] else None for i in rows],
        "upper_rate": [upper_rate(params, state, seen, i, log_arrivals) for i in rows],
    }


def optimistic_sed(initial_rates: Sequence[Rate] | None = None, *, name: str = "", **options: Any) -> Policy:
    """Shortest Expected Delay on upper confidence bounds: learns without forced exploration, and never starves a server.

    initial_rates : one per server; None (default) for the system's, else all 1. Each stands until
        its server's first completion.
    confidence : c of f = c ln(arrivals) (default 0.1).
    enough : samples, in units of ln(arrivals), from which on the mean itself is used; None for never.
    ties : "lowest" (default), "highest", "fastest" or "random".
    """
    return Policy(
        "optimistic_sed",
        decide,
        observe=observe,
        estimates=estimates,
        configure=configure,
        start=start,
        options={"initial_rates": initial_rates, **options},
        defaults={"initial_rates": None, "confidence": 0.1, "least": 0.0, "enough": None, "ties": "lowest"},
        name=name,
        explain=explain,
    )
