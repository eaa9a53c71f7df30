"""What a platform without a learner can set up from its record: one server for all, a chain of fallbacks, a trained router.

They serve the earliest job and know the record that the system was made of, so they are yardsticks, not competitors: a
learner begins without it. Each is a rule of its own, made for one system.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..scheduling.contexts.outcomes import OutcomesSystem
from ..scheduling.contexts.table import FiniteLaw, attempts_needed
from ..scheduling.policy import EXPLOIT, PerJob, Policy, Shape, Ticket, Waiting
from ..scheduling.systems import Floats, Ints


class Fixed(NamedTuple):
    """Servers in order of preference: int64[K]."""

    order: Ints


class Trained(NamedTuple):
    """A parameter that was fitted beforehand: float64[d]."""

    theta: Floats


class Attempts(NamedTuple):
    """How often each waiting job has been tried."""

    tried: PerJob


def first_of(params: Any, state: Fixed, columns: Any, waiting: Waiting, stream: Any) -> tuple[int, int, int]:
    """The earliest job, at the first server."""
    return waiting.slots[0], state.order[0], EXPLOIT


def next_of(params: Any, state: Fixed, columns: Attempts, waiting: Waiting, stream: Any) -> tuple[int, int, int]:
    """The earliest job, at the first server that has not tried it; all over again after the last."""
    slot = waiting.slots[0]
    return slot, state.order[columns.tried[slot] % state.order.shape[0]], EXPLOIT


def newcomer(params: Any, state: Any, columns: Attempts, waiting: Waiting, slot: int) -> None:
    """Nobody has tried a newcomer."""
    columns.tried[slot] = 0


def count(params: Any, state: Any, columns: Attempts, waiting: Waiting, ticket: Ticket) -> None:
    """One more attempt."""
    columns.tried[ticket.slot] += 1


def likeliest(params: Any, state: Trained, columns: Any, waiting: Waiting, stream: Any) -> tuple[int, int, int]:
    """The earliest job, at the server that the fitted parameter thinks best; the lowest of equal ones."""
    slot, best, server = waiting.slots[0], -np.inf, 0
    for k in range(waiting.allowed.shape[0]):
        z = 0.0
        for i in range(state.theta.shape[0]):
            z += waiting.features[slot, i, k] * state.theta[i]
        if z > best:
            best, server = z, k
    return slot, server, EXPLOIT


class _Given:
    """``start`` of a rule whose state is known beforehand; copied, since states belong to runs."""

    def __init__(self, kind: Any, array: Any) -> None:
        self.kind, self.array = kind, array

    def __call__(self, params: Any, shape: Shape, stream: Any) -> Any:
        return self.kind(self.array.copy())


def by_success(system: OutcomesSystem) -> Ints:
    """Servers in order of capacity where each serves all jobs, the best first; of equal ones the one that does more jobs."""
    law = _law(system)
    success = np.round(law.weights @ law.probabilities, 12)
    # Rounding must not decide: with one attempt per job all carry alike.
    return np.lexsort((-success, np.round(mean_attempts(law), 12))).astype(np.int64)


def mean_attempts(law: FiniteLaw) -> Floats:
    """``E[attempts]`` of every server that serves all jobs alone: float64[K]."""
    return np.asarray(law.weights @ attempts_needed(law.probabilities, law.max_attempts))


def single(system: OutcomesSystem, *, name: str = "single") -> Policy:
    """Every job to the one server that carries the largest load alone."""
    return _rule("single", first_of, Fixed, by_success(system), name)


def fallback(system: OutcomesSystem, *, name: str = "fallback") -> Policy:
    """Every job to the server that carries most alone; after a failure to the next, and so on around."""
    return _rule("fallback", next_of, Fixed, by_success(system), name, admit=newcomer, assigned=count, columns=Attempts)


def router(system: OutcomesSystem, *, name: str = "router") -> Policy:
    """Every job to the server that a logistic regression on the whole record thinks best."""
    return _rule("router", likeliest, Trained, system.fitted_theta, name)


def _rule(rule: str, decide: Any, kind: Any, array: Any, name: str, **hooks: Any) -> Policy:
    return Policy(rule, decide, name=name, start=_Given(kind, array), **hooks)


def _law(system: OutcomesSystem) -> FiniteLaw:
    assert isinstance(system.law, FiniteLaw)  # from_outcomes builds no other
    return system.law
