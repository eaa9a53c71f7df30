"""The embedded state store: jobs, attempts, events and snapshots in one SQLite file.

Whatever was acknowledged is in the file: a call of the scheduler returns after its events are committed. A kill of the
process loses nothing that was committed, at either level of ``durability``; what a power failure may lose is SQLite's promise
(its documentation of ``synchronous`` in WAL mode): with ``"full"`` nothing that was committed, with ``"normal"`` the last
moments, and never the file. WAL mode needs a local disk: network file systems do not keep its promises.

The state of a policy is the last snapshot and the events after it. Snapshots are ``.npz`` bytes read without pickle, with a
digest; two are kept, so that one that cannot be read is no loss.

One process at a time: the file ``<path>.lock`` is locked as long as the store is open, and the operating system releases it
when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._version import VERSION
from .book import FINAL, Event, Kind
from .errors import Refused, StoreError
from .lock import Lock

#: Marks the file as ours in its header (SQLite's application_id): "QWis".
APPLICATION = 0x51576973
#: Form of the arrays in a snapshot.
SNAPSHOT_FORMAT = 1
#: Snapshots that are kept.
KEPT = 2
#: SQLite's ``synchronous`` by our word.
DURABILITY = {"full": "FULL", "normal": "NORMAL"}

Migration = Callable[[sqlite3.Connection], None]


def _first(connection: sqlite3.Connection) -> None:
    """Version 1."""
    for statement in (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE servers (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, present INTEGER NOT NULL)",
        """CREATE TABLE jobs (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, features BLOB NOT NULL,
            ineligible BLOB NOT NULL, deadline REAL, submitted REAL NOT NULL, status TEXT NOT NULL,
            tries INTEGER NOT NULL, finished REAL, attempt INTEGER)""",
        """CREATE TABLE attempts (number INTEGER PRIMARY KEY, job INTEGER NOT NULL, server INTEGER NOT NULL,
            round INTEGER NOT NULL, reason INTEGER NOT NULL, try INTEGER NOT NULL, issued REAL NOT NULL,
            lease REAL NOT NULL, status TEXT NOT NULL, answered REAL)""",
        """CREATE TABLE events (number INTEGER PRIMARY KEY, kind INTEGER NOT NULL, at REAL NOT NULL, job INTEGER NOT NULL,
            attempt INTEGER NOT NULL, server INTEGER NOT NULL, success INTEGER NOT NULL, status TEXT NOT NULL,
            detail BLOB NOT NULL)""",
        """CREATE TABLE snapshots (event INTEGER PRIMARY KEY, taken REAL NOT NULL, format INTEGER NOT NULL,
            digest BLOB NOT NULL, arrays BLOB NOT NULL)""",
        "CREATE INDEX jobs_finished ON jobs (finished) WHERE finished IS NOT NULL",
        "CREATE INDEX attempts_open ON attempts (number) WHERE status = 'open'",
        "CREATE INDEX attempts_of_job ON attempts (job)",
    ):
        connection.execute(statement)


#: Step i brings a file of version i to version i + 1. Never edit one that has been released: add another.
MIGRATIONS: tuple[Migration, ...] = (_first,)


class JobRow(NamedTuple):
    """A job as submitted, and what became of it. attempt : the one that finished it."""

    number: int
    id: str
    features: bytes
    ineligible: bytes
    deadline: float | None
    submitted: float
    status: str
    tries: int
    finished: float | None
    attempt: int | None


class AttemptRow(NamedTuple):
    """An attempt; status ``open``, ``success``, ``failure``, ``expired``, or ``late success``, ``late failure``."""

    number: int
    job: int
    server: int
    round: int
    reason: int
    try_: int
    issued: float
    lease: float
    status: str
    answered: float | None


class NewJob(NamedTuple):
    """What is kept of a submission beside its event."""

    id: str
    features: bytes
    ineligible: bytes
    deadline: float | None


class NewAttempt(NamedTuple):
    """What is kept of an attempt beside its event."""

    round: int
    reason: int
    try_: int
    lease: float


class Snapshot(NamedTuple):
    """All that the policy knew after this event."""

    event: int
    taken: float
    arrays: Mapping[str, NDArray[Any]]


class Entry(NamedTuple):
    """An event and what is to be written beside it: a :class:`NewJob`, a :class:`NewAttempt`, the end of a lease, or a
    server's name."""

    event: Event
    beside: NewJob | NewAttempt | float | str | None = None


class Store:
    """The state file of one scheduler.

    Parameters
    ----------
    path : made if missing; None keeps everything in memory, as long as the process lives.
    durability : "full" (a commit waits for the disk) or "normal" (for the operating system).

    Raises
    ------
    StoreError : the file is locked, damaged, of a later version, of another program, or cannot be opened.
    Refused : no such durability.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        durability: str = "full",
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        if durability not in DURABILITY:
            raise Refused("bad_option", f"durability: must be one of {sorted(DURABILITY)}, not {durability!r}")
        self.path = None if path is None else Path(path).resolve()  # one lock, whatever link leads here
        self._process = os.getpid()
        self._lock = None if self.path is None else Lock(self.path)
        self._writing = self._reading = threading.Lock()
        self._closed = False
        try:
            with self._clear("open"):
                self._writer = self._reader = self._connect(durability)
                self._begin(migrations)
                if self.path is not None:
                    self._reader = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
                    self._reading = threading.Lock()
        except BaseException:
            self._close()
            raise

    def _connect(self, durability: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path or ":memory:", isolation_level=None, check_same_thread=False, cached_statements=64
        )
        self._writer = self._reader = connection
        connection.execute("PRAGMA busy_timeout = 5000")  # somebody may look at the file with a tool
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if found != APPLICATION and not (found == 0 and empty):
            raise StoreError("foreign", f"path: {self.path} is no state file of this program; nothing was changed")
        if self.path is not None:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreError("failed", f"path: {self.path} lies where SQLite cannot keep a write-ahead log")
        connection.execute(f"PRAGMA synchronous = {DURABILITY[durability]}")
        return connection

    def _begin(self, migrations: Sequence[Migration]) -> None:
        connection = self._writer
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(migrations):
            raise StoreError(
                "newer",
                f"path: {self.path} was written by a later version (its format is {version}, this program knows "
                f"{len(migrations)}); nothing was changed",
            )
        if version and connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise StoreError("damaged", f"path: {self.path} is damaged; restore it from a copy")
        for step in range(version, len(migrations)):
            connection.execute("BEGIN IMMEDIATE")
            migrations[step](connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {step + 1}")
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _clear(self, what: str, lock: contextlib.AbstractContextManager[Any] | None = None) -> Iterator[None]:
        """Under a lock, SQLite's errors as ours. Whoever waited for the lock may find the store closed."""
        if os.getpid() != self._process:  # first: a thread that is not there any more may hold the lock
            raise StoreError("closed", "a scheduler does not follow into a forked process; open one there, elsewhere")
        where = "memory" if self.path is None else str(self.path)
        try:
            with lock or contextlib.nullcontext():
                if self._closed:
                    raise StoreError("closed", "the scheduler has been closed")
                yield
        except sqlite3.Error as error:
            name = str(getattr(error, "sqlite_errorname", "") or "")
            if name.startswith("SQLITE_FULL"):
                sentence = f"the disk of {where} is full, so nothing of this call was kept; make room and call again"
                raise StoreError("full", sentence) from error
            if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
                raise StoreError("damaged", f"path: {where} is damaged ({error}); restore it from a copy") from error
            if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise StoreError("locked", f"path: {where} is locked by another program ({error})") from error
            raise StoreError("failed", f"path: cannot {what} {where} ({error})") from error

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, entries: Sequence[Entry]) -> None:
        """Commit events in one transaction, all or none. Raises StoreError; nothing is written then."""
        with self._clear("write to", self._writing):
            self._transaction(lambda: self._write(entries))

    def write_snapshot(self, snapshot: Snapshot, *, keep: float | None = None) -> None:
        """Commit a snapshot of events that are committed, and remove what it makes superfluous: events before the older of the
        snapshots kept and, unless `keep` is None, jobs finished more than `keep` seconds before.

        Raises StoreError; nothing is written or removed then."""
        data = pack(snapshot.arrays)
        row = (snapshot.event, snapshot.taken, SNAPSHOT_FORMAT, hashlib.sha256(data).digest(), data)
        with self._clear("write to", self._writing):
            self._transaction(lambda: self._replace_snapshot(row, keep))

    def _transaction(self, body: Callable[[], None]) -> None:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            body()
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    def _write(self, entries: Sequence[Entry]) -> None:
        execute = self._writer.execute
        for event, beside in entries:
            execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", event)
            kind = event.kind
            if isinstance(beside, NewJob):
                execute(
                    "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, 0, NULL, NULL)",
                    (event.job, *beside, event.at, event.status),
                )
                continue
            if isinstance(beside, NewAttempt):
                t, reason, try_, lease = beside
                row = (event.attempt, event.job, event.server, t, reason, try_, event.at, lease)
                execute("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', NULL)", row)
                execute("UPDATE jobs SET status = ?, tries = ? WHERE number = ?", (event.status, try_, event.job))
                continue
            if kind == Kind.EXTENDED:
                execute("UPDATE attempts SET lease = ? WHERE number = ?", (beside, event.attempt))
                continue
            if kind == Kind.SERVER:
                execute(
                    "INSERT INTO servers VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET present = excluded.present",
                    (event.server, beside, event.success),
                )
                continue
            if kind in (Kind.ANSWERED, Kind.LOST, Kind.LATE):
                status = "expired" if kind == Kind.LOST else "success" if event.success else "failure"
                status = f"late {status}" if kind == Kind.LATE else status
                execute(
                    "UPDATE attempts SET status = ?, answered = ? WHERE number = ?", (status, event.at, event.attempt)
                )
            if event.status in FINAL:  # the first final result stands
                execute(
                    "UPDATE jobs SET status = ?, finished = ?, attempt = ? WHERE number = ? AND finished IS NULL",
                    (event.status, event.at, event.attempt or None, event.job),
                )
            else:
                execute("UPDATE jobs SET status = ? WHERE number = ? AND finished IS NULL", (event.status, event.job))

    def _replace_snapshot(self, row: tuple[Any, ...], keep: float | None) -> None:
        execute = self._writer.execute
        execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?)", row)
        kept = execute("SELECT event, taken FROM snapshots ORDER BY event DESC LIMIT ?", (KEPT,)).fetchall()
        oldest, taken = kept[-1]
        execute("DELETE FROM snapshots WHERE event < ?", (oldest,))
        if len(kept) < KEPT:
            return
        execute("DELETE FROM events WHERE number <= ?", (oldest,))
        if keep is not None:  # not what the events that are kept still speak of
            gone = """SELECT number FROM jobs WHERE finished < ? AND NOT EXISTS (SELECT 1 FROM attempts AS a
                WHERE a.job = jobs.number AND (a.answered IS NULL OR a.answered >= ?))"""
            before = (min(taken, row[1] - keep), taken)
            execute(f"DELETE FROM attempts WHERE job IN ({gone})", before)
            execute(gone.replace("SELECT number FROM jobs", "DELETE FROM jobs", 1), before)

    def set_meta(self, values: Mapping[str, str]) -> None:
        """Write settings; all or none."""

        def body() -> None:
            self._writer.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

        with self._clear("write to", self._writing):
            self._transaction(body)

    def forget_learning(self, snapshot: Snapshot, values: Mapping[str, str]) -> None:
        """Let this snapshot and these settings take the place of all snapshots and events; all or none."""
        data = pack(snapshot.arrays)
        row = (snapshot.event, snapshot.taken, SNAPSHOT_FORMAT, hashlib.sha256(data).digest(), data)

        def body() -> None:
            self._writer.execute("DELETE FROM snapshots")
            self._writer.execute("DELETE FROM events")
            self._writer.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", row)
            self._writer.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

        with self._clear("write to", self._writing):
            self._transaction(body)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._clear("read", self._reading):
            return self._reader.execute(statement, values).fetchall()

    def meta(self) -> dict[str, str]:
        """Settings."""
        return dict(self._rows("SELECT key, value FROM meta"))

    def servers(self) -> list[tuple[int, str, bool]]:
        """Number, name, and whether it may get jobs."""
        return [(number, name, bool(present)) for number, name, present in self._rows("SELECT * FROM servers")]

    def job(self, number: int) -> JobRow | None:
        """A job by its number."""
        return next((JobRow(*row) for row in self._rows("SELECT * FROM jobs WHERE number = ?", (number,))), None)

    def job_by_id(self, name: str) -> JobRow | None:
        """A job by its id."""
        return next((JobRow(*row) for row in self._rows("SELECT * FROM jobs WHERE id = ?", (name,))), None)

    def attempt(self, number: int) -> AttemptRow | None:
        """An attempt by its number."""
        rows = self._rows("SELECT * FROM attempts WHERE number = ?", (number,))
        return next((AttemptRow(*row) for row in rows), None)

    def attempts_of(self, job: int) -> list[AttemptRow]:
        """All attempts at a job."""
        rows = self._rows("SELECT * FROM attempts WHERE job = ? ORDER BY number", (job,))
        return [AttemptRow(*row) for row in rows]

    def open_attempts(self) -> list[AttemptRow]:
        """Attempts neither answered nor lost."""
        return [AttemptRow(*row) for row in self._rows("SELECT * FROM attempts WHERE status = 'open' ORDER BY number")]

    def outcomes(self, *, lost: bool = False) -> list[AttemptRow]:
        """Every attempt with a known outcome, and the lost ones if asked for, in the order in which it became known."""
        without = "('open')" if lost else "('open', 'expired')"
        rows = self._rows(f"SELECT * FROM attempts WHERE status NOT IN {without} ORDER BY answered, number")
        return [AttemptRow(*row) for row in rows]

    def unfinished(self) -> list[JobRow]:
        """Jobs without a final result, in order of arrival."""
        return [JobRow(*row) for row in self._rows("SELECT * FROM jobs WHERE finished IS NULL ORDER BY number")]

    def counts(self) -> dict[str, int]:
        """Jobs by status. Through a connection of its own: counting a million jobs takes a while, and others look jobs up."""
        statement = "SELECT status, count(*) FROM jobs GROUP BY status"
        if self.path is None:
            return dict(self._rows(statement))
        with self._clear("read"), contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return dict(connection.execute(statement).fetchall())

    def events(self, after: int, until: int | None = None) -> list[Event]:
        """Events after this number, up to and with the other."""
        rows = self._rows(
            "SELECT * FROM events WHERE number > ? AND number <= ? ORDER BY number", (after, until or 2**62)
        )
        return [_event(row) for row in rows]

    def issued(self, attempt: int) -> Event | None:
        """The event with which an attempt began, if it is still kept."""
        rows = self._rows("SELECT * FROM events WHERE kind = ? AND attempt = ?", (int(Kind.ISSUED), attempt))
        return next((_event(row) for row in rows), None)

    def last_numbers(self) -> tuple[int, int, int]:
        """Largest numbers of events, jobs and attempts given so far; of events, those of snapshots count."""
        events, jobs, attempts = self._rows(
            """SELECT max(ifnull((SELECT max(number) FROM events), 0), ifnull((SELECT max(event) FROM snapshots), 0)),
            ifnull((SELECT max(number) FROM jobs), 0), ifnull((SELECT max(number) FROM attempts), 0)"""
        )[0]
        return events, jobs, attempts

    def snapshots(self, before: int | None = None) -> Iterator[Snapshot]:
        """Snapshots that can be read, the latest first (of those taken before this event). One that a later one has replaced
        in the meantime is passed over."""
        rows = self._rows("SELECT event FROM snapshots WHERE event < ? ORDER BY event DESC", (before or 2**62,))
        for (event,) in rows:
            statement = "SELECT taken, format, digest, arrays FROM snapshots WHERE event = ?"
            for taken, form, digest, data in self._rows(statement, (event,)):
                if form == SNAPSHOT_FORMAT and hashlib.sha256(data).digest() == digest:
                    yield Snapshot(event, taken, unpack(data))

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the file. May be called twice."""
        with self._writing, contextlib.nullcontext() if self._reading is self._writing else self._reading:
            self._close()

    def _close(self) -> None:
        self._closed = True
        for name in ("_reader", "_writer"):
            connection = self.__dict__.pop(name, None)
            if connection is not None and os.getpid() == self._process:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
        if self._lock is not None:
            self._lock.forget()


def _event(row: tuple[Any, ...]) -> Event:
    number, kind, at, job, attempt, server, success, status, detail = row
    return Event(number, kind, at, job, attempt, server, bool(success), status, detail)


def pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as the bytes of an ``.npz`` file."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpack(data: bytes) -> dict[str, NDArray[Any]]:
    """Arrays from the bytes of an ``.npz`` file; whatever would need pickle is refused."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def written_by() -> dict[str, str]:
    """Who made a file, for people."""
    return {"version": VERSION}
