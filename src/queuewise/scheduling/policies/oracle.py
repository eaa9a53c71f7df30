"""The oracle: argmax of the true p(x, k) over its own queue (WISE section 2.1; CQB-η-2 section 2).

It serves in decreasing p*(x) = max_k p(x, k). Ties go to the earliest arrival by default: with random ties the
inclusion of queues in the papers' coupling lemma fails path by path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..._random import Stream, below
from ...fields import choice
from ..policy import EXPLOIT, RANDOM, TIES, Policy, Shape, Waiting


class Params(NamedTuple):
    """The tie rule."""

    ties: int


def configure(options: Mapping[str, Any], shape: Shape) -> Params:
    """Check the options."""
    return Params(choice(options, "ties", TIES))


def decide(params: Params, state: Any, columns: Any, waiting: Waiting, stream: Stream) -> tuple[int, int, int]:
    """argmax p(x, k) over waiting pairs. Probabilities are compared exactly: they are the law's, not estimates."""
    best, slot, server, tied = -1.0, -1, -1, 0
    for position in range(waiting.jobs):
        candidate = waiting.slots[position]
        for k in range(waiting.allowed.shape[0]):
            if not waiting.allowed[k]:
                continue
            p = waiting.truth[candidate, k]
            if p > best:
                best, slot, server, tied = p, candidate, k, 1
            elif params.ties == RANDOM and p == best:
                tied += 1
                if below(stream, tied) == 0:
                    slot, server = candidate, k
    return slot, server, EXPLOIT


def explain(params: Params, state: Any, columns: Any, waiting: Waiting, slot: int, server: int) -> dict[str, Any]:
    """The pair's true probability beside the best one waiting."""
    waiting_slots = waiting.slots[: waiting.jobs]
    return {
        "probability": float(waiting.truth[slot, server]),
        "best_probability": float(np.max(waiting.truth[waiting_slots][:, waiting.allowed])),
    }


def oracle(*, name: str = "", **options: Any) -> Policy:
    """Serve the pair with the largest true success probability; knows what no learner knows.

    ties : "earliest" (default; then the lowest server) or "random".
    """
    return Policy(
        "oracle",
        decide,
        configure=configure,
        options=options,
        defaults={"ties": "earliest"},
        name=name,
        clairvoyant=True,
        explain=explain,
    )
