"""Two queues under Shortest Expected Delay in SimPy, as its documentation writes queues."""

from __future__ import annotations

import random

import simpy

from .two_queues import ARRIVAL_RATE, RATES


class _Averages:
    """Time average of the number in system, mean sojourn time."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env, self.queue = env, [0, 0]
        self.area, self.last, self.sojourn, self.done = 0.0, 0.0, 0.0, 0

    def shortest(self) -> int:
        return 0 if (self.queue[0] + 1) * RATES[1] <= (self.queue[1] + 1) * RATES[0] else 1

    def change(self, server: int, by: int) -> None:
        self.area += sum(self.queue) * (self.env.now - self.last)
        self.last = self.env.now
        self.queue[server] += by

    def left(self, server: int, came: float) -> None:
        self.change(server, -1)
        self.sojourn += self.env.now - came
        self.done += 1

    def found(self) -> tuple[float, float]:
        return self.area / self.last, self.sojourn / self.done


def process_per_job(arrivals: int, seed: int) -> tuple[float, float]:
    """(mean number, mean sojourn time): every job is a process that requests a resource, as in "Bank Renege"."""
    rng, env = random.Random(seed), simpy.Environment()
    servers, averages = [simpy.Resource(env, capacity=1) for _ in RATES], _Averages(env)

    def job(server: int):
        came = env.now
        with servers[server].request() as request:
            yield request
            yield env.timeout(rng.expovariate(RATES[server]))
        averages.left(server, came)

    def source():
        for _ in range(arrivals):
            yield env.timeout(rng.expovariate(ARRIVAL_RATE))
            server = averages.shortest()
            averages.change(server, 1)
            env.process(job(server))

    env.process(source())
    env.run()
    return averages.found()


def process_per_server(arrivals: int, seed: int) -> tuple[float, float]:
    """The same with a store and a process per server, as in "Process Communication": fewer events."""
    rng, env = random.Random(seed), simpy.Environment()
    stores, averages = [simpy.Store(env) for _ in RATES], _Averages(env)

    def server(i: int):
        while True:
            came = yield stores[i].get()
            yield env.timeout(rng.expovariate(RATES[i]))
            averages.left(i, came)

    def source():
        for _ in range(arrivals):
            yield env.timeout(rng.expovariate(ARRIVAL_RATE))
            i = averages.shortest()
            averages.change(i, 1)
            stores[i].put(env.now)

    for i in range(len(RATES)):
        env.process(server(i))
    env.process(source())
    env.run()
    return averages.found()
