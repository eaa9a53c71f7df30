"""What the routers have learned, to disk and back: one file of named arrays that is read without pickle.

The file is written beside its place, flushed and moved there, so a kill leaves the old or the new one. What cannot be read is
moved aside and never written over.
"""

from __future__ import annotations

import io
import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..._version import VERSION
from ...files import write_atomically
from ..errors import StoreError
from ..lock import Lock
from .groups import Group

log = logging.getLogger("queuewise.service")

#: Of the file.
FORMAT = 1
#: The entry that says what the arrays are.
_ABOUT = "about"


class State:
    """The file at `path`, which this process alone may have.

    failures : times that it could not be written; the last one's sentence is in `trouble`, None while all is well.

    Raises StoreError ("locked") where another process has it, ("newer") where a later version wrote it, ("failed") where the
    file or its folder cannot be had.
    """

    def __init__(self, path: Path) -> None:
        self.path = path = path.resolve()  # one lock, whatever link leads here
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError("failed", f"state: there can be no folder {path.parent} ({error.strerror})") from None
        self._lock = Lock(path, "state")
        self._writing = threading.Lock()
        self.failures, self.saved_at = 0, 0.0
        self.trouble: str | None = None
        try:
            self._kept = self._read()
        except BaseException:
            self._lock.forget()
            raise

    def restore(self, group: Group) -> list[str]:
        """Tell a group's router what was known; the backends that were found."""
        kept = self._kept.get(group.name)
        if kept is None:
            return []
        arrays, about = kept
        try:
            return group.router.restore(arrays, about)
        except (ValueError, KeyError) as error:
            log.warning("group %s learns anew: %s", group.name, error)
            return []

    def keep(self, group: Group) -> None:
        """A group is gone for now: remember what it knew, in the file too."""
        self._kept[group.name] = group.router.snapshot()

    def save(self, groups: Mapping[str, Group]) -> bool:
        """Write what is known now; whether that went well. A full disk stops no routing: it is said once, and tried again. Any
        thread; the last save of a process waits for the one before, where a disk is slow."""
        with self._writing:
            return self._save(groups)

    def close(self) -> None:
        """Let others have the file."""
        self._lock.forget()

    def _save(self, groups: Mapping[str, Group]) -> bool:
        about: dict[str, Any] = {"format": FORMAT, "version": VERSION, "saved": time.time(), "groups": {}}
        arrays: dict[str, NDArray[Any]] = {}
        known = self._kept | {name: group.router.snapshot() for name, group in groups.items()}
        for number, (name, (learned, kept)) in enumerate(known.items()):
            about["groups"][name] = kept
            arrays |= {f"{number}/{field}": array for field, array in learned.items()}
        arrays[_ABOUT] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)

        def write(file: IO[bytes]) -> None:
            np.savez(file, **arrays)  # type: ignore[arg-type]

        try:
            # Under a name that is always the same: a kill leaves one piece, not one each.
            write_atomically(self.path, write, f"{self.path.name}.new")
        except OSError as error:
            self.failures += 1
            if self.trouble is None:
                log.error("state: %s cannot be written (%s); routing goes on", self.path, error.strerror or error)
            self.trouble = error.strerror or str(error)
            return False
        if self.trouble is not None:
            log.info("state: %s can be written again", self.path)
        self.trouble, self.saved_at = None, time.time()
        return True

    def _read(self) -> dict[str, tuple[dict[str, NDArray[Any]], dict[str, Any]]]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError("failed", f"state: {self.path} cannot be read ({error.strerror})") from None
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            about = json.loads(arrays.pop(_ABOUT).tobytes())
            groups, newer = about["groups"], about["format"] > FORMAT
        except Exception:  # a flipped bit may ask for a password, a compression that there is not, or all memory
            # What numpy says is about its own options, or about the format inside: no help to who runs a service.
            aside = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
            os.replace(self.path, aside)
            sentence = "state: %s is damaged, or no file of this service; moved to %s, learning anew"
            log.error(sentence, self.path, aside.name, exc_info=log.isEnabledFor(logging.DEBUG))
            return {}
        if newer:
            raise StoreError("newer", f"state: {self.path} was written by version {about.get('version')}, a later one")
        return {
            name: (
                {key.split("/", 1)[1]: array for key, array in arrays.items() if key.split("/", 1)[0] == str(number)},
                kept,
            )
            for number, (name, kept) in enumerate(groups.items())
        }
