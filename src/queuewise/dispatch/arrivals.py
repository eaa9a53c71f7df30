"""When jobs arrive: Poisson, regular, renewal, Markov-modulated, time-varying, or recorded.

An arrival process is described once and started anew for every run: ``process.start(rate, rng)`` gives a source whose
``take(n)`` returns the next n arrival times. The processes here are given up to a time scale; the system's
`arrival_rate` sets it, so that one process can be compared at several loads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .. import _compile
from ..fields import plain, require_count, require_number, require_positive, spelled

Floats = npt.NDArray[np.float64]
Gaps = Callable[[np.random.Generator, int], Any]


#: Blocks of candidates without an arrival after which a time-varying process is held to have ended.
_MOST_EMPTY = 10_000


class Source(Protocol):
    """The arrival times of one run, in order."""

    def take(self, count: int) -> Floats:
        """The next `count` times; fewer at the end of a recorded trace."""


class ArrivalProcess(Protocol):
    """A law of arrival times."""

    def start(self, rate: float, rng: np.random.Generator) -> Source: ...

    def settings(self) -> dict[str, Any]: ...


def _add_up(gaps: Floats, rate: float, last: float) -> float:
    """Gaps of mean one into times, in place; compiled, a third of what NumPy takes for the division and the sum."""
    for i in range(gaps.shape[0]):
        last += gaps[i] / rate
        gaps[i] = last
    return last


class _FromGaps:
    """Arrival times from gaps of mean one."""

    def __init__(self, gaps: Gaps, rate: float, rng: np.random.Generator, sound: bool) -> None:
        self._gaps, self._rate, self._rng, self._last, self._sound = gaps, rate, rng, 0.0, sound

    def take(self, count: int) -> Floats:
        gaps = np.asarray(self._gaps(self._rng, count), dtype=np.float64)
        if self._sound:
            pass
        elif gaps.shape != (count,) or not np.isfinite(gaps).all() or (gaps < 0.0).any():
            raise ValueError(f"arrivals: the function of gaps must return {count} finite numbers of at least 0")
        times = gaps if self._sound else gaps.copy()  # a user's array is not ours to change
        self._last = _compile.program(_add_up, {})(times, self._rate, self._last)
        return times


@dataclass(frozen=True)
class Renewal:
    """Independent, equally distributed gaps. gaps : ``draw(rng, n)`` of mean one · name : for settings · sound : gaps are
    finite and at least 0 by construction, so that nobody need look."""

    gaps: Gaps
    name: str
    parameters: tuple[tuple[str, float], ...] = ()
    sound: bool = False

    def start(self, rate: float, rng: np.random.Generator) -> Source:
        return _FromGaps(self.gaps, rate, rng, self.sound)

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {"process": self.name, **dict(self.parameters)}
        gaps = plain(self.gaps)
        return found if isinstance(gaps, str) else {**found, "gaps": gaps}


def _exponential_gaps(rng: np.random.Generator, count: int) -> Floats:
    return rng.standard_exponential(count)


def poisson() -> Renewal:
    """Exponential gaps: the model of the paper (LASED, section 2.1)."""
    return Renewal(_exponential_gaps, "poisson", sound=True)


def regular() -> Renewal:
    """Equal gaps."""
    return Renewal(lambda rng, count: np.ones(count), "regular", sound=True)


def gamma_renewal(variation: float) -> Renewal:
    """Gamma gaps. variation : squared coefficient of variation, above 0 (1 is Poisson; larger is burstier)."""
    require_positive("variation", variation)
    return Renewal(
        lambda rng, count: rng.gamma(1.0 / variation, variation, count),
        "gamma",
        (("variation", float(variation)),),
    )


def hyperexponential_renewal(variation: float) -> Renewal:
    """Gaps that are a mixture of two exponentials with balanced means. variation : squared coefficient of variation, ≥ 1."""
    from .service import hyperexponential_draw

    return Renewal(hyperexponential_draw(variation), "hyperexponential", (("variation", float(variation)),))


def renewal(gaps: Gaps) -> Renewal:
    """Gaps from a function of your own, ``gaps(rng, n)``, of mean one (the system's arrival rate scales them)."""
    if not callable(gaps):
        raise ValueError(f"gaps must be a function of (rng, n), not {gaps!r}")
    return Renewal(gaps, spelled(gaps))


@dataclass(frozen=True)
class MarkovModulated:
    """A Poisson process whose rate follows a Markov chain.

    rates : of arrivals in each phase, relative to each other · stays : mean time in each phase, in units of the mean gap
    between arrivals · jumps : probabilities of the next phase, row by row; None for a cycle.
    """

    rates: tuple[float, ...]
    stays: tuple[float, ...]
    jumps: tuple[tuple[float, ...], ...]

    def _shares(self) -> Floats:
        """The long-run shares of time in each phase."""
        matrix = np.array(self.jumps).T - np.eye(len(self.rates))
        matrix[-1] = 1.0
        visits = np.linalg.solve(matrix, np.eye(len(self.rates))[-1])
        times = visits * np.array(self.stays)
        return np.asarray(times / times.sum())

    def start(self, rate: float, rng: np.random.Generator) -> Source:
        scale = float(self._shares() @ np.array(self.rates))
        return _Modulated(np.array(self.rates) * rate / scale, np.array(self.stays) / rate, np.array(self.jumps), rng)

    def settings(self) -> dict[str, Any]:
        return {"process": "markov_modulated", "rates": list(self.rates), "stays": list(self.stays)} | {
            "jumps": [list(row) for row in self.jumps]
        }


class _Modulated:
    def __init__(self, rates: Floats, stays: Floats, jumps: Floats, rng: np.random.Generator) -> None:
        self._rates, self._stays, self._jumps, self._rng = rates, stays, np.cumsum(jumps, axis=1), rng
        self._now, self._phase = 0.0, 0
        self._ready: Floats = np.zeros(0)

    def take(self, count: int) -> Floats:
        pieces, have = [self._ready], len(self._ready)
        while have < count:
            stay = self._rng.exponential(self._stays[self._phase])
            arrived = self._rng.poisson(self._rates[self._phase] * stay)
            pieces.append(self._now + np.sort(self._rng.random(arrived)) * stay)
            have += arrived
            self._now += stay
            row = self._jumps[self._phase]
            self._phase = min(int(np.searchsorted(row, self._rng.random(), side="right")), len(row) - 1)
        times = np.concatenate(pieces)
        self._ready = times[count:]
        return np.asarray(times[:count])


def markov_modulated(
    rates: Sequence[float], stays: Sequence[float], jumps: Sequence[Sequence[float]] | None = None
) -> MarkovModulated:
    """A Markov-modulated Poisson process: quiet and busy phases.

    Parameters
    ----------
    rates : of arrivals in each phase, relative to each other, at least one above 0.
    stays : mean time in each phase, in mean gaps between arrivals.
    jumps : [phase][next], probabilities; None for a cycle through the phases.

    Raises
    ------
    ValueError : lists of different lengths, negative rates, stays that are not positive, rows that do not sum to one.
    """
    count = len(rates)
    require_count("phases", count, 2)
    if len(stays) != count:
        raise ValueError(f"stays must have one number per phase, {count}, not {len(stays)}")
    for rate, stay in zip(rates, stays, strict=True):
        require_number("rates", rate)
        require_positive("stays", stay)
    if min(rates) < 0.0 or max(rates) <= 0.0:
        raise ValueError(f"rates must be at least 0 and not all 0, not {list(rates)!r}")
    if jumps is None:
        jumps = [[1.0 if j == (i + 1) % count else 0.0 for j in range(count)] for i in range(count)]
    matrix = np.array(jumps, dtype=np.float64)
    if matrix.shape != (count, count) or (matrix < 0.0).any() or not np.allclose(matrix.sum(axis=1), 1.0):
        raise ValueError(f"jumps must be a {count} × {count} matrix of probabilities whose rows sum to 1")
    if (np.linalg.matrix_power(matrix + np.eye(count), count) <= 0.0).any():
        raise ValueError("jumps must lead from every phase to every other one")
    return MarkovModulated(
        tuple(map(float, rates)), tuple(map(float, stays)), tuple(tuple(map(float, row)) for row in matrix)
    )


@dataclass(frozen=True)
class TimeVarying:
    """A Poisson process whose rate depends on time, by thinning (Lewis and Shedler 1979)."""

    intensity: Callable[[Floats], Any]
    most: float

    def start(self, rate: float, rng: np.random.Generator) -> Source:
        return _Thinned(self.intensity, self.most, rate, rng)

    def settings(self) -> dict[str, Any]:
        return {"process": "time_varying", "intensity": plain(self.intensity), "most": self.most}


class _Thinned:
    def __init__(self, intensity: Callable[[Floats], Any], most: float, rate: float, rng: np.random.Generator) -> None:
        self._intensity, self._most, self._rate, self._rng = intensity, most, rate, rng
        self._now = 0.0
        self._ready: Floats = np.zeros(0)

    def take(self, count: int) -> Floats:
        pieces, have, empty = [self._ready], len(self._ready), 0
        while have < count:
            block = max(256, count - have)
            times = self._now + np.cumsum(self._rng.standard_exponential(block)) / (self._most * self._rate)
            self._now = float(times[-1])
            share = np.asarray(self._intensity(times), dtype=np.float64)
            if share.shape != times.shape or not ((share >= 0.0) & (share <= self._most)).all():
                raise ValueError(f"intensity must return numbers between 0 and most = {self._most:g}, one per time")
            kept = times[self._rng.random(block) * self._most < share]
            empty = 0 if len(kept) else empty + 1
            if empty > _MOST_EMPTY:
                raise ValueError(f"intensity must not stay at 0: nobody has arrived for long before {self._now:g}")
            pieces.append(kept)
            have += len(kept)
        times = np.concatenate(pieces)
        self._ready = times[count:]
        return np.asarray(times[:count])


def time_varying(intensity: Callable[[Floats], Any], most: float) -> TimeVarying:
    """A Poisson process of rate ``arrival_rate · intensity(t)``.

    Parameters
    ----------
    intensity : function of an array of times, with long-run mean one if `arrival_rate` is to be the long-run rate.
    most : its largest value.
    """
    require_positive("most", most)
    if not callable(intensity):
        raise ValueError(f"intensity must be a function of times, not {intensity!r}")
    return TimeVarying(intensity, float(most))


@dataclass(frozen=True)
class Recorded:
    """Arrival times as they were recorded; they are not scaled."""

    times: Floats

    def start(self, rate: float, rng: np.random.Generator) -> Source:
        return _Played(self.times)

    @property
    def rate(self) -> float:
        """Jobs per time over the whole trace, from its first arrival to its last."""
        span = float(self.times[-1] - self.times[0])
        return (len(self.times) - 1) / span if span > 0.0 else math.inf

    def settings(self) -> dict[str, Any]:
        return {"process": "recorded", "times": plain(self.times)}


class _Played:
    def __init__(self, times: Floats) -> None:
        self._times, self._next = times, 0

    def take(self, count: int) -> Floats:
        found = self._times[self._next : self._next + count].copy()
        self._next += len(found)
        return found


def recorded(times: npt.ArrayLike) -> Recorded:
    """Recorded arrival times: at least two, none negative, in order (equal times are served in the order given)."""
    found = np.array(times, dtype=np.float64)
    if found.ndim != 1 or len(found) < 2:
        raise ValueError(f"times must be a list of at least 2 arrival times, not an array of shape {found.shape}")
    if not np.isfinite(found).all() or found[0] < 0.0:
        raise ValueError("times must be finite and at least 0")
    down = np.flatnonzero(np.diff(found) < 0.0)
    if len(down):
        at = int(down[0])
        raise ValueError(
            f"times must be in order, but entry {at + 1} ({found[at + 1]:g}) is before entry {at} ({found[at]:g})"
        )
    if found[-1] == found[0]:
        raise ValueError("times must not all be the same")
    return Recorded(found)
