"""Two queues under Shortest Expected Delay in Cimba, compiled: with processes, and with events alone.

Cimba reads annotations as they are, so this file has no ``from __future__ import annotations``.
"""

import cimba as cb
from cimba import inputs, random

from .two_queues import ARRIVAL_RATE, RATES

GAP = 1.0 / ARRIVAL_RATE
FIRST, SECOND = RATES
#: Jobs that a server of the second model has room for: a power of two, far above what is ever there.
ROOM = 4096


class Processes(cb.Model):
    """As the documentation writes M/M/1: an arrival process, and a store and a process per server."""

    arrivals: cb.Param[int]
    gap: cb.Input[float] = inputs.dist.exponential(mean=GAP)
    first_service: cb.Input[float] = inputs.dist.exponential(mean=1.0 / FIRST)
    second_service: cb.Input[float] = inputs.dist.exponential(mean=1.0 / SECOND)
    first: cb.Store[float]
    second: cb.Store[float]
    in_first: int = 0
    in_second: int = 0
    done: int = 0
    last: float = 0.0
    area: float = 0.0
    total: float = 0.0
    number: cb.Output[float]
    sojourn: cb.Output[float]

    @cb.process
    def arrive(self):
        for _ in range(self.arrivals):
            cb.hold(self.gap.next())
            self.area += (self.in_first + self.in_second) * (cb.now() - self.last)
            self.last = cb.now()
            if (self.in_first + 1) * SECOND <= (self.in_second + 1) * FIRST:
                self.in_first += 1
                self.first.put(cb.now())
            else:
                self.in_second += 1
                self.second.put(cb.now())

    @cb.process
    def serve_first(self):
        while True:
            came = self.first.get()
            cb.hold(self.first_service.next())
            self.area += (self.in_first + self.in_second) * (cb.now() - self.last)
            self.last = cb.now()
            self.in_first -= 1
            self.done += 1
            self.total += cb.now() - came

    @cb.process
    def serve_second(self):
        while True:
            came = self.second.get()
            cb.hold(self.second_service.next())
            self.area += (self.in_first + self.in_second) * (cb.now() - self.last)
            self.last = cb.now()
            self.in_second -= 1
            self.done += 1
            self.total += cb.now() - came

    @cb.on_end
    def measure(self):
        self.number = self.area / self.last
        self.sojourn = self.total / self.done


class Events(cb.Model):
    """Scheduled events and arrays alone, no process and no store: the quickest way that was found."""

    arrivals: cb.Param[int]
    first: cb.Array[float] = cb.Array(ROOM)
    second: cb.Array[float] = cb.Array(ROOM)
    first_head: int = 0
    second_head: int = 0
    in_first: int = 0
    in_second: int = 0
    left: int = 0
    done: int = 0
    last: float = 0.0
    area: float = 0.0
    total: float = 0.0
    number: cb.Output[float]
    sojourn: cb.Output[float]

    @cb.on_start
    def begin(self):
        self.left = self.arrivals
        cb.schedule(self.arrive, random.exponential(GAP))

    @cb.event
    def arrive(self):
        now = cb.now()
        self.area += (self.in_first + self.in_second) * (now - self.last)
        self.last = now
        if (self.in_first + 1) * SECOND <= (self.in_second + 1) * FIRST:
            self.first[(self.first_head + self.in_first) & (ROOM - 1)] = now
            self.in_first += 1
            if self.in_first == 1:
                cb.schedule(self.leave_first, random.exponential(1.0 / FIRST))
        else:
            self.second[(self.second_head + self.in_second) & (ROOM - 1)] = now
            self.in_second += 1
            if self.in_second == 1:
                cb.schedule(self.leave_second, random.exponential(1.0 / SECOND))
        self.left -= 1
        if self.left > 0:
            cb.schedule(self.arrive, random.exponential(GAP))

    @cb.event
    def leave_first(self):
        now = cb.now()
        self.area += (self.in_first + self.in_second) * (now - self.last)
        self.last = now
        self.total += now - self.first[self.first_head]
        self.first_head = (self.first_head + 1) & (ROOM - 1)
        self.done += 1
        self.in_first -= 1
        if self.in_first > 0:
            cb.schedule(self.leave_first, random.exponential(1.0 / FIRST))

    @cb.event
    def leave_second(self):
        now = cb.now()
        self.area += (self.in_first + self.in_second) * (now - self.last)
        self.last = now
        self.total += now - self.second[self.second_head]
        self.second_head = (self.second_head + 1) & (ROOM - 1)
        self.done += 1
        self.in_second -= 1
        if self.in_second > 0:
            cb.schedule(self.leave_second, random.exponential(1.0 / SECOND))

    @cb.on_end
    def measure(self):
        self.number = self.area / self.last
        self.sojourn = self.total / self.done


def play(model: cb.Model, seed: int) -> tuple[float, float]:
    """(mean number, mean sojourn time) of one run on one core; the class is compiled once for the process."""
    found = cb.Experiment(model, replications=1, window=cb.Window.until_idle(), seed=seed).run(workers=1)[model]
    return float(found.number.values.ravel()[0]), float(found.sojourn.values.ravel()[0])
