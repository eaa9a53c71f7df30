"""``check_policy``: the contract that every dispatching policy keeps, as a test that anyone can run on their own."""

from __future__ import annotations

import inspect
import math
import operator
import warnings
from typing import Any

import numpy as np

from .. import _compile, growing
from ..contract import PolicyError
from . import engine, loop
from .engine import Player
from .loop import MOST_REASON
from .policies import make
from .policy import CENSORED, DONE, FAILED, Outcome, Policy, Seen, Shape, Ticket
from .systems import System, schedule

#: Number of arguments of a policy's functions.
ARGUMENTS = {
    "configure": 2,
    "start": 3,
    "decide": 4,
    "assigned": 4,
    "observe": 5,
    "emptied": 3,
    "estimates": 3,
    "forget": 3,
    "believe": 6,
}

#: Decisions of one rehearsal, and jobs that may be in the system at once.
DECISIONS, PRESENT = 60, 7


def check_policy(policy: Policy | str, *, system: System | None = None) -> None:
    """Run the contract tests on one policy.

    What is checked: signatures; decisions among the servers; arguments left alone; the same decisions from the same stream;
    state that can be taken apart, saved and restored at any time; explanations that change nothing; outcomes that come late,
    shuffled, failed or censored; equality of the compiled and the interpreted run; one compilation for all systems.

    Parameters
    ----------
    policy : Policy or a registered name.
    system : a system to run on beside the small ones of this function.

    Raises
    ------
    PolicyError : with one sentence that names the rule broken.
    ValueError : no rule is registered under that name.
    """
    policy = make(policy)
    _signatures(policy)
    systems = [
        System(arrival_rate=2.0, service_rates=[1, 2]),
        System(arrival_rate=2.0, service_rates=schedule([0.0, 7.0], [[1, 3], [2, "3/2"]]), slots=[2, 1]),
    ]
    if system is not None:
        systems = [system]
    fitting = [each for each in systems if _fits(policy, each)]
    if not fitting:
        _fits(policy, systems[0], refuse=True)
    for each in fitting:
        _rehearsals(policy, each)
    entry = _compile.program(loop.run, engine.bindings(policy, simple=False), lean=True)
    _runs(policy, fitting[0])
    signatures = len(entry.signatures)
    for each in fitting[1:]:
        _runs(policy, each)
    if entry not in engine.UNCOMPILABLE and len(entry.signatures) != signatures:
        raise _fail(policy, "params and state must have the same types in every run, or each run compiles anew")


def _fail(policy: Policy, what: str) -> PolicyError:
    return PolicyError(f"{policy.name}: {what}")


def _fits(policy: Policy, system: System, refuse: bool = False) -> bool:
    """Whether the policy's options suit a system (a rule may be for two servers of constant rates only, say)."""
    try:
        engine.prepare(policy, engine.shape_of(system, policy.clairvoyant), seed=5)
    except ValueError as error:
        if refuse:
            raise PolicyError(str(error)) from error
        return False
    return True


def _signatures(policy: Policy) -> None:
    for name, expected in ARGUMENTS.items():
        function = getattr(policy, name)
        try:
            inspect.signature(getattr(function, "py_func", function)).bind(*range(expected))
        except TypeError:
            raise _fail(policy, f"{name}() must take {expected} arguments") from None
        except ValueError:  # a callable that does not say
            continue


class _Rehearsal:
    """A policy at work for an imagined router: jobs leave in any order, and some fail or are given up on."""

    def __init__(self, policy: Policy, system: System) -> None:
        self.policy = policy
        self.shape: Shape = engine.shape_of(system, policy.clairvoyant)
        self.weights = system.weights[0] if policy.clairvoyant else np.full(system.servers, math.nan)
        self.rng = np.random.default_rng(1)
        self.params, self.state, self.stream = engine.prepare(policy, self.shape, seed=5)
        for what, value in (("params", self.params), ("state", self.state)):
            if not hasattr(value, "_asdict"):
                raise _fail(policy, f"{what} must be a named tuple, not {type(value).__name__}")
        for name, array in growing.flatten(self.state).items():
            if not isinstance(array, np.ndarray):
                raise _fail(policy, f"state must be a named tuple of arrays, and {name} is a {type(array).__name__}")
        self.now, self.arrivals = 0.0, 0
        self.queue = np.zeros(system.servers, np.int64)
        self.present: list[tuple[Ticket, float]] = []

    def seen(self) -> Seen:
        """What a router would show now: jobs in service began in order of arrival."""
        began, free = np.zeros(self.shape.servers), np.full(self.shape.servers, -math.inf)
        for i in range(self.shape.servers):
            times = [time for ticket, time in self.present if ticket.server == i][: self.shape.slots[i]]
            began[i] = sum(times)
            if len(times) >= self.shape.slots[i]:
                free[i] = self.now + 1.0
        if not self.policy.clairvoyant:
            free[:] = math.nan
        return Seen(
            self.now,
            len(self.present),
            self.arrivals,
            0,
            self.queue.copy(),
            self.shape.slots.copy(),
            began,
            free,
            self.weights.copy(),
        )

    def call(self, name: str, *extra: Any) -> Any:
        """Call one function, and see that what it was shown is as it was."""
        seen = self.seen()
        before = [np.array(part) for part in seen]
        params = _copies(self.params)
        try:
            with np.errstate(over="ignore"):
                found = getattr(self.policy, name)(self.params, self.state, seen, *extra)
        except Exception as error:
            raise _fail(self.policy, f"{name}() raised {type(error).__name__} ({error})") from error
        if any(not np.array_equal(a, np.array(b), equal_nan=True) for a, b in zip(before, seen, strict=True)):
            raise _fail(self.policy, f"{name}() must not change what it is shown")
        if not _alike(params, _copies(self.params)):
            raise _fail(self.policy, f"{name}() must not change params, only the state")
        return found

    def play(self, between: Any = None) -> list[tuple[int, int]]:
        """The decisions of one rehearsal."""
        decisions: list[tuple[int, int]] = []
        for _ in range(DECISIONS):
            self.now += float(self.rng.exponential())
            while len(self.present) >= PRESENT or (self.present and self.rng.random() < 0.45):
                self._leave()
            if between is not None:
                between(self)
            self.arrivals += 1
            answer = self.call("decide", self.stream)
            try:
                server, reason = (operator.index(part) for part in answer)
            except (TypeError, ValueError):
                raise _fail(self.policy, f"decide() must return (server, reason), not {answer!r}") from None
            if not 0 <= reason <= MOST_REASON:
                raise _fail(self.policy, f"decide() must give a reason from 0 to {MOST_REASON}, not {reason}")
            if not 0 <= server < self.shape.servers:
                raise _fail(
                    self.policy, f"decide() must name a server from 0 to {self.shape.servers - 1}, not {server}"
                )
            decisions.append((server, reason))
            ticket = Ticket(server, reason, self.now)
            self.present.append((ticket, self.now))
            self.queue[server] += 1
            self.call("assigned", ticket)
        while self.present:
            self._leave()
        return decisions

    def _leave(self) -> None:
        ticket, began = self.present.pop(int(self.rng.integers(len(self.present))))
        self.now += 0.01
        self.queue[ticket.server] -= 1
        kind = int(self.rng.choice([DONE, DONE, DONE, FAILED, CENSORED]))
        self.call("observe", ticket, Outcome(kind, self.now - began, math.nan))
        if not self.present:
            self.call("emptied")

    def save_and_restore(self) -> None:
        """Take the state apart into bytes and put it together again."""
        arrays = {
            name: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape).copy()
            for name, array in growing.flatten(self.state).items()
        }
        self.state = growing.unflatten(self.state, arrays)

    def estimate(self) -> None:
        """Ask for estimates."""
        rates = np.zeros(self.shape.servers)
        try:
            _, _ = self.policy.estimates(self.params, self.state, rates)
        except (TypeError, ValueError) as error:
            raise _fail(self.policy, f"estimates() must fill rates and return (episode, within): {error}") from error

    def drift(self) -> None:
        """What a live router does: let it forget, and tell it what to believe of a server."""
        self.policy.forget(self.params, self.state, 0.5)
        if self.arrivals % 5 == 0:
            self.call("believe", self.arrivals % self.shape.servers, 3.0, 1.5)

    def explain(self) -> None:
        """Ask for an explanation."""
        if self.policy.explain is not None and not isinstance(self.call("explain"), dict):
            raise _fail(self.policy, "explain() must return a dict")


def _copies(named: Any) -> dict[str, Any]:
    return {name: np.array(value) for name, value in growing.flatten(named).items()}


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(
        np.array_equal(a, other[name], equal_nan=bool(np.issubdtype(a.dtype, np.floating))) for name, a in one.items()
    )


def _rehearsals(policy: Policy, system: System) -> None:
    rehearsal = _Rehearsal(policy, system)
    decisions = rehearsal.play()
    drifting = _Rehearsal(policy, system)
    drifting.play(_Rehearsal.drift)
    for state, whatever in ((rehearsal.state, "becomes of jobs"), (drifting.state, "it forgets and believes")):
        for name, array in growing.flatten(state).items():
            if np.issubdtype(array.dtype, np.floating) and np.isnan(array).any():
                raise _fail(policy, f"state must stay free of NaN whatever {whatever}, but {name} has some")
    for between, rule in (
        (None, "two runs with the same seed must be the same (use the stream, not a generator of your own)"),
        (_Rehearsal.save_and_restore, "a state that was saved and restored must decide as the one that was not"),
        (_Rehearsal.estimate, "estimates() must not change what is decided"),
        (_Rehearsal.explain, "explain() must not change what is decided"),
    ):
        if _Rehearsal(policy, system).play(between) != decisions:
            raise _fail(policy, rule)


def _runs(policy: Policy, system: System) -> None:
    """Whole runs of one system, compiled and not."""
    times, sizes = next(engine.flows(system, 300, 3, 0))
    before = times.copy(), sizes.copy()
    played = [_play(policy, system, times, sizes, compiled) for compiled in (True, True, False)]
    if not all(np.array_equal(a, b) for a, b in zip(before, (times, sizes), strict=True)):
        raise _fail(policy, "a run changed the arrivals that all policies share")
    for other, rule in (
        (played[1], "two runs with the same seed must be the same (use the stream, not a generator of your own)"),
        (played[2], "the compiled and the interpreted run must make the same decisions"),
    ):
        if not np.array_equal(played[0], other):
            raise _fail(policy, rule)


def _play(policy: Policy, system: System, times: Any, sizes: Any, compiled: bool) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            player = Player(policy, system, np.array([len(times)]), seed=3, trace=True, compiled=compiled)
            player.advance(times, sizes)
    except ValueError as error:
        raise PolicyError(str(error)) from error
    done = int(player.tally.clock[loop.POSITION])
    return np.stack([player.record.server[:done], player.record.reason[:done]])
