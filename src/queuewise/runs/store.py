"""Finished runs in a folder: written one by one, found again, never mixed with those of another experiment.

    settings.json        what the experiment is, and the version that began it; written first
    runs/000007.parquet  one finished run
    runs/000000-000099.parquet  consecutive runs, a row group each, as ``Result.save`` writes them

Rows are tidy: ``run``, ``round`` (the row's number, from 1), and columns by policy. So ``pandas.read_parquet("out/runs")`` is
the whole experiment as one table. In the scheduling model a row is a round; ``oracle`` and every policy's name are the
queue lengths at its beginning (int32), and runs with a trace have five more columns per policy (``wise.job`` and so on) and
``arrival``. In the dispatching model a row is a checkpoint; there are ``arrivals``, ``time``, and for ``oracle`` and every
policy sums since the beginning, such as ``lased.misestimation`` or ``lased.served.0``.

Every file is written beside its place and moved there when it is complete, so a kill leaves whole files or none. Files
carry the experiment's digest and checksums; one that is damaged, or that belongs elsewhere, counts as not finished.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .. import files

Columns = dict[str, NDArray[Any]]

#: Settings that identify nothing: what made the runs, and the system in words.
FOR_PEOPLE = ("version", "made_with", "description")

SETTINGS, RUNS, MOMENTS = "settings.json", "runs", "moments.npz"
_PART = re.compile(r"(\d{6,})(?:-(\d{6,}))?\.parquet")
_DIGEST = b"queuewise.experiment"


def identity(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two experiments the same one: all settings but what they say for people, the labels and the order of
    policies."""
    kept: dict[str, Any] = json.loads(to_json({key: value for key, value in settings.items() if key not in FOR_PEOPLE}))
    kept["policies"] = {policy.pop("name"): policy for policy in kept.get("policies", [])}
    for policy in kept["policies"].values():
        policy.pop("label", None)
    return kept


def to_json(value: Any) -> str:
    """JSON text; ValueError where something in it has no such form."""
    try:
        return json.dumps(value, indent=1, ensure_ascii=False)
    except TypeError as error:
        raise ValueError(
            f"settings cannot be written as JSON ({error}), so this experiment cannot be kept on disk"
        ) from error


def differences(there: Any, here: Any, path: str = "") -> list[str]:
    """In words, what differs between two identities."""
    if isinstance(there, dict) and isinstance(here, dict):
        found = []
        for key in [*there, *(key for key in here if key not in there)]:
            where = f"{path}.{key}" if path else str(key)
            if key not in here:
                found.append(f"{where} is there but not here")
            elif key not in there:
                found.append(f"{where} is here but not there")
            elif key == "code" and there[key] != here[key]:
                found.append(f"{path} was edited since, or runs on other versions of Python, NumPy or numba")
            else:
                found += differences(there[key], here[key], where)
        return found
    return [] if there == here else [f"{path} is {there!r} there, {here!r} here"]


class Store:
    """The folder of one experiment.

    Parameters
    ----------
    folder : made if missing.
    settings : what the experiment is; None to read what is there.

    Raises
    ------
    ValueError : the folder holds another experiment, is damaged, or cannot be written to. Nothing is changed then.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any] | None) -> None:
        if not os.fspath(folder):
            raise ValueError("folder must be a path, not an empty text")
        self.folder = Path(folder)
        found = self._read_settings()
        if settings is None:
            if found is None:
                raise ValueError(f"folder: {self.folder} holds no results ({SETTINGS} is missing)")
            self.settings = found
        elif found is None:
            self.settings = dict(settings)
            self._begin()
        else:
            differing = differences(identity(found), identity(settings))
            if differing:
                more = f", and {len(differing) - 3} more" if len(differing) > 3 else ""
                raise ValueError(
                    f"folder: {self.folder} holds another experiment ({'; '.join(differing[:3])}{more}); choose another "
                    "folder, nothing was changed"
                )
            self.settings = found
        self.digest = hashlib.sha256(json.dumps(identity(self.settings), sort_keys=True).encode()).hexdigest()
        self._lock = threading.Lock()
        self._bad: dict[Path, set[int]] = {}
        self._where: dict[int, tuple[Path, int]] = {}
        self._index()

    def _read_settings(self) -> dict[str, Any] | None:
        path = self.folder / SETTINGS
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            if any((self.folder / name).exists() for name in (RUNS, MOMENTS)):
                raise ValueError(
                    f"folder: {self.folder} has results but no {SETTINGS} to say of which experiment; choose another "
                    "folder, nothing was changed"
                ) from None
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"folder: cannot read {path} ({_why(error)})") from error
        try:
            settings = json.loads(text)
            identity(settings)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"folder: {path} is damaged; choose another folder, nothing was changed") from error
        assert isinstance(settings, dict)
        return settings

    def _begin(self) -> None:
        text = to_json(self.settings) + "\n"
        make_folder(self.folder)
        write_atomically(self.folder / SETTINGS, lambda file: file.write(text.encode()))
        make_folder(self.folder / RUNS)

    def _index(self) -> None:
        """Which file holds which run, by file names alone. A run's own file goes before one of many runs."""
        single = {}
        for path in sorted((self.folder / RUNS).glob("*.parquet")):
            match = _PART.fullmatch(path.name)
            if match is None:
                continue
            first = int(match[1])
            if match[2] is None:
                single[first] = (path, 0)
                continue
            self._where.update({run: (path, run - first) for run in range(first, int(match[2]) + 1)})
        self._where.update(single)
        for path in (self.folder / RUNS).glob(".*.tmp"):  # left by a kill; another process's own are younger
            try:
                if time.time() - path.stat().st_mtime > 3600.0:
                    path.unlink()
            except OSError:
                pass

    def runs(self) -> list[int]:
        """The numbers of the finished runs, ascending (by file names; a damaged file shows when it is read)."""
        return sorted(self._where)

    def columns(self, run: int) -> list[str]:
        """The columns that are kept of one run; none where its file is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return list(pq.read_schema(self._where[run][0]).names)
        except (OSError, pa.ArrowException):
            return []

    def read(self, run: int, rounds: int, names: Iterable[str]) -> Columns | None:
        """The columns of one finished run; None if it is not finished, damaged, another's, or lacks a column."""
        if run not in self._where:
            return None
        path, group = self._where[run]
        found = self._read(path, group, run, rounds, list(names))
        if found is None:
            with self._lock:
                self._bad.setdefault(path, {r for r, (where, _) in self._where.items() if where == path})
        return found

    def read_whole(self, run: int, rounds: int, names: Iterable[str]) -> Columns:
        """The same; ValueError where :meth:`read` finds nothing."""
        found = self.read(run, rounds, names)
        if found is None:
            raise ValueError(
                f"folder: run {run} in {self.folder} is damaged; run the same simulation again with this folder to have it "
                "replaced"
            )
        return found

    def consecutive(self) -> list[int]:
        """The finished runs from the first on, up to the first that is missing: a run that an interruption left out may be a
        long one, so results that skip it would be biased."""
        numbers = self.runs()
        found = [number for position, number in enumerate(numbers) if number == numbers[0] + position]
        left = len(numbers) - len(found)
        if left:
            warnings.warn(
                f"run {found[-1] + 1} is missing in {self.folder}, so {left} later ones are left out", stacklevel=3
            )
        return found

    def _read(self, path: Path, group: int, run: int, rounds: int, names: list[str]) -> Columns | None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        wanted = ["run", "round", *names]
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                metadata = file.schema_arrow.metadata or {}
                if metadata.get(_DIGEST) != self.digest.encode() or not {"run", "round", *names} <= set(
                    file.schema_arrow.names
                ):
                    return None
                table = file.read_row_group(group, columns=["run", "round", *names], use_threads=False)
        except (OSError, pa.ArrowException, IndexError, ValueError):
            return None
        columns = {name: np.ascontiguousarray(table.column(name).to_numpy()) for name in wanted}
        whole = table.num_rows == rounds and not any(table.column(name).null_count for name in columns)
        if not whole or not (columns.pop("run") == run).all():
            return None
        return columns if (columns.pop("round") == np.arange(1, rounds + 1)).all() else None

    def write(self, run: int, columns: Columns) -> None:
        """Keep one finished run. Called from any thread."""
        self._write_part(run, [columns], self.folder / RUNS / f"{run:06d}.parquet")

    def write_many(self, first: int, runs: list[Columns]) -> None:
        """Keep consecutive runs in one file."""
        if len(runs) == 1:
            self.write(first, runs[0])
        elif runs:
            self._write_part(first, runs, self.folder / RUNS / f"{first:06d}-{first + len(runs) - 1:06d}.parquet")

    def _write_part(self, first: int, runs: list[Columns], path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        def table(run: int, columns: Columns) -> Any:
            rounds = next(iter(columns.values())).shape[0]
            numbered = {"run": np.full(rounds, run, np.int32), "round": np.arange(1, rounds + 1, dtype=np.int32)}
            return pa.table({**numbered, **columns}).replace_schema_metadata({_DIGEST: self.digest.encode()})

        def write(file: IO[bytes]) -> None:
            schema = table(first, runs[0]).schema
            with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
                for number, columns in enumerate(runs, first):
                    writer.write_table(table(number, columns), row_group_size=1 << 30)

        make_folder(path.parent)
        write_atomically(path, write)
        with self._lock:
            for number in range(first, first + len(runs)):
                old = self._where.get(number, (path, 0))[0]
                self._where[number] = (path, number - first)
                self._replaced(number, old, path)

    def _replaced(self, run: int, old: Path, new: Path) -> None:
        """Remove a bad file once every run that it held is kept elsewhere."""
        waiting = self._bad.get(old)
        if waiting is None:
            return
        waiting.discard(run)
        if not waiting:
            del self._bad[old]
            if old != new:
                old.unlink(missing_ok=True)

    def write_moments(self, arrays: Mapping[str, Any]) -> None:
        """Keep running moments, where the runs themselves are not kept."""
        write_atomically(self.folder / MOMENTS, lambda file: np.savez(file, **arrays))

    def read_moments(self) -> Columns | None:
        """The running moments, None where there are none."""
        path = self.folder / MOMENTS
        if not path.exists():
            return None
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(f"folder: {path} is damaged ({_why(error)})") from error


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """See :func:`..files.write_atomically`. Raises ValueError where the disk does not take it."""
    try:
        files.write_atomically(path, write)
    except OSError as error:
        raise ValueError(f"folder: cannot write to {path.parent} ({_why(error)})") from error


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; ValueError where that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"folder: cannot write to {folder} ({_why(error)})") from error


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
