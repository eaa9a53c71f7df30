"""Jobs and attempts as a function of what has happened: the part of a scheduler that recovery plays again.

Everything that moves a job or the policy is an :class:`Event`, numbered, with the time at which it was noticed. A book has
one method that applies an event, and the live scheduler uses the same one as recovery does. Clocks, leases and disks are
its caller's.

A job is waiting, running, or has its final result: ``done``, ``failed`` (attempts used up), ``overdue`` (its deadline passed
while it did not run) or ``cancelled``. The first final result stands. An attempt is open until it is answered or lost.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..scheduling.policy import Ticket
from .learner import Choice, Learner

WAITING, RUNNING, DONE, FAILED, OVERDUE, CANCELLED = "waiting", "running", "done", "failed", "overdue", "cancelled"
STATUSES = (WAITING, RUNNING, DONE, FAILED, OVERDUE, CANCELLED)
FINAL = (DONE, FAILED, OVERDUE, CANCELLED)


class Kind(enum.IntEnum):
    """What can happen. The numbers stand in files: never change one."""

    SUBMITTED = 1
    ISSUED = 2
    ANSWERED = 3
    LOST = 4
    LATE = 5
    OVERDUE = 6
    CANCELLED = 7
    SERVER = 8
    EXTENDED = 9


class Event(NamedTuple):
    """One thing that happened. `status` is the job's afterwards; `detail` of ISSUED the mask of allowed servers, a byte each;
    `success` of SERVER whether it may get jobs from now on."""

    number: int
    kind: int
    at: float
    job: int = 0
    attempt: int = 0
    server: int = -1
    success: bool = False
    status: str = ""
    detail: bytes = b""


class Rules(NamedTuple):
    """max_attempts : after so many a job has failed (0: never) · elsewhere : not the same server again after a failure ·
    lost_is_failure : whether an expired lease is learned as a failure, rather than not at all."""

    max_attempts: int
    elsewhere: bool
    lost_is_failure: bool


class Given(NamedTuple):
    """What was submitted: features float64[d, K], and the servers that may not have the job, bool[K]."""

    id: str
    deadline: float
    features: NDArray[np.float64]
    ineligible: NDArray[np.bool_]


@dataclass(slots=True)
class Job:
    """A job that holds a slot. deadline : ∞ where it has none. attempt : number of its open attempt, 0 if none."""

    number: int
    id: str
    slot: int
    deadline: float
    status: str = WAITING
    tries: int = 0
    attempt: int = 0


class Attempt(NamedTuple):
    """An open attempt."""

    number: int
    job: int
    ticket: Ticket


class Book:
    """All jobs that are not finished, their open attempts, and the policy.

    jobs, attempts : by number · ids : number of a job by its id · event : number of the last event applied
    last_job, last_attempt : numbers given so far · diverged : events played again that this version of the program would have
    had otherwise
    """

    def __init__(self, learner: Learner, rules: Rules) -> None:
        self.learner, self.rules = learner, rules
        self.jobs: dict[int, Job] = {}
        self.attempts: dict[int, Attempt] = {}
        self.ids: dict[str, int] = {}
        self.event = self.last_job = self.last_attempt = self.diverged = 0

    def choose(self, allowed: NDArray[np.bool_]) -> Choice | None:
        """The policy's choice; it must be issued next."""
        return self.learner.choose(allowed)

    def apply(self, event: Event, *, given: Given | None = None, choice: Choice | None = None) -> str:
        """Let an event happen; the status of its job afterwards. `given` goes with SUBMITTED and LATE, `choice` with ISSUED."""
        kind, learner = event.kind, self.learner
        self.event = event.number
        if kind == Kind.SUBMITTED:
            assert given is not None
            slot = learner.enter(event.job, given.features, given.ineligible)
            self.jobs[event.job] = Job(event.job, given.id, slot, given.deadline)
            self.ids[given.id] = event.job
            self.last_job = max(self.last_job, event.job)
            return WAITING
        if kind == Kind.ISSUED:
            assert choice is not None
            job = self.jobs[event.job]
            job.status, job.attempt, job.tries = RUNNING, event.attempt, job.tries + 1
            self.attempts[event.attempt] = Attempt(event.attempt, event.job, learner.issue(choice))
            self.last_attempt = max(self.last_attempt, event.attempt)
            return RUNNING
        if kind in (Kind.ANSWERED, Kind.LOST):
            return self._closed(event)
        if kind == Kind.LATE:
            return self._late(event, given)
        if kind == Kind.SERVER:
            learner.set_present(event.server, event.success)
            return ""
        job = self.jobs[event.job]
        if kind == Kind.EXTENDED:  # a longer lease is nothing to the policy
            return job.status
        return self._finish(job, OVERDUE if kind == Kind.OVERDUE else CANCELLED)

    def _closed(self, event: Event) -> str:
        """An open attempt was answered or lost."""
        attempt = self.attempts.pop(event.attempt)
        job = self.jobs[attempt.job]
        job.attempt = 0
        success = bool(event.kind == Kind.ANSWERED and event.success)
        if event.kind == Kind.ANSWERED or self.rules.lost_is_failure:
            self.learner.observe(attempt.ticket, success)
        else:
            self.learner.expire(attempt.ticket)
        if job.status in FINAL:  # a late success of an earlier attempt, or a cancellation, was faster
            self._leave(job)
            return job.status
        if success:
            return self._finish(job, DONE)
        if 0 < self.rules.max_attempts <= job.tries:
            return self._finish(job, FAILED)
        if event.at >= job.deadline:
            return self._finish(job, OVERDUE)
        job.status = WAITING
        if self.rules.elsewhere:
            self.learner.close_pair(job.slot, attempt.ticket.server)
        self.learner.put_back(job.slot)
        return WAITING

    def _late(self, event: Event, given: Given | None) -> str:
        """The outcome of an attempt whose lease had expired. It is learned if its loss was not, and a success finishes a job
        that has no result yet."""
        if not self.rules.lost_is_failure:
            assert given is not None
            self.learner.hear_late(event.job, given.features, event.server, event.success)
        job = self.jobs.get(event.job)
        if job is None or job.status in FINAL or not event.success:
            return event.status if job is None else job.status
        return self._finish(job, DONE)

    def _finish(self, job: Job, status: str) -> str:
        if job.status == WAITING:
            self.learner.take_out(job.slot)
        job.status = status
        if not job.attempt:  # else its slot is the ticket's until the attempt is closed
            self._leave(job)
        return status

    def _leave(self, job: Job) -> None:
        self.learner.free(job.slot)
        del self.jobs[job.number]
        self.ids.pop(job.id, None)

    # --- all of it, as named arrays -----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything but what the jobs were submitted with."""
        jobs = [
            (job.number, job.slot, STATUSES.index(job.status), job.tries, job.attempt) for job in self.jobs.values()
        ]
        attempts = [
            (number, job, ticket.round, ticket.slot, ticket.server, ticket.reason)
            for number, job, ticket in self.attempts.values()
        ]
        return {
            "book.last": np.array([self.event, self.last_job, self.last_attempt]),
            "book.jobs": np.array(jobs, dtype=np.int64).reshape(-1, 5),
            "book.attempts": np.array(attempts, dtype=np.int64).reshape(-1, 6),
            **self.learner.arrays(),
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]], given: Mapping[int, Given]) -> None:
        """Go on from what :meth:`arrays` gave; `given` by the number of the job."""
        self.event, self.last_job, self.last_attempt = (int(number) for number in arrays["book.last"])
        self.learner.restore(dict(arrays), {number: job.features for number, job in given.items()})
        for number, slot, status, tries, attempt in arrays["book.jobs"].tolist():
            what = given[number]
            self.jobs[number] = Job(number, what.id, slot, what.deadline, STATUSES[status], tries, attempt)
            self.ids[what.id] = number
        for number, job, t, slot, server, reason in arrays["book.attempts"].tolist():
            features = np.ascontiguousarray(self.learner.features[slot, :, server])
            self.attempts[number] = Attempt(number, job, Ticket(t, slot, server, reason, features))
