"""Q-UCB with several queues: matchings by enumeration, a run from its full history, laws by walking over all outcomes."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np

Array = np.ndarray


def greedy(index: Array) -> list[int]:
    """The server of every user: pairs from the largest index down, skipping users and servers that are taken."""
    users, servers = index.shape
    pairs = sorted(itertools.product(range(users), range(servers)), key=lambda pair: (-index[pair], *pair))
    found: dict[int, int] = {}
    for u, k in pairs:
        if u not in found and k not in found.values():
            found[u] = k
    return [found[u] for u in range(users)]


def favourites(index: Array) -> list[int]:
    """Every user's largest index, the lowest server of equal ones."""
    return [max(range(index.shape[1]), key=lambda k: (index[u, k], -k)) for u in range(index.shape[0])]


def cardinality(index: Array, conflict: str, tickets: Array) -> list[int]:
    """The best of all assignments: as many users as possible at their favourite, then whom the rule prefers, then what the
    others get, in order of their numbers."""
    users, servers = index.shape
    favourite = favourites(index)

    def quality(assignment: tuple[int, ...]) -> tuple:
        happy = [assignment[u] == favourite[u] for u in range(users)]
        winners = [u for u in range(users) if happy[u]]
        losers = [u for u in range(users) if not happy[u]]
        by_rule = {
            "first": 0.0,
            "largest": math.fsum(index[u, assignment[u]] for u in winners),
            "random": -math.fsum(tickets[u] for u in winners),
        }[conflict]
        return (
            len(winners),
            by_rule,
            happy,
            [(index[u, assignment[u]], -assignment[u]) for u in losers],
        )

    return list(max(itertools.permutations(range(servers), users), key=quality))


def play(
    arrival_rates: list[float],
    service_rates: list[list[float]],
    draws: dict[str, Array],
    slots: int,
    *,
    matching: str,
    conflict: str,
    exploration: float,
) -> dict[str, Array]:
    """One run, decided from everything seen so far: queue lengths int[slots + 1, user] of Q-UCB ("queue") and of the optimal
    matching with its own ("independent") and with Q-UCB's randomness ("common")."""
    users, servers = len(service_rates), len(service_rates[0])
    seen: list[tuple[int, int, bool]] = []
    lengths = {name: [list(draws["start"])] for name in ("queue", "independent", "common")}
    best = [max(range(servers), key=lambda k: service_rates[u][k]) for u in range(users)]
    for slot in range(1, slots + 1):
        s = slot - 1
        if s < servers:
            chosen = [(u + s) % servers for u in range(users)]
        elif draws["coin"][s] < min(1.0, exploration * servers * math.log(s) ** 2 / s):
            chosen = [(u + int(draws["shift"][s])) % servers for u in range(users)]
        else:
            index = np.zeros((users, servers))
            for u, k in itertools.product(range(users), range(servers)):
                outcomes = [success for user, server, success in seen if (user, server) == (u, k)]
                index[u, k] = sum(outcomes) / len(outcomes) + math.sqrt(math.log(s) ** 2 / (2 * len(outcomes)))
            chosen = (
                greedy(index)
                if matching == "greedy"
                else cardinality(index, conflict, draws["tickets"][s if conflict == "random" else 0])
            )
        for name, servers_of, arrivals, services in (
            ("queue", chosen, "arrival", "service"),
            ("independent", best, "own_arrival", "own_service"),
            ("common", best, "arrival", "service"),
        ):
            now = list(lengths[name][-1])
            for u in range(users):
                now[u] += bool(draws[arrivals][s, u] < arrival_rates[u])
                served = bool(draws[services][s, u] < service_rates[u][servers_of[u]])
                now[u] = max(0, now[u] - served)
                if name == "queue":
                    seen.append((u, servers_of[u], served))
            lengths[name].append(now)
    return {name: np.array(values) for name, values in lengths.items()}


def arrival_first_matrix(arrival: float, service: float, size: int) -> Array:
    """Transition matrix float64[size, size] of one queue: an arrival (lost when full), then a service."""
    matrix = np.zeros((size, size))
    for q, arrives, serves in itertools.product(range(size), (0, 1), (0, 1)):
        after = max(0, min(size - 1, q + arrives) - serves)
        matrix[q, after] += (arrival if arrives else 1 - arrival) * (service if serves else 1 - service)
    return matrix


def exploring_moments(law: Array, arrival: float, rates: list[float], user: int, slots: int) -> tuple[Array, Array]:
    """Mean and standard deviation of Q − Q* after 0..slots slots of exploration, over all joint outcomes."""
    joint = {(q, q): p for q, p in enumerate(law)}
    mean, sd = [], []
    for slot in range(1, slots + 2):
        mean.append(sum(p * (q - o) for (q, o), p in joint.items()))
        sd.append(math.sqrt(sum(p * (q - o) ** 2 for (q, o), p in joint.items()) - mean[-1] ** 2))
        rate = rates[(user + slot - 1) % len(rates)] if slot <= len(rates) else sum(rates) / len(rates)
        steps = []
        for success in (rate, max(rates)):
            step: dict[tuple[int, int], float] = {}
            for arrives, serves in itertools.product((0, 1), (0, 1)):
                step[arrives, serves] = (arrival if arrives else 1 - arrival) * (success if serves else 1 - success)
            steps.append(step)
        after: dict[tuple[int, int], float] = defaultdict(float)
        for (q, o), p in joint.items():
            for (a, s), p_q in steps[0].items():
                for (b, r), p_o in steps[1].items():
                    after[max(0, q + a - s), max(0, o + b - r)] += p * p_q * p_o
        joint = after
    return np.array(mean), np.array(sd)
