"""What a live router does at one event, as one entry that is compiled once per policy.

Plain Python, compiled with a policy's functions in place of the placeholders: the files of the dispatching wing are used as
they are. One entry for all events, since each entry costs compilation, and every call of a policy's function stands in
that entry, since only there placeholders are bound.

**Busy time.** The busy time of a server is the integral of min(jobs in flight, slots). Whenever a job leaves, the policy is
handed what has accrued at that server since the last one left, whoever caused it. So the sum of what it is handed is the
server's busy time, in whatever order jobs leave and however the server shares itself among them, and N/S is completions over
busy time. Where one slot serves first come, first served, it is the job's own service time, as in the simulation. With
several classes a server's busy time is divided among them by what is in service, and each class is handed its own.

`BEGAN` is kept so that SERVING · now − BEGAN is what has accrued: where SERVING changes by d, BEGAN moves by d · now. It is
what the simulation keeps as the sum of the times at which jobs in service began.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._compile import options
from ..dispatch.choice import RANDOM, shortest_delay
from ..dispatch.estimation import LEAST
from ..dispatch.policy import (  # bound to each policy's own
    DONE,
    EXPLOIT,
    EXPLORE,
    FAILED,
    Outcome,
    Seen,
    Ticket,
    assigned,
    believe,
    emptied,
    estimates,
    forget,
    observe,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: What :func:`step` is called for.
ROUTE, CONSULT, ADVISE, JOIN, LEAVE, RECALL = range(6)

#: Reasons beyond the policy's own: exploration that was over its allowance; a closed circuit's trial; somebody else's choice.
CAPPED, PROBE, GIVEN = 100, 101, 102

#: Fields of `Fleet.learned`, per class and server. DONE_WORK, BUSY : N and S, discounted, with what was believed beforehand ·
#: OWN_DONE, OWN_BUSY : without that · SERVING, BEGAN : see above · LOAD : work in flight · COUNT : jobs in flight ·
#: SLOW, FAST : N, S and score of the stretch in which the server may have become slower, faster · FIT : N and S of a block, and
#: of the one before · SPREAD : mean of twice the deviance of a block from the one before, about 1 for exponential service ·
#: TRIED : completions, never discounted · CHANGES : how often it was found changed · HUNG : 1 from when its silence was found
#: to be a change until its next outcome · SERVED : N and S of completions alone, of the last few · WARY : 1 while it is known
#: to have become slower some time ago · SINCE, FADED : when that was found, and when what is known of it last faded · WAS,
#: BACK : its rate before that, and the score for its being so again.
DONE_WORK, BUSY, OWN_DONE, OWN_BUSY, SERVING, BEGAN, LOAD, COUNT = range(8)
SLOW, FAST, FIT, SPREAD, TRIED, CHANGES, HUNG, SERVED = 8, 11, 14, 18, 19, 20, 21, 22
WARY, SINCE, FADED, WAS, BACK, LEARNED = 24, 25, 26, 27, 28, 29
#: Of these, what was observed and is discounted.
DISCOUNTED_FIELDS = (DONE_WORK, BUSY, OWN_DONE, OWN_BUSY, SLOW, SLOW + 1, FAST, FAST + 1)

#: Fields of `Fleet.servers`: jobs in flight, slots, explorations, the rate of a slot that was typed in (0: none).
IN_FLIGHT, SLOTS, EXPLORED, TYPED, SERVERS = range(5)

#: Fields of `Fleet.lanes`, per class: jobs routed, discounted · when it was last discounted · explorations allowed · the server
#: whose silence is looked at next · explorations over the allowance · 1 while there may be young servers · the mean rate that
#: they were told.
ARRIVED, DISCOUNTED, ALLOWANCE, WATCHED, OVER, YOUNG, MEAN, LANES = range(8)

#: Completions until which a server is young; of a block.
YOUTH, BLOCK = 32.0, 16.0
#: Completions that anything can be held against.
FEWEST = 5.0
#: How many times slower or faster a server is that a stretch is kept for.
SHIFT = 2.0
#: Busy time of a completion at least, since clocks have a resolution and rates are finite.
TICK = 1e-9
#: SPREAD of a server that nothing is known of.
FIRST_SPREAD = 2.0
#: SPREAD is at most this, and so is what one block adds to it: where a server has changed, service is not irregular. For the
#: same reason a block is held against the one before, not against all: a change that is not found yet would hide itself.
MOST_SPREAD = 10.0
#: Completions after which a stretch without a verdict is given up: it would hide a change that comes later.
LONGEST = 100.0
#: A server that has become slower may become as it was again. What was observed of it counts half after so many times the
#: time since then, but not before so many jobs could be done: so it is tried again at pauses that grow with its slowness.
WARINESS, PATIENCE = 1.0, 16.0
#: Jobs that a queue is at most, in jobs of another class: what policies see is a whole number of 64 bits.
MOST_QUEUED = 1e15
#: Decisions that are remembered with what was seen.
REMEMBERED = 256


def decide(params: Any, state: Any, seen: Seen, stream: Any) -> tuple[int, int]:
    """Placeholder, bound per policy."""
    return 0, 0


class Settings(NamedTuple):
    """share, burst : explorations allowed, per decision and at once · half_life : seconds after which what was observed counts
    half (∞: never) · threshold : deviance from which a block is a change (∞: never) · penalty : mean service times that a
    failure is charged with · prior : completions that the fleet's mean stands for at a young server · clairvoyant :
    whether typed-in rates are shown"""

    share: float
    burst: float
    half_life: float
    threshold: float
    penalty: float
    prior: float
    clairvoyant: bool


class Fleet(NamedTuple):
    """Arrays with a row per server (in whatever order; some rows are free), and those of the servers that the policy sees,
    its *places*.

    learned : float64[LEARNED, classes, rows] · servers : float64[SERVERS, rows] · lanes : float64[LANES, classes] · rows :
    int64[n], the row of each place · places : int64[rows], −1 where the policy does not see it · queue, slots : int64[n],
    began, weights, hidden : float64[n], what it sees · scratch : float64[n] · recalled : float32[REMEMBERED, 2, n], queue and
    rate of every place at the last decisions
    """

    learned: Floats
    servers: Floats
    lanes: Floats
    rows: Ints
    places: Ints
    queue: Ints
    slots: Ints
    began: Floats
    weights: Floats
    hidden: Floats
    scratch: Floats
    recalled: NDArray[np.float32]


class Event(NamedTuple):
    """what : ROUTE, …· now : seconds · lane : class · row : of the server that the job joins or leaves · work : of the job ·
    kind : its outcome · issued : when it was routed · reason : why · done : work that it turned out to be · number : of the
    decision"""

    what: int
    now: float
    lane: int
    row: int
    work: float
    kind: int
    issued: float
    reason: int
    done: float
    number: int


def accrued(fleet: Fleet, lane: int, row: int, now: float) -> float:
    """Busy time of a server that no outcome has brought yet."""
    learned = fleet.learned
    return float(max(0.0, learned[SERVING, lane, row] * now - learned[BEGAN, lane, row]))


def serve(fleet: Fleet, lane: int, row: int, serving: float, now: float) -> None:
    """So much of a server works on a class from now on: min(jobs in flight, slots), or its share of that."""
    learned = fleet.learned
    learned[BEGAN, lane, row] += (serving - learned[SERVING, lane, row]) * now
    learned[SERVING, lane, row] = serving


def _rate(fleet: Fleet, lane: int, row: int) -> float:
    """N/S; NaN before anything is known."""
    n, s = fleet.learned[DONE_WORK, lane, row], fleet.learned[BUSY, lane, row]
    return float(n / s) if n > 0.0 and s > 0.0 else math.nan


@options(inline="never")
def _service(fleet: Fleet, lane: int, row: int) -> float:
    """Busy time of a completion. A failure is charged by it and not by S/N, of which failures are part: each would make the
    next one dearer, and a thousand of them a rate of 10^-100 that nothing brings back. A server that has completed nothing
    goes by its typed-in rate, else by the others; 0 before anything is known."""
    learned = fleet.learned
    if learned[SERVED, lane, row] > 0.0:
        return float(learned[SERVED + 1, lane, row] / learned[SERVED, lane, row])
    if fleet.servers[TYPED, row] > 0.0:
        return float(1.0 / fleet.servers[TYPED, row])
    done, busy = 0.0, 0.0
    for other in range(learned.shape[2]):
        done += learned[SERVED, lane, other]
        busy += learned[SERVED + 1, lane, other]
    return float(busy / done) if done > 0.0 else 0.0


def absolve(fleet: Fleet, lane: int, row: int) -> None:
    """A server's failures are over: what they were charged with is given back, and it is held to be as fast as it was."""
    learned = fleet.learned
    if learned[SERVED, lane, row] > 0.0:
        service = _service(fleet, lane, row)
        learned[BUSY, lane, row] = learned[DONE_WORK, lane, row] * service
        learned[OWN_BUSY, lane, row] = learned[OWN_DONE, lane, row] * service
        for field in range(SLOW, SPREAD):
            learned[field, lane, row] = 0.0


@options(inline="never")
def _queue(fleet: Fleet, lane: int, row: int) -> float:
    """Work in flight, in jobs of this class: a job of another one counts as many as could be served meanwhile."""
    learned = fleet.learned
    total = learned[LOAD, lane, row]
    if learned.shape[1] > 1:
        own = _rate(fleet, lane, row)
        for other in range(learned.shape[1]):
            if other != lane and learned[LOAD, other, row] > 0.0:
                ratio = own / _rate(fleet, other, row)
                total += learned[LOAD, other, row] * (ratio if ratio == ratio else 1.0)
    return float(min(total, MOST_QUEUED))


def expected_delay(fleet: Fleet, lane: int, row: int) -> float:
    """max(c, q + 1)/(c N/S): seconds that a job that joins is expected to take; NaN before anything is known."""
    queue, slots = _queue(fleet, lane, row), fleet.servers[SLOTS, row]
    return float(max(slots, queue + 1.0) / (slots * _rate(fleet, lane, row)))


def expected_wait(fleet: Fleet, lane: int, row: int) -> float:
    """max(0, q + 1 − c)/(c N/S): seconds until a job that joins is expected to be served; 0 where a slot is free, NaN before
    anything is known."""
    waiting, slots = _queue(fleet, lane, row) + 1.0 - fleet.servers[SLOTS, row], fleet.servers[SLOTS, row]
    if waiting > 0.0 and fleet.learned[DONE_WORK, lane, row] < 0.5:
        return math.nan  # all that was known is forgotten: one request that was given up would make it a rate of 0
    return float(waiting / (slots * _rate(fleet, lane, row))) if waiting > 0.0 else 0.0


@options(inline="never")
def show(fleet: Fleet, lane: int, now: float, extra: float) -> int:
    """Fill in what the policy sees; returns the jobs in flight at its servers. `extra` : work beyond one job that the job to
    be routed brings."""
    jobs = 0
    for place in range(fleet.rows.shape[0]):
        row = fleet.rows[place]
        count = int(fleet.servers[IN_FLIGHT, row])
        jobs += count
        queue = 0
        if count > 0:
            queue = max(1, int(_queue(fleet, lane, row) + 0.5))
        serving = min(queue, fleet.slots[place])
        fleet.began[place] = serving * now - accrued(fleet, lane, row, now)
        fleet.queue[place] = queue + int(extra + 0.5)
    return jobs


def is_too_much(fleet: Fleet, settings: Settings, lane: int, place: int) -> bool:
    """Whether exploring a server is over the allowance, or would keep a job waiting there."""
    if settings.share >= 1.0:
        return False
    row = fleet.rows[place]
    return bool(fleet.lanes[ALLOWANCE, lane] < 1.0 or fleet.servers[IN_FLIGHT, row] >= fleet.servers[SLOTS, row])


def seen_now(fleet: Fleet, settings: Settings, lane: int, now: float, jobs: int) -> Seen:
    """What the policy sees."""
    arrivals = int(fleet.lanes[ARRIVED, lane] + 0.5)
    shown = fleet.weights if settings.clairvoyant else fleet.hidden
    return Seen(now, jobs, max(arrivals, 1), 0, fleet.queue, fleet.slots, fleet.began, fleet.hidden, shown)


@options(inline="never")
def _discount(fleet: Fleet, settings: Settings, lane: int, now: float) -> float:
    """Let time take its share of everything, in steps of a 64th of the half-life; the factor."""
    passed = now - fleet.lanes[DISCOUNTED, lane]
    if not passed * 64.0 >= settings.half_life:
        return 1.0
    fleet.lanes[DISCOUNTED, lane] = now
    factor = 0.5 ** (passed / settings.half_life)
    learned = fleet.learned
    for row in range(learned.shape[2]):
        if learned[DONE_WORK, lane, row] > LEAST or learned[DONE_WORK, lane, row] == 0.0:
            for field in DISCOUNTED_FIELDS:
                learned[field, lane, row] *= factor
    fleet.lanes[ARRIVED, lane] *= factor
    return float(factor)


def _deviance(fleet: Fleet, lane: int, row: int, done: float, busy: float, more: float) -> float:
    """How badly `done` in `busy` time, which are part of N and S, and `more` busy time, which is not yet, fit the rest of N and
    S; 0 where that is too little."""
    old_done, old_busy = fleet.learned[DONE_WORK, lane, row] - done, fleet.learned[BUSY, lane, row] - busy
    busy += more
    if old_done < FEWEST:
        return 0.0
    return _apart(done, busy, old_done, old_busy)


def _apart(done: float, busy: float, old_done: float, old_busy: float) -> float:
    """The logarithm of the likelihood ratio of two Poisson rates against one."""
    if old_busy <= 0.0 or busy <= 0.0 or old_done <= 0.0:
        return 0.0
    common = (old_done + done) / (old_busy + busy)
    deviance = old_done * math.log(old_done / old_busy / common)
    if done > 0.0:
        deviance += done * math.log(done / busy / common)
    return float(deviance)


def _score(shift: float, rate: float, done: float, busy: float) -> float:
    """The logarithm of the likelihood of `done` in `busy` where the rate is `shift` times what it was, against what it was."""
    return done * math.log(shift) - (shift - 1.0) * rate * busy


@options(inline="never")
def _fade(fleet: Fleet, settings: Settings, lane: int, row: int, now: float) -> bool:
    """Let what is known of a server that has become slower count for less; whether it does."""
    learned = fleet.learned
    if learned[WARY, lane, row] == 0.0 or learned[DONE_WORK, lane, row] <= LEAST:
        return False
    half_life = WARINESS * (now - learned[SINCE, lane, row])
    if half_life >= settings.half_life:
        learned[WARY, lane, row] = 0.0
        return False
    half_life = max(half_life, PATIENCE * learned[BUSY, lane, row] / learned[DONE_WORK, lane, row])
    passed = now - learned[FADED, lane, row]
    if passed * 16.0 < half_life:
        return False
    learned[FADED, lane, row] = now
    factor = 0.5 ** (passed / half_life)
    for field in DISCOUNTED_FIELDS:
        learned[field, lane, row] *= factor
    return True


@options(inline="never")
def _restart(fleet: Fleet, lane: int, row: int, stretch: int, now: float) -> None:
    """A server has changed: the stretch since then counts alone, and what was before it as one completion. Where the stretch
    is hardly more than one long job, that may be all there is to it, and more of what was before is kept."""
    learned = fleet.learned
    done, busy = learned[stretch, lane, row], learned[stretch + 1, lane, row]
    old_done, old_busy = learned[DONE_WORK, lane, row] - done, learned[BUSY, lane, row] - busy
    kept = 1.0 if done >= 3.0 else FEWEST + 1.0
    learned[OWN_DONE, lane, row] = done + kept
    learned[OWN_BUSY, lane, row] = busy + kept * old_busy / old_done
    learned[DONE_WORK, lane, row] = learned[OWN_DONE, lane, row]
    learned[BUSY, lane, row] = learned[OWN_BUSY, lane, row]
    for field in range(SLOW, SPREAD):
        learned[field, lane, row] = 0.0
    learned[CHANGES, lane, row] += 1.0
    if stretch == SLOW:
        if learned[WARY, lane, row] == 0.0:
            learned[WAS, lane, row] = old_done / old_busy
        learned[WARY, lane, row], learned[BACK, lane, row] = 1.0, 0.0
        learned[SINCE, lane, row], learned[FADED, lane, row] = now, now
    else:
        learned[WARY, lane, row] = 0.0


@options(inline="never")
def _is_back(fleet: Fleet, settings: Settings, lane: int, row: int, done: float, busy: float) -> bool:
    """Whether an outcome tells something new of a server that has become slower: it is as it was, or may be, so that what is
    known of it counts half and it is tried again soon. Its rate of before is a hypothesis that a few outcomes can decide on,
    where finding any change takes many."""
    learned = fleet.learned
    was = learned[WAS, lane, row]
    old_done, old_busy = learned[DONE_WORK, lane, row] - done, learned[BUSY, lane, row] - busy
    if learned[WARY, lane, row] == 0.0 or old_done <= 0.0 or old_busy <= 0.0 or was * old_busy <= SHIFT * old_done:
        return False
    rate = old_done / old_busy
    score = max(0.0, learned[BACK, lane, row] + _score(was / rate, rate, done, busy))
    learned[BACK, lane, row] = score
    if score > 0.5 * _limit(fleet, settings, lane, row):
        kept = FEWEST + 1.0
        learned[OWN_DONE, lane, row] = learned[DONE_WORK, lane, row] = kept
        learned[OWN_BUSY, lane, row] = learned[BUSY, lane, row] = kept / was
        for field in range(SLOW, SPREAD):
            learned[field, lane, row] = 0.0
        learned[CHANGES, lane, row] += 1.0
        learned[WARY, lane, row] = 0.0
        return True
    if score > 0.0:
        for field in DISCOUNTED_FIELDS:
            learned[field, lane, row] *= 0.5
    return bool(score > 0.0)


def _limit(fleet: Fleet, settings: Settings, lane: int, row: int) -> float:
    """Deviance from which on a server has changed; more irregular service asks for more."""
    return float(settings.threshold * max(1.0, fleet.learned[SPREAD, lane, row]))


@options(inline="never")
def _look(fleet: Fleet, settings: Settings, lane: int, now: float) -> int:
    """One server is looked at per decision. Its place where something else is known of it now, else −1: it was busy for too
    long without an answer (one silence is one change, however long it lasts), or what is known of it has faded."""
    learned = fleet.learned
    if fleet.rows.shape[0] == 0:
        return -1
    place = int(fleet.lanes[WATCHED, lane]) + 1
    if place >= fleet.rows.shape[0]:
        place = 0
    fleet.lanes[WATCHED, lane] = place
    row = fleet.rows[place]
    if _fade(fleet, settings, lane, row, now):
        return place
    if learned[HUNG, lane, row] > 0.0:
        return -1
    pending = accrued(fleet, lane, row, now)
    done, busy = learned[SLOW, lane, row], learned[SLOW + 1, lane, row]
    if pending <= 0.0 or done * learned[BUSY, lane, row] >= learned[DONE_WORK, lane, row] * (busy + pending):
        return -1
    if _deviance(fleet, lane, row, done, busy, pending) > _limit(fleet, settings, lane, row):
        _restart(fleet, lane, row, SLOW, now)
        learned[HUNG, lane, row] = 1.0
        return place
    return -1


@options(inline="never")
def _has_changed(fleet: Fleet, settings: Settings, lane: int, row: int, done: float, busy: float, now: float) -> bool:
    """Whether a server has changed, by an outcome that is in N and S already. Page's test: the stretch in which it may have
    changed begins anew whenever nothing speaks for a change any more, so that it begins about when the change came."""
    learned = fleet.learned
    if _is_back(fleet, settings, lane, row, done, busy):
        return True
    for stretch, shift in ((SLOW, 1.0 / SHIFT), (FAST, SHIFT)):
        old_done = learned[DONE_WORK, lane, row] - done - learned[stretch, lane, row]
        old_busy = learned[BUSY, lane, row] - busy - learned[stretch + 1, lane, row]
        if old_done < FEWEST or old_busy <= 0.0:
            continue
        learned[stretch, lane, row] += done
        learned[stretch + 1, lane, row] += busy
        learned[stretch + 2, lane, row] += _score(shift, old_done / old_busy, done, busy)
        if learned[stretch + 2, lane, row] <= 0.0 or learned[stretch, lane, row] > min(LONGEST, old_done):
            for field in range(stretch, stretch + 3):
                learned[field, lane, row] = 0.0
            continue
        if _deviance(fleet, lane, row, learned[stretch, lane, row], learned[stretch + 1, lane, row], 0.0) > _limit(
            fleet, settings, lane, row
        ):
            _restart(fleet, lane, row, stretch, now)
            return True
    learned[FIT, lane, row] += done
    learned[FIT + 1, lane, row] += busy
    if learned[FIT, lane, row] >= BLOCK:
        if learned[FIT + 2, lane, row] > 0.0:
            twice = 2.0 * _apart(
                learned[FIT, lane, row],
                learned[FIT + 1, lane, row],
                learned[FIT + 2, lane, row],
                learned[FIT + 3, lane, row],
            )
            spread = learned[SPREAD, lane, row]
            learned[SPREAD, lane, row] = spread + 0.1 * (min(twice, MOST_SPREAD) - spread)
        learned[FIT + 2, lane, row], learned[FIT + 3, lane, row] = learned[FIT, lane, row], learned[FIT + 1, lane, row]
        learned[FIT, lane, row], learned[FIT + 1, lane, row] = 0.0, 0.0
    return False


def _is_young(fleet: Fleet, lane: int, row: int) -> bool:
    """Of few completions, and nothing else known of it."""
    learned = fleet.learned
    if fleet.servers[TYPED, row] > 0.0 or learned[CHANGES, lane, row] > 0.0:
        return False
    return bool(learned[TRIED, lane, row] < YOUTH)


@options(inline="never")
def _seed(fleet: Fleet, settings: Settings, lane: int, now: float) -> bool:
    """A young server, one of few completions, has `prior` of them at the fleet's mean beside its own: so one that has none is
    neither free nor out of the question, and one that was lucky or unlucky once is not taken at its word. The mean is of all
    completions over all busy time, that of jobs still in service included (else the first to complete anything, the lucky
    ones, would make the mean). Returns whether the mean has moved, or is new to somebody."""
    learned = fleet.learned
    done, busy, young, unseeded = 0.0, 0.0, 0.0, False
    for place in range(fleet.rows.shape[0]):
        row = fleet.rows[place]
        busy += accrued(fleet, lane, row, now)
        if _is_young(fleet, lane, row):
            young = 1.0
            unseeded = unseeded or learned[DONE_WORK, lane, row] == 0.0
            done += learned[OWN_DONE, lane, row]
            busy += learned[OWN_BUSY, lane, row]
        else:
            done += learned[DONE_WORK, lane, row]
            busy += learned[BUSY, lane, row]
    fleet.lanes[YOUNG, lane] = young
    if young == 0.0 or done <= 0.0 or busy <= 0.0:
        return False
    mean, before = done / busy, fleet.lanes[MEAN, lane]
    if not unseeded and abs(mean - before) <= 0.05 * before:
        return False
    fleet.lanes[MEAN, lane] = mean
    for place in range(fleet.rows.shape[0]):
        row = fleet.rows[place]
        if _is_young(fleet, lane, row):
            learned[DONE_WORK, lane, row] = learned[OWN_DONE, lane, row] + settings.prior
            learned[BUSY, lane, row] = learned[OWN_BUSY, lane, row] + settings.prior / mean
    return True


@options(inline="never")
def _shortest(fleet: Fleet, stream: Any) -> int:
    """Shortest expected delay by the rates in `scratch`, no exploration: where what the policy wants is not to be had."""
    weights = fleet.scratch
    for place in range(weights.shape[0]):
        rate = weights[place]
        weights[place] = fleet.slots[place] * (rate if rate > 0.0 else 1.0)
    return shortest_delay(fleet.queue, fleet.slots, weights, RANDOM, stream)


@options(inline="never")
def _remember(fleet: Fleet, lane: int, number: int) -> None:
    at = number % fleet.recalled.shape[0]
    for place in range(fleet.rows.shape[0]):
        fleet.recalled[at, 0, place] = fleet.queue[place]
        fleet.recalled[at, 1, place] = _rate(fleet, lane, fleet.rows[place])


@options(inline="never")
def _join(fleet: Fleet, settings: Settings, event: Event, row: int, reason: int) -> None:
    """A job joins a server's queue."""
    lane, learned = event.lane, fleet.learned
    fleet.servers[IN_FLIGHT, row] += 1.0
    learned[LOAD, lane, row] += event.work
    learned[COUNT, lane, row] += 1.0
    if learned.shape[1] == 1:
        serve(fleet, lane, row, min(fleet.servers[IN_FLIGHT, row], fleet.servers[SLOTS, row]), event.now)
    if reason == EXPLORE:
        fleet.lanes[ALLOWANCE, lane] -= 1.0
        fleet.servers[EXPLORED, row] += 1.0
    fleet.lanes[ALLOWANCE, lane] = min(fleet.lanes[ALLOWANCE, lane] + settings.share, settings.burst)


@options(inline="never")
def _leave(fleet: Fleet, settings: Settings, event: Event) -> float:
    """A job leaves its server; the busy time that comes with its outcome."""
    lane, row, now, learned = event.lane, event.row, event.now, fleet.learned
    busy = accrued(fleet, lane, row, now)
    learned[BEGAN, lane, row] = learned[SERVING, lane, row] * now
    fleet.servers[IN_FLIGHT, row] -= 1.0
    learned[HUNG, lane, row] = 0.0
    learned[COUNT, lane, row] -= 1.0
    learned[LOAD, lane, row] -= event.work
    if learned[COUNT, lane, row] <= 0.0:
        learned[LOAD, lane, row] = 0.0  # sums of floating-point numbers do not come back to 0 by themselves
    if learned.shape[1] == 1:
        serve(fleet, lane, row, min(fleet.servers[IN_FLIGHT, row], fleet.servers[SLOTS, row]), now)
    done = 0.0
    if event.kind == DONE:
        done = event.done
        busy = max(busy, TICK)
        learned[TRIED, lane, row] += 1.0
        if learned[SERVED, lane, row] >= LONGEST:
            learned[SERVED, lane, row] *= 0.5
            learned[SERVED + 1, lane, row] *= 0.5
        learned[SERVED, lane, row] += done
        learned[SERVED + 1, lane, row] += busy
    elif event.kind == FAILED:
        busy += settings.penalty * _service(fleet, lane, row)
    learned[DONE_WORK, lane, row] += done
    learned[BUSY, lane, row] += busy
    learned[OWN_DONE, lane, row] += done
    learned[OWN_BUSY, lane, row] += busy
    return busy


def step(
    params: Any, state: Any, fleet: Fleet, settings: Settings, event: Event, stream: Any
) -> tuple[int, int, float]:
    """One event.

    ROUTE : (row, reason, 0) of the choice; row −1 where the policy named no server · CONSULT : the same, but nobody joins a
    queue · ADVISE : the same, of a rule that stands in for the policy of the class: it alone takes note · JOIN : `event.row`,
    for `event.reason` · LEAVE : (row, 0, busy time handed over) · RECALL : the policy is told all that is known.
    """
    lane, now, what, row, reason = event.lane, event.now, event.what, event.row, event.reason
    busy = 0.0
    n = fleet.rows.shape[0]
    first, last = 0, 0  # places of which the policy is to believe what is known
    if what == RECALL:
        last = n
        _seed(fleet, settings, lane, now)
    elif what != ADVISE:
        factor = _discount(fleet, settings, lane, now)
        if factor < 1.0:
            forget(params, state, factor)
    if what in (ROUTE, CONSULT, ADVISE):
        jobs = show(fleet, lane, now, max(0.0, event.work - 1.0))
        if what == ROUTE:
            fleet.lanes[ARRIVED, lane] += 1.0
            _remember(fleet, lane, event.number)
        place, reason = decide(params, state, seen_now(fleet, settings, lane, now, jobs), stream)
        if place < 0 or place >= n:
            return -1, reason, 0.0
        if reason == EXPLORE and is_too_much(fleet, settings, lane, place):
            if what == ROUTE:
                fleet.lanes[OVER, lane] += 1.0
            _, _ = estimates(params, state, fleet.scratch)
            place, reason = _shortest(fleet, stream), CAPPED
        row = fleet.rows[place]
        if what == CONSULT:
            return row, reason, 0.0
    if what == JOIN:
        fleet.lanes[ARRIVED, lane] += 1.0
    if what == LEAVE:
        busy = _leave(fleet, settings, event)
    elif what in (ROUTE, JOIN):
        _join(fleet, settings, event, row, reason)
    jobs = show(fleet, lane, now, 0.0)
    seen = seen_now(fleet, settings, lane, now, jobs)
    if what != RECALL:
        place = fleet.places[row]
        if place >= 0:
            ticket = Ticket(place, EXPLORE if reason == EXPLORE else EXPLOIT, event.issued if what == LEAVE else now)
            if what == LEAVE:
                observe(params, state, seen, ticket, Outcome(event.kind, busy, event.done))
            else:
                assigned(params, state, seen, ticket)
        if what == LEAVE:
            done = event.done if event.kind == DONE else 0.0
            changed = _has_changed(fleet, settings, lane, row, done, busy, now)
            # Policies count jobs; where jobs are of unequal work, its sum counts.
            if place >= 0 and (changed or (event.kind == DONE and event.done != 1.0)):
                first, last = place, place + 1
            if fleet.lanes[YOUNG, lane] > 0.0 and _seed(fleet, settings, lane, now):
                first, last = 0, n
        elif what != ADVISE:
            other = _look(fleet, settings, lane, now)
            if other >= 0:
                first, last = other, other + 1
    for place in range(first, last):
        known = fleet.rows[place]
        if fleet.learned[DONE_WORK, lane, known] > 0.0 or fleet.learned[BUSY, lane, known] > 0.0:
            believe(params, state, seen, place, fleet.learned[DONE_WORK, lane, known], fleet.learned[BUSY, lane, known])
    if what == LEAVE and jobs == 0 and n > 0:
        emptied(params, state, seen)
    return row, reason, busy
