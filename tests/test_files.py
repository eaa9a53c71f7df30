"""A file is there whole or not at all, whatever fails and whenever."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from queuewise.files import write_atomically


def _said(text: bytes) -> Callable[[IO[bytes]], object]:
    return lambda file: file.write(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("beside", [None, "a.new"])
def test_what_is_written_takes_the_place_of_what_was_there(tmp_path: Path, beside: str | None) -> None:
    path = tmp_path / "a"
    for text in (b"first", b"second, and longer", b""):
        write_atomically(path, _said(text), beside)
        assert path.read_bytes() == text
        assert names(tmp_path) == ["a"]


def test_it_is_written_beside_its_place_under_the_name_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")
    seen: list[list[str]] = []

    def look(file: IO[bytes]) -> None:
        seen.append(names(tmp_path))
        assert path.read_bytes() == b"before"

    write_atomically(path, look, "piece")
    write_atomically(path, _said(b""), "piece")
    (tmp_path / "piece").write_bytes(b"left by a kill, and longer than what is written now")
    write_atomically(path, _said(b"after"), "piece")
    assert seen == [["a", "piece"]] and names(tmp_path) == ["a"] and path.read_bytes() == b"after"


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_what_fails_leaves_the_old_file_and_no_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if fails != "write":
        monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, full if fails == "write" else _said(b"half"))
    assert names(tmp_path) == ["a"] and path.read_bytes() == b"before"


def test_a_folder_that_is_gone_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "nowhere" / "a", _said(b""))


def test_file_then_move_then_folder_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order: a name that is on the disk before its content is a file of zeros after a power cut."""
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushed(handle: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def moved(*paths: object) -> None:
        order.append("move")
        replace(*paths)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", moved)
    write_atomically(tmp_path / "a", _said(b"text"))
    assert order == ["file", "move", "folder"]


def test_a_file_system_that_cannot_flush_folders_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def files_only(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(22, "Invalid argument")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", files_only)
    write_atomically(tmp_path / "a", _said(b"text"))
    assert (tmp_path / "a").read_bytes() == b"text"
