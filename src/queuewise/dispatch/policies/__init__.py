"""The register: every dispatching rule by name, one file each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...rule import from_register
from ..policy import Policy
from .dispatch_bandit import dispatch_bandit
from .esed import esed
from .greedy import greedy
from .jiq import jiq
from .jsq import jsq
from .lased import lased
from .least_loaded import least_loaded
from .optimal import optimal
from .optimistic_sed import optimistic_sed
from .power_of_d import power_of_d
from .random import random
from .round_robin import round_robin
from .sed import sed
from .sed_of_d import sed_of_d
from .sed_ratio import sed_ratio
from .thompson_sed import thompson_sed
from .weighted_random import weighted_random

#: Name → factory. A new rule of the package is a new file, a line above and a line here.
REGISTER: dict[str, Callable[..., Policy]] = {
    factory.__name__: factory
    for factory in (
        sed,
        sed_ratio,
        esed,
        lased,
        greedy,
        optimistic_sed,
        thompson_sed,
        jsq,
        jiq,
        random,
        weighted_random,
        round_robin,
        power_of_d,
        sed_of_d,
        least_loaded,
        dispatch_bandit,
        optimal,
    )
}


def make(policy: str | Policy, **options: Any) -> Policy:
    """A policy from its registered name and options; a :class:`Policy` passes through.

    Raises ValueError for an unknown name, with the nearest known one.
    """
    return from_register(policy, REGISTER, options)


__all__ = ["REGISTER", "make", *REGISTER]
