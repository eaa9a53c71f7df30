"""Live traffic by the policies of both wings, in process: a router for requests, a scheduler for jobs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .circuit import CircuitSettings
    from .errors import Refused, StoreError
    from .router import Ended, NoServerError, Router, Server
    from .scheduler import Assignment, Receipt, Scheduler
    from .tickets import Ticket

#: Public name → where it is defined. Loaded when first used: who routes needs nothing of the scheduling wing.
_HOMES = {
    "Assignment": "scheduler",
    "CircuitSettings": "circuit",
    "Ended": "router",
    "NoServerError": "router",
    "Receipt": "scheduler",
    "Refused": "errors",
    "Router": "router",
    "Scheduler": "scheduler",
    "Server": "router",
    "StoreError": "errors",
    "Ticket": "tickets",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


__all__ = [
    "Assignment",
    "CircuitSettings",
    "Ended",
    "NoServerError",
    "Receipt",
    "Refused",
    "Router",
    "Scheduler",
    "Server",
    "StoreError",
    "Ticket",
]
