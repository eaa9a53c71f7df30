"""Decisions on disk: what became of every request, in Parquet files that ``queuewise replay`` and any other tool can read.

    recorder = Recorder("recordings", lambda: {"chat": settings_of(router)})
    router.listen(lambda ended: recorder.note("chat", ended))
    ...
    if recorder.due():
        recorder.flush()  # from a worker thread, and once at the end

A folder holds *parts*, each written beside its place, flushed to the disk and moved there, so that a kill leaves whole parts
or none, and costs the requests that were not flushed yet. A part's name has the time, a random word of its process and a
number, so that several processes and restarts can share a folder.

Columns: number, group, server, why, key, work, issued, ended (UTC, microseconds), end, instead; see :class:`..router.Ended`.
Microseconds are what all readers of Parquet have: Python's datetime, and so pyarrow without pandas, knows nothing finer, and
neither does older Spark. An event loop hears of an answer tens of them late, and `number` has the order within one.
The file's metadata has under METADATA a JSON text: format, version, process, part, since, written (nanoseconds since 1970),
lost (rows that this process has dropped so far, since the disk did not take them) and groups: the settings when the part was
written, with those of servers that were removed and still have rows in it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..._version import VERSION
from ...fields import require_count, require_positive
from ...files import write_atomically
from ..router import Ended, Router

#: Of the files; a newer one than the reader knows is refused.
FORMAT = 1
#: Key of the JSON text in a file's metadata.
METADATA = b"queuewise.recording"
#: Columns of texts, dictionary-encoded; `key` and `instead` may be null.
TEXTS = ("group", "server", "why", "key", "end", "instead")
#: All columns in order.
COLUMNS = ("number", "group", "server", "why", "key", "work", "issued", "ended", "end", "instead")
#: Rows that are kept, in memory, while the disk takes none: 200,000 are some 60 MB.
MOST_ROWS = 200_000

#: Rows that are turned into columns at a time, and seconds to let other threads have their turn after that: else an event loop
#: in this process would wait for 5 ms, Python's usual switch between threads, again and again.
_CHUNK, _PAUSE = 1000, 2e-4
_STALE = 3600.0
#: Seconds that the settings of a server are kept after it is gone: what it was serving may end, or expire, until then.
_GONE = 7200.0
_LOG = logging.getLogger(__name__)

Rows = list[tuple[str, Ended]]
Settings = Mapping[str, Mapping[str, Any]]


def settings_of(router: Router, work: str = "requests") -> dict[str, Any]:
    """What a part says of a group: its policy, the plain rule in its place if there is one, classes, servers with slots and
    typed rate, and the unit of work."""
    return {
        "policy": router.policy.name,
        "override": router.report()["override"],
        "classes": list(router.classes),
        "work": work,
        "servers": {name: asdict(server) for name, server in router.settings.items()},
    }


class Recorder:
    """Collects what became of requests, and writes it in parts. Thread-safe.

    Parameters
    ----------
    folder : made if missing.
    settings : called at each flush, outside of all locks: group → what :func:`settings_of` gives. A change that comes between
        two flushes is thus known to within `flush_seconds`.
    flush_seconds, part_rows : when a part is due; more rows than that are more parts.
    most_rows : kept while the disk takes none (it is full, or gone), and as many again while it hangs. The oldest beyond are
        dropped and counted.
    clock : of the routers, seconds · wall : nanoseconds since 1970. Compared once, at the beginning: the times of one process
        keep their distances, whatever is done to the wall clock.

    Attributes
    ----------
    written, lost : rows on disk, rows dropped · failing : whether the last flush did not get through

    Raises
    ------
    ValueError : a number out of range, or a folder that cannot be written to.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Callable[[], Settings],
        *,
        flush_seconds: float = 30.0,
        part_rows: int = 50_000,
        most_rows: int = MOST_ROWS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        require_positive("flush_seconds", flush_seconds)
        require_count("part_rows", part_rows)
        require_count("most_rows", most_rows, part_rows)
        self.folder = Path(folder)
        self.flush_seconds, self.part_rows, self.most_rows = float(flush_seconds), int(part_rows), int(most_rows)
        self.written = self.lost = 0
        self.failing = False
        self._settings, self._clock = settings, clock
        now = clock()
        self._shift = wall() - round(now * 1e9)
        self._flushed = now
        self._process = secrets.token_hex(6)
        self._part = 0
        self._known: dict[str, dict[str, Any]] = {}  # settings of groups, with those of servers that are gone
        self._last: dict[tuple[str, str], float] = {}  # when a server of these was last there
        self._chunk = min(_CHUNK, self.part_rows)
        self._fresh: Rows = []
        self._chunks: deque[Rows] = deque()
        self._kept = self._taken = 0  # rows in `_chunks` and `_fresh`; and those that a flush has at hand
        self._lock = threading.Lock()  # held for microseconds: routers note under their own lock
        self._writing = threading.Lock()
        self._begin()

    def note(self, group: str, ended: Ended) -> None:
        """Remember one request. Quick, never raises; any thread."""
        dropped = None
        with self._lock:
            self._fresh.append((group, ended))
            self._kept += 1
            if len(self._fresh) >= self._chunk:
                self._chunks.append(self._fresh)
                self._fresh = []
                dropped = self._drop()
        del dropped  # outside of the lock: a thousand rows take a while to go

    def due(self) -> bool:
        """Whether it is time to flush."""
        full = self._kept >= self.part_rows and not self.failing
        return full or self._clock() - self._flushed >= self.flush_seconds

    @property
    def pending(self) -> int:
        """Rows that are in memory only."""
        return self._kept + self._taken

    def flush(self) -> int:
        """Write what there is. Returns the number of rows written.

        Raises nothing where the disk does not take them: the rows wait for the next flush, and that is logged once, as is the
        end of it.
        """
        with self._writing:
            settings = self._settings()
            self._learn(settings)
            with self._lock:
                taken, self._chunks = self._chunks, deque()
                if self._fresh:
                    taken.append(self._fresh)
                    self._fresh = []
                self._taken, self._kept = self._kept, 0
            since, self._flushed = self._flushed, self._clock()
            written = 0
            while taken:
                rows = [taken.popleft()]
                while taken and sum(map(len, rows)) + len(taken[0]) <= self.part_rows:
                    rows.append(taken.popleft())
                try:
                    self._write(list(chain.from_iterable(rows)), settings, since)
                except BaseException as error:
                    with self._lock:
                        self._chunks.extendleft(reversed([*rows, *taken]))
                        self._kept, self._taken = self._kept + self._taken, 0
                        dropped = self._drop()
                    del dropped
                    if not isinstance(error, OSError):
                        raise
                    self._say_failing(error)
                    return written
                with self._lock:
                    self._taken -= sum(map(len, rows))
                written += sum(map(len, rows))
                self.written += sum(map(len, rows))
            self._forget()
            if written and self.failing:
                self.failing = False
                _LOG.warning("recording: %s takes parts again; %d rows were dropped so far", self.folder, self.lost)
            return written

    # --- inside -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(".*.parquet.tmp"):  # by a kill; another process's own are younger
                with contextlib.suppress(OSError):
                    if time.time() - left.stat().st_mtime > _STALE:
                        left.unlink()
            trial = self.folder / f".{self._process}.parquet.tmp"
            trial.touch()
            trial.unlink()
        except OSError as error:
            raise ValueError(f"folder: cannot write to {self.folder} ({error.strerror or error})") from error

    def _learn(self, settings: Settings) -> None:
        """Keep the settings of now beside those of servers that are gone."""
        now = self._clock()
        for group, found in settings.items():
            servers = {**self._known.get(group, {}).get("servers", {}), **found["servers"]}
            self._known[group] = {**found, "servers": servers}
            self._last |= {(group, server): now for server in found["servers"]}

    def _forget(self) -> None:
        """Forget servers that have been gone for long, and groups without any: names come and go for as long as a process
        lives. Only where no row waits, which might be one of theirs."""
        now = self._clock()
        for group, server in [place for place, last in self._last.items() if now - last > _GONE]:
            del self._last[group, server], self._known[group]["servers"][server]
            if not self._known[group]["servers"]:
                del self._known[group]

    def _drop(self) -> list[Rows]:
        """Drop the oldest rows beyond the bound, but for those that a flush has at hand: they come before, and come back if it
        fails. The lock is held. Returns them, for the caller to forget."""
        dropped = []
        while self._kept > self.most_rows and self._chunks:
            dropped.append(self._chunks.popleft())
            self._kept -= len(dropped[-1])
            self.lost += len(dropped[-1])
        return dropped

    def _say_failing(self, error: OSError) -> None:
        if not self.failing:
            _LOG.error(
                "recording: cannot write to %s (%s); routing goes on, the last %d rows are kept in memory until it can",
                self.folder,
                error.strerror or error,
                self.most_rows,
            )
        self.failing = True

    def _said_of(self, rows: Rows, settings: Settings) -> dict[str, Any]:
        """The settings of now, and as they were last known for groups and servers that are gone and have rows still."""
        mentioned: dict[str, set[str]] = {group: set() for group in settings}
        for group, ended in rows:
            mentioned.setdefault(group, set()).add(ended.server)
        return {
            group: {
                **self._known[group],
                "servers": {
                    server: found
                    for server, found in self._known[group]["servers"].items()
                    if server in servers or server in settings.get(group, {}).get("servers", {})
                },
            }
            for group, servers in mentioned.items()
            if group in self._known
        }

    def _write(self, rows: Rows, settings: Mapping[str, Any], since: float) -> None:
        """One part, whole or not at all. Raises OSError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        pieces = []
        for first in range(0, len(rows), _CHUNK):
            pieces.append(as_table(rows[first : first + _CHUNK], self._shift))
            time.sleep(_PAUSE)
        table = pa.concat_tables(pieces).unify_dictionaries()
        number = self._part + 1
        written = self._nanoseconds(self._flushed)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(written // 10**9))
        path = self.folder / f"{stamp}-{self._process}-{number:06d}.parquet"
        said = {
            "format": FORMAT,
            "version": VERSION,
            "process": self._process,
            "part": number,
            "since": self._nanoseconds(since),
            "written": written,
            "lost": self.lost,
            "groups": self._said_of(rows, settings),
        }
        table = table.replace_schema_metadata({METADATA: json.dumps(said).encode()})

        def write(file: IO[bytes]) -> None:
            pq.write_table(
                table,
                file,
                compression="zstd",
                use_dictionary=list(TEXTS),
                column_encoding=dict.fromkeys(("number", "issued", "ended"), "DELTA_BINARY_PACKED"),
                write_page_checksum=True,
            )

        write_atomically(
            path, write, f".{path.name}.tmp"
        )  # a name that only this process has, since it is in the part's
        self._part = number

    def _nanoseconds(self, now: float) -> int:
        return round(now * 1e9) + self._shift


def as_table(rows: Sequence[tuple[str, Ended]], shift: int) -> Any:
    """Rows as a pyarrow table; `shift` : nanoseconds from the routers' clock to those since 1970."""
    import pyarrow as pa

    def numbers(values: Iterable[float], kind: type) -> NDArray[Any]:
        return np.fromiter(values, kind, len(rows))

    def texts(values: Iterable[str | None]) -> Any:
        places: dict[str | None, int] = {}
        codes = numbers((places.setdefault(value, len(places)) for value in values), np.int32)
        # Half of a surrogate pair, which JSON and YAML can name, is no text to Parquet.
        known = [None if text is None else text.encode("utf-8", "replace").decode() for text in places]
        return pa.DictionaryArray.from_arrays(
            pa.array(codes, mask=codes == places.get(None, -1)), pa.array([text or "" for text in known], pa.string())
        )

    def times(values: Iterable[float]) -> Any:
        found = (numbers(values, np.float64) * 1e9).round().astype(np.int64) + shift
        return pa.array((found + 500) // 1000).cast(pa.timestamp("us", "UTC"))

    columns = {
        "number": pa.array(numbers((ended.number for _, ended in rows), np.int64)),
        "group": texts(group for group, _ in rows),
        "server": texts(ended.server for _, ended in rows),
        "why": texts(ended.why for _, ended in rows),
        "key": texts(ended.key for _, ended in rows),
        "work": pa.array(numbers((ended.work for _, ended in rows), np.float64)),
        "issued": times(ended.issued for _, ended in rows),
        "ended": times(ended.ended for _, ended in rows),
        "end": texts(ended.end for _, ended in rows),
        "instead": texts(ended.instead for _, ended in rows),
    }
    return pa.table({name: columns[name] for name in COLUMNS})
