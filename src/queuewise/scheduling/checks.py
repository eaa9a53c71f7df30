"""``check_policy``: the contract that every scheduling policy keeps, as a test that anyone can run on their own."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import _compile, growing
from ..contract import PolicyError
from . import engine, loop
from .contexts import table_law
from .policies import make
from .policy import Policy, Shape, Ticket, Waiting
from .systems import Draw, System

#: Number of arguments of a policy's functions.
ARGUMENTS = {"configure": 2, "start": 3, "decide": 5, "admit": 5, "assigned": 5, "observe": 6, "expired": 5}

#: Decisions of one rehearsal, jobs that it has room for, and attempts that may be in flight at once.
DECISIONS, ROOM, IN_FLIGHT = 48, 6, 4


def check_policy(policy: Policy | str, *, system: System | None = None) -> None:
    """Run the contract tests on one policy.

    What is checked: signatures; decisions among waiting jobs and allowed servers, whatever the mask; arguments left
    alone; the same decisions from the same stream; state that can be taken apart, saved, restored and given more room
    at any time; explanations that change nothing; several attempts in flight, whose outcomes come late, shuffled or
    never, also while nothing waits; equality of the compiled and the interpreted run; one compilation for all systems.

    Parameters
    ----------
    policy : Policy or a registered name.
    system : a system to run on beside the small ones of this function (several servers, one server, one dimension, a
        queue of hardly ever more than one job, a queue that grows).

    Raises
    ------
    PolicyError : with one sentence that names the rule broken.
    ValueError : no rule is registered under that name.
    """
    policy = make(policy)
    _signatures(policy)
    systems = [
        _small(contexts=5, servers=3, dimension=2, arrival_rate=0.45),
        _small(contexts=2, servers=1, dimension=1, arrival_rate=0.45),
        _small(contexts=3, servers=2, dimension=1, arrival_rate=0.05),
    ]
    if system is not None:
        systems.append(system)
    for each in systems:
        _rehearsals(policy, each)
    compiled: list[int] = []
    for each in systems:
        _runs(policy, each, compiled)


def _small(contexts: int, servers: int, dimension: int, arrival_rate: float) -> System:
    """A system with slack of both kinds: the first server succeeds more often than not."""
    rng = np.random.default_rng(7)
    features = rng.normal(size=(contexts, servers, dimension))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    features[:, 0] = np.abs(features[:, 0])
    theta = np.full(dimension, 1.5)
    return table_law(
        features, theta=theta, arrival_rate=arrival_rate, parameter_bound=3.0, feature_bound=1.0, allow_unstable=True
    )


def _fail(policy: Policy, what: str) -> PolicyError:
    return PolicyError(f"{policy.name}: {what}")


def _signatures(policy: Policy) -> None:
    for name, expected in ARGUMENTS.items():
        function = getattr(policy, name)
        try:
            signature = inspect.signature(getattr(function, "py_func", function))
        except (TypeError, ValueError):  # a callable that does not say
            continue
        try:
            signature.bind(*range(expected))
        except TypeError:
            found = len(signature.parameters)
            raise _fail(policy, f"{name}() must take {expected} arguments, not {found}") from None


# --- rehearsals: the policy's functions called one by one, as a live scheduler calls them ----------------------------


class _Rehearsal:
    """A policy at work for an imagined caller with masks and attempts in flight; every call is watched."""

    def __init__(self, policy: Policy, system: System) -> None:
        self.policy = policy
        self.rng = np.random.default_rng(1)  # the caller's: masks, arrivals, outcomes and their order
        self.shape: Shape = engine.shape_of(system, DECISIONS)
        self.law: Draw = engine.draw(system, 400, 5, 0)
        self.params, self.state, self.stream = _prepared(policy, self.shape)
        self._check_state()
        # Each attempt is assigned and answered: two moves of what is known.
        self.state = policy.grow_state(self.state, 4 * DECISIONS)
        self.columns = policy.new_columns(ROOM, self.shape.servers)
        # What is not there is NaN, or a slot that is none, so that looking at it shows.
        self.features = np.full((ROOM, self.shape.dimension, self.shape.servers), np.nan)
        self.truth = np.full((ROOM, self.shape.servers), np.nan)
        self.waiting: list[int] = []
        self.flying: list[Ticket] = []
        self.newest = -1
        self.round = 0
        self.arrived = 0
        self.decisions: list[tuple[int, int, int]] = []

    def play(self, between: Callable[[_Rehearsal], None] = lambda rehearsal: None) -> list[tuple[int, int, int]]:
        """All decisions; `between` is called before each of them, and once the attempt is under way."""
        while len(self.decisions) < DECISIONS:
            self.round += 1
            t = self.round
            if self.waiting and len(self.flying) < IN_FLIGHT:
                between(self)
                self._decide(t)
                between(self)
            self.newest = -1
            while self.flying and (len(self.flying) == IN_FLIGHT or self.rng.random() < 0.4):
                self._answer(t)
            if t % 11 == 0:  # every outcome is in while nothing waits
                kept, self.waiting = self.waiting, []
                while self.flying:
                    self._answer(t, kept)
                self.waiting = sorted(kept)
            if self.rng.random() < 0.8 or not self.waiting + self.flying:
                self._arrive(t)
        return self.decisions

    def seen(self, t: int, allowed: np.ndarray[Any, Any] | None = None) -> Waiting:
        """The queue as the policy sees it. Slots beyond the waiting jobs are −1."""
        slots = np.full(ROOM, -1, dtype=np.int64)
        slots[: len(self.waiting)] = self.waiting
        if allowed is None:
            allowed = np.ones(self.shape.servers, dtype=np.bool_)
        return Waiting(t, len(self.waiting), slots, self.newest, allowed, self.features, self.truth)

    def _mask(self) -> np.ndarray[Any, Any]:
        servers = self.shape.servers
        allowed = np.ones(servers, dtype=np.bool_)
        kind = len(self.decisions) % 3
        if kind:
            allowed = self.rng.random(servers) < (0.5 if kind == 1 else 0.0)
            allowed[self.rng.integers(servers)] = True  # at times this one alone
        return np.asarray(allowed, dtype=np.bool_)

    def _decide(self, t: int) -> None:
        allowed = self._mask()
        waiting = self.seen(t, allowed.copy())
        chosen = self._call("decide", waiting, self.stream)
        try:
            slot, server, reason = chosen
        except (TypeError, ValueError):
            raise _fail(self.policy, f"decide() must return (slot, server, reason), not {chosen!r}") from None
        if not all(_is_whole(number) for number in (slot, server, reason)):
            what = f"({slot!r}, {server!r}, {reason!r})"
            raise _fail(self.policy, f"decide() must return three whole numbers (slot, server, reason), not {what}")
        if slot not in self.waiting:
            raise _fail(self.policy, f"decide() must choose a waiting job, and slot {slot} does not wait")
        if not 0 <= server < self.shape.servers or not allowed[server]:
            raise _fail(self.policy, f"decide() must choose an allowed server, and server {server} is not allowed")
        slot, server, reason = int(slot), int(server), int(reason)
        self.decisions.append((slot, server, reason))
        ticket = Ticket(t, slot, server, reason, np.ascontiguousarray(self.features[slot, :, server]))
        self._call("assigned", waiting, ticket)
        self.flying.append(ticket)
        self.waiting.remove(slot)

    def _answer(self, t: int, put_back: list[int] | None = None) -> None:
        """Some attempt in flight comes to its end, not the oldest first: one in five never is answered."""
        ticket = self.flying.pop(int(self.rng.integers(len(self.flying))))
        success = False
        if self.rng.random() < 0.2:
            self._call("expired", self.seen(t), ticket)
        else:
            success = bool(self.rng.random() < 0.5)
            self._call("observe", self.seen(t), ticket, success)
        if success:
            self.features[ticket.slot] = np.nan
            self.truth[ticket.slot] = np.nan
        else:
            back = self.waiting if put_back is None else put_back
            back.append(ticket.slot)
            back.sort()

    def _arrive(self, t: int) -> None:
        taken = {*self.waiting, *(ticket.slot for ticket in self.flying)}
        free = [slot for slot in range(ROOM) if slot not in taken]
        if not free:
            return
        slot, row = free[0], self.law.contexts[self.arrived % len(self.law.contexts)]
        self.arrived += 1
        self.features[slot] = self.law.features[row]
        if self.policy.clairvoyant:
            self.truth[slot] = self.law.probabilities[row]
        self.waiting.append(slot)
        self.newest = slot
        self._call("admit", self.seen(t), slot)

    def _call(self, name: str, waiting: Waiting, *rest: Any) -> Any:
        """One call of the policy's function `name`, which may change state, columns and its stream, and nothing else."""
        kept = {field: _copy(value) for field, value in waiting._asdict().items()}
        ticket = _copy(rest[0].features) if name in ("assigned", "observe", "expired") else None
        params = [_copy(value) for value in self.params]
        try:
            with np.errstate(over="ignore"):
                result = getattr(self.policy, name)(self.params, self.state, self.columns, waiting, *rest)
        except Exception as error:
            raise _fail(self.policy, f"{name}() raised {_said(error)}") from error
        for field, value in waiting._asdict().items():
            if not _equal(value, kept[field]):
                what = "features belong to the caller and" if field == "features" else f"waiting.{field}"
                raise _fail(self.policy, f"{name}() changed its arguments: {what} must be left alone")
        if ticket is not None and not _equal(rest[0].features, ticket):
            raise _fail(self.policy, f"{name}() changed its arguments: ticket.features must be left alone")
        if not all(_equal(value, before) for value, before in zip(self.params, params, strict=True)):
            raise _fail(self.policy, f"{name}() changed params, which never change; what is learned belongs to state")
        return result

    def _check_state(self) -> None:
        for what, value in (("params", self.params), ("state", self.state)):
            if not hasattr(value, "_fields"):
                raise _fail(self.policy, f"{what} must be a named tuple, not {type(value).__name__}")
        arrays = growing.flatten(self.state)
        bad = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
        if bad:
            raise _fail(
                self.policy,
                f"state must be a named tuple of arrays (or of such named tuples), and {bad[0]} is of type "
                f"{type(arrays[bad[0]]).__name__}",
            )

    # What may happen to a state between two decisions.

    def save_and_restore(self) -> None:
        """Take the state apart into bytes and put it together again."""
        saved = {
            name: (array.tobytes(), array.dtype.str, array.shape) for name, array in growing.flatten(self.state).items()
        }
        arrays = {
            name: np.frombuffer(data, np.dtype(kind)).reshape(shape).copy()
            for name, (data, kind, shape) in saved.items()
        }
        self.state = growing.unflatten(self.state, arrays)

    def make_room(self) -> None:
        """Room for more observations than are needed."""
        self.state = self.policy.grow_state(self.state, 4 * DECISIONS + 3 * (len(self.decisions) + 1))

    def explain(self) -> None:
        """Ask for an explanation of some waiting pair."""
        if self.policy.explain is not None and self.waiting:
            slot, server = self.waiting[-1], self.shape.servers - 1
            answer = self._call_explain(slot, server)
            if not isinstance(answer, dict) or not all(isinstance(key, str) for key in answer):
                raise _fail(self.policy, "explain() must return a dict with text keys")

    def _call_explain(self, slot: int, server: int) -> Any:
        assert self.policy.explain is not None
        try:
            with np.errstate(over="ignore"):
                waiting = self.seen(self.round)
                return self.policy.explain(self.params, self.state, self.columns, waiting, slot, server)
        except Exception as error:
            raise _fail(self.policy, f"explain() raised {_said(error)}") from error


def _rehearsals(policy: Policy, system: System) -> None:
    rehearsal = _Rehearsal(policy, system)
    decisions = rehearsal.play()
    bad = [name for name, array in growing.flatten(rehearsal.state).items() if _has_nan(array)]
    if bad:
        raise _fail(policy, f"state must stay free of NaN under late and missing feedback, but {bad[0]} has some")
    if _Rehearsal(policy, system).play() != decisions:
        raise _fail(
            policy, "two runs with the same seed must be the same (use the stream, not a generator of your own)"
        )
    for between, rule in (
        (_Rehearsal.save_and_restore, "a state that was saved and restored must decide as the one that was not"),
        (_Rehearsal.make_room, "a state that was given more room must decide as the one that was not"),
        (_Rehearsal.explain, "explain() must not change what is decided"),
    ):
        if _Rehearsal(policy, system).play(between) != decisions:
            raise _fail(policy, rule)


# --- runs: the engine's loop ------------------------------------------------------------------------------------------


def _prepared(policy: Policy, shape: Shape) -> tuple[Any, Any, Any]:
    try:
        return engine.prepare(policy, shape, seed=5)
    except ValueError as error:
        raise PolicyError(str(error)) from error


def _runs(policy: Policy, system: System, compiled: list[int]) -> None:
    """Whole runs on one system. `compiled` keeps the number of compilations after the first run of all."""
    rounds = 60
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, 3, 0)
    before = [array.copy() for array in draws]
    first, second = _play(policy, shape, draws), _play(policy, shape, draws)
    if not _same(draws, before):
        raise _fail(policy, "a run changed the arrivals, features or probabilities that all policies share")
    if not _same(first.record, second.record):
        raise _fail(
            policy, "two runs with the same seed must be the same (use the stream, not a generator of your own)"
        )
    plain = _play(policy, shape, draws, compiled=False)
    if not _same(first.record, plain.record):
        raise _fail(policy, "the compiled and the interpreted run must make the same decisions")
    empty = draws._replace(arrivals=np.zeros(rounds, dtype=np.bool_), contexts=draws.contexts[:0])
    if _play(policy, shape, empty).record.queue_length.any():
        raise _fail(policy, "a queue without arrivals must stay empty")
    if _compile.program(loop.run, policy.functions) not in engine.UNCOMPILABLE:
        entry = _compile.program(loop.run, policy.functions)
        compiled.append(len(entry.signatures))
        if compiled[-1] != compiled[0]:
            raise _fail(policy, "params and state must have the same types in every run, or each run compiles anew")


def _play(policy: Policy, shape: Shape, draws: Draw, compiled: bool = True) -> engine.Played:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return engine.play(policy, shape, draws, seed=3, trace=True, compiled=compiled)
    except ValueError as error:
        raise PolicyError(str(error)) from error


def _said(error: Exception) -> str:
    """An exception in one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__} ({lines[0]})" if lines else type(error).__name__


def _is_whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=bool(np.issubdtype(one.dtype, np.floating)))
    return one is other or bool(one == other)


def _same(one: Iterable[Any], other: Iterable[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _has_nan(array: Any) -> bool:
    return bool(np.issubdtype(array.dtype, np.floating) and np.isnan(array).any())
