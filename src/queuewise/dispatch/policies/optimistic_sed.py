"""Optimistic SED, a rule of this project: Shortest Expected Delay on upper confidence bounds of the rates.

argmin_i x_i/(c_i U_i), where U_i is the largest rate that N_i completions in S_i units of busy time leave possible:
N (y − 1 − ln y) = f at U = y N/S, y ≥ 1. This is the Chernoff bound of a Poisson count, the same large deviations that
LASED's Lemma 12 rests on; S_i counts the service in progress too, so that a silent server is believed less and less.

- f = c ln⁺(v/k), where v is how often an arrival has found as many jobs as this one. A wrong belief costs at most one wrong
  decision per visit to the states that it is wrong in, so doubt is worth as much as these states are frequent: rare states
  near a boundary are left to the estimates, and a server that is starved in a frequent state is tried again. The first k
  visits go by the estimates alone. With c = 1 the chance that a belief starves a better server for v visits falls faster
  than 1/v, so that its sum stays bounded.
- A server with N_i + q_i < a ln(arrivals) samples, those on their way included, is tried whatever is believed of it.
- A server without a completion has the larger of its initial rate and f/S as U_i.

Measured against its neighbours in docs/optimistic-sed.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._random import Stream
from ...fields import number
from ..choice import shortest_delay
from ..estimation import Observed, count, discount, nothing_observed, set_observed
from ..policy import EXPLOIT, EXPLORE, Outcome, Policy, Seen, Shape, Ticket, elapsed
from ..systems import Rate
from ._delay import Floats, initial_rates, ties_of

#: Stands for a rate without an upper bound: large, yet products with queue lengths stay finite.
UNBOUNDED = 1e200


#: ln(arrivals + 1) is never above this.
MOST_WANTED = 44.0
#: Numbers in the system that are told apart; all larger ones count as one.
LEVELS = 512


class Params(NamedTuple):
    """Initial rates float64[n]; c, k and a of the formulas above; the tie rule."""

    initial: Floats
    confidence: float
    patience: float
    samples: float
    ties: int


class State(NamedTuple):
    """What was observed; visits : float64[LEVELS], arrivals that found 0, 1, … jobs; and room for the weights."""

    observed: Observed
    visits: Floats
    weights: Floats


def upper_factor(f_per_sample: float) -> float:
    """y ≥ 1 with y − 1 − ln y = f/N. Newton's steps come down from 1 + √(2f/N) + f/N, which is never below y; where y is close
    to 1 and would cancel, its series in s = √(2f/N) is exact to rounding."""
    s = math.sqrt(2.0 * f_per_sample)
    if s < 0.03:
        return 1.0 + s * (1.0 + s * (1 / 3 + s * (1 / 36 + s * (-1 / 270 + s * (1 / 4320 + s / 17010)))))
    y = 1.0 + s + f_per_sample
    for _ in range(3):
        y -= (y - 1.0 - math.log(y) - f_per_sample) * y / (y - 1.0) if y > 1.0 else 0.0
    return max(y, 1.0)


def doubt(params: Params, state: State, jobs: int) -> float:
    """f for an arrival that finds so many jobs: c ln⁺(v/k), this visit counted."""
    visits = state.visits[min(jobs, LEVELS - 1)] + 1.0
    return params.confidence * math.log(visits / params.patience) if visits > params.patience else 0.0


def upper_rate(params: Params, state: State, seen: Seen, i: int, f: float, wanted: float) -> float:
    """U_i; unbounded while there are fewer than `wanted` samples, those on their way included."""
    n = state.observed.completions[i]
    if n + seen.queue[i] < wanted:
        return UNBOUNDED
    s = state.observed.busy[i] + elapsed(seen, i)
    if n == 0.0:
        return max(params.initial[i], f / s) if s > 0.0 else float(params.initial[i])
    return float(n / s * upper_factor(f / n)) if f > 0.0 else float(n / s)


def configure(options: Any, shape: Shape) -> Params:
    """Check the options."""
    return Params(
        initial_rates(options, shape),
        number(options, "confidence", 0.0, strict=False),
        number(options, "patience", 0.0),
        number(options, "samples", 0.0, strict=False),
        ties_of(options),
    )


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """Nothing observed."""
    return State(nothing_observed(shape.servers), np.zeros(LEVELS), params.initial.copy())


def decide(params: Params, state: State, seen: Seen, stream: Stream) -> tuple[int, int]:
    """The shortest delay by upper bounds."""
    f, wanted = doubt(params, state, seen.jobs), 0.0
    few = MOST_WANTED * params.samples  # with so many samples everywhere nobody need know the logarithm
    for i in range(seen.queue.shape[0]):
        if state.observed.completions[i] + seen.queue[i] < few:
            wanted = params.samples * math.log(seen.arrivals + 1.0)
            break
    for i in range(seen.queue.shape[0]):
        state.weights[i] = seen.slots[i] * upper_rate(params, state, seen, i, f, wanted)
    server = shortest_delay(seen.queue, seen.slots, state.weights, params.ties, stream)
    return server, EXPLORE if state.weights[server] >= UNBOUNDED else EXPLOIT


def assigned(params: Params, state: State, seen: Seen, ticket: Ticket) -> None:
    """One visit more to the number of jobs that this one found."""
    state.visits[min(seen.jobs - 1, LEVELS - 1)] += 1.0


def observe(params: Params, state: State, seen: Seen, ticket: Ticket, outcome: Outcome) -> None:
    """One completion more."""
    count(state.observed, ticket.server, outcome)


def forget(params: Params, state: State, factor: float) -> None:
    """Samples count for less, and so do visits: what is doubted is what was seen lately."""
    discount(state.observed, factor)
    for jobs in range(state.visits.shape[0]):
        state.visits[jobs] *= factor


def believe(params: Params, state: State, seen: Seen, server: int, completions: float, busy: float) -> None:
    """Other samples of one server."""
    set_observed(state.observed, server, completions, busy)


def estimates(params: Params, state: State, rates: Floats) -> tuple[int, bool]:
    """Means N/S, the initial rate where there is none."""
    for i in range(rates.shape[0]):
        n = state.observed.completions[i]
        rates[i] = n / state.observed.busy[i] if n > 0.0 else params.initial[i]
    return 0, True


def explain(params: Params, state: State, seen: Seen) -> dict[str, Any]:
    """Samples, mean and upper bound of every server."""
    f, wanted = doubt(params, state, seen.jobs), params.samples * math.log(seen.arrivals + 1.0)
    rows, counts = range(len(seen.queue)), state.observed.completions.tolist()
    bounds = [upper_rate(params, state, seen, i, f, wanted) for i in rows]
    return {
        "completions": counts,
        "rate": [counts[i] / float(state.observed.busy[i]) if counts[i] else float(params.initial[i]) for i in rows],
        "upper_rate": [bound if bound < UNBOUNDED else None for bound in bounds],
        "wanted_samples": wanted,
    }


def optimistic_sed(initial_rates: Sequence[Rate] | None = None, *, name: str = "", **options: Any) -> Policy:
    """Shortest Expected Delay on upper confidence bounds: learns without forced phases, and tries a starved server again.

    initial_rates : one per server; None (default) for the system's, else all 1. Each stands until
        its server's first completion.
    confidence : c, how much doubt grows with the visits to a state (default 1; 0 for none).
    patience : k, visits to a state before doubt sets in (default 2000).
    samples : a, completions of every server that are seen to, in units of ln(arrivals) (default 1).
    ties : "lowest" (default), "highest", "fastest" or "random".
    """
    return Policy(
        "optimistic_sed",
        decide,
        assigned=assigned,
        observe=observe,
        estimates=estimates,
        forget=forget,
        believe=believe,
        configure=configure,
        start=start,
        options={"initial_rates": initial_rates, **options},
        defaults={"initial_rates": None, "confidence": 1.0, "patience": 2000.0, "samples": 1.0, "ties": "lowest"},
        name=name,
        explain=explain,
    )
