"""Reading recorded traffic, and recorded speeds of servers, from CSV files.

Any CSV file with a header will do, gzipped or not; two published layouts are recognised by their columns (see LAYOUTS).
Nothing is repaired in silence: what cannot be replayed is refused with its line and column, or dropped and counted on
request. Files that are not found are looked for in the folder that ``QUEUEWISE_DATA`` names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..dispatch.systems import Schedule, schedule
from ..fields import nearest, require_choice, require_count
from ..sheets import PathLike, Row, Sheet, finite, is_number, read_sheet

Floats = npt.NDArray[np.float64]

#: Seconds per unit of times that are numbers.
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
#: Forms of times that are neither numbers nor ISO 8601, tried in this order on the first line.
TIME_FORMATS = (
    "%y%m%d %H:%M:%S",
    "%y%m%d %H%M%S",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M:%S.%f",
    "%d/%b/%Y:%H:%M:%S %z",
    "%d/%b/%Y:%H:%M:%S",
)
#: Layouts that are recognised by their columns; "csv" is any other.
LAYOUTS = ("auto", "csv", "azure_llm", "technion_bank")
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BANK = ("day", "vru_exit", "q_start", "q_exit", "outcome", "ser_start", "ser_exit", "ser_time", "server")
_VM_NOISE = ("region", "sku", "value", "starttime", "VM_id")
#: Columns that are taken without being named, in any case of letters.
_USUAL = {
    "time": ("time", "timestamp", "arrival_time", "arrival"),
    "size": ("size",),
    "duration": ("duration",),
    "server": ("server",),
}
#: Pieces that irregular measurements of speed are averaged over.
PIECES = 200


class Recorded(NamedTuple):
    """What the log itself had, where it says so.

    policy : who chose the servers · delays : float64[n], seconds from arrival to departure as recorded
    choices : float64[n], the same when the recorded choices are replayed on servers of these rates and slots, first come, first
    served · rates, slots : of each server, by name
    """

    policy: str
    delays: Floats
    choices: Floats
    rates: Mapping[str, float]
    slots: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Log:
    """Recorded jobs in the order in which they came.

    times : float64[n], seconds since the first job · sizes : float64[n], work of each job, above 0, in `unit`
    servers : who served each job, "" where that is not known; None where the log does not say
    durations : float64[n], seconds of service as recorded; None where the log does not say
    source : what was read, for a person · unit : "tokens", "s", "jobs", …
    dropped : reason → number of lines that could not be replayed and were dropped on request
    left_out : reason → number of lines that are no part of the traffic
    recorded : delays as they were, and servers as they were derived; None where the log does not say
    notes : what a reader should know of how the log was read
    """

    times: Floats
    sizes: Floats
    servers: tuple[str, ...] | None = None
    source: str = "log"
    dropped: Mapping[str, int] = field(default_factory=dict)
    durations: Floats | None = None
    unit: str = "units"
    left_out: Mapping[str, int] = field(default_factory=dict)
    recorded: Recorded | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.times)

    @property
    def span(self) -> float:
        """Seconds from the first job to the last."""
        return float(self.times[-1])

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return (len(self.times) - 1) / self.span

    def describe(self) -> str:
        """One line for a person, with everything that was dropped or left out."""
        parts = [f"{len(self):,} jobs in {duration_text(self.span)}, mean size {self.sizes.mean():.4g} {self.unit}"]
        parts += [f"dropped: {count:,} {reason}" for reason, count in self.dropped.items()]
        parts += [f"left out: {count:,} {reason}" for reason, count in self.left_out.items()]
        return f"{self.source}: " + "; ".join(parts)


class Drift(NamedTuple):
    """Rates that change. names : of the servers · times : float64[pieces], seconds, the first one 0 · rates : float64[pieces,
    n], above 0, each until the next time, the last one for ever · span : seconds that the record covers."""

    names: tuple[str, ...]
    times: Floats
    rates: Floats
    span: float

    def mean(self) -> Floats:
        """Mean rate of each server over the record: float64[n]."""
        lengths = np.diff(np.append(self.times, max(self.span, float(self.times[-1]))))
        total = lengths.sum()
        if total <= 0.0:
            return np.asarray(self.rates[-1].copy())
        return np.asarray(lengths @ self.rates / total)

    def stretched(self, span: float) -> Drift:
        """The same with its time squeezed or stretched to so many seconds."""
        factor = span / self.span if self.span > 0.0 else 1.0
        return self._replace(times=self.times * factor, span=self.span * factor)

    def schedule(self) -> Schedule:
        """As ``dispatch.System`` takes it."""
        return schedule(self.times.tolist(), self.rates.tolist())


def duration_text(seconds: float) -> str:
    """A length of time in the unit that a person would use: "58 min", "31 days"."""
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


# --- cells -----------------------------------------------------------------------------------------------------------


def _usual(sheet: Sheet, kind: str) -> str | None:
    """A column of the usual name for this, if there is one."""
    for wanted in _USUAL[kind]:
        for name in sheet.columns:
            if name.lower() == wanted:
                return name
    return None


class _Bad(ValueError):
    """A line that cannot be replayed: `reason` is what is counted where such lines are dropped."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def _number(text: str, column: str) -> float:
    try:
        return finite(text)
    except ValueError as error:
        kind = "a finite number" if is_number(text) else "a number"
        raise _Bad(f"column {column!r} {error}", f"without {kind} in {column!r}") from None


def _positive(text: str, column: str) -> float:
    value = _number(text, column)
    if value <= 0.0:
        raise _Bad(f"column {column!r} is {text.strip()}, and must be above 0", f"with {column!r} not above 0")
    return value


# --- times -----------------------------------------------------------------------------------------------------------


class _Clock:
    """Times of one column as seconds, all of the form that the first of them has."""

    def __init__(self, path: Path, first: Row, at: int, column: str, unit: str) -> None:
        self._column, self._unit = column, TIME_UNITS[unit]
        self._base: datetime | None = None
        text = first.values[at].strip() if at < len(first.values) else ""
        self._parse: Callable[[str], datetime] | None = None
        if is_number(text):
            return
        forms: list[Callable[[str], datetime]] = [datetime.fromisoformat]
        forms += [lambda given, form=form: datetime.strptime(given, form) for form in TIME_FORMATS]  # type: ignore[misc]
        for form in forms:
            try:
                self._base = form(text)
            except ValueError:
                continue
            self._parse = form
            return
        raise ValueError(
            f"{path}: line {first.line}: column {column!r} has {text!r}, which is no time: numbers (seconds), ISO 8601, "
            "'YYMMDD HH:MM:SS', 'YYYY/MM/DD HH:MM:SS' and 'DD/Mon/YYYY:HH:MM:SS +ZZZZ' are read"
        )

    def read(self, text: str) -> float:
        """Seconds, from any beginning. Raises _Bad."""
        if self._parse is None or self._base is None:
            value = _number(text, self._column) * self._unit
            if value < 0.0:
                raise _Bad(
                    f"column {self._column!r} is {text.strip()}, and times must be at least 0", "with a negative time"
                )
            return value
        try:
            return (self._parse(text.strip()) - self._base).total_seconds()
        except ValueError:
            message = f"column {self._column!r} has {text!r}, not a time of the form of the first line's"
        except TypeError:
            message = f"column {self._column!r} has {text!r}; some times have a time zone and some have none"
        raise _Bad(message, f"without a time in {self._column!r}")


# --- sizes -----------------------------------------------------------------------------------------------------------

_TERM = re.compile(r"^\s*(?:(?P<weight>[0-9.eE+-]*[0-9.])\s*\*)?\s*(?P<column>.+?)\s*$")


class _Size:
    """A column, or a sum of columns with weights such as ``0.1*ContextTokens+GeneratedTokens``."""

    def __init__(self, sheet: Sheet, given: str, aliases: Mapping[str, str]) -> None:
        self._terms: list[tuple[float, int, str]] = []
        for term in [given] if given in sheet.columns or given in aliases else given.split("+"):
            found = None if term in sheet.columns else _TERM.match(term)
            weight, column = (1.0, term.strip())
            if found is not None:
                column = found["column"]
                if found["weight"] is not None:
                    weight = float(found["weight"]) if is_number(found["weight"]) else math.nan
            if not (0.0 <= weight < math.inf):
                raise ValueError(f"size: weights must be numbers of at least 0, not {term.strip()!r}")
            column = aliases.get(column, column)
            self._terms.append((weight, sheet.at(column, "size"), column))
        self.name = "+".join(f"{'' if w == 1.0 else f'{w:g}*'}{column}" for w, _, column in self._terms)

    def read(self, values: Sequence[str]) -> float:
        """The size of a job. Raises _Bad."""
        if len(self._terms) == 1:
            weight, at, column = self._terms[0]
            size = weight * _positive(values[at], column)
        else:
            size = sum(weight * _number(values[at], column) for weight, at, column in self._terms)
        if not size > 0.0:
            raise _Bad(f"size {self.name!r} is {size:g}, and must be above 0", f"with {self.name!r} not above 0")
        return size


# --- logs ------------------------------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """Where things are in a file."""

    name: str
    time: Callable[[list[str]], float]
    time_column: str
    size: _Size | None
    duration: tuple[int, str] | None
    server: int | None
    unit: str
    nobody: str = ""
    keep: tuple[int, str, str] | None = None
    sorts: bool = False


def read_log(
    path: PathLike,
    *,
    time: str | None = None,
    size: str | None = None,
    duration: str | None = None,
    server: str | None = None,
    where: Mapping[str, str] | None = None,
    time_unit: str = "s",
    layout: str = "auto",
    sort: bool = False,
    drop_bad: bool = False,
    jobs: int | None = None,
    encoding: str = "utf-8",
) -> Log:
    """Read recorded traffic.

    Parameters
    ----------
    path : a CSV file with a header, gzipped or not; looked for in ``QUEUEWISE_DATA`` too. Commas, semicolons or tabs.
    time : column of arrival times: seconds as numbers, ISO 8601, or a form of TIME_FORMATS, found out from the first line.
        None for a column called time, timestamp, arrival_time or arrival.
    size : column of the work of a job, in any unit, or a sum such as ``"0.1*ContextTokens+GeneratedTokens"``. None for a
        column called size, else the durations, else every job counts 1.
    duration : column of seconds of service as recorded; None for one called duration, if there is one.
    server : column that says who served the job; None for one called server, if there is one.
    where : column → value; other lines are left out, and counted.
    time_unit : "s", "ms", "us" or "ns", of times that are numbers.
    layout : "auto", "csv", "azure_llm" (columns TIMESTAMP, ContextTokens, GeneratedTokens; sizes may be named context and
        generated, default generated) or "technion_bank" (calls answered by an agent; a call arrives when it leaves the voice
        unit, its size is its seconds of service, servers are agents; always put in order, as the file is by another time).
    sort : put the jobs in order of time instead of refusing a log that is not.
    drop_bad : drop and count lines that cannot be replayed instead of refusing them.
    jobs : read the first so many only.
    encoding : of the text, such as "utf-8" or "cp1252".

    Returns
    -------
    Log

    Raises
    ------
    ValueError : a file that cannot be read, an unknown column (with the nearest one), or a line that cannot be replayed:
        its number and column are named.
    """
    require_choice("layout", layout, LAYOUTS)
    require_choice("time_unit", time_unit, tuple(TIME_UNITS))
    if jobs is not None:
        require_count("jobs", jobs, 2)
    sheet = read_sheet(path, encoding, strict=False)
    filters = [(sheet.at(column, "where"), value) for column, value in (where or {}).items()]
    found = _layout(sheet, layout, time, size, duration, server, time_unit)
    columns = len(sheet.columns)
    times: list[float] = []
    sizes: list[float] = []
    durations: list[float] = []
    servers: list[str] = []
    lines: list[int] = []
    dropped: dict[str, int] = {}
    left_out: dict[str, int] = {}
    for row in sheet.rows:
        if jobs is not None and len(times) >= jobs:
            break
        try:
            values = row.values
            if len(values) != columns:
                raise _Bad(sheet.uneven(row), "with a wrong number of values")
            if any(values[at] != value for at, value in filters):
                chosen = ", ".join(f"{column}={value}" for column, value in (where or {}).items())
                _count(left_out, f"without {chosen}")
                continue
            if found.keep is not None and values[found.keep[0]] != found.keep[1]:
                _count(left_out, found.keep[2])
                continue
            # Everything is read before anything is kept, so that the columns stay of one length.
            when = found.time(values)
            took = None if found.duration is None else _positive(values[found.duration[0]], found.duration[1])
            work = found.size.read(values) if found.size is not None else 1.0 if took is None else took
            if not sort and not found.sorts and times and when < times[-1]:
                raise _Bad(
                    f"column {found.time_column!r} goes back in time, {times[-1] - when:g} s before line {lines[-1]}; "
                    "sort=True (--sort) puts the jobs in order",
                    "that go back in time",
                )
        except _Bad as bad:
            if not drop_bad:
                hint = "" if "(--sort)" in str(bad) else "; drop_bad=True (--drop-bad) drops such lines"
                raise ValueError(f"{sheet.path}: line {row.line}: {bad}{hint}") from None
            _count(dropped, f"lines {bad.reason}")
            continue
        times.append(when)
        sizes.append(work)
        lines.append(row.line)
        if took is not None:
            durations.append(took)
        if found.server is not None:
            who = values[found.server].strip()
            servers.append("" if who == found.nobody else who)
    if len(times) < 2 or min(times) == max(times):
        kept = f"{len(times)} job{'s' * (len(times) != 1)} are left to replay" if len(times) != 1 else "1 job is left"
        problem = kept if len(times) < 2 else f"all {len(times)} jobs come at the same time"
        raise ValueError(f"{sheet.path}: {problem}; a replay needs two jobs at different times")
    order = np.argsort(np.array(times), kind="stable")
    ordered = np.array(times)[order]
    return Log(
        times=ordered - ordered[0],
        sizes=np.array(sizes)[order],
        servers=tuple(servers[i] for i in order) if found.server is not None else None,
        source=sheet.path.name + ("" if found.name == "csv" else f" ({found.name})"),
        dropped=dropped,
        durations=np.array(durations)[order] if durations else None,
        unit=found.unit,
        left_out=left_out,
    )


def _count(counts: dict[str, int], reason: str) -> None:
    counts[reason] = counts.get(reason, 0) + 1


def _layout(
    sheet: Sheet,
    layout: str,
    time: str | None,
    size: str | None,
    duration: str | None,
    server: str | None,
    time_unit: str,
) -> _Layout:
    """How to read this file: the layout asked for, or the one that its columns show."""
    if layout == "auto":
        layout = "csv"
        for name, columns in (("azure_llm", _AZURE), ("technion_bank", _BANK)):
            if all(column in sheet.columns for column in columns):
                layout = name
        if time is not None and layout == "technion_bank":
            layout = "csv"
    needed = {"azure_llm": _AZURE, "technion_bank": _BANK}.get(layout, ())
    for column in needed:
        sheet.at(column, f"layout {layout}")
    if layout == "technion_bank":
        return _bank(sheet, time, size, duration, server)
    aliases = {"context": "ContextTokens", "generated": "GeneratedTokens"} if layout == "azure_llm" else {}
    if layout == "azure_llm":
        time, size = time or "TIMESTAMP", size or "generated"
    time = time or _usual(sheet, "time")
    if time is None:
        raise ValueError(f"{sheet.path}: time: name the column of arrival times, one of {', '.join(sheet.columns)}")
    size, duration, server = (
        given or _usual(sheet, kind) for kind, given in (("size", size), ("duration", duration), ("server", server))
    )
    at = sheet.at(time, "time")
    clock = _Clock(sheet.path, sheet.rows[0], at, time, time_unit)
    work = None if size is None else _Size(sheet, size, aliases)
    lasting = None if duration is None else (sheet.at(duration, "duration"), duration)
    unit = "tokens" if layout == "azure_llm" else "jobs" if work is None and lasting is None else "s"
    if layout == "csv" and work is not None:
        unit = f"({work.name})" if "+" in work.name else work.name
    who = None if server is None else sheet.at(server, "server")
    return _Layout(layout, lambda values: clock.read(values[at]), time, work, lasting, who, unit)


def _bank(sheet: Sheet, time: str | None, size: str | None, duration: str | None, server: str | None) -> _Layout:
    for option, given in (("time", time), ("size", size), ("duration", duration), ("server", server)):
        if given is not None:
            raise ValueError(
                f"{sheet.path}: {option}: must be left out with the layout technion_bank, which says where it is "
                "(or layout='csv')"
            )
    day, left = sheet.at("day", "layout"), sheet.at("vru_exit", "layout")

    def when(values: list[str]) -> float:
        return 86400.0 * _number(values[day], "day") + _positive(values[left], "vru_exit")

    return _Layout(
        "technion_bank",
        when,
        "vru_exit",
        None,
        (sheet.at("ser_time", "layout"), "ser_time"),
        sheet.at("server", "layout"),
        "s",
        nobody="NO_SERVER",
        keep=(sheet.at("outcome", "layout"), "AGENT", "calls that no agent answered"),
        sorts=True,
    )


# --- rates -----------------------------------------------------------------------------------------------------------


def read_rates(
    path: PathLike, *, servers: Sequence[str] | None = None, time_unit: str = "s", encoding: str = "utf-8"
) -> Drift:
    """Read recorded speeds of servers.

    Two layouts: a column of times (called time, timestamp, …, or else the first) and one column of rates per server, each
    row holding until the next; or the long one of Azure's VM noise data (region, sku, value, starttime, VM_id), whose
    measurements are averaged over 200 equal pieces of the time in which all chosen machines were measured (the latest
    average where a piece has none), one server per machine, "region/sku/VM_id".

    Parameters
    ----------
    path : a CSV file, gzipped or not; looked for in ``QUEUEWISE_DATA`` too.
    servers : names of those to read, in this order; None for all.
    time_unit : of times that are numbers.
    encoding : of the text, such as "utf-8" or "cp1252".

    Raises
    ------
    ValueError : a file that cannot be read, an unknown server, times out of order, or a rate that is not above 0; its line
        and column are named.
    """
    require_choice("time_unit", time_unit, tuple(TIME_UNITS))
    sheet = read_sheet(path, encoding, strict=False)
    for row in sheet.rows:
        if uneven := sheet.uneven(row):
            raise ValueError(f"{sheet.path}: line {row.line}: {uneven}")
    if all(column in sheet.columns for column in _VM_NOISE):
        return _noise(sheet, servers)
    time = _usual(sheet, "time") or sheet.columns[0]
    at = sheet.at(time, "time")
    names = [name for name in sheet.columns if name != time] if servers is None else list(servers)
    places = [sheet.at(name, "servers") for name in names]
    if not names:
        raise ValueError(f"{sheet.path}: needs one column of rates per server beside {time!r}")
    clock = _Clock(sheet.path, sheet.rows[0], at, time, time_unit)
    times: list[float] = []
    rates: list[list[float]] = []
    for row in sheet.rows:
        try:
            when = clock.read(row.values[at])
            if times and when <= times[-1]:
                raise _Bad(f"column {time!r} must increase from line to line", "")
            rates.append([_positive(row.values[place], name) for place, name in zip(places, names, strict=True)])
            times.append(when)
        except _Bad as bad:
            raise ValueError(f"{sheet.path}: line {row.line}: {bad}") from None
    found = np.array(times) - times[0]
    return Drift(tuple(names), found, np.array(rates), float(found[-1]))


def _noise(sheet: Sheet, servers: Sequence[str] | None) -> Drift:
    region, sku, value, start, machine = (sheet.at(column, "layout") for column in _VM_NOISE)
    clock = _Clock(sheet.path, sheet.rows[0], start, "starttime", "s")
    measured: dict[str, list[tuple[float, float]]] = {}
    for row in sheet.rows:
        name = "/".join(row.values[at] for at in (region, sku, machine))
        try:
            point = clock.read(row.values[start]), _positive(row.values[value], "value")
        except _Bad as bad:
            raise ValueError(f"{sheet.path}: line {row.line}: {bad}") from None
        measured.setdefault(name, []).append(point)
    names = sorted(measured) if servers is None else list(servers)
    for name in names:
        if name not in measured:
            raise ValueError(f"{sheet.path}: servers: there is none called {name!r}{nearest(name, measured)}")
    begin = max(min(measured[name])[0] for name in names)
    end = min(max(measured[name])[0] for name in names)
    if end <= begin:
        raise ValueError(f"{sheet.path}: servers: {', '.join(names)} were never measured at the same time")
    edges = np.linspace(begin, end, PIECES + 1)
    rates = np.empty((PIECES, len(names)))
    for column, name in enumerate(names):
        points = np.array(sorted(measured[name]))
        piece = np.searchsorted(edges, points[:, 0], side="right") - 1
        # What was measured before the first piece stands for it until something is measured in it.
        latest = points[piece < 0][-1, 1] if (piece < 0).any() else points[0, 1]
        for k in range(PIECES):
            here = points[piece == k, 1]
            latest = float(here.mean()) if len(here) else latest
            rates[k, column] = float(f"{latest:.5g}")
    return Drift(tuple(names), edges[:-1] - begin, rates, float(end - begin))
