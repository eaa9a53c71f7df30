"""One process at a time: an exclusive lock on a file beside the one that must not be shared. The operating system releases
it when the process ends, however it ends."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import weakref
from pathlib import Path

from .errors import StoreError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_open_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """A forked child must not keep the parent's lock alive."""
    for lock in list(_open_locks):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


class Lock:
    """An exclusive lock on `path`.lock, a file that says who holds it. field : what users call the path, for sentences.

    Raises StoreError ("locked", or "failed" where the file cannot be made)."""

    def __init__(self, path: Path, field: str = "path") -> None:
        self.path = Path(f"{path}.lock")
        try:
            self._handle: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError("failed", f"{field}: {self.path} cannot be made ({error.strerror})") from None
        try:
            self._acquire()
        except OSError:
            holder = self._holder()
            os.close(self._handle)
            self._handle = None
            raise StoreError(
                "locked", f"{field}: {path} is in use by {holder}; one process at a time works on it"
            ) from None
        os.ftruncate(self._handle, 0)
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()})
        os.write(self._handle, text.encode())
        _open_locks.add(self)

    def _acquire(self) -> None:
        assert self._handle is not None
        if sys.platform == "win32":  # the byte locked lies beyond the text, which others may read
            os.lseek(self._handle, 4096, os.SEEK_SET)
            msvcrt.locking(self._handle, msvcrt.LK_NBLCK, 1)
            os.lseek(self._handle, 0, os.SEEK_SET)
        else:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _holder(self) -> str:
        try:
            found = json.loads(self.path.read_text())
            here = found["host"] == socket.gethostname() and found["pid"] == os.getpid()
            return "this process already" if here else f"process {found['pid']} on {found['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def forget(self) -> None:
        """Close the file, which releases the lock unless a parent process holds it too."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
