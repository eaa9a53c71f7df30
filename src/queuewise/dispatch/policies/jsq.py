"""Join the shortest queue: argmin_i q_i, blind to rates; SED(1) for two servers (LASED, section 4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..policy import Policy, Shape
from ._delay import Params, assigned, decide, explain, law, observe, start, ties_of


def configure(options: Any, shape: Shape) -> Params:
    """All weights and slots 1: then x_i/w_i = q_i + 1."""
    return Params(np.ones(shape.servers), np.ones(shape.servers, dtype=np.int64), ties_of(options))


def jsq(*, name: str = "", **options: Any) -> Policy:
    """Join the shortest queue, whatever the servers' rates.

    ties : "lowest" (default), "highest" or "random" ("fastest" would know the rates, and is "lowest" here).
    """
    return Policy(
        "jsq",
        decide,
        assigned=assigned,
        observe=observe,
        configure=configure,
        start=start,
        options=options,
        defaults={"ties": "lowest"},
        name=name,
        explain=explain,
        law=law,
    )
