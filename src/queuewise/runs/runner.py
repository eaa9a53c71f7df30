"""Playing numbered runs on several threads, and handing them over in order.

The kernels of this package release Python's lock, so threads use all cores and share the system's tables. What a run
is depends on its number alone; runs are handed over in the order of their numbers and counted in that order. So the
number of threads, the time each run takes, and where an earlier attempt stopped change no result.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, TypeVar

P = TypeVar("P")

#: What a caller may pass as `progress`: a function of (runs done, runs in all), True for a bar, or nothing.
Progress = Callable[[int, int], object] | bool | None

#: Runs that may be under way or waiting for an earlier one, per thread; it bounds the memory.
_AHEAD = 3


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after every run under way was ended or finished.

    done : runs finished without a gap from the first on · total : runs asked for
    result : the :class:`~queuewise.runs.result.Result` of the runs done, None where there are none
    """

    def __init__(self, done: int, total: int, kept: str = "", result: Any = None) -> None:
        self.done = done
        self.total = total
        self.result = result
        super().__init__(f"interrupted after {done} of {total} runs{kept}")


class Halted(Exception):
    """Raised by a run that was asked to stop before its end."""


def default_workers() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def checkpoints(runs: int, least: int = 10) -> list[int]:
    """Numbers of runs at which a stopping rule looks: every ten, later every tenth more, and the last one.

    They depend on nothing but the number asked for, so that where a rule stops does not depend on threads or restarts.
    """
    found = []
    count = least
    while count < runs:
        found.append(count)
        count = max(count + 10, math.ceil(count * 1.1))
    return [*found, runs]


def replicate(
    play_run: Callable[[int], P],
    runs: range,
    *,
    workers: int = 1,
    on_done: Callable[[int, P], object],
    progress: Progress = None,
    stop: Callable[[int], bool] | None = None,
    halt: threading.Event | None = None,
) -> int:
    """Play runs and hand each to `on_done`, in order and on the calling thread.

    Parameters
    ----------
    play_run : plays the run of this number and returns what it found. Called on any thread, in any order.
    runs : the numbers, ``range(first, first + count)``.
    workers : threads; with 1 everything happens on the calling thread.
    on_done : ``on_done(run, found)``.
    progress : ``progress(done, total)`` after each run, or True for a bar with the time left, where stderr is a terminal.
    stop : ``stop(done)`` is asked at :func:`checkpoints`; True ends early. No run beyond a checkpoint starts before it is
        passed, so nothing is played in vain.
    halt : an event that `play_run` may look at within a long run, to raise :class:`Halted`; set when the runs are to end.

    Returns
    -------
    int : runs handed over.

    Raises
    ------
    Interrupted : on Ctrl-C. The first one ends cleanly, a second one at once.
    Exception : the first one, in order of runs, that `play_run` raised.
    """
    halt = threading.Event() if halt is None else halt
    stages = checkpoints(len(runs)) if stop is not None else [len(runs)]
    done = 0
    with _interrupts(halt), _shown(progress, len(runs)) as show:
        play = _inline if workers == 1 else _threaded
        try:
            for stage in stages:
                with closing(play(play_run, runs[done:stage], workers, halt)) as played:
                    for run, found in played:
                        on_done(run, found)
                        done += 1
                        show(done)
                if halt.is_set():
                    raise Interrupted(done, len(runs))
                if stop is not None and stop(done):
                    break
        except Interrupted:
            raise
        except Halted:
            raise Interrupted(done, len(runs)) from None
        except KeyboardInterrupt as interrupt:
            raise Interrupted(done, len(runs)) from interrupt
    return done


def _inline(
    play_run: Callable[[int], P], runs: Sequence[int], workers: int, halt: threading.Event
) -> Generator[tuple[int, P], None, None]:
    for run in runs:
        if halt.is_set():
            return
        yield run, play_run(run)


def _threaded(
    play_run: Callable[[int], P], runs: Sequence[int], workers: int, halt: threading.Event
) -> Generator[tuple[int, P], None, None]:
    pool = ThreadPoolExecutor(workers, thread_name_prefix="queuewise-run")
    todo = iter(runs)
    under_way: deque[tuple[int, Future[P]]] = deque()

    def refill() -> None:
        while len(under_way) < _AHEAD * workers and not halt.is_set():
            run = next(todo, None)
            if run is None:
                return
            under_way.append((run, pool.submit(play_run, run)))

    try:
        refill()
        while under_way:
            if halt.is_set():
                for _, future in under_way:
                    future.cancel()
                if under_way[0][1].cancelled():
                    return
            run, future = under_way.popleft()
            found = future.result()
            refill()
            yield run, found
    finally:
        # Whatever ended this: nothing new begins, and what is under way is told to end and waited for.
        if under_way:
            halt.set()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts(halt: threading.Event) -> Iterator[None]:
    """While runs are played Ctrl-C sets `halt`, so that no run or sum is left half done; a second one ends at once.

    Only where Python's own handler is in place: an application's own handling is left alone.
    """
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not ours:
        yield
        return

    def on_interrupt(number: int, frame: Any) -> None:
        if halt.is_set():
            signal.default_int_handler(number, frame)
        halt.set()

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _shown(progress: Progress, total: int) -> Iterator[Callable[[int], object]]:
    if callable(progress):
        yield lambda done: progress(done, total)
        return
    if not progress or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("runs, time left"), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)
