"""Servers in virtual time: the router's own code, driven by a simulated clock, beside what balancers do elsewhere.

All rules of one comparison meet the same arrivals and the same sizes. Servers serve first come, first served with c slots, so
a departure is known when its job arrives; rates may change in steps, and a server may fail fast.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from queuewise.live.router import Router, Server


@dataclass
class Backend:
    """rates : (from when, rate of a slot) in order of time · fails : (from, to) in which every request fails after `fail_time`
    · share : of requests that fail then · there : (from, to) in which it is among the servers."""

    rates: list[tuple[float, float]]
    slots: int = 1
    fails: tuple[float, float] = (np.inf, np.inf)
    fail_time: float = 0.001
    share: float = 1.0
    there: tuple[float, float] = (0.0, np.inf)

    def rate(self, now: float) -> float:
        """The rate now."""
        found = self.rates[0][1]
        for since, rate in self.rates:
            if now >= since:
                found = rate
        return found

    def failing(self, now: float) -> bool:
        """Whether every request fails now."""
        return self.share >= 1.0 and self.fails[0] <= now < self.fails[1]


def steady(rate: float, slots: int = 1) -> Backend:
    """A server that never changes."""
    return Backend([(0.0, rate)], slots)


class Rule(Protocol):
    """What decides."""

    def choose(self, now: float, there: list[int]) -> tuple[int, Any]: ...
    def done(self, server: int, token: Any, now: float, ok: bool, waited: float) -> None: ...


class Random:
    """Any server."""

    def __init__(self, backends: Sequence[Backend], seed: int) -> None:
        self.backends, self.rng = backends, np.random.default_rng(seed)
        self.slots = np.array([backend.slots for backend in backends], dtype=np.float64)
        self.out = np.zeros(len(backends))
        self.turn = -1

    def price(self, now: float) -> NDArray[np.float64]:
        """The cheapest server is chosen, ties at random."""
        return np.zeros(len(self.out))

    def choose(self, now: float, there: list[int]) -> tuple[int, Any]:
        prices = self.price(now)[there]
        tied = np.flatnonzero(prices == prices.min())
        server = there[int(tied[int(self.rng.random() * len(tied))])]
        self.out[server] += 1
        return server, None

    def done(self, server: int, token: Any, now: float, ok: bool, waited: float) -> None:
        self.out[server] -= 1


class RoundRobin(Random):
    """Every server in turn."""

    def choose(self, now: float, there: list[int]) -> tuple[int, Any]:
        self.turn += 1
        self.out[there[self.turn % len(there)]] += 1
        return there[self.turn % len(there)], None


class LeastConnections(Random):
    """Fewest requests in flight, per slot: join the shortest queue."""

    def price(self, now: float) -> NDArray[np.float64]:
        return np.asarray(np.maximum(self.out + 1.0, self.slots) / self.slots)


class Polled(LeastConnections):
    """Fewest requests in flight, as they were at the last poll: what own dispatches since then have added is not seen."""

    every = 1.0

    def __init__(self, backends: Sequence[Backend], seed: int) -> None:
        super().__init__(backends, seed)
        self.polled, self.at = self.out.copy(), 0.0

    def price(self, now: float) -> NDArray[np.float64]:
        if now >= self.at + self.every:
            self.polled, self.at = self.out.copy(), now
        return np.asarray(np.maximum(self.polled + 1.0, self.slots) / self.slots)


class TrueSed(Random):
    """Shortest expected delay with the true rates of now; a server where every request fails is known to have none."""

    def __init__(self, backends: Sequence[Backend], seed: int) -> None:
        super().__init__(backends, seed)
        self.steady = all(len(backend.rates) == 1 and np.isinf(backend.fails[0]) for backend in backends)
        self.rates = np.array([backend.rate(0.0) for backend in backends])

    def price(self, now: float) -> NDArray[np.float64]:
        if not self.steady:
            self.rates = np.array([0.0 if b.failing(now) else b.rate(now) for b in self.backends])
        with np.errstate(divide="ignore"):
            return np.asarray(np.maximum(self.out + 1.0, self.slots) / (self.slots * self.rates))


class LatencyTimesInFlight(Random):
    """Moving average of the response time, times requests in flight plus one, as in many balancers. Unseen costs nothing."""

    def __init__(self, backends: Sequence[Backend], seed: int) -> None:
        super().__init__(backends, seed)
        self.average = np.zeros(len(backends))

    def price(self, now: float) -> NDArray[np.float64]:
        return np.asarray(self.average * (self.out + 1.0))

    def done(self, server: int, token: Any, now: float, ok: bool, waited: float) -> None:
        super().done(server, token, now, ok, waited)
        old = self.average[server]
        self.average[server] = waited if old == 0.0 else 0.9 * old + 0.1 * waited


class LowestLatency(LatencyTimesInFlight):
    """Least moving average of the response time."""

    def price(self, now: float) -> NDArray[np.float64]:
        return self.average


class Routed:
    """The router itself; its clock is ours."""

    def __init__(self, backends: Sequence[Backend], seed: int, policy: Any = "optimistic_sed", **options: Any) -> None:
        self.now = 0.0
        self.backends = backends
        self.there = [i for i, b in enumerate(backends) if b.there[0] <= 0.0]
        servers = {f"s{i}": Server(backends[i].slots) for i in self.there}
        self.router = Router(servers, policy, clock=lambda: self.now, seed=seed, **options)

    def choose(self, now: float, there: list[int]) -> tuple[int, Any]:
        self.now = now
        if there != self.there:
            for i in set(there) - set(self.there):
                self.router.add(f"s{i}", self.backends[i].slots)
            for i in set(self.there) - set(there):
                self.router.remove(f"s{i}")
            self.there = list(there)
        ticket = self.router.route()
        return int(ticket.server[1:]), ticket

    def done(self, server: int, token: Any, now: float, ok: bool, waited: float) -> None:
        self.now = now
        if ok:
            self.router.complete(token)
        else:
            self.router.fail(token)


@dataclass
class Played:
    """What became of every job: when it came, where it went, how long it was there (failures too), whether it was served."""

    arrived: NDArray[np.float64]
    server: NDArray[np.int64]
    sojourn: NDArray[np.float64]
    ok: NDArray[np.bool_]
    rule: Any = field(repr=False)

    def mean(self, since: float = 0.0, until: float = np.inf) -> float:
        """Mean sojourn time of the jobs served that came in a stretch of time."""
        chosen = (self.arrived >= since) & (self.arrived < until) & self.ok
        return float(self.sojourn[chosen].mean())

    def share(self, server: int, since: float = 0.0, until: float = np.inf) -> float:
        """Share of the jobs of a stretch that went to a server."""
        chosen = (self.arrived >= since) & (self.arrived < until)
        return float((self.server[chosen] == server).mean())


def arrivals(rate: float, count: int, rng: np.random.Generator, burst: float = 1.0) -> NDArray[np.float64]:
    """Poisson arrivals; with `burst` > 1 the rate is `burst` times as high for a tenth of the time, in stretches of 25 jobs and
    more."""
    gaps = rng.exponential(1.0 / rate, count)
    if burst > 1.0:
        low = (1.0 - 0.1 * burst) / 0.9
        busy = np.repeat(rng.random(count // 25 + 1) < 0.1 * burst, 25)[:count]
        gaps /= np.where(busy, burst, low)
    return np.cumsum(gaps)


def play(
    rule: Rule,
    backends: Sequence[Backend],
    times: NDArray[np.float64],
    sizes: NDArray[np.float64],
    seed: int = 0,
) -> Played:
    """All arrivals, and all departures up to the last one."""
    count = len(times)
    server, sojourn, ok = np.zeros(count, np.int64), np.zeros(count), np.ones(count, bool)
    free: list[list[float]] = [[-np.inf] * b.slots for b in backends]
    leaving: list[tuple[float, int, Any]] = []
    failing = np.random.default_rng(seed + 77).random(count)
    changes = [b.there for b in backends if b.there != (0.0, np.inf)]
    there = [i for i, b in enumerate(backends) if b.there[0] <= 0.0 < b.there[1]]

    def leave(until: float) -> None:
        while leaving and leaving[0][0] <= until:
            now, job, token = heapq.heappop(leaving)
            rule.done(int(server[job]), token, now, bool(ok[job]), float(sojourn[job]))

    for job in range(count):
        now = float(times[job])
        leave(now)
        if changes:
            there = [i for i, b in enumerate(backends) if b.there[0] <= now < b.there[1]]
        i, token = rule.choose(now, there)
        backend = backends[i]
        server[job] = i
        if backend.fails[0] <= now < backend.fails[1] and failing[job] < backend.share:
            ok[job] = False
            departs = now + backend.fail_time
        else:
            begins = max(now, heapq.heappop(free[i]))
            departs = begins + float(sizes[job]) / backend.rate(begins)
            heapq.heappush(free[i], departs)
        sojourn[job] = departs - now
        heapq.heappush(leaving, (departs, job, token))
    leave(np.inf)
    return Played(times, server, sojourn, ok, rule)


def compare(
    backends: Sequence[Backend],
    rules: dict[str, Callable[[int], Rule]],
    rate: float,
    count: int,
    seed: int,
    *,
    burst: float = 1.0,
    sizes: Callable[[np.random.Generator, int], NDArray[np.float64]] | None = None,
) -> dict[str, Played]:
    """Every rule on the same arrivals and sizes (exponential with mean 1 unless given)."""
    rng = np.random.default_rng(seed)
    times = arrivals(rate, count, rng, burst)
    work = rng.exponential(size=count) if sizes is None else sizes(rng, count)
    return {name: play(make(seed), backends, times, work, seed) for name, make in rules.items()}
