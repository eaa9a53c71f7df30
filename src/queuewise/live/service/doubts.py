"""Whose fault a 401, 403 or 404 is: the client's, or that of a backend that was set up wrongly.

A backend that refuses everything at once is always idle, so it would get all the traffic. From one answer nobody can tell. So
after a few of them in a row another backend is asked the same: if that one serves it, the first is to blame, which counts
against its circuit; if it refuses too, it is the client's doing, and nobody is asked twice for a while.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Refusals in a row from which on another backend is asked; those that are believed after another one has agreed.
PATIENCE, BENEFIT = 3, 20


class Doubts:
    """Refusals in a row, per backend of a group."""

    def __init__(self) -> None:
        self._row: dict[str, int] = {}

    def refused(self, backend: str) -> bool:
        """A backend has refused a request for what it is. Whether another one should be asked the same."""
        row = self._row[backend] = self._row.get(backend, 0) + 1
        return row >= PATIENCE

    def served(self, backend: str) -> None:
        """A backend has served a request."""
        self._row.pop(backend, None)

    def agreed(self, backends: Iterable[str]) -> None:
        """They refuse the same request."""
        self._row.update(dict.fromkeys(backends, -BENEFIT))
