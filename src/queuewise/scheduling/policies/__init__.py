"""The register: every scheduling rule by name, one file each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...rule import from_register
from ..policy import (
    Policy,
)
from .acqb import acqb
from .cqb_epsilon import cqb_epsilon
from .cqb_eta_2 import cqb_eta_2
from .cqb_opt import cqb_opt
from .fifo_random import fifo_random
from .oracle import oracle
from .q_ths import q_ths
from .q_ucb import q_ucb
from .random import random
from .wise import wise

#: Name → factory. A new rule of the package is a new file, a line above and a line here.
REGISTER: dict[str, Callable[..., Policy]] = {
    factory.__name__: factory
    for factory in (
        wise,
        cqb_opt,
        cqb_epsilon,
        cqb_eta_2,
        acqb,
        q_ucb,
        q_ths,
        random,
        fifo_random,
        oracle,
    )
}


def make(policy: str | Policy, **options: Any) -> Policy:
    """A policy from its registered name and options; a :class:`Policy` passes through.

    Raises ValueError for an unknown name, with the nearest known one.
    """
    return from_register(policy, REGISTER, options)


__all__ = [
    "REGISTER",
    "acqb",
    "cqb_epsilon",
    "cqb_eta_2",
    "cqb_opt",
    "fifo_random",
    "make",
    "oracle",
    "q_ths",
    "q_ucb",
    "random",
    "wise",
]
