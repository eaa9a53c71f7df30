"""The live scheduler: a decision among a thousand waiting jobs, what the state file costs, recovery, and the lock.

Times of calls are medians in one thread; the disk is the machine's own, so calls that wait for it stand beside the time of a
bare ``fsync`` there.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.live.scheduler import Scheduler

from .report import at_most, line

JOBS, SERVERS, DIMENSION = 1000, 10, 32
POLICIES = ("wise", "cqb_opt", "acqb", "q_ucb")


def _pair(rng: np.random.Generator) -> Any:
    return rng.normal(size=(SERVERS, DIMENSION)) / np.sqrt(DIMENSION)


def _job(rng: np.random.Generator) -> Any:
    return rng.normal(size=DIMENSION - 1) / np.sqrt(DIMENSION)


def _opened(policy: str, path: Path | None, shared: bool, **options: Any) -> Scheduler:
    layout = {"pair_features": DIMENSION} if shared else {"job_features": DIMENSION - 1}
    return Scheduler({f"server {k}": JOBS for k in range(SERVERS)}, policy=policy, path=path, **layout, **options)


def _calls(scheduler: Scheduler, features: Callable[[np.random.Generator], Any], rounds: int) -> dict[str, list[float]]:
    """Seconds of every call, while a thousand jobs wait."""
    rng = np.random.default_rng(0)
    scheduler.submit_many([(f"first {job}", features(rng)) for job in range(JOBS)])
    spent: dict[str, list[float]] = {"next": [], "report": [], "submit": []}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = call()
        spent[name].append(time.perf_counter() - begin)
        return result

    for job in range(rounds):
        assignment = timed("next", scheduler.next)
        if timed("report", lambda a=assignment: scheduler.report(a, bool(rng.random() < 0.5))).job_status == "done":
            given = features(rng)
            timed("submit", lambda n=job, f=given: scheduler.submit(f"then {n}", f))
    return {name: times[10:] for name, times in spent.items()}


def _median(times: list[float]) -> float:
    return 1e3 * float(np.median(times))


def decisions() -> None:
    """next() with 1,000 jobs waiting, 10 servers, φ of length 32: shared by the servers, or 32 of each server's own."""
    for shared, features in ((True, _pair), (False, _job)):
        what = "one parameter vector" if shared else "parameters of each server's own"
        for policy in POLICIES:
            scheduler = _opened(policy, None, shared)
            spent = _calls(scheduler, features, 400)
            note = f" (99 %: {1e3 * float(np.quantile(spent['next'], 0.99)):.1f} ms; report {_median(spent['report']):.2f} ms)"
            if shared:
                at_most(f"{policy}: next() among 1,000 jobs, {what}", _median(spent["next"]), 2, "ms", 2, note)
            else:  # ten times the dimension
                line(f"{policy}: next() among 1,000 jobs, {what}", f"{_median(spent['next']):.2f} ms", note.strip())
    now = [0.0]
    for policy in POLICIES[:2]:
        scheduler = _opened(policy, None, True, lease=10.0, clock=lambda: now[0])
        rng = np.random.default_rng(0)
        scheduler.submit_many([(str(job), _pair(rng)) for job in range(JOBS)])
        for _ in range(11):
            scheduler.next()
        now[0] += 20.0
        begin = time.perf_counter()
        scheduler.next()
        line(f"{policy}: next() that takes back ten lost jobs first", f"{1e3 * (time.perf_counter() - begin):.1f} ms")


def disk() -> None:
    """The same with a state file, beside a bare write and fsync; and callers who share commits."""
    with tempfile.TemporaryDirectory() as folder:
        handle, times = os.open(Path(folder, "bare"), os.O_WRONLY | os.O_CREAT), []
        for _ in range(300):
            begin = time.perf_counter()
            os.write(handle, b"x" * 4096)
            os.fsync(handle)
            times.append(time.perf_counter() - begin)
        os.close(handle)
        line("a bare write of 4 KiB and fsync", f"{_median(times):.2f} ms")
        for durability in ("full", "normal"):
            scheduler = _opened("cqb_opt", Path(folder, durability), True, durability=durability)
            spent = _calls(scheduler, _pair, 300)
            said = ", ".join(f"{name} {_median(times):.2f} ms" for name, times in spent.items())
            line(f'cqb_opt, durability="{durability}"', said)
            scheduler.close()
        for threads in (1, 8):
            scheduler = _opened("q_ucb", Path(folder, f"threads {threads}"), False)
            rate = _submissions(scheduler, threads)
            line(f"submissions, {threads} at a time", f"{rate:,.0f} a second, each on disk when it returns")
            scheduler.close()


def _submissions(scheduler: Scheduler, threads: int) -> float:
    features, each = np.zeros(DIMENSION - 1), 1600 // threads

    def work(thread: int) -> None:
        for job in range(each):
            scheduler.submit(f"{thread} {job}", features)

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * each / (time.perf_counter() - begin)


class _Watched:
    """A lock that notes how long it was held."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.held = inner, []  # type: ignore[var-annotated]
        self.since: dict[int, list[float]] = {}

    def acquire(self) -> None:
        self.inner.acquire()
        self.since.setdefault(threading.get_ident(), []).append(time.perf_counter())

    def release(self) -> None:
        self.held.append(time.perf_counter() - self.since[threading.get_ident()].pop())
        self.inner.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def lock() -> None:
    """How long the lock is held while four threads work, with snapshots and expiring leases: what an event loop may wait."""
    with tempfile.TemporaryDirectory() as folder:
        for policy in ("wise", "cqb_opt"):
            scheduler = _opened(policy, Path(folder, policy), True, lease=0.5, snapshot_every=500)
            rng = np.random.default_rng(0)
            scheduler.submit_many([(f"first {job}", _pair(rng)) for job in range(JOBS)])
            watched = _Watched(scheduler._lock)
            scheduler._lock = scheduler._journal._lock = watched  # type: ignore[assignment]
            end = time.perf_counter() + 5.0

            def work(thread: int, scheduler: Scheduler = scheduler, end: float = end) -> None:
                own, count = np.random.default_rng(thread), 0
                while time.perf_counter() < end:
                    assignment = scheduler.next()
                    if assignment is None or own.random() < 0.1:
                        continue
                    if scheduler.report(assignment, bool(own.random() < 0.5)).job_status == "done":
                        scheduler.submit(f"{thread} {count}", _pair(own))
                        count += 1

            workers = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            held = 1e3 * np.array(watched.held)
            said = f"median {np.median(held):.2f}, 99 % {np.quantile(held, 0.99):.1f}, longest {held.max():.0f} ms"
            line(f"{policy}: the lock, {held.size:,} times", said)
            scheduler.close()


def recovery() -> None:
    """Opening a file after a kill: the last snapshot, and up to a thousand events again."""
    with tempfile.TemporaryDirectory() as folder:
        for policy in ("wise", "cqb_opt"):
            path = Path(folder, policy)
            scheduler = _opened(policy, path, True, snapshot_every=1300, durability="normal")
            _calls(scheduler, _pair, 800)
            events = scheduler._book.event - scheduler._snapshot_event
            scheduler._store.close()  # as a kill leaves it
            begin = time.perf_counter()
            scheduler = _opened(policy, path, True, durability="normal")
            spent = time.perf_counter() - begin
            line(f"{policy}: opened again with 1,000 jobs waiting", f"{spent:.2f} s ({events:,} events played again)")
            scheduler.close()


def sections() -> dict[str, Callable[[], None]]:
    """Name → section."""
    return {"decisions": decisions, "disk": disk, "lock": lock, "recovery": recovery}
