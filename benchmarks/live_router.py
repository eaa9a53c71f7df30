"""The live router: what a decision costs in process, route() and complete() each, as Python calls them.

Medians and 99 % quantiles of single calls in one thread, with half as many requests in flight as there are servers; and how
many requests several threads get through together. The clock's own reading is in every number. And in virtual time, how long
requests take beside shortest expected delay with the true rates, and other balancers' rules.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.live import Router, Ticket
from tests.live.virtual import LatencyTimesInFlight, LeastConnections, Routed, Rule, TrueSed, compare, steady

from .report import at_most, line

#: Promised µs of a call, by the number of servers.
PROMISED = {4: 10.0, 64: 20.0, 256: 50.0}
POLICIES = ("optimistic_sed", "lased", "greedy", "jsq")
CALLS = 20_000


def _calls(live: Router, servers: int) -> tuple[list[float], list[float]]:
    """Seconds of every route() and complete()."""
    rng = np.random.default_rng(1)
    out: list[Ticket] = []
    routed, completed = [], []
    for _ in range(CALLS):
        begin = time.perf_counter()
        ticket = live.route()
        routed.append(time.perf_counter() - begin)
        out.append(ticket)
        if len(out) > servers // 2:
            ticket = out.pop(int(rng.integers(len(out))))
            begin = time.perf_counter()
            live.complete(ticket)
            completed.append(time.perf_counter() - begin)
    return routed[CALLS // 10 :], completed[CALLS // 10 :]


def decisions() -> None:
    """One route() and one complete()."""
    for policy in POLICIES:
        for servers, promised in PROMISED.items():
            live = Router([f"server {i}" for i in range(servers)], policy, seed=1)
            for name, spent in zip(("route", "complete"), _calls(live, servers), strict=True):
                note = f" (99 %: {1e6 * float(np.quantile(spent, 0.99)):.0f})"
                at_most(f"{policy}, {servers} servers: {name}", 1e6 * median(spent), promised, "us", 1, note)


def extras() -> None:
    """What is not on the way of every request."""
    live = Router([f"server {i}" for i in range(4)], classes=["chat", "embed"], seed=1)
    spent = []
    for i in range(CALLS // 10):
        begin = time.perf_counter()
        live.complete(live.route("chat" if i % 3 else "embed"))
        spent.append(time.perf_counter() - begin)
    line("two classes, 4 servers: route and complete", f"{1e6 * median(spent):.1f} us")
    live = Router([f"server {i}" for i in range(256)], seed=1)
    _calls(live, 256)
    jobs: dict[str, Callable[[], object]] = {
        "estimates()": live.estimates,
        "snapshot()": live.snapshot,
        "a server drained and used again": lambda: (live.drain("server 3"), live.resume("server 3")),
    }
    for name, job in jobs.items():
        spent = []
        for _ in range(20):
            begin = time.perf_counter()
            job()
            spent.append(time.perf_counter() - begin)
        line(f"256 servers: {name}", f"{1e3 * median(spent):.2f} ms")


def threads() -> None:
    """Requests a second that threads route and complete through one router."""
    for count in (1, 4):
        live = Router([f"server {i}" for i in range(16)], seed=1)

        def work(live: Router = live) -> None:
            for _ in range(CALLS):
                live.complete(live.route())

        workers = [threading.Thread(target=work) for _ in range(count)]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        line(f"16 servers, {count} threads", f"{count * CALLS / (time.perf_counter() - begin):,.0f} requests/s")


def _exponential(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return rng.exponential(size=count)


def _irregular(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Lognormal of mean 1 and squared coefficient of variation 4."""
    return rng.lognormal(-0.5 * np.log(5.0), np.sqrt(np.log(5.0)), count)


def _always(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return np.ones(count)


THREE, EQUAL = [steady(8), steady(4), steady(1)], [steady(5)] * 4
MANY = [steady(float(rate)) for rate in np.geomspace(1, 10, 64)]
TOTAL = float(np.geomspace(1, 10, 64).sum())
#: Servers, arrivals per second, sizes, bursts.
SYSTEMS: dict[str, Any] = {
    "rates 8, 4, 1, load 0.3": (THREE, 4.0, _exponential, 1.0),
    "load 0.7": (THREE, 9.0, _exponential, 1.0),
    "load 0.9": (THREE, 12.0, _exponential, 1.0),
    "load 0.6 in bursts": (THREE, 8.0, _exponential, 1.4),
    "load 0.7, deterministic": (THREE, 9.0, _always, 1.0),
    "load 0.7, lognormal, c² = 4": (THREE, 9.0, _irregular, 1.0),
    "four equal ones, load 0.8": (EQUAL, 16.0, _exponential, 1.0),
    "four equal ones, lognormal, c² = 4": (EQUAL, 16.0, _irregular, 1.0),
    "five of rate 1, one of 20, load 0.3": ([steady(1)] * 5 + [steady(20)], 7.0, _exponential, 1.0),
    "8 slots of 1, 2 of 2, 1 of 4, load 0.75": ([steady(1, 8), steady(2, 2), steady(4, 1)], 12.0, _exponential, 1.0),
    "64 of rates 1 to 10, load 0.4": (MANY, 0.4 * TOTAL, _exponential, 1.0),
    "64 of rates 1 to 10, load 0.8": (MANY, 0.8 * TOTAL, _exponential, 1.0),
}


def delays(long: bool) -> None:
    """Mean delay in the second half, beside shortest expected delay with the true rates; and at worst, over the first 300,
    1000, … requests, beside least connections. Nothing is known at the start."""
    count, runs = (30_000, 8) if long else (4000, 3)
    marks = [mark for mark in (300, 1000, 3000, 10_000, 30_000) if mark <= count]
    for name, (backends, rate, sizes, burst) in SYSTEMS.items():
        rules: dict[str, Callable[[int], Rule]] = {
            "router": lambda seed, backends=backends: Routed(backends, seed),  # type: ignore[misc]
            **{
                kind.__name__: lambda seed, kind=kind, backends=backends: kind(backends, seed)  # type: ignore[misc]
                for kind in (TrueSed, LeastConnections, LatencyTimesInFlight)
            },
        }
        late: dict[str, list[float]] = {rule: [] for rule in rules}
        early: dict[str, list[list[float]]] = {rule: [] for rule in rules}
        for seed in range(runs):
            for rule, one in compare(backends, rules, rate, count, seed, burst=burst, sizes=sizes).items():
                late[rule].append(float(one.sojourn[count // 2 :].mean()))
                early[rule].append([float(one.sojourn[:mark].mean()) for mark in marks])
        known, ours = np.mean(late["TrueSed"]), np.mean(late["router"])
        others = " ".join(f"{np.mean(late[rule]) / known:.2f}" for rule in ("LeastConnections", "LatencyTimesInFlight"))
        at_most(
            name, float(ours / known), 1.1, "of known rates", 2, f" (least connections, latency x in flight: {others})"
        )
        worst = float((np.mean(early["router"], axis=0) / np.mean(early["LeastConnections"], axis=0)).max())
        at_most("  while it learns, at worst", worst, 1.05, "of least connections", 2)


def sections(long: bool = False) -> dict[str, Callable[[], None]]:
    """Name → section."""
    return {"decisions": decisions, "extras": extras, "threads": threads, "delays": lambda: delays(long)}
