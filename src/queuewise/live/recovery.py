"""From the state file back to a book: the last snapshot and the events after it, or all outcomes learned anew."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..scheduling.policy import Policy, Shape
from .book import Book, Event, Given, Kind, Rules
from .errors import Refused, StoreError
from .features import Layout
from .learner import Choice, Learner
from .store import JobRow, Store

TOO_OLD = "the state before this decision is no longer kept"


def unmask(detail: bytes, servers: int) -> NDArray[np.bool_]:
    """The servers that were allowed, from an event's bytes: bool[K]."""
    mask = np.zeros(servers, dtype=np.bool_)
    found = np.frombuffer(detail, dtype=np.bool_)
    mask[: found.shape[0]] = found
    return mask


class Missing(KeyError):
    """A job that is spoken of is not in the file."""


@dataclass(frozen=True)
class Recovery:
    """What it takes to make books of a state file."""

    store: Store
    layout: Layout
    policy: Policy
    shape: Shape
    seed: int
    compiled: bool

    def new_book(self, rules: Rules) -> Book:
        """Before the first event: no jobs, and no server that may get any."""
        learner = Learner(self.policy, self.shape, seed=self.seed, compiled=self.compiled)
        learner.present[:] = False
        return Book(learner, rules)

    def rebuild(self, rules: Rules, until: int | None = None) -> Book:
        """The book after the event `until` (the last one): the latest snapshot before it, and what came after.

        Raises StoreError, ``damaged``, where no snapshot can be used or a job is missing; Refused, ``too_old``, where none is
        kept from before."""
        book = self.new_book(rules)
        for snapshot in self.store.snapshots(None if until is None else until + 1):
            try:
                book.restore(snapshot.arrays, {n: self.given(n) for n in snapshot.arrays["learner.rank"].tolist()})
                break
            except (ValueError, KeyError, AttributeError):  # of another version of the policy, or incomplete
                book = self.new_book(rules)
        events = self.store.events(book.event, until)
        numbers = [event.number for event in events]
        last = self.store.last_numbers()[0] if until is None else until
        if numbers != list(range(book.event + 1, last + 1)):
            if until is not None:
                raise Refused("too_old", TOO_OLD)
            raise StoreError(
                "damaged",
                f"path: no snapshot in {self.store.path} can be read by this version of {self.policy.label}; "
                "relearn=True learns anew from its outcomes",
            )
        try:
            for event in events:
                self._again(book, event)
        except Missing as error:
            if until is not None:  # forgotten while we read
                raise Refused("too_old", TOO_OLD) from error
            raise StoreError(
                "damaged",
                f"path: an event in {self.store.path} speaks of a job that is not there ({error.args[0]}); relearn=True "
                "learns anew from its outcomes",
            ) from error
        return book

    def _again(self, book: Book, event: Event) -> None:
        """Let an event happen that has happened before. The log is what counts; where this version of the program would have
        decided otherwise, `diverged` of the book counts it."""
        given = self.given(event.job) if event.kind in (Kind.SUBMITTED, Kind.LATE) else None
        choice = None
        if event.kind == Kind.ISSUED:
            choice = Choice(book.jobs[event.job].slot, event.server, 0)
            try:
                chosen = book.choose(unmask(event.detail, self.layout.servers))
            except RuntimeError:
                chosen = None
            if chosen is not None and chosen[:2] == choice[:2]:
                choice = chosen
            else:
                book.diverged += 1
        if book.apply(event, given=given, choice=choice) != event.status:
            book.diverged += 1

    def given(self, number: int) -> Given:
        """What a job was submitted with. Raises Missing where it is not kept."""
        row = self.store.job(number)
        if row is None:
            raise Missing(f"job {number}")
        kept = self.layout.unpack(row.features)
        deadline = math.inf if row.deadline is None else row.deadline
        return Given(row.id, deadline, self.layout.expand(kept), self._unable(row))

    def _unable(self, row: JobRow) -> NDArray[np.bool_]:
        unable = np.zeros(self.layout.servers, dtype=np.bool_)
        found = np.frombuffer(row.ineligible, dtype=np.bool_)
        unable[: found.shape[0]] = found
        if self.layout.shared:
            unable[found.shape[0] :] = True  # pairs that nobody has described
        return unable

    def learn_anew(self, rules: Rules, before: Mapping[str, Any]) -> Book:
        """A book whose policy learns from all outcomes in the file, in the order in which they came, then meets the jobs.

        `before` : the features' layout in the file. Raises StoreError, ``other_settings``, where it is another."""
        here = self.layout.describe()
        kept = [key for key in ("job_features", "pair_features", "scale", "feature_bound", "too_long") if key in here]
        if any(before.get(key) != here[key] for key in kept) or before["servers"] > here["servers"]:
            raise StoreError(
                "other_settings",
                "relearn: what is known of a job (its features, their scale and bound) must be the same, and no place of a "
                "server may go",
            )
        book = self.new_book(rules)
        learner = book.learner
        for number, _, present in self.store.servers():
            learner.set_present(number, present)
        lost = rules.lost_is_failure  # then what was lost is a failure, and what came late teaches no more
        for row in self.store.outcomes(lost=lost):
            learner.rounds += 1
            success = row.status == "success" or (row.status == "late success" and not lost)
            learner.hear_late(row.job, self.given(row.job).features, row.server, success)
        opened = {row.job: row for row in self.store.open_attempts()}
        jobs = {row.number: row for row in self.store.unfinished()}
        for number in opened:
            found = self.store.job(number)
            assert found is not None
            jobs.setdefault(number, found)
        for number in sorted(jobs):
            row_, attempt = jobs[number], opened.get(number)
            book.apply(Event(0, Kind.SUBMITTED, row_.submitted, number), given=self.given(number))
            job = book.jobs[number]
            job.tries = row_.tries - (attempt is not None)
            if rules.elsewhere:
                for former in self.store.attempts_of(number):
                    if former.status != "open":
                        learner.close_pair(job.slot, former.server)
            if attempt is not None:
                choice = Choice(job.slot, attempt.server, attempt.reason)
                book.apply(Event(0, Kind.ISSUED, attempt.issued, number, attempt.number), choice=choice)
                job.status = row_.status
        book.event, book.last_job, book.last_attempt = self.store.last_numbers()
        return book
