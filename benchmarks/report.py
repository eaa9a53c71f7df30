"""Timing things in turn, and the rows of the report."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

#: Promises that this run did not find kept, as they were printed.
MISSED: list[str] = []


def line(what: str, measured: str, promise: str = "", *, kept: bool = True) -> None:
    """One row of the report."""
    if not kept:
        MISSED.append(f"{what}: {measured}, promised {promise}")
        promise += "   MISSED"
    print(f"  {what:<62} {measured:>16}   {promise}".rstrip(), flush=True)


def at_least(what: str, value: float, limit: float, unit: str = "", digits: int = 1, note: str = "") -> None:
    """A row with a promise from below."""
    line(what, f"{value:.{digits}f} {unit}", f"at least {limit:g}{note}", kept=value >= limit)


def at_most(what: str, value: float, limit: float, unit: str = "", digits: int = 2, note: str = "") -> None:
    """A row with a promise from above."""
    line(what, f"{value:.{digits}f} {unit}", f"at most {limit:g} {unit}{note}".rstrip(), kept=value <= limit)


def timed(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def fastest(function: Callable[[], Any], repeats: int = 5) -> float:
    """The least of several timings, in seconds, after one call that is not counted."""
    function()
    return min(timed(function) for _ in range(repeats))


def in_turn(*functions: Callable[[], Any], repeats: int = 7) -> list[list[float]]:
    """[function][round], seconds: every function once uncounted, then all of them in turn, round after round."""
    for function in functions:
        function()
    rounds = [[timed(function) for function in functions] for _ in range(repeats)]
    return [list(times) for times in zip(*rounds, strict=True)]


def ratio(slow: Sequence[float], quick: Sequence[float], work: float = 1.0) -> float:
    """The median over rounds of slow/quick; `work` : how much more the quick one does in a call."""
    return work * median(a / b for a, b in zip(slow, quick, strict=True))


def in_a_new_process(code: str, cache: str | None = None) -> str:
    """What a program printed. `cache` : a folder for compiled code of its own."""
    environment = dict(os.environ) if cache is None else {**os.environ, "QUEUEWISE_CACHE": cache}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return done.stdout
