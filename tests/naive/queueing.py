"""Exact queue length laws that need no simulation."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def geo_geo_1_tail(arrival_rate: float, p: float, q: int) -> float:
    """P(Q >= q) of the stationary one-context queue at the beginning of a round: WISE, equation (78)."""
    if q <= 0:
        return 1.0
    ratio = (1 - p) * arrival_rate / (p * (1 - arrival_rate))
    return arrival_rate / p * ratio ** (q - 1)


def geo_geo_1_law(arrival_rate: float, p: float, size: int) -> Array:
    """P(Q = q) for q = 0 .. size - 1, float64[size]; what is missing to 1 is the tail beyond."""
    return np.array([geo_geo_1_tail(arrival_rate, p, q) - geo_geo_1_tail(arrival_rate, p, q + 1) for q in range(size)])


def geo_geo_1_mean(arrival_rate: float, p: float) -> float:
    """E[Q] = sum_{q >= 1} P(Q >= q) = lambda (1 - lambda) / (p - lambda)."""
    return arrival_rate * (1 - arrival_rate) / (p - arrival_rate)


def geo_geo_1_matrix(arrival_rate: float, p: float, size: int) -> Array:
    """Transition matrix float64[size, size] of Q(t) -> Q(t+1): service first, then an arrival (lost when full)."""
    matrix = np.zeros((size, size))
    for q in range(size):
        for departs, of_departure in ((0, 1.0),) if q == 0 else ((0, 1 - p), (1, p)):
            for arrives, of_arrival in ((0, 1 - arrival_rate), (1, arrival_rate)):
                matrix[q, min(size - 1, q - departs + arrives)] += of_departure * of_arrival
    return matrix


def geo_geo_1_transient(arrival_rate: float, p: float, rounds: int, size: int | None = None) -> Array:
    """Law of Q(t), t = 1 .. rounds, from Q(1) = 0: float64[rounds, size]. Exact for size >= rounds (the default)."""
    size = rounds if size is None else size
    matrix = geo_geo_1_matrix(arrival_rate, p, size)
    laws = np.zeros((rounds, size))
    laws[0, 0] = 1.0
    for t in range(1, rounds):
        laws[t] = laws[t - 1] @ matrix
    return laws


def _served(state: tuple[int, ...], best: Array) -> int:
    """The waiting context with the largest best probability (the first of equal ones)."""
    return max((x for x in range(len(state)) if state[x]), key=lambda x: best[x])


def _step(state: tuple[int, ...], arrival_rate: float, weights: Array, best: Array):
    """Every (next state, probability) of one round of the oracle's queue."""
    if sum(state) == 0:
        after_service = [(state, 1.0)]
    else:
        x = _served(state, best)
        less = tuple(n - (y == x) for y, n in enumerate(state))
        after_service = [(less, best[x]), (state, 1 - best[x])]
    for middle, of_service in after_service:
        yield middle, of_service * (1 - arrival_rate)
        for y, weight in enumerate(weights):
            yield tuple(n + (z == y) for z, n in enumerate(middle)), of_service * arrival_rate * weight


def oracle_transient(arrival_rate: float, weights: Array, best: Array, rounds: int) -> Array:
    """Exact law of the oracle's Q(t), t = 1 .. rounds, for a finite context law: float64[rounds, rounds].

    weights[x]: probability of context x; best[x] = p*(x). The state is the count of waiting jobs per context; nothing
    is truncated, so the cost grows like rounds^(1 + contexts).
    """
    law = {(0,) * len(weights): 1.0}
    lengths = np.zeros((rounds, rounds))
    for t in range(rounds):
        for state, mass in law.items():
            lengths[t, sum(state)] += mass
        following: dict[tuple[int, ...], float] = {}
        for state, mass in law.items():
            for target, chance in _step(state, arrival_rate, weights, best):
                following[target] = following.get(target, 0.0) + mass * chance
        law = following
    return lengths


def oracle_stationary(arrival_rate: float, weights: Array, best: Array, limit: int) -> Array:
    """Stationary law of the oracle's queue length, arrivals to a queue of `limit` jobs being lost: float64[limit + 1].

    The last entry says how much the truncation matters.
    """
    states: dict[tuple[int, ...], int] = {}

    def enumerate_states(prefix: tuple[int, ...]) -> None:
        if len(prefix) == len(weights):
            states[prefix] = len(states)
            return
        for n in range(limit - sum(prefix) + 1):
            enumerate_states((*prefix, n))

    enumerate_states(())
    balance = np.zeros((len(states), len(states)))  # balance[j, i] = P(i -> j) - [i = j]
    for state, i in states.items():
        balance[i, i] -= 1.0
        for target, chance in _step(state, arrival_rate, weights, best):
            if sum(target) > limit:  # the service failed and the arrival is lost
                target = state
            balance[states[target], i] += chance
    balance[-1] = 1.0  # one balance equation is redundant: put "sums to one" in its place
    solution = np.linalg.solve(balance, np.eye(len(states))[-1])
    lengths = np.zeros(limit + 1)
    for state, i in states.items():
        lengths[sum(state)] += solution[i]
    return lengths
