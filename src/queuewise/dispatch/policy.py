"""What a dispatching policy is: plain functions over named arrays, one file per rule.

The caller (simulation, replay, live router) owns the clock, the queues and the randomness; the policy owns its
estimates. Deciding and learning are apart in time: a :class:`Ticket` travels with the job and comes back with its
:class:`Outcome`. Every function takes the policy's parameters, its state and what can be seen now:

    decide  (params, state, seen, stream)          -> (server, reason)   where the job that has just arrived goes
    assigned(params, state, seen, ticket)          it has joined that server's queue
    observe (params, state, seen, ticket, outcome) it has left, done, failed or given up on
    emptied (params, state, seen)                  the job that left was the last one in the system
    estimates(params, state, rates)                -> (episode, within)  for reports: fills rates[n]

two that only a live router calls, because there rates drift and servers come and go:

    forget  (params, state, factor)                all that was observed counts for less, by a factor in (0, 1]
    believe (params, state, seen, server, completions, busy)   as if a server had shown this, and nothing else

and two that prepare it, in ordinary Python:

    configure(options, shape)        -> params (a named tuple of numbers; checks the options)
    start    (params, shape, stream) -> state  (a named tuple of arrays)

Only `decide` is required. `state` is changed in place; nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._random import Stream
from ..rule import Rule

#: Reasons of a decision: by the rule's estimates, or forced in order to learn.
EXPLOIT, EXPLORE = 0, 1
REASONS = {EXPLOIT: "exploit", EXPLORE: "explore"}

#: Outcomes of a job: served to its end, failed, or not waited for any longer (its service time is then a lower bound).
DONE, FAILED, CENSORED = 0, 1, 2
OUTCOMES = {DONE: "done", FAILED: "failed", CENSORED: "censored"}


class Seen(NamedTuple):
    """What a policy sees at a moment.

    now : time · jobs : in the system, not counting the one that is to be routed
    arrivals : jobs that have arrived so far, counting the one that is to be routed · changes : changes of the true rates so far
    queue : int64[n], q_i, waiting and in service · slots : int64[n], c_i, jobs that a server serves at a time
    began : float64[n], sum of the times at which the jobs now in service began; see :func:`elapsed`
    free : float64[n], when a job that joins now would begin its service; −∞ where a slot is free now; NaN unless clairvoyant
    weights : float64[n], c_i μ_i up to a common factor, whole numbers where the rates are exact; NaN unless clairvoyant
    """

    now: float
    jobs: int
    arrivals: int
    changes: int
    queue: NDArray[np.int64]
    slots: NDArray[np.int64]
    began: NDArray[np.float64]
    free: NDArray[np.float64]
    weights: NDArray[np.float64]


class Ticket(NamedTuple):
    """A routed job: its server, the reason of the decision, and the time of its arrival."""

    server: int
    reason: int
    issued: float


class Outcome(NamedTuple):
    """What became of a job: DONE, FAILED or CENSORED; the time that it was in service; its size where known, else NaN."""

    kind: int
    busy_time: float
    work: float


class Shape(NamedTuple):
    """The public facts of a system that a policy may be configured with.

    servers n · slots : int64[n] · arrival_rate λ (jobs per time, the long-run mean) · rates : float64[n], jobs per time that
    one slot serves, NaN unless clairvoyant · initial_rates : float64[n], what is believed of them beforehand
    most_in_system : jobs at which a run ends as unstable
    """

    servers: int
    slots: NDArray[np.int64]
    arrival_rate: float
    rates: NDArray[np.float64]
    initial_rates: NDArray[np.float64]
    most_in_system: int


class NoParams(NamedTuple):
    """Parameters of a rule that has none."""

    unused: int = 0


class NoState(NamedTuple):
    """State of a rule that remembers nothing."""

    unused: NDArray[np.float64]


def elapsed(seen: Seen, server: int) -> float:
    """The time that the jobs now in service at a server have been served so far, summed over them."""
    return float(min(seen.queue[server], seen.slots[server]) * seen.now - seen.began[server])


def assigned(params: Any, state: Any, seen: Seen, ticket: Ticket) -> None:
    """Nothing moves when a job joins a queue."""


def observe(params: Any, state: Any, seen: Seen, ticket: Ticket, outcome: Outcome) -> None:
    """Nothing is learned."""


def emptied(params: Any, state: Any, seen: Seen) -> None:
    """Nothing happens when the system is empty."""


def estimates(params: Any, state: Any, rates: NDArray[np.float64]) -> tuple[int, bool]:
    """No estimates: rates stay NaN. Else: rates[i] in jobs per time of one slot (or up to a common factor), the number of
    the episode (0 for a rule without), and whether the estimates lie in the range that the rule holds possible."""
    for i in range(rates.shape[0]):
        rates[i] = np.nan
    return 0, True


def forget(params: Any, state: Any, factor: float) -> None:
    """There is nothing to forget."""


def believe(params: Any, state: Any, seen: Seen, server: int, completions: float, busy: float) -> None:
    """Nothing is believed."""


def configure(options: Any, shape: Shape) -> Any:
    """No parameters."""
    return NoParams()


def start(params: Any, shape: Shape, stream: Stream) -> Any:
    """Nothing to remember."""
    return NoState(np.zeros(1))


@dataclass(frozen=True)
class Policy(Rule):
    """A dispatching rule with its options. Make one with a factory (``lased(initial_rates=[5, 0.1])``) or directly.

    Parameters
    ----------
    rule, options, defaults, name : as in :class:`queuewise.rule.Rule`.
    decide, assigned, observe, emptied, estimates, configure, start : the functions described at the head of this module.
    clairvoyant : whether it is shown the true rates and when each server will be free.
    law : for rules that depend on the queue lengths alone, ``law(params, weights, queue, slots)`` →
        float64[states, n]: the probabilities with which each server is chosen in each state (queue : int64[states, n];
        weights : the true ones). With it the rule can be solved exactly; see :mod:`queuewise.dispatch.exact`.
    explain : optional ``explain(params, state, seen) -> dict``.
    forget, believe : for a live router. A rule without them forgets nothing, and starts anew where servers come and go.
    """

    CALLED: ClassVar[tuple[str, ...]] = ("decide", "assigned", "observe", "emptied", "estimates")

    assigned: Callable[..., Any] = assigned
    observe: Callable[..., Any] = observe
    emptied: Callable[..., Any] = emptied
    estimates: Callable[..., Any] = estimates
    configure: Callable[..., Any] = configure
    start: Callable[..., Any] = start
    law: Callable[..., Any] | None = None
    forget: Callable[..., Any] = forget
    believe: Callable[..., Any] = believe

    @property
    def label(self) -> str:
        """As for every rule, but always with its ties: rates in whole ratios tie often, and then they decide."""
        if "ties" not in self.options or "ties=" in super().label:
            return super().label
        label, ties = super().label, f"ties={self.options['ties']!r}"
        return f"{label[:-1]}, {ties})" if label.endswith(")") else f"{label}({ties})"
