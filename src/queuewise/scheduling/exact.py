"""Exact laws of the oracle's queue, without simulation: stationary, and round by round from an empty queue.

The oracle serves in decreasing p*, so contexts with the same p* are one class and the counts of waiting jobs per class are a
Markov chain. With one class it is a Geo/Geo/1 queue in closed form (WISE (78)). With several the counts are cut off at a total,
jobs that arrive beyond it being lost, and how much that changes is bounded *rigorously*: the mean workload E[Σ 1/p*] of the
uncut queue is known in closed form, (λE[1/p*²] − (1−ε)²)/ε, and a job that the cut queue lacks is p*ₘₐₓ⁻¹ of workload or more.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..fields import require_count, require_positive
from .contexts.table import FiniteLaw
from .systems import ROUNDING, Floats, System, require_arrival_rate

#: Most states of a cut chain; a linear system of this size takes some seconds.
MOST_STATES = 60_000
#: States of the first chain that is tried; with many classes of jobs a larger one may take minutes to solve.
FIRST_STATES = 8_000


class QueueLaw(NamedTuple):
    """A law of the oracle's queue length at the beginning of a round.

    Attributes
    ----------
    probabilities : float64[n]
        P(Q = q) for q = 0 .. n − 1.
    mean : float
        E[Q], in jobs.
    truncation_error : float
        At most so far is `mean` from the truth, and at most so much is the total variation distance between the laws.
    """

    probabilities: Floats
    mean: float
    truncation_error: float

    def tail(self, q: int) -> float:
        """P(Q ≥ q)."""
        require_count("q", q, 0)
        return float(self.probabilities[q:].sum()) if q else 1.0


class TransientLaws(NamedTuple):
    """Laws of the oracle's queue length at the beginning of rounds 1, 2, …, from an empty queue.

    Attributes
    ----------
    probabilities : float64[rounds, n]
    mean : float64[rounds]
    truncation_error : float64[rounds]
        Probability that the queue has outgrown what is kept by then: total variation distance to the true law. The mean is
        too low by at most this times the round's number.
    """

    probabilities: Floats
    mean: Floats
    truncation_error: Floats


# --- one class: Geo/Geo/1 --------------------------------------------------------------------------------------------


def geo_geo_1_tail(q: int, arrival_rate: float, p: float) -> float:
    """P(Q ≥ q) = (λ/p)·((1−p)λ/(p(1−λ)))^{q−1} of the stationary one-context queue at the beginning of a round (WISE (78))."""
    require_count("q", q, 0)
    ratio = _ratio(arrival_rate, p)
    return 1.0 if q == 0 else arrival_rate / p * ratio ** (q - 1)


def geo_geo_1_mean(arrival_rate: float, p: float) -> float:
    """E[Q] = λ(1−λ)/(p−λ), in jobs, of the stationary one-context queue (summing WISE (78))."""
    _ratio(arrival_rate, p)
    return arrival_rate * (1.0 - arrival_rate) / (p - arrival_rate)


def _ratio(arrival_rate: float, p: float) -> float:
    require_arrival_rate(arrival_rate)
    require_positive("p", p)
    if not arrival_rate < p <= 1:
        raise ValueError(f"p must lie above arrival_rate = {arrival_rate:g} and be at most 1, not {p!r}")
    return (1.0 - p) * arrival_rate / (p * (1.0 - arrival_rate))


def persistence(arrival_rate: float, p: float, rounds: int, largest: int) -> Floats:
    """How long one job too many stays too many in a one-context queue under its best server.

    Parameters
    ----------
    arrival_rate, p : λ and p*, each in (0, 1).
    rounds : number of steps s = 0 .. rounds − 1.
    largest : largest queue length that is asked for.

    Returns
    -------
    float64[rounds, largest + 1]
        Entry [s, q] is E[Q(i+s) | Q(i) = q + 1] − E[Q(i+s) | Q(i) = q]: the probability that a queue of q + 1 jobs, coupled
        with one of q, still has one more after s rounds. They meet when the one serves its last job while the other is
        empty. The differences Q^{π_i}(t) − Q^{π_{i−1}}(t) of WISE (80) have these as conditional means.
    """
    require_arrival_rate(arrival_rate)
    require_positive("p", p)
    if not p < 1:
        raise ValueError(f"p must lie strictly between 0 and 1, not {p!r}")
    require_count("rounds", rounds)
    require_count("largest", largest, 0)
    up, down = (1.0 - p) * arrival_rate, p * (1.0 - arrival_rate)
    stay = 1.0 - up - down
    # In s rounds a queue of s jobs or more cannot empty: with that many columns nothing is cut off. With fewer, what is cut off
    # is at most the probability (up/down)^climb that a queue of `largest` jobs climbs beyond them before it is empty: e^{−45}.
    climb = math.ceil(45.0 / math.log(down / up)) if up < down else rounds
    columns = largest + min(rounds, climb) + 1
    found = np.zeros((rounds, largest + 1))
    now = np.ones(columns)
    for s in range(rounds):
        found[s] = now[: largest + 1]
        if now[largest] < 1e-18:  # the largest entry, and it only falls
            break
        following = np.ones(columns)
        # One job against none: they become one the moment it is done.
        following[0] = up * now[1] + (1.0 - p) * (1.0 - arrival_rate) * now[0]
        following[1:-1] = down * now[:-2] + stay * now[1:-1] + up * now[2:]
        now = following
    return found


@lru_cache(maxsize=4)
def _kept(arrival_rate: float, p: float, rounds: int, largest: int) -> Floats:
    return persistence(arrival_rate, p, rounds, largest)


def conditional_regret(gaps: npt.ArrayLike, queue_lengths: npt.ArrayLike, arrival_rate: float, p: float) -> Floats:
    """Regret at the last round, with everything that happens after each decision averaged out exactly.

    R_t = Σ_i E[Q^{π_i}(t) − Q^{π_{i−1}}(t)] (WISE (80)), and given Q(i) and the departure rate gap g_i the i-th term has mean
    g_i·E_A[persistence(t − i − 1, Q(i) − 1 + A)]. Its sum over i has the same mean as Q^π(t) − Q*(t) over runs, no negative
    term, and a variance that is smaller by orders of magnitude where gaps are small.

    Parameters
    ----------
    gaps, queue_lengths : [runs, t]
        g_i (0 in an empty round) and Q(i) of a policy.
    arrival_rate, p : λ and the best success probability, the same for every context.

    Returns
    -------
    float64[runs]
    """
    gap = np.asarray(gaps, dtype=np.float64)
    queue = np.asarray(queue_lengths, dtype=np.int64)
    if gap.ndim != 2 or gap.shape != queue.shape:
        raise ValueError(
            f"gaps and queue_lengths must have one shape [runs, rounds], not {gap.shape} and {queue.shape}"
        )
    rounds = gap.shape[1]
    if rounds == 1:
        return np.zeros(len(gap))
    # Rounded up, so that policies of one experiment share the table.
    kept = _kept(arrival_rate, p, rounds - 1, 1 << int(queue.max(initial=1)).bit_length())
    before = np.maximum(queue[:, :-1] - 1, 0)
    steps = np.arange(rounds - 2, -1, -1)  # t − i − 1 for i = 1 .. t − 1
    stays = (1.0 - arrival_rate) * kept[steps, before] + arrival_rate * kept[steps, before + 1]
    return np.asarray((gap[:, :-1] * stays).sum(axis=1), dtype=np.float64)


def least_average_regret(
    arrival_rate: float, right: float, wrong: float, rounds: int, *, limit: int | None = None
) -> float:
    """The least average regret at round `rounds` that any policy has over a family of two complementary members, in jobs.

    Every attempt is at a server that is right in one member and wrong in the other, success probabilities `right` and `wrong`:
    the hard instances of WISE's Theorem 7 with two servers and those of CQB-η-2's Theorem 10. What a policy has seen is summed
    up by successes and failures of the one kind of attempt less those of the other, so that the best one is found by dynamic
    programming over (jobs waiting, the two differences).

    Parameters
    ----------
    arrival_rate, right, wrong : λ and the two probabilities, wrong below right.
    rounds : t; time and memory grow like t³ and t².
    limit : most waiting jobs that are kept; None for 40. Further arrivals are lost, to the oracle as well.

    Returns
    -------
    float
        The minimum over all policies of the mean of E[Q^π(t) − Q*(t)] over both members.
    """
    require_arrival_rate(arrival_rate)
    require_count("rounds", rounds)
    if not 0 < wrong < right < 1:
        raise ValueError(
            f"wrong and right must satisfy 0 < wrong < right < 1, not wrong = {wrong!r}, right = {right!r}"
        )
    if limit is not None:
        require_count("limit", limit)
    most = min(limit or 40, max(rounds - 1, 1))
    waiting = np.arange(most + 1)
    jobs = waiting[:, None, None].astype(np.float64)
    value, oracle = np.broadcast_to(jobs, (most + 1, 2 * rounds + 1, 2 * rounds + 1)), waiting.astype(np.float64)
    more = np.minimum(waiting + 1, most)

    def arrive(after: Floats) -> Floats:
        return (1.0 - arrival_rate) * after + arrival_rate * after[more]

    for seen in range(rounds - 2, -1, -1):  # attempts before the decision, at most
        side = np.arange(-seen, seen + 1)
        evidence = side[:, None] * math.log(right / wrong) + side[None, :] * math.log((1.0 - right) / (1.0 - wrong))
        belief = 0.5 * (1.0 + np.tanh(0.5 * evidence))
        middle = value.shape[1] // 2
        span = slice(middle - seen - 1, middle + seen + 2)
        # From here the differences run over [−seen − 1, seen + 1]; inner drops the ends on either axis.
        following = arrive(np.asarray(value[:, span, span], dtype=np.float64))
        inner = slice(1, -1)
        empty = following[0, inner, inner]
        ways = []
        for first, up in ((belief, slice(2, None)), (1.0 - belief, slice(None, -2))):
            success = first * right + (1.0 - first) * wrong
            ways.append(success * following[:-1, up, inner] + (1.0 - success) * following[1:, inner, up])
        value = np.concatenate([empty[None], np.minimum(*ways)])
        ahead = arrive(oracle)
        oracle = np.concatenate([ahead[:1], right * ahead[:-1] + (1.0 - right) * ahead[1:]])
    centre = value.shape[1] // 2
    return float(value[0, centre, centre] - oracle[0])


# --- several classes -------------------------------------------------------------------------------------------------


def classes(system: System) -> tuple[Floats, Floats]:
    """The distinct p* of a finite law, in decreasing order, and the probability of each: float64[n], float64[n].

    Raises
    ------
    ValueError : the law is not finite, gives jobs up, or has a context that no server can do.
    """
    law = system.law
    if not isinstance(law, FiniteLaw):
        raise ValueError(f"system must have a finite context law (table_law, say), which {system.name!r} has not")
    if law.max_attempts is not None:
        raise ValueError(
            f"system must keep jobs until they are done, but gives them up after {law.max_attempts} attempts"
        )
    occurs = law.weights > 0
    best = law.probabilities[occurs].max(axis=1)
    if best.min() <= 0:
        raise ValueError("system must have a server for every context, but some context has p* = 0")
    values: list[float] = []
    weights: list[float] = []
    for p, weight in sorted(zip(best.tolist(), law.weights[occurs].tolist(), strict=True), reverse=True):
        # Rounding makes one p* out of several ways to compute it.
        if values and values[-1] - p <= ROUNDING * p:
            weights[-1] += weight
        else:
            values.append(p)
            weights.append(weight)
    return np.array(values), np.array(weights)


def mean_workload(system: System) -> float:
    """E[Σ 1/p*(x)] over the waiting jobs of the stationary oracle, in attempts: (λE[1/p*²] − (1−ε)²)/ε.

    Every busy round removes one attempt on average, whichever job is served, so E[Δ] = 0 and E[(W+Δ)² − W²] = 0 give W's mean
    under any rule that always serves a best server of the job it picks. For one context it is E[Q]/p*.
    """
    best, weights = classes(system)
    slack = _stable(system, best, weights)
    return float((system.arrival_rate * (weights @ best**-2.0) - (1.0 - slack) ** 2) / slack)


def stationary(system: System, *, tolerance: float = 1e-9, limit: int | None = None) -> QueueLaw:
    """The stationary law of the oracle's queue length, Q*(∞), at the beginning of a round.

    Parameters
    ----------
    system : a system with a finite law and capacity slack.
    tolerance : truncation error to aim at.
    limit : most waiting jobs that are kept; None to raise it until the tolerance is met, or until the chain has 60,000 states
        (the law's `truncation_error` says what came of it).

    Returns
    -------
    QueueLaw
    """
    require_positive("tolerance", tolerance)
    best, weights = classes(system)
    _stable(system, best, weights)
    if limit is not None:
        require_count("limit", limit)
    if len(best) == 1:
        return _one_class(system.arrival_rate, float(best[0]), tolerance, limit)
    whole = mean_workload(system)
    most = 32 if limit is None else int(limit)
    while limit is None and most > 1 and _count(len(best), most) > FIRST_STATES:
        most -= 1
    if limit is None and _count(len(best), most) > FIRST_STATES:
        raise ValueError(f"system has {len(best)} classes of jobs, too many for an exact law")
    while True:
        states = _states(len(best), most)
        solution = _solve(_transitions(states, system.arrival_rate, weights, best, most)[0])
        lacking = best[0] * (whole - float(solution @ (states @ (1.0 / best))))
        error = max(lacking, 0.0) + 1e-12 * (1.0 + whole)  # rounding of the linear solver
        following = 2 * most
        if limit is not None or error <= tolerance or _count(len(best), following) > MOST_STATES:
            break
        most = following
    law = np.bincount(states.sum(axis=1), weights=solution, minlength=most + 1).astype(np.float64)
    return QueueLaw(law, float(law @ np.arange(most + 1)), float(error))


def transient(system: System, rounds: int, *, limit: int | None = None) -> TransientLaws:
    """Laws of the oracle's queue length at the beginning of rounds 1 .. `rounds`, from an empty queue.

    Parameters
    ----------
    system : a system with a finite law; it need not be stable.
    rounds : at least 1.
    limit : most waiting jobs that are kept; None for all that can be waiting (`rounds` − 1), or as many as 60,000 states allow.
    """
    require_count("rounds", rounds)
    if limit is not None:
        require_count("limit", limit)
    best, weights = classes(system)
    most = min(limit or rounds, max(rounds - 1, 1))
    while limit is None and _count(len(best), most) > MOST_STATES:
        most -= 1
    states = _states(len(best), most)
    matrix, lost = _transitions(states, system.arrival_rate, weights, best, most, lose=True)
    lengths = states.sum(axis=1)
    law = np.zeros(len(states))
    law[int(np.flatnonzero(lengths == 0)[0])] = 1.0
    found = np.zeros((rounds, most + 1))
    gone = np.zeros(rounds)
    outgrown = 0.0
    for t in range(rounds):
        found[t] = np.bincount(lengths, weights=law, minlength=most + 1)
        gone[t] = outgrown
        outgrown += float(lost @ law)
        law = matrix @ law
    return TransientLaws(found, found @ np.arange(most + 1), gone)


def _stable(system: System, best: Floats, weights: Floats) -> float:
    slack = 1.0 - system.arrival_rate * float(weights @ (1.0 / best))
    if not slack > 0:
        raise ValueError(
            f"system must have positive capacity slack, or no stationary law exists, but it is {slack:.4g} (WISE, Assumption 2)"
        )
    return slack


def _one_class(arrival_rate: float, p: float, tolerance: float, limit: int | None) -> QueueLaw:
    ratio = _ratio(arrival_rate, p)
    first = arrival_rate / p
    if limit is None:
        # E[(Q − n)⁺] = first·ratio^n/(1 − ratio) is what is missing of the mean beyond n.
        wanted = math.log(tolerance * (1.0 - ratio) / first) / math.log(ratio) if ratio > 0 else 1.0
        limit = max(1, math.ceil(wanted))
    tails = np.concatenate([[1.0], first * ratio ** np.arange(limit + 1)])
    error = first * ratio**limit / (1.0 - ratio)
    return QueueLaw(tails[:-1] - tails[1:], geo_geo_1_mean(arrival_rate, p), float(error))


def _count(groups: int, most: int) -> int:
    return math.comb(most + groups, groups)


def _states(groups: int, most: int) -> npt.NDArray[np.int64]:
    """Every count of jobs per class with at most `most` in all: int64[states, groups]."""
    bars = itertools.combinations(range(most + groups), groups)
    chosen = np.fromiter(itertools.chain.from_iterable(bars), dtype=np.int64, count=groups * _count(groups, most))
    chosen = chosen.reshape(-1, groups)
    return np.diff(chosen, axis=1, prepend=-1) - 1


def _transitions(
    states: npt.NDArray[np.int64], arrival_rate: float, weights: Floats, best: Floats, most: int, lose: bool = False
) -> tuple[Any, Floats]:
    """One round as a sparse matrix [to, from], and per state the probability that it loses a job. Where jobs beyond `most` are
    lost the state keeps its other jobs; with `lose` its mass leaves the chain instead."""
    from scipy.sparse import csr_array

    groups = len(best)
    base = (most + 1) ** np.arange(groups, dtype=np.int64)
    keys = states @ base
    order = np.argsort(keys)
    position = np.arange(len(states))
    occupied = states > 0
    served = np.where(occupied.any(axis=1), occupied.argmax(axis=1), -1)
    success = np.where(served >= 0, best[served], 0.0)
    after = states.copy()
    busy = served >= 0
    after[position[busy], served[busy]] -= 1
    rows: list[Any] = []
    columns: list[Any] = []
    values: list[Any] = []
    lost = np.zeros(len(states))

    def add(target: npt.NDArray[np.int64], chance: Floats) -> None:
        fits = target.sum(axis=1) <= most
        some = (chance > 0) & fits
        rows.append(order[np.searchsorted(keys, target[some] @ base, sorter=order)])
        columns.append(position[some])
        values.append(chance[some])
        over = (chance > 0) & ~fits
        lost[over] += chance[over]
        if not lose and over.any():  # only a failed service leaves no room: the state stays as it is
            rows.append(position[over])
            columns.append(position[over])
            values.append(chance[over])

    for middle, chance in ((after, success), (states, 1.0 - success)):
        add(middle, chance * (1.0 - arrival_rate))
        for group in range(groups):
            grown = middle.copy()
            grown[:, group] += 1
            add(grown, chance * arrival_rate * weights[group])
    matrix = csr_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(len(states), len(states))
    )
    return matrix, lost


def _solve(matrix: Any) -> Floats:
    """The stationary law of a sparse matrix [to, from]."""
    from scipy.sparse import csc_array, eye_array
    from scipy.sparse.linalg import spsolve

    size = matrix.shape[0]
    # Fix the first state's mass (the empty queue's, never tiny) and scale afterwards: the system stays sparse.
    balance = csc_array(matrix - eye_array(size))
    inner = balance[1:, 1:]
    law = np.ones(size)
    law[1:] = spsolve(inner, -balance[1:, [0]].toarray().ravel())
    return np.asarray(law / law.sum(), dtype=np.float64)
