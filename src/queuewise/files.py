"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], beside: str | None = None) -> None:
    """Write a file beside its place with ``write(file)``, flush it to the disk, and move it into place.

    beside : name that it has until then, in the same folder. By default one that no other thread or process has; who knows that
    nobody else writes there takes a constant one, of which a kill leaves one piece at most.

    Raises OSError where the disk does not take it, and what `write` raises. What was there before is untouched then, and no
    piece is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp" if beside is None else beside)
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """So that a new name in it survives a power cut; some file systems know no such thing."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
