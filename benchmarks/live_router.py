"""The live router: what a decision costs in process, route() and complete() each, as Python calls them.

Medians and 99 % quantiles of single calls in one thread, with half as many requests in flight as there are servers; and how
many requests several threads get through together. The clock's own reading is in every number. And in virtual time, how long
requests take beside shortest expected delay with the true rates, and other balancers' rules.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from queuewise.live import Router, Ticket
from tests.live.virtual import Backend, LatencyTimesInFlight, LeastConnections, Routed, Rule, TrueSed, play

from .bed.page import put, table
from .bed.scenarios import IN_VIRTUAL_TIME, ON_SOCKETS, Scenario
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


#: Rules of the comparison in virtual time.
RULES: dict[str, Callable[[Sequence[Backend], int], Rule]] = {
    "router": Routed,
    "known rates": TrueSed,
    "least connections": LeastConnections,
    "latency x in flight": LatencyTimesInFlight,
}
#: A comparison with least connections ends with so many requests after an event.
MARKS = (100, 300, 1000, 3000, 10_000, 30_000)


class Found(NamedTuple):
    """Of one rule in one run. after : mean delay in the second halves of stretches · early : [stretch][mark], mean delay of the
    first requests of a stretch · failed : [stretch], share of requests. Delays are those of requests that were served."""

    after: float
    early: list[list[float]]
    failed: list[float]


def virtual_run(scenario: Scenario, count: int, seed: int) -> dict[str, Found]:
    """Every rule on the same requests."""
    times, sizes = scenario.demand(count, seed)
    seconds = float(times[-1])
    backends = scenario.lasting(seconds)
    found = {}
    for name, rule in RULES.items():
        one = play(rule(backends, seed), backends, times, sizes, seed)
        early, failed = [], []
        for since, until in scenario.stretches(seconds):
            inside = np.flatnonzero((times >= since) & (times < until))
            failed.append(float(1.0 - one.ok[inside].mean()))
            firsts = [inside[:mark] for mark in MARKS if mark <= len(inside)]
            served = [one.sojourn[first][one.ok[first]] for first in firsts]
            early.append([float(some.mean()) if len(some) else np.nan for some in served])
        after = float(one.sojourn[scenario.learned(times, seconds) & one.ok].mean())
        found[name] = Found(after, early, failed)
    return found


class Ratio(NamedTuple):
    """A ratio of means and its standard error, over so many requests."""

    value: float
    error: float
    mark: int = 0

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}" + (f" ({self.mark:,})" if self.mark else "")


class Summary(NamedTuple):
    """Ratios of mean delays over runs. after : rule → of known rates · early : the worst of the router's first requests, of
    least connections · event : the same after an event, None where there is none to compare with · failed : rule → share at
    worst."""

    after: dict[str, Ratio]
    early: Ratio
    event: Ratio | None
    failed: dict[str, float]


def _against(ours: NDArray[np.float64], theirs: NDArray[np.float64], mark: int = 0) -> Ratio:
    """Of means over runs (delta method, runs paired)."""
    ratio = float(ours.mean() / theirs.mean())
    error = float((ours - ratio * theirs).std(ddof=1) / np.sqrt(len(ours)) / theirs.mean())
    return Ratio(ratio, error, mark)


def summary(scenario: Scenario, runs: Sequence[dict[str, Found]]) -> Summary:
    """Of all runs of a scenario."""
    after = {name: np.array([run[name].after for run in runs]) for name in RULES}
    failed = {name: np.mean([run[name].failed for run in runs], axis=0) for name in RULES}
    worst: list[Ratio | None] = []
    for stretch in range(len(scenario.events) + 1):
        if failed["least connections"][stretch] > 0.0:
            continue  # where it fails half of its requests the others are quick: no delay to compare with
        ratios = []
        for at in range(min(len(run["router"].early[stretch]) for run in runs)):
            ours, theirs = (
                np.array([run[name].early[stretch][at] for run in runs]) for name in ("router", "least connections")
            )
            ratios.append(_against(ours, theirs, MARKS[at]))
        worst.append(max(ratios))
    assert worst[0] is not None
    return Summary(
        {name: _against(values, after["known rates"]) for name, values in after.items()},
        worst[0],
        max((one for one in worst[1:] if one is not None), default=None),
        {name: float(shares.max()) for name, shares in failed.items()},
    )


def delays(long: bool) -> None:
    """Mean delay after learning, beside shortest expected delay with the true rates; and at worst, over the first 100, 300, …
    requests after the start or an event, beside least connections. Nothing is known at the start. Two processes."""
    count, runs = (100_000, 20) if long else (4000, 3)
    scenarios = [*ON_SOCKETS, *IN_VIRTUAL_TIME]
    rows = []
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        jobs = [[pool.submit(virtual_run, scenario, count, seed) for seed in range(runs)] for scenario in scenarios]
        for scenario, running in zip(scenarios, jobs, strict=True):
            found = summary(scenario, [one.result() for one in running])
            others = " ".join(f"{found.after[rule].value:.2f}" for rule in ("least connections", "latency x in flight"))
            ours = found.after["router"]
            note = f" (+-{ours.error:.2f}; least connections, latency x in flight: {others})"
            at_most(f"{scenario.name}: of known rates", ours.value, 1.1, "", 2, note)
            for what, one in (("while it learns", found.early), ("after an event", found.event)):
                if one is not None:
                    note = f" (+-{one.error:.2f}, at worst: the first {one.mark:,})"
                    at_most(f"{scenario.name}: of l. c. {what}", one.value, 1.05, "", 2, note)
            if max(found.failed.values()) > 0.0:
                shares = ", ".join(f"{rule} {100 * share:.1f} %" for rule, share in found.failed.items())
                line("  requests that fail meanwhile", f"{100 * found.failed['router']:.1f} %", f"({shares})")
            rows.append((scenario.name, found))
    if long:
        put("virtual time", _page(rows, count, runs))


def _page(rows: list[tuple[str, Summary]], count: int, runs: int) -> str:
    def told(one: Ratio | None, limit: float) -> str:
        if one is None:
            return ""
        return f"**{one}**" if one.value > limit else str(one)

    lines, failing = [], []
    for name, found in rows:
        shown = [told(found.after["router"], 1.1)]
        for rule in ("least connections", "latency x in flight"):
            failed = f" ({100 * found.failed[rule]:.0f} % fail)" if found.failed[rule] > 0.0 else ""
            shown.append(f"{found.after[rule].value:.2f}{failed}")
        lines.append([name, *shown, told(found.early, 1.05), told(found.event, 1.05)])
        if max(found.failed.values()) > 0.0:
            shares = ", ".join(f"{rule} {100 * share:.1f} %" for rule, share in found.failed.items())
            failing.append(f"{name}: of the requests while it fails, {shares} failed.")
    head = [
        "servers",
        "after: router",
        "least connections",
        "latency × in flight",
        "while, at worst",
        "after an event, at worst",
    ]
    text = f"""## In virtual time

`python -m benchmarks live_router.delays --long`: the router's own code on a simulated clock (`tests/live/virtual.py`), every
rule on the same arrivals and sizes, nothing known at the start; {runs} runs of {count:,} requests each.

- *After*: mean delay over that of shortest expected delay with the true rates, in the second half of each stretch between
  events.
- *While*: mean delay of the router's first {", ".join(f"{mark:,}" for mark in MARKS)} requests over that of least connections,
  the worst of them, and which that was.
- *After an event*: the same from an event on: that a server slows down, fails, recovers or joins.

Delays are of requests that were served. Standard errors are over runs. Bold: more than the 1.10 and 1.05 that were wanted.

"""
    return text + table(head, lines) + "".join(f"\n{one}\n" for one in failing)


def sections(long: bool = False) -> dict[str, Callable[[], None]]:
    """Name → section."""
    return {"decisions": decisions, "extras": extras, "threads": threads, "delays": lambda: delays(long)}
