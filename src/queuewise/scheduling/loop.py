"""The rounds of a contextual queue in slotted time: the simulation's inner loop.

Plain Python, compiled once per policy with that policy's functions in place of the placeholders, or run as
it is where numba refuses a policy. Order of a round (both papers, section 2): decide and serve, observe, then arrival.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .policy import Ticket, Waiting, admit, assigned, observe  # placeholders, bound to each policy's own
from .systems import Draw


def decide(params: Any, state: Any, columns: Any, waiting: Waiting, stream: Any) -> tuple[int, int, int]:
    """Placeholder, bound per policy."""
    return waiting.slots[0], 0, 0


class Queue(NamedTuple):
    """The waiting jobs, addressed by stable slots, c of them.

    clock : int64[6] = rounds done, waiting jobs, slot of the newcomer (−1: none), free slots, jobs arrived so far, attempts
    after which a job is given up (0: never)
    slots : int64[c], waiting slots in arrival order · free : int64[c], stack of free slots · job : int64[c], who is in
    a slot · attempts : int64[c], its failed ones · features : float64[c, d, K] · truth : float64[c, K] as the policy sees
    it · probabilities : float64[c, K] · allowed : bool[K], all true
    """

    clock: NDArray[np.int64]
    slots: NDArray[np.int64]
    free: NDArray[np.int64]
    job: NDArray[np.int64]
    attempts: NDArray[np.int64]
    features: NDArray[np.float64]
    truth: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    allowed: NDArray[np.bool_]


class Record(NamedTuple):
    """What is written down. queue_length : int32[T], Q(t) at the beginning of round t. given_up : bool[T], whether a job was
    given up in the round; of length 0 where jobs never are. The others have length 0 unless asked for: job, server, reason :
    int32[T] (−1 in an empty round), departure : bool[T], gap : float64[T], the departure rate gap g_t; born, gone :
    int32[jobs], the rounds in which a job arrived and left the queue (0: still waiting)."""

    queue_length: NDArray[np.int32]
    given_up: NDArray[np.bool_]
    job: NDArray[np.int32]
    server: NDArray[np.int32]
    reason: NDArray[np.int32]
    departure: NDArray[np.bool_]
    gap: NDArray[np.float64]
    born: NDArray[np.int32]
    gone: NDArray[np.int32]


def run(
    params: Any,
    state: Any,
    columns: Any,
    queue: Queue,
    draws: Draw,
    record: Record,
    stream: Any,
    until: int,
    clairvoyant: bool,
) -> int:
    """Play rounds until `until` rounds are done, or until the slots are full at the beginning of a round. Returns the
    number of rounds done; the caller makes room and calls again. A policy that names no waiting job or no allowed
    server ends the run with −1 − (rounds done)."""
    clock, slots = queue.clock, queue.slots
    d, servers = queue.features.shape[1], queue.features.shape[2]
    features = np.empty(d)
    tracing = record.job.shape[0] > 0
    while clock[0] < until and clock[3] > 0:
        t = clock[0] + 1
        count = clock[1]
        record.queue_length[t - 1] = count
        if count > 0:
            waiting = Waiting(t, count, slots, clock[2], queue.allowed, queue.features, queue.truth)
            slot, server, reason = decide(params, state, columns, waiting, stream)
            position = 0
            while position < count and slots[position] != slot:
                position += 1
            if position == count or server < 0 or server >= servers:
                return -1 - int(clock[0])
            for j in range(d):
                features[j] = queue.features[slot, j, server]
            ticket = Ticket(t, slot, server, reason, features)
            assigned(params, state, columns, waiting, ticket)
            p = queue.probabilities[slot, server]
            success = draws.service[t - 1] <= p
            observe(params, state, columns, waiting, ticket, success)
            if tracing:
                best = 0.0
                for i in range(count):
                    for k in range(servers):
                        best = max(best, queue.probabilities[slots[i], k])
                record.job[t - 1] = queue.job[slot]
                record.server[t - 1] = server
                record.reason[t - 1] = reason
                record.departure[t - 1] = success
                record.gap[t - 1] = best - p  # g_t of WISE section 3.1
            leaves = success
            if not success and clock[5] > 0:
                queue.attempts[slot] += 1
                if queue.attempts[slot] >= clock[5]:
                    leaves = True
                    record.given_up[t - 1] = True
            if leaves:
                if tracing:
                    record.gone[queue.job[slot]] = t
                for i in range(position, count - 1):
                    slots[i] = slots[i + 1]
                clock[1] = count - 1
                queue.free[clock[3]] = slot
                clock[3] += 1
        clock[2] = -1
        if draws.arrivals[t - 1]:
            job = clock[4]
            row = draws.contexts[job]
            clock[3] -= 1
            slot = queue.free[clock[3]]
            slots[clock[1]] = slot
            queue.job[slot] = job
            queue.attempts[slot] = 0
            for k in range(servers):
                queue.probabilities[slot, k] = draws.probabilities[row, k]
                if clairvoyant:
                    queue.truth[slot, k] = draws.probabilities[row, k]
                for j in range(d):
                    queue.features[slot, j, k] = draws.features[row, j, k]
            clock[1] += 1
            clock[2] = slot
            clock[4] = job + 1
            if tracing:
                record.born[job] = t
            waiting = Waiting(t, clock[1], slots, slot, queue.allowed, queue.features, queue.truth)
            admit(params, state, columns, waiting, slot)
        clock[0] = t
    return int(clock[0])
