"""WISE's intervals: the log of an epoch, the intersection of a job with it, and comparing widths without cancellation.

An interval of a pair is kept as its two *logits*; only the freeze midpoint and the width are taken in probability, as
Algorithm 1 of WISE does. Every (θ̂_i, V_i, β_i) of the running epoch is one entry of a log, and each waiting job
remembers how many entries it has met. Meeting the log is the same act for a job that waits since yesterday (one new
entry a round) and for a newcomer, who meets the whole epoch at once — the rounds before its arrival included, which is
what makes the uncertainty z_i(r) of WISE section 3.3 monotone.

An entry holds θ̂_i and the rank-one move that turned V_{i−1} into V_i, so that ‖φ‖²_{V_i^{−1}} follows by one product:
two inner products per pair and entry, whatever the dimension.

Where servers share no parameter (blocks, see :mod:`logistic`), a round changes one server's intervals and no other's: θ̂
and V stand still in the other blocks, β does not fall, and so their new intervals hold the old. Such an entry names its
server, and only that one is intersected.

Estimates for long horizons form an interval only when det V has grown by a factor, O(d log t) of them. Between two fits of a
schedule the valid intervals hold that of the last fit (:mod:`confidence`), and so change no intersection; of a one-pass
estimate each round's interval is valid, and some are left out, which keeps the others valid, nested and the same for all
jobs. Such entries hold V_i⁻¹ itself, since many moves lie between two of them.

With the exact estimate a newcomer meets half the run, which makes long runs quadratic. But jobs of the same features have
the same intervals: where contexts recur, a memory of them lets a newcomer begin where the last job of its context
stopped, and each context meets each entry once.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._compile import options
from ..growing import Grows
from .confidence import squared_norms
from .distinct import place
from .logistic import ALL, EXACT, Logistic, copy_into, fill, logistic

Floats = NDArray[np.float64]


#: A width key (they are above −1) that has not been computed.
UNKNOWN = -2.0
#: Which blocks an interval's change concerns, where it is not one alone: ALL, or none.
NONE = -2
#: Numbers that a memory of contexts may hold (16 MiB), and contexts.
MOST_NUMBERS, MOST_CONTEXTS = 2**21, 4096


class Log(NamedTuple):
    """The entries of the running epoch; entry 0 is its first interval, I_{τ−1}. An attempt adds one when it is assigned
    and, unless its outcome follows at once, another when that is known or has expired.

    theta : float64[c, d], θ̂_i · move : float64[c, b], sign : float64[c] and moved : int64[c], the change of V that led to
    entry i, and its block
    radius : float64[c], β_i · formed : bool[c], whether an interval is formed at this entry (between an assignment and
    its outcome V has moved and θ̂ has not: no interval of the paper) · only : int64[c], the one block in which θ̂ or V has
    changed since an interval was last formed, else ALL or NONE · first_inverse : float64[d, b], V_{τ−1}^{−1}
    inverse : float64[c, d, b], V_i^{−1} in a log of some intervals alone, whose `move` is empty; else float64[c, 0, b]
    counts : int64[4], the epoch m (−1 before the first), the number of entries, `only` of the next interval so far, and
    attempts answered or expired since the start
    """

    theta: Annotated[Floats, Grows(axis=0, spare=2)]
    move: Annotated[Floats, Grows(axis=0, spare=2)]
    sign: Annotated[Floats, Grows(axis=0, spare=2)]
    moved: Annotated[NDArray[np.int64], Grows(axis=0, spare=2)]
    radius: Annotated[Floats, Grows(axis=0, spare=2)]
    formed: Annotated[NDArray[np.bool_], Grows(axis=0, spare=2)]
    only: Annotated[NDArray[np.int64], Grows(axis=0, spare=2)]
    inverse: Annotated[Floats, Grows(axis=0, spare=2)]
    first_inverse: Floats
    counts: NDArray[np.int64]

    def room(self, attempts: int) -> int:
        """Entries to have room for before there are more than so many attempts: two for each that is not answered yet."""
        return int(self.counts[1] + 2 * (attempts - self.counts[3]))


def start(dimension: int, capacity: int, blocks: int = 1, estimator: int = EXACT) -> Log:
    """An empty log."""
    length, whole = dimension // blocks, estimator != EXACT
    return Log(
        theta=np.zeros((capacity, dimension)),
        move=np.zeros((capacity, 0 if whole else length)),
        sign=np.zeros(capacity),
        moved=np.zeros(capacity, dtype=np.int64),
        radius=np.zeros(capacity),
        formed=np.zeros(capacity, dtype=np.bool_),
        only=np.full(capacity, ALL),
        inverse=np.zeros((capacity, dimension if whole else 0, length)),
        first_inverse=np.zeros((dimension, length)),
        counts=np.array([-1, 0, NONE, 0]),
    )


def epoch_of(t: int, shift: float) -> int:
    """m_t = max{m : τ_m ≤ t}, τ_0 = 1, τ_m = ⌈2^{m−1+U₀}⌉ (WISE (10)), t ≥ 1, shift = U₀."""
    m = 0
    while epoch_start(m + 1, shift) <= t:
        m += 1
    return m


def epoch_start(m: int, shift: float) -> int:
    """τ_m of WISE (10)."""
    if m == 0:
        return 1
    power: float = 2.0 ** (m - 1 + shift)
    return math.ceil(power)


def begin_epoch(log: Log, estimate: Logistic, m: int, beta: float) -> None:
    """Forget the former epoch's entries; the first is I_{τ−1}, from what is known now (the rounds since τ, if any, were
    empty, or this would have been called then)."""
    log.counts[0] = m
    log.counts[1] = 1
    for row in range(log.first_inverse.shape[0]):
        copy_into(log.first_inverse[row], estimate.inverse[row])
    copy_into(log.theta[0], estimate.theta)
    fill(log.move[0], 0.0)
    log.sign[0] = 1.0
    _form(log, 0, beta)
    log.only[0] = ALL


def log_interval(log: Log, estimate: Logistic, beta: float) -> None:
    """An interval of what is known now, in a log of some intervals alone."""
    entry = log.counts[1]
    log.counts[1] = entry + 1
    copy_into(log.theta[entry], estimate.theta)
    for row in range(log.first_inverse.shape[0]):
        copy_into(log.inverse[entry, row], estimate.inverse[row])
    _form(log, entry, beta)
    log.only[entry] = ALL


@options(inline="always")
def _form(log: Log, entry: int, beta: float) -> None:
    """An interval is formed at this entry."""
    log.radius[entry] = beta
    log.formed[entry] = True
    log.only[entry] = log.counts[2]
    log.counts[2] = NONE


def _touch(counts: NDArray[np.int64], block: int) -> None:
    """θ̂ or V has changed in this block."""
    counts[2] = block if counts[2] == NONE or counts[2] == block else ALL


def _touch_moved(counts: NDArray[np.int64], before: Floats, theta: Floats, length: int) -> None:
    """θ̂ has changed in all blocks, of this length, in which it differs from what it was before."""
    for first in range(0, theta.shape[0], length):
        for j in range(first, first + length):
            if theta[j] != before[j]:
                _touch(counts, first // length)
                break


@options(inline="always")
def log_move(log: Log, estimate: Logistic) -> None:
    """V has just moved; an interval is formed only when an outcome (or a decision in between) follows."""
    entry = log.counts[1]
    log.counts[1] = entry + 1
    copy_into(log.theta[entry], estimate.theta)
    copy_into(log.move[entry], estimate.move)
    log.sign[entry] = estimate.move_sign[0]
    log.moved[entry] = estimate.counts[2]
    log.formed[entry] = False
    _touch(log.counts, estimate.counts[2])


@options(inline="always")
def log_outcome(log: Log, estimate: Logistic, beta: float) -> None:
    """θ̂ has moved: the interval of WISE's line 14 for the coming rounds."""
    entry = log.counts[1]
    if entry > 0:
        _touch_moved(log.counts, log.theta[entry - 1], estimate.theta, log.inverse.shape[2])
    if entry > 0 and not log.formed[entry - 1]:
        entry -= 1  # the attempt's own move of V is the last entry: one round, one interval
    else:
        log.counts[1] = entry + 1
        fill(log.move[entry], 0.0)
        log.sign[entry] = 1.0
    copy_into(log.theta[entry], estimate.theta)
    _form(log, entry, beta)


@options(inline="always")
def close(log: Log, beta: float) -> None:
    """A decision is due while attempts are in flight: what is known now forms an interval."""
    last = log.counts[1] - 1
    if not log.formed[last]:
        _form(log, last, beta)


def midpoint(low: float, high: float) -> float:
    """The logit of (μ(low) + μ(high))/2. The midpoint is one of probabilities: for logits (−5, 1) it is −0.54."""
    inside = logistic(low) + logistic(high)
    outside = logistic(-low) + logistic(-high)  # both sums to full relative accuracy, so their ratio too
    return math.log(inside / outside)


@options(inline="always")
def _scores_of_row(rows: Floats, row: int, features: Floats, out: Floats) -> None:
    """:func:`confidence.scores` for one row of a matrix, without making a view of it: a newcomer asks a thousand times."""
    d, servers = features.shape
    for k in range(servers):
        out[k] = rows[row, 0] * features[0, k]
    for j in range(1, d):
        value = rows[row, j]
        for k in range(servers):
            out[k] += value * features[j, k]


@options(inline="always")
def meet(
    log: Log,
    bound: float,
    met: int,
    low: Floats,
    high: Floats,
    frozen: Floats,
    squares: Floats,
    keys: Floats,
    features: Floats,
) -> None:
    """Intersect the intervals of one job's pairs (logits low, high : float64[K]) with the entries of the log from `met`
    on; met = 0 starts afresh from I_{τ−1}. `bound` is the logit of p̄. Lines 7–13 of WISE's Algorithm 1. What has changed
    has an unknown width key afterwards."""
    servers = low.shape[0]
    if met == 0:
        squared_norms(log.first_inverse, features, squares)
        for k in range(servers):
            low[k], high[k], frozen[k] = -bound, bound, 0.0
    work, below, above = np.empty(servers), np.empty(servers), np.empty(servers)
    whole = log.inverse.shape[1] > 0
    if log.inverse.shape[2] < features.shape[0]:
        if met == 0:
            fill(keys, UNKNOWN)
        meet_blocks(log, met, low, high, frozen, squares, keys, features)
        return
    fill(keys, UNKNOWN)
    any_frozen = 0.0
    for k in range(servers):
        any_frozen += frozen[k]
    for entry in range(met, log.counts[1]):
        if entry > 0 and whole:
            squared_norms(log.inverse[entry], features, squares)
        elif entry > 0:
            _scores_of_row(log.move, entry, features, work)
            sign = log.sign[entry]
            for k in range(servers):
                squares[k] -= sign * work[k] * work[k]
        if not log.formed[entry]:
            continue
        beta = log.radius[entry]
        _scores_of_row(log.theta, entry, features, work)
        empty = 0.0
        for k in range(servers):
            reach = beta * math.sqrt(squares[k] if squares[k] > 0.0 else 0.0)
            lowest, highest = work[k] - reach, work[k] + reach
            below[k] = low[k] if low[k] > lowest else lowest
            above[k] = high[k] if high[k] < highest else highest
            empty += 1.0 if below[k] > above[k] else 0.0
        if empty == 0.0 and any_frozen == 0.0:
            for k in range(servers):
                low[k], high[k] = below[k], above[k]
            continue
        for k in range(servers):
            if frozen[k] != 0.0:
                continue
            if below[k] > above[k]:  # line 10: the midpoint of the last nonempty intersection, until the next epoch
                low[k] = midpoint(low[k], high[k])
                high[k] = low[k]
                frozen[k] = 1.0
                any_frozen += 1.0
            else:
                low[k], high[k] = below[k], above[k]


@options(inline="always")
def meet_blocks(
    log: Log, met: int, low: Floats, high: Floats, frozen: Floats, squares: Floats, keys: Floats, features: Floats
) -> None:
    """:func:`meet` where servers share no parameter: each entry for the servers that it concerns."""
    b = log.inverse.shape[2]
    for entry in range(met, log.counts[1]):
        if entry > 0 and log.inverse.shape[1] > 0:
            squared_norms(log.inverse[entry], features, squares)
        elif entry > 0:
            k = log.moved[entry]
            product = 0.0
            for j in range(b):
                product += log.move[entry, j] * features[k * b + j, k]
            squares[k] -= log.sign[entry] * product * product
        only = log.only[entry]
        if not log.formed[entry] or only == NONE:
            continue
        for k in range(low.shape[0]) if only == ALL else range(only, only + 1):
            if frozen[k] != 0.0:
                continue
            centre = 0.0
            for j in range(k * b, k * b + b):
                centre += log.theta[entry, j] * features[j, k]
            reach = log.radius[entry] * math.sqrt(max(squares[k], 0.0))
            keys[k] = UNKNOWN
            below, above = max(low[k], centre - reach), min(high[k], centre + reach)
            if below > above:  # line 10, as above
                low[k] = midpoint(low[k], high[k])
                high[k] = low[k]
                frozen[k] = 1.0
            else:
                low[k], high[k] = below, above


class Memory(NamedTuple):
    """Contexts met before, m of them, and where the last job of each stopped.

    features : float64[d·K, m] · held : float64[m, 5, K], ends, frozen, squares and keys as in a job's columns · met :
    int64[m, 2], the epoch and the entries met · branch : int64[2, m], how they are found again · counts : int64[3],
    contexts, the most that it may hold, and newcomers whose context was known
    """

    features: Annotated[Floats, Grows(axis=1)]
    held: Annotated[Floats, Grows(axis=0)]
    met: Annotated[NDArray[np.int64], Grows(axis=0)]
    branch: Annotated[NDArray[np.int64], Grows(axis=1)]
    counts: NDArray[np.int64]

    def room(self, attempts: int) -> int:
        """Contexts to have room for: more as long as they recur. Those without room are not remembered, that is all."""
        contexts, most, recurred = (int(number) for number in self.counts)
        return min(most, 2 * contexts + 64) if recurred >= contexts else 0


def empty_memory(dimension: int, servers: int, estimator: int) -> Memory:
    """No contexts yet; none ever where the log is short."""
    numbers = (dimension + 5) * servers
    most = min(MOST_CONTEXTS, MOST_NUMBERS // numbers) if estimator == EXACT else 0
    return Memory(
        features=np.zeros((dimension * servers, 0)),
        held=np.zeros((0, 5, servers)),
        met=np.zeros((0, 2), dtype=np.int64),
        branch=np.zeros((2, 0), dtype=np.int64),
        counts=np.array([0, most, 0]),
    )


def recognise(memory: Memory, features: Floats) -> int:
    """The number of a newcomer's context; −1 where it is new and no room is left."""
    count = memory.counts[0]
    vector = features.copy().reshape(features.size)
    adding = count < min(memory.met.shape[0], memory.counts[1])
    context = place(memory.features, memory.branch, count, vector, adding)
    if context == count:
        copy_into(memory.features[:, context], vector)
        memory.met[context, 0] = -1
        memory.counts[0] = count + 1
    elif context >= 0:
        memory.counts[2] += 1
    return context


def width_key(low: float, high: float) -> float:
    """A number that orders intervals by their width μ(high) − μ(low), to a few ulp of the width *or of its complement*.

    Near ±50 widths round to 1 and all tie in double precision. So a wide interval is ranked by its complement
    c = μ(low) + μ(−high), through 1/c > 2, and a narrow one by the width, μ(high) μ(−low) (1 − e^{low−high}) ≤ ½.
    """
    complement = logistic(low) + logistic(-high)
    if complement < 0.5:
        return 1.0 / complement
    return -logistic(high) * logistic(-low) * math.expm1(low - high)
