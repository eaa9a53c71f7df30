"""Exact solutions: how long a stationary law takes, its bound included."""

from __future__ import annotations

from collections.abc import Callable

from queuewise import dispatch

from .report import at_most, in_turn, line, median, timed


def stationary() -> None:
    """SED's law for two servers at load 0.9 and for three at 0.8, after one solution that compiles what there is to."""
    dispatch.exact.stationary(dispatch.System(1.0, (1, 2)), "sed")
    two, three = dispatch.System(13.5, (5, 10)), dispatch.System(12.8, (2, 4, 10))
    (times,) = in_turn(lambda: dispatch.exact.stationary(two, "sed", 1e-8), repeats=5)
    at_most("two servers, load 0.9, to 1e-8 (median of 5)", median(times), 1, "s")
    at_most("three servers, load 0.8, to 1e-6", timed(lambda: dispatch.exact.stationary(three, "sed", 1e-6)), 10, "s")
    for name, system, tolerance in (("two", two, 1e-8), ("three", three, 1e-6)):
        law = dispatch.exact.stationary(system, "sed", tolerance)
        line(f"{name} servers: levels, and the bound on the error", f"{law.level}, {law.truncation_error:.1e}")


def sections() -> dict[str, Callable[[], None]]:
    """Name → section."""
    return {"stationary": stationary}
