"""A queue in front of c slots, served in order of arrival: what a backend of the test bed does with its time."""

from __future__ import annotations

import bisect
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, log, sqrt

LAWS = ("exponential", "deterministic", "lognormal")


@dataclass
class Behaviour:
    """How a backend is. Times are seconds since the start of a run.

    rates : (from when, work per second of a slot) in order of time; infinite for an echo · slots : served at a time · law : of
    the sizes of requests that bring none, of mean 1 · c2 : squared coefficient of variation of the lognormal one · fails :
    (from, to) in which `share` of the requests is answered with status 500 after `fail_time` · refuses : (from, to) in which
    nobody listens.
    """

    rates: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, inf)])
    slots: int = 1
    law: str = "exponential"
    c2: float = 4.0
    fails: tuple[float, float] = (inf, inf)
    fail_time: float = 0.001
    share: float = 1.0
    refuses: tuple[float, float] = (inf, inf)
    seed: int = 0

    def __post_init__(self) -> None:
        self.rates = [(float(since), float(rate)) for since, rate in self.rates]
        if not self.rates or min(rate for _, rate in self.rates) <= 0.0:
            raise ValueError(f"rates must be positive, and one at least, not {self.rates!r}")
        if self.law not in LAWS:
            raise ValueError(f"law must be one of {', '.join(LAWS)}, not {self.law!r}")

    def rate(self, now: float) -> float:
        """The rate of a slot now."""
        at = bisect.bisect_right(self.rates, (now, inf)) - 1
        return self.rates[max(at, 0)][1]

    def size(self, rng: random.Random) -> float:
        """Of a request that does not say."""
        if self.law == "deterministic":
            return 1.0
        if self.law == "lognormal":
            spread = log(1.0 + self.c2)
            return rng.lognormvariate(-0.5 * spread, sqrt(spread))
        return rng.expovariate(1.0)


class Line:
    """Jobs in order. Whoever is next begins at the instant at which the one before was *meant* to leave, not at which a late
    timer noticed it: so timers' lateness reaches each job once, and does not add up over a busy stretch.

    at : calls a function at a time, as an event loop's `call_at`, on the clock that `now` is read from.
    """

    def __init__(self, behaviour: Behaviour, at: Callable[..., object]) -> None:
        self.behaviour = behaviour
        self.at = at
        self.zero = 0.0  # the start of the run, on the clock
        self.busy = 0
        self.waiting: deque[tuple[float, Callable[[float, float], None]]] = deque()
        self.busy_time = 0.0

    def join(self, size: float, now: float, done: Callable[[float, float], None]) -> None:
        """`done(begins, departs)` is called once the times are known: at once, or when the job before leaves."""
        if self.busy < self.behaviour.slots:
            self.busy += 1
            self._begin(size, now, done)
        else:
            self.waiting.append((size, done))

    def _begin(self, size: float, begins: float, done: Callable[[float, float], None]) -> None:
        departs = begins + size / self.behaviour.rate(begins - self.zero)
        self.busy_time += departs - begins
        self.at(departs, self._leave, departs)
        done(begins, departs)

    def _leave(self, departs: float) -> None:
        if self.waiting and self.busy <= self.behaviour.slots:
            size, done = self.waiting.popleft()
            self._begin(size, departs, done)
        else:
            self.busy -= 1

    def resized(self, now: float) -> None:
        """There are other slots now."""
        while self.waiting and self.busy < self.behaviour.slots:
            self.busy += 1
            size, done = self.waiting.popleft()
            self._begin(size, now, done)
