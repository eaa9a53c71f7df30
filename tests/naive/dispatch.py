"""Parallel queues by a heap of events, and every dispatching rule as a small class: the slow twin of the dispatching wing.

Jobs are objects that stand in lists. Integrals are summed from the finished jobs' times, never carried along. Rates that
are known are fractions, so that ties are ties; rates that are learned are floats, N/S.
Servers and jobs are numbered 0, 1, ...; the paper (LASED) counts servers from 1.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

EXPLOIT, EXPLORE = 0, 1
#: Why a decision was against the oracle (LASED, section 3.3); NONE: it was not.
NONE, EXPLORATION, MISESTIMATION, OVERFLOW = -1, 0, 1, 2
#: Delays that rest on learned rates, and differ by less than this relatively, may be ordered either way.
NEAR = 1e-9


class Draws(Protocol):
    """A rule's own randomness."""

    def uniform(self) -> float: ...
    def below(self, bound: int) -> int: ...
    def gamma(self, shape: float) -> float: ...


# --- the truth -------------------------------------------------------------------------------------------------------
def fraction(rate: float | str | Fraction) -> Fraction:
    """A rate as the fraction that its decimal form spells."""
    return Fraction(rate if isinstance(rate, str | Fraction) else repr(rate))


@dataclass
class Truth:
    """pieces[k] = (since when, rates of all servers) · slots[i] · arrival_rate: jobs per time · mean_size of a job
    depth : c_1 of m(k) = floor(c_1 ln k)."""

    pieces: list[tuple[float, list[Fraction]]]
    slots: list[int]
    arrival_rate: float
    mean_size: float = 1.0
    depth: float = 5.0

    @property
    def servers(self) -> int:
        return len(self.slots)

    def rates_at(self, now: float) -> list[Fraction]:
        """The rates that hold at this moment."""
        return next(rates for since, rates in reversed(self.pieces) if since <= now)

    def finish(self, server: int, start: float, size: float) -> float:
        """When a job of this size is done that begins at `start`: work drains at the rate of every moment."""
        ends = [since for since, _ in self.pieces[1:]] + [math.inf]
        for (_, rates), end in zip(self.pieces, ends, strict=True):
            if end > start:
                rate = float(rates[server])
                if end == math.inf or size <= rate * (end - start):
                    return start + size / rate
                size -= rate * (end - start)
                start = end
        raise AssertionError("the last piece has no end")

    @functools.cached_property
    def ratio(self) -> Fraction | None:
        """r* = mu_2/mu_1, for the systems whose regret is split by cause."""
        if self.slots != [1, 1] or len(self.pieces) > 1:
            return None
        return self.pieces[0][1][1] / self.pieces[0][1][0]


def delay(queue: int, slots: int, rate: Any) -> Any:
    """1/mu + max(0, q+1-c)/(c mu): what one more job is expected to take. A fraction where mu is one."""
    return (
        1 / rate + max(0, queue + 1 - slots) / (slots * rate) if isinstance(rate, float) else _exact(queue, slots, rate)
    )


@functools.cache
def _exact(queue: int, slots: int, rate: Fraction) -> Fraction:
    return 1 / rate + Fraction(max(0, queue + 1 - slots), slots) / rate


@functools.cache
def ratio_gap(ratio: Fraction, m: int) -> float:
    """u_r(m) by looking at all fractions (LASED, equation 3); infinite where there is none."""
    numbers = range(1, m + 2)
    return float(
        min((abs(Fraction(a, b) - ratio) for a in numbers for b in numbers if a != ratio * b), default=math.inf)
    )


# --- jobs and servers ------------------------------------------------------------------------------------------------
@dataclass
class Job:
    """One job and all that becomes of it."""

    number: int
    arrived: float
    server: int
    reason: int
    size: float
    cause: int = NONE
    queues: tuple[int, ...] = ()  # found on arrival
    episode: int = 0
    began: float = math.nan
    departs: float = math.nan


@dataclass
class Station:
    """One server: jobs that wait, jobs in service."""

    slots: int
    waiting: deque[Job] = field(default_factory=deque)
    serving: list[Job] = field(default_factory=list)

    @property
    def queue(self) -> int:
        """q_i."""
        return len(self.waiting) + len(self.serving)

    def elapsed(self, now: float) -> float:
        """The time that the jobs in service have been served so far."""
        return sum(now - job.began for job in self.serving)


@dataclass
class View:
    """The system at a moment. Rules of practice look at `stations`' queues and elapsed times only."""

    truth: Truth
    stations: list[Station]
    now: float = 0.0
    arrivals: int = 0  # counting the one that is to be routed

    @property
    def queues(self) -> list[int]:
        return [station.queue for station in self.stations]

    @property
    def rates(self) -> list[Fraction]:
        """The true rates of now."""
        return self.truth.rates_at(self.now)

    def free_at(self, server: int) -> float:
        """When a job that joins now would begin."""
        station = self.stations[server]
        ends = sorted(job.departs for job in station.serving)
        for job in station.waiting:  # each begins when the first slot is free
            heapq.heappush(ends, self.truth.finish(server, heapq.heappop(ends), job.size))
        return self.now if len(ends) < station.slots else ends[0]


def oracle_set(view: View) -> set[int]:
    """The servers of least expected delay by the true rates of now (LASED, section 2.2)."""
    delays = [delay(q, c, mu) for q, c, mu in zip(view.queues, view.truth.slots, view.rates, strict=True)]
    return {i for i, d in enumerate(delays) if d == min(delays)}


# --- choosing --------------------------------------------------------------------------------------------------------
@dataclass
class Decision:
    """A server, the reason, and the servers that rounding might put in its place."""

    server: int
    reason: int = EXPLOIT
    near: frozenset[int] = frozenset()


def least(delays: Mapping[int, Any], ties: str, speeds: Sequence[Any], draws: Draws) -> int:
    """argmin; `delays` are in the order in which they are looked at, and ties drawn as they are met."""
    if ties == "random":
        best, tied = -1, 1
        for i in delays:
            if best < 0 or delays[i] < delays[best]:
                best, tied = i, 1
            elif delays[i] == delays[best]:
                tied += 1
                if draws.below(tied) == 0:
                    best = i
        return best
    tied_servers = sorted(i for i in delays if delays[i] == min(delays.values()))
    if ties == "fastest":
        return max(tied_servers, key=lambda i: (speeds[i], -i))
    return tied_servers[-1 if ties == "highest" else 0]


def by_delay(view: View, rates: Sequence[Any], ties: str, draws: Draws) -> Decision:
    """SED with these rates: fractions where known, floats where learned."""
    slots = view.truth.slots
    delays = {i: delay(q, slots[i], rates[i]) for i, q in enumerate(view.queues)}
    speeds = [c * rate for c, rate in zip(slots, rates, strict=True)]
    server = least(delays, ties, speeds, draws)
    if not any(isinstance(rate, float) for rate in rates):
        return Decision(server)
    near = frozenset(i for i in delays if abs(delays[i] - delays[server]) <= NEAR * delays[server])
    return Decision(server, EXPLOIT, near)


@dataclass
class Facts:
    """What a rule may know beforehand: n, slots, lambda in jobs per time; and, if clairvoyant, the first true rates."""

    servers: int
    slots: list[int]
    arrival_rate: float
    rates: list[Fraction]


class Rule:
    """decide is asked for every arrival; sent, left and emptied tell what happened."""

    episode = 0

    def __init__(self, facts: Facts, draws: Draws, ties: str = "lowest") -> None:
        self.facts, self.draws, self.ties = facts, draws, ties

    def decide(self, view: View) -> Decision:
        raise NotImplementedError

    def sent(self, view: View, job: Job) -> None:
        pass

    def left(self, view: View, job: Job) -> None:
        pass

    def emptied(self, view: View) -> None:
        pass

    def rates(self) -> list[Any] | None:
        """mu-hat, of a rule that learns."""
        return None

    def within(self) -> bool:
        """Whether the estimated ratio lies in [r_min, r_max]."""
        return True


# --- rules that know, or do not care ---------------------------------------------------------------------------------
class Sed(Rule):
    """The oracle."""

    def decide(self, view: View) -> Decision:
        return by_delay(view, view.rates, self.ties, self.draws)


class SedRatio(Rule):
    """SED(r): the first of two servers iff r(q_1+1) <= q_2+1."""

    def __init__(self, facts: Facts, draws: Draws, ratio: Any = 1, ties: str = "lowest") -> None:
        super().__init__(facts, draws, ties)
        self.ratio = fraction(ratio)

    def decide(self, view: View) -> Decision:
        if view.truth.slots == [1, 1] and self.ties == "lowest":
            one, two = view.queues
            return Decision(0 if self.ratio * (one + 1) <= two + 1 else 1)
        return by_delay(view, [Fraction(1), self.ratio], self.ties, self.draws)


class Optimal(Rule):
    """The least mean number of jobs with up to 2 L of them, arrivals at 2 L lost: relative value iteration; SED beyond L."""

    def __init__(self, facts: Facts, draws: Draws, level: int = 12, ties: str = "lowest") -> None:
        super().__init__(facts, draws, ties)
        self.level = level
        arrival, mu, c = facts.arrival_rate, [float(rate) for rate in facts.rates], facts.slots
        total = arrival + sum(m * k for m, k in zip(mu, c, strict=True))
        states = [(i, j) for i in range(2 * level + 1) for j in range(2 * level + 1 - i)]
        self.value = dict.fromkeys(states, 0.0)
        for _ in range(100_000):
            new = {}
            for i, j in states:
                left, right = mu[0] * min(i, c[0]), mu[1] * min(j, c[1])
                come = min(self.after(i, j))
                down = left * self.value[max(i - 1, 0), j] + right * self.value[i, max(j - 1, 0)]
                stay = (total - arrival - left - right) * self.value[i, j]
                new[i, j] = (i + j + arrival * come + down + stay) / total
            steps = [new[state] - self.value[state] for state in states]
            self.value = {state: new[state] - new[0, 0] for state in states}
            if max(steps) - min(steps) < 1e-11:
                break

    def after(self, i: int, j: int) -> list[float]:
        """The values of joining either server."""
        if i + j == 2 * self.level:
            return [self.value[i, j]] * 2
        return [self.value[i + 1, j], self.value[i, j + 1]]

    def decide(self, view: View) -> Decision:
        i, j = view.queues
        if i + j > self.level:
            return by_delay(view, view.rates, self.ties, self.draws)
        values = self.after(i, j)
        near = frozenset(k for k in (0, 1) if values[k] - min(values) < 1e-6)
        return Decision(values.index(min(values)), EXPLOIT, near)


class Esed(Rule):
    """SED with fixed estimates."""

    def __init__(self, facts: Facts, draws: Draws, rates: Sequence[Any] = (), ties: str = "lowest") -> None:
        super().__init__(facts, draws, ties)
        self.fixed = [fraction(rate) for rate in rates]

    def decide(self, view: View) -> Decision:
        return by_delay(view, self.fixed, self.ties, self.draws)


class Jsq(Rule):
    """The shortest queue."""

    def decide(self, view: View) -> Decision:
        return Decision(least(dict(enumerate(view.queues)), self.ties, [1] * self.facts.servers, self.draws))


class Jiq(Rule):
    """A server with a free slot, else any."""

    def decide(self, view: View) -> Decision:
        idle = {i: 0 for i, station in enumerate(view.stations) if station.queue < station.slots}
        if not idle:
            return Decision(self.draws.below(self.facts.servers))
        if self.ties == "random":  # a draw for the first one too
            found = -1
            for count, i in enumerate(idle, start=1):
                if count == 1 or self.draws.below(count) == 0:
                    found = i
            return Decision(found)
        return Decision(least(idle, self.ties, [], self.draws))


class Uniform(Rule):
    """Any server."""

    def decide(self, view: View) -> Decision:
        return Decision(self.draws.below(self.facts.servers))


class WeightedRandom(Rule):
    """In proportion to c_i mu_i, or to given weights."""

    def __init__(self, facts: Facts, draws: Draws, weights: Sequence[Any] | None = None) -> None:
        super().__init__(facts, draws)
        if weights is None:
            shares = [c * rate for c, rate in zip(facts.slots, facts.rates, strict=True)]
        else:
            shares = [fraction(weight) for weight in weights]
        self.ends = [float(end / sum(shares)) for end in itertools.accumulate(shares)]

    def decide(self, view: View) -> Decision:
        u = self.draws.uniform()
        return Decision(next(i for i, end in enumerate(self.ends) if u < end))


class RoundRobin(Rule):
    """Every server in turn."""

    turn = 0

    def decide(self, view: View) -> Decision:
        return Decision(self.turn)

    def sent(self, view: View, job: Job) -> None:
        self.turn = (job.server + 1) % self.facts.servers


class PowerOfD(Rule):
    """The shortest queue of d random servers, drawn from those not yet drawn, one after the other."""

    def __init__(self, facts: Facts, draws: Draws, choices: int = 2, ties: str = "lowest") -> None:
        super().__init__(facts, draws, ties)
        self.choices, self.order = choices, list(range(facts.servers))

    def sample(self) -> Iterator[int]:
        for k in range(self.choices):
            other = k + self.draws.below(len(self.order) - k)
            self.order[k], self.order[other] = self.order[other], self.order[k]
            yield self.order[k]  # what is drawn to break ties comes between

    def delays(self, view: View) -> tuple[list[Any], list[Any]]:
        return view.queues, [1] * self.facts.servers

    def decide(self, view: View) -> Decision:
        delays, speeds = self.delays(view)
        if self.ties == "random":
            return Decision(least(_Lazy(self.sample(), delays), self.ties, speeds, self.draws))
        return Decision(least({i: delays[i] for i in self.sample()}, self.ties, speeds, self.draws))


class _Lazy:
    """A mapping whose keys are drawn while it is gone through."""

    def __init__(self, keys: Any, values: list[Any]) -> None:
        self.keys, self.values = keys, values

    def __iter__(self) -> Any:
        return iter(self.keys)

    def __getitem__(self, key: int) -> Any:
        return self.values[key]


class SedOfD(PowerOfD):
    """The shortest expected delay of d random servers, true rates."""

    def delays(self, view: View) -> tuple[list[Any], list[Any]]:
        slots, rates = view.truth.slots, view.rates
        delays = [delay(q, slots[i], rates[i]) for i, q in enumerate(view.queues)]
        return delays, [c * rate for c, rate in zip(slots, rates, strict=True)]


class LeastLoaded(Rule):
    """The server at which the job would begin first."""

    def decide(self, view: View) -> Decision:
        begins = {i: view.free_at(i) for i in range(self.facts.servers)}
        speeds = [c * rate for c, rate in zip(view.truth.slots, view.rates, strict=True)]
        server = least(begins, self.ties, speeds, self.draws)
        # Waits that end at about the same time are sums of the same sizes in another order.
        near = {i for i in begins if begins[i] > view.now and begins[i] - begins[server] <= NEAR * begins[server]}
        return Decision(server, EXPLOIT, frozenset(near if begins[server] > view.now else ()))


# --- rules that learn ------------------------------------------------------------------------------------------------
class Learner(Rule):
    """Remembers every completion: mu-hat_i = N_i/S_i, the initial rate while N_i = 0."""

    def __init__(
        self, facts: Facts, draws: Draws, initial_rates: Sequence[Any] | None = None, ties: str = "lowest"
    ) -> None:
        super().__init__(facts, draws, ties)
        given = [1] * facts.servers if initial_rates is None else initial_rates
        self.initial = [fraction(rate) for rate in given]
        self.times: list[list[float]] = [[] for _ in given]  # service times of completed jobs
        self.sums = [0.0] * facts.servers

    def left(self, view: View, job: Job) -> None:
        self.times[job.server].append(job.departs - job.began)
        self.sums[job.server] += job.departs - job.began

    def rates(self) -> list[Any]:
        return [
            len(times) / total if times else initial
            for times, total, initial in zip(self.times, self.sums, self.initial, strict=True)
        ]


class Greedy(Learner):
    """SED with mu-hat of now."""

    def decide(self, view: View) -> Decision:
        return by_delay(view, self.rates(), self.ties, self.draws)


class Lased(Learner):
    """LASED, Algorithm 1, with the options of the program.

    Of more than two servers, rate_bounds clip every learned rate; without them none is believed to be slower than the
    fastest by more than r_max.
    """

    def __init__(
        self,
        facts: Facts,
        draws: Draws,
        initial_rates: Sequence[Any] | None = None,
        ratio_bounds: tuple[float, float] = (0.01, 100.0),
        rate_bounds: tuple[float, float] | None = None,
        threshold: Callable[[int], float] | None = None,
        scale: float = 1.0,
        quota: int | str = "fill",
        order: str = "round_robin",
        update: str = "episode",
        ties: str = "lowest",
    ) -> None:
        super().__init__(facts, draws, initial_rates, ties)
        self.ratio_bounds, self.rate_bounds = ratio_bounds, rate_bounds
        if rate_bounds is not None:
            self.ratio_bounds = (rate_bounds[0] / rate_bounds[1], rate_bounds[1] / rate_bounds[0])
        self.threshold = threshold or (lambda k: math.log(k + 1) ** 4)
        self.scale, self.quota, self.order, self.update = scale, quota, order, update
        self.unseen: list[Job] = []
        self.forced: deque[int] = deque()
        self.explored: list[list[int]] = []  # forced jobs of every server in every episode, for tests
        self.begin()

    def begin(self) -> None:
        """A new episode: take in the last one, then see whether samples are few."""
        self.episode += 1
        for job in self.unseen:
            super().left(None, job)
        self.unseen = []
        alpha = self.scale * self.threshold(self.episode)
        counts = [len(times) for times in self.times]
        owed = [0] * len(counts)
        if min(counts) < alpha:
            owed = [max(1, math.ceil(alpha - n)) if self.quota == "fill" else int(self.quota) for n in counts]
        self.explored.append(owed)
        turns = [(turn, i) for i, m in enumerate(owed) for turn in range(m)]
        if self.order == "round_robin":
            turns.sort()
        self.forced = deque(i for _, i in turns)

    def weights(self) -> list[Any]:
        """What SED is done with: the clip is for what was learned."""
        rates = self.rates()
        if not any(self.times):
            return rates
        low, high = self.ratio_bounds
        if self.facts.servers == 2:
            return [Fraction(1), float(min(max(rates[1] / rates[0], low), high))]
        bounds = self.rate_bounds or (max(rates) / high, math.inf)
        return [
            float(min(max(rate, bounds[0]), bounds[1])) if times else rate
            for rate, times in zip(rates, self.times, strict=True)
        ]

    def within(self) -> bool:
        rates = self.rates()
        return len(rates) != 2 or self.ratio_bounds[0] <= rates[1] / rates[0] <= self.ratio_bounds[1]

    def decide(self, view: View) -> Decision:
        if self.forced:
            return Decision(self.forced.popleft(), EXPLORE)
        return by_delay(view, self.weights(), self.ties, self.draws)

    def left(self, view: View, job: Job) -> None:
        if self.update == "completion":
            super().left(view, job)
        else:
            self.unseen.append(job)

    def emptied(self, view: View) -> None:
        if not self.forced:
            self.begin()


class OptimisticSed(Learner):
    """SED on U_i, the largest y N/S with N(y - 1 - ln y) = f = c max(0, ln(v/k)), v visits to as many jobs as now."""

    bounds: Sequence[float] = ()  # of the last decision

    def __init__(
        self,
        facts: Facts,
        draws: Draws,
        initial_rates: Sequence[Any] | None = None,
        confidence: float = 1.0,
        patience: float = 2000.0,
        samples: float = 1.0,
        ties: str = "lowest",
    ) -> None:
        super().__init__(facts, draws, initial_rates, ties)
        self.confidence, self.patience, self.samples = confidence, patience, samples
        self.found: list[int] = []  # by every arrival

    def upper(self, view: View, i: int) -> float:
        n, s = len(self.times[i]), self.sums[i] + view.stations[i].elapsed(view.now)
        if n + view.queues[i] < self.samples * math.log(view.arrivals + 1):
            return math.inf
        here = min(sum(view.queues), 511)
        visits = 1 + sum(min(jobs, 511) == here for jobs in self.found)
        f = self.confidence * max(0.0, math.log(visits / self.patience))
        if n == 0:
            return max(float(self.initial[i]), f / s) if s > 0 else float(self.initial[i])
        low, high = 1.0, 2.0
        while n * (high - 1 - math.log(high)) < f:
            high *= 2
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if n * (middle - 1 - math.log(middle)) < f else (low, middle)
        return low * n / s

    def decide(self, view: View) -> Decision:
        self.bounds = [self.upper(view, i) for i in range(self.facts.servers)]
        self.found.append(sum(view.queues))
        return first_the_untried(view, self.bounds, self.ties, self.draws)


def first_the_untried(view: View, rates: Sequence[float], ties: str, draws: Draws) -> Decision:
    """SED, where a rate is infinite for a server that has never been busy: such a server is explored first."""
    if math.inf not in rates:
        return by_delay(view, rates, ties, draws)
    slots = view.truth.slots
    delays = {
        i: (0, delay(q, slots[i], Fraction(1))) if rates[i] == math.inf else (1, delay(q, slots[i], rates[i]))
        for i, q in enumerate(view.queues)
    }
    return Decision(least(delays, ties, slots, draws), EXPLORE)


class ThompsonSed(Learner):
    """SED on Gamma(N, S) draws, one per server that has completed a job."""

    def decide(self, view: View) -> Decision:
        rates = []
        for i, times in enumerate(self.times):
            s = self.sums[i] + view.stations[i].elapsed(view.now)
            if times:
                rates.append(self.draws.gamma(len(times)) / s)
            else:
                rates.append(float(self.initial[i]) if s > 0 else math.inf)
        return first_the_untried(view, rates, self.ties, self.draws)


def best_fractions(capacity: Sequence[float], arrival_rate: float) -> list[float]:
    """The p that minimise sum p_i/(C_i - lambda p_i), the best over candidate sets of servers that are used (all sets
    of few servers; of many, those of the fastest). In proportion to C where lambda is too large for any."""
    n = len(capacity)
    if arrival_rate >= sum(capacity):
        return [c / sum(capacity) for c in capacity]
    order = sorted(range(n), key=lambda i: -capacity[i])
    sets: Any = [order[:k] for k in range(1, n + 1)]
    if n <= 4:
        sets = [used for k in range(1, n + 1) for used in itertools.combinations(range(n), k)]
    best, least_cost = [0.0] * n, math.inf
    for used in sets:
        spare = sum(capacity[i] for i in used) - arrival_rate
        roots = sum(math.sqrt(capacity[i]) for i in used)
        p = [0.0] * n
        for i in used:
            p[i] = (capacity[i] - math.sqrt(capacity[i]) * spare / roots) / arrival_rate
        if spare > 0 and min(p) >= 0:
            cost = sum(p[i] / (capacity[i] - arrival_rate * p[i]) for i in used)
            if cost < least_cost:
                best, least_cost = p, cost
    return best


class DispatchBandit(Learner):
    """Static fractions for the rates learned so far; any server with probability min(1, n ln k/k)."""

    def __init__(
        self,
        facts: Facts,
        draws: Draws,
        initial_rates: Sequence[Any] | None = None,
        arrival_rate: float | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__(facts, draws, initial_rates)
        self.arrival_rate, self.scale = facts.arrival_rate if arrival_rate is None else arrival_rate, scale

    def decide(self, view: View) -> Decision:
        n, k = self.facts.servers, view.arrivals
        if self.draws.uniform() < self.scale * n * math.log(k) / k:
            return Decision(self.draws.below(n), EXPLORE)
        capacity = [c * float(rate) for c, rate in zip(self.facts.slots, self.rates(), strict=True)]
        fractions = best_fractions(capacity, self.arrival_rate)
        u = self.draws.uniform()
        used = [i for i in range(n) if fractions[i] > 0]
        ends = itertools.accumulate(fractions[i] for i in used)
        return Decision(next((i for i, end in zip(used, ends, strict=True) if u < end), used[-1]))


RULES: dict[str, type[Rule]] = {
    "sed": Sed,
    "sed_ratio": SedRatio,
    "esed": Esed,
    "lased": Lased,
    "greedy": Greedy,
    "optimistic_sed": OptimisticSed,
    "thompson_sed": ThompsonSed,
    "optimal": Optimal,
    "jsq": Jsq,
    "jiq": Jiq,
    "random": Uniform,
    "weighted_random": WeightedRandom,
    "round_robin": RoundRobin,
    "power_of_d": PowerOfD,
    "sed_of_d": SedOfD,
    "least_loaded": LeastLoaded,
    "dispatch_bandit": DispatchBandit,
}


# --- the simulation --------------------------------------------------------------------------------------------------
@dataclass
class Row:
    """Everything up to and including one arrival."""

    time: float
    wrong: list[int]
    area: float
    found: int
    sojourn: float
    busy_periods: int
    episode: int
    largest: int
    served: list[int]
    busy: list[float]
    rates: list[Any] | None


@dataclass
class Trace:
    """What happened: all jobs, rows at the marks, decisions in which rounding had a say."""

    jobs: list[Job]
    rows: list[Row]
    near_ties: int
    rule: Rule


def cause_of(rule: Rule, truth: Truth, reason: int) -> int:
    """Why a decision was outside the oracle's set: forced; else E^mis of the episode; else overflow (LASED, section 3.3)."""
    if reason == EXPLORE:
        return EXPLORATION
    if truth.ratio is None or rule.episode == 0:
        return MISESTIMATION
    rates = rule.rates()
    assert rates is not None
    m = math.floor(truth.depth * math.log(rule.episode))
    near = abs(rates[1] / rates[0] - truth.ratio) < ratio_gap(truth.ratio, m)
    return OVERFLOW if near and rule.within() else MISESTIMATION


def simulate(
    truth: Truth,
    rule: Rule,
    arrivals: Sequence[float],
    sizes: Sequence[float] | None = None,
    own_sizes: Sequence[Sequence[float]] | None = None,
    marks: Sequence[int] = (),
    follow: Sequence[int] | None = None,
) -> Trace:
    """Play all arrivals, then let everybody leave.

    sizes : one per job, or own_sizes : one sequence per server · follow : decisions of somebody else, which are taken
    over where rounding may decide, and only there.
    """
    n = truth.servers
    view = View(truth, [Station(c) for c in truth.slots])
    own = [iter(sequence) for sequence in own_sizes or ()]
    jobs: list[Job] = []
    snapshots: list[tuple[int, int, int, list[Any] | None]] = []
    near_ties = periods = largest = 0
    # At equal times completions come first, those of lower servers before others, earlier jobs before later ones.
    events: list[tuple[float, int, int, int]] = [(time, 1, 0, k) for k, time in enumerate(arrivals)]
    heapq.heapify(events)

    def begin(job: Job) -> None:
        job.began = view.now
        job.departs = truth.finish(job.server, job.began, job.size)
        view.stations[job.server].serving.append(job)
        heapq.heappush(events, (job.departs, 0, job.server, job.number))

    while events:
        view.now, is_arrival, server, number = heapq.heappop(events)
        if not is_arrival:
            job, station = jobs[number], view.stations[server]
            station.serving.remove(job)
            if station.waiting:
                begin(station.waiting.popleft())
            rule.left(view, job)
            if sum(view.queues) == 0:
                periods += 1
                rule.emptied(view)
            continue
        view.arrivals += 1
        decision = rule.decide(view)
        server = decision.server
        if follow is not None and follow[number] != server and follow[number] in decision.near:
            server = follow[number]
            near_ties += 1
        size = next(own[server]) if sizes is None else sizes[number]
        job = Job(number, view.now, server, decision.reason, size, queues=tuple(view.queues), episode=rule.episode)
        if server not in oracle_set(view):
            job.cause = cause_of(rule, truth, decision.reason)
        jobs.append(job)
        station = view.stations[server]
        if len(station.serving) < station.slots:
            begin(job)
        else:
            station.waiting.append(job)
        rule.sent(view, job)
        largest = max(largest, sum(view.queues))
        if view.arrivals in marks:
            snapshots.append((periods, rule.episode, largest, rule.rates()))

    def overlap(start: float, end: float, until: float) -> float:
        return max(0.0, min(end, until) - min(start, until))

    rows = []
    for mark, (periods, episode, largest, rates) in zip(marks, snapshots, strict=False):
        so_far = jobs[:mark]
        now = so_far[-1].arrived
        rows.append(
            Row(
                time=now,
                wrong=[sum(job.cause == cause for job in so_far) for cause in range(3)],
                area=math.fsum(overlap(job.arrived, job.departs, now) for job in so_far),
                found=sum(sum(job.queues) for job in so_far),
                sojourn=math.fsum(job.departs - job.arrived for job in so_far),
                busy_periods=periods,
                episode=episode,
                largest=largest,
                served=[sum(job.server == i for job in so_far) for i in range(n)],
                busy=[math.fsum(overlap(j.began, j.departs, now) for j in so_far if j.server == i) for i in range(n)],
                rates=rates,
            )
        )
    return Trace(jobs, rows, near_ties, rule)
