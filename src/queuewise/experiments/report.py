"""Tables as text, Markdown and JSON; files written whole or not at all; progress with time left."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: Seconds between progress lines where there is no terminal to redraw.
_PLAIN_INTERVAL = 15.0
#: Runs after which a pace is trusted.
_PACE_RUNS = 4


@dataclass(frozen=True)
class Table:
    """A table of texts. `wide` names the columns that may be folded; `note` is a sentence below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    wide: tuple[int, ...] = ()
    sections: tuple[int, ...] = ()

    def rich(self) -> Any:
        """The table for a terminal. `sections` are the rows after which a rule is drawn."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            title=Text(self.title, style="bold"),
            title_justify="left",
            caption=Text(self.note) if self.note else None,
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
        )
        for index, column in enumerate(self.columns):
            text = index == 0 or index in self.wide
            numbers = not text and all(not row[index] or row[index][0] in "-+[0123456789" for row in self.rows)
            table.add_column(column, justify="right" if numbers else "left", no_wrap=index not in self.wide)
        for index, row in enumerate(self.rows):
            cells = [Text(cell, style=_STYLES.get(cell, "")) for cell in row]
            table.add_row(*cells, end_section=index in self.sections)
        return table

    def markdown(self) -> str:
        """The table as GitHub-flavoured Markdown, with its title as a heading and its note below."""
        lines = [f"## {self.title}", "", _markdown_row(self.columns), "|" + " --- |" * len(self.columns)]
        lines += [_markdown_row(row) for row in self.rows]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines) + "\n"


_STYLES = {"holds": "green", "does not": "red", "undecided": "yellow"}


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def short(number: float) -> str:
    """A number with three significant digits, without an exponent in the range that queues have."""
    if not math.isfinite(number):
        return "∞" if number > 0 else "-∞" if number < 0 else "?"
    size = abs(number)
    if size >= 1e6 or 0 < size < 1e-4:
        return f"{number:.2e}"
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 or size == 0 else 3 if size >= 0.01 else 4
    return _fixed(number, digits)


def interval(value: float, low: float, high: float) -> str:
    """A value with its interval, ``0.42 [0.30, 0.54]``, with as many decimals as the interval's width has a use for."""
    width = high - low
    if not math.isfinite(width) or width <= 0 or width < 1e-3:
        return f"{short(value)} [{short(low)}, {short(high)}]"
    decimals = min(max(1 - math.floor(math.log10(width)), 0), 4)
    return f"{_fixed(value, decimals)} [{_fixed(low, decimals)}, {_fixed(high, decimals)}]"


def _fixed(number: float, decimals: int) -> str:
    text = f"{number:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def write_text(path: Path, text: str) -> Path:
    """Write a file whole or not at all, so that a killed command leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def to_json(value: Any) -> str:
    """Indented JSON in which what is not a finite number is null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "item"):
        return _plain(value.item())
    return value


def estimate_json(estimate: Any) -> dict[str, Any]:
    """An estimate or a paired difference as plain JSON values."""
    return {key: getattr(estimate, key) for key in ("mean", "low", "high", "sd", "runs")}


def version() -> str:
    """The installed version, or ``"unknown"`` where the package is used without being installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("queuewise")
    except PackageNotFoundError:
        return "unknown"


def output_folder(out: Path) -> Path:
    """Make the folder that results go to. Raises ValueError with one sentence if that cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(f"out: cannot write to the folder {str(out)!r} ({error.strerror or error})") from error
    return out


@dataclass
class Progress:
    """Progress over a whole command, to stderr: a bar on a terminal, elsewhere a line now and then.

    Attributes
    ----------
    total : int
        Runs that the command will have done at its end.
    shown : bool
        False says nothing at all.
    """

    total: int
    shown: bool = True
    done: int = 0
    what: str = ""
    _found: int = 0
    _paced: tuple[float, int] | None = None
    _said: float = field(default_factory=time.monotonic)
    _bar: Any = None
    _task: Any = None

    def __enter__(self) -> Self:
        self._said = time.monotonic()
        if self.shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("runs, {task.fields[left]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self.what, total=self.total, left="time left unknown")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, what: str) -> None:
        """Say what is being done from here on."""
        self.what = what
        self._show()

    def found(self, runs: int) -> None:
        """Count runs that lay on disk already: they took no time, so they say nothing about the time left."""
        self._found += runs
        self.done += runs
        self._show()

    def advance(self, runs: int = 1) -> None:
        """Count finished runs."""
        self.done += runs
        if self._paced is None and self.done > self._found:
            self._paced = time.monotonic(), self.done - self._found
        self._show()

    def seconds_left(self) -> float | None:
        """Time left at the pace since the first run was done (which had to compile); None before there is a pace."""
        if self._paced is None:
            return None
        begun, counted = self._paced
        played = self.done - self._found - counted
        if played < _PACE_RUNS:
            return None
        return (time.monotonic() - begun) / played * max(self.total - self.done, 0)

    def _show(self) -> None:
        if not self.shown:
            return
        seconds = self.seconds_left()
        left = "time left unknown" if seconds is None else f"{_duration(seconds)} left"
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, description=self.what, left=left)
        elif time.monotonic() - self._said > _PLAIN_INTERVAL:
            self._said = time.monotonic()
            print(f"{self.what}: {self.done} of {self.total} runs, {left}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    return (
        f"{math.floor(seconds / 60)} min {math.ceil(seconds % 60):02d} s"
        if seconds < 3600
        else f"{seconds / 3600:.1f} h"
    )
