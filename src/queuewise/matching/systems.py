"""Users and servers, and the exact numbers about them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..fields import require_choice, require_list, require_number

Floats = NDArray[np.float64]

#: Whether a slot's arrivals come before its services (as they do here), for the law of queues at the start.
STARTS = ("arrival_first", "service_first")
#: Probability of longer queues below which a starting law is cut.
_TAIL = 1e-15


@dataclass(frozen=True)
class System:
    """Users and servers.

    Parameters
    ----------
    arrival_rates : float[U], the probability that a job of this user arrives in a slot.
    service_rates : float[U, K], the probability that this server serves this user's job in a slot; K ≥ U.

    Raises
    ------
    ValueError : a probability out of range, fewer servers than users, users that share their best server (the paper assumes
        that they do not; the optimal matching would be another problem then), or one whose jobs arrive at least as often as
        its best server serves them.

    Attributes
    ----------
    best : int[U], every user's best server: the optimal matching.
    """

    arrival_rates: Sequence[float]
    service_rates: Sequence[Sequence[float]]
    best: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        arrivals = require_list("arrival_rates", self.arrival_rates, "one probability per user")
        table = [require_list("service_rates", row, "rows of probabilities") for row in self.service_rates]
        for name, values in (("arrival_rates", arrivals), ("service_rates", itertools.chain(*table))):
            for value in values:
                require_number(name, value)
                if not 0.0 <= value <= 1.0:
                    raise ValueError(f"{name} must be probabilities between 0 and 1, not {value!r}")
        if not arrivals or len(table) != len(arrivals) or {len(row) for row in table} != {len(table[0])}:
            raise ValueError("service_rates must have one row per user, all equally long")
        if len(table[0]) < len(table):
            raise ValueError(f"service_rates: {len(table)} users need as many servers, not {len(table[0])}")
        best = tuple(row.index(max(row)) for row in table)
        if len(set(best)) < len(best) or any(row.count(max(row)) > 1 for row in table):
            raise ValueError("service_rates: every user must have one best server, which is nobody else's best")
        for u, (rate, row) in enumerate(zip(arrivals, table, strict=True)):
            if not rate < max(row):
                raise ValueError(
                    f"arrival_rates: user {u}'s must be below its best service rate {max(row)}, not {rate}"
                )
        object.__setattr__(self, "arrival_rates", tuple(map(float, arrivals)))
        object.__setattr__(self, "service_rates", tuple(tuple(map(float, row)) for row in table))
        object.__setattr__(self, "best", best)

    @property
    def users(self) -> int:
        """U."""
        return len(self.service_rates)

    @property
    def servers(self) -> int:
        """K."""
        return len(self.service_rates[0])


def stationary(arrival: float, service: float, order: str = "arrival_first") -> Floats:
    """The stationary law of one queue (Geo/Geo/1), cut where less than 1e-15 is left and normalised: P(Q = 0), P(Q = 1), …

    With r = λ(1−μ)/(μ(1−λ)), for queues seen between slots: where a slot's arrival comes before its service ("arrival_first",
    as in this system), P(Q = q) = (1−r) rᵠ; where it comes after ("service_first"), P(Q = 0) = 1 − λ/μ and P(Q ≥ q) =
    (λ/μ) r^(q−1). Both from balance between neighbouring states. Raises ValueError unless 0 ≤ arrival < service ≤ 1.
    """
    require_choice("order", order, STARTS)
    if not 0.0 <= arrival < service <= 1.0:
        raise ValueError(
            f"arrival must be at least 0 and below service, which is at most 1, not {arrival} and {service}"
        )
    ratio = arrival * (1.0 - service) / (service * (1.0 - arrival))
    length = 2 if ratio == 0.0 else 2 + math.ceil(math.log(_TAIL) / math.log(ratio))
    busy = ratio if order == "arrival_first" else arrival / service
    law = np.concatenate([[1.0 - busy], busy * (1.0 - ratio) * ratio ** np.arange(length)])
    return np.asarray(law / law.sum())


def chance_of_exploring(done: int, servers: int, exploration: float = 3.0) -> float:
    """min(1, `exploration`·K ln²(s)/s) after s = `done` slots, 1 in the first K slots."""
    return 1.0 if done < servers else min(1.0, exploration * servers * math.log(done) ** 2 / done)


def certain_exploration(servers: int, exploration: float = 3.0) -> int:
    """The number of first slots in which Q-UCB does nothing but explore."""
    return next(s for s in itertools.count() if chance_of_exploring(s, servers, exploration) < 1.0)


def exploring_regret(system: System, slots: int, start: str = "arrival_first") -> tuple[Floats, Floats]:
    """Mean and standard deviation of E[Q − Q*] while everything is exploration, exactly: float64[slots + 1, U] each.

    A user's server is a uniform one in every slot after the round robin, so that its queue is a Markov chain of its own. The
    comparison system starts in the same state and is independent from there on.
    """
    mean, sd = np.zeros((slots + 1, system.users)), np.zeros((slots + 1, system.users))
    for u, (arrival, rates) in enumerate(zip(system.arrival_rates, system.service_rates, strict=True)):
        law = stationary(arrival, max(rates), start)
        lengths = np.arange(len(law) + slots)
        learner = np.eye(len(law), len(lengths))  # by starting state; no queue gets longer than this
        genie = learner.copy()
        for slot in range(1, slots + 1):
            rate = rates[(u + slot - 1) % len(rates)] if slot <= len(rates) else float(np.mean(rates))
            learner, genie = _after(learner, arrival, rate), _after(genie, arrival, max(rates))
            first, second = learner @ lengths, genie @ lengths
            squares = learner @ lengths**2 - 2.0 * first * second + genie @ lengths**2
            mean[slot, u] = law @ (first - second)
            sd[slot, u] = math.sqrt(max(0.0, law @ squares - mean[slot, u] ** 2))
    return mean, sd


def _after(law: Floats, arrival: float, service: float) -> Floats:
    """The laws of queues (float64[start, length]) after one more slot."""
    up, down = arrival * (1.0 - service), (1.0 - arrival) * service
    after = (1.0 - up - down) * law
    after[:, 0] += down * law[:, 0]
    after[:, 1:] += up * law[:, :-1]
    after[:, :-1] += down * law[:, 1:]
    return after
