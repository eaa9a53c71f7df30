"""The matchings and the slots of one run: plain Python, compiled by whoever plays it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Who gets a server that several users want, by code.
CONFLICTS = ("first", "largest", "random")
_FIRST, _LARGEST = 0, 1


def match_greedily(index: Floats, server: Ints, owner: Ints) -> None:
    """Fill server[U] (and owner[K], −1: free) with the greedy matching on index[U, K]."""
    users, servers = index.shape
    for u in range(users):
        server[u] = -1
    for k in range(servers):
        owner[k] = -1
    for _ in range(users):
        at, to = -1, -1
        for u in range(users):
            if server[u] < 0:
                for k in range(servers):
                    if owner[k] < 0 and (at < 0 or index[u, k] > index[at, to]):
                        at, to = u, k
        server[at] = to
        owner[to] = at


def match_favourites(index: Floats, conflict: int, tickets: Floats, server: Ints, owner: Ints) -> None:
    """Fill server[U] and owner[K] with a matching in which as many users as possible have their largest index.

    A favourite server goes to one of those who want it, and no matching can do more. tickets : float64[U], the lowest one wins
    where conflicts are decided at random.
    """
    users, servers = index.shape
    for k in range(servers):
        owner[k] = -1
    for u in range(users):
        best = 0
        for k in range(1, servers):
            if index[u, k] > index[u, best]:
                best = k
        holder = owner[best]
        if holder < 0:
            owner[best] = u
        elif conflict == _LARGEST:
            if index[u, best] > index[holder, best]:
                owner[best] = u
        elif conflict != _FIRST and tickets[u] < tickets[holder]:
            owner[best] = u
    for u in range(users):
        server[u] = -1
    for k in range(servers):
        if owner[k] >= 0:
            server[owner[k]] = k
    for u in range(users):
        if server[u] < 0:
            to = -1
            for k in range(servers):
                if owner[k] < 0 and (to < 0 or index[u, k] > index[u, to]):
                    to = k
            server[u] = to
            owner[to] = u


class Setting(NamedTuple):
    """arrival : float64[U] · service : float64[U, K] · best : int64[U] · greedy : whether to match greedily · conflict : 0
    first, 1 largest, 2 random · exploration : the 3 of 3K ln²(s)/s"""

    arrival: Floats
    service: Floats
    best: Ints
    greedy: bool
    conflict: int
    exploration: float


class Draws(NamedTuple):
    """The randomness of one run of T slots.

    start : int64[U], queues before slot 1 · arrival, service : float64[T, U] uniforms, own_arrival, own_service those of
    the comparison system that has its own · coin : float64[T], whether to explore · shift : int64[T], which cyclic matching
    then · tickets : float64[T, U], or float64[1, U] where conflicts are not decided at random
    """

    start: Ints
    arrival: Floats
    service: Floats
    own_arrival: Floats
    own_service: Floats
    coin: Floats
    shift: Ints
    tickets: Floats


class Record(NamedTuple):
    """slots : int64[m], when queues are written down, ascending · queue, independent, common : int32[m, U], queue lengths after
    so many slots, of Q-UCB and of the optimal matching with its own randomness and with the learner's."""

    slots: Ints
    queue: NDArray[np.int32]
    independent: NDArray[np.int32]
    common: NDArray[np.int32]


class Work(NamedTuple):
    """now : int64[3, U], the three systems' queues · attempts, successes, indices : float64[U, K] · server : int64[U] · owner :
    int64[K]"""

    now: Ints
    attempts: Floats
    successes: Floats
    indices: Floats
    server: Ints
    owner: Ints


def _write(record: Record, row: int, now: Ints) -> None:
    for u in range(now.shape[1]):
        record.queue[row, u] = now[0, u]
        record.independent[row, u] = now[1, u]
        record.common[row, u] = now[2, u]


def play(setting: Setting, draws: Draws, work: Work, record: Record) -> None:
    """All slots of one run."""
    users, servers = setting.service.shape
    now, attempts, successes, index, server = work.now, work.attempts, work.successes, work.indices, work.server
    for u in range(users):
        for system in range(3):
            now[system, u] = draws.start[u]
    row = 0
    if record.slots[0] == 0:
        _write(record, 0, now)
        row = 1
    for done in range(record.slots[-1]):
        width = math.log(max(done, 1)) ** 2
        shift = -1
        if done < servers:
            shift = done
        elif draws.coin[done] * done < setting.exploration * servers * width:
            shift = draws.shift[done]
        if shift >= 0:
            for u in range(users):
                server[u] = (u + shift) % servers
        else:
            for u in range(users):
                for k in range(servers):
                    n = attempts[u, k]
                    index[u, k] = successes[u, k] / n + math.sqrt(width / (2.0 * n))
            if setting.greedy:
                match_greedily(index, server, work.owner)
            else:
                tickets = draws.tickets[done % draws.tickets.shape[0]]
                match_favourites(index, setting.conflict, tickets, server, work.owner)
        for u in range(users):
            k, best = server[u], setting.service[u, setting.best[u]]
            now[0, u] += draws.arrival[done, u] < setting.arrival[u]
            now[1, u] += draws.own_arrival[done, u] < setting.arrival[u]
            now[2, u] += draws.arrival[done, u] < setting.arrival[u]
            attempts[u, k] += 1.0
            if draws.service[done, u] < setting.service[u, k]:
                successes[u, k] += 1.0
                now[0, u] = max(0, now[0, u] - 1)
            if draws.own_service[done, u] < best:
                now[1, u] = max(0, now[1, u] - 1)
            if draws.service[done, u] < best:
                now[2, u] = max(0, now[2, u] - 1)
        if record.slots[row] == done + 1:
            _write(record, row, now)
            row += 1
