"""``check_policy``: the contract that every scheduling policy keeps, as a test that anyone can run on their own."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import _compile, growing, streams
from . import engine, loop
from .contexts import table_law
from .policies import make
from .policy import Policy, Ticket, Waiting
from .systems import System

#: Parameters of the functions of a policy, beside the four that all share.
LAST = {"decide": "stream", "admit": "slot", "assigned": "ticket", "observe": "success", "expired": "ticket"}


class PolicyError(ValueError):
    """A policy breaks a rule of the contract; the message is one sentence that says which."""


def check_policy(policy: Policy | str, *, system: System | None = None) -> None:
    """Run the contract tests on one policy.

    Signatures, determinism, choices only among waiting jobs and allowed servers (whatever the mask), arguments left
    alone, state that survives being taken apart, feedback that comes late, shuffled or never, equality of the compiled
    and the interpreted run, and no second compilation.

    Parameters
    ----------
    policy : Policy or a registered name.
    system : a system to run on beside the small ones of this function.

    Raises
    ------
    PolicyError : with one sentence that names the rule broken.
    """
    policy = make(policy)
    _signatures(policy)
    systems = [_small(contexts=5, servers=3, dimension=2), _small(contexts=2, servers=1, dimension=1)]
    for small in [*systems, *([] if system is None else [system])]:
        _runs(policy, small)
    _masks_and_feedback(policy, systems[0])


def _small(contexts: int, servers: int, dimension: int) -> System:
    rng = np.random.default_rng(7)
    features = rng.normal(size=(contexts, servers, dimension))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    features[:, 0] = np.abs(features[:, 0])
    theta = np.full(dimension, 1.5)
    return table_law(
        features, theta=theta, arrival_rate=0.45, parameter_bound=3.0, feature_bound=1.0, allow_unstable=True
    )


def _fail(policy: Policy, what: str) -> PolicyError:
    return PolicyError(f"{policy.name}: {what}")


def _signatures(policy: Policy) -> None:
    for name, function in policy.functions.items():
        expected = 6 if name == "observe" else 5
        found = len(inspect.signature(getattr(function, "py_func", function)).parameters)
        if found != expected:
            raise _fail(policy, f"{name}() must take {expected} arguments, not {found}")


def _runs(policy: Policy, system: System) -> None:
    rounds = 60
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, 3, 0)
    before = [array.copy() for array in draws]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            first = engine.play(policy, shape, draws, seed=3, trace=True)
            second = engine.play(policy, shape, draws, seed=3, trace=True)
    except ValueError as error:
        raise PolicyError(str(error)) from error
    if not _same(draws, before):
        raise _fail(policy, "a run changed the arrivals, features or probabilities that all policies share")
    if not _same(first.record, second.record):
        raise _fail(
            policy, "two runs with the same seed must be the same (use the stream, not a generator of your own)"
        )
    plain = engine.play(policy, shape, draws, seed=3, trace=True, compiled=False)
    if not _same(first.record, plain.record):
        raise _fail(policy, "the compiled and the interpreted run must make the same decisions")
    if policy.rule not in engine.UNCOMPILABLE:
        entry = _compile.program(loop.run, policy.functions)
        known = len(entry.signatures)
        engine.play(policy, shape, draws, seed=4)
        if len(entry.signatures) != known:
            raise _fail(policy, "params and state must have the same types in every run, or each run compiles anew")
    arrays = growing.flatten(first.state)
    again = growing.flatten(growing.unflatten(first.state, arrays))
    if list(arrays) != list(again) or not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise _fail(policy, "state must be a named tuple of arrays (or of such named tuples)")


def _masks_and_feedback(policy: Policy, system: System) -> None:
    """Several attempts in flight, outcomes late, shuffled and missing, and servers that may not be chosen."""
    shape, draws = engine.shape_of(system, 200), engine.draw(system, 200, 5, 0)
    params, state, _ = engine.prepare(policy, shape)
    state = policy.grow_state(state, 400)
    stream = streams.policy_stream(5, 0, policy.name)
    jobs = 6
    columns = policy.new_columns(jobs, shape.servers)
    features = np.ascontiguousarray(draws.features[draws.contexts[:jobs]])
    truth = np.full((jobs, shape.servers), np.nan)
    if policy.clairvoyant:
        truth = np.ascontiguousarray(draws.probabilities[draws.contexts[:jobs]])
    rng = np.random.default_rng(1)
    seen = features.copy()
    with np.errstate(over="ignore"):
        for slot in range(jobs):
            waiting = Waiting(1, slot + 1, np.arange(jobs), slot, np.ones(shape.servers, np.bool_), features, truth)
            policy.admit(params, state, columns, waiting, slot)
        flying: list[Ticket] = []
        for t in range(2, 60):
            busy = {ticket.slot for ticket in flying}
            slots = np.array([slot for slot in range(jobs) if slot not in busy] or list(range(jobs)))
            allowed = rng.random(shape.servers) < 0.5
            allowed[rng.integers(shape.servers)] = True
            order = slots.copy()
            waiting = Waiting(t, len(slots), slots, -1, allowed.copy(), features, truth)
            slot, server, reason = policy.decide(params, state, columns, waiting, stream)
            if slot not in order:
                raise _fail(policy, f"decide() must choose a waiting job, and slot {slot} is none")
            if not 0 <= server < shape.servers or not allowed[server]:
                raise _fail(policy, f"decide() must choose an allowed server, and {server} is none")
            if not (np.array_equal(order, waiting.slots) and np.array_equal(allowed, waiting.allowed)):
                raise _fail(policy, "decide() must leave the waiting jobs as they are")
            phi = np.ascontiguousarray(features[slot, :, server])
            ticket = Ticket(t, int(slot), int(server), int(reason), phi)
            policy.assigned(params, state, columns, waiting, ticket)
            flying.append(ticket)
            while flying and (len(flying) >= 4 or rng.random() < 0.4):
                back = flying.pop(int(rng.integers(len(flying))))
                if rng.random() < 0.2:
                    policy.expired(params, state, columns, waiting, back)
                else:
                    policy.observe(params, state, columns, waiting, back, bool(rng.random() < 0.5))
    if not np.array_equal(seen, features):
        raise _fail(policy, "features belong to the caller and must not be changed")
    bad = [name for name, array in growing.flatten(state).items() if _has_nan(array)]
    if bad:
        raise _fail(policy, f"state must stay free of NaN under late and missing feedback, but {bad[0]} has some")


def _same(one: Iterable[Any], other: Iterable[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _has_nan(array: Any) -> bool:
    return bool(np.issubdtype(array.dtype, np.floating) and np.isnan(array).any())
