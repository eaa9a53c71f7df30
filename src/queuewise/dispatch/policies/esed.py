"""Empirical SED: Shortest Expected Delay with fixed estimates of the rates, never updated (LASED, sections 1 and 7.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..policy import Policy, Shape
from ..systems import Rate
from ._delay import Params, assigned, decide, estimates, explain, law, observe, start, ties_of, weights_of


def configure(options: Any, shape: Shape) -> Params:
    """The estimates as weights."""
    if options["rates"] is None:
        raise ValueError("rates: esed needs a fixed estimate of every server's rate")
    return Params(weights_of("rates", options["rates"], shape), shape.slots, ties_of(options))


def esed(rates: Sequence[Rate] | None = None, *, name: str = "", **options: Any) -> Policy:
    """Shortest Expected Delay with fixed, perhaps wrong, rates.

    rates : one per server, numbers or fractions.
    ties : "lowest" (default), "highest", "fastest" or "random".
    """
    return Policy(
        "esed",
        decide,
        assigned=assigned,
        observe=observe,
        estimates=estimates,
        configure=configure,
        start=start,
        options={"rates": rates, **options},
        defaults={"rates": None, "ties": "lowest"},
        name=name,
        explain=explain,
        law=law,
    )
