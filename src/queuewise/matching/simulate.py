"""Many runs of Q-UCB beside the optimal matching, and what they found."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _compile, streams
from .._version import VERSION
from ..fields import number, require_choice, require_count
from ..runs.experiment import checked_workers, conduct, open_store
from ..runs.runner import Progress
from ..runs.store import Columns
from .loop import CONFLICTS, Draws, Floats, Ints, Record, Setting, Work, play
from .systems import STARTS, System, stationary

MATCHINGS = ("cardinality", "greedy")
#: How the comparison system's arrivals and services are drawn: for itself, or the same as Q-UCB's.
RANDOMNESS = ("independent", "common")


def draw(system: System, slots: int, seed: int, run: int, *, start: str, conflict: str) -> Draws:
    """The randomness of one run; what is drawn for one purpose does not depend on what is asked for of the others."""

    def uniforms(purpose: int, word: int, *shape: int) -> Floats:
        return streams.generator(seed, run, purpose, word).random(shape)

    laws = (stationary(a, max(row), start) for a, row in zip(system.arrival_rates, system.service_rates, strict=True))
    first = streams.generator(seed, run, streams.INSTANCE, 0)
    users = system.users
    return Draws(
        start=np.array([first.choice(len(law), p=law) for law in laws], dtype=np.int64),
        arrival=uniforms(streams.ARRIVALS, 0, slots, users),
        service=uniforms(streams.SERVICE, 0, slots, users),
        own_arrival=uniforms(streams.ARRIVALS, 1, slots, users),
        own_service=uniforms(streams.SERVICE, 1, slots, users),
        coin=uniforms(streams.POLICY, 0, slots),
        shift=streams.generator(seed, run, streams.POLICY, 1).integers(system.servers, size=slots),
        tickets=uniforms(streams.POLICY, 2, slots if conflict == "random" else 1, users),
    )


@dataclass(frozen=True, eq=False)
class Result:
    """Queue lengths of all runs.

    slots : int64[m], the slots done when queues were written down · queue : int32[run, m, U], of Q-UCB · independent, common :
    the same of the optimal matching, with randomness of its own and with Q-UCB's · settings : what was simulated.
    """

    settings: dict[str, Any]
    slots: Ints
    queue: NDArray[np.int32]
    independent: NDArray[np.int32]
    common: NDArray[np.int32]

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.queue)

    def regrets(self, randomness: str = "independent") -> Floats:
        """Q − Q* run by run, float64[run, m, U]; the mean over runs is the queue regret. With common randomness it is never
        negative and varies much less; both have the same mean."""
        require_choice("randomness", randomness, RANDOMNESS)
        return (self.queue - (self.independent if randomness == "independent" else self.common)).astype(np.float64)


@dataclass
class _Collected:
    """The runs so far, in order."""

    runs: list[Columns] = field(default_factory=list)

    @property
    def done(self) -> int:
        return len(self.runs)

    def add(self, run: int, columns: Columns) -> None:
        self.runs.append(columns)


def simulate(
    system: System,
    *,
    slots: int = 10_000,
    runs: int = 100,
    seed: int = 0,
    matching: str = "cardinality",
    conflict: str = "first",
    start: str = "arrival_first",
    exploration: float = 3.0,
    checkpoints: Iterable[int] | None = None,
    workers: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress = None,
    compiled: bool = True,
) -> Result:
    """Q-UCB beside the optimal matching.

    Parameters
    ----------
    system, slots, runs, seed : what is simulated, how long, how often, and from which seed.
    matching, conflict : how indices become a matching; see the module's text.
    start : the law of the queues before slot 1, the same draw for all systems: "arrival_first", the stationary law of the
        optimal matching, or "service_first", that of a system in which services come before arrivals.
    exploration : the 3 of 3K ln²(s)/s, at least 0.
    checkpoints : the numbers of slots done at which queues are written down; None for a thousand, evenly spaced, and 0.
    workers : threads, None for one per core; they change no result.
    folder : where finished runs are kept, row by row; the same call continues there.
    progress : a function of (runs done, runs in all), or True for a bar.
    compiled : False plays the same source as plain Python.

    Raises
    ------
    ValueError : an argument out of range; the sentence names it.
    Interrupted : on Ctrl-C, with the result of the runs that were done.
    """
    for name, value in (("slots", slots), ("runs", runs)):
        require_count(name, value)
    require_count("seed", seed, 0)
    require_choice("matching", matching, MATCHINGS)
    require_choice("conflict", conflict, CONFLICTS)
    require_choice("start", start, STARTS)
    scale = number({"exploration": exploration}, "exploration", 0.0, strict=False)
    marks = _checked_checkpoints(checkpoints, slots)
    setting = Setting(
        np.array(system.arrival_rates),
        np.array(system.service_rates),
        np.array(system.best),
        matching == "greedy",
        CONFLICTS.index(conflict),
        scale,
    )
    settings: dict[str, Any] = {
        "model": "matching",
        "version": VERSION,
        "system": {
            "arrival_rates": list(system.arrival_rates),
            "service_rates": [list(r) for r in system.service_rates],
        },
        "slots": slots,
        "checkpoints": marks.tolist(),
        "seed": seed,
        "matching": matching,
        "conflict": conflict,
        "start": start,
        "exploration": scale,
    }
    names = [f"{name}.{u}" for name in Record._fields[1:] for u in range(system.users)]

    def once(run: int, until: Ints = marks) -> Columns:
        draws = draw(system, slots, seed, run, start=start, conflict=conflict)
        record = Record(until, *(np.zeros((len(until), system.users), np.int32) for _ in range(3)))
        shape = (system.users, system.servers)
        work = Work(
            np.zeros((3, system.users), np.int64),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(system.users, np.int64),
            np.zeros(system.servers, np.int64),
        )
        (_compile.program(play, {}) if compiled else play)(setting, draws, work, record)
        columns = (table[:, u] for table in record[1:] for u in range(system.users))
        return dict(zip(names, columns, strict=True))

    collected = _Collected()

    def result() -> Result:
        def table(name: str) -> NDArray[np.int32]:
            return np.array(
                [np.stack([columns[f"{name}.{u}"] for u in range(system.users)], axis=1) for columns in collected.runs]
            )

        return Result(settings, marks, *(table(name) for name in Record._fields[1:]))

    found: Result = conduct(
        once,
        range(runs),
        store=None if folder is None else open_store(folder, settings),
        rows=len(marks),
        names=names,
        collected=collected,
        result=result,
        warm_up=lambda: once(0, np.array([1])) if compiled else None,
        workers=checked_workers(workers),
        progress=progress,
        halt=threading.Event(),
    )
    return found


def _checked_checkpoints(checkpoints: Iterable[int] | None, slots: int) -> Ints:
    if checkpoints is None:
        return np.unique(np.linspace(0, slots, min(slots, 1000) + 1).astype(np.int64))
    marks = list(checkpoints)
    if not marks or any(not isinstance(m, int | np.integer) or not 0 <= m <= slots for m in marks):
        raise ValueError(f"checkpoints must be whole numbers of slots from 0 to {slots}, at least one of them")
    return np.unique(np.array(marks, dtype=np.int64))
