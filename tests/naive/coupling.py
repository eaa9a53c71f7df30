"""Policy-switching queues, played one by one from the first round: follow a record through round i, then the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np


def switching_queue(draw: Any, services: list[tuple[int, int] | None], i: int) -> list[set[int]]:
    """The jobs that wait at the beginning of rounds 1, 2, ..., T + 1 under π_i.

    services[t − 1] : the policy's (job, server) of round t, None for an empty one; followed for t ≤ i.
    """
    best = draw.probabilities.max(axis=1)
    waiting: set[int] = set()
    found, jobs = [set(waiting)], 0
    for t in range(1, len(draw.arrivals) + 1):
        if waiting:
            if t <= i:
                service = services[t - 1]
                assert service is not None
                job, server = service
                p = draw.probabilities[draw.contexts[job], server]
            else:
                # The largest p*; of several the job that came first (WISE, B.5).
                job = min(waiting, key=lambda x: (-best[draw.contexts[x]], x))
                p = best[draw.contexts[job]]
            if draw.service[t - 1] <= p:
                waiting.remove(job)
        if draw.arrivals[t - 1]:
            waiting.add(jobs)
            jobs += 1
        found.append(set(waiting))
    return found


def differences(draw: Any, services: list[tuple[int, int] | None]) -> np.ndarray:
    """ψ_i(t) = Q^{π_i}(t) − Q^{π_{i−1}}(t) for i = 1..T (rows) and t = 1..T (columns)."""
    rounds = len(draw.arrivals)
    lengths = np.array([[len(x) for x in switching_queue(draw, services, i)[:rounds]] for i in range(rounds + 1)])
    return np.diff(lengths, axis=0)
