"""Playing one run: what arrives, in chunks that all policies share, and each policy's system of queues."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _compile, streams
from ..rule import prepare as prepare
from . import loop, theory
from .arrivals import Recorded
from .choice import INDEX_FROM, LOWEST, build_index
from .loop import Flow, Jobs, Record, Servers, Tally, Truth
from .policy import Policy, Shape
from .systems import System

Ints = NDArray[np.int64]

#: Arrivals of one chunk, and where every server has sizes of its own.
CHUNK, OWN_CHUNK = 1 << 15, 1 << 12
#: Jobs that a run starts with room for; doubled when full.
FIRST_JOBS = 256
#: c₁ of m(k) = ⌊c₁ ln k⌋, a parameter of the paper's analysis alone (LASED, section 3.3).
DEPTH = 5.0

#: Ways to run a policy, the quickest first; where numba refuses one the next is taken.
LEAN, COMPILED, PLAIN = "lean", "compiled", "plain"
#: Programs that numba has refused in this process.
UNCOMPILABLE: set[Callable[..., int]] = set()


def shape_of(system: System, clairvoyant: bool, seed: int = 0, run: int = 0) -> Shape:
    """What a policy may know of a system before a run starts."""
    rates = system.rates[0] / float(system.service.mean) if clairvoyant else np.full(system.servers, math.nan)
    beliefs = system.beliefs(streams.generator(seed, run, streams.INSTANCE))
    return Shape(system.servers, system.slot_counts.copy(), system.rate, rates, beliefs, system.most_in_system)


def truth_of(system: System, depth: float = DEPTH) -> Truth:
    """The servers, for the loop."""
    ratio = system.ratio
    gaps = np.zeros(0) if ratio is None else theory.ratio_gaps(ratio, math.ceil(25.0 * depth) + 1).copy()
    return Truth(
        system.slot_counts,
        system.rates,
        system.weights,
        system.change_times,
        np.full(system.servers, math.nan),
        gaps,
        math.nan if ratio is None else float(ratio),
        depth,
    )


def flows(
    system: System, arrivals: int, seed: int, run: int, chunk: int = CHUNK
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """The arrival times and sizes of one run, chunk by chunk. A recorded trace may end before `arrivals` are reached."""
    source = system.arrivals.start(system.rate, streams.generator(seed, run, streams.ARRIVALS))
    rng = streams.generator(seed, run, streams.SERVICE)
    recorded = system.service.recorded
    done, before = 0, 0.0
    ours = type(system.arrivals).__module__ == Recorded.__module__
    while done < arrivals:
        asked = min(chunk, arrivals - done)
        times = _checked_times(source.take(asked), asked, before, ours)
        if not len(times):
            return
        before = float(times[-1])
        if recorded is None:
            sizes = system.service.sizes(rng, len(times))
        else:
            sizes = recorded[done : done + len(times)]
            if len(sizes) < len(times):
                raise ValueError(f"service: {len(recorded)} recorded sizes are too few for {arrivals} arrivals")
        yield times, np.ascontiguousarray(sizes)
        done += len(times)


def _checked_times(given: Any, asked: int, before: float, ours: bool) -> NDArray[np.float64]:
    """Arrival times as the loop takes them on trust: in order, finite, no more than were asked for. Those of this package's
    processes are in order by construction."""
    times = np.ascontiguousarray(given, dtype=np.float64)
    if times.ndim != 1 or len(times) > asked:
        raise ValueError(
            f"arrivals: take({asked}) must return at most {asked} times, not an array of shape {times.shape}"
        )
    if len(times) and not (before <= times[0] and times[-1] < math.inf and (ours or (times[1:] >= times[:-1]).all())):
        raise ValueError("arrivals: times must be finite, at least 0, and in order")
    return times


def last_arrival(system: System, arrivals: int) -> int:
    """How many arrivals a run can have."""
    return min(arrivals, len(system.arrivals.times)) if isinstance(system.arrivals, Recorded) else arrivals


def _checked(policy: Policy) -> Callable[..., tuple[int, int]]:
    """A policy's decisions in plain Python, where nobody else looks at their types."""

    def decide(*arguments: Any) -> tuple[int, int]:
        answer = policy.decide(*arguments)
        try:
            server, reason = (operator.index(part) for part in answer)
        except (TypeError, ValueError):
            raise ValueError(
                f"{policy.name}: decide() must return (server, reason), whole numbers, not {answer!r}"
            ) from None
        return server, reason

    return decide


def bindings(policy: Policy, simple: bool) -> dict[str, Callable[..., Any]]:
    """What the loop's placeholders stand for in the program of one policy."""
    return {**policy.functions, "is_simple": loop.yes if simple else loop.no}


def _entry(policy: Policy, how: str, simple: bool) -> Callable[..., int]:
    bound = bindings(policy, simple)
    if how == PLAIN:
        return _compile.interpreted(loop.run, {**bound, "decide": _checked(policy)})
    return _compile.program(loop.run, bound, lean=how == LEAN)  # type: ignore[no-any-return]


def _is_simple(system: System, own_sizes: bool, trace: bool, listen: bool) -> bool:
    """Whether a run needs no more than :func:`loop.is_simple` says."""
    one_slot = int(system.slot_counts.max()) == 1 and len(system.change_times) == 1
    return one_slot and system.servers < INDEX_FROM and not (own_sizes or trace or listen)


class Player:
    """One policy in one run: its state, its queues, and what is written down of them.

    Parameters
    ----------
    policy, system : the rule and the truth.
    marks : int64[m], increasing numbers of arrivals after which a row is written.
    seed, run : key of the policy's own random stream, together with its name.
    own_sizes : whether service times belong to each server's sequence instead of to the jobs.
    trace : whether every job of the last chunk is written down · listen : whether its sojourn time is.
    compiled : False runs the same source as plain Python.
    depth : c₁ of m(k).
    """

    def __init__(
        self,
        policy: Policy,
        system: System,
        marks: Ints,
        *,
        seed: int = 0,
        run: int = 0,
        own_sizes: bool = False,
        trace: bool = False,
        listen: bool = False,
        compiled: bool = True,
        depth: float = DEPTH,
    ) -> None:
        n = system.servers
        self.policy, self.system = policy, system
        self.params, self.state, self.stream = prepare(
            policy, shape_of(system, policy.clairvoyant, seed, run), seed, run
        )
        self.stable = True
        self._truth = truth_of(system, depth)
        self._trace, self._listen = trace, listen
        self._how = PLAIN
        if compiled:
            self._how = COMPILED if _compile.calls_compiled(policy.functions.values()) else LEAN
        self._simple = _is_simple(system, own_sizes, trace, listen)
        self._entry = _entry(policy, self._how, self._simple)
        while self._entry in UNCOMPILABLE:
            self._next_way()
        chunk = OWN_CHUNK if own_sizes else CHUNK
        self._own = np.zeros((n, chunk if own_sizes else 0))
        self._own_rngs = [streams.generator(seed, run, streams.SERVICE, 1 + i) for i in range(n)] if own_sizes else []
        self._jobs = _new_jobs(FIRST_JOBS)
        self.servers = _new_servers(system)
        if own_sizes:
            self.servers.used[:] = chunk
        self.tally = Tally(
            np.zeros(8, np.int64), np.zeros(4), np.zeros(3, np.int64), np.zeros(n, np.int64), np.zeros(n)
        )
        self.tally.clock[loop.FREE] = FIRST_JOBS
        fields = loop.PER_SERVER + 2 * n
        self.record = Record(
            np.ascontiguousarray(marks, dtype=np.int64),
            np.full((len(marks), fields), math.nan),
            np.full((len(marks), n), math.nan),
            *_columns(chunk, trace, listen),
        )

    def advance(self, times: NDArray[np.float64], sizes: NDArray[np.float64]) -> None:
        """Play one chunk. Does nothing once the system has overflowed. `record` then holds the chunk's columns.

        Raises ValueError where the policy names a server that there is not."""
        if not self.stable:
            return
        if self._own_rngs and len(times) > self._own.shape[1]:
            raise ValueError(f"times: at most {self._own.shape[1]} arrivals at a time where sizes belong to servers")
        if (len(times) > len(self.record.server) and self._trace) or (
            len(times) > len(self.record.sojourn) and self._listen
        ):
            self.record = self.record._replace(
                **dict(zip(Record._fields[3:], _columns(len(times), self._trace, self._listen), strict=True))
            )
        self._refill()
        self.tally.clock[loop.POSITION] = 0
        flow = Flow(times, sizes, self._own)
        while True:
            status = self._call(flow)
            if status == loop.DONE_WITH_CHUNK:
                return
            if status == loop.UNSTABLE:
                self.stable = False
                return
            if status == loop.NO_SUCH_SERVER:
                raise ValueError(
                    f"{self.policy.name}: decide() of arrival {self.tally.clock[loop.ARRIVED] + 1} named a server outside "
                    f"0..{self.system.servers - 1}, or a reason outside 0..{loop.MOST_REASON}"
                )
            self._more_room()

    def _call(self, flow: Flow) -> int:
        arguments = (
            self.params,
            self.state,
            self._truth,
            flow,
            self._jobs,
            self.servers,
            self.tally,
            self.record,
            self.stream,
            self.system.most_in_system,
            self.policy.clairvoyant,
        )
        if self._how == PLAIN:
            with np.errstate(over="ignore"):  # the random stream's arithmetic wraps around by design
                return self._entry(*arguments)
        try:
            _compile.compile_for(self._entry, arguments)
        except Exception as error:  # whatever it was that numba stumbled over, it is not the run's doing
            UNCOMPILABLE.add(self._entry)
            self._next_way()
            if self._how == PLAIN:
                warnings.warn(
                    f"{self.policy.name}: numba cannot compile this policy, so it runs as plain Python, about 100 times "
                    f"slower ({_compile.reason(error)})",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return self._call(flow)
        return self._entry(*arguments)

    def _next_way(self) -> None:
        """Numba has refused this one."""
        self._how = COMPILED if self._how == LEAN else PLAIN
        self._entry = _entry(self.policy, self._how, self._simple)

    def _refill(self) -> None:
        """Replace the sizes that each server has used, keeping the others in order."""
        for i, rng in enumerate(self._own_rngs):
            used = int(self.servers.used[i])
            if used:
                row = self._own[i]
                row[: len(row) - used] = row[used:]
                row[len(row) - used :] = self.system.service.sizes(rng, used)
                self.servers.used[i] = 0

    def _more_room(self) -> None:
        """Twice the room for jobs. Places keep their numbers."""
        old = len(self._jobs.departs)
        larger = _new_jobs(2 * old)
        for name, array in self._jobs._asdict().items():
            getattr(larger, name)[:old] = array
        larger.free[:old] = np.arange(2 * old - 1, old - 1, -1)
        self._jobs = larger
        self.tally.clock[loop.FREE] = old


def _columns(chunk: int, trace: bool, listen: bool) -> tuple[Any, ...]:
    traced = chunk if trace else 0
    return (
        np.zeros(chunk if listen else 0),
        np.zeros(traced, np.int32),
        np.zeros(traced, np.int8),
        np.zeros(traced, np.int8),
        np.zeros(traced),
        np.zeros(traced),
        np.zeros(traced),
    )


def _new_jobs(room: int) -> Jobs:
    return Jobs(
        np.zeros(room),
        np.zeros(room),
        np.zeros(room),
        np.zeros(room),
        np.zeros(room, np.int8),
        np.full(room, -1, np.int64),
        np.full(room, -1, np.int64),
        np.arange(room - 1, -1, -1),
    )


def _new_servers(system: System) -> Servers:
    n = system.servers
    leaves = 1
    while leaves < n:
        leaves *= 2
    many = n >= INDEX_FROM
    tree = np.full(2 * leaves if many else 0, -1, np.int64)
    best = tree.copy()
    servers = Servers(
        np.zeros(n, np.int64),
        np.full(n, -1, np.int64),
        np.full(n, -1, np.int64),
        np.full(n, math.inf),
        np.zeros(n),
        np.full(n, -math.inf),
        np.zeros(n, np.int64),
        tree,
        best,
        np.zeros(n),
    )
    if many:
        tree[leaves : leaves + n] = np.arange(n)
        for node in range(leaves - 1, 0, -1):
            tree[node] = tree[2 * node]  # nobody departs yet: all equal, the lowest wins

        build_index(best, servers.queue, system.slot_counts, system.weights[0], LOWEST)
    return servers
