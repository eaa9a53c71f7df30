"""Greedy: Shortest Expected Delay with the rates estimated so far, updated after every completion, without exploration
(LASED, section 7.2).

The initial rate of a server stands until its first completion, so a server believed slow may never be tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._random import Stream
from ..estimation import Observed, count, discount, mean_rate, nothing_observed, set_observed
from ..policy import EXPLOIT, Outcome, Policy, Seen, Shape, Ticket
from ..systems import Rate
from ._delay import Delays, Floats, all_changed, changed, initial_rates, new_delays, shortest, ties_of, weights_of


class Params(NamedTuple):
    """Initial rates float64[n], the same as weights (exact, so that ties are ties), and the tie rule."""

    initial: Floats
    initial_weights: Floats
    ties: int


class State(NamedTuple):
    """What was observed, and the delays that follow from it."""

    observed: Observed
    delays: Delays


def configure(options: Any, shape: Shape) -> Params:
    """Check the options."""
    initial = initial_rates(options, shape)
    return Params(initial, weights_of("initial_rates", initial.tolist(), shape), ties_of(options))


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """The initial rates."""
    return State(nothing_observed(shape.servers), new_delays(params.initial_weights, shape.slots, params.ties))


def decide(params: Params, state: State, seen: Seen, stream: Stream) -> tuple[int, int]:
    """The shortest delay by the estimates."""
    return shortest(state.delays, seen, params.ties, stream), EXPLOIT


def assigned(params: Params, state: State, seen: Seen, ticket: Ticket) -> None:
    """One queue is longer."""
    changed(state.delays, seen, params.ties, ticket.server)


def observe(params: Params, state: State, seen: Seen, ticket: Ticket, outcome: Outcome) -> None:
    """μ̂_i = N_i/S_i at once."""
    count(state.observed, ticket.server, outcome)
    _weigh(params, state, seen, ticket.server)


def _weigh(params: Params, state: State, seen: Seen, i: int) -> None:
    """The weight of a server whose samples have changed."""
    observed = state.observed
    if state.delays.changes[0] == 0:  # from here on weights are rates, no longer fractions on a common denominator
        state.delays.changes[0] = 1
        for j in range(seen.queue.shape[0]):
            state.delays.weights[j] = seen.slots[j] * mean_rate(observed, params.initial, j)
        all_changed(state.delays, seen, params.ties)
    else:
        state.delays.weights[i] = seen.slots[i] * mean_rate(observed, params.initial, i)
        changed(state.delays, seen, params.ties, i)


def forget(params: Params, state: State, factor: float) -> None:
    """Samples count for less."""
    discount(state.observed, factor)


def believe(params: Params, state: State, seen: Seen, server: int, completions: float, busy: float) -> None:
    """Other samples of one server."""
    set_observed(state.observed, server, completions, busy)
    _weigh(params, state, seen, server)


def estimates(params: Params, state: State, rates: Floats) -> tuple[int, bool]:
    """μ̂."""
    for i in range(rates.shape[0]):
        rates[i] = mean_rate(state.observed, params.initial, i)
    return 0, True


def explain(params: Params, state: State, seen: Seen) -> dict[str, Any]:
    """Completions, busy time and rates of every server."""
    return {
        "completions": state.observed.completions.tolist(),
        "busy_time": state.observed.busy.tolist(),
        "rate": [mean_rate(state.observed, params.initial, i) for i in range(len(seen.queue))],
    }


def greedy(initial_rates: Sequence[Rate] | None = None, *, name: str = "", **options: Any) -> Policy:
    """Shortest Expected Delay with rates learned from every completion, without exploration.

    initial_rates : one per server; None (default) for the system's, else all 1.
    ties : "lowest" (default), "highest", "fastest" or "random".
    """
    return Policy(
        "greedy",
        decide,
        assigned=assigned,
        observe=observe,
        estimates=estimates,
        forget=forget,
        believe=believe,
        configure=configure,
        start=start,
        options={"initial_rates": initial_rates, **options},
        defaults={"initial_rates": None, "ties": "lowest"},
        name=name,
        explain=explain,
    )
