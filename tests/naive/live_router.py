"""A literal twin of what the live router keeps of one server: time, work and changes, from the events alone.

Everything is recomputed from lists of what happened: busy time by going through all events in order of time, discounts event by
event, the test for changes on a list of outcomes. One slot or several, one class, one unit of work per job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SHIFT, FEWEST, LONGEST, BLOCK = 2.0, 5.0, 100.0, 16.0
WARINESS, PATIENCE = 1.0, 16.0


def busy_time(events: list[tuple[float, int]], slots: int, since: float, until: float) -> float:
    """The integral of min(jobs in flight, slots) from `since` to `until`; events: (time, +1 or −1) in order."""
    total, in_flight, last = 0.0, 0, since
    for when, change in [*events, (until, 0)]:
        now = min(max(when, since), until)
        total += min(in_flight, slots) * (now - last)
        last = now
        in_flight += change
    return total


def deviance(done: float, busy: float, old_done: float, old_busy: float) -> float:
    """Log likelihood of two Poisson rates, each at its best, less that of one."""

    def log_likelihood(count: float, rate: float, time: float) -> float:
        return (count * math.log(rate) if count else 0.0) - rate * time

    common = (done + old_done) / (busy + old_busy)
    apart = log_likelihood(done, done / busy, busy) + log_likelihood(old_done, old_done / old_busy, old_busy)
    return apart - log_likelihood(done, common, busy) - log_likelihood(old_done, common, old_busy)


@dataclass
class Stretch:
    """Outcomes since a change may have come."""

    shift: float
    outcomes: list[tuple[float, float]] = field(default_factory=list)
    score: float = 0.0

    @property
    def done(self) -> float:
        return sum(done for done, _ in self.outcomes)

    @property
    def busy(self) -> float:
        return sum(busy for _, busy in self.outcomes)


@dataclass
class NaiveServer:
    """A server's books without discounts; `done`, `busy` : N and S."""

    threshold: float
    done: float = 0.0
    busy: float = 0.0
    spread: float = 2.0
    changes: int = 0
    block: list[tuple[float, float]] = field(default_factory=list)
    before: list[tuple[float, float]] = field(default_factory=list)
    slower: Stretch = field(default_factory=lambda: Stretch(1.0 / SHIFT))
    faster: Stretch = field(default_factory=lambda: Stretch(SHIFT))
    wary: bool = False  # it has become slower, and is looked after
    was: float = 0.0  # its rate before that
    back: float = 0.0  # the evidence that it is as it was
    since: float = 0.0
    faded: float = 0.0

    def count_for(self, factor: float) -> None:
        """All that was observed counts for less."""
        self.done *= factor
        self.busy *= factor
        for stretch in (self.slower, self.faster):
            stretch.outcomes = [(done * factor, busy * factor) for done, busy in stretch.outcomes]

    def look(self, now: float) -> None:
        """A job is routed: what is known of a server that has become slower fades."""
        if not self.wary:
            return
        half_life = max(WARINESS * (now - self.since), PATIENCE * self.busy / self.done)
        if now - self.faded >= half_life / 16.0:
            self.count_for(0.5 ** ((now - self.faded) / half_life))
            self.faded = now

    def is_back(self, before_done: float, before_busy: float, done: float, busy: float) -> bool:
        """Whether an outcome makes it likely that a server is as it was, or leaves that open."""
        if not self.wary or before_done <= 0.0 or self.was <= SHIFT * before_done / before_busy:
            return False
        rate = before_done / before_busy
        as_it_was = done * math.log(self.was) - self.was * busy
        as_it_is = done * math.log(rate) - rate * busy
        self.back = max(0.0, self.back + as_it_was - as_it_is)
        if self.back > 0.5 * self.threshold * max(1.0, self.spread):
            self.done, self.busy = FEWEST + 1.0, (FEWEST + 1.0) / self.was
            self.block, self.before = [], []
            self.slower, self.faster = Stretch(1.0 / SHIFT), Stretch(SHIFT)
            self.changes += 1
            self.wary = False
            return True
        if self.back > 0.0:
            self.count_for(0.5)
        return self.back > 0.0

    def outcome(self, done: float, busy: float, now: float) -> None:
        """One job more."""
        before_done, before_busy = self.done, self.busy
        self.done += done
        self.busy += busy
        if self.is_back(before_done, before_busy, done, busy):
            return
        for stretch in (self.slower, self.faster):
            old_done, old_busy = before_done - stretch.done, before_busy - stretch.busy
            if old_done < FEWEST or old_busy <= 0.0:
                continue
            rate = old_done / old_busy
            likelihood_shifted = done * math.log(rate * stretch.shift) - rate * stretch.shift * busy
            likelihood_same = done * math.log(rate) - rate * busy
            stretch.score += likelihood_shifted - likelihood_same
            stretch.outcomes.append((done, busy))
            if stretch.score <= 0.0 or stretch.done > min(LONGEST, old_done):
                stretch.outcomes, stretch.score = [], 0.0
                continue
            old_done, old_busy = self.done - stretch.done, self.busy - stretch.busy
            if old_done < FEWEST or stretch.busy <= 0.0:
                continue
            evidence = deviance(stretch.done, stretch.busy, old_done, old_busy)
            if evidence > self.threshold * max(1.0, self.spread):
                kept = 1.0 if stretch.done >= 3.0 else FEWEST + 1.0
                self.done = stretch.done + kept
                self.busy = stretch.busy + kept * old_busy / old_done
                self.changes += 1
                self.block, self.before = [], []
                self.slower, self.faster = Stretch(1.0 / SHIFT), Stretch(SHIFT)
                if stretch.shift > 1.0:
                    self.wary = False
                    return
                if not self.wary:
                    self.was = old_done / old_busy
                self.wary, self.back = True, 0.0
                self.since = self.faded = now
                return
        self.block.append((done, busy))
        if sum(done for done, _ in self.block) >= BLOCK:
            if self.before:
                now, then = (
                    [sum(column) for column in zip(*block, strict=True)] for block in (self.block, self.before)
                )
                self.spread += 0.1 * (min(2.0 * deviance(*now, *then), 10.0) - self.spread)
            self.block, self.before = [], self.block
