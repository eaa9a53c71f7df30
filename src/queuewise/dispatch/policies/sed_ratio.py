"""SED(r) for two servers: server 1 iff r(q₁ + 1) ≤ q₂ + 1 (LASED, section 2.2). r = μ₂/μ₁ is SED, r = 1 joins the shorter
queue.
"""

from __future__ import annotations

from typing import Any

from ..policy import Policy, Shape
from ._delay import Params, assigned, decide, estimates, explain, law, observe, start, ties_of, weights_of


def configure(options: Any, shape: Shape) -> Params:
    """r = a/b as the weights (b, a): then r(q₁ + 1) ≤ q₂ + 1 compares whole numbers."""
    if shape.servers != 2:
        raise ValueError(f"sed_ratio is a rule for 2 servers, not {shape.servers}; use esed with a rate for each")
    weights = weights_of("ratio", [1, options["ratio"]], shape)
    return Params(weights, shape.slots, ties_of(options))


def sed_ratio(ratio: Any = 1, *, name: str = "", **options: Any) -> Policy:
    """Two servers: the first iff r(q1 + 1) <= q2 + 1.

    ratio : r, a number or a fraction such as "5/3"; above 0.
    ties : "lowest" (default, the paper's), "highest", "fastest" or "random".
    """
    return Policy(
        "sed_ratio",
        decide,
        assigned=assigned,
        observe=observe,
        estimates=estimates,
        configure=configure,
        start=start,
        options={"ratio": ratio, **options},
        defaults={"ratio": 1, "ties": "lowest"},
        name=name,
        explain=explain,
        law=law,
    )
