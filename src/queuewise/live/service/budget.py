"""How many retries there may be: where everything fails, retries multiply the load that made it fail."""

from __future__ import annotations

import math
from collections.abc import Callable

from .config import RetriesConfig

#: Seconds for which requests earn retries, and for which unused ones at any rate are kept (Finagle's window).
WINDOW = 10.0


class RetryBudget:
    """Retries up to a share of the requests of about the last ten seconds, and some per second at any rate.

    What requests earn fades with a time constant of `WINDOW`, so that an hour of quiet traffic buys no storm.
    """

    def __init__(self, settings: RetriesConfig, clock: Callable[[], float]) -> None:
        self.settings, self._clock = settings, clock
        self._earned, self._steady, self._at = 0.0, settings.per_second * WINDOW, clock()
        self._of_earned = False

    def request(self) -> None:
        """A request has come."""
        self._catch_up()
        self._earned += self.settings.share

    def spend(self) -> bool:
        """Take one retry, if there is one; whether there was."""
        self._catch_up()
        self._of_earned = self._earned >= 1.0
        if self._of_earned:
            self._earned -= 1.0
        elif self._steady >= 1.0:
            self._steady -= 1.0
        else:
            return False
        return True

    def give_back(self) -> None:
        """The retry that was just taken was not made: there was nobody to ask."""
        if self._of_earned:
            self._earned += 1.0
        else:
            self._steady += 1.0

    @property
    def remaining(self) -> float:
        """Retries that there are now."""
        self._catch_up()
        return self._earned + self._steady

    def _catch_up(self) -> None:
        now = self._clock()
        passed, self._at = max(0.0, now - self._at), now
        if passed > 0.0:
            self._earned *= math.exp(-passed / WINDOW)
            self._steady = min(self._steady + passed * self.settings.per_second, self.settings.per_second * WINDOW)
