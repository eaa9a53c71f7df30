"""What the rules share that send each job to the shortest of some delays, x_i/w_i, whatever their weights are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._random import Stream
from ...fields import choice, require_list
from ..choice import TIES, best_server, build_index, law_of, new_index, update_index
from ..policy import EXPLOIT, Outcome, Seen, Shape, Ticket
from ..systems import Rate, common_weights, exact_rate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Delays(NamedTuple):
    """What a choice needs: weights w : float64[n], slots c : int64[n] as the rule counts them, the index as a tree (empty
    for few servers), and how often the true rates had changed when the weights were taken: int64[1]."""

    weights: Floats
    slots: Ints
    tree: Ints
    changes: Ints


class Params(NamedTuple):
    """Weights and slots to begin with, and the tie rule."""

    weights: Floats
    slots: Ints
    ties: int


def new_delays(weights: Floats, slots: Ints, ties: int) -> Delays:
    """Delays while all queues are empty."""
    found = Delays(
        np.array(weights, dtype=np.float64),
        np.array(slots, dtype=np.int64),
        new_index(len(weights), ties),
        np.zeros(1, np.int64),
    )
    if len(found.tree):
        build_index(found.tree, np.zeros(len(weights), np.int64), found.slots, found.weights, ties)
    return found


def shortest(delays: Delays, seen: Seen, ties: int, stream: Stream) -> int:
    """The server of shortest delay."""
    return best_server(delays.tree, seen.queue, delays.slots, delays.weights, ties, stream)


def changed(delays: Delays, seen: Seen, ties: int, server: int) -> None:
    """A server's queue or weight has changed."""
    if delays.tree.shape[0] > 0:  # asked here too: the call alone costs as much as a decision between two servers
        update_index(delays.tree, seen.queue, delays.slots, delays.weights, ties, server)


def all_changed(delays: Delays, seen: Seen, ties: int) -> None:
    """Many weights have changed."""
    if delays.tree.shape[0] > 0:
        build_index(delays.tree, seen.queue, delays.slots, delays.weights, ties)


# --- rules whose weights stay as they are -----------------------------------------------------------------------------


def start(params: Params, shape: Shape, stream: Stream) -> Delays:
    """The rule's weights."""
    return new_delays(params.weights, params.slots, params.ties)


def decide(params: Params, state: Delays, seen: Seen, stream: Stream) -> tuple[int, int]:
    """The server of shortest delay under the rule's weights."""
    return shortest(state, seen, params.ties, stream), EXPLOIT


def assigned(params: Any, state: Delays, seen: Seen, ticket: Ticket) -> None:
    """One queue is longer."""
    changed(state, seen, params.ties, ticket.server)


def observe(params: Any, state: Delays, seen: Seen, ticket: Ticket, outcome: Outcome) -> None:
    """One queue is shorter."""
    changed(state, seen, params.ties, ticket.server)


def estimates(params: Any, state: Delays, rates: Floats) -> tuple[int, bool]:
    """The weights, per slot."""
    for i in range(rates.shape[0]):
        rates[i] = state.weights[i] / state.slots[i]
    return 0, True


def law(params: Params, weights: Floats, queue: Ints, slots: Ints) -> Floats:
    """The choice in many states at once, by the rule's own weights."""
    return law_of(queue, params.slots, params.weights, params.ties)


def explain(params: Any, state: Delays, seen: Seen) -> dict[str, Any]:
    """Expected delays up to a common factor, and the weights."""
    level = np.maximum(state.slots, seen.queue + 1)
    return {"weights": state.weights.tolist(), "delay": (level / state.weights).tolist()}


# --- options ----------------------------------------------------------------------------------------------------------


def ties_of(options: Mapping[str, Any]) -> int:
    """The tie rule's code."""
    return choice(options, "ties", TIES)


def weights_of(name: str, rates: Sequence[Rate], shape: Shape) -> Floats:
    """c_i μ_i up to a common factor, exact where the rates' fractions allow. ValueError for a wrong number of rates."""
    if len(require_list(name, rates, "rates")) != shape.servers:
        raise ValueError(f"{name}: must be one rate per server, {shape.servers}, not {rates!r}")
    row = [exact_rate(name, rate) * int(count) for rate, count in zip(rates, shape.slots, strict=True)]
    return np.asarray(common_weights([row], max(shape.most_in_system, int(shape.slots.max())))[0][0])


def initial_rates(options: Mapping[str, Any], shape: Shape) -> Floats:
    """The rates to start from: those given, else the system's, else all 1 (so that a rule joins the shortest queue until it
    has learned)."""
    given = options["initial_rates"]
    if given is None:
        return shape.initial_rates.copy()
    if len(require_list("initial_rates", given, "rates")) != shape.servers:
        raise ValueError(f"initial_rates: must be one rate per server, {shape.servers}, not {given!r}")
    return np.array([float(exact_rate("initial_rates", rate)) for rate in given])
