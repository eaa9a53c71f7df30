"""What happens to the servers, once for both: in virtual time (`tests.live.virtual`) and on sockets (:mod:`.compared`).

A scenario's events are at fractions of its run, so that one of 100 seconds and one of 100,000 requests are of one shape.
Between two events lies a *stretch*; its second half counts as after learning, its first requests as while learning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.live.virtual import Backend, arrivals, steady

from .line import Behaviour

Sizes = Callable[[np.random.Generator, int], NDArray[np.float64]]


def exponential(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Of mean 1."""
    return rng.exponential(size=count)


def lognormal(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Of mean 1 and squared coefficient of variation 4."""
    return rng.lognormal(-0.5 * np.log(5.0), np.sqrt(np.log(5.0)), count)


def deterministic(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """All 1."""
    return np.ones(count)


@dataclass(frozen=True)
class Scenario:
    """backends : their times are fractions of the run · rate : arrivals per second · burst : see `arrivals` · events :
    fractions at which something happens · watched : the backend that it happens to · seconds : of a run on sockets."""

    name: str
    backends: tuple[Backend, ...]
    rate: float
    sizes: Sizes = exponential
    burst: float = 1.0
    events: tuple[float, ...] = ()
    watched: int | None = None
    seconds: float = 100.0

    def lasting(self, seconds: float) -> list[Backend]:
        """The backends of a run of this length."""
        return [
            replace(
                one,
                rates=[(since * seconds, rate) for since, rate in one.rates],
                fails=(one.fails[0] * seconds, one.fails[1] * seconds),
                there=(one.there[0] * seconds, one.there[1] * seconds),
            )
            for one in self.backends
        ]

    def demand(self, count: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When requests come, and their sizes."""
        rng = np.random.default_rng(seed)
        return arrivals(self.rate, count, rng, self.burst), self.sizes(rng, count)

    def stretches(self, seconds: float) -> list[tuple[float, float]]:
        """(from, to) of what lies between events."""
        ends = [0.0, *self.events, 1.0]
        return [(seconds * a, seconds * b) for a, b in pairwise(ends)]

    def learned(self, arrived: NDArray[np.float64], seconds: float) -> NDArray[np.bool_]:
        """Which requests came in the second half of a stretch."""
        found = np.zeros(len(arrived), bool)
        for since, until in self.stretches(seconds):
            found |= (arrived >= 0.5 * (since + until)) & (arrived < until)
        return found


def behaviour(backend: Backend, seed: int = 0) -> Behaviour:
    """A backend of virtual time, as one that listens. When it is there is the balancer's business."""
    return Behaviour(
        list(backend.rates),
        backend.slots,
        fails=backend.fails,
        fail_time=backend.fail_time,
        share=backend.share,
        seed=seed,
    )


THREE = (steady(40), steady(20), steady(5))
GEOMETRIC = tuple(steady(float(rate)) for rate in 0.36 * np.geomspace(1, 10, 64))
TOTAL = float(0.36 * np.geomspace(1, 10, 64).sum())
THIRDS = (1 / 3, 2 / 3)

#: Those that also run on sockets. Rates are per second, fit for six rules at once on two cores.
ON_SOCKETS = [
    Scenario("three of 8:4:1, load 0.7", THREE, 45.0),
    Scenario(
        "one of three fails at once",
        (steady(25), steady(25), Backend([(0.0, 25.0)], fails=THIRDS)),
        35.0,
        events=THIRDS,
        watched=2,
    ),
    Scenario(
        "one slows down 5x, and recovers",
        (Backend([(0.0, 40.0), (THIRDS[0], 8.0), (THIRDS[1], 40.0)]), steady(20), steady(20)),
        35.0,
        events=THIRDS,
        watched=0,
    ),
    Scenario(
        "a cold newcomer of a quarter of the speed",
        (steady(20), steady(20), Backend([(0.0, 5.0)], there=(0.5, np.inf))),
        30.0,
        events=(0.5,),
        watched=2,
    ),
    Scenario("four equal ones, load 0.8", (steady(12.5),) * 4, 40.0),
    Scenario("64 of 1 to 10, load 0.5", GEOMETRIC, 0.5 * TOTAL),
    Scenario("8:4:1 in bursts, load 0.6", THREE, 39.0, burst=3.0),
]

#: In virtual time alone, in units of their own.
_SLOW, _EQUAL = (steady(8), steady(4), steady(1)), (steady(5),) * 4
_MANY = tuple(steady(float(rate)) for rate in np.geomspace(1, 10, 64))
_SUM = float(np.geomspace(1, 10, 64).sum())
IN_VIRTUAL_TIME = [
    Scenario("8:4:1, load 0.3", _SLOW, 4.0),
    Scenario("8:4:1, load 0.9", _SLOW, 12.0),
    Scenario("8:4:1, load 0.6, slight bursts", _SLOW, 8.0, burst=1.4),
    Scenario("8:4:1, load 0.7, deterministic", _SLOW, 9.0, deterministic),
    Scenario("8:4:1, load 0.7, lognormal, c² = 4", _SLOW, 9.0, lognormal),
    Scenario("four equal ones, load 0.8, lognormal", _EQUAL, 16.0, lognormal),
    Scenario("five of rate 1, one of 20, load 0.3", (steady(1),) * 5 + (steady(20),), 7.0),
    Scenario("8 slots of 1, 2 of 2, 1 of 4, load 0.75", (steady(1, 8), steady(2, 2), steady(4, 1)), 12.0),
    Scenario("64 of 1 to 10, load 0.4", _MANY, 0.4 * _SUM),
    Scenario("64 of 1 to 10, load 0.8", _MANY, 0.8 * _SUM),
    Scenario(
        "a newcomer twice as fast",
        (steady(4), steady(4), Backend([(0.0, 8.0)], there=(0.5, np.inf))),
        6.0,
        events=(0.5,),
        watched=2,
    ),
]


def known(scenario: Scenario) -> Any:
    """Loads between events, for people who check: arrivals over capacity."""
    middles = [0.5 * (a + b) for a, b in scenario.stretches(1.0)]
    found = []
    for middle in middles:
        able = [b for b in scenario.backends if b.there[0] <= middle < b.there[1]]
        capacity = sum(b.slots * b.rate(middle) for b in able if not b.fails[0] <= middle < b.fails[1])
        found.append(scenario.rate / capacity)
    return found
