"""Systems of the dispatching wing: parallel queues in continuous time, each arrival routed at once.

A :class:`System` is the truth of a simulation: when jobs arrive, how much service they need, and how fast each server
works. Every server serves its own queue in order of arrival, with one job in each of its slots; nobody changes queues.
(LASED, section 2.1, has Poisson arrivals, exponential service, two servers and one slot each.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..fields import plain, require_count, require_list, require_positive
from . import arrivals as arrival_laws
from . import service as service_laws
from .arrivals import ArrivalProcess, Recorded
from .service import Service

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: A rate: a number, or a fraction such as ``Fraction(1, 3)`` or ``"1/3"``.
Rate = float | Fraction | str
#: Products of a weight and a queue length must stay below this, or comparisons are no longer exact.
EXACT = 2**53
#: Jobs in the system at which a run ends with the verdict "unstable".
MOST_IN_SYSTEM = 1_000_000
#: The largest such cap: each job in the system takes some 50 bytes.
MOST_CAP = 1_000_000_000
#: Slots that a server may have: waiting for the next free one is looked for among them.
MOST_SLOTS = 10_000


class Schedule(NamedTuple):
    """Service rates that change: `rates[k]` holds from `times[k]` until `times[k + 1]`, the last one for ever."""

    times: tuple[float, ...]
    rates: tuple[tuple[Rate, ...], ...]


def schedule(times: Sequence[float], rates: Sequence[Sequence[Rate]]) -> Schedule:
    """Service rates that change at given times.

    Parameters
    ----------
    times : increasing, the first one 0.
    rates : [piece][server], each above 0.

    Raises
    ------
    ValueError : lists of different lengths, times out of order, rates that are not positive.
    """
    found = tuple(float(time) for time in times)
    if not found or found[0] != 0.0 or not all(a < b < math.inf for a, b in itertools.pairwise(found)):
        raise ValueError("times must increase, be finite and begin with 0")
    if len(rates) != len(found):
        raise ValueError(f"rates must have one row per time, {len(found)}, not {len(rates)}")
    return Schedule(found, tuple(tuple(row) for row in rates))


def exact_rate(name: str, value: Rate) -> Fraction:
    """A rate as the fraction that its decimal form means: 0.1 is 1/10. ValueError unless finite and positive."""
    if isinstance(value, Fraction):
        found = value
    elif isinstance(value, str):
        try:
            found = Fraction(value)
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"{name} must be numbers or fractions such as '1/3', not {value!r}") from None
    else:
        require_positive(name, value)
        found = Fraction(repr(value.item() if isinstance(value, np.generic) else value))
    if found <= 0:
        raise ValueError(f"{name} must be positive, not {value!r}")
    if not 0.0 < _as_float(found) < math.inf:
        raise ValueError(f"{name} must lie within what floating point can hold, not {str(value)[:40]}")
    return found


def _as_float(rate: Fraction) -> float:
    try:
        return float(rate)
    except OverflowError:
        return math.inf


def common_weights(rates: Sequence[Sequence[Fraction]], largest_queue: int) -> tuple[Floats, bool]:
    """Rates as whole numbers up to one common factor, and whether they could be: float64 of the same shape.

    Weights are exact if products with every queue length stay below 2⁵³; otherwise they are the rates themselves, rounded.
    """
    denominator = reduce(math.lcm, (rate.denominator for row in rates for rate in row))
    whole = [[int(rate * denominator) for rate in row] for row in rates]
    divisor = reduce(math.gcd, (weight for row in whole for weight in row))
    if max(weight // divisor for row in whole for weight in row) * (largest_queue + 1) < EXACT:
        return np.array([[float(weight // divisor) for weight in row] for row in whole]), True
    return np.array([[float(rate) for rate in row] for row in rates]), False


@dataclass(frozen=True, eq=False)
class System:
    """Parallel queues: who arrives, what they need, how fast the servers are.

    Parameters
    ----------
    arrival_rate : λ, jobs per time; None with recorded arrivals, which bring their own.
    service_rates : μ_i, size per time that one slot of server i works off (jobs per time for laws of mean one): numbers,
        fractions (``Fraction(1, 3)``, ``"1/3"``), or a :func:`schedule`. Decimals are read as the fractions that they spell.
    slots : c_i, jobs that a server serves at a time; None for one each.
    arrivals : an arrival process of :mod:`queuewise.dispatch.arrivals`, a function ``gaps(rng, n)`` of mean one, or None
        for Poisson.
    service : a law of :mod:`queuewise.dispatch.service`, a function ``draw(rng, n)``, or None for exponential.
    initial_rates : jobs per time and slot that learning rules believe in beforehand, unless told otherwise; None for all 1.
    initial_spread : in every run draw what they believe afresh, log-uniformly within this factor of the truth either way.
    allow_unstable : take a system with λE[S] ≥ Σ c_i μ_i, whose queues grow without end.
    most_in_system : jobs in the system at which a run ends with the verdict "unstable".

    Raises
    ------
    ValueError : a value out of range, or a system that no rule can keep stable.
    """

    arrival_rate: float | None = None
    service_rates: Sequence[Rate] | Schedule = ()
    slots: Sequence[int] | None = None
    arrivals: Any = None
    service: Any = None
    initial_rates: Sequence[Rate] | None = None
    initial_spread: float | None = None
    allow_unstable: bool = False
    most_in_system: int = MOST_IN_SYSTEM
    _exact: tuple[tuple[Fraction, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_count("most_in_system", self.most_in_system, 2)
        if self.most_in_system > MOST_CAP:
            raise ValueError(f"most_in_system must be at most {MOST_CAP}, not {self.most_in_system!r}")
        self._set("most_in_system", int(self.most_in_system))
        given = self.service_rates
        rows = given.rates if isinstance(given, Schedule) else (tuple(require_list("service_rates", given, "rates")),)
        if not rows[0]:
            raise ValueError("service_rates must have one rate for each server, at least one")
        if any(len(row) != len(rows[0]) for row in rows):
            raise ValueError("service_rates must have the same number of servers in every row of the schedule")
        self._set("_exact", tuple(tuple(exact_rate("service_rates", rate) for rate in row) for row in rows))
        if self.slots is not None:
            self._set("slots", tuple(require_list("slots", self.slots, "numbers")))
            if len(self.slots) != self.servers:
                raise ValueError(f"slots must have one number per server, {self.servers}, not {len(self.slots)}")
            for count in self.slots:
                require_count("slots", count)
                if count > MOST_SLOTS:
                    raise ValueError(f"slots must be at most {MOST_SLOTS} per server, not {count!r}")
        if self.initial_rates is not None:
            self._set("initial_rates", tuple(require_list("initial_rates", self.initial_rates, "rates")))
            if len(self.initial_rates) != self.servers:
                raise ValueError(
                    f"initial_rates must have one rate per server, {self.servers}, not {list(self.initial_rates)!r}"
                )
            for rate in self.initial_rates:
                exact_rate("initial_rates", rate)
        if self.initial_spread is not None:
            require_positive("initial_spread", self.initial_spread)
            if self.initial_spread < 1.0 or self.initial_rates is not None:
                raise ValueError("initial_spread must be a factor of at least 1, without initial_rates")
        self._set("arrivals", self._arrival_process())
        self._set("service", self._service_law())
        if isinstance(self.arrivals, Recorded):
            if self.arrival_rate is not None:
                raise ValueError("arrival_rate must be left out with recorded arrivals, which bring their own")
            self._set("arrival_rate", self.arrivals.rate)
        elif self.arrival_rate is None:
            raise ValueError("arrival_rate is missing: jobs per time")
        require_positive("arrival_rate", self.arrival_rate)  # type: ignore[arg-type]
        if self._is_overloaded() and not self.allow_unstable:
            needed, there = self.rate * self.service.mean, self.capacity
            raise ValueError(
                f"arrival_rate: work arrives at {needed:g} per time and the servers together do {there:g}, "
                f"{needed - there:g} too little (load {self.load:.3g}), so every rule is unstable; lower the rate, or "
                "allow_unstable=True"
            )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _is_overloaded(self) -> bool:
        """λE[S] ≥ Σ c_i μ_i, with decimals as the fractions that they spell: 0.3 is 0.1 + 0.2."""
        counts = [int(count) for count in self.slot_counts]
        there = sum(rate * count for rate, count in zip(self._exact[-1], counts, strict=True))
        mean = exact_rate("service", self.service.mean)
        return exact_rate("arrival_rate", self.arrival_rate) * mean >= there  # type: ignore[arg-type]

    def _arrival_process(self) -> ArrivalProcess:
        if self.arrivals is None:
            return arrival_laws.poisson()
        if hasattr(self.arrivals, "start"):
            return self.arrivals  # type: ignore[no-any-return]
        if isinstance(self.arrivals, str) or getattr(self.arrivals, "__module__", "") == arrival_laws.__name__:
            raise ValueError(f"arrivals must be a process such as dispatch.arrivals.poisson(), not {self.arrivals!r}")
        if callable(self.arrivals):
            return arrival_laws.renewal(self.arrivals)
        return arrival_laws.recorded(self.arrivals)

    def _service_law(self) -> Service:
        if self.service is None:
            return service_laws.exponential()
        if isinstance(self.service, Service):
            return self.service
        if isinstance(self.service, str) or getattr(self.service, "__module__", "") == service_laws.__name__:
            raise ValueError(f"service must be a law such as dispatch.service.exponential(), not {self.service!r}")
        if callable(self.service):
            return service_laws.from_function(self.service)
        return service_laws.recorded_sizes(self.service)

    @property
    def servers(self) -> int:
        """n."""
        return len(self._exact[0])

    @property
    def rate(self) -> float:
        """λ, jobs per time in the long run."""
        return float(self.arrival_rate)  # type: ignore[arg-type]

    @cached_property
    def slot_counts(self) -> Ints:
        """c_i: int64[n]."""
        return np.ones(self.servers, dtype=np.int64) if self.slots is None else np.array(self.slots, dtype=np.int64)

    @cached_property
    def change_times(self) -> Floats:
        """When the rates change: float64[pieces], the first one 0."""
        return np.array(self.service_rates.times if isinstance(self.service_rates, Schedule) else [0.0])

    @cached_property
    def rates(self) -> Floats:
        """μ_i of every piece: float64[pieces, n]."""
        return np.array([[float(rate) for rate in row] for row in self._exact])

    @cached_property
    def _weights(self) -> tuple[Floats, bool]:
        counts = [int(count) for count in self.slot_counts]
        rows = [[rate * count for rate, count in zip(row, counts, strict=True)] for row in self._exact]
        return common_weights(rows, max(self.most_in_system, max(counts)))

    @property
    def weights(self) -> Floats:
        """c_i μ_i of every piece up to a common factor: float64[pieces, n], whole numbers where `exact`."""
        return self._weights[0]

    @property
    def exact(self) -> bool:
        """Whether the oracle compares delays exactly, so that ties are ties."""
        return self._weights[1]

    @property
    def ratio(self) -> Fraction | None:
        """r* = μ₂/μ₁ of two servers with one slot and constant rates (LASED, section 2.2); None for other systems."""
        if self.servers != 2 or len(self._exact) > 1 or int(self.slot_counts.max()) > 1:
            return None
        return self._exact[0][1] / self._exact[0][0]

    @property
    def capacity(self) -> float:
        """Size per time that all servers do together; in the long run, that is after the last change, if rates change."""
        return float((self.rates[-1] * self.slot_counts).sum())

    @property
    def load(self) -> float:
        """ρ = λE[S]/Σ c_i μ_i."""
        return self.rate * float(self.service.mean) / self.capacity

    def beliefs(self, rng: np.random.Generator) -> Floats:
        """The initial rates of one run, jobs per time: float64[n]."""
        if self.initial_rates is not None:
            return np.array([float(exact_rate("initial_rates", rate)) for rate in self.initial_rates])
        if self.initial_spread is None:
            return np.ones(self.servers)
        rates = self.rates[0] / float(self.service.mean)
        return np.asarray(rates * self.initial_spread ** rng.uniform(-1.0, 1.0, self.servers))

    def settings(self) -> dict[str, Any]:
        """What identifies the system, as JSON values."""
        found: dict[str, Any] = {
            "arrival_rate": self.rate,
            "service_rates": [[str(rate) for rate in row] for row in self._exact],
            "slots": self.slot_counts.tolist(),
            "arrivals": self.arrivals.settings(),
            "service": self.service.settings(),
            "initial_rates": None if self.initial_rates is None else [str(rate) for rate in self.initial_rates],
            "initial_spread": self.initial_spread,
            "most_in_system": self.most_in_system,
            "exact_ties": self.exact,
        }
        if len(self._exact) > 1:
            found["change_times"] = plain(self.change_times)
            found["service_rates"] = plain(found["service_rates"])
        return found

    def describe(self) -> str:
        """A few lines for a person."""
        first = ", ".join(str(rate) if rate.denominator < 100 else f"{float(rate):g}" for rate in self._exact[0][:8])
        more = f", … ({self.servers} servers)" if self.servers > 8 else ""
        changing = f", changing {len(self._exact) - 1} times" if len(self._exact) > 1 else ""
        lines = [
            f"arrivals        {self.arrivals.settings()['process']}, {self.rate:g} jobs per time",
            f"service         {self.service.name}, mean size {self.service.mean:g}",
            f"service rates   {first}{more}{changing}",
            f"slots           {'one each' if self.slots is None else ', '.join(map(str, list(self.slots)[:8]))}",
            f"load            {self.load:.4g}",
            f"ties            {'exact' if self.exact else 'as floating point has them (the fractions are too long)'}",
        ]
        return "\n".join(lines)
