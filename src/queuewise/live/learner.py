"""A scheduling policy at work outside of a simulation: waiting slots, per-job columns, masks, randomness, and its calls.

Nothing here knows a clock, a lease or a disk. Given the same calls in the same order, a learner makes the same decisions to
the last bit, and all that it knows goes into named arrays and back: on this rests recovery.

What this caller adds to the five functions of a policy:

- A *round* is a decision issued. The policies' t, their epochs and vanishing exploration count decisions.
- *Newest*: in the papers' model at most one job arrives per round, and a policy may explore it in the next. Here several
  can; each is shown as the newcomer at one decision, in order of arrival, if it still waits then and was never served.
- *Closed pairs*: a job may not go to every server (it is not eligible, or has just failed there). The policies know a mask
  of servers only. A job without an allowed server is left out of the view. If the policy then picks a closed pair, its choice
  of the job stands, and it is asked again about that job alone with the servers that are open to it.
"""

from __future__ import annotations

import heapq
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _compile, growing
from ..rule import prepare
from ..scheduling.policy import Policy, Shape, Ticket, Waiting
from . import calls

#: Slots and attempts that a learner starts with room for; both double when full.
FIRST_SLOTS, FIRST_ATTEMPTS = 64, 256


class Choice(NamedTuple):
    """A decision not yet issued."""

    slot: int
    server: int
    reason: int


class Learner:
    """One policy with its state, columns and slots.

    Parameters
    ----------
    policy : any but the clairvoyant.
    shape : what it is told of the system.
    seed : key of its random stream, together with its name.
    compiled : False calls the same functions as plain Python.

    Raises
    ------
    ValueError : an option of the policy is out of range, or the policy must be shown the truth.
    """

    def __init__(self, policy: Policy, shape: Shape, *, seed: int = 0, compiled: bool = True) -> None:
        if policy.clairvoyant:
            raise ValueError(f"policy: {policy.name!r} must be shown the true probabilities, which nobody knows here")
        self.policy, self.shape = policy, shape
        self.params, self.state, self.stream = prepare(policy, shape, seed)
        self.columns = policy.new_columns(FIRST_SLOTS, shape.servers)
        self.rounds = 0
        self.moves = 0
        self.room = 0
        self.features = np.zeros((FIRST_SLOTS, shape.dimension, shape.servers))
        self.truth = np.full((FIRST_SLOTS, shape.servers), np.nan)
        self.ineligible = np.zeros((FIRST_SLOTS, shape.servers), dtype=np.bool_)
        self.failed = np.zeros((FIRST_SLOTS, shape.servers), dtype=np.bool_)
        self.present = np.ones(shape.servers, dtype=np.bool_)
        self.rank = np.full(FIRST_SLOTS, -1, dtype=np.int64)
        self.slots = np.zeros(FIRST_SLOTS, dtype=np.int64)
        self.jobs = 0
        self._view = np.zeros(FIRST_SLOTS, dtype=np.int64)
        self._closed = np.zeros(FIRST_SLOTS, dtype=np.bool_)
        self._free = list(range(FIRST_SLOTS))
        self._new: dict[int, None] = {}  # newcomers not yet shown as such, in order of arrival
        self._none = np.zeros(shape.dimension)
        self._everyone = np.ones(shape.servers, dtype=np.bool_)
        self._make_room()
        self._call = self._entry(compiled)

    # --- the policy's functions ---------------------------------------------------------------------------------------

    def _entry(self, compiled: bool) -> Any:
        plain = _compile.interpreted(calls.call, self.policy.functions)

        def interpreted(*arguments: Any) -> Any:
            with np.errstate(over="ignore"):  # the random stream's arithmetic wraps around by design
                return plain(*arguments)

        if not compiled:
            return interpreted
        entry = _compile.program(calls.call, self.policy.functions)
        nobody = Ticket(0, 0, 0, 0, self._none)
        arguments = (calls.DECIDE, self.params, self.state, self.columns, self.waiting(), self.stream, nobody, False)
        try:
            _compile.compile_for(entry, arguments)
        except Exception as error:  # whatever it was that numba stumbled over
            warnings.warn(
                f"{self.policy.name}: numba cannot compile this policy, so it runs as plain Python, about 100 times "
                f"slower ({_compile.reason(error)})",
                RuntimeWarning,
                stacklevel=4,
            )
            return interpreted
        return entry

    def _ask(self, what: int, waiting: Waiting, ticket: Ticket, success: bool = False) -> Any:
        return self._call(what, self.params, self.state, self.columns, waiting, self.stream, ticket, success)

    def waiting(self, allowed: NDArray[np.bool_] | None = None) -> Waiting:
        """All waiting jobs, as the policy sees them between decisions: in the round of the last one."""
        return self._seen(max(self.rounds, 1), self.slots, self.jobs, -1, allowed)

    def _seen(
        self, t: int, slots: NDArray[np.int64], jobs: int, newest: int, allowed: NDArray[np.bool_] | None = None
    ) -> Waiting:
        mask = self._everyone if allowed is None else allowed
        return Waiting(t, jobs, slots, newest, mask, self.features, self.truth)

    # --- jobs in and out ----------------------------------------------------------------------------------------------

    def enter(self, rank: int, features: NDArray[np.float64], ineligible: NDArray[np.bool_] | None = None) -> int:
        """A new job waits; its slot. `rank` orders by arrival: later jobs have larger ones. features : float64[d, K]."""
        slot = self._take(rank, features)
        if ineligible is not None:
            self.ineligible[slot] = ineligible
            self._close(slot)
        self.put_back(slot)
        self._new[slot] = None
        self._ask(calls.ADMIT, self._seen(max(self.rounds, 1), self.slots, self.jobs, slot), self._slot_only(slot))
        return slot

    def _take(self, rank: int, features: NDArray[np.float64]) -> int:
        if not self._free:
            self._more_slots()
        slot = heapq.heappop(self._free)
        self.rank[slot] = rank
        self.features[slot] = features
        self.ineligible[slot] = self.failed[slot] = False
        self._closed[slot] = False
        return slot

    def _slot_only(self, slot: int) -> Ticket:
        return Ticket(0, slot, 0, 0, self._none)

    def put_back(self, slot: int) -> None:
        """The job in this slot waits (again), at its place in the order of arrival."""
        place = int(np.searchsorted(self.rank[self.slots[: self.jobs]], self.rank[slot]))
        self.slots[place + 1 : self.jobs + 1] = self.slots[place : self.jobs].copy()
        self.slots[place] = slot
        self.jobs += 1

    def take_out(self, slot: int) -> None:
        """The job in this slot waits no longer; it keeps its slot."""
        place = int(np.searchsorted(self.rank[self.slots[: self.jobs]], self.rank[slot]))
        assert place < self.jobs and self.slots[place] == slot
        self.slots[place : self.jobs - 1] = self.slots[place + 1 : self.jobs].copy()
        self.jobs -= 1
        self._new.pop(slot, None)

    def free(self, slot: int) -> None:
        """Nobody needs this slot any more."""
        self.rank[slot] = -1
        self._closed[slot] = False
        heapq.heappush(self._free, slot)

    def _more_slots(self) -> None:
        old = self.rank.shape[0]

        def larger(array: Any, value: Any = 0) -> Any:
            enlarged = np.full((2 * old, *array.shape[1:]), value, dtype=array.dtype)
            enlarged[:old] = array
            return enlarged

        self.features, self.truth = larger(self.features), larger(self.truth, np.nan)
        self.ineligible, self.failed = larger(self.ineligible), larger(self.failed)
        self.rank, self.slots = larger(self.rank, -1), larger(self.slots)
        self._view, self._closed = larger(self._view), larger(self._closed)
        self.columns = type(self.columns)(*(larger(column) for column in self.columns))
        self._free = list(range(old, 2 * old))

    # --- closed pairs -------------------------------------------------------------------------------------------------

    def close_pair(self, slot: int, server: int) -> None:
        """The job has failed at this server and should try another. Where no present one is left, all are open again."""
        self.failed[slot, server] = True
        self._close(slot)

    def set_present(self, server: int, present: bool) -> None:
        """A server has come, or may get no jobs for now."""
        self.present[server] = present
        for slot in np.flatnonzero(self.failed.any(axis=1) & (self.rank >= 0)):
            self._close(int(slot))

    def _close(self, slot: int) -> None:
        if not (self.present & ~self.ineligible[slot] & ~self.failed[slot]).any():
            self.failed[slot] = False
        self._closed[slot] = bool((self.ineligible[slot] | self.failed[slot]).any())

    def open_to(self, slot: int) -> NDArray[np.bool_]:
        """Servers that the job in this slot may go to, busy or not: bool[K]."""
        closed: NDArray[np.bool_] = self.ineligible[slot] | self.failed[slot]
        return ~closed

    # --- decisions ----------------------------------------------------------------------------------------------------

    def choose(self, allowed: NDArray[np.bool_]) -> Choice | None:
        """The policy's choice among the waiting jobs and the allowed servers; None where no pair is open. It must be issued,
        or the learner thrown away: policies keep count of what they were asked.

        Raises RuntimeError where the policy names a job or server that it must not.
        """
        slots, jobs = self.slots, self.jobs
        if jobs == 0 or not allowed.any():
            return None
        if self._closed.any():
            waiting = slots[:jobs]
            closed = self._closed[waiting]
            seen = np.ones(jobs, dtype=np.bool_)
            some = waiting[closed]
            seen[closed] = (allowed & ~(self.ineligible[some] | self.failed[some])).any(axis=1)
            jobs = int(seen.sum())
            if jobs == 0:
                return None
            self._view[:jobs] = waiting[seen]
            slots = self._view
        newest = self._newcomer(slots, jobs)
        nobody = Ticket(0, 0, 0, 0, self._none)
        t = self.rounds + 1
        choice = self._checked(
            self._ask(calls.DECIDE, self._seen(t, slots, jobs, newest, allowed), nobody), slots, jobs, allowed
        )
        if self._closed[choice.slot]:
            open_now = allowed & self.open_to(choice.slot)
            if not open_now[choice.server]:
                self._view[0] = choice.slot
                again = self._seen(t, self._view, 1, choice.slot if choice.slot == newest else -1, open_now)
                choice = self._checked(self._ask(calls.DECIDE, again, nobody), self._view, 1, open_now)
        self._new.pop(newest, None)
        return choice

    def _newcomer(self, slots: NDArray[np.int64], jobs: int) -> int:
        if not self._new:
            return -1
        if slots is self.slots:
            return next(iter(self._new))
        return next((slot for slot in self._new if (slots[:jobs] == slot).any()), -1)

    def _checked(self, chosen: Any, slots: NDArray[np.int64], jobs: int, allowed: NDArray[np.bool_]) -> Choice:
        slot, server, reason = (int(number) for number in chosen)
        if not (slots[:jobs] == slot).any() or not 0 <= server < self.shape.servers or not allowed[server]:
            raise RuntimeError(
                f"{self.policy.name}: decide() of round {self.rounds + 1} named a job that does not wait or a server that "
                "is not allowed"
            )
        return Choice(slot, server, reason)

    def issue(self, choice: Choice) -> Ticket:
        """The chosen attempt begins: its round is over, its job waits no longer, and V moves."""
        self.rounds += 1
        slot, server, reason = choice
        ticket = Ticket(self.rounds, slot, server, reason, np.ascontiguousarray(self.features[slot, :, server]))
        self._assign(self.waiting(), ticket)
        self.take_out(slot)
        return ticket

    def _assign(self, waiting: Waiting, ticket: Ticket) -> None:
        self.moves += 1
        self._make_room()
        self._ask(calls.ASSIGNED, waiting, ticket)

    def _make_room(self) -> None:
        if self.moves + 2 > self.room:
            self.room = max(FIRST_ATTEMPTS, 2 * self.room)
            self.state = self.policy.grow_state(self.state, self.room + 2)

    # --- what became of them ------------------------------------------------------------------------------------------

    def observe(self, ticket: Ticket, success: bool) -> None:
        """The outcome of an attempt in flight."""
        self._ask(calls.OBSERVE, self.waiting(), ticket, success)

    def expire(self, ticket: Ticket) -> None:
        """An attempt in flight will not be heard of: V moves back."""
        self._ask(calls.EXPIRED, self.waiting(), ticket)

    def hear_late(self, rank: int, features: NDArray[np.float64], server: int, success: bool) -> None:
        """The outcome of an attempt that had expired. A ticket is answered once, so this is one of its own, assigned and
        answered at once, in a slot that nobody else uses."""
        slot = self._take(rank, features)
        self._ask(calls.ADMIT, self.waiting(), self._slot_only(slot))
        t = max(self.rounds, 1)
        ticket = Ticket(t, slot, server, 0, np.ascontiguousarray(features[:, server]))
        self._assign(self.waiting(), ticket)
        self._ask(calls.OBSERVE, self.waiting(), ticket, success)
        self.free(slot)

    def explain(self, choice: Choice, allowed: NDArray[np.bool_]) -> dict[str, Any]:
        """What the policy says of a pair, asked between :meth:`choose` and :meth:`issue`. Changes nothing."""
        if self.policy.explain is None:
            return {}
        waiting = self._seen(self.rounds + 1, self.slots, self.jobs, -1, allowed)
        with np.errstate(over="ignore"):
            return dict(self.policy.explain(self.params, self.state, self.columns, waiting, choice.slot, choice.server))

    # --- all that is known, as named arrays ---------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything but the jobs' features, in arrays of their own."""
        held = np.flatnonzero(self.rank >= 0)
        found = {f"learner.state.{name}": array.copy() for name, array in growing.flatten(self.state).items()}
        found |= {f"learner.columns.{name}": array[held] for name, array in self.columns._asdict().items()}
        return found | {
            "learner.stream": self.stream.copy(),
            "learner.numbers": np.array([self.rounds, self.moves, self.room, self.rank.shape[0]]),
            "learner.held": held,
            "learner.rank": self.rank[held],
            "learner.ineligible": self.ineligible[held],
            "learner.failed": self.failed[held],
            "learner.present": self.present.copy(),
            "learner.waiting": self.slots[: self.jobs].copy(),
            "learner.newcomers": np.array(list(self._new), dtype=np.int64),
        }

    def restore(self, arrays: dict[str, NDArray[Any]], features: dict[int, NDArray[np.float64]]) -> None:
        """Go on from what :meth:`arrays` gave; `features` by rank, float64[d, K].

        Raises ValueError where they are not those of this policy with these options.
        """
        self.rounds, self.moves, self.room, slots = (int(number) for number in arrays["learner.numbers"])
        found = {
            name.removeprefix("learner.state."): array
            for name, array in arrays.items()
            if name.startswith("learner.state.")
        }
        if not growing.matches(self.state, found):
            raise ValueError(f"the saved estimates are not those that {self.policy.label} keeps in this version")
        self.state = growing.unflatten(self.state, {name: np.ascontiguousarray(array) for name, array in found.items()})
        self.stream = arrays["learner.stream"].astype(np.uint64)
        while self.rank.shape[0] < slots:
            self._more_slots()
        held = arrays["learner.held"]
        for name, column in self.columns._asdict().items():
            if f"learner.columns.{name}" not in arrays:
                raise ValueError(f"the saved columns are not those that {self.policy.label} keeps in this version")
            column[held] = arrays[f"learner.columns.{name}"]
        self.rank[held] = arrays["learner.rank"]
        for slot in held:
            self.features[slot] = features[int(self.rank[slot])]
        self.ineligible[held], self.failed[held] = arrays["learner.ineligible"], arrays["learner.failed"]
        self.present = arrays["learner.present"].astype(np.bool_)
        self._closed[held] = (self.ineligible[held] | self.failed[held]).any(axis=1)
        self.jobs = arrays["learner.waiting"].shape[0]
        self.slots[: self.jobs] = arrays["learner.waiting"]
        self._new = {int(slot): None for slot in arrays["learner.newcomers"]}
        self._free = [int(slot) for slot in np.flatnonzero(self.rank < 0)]
        heapq.heapify(self._free)
