"""Reading what the live service has recorded (``queuewise.live.service.recording``), as a log that can be replayed.

A recording says when a request went out to which server and when it came back, not when its service began. Where a server works
on its c oldest requests, first come, first served, that follows: at the later of the moment it went out and the c-th last
departure among those before it. :func:`service_times` goes through all events of a server, so that its service times add up to
its busy time, ∫ min(requests there, c) dt, whatever order requests came back in.

What is assumed is printed with every replay, and what can be checked is checked: whether the recorded choices, replayed, give
the recorded delays; whether requests that had to wait took as long in service as those that did not; and whether a server was
as quick in the second half as in the first.
"""

from __future__ import annotations

import heapq
import inspect
import json
import math
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..fields import nearest, require_choice, require_count
from ..live.service.recording import COLUMNS, FORMAT, METADATA, TEXTS
from ..sheets import PathLike, find
from .logs import Log, Recorded, read_log

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: What the size of a job can be.
SIZES = ("time", "work")
#: Ends of requests of which nobody knows when the server was done with them.
UNKNOWN = ("lost", "expired")
#: Ends that are replayed: served, or given up on after the server had worked on them.
SERVED, GIVEN_UP = "done", ("timeout", "cancelled")
#: Means that differ by more than this factor, and by more than so many standard errors, are said to differ.
_FACTOR, _SIGMAS, _FEWEST = 1.25, 5.0, 30
_MAGIC = b"PAR1"


def is_recording(path: PathLike) -> bool:
    """Whether a path is a folder or a Parquet file: what no CSV file is."""
    given = Path(path)
    if _folder(given).is_dir():
        return True
    try:
        with find(given).open("rb") as file:
            return given.suffix == ".parquet" or file.read(4) == _MAGIC
    except (ValueError, OSError):
        return given.suffix == ".parquet"


# --- files -----------------------------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """One group's rows in order of issue, and what its parts say of it. texts : column → text of each row, "" for none ·
    settings : (since, settings of the group) in order of time, nanoseconds · processes · lost : rows dropped by these."""

    issued: Ints
    ended: Ints
    work: Floats
    texts: dict[str, npt.NDArray[np.object_]]
    settings: list[tuple[int, Mapping[str, Any]]]
    processes: int
    lost: int


def _folder(path: Path) -> Path:
    """The path itself, or the folder of this name below ``QUEUEWISE_DATA``."""
    data = os.environ.get("QUEUEWISE_DATA", "")
    there = bool(data) and not path.exists() and not path.is_absolute() and (Path(data) / path).is_dir()
    return Path(data) / path if there else path


def _files(path: Path) -> list[Path]:
    path = _folder(path)
    if not path.is_dir():
        return [find(path)]
    try:
        found = sorted(file for file in path.iterdir() if file.suffix == ".parquet" and not file.name.startswith("."))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    if not found:
        raise ValueError(f"{path}: holds no recording; its parts are called *.parquet")
    return found


class _Part(NamedTuple):
    """What a part says of itself, and its rows. groups : name → settings, servers with slots among them."""

    process: str
    number: int
    since: int
    lost: int
    groups: dict[str, dict[str, Any]]
    table: Any


def _part(path: Path) -> _Part:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            text = (file.schema_arrow.metadata or {}).get(METADATA)
            if text is None:
                raise ValueError(
                    f"{path}: is no recording of queuewise serve (no {METADATA.decode()!r} in its metadata)"
                )
            said = json.loads(text)
            if said["format"] > FORMAT:
                raise ValueError(
                    f"{path}: is of format {said['format']}, written by version {said['version']}; this version reads up to "
                    f"format {FORMAT}"
                )
            groups = {
                str(name): {**settings, "servers": _servers(settings)} for name, settings in said["groups"].items()
            }
            table = file.read(columns=list(COLUMNS))
            if table.schema.names != list(COLUMNS):
                raise KeyError("columns")
            table = table.cast(pa.schema([(name, _type(pa, name)) for name in COLUMNS]))
            found = _Part(str(said["process"]), int(said["part"]), int(said["since"]), int(said["lost"]), groups, table)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: is damaged (its metadata or columns are not those of a recording)") from error
    except (OSError, pa.ArrowException) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{path}: cannot be read, or is damaged ({why})") from error
    work = table.column("work").to_numpy()
    if any(table.column(name).null_count for name in COLUMNS if name not in ("key", "instead")) or not (
        np.isfinite(work).all() and (work > 0.0).all()
    ):
        raise ValueError(f"{path}: is damaged (only key and instead may be empty, and work must be above 0)")
    return found


def _servers(settings: Mapping[str, Any]) -> dict[str, int]:
    """The slots of each server. Raises KeyError or TypeError for anything else."""
    found = {str(name): server["slots"] for name, server in settings["servers"].items()}
    if any(not isinstance(count, int) or count < 1 for count in found.values()):
        raise TypeError("slots")
    return found


def _read(path: Path, group: str | None) -> tuple[str, _Rows]:
    """The rows of a group, the only one unless named."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[_Part] = []
    places: dict[tuple[str, int], Path] = {}
    for file in _files(path):
        part = _part(file)
        before = places.setdefault((part.process, part.number), file)
        if before is not file:
            raise ValueError(f"{file}: is the same part of the recording as {before}")
        parts.append(part)
    whole = pa.concat_tables([part.table for part in parts])
    groups = sorted({*whole.column("group").unique().to_pylist(), *(name for part in parts for name in part.groups)})
    if group is None:
        if len(groups) != 1:
            what = f"has the groups {', '.join(groups)}; name one (--group)" if groups else "has no rows"
            raise ValueError(f"{path}: {what}")
        group = groups[0]
    elif group not in groups:
        raise ValueError(f"{path}: group: there is none called {group!r}{nearest(group, groups)}")
    mine = whole.filter(pc.equal(whole.column("group"), group)).sort_by(
        [("issued", "ascending"), ("number", "ascending")]
    )
    lost: dict[str, int] = {}
    for part in parts:
        lost[part.process] = max(lost.get(part.process, 0), part.lost)
    return group, _Rows(
        mine.column("issued").cast(pa.int64()).to_numpy(),
        mine.column("ended").cast(pa.int64()).to_numpy(),
        mine.column("work").to_numpy(),
        {name: _texts(mine.column(name)) for name in TEXTS},
        sorted(
            ((part.since, part.groups[group]) for part in parts if group in part.groups), key=lambda entry: entry[0]
        ),
        len(lost),
        sum(lost.values()),
    )


def _texts(column: Any) -> npt.NDArray[np.object_]:
    """Texts of a column, "" where there is none; one object per text that there is, not per row."""
    coded = column.fill_null("").combine_chunks().dictionary_encode()
    texts: npt.NDArray[np.object_] = np.array(coded.dictionary.to_pylist(), dtype=object)
    found: npt.NDArray[np.object_] = texts[coded.indices.to_numpy()]
    return found


def _type(pa: Any, name: str) -> Any:
    if name in TEXTS:
        return pa.string()
    return {"number": pa.int64(), "work": pa.float64()}.get(name, pa.timestamp("ns", "UTC"))


# --- service times ---------------------------------------------------------------------------------------------------


class Times(NamedTuple):
    """When the requests of one server were in service. took : int64[n], nanoseconds, 0 for those that were not · waited :
    bool[n] · overtook : bool[n], served before it was their turn."""

    took: Ints
    waited: npt.NDArray[np.bool_]
    overtook: npt.NDArray[np.bool_]


def service_times(issued: Ints, ended: Ints, served: npt.NDArray[np.bool_], slots: Sequence[tuple[int, int]]) -> Times:
    """Service times at one server that serves so many at a time, first come, first served.

    A request that was not served in the end holds its slot until it is over; if it is over before its turn, it held none. One
    that was served before its turn has taken a slot from the request in service that began last, at that time or when it came,
    and hands it back; what the other had got until then is the other's. So service times add up to the busy time in any case.

    Parameters
    ----------
    issued, ended : int64[n], nanoseconds, in order of `issued`; each ended after it was issued.
    served : bool[n], whether it was served.
    slots : (since when, how many) in order of time; the first holds before it too.
    """
    count = len(issued)
    took = np.zeros(count, np.int64)
    waited, overtook = np.zeros(count, bool), np.zeros(count, bool)
    changes = slots[1:]
    # At the same moment: slots change, then requests leave, then others come.
    times = np.concatenate([np.array([since for since, _ in changes], np.int64), ended, issued])
    kinds = np.repeat([0, 1, 2], [len(changes), count, count])
    which = np.concatenate([np.arange(len(changes)), np.arange(count), np.arange(count)])
    order = np.lexsort((which, kinds, times))
    room = slots[0][1]
    came, must = issued.tolist(), served.tolist()
    serving: dict[int, int] = {}  # request → when its service began
    waiting: OrderedDict[int, None] = OrderedDict()
    for now, kind, at in zip(times[order].tolist(), kinds[order].tolist(), which[order].tolist(), strict=True):
        if kind == 2:
            if len(serving) < room:
                serving[at] = now
            else:
                waiting[at] = None
                waited[at] = True
            continue
        if kind == 0:
            room = changes[at][1]
        elif at in serving:
            took[at] = now - serving.pop(at)
        else:
            del waiting[at]
            if must[at]:
                other = max(serving, key=serving.__getitem__)
                began = max(came[at], serving[other])
                serving[other] += now - began
                took[at] = now - began
                overtook[at] = True
            continue
        while waiting and len(serving) < room:
            first, _ = waiting.popitem(last=False)
            serving[first] = now
    return Times(took, waited, overtook)


def first_come(issued: Floats, took: Floats, slots: int) -> Floats:
    """Seconds from arrival to departure at one server: float64[n], for requests in order of `issued`."""
    free = [-math.inf] * slots
    delays = np.empty(len(issued))
    for at, (now, seconds) in enumerate(zip(issued.tolist(), took.tolist(), strict=True)):
        leaves = max(now, free[0]) + seconds
        heapq.heapreplace(free, leaves)
        delays[at] = leaves - now
    return delays


# --- a log -----------------------------------------------------------------------------------------------------------


def read_recording(
    path: PathLike,
    *,
    group: str | None = None,
    size: str | None = None,
    slots: Sequence[int] | None = None,
    where: Mapping[str, str] | None = None,
    jobs: int | None = None,
) -> Log:
    """Read a recording of the live service.

    Parameters
    ----------
    path : a folder of parts, or one part; looked for in ``QUEUEWISE_DATA`` too.
    group : whose requests; None for the only one.
    size : "time" (default): the work of a job is the time that it was in service, times the rate of its server; "work": what
        was recorded as its work.
    slots : of each server in order of their names, or one number for all; None for what the recording says.
    where : column → value, of the columns of texts; other requests are left out of the replay, and counted. They were served
        all the same, so they count in service times.
    jobs : replay the first so many only.

    Returns
    -------
    Log : with `durations` (seconds in service), `servers`, and `recorded`: what the recording itself had.

    Raises
    ------
    ValueError : no recording, one of a newer format or damaged, a group, column or server that there is not, or nothing that
        was completed.
    """
    size = "time" if size is None else size
    require_choice("size", size, SIZES)
    if jobs is not None:
        require_count("jobs", jobs, 2)
    for column in where or {}:
        if column not in TEXTS:
            raise ValueError(f"where: there is no column of texts {column!r}{nearest(column, TEXTS)}")
    given = Path(path)
    group, rows = _read(given, group)
    ends = rows.texts["end"]
    if not (ends == SERVED).any():
        what = f"nothing of its {len(ends):,} requests was completed" if len(ends) else "has no requests"
        raise ValueError(f"{given}: group {group!r}: {what}, so there is no service to learn from")
    left_out: dict[str, int] = {}
    book = _Book(rows, slots)
    there = np.ones(len(ends), bool)

    def leave(which: npt.NDArray[np.bool_], reason: str) -> None:
        which = which & there
        if which.any():
            left_out[reason] = int(which.sum())
            there[which] = False

    for column, value in (where or {}).items():
        leave(rows.texts[column] != value, f"without {column}={value}")
    leave(np.isin(ends, UNKNOWN), "lost or expired, of which nobody knows when they were over")
    leave(~np.isin(ends, (SERVED, *GIVEN_UP)), "failed")
    leave(~np.isin(rows.texts["server"], list(book.rates)), "at servers that completed nothing")
    leave((book.took <= 0) & (ends != SERVED), "given up before their service began")
    leave(book.took <= 0, "over when they were issued")
    if size == "work":
        leave(ends != SERVED, "given up, whose work was not done")
    chosen = np.flatnonzero(there)
    if jobs is not None:
        chosen = chosen[:jobs]
    issued = rows.issued[chosen]
    if len(chosen) < 2 or issued[0] == issued[-1]:
        raise ValueError(
            f"{given}: group {group!r}: {len(chosen)} requests that were completed are left; a replay needs two that were "
            "issued at different times"
        )
    times = (issued - issued[0]) / 1e9
    durations = book.took[chosen] / 1e9
    servers = rows.texts["server"][chosen]
    speed = np.array([book.rates[name] for name in servers])
    sizes = rows.work[chosen] if size == "work" else durations * speed
    names = sorted(set(servers))
    choices = np.empty(len(chosen))
    for name in names:
        at = np.flatnonzero(servers == name)
        choices[at] = first_come(times[at], sizes[at] / speed[at], book.slots[name])
    delays = (rows.ended[chosen] - issued) / 1e9
    found = Recorded(
        book.policy, delays, choices, {name: book.rates[name] for name in names}, {n: book.slots[n] for n in names}
    )
    unit = str(rows.settings[-1][1].get("work", "requests")) if rows.settings else "requests"
    return Log(
        times=times,
        sizes=sizes,
        servers=tuple(servers),
        source=f"{given.name or given}, group {group}",
        durations=durations,
        unit=unit,
        left_out=left_out,
        recorded=found,
        notes=(*_assumed(size), *book.notes(chosen, rows), *_check(found)),
    )


class _Book:
    """What is derived of one group's servers. took : int64[n], nanoseconds in service of every row · rates : of each server
    that completed something, work per second of one busy slot, to four digits · slots : as they were last."""

    def __init__(self, rows: _Rows, given: Sequence[int] | None) -> None:
        servers, ends = rows.texts["server"], rows.texts["end"]
        names = sorted(set(servers))
        self.policy = ", ".join(dict.fromkeys(_policy(settings) for _, settings in rows.settings)) or "unknown policy"
        timeline, self._unsaid, self._changed = _slots(names, rows, given)
        self.slots = {name: slots[-1][1] for name, slots in timeline.items()}
        self.took = np.zeros(len(ends), np.int64)
        self.waited, self.overtook = np.zeros(len(ends), bool), np.zeros(len(ends), bool)
        self.rates: dict[str, float] = {}
        # One refused, and one that is over as it is issued, held no slot; of those lost nobody knows how long they did.
        held = ~np.isin(ends, (*UNKNOWN, "refused")) & (rows.ended > rows.issued)
        for name in names:
            at = np.flatnonzero((servers == name) & held)
            served = ends[at] == SERVED
            found = service_times(rows.issued[at], rows.ended[at], served, timeline[name])
            self.took[at], self.waited[at], self.overtook[at] = found
            # Time spent on what failed says nothing of how quick the server is with what it serves.
            busy = float(found.took[served | np.isin(ends[at], GIVEN_UP)].sum()) / 1e9
            if served.any() and busy > 0.0:
                self.rates[name] = float(f"{float(rows.work[at][served].sum()) / busy:.4g}")
        # Two that left in the same instant can leave nothing for one of them.
        self.took[held & (ends == SERVED)] = np.maximum(self.took[held & (ends == SERVED)], 1)

    def notes(self, chosen: Ints, rows: _Rows) -> list[str]:
        """What does not fit, in sentences."""
        said = []
        if rows.lost:
            said.append(f"{rows.lost:,} requests are missing: the disk did not take them in time")
        if rows.processes > 1:
            said.append(f"recorded by {rows.processes} processes; what was under way when one was killed is missing")
        if self._unsaid:
            said.append(f"taken to have one slot, since the recording does not say: {', '.join(self._unsaid)}")
        if self._changed:
            said.append(f"slots changed in the recording, the replay has the last ones: {', '.join(self._changed)}")
        classes = sorted({key for key in rows.texts["key"][chosen] if key})
        if len(classes) > 1:
            said.append(
                f"the classes {', '.join(classes)} are replayed together, with one rate per server; --where key={classes[0]} "
                "replays one of them"
            )
        given_up = int(np.isin(rows.texts["end"][chosen], GIVEN_UP).sum())
        if given_up:
            said.append(
                f"{given_up:,} timed out or were cancelled in service; their work is at least what was done by then"
            )
        overtook = int(self.overtook[chosen].sum())
        if overtook:
            said.append(
                f"{overtook:,} requests ({100.0 * overtook / len(chosen):.2g} %) came back before their turn: their servers do "
                "not serve first come, first served, or have more slots than was said (--slots), or the network changed their "
                "order"
            )
        return said + self._differences(chosen, rows)

    def _differences(self, chosen: Ints, rows: _Rows) -> list[str]:
        waits, halves = [], []
        servers, done = rows.texts["server"][chosen], rows.texts["end"][chosen] == SERVED
        middle = (rows.issued[chosen[0]] + rows.issued[chosen[-1]]) // 2
        late = rows.issued[chosen] > middle
        for name in sorted(set(servers)):
            mine = done & (servers == name)
            per_work = self.took[chosen] / rows.work[chosen] / 1e9
            factor = _differ(per_work[mine & self.waited[chosen]], per_work[mine & ~self.waited[chosen]])
            if factor is not None:
                waits.append(f"{name} ({factor:.2g})")
            factor = _differ(per_work[mine & late], per_work[mine & ~late])
            if factor is not None:
                halves.append(f"{name} ({factor:.2g})")
        said = []
        if waits:
            said.append(
                "requests that had to wait took another time in service than those that did not, in terms of which it was: "
                f"{', '.join(waits)}; these servers have other slots than was said (--slots), or a speed that depends on how "
                "many they have, or much of the time is the network's"
            )
        if halves:
            said.append(
                "service took another time in the second half of the recording than in the first, in terms of which it was: "
                f"{', '.join(halves)}; the replay takes the mean rate"
            )
        return said


def _policy(settings: Mapping[str, Any]) -> str:
    return str(settings.get("override") or settings.get("policy", "unknown policy"))


def _slots(
    names: list[str], rows: _Rows, given: Sequence[int] | None
) -> tuple[dict[str, list[tuple[int, int]]], list[str], list[str]]:
    """Of each server (since when, how many), those of which nothing is said, and those whose slots changed."""
    if given is not None:
        if len(given) not in (1, len(names)):
            raise ValueError(
                f"slots must have one number for each of the {len(names)} servers of the recording ({', '.join(names)}), or "
                f"one for all, not {len(given)}"
            )
        for count in given:
            require_count("slots", count)
        counts = list(given) * (len(names) if len(given) == 1 else 1)
        return {name: [(0, count)] for name, count in zip(names, counts, strict=True)}, [], []
    found: dict[str, list[tuple[int, int]]] = {}
    for since, settings in rows.settings:
        for name, count in settings["servers"].items():
            if name not in found or found[name][-1][1] != count:
                found.setdefault(name, []).append((since, count))
    unsaid = [name for name in names if name not in found]
    changed = [name for name in names if len(found.get(name, [])) > 1]
    return {name: found.get(name, [(0, 1)]) for name in names}, unsaid, changed


def _differ(these: Floats, those: Floats) -> float | None:
    """The ratio of two means, where they differ by much and beyond chance."""
    if min(len(these), len(those)) < _FEWEST:
        return None
    ratio = float(these.mean() / those.mean())
    spread = math.sqrt(sum(float(part.var()) / (len(part) * float(part.mean()) ** 2) for part in (these, those)))
    return ratio if abs(math.log(ratio)) > max(math.log(_FACTOR), _SIGMAS * spread) else None


def _assumed(size: str) -> list[str]:
    """What every replay of a recording assumes."""
    taken = (
        "the work of a request is the time that it was in service at the server that served it, times that server's rate"
        if size == "time"
        else "the work of a request is what was recorded as its work"
    )
    return [
        "assumed: a server works on as many of its oldest requests as it has slots, so that service begins when a request goes "
        "out or when a slot is free, whichever is later",
        f"assumed: {taken}; another server would have done the same work at its own rate. Nothing was recorded of how long it "
        "would have taken there",
    ]


def _check(found: Recorded) -> list[str]:
    recorded, choices = float(found.delays.mean()), float(found.choices.mean())
    off = choices / recorded - 1.0
    said = (
        f"check: recorded under {found.policy} was a mean delay of {recorded:.4g} s; the same choices, replayed, have "
    )
    if abs(off) < 5e-4:
        return [f"{said}the same"]
    return [f"{said}{choices:.4g} s, {100.0 * abs(off):.2g} % {'more' if off > 0 else 'less'}"]


def read_traffic(
    path: PathLike, *, group: str | None = None, slots: Sequence[int] | None = None, **options: Any
) -> Log:
    """A recording or a CSV file, whichever it is; `options` are those of :func:`.logs.read_log`.

    Raises ValueError for an option that says nothing of such a file, and what the two readers raise.
    """
    if not is_recording(path):
        if group is not None:
            raise ValueError(
                f"group: must be left out with a CSV file, which {path} seems to be; only recordings have groups"
            )
        return read_log(path, **options)
    usual = inspect.signature(read_log).parameters
    for option, value in options.items():
        if option not in ("size", "where", "jobs", "encoding") and value != usual[option].default:
            raise ValueError(f"{option}: must be left out with a recording, which says by itself where everything is")
    kept = {option: options.get(option) for option in ("size", "where", "jobs")}
    return read_recording(path, group=group, slots=slots, **kept)
