"""The live router: what a decision costs in process, route() and complete() each, as Python calls them.

Medians and 99 % quantiles of single calls in one thread, with half as many requests in flight as there are servers; and how
many requests several threads get through together. The clock's own reading is in every number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from queuewise.live import Router, Ticket

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


def sections() -> dict[str, Callable[[], None]]:
    """Name → section."""
    return {"decisions": decisions, "extras": extras, "threads": threads}
