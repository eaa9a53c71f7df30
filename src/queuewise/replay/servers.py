"""Who serves in a replay: rates as given, drifting, or estimated from the log; and what they can do in how much time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace as changed
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..dispatch.systems import Rate, exact_rate
from ..fields import require_count
from .logs import Drift, Log, duration_text

#: Jobs below which the speed of a server is called unsure.
_ENOUGH = 30

Floats = npt.NDArray[np.float64]


class Servers(NamedTuple):
    """Who serves. names · rates : size per second of one slot of each, the mean where they drift · slots · drift : how the
    rates change, or None · origin : where the rates come from, for a person."""

    names: tuple[str, ...]
    rates: tuple[Fraction, ...]
    slots: tuple[int, ...]
    drift: Drift | None
    origin: str

    @property
    def capacity(self) -> float:
        """Size per second of all servers together, the mean where it drifts."""
        return sum(float(rate) * count for rate, count in zip(self.rates, self.slots, strict=True))


def describe(servers: Servers, unit: str) -> str:
    shown = ", ".join(
        f"{name} {float(rate):.4g}" + (f" × {count} slots" if count > 1 else "")
        for name, rate, count in list(zip(servers.names, servers.rates, servers.slots, strict=True))[:12]
    )
    more = f", … ({len(servers.names)} in all)" if len(servers.names) > 12 else ""
    return f"servers, {unit} per second ({servers.origin}): {shown}{more}"


def _speeds(log: Log) -> tuple[tuple[str, ...], Floats, Floats]:
    """Names of the servers in a log, the rate of each (size per second of service), and how many jobs each served.

    Where the work of a job is known only by how long it took, the rate of a server is the mean duration over all servers'
    jobs divided by that of its own: 1 is average.
    """
    if log.servers is None:
        raise ValueError("rates: give the servers' rates; the log does not say who served each job")
    names = tuple(sorted({name for name in log.servers if name}))
    if not names:
        raise ValueError("rates: give the servers' rates; the log names no server")
    if log.recorded is not None:
        counts = Counter(log.servers)
        known = np.array([log.recorded.rates[name] for name in names])
        return names, known, np.array([counts[name] for name in names], dtype=np.float64)
    places = {name: i for i, name in enumerate(names)}
    who = np.array([places.get(name, -1) for name in log.servers])
    took = log.sizes if log.durations is None else log.durations
    jobs = np.bincount(who[who >= 0], minlength=len(names)).astype(np.float64)
    time = np.bincount(who[who >= 0], took[who >= 0], len(names))
    if _relative(log):
        rates = took[who >= 0].mean() * jobs / time
    else:
        rates = np.bincount(who[who >= 0], log.sizes[who >= 0], len(names)) / time
    # Four digits: more would only look like knowledge, and decimals that short keep ties exact.
    return names, np.array([float(f"{rate:.4g}") for rate in rates]), jobs


def _relative(log: Log) -> bool:
    """Whether sizes are nothing but the durations themselves."""
    return log.durations is None or bool(np.array_equal(log.durations, log.sizes))


def _from_log(log: Log, busiest: int | None) -> tuple[Log, Servers, list[str]]:
    """Servers as the log shows them, and the log with each job's work in place of the time that its server took for it."""
    names, rates, jobs = _speeds(log)
    total = len(names)
    notes = []
    if log.recorded is None and _relative(log):
        speed = dict(zip(names, rates, strict=True))
        factor = np.array([speed.get(name, 1.0) for name in log.servers or ()])
        log = changed(log, sizes=log.sizes * factor, unit="s of an average server")
        notes.append("the work of a job is its duration times the speed of the server that served it")
    if busiest is not None:
        require_count("busiest", busiest)
        if busiest > total:
            raise ValueError(f"busiest must be at most the {total} servers of the log, not {busiest}")
        kept = sorted(np.argsort(-jobs, kind="stable")[:busiest])
        names, rates, jobs = tuple(names[i] for i in kept), rates[kept], jobs[kept]
    unsure = [name for name, count in zip(names, jobs, strict=True) if count < _ENOUGH]
    if unsure:
        shown = ", ".join(unsure[:4]) + (", …" if len(unsure) > 4 else "")
        notes.append(
            f"servers with fewer than {_ENOUGH} jobs, whose speed is hardly known: {shown}; --busiest leaves such out"
        )
    origin = (
        f"estimated from the log, {'all' if len(names) == total else f'the busiest {len(names)} of'} {total} servers"
    )
    slots = tuple(1 if log.recorded is None else log.recorded.slots[name] for name in names)
    return log, Servers(names, _exact(rates.tolist()), slots, None, origin), notes


def _exact(rates: Sequence[Rate]) -> tuple[Fraction, ...]:
    return tuple(exact_rate("rates", rate) for rate in rates)


def servers_of(
    log: Log, rates: Sequence[Rate] | None, drift: Drift | None, slots: Sequence[int] | None, busiest: int | None
) -> tuple[Log, Servers, list[str]]:
    """The servers to replay on, the log in the units of their rates, and notes."""
    notes: list[str] = []
    if busiest is not None and (rates is not None or drift is not None):
        raise ValueError("busiest must be left out with rates given; it chooses among the servers of the log")
    if drift is not None:
        mean = drift.mean()
        if rates is not None:
            if len(rates) != len(drift.names):
                raise ValueError(
                    f"rates must have one rate for each of the {len(drift.names)} servers of the rates file, not {len(rates)}"
                )
            wanted = np.array([float(rate) for rate in _exact(rates)])
            drift = drift._replace(rates=drift.rates / mean * wanted)
            mean = wanted
        origin = f"drifting over {duration_text(drift.span)}, {len(drift.times)} pieces"
        servers = Servers(drift.names, _exact(mean.tolist()), (1,) * len(mean), drift, origin)
    elif rates is not None:
        if not len(rates):
            raise ValueError("rates must have one rate for each server, at least one")
        names = tuple(f"s{i + 1}" for i in range(len(rates)))
        servers = Servers(names, _exact(rates), (1,) * len(rates), None, "as given")
    else:
        log, servers, notes = _from_log(log, busiest)
    if slots is not None:
        if len(slots) not in (1, len(servers.names)):
            raise ValueError(
                f"slots must have one number per server, {len(servers.names)}, or one for all, not {len(slots)}"
            )
        counts = tuple(slots) * (len(servers.names) if len(slots) == 1 else 1)
        for count in counts:
            require_count("slots", count)
        servers = servers._replace(slots=counts)
    return log, servers, notes


def work_by(servers: Servers, time: float) -> float:
    """∫ of the capacity from 0 to `time`."""
    if servers.drift is None:
        return servers.capacity * time
    capacity = servers.drift.rates @ np.array(servers.slots, dtype=np.float64)
    ends = np.append(servers.drift.times[1:], math.inf)
    lasts = np.clip(np.minimum(ends, time) - servers.drift.times, 0.0, None)
    return float(capacity @ lasts)


def time_for(servers: Servers, work: float) -> float:
    """The inverse: when all servers together have been able to do so much."""
    if servers.drift is None:
        return work / servers.capacity
    capacity = servers.drift.rates @ np.array(servers.slots, dtype=np.float64)
    done = np.concatenate([[0.0], np.cumsum(np.diff(servers.drift.times) * capacity[:-1])])
    piece = int(np.searchsorted(done, work, side="right")) - 1
    return float(servers.drift.times[piece] + (work - done[piece]) / capacity[piece])


def total_work(log: Log) -> float:
    """All work but one mean job's: what n jobs bring in n − 1 gaps."""
    return float(log.sizes.mean()) * (len(log) - 1)


def busiest_window(log: Log, capacity: float) -> tuple[float, float]:
    """Length of a window, an hour or a tenth of the log if that is less, and the largest load over such windows."""
    window = min(3600.0, log.span / 10.0)
    before = np.concatenate([[0.0], np.cumsum(log.sizes)])
    ends = np.searchsorted(log.times, log.times + window, side="left")
    return window, float((before[ends] - before[:-1]).max() / (capacity * window))
