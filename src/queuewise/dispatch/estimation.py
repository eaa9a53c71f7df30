"""Service rates from what was observed: completions and busy time of every server.

μ̂_i = N_i/S_i, with N_i completions and S_i the time that server i's slots were busy: the maximum likelihood estimate for
exponential service (LASED, section 3.1), censored or not: a job that failed, or was given up on, counts with its time
alone. So does the elapsed part of the service in progress, where a rule looks at it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .policy import DONE, Outcome

Floats = NDArray[np.float64]


#: Fewer completions than this are not discounted any further: a rate out of two numbers close to zero is none.
LEAST = 1e-6


class Observed(NamedTuple):
    """completions N : float64[n] · busy S : float64[n], time units."""

    completions: Floats
    busy: Floats


def nothing_observed(servers: int) -> Observed:
    """Before the first completion."""
    return Observed(np.zeros(servers), np.zeros(servers))


def count(observed: Observed, server: int, outcome: Outcome) -> None:
    """One job more."""
    if outcome.kind == DONE:
        observed.completions[server] += 1.0
    observed.busy[server] += outcome.busy_time


def discount(observed: Observed, factor: float) -> None:
    """Everything counts for less by a factor; no rate changes."""
    for i in range(observed.completions.shape[0]):
        if observed.completions[i] > LEAST or observed.completions[i] == 0.0:
            observed.completions[i] *= factor
            observed.busy[i] *= factor


def set_observed(observed: Observed, server: int, completions: float, busy: float) -> None:
    """As if a server had shown this, and nothing else."""
    observed.completions[server] = completions
    observed.busy[server] = busy


def mean_rate(observed: Observed, initial: Floats, i: int) -> float:
    """μ̂_i; the initial rate until the first completion."""
    if observed.completions[i] > 0.0:
        return float(observed.completions[i] / observed.busy[i])
    return float(initial[i])
