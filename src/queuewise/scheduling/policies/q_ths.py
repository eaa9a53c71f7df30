"""Q-ThS: Thompson sampling per server, blind to contexts (Krishnasamy et al. 2021; WISE Appendix F).

As Q-UCB, with argmax of one draw per server from Beta(1 + successes, 1 + failures).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._random import Stream, beta
from ..policy import EXPLORE, Policy, Waiting
from ._contextual import random_allowed
from ._counts import DEFAULTS, Params, State, best_server, configure, explores, observe, start


def draw(state: State, index: Any, stream: Stream) -> None:
    """index[k] ~ Beta(1 + successes_k, 1 + failures_k)."""
    for k in range(index.shape[0]):
        index[k] = beta(stream, 1.0 + state.successes[k], 1.0 + state.attempts[k] - state.successes[k])


def decide(params: Params, state: State, columns: Any, waiting: Waiting, stream: Stream) -> tuple[int, int, int]:
    """Explore, or the server of largest draw."""
    if explores(params, waiting, stream):
        return waiting.slots[0], random_allowed(waiting.allowed, stream), EXPLORE
    index = np.empty(waiting.allowed.shape[0])
    draw(state, index, stream)
    return best_server(index, waiting, params.ties, stream)


def explain(params: Params, state: State, columns: Any, waiting: Waiting, slot: int, server: int) -> dict[str, Any]:
    """The posterior of every server."""
    failures = state.attempts - state.successes
    return {"posterior": [(1.0 + s, 1.0 + f) for s, f in zip(state.successes.tolist(), failures.tolist(), strict=True)]}


def q_ths(*, name: str = "", **options: Any) -> Policy:
    """Thompson sampling per server for the earliest job.

    exploration_scale : factor of the exploration probability (default 1; 0 turns it off).
    ties : "earliest" (default: the lowest server) or "random".
    """
    return Policy(
        "q_ths",
        decide,
        observe=observe,
        configure=configure,
        start=start,
        options=options,
        defaults=DEFAULTS,
        name=name,
        explain=explain,
    )
