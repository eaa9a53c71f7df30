"""The contextual scheduler for live traffic: jobs come in, a policy picks job and server, outcomes teach it.

    from queuewise.live import Scheduler

    scheduler = Scheduler(["gpu", "cpu"], job_features=2, path="state.db")
    scheduler.submit("job-1", [0.3, -1.2])
    assignment = scheduler.next()               # or next("cpu"), for a worker that asks for itself
    scheduler.report(assignment, success=True)

The policies are those of the simulation, the same files. This module adds what a simulation does not need: a clock, leases,
deadlines, a state file (:mod:`.store`), and sentences for what goes wrong.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fields import plain
from ..scheduling.policies import make
from ..scheduling.policy import REASONS, Policy, Shape
from ..scheduling.systems import inverse_slope
from . import arguments
from .book import DONE, FINAL, WAITING, Book, Event, Given, Kind, Rules
from .errors import Refused, StoreError
from .features import Layout
from .journal import Batch, Journal
from .learner import Choice
from .recovery import Recovery, unmask
from .store import AttemptRow, Entry, NewAttempt, NewJob, Snapshot, Store, written_by

#: What a default policy is told where the user says nothing: β and V₀ of the recorded systems, whose formulas are far too wide.
RADIUS, INITIAL_DESIGN, PARAMETER_BOUND = 1.0, 1.0, 5.0
#: Options of a policy given by name. `growth` tells WISE to form an interval when det H has doubled: each costs d² per waiting
#: pair, 8 ms for a thousand jobs, ten servers and d = 32, which few decisions should pay.
BY_NAME: dict[str, Any] = {"estimator": "one_pass", "growth": 1.0}
#: Expired leases that one call takes back at most; the rest wait for the next call.
SWEEP = 20
#: A snapshot waits until it costs no more than so many bytes per event: an exact estimator keeps all its history.
BYTES_PER_EVENT = 16_384


@dataclass(frozen=True, slots=True)
class Assignment:
    """One attempt: do this job on this server.

    number : tells attempts apart, also after a restart · try_number : 1 for the job's first · reason : "exploit" or "explore"
    round : decisions issued so far, this one included · issued, lease_until : by the scheduler's clock
    """

    number: int
    job_id: str
    server: str
    try_number: int
    reason: str
    round: int
    issued: float
    lease_until: float


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a report.

    status : "accepted"; "late" (the lease had expired and the job was taken back); "superseded" (the job already had its final
        result); "repeated" (the same report had come before, and nothing has changed)
    job_status : the job's now · learned : whether the policy has learned from this report
    """

    status: str
    job_id: str
    job_status: str
    learned: bool


@dataclass(frozen=True, slots=True)
class JobView:
    """What is known of a job. finished_by : the server of the attempt that finished it."""

    id: str
    status: str
    tries: int
    submitted: float
    deadline: float | None
    finished: float | None
    finished_by: str | None


class Scheduler:
    """A queue of jobs with features, servers of unequal and unknown skill, and a policy that learns which suits which.

    Parameters
    ----------
    servers : names of the servers, or a mapping from name to the number of jobs that it takes at once (one otherwise). On an
        existing state file the list says who is there now: new names take spare places, missing ones get no more jobs.
    job_features, pair_features : how many numbers describe a job (every server then has parameters of its own), or a (job,
        server) pair (one parameter vector for all). One of the two.
    policy : a name or a :class:`queuewise.scheduling.Policy`. A name gets the estimator for long horizons where it has one.
    path : the state file; None keeps the state in memory.
    spare : places for servers that come later (:meth:`add_server`), beside those in the list; a state file never has fewer than
        it had.
    lease : seconds after which an attempt that was not heard of is lost and its job returns; :meth:`extend` is a heartbeat.
    max_attempts : after so many attempts a job has failed; None: never.
    retry : "elsewhere" (not on a server where the job has just failed, as long as there is another) or "anywhere".
    lost : what a lost attempt teaches: "nothing" (its move of V is taken back) or "failure".
    scale, feature_bound, too_long : see :class:`.features.Layout`.
    parameter_bound : S, how long the parameter can be; default 5, times √(number of places) with job features.
    horizon : decisions that policies with phases plan for (`cqb_epsilon`, `cqb_eta_2`).
    seed : of the policy's random stream.
    durability : "full" or "normal", see :mod:`.store`.
    snapshot_every, snapshot_seconds : a snapshot is due after so many events (more where it is large), or seconds.
    keep_finished : seconds for which finished jobs are remembered; None: for ever. A forgotten id can be used again, and
        later reports of its attempts are of unknown ones.
    relearn : a state file that another policy, or other options, wrote is refused; True learns anew from all its outcomes then.
    clock : seconds; must go on over restarts, so the time of day, by default. If it goes back, time stands still for a while.
    compiled : False runs the policy as plain Python.

    All methods may be called from several threads. They return when what they did is on disk.

    Raises
    ------
    Refused (a ValueError) : an argument is not as it should be.
    StoreError : the state file cannot be used, or its disk is full.
    """

    def __init__(
        self,
        servers: Iterable[str] | Mapping[str, int],
        *,
        job_features: int | None = None,
        pair_features: int | None = None,
        policy: str | Policy = "wise",
        path: str | os.PathLike[str] | None = None,
        spare: int = 0,
        lease: float = 60.0,
        max_attempts: int | None = None,
        retry: str = "elsewhere",
        lost: str = "nothing",
        scale: float | Sequence[float] = 1.0,
        feature_bound: float | None = None,
        too_long: str = "refuse",
        parameter_bound: float | None = None,
        horizon: int = 100_000,
        seed: int = 0,
        durability: str = "full",
        snapshot_every: int = 1000,
        snapshot_seconds: float = 300.0,
        keep_finished: float | None = None,
        relearn: bool = False,
        clock: Callable[[], float] = time.time,
        compiled: bool = True,
    ) -> None:
        slots = arguments.slots(servers)
        places = len(slots) + arguments.count("spare", spare, 0)
        self._lease_seconds = arguments.seconds("lease", lease)
        self._rules = Rules(
            0 if max_attempts is None else arguments.count("max_attempts", max_attempts, 1),
            arguments.word("retry", retry, ("elsewhere", "anywhere")) == "elsewhere",
            arguments.word("lost", lost, ("nothing", "failure")) == "failure",
        )
        self._snapshot_every = arguments.count("snapshot_every", snapshot_every, 1)
        self._snapshot_seconds = arguments.seconds("snapshot_seconds", snapshot_seconds)
        self._keep = None if keep_finished is None else arguments.seconds("keep_finished", keep_finished)
        self._clock, self._compiled, self._seed = clock, compiled, arguments.count("seed", seed, 0)
        self._policy = _default(policy) if isinstance(policy, str) else policy
        if not isinstance(self._policy, Policy):
            raise Refused("bad_option", f"policy: must be a name or a scheduling policy, not {policy!r}")
        layout = {
            "job_features": job_features,
            "pair_features": pair_features,
            "scale": scale,
            "bound": feature_bound,
            "too_long": too_long,
        }
        bound = None if parameter_bound is None else arguments.seconds("parameter_bound", parameter_bound)
        horizon = arguments.count("horizon", horizon, 1)
        self._plan(places, layout, bound, horizon)

        self._lock = threading.RLock()
        self._store = Store(path, durability=durability)
        try:
            there = self._places_there()
            if there > places:  # whoever is not in the list keeps a place, and gets no jobs
                self._plan(there, layout, bound, horizon)
            self._recovery = Recovery(self._store, self._layout, self._policy, self._shape, self._seed, self._compiled)
            self._journal = Journal(self._store, self._lock, self._behind, self._keep)
            self._names: list[str] = []
            self._places: dict[str, int] = {}
            self._slots = np.ones(self._layout.servers, dtype=np.int64)
            self._stale, self._now = False, -math.inf
            try:
                self._open_file(relearn)
            except Refused:
                raise
            except ValueError as error:  # an option of the policy
                raise Refused("bad_option", str(error)) from error
            self._arrive(slots)
        except BaseException:
            self._store.close()
            raise

    # --- opening ------------------------------------------------------------------------------------------------------

    def _places_there(self) -> int:
        """Places for servers in the state file; 0 where it is new."""
        meta = self._store.meta()
        return int(json.loads(meta["settings"])["features"]["servers"]) if "settings" in meta else 0

    def _plan(self, places: int, options: Mapping[str, Any], parameter_bound: float | None, horizon: int) -> None:
        """Features and what the policy is told, for so many places for servers."""
        self._layout = layout = Layout(places, **options)
        if parameter_bound is None:
            parameter_bound = PARAMETER_BOUND * math.sqrt(layout.blocks)
        self._shape = Shape(
            servers=layout.servers,
            dimension=layout.dimension,
            rounds=horizon,
            arrival_rate=math.nan,
            parameter_bound=parameter_bound,
            feature_bound=layout.bound,
            kappa=inverse_slope(parameter_bound * layout.bound),
            suggested_radius=RADIUS,
            suggested_initial_design=INITIAL_DESIGN,
            context_slack=math.nan,
            capacity_slack=math.nan,
            max_attempts=self._rules.max_attempts,
            blocks=layout.blocks,
        )

    def _settings(self) -> dict[str, Any]:
        """What must not change under learned estimates."""
        shape = self._shape
        return {
            "policy": self._policy.rule,
            "name": self._policy.name,
            "options": plain(self._policy.options),
            "features": self._layout.describe(),
            "parameter_bound": shape.parameter_bound,
            "horizon": shape.rounds,
            "seed": self._seed,
        }

    def _meta(self) -> dict[str, str]:
        texts = {"settings": json.dumps(self._settings()), "rules": json.dumps(list(self._rules))}
        return {**texts, **written_by()}

    def _different(self, there: dict[str, Any]) -> list[str]:
        """In words, how the settings in the file differ from those of now."""
        here = json.loads(json.dumps(self._settings()))
        if there["policy"] != here["policy"]:
            return [f"policy is {there['policy']!r} there, {here['policy']!r} here"]
        defaults = json.loads(json.dumps(plain(self._policy.defaults)))  # options that came after the file was written
        return arguments.differences({**there, "options": {**defaults, **there["options"]}}, here)

    def _open_file(self, relearn: bool) -> None:
        meta = self._store.meta()
        if "settings" not in meta:
            self._store.set_meta(self._meta())
            self._take_over(self._recovery.new_book(self._rules))
            return
        different = self._different(json.loads(meta["settings"]))
        rules = Rules(*json.loads(meta["rules"]))
        self._names = [name for _, name, _ in sorted(self._store.servers())]
        if not different:
            try:
                book = self._rebuild(rules)
            except StoreError as error:
                if not relearn or error.status != "damaged":
                    raise
                different = [str(error)]
                book = self._recovery.learn_anew(self._rules, json.loads(meta["settings"])["features"])
        elif relearn:
            book = self._recovery.learn_anew(self._rules, json.loads(meta["settings"])["features"])
        else:
            raise StoreError(
                "other_settings",
                f"path: {self._store.path} was written with other settings ({'; '.join(different[:3])}); take those, "
                "another file, or relearn=True to learn anew from its outcomes",
            )
        if different or rules != self._rules:
            book.rules = self._rules
            self._store.forget_learning(Snapshot(book.event, self._time(), book.arrays()), self._meta())
        self._take_over(book)

    def _rebuild(self, rules: Rules, until: int | None = None) -> Book:
        return self._recovery.rebuild(rules, until)

    def _take_over(self, book: Book) -> None:
        """Go on with this book; leases and deadlines from the file."""
        self._book = book
        self._lease = {row.number: (row.lease, row.try_) for row in self._store.open_attempts()}
        self._leases = [(lease, number) for number, (lease, _) in self._lease.items()]
        self._deadlines = [(job.deadline, number) for number, job in book.jobs.items() if job.deadline < math.inf]
        heapq.heapify(self._leases)
        heapq.heapify(self._deadlines)
        self._busy = np.zeros(self._layout.servers, dtype=np.int64)
        for attempt in book.attempts.values():
            self._busy[attempt.ticket.server] += 1
        #: What has been closed but is not on disk yet, so that nobody is told what the disk does not know.
        self._recent_jobs: dict[str, tuple[Batch, str]] = {}
        self._recent_attempts: dict[int, tuple[Batch, AttemptRow, str]] = {}
        self._snapshot_event, self._snapshot_time, self._snapshot_size = book.event, self._time(), 0
        self._names = [name for _, name, _ in sorted(self._store.servers())]
        self._places = {name: place for place, name in enumerate(self._names)}
        self._stale = False

    def _behind(self) -> None:
        """Something could not be written: what is in memory counts no longer."""
        self._stale = True

    def _read_back(self) -> None:
        """Memory as the disk has it, once what is being written is written."""
        with self._journal.committing, self._lock:
            if self._stale:
                self._take_over(self._rebuild(self._rules))

    @property
    def diverged(self) -> int:
        """Events that were played again at the last start, and that this version of the program would have had otherwise (the
        log counts). 0 unless the program, numba or the machine has changed since."""
        return self._book.diverged

    def _arrive(self, slots: Mapping[str, int]) -> None:
        with self._working() as batch:
            for name, count in slots.items():
                self._welcome(name, count)
            for name, place in self._places.items():
                if name not in slots and self._book.learner.present[place]:
                    self._add(Kind.SERVER, server=place, success=False, beside=name)
        self._journal.commit(batch)

    # --- what every call does -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _working(self) -> Iterator[Batch]:
        """Under the lock; gives the batch to commit. A refusal changes nothing; whatever else goes wrong in between is undone
        by reading the state back."""
        self._lock.acquire()
        try:
            while self._stale:
                self._lock.release()
                try:
                    self._read_back()
                finally:
                    self._lock.acquire()
            try:
                yield self._journal.batch
            except (Refused, StoreError):
                raise
            except BaseException as error:
                self._journal.abandon(error)
                raise
            self._snapshot_if_due()
        finally:
            self._lock.release()

    def _time(self) -> float:
        self._now = max(self._now, float(self._clock()))
        return self._now

    def _add(
        self,
        kind: Kind,
        *,
        job: int = 0,
        attempt: int = 0,
        server: int = -1,
        success: bool = False,
        status: str = "",
        detail: bytes = b"",
        beside: Any = None,
        given: Given | None = None,
        choice: Choice | None = None,
    ) -> str:
        """Let an event happen, in memory and in the journal; its job's status afterwards."""
        book = self._book
        event = Event(book.event + 1, int(kind), self._time(), job, attempt, server, success, status, detail)
        status = book.apply(event, given=given, choice=choice)
        self._journal.add(Entry(event._replace(status=status), beside))
        return status

    def _snapshot_if_due(self) -> None:
        events = self._book.event - self._snapshot_event
        due = max(self._snapshot_every, self._snapshot_size // BYTES_PER_EVENT)
        if events >= due or (events and self._now - self._snapshot_time >= self._snapshot_seconds):
            self._journal.snapshot(self._snapshot())

    def _snapshot(self) -> Snapshot:
        snapshot = Snapshot(self._book.event, self._time(), self._book.arrays())
        self._snapshot_event, self._snapshot_time = snapshot.event, snapshot.taken
        self._snapshot_size = sum(array.nbytes for array in snapshot.arrays.values())
        return snapshot

    def _sweep(self) -> None:
        """Take back what has expired, and give up what is overdue."""
        now, book = self._time(), self._book
        taken_back = 0
        while self._leases and self._leases[0][0] <= now and taken_back < SWEEP:
            until, number = heapq.heappop(self._leases)
            if self._is_lease(until, number):
                self._close(Kind.LOST, number, False)
                taken_back += 1
        while self._deadlines and self._deadlines[0][0] <= now:
            job = book.jobs.get(heapq.heappop(self._deadlines)[1])
            if job is not None and job.status == WAITING:
                self._add(Kind.OVERDUE, job=job.number)
                self._remember_job(job.id, job.status)

    def _is_lease(self, until: float, number: int) -> bool:
        """Whether this is the running lease of an open attempt, and not one that was answered or extended."""
        return number in self._lease and self._lease[number][0] == until

    def _close(self, kind: Kind, number: int, success: bool) -> str:
        """An open attempt is answered or lost; its job's status."""
        attempt = self._book.attempts[number]
        job = self._book.jobs[attempt.job]
        ticket = attempt.ticket
        status = self._add(kind, job=job.number, attempt=number, server=ticket.server, success=success)
        lease, try_ = self._lease.pop(number)
        self._busy[ticket.server] -= 1
        outcome = "expired" if kind == Kind.LOST else "success" if success else "failure"
        row = AttemptRow(
            number, job.number, ticket.server, ticket.round, ticket.reason, try_, 0.0, lease, outcome, self._now
        )
        self._remember_attempt(row, job.id)
        if status in FINAL:
            self._remember_job(job.id, status)
        return status

    def _remember_job(self, job_id: str, status: str) -> None:
        _forget_written(self._recent_jobs)
        self._recent_jobs.pop(job_id, None)
        self._recent_jobs[job_id] = (self._journal.batch, status)

    def _remember_attempt(self, row: AttemptRow, job_id: str) -> None:
        _forget_written(self._recent_attempts)
        self._recent_attempts.pop(row.number, None)
        self._recent_attempts[row.number] = (self._journal.batch, row, job_id)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def submit(
        self, job_id: str, features: Any = None, *, deadline: float | None = None, servers: Iterable[str] | None = None
    ) -> None:
        """A new job.

        Parameters
        ----------
        job_id : a text that no other job has, finished ones included.
        features : the numbers that describe it, see :meth:`.features.Layout.read`.
        deadline : seconds from now after which it is not begun (again); None: never.
        servers : those that can do it; None: all, also those that come later.

        Raises
        ------
        Refused : ``bad_features``, ``bad_option``, ``unknown_server`` or ``duplicate_job``. StoreError : see the class.
        """
        new = self._read_job(job_id, features, deadline, servers)
        with self._working() as batch:
            self._check_new(job_id)
            self._submit(new)
        self._journal.commit(batch)

    def submit_many(self, jobs: Iterable[tuple[str, Any]], *, deadline: float | None = None) -> int:
        """Several jobs (id, features) in one transaction: all or none. Returns how many. Raises as :meth:`submit`."""
        found = []
        for pair in jobs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise Refused("bad_option", f"jobs: must be pairs (job_id, features), not {type(pair).__name__}")
            found.append((pair[0], self._read_job(pair[0], pair[1], deadline, None)))
        with self._working() as batch:
            seen: set[str] = set()
            for job_id, _ in found:
                if job_id in seen:
                    raise Refused("duplicate_job", f"job_id: {job_id!r} is there twice")
                seen.add(job_id)
                self._check_new(job_id)
            for _, new in found:
                self._submit(new)
        self._journal.commit(batch)
        return len(found)

    def _read_job(
        self, job_id: str, features: Any, deadline: float | None, servers: Iterable[str] | None
    ) -> tuple[NewJob, NDArray[np.float64], NDArray[np.bool_]]:
        """Check what was handed in, without the lock; the deadline is still in seconds from now."""
        if not isinstance(job_id, str) or not 0 < len(job_id) <= arguments.LONGEST_ID or not job_id.isprintable():
            raise Refused(
                "bad_option",
                f"job_id: must be a printable text of 1 to {arguments.LONGEST_ID} characters, not {job_id!r}",
            )
        try:
            job_id.encode()
        except UnicodeEncodeError:
            raise Refused("bad_option", f"job_id: must be text that can be written down, not {job_id!r}") from None
        kept, unable = self._layout.read(features, self._places)
        if servers is not None:
            able = [self._place(name) for name in ([servers] if isinstance(servers, str) else servers)]
            others = np.ones_like(unable)
            others[able] = False
            unable |= others
            if unable.all():
                raise Refused(
                    "bad_option", "servers: none of them can do the job; name at least one, with its features"
                )
        seconds = None if deadline is None else arguments.seconds_from_now("deadline", deadline)
        return NewJob(job_id, self._layout.pack(kept), unable.tobytes(), seconds), self._layout.expand(kept), unable

    def _check_new(self, job_id: str) -> None:
        if job_id in self._book.ids or job_id in self._recent_jobs or self._store.job_by_id(job_id) is not None:
            raise Refused("duplicate_job", f"job_id: there is already a job {job_id!r}")

    def _submit(self, job: tuple[NewJob, NDArray[np.float64], NDArray[np.bool_]]) -> None:
        new, features, unable = job
        number, deadline = self._book.last_job + 1, math.inf
        if new.deadline is not None:
            deadline = self._time() + new.deadline
            new = new._replace(deadline=deadline)
            heapq.heappush(self._deadlines, (deadline, number))
        self._add(Kind.SUBMITTED, job=number, beside=new, given=Given(new.id, deadline, features, unable))

    def cancel(self, job_id: str) -> bool:
        """Give a job up. A running attempt goes on, and is learned from; its result is not the job's. False where the job has
        its final result already. Raises Refused, ``unknown_job``."""
        with self._working() as batch:
            number = self._book.ids.get(job_id)
            job = None if number is None else self._book.jobs[number]
            if job is None and job_id not in self._recent_jobs and self._store.job_by_id(job_id) is None:
                raise _unknown_job(job_id)
            live = job is not None and job.status not in FINAL
            if live:
                assert job is not None
                self._add(Kind.CANCELLED, job=job.number)
                self._remember_job(job.id, job.status)
        self._journal.commit(batch)
        return live

    def job(self, job_id: str) -> JobView:
        """What is known of a job, as it is on disk. Raises Refused, ``unknown_job``."""
        self._flush()
        row = self._store.job_by_id(job_id)
        if row is None:
            raise _unknown_job(job_id)
        attempt = None if row.attempt is None else self._store.attempt(row.attempt)
        server = None if attempt is None or row.status != DONE else self._names[attempt.server]
        return JobView(row.id, row.status, row.tries, row.submitted, row.deadline, row.finished, server)

    def counts(self) -> dict[str, int]:
        """Jobs by status: waiting, running, done, failed, overdue, cancelled."""
        self._flush()
        return self._store.counts()

    def _flush(self) -> None:
        with self._working() as batch:
            pass
        self._journal.commit(batch)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def next(self, server: str | None = None, *, lease: float | None = None) -> Assignment | None:
        """The next thing to do, or None.

        Parameters
        ----------
        server : None lets the policy choose job and server among the servers with a free slot. A name: a worker of this
            server asks for itself; it has a free hand, or it would not ask, so slots are not counted.
        lease : seconds, other than the scheduler's.

        Raises
        ------
        Refused : ``unknown_server``. StoreError : see the class.
        """
        seconds = self._lease_seconds if lease is None else arguments.seconds("lease", lease)
        assignment = None
        with self._working() as batch:
            self._sweep()
            book = self._book
            if server is None:
                allowed = book.learner.present & (self._busy < self._slots)
            else:
                place = self._place(server)
                allowed = np.zeros(self._layout.servers, dtype=np.bool_)
                allowed[place] = book.learner.present[place]
            choice = book.choose(allowed)
            if choice is not None:
                assignment = self._issue(choice, allowed, seconds)
        if batch.entries:
            self._journal.commit(batch)
        return assignment

    def _issue(self, choice: Choice, allowed: NDArray[np.bool_], seconds: float) -> Assignment:
        book, now = self._book, self._time()
        rank = int(book.learner.rank[choice.slot])
        job, number = book.jobs[rank], book.last_attempt + 1
        until, round_ = now + seconds, book.learner.rounds + 1
        self._add(
            Kind.ISSUED,
            job=rank,
            attempt=number,
            server=choice.server,
            detail=allowed.tobytes(),
            beside=NewAttempt(round_, choice.reason, job.tries + 1, until),
            choice=choice,
        )
        self._lease[number] = (until, job.tries)
        heapq.heappush(self._leases, (until, number))
        self._busy[choice.server] += 1
        name = self._names[choice.server]
        return Assignment(number, job.id, name, job.tries, _reason(choice.reason), round_, now, until)

    def report(self, assignment: Assignment | int, success: bool) -> Receipt:
        """The outcome of an attempt, given by its assignment or its number.

        A report counts whenever it comes: before the lease has run out, or after, as long as the job was not taken back
        ("accepted"); later ("late"), when a success still finishes a job that has no result; or when the job has its result
        already ("superseded"). It is learned once.

        Raises
        ------
        Refused : ``unknown_assignment`` (there is none, or its job is forgotten); ``conflicting_report`` where it was reported
            otherwise before; ``bad_option``.
        """
        number = _number_of(assignment)
        if not isinstance(success, bool | np.bool_):
            raise Refused("bad_option", f"success: must be True or False, not {success!r}")
        success = bool(success)
        with self._working() as batch:
            attempt = self._book.attempts.get(number)
            if attempt is None:
                receipt = self._report_closed(number, success)
            else:
                job = self._book.jobs[attempt.job]
                superseded = job.status in FINAL
                status = self._close(Kind.ANSWERED, number, success)
                receipt = Receipt("superseded" if superseded else "accepted", job.id, status, True)
        self._journal.commit(batch)
        return receipt

    def _report_closed(self, number: int, success: bool) -> Receipt:
        """A report of an attempt that is no longer open."""
        row, job_id = self._closed_attempt(number)
        job = self._book.jobs.get(row.job)
        status = self._final_status(job_id) if job is None else job.status
        outcome = "success" if success else "failure"
        if row.status in (outcome, f"late {outcome}"):
            return Receipt("repeated", job_id, status, False)
        if row.status != "expired":
            raise Refused(
                "conflicting_report", f"assignment: attempt {number} was reported as a {row.status} before; that stands"
            )
        superseded = status in FINAL
        given = None if self._rules.lost_is_failure else self._recovery.given(row.job)
        status = self._add(
            Kind.LATE, job=row.job, attempt=number, server=row.server, success=success, status=status, given=given
        )
        self._remember_attempt(row._replace(status=f"late {outcome}"), job_id)
        if status in FINAL and not superseded:
            self._remember_job(job_id, status)
        return Receipt("superseded" if superseded else "late", job_id, status, not self._rules.lost_is_failure)

    def _closed_attempt(self, number: int) -> tuple[AttemptRow, str]:
        """An attempt that is not open, and its job's id.

        A job that a snapshot may be about to forget is forgotten already, or an event could speak of what is gone: snapshots
        are written without the lock, but none of them was taken later than now."""
        _forget_written(self._recent_attempts)
        if number in self._recent_attempts:
            _, recent, job_id = self._recent_attempts[number]
            return recent, job_id
        row = self._store.attempt(number)
        job = None if row is None else self._store.job(row.job)
        if row is None or job is None:
            raise Refused("unknown_assignment", f"assignment: there is no attempt {number}")
        if self._keep is not None and job.finished is not None and job.finished < self._time() - self._keep:
            raise Refused(
                "unknown_assignment",
                f"assignment: attempt {number} is forgotten, since its job was finished more than keep_finished = "
                f"{self._keep:g} seconds ago",
            )
        return row, job.id

    def _final_status(self, job_id: str) -> str:
        if job_id in self._recent_jobs:
            return self._recent_jobs[job_id][1]
        row = self._store.job_by_id(job_id)
        assert row is not None
        return row.status

    def extend(self, assignment: Assignment | int, seconds: float | None = None) -> float:
        """A heartbeat: the lease runs from now for so many seconds (the scheduler's by default). Returns its end.

        Raises Refused, ``unknown_assignment``, where the attempt is not open: answered, or lost and its job taken back."""
        number = _number_of(assignment)
        length = self._lease_seconds if seconds is None else arguments.seconds("seconds", seconds)
        with self._working() as batch:
            attempt = self._book.attempts.get(number)
            if attempt is None:
                row, _ = self._closed_attempt(number)
                what = "its lease has expired" if row.status == "expired" else f"it was reported as a {row.status}"
                raise Refused("unknown_assignment", f"assignment: attempt {number} is no longer open; {what}")
            until = self._time() + length
            self._add(Kind.EXTENDED, job=attempt.job, attempt=number, server=attempt.ticket.server, beside=until)
            self._lease[number] = (until, self._lease[number][1])
            heapq.heappush(self._leases, (until, number))
        self._journal.commit(batch)
        return until

    def sweep(self) -> int:
        """Take back expired leases and give up overdue jobs, as :meth:`next` does too; how many leases are still to be taken
        back."""
        with self._working() as batch:
            self._sweep()
            left = sum(until <= self._now and self._is_lease(until, number) for until, number in self._leases)
        if batch.entries:
            self._journal.commit(batch)
        return left

    def explain(self, assignment: Assignment | int) -> dict[str, Any]:
        """What this decision rested on, as it was then: the state is rebuilt up to it, and the policy asked.

        Raises Refused: ``unknown_assignment``; ``too_old`` where the state before it is no longer kept (two snapshots are)."""
        number = _number_of(assignment)
        self._flush()
        row = self._store.attempt(number)
        if row is None:
            raise Refused("unknown_assignment", f"assignment: there is no attempt {number}")
        issued = self._store.issued(number)
        if issued is None:
            raise Refused("too_old", f"assignment: attempt {number} was issued before the snapshots that are kept")
        book = self._rebuild(self._rules, issued.number - 1)
        allowed = unmask(issued.detail, self._layout.servers)
        learner, job = book.learner, book.jobs[issued.job]
        waiting = learner.jobs
        learner.choose(allowed)
        able = learner.open_to(job.slot)
        said = learner.explain(Choice(job.slot, row.server, row.reason), allowed & able)
        if "candidates" in said:
            said["candidates"] = [
                (book.jobs[int(learner.rank[slot])].id, self._names[server])
                for slot, server in said["candidates"]
                if server < len(self._names)
            ]
        names = [name for place, name in enumerate(self._names) if allowed[place]]
        closed = [name for place, name in enumerate(self._names) if not able[place]]
        return {
            "job": job.id,
            "server": self._names[row.server],
            "policy": self._policy.label,
            "round": row.round,
            "reason": _reason(row.reason),
            "try_number": row.try_,
            "waiting": waiting,
            "servers": names,
            "not_for_this_job": closed,
            "because": said,
        }

    # --- servers ------------------------------------------------------------------------------------------------------

    @property
    def servers(self) -> dict[str, dict[str, int | bool]]:
        """Name → slots, attempts in flight, and whether it may get jobs."""
        with self._working():
            present = self._book.learner.present
            return {
                name: {
                    "slots": int(self._slots[place]),
                    "running": int(self._busy[place]),
                    "open": bool(present[place]),
                }
                for name, place in self._places.items()
            }

    def add_server(self, name: str, slots: int | None = None) -> None:
        """A server comes, or comes back: what was learned about it before still holds. A new one takes a spare place; with
        `pair_features`, jobs that wait already have no features for it and do not go there. `slots`: jobs that it takes at
        once; None for as many as before, one for a new server.

        Raises Refused, ``no_room``: estimates have as many places as the scheduler was opened with."""
        with self._working() as batch:
            self._welcome(name, slots)
        self._journal.commit(batch)

    def remove_server(self, name: str) -> None:
        """A server gets no more jobs. Attempts in flight go on; what was learned is kept. Raises ``unknown_server``."""
        with self._working() as batch:
            place = self._place(name)
            if self._book.learner.present[place]:
                self._add(Kind.SERVER, server=place, success=False, beside=name)
        self._journal.commit(batch)

    def _welcome(self, name: str, slots: int | None) -> None:
        arguments.check_name(name)
        if slots is not None:
            arguments.count(f"slots of {name!r}", slots, 1)
        if name not in self._places:
            if len(self._names) == self._layout.servers:
                raise Refused(
                    "no_room",
                    f"server: there is no place for {name!r}, since the policy estimates {self._layout.servers} servers; open "
                    "the file with relearn=True and more places (spare=...)",
                )
            place = len(self._names)
            self._add(Kind.SERVER, server=place, success=True, beside=name)
            self._names.append(name)
            self._places[name] = place
        elif not self._book.learner.present[self._places[name]]:
            self._add(Kind.SERVER, server=self._places[name], success=True, beside=name)
        if slots is not None:
            self._slots[self._places[name]] = slots

    def _place(self, name: str) -> int:
        place = self._places.get(name) if isinstance(name, str) else None
        if place is None:
            raise Refused("unknown_server", f"server: none is called {name!r}; there are {', '.join(self._places)}")
        return place

    # --- the end ------------------------------------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Write a snapshot now, so that the next start has nothing to play again, and forget what `keep_finished` says.

        Raises StoreError, ``full`` among others, where it cannot be written; nothing else is lost then."""
        with self._working() as batch:
            state = self._snapshot()
        self._journal.commit(batch)
        self._store.write_snapshot(state, keep=self._keep)

    def state(self) -> dict[str, NDArray[Any]]:
        """A copy of all that is known, as named arrays; what the policy has learned is under ``learner.state.``."""
        with self._working():
            return self._book.arrays()

    def close(self) -> None:
        """Write a snapshot, if there is room for it, and release the state file. May be called twice."""
        try:
            with contextlib.suppress(StoreError):
                self.snapshot()
        finally:
            self._store.close()

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- small things -----------------------------------------------------------------------------------------------------


def _default(name: str) -> Policy:
    """A policy by name, with the estimator whose cost does not grow with the number of attempts, where it has one."""
    try:
        defaults = make(name).defaults
        return make(name, **{key: value for key, value in BY_NAME.items() if key in defaults})
    except (ValueError, TypeError) as error:
        raise Refused("bad_option", str(error)) from None


def _number_of(assignment: Any) -> int:
    number = assignment.number if isinstance(assignment, Assignment) else assignment
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 < number < 2**62:
        raise Refused("unknown_assignment", f"assignment: must be an assignment or its number, not {assignment!r}")
    return int(number)


def _unknown_job(job_id: Any) -> Refused:
    return Refused("unknown_job", f"job_id: there is no job {job_id!r}")


def _reason(code: int) -> str:
    return REASONS.get(code, str(code))


def _forget_written(recent: dict[Any, Any]) -> None:
    """Drop, from the oldest on, what is on disk by now."""
    while recent:
        first = next(iter(recent))
        if not recent[first][0].done:
            return
        del recent[first]
