"""Q-UCB: upper confidence bounds per server, blind to contexts (Krishnasamy et al. 2021; WISE Appendix F).

The earliest job is served; with probability min{1, 3K ln²(max{t,2})/t} at a uniform server, else at
argmax_k mean_k + √(ln²(max{t,2})/(2N_k)), servers never tried first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._random import Stream
from ..policy import EXPLORE, Policy, Waiting
from ._contextual import random_allowed
from ._counts import DEFAULTS, Params, State, best_server, configure, explores, log_squared, observe, start


def upper_bounds(state: State, t: int, index: Any) -> None:
    """index[k] = mean_k + √(ln²(max{t,2})/(2N_k)), ∞ where N_k = 0."""
    for k in range(index.shape[0]):
        if state.attempts[k] == 0.0:
            index[k] = math.inf
        else:
            bonus = math.sqrt(log_squared(t) / (2.0 * state.attempts[k]))
            index[k] = state.successes[k] / state.attempts[k] + bonus


def decide(params: Params, state: State, columns: Any, waiting: Waiting, stream: Stream) -> tuple[int, int, int]:
    """Explore, or the server of largest upper bound."""
    if explores(params, waiting, stream):
        return waiting.slots[0], random_allowed(waiting.allowed, stream), EXPLORE
    index = np.empty(waiting.allowed.shape[0])
    upper_bounds(state, waiting.round, index)
    return best_server(index, waiting, params.ties, stream)


def explain(params: Params, state: State, columns: Any, waiting: Waiting, slot: int, server: int) -> dict[str, Any]:
    """Mean, attempts and upper bound of every server."""
    index = np.empty(waiting.allowed.shape[0])
    upper_bounds(state, waiting.round, index)
    return {
        "attempts": state.attempts.tolist(),
        "mean": [s / n if n else None for s, n in zip(state.successes.tolist(), state.attempts.tolist(), strict=True)],
        "upper_bound": index.tolist(),
    }


def q_ucb(*, name: str = "", **options: Any) -> Policy:
    """Upper confidence bounds per server for the earliest job.

    exploration_scale : factor of the exploration probability (default 1; 0 turns it off).
    ties : "earliest" (default: the lowest server) or "random".
    """
    return Policy(
        "q_ucb",
        decide,
        observe=observe,
        configure=configure,
        start=start,
        options=options,
        defaults=DEFAULTS,
        name=name,
        explain=explain,
    )
