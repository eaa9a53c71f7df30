"""Exact numbers beside the bounds: the chance that a queue exceeds m in a busy period of SED(r).

Moments of the busy period are in :mod:`queuewise.dispatch.exact`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...fields import require_count
from .ratios import to_first
from .servers import Pair

Floats = NDArray[np.float64]

#: Largest m that is solved, in some ten seconds.
MOST_QUEUE = 300
#: Chances below this have lost digits, or all, to underflow.
_LEAST = 1e-290


def log_overflow(pair: Pair, m: int) -> float:
    """ln of the chance that some queue exceeds m between the first arrival of a busy period and its end.

    States with both queues at most m are eliminated one by one, what they lead to being added to those that lead to them
    (Grassmann, Taksar and Heyman 1985). Nothing is subtracted, so that the chance is right to about twelve digits however
    small it is.

    Parameters
    ----------
    pair : two servers under SED(r) · m : jobs, at least 1 and at most MOST_QUEUE.

    Raises
    ------
    ValueError : m out of range, or so large that the chance does not fit a float.
    """
    require_count("m", m)
    if m > MOST_QUEUE:
        raise ValueError(f"m must be at most {MOST_QUEUE} to be solved, not {m}")
    width = int(m) + 1  # state (q₁, q₂) has place q₁·width + q₂; its neighbours are at most `width` places away
    size = width + 1
    up, (first, second) = float(pair.arrival_rate), map(float, pair.service_rates)
    threshold = to_first(pair.ratio, int(m))
    # Place 0 is where the busy period begins; what comes back to it goes to `empty`.
    rates = np.zeros((size, size))  # between the states not yet eliminated, by place modulo `size`
    beyond, empty = np.zeros(size), np.zeros(size)

    def enter(place: int) -> None:
        """Put a state into the window, with its rates to and from the states above it."""
        q1, q2 = divmod(place, width)
        here = place % size
        rates[here] = rates[:, here] = 0.0
        to_one = q2 >= threshold[q1]
        beyond[here] = up if (q1 if to_one else q2) == m else 0.0
        empty[here] = first * (place == width) + second * (place == 1)
        if beyond[here] == 0.0:
            rates[here, (place + (width if to_one else 1)) % size] = up
        if q1 < m:
            rates[(place + width) % size, here] = first if place > 0 else 0.0
        if q2 < m:
            rates[(place + 1) % size, here] = second if place > 0 else 0.0

    for place in range(width * width - 1, -1, -1):
        enter(place)
        if place + width < width * width:
            _eliminate(rates, beyond, empty, (place + width) % size)
    for place in range(width - 1, 0, -1):
        _eliminate(rates, beyond, empty, place)
    chance = beyond[0] / (beyond[0] + empty[0])
    if chance < _LEAST:
        raise ValueError(f"m must be small enough for the chance of an overflow to fit a float, not {m}")
    return math.log(chance)


def _eliminate(rates: Floats, beyond: Floats, empty: Floats, here: int) -> None:
    """Let every state that leads here lead to where this one leads."""
    out = rates[here].sum() + beyond[here] + empty[here]
    share = rates[:, here] / out
    share[here] = 0.0
    rates += np.outer(share, rates[here])
    np.fill_diagonal(rates, 0.0)
    beyond += share * beyond[here]
    empty += share * empty[here]
    rates[here] = rates[:, here] = 0.0
    beyond[here] = empty[here] = 0.0
