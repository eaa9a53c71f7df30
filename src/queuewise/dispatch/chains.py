"""Markov chains of parallel queues, solved on the states with at most L jobs: numbers in, numbers out.

States are the queues q with |q| = q₁ + … + q_n ≤ L, level by level (level N holds those with |q| = N). From q the chain goes
to q + e_i at rate λ p_i(q) while |q| < L (arrivals at level L are lost) and to q − e_i at rate d_i(q) = min(q_i, c_i) μ_i.
Within a level no state leads to another, so a sweep of Gauss–Seidel over the levels is a block Gauss–Seidel. What it leaves
nearly untouched is how mass is spread over the levels; that is corrected exactly on the chain of levels, a birth–death chain
(iterative aggregation and disaggregation; Koury, McAllister and Stewart 1984).
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _compile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Places = NDArray[np.int32]

#: Sweeps after which an iteration gives up, and how often its residual is looked at.
MOST_SWEEPS, LOOK_EVERY = 20_000, 4
#: Residual, relative to the flow through the states, at which rounding is all that is left; looks without progress that say so.
ROUNDING, PATIENCE = 1e-15, 12
#: Logarithm of the least mass that a level is given, so that levels never visited do not vanish in double precision.
LEAST_LOG = -500.0
#: Rounds of policy improvement that are tried (a handful is what it takes), and the relative fall of the mean that ends them.
MOST_IMPROVEMENTS, SETTLED = 100, 1e-13


class Lattice(NamedTuple):
    """The states with at most L jobs in n queues, level by level.

    levels : int64[L + 2], where each level begins, and the number of states S · queue : int64[S, n]
    up, down : int32[S, n], places of q + e_i and q − e_i; 0 where there is none (its rate is 0 then)
    """

    levels: Ints
    queue: Ints
    up: Places
    down: Places


class Chain(NamedTuple):
    """A routing rule's chain.

    lattice : its states · routing : float64[S, n], p_i(q) · arriving : float64[S, n], λ p_i(q), 0 at level L
    leaving : float64[S, n], d_i(q) · arrival_rate : λ
    """

    lattice: Lattice
    routing: Floats
    arriving: Floats
    leaving: Floats
    arrival_rate: float


def count_states(servers: int, level: int) -> int:
    """S = C(L + n, n)."""
    return comb(level + servers, servers)


# --- states -----------------------------------------------------------------------------------------------------------


def _place(queue: Ints, table: Ints) -> int:
    """A state's place: states of lower levels, then those of its level with a smaller first, second, … entry."""
    n = queue.shape[0]
    total = 0
    for i in range(n):
        total += queue[i]
    place = 0
    for i in range(n):  # states of n − i queues with fewer jobs than are left: C(left − 1 + n − i, n − i)
        place += table[total, n - i]
        total -= queue[i]
    return place


def _enumerate(levels: Ints, queue: Ints, up: Places, down: Places, table: Ints) -> None:
    n = queue.shape[1]
    here = np.zeros(n, np.int64)
    for level in range(levels.shape[0] - 1):
        here[:] = 0
        here[0] = level
        for _ in range(levels[level], levels[level + 1]):
            place = _place(here, table)
            for i in range(n):
                queue[place, i] = here[i]
            for i in range(n):
                if level + 2 < levels.shape[0]:
                    here[i] += 1
                    up[place, i] = _place(here, table)
                    here[i] -= 1
                if here[i] > 0:
                    here[i] -= 1
                    down[place, i] = _place(here, table)
                    here[i] += 1
            # The next composition of the level: move one on from the last non-zero entry but the end.
            i = n - 2
            while i >= 0 and here[i] == 0:
                i -= 1
            if i >= 0:
                rest = here[n - 1]
                here[n - 1] = 0
                here[i] -= 1
                here[i + 1] = rest + 1


@lru_cache(maxsize=4)
def lattice(servers: int, level: int) -> Lattice:
    """The states with at most `level` jobs. Shared: do not change the arrays."""
    states = count_states(servers, level)
    levels = np.array([0] + [count_states(servers, k) for k in range(level + 1)], dtype=np.int64)
    table = np.array([[comb(t - 1 + m, m) if t > 0 else 0 for m in range(servers + 1)] for t in range(level + 2)])
    found = Lattice(
        levels,
        np.zeros((states, servers), np.int64),
        np.zeros((states, servers), np.int32),
        np.zeros((states, servers), np.int32),
    )
    _compile.program(_enumerate, {})(*found, table)
    return found


def chain(states: Lattice, arrival_rate: float, rates: Floats, slots: Ints, routing: Floats) -> Chain:
    """The chain of a routing rule. rates : μ_i · slots : c_i · routing : float64[S, n]"""
    arriving = arrival_rate * routing
    arriving[states.levels[-2] :] = 0.0
    leaving = np.minimum(states.queue, slots) * rates
    return Chain(states, routing, arriving, leaving, arrival_rate)


# --- sweeps -----------------------------------------------------------------------------------------------------------


def _relax(x: Floats, source: Floats, above: Floats, below: Floats, out: Floats, up: Places, down: Places) -> None:
    """out(q) x(q) = source(q) + Σ_i above_i(q) x(q + e_i) + Σ_i below_i(q) x(q − e_i), from the top level down and up again."""
    states, n = up.shape
    for s in range(states - 1, -1, -1):
        total = source[s]
        for i in range(n):
            total += above[s, i] * x[up[s, i]] + below[s, i] * x[down[s, i]]
        x[s] = total / out[s]
    for s in range(states):
        total = source[s]
        for i in range(n):
            total += above[s, i] * x[up[s, i]] + below[s, i] * x[down[s, i]]
        x[s] = total / out[s]


def _spread(x: Floats, levels: Ints, deaths: Floats, arrival_rate: float) -> None:
    """Rescale each level to the mass it has in the birth–death chain of levels: λ π(N) = d̄(N + 1) π(N + 1), where d̄(N) is
    the mean rate of departures in the level as x has it. The largest mass is 1 on the way, so that nothing overflows."""
    count = levels.shape[0] - 1
    logs = np.zeros(count)
    mass = np.zeros(count)
    for level in range(count):
        leaving = 0.0
        for s in range(levels[level], levels[level + 1]):
            mass[level] += x[s]
            leaving += x[s] * deaths[s]
        if level > 0:
            logs[level] = logs[level - 1] + np.log(arrival_rate * mass[level] / leaving)
    highest = logs.max()
    total = 0.0
    for level in range(count):
        total += np.exp(logs[level] - highest)
    for level in range(count):
        if mass[level] == 0.0:
            continue
        factor = np.exp(max(logs[level] - highest, LEAST_LOG)) / (total * mass[level])
        for s in range(levels[level], levels[level + 1]):
            x[s] *= factor


def _settle(
    x: Floats,
    levels: Ints,
    up: Places,
    down: Places,
    above: Floats,
    below: Floats,
    out: Floats,
    deaths: Floats,
    arrival_rate: float,
    most: int,
    every: int,
    enough: float,
) -> int:
    """Iterate the balance equations until their residual no longer falls. Returns the number of sweeps."""
    states, n = up.shape
    source = np.zeros(states)
    _spread(x, levels, deaths, arrival_rate)
    best = np.inf
    stalled = 0
    for sweep in range(1, most + 1):
        _relax(x, source, above, below, out, up, down)
        _spread(x, levels, deaths, arrival_rate)
        if sweep % every == 0:
            # Errors leave the chain as a wave that climbs the levels, so the residual counts by the square of the level, as the
            # error bound counts it.
            residual, flow = 0.0, 0.0
            for level in range(levels.shape[0] - 1):
                amiss, through = 0.0, 0.0
                for s in range(levels[level], levels[level + 1]):
                    total = -out[s] * x[s]
                    for i in range(n):
                        total += above[s, i] * x[up[s, i]] + below[s, i] * x[down[s, i]]
                    amiss += abs(total)
                    through += out[s] * x[s]
                residual += amiss * (1.0 + level) ** 2
                flow += through * (1.0 + level) ** 2
            if residual <= enough * flow:
                return sweep
            stalled = 0 if residual < 0.9 * best else stalled + 1
            if stalled >= PATIENCE and residual <= 1e-12 * flow:  # rounding: it has stopped to fall
                return sweep
            best = min(best, residual)
    return most


def _correct(x: Floats, shape: Floats, residual: Floats, levels: Ints, deaths: Floats, arrival_rate: float) -> None:
    """Add to each level the constant e(N) with which the residual, averaged over the level by `shape`, vanishes on the chain
    of levels. With steps D(N) = e(N) − e(N − 1): d̄(N) D(N) = λ D(N + 1) + R(N), e(0) = 0, D(L + 1) = 0."""
    count = levels.shape[0] - 1
    steps = np.zeros(count + 1)
    for level in range(count - 1, 0, -1):
        amiss, leaving = 0.0, 0.0
        mass = 0.0
        for s in range(levels[level], levels[level + 1]):
            mass += shape[s]
            amiss += shape[s] * residual[s]
            leaving += shape[s] * deaths[s]
        steps[level] = (arrival_rate * steps[level + 1] * mass + amiss) / leaving
    height = 0.0
    for level in range(1, count):
        height += steps[level]
        for s in range(levels[level], levels[level + 1]):
            x[s] += height


def _until_empty(
    x: Floats,
    source: Floats,
    shape: Floats,
    levels: Ints,
    up: Places,
    down: Places,
    above: Floats,
    below: Floats,
    out: Floats,
    deaths: Floats,
    arrival_rate: float,
    most: int,
    every: int,
    enough: float,
) -> int:
    """Iterate first-step equations with x = 0 at the empty state. Returns the number of sweeps."""
    states, n = up.shape
    residual = np.zeros(states)
    scale = np.abs(source).max()
    best = np.inf
    stalled = 0
    for sweep in range(1, most + 1):
        _relax(x, source, above, below, out, up, down)
        largest, size = 0.0, 0.0
        for s in range(1, states):
            total = source[s] - out[s] * x[s]
            for i in range(n):
                total += above[s, i] * x[up[s, i]] + below[s, i] * x[down[s, i]]
            residual[s] = total
            largest = max(largest, abs(total))
            size = max(size, out[s] * abs(x[s]))
        if sweep % every == 0:
            if largest <= enough * scale:
                return sweep
            stalled = 0 if largest < 0.9 * best else stalled + 1
            if stalled >= PATIENCE and largest <= 1e-12 * size:  # rounding: it has stopped to fall
                return sweep
            best = min(best, largest)
        _correct(x, shape, residual, levels, deaths, arrival_rate)
    return most


# --- what is asked of a chain -----------------------------------------------------------------------------------------


def stationary(chain: Chain, start: Floats | None = None) -> Floats:
    """The stationary law: float64[S], residual Σ_q |(π Q)(q)| a few units of rounding times the flow.

    start : a law to begin the iteration with
    """
    states = chain.lattice
    last = states.levels[-2]
    above = np.take_along_axis(chain.leaving, states.up, axis=0)
    above[last:] = 0.0
    below = np.take_along_axis(chain.arriving, states.down, axis=0)
    below[states.queue == 0] = 0.0
    deaths = chain.leaving.sum(axis=1)
    out = deaths + chain.arriving.sum(axis=1)
    found = np.ones(len(deaths)) if start is None else start.copy()
    arguments = (states.levels, states.up, states.down, above, below, out, deaths, chain.arrival_rate)
    _compile.program(_settle, {})(found, *arguments, MOST_SWEEPS, LOOK_EVERY, ROUNDING)
    return np.asarray(found / found.sum())


def residual(chain: Chain, law: Floats) -> Floats:
    """(π Q)(q) of the chain in which arrivals at level L are lost: float64[S]."""
    states = chain.lattice
    last = states.levels[-2]
    found = -law * (chain.leaving.sum(axis=1) + chain.arriving.sum(axis=1))
    for i in range(states.queue.shape[1]):
        found[:last] += (law * chain.leaving[:, i])[states.up[:last, i]]
        there = states.queue[:, i] > 0
        found[there] += (law * chain.arriving[:, i])[states.down[there, i]]
    return np.asarray(found)


def until_empty(
    chain: Chain, source: Floats, law: Floats, *, accuracy: float = 1e-12, start: Floats | None = None
) -> Floats:
    """E_q[∫ source dt until the system is empty] by first-step analysis: float64[S].

    source : float64[S] · law : the stationary law, whose shape within each level steers the iteration
    accuracy : largest residual of the equations, relative to the largest source · start : values to begin the iteration with
    """
    states = chain.lattice
    above = chain.arriving.copy()
    above[0] = 0.0
    deaths = chain.leaving.sum(axis=1)
    out = deaths + above.sum(axis=1)
    out[0] = 1.0
    values = np.array(source, dtype=np.float64)
    values[0] = 0.0
    shape = np.maximum(law, 1e-290)
    found = np.zeros(len(deaths)) if start is None else start.copy()
    arguments = (states.levels, states.up, states.down, above, chain.leaving, out, deaths, chain.arrival_rate)
    _compile.program(_until_empty, {})(found, values, shape, *arguments, MOST_SWEEPS, LOOK_EVERY, accuracy)
    return found


# --- the best routing of two servers ----------------------------------------------------------------------------------


class Best(NamedTuple):
    """The routing that minimises the mean number in system.

    action : int8[S], the server of each state · mean_number : with arrivals at level L lost · first : the same of the rule
    that was improved upon · rounds : of improvement
    """

    action: NDArray[np.int8]
    mean_number: float
    first: float
    rounds: int


def best_routing(states: Lattice, arrival_rate: float, rates: Floats, slots: Ints, start: Floats) -> Best:
    """Policy iteration (Howard 1960) from the rule `start`, float64[S, n].

    A rule's relative values are v(q) = E_q[∫ (|q| − g) dt until empty], g its mean number in system; the next rule sends to the
    server with the least v(q + e_i), and keeps the present one where that is no better by more than rounding. It stops where
    nothing changes, which is the optimum of the chain in which arrivals at level L are lost, or where what changes is
    visited so rarely that the mean no longer falls.
    """
    number = states.queue.sum(axis=1).astype(np.float64)
    routing = start.copy()
    inside = states.levels[-2]
    first, mean, rounds = 0.0, 0.0, 0
    law: Floats | None = None
    value: Floats | None = None
    for rounds in range(MOST_IMPROVEMENTS):
        here = chain(states, arrival_rate, rates, slots, routing)
        law = stationary(here, law)
        before, mean = mean, float(law @ number)
        first = mean if rounds == 0 else first
        if rounds > 0 and before - mean <= SETTLED * mean:
            break
        value = until_empty(here, number - mean, law, start=value)
        after = value[states.up[:inside]]
        present = (routing[:inside] * after).sum(axis=1)
        better = after.min(axis=1) < present - 1e-10 * (1.0 + np.abs(present))
        if not better.any():
            break
        routing[:inside][better] = 0.0
        chosen = after.argmin(axis=1)[better]
        routing[np.flatnonzero(better), chosen] = 1.0
    return Best(routing.argmax(axis=1).astype(np.int8), mean, first, rounds)
