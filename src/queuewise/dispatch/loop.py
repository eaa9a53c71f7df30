"""The events of parallel queues: the simulation's inner loop.

Plain Python, compiled once per policy with that policy's functions in place of the placeholders, or run as it is where
numba refuses a policy. Service is first come, first served, so a job's departure is known as soon as it is routed: with c
slots it begins when the c-th last of the departures before it is over. Each server therefore keeps its jobs as a list in
order of departure, and the next departure of all is the least of the heads. At equal times departures go before arrivals,
and lower servers before higher ones.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._compile import options
from .choice import best_server, build_index, is_shortest, level, update_index
from .policy import (  # bound to each policy's own
    DONE,
    EXPLORE,
    Outcome,
    Seen,
    Ticket,
    assigned,
    emptied,
    estimates,
    observe,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: How a call of :func:`run` ends: the chunk is through, or the caller must make room, or stop.
DONE_WITH_CHUNK, NO_ROOM, UNSTABLE, NO_SUCH_SERVER = 0, 1, 2, 3

#: Reasons travel with the job in eight bits.
MOST_REASON = 127

#: Causes of a decision against the oracle (LASED, section 3.3; per decision as docs/dispatch.md says).
EXPLORATION, MISESTIMATION, OVERFLOW = 0, 1, 2

#: Fields of one row of a record, before those that there are of each server.
TIME, WRONG, AREA, FOUND, SOJOURN, BUSY_PERIODS, EPISODE, LARGEST, PER_SERVER = 0, 1, 4, 5, 6, 7, 8, 9, 10


def decide(params: Any, state: Any, seen: Seen, stream: Any) -> tuple[int, int]:
    """Placeholder, bound per policy."""
    return 0, 0


def is_simple() -> bool:
    """Placeholder, bound per program: :func:`yes` where every server has one slot and a constant rate, servers are few, sizes
    belong to jobs and nothing is written down per job, so that the code for all else is not even compiled."""
    return False


def yes() -> bool:
    """For the simple case."""
    return True


def no() -> bool:
    """For all others."""
    return False


class Truth(NamedTuple):
    """The servers as they are.

    slots : int64[n] · rates : float64[pieces, n] · weights : float64[pieces, n], c_i μ_i up to a factor · changes :
    float64[pieces], when each piece begins · hidden : float64[n], NaN · gaps : float64[m], u_{r*}(m) of two servers (LASED
    (3)), empty where decisions are not split by cause · ratio : r* · depth : c₁ of m(k) = ⌊c₁ ln k⌋
    """

    slots: Ints
    rates: Floats
    weights: Floats
    changes: Floats
    hidden: Floats
    gaps: Floats
    ratio: float
    depth: float


class Flow(NamedTuple):
    """What arrives in one chunk, the same for all policies: times and sizes, float64[chunk]; `own` is float64[n, chunk] with
    the next sizes of each server where sizes belong to the servers, else of length 0."""

    times: Floats
    sizes: Floats
    own: Floats


class Jobs(NamedTuple):
    """Jobs in the system, by place in a pool; free[:clock[FREE]] are the free places. Linked in order of departure."""

    departs: Floats
    began: Floats
    issued: Floats
    work: Floats
    reason: NDArray[np.int8]
    after: Ints
    before: Ints
    free: Ints


class Servers(NamedTuple):
    """queue : int64[n] · first, last : int64[n], places of the jobs that depart first and last, −1 where there are none
    next : float64[n], when the first one departs, ∞ where there are none · began, available : as in :class:`Seen`
    used : int64[n], sizes used of `Flow.own` · tree : int64, tournament of the next departures, empty for few servers
    best : int64, the oracle's index, empty for few servers · estimate : float64[n], room for a policy's estimates"""

    queue: Ints
    first: Ints
    last: Ints
    next: Floats
    began: Floats
    available: Floats
    used: Ints
    tree: Ints
    best: Ints
    estimate: Floats


class Tally(NamedTuple):
    """clock : int64[8], see below · sums : float64[4] = time of the last event, ∫N dt, sum of N found by arrivals, sum of
    sojourn times · wrong : int64[3] by cause · served : int64[n], jobs routed to each · busy : float64[n], service times of
    the jobs that departed"""

    clock: Ints
    sums: Floats
    wrong: Ints
    served: Ints
    busy: Floats


#: Places in `Tally.clock`.
ARRIVED, PRESENT, FREE, POSITION, MARK, PERIODS, PIECE, MOST = range(8)


class Record(NamedTuple):
    """What is written down. at : int64[marks], numbers of arrivals after which a row is written · rows : float64[marks,
    fields + 2n] · rates : float64[marks, n], estimates. The others are of one chunk, of length 0 unless asked for: sojourn :
    float64 · server : int32, reason : int8, cause : int8 (−1: not against the oracle), size, began, departs : float64."""

    at: Ints
    rows: Floats
    rates: Floats
    sojourn: Floats
    server: NDArray[np.int32]
    reason: NDArray[np.int8]
    cause: NDArray[np.int8]
    size: Floats
    began: Floats
    departs: Floats


# --- the next departure among many servers ---------------------------------------------------------------------------


def _sooner(next_departure: Floats, a: int, b: int) -> int:
    return a if b < 0 or next_departure[a] <= next_departure[b] else b


@options(inline="never")
def _follow(tree: Ints, next_departure: Floats, server: int) -> None:
    """Follow a change of one server's next departure."""
    node = (tree.shape[0] // 2 + server) // 2
    while node > 0:
        tree[node] = _sooner(next_departure, tree[2 * node], tree[2 * node + 1])
        node //= 2


def _soonest(servers: Servers, many: bool) -> int:
    """The server with the next departure; the lowest at equal times."""
    if many:
        return int(servers.tree[1])
    soonest = 0
    for i in range(1, servers.next.shape[0]):
        if servers.next[i] < servers.next[soonest]:
            soonest = i
    return soonest


# --- one job ---------------------------------------------------------------------------------------------------------


@options(inline="never")
def _finish(truth: Truth, server: int, start: float, size: float, piece: int) -> float:
    """When a job of this size that begins at `start` is done; the rate may change while it is served."""
    pieces = truth.changes.shape[0]
    while piece + 1 < pieces and truth.changes[piece + 1] <= start:
        piece += 1
    while piece + 1 < pieces:
        done = (truth.changes[piece + 1] - start) * truth.rates[piece, server]
        if size <= done:
            break
        size -= done
        start = truth.changes[piece + 1]
        piece += 1
    return float(start + size / truth.rates[piece, server])


@options(inline="never")
def _cth_last(jobs: Jobs, servers: Servers, server: int, slots: int) -> float:
    """The c-th last of the departures from a server that has at least c jobs."""
    place = servers.last[server]
    for _ in range(slots - 1):
        place = jobs.before[place]
    return float(jobs.departs[place])


def _join(jobs: Jobs, servers: Servers, server: int, place: int, many: bool) -> None:
    """Put a job into its server's list, in order of departure: at most c − 1 jobs before it depart later."""
    departs = jobs.departs[place]
    before = servers.last[server]
    after = -1
    while before >= 0 and jobs.departs[before] > departs:
        after = before
        before = jobs.before[before]
    jobs.before[place], jobs.after[place] = before, after
    if after < 0:
        servers.last[server] = place
    else:
        jobs.before[after] = place
    if before < 0:
        servers.first[server] = place
        servers.next[server] = departs
        if many:
            _follow(servers.tree, servers.next, server)
    else:
        jobs.after[before] = place


def _leave(jobs: Jobs, servers: Servers, server: int, place: int, many: bool) -> None:
    """Take the first job off its server's list."""
    after = jobs.after[place]
    servers.first[server] = after
    if after < 0:
        servers.last[server] = -1
        servers.next[server] = math.inf
    else:
        jobs.before[after] = -1
        servers.next[server] = jobs.departs[after]
    if many:
        _follow(servers.tree, servers.next, server)


@options(inline="never")
def _cause(truth: Truth, estimate: Floats, episode: int, within: bool) -> int:
    """Why a decision that was not forced was against the oracle: misestimation if the episode's event E^mis holds (LASED (11)),
    an estimated ratio outside its range, or |r̂ − r*| ≥ u_{r*}(m(k)). Else a queue exceeded m(k), by Lemma 1."""
    if episode < 1 or not within:
        return MISESTIMATION
    m = min(int(truth.depth * math.log(episode)), truth.gaps.shape[0] - 1)
    near = abs(estimate[1] / estimate[0] - truth.ratio) < truth.gaps[m]
    return OVERFLOW if near else MISESTIMATION


@options(inline="never")
def _write_row(
    truth: Truth, servers: Servers, tally: Tally, record: Record, row: int, now: float, episode: int
) -> None:
    """Everything so far, at the moment of an arrival."""
    n = servers.queue.shape[0]
    out = record.rows
    out[row, TIME] = now
    for cause in range(3):
        out[row, WRONG + cause] = tally.wrong[cause]
    out[row, AREA] = tally.sums[1]
    out[row, FOUND] = tally.sums[2]
    out[row, SOJOURN] = tally.sums[3]
    out[row, BUSY_PERIODS] = tally.clock[PERIODS]
    out[row, EPISODE] = episode
    out[row, LARGEST] = tally.clock[MOST]
    for i in range(n):
        in_service = min(servers.queue[i], truth.slots[i]) * now - servers.began[i]
        out[row, PER_SERVER + i] = tally.served[i]
        out[row, PER_SERVER + n + i] = tally.busy[i] + in_service
        record.rates[row, i] = servers.estimate[i]


def run(
    params: Any,
    state: Any,
    truth: Truth,
    flow: Flow,
    jobs: Jobs,
    servers: Servers,
    tally: Tally,
    record: Record,
    stream: Any,
    most: int,
    clairvoyant: bool,
) -> int:
    """Play the rest of a chunk: for each arrival, the departures up to it, the decision, and the job's way to its
    departure. Returns DONE_WITH_CHUNK, or why it stopped before the arrival at clock[POSITION]; then the caller makes room
    and calls again."""
    clock, sums, queue, slots = tally.clock, tally.sums, servers.queue, truth.slots
    n = queue.shape[0]
    count = flow.times.shape[0]
    simple = is_simple()
    coupled = simple or flow.own.shape[1] == 0
    recording = not simple and record.server.shape[0] > 0
    listening = not simple and record.sojourn.shape[0] > 0
    many = not simple and servers.best.shape[0] > 0
    pieces = 1 if simple else truth.changes.shape[0]
    piece = clock[PIECE]
    weights = truth.weights[piece]
    shown = weights if clairvoyant else truth.hidden
    free_at = servers.available if clairvoyant else truth.hidden
    arrived, present, free, mark = clock[ARRIVED], clock[PRESENT], clock[FREE], clock[MARK]
    last, area, found, sojourn = sums[0], sums[1], sums[2], sums[3]
    position = clock[POSITION]
    status = DONE_WITH_CHUNK
    next_mark = record.at[mark] if mark < record.at.shape[0] else -1
    while position < count:
        now = flow.times[position]

        # Departures up to now.
        while present > 0:
            server = _soonest(servers, many)
            then = servers.next[server]
            if then > now:
                break
            place = servers.first[server]
            _leave(jobs, servers, server, place, many)
            area += present * (then - last)
            last = then
            present -= 1
            left = queue[server] - 1
            queue[server] = left
            began = jobs.began[place]
            room = 1 if simple else slots[server]
            if left >= room:  # the next one waiting begins now
                if room == 1:
                    servers.began[server] = then
                else:
                    servers.began[server] += then - began
            else:
                servers.available[server] = -math.inf
                if left == 0:
                    servers.began[server] = 0.0
                else:
                    servers.began[server] -= began
            if many:
                update_index(servers.best, queue, slots, weights, 0, server)
            tally.busy[server] += then - began
            jobs.free[free] = place
            free += 1
            seen = Seen(then, present, arrived, piece, queue, slots, servers.began, free_at, shown)
            ticket = Ticket(server, jobs.reason[place], jobs.issued[place])
            observe(params, state, seen, ticket, Outcome(DONE, then - began, jobs.work[place]))
            if present == 0:
                clock[PERIODS] += 1
                emptied(params, state, seen)

        if free == 0:
            status = NO_ROOM
            break
        if present >= most:
            status = UNSTABLE
            break

        # The rates of now.
        if pieces > 1 and piece + 1 < pieces and truth.changes[piece + 1] <= now:
            while piece + 1 < pieces and truth.changes[piece + 1] <= now:
                piece += 1
            weights = truth.weights[piece]
            if clairvoyant:
                shown = weights
            if many:
                build_index(servers.best, queue, slots, weights, 0)

        # The decision, held against the oracle's set at this state.
        seen = Seen(now, present, arrived + 1, piece, queue, slots, servers.began, free_at, shown)
        server, reason = decide(params, state, seen, stream)
        if server < 0 or server >= n or reason < 0 or reason > MOST_REASON:
            status = NO_SUCH_SERVER
            break
        if coupled:
            size = flow.sizes[position]
        else:
            size = flow.own[server, servers.used[server]]
            servers.used[server] += 1
        if many:
            best = best_server(servers.best, queue, slots, weights, 0, stream)
            right = level(queue, slots, best) * weights[server] >= level(queue, slots, server) * weights[best]
        else:
            right = is_shortest(queue, slots, weights, server)
        cause = -1
        if not right:
            cause = EXPLORATION if reason == EXPLORE else MISESTIMATION
            # Estimates take n steps, so they are asked for only where they tell causes apart.
            if cause == MISESTIMATION and truth.gaps.shape[0] > 0:
                episode, within = estimates(params, state, servers.estimate)
                cause = _cause(truth, servers.estimate, episode, within)
            tally.wrong[cause] += 1

        # The job's way.
        area += present * (now - last)
        last = now
        found += present
        arrived += 1
        present += 1
        ahead = queue[server]
        start = now
        room = 1 if simple else slots[server]
        if ahead >= room:
            start = servers.available[server]
        else:
            servers.began[server] += now
        if pieces == 1:
            departs = start + size / truth.rates[0, server]
        else:
            departs = _finish(truth, server, start, size, piece)
        free -= 1
        place = jobs.free[free]
        jobs.departs[place], jobs.began[place], jobs.issued[place] = departs, start, now
        jobs.work[place], jobs.reason[place] = size, reason
        _join(jobs, servers, server, place, many)
        queue[server] = ahead + 1
        if ahead + 1 >= room:
            if room == 1:
                servers.available[server] = departs
            else:
                servers.available[server] = _cth_last(jobs, servers, server, room)
        if many:
            update_index(servers.best, queue, slots, weights, 0, server)
        tally.served[server] += 1
        sojourn += departs - now
        if present > clock[MOST]:
            clock[MOST] = present
        seen = Seen(now, present, arrived, piece, queue, slots, servers.began, free_at, shown)
        assigned(params, state, seen, Ticket(server, reason, now))

        if recording:
            record.server[position], record.reason[position], record.cause[position] = server, reason, cause
            record.size[position], record.began[position], record.departs[position] = size, start, departs
        if listening:
            record.sojourn[position] = departs - now
        position += 1
        if arrived == next_mark:
            sums[1], sums[2], sums[3] = area, found, sojourn
            episode, within = estimates(params, state, servers.estimate)
            _write_row(truth, servers, tally, record, mark, now, episode)
            mark += 1
            next_mark = record.at[mark] if mark < record.at.shape[0] else -1

    clock[ARRIVED], clock[PRESENT], clock[FREE], clock[POSITION] = arrived, present, free, position
    clock[MARK], clock[PIECE] = mark, piece
    sums[0], sums[1], sums[2], sums[3] = last, area, found, sojourn
    return status
