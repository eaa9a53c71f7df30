"""Playing one run of one policy: room for state and jobs, the compiled loop, and what it wrote down."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import _compile, streams
from ..rule import prepare as prepare
from . import loop
from .loop import Queue, Record
from .policy import Policy
from .policy import Shape as Shape
from .systems import Draw, System, inverse_slope

#: Slots that a run starts with room for; they double when full.
FIRST_SLOTS = 64
#: Rounds between two looks at whether the state has room for the attempts to come.
ROUNDS_AT_ONCE = 2048


class Played(NamedTuple):
    """One run of one policy: what was recorded, and the policy's final state, columns and parameters."""

    record: Record
    params: Any
    state: Any
    columns: Any
    queue: Queue


def shape_of(system: System, rounds: int) -> Shape:
    """What a policy may know of a system before it starts."""
    return Shape(
        servers=system.servers,
        dimension=system.dimension,
        rounds=rounds,
        arrival_rate=system.arrival_rate,
        parameter_bound=system.parameter_bound,
        feature_bound=system.feature_bound,
        kappa=inverse_slope(system.parameter_bound * system.feature_bound),
        suggested_radius=_number(system.suggested_radius),
        suggested_initial_design=_number(system.suggested_initial_design),
        context_slack=system.context_slack().value,
        capacity_slack=system.capacity_slack().value,
        max_attempts=system.max_attempts or 0,
        blocks=system.blocks,
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def draw(system: System, rounds: int, seed: int, run: int) -> Draw:
    """The arrivals, contexts and service uniforms of one run, each from its own stream."""
    purposes = (streams.ARRIVALS, streams.CONTEXTS, streams.SERVICE)
    return system.draw(rounds, *(streams.generator(seed, run, purpose) for purpose in purposes))


def _record(rounds: int, jobs: int, trace: bool, gives_up: bool) -> Record:
    traced, per_job = (rounds, jobs) if trace else (0, 0)
    return Record(
        queue_length=np.zeros(rounds, dtype=np.int32),
        given_up=np.zeros(rounds if gives_up else 0, dtype=np.bool_),
        job=np.full(traced, -1, dtype=np.int32),
        server=np.full(traced, -1, dtype=np.int32),
        reason=np.full(traced, -1, dtype=np.int32),
        departure=np.zeros(traced, dtype=np.bool_),
        gap=np.zeros(traced),
        born=np.zeros(per_job, dtype=np.int32),
        gone=np.zeros(per_job, dtype=np.int32),
    )


def new_queue(slots: int, dimension: int, servers: int, max_attempts: int = 0) -> Queue:
    """An empty queue with room for so many jobs, which are given up after so many failed attempts (0: never)."""
    return Queue(
        clock=np.array([0, 0, -1, slots, 0, max_attempts]),
        slots=np.zeros(slots, dtype=np.int64),
        free=np.arange(slots - 1, -1, -1),
        job=np.zeros(slots, dtype=np.int64),
        attempts=np.zeros(slots, dtype=np.int64),
        features=np.zeros((slots, dimension, servers)),
        truth=np.full((slots, servers), np.nan),
        probabilities=np.zeros((slots, servers)),
        allowed=np.ones(servers, dtype=np.bool_),
    )


def _enlarge(array: Any, length: int) -> Any:
    larger = np.zeros((length, *array.shape[1:]), dtype=array.dtype)
    larger[: array.shape[0]] = array
    return larger


def _more_slots(queue: Queue, columns: Any) -> tuple[Queue, Any]:
    """Twice the slots, all new ones free. Slots keep their numbers."""
    old = queue.slots.shape[0]
    new = 2 * old
    enlarged = {
        name: _enlarge(array, new) for name, array in queue._asdict().items() if name not in ("clock", "allowed")
    }
    grown = queue._replace(**enlarged)
    grown.truth[old:] = np.nan
    grown.free[:old] = np.arange(new - 1, old - 1, -1)
    grown.clock[3] = old
    return grown, type(columns)(*(_enlarge(column, new) for column in columns))


#: Programs that numba has refused in this process: they run as plain Python. A mended rule is another program.
UNCOMPILABLE: set[Callable[..., int]] = set()


def _entry(policy: Policy, compiled: bool) -> Callable[..., int]:
    if compiled:
        return _compile.program(loop.run, policy.functions)  # type: ignore[no-any-return]
    return _compile.interpreted(loop.run, policy.functions)


def play(
    policy: Policy,
    shape: Shape,
    draws: Draw,
    *,
    seed: int = 0,
    run: int = 0,
    trace: bool = False,
    compiled: bool = True,
) -> Played:
    """One run of one policy over given draws.

    Parameters
    ----------
    policy, shape : the policy and what it may know of the system.
    draws : arrivals, contexts, features, probabilities and service uniforms, shared by all policies of the run.
    seed, run : key of the policy's own random stream, together with its name.
    trace : whether pairs, outcomes, gaps and sojourn times are written down beside the queue lengths.
    compiled : False runs the same source as plain Python (slow; for debugging and for policies numba refuses).

    Raises
    ------
    ValueError : an option is out of range, or the policy chose a job that does not wait or a server there is not.
    """
    rounds, jobs = draws.arrivals.shape[0], draws.contexts.shape[0]
    params, state, stream = prepare(policy, shape, seed, run)
    queue = new_queue(FIRST_SLOTS, shape.dimension, shape.servers, shape.max_attempts)
    columns = policy.new_columns(FIRST_SLOTS, shape.servers)
    record = _record(rounds, jobs, trace, shape.max_attempts > 0)
    entry = _entry(policy, compiled)
    if entry in UNCOMPILABLE:
        compiled, entry = False, _entry(policy, False)
    done, room, counted, attempts = 0, 0, 0, 0
    while done < rounds:
        if queue.clock[3] == 0:
            queue, columns = _more_slots(queue, columns)
        if done >= room:
            room = min(rounds, done + ROUNDS_AT_ONCE)
            attempts += int(np.count_nonzero(record.queue_length[counted:done]))  # one in every busy round
            counted = done
            state = policy.grow_state(state, attempts + room - done + 2)
        arguments = (params, state, columns, queue, draws, record, stream, room, policy.clairvoyant)
        if compiled:
            try:
                _compile.compile_for(entry, arguments)
            except Exception as error:  # whatever it was that numba stumbled over, it is not the run's doing
                first_line = _compile.reason(error)
                warnings.warn(
                    f"{policy.name}: numba cannot compile this policy, so it runs as plain Python, about 100 times "
                    f"slower ({first_line})",
                    RuntimeWarning,
                    stacklevel=2,
                )
                UNCOMPILABLE.add(entry)
                return play(policy, shape, draws, seed=seed, run=run, trace=trace, compiled=False)
            done = entry(*arguments)
        else:
            with np.errstate(over="ignore"):  # the random stream's arithmetic wraps around by design
                done = entry(*arguments)
        if done < 0:
            raise ValueError(
                f"{policy.name}: decide() of round {-done} named a job that does not wait or a server outside "
                f"0..{shape.servers - 1}"
            )
    return Played(record, params, state, columns, queue)
