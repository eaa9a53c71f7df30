"""Group commit: events go into memory at once and to the disk together, and nobody is answered before theirs is there.

Whoever wants to be answered commits. The first to come writes all that has been added so far in one transaction, while the
others add to the next batch; a disk that needs a millisecond to be sure then serves many callers in that millisecond, and
nobody holds the scheduler's lock meanwhile.

Memory is ahead of the disk by unacknowledged events only. If they cannot be written, all callers of the batch, and of the
one begun meanwhile, are told, and the scheduler reads its state back from the disk: the two never disagree.
"""

from __future__ import annotations

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
        self.error: Exception | None = None


class Journal:
    """The open batch of a scheduler.

    Parameters
    ----------
    store : where batches go.
    lock : the scheduler's; held by whoever calls :meth:`add`, and not by whoever calls :meth:`commit`.
    restore : called under the lock when a batch could not be written.
    keep : seconds for which finished jobs are kept, None for ever.
    """

    def __init__(
        self, store: Store, lock: threading.RLock, restore: Callable[[], None], keep: float | None = None
    ) -> None:
        self._store, self._lock, self._restore, self._keep = store, lock, restore, keep
        self._committing = threading.Lock()
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
            with self._committing:
                if not batch.done and batch.error is None:
                    self._write()
        if batch.error is not None:
            error = batch.error
            if isinstance(error, StoreError):  # each caller raises its own
                raise StoreError(error.status, str(error)) from error
            raise error

    def _write(self) -> None:
        with self._lock:
            batch, self._open = self._open, Batch()
        try:
            if batch.entries:
                self._store.write(batch.entries, batch.snapshot, keep=self._keep)
            batch.done = True
        except BaseException as error:
            if isinstance(error, Exception):
                batch.error = error
            else:  # Ctrl-C: for this caller; the others only hear of it
                batch.error = StoreError("failed", "writing was interrupted, so nothing of this call was kept")
            self.abandon(batch.error)
            if not isinstance(error, Exception):
                raise

    def abandon(self, error: Exception) -> None:
        """Tell the callers of the open batch that nothing of it was kept, and read the state back from the disk."""
        with self._lock:
            self._open.error = error
            self._open = Batch()
            self._restore()
