"""What the service did lately, in bounded memory: a sample a second of every group for 15 minutes, and of every backend a
coarser trace.

    history = History(service)
    service.listeners = (history.note, ...)
    ...
    history.tick()  # once a second

`note` counts what is over, under the router's lock and in about a microsecond; `tick` looks at the routers. Delays go into
a histogram of fixed buckets, twenty per decade, so a percentile is right to 6 % whatever the traffic. A group takes 80 kB, a
backend 2 kB.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..router import Ended
from ..tickets import KINDS
from .groups import Group
from .service import Service

#: Samples that are kept of a group, one per tick.
KEPT = 900
#: Ticks between two rows of a backend's trace, and rows that are kept.
STEP, TRACED = 10, 90
#: Steps over which shares of the traffic are taken: the last minute.
SHARED = 6

#: Of a sample. at : its end, seconds since 1970 · seconds : how long it is · queue : requests beyond the slots of the backends
#: that they were sent to, at its end · in_flight : at its end · arrivals, done, failed : in it; failed with time-outs ·
#: given_up : cancelled, lost, expired · mean, p50, p95 : seconds from the decision to the end, of those that were done in it.
COLUMNS = ("at", "seconds", "queue", "in_flight", "arrivals", "done", "failed", "given_up", "mean", "p50", "p95")
#: Of a backend's trace, per class from `rate` on; `sent` : requests sent to it in the step.
TRACE = ("at", "in_flight", "sent", "rate", "low", "high")

#: Buckets of delays: the shortest in seconds, how many per decade, how many at all (to 10,000 s).
_SHORTEST, _PER_DECADE, _BUCKETS = 1e-4, 20, 160
_SCALE = _PER_DECADE / math.log(10.0)


class Delays:
    """A histogram of delays on a logarithmic scale. counts : int[_BUCKETS]; what is shorter or longer is in the outermost."""

    __slots__ = ("counts", "number", "total")

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.number, self.total = 0, 0.0

    def add(self, delay: float) -> None:
        """One delay in seconds."""
        self.number += 1
        self.total += delay
        at = int(_SCALE * math.log(delay / _SHORTEST)) if delay > _SHORTEST else 0
        self.counts[min(at, _BUCKETS - 1)] += 1

    @property
    def mean(self) -> float:
        """NaN where there is none."""
        return self.total / self.number if self.number else math.nan

    def quantile(self, share: float) -> float:
        """The delay that `share` of them do not exceed, to half a bucket; NaN where there is none."""
        wanted, below = share * self.number, 0
        for at, count in enumerate(self.counts):
            if count and below + count >= wanted:
                within = (wanted - below) / count
                return float(_SHORTEST * math.exp((at + within) / _SCALE))
            below += count
        return math.nan


class _Tally:
    """What has ended in a group since the last tick."""

    __slots__ = ("delays", "done", "failed", "given_up", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self.done = self.failed = self.given_up = 0
        self.delays = Delays()


class _Kept:
    """The samples of a group. rows : float64[KEPT, len(COLUMNS)], the row of sample n is n mod KEPT · born : number of its
    first sample · decided : decisions so far · traces : backend → :class:`_Trace` · marks : requests sent to every backend so
    far, at the last steps."""

    def __init__(self, born: int) -> None:
        self.rows = np.full((KEPT, len(COLUMNS)), math.nan)
        self.born = born
        self.decided = 0
        self.traces: dict[str, _Trace] = {}
        self.marks: deque[dict[str, int]] = deque(maxlen=SHARED + 1)


class _Trace:
    """rows : float64[3 + 3·classes] each, see TRACE."""

    def __init__(self, lanes: int) -> None:
        self.rows: deque[NDArray[np.float64]] = deque(maxlen=TRACED)
        self.lanes = lanes


class History:
    """See the head of this module. boot : changes when the service is started anew, and samples are numbered from 0 again ·
    next : number of the sample to come. `tick` and what reads belong to one thread, `note` to any."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.boot = secrets.token_hex(8)
        self.next = 0
        self._last = time.monotonic()
        self._tallies: dict[str, _Tally] = {}
        self._kept: dict[str, _Kept] = {}

    def note(self, group: str, ended: Ended) -> None:
        """A decision is over. See :attr:`.service.Service.listeners`."""
        tally = self._tallies.get(group)
        if tally is None:
            tally = self._tallies.setdefault(group, _Tally())
        with tally.lock:
            if ended.end == "done":
                tally.done += 1
                tally.delays.add(ended.ended - ended.issued)
            elif ended.end in KINDS:
                tally.failed += 1
            else:
                tally.given_up += 1

    def tick(self, now: float | None = None) -> None:
        """Take a sample; once a second. now : of the routers' clock, time.monotonic where it is left out."""
        if now is None:
            now = time.monotonic()
        seconds = now - self._last
        if not seconds > 0.0:
            return
        self._last = now
        for gone in [name for name in {*self._kept, *self._tallies} if name not in self._service.groups]:
            self._kept.pop(gone, None)
            self._tallies.pop(gone, None)
        at = round(self._service.wall(now), 2)
        for name, group in self._service.groups.items():
            self._sample(name, group, at, seconds)
        self.next += 1

    def since(self, group: str, number: int) -> dict[str, Any]:
        """The samples of a group from `number` on, as lists by column. first, next : numbers of the first and of the one to
        come. None stands where nothing ended."""
        kept = self._kept.get(group)
        born = self.next if kept is None else kept.born
        first = max(number, born, self.next - KEPT)
        found: dict[str, Any] = {"first": min(first, self.next), "next": self.next}
        which = np.arange(first, self.next) % KEPT
        rows = np.empty((0, len(COLUMNS))) if kept is None else kept.rows[which]
        return found | {name: _listed(rows[:, k]) for k, name in enumerate(COLUMNS)}

    def shares(self, group: str, estimates: dict[str, Any]) -> dict[str, float | None]:
        """The share of each backend in the requests of the last minute, None before there are any. estimates : the router's."""
        kept = self._kept.get(group)
        then = kept.marks[0] if kept is not None and kept.marks else None
        if then is None:
            return dict.fromkeys(estimates)
        sent = {name: _grown(_sent(one), then.get(name, 0)) for name, one in estimates.items()}
        total = sum(sent.values())
        return {name: count / total if total else None for name, count in sent.items()}

    def trace(self, group: str, name: str) -> dict[str, Any]:
        """A backend's last 15 minutes: lists of at, in_flight and sent, each a `step` after the last, and `rates`: per
        class lists of rate, low and high."""
        kept = self._kept.get(group)
        trace = None if kept is None else kept.traces.get(name)
        if trace is None:
            return {"step": STEP, "at": [], "in_flight": [], "sent": [], "rates": []}
        rows = np.array(trace.rows)
        found: dict[str, Any] = {"step": STEP} | {field: _listed(rows[:, k]) for k, field in enumerate(TRACE[:3])}
        found["rates"] = [
            {field: _listed(rows[:, 3 + 3 * lane + k]) for k, field in enumerate(TRACE[3:])}
            for lane in range(trace.lanes)
        ]
        return found

    def _sample(self, name: str, group: Group, at: float, seconds: float) -> None:
        estimates, report = group.router.estimates(), group.router.report()
        tally = self._tallies.setdefault(name, _Tally())
        with tally.lock:
            done, failed, given_up, delays = tally.done, tally.failed, tally.given_up, tally.delays
            tally.clear()
        kept = self._kept.get(name)
        if kept is None:
            # Counts may go back to before a restart. What came since is over, or under way.
            came = done + failed + given_up + report["out"]
            kept = self._kept[name] = _Kept(self.next)
            kept.marks.append({label: _sent(one) for label, one in estimates.items()})
        else:
            came = _grown(report["decisions"], kept.decided)
        kept.decided = report["decisions"]
        kept.rows[self.next % KEPT] = (
            *(at, _short(seconds), group.queue_depth(estimates), sum(one["in_flight"] for one in estimates.values())),
            *(came, done, failed, given_up),
            *(_short(delays.mean), _short(delays.quantile(0.5)), _short(delays.quantile(0.95))),
        )
        if (self.next - kept.born) % STEP == STEP - 1:
            self._step(kept, estimates, at)

    def _step(self, kept: _Kept, estimates: dict[str, Any], at: float) -> None:
        before = kept.marks[-1]
        kept.marks.append({name: _sent(one) for name, one in estimates.items()})
        for gone in [name for name in kept.traces if name not in estimates]:
            del kept.traces[gone]
        for name, one in estimates.items():
            rates = list(one["classes"].values()) if "classes" in one else [one]
            trace = kept.traces.get(name)
            if trace is None or trace.lanes != len(rates):
                trace = kept.traces[name] = _Trace(len(rates))
            row = [at, one["in_flight"], _grown(_sent(one), before.get(name, 0))]
            for rate in rates:
                row += [math.nan if rate[field] is None else _short(rate[field]) for field in TRACE[3:]]
            trace.rows.append(np.array(row))


def _sent(one: dict[str, Any]) -> int:
    """Requests that a backend was ever sent: those that are over, and those that are out."""
    return int(sum(one["outcomes"].values()) + one["in_flight"])


def _grown(now: int, then: int) -> int:
    """By how much a count grew; one that fell was begun anew."""
    return now - then if now >= then else now


def _short(value: float) -> float:
    """To five digits: what is sent to a page again and again should be short."""
    return float(f"{value:.5g}")


def _listed(column: NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in column.tolist()]
