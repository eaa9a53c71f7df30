"""The load tool: wrk, with a script that gives every request a time of its own.

A connection that is free waits for the next time of the schedule; with more connections than requests in flight that is an open
loop, whatever the arrivals, and the same ones for every rule. What was late is told.

Why wrk, of what Debian and PyPI have (300 requests a second for ten seconds to a backend that answers at once): it takes
2 % of a core, keeps every time to half a millisecond, tells microseconds, and closes the loop too. hey and h2load cost as
little but send in step (a median of 5 and 2 ms where wrk finds 0.14), and no other times; httperf sends Poisson traffic,
spins at 96 % of a core, opens a connection for each request and tells no quantiles; tsung sends Poisson traffic of its
own seed at 8 %, a connection each, and comes with 96 packages; locust takes 9 %, tells milliseconds, and shares its one
thread with what it measures; aiolocust wants a newer Python.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
#: Seconds that wrk has for opening its connections before the first request.
SETTLE = 1.5


class NoToolError(RuntimeError):
    """The load tool is not installed."""


def tool() -> str:
    """Where wrk is. Raises NoToolError."""
    found = shutil.which("wrk")
    if found is None:
        raise NoToolError("the test bed's load tool is not here: install the Debian package wrk (apt-get install wrk)")
    return found


@dataclass
class Answers:
    """What came back, by request. scheduled, sent, answered : seconds after zero, NaN for never · status : 0 for no answer ·
    server : as the proxy named it."""

    scheduled: NDArray[np.float64]
    sent: NDArray[np.float64]
    answered: NDArray[np.float64]
    status: NDArray[np.int64]
    server: NDArray[np.object_]

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which were served."""
        return np.asarray(self.status == 200)

    @property
    def delay(self) -> NDArray[np.float64]:
        """Seconds from the time a request was meant to be sent at until its answer was complete; NaN for none."""
        return self.answered - self.scheduled

    @property
    def latency(self) -> NDArray[np.float64]:
        """Seconds from sending to the whole answer; NaN for none."""
        return self.answered - self.sent


class OpenLoop:
    """A run of the tool that goes on by itself until every request is answered, or `patience` seconds after the last one.

    times : seconds after `zero`, a time of the monotonic clock · sizes : work of each request, None where the backends decide ·
    connections : how many may be in flight before one has to wait · model : that is asked for · stream : whether for chunks.
    """

    def __init__(
        self,
        url: str,
        times: NDArray[np.float64],
        sizes: NDArray[np.float64] | None,
        zero: float,
        *,
        connections: int = 256,
        patience: float = 10.0,
        model: str = "small",
        stream: bool = False,
    ) -> None:
        self.times = times
        self.folder = tempfile.TemporaryDirectory(prefix="queuewise-bed-")
        schedule, self.out = Path(self.folder.name) / "schedule", Path(self.folder.name) / "out"
        words = ["-"] * len(times) if sizes is None else [f"{size:.9g}" for size in sizes]
        lines = [f"{zero!r} {'stream' if stream else 'whole'} {model}"]
        lines += [f"{when:.6f} {word}" for when, word in zip(times, words, strict=True)]
        schedule.write_text("\n".join(lines) + "\n")
        seconds = int(np.ceil(zero - time.monotonic() + float(times[-1]) + patience))
        self.limit = seconds + 30
        self.process = subprocess.Popen(
            [
                *(tool(), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", f"{seconds}s"),
                *("-s", str(HERE / "open.lua"), url, "--", str(schedule), str(self.out)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait(self) -> Answers:
        """Until it has ended. Raises RuntimeError with what the tool said where it failed."""
        try:
            said, _ = self.process.communicate(timeout=self.limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            said, _ = self.process.communicate()
        if self.process.returncode or not self.out.exists():
            raise RuntimeError(f"wrk ended with {self.process.returncode}: {said.strip()}")
        count = len(self.times)
        sent, answered = np.full(count, np.nan), np.full(count, np.nan)
        status, server = np.zeros(count, np.int64), np.full(count, "-", object)
        for line in self.out.read_text().splitlines():
            number, began, ended, code, name = line.split(" ")
            if number != "-":
                at = int(number)
                sent[at], answered[at], status[at], server[at] = float(began), float(ended), int(code), name
        self.folder.cleanup()
        return Answers(self.times, sent, answered, status, server)


def closed_loop(url: str, connections: int, seconds: float) -> dict[str, Any]:
    """As many requests as `connections` get through, one after the other each."""
    command = [
        *(tool(), "-t1", f"-c{connections}", f"-d{int(np.ceil(seconds))}s", "--latency", "--timeout", "20s"),
        *("-s", str(HERE / "closed.lua"), url),
    ]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 60).stdout
    found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return found
