"""One scenario, all rules at once: the same requests at the same times through one proxy, each rule with backends of its own.

All rules run side by side, so whatever the machine is busy with meets all of them. And the same requests are played in
virtual time, rule by rule, so that there is a number to expect.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.live import virtual

from .backends import Backends
from .driver import SETTLE, Answers, OpenLoop
from .proxy import Proxy, processor_time, slug
from .scenarios import Scenario, behaviour

#: Rules by what they do: a policy's name, or a class of `tests.live.virtual`.
RULES = {
    "known rates": "TrueSed",
    "router": "optimistic_sed",
    "latency x in flight": "LatencyTimesInFlight",
    "least connections": "jsq",
    "round robin": "round_robin",
    "random": "random",
}
#: What plays the same rule in virtual time.
_TWINS = {"optimistic_sed": "Routed", "jsq": "LeastConnections", "round_robin": "RoundRobin", "random": "Random"}
#: Requests that may be in flight: rules that know nothing of load pile up hundreds at the slowest backend, and one that takes
#: an unseen backend for the fastest does so where there are many.
_ROOM = {"round robin": 1200, "random": 1200, "latency x in flight": 1200}
#: Times that virtual time plays the requests of a run.
PLAYED = 10
#: Seconds after the last arrival, after which what has not been answered is given up.
PATIENCE = 5.0


@dataclass
class Outcome:
    """Of one rule in one run, on sockets and as virtual time has it. arrived, delay : seconds, of all requests; where none came
    back until the end, what it had waited by then · ok : whether served, or still waiting at the end · server : its index, −1
    where none came back · waiting : how many were · own_errors : answers that no backend has given."""

    arrived: NDArray[np.float64]
    delay: NDArray[np.float64]
    ok: NDArray[np.bool_]
    server: NDArray[np.int64]
    learned: NDArray[np.bool_]
    waiting: int = 0
    own_errors: int = 0

    def mean(self, chosen: NDArray[np.bool_] | None = None) -> float:
        """Mean delay of those served, of all requests or of the chosen ones."""
        which = self.ok if chosen is None else self.ok & chosen
        return float(self.delay[which].mean())

    @property
    def after(self) -> float:
        """Mean delay after learning."""
        return self.mean(self.learned)

    @property
    def failed(self) -> float:
        """Share of the requests that failed."""
        return float(1.0 - self.ok.mean())

    def share(self, server: int, since: float, until: float) -> float:
        """Of the requests of a stretch that came back, those that a server had."""
        inside = (self.arrived >= since) & (self.arrived < until) & (self.server >= 0)
        return float((self.server[inside] == server).mean()) if inside.any() else np.nan


@dataclass
class Compared:
    """A scenario's run. sockets, virtual : rule → outcome · late : of the load tool, seconds: mean, 99 % quantile, largest ·
    spent : seconds of processor time a request of the proxy, of the backends."""

    scenario: Scenario
    seconds: float
    sockets: dict[str, Outcome]
    virtual: dict[str, Outcome]
    late: tuple[float, float, float]
    spent: tuple[float, float]


def compare(scenario: Scenario, seconds: float, seed: int, patience: float = PATIENCE) -> Compared:
    """Runs it: `seconds`, and a few more."""
    times, sizes = scenario.demand(int(1.2 * scenario.rate * seconds) + 100, seed)
    inside = times < seconds
    times, sizes = times[inside], sizes[inside]
    backends = scenario.lasting(seconds)
    behaviours = {f"{slug(rule)}.b{i}": behaviour(one, seed + i) for rule in RULES for i, one in enumerate(backends)}
    with contextlib.ExitStack() as stack:
        bed = stack.enter_context(Backends(behaviours))
        proxy = stack.enter_context(Proxy(RULES, scenario, bed.url, seconds, seed))
        before = proxy.spent(), processor_time(bed.pid)
        zero = time.monotonic() + SETTLE
        bed.start(zero)
        proxy.start(zero)
        running = {
            rule: OpenLoop(
                *(proxy.url, times, sizes, zero),
                connections=_ROOM.get(rule, 256),
                patience=patience,
                model=proxy.model[rule],
            )
            for rule in RULES
        }
        answers = {rule: one.wait() for rule, one in running.items()}
        spent = (
            (proxy.spent() - before[0]) / len(times) / len(RULES),
            (processor_time(bed.pid) - before[1]) / len(times) / len(RULES),
        )
    end = seconds + patience
    learned = scenario.learned(times, seconds)
    sockets = {rule: _outcome(one, end, learned) for rule, one in answers.items()}
    twins = {rule: _twin(kind, backends, times, sizes, end, learned, seed) for rule, kind in RULES.items()}
    late = np.concatenate([one.sent - one.scheduled for rule, one in answers.items() if rule not in _ROOM])
    late = late[np.isfinite(late)]
    lateness = float(late.mean()), float(np.quantile(late, 0.99)), float(late.max())
    return Compared(scenario, seconds, sockets, twins, lateness, spent)


def _outcome(answers: Answers, end: float, learned: NDArray[np.bool_]) -> Outcome:
    waiting = answers.status == 0
    delay = np.where(waiting, end - answers.scheduled, answers.delay)
    server = np.array([int(name[1:]) if name != "-" else -1 for name in answers.server])
    own = int(np.isin(answers.status, [0, 200, 500], invert=True).sum())
    return Outcome(answers.scheduled, delay, answers.ok | waiting, server, learned, int(waiting.sum()), own)


def _twin(
    kind: str,
    backends: list[virtual.Backend],
    times: NDArray[np.float64],
    sizes: NDArray[np.float64],
    end: float,
    learned: NDArray[np.bool_],
    seed: int,
) -> Outcome:
    """The same requests several times over: ties, and what is random, fall differently each time."""
    rule: Any = getattr(virtual, _TWINS.get(kind, kind))
    played = [virtual.play(rule(backends, seed + k), backends, times, sizes, seed) for k in range(PLAYED)]
    arrived, sojourn = (np.concatenate([getattr(one, name) for one in played]) for name in ("arrived", "sojourn"))
    ok, server = (np.concatenate([getattr(one, name) for one in played]) for name in ("ok", "server"))
    waiting = int((arrived + sojourn > end).sum()) // PLAYED
    return Outcome(arrived, np.minimum(sojourn, end - arrived), ok, server, np.tile(learned, PLAYED), waiting)
