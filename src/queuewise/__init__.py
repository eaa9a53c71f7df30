"""Queuewise: learn service rates while you route and schedule.

import queuewise as qw

system = qw.scheduling.wise_figure_law(q=0.15, slack=0.05, seed=0)
result = qw.scheduling.simulate(system, policies=["wise", "cqb_opt"], rounds=2000, runs=20, seed=1)
print(result.compare("wise", "cqb_opt"))

system = qw.dispatch.System(arrival_rate=1.0, service_rates=[5, 10])
result = qw.dispatch.simulate(system, policies=["lased", "greedy"], arrivals=100_000, runs=20, seed=1)
print(result.compare("lased", "greedy"))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__

if TYPE_CHECKING:
    from . import dispatch, live, matching, scheduling
    from .checks import check_policy
    from .loading import load, pool
    from .runs.result import Result

#: Public name → where it is defined. Loaded when first used, so that ``import queuewise`` is quick.
_HOMES = {
    "dispatch": ("queuewise.dispatch", None),
    "live": ("queuewise.live", None),
    "matching": ("queuewise.matching", None),
    "scheduling": ("queuewise.scheduling", None),
    "load": ("queuewise.loading", "load"),
    "pool": ("queuewise.loading", "pool"),
    "Result": ("queuewise.runs.result", "Result"),
    "check_policy": ("queuewise.checks", "check_policy"),
}


def policies() -> dict[str, str]:
    """Every registered policy of both wings, "dispatch.lased" for example, with a line about it."""
    from .dispatch.policies import REGISTER as DISPATCH
    from .scheduling.policies import REGISTER as SCHEDULING

    return {
        f"{wing}.{name}": (factory.__doc__ or "").strip().splitlines()[0]
        for wing, register in (("dispatch", DISPATCH), ("scheduling", SCHEDULING))
        for name, factory in register.items()
    }


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module_name, attribute = _HOMES[name]
    module = import_module(module_name)
    return module if attribute is None else getattr(module, attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


__all__ = [
    "Result",
    "__version__",
    "check_policy",
    "dispatch",
    "live",
    "load",
    "matching",
    "policies",
    "pool",
    "scheduling",
]
