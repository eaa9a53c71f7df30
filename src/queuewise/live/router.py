"""The in-process router: a dispatching policy of this package sends live requests to servers of unknown, drifting speed.

    router = Router(["a", "b", "c"])
    ticket = router.route()          # ticket.server says where to
    ...
    router.complete(ticket)          # or .fail(ticket), .cancel(ticket); or: with router.route_to() as server

The policy owns its estimates. The router owns the clock, the queues, the randomness and the lock, and around the policy what
practice needs: circuits, forgetting, changes, newcomers, an allowance for exploration. How things are counted is said in
:mod:`.steps`.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
import warnings
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dispatch.policies import make
from ..dispatch.policy import DONE, Policy, Seen
from ..fields import nearest, plain, require_choice, require_count, require_list, require_number, require_positive
from . import steps
from .circuit import CLOSED, HALF_OPEN, Circuit, CircuitSettings
from .lanes import Lane, live_policy
from .steps import Event, Fleet, Settings
from .tickets import ENDS, KINDS, WORDS, Passage, Ticket

#: Rules that can stand in for the policy at once: they learn nothing, so they can have learned nothing wrong.
PLAIN_RULES = ("jsq", "round_robin", "random")
#: How a server with slots serves jobs of several classes: the oldest ones, or all of them at equal shares.
DISCIPLINES = ("fifo", "shared")
#: Seconds between looks for expired tickets.
CHORES = 1.0
#: Decisions that are remembered.
REMEMBERED = steps.REMEMBERED
#: Of a snapshot.
FORMAT = 1
#: Of a server.
MOST_SLOTS = 1_000_000

#: What of `Fleet.learned` is knowledge, not the state of what is under way.
_KNOWLEDGE = (
    *(steps.DONE_WORK, steps.BUSY, steps.OWN_DONE, steps.OWN_BUSY),
    *range(steps.SLOW, steps.HUNG),
    *(steps.SERVED, steps.SERVED + 1),
)


class NoServerError(RuntimeError):
    """There is no server that a request may go to; the message says why, server by server.

    retry_after : seconds until one that rests is back, None where none does."""

    def __init__(self, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Server:
    """slots : jobs that it serves at a time, at most `MOST_SLOTS` · rate : work per second of one slot, where it is known
    beforehand (stands for `prior` completions, until it has some of its own)."""

    slots: int = 1
    rate: float | None = None

    def __post_init__(self) -> None:
        _check_slots(self.slots)
        if self.rate is not None:
            require_positive("rate", self.rate)


class _Member:
    """A server that the router knows. row : in the fleet's arrays, −1 once it was removed."""

    __slots__ = ("circuit", "counts", "draining", "flights", "name", "rests_until", "row", "server")

    def __init__(self, name: str, row: int, server: Server, circuit: Circuit | None) -> None:
        self.name = name
        self.row = row
        self.server = server
        self.circuit = circuit
        self.draining = False
        self.rests_until = -math.inf
        self.counts: Counter[str] = Counter()
        self.flights: dict[int, int] = {}  # number → lane, in order; kept only where there are several classes


class _Flight(NamedTuple):
    """A request under way."""

    member: _Member
    lane: int
    work: float
    issued: float
    reason: int
    instead: str | None


class Ended(NamedTuple):
    """What became of a decision, for those who :meth:`Router.listen`. issued, ended : of the router's clock · work : as it
    turned out to be · end : see :data:`.tickets.ENDS`; the rest as in :class:`Decision`."""

    number: int
    server: str
    why: str
    key: str | None
    work: float
    issued: float
    ended: float
    end: str
    instead: str | None


class Decision(NamedTuple):
    """One decision, for people. why : see :data:`.tickets.WORDS` · instead : what the policy would have chosen."""

    number: int
    at: float
    server: str
    why: str
    key: str | None
    work: float
    instead: str | None


class Router:
    """Routes requests to servers, and learns their rates from what comes back. Thread-safe; no call waits for anything but
    other calls (microseconds), so it may be used from an event loop.

    Parameters
    ----------
    servers : names, or name → :class:`Server` (or the number of its slots).
    policy : name of a dispatching rule, or a policy: ``"optimistic_sed"`` (default), ``"lased"``,
        ``lased(update="completion")``, ``"greedy"``, ``"jsq"``, … ``"sed"`` goes by the rates typed in.
    classes : names of job classes that have rates of their own at every server; `route(key=...)` then names one.
    explore_share, explore_burst : forced explorations allowed per decision in the long run, and at once (default: one per
        server). Beyond it, and where a server's slots are busy, a job goes by the estimates. 1 lets the policy have its way.
    half_life : seconds after which an observation counts half; None for never.
    change_threshold : evidence (in units of log-likelihood) from which a server's rate counts as changed, so that what was
        before is dropped; None for never.
    failure_penalty : service times that a failure (not a time-out) is charged with as busy time.
    circuit : see :class:`.circuit.CircuitSettings`; None for no circuits.
    expire_after : seconds after which a ticket that was never released is given up.
    prior : completions that a server has beforehand, at the fleet's mean or the rate that was typed in.
    discipline : with several classes, ``"fifo"`` (the oldest `slots` jobs are in service) or ``"shared"`` (all are, equally).
    clock : seconds, never running back · seed : of the router's randomness; None takes the system's.
    compiled : False runs everything as plain Python.

    Raises
    ------
    ValueError : anything out of range, in one sentence that names it.
    """

    def __init__(
        self,
        servers: Sequence[str] | Mapping[str, Server | int],
        policy: str | Policy = "optimistic_sed",
        *,
        classes: Sequence[str] = (),
        explore_share: float = 0.05,
        explore_burst: float | None = None,
        half_life: float | None = 600.0,
        change_threshold: float | None = 10.0,
        failure_penalty: float = 1.0,
        circuit: CircuitSettings | None = CircuitSettings(),  # noqa: B008 - frozen
        expire_after: float = 3600.0,
        prior: float = 4.0,
        discipline: str = "fifo",
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
        compiled: bool = True,
    ) -> None:
        self.policy = live_policy(policy)
        self.classes = _names("classes", classes)
        if isinstance(servers, Mapping):
            given = {name: _as_server(name, value) for name, value in servers.items()}
        else:
            given = dict.fromkeys(_names("servers", servers), Server())
        if not given:
            raise ValueError("servers: a router needs at least one")
        require_number("explore_share", explore_share)
        if not 0.0 <= explore_share <= 1.0:
            raise ValueError(f"explore_share must be from 0 to 1, not {explore_share!r}")
        if explore_burst is not None:
            require_number("explore_burst", explore_burst)
            if explore_burst < 0.0:
                raise ValueError(f"explore_burst must be at least 0, not {explore_burst!r}")
        for field, value in (("half_life", half_life), ("change_threshold", change_threshold)):
            if value is not None:
                require_positive(field, value)
        require_number("failure_penalty", failure_penalty)
        if failure_penalty < 0.0:
            raise ValueError(f"failure_penalty must be at least 0, not {failure_penalty!r}")
        require_positive("expire_after", expire_after)
        require_positive("prior", prior)
        require_choice("discipline", discipline, DISCIPLINES)
        self.seed = secrets.randbits(63) if seed is None else seed
        require_count("seed", self.seed, 0)
        self.expire_after = expire_after
        self.discipline = discipline
        self._burst = explore_burst
        self._circuits = circuit
        self._settings = Settings(
            float(explore_share),
            float(len(given) if explore_burst is None else explore_burst),
            math.inf if half_life is None else float(half_life),
            math.inf if change_threshold is None else float(change_threshold),
            float(failure_penalty),
            float(prior),
            self.policy.clairvoyant,
        )
        self._clock = clock
        self._time = float(clock())
        if not math.isfinite(self._time):
            raise ValueError(f"clock must return seconds, not {self._time!r}")
        self._due = self._time + CHORES
        self._lock = threading.Lock()
        self._compiled = compiled
        self._lane_of = {name: k for k, name in enumerate(self.classes)}
        lanes = max(1, len(self.classes))
        self._lanes = [Lane(self.policy, self.seed, k, compiled) for k in range(lanes)]
        self._stand_in: list[Lane] = []
        self._members: dict[str, _Member] = {}
        self._by_row: list[_Member | None] = []
        self._flights: OrderedDict[int, _Flight] = OrderedDict()
        self._lost: deque[int] = deque()
        self._decisions: deque[tuple[int, float, str, int, int, float, str | None]] = deque(maxlen=REMEMBERED)
        self._number = 0
        self._seen_since = 0  # number of the first decision with the places of now
        self._counts: Counter[str] = Counter()
        self._shadow = _Shadow()
        self._tripped: list[_Member] = []
        self._wake = math.inf  # when the first server that rests is back
        self._listeners: tuple[Callable[[Ended], None], ...] = ()
        self._panic = False
        self._unusual = False
        self._fleet = _empty_fleet(lanes)
        self._fleet.lanes[steps.ALLOWANCE] = self._settings.burst
        self._fleet.lanes[steps.DISCOUNTED] = self._time
        for name, server in given.items():
            self._new_member(name, server)
        self._rebuild()

    # --- requests -----------------------------------------------------------------------------------------------------

    def route(self, key: str | None = None, work: float = 1.0, *, avoid: Iterable[str] = ()) -> Ticket:
        """Choose a server for a request that is sent to it now.

        key : its class, where classes are named · work : its size, in usual requests · avoid : names of servers that it must
        not go to, as for a second try. A name that the router does not have is no error: the server of the first try may have
        been removed since.

        Raises NoServerError where no server may be used, ValueError for an unknown class or work that is no positive number.
        """
        lane = self._lane(key)
        if work != 1.0:
            _check_work(work)
        with self._lock:
            now = self._now()
            row, reason, instead = -1, 0, None
            if self._unusual or avoid:
                row, reason, instead = self._unusual_choice(now, lane, work, avoid)
            if row < 0 and not len(self._fleet.rows):
                raise self._no_server(now)
            self._number = number = self._number + 1
            event = Event(steps.ROUTE if row < 0 else steps.JOIN, now, lane, row, work, 0, now, reason, work, number)
            row, reason, _ = self._lanes[lane](self._fleet, self._settings, event)
            if row < 0:
                raise ValueError(f"{self.policy.name}: decide() named a server that there is not")
            member = self._by_row[row]
            assert member is not None
            self._take_off(member, lane, work, now, reason, number, instead)
        return Ticket(self, number, member.name, reason, now, key, work, instead)

    def watch(self, server: str, key: str | None = None, work: float = 1.0) -> Ticket:
        """Shadow mode: somebody else has sent a request to `server`. The router learns from it like from its own, and says in
        `ticket.instead` where it would have gone. See :meth:`shadow`.

        Raises ValueError for a server that the router does not know.
        """
        lane = self._lane(key)
        _check_work(work)
        with self._lock:
            now = self._now()
            member = self._member(server)
            instead = None
            if len(self._fleet.rows):
                ours = self._consult(now, lane, work)
                instead = ours.name
                self._shadow.note(self._fleet, lane, member.row, ours.row)
            self._number = number = self._number + 1
            event = Event(steps.JOIN, now, lane, member.row, work, 0, now, steps.GIVEN, work, number)
            self._lanes[lane](self._fleet, self._settings, event)
            self._take_off(member, lane, work, now, steps.GIVEN, number, instead)
            if member.circuit is not None and member.circuit.wants_trial(now):
                # Nobody sends trials here, so what is sent anyway is one.
                member.circuit.trial_out = True
                self._flights[number] = self._flights[number]._replace(reason=steps.PROBE)
        return Ticket(self, number, server, steps.GIVEN, now, key, work, instead)

    def complete(self, ticket: Ticket, work: float | None = None) -> bool:
        """The request was served. `work` : how much it turned out to be, where that is known now only. Returns whether the
        ticket was still out; a second release does nothing and is counted.

        Raises ValueError for a ticket of another router, or work that is no positive number.
        """
        if work is not None:
            _check_work(work)
        return self._release(ticket, "done", work)

    def fail(self, ticket: Ticket, kind: str = "error") -> bool:
        """The request failed: "error", "refused" or "timeout". As :meth:`complete` otherwise."""
        if kind not in KINDS:
            require_choice("kind", kind, tuple(KINDS))
        return self._release(ticket, kind, None)

    def cancel(self, ticket: Ticket) -> bool:
        """The request was given up on, by no fault of the server's. As :meth:`complete` otherwise."""
        return self._release(ticket, "cancelled", None)

    def route_to(
        self,
        key: str | None = None,
        work: float = 1.0,
        *,
        avoid: Iterable[str] = (),
        failures: type[BaseException] | tuple[type[BaseException], ...] = Exception,
    ) -> Passage:
        """``with`` or ``async with``: routes on entry and releases on exit, once, whatever happens. `failures` : exceptions
        that are the server's fault, beside TimeoutError. See :class:`.tickets.Passage`."""
        return Passage(self, {"key": key, "work": work, "avoid": avoid}, failures)

    # --- servers ------------------------------------------------------------------------------------------------------

    @property
    def servers(self) -> list[str]:
        """The names of all servers, usable or not."""
        with self._lock:
            return list(self._members)

    @property
    def settings(self) -> dict[str, Server]:
        """Every server's slots, and the rate that was typed in, as they are now."""
        with self._lock:
            return {name: member.server for name, member in self._members.items()}

    @property
    def in_flight(self) -> int:
        """Requests that are out, at all servers."""
        return len(self._flights)

    def add(self, name: str, server: Server | int = 1) -> None:
        """A new server, believed to be as the mean of the others. Raises ValueError for a name that is taken."""
        server = _as_server(name, server)
        with self._lock:
            self._now()
            if name in self._members:
                raise ValueError(f"server: there is a server {name!r} already")
            if self.policy.clairvoyant and server.rate is None:
                raise ValueError(f"server {name!r}: {self.policy.name!r} goes by typed-in rates, so it needs one")
            self._new_member(name, server)
            self._rebuild()

    def remove(self, name: str) -> None:
        """A server is gone. Tickets that are out at it can be released, and tell nothing."""
        with self._lock:
            self._now()
            member = self._member(name)
            del self._members[name]
            self._by_row[member.row] = None
            self._fleet.learned[:, :, member.row] = 0.0
            self._fleet.servers[:, member.row] = 0.0
            member.row = -1
            self._rebuild()

    def drain(self, name: str) -> int:
        """Send nothing more to a server; what is known of it is kept. Returns the requests that are still out at it."""
        with self._lock:
            self._now()
            member = self._member(name)
            member.draining = True
            self._rebuild()
            return int(self._fleet.servers[steps.IN_FLIGHT, member.row])

    def resume(self, name: str) -> None:
        """Use a server again that was drained, or rests."""
        with self._lock:
            self._now()
            member = self._member(name)
            member.draining, member.rests_until = False, -math.inf
            self._rebuild()

    def resize(self, name: str, slots: int) -> None:
        """A server serves so many requests at a time from now on; what is known of a slot is kept."""
        _check_slots(slots)
        with self._lock:
            now = self._now()
            member = self._member(name)
            member.server = replace(member.server, slots=slots)
            self._fleet.servers[steps.SLOTS, member.row] = slots
            if self.classes:
                self._divide(member, now)
            else:
                serving = min(float(self._fleet.servers[steps.IN_FLIGHT, member.row]), float(slots))
                steps.serve(self._fleet, 0, member.row, serving, now)
            self._rebuild()

    def blame(self, name: str) -> None:
        """An answer of a server that was released already turns out to be its fault: it counts against its circuit."""
        with self._lock:
            now = self._now()
            circuit = self._member(name).circuit
            if circuit is not None and circuit.outcome(False, now, circuit.state == HALF_OPEN):
                self._rebuild()

    def rest(self, name: str, seconds: float) -> None:
        """A server has asked to be left alone for so long (HTTP's Retry-After). Unlike an open circuit that holds in a panic
        too, and it counts as no failure. It never shortens a rest; :meth:`resume` ends it."""
        require_positive("seconds", seconds)
        with self._lock:
            now = self._now()
            member = self._member(name)
            member.rests_until = max(member.rests_until, now + seconds)
            self._rebuild()

    def reset(self, name: str) -> None:
        """A server was restarted or replaced: what is known of it is dropped, and its circuit closed."""
        with self._lock:
            now = self._now()
            member = self._member(name)
            self._forget_all(member, now)
            if member.circuit is not None:
                member.circuit.reset()
            self._rebuild()

    def override(self, rule: str | None) -> None:
        """The kill switch: let a plain rule decide ("jsq", "round_robin" or "random"), or the policy again (None). The policy
        goes on learning meanwhile."""
        if rule is not None:
            require_choice("rule", rule, PLAIN_RULES)
        stand_in = []
        if rule is not None:
            options = {"ties": "random"} if rule == "jsq" else {}
            stand_in = [Lane(make(rule, **options), self.seed, 0, self._compiled)]
            if len(self._fleet.rows):  # compile it before the lock is taken: that may take a second
                stand_in[0].begin(self._fleet, self._settings, np.ones(len(self._fleet.rows)))
        with self._lock:
            self._now()
            self._stand_in = stand_in
            self._rebuild()

    # --- what there is to see -----------------------------------------------------------------------------------------

    def estimates(self) -> dict[str, Any]:
        """What is known of every server. With classes: server → "classes" → class → the numbers of that class.

        rate : work per second of one busy slot, with `low` and `high` of a 95 % interval (exact for exponential service,
        widened by the spread that was seen otherwise) · samples : completions as they count now, what was believed beforehand
        included · completions : in all · changes : how often it was found changed · in_flight, slots, explorations, failures ·
        state : "up", "draining", "resting", or its circuit's · circuit : the state of that, None where there is none.
        """
        with self._lock:
            self._now()
            learned, servers = self._fleet.learned.copy(), self._fleet.servers.copy()
            members = [
                (
                    *(member.name, member.row, self._state(member)),
                    None if member.circuit is None else member.circuit.state,
                    dict(member.counts),
                )
                for member in self._members.values()
            ]
        found: dict[str, Any] = {}
        for name, row, state, circuit, counts in members:
            one: dict[str, Any] = {
                "state": state,
                "circuit": circuit,
                "in_flight": int(servers[steps.IN_FLIGHT, row]),
                "slots": int(servers[steps.SLOTS, row]),
                "explorations": int(servers[steps.EXPLORED, row]),
                "failures": sum(counts.get(kind, 0) for kind in KINDS),
                "outcomes": {end: counts.get(end, 0) for end in ENDS},
            }
            rates = [_rate(learned[:, k, row]) for k in range(learned.shape[1])]
            if self.classes:
                one["classes"] = dict(zip(self.classes, rates, strict=True))
            else:
                one |= rates[0]
            found[name] = one
        return found

    def report(self) -> dict[str, Any]:
        """Counts of this router: decisions, also by reason, explorations and those over their allowance, outcomes, tickets
        released twice and out, whether circuits are ignored (panic), which plain rule stands in, and the servers in use."""
        with self._lock:
            self._now()
            decided, explored = self._counts["decisions"], self._counts["explore"]
            return {
                "decisions": decided,
                "why": {word: self._counts[word] for word in WORDS.values()},
                "out": len(self._flights),
                "explorations": explored,
                "explore_share": explored / decided if decided else 0.0,
                "explorations_over_allowance": int(self._fleet.lanes[steps.OVER].sum()),
                "outcomes": {end: self._counts[end] for end in ENDS},
                "released_twice": self._counts["released_twice"],
                "panic": self._panic,
                "override": self._stand_in[0].policy.rule if self._stand_in else None,
                "usable": [self._name(int(row)) for row in self._fleet.rows],
            }

    def delays(self, key: str | None = None) -> dict[str, float]:
        """Seconds that a usual request is expected to take, queueing included, at each server that may be used now: what is
        ahead of it over the estimated rate. NaN before anything is known. Raises ValueError for an unknown class."""
        lane = self._lane(key)
        with self._lock:
            self._now()
            return {self._name(int(row)): steps.expected_delay(self._fleet, lane, int(row)) for row in self._fleet.rows}

    def waits(self, key: str | None = None) -> dict[str, float]:
        """Seconds until a usual request is expected to be served at each server that may be used now; 0 where a slot is free.
        As :meth:`delays` otherwise."""
        lane = self._lane(key)
        with self._lock:
            self._now()
            return {self._name(int(row)): steps.expected_wait(self._fleet, lane, int(row)) for row in self._fleet.rows}

    def listen(self, callback: Callable[[Ended], None]) -> None:
        """Call `callback` with each decision whose ticket is over, however it ended. It is called under the router's lock: it
        must be quick and must not call the router. What it raises is warned of, and never reaches who released."""
        with self._lock:
            self._listeners = (*self._listeners, callback)

    def shadow(self) -> dict[str, Any]:
        """What shadow mode found: requests watched, how often the router would have chosen the same server, and the mean
        expected delay of their choices and of ours in seconds, by the router's estimates (None before there are any)."""
        with self._lock:
            return self._shadow.plain()

    def decisions(self, last: int = REMEMBERED) -> list[Decision]:
        """The last decisions, newest last."""
        require_count("last", last)
        with self._lock:
            return [self._decision(entry) for entry in list(self._decisions)[-last:]]

    def explain(self, ticket: Ticket | int) -> dict[str, Any]:
        """Why a request went where it went: the decision, the queue and the rate of every server as they were (of the last 256
        decisions), and what the policy says of its state now. `ticket` : or the number of one of the last decisions.

        Raises ValueError for a number that is not among these, and for another router's ticket."""
        if isinstance(ticket, Ticket) and ticket._router is not self:
            raise ValueError("ticket: it is another router's")
        with self._lock:
            now = self._now()
            if isinstance(ticket, Ticket):
                number, server, reason, issued = ticket.number, ticket.server, ticket.reason, ticket.issued
                lane, instead = self._lane(ticket.key), ticket.instead
            else:
                number, issued, server, reason, lane, _, instead = self._recent(ticket)
            found: dict[str, Any] = {
                "number": number,
                "server": server,
                "why": WORDS.get(reason, str(reason)),
                "instead": instead,
                "age": now - issued,
                "released": number not in self._flights,
            }
            fresh = number > max(self._seen_since, self._number - REMEMBERED)
            if fresh and reason not in (steps.PROBE, steps.GIVEN):
                queue, rate = self._fleet.recalled[number % REMEMBERED]
                found["seen"] = {
                    self._name(int(row)): {
                        "queue": int(queue[place]),
                        "rate": None if math.isnan(rate[place]) else float(rate[place]),
                    }
                    for place, row in enumerate(self._fleet.rows)
                }
            asked = self._lanes[lane]
            if asked.rule.explain is not None and len(self._fleet.rows):
                names = [self._name(int(row)) for row in self._fleet.rows]
                said = asked.rule.explain(asked.params, asked.state, self._seen(asked.number, now))
                found["policy"] = {"rule": asked.rule.label, "servers": names, **said}
            return found

    # --- to disk and back ---------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything learned, and what was set meanwhile (who is drained or rests, which plain rule decides): named arrays, and
        a JSON-able dict. What is under way is not in it, nor are shadow mode and decisions."""
        with self._lock:
            now = self._now()
            members = list(self._members.values())
            rows = [member.row for member in members]
            lanes = self._fleet.lanes.copy()
            lanes[steps.DISCOUNTED] -= now  # clocks of two processes do not compare
            arrays: dict[str, NDArray[Any]] = {
                "learned": self._fleet.learned[np.array(_KNOWLEDGE)][:, :, rows].copy(),
                "explored": self._fleet.servers[steps.EXPLORED, rows].copy(),
                "slowed": self._slowed(rows, now),
                "lanes": lanes,
            }
            for lane in self._lanes:
                if lane.state is not None:
                    arrays |= {f"policy.{lane.number}.{name}": array.copy() for name, array in lane.arrays().items()}
            kept = {
                "format": FORMAT,
                "policy": self._identity(),
                "classes": self.classes,
                "servers": [
                    {
                        "name": member.name,
                        "draining": member.draining,
                        "circuit": None if member.circuit is None else member.circuit.plain(),
                        "counts": dict(member.counts),
                        **asdict(member.server),
                    }
                    for member in members
                ],
                "usable": [self._name(int(row)) for row in self._fleet.rows],
                "rests": {member.name: member.rests_until - now for member in members if member.rests_until > now},
                "override": self._stand_in[0].policy.rule if self._stand_in else None,
                "counts": dict(self._counts),
                "number": self._number,
            }
            return arrays, kept

    def restore(self, arrays: Mapping[str, NDArray[Any]], kept: Mapping[str, Any]) -> list[str]:
        """Take over what :meth:`snapshot` gave. Servers that this router does not have are left out; those that the snapshot
        does not have stay as they are. The time between does not count as forgetting. Returns the names that were found.

        With the same policy and usable servers the next decisions are those that would have been made without the break. Where
        another version of the policy keeps other things in memory it starts anew, from what is known of the servers, and a
        RuntimeWarning says so.

        Raises ValueError for a snapshot of another format or with other classes.
        """
        if kept.get("format") != FORMAT:
            raise ValueError(f"snapshot: its format must be {FORMAT}, not {kept.get('format')!r}")
        if list(kept["classes"]) != self.classes:
            raise ValueError(f"snapshot: its classes must be {self.classes}, not {kept['classes']!r}")
        known = [server["name"] for server in kept["servers"]]
        shape = (len(_KNOWLEDGE), len(self._lanes), len(known))
        if arrays["learned"].shape != shape:
            raise ValueError(f"snapshot: its array 'learned' must be of shape {shape}, not {arrays['learned'].shape}")
        self.override(kept.get("override"))
        with self._lock:
            now = self._now()
            found = []
            for at, server in enumerate(kept["servers"]):
                member = self._members.get(server["name"])
                if member is None:
                    continue
                found.append(member.name)
                for field, values in zip(_KNOWLEDGE, arrays["learned"], strict=True):
                    self._fleet.learned[field, :, member.row] = values[:, at]
                self._fleet.servers[steps.EXPLORED, member.row] = arrays["explored"][at]
                if "slowed" in arrays:
                    self._slow_again(member.row, arrays["slowed"][:, :, at], now)
                member.counts = Counter(server["counts"])
                member.draining = bool(server["draining"])
                if member.name in kept.get("rests", {}):
                    member.rests_until = now + float(kept["rests"][member.name])
                if member.circuit is not None and server["circuit"] is not None:
                    member.circuit.restore(server["circuit"], now)
                if server["rate"] != member.server.rate and not self._fleet.learned[steps.TRIED, :, member.row].any():
                    self._forget_all(member, now)  # all that was known is the rate that was typed in before
            self._fleet.lanes[:] = arrays["lanes"]
            self._fleet.lanes[steps.DISCOUNTED] += now
            self._counts = Counter(kept["counts"])
            self._number = max(self._number, int(kept["number"]))
            self._rebuild()
            same = [self._name(int(row)) for row in self._fleet.rows] == list(kept["usable"])
            if same and kept["usable"] and kept["policy"] == self._identity():
                for lane in self._lanes:
                    prefix = f"policy.{lane.number}."
                    mine = {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}
                    if mine and not lane.put_back(mine):
                        warnings.warn(
                            f"snapshot: what {self.policy.name!r} had in memory is not of the form of now (another version "
                            "wrote it?), so it starts anew from what is known of the servers",
                            RuntimeWarning,
                            stacklevel=2,
                        )
            return found

    # --- inside; the lock is held -------------------------------------------------------------------------------------

    def _now(self) -> float:
        """The time, and what is due at it."""
        now = self._clock()
        if not now > self._time:  # clocks that run back, or stand still
            now = self._time
        self._time = now
        while self._lost:
            self._give_up(self._lost.popleft(), "lost", now)
        if now >= self._wake:
            self._rebuild()
        if now >= self._due:
            self._due = now + CHORES
            while self._flights:
                number, flight = next(iter(self._flights.items()))
                if now - flight.issued < self.expire_after:
                    break
                self._give_up(number, "expired", now)
        return now

    def _lane(self, key: str | None) -> int:
        if key is None:
            if self.classes:
                raise ValueError(f"key: name the job's class, one of {', '.join(map(repr, self.classes))}")
            return 0
        lane = self._lane_of.get(key)
        if lane is None:
            hint = nearest(key, self.classes) if self.classes else "; this router was given no classes"
            raise ValueError(f"key: there is no class {key!r}{hint}")
        return lane

    def _member(self, name: str) -> _Member:
        member = self._members.get(name)
        if member is None:
            raise ValueError(f"server: there is no server {name!r}{nearest(name, self._members)}")
        return member

    def _recent(self, number: int) -> tuple[int, float, str, int, int, float, str | None]:
        """One of the last decisions."""
        for entry in reversed(self._decisions):
            if entry[0] == number:
                return entry
        raise ValueError(f"ticket: {number!r} is none of the last {REMEMBERED} decisions")

    def _name(self, row: int) -> str:
        member = self._by_row[row]
        assert member is not None
        return member.name

    def _seen(self, lane: int, now: float) -> Seen:
        jobs = steps.show(self._fleet, lane, now, 0.0)
        return steps.seen_now(self._fleet, self._settings, lane, now, jobs)

    def _consult(self, now: float, lane: int, work: float) -> _Member:
        """Where the policy would send it."""
        event = Event(steps.CONSULT, now, lane, -1, work, 0, now, 0, work, self._number)
        row, _, _ = self._lanes[lane](self._fleet, self._settings, event)
        member = self._by_row[row]
        assert member is not None
        return member

    def _unusual_choice(self, now: float, lane: int, work: float, avoid: Iterable[str]) -> tuple[int, int, str | None]:
        """(row, reason, instead) where somebody else chooses; row −1 where nobody does."""
        if isinstance(avoid, str):
            raise ValueError(f"avoid must be a list of servers, not {avoid!r}")
        avoided = set(avoid)
        for member in self._tripped:
            if member.circuit is not None and member.name not in avoided and member.circuit.wants_trial(now):
                member.circuit.trial_out = True
                return member.row, steps.PROBE, None
        if not len(self._fleet.rows) or not (self._stand_in or avoided):
            return -1, 0, None
        chosen = instead = None
        if self._stand_in:
            instead = self._consult(now, lane, work).name
            event = Event(steps.ADVISE, now, lane, -1, work, 0, now, 0, work, self._number)
            row, _, _ = self._stand_in[0](self._fleet, self._settings, event)
            chosen = self._by_row[row]
        elif avoided:
            # What it says is taken, not asked for again: where it draws at random it might say another one.
            chosen = self._consult(now, lane, work)
            instead = chosen.name if chosen.name in avoided else None
        assert chosen is not None
        if chosen.name in avoided:
            rows = [int(row) for row in self._fleet.rows if self._name(int(row)) not in avoided]
            if not rows:
                raise NoServerError("no usable server: all that there are were to be avoided")
            jobs = {row: steps.expected_delay(self._fleet, lane, row) for row in rows}
            return min(jobs, key=lambda row: jobs[row]), steps.GIVEN, instead
        return chosen.row, steps.GIVEN, instead

    def _take_off(
        self, member: _Member, lane: int, work: float, now: float, reason: int, number: int, instead: str | None
    ) -> None:
        self._flights[number] = _Flight(member, lane, work, now, reason, instead)
        self._counts["decisions"] += 1
        self._counts[WORDS.get(reason, "exploit")] += 1
        self._decisions.append((number, now, member.name, reason, lane, work, instead))
        if self.classes:
            member.flights[number] = lane
            self._divide(member, now)

    def _release(self, ticket: Ticket, end: str, work: float | None) -> bool:
        if not isinstance(ticket, Ticket):
            raise ValueError(f"ticket: must be a ticket of this router, not {ticket!r}")
        if ticket._router is not self:
            raise ValueError("ticket: it is another router's")
        with self._lock:
            now = self._now()
            flight = self._flights.pop(ticket.number, None)
            if flight is None:
                self._counts["released_twice"] += 1
                return False
            self._land(ticket.number, flight, end, now, work)
            return True

    def _give_up(self, number: int, end: str, now: float) -> None:
        flight = self._flights.pop(number, None)
        if flight is not None:
            self._land(number, flight, end, now, None)

    def _land(self, number: int, flight: _Flight, end: str, now: float, work: float | None) -> None:
        """A request is over."""
        member, lane, asked, issued, reason, _ = flight
        self._counts[end] += 1
        member.counts[end] += 1
        done = asked if work is None else work
        if self._listeners:
            self._tell(number, flight, end, now, done)
        if member.row < 0:
            return
        kind = ENDS[end]
        event = Event(steps.LEAVE, now, lane, member.row, asked, kind, issued, reason, done, number)
        self._lanes[lane](self._fleet, self._settings, event)
        if self.classes:
            member.flights.pop(number, None)
            self._divide(member, now)
        circuit = member.circuit
        if circuit is None:
            return
        if kind == DONE or end in KINDS:
            if circuit.outcome(kind == DONE, now, reason == steps.PROBE):
                if circuit.state == CLOSED:
                    for each in range(len(self._lanes)):
                        steps.absolve(self._fleet, each, member.row)
                self._rebuild()
        elif reason == steps.PROBE:
            circuit.forgotten()

    def _tell(self, number: int, flight: _Flight, end: str, now: float, done: float) -> None:
        member, lane, _, issued, reason, instead = flight
        key = self.classes[lane] if self.classes else None
        ended = Ended(number, member.name, WORDS.get(reason, str(reason)), key, done, issued, now, end, instead)
        for callback in self._listeners:
            try:
                callback(ended)
            except Exception as error:
                warnings.warn(f"listen: {callback!r} raised {error!r}", RuntimeWarning, stacklevel=2)

    def _divide(self, member: _Member, now: float) -> None:
        """With several classes: whose busy time a server's is."""
        slots = member.server.slots
        lanes = list(member.flights.values())
        serving = min(len(lanes), slots)
        served = Counter(lanes[:serving] if self.discipline == "fifo" else lanes)
        total = max(1, sum(served.values()))
        for lane in range(len(self.classes)):
            steps.serve(self._fleet, lane, member.row, serving * served[lane] / total, now)

    def _slowed(self, rows: list[int], now: float) -> NDArray[np.float64]:
        """float64[2, classes, servers]: how long ago a server became slower (−1: it has not), and its rate before that."""
        learned = self._fleet.learned[:, :, rows]
        ages = np.where(learned[steps.WARY] > 0.0, now - learned[steps.SINCE], -1.0)
        return np.stack([ages, learned[steps.WAS]])

    def _slow_again(self, row: int, slowed: NDArray[np.float64], now: float) -> None:
        learned = self._fleet.learned
        learned[steps.WARY, :, row] = slowed[0] >= 0.0
        learned[steps.SINCE, :, row], learned[steps.FADED, :, row] = now - slowed[0], now
        learned[steps.WAS, :, row], learned[steps.BACK, :, row] = slowed[1], 0.0

    def _decision(self, entry: tuple[int, float, str, int, int, float, str | None]) -> Decision:
        number, at, server, reason, lane, work, instead = entry
        key = self.classes[lane] if self.classes else None
        return Decision(number, at, server, WORDS.get(reason, str(reason)), key, work, instead)

    def _state(self, member: _Member) -> str:
        if member.draining:
            return "draining"
        if member.rests_until > self._time:
            return "resting"
        return "up" if member.circuit is None or member.circuit.state == CLOSED else member.circuit.state

    def _no_server(self, now: float) -> NoServerError:
        if not self._members:
            return NoServerError("no usable server: there is none")
        states = ", ".join(f"{member.name!r} is {self._state(member)}" for member in self._members.values())
        return NoServerError(f"no usable server: {states}", self._wake - now if self._wake < math.inf else None)

    def _identity(self) -> dict[str, Any]:
        return {"name": self.policy.name, "rule": self.policy.rule, "options": plain(self.policy.options)}

    def _new_member(self, name: str, server: Server) -> None:
        if None in self._by_row:
            row = self._by_row.index(None)
        else:
            row = len(self._by_row)
            self._by_row.append(None)
            if row >= self._fleet.learned.shape[2]:
                self._fleet = _more_rows(self._fleet)
        circuit = None if self._circuits is None else Circuit(self._circuits)
        member = _Member(name, row, server, circuit)
        self._members[name] = self._by_row[row] = member
        self._fleet.servers[:, row] = 0.0
        self._fleet.servers[steps.SLOTS, row] = server.slots
        self._fleet.servers[steps.TYPED, row] = server.rate or 0.0
        self._fleet.learned[:, :, row] = 0.0
        self._forget_all(member, self._time)

    def _forget_all(self, member: _Member, now: float) -> None:
        """Nothing is known of a server but the rate that was typed in."""
        learned, row = self._fleet.learned, member.row
        for field in _KNOWLEDGE:
            learned[field, :, row] = 0.0
        learned[[steps.HUNG, steps.WARY], :, row] = 0.0
        learned[steps.SPREAD, :, row] = steps.FIRST_SPREAD
        learned[steps.BEGAN, :, row] = learned[steps.SERVING, :, row] * now
        if member.server.rate is not None:
            learned[steps.DONE_WORK, :, row] = self._settings.prior
            learned[steps.BUSY, :, row] = self._settings.prior / member.server.rate

    def _rebuild(self) -> None:
        """Which servers may be chosen has changed: start the policy anew for these, and tell it what is known."""
        serving = [member for member in self._members.values() if not member.draining]
        up = [member for member in serving if member.rests_until <= self._time]
        self._wake = min(
            (member.rests_until for member in serving if member.rests_until > self._time), default=math.inf
        )
        self._tripped = [member for member in up if member.circuit is not None and member.circuit.state != CLOSED]
        panic = 1.0 if self._circuits is None else self._circuits.panic
        self._panic = len(self._tripped) > panic * len(up)
        self._unusual = bool(self._tripped or self._stand_in)
        usable = up if self._panic else [member for member in up if member not in self._tripped]
        self._fleet = _with_places(self._fleet, [member.row for member in usable])
        if self._burst is None:
            self._settings = self._settings._replace(burst=float(max(1, len(usable))))
        self._seen_since = self._number
        if not usable:
            return
        for lane in [*self._lanes, *self._stand_in]:
            rates = self._beliefs(usable, lane.number)
            if self.policy.clairvoyant:
                self._fleet.weights[:] = self._fleet.slots * rates
            lane.begin(self._fleet, self._settings, rates)
            event = Event(steps.RECALL, self._time, lane.number, -1, 1.0, 0, 0.0, 0, 1.0, 0)
            lane(self._fleet, self._settings, event)

    def _beliefs(self, usable: list[_Member], lane: int) -> NDArray[np.float64]:
        """Initial rates: typed in, else the mean of what is typed in or learned, else 1."""
        learned = self._fleet.learned
        known = [
            member.row
            for member in usable
            if learned[steps.TRIED, lane, member.row] > 0.0 or member.server.rate is not None
        ]
        busy = float(learned[steps.BUSY, lane, known].sum())
        mean = float(learned[steps.DONE_WORK, lane, known].sum()) / busy if busy > 0.0 else 1.0
        if not mean > 0.0:
            mean = 1.0
        if self.policy.clairvoyant and any(member.server.rate is None for member in usable):
            raise ValueError(f"policy: {self.policy.name!r} goes by typed-in rates, so every server needs one")
        return np.array([member.server.rate or mean for member in usable])


class _Shadow:
    """What shadow mode found."""

    def __init__(self) -> None:
        self.watched = self.alike = self.priced = 0
        self.theirs = self.ours = 0.0

    def note(self, fleet: Fleet, lane: int, theirs: int, ours: int) -> None:
        self.watched += 1
        self.alike += theirs == ours
        delays = steps.expected_delay(fleet, lane, theirs), steps.expected_delay(fleet, lane, ours)
        if all(math.isfinite(delay) for delay in delays):
            self.priced += 1
            self.theirs += delays[0]
            self.ours += delays[1]

    def plain(self) -> dict[str, Any]:
        return {
            "watched": self.watched,
            "alike": self.alike,
            "expected_delay_theirs": self.theirs / self.priced if self.priced else None,
            "expected_delay_ours": self.ours / self.priced if self.priced else None,
        }


def _names(field: str, names: Any) -> list[str]:
    found = require_list(field, names, "names")
    for name in found:
        _check_name(field, name)
    if len(set(found)) != len(found):
        raise ValueError(f"{field}: every name must be there once, not {found!r}")
    return found


def _check_name(field: str, name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"{field}: a name must be a non-empty text, not {name!r}")


def _as_server(name: Any, value: Any) -> Server:
    _check_name("servers", name)
    try:
        found = Server(value) if isinstance(value, int) and not isinstance(value, bool) else value
    except ValueError as error:
        raise ValueError(f"server {name!r}: {error}") from None
    if not isinstance(found, Server):
        raise ValueError(f"server {name!r}: must be a Server or its number of slots, not {value!r}")
    return found


def _check_slots(slots: Any) -> None:
    require_count("slots", slots)
    if slots > MOST_SLOTS:
        raise ValueError(f"slots must be at most {MOST_SLOTS:,}, not {slots!r}")


def _check_work(work: Any) -> None:
    require_positive("work", work)


def _rate(learned: NDArray[np.float64]) -> dict[str, Any]:
    """One server's rate for people, with the exact interval of a Poisson count in busy time (Garwood)."""
    from scipy.special import gammaincinv  # here: routing does not need it

    n, s = float(learned[steps.DONE_WORK]), float(learned[steps.BUSY])
    found: dict[str, Any] = {"rate": None, "low": 0.0, "high": None}
    if s > 0.0:
        spread = max(1.0, float(learned[steps.SPREAD]))
        low, high = n / spread, n / spread + 1.0
        found = {
            "rate": n / s,
            "low": float(gammaincinv(low, 0.025)) * spread / s if n > 0.0 else 0.0,
            "high": float(gammaincinv(high, 0.975)) * spread / s,
        }
    return {
        **found,
        "samples": n,
        "busy_time": s,
        "completions": int(learned[steps.TRIED]),
        "changes": int(learned[steps.CHANGES]),
    }


def _empty_fleet(lanes: int) -> Fleet:
    none, no_rows = np.zeros(0), np.zeros(0, np.int64)
    recalled = np.zeros((REMEMBERED, 2, 0), np.float32)
    return Fleet(
        np.zeros((steps.LEARNED, lanes, 4)),
        np.zeros((steps.SERVERS, 4)),
        np.zeros((steps.LANES, lanes)),
        no_rows,
        np.full(4, -1, np.int64),
        no_rows,
        no_rows,
        none,
        none,
        none,
        none,
        recalled,
    )


def _more_rows(fleet: Fleet) -> Fleet:
    """Twice the room."""
    old = fleet.learned.shape[2]
    learned = np.zeros((*fleet.learned.shape[:2], 2 * old))
    servers = np.zeros((steps.SERVERS, 2 * old))
    learned[:, :, :old], servers[:, :old] = fleet.learned, fleet.servers
    return fleet._replace(learned=learned, servers=servers, places=np.full(2 * old, -1, np.int64))


def _with_places(fleet: Fleet, rows: list[int]) -> Fleet:
    """The fleet as a policy sees it that may choose these servers."""
    n = len(rows)
    at = np.array(rows, dtype=np.int64)
    places = np.full(fleet.learned.shape[2], -1, np.int64)
    places[at] = np.arange(n)
    return fleet._replace(
        rows=at,
        places=places,
        queue=np.zeros(n, np.int64),
        slots=fleet.servers[steps.SLOTS, at].astype(np.int64),
        began=np.zeros(n),
        weights=np.full(n, math.nan),
        hidden=np.full(n, math.nan),
        scratch=np.zeros(n),
        recalled=np.zeros((REMEMBERED, 2, n), np.float32),
    )
