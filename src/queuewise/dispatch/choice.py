"""The server of shortest expected delay, and how ties are broken: the comparison that every rule and the oracle share.

A job that joins server i, with c_i slots of rate μ_i each and q_i jobs present, is expected to take
1/μ_i + max(0, q_i + 1 − c_i)/(c_i μ_i) = max(c_i, q_i + 1)/(c_i μ_i). With weights w_i = c_i μ_i and levels
x_i = max(c_i, q_i + 1), server i is at least as good as server j iff x_i w_j ≤ x_j w_i. Nothing is divided: with whole
weights (rates that are fractions, on a common denominator) below 2⁵³ every product is exact, and a tie is a tie.
For one slot this is (q_i + 1)/μ_i, the rule SED (LASED, section 2.2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._compile import options
from .._random import Stream, below

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: How ties are broken. The paper's rule is the lowest index (LASED, section 2.2).
LOWEST, HIGHEST, FASTEST, RANDOM = 0, 1, 2, 3
TIES = {"lowest": LOWEST, "highest": HIGHEST, "fastest": FASTEST, "random": RANDOM}

#: From so many servers on the best one is kept in an index instead of being looked for.
INDEX_FROM = 24


def level(queue: Ints, slots: Ints, i: int) -> float:
    """x_i = max(c_i, q_i + 1)."""
    return float(max(slots[i], queue[i] + 1))


def shortest_delay(queue: Ints, slots: Ints, weights: Floats, ties: int, stream: Stream) -> int:
    """argmin_i x_i / w_i, ties by the rule."""
    best, tied = 0, 1
    x_best, w_best = level(queue, slots, 0), weights[0]
    for i in range(1, queue.shape[0]):
        x, w = level(queue, slots, i), weights[i]
        here, there = x * w_best, x_best * w
        if here < there:
            best, x_best, w_best, tied = i, x, w, 1
        elif here == there and ties != LOWEST:
            tied += 1
            if ties == HIGHEST or (ties == FASTEST and w > w_best) or (ties == RANDOM and below(stream, tied) == 0):
                best, x_best, w_best = i, x, w
    return best


def is_shortest(queue: Ints, slots: Ints, weights: Floats, server: int) -> bool:
    """Whether no server is better than this one: membership in the oracle's set of optimal servers (LASED, section 2.2)."""
    x_here, w_here = level(queue, slots, server), weights[server]
    for i in range(queue.shape[0]):  # noqa: SIM110 - numba compiles no generator
        if level(queue, slots, i) * w_here < x_here * weights[i]:
            return False
    return True


# --- the index: a tournament of servers, so that one change of a queue costs log₂ n comparisons -----------------------


def new_index(servers: int, ties: int) -> Ints:
    """An empty index; without room where looking at every server is quicker, or ties are drawn among all."""
    if servers < INDEX_FROM or ties == RANDOM:
        return np.zeros(0, dtype=np.int64)
    leaves = 1
    while leaves < servers:
        leaves *= 2
    return np.full(2 * leaves, -1, dtype=np.int64)


def _winner(a: int, b: int, queue: Ints, slots: Ints, weights: Floats, ties: int) -> int:
    """The better of two servers; a < b, and −1 stands for none."""
    if b < 0:
        return a
    here, there = level(queue, slots, a) * weights[b], level(queue, slots, b) * weights[a]
    if here < there:
        return a
    if there < here or ties == HIGHEST:
        return b
    return b if ties == FASTEST and weights[b] > weights[a] else a


@options(inline="never")
def build_index(index: Ints, queue: Ints, slots: Ints, weights: Floats, ties: int) -> None:
    """Fill the index after many changes at once."""
    leaves = index.shape[0] // 2
    for i in range(leaves):
        index[leaves + i] = i if i < queue.shape[0] else -1
    for node in range(leaves - 1, 0, -1):
        index[node] = _winner(index[2 * node], index[2 * node + 1], queue, slots, weights, ties)


@options(inline="never")
def update_index(index: Ints, queue: Ints, slots: Ints, weights: Floats, ties: int, server: int) -> None:
    """Follow one change of a server's queue or weight."""
    if index.shape[0] == 0:
        return
    node = (index.shape[0] // 2 + server) // 2
    while node > 0:
        index[node] = _winner(index[2 * node], index[2 * node + 1], queue, slots, weights, ties)
        node //= 2


def best_server(index: Ints, queue: Ints, slots: Ints, weights: Floats, ties: int, stream: Stream) -> int:
    """argmin_i x_i / w_i, from the index where there is one."""
    if index.shape[0] > 0:
        return int(index[1])
    return shortest_delay(queue, slots, weights, ties, stream)


def law_of(queue: Ints, slots: Ints, weights: Floats, ties: int) -> Floats:
    """The probabilities with which :func:`shortest_delay` chooses each server, in many states at once.

    queue : int64[states, n] → float64[states, n]
    """
    x = np.maximum(slots, queue + 1).astype(np.float64)
    best = np.zeros(len(queue), dtype=np.int64)
    rows = np.arange(len(queue))
    for i in range(1, queue.shape[1]):
        best = np.where(x[:, i] * weights[best] < x[rows, best] * weights[i], i, best)
    tied = x * weights[best][:, None] == x[rows, best][:, None] * weights[None, :]
    if ties == RANDOM:
        return np.asarray(tied / tied.sum(axis=1, keepdims=True))
    if ties == LOWEST:
        chosen = tied.argmax(axis=1)
    elif ties == HIGHEST:
        chosen = queue.shape[1] - 1 - tied[:, ::-1].argmax(axis=1)
    else:
        chosen = np.where(tied, weights[None, :], -np.inf).argmax(axis=1)
    found = np.zeros(queue.shape)
    found[rows, chosen] = 1.0
    return found
