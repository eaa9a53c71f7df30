"""Tables as text, Markdown and JSON; files written whole or not at all; progress with time left."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..runs.store import make_folder, write_atomically

#: Seconds between progress lines where there is no terminal to redraw.
_PLAIN_INTERVAL = 15.0
#: Latest runs whose pace says how much time is left.
_PACE_RUNS = 40


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
        from rich.cells import cell_len
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
            # Rich cuts a column that may not wrap where the terminal is narrow, unless it is told its least width.
            lines = [line for cell in (column, *(row[index] for row in self.rows)) for line in cell.split("\n")]
            least = None if index in self.wide else max(map(cell_len, lines))
            table.add_column(
                Text(column), justify="right" if numbers else "left", no_wrap=index not in self.wide, min_width=least
            )
        for index, row in enumerate(self.rows):
            cells = [Text(cell, style=_STYLES.get(cell, "")) for cell in row]
            table.add_row(*cells, end_section=index in self.sections)
        return table

    def text(self, width: int = 100) -> str:
        """The table as plain text, at least wide enough for what must not be folded."""
        from rich.console import Console

        console = Console(width=width, color_system=None, force_terminal=False)
        with console.capture() as capture:
            print_table(console, self)
        return capture.get()

    def markdown(self) -> str:
        """The table as GitHub-flavoured Markdown, with its title as a heading and its note below."""
        lines = [f"## {self.title}", "", _markdown_row(self.columns), "|" + " --- |" * len(self.columns)]
        lines += [_markdown_row(row) for row in self.rows]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines) + "\n"


def print_table(console: Any, table: Table) -> None:
    """Print a table, wider than the terminal if need be: a folded line is better than a number cut in two."""
    from rich.measure import Measurement

    drawn = table.rich()
    least = Measurement.get(console, console.options.update(max_width=1000), drawn).minimum
    width = console.width
    console.width = max(width, least)
    console.print(drawn)
    console.print()
    console.width = width


_STYLES = {"holds": "green", "does not": "red", "undecided": "yellow"}


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


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
    decimals = 1 if width >= 2 else 2 if width >= 0.2 else 3 if width >= 0.02 else 4
    return f"{_fixed(value, decimals)} [{_fixed(low, decimals)}, {_fixed(high, decimals)}]"


def _fixed(number: float, decimals: int) -> str:
    text = f"{number:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def write_text(path: Path, text: str) -> Path:
    """Write a file whole or not at all, so that a killed command leaves the old one. Raises ValueError where it cannot be."""
    make_folder(path.parent)
    write_atomically(path, lambda file: file.write(text.encode()))
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


def output_folder(out: Path) -> Path:
    """Make the folder that results go to. Raises ValueError with one sentence if that cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(f"out: cannot write to the folder {str(out)!r} ({error.strerror or error})") from error
    return out


class Progress:
    """Progress over a whole command, to stderr: a bar on a terminal, elsewhere a line now and then.

    Parameters
    ----------
    total : int
        Runs that the command will have done at its end.
    shown : bool
        False says nothing at all.
    """

    def __init__(self, total: int, shown: bool = True) -> None:
        self.total = total
        self.done = 0
        self._shown = shown
        self._what = ""
        # When the latest runs were done. Only their pace counts: runs found on disk, and compiling, are soon forgotten.
        self._times: deque[float] = deque(maxlen=_PACE_RUNS)
        self._said = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        self._said = time.monotonic()
        if self._shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("runs{task.fields[left]}"),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=self.total, left="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, what: str) -> Callable[[int, int], None]:
        """Say what is being done from here on; a function of (runs done, runs in all) for ``simulate(progress=...)``."""
        self._what = what
        self._show()
        before = self.done

        def advance(done: int, total: int) -> None:
            self.done = before + done
            self._times.append(time.monotonic())
            self._show()

        return advance

    def seconds_left(self) -> float | None:
        """Time left at the pace of the latest runs; None before there is a pace."""
        if len(self._times) < 4:
            return None
        pace = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
        return pace * max(self.total - self.done, 0)

    def _show(self) -> None:
        if not self._shown:
            return
        seconds = self.seconds_left()
        left = "" if seconds is None else f", {_duration(seconds)} left"
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, description=self._what, left=left)
        elif time.monotonic() - self._said > _PLAIN_INTERVAL:
            self._said = time.monotonic()
            print(f"{self._what}: {self.done} of {self.total} runs{left}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    return (
        f"{math.floor(seconds / 60)} min {math.ceil(seconds % 60):02d} s"
        if seconds < 3600
        else f"{seconds / 3600:.1f} h"
    )
