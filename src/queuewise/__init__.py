"""Queuewise: learn service rates while you route and schedule.

import queuewise as qw

system = qw.scheduling.wise_figure_law(q=0.15, slack=0.05, seed=0)
result = qw.scheduling.simulate(system, policies=["wise", "cqb_opt"], rounds=2000, runs=20, seed=1)
print(result.compare("wise", "cqb_opt"))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__

if TYPE_CHECKING:
    from . import scheduling
    from .runs.result import Result, load
    from .scheduling import check_policy

#: Public name → where it is defined. Loaded when first used, so that ``import queuewise`` is quick.
_HOMES = {
    "scheduling": ("queuewise.scheduling", None),
    "load": ("queuewise.runs.result", "load"),
    "Result": ("queuewise.runs.result", "Result"),
    "check_policy": ("queuewise.scheduling.checks", "check_policy"),
}


def policies() -> dict[str, str]:
    """Every registered policy by name, with the first line of what its file says about it."""
    from .scheduling.policies import REGISTER

    return {name: (factory.__doc__ or "").strip().splitlines()[0] for name, factory in REGISTER.items()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module_name, attribute = _HOMES[name]
    module = import_module(module_name)
    return module if attribute is None else getattr(module, attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


__all__ = ["Result", "__version__", "check_policy", "load", "policies", "scheduling"]
