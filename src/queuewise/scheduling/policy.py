"""What a scheduling policy is: plain functions over named arrays, one file per rule.

The caller (simulation, replay, live service) owns the clock, the waiting jobs, the randomness and the per-job columns;
the policy owns its estimates. Deciding and learning are apart in time: a :class:`Ticket` travels with the attempt and
comes back with its outcome, late, out of order, or not at all. Every function of a policy takes the same five things:

    decide  (params, state, columns, waiting, stream)          -> (slot, server, reason)
    admit   (params, state, columns, waiting, slot)            a job has entered this slot
    assigned(params, state, columns, waiting, ticket)          an attempt was issued: the design moves
    observe (params, state, columns, waiting, ticket, success) its outcome is known: the estimate moves
    expired (params, state, columns, waiting, ticket)          it never will be: the design moves back

and two that prepare it, in ordinary Python:

    configure(options, shape)          -> params (a named tuple of numbers; checks the options)
    start    (params, shape, stream)   -> state  (a named tuple of arrays)

A ticket is answered once: by `observe` or by `expired`, never by both. Only `decide` is required. `state` and `columns`
are changed in place; nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from .._random import Stream
from ..rule import Rule

#: Reasons of a decision.
EXPLOIT, EXPLORE = 0, 1
REASONS = {EXPLOIT: "exploit", EXPLORE: "explore"}

#: Column types: one number per waiting job, or one per (waiting job, server).
PerJob = Annotated[NDArray[np.int64], "job"]
PerServer = Annotated[NDArray[np.float64], "server"]

#: Two indices within this relative distance count as tied (the rounding of differently ordered sums is below it).
TIE = 1e-12

#: How `cqb_*`, `acqb`, `q_*` and `oracle` break ties (algorithms page B.3): the earliest job, then the lowest server.
EARLIEST, RANDOM = 0, 1
TIES = {"earliest": EARLIEST, "random": RANDOM}


class Waiting(NamedTuple):
    """What a policy sees of the queue at a decision.

    round : t ≥ 1 · jobs : how many wait · slots : int64[capacity], their slots in arrival order (the first `jobs`)
    newest : slot of the job that arrived in round t − 1 and still waits, else −1
    allowed : bool[K], servers that may be chosen now · features : float64[slot, d, K], φ(x, k) = features[slot, :, k]
    truth : float64[slot, K], true success probabilities, NaN except for clairvoyant policies
    """

    round: int
    jobs: int
    slots: NDArray[np.int64]
    newest: int
    allowed: NDArray[np.bool_]
    features: NDArray[np.float64]
    truth: NDArray[np.float64]


class Ticket(NamedTuple):
    """One attempt: the round of its decision, slot, server, reason, and the pair's features (float64[d])."""

    round: int
    slot: int
    server: int
    reason: int
    features: NDArray[np.float64]


class Shape(NamedTuple):
    """The public facts of a system that a policy may be configured with (never its true parameter).

    servers K, dimension d, rounds (the horizon T), arrival_rate λ; parameter_bound S and feature_bound max‖φ‖ as the
    law states them; kappa = 1/μ̇(S·max‖φ‖); suggested_radius and suggested_initial_design, NaN where the law has none;
    context_slack ε₀ and capacity_slack ε; max_attempts after which a job is given up, 0 where it never is;
    blocks, K where φ(x, k) vanishes outside the k-th of K equal parts (servers share no parameter), else 1.
    """

    servers: int
    dimension: int
    rounds: int
    arrival_rate: float
    parameter_bound: float
    feature_bound: float
    kappa: float
    suggested_radius: float
    suggested_initial_design: float
    context_slack: float
    capacity_slack: float
    max_attempts: int = 0
    blocks: int = 1


class NoParams(NamedTuple):
    """Parameters of a rule that has none."""

    unused: int = 0


class NoState(NamedTuple):
    """State of a rule that learns nothing."""

    unused: NDArray[np.float64]


class NoColumns(NamedTuple):
    """Columns of a rule that keeps nothing per job."""

    unused: PerJob


def configure(options: Mapping[str, Any], shape: Shape) -> Any:
    """No parameters."""
    return NoParams()


def start(params: Any, shape: Shape, stream: Stream) -> Any:
    """Nothing to remember."""
    return NoState(np.zeros(1))


def admit(params: Any, state: Any, columns: Any, waiting: Waiting, slot: int) -> None:
    """Nothing to prepare for a newcomer."""


def assigned(params: Any, state: Any, columns: Any, waiting: Waiting, ticket: Ticket) -> None:
    """Nothing moves when an attempt is issued."""


def observe(params: Any, state: Any, columns: Any, waiting: Waiting, ticket: Ticket, success: bool) -> None:
    """Nothing is learned."""


def expired(params: Any, state: Any, columns: Any, waiting: Waiting, ticket: Ticket) -> None:
    """Nothing to take back."""


@dataclass(frozen=True)
class Policy(Rule):
    """A scheduling rule with its options. Make one with a factory (``wise(radius=100)``) or, for a rule of your own,
    directly.

    Parameters
    ----------
    rule, options, defaults, name : as in :class:`queuewise.rule.Rule`.
    decide, admit, assigned, observe, expired, configure, start : the functions described at the head of this module.
    columns : named tuple type whose fields are annotated ``PerJob`` or ``PerServer``.
    clairvoyant : whether it is shown the true success probabilities (``oracle`` alone).
    explain : optional ``explain(params, state, columns, waiting, slot, server) -> dict`` for one decision.
    """

    CALLED: ClassVar[tuple[str, ...]] = ("decide", "admit", "assigned", "observe", "expired")

    admit: Callable[..., Any] = admit
    assigned: Callable[..., Any] = assigned
    observe: Callable[..., Any] = observe
    expired: Callable[..., Any] = expired
    configure: Callable[..., Any] = configure
    start: Callable[..., Any] = start
    columns: type = NoColumns

    def new_columns(self, slots: int, servers: int) -> Any:
        """Fresh columns with room for `slots` jobs."""
        arrays: dict[str, Any] = {}
        for column, kind in column_kinds(self.columns).items():
            if kind == "server":
                arrays[column] = np.zeros((slots, servers))
            else:
                arrays[column] = np.zeros(slots, dtype=np.int64)
        return self.columns(**arrays)


@cache
def column_kinds(columns: type) -> dict[str, str]:
    """Field → "job" or "server" of a policy's columns."""
    kinds = {}
    for name, hint in get_type_hints(columns, include_extras=True).items():
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if mark in ("job", "server")]
        if not marks:
            raise ValueError(f"columns: {columns.__name__}.{name} must be annotated PerJob or PerServer")
        kinds[name] = marks[0]
    return kinds
