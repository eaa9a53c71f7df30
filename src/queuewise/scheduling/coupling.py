"""Where regret comes from: policies that switch to the oracle, on the same arrivals and the same luck.

Switching to the oracle after round i makes a policy π_i: π_0 is the oracle, and at round t the policy itself is π_{t−1}. So
regret is a sum over rounds of decision,

    Q(t) − Q*(t) = Σ_{i<t} ψ_i(t),    ψ_i(t) = Q^{π_i}(t) − Q^{π_{i−1}}(t) ∈ {−1, 0, 1},

on every path (WISE, B.5; CQB-η-2, section 2.3). The decision of round i adds a job where only the oracle's attempt would have
succeeded, p_i < U_i ≤ p_i*; it can only take one away otherwise (WISE, Lemma 16). The extra job stays until the queue of π_i
empties at the latest, from when on both are the same.

:func:`attribute` adds these up over a traced result: which rounds, servers and reasons made the regret.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _compile, streams
from ..runs import pooling
from ..runs.result import Result, Trace, Window, check_window
from ..runs.statistics import Curve, Estimate, Moments, interval
from . import engine
from .policy import REASONS
from .systems import Draw, Family, System

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: What the decision of a round did, beside the oracle's on the same queue and the same uniform number.
EMPTY, ALIKE, LOST, SWAPPED, WON = range(5)
EVENTS = {
    EMPTY: "no job waited",
    ALIKE: "the same jobs were left waiting",
    LOST: "only the oracle's attempt succeeded",
    SWAPPED: "both succeeded, on different jobs",
    WON: "only the policy's attempt succeeded",
}


class Switched(NamedTuple):
    """The policy-switching queues of one run. Rounds are counted from 1; row i − 1 is about the decision of round i.

    event : int64[T], what the decision did (EVENTS) · coalesced : int64[T], the first round at whose beginning π_i and π_{i−1}
    have the same jobs waiting again, T + 1 where they never do · total : float64[T], Σ ψ_i(t) over the rounds t of the window ·
    largest, least : int64[T], of ψ_i(t) over all t · nested : bool[T], whether after LOST the jobs of π_{i−1} were among those
    of π_i all along · outlived : bool[T], whether the two still differed when the queue of π_i was empty
    """

    event: Ints
    coalesced: Ints
    total: Floats
    largest: Ints
    least: Ints
    nested: NDArray[np.bool_]
    outlived: NDArray[np.bool_]


def _insert(queue: Ints, length: int, rank: int) -> int:
    """Put a rank into a sorted queue; its new length."""
    place = length
    while place > 0 and queue[place - 1] > rank:
        queue[place] = queue[place - 1]
        place -= 1
    queue[place] = rank
    return length + 1


def _remove(queue: Ints, length: int, rank: int) -> int:
    """Take a rank out of a sorted queue; its new length."""
    place = 0
    while queue[place] != rank:
        place += 1
    for position in range(place, length - 1):
        queue[position] = queue[position + 1]
    return length - 1


def _contained(a: Ints, a_length: int, b: Ints, b_length: int) -> bool:
    """Whether every rank of the sorted a is in the sorted b."""
    place = 0
    for position in range(a_length):
        while place < b_length and b[place] < a[position]:
            place += 1
        if place == b_length or b[place] != a[position]:
            return False
    return True


def _switch(
    arrived: Ints,
    service: Floats,
    rank: Ints,
    best: Floats,
    job: Ints,
    chosen: Floats,
    left: Ints,
    first: int,
    last: int,
    found: Switched,
) -> None:
    """Play every pair of neighbouring policies from the round in which they part.

    arrived : job that arrives in each round, −1 for none · rank : of a job in the oracle's order, 0 served first · best : p* by
    rank · job, chosen : the policy's job in each round (−1: none) and its success probability · left : the round in which the
    policy's job left, 0 for none, by job · first, last : the window
    """
    rounds, jobs = service.shape[0], rank.shape[0]
    waiting, a, b = np.empty(jobs + 1, np.int64), np.empty(jobs + 1, np.int64), np.empty(jobs + 1, np.int64)
    count = 0
    for i in range(rounds):
        found.coalesced[i] = i + 2
        found.nested[i] = True
        if count > 0:
            # X_i, from which both start: π_i serves the policy's pair in round i, π_{i−1} the oracle's.
            top, own = waiting[0], rank[job[i]]
            own_success, top_success = service[i] <= chosen[i], service[i] <= best[top]
            a_length, b_length = count, count
            for position in range(count):
                a[position] = b[position] = waiting[position]
            if own_success:
                a_length = _remove(a, a_length, own)
            if top_success:
                b_length = _remove(b, b_length, top)
            if own_success == top_success and (own == top or not own_success):
                found.event[i] = ALIKE
            elif own_success and top_success:
                found.event[i] = SWAPPED
            else:
                found.event[i] = WON if own_success else LOST
            if found.event[i] != ALIKE:
                if arrived[i] >= 0:
                    a_length = _insert(a, a_length, rank[arrived[i]])
                    b_length = _insert(b, b_length, rank[arrived[i]])
                same = False
                t = i + 1  # round t + 1 begins
                while not same:
                    difference = a_length - b_length
                    found.largest[i] = max(found.largest[i], difference)
                    found.least[i] = min(found.least[i], difference)
                    if first <= t + 1 <= last:
                        found.total[i] += difference
                    if found.event[i] == LOST and not _contained(b, b_length, a, a_length):
                        found.nested[i] = False
                    if a_length == 0:
                        found.outlived[i] = True
                    if t == rounds:
                        break
                    # Both go on as the oracle does.
                    if a_length > 0 and service[t] <= best[a[0]]:
                        a_length = _remove(a, a_length, a[0])
                    if b_length > 0 and service[t] <= best[b[0]]:
                        b_length = _remove(b, b_length, b[0])
                    if arrived[t] >= 0:
                        a_length = _insert(a, a_length, rank[arrived[t]])
                        b_length = _insert(b, b_length, rank[arrived[t]])
                    same = a_length == b_length and _contained(a, a_length, b, b_length)
                    t += 1
                found.coalesced[i] = t + 1 if same else rounds + 1
        # The policy's own queue moves on.
        if job[i] >= 0 and left[job[i]] == i + 1:
            count = _remove(waiting, count, rank[job[i]])
        if arrived[i] >= 0:
            count = _insert(waiting, count, rank[arrived[i]])


def oracle_order(draws: Draw) -> tuple[Ints, Floats]:
    """The order in which the oracle serves jobs: rank of each job, and p* by rank. Ties go by arrival (WISE, B.5)."""
    best = draws.probabilities.max(axis=1)[draws.contexts]
    order = np.lexsort((np.arange(len(best)), -best))
    rank = np.empty(len(best), dtype=np.int64)
    rank[order] = np.arange(len(best))
    return rank, np.ascontiguousarray(best[order])


def switched(draws: Draw, job: NDArray[Any], server: NDArray[Any], window: Window | None = None) -> Switched:
    """The policy-switching queues of one run.

    Parameters
    ----------
    draws : what the run's policies shared.
    job, server : int[T], the policy's pair in every round, −1 in an empty one.
    window : (first, last) round over which ψ_i(t) is added up; None for all.

    Returns
    -------
    Switched
    """
    rounds = len(draws.arrivals)
    first, last = (1, rounds) if window is None else check_window("window", window, rounds)
    rank, best = oracle_order(draws)
    job = np.asarray(job, dtype=np.int64)
    arrived = np.where(draws.arrivals, np.cumsum(draws.arrivals) - 1, -1).astype(np.int64)
    busy = job >= 0
    chosen = np.zeros(rounds)
    chosen[busy] = draws.probabilities[draws.contexts[job[busy]], np.asarray(server)[busy]]
    left = np.zeros(len(rank), dtype=np.int64)
    departs = np.flatnonzero(busy & (draws.service <= chosen))
    left[job[departs]] = departs + 1
    zero = np.zeros(rounds, dtype=np.int64)
    found = Switched(
        zero.copy(),
        zero.copy(),
        np.zeros(rounds),
        zero.copy(),
        zero.copy(),
        np.zeros(rounds, dtype=np.bool_),
        np.zeros(rounds, dtype=np.bool_),
    )
    play = _compile.program(_switch, {})
    play(arrived, draws.service, rank, best, job, chosen, left, first, last, found)
    return found


@dataclass(frozen=True, eq=False)
class Attribution:
    """Where a policy's regret came from, in jobs of mean regret over a window of rounds.

    Attributes
    ----------
    policy : str
    window : (int, int)
        Rounds over which regret is averaged.
    regret : Estimate
        The mean regret itself: the sum of every one of the splits below, in every run.
    by_round : Curve
        What the decision of each round added.
    by_server, by_reason, by_event : dict
        The same by the chosen server (from 0), by the reason that the policy gave ("explore", ...), and by what happened.
    by_gap : dict of str to Estimate
        By the departure rate gap of the decision: at which gaps the regret was made.
    remaining : Estimate
        Rounds for which a job that only the oracle would have served stayed an extra one (until the end at most): means of
        the runs that have such jobs; NaN where none has.
    """

    policy: str
    window: Window
    regret: Estimate
    by_round: Curve
    by_server: dict[int, Estimate]
    by_reason: dict[str, Estimate]
    by_event: dict[str, Estimate]
    by_gap: dict[str, Estimate]
    remaining: Estimate

    def __str__(self) -> str:
        lines = [f"{self.policy}: mean regret {self.regret} over rounds {self.window[0]} to {self.window[1]}, from"]
        parts: list[tuple[str, Mapping[Any, Estimate]]] = [
            ("decisions by what happened", self.by_event),
            ("decisions by reason", self.by_reason),
            ("decisions by gap to the best pair", self.by_gap),
            ("servers", self.by_server),
        ]
        for title, split in parts:
            lines.append(f"  {title}")
            lines += [f"    {key!s:38} {estimate}" for key, estimate in split.items()]
        quarters = np.array_split(self.by_round.mean, 4)
        starts = np.cumsum([1, *map(len, quarters)])
        lines.append("  rounds of decision")
        for start, end, part in zip(starts[:-1], starts[1:], quarters, strict=True):
            lines.append(f"    {f'{start} to {end - 1}':38} {part.sum():.4g}")
        lines.append(f"  a job left behind by mistake stayed {self.remaining} rounds")
        return "\n".join(lines)


#: Ends of the classes of departure rate gaps.
_GAPS = (0.0, 0.01, 0.05, 0.2, 1.0)


def attribute(
    result: Result,
    system: System | Family,
    policy: str,
    window: Window | None = None,
    level: float = 0.95,
) -> Attribution:
    """Where the regret of a policy came from.

    Parameters
    ----------
    result : of ``simulate(..., trace=True)``.
    system : the one that was simulated: contexts and service uniforms are drawn again, which costs little.
    policy : a name of the result.
    window : (first, last) round over which regret is averaged, both included; None for all. One late round, (T, T), asks what
        the regret at the end is made of.
    level : of the intervals over runs.

    Returns
    -------
    Attribution

    Raises
    ------
    ValueError : another system, an unknown policy, a result without a trace, one with an oracle of one's own or with ties that
        the oracle breaks otherwise, or jobs that are given up (the coupling needs jobs that stay).

    References
    ----------
    WISE, B.5 and Lemma 16; CQB-eta-2, section 2.3.
    """
    if not isinstance(system, System | Family) or system.settings() != result.settings["system"]:
        raise ValueError("system: is not the one that was simulated; pass the same one")
    if "oracle" in result.settings:
        raise ValueError("result: was measured against an oracle of one's own; the coupling needs the papers'")
    if result.gives_up:
        raise ValueError(
            "result: has jobs that were given up, and the coupling needs jobs that stay until they are done"
        )
    trace: Trace = result.trace[policy]
    first, last = (1, result.rounds) if window is None else check_window("window", window, result.rounds)
    width = last - first + 1
    shares = np.zeros((result.runs, result.rounds))
    events = np.zeros((result.runs, result.rounds), dtype=np.int64)
    stayed = []
    # A pooled result numbers its runs anew; what a run met depends on the seed and the number it was played under.
    played = [(part.seed, part.first_run + i) for part in pooling.pieces(result) for i in range(part.runs)]
    for run, (seed, number) in enumerate(played):
        here = system if isinstance(system, System) else system.instance(streams.instance_seed(seed, number))
        draws = engine.draw(here, result.rounds, seed, number)
        found = switched(draws, trace.job[run], trace.server[run], (first, last))
        shares[run], events[run] = found.total / width, found.event
        lost = np.flatnonzero(found.event == LOST)
        if len(lost):
            stayed.append(float((found.coalesced[lost] - (lost + 2)).mean()))

    def split(key: NDArray[Any], value: Any) -> Estimate:
        return interval(np.where(key == value, shares, 0.0).sum(axis=1), level)

    classes = np.searchsorted(_GAPS, trace.gap, side="left")
    names = ["none", *(f"{low:g} to {high:g}" for low, high in itertools.pairwise(_GAPS))]
    return Attribution(
        policy,
        (first, last),
        interval(shares.sum(axis=1), level),
        Moments.of(shares).curve(level),
        {k: split(trace.server, k) for k in range(system.servers)},
        {REASONS.get(int(r), str(r)): split(trace.reason, r) for r in np.unique(trace.reason[trace.reason >= 0])},
        {text: split(events, event) for event, text in EVENTS.items() if (events == event).any() and event > ALIKE},
        {name: split(classes, position) for position, name in enumerate(names)},
        interval(stayed, level) if stayed else Estimate(math.nan, -math.inf, math.inf, math.nan, 0),
    )
