"""What a theorem says about one system: a number, what it bounds, and whether its assumptions are met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsFloat


@dataclass(frozen=True)
class Assumption:
    """One assumption of a theorem, checked on one system.

    Attributes
    ----------
    name : what is assumed, as a statement: "load is below 1"
    holds : None where it cannot be decided (from a sample, say)
    value : the number that decides, or a word; printed with str()
    reason : how the value is to be read, or why the assumption fails
    """

    name: str
    holds: bool | None
    value: SupportsFloat | str
    reason: str


def all_hold(assumptions: Iterable[Assumption]) -> bool | None:
    """True if every assumption holds, False if one fails, None if none is known to fail but some are undecided."""
    verdicts = [assumption.holds for assumption in assumptions]
    return False if False in verdicts else None if None in verdicts else True


@dataclass(frozen=True)
class Bound:
    """One quantity of a theorem, evaluated on one system.

    Attributes
    ----------
    name : of the quantity: "overflow_bound"
    source : paper and number: "LASED Lemma 6"
    value : None where an assumption fails
    log : whether `value` is the natural logarithm of the quantity, which would not fit a float
    unit : of the quantity: "time", "jobs", "probability", or "" for a pure number
    assumptions : all that the theorem asks for, met or not
    reads : one line that says what the quantity bounds
    """

    name: str
    source: str
    value: float | None
    log: bool
    unit: str
    assumptions: tuple[Assumption, ...]
    reads: str

    @property
    def holds(self) -> bool | None:
        """Whether all assumptions are met; None if none is known to fail but some are undecided."""
        return all_hold(self.assumptions)
