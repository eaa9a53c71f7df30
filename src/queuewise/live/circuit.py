"""A circuit per server: a server that fails is left alone for a while, then tried with single requests.

*Closed*, all is well. After `failures` failures in a row, or where of the last `window` outcomes at least `share` failed, it
*opens*: nothing is sent for `pause` seconds. Then it is *half open*: one request at a time is sent as a trial, `trials` of
them must succeed in a row to close it, and a failure opens it again for twice as long, up to `longest_pause`.

Of Envoy's and Finagle's practice two things are kept. A share needs a full window, so that one failure of two is no verdict.
And where more than `panic` of the servers have an open circuit, circuits are ignored: the fault is then more likely in front
of them than in them, and the few that are left would drown in the traffic of all (in :class:`.router.Router`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..fields import require_count, require_number, require_positive

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"


@dataclass(frozen=True)
class CircuitSettings:
    """See the head of this module. `pause` and `longest_pause` in seconds; `panic` as a share of the servers, 1 for never.

    Raises ValueError for a number out of range, in one sentence that names it.
    """

    failures: int = 5
    window: int = 20
    share: float = 0.5
    pause: float = 5.0
    longest_pause: float = 20.0
    trials: int = 2
    panic: float = 0.5

    def __post_init__(self) -> None:
        for field in ("failures", "window", "trials"):
            require_count(f"circuit {field}", getattr(self, field))
        for field in ("pause", "longest_pause"):
            require_positive(f"circuit {field}", getattr(self, field))
        for field in ("share", "panic"):
            require_number(f"circuit {field}", getattr(self, field))
            if not 0.0 < getattr(self, field) <= 1.0:
                raise ValueError(f"circuit {field} must be above 0 and at most 1, not {getattr(self, field)!r}")
        if self.longest_pause < self.pause:
            raise ValueError(f"circuit longest_pause must be at least pause {self.pause!r}, not {self.longest_pause!r}")


class Circuit:
    """The state of one server's circuit. It knows no clock: `now` is handed in."""

    def __init__(self, settings: CircuitSettings) -> None:
        self.settings = settings
        self.reset()

    def reset(self) -> None:
        """Closed, with nothing held against the server."""
        self.state = CLOSED
        self.opened = 0  # times, in all
        self.in_a_row = 0  # failures; successes while half open
        self.retry_at = 0.0
        self.trial_out = False
        self._pause = self.settings.pause
        self._recent = 0  # the last outcomes as bits, 1 for a failure
        self._known = 0

    def outcome(self, ok: bool, now: float, trial: bool = False) -> bool:
        """A request came back. Returns whether the circuit changed between closed and not closed.

        `trial` : whether it was sent as one. What was sent before the circuit opened and comes back later tells nothing new.
        """
        if self.state != CLOSED:
            if not trial:
                return False
            self.trial_out = False
            if not ok:
                self._pause = min(2.0 * self._pause, self.settings.longest_pause)
                self._open(now)
                return False
            self.in_a_row += 1
            if self.in_a_row < self.settings.trials:
                return False
            opened = self.opened
            self.reset()
            self.opened = opened
            return True
        settings = self.settings
        self._recent = ((self._recent << 1) | (not ok)) & ((1 << settings.window) - 1)
        self._known = min(self._known + 1, settings.window)
        if ok:
            self.in_a_row = 0
            return False
        self.in_a_row += 1
        failed = self._recent.bit_count()
        if self.in_a_row < settings.failures and (
            self._known < settings.window or failed < settings.share * settings.window
        ):
            return False
        self._open(now)
        return True

    def forgotten(self) -> None:
        """A trial was cancelled, or never came back: it says nothing, and another one may go."""
        self.trial_out = False

    def wants_trial(self, now: float) -> bool:
        """Whether a request may be sent as a trial now; if so the circuit is half open from here on."""
        if self.state == CLOSED or self.trial_out or now < self.retry_at:
            return False
        if self.state == OPEN:
            self.state, self.in_a_row = HALF_OPEN, 0
        return True

    def _open(self, now: float) -> None:
        self.state, self.in_a_row, self.trial_out = OPEN, 0, False
        self.opened += 1
        self.retry_at = now + self._pause

    def plain(self) -> dict[str, float | int | str]:
        """For JSON. A pause is kept as it is counted from now on anew."""
        return {"state": self.state, "opened": self.opened, "pause": self._pause}

    def restore(self, kept: dict[str, float | int | str], now: float) -> None:
        """What :meth:`plain` gave; an open circuit is open for its pause again."""
        self.reset()
        self.opened = int(kept["opened"])
        if kept["state"] != CLOSED:
            self._pause = min(max(float(kept["pause"]), self.settings.pause), self.settings.longest_pause)
            self._open(now)
            self.opened -= 1
