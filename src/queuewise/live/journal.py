"""Group commit: events go into memory at once and to the disk together, and nobody is answered before theirs is there.

Whoever wants to be answered commits. The first to come writes all that has been added so far in one transaction, while the
others add to the next batch; a disk that needs a millisecond to be sure then serves many callers in that millisecond, and
nobody holds the scheduler's lock meanwhile.

Memory is ahead of the disk by unacknowledged events only. If they cannot be written, all callers of the batch, and of the
one begun meanwhile, are told, and the scheduler reads its state back from the disk before it does anything else: the two never
disagree.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from .errors import StoreError
from .store import Entry, Snapshot, Store


class Batch:
    """Events that are committed together, and what became of them."""

    __slots__ = ("done", "entries", "error", "snapshot")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None
        self.done = False
        self.error: StoreError | None = None


class Journal:
    """The open batch of a scheduler.

    Parameters
    ----------
    store : where batches go.
    lock : the scheduler's; held by whoever calls :meth:`add`, and not by whoever calls :meth:`commit`.
    on_failure : called under the lock when memory is ahead of the disk for good.
    keep : seconds for which finished jobs are kept, None for ever.
    """

    def __init__(
        self, store: Store, lock: threading.RLock, on_failure: Callable[[], None], keep: float | None = None
    ) -> None:
        self._store, self._lock, self._on_failure, self._keep = store, lock, on_failure, keep
        #: Taken before the scheduler's lock where both are needed.
        self.committing = threading.Lock()
        self._open = Batch()

    def add(self, entry: Entry) -> None:
        """An event that has happened in memory."""
        self._open.entries.append(entry)

    def snapshot(self, snapshot: Snapshot) -> None:
        """A snapshot, taken after the last event added."""
        self._open.snapshot = snapshot

    @property
    def batch(self) -> Batch:
        """The batch that events go into now."""
        return self._open

    def commit(self, batch: Batch) -> None:
        """Return when the batch is on disk; raise what kept it from getting there."""
        if not batch.done:
            with self.committing:
                if not batch.done and batch.error is None:
                    self._write()
        if batch.error is not None:  # each caller raises its own
            raise StoreError(batch.error.status, str(batch.error)) from batch.error

    def _write(self) -> None:
        with self._lock:
            batch, self._open = self._open, Batch()
        try:
            if batch.entries:
                self._store.write(batch.entries)
            batch.done = True
        except BaseException as error:
            with self._lock:
                batch.error = self.abandon(error)
            if not isinstance(error, Exception):
                raise
            return
        if batch.snapshot is not None:
            with contextlib.suppress(
                Exception
            ):  # what was acknowledged is on disk; the next snapshot holds this one too
                self._store.write_snapshot(batch.snapshot, keep=self._keep)

    def abandon(self, error: BaseException) -> StoreError:
        """Under the lock: nothing of the open batch is kept, and its callers will hear so."""
        if isinstance(error, StoreError):
            told = error
        else:
            told = StoreError("failed", f"something else failed meanwhile ({error!r}); nothing of this call was kept")
            told.__cause__ = error
        self._open.error = told
        self._open = Batch()
        self._on_failure()
        return told
