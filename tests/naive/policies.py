"""Every rule of the scheduling wing as a slow judge: from a full history to the indices of all waiting pairs.

A fast decision is judged with `Ruling.excess(pair)` or `WiseRuling.excess(pair)`: zero (up to rounding) when the pair
is one that the rule may choose, and otherwise how much worse than the best it is. Everything is recomputed from the
history; only the estimates per round are remembered, because they are needed again in later rounds.

Rounds count from 1 as in the papers. Jobs are numbered 0, 1, ... in order of arrival, servers 0 .. K-1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import mp
from scipy.special import expit

from . import confidence, logistic

Array = np.ndarray
Pair = tuple[int, int]
DIGITS = 60  # of the interval arithmetic: ends as close to 1 as mu(50) = 1 - 2e-22 keep 38 digits of their complement


# --- history ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class History:
    """What happened in rounds 1 .. T.

    arrivals[t-1]: features [K, d] of the job that arrived in round t (after service), or None.
    services[t-1]: (job, server, success) of round t, or None when nothing was served.
    services may be shorter than arrivals: a judge of round t looks only at rounds before t.
    """

    arrivals: Sequence[Array | None]
    services: Sequence[tuple[int, int, bool] | None]

    @functools.cached_property
    def job_rounds(self) -> list[int]:
        """Round of arrival of every job."""
        return [t for t, features in enumerate(self.arrivals, start=1) if features is not None]

    def features(self, job: int) -> Array:
        """Features float64[K, d] of this job."""
        return np.asarray(self.arrivals[self.job_rounds[job] - 1], dtype=float)

    def waiting(self, t: int) -> list[int]:
        """Jobs waiting at the beginning of round t, in order of arrival."""
        gone = {service[0] for service in self.services[: t - 1] if service is not None and service[2]}
        return [job for job, arrived in enumerate(self.job_rounds) if arrived < t and job not in gone]

    def newcomer(self, t: int) -> int | None:
        """The job that arrived in round t-1; it cannot have been served before round t, so it still waits."""
        return next((job for job, arrived in enumerate(self.job_rounds) if arrived == t - 1), None)

    def observations(self, t: int) -> tuple[Array, Array]:
        """phi float64[n, d] and outcomes bool[n] of the services in rounds 1 .. t."""
        served = [service for service in self.services[:t] if service is not None]
        phi = [self.features(job)[server] for job, server, _ in served]
        return np.array(phi, dtype=float), np.array([success for _, _, success in served], dtype=bool)

    def pairs(self, t: int) -> list[Pair]:
        """Waiting pairs of round t in (arrival order, server) order."""
        return [(job, k) for job in self.waiting(t) for k in range(len(self.features(job)))]

    def check(self) -> None:
        """Raise AssertionError unless every service is of a waiting job and every round with waiting jobs serves."""
        for t, service in enumerate(self.services, start=1):
            waiting = self.waiting(t)
            assert (service is None) == (not waiting), f"round {t}: served {service} while {waiting} wait"
            if service is not None:
                assert service[0] in waiting, f"round {t}: job {service[0]} is not among {waiting}"
                assert 0 <= service[1] < len(self.features(service[0])), f"round {t}: no server {service[1]}"


# --- estimates -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Settings:
    """What the contextual rules are told."""

    dimension: int
    radius: Callable[[int], float]  # t -> beta_t, for t = 0, 1, ...
    ridge: float
    initial_design: float  # V_0 = initial_design * I
    parameter_bound: float  # S
    feature_bound: float  # max ||phi||; only WISE uses it


class Estimates:
    """theta_hat_t, V_t and beta_t after round t, each from all services of rounds 1 .. t."""

    def __init__(self, history: History, settings: Settings) -> None:
        self.history, self.settings = history, settings
        self._observations: dict[int, tuple[Array, Array]] = {}
        self._theta: dict[int, Array] = {0: np.zeros(settings.dimension)}
        self._inverse: dict[int, mpmath.matrix] = {}
        self._interval: dict[tuple[int, int, int], tuple[mpmath.mpf, mpmath.mpf]] = {}

    def observations(self, t: int) -> tuple[Array, Array]:
        """phi float64[n, d] and outcomes bool[n] of the services in rounds 1 .. t."""
        if t not in self._observations:
            self._observations[t] = self.history.observations(t)
        return self._observations[t]

    def theta(self, t: int) -> Array:
        """theta_hat_t (zero before the first service)."""
        phi, outcomes = self.observations(t)
        if len(phi) not in self._theta:  # empty rounds leave the estimate as it is
            self._theta[len(phi)] = logistic.fit(phi, outcomes, self.settings.ridge, self.settings.parameter_bound)
        return self._theta[len(phi)]

    def design(self, t: int) -> Array:
        """V_t."""
        phi, _ = self.observations(t)
        return confidence.design(phi, self.settings.initial_design, self.settings.dimension)

    def radius(self, t: int) -> float:
        """beta_t."""
        return self.settings.radius(t)

    # The rest serves WISE: one confidence interval in mpmath.
    def _inverse_design(self, t: int) -> mpmath.matrix:
        phi, _ = self.observations(t)
        if len(phi) not in self._inverse:
            d = self.settings.dimension
            total = mp.mpf(self.settings.initial_design) * mp.eye(d)
            for row in phi:
                for a in range(d):
                    for b in range(d):
                        total[a, b] += mp.mpf(row[a]) * mp.mpf(row[b])
            self._inverse[len(phi)] = total**-1
        return self._inverse[len(phi)]

    def limits(self) -> tuple[mpmath.mpf, mpmath.mpf]:
        """I_0 = [p_lo, p_hi] = [mu(-S max||phi||), mu(S max||phi||)], as the runs of WISE have it: mu(-50), mu(50)."""
        with mp.workdps(DIGITS):
            z = mp.mpf(self.settings.parameter_bound) * mp.mpf(self.settings.feature_bound)
            return sigmoid(-z), sigmoid(z)

    def interval(self, job: int, server: int, i: int) -> tuple[mpmath.mpf, mpmath.mpf]:
        """I_i(x, k) in probability, for i >= 0 and any job, also one that arrived after round i."""
        key = (job, server, i)
        if key not in self._interval:
            with mp.workdps(DIGITS):
                self._interval[key] = self._fresh_interval(job, server, i)
        return self._interval[key]

    def _fresh_interval(self, job: int, server: int, i: int) -> tuple[mpmath.mpf, mpmath.mpf]:
        low, high = self.limits()
        if i == 0:
            return low, high
        feature = [mp.mpf(c) for c in self.history.features(job)[server]]
        theta = [mp.mpf(c) for c in self.theta(i)]
        inverse = self._inverse_design(i)
        d = range(len(feature))
        centre = mp.fsum(feature[a] * theta[a] for a in d)
        norm = mp.sqrt(mp.fsum(feature[a] * inverse[a, b] * feature[b] for a in d for b in d))
        reach = mp.mpf(self.radius(i)) * norm
        return max(low, sigmoid(centre - reach)), min(high, sigmoid(centre + reach))


def sigmoid(z: mpmath.mpf) -> mpmath.mpf:
    """mu(z) = 1 / (1 + e^-z), without overflow."""
    return 1 / (1 + mp.exp(-z)) if z >= 0 else mp.exp(z) / (1 + mp.exp(z))


def logit(p: mpmath.mpf) -> mpmath.mpf:
    """The inverse of mu."""
    return mp.log(p) - mp.log(1 - p)


# --- rulings ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ruling:
    """What one rule says in one round.

    scores: index of every waiting pair in (arrival order, server) order; the rule serves a largest one.
    exploration_probability: how likely the round explores instead; it then serves a uniform one of `exploration`.
    """

    scores: Mapping[Pair, float]
    exploration_probability: float = 0.0
    exploration: tuple[Pair, ...] = ()

    def best(self) -> Pair:
        """The largest score; among equal ones the earliest arrival, then the lowest server."""
        return max(self.scores, key=lambda pair: self.scores[pair])

    def excess(self, pair: Pair, explored: bool | None = None) -> float:
        """How far the pair's index lies below the best; 0 for a legal exploration, inf for what cannot be.

        explored: whether the fast code says that it explored; None if it does not say.
        """
        exploring = 0.0 if self.exploration_probability > 0 and pair in self.exploration else math.inf
        exploiting = math.inf
        if self.exploration_probability < 1 and pair in self.scores:
            largest = max(self.scores.values())
            exploiting = 0.0 if self.scores[pair] == largest else largest - self.scores[pair]
        if explored is None:
            return min(exploring, exploiting)
        return exploring if explored else exploiting


@dataclass(frozen=True)
class HeldInterval:
    """The interval that WISE holds for one waiting pair, in probability.

    margin: the smallest distance, in logits, by which any test "is this intersection empty?" was decided. Where it is
    tiny, rounding alone decides whether the interval froze, and nothing should be concluded from the round.
    """

    low: mpmath.mpf
    high: mpmath.mpf
    width: mpmath.mpf
    low_logit: mpmath.mpf
    high_logit: mpmath.mpf
    frozen: bool
    margin: mpmath.mpf


@dataclass(frozen=True)
class WiseRuling:
    """WISE's intervals of all waiting pairs in (arrival order, server) order, and what follows from them."""

    intervals: Mapping[Pair, HeldInterval]

    def candidates(self, slack: float = 0.0) -> list[Pair]:
        """Z_t: pairs whose upper end reaches the largest lower end. slack, in logits, moves that threshold down."""
        with mp.workdps(DIGITS):
            if slack == 0:
                threshold = max(held.low for held in self.intervals.values())
                return [pair for pair, held in self.intervals.items() if held.high >= threshold]
            threshold = max(held.low_logit for held in self.intervals.values()) - mp.mpf(slack)
            return [pair for pair, held in self.intervals.items() if held.high_logit >= threshold]

    def widths(self) -> dict[Pair, mpmath.mpf]:
        """Widths of the candidates."""
        return {pair: self.intervals[pair].width for pair in self.candidates()}

    def best(self) -> Pair:
        """The widest candidate; among equal ones the earliest arrival, then the lowest server."""
        widths = self.widths()
        return max(widths, key=lambda pair: widths[pair])

    def margin(self) -> float:
        """The closest decision of any emptiness test among all waiting pairs, in logits (inf without a test)."""
        return float(min(held.margin for held in self.intervals.values()))

    def excess(self, pair: Pair, tolerance: float = 1e-9) -> float:
        """How far the pair falls short: (w_best - w) / (1 - w), inf for a pair that is clearly eliminated.

        With c = 1 - w this is 1 - c_best / c: for wide intervals a relative difference of the complements (differences
        of width would all vanish), for narrow ones the plain difference of the widths. A pair within `tolerance` logits
        of the elimination threshold may be taken as a candidate or not: it may be served, but it sets no standard.
        """
        if pair not in self.candidates(slack=tolerance):
            return math.inf
        clear = self.candidates(slack=-tolerance) or [self.best()]
        widest = max(self.intervals[other].width for other in clear)
        width = self.intervals[pair].width
        with mp.workdps(DIGITS):
            return 0.0 if width >= widest else float((widest - width) / (1 - width))


# --- the rules -------------------------------------------------------------------------------------------------------
def wise(estimates: Estimates, t: int, shift: float) -> WiseRuling:
    """Algorithm 1 of WISE, lines 4 to 17, letter by letter; shift is U_0."""
    _, tau = confidence.epoch(t, shift)
    with mp.workdps(DIGITS):
        held = {}
        for job, k in estimates.history.pairs(t):
            low, high = estimates.interval(job, k, tau - 1)
            frozen, margin = False, mp.inf
            for i in range(tau, t):
                other_low, other_high = estimates.interval(job, k, i)
                new_low, new_high = max(low, other_low), min(high, other_high)
                margin = min(margin, abs(logit(new_high) - logit(new_low)))
                if new_low > new_high:
                    low = high = (low + high) / 2
                    frozen = True
                    break
                low, high = new_low, new_high
            held[job, k] = HeldInterval(low, high, high - low, logit(low), logit(high), frozen, margin)
        return WiseRuling(held)


def _upper_confidence(estimates: Estimates, t: int) -> dict[Pair, float]:
    """mu(<phi, theta_{t-1}>) + beta_{t-1} ||phi||_{V_{t-1}^-1}: CQB-eta-2, equation (1); WISE, Appendix F."""
    theta, design, radius = estimates.theta(t - 1), estimates.design(t - 1), estimates.radius(t - 1)
    scores = {}
    for job, k in estimates.history.pairs(t):
        feature = estimates.history.features(job)[k]
        scores[job, k] = float(expit(feature @ theta)) + radius * confidence.width(feature, design)
    return scores


def cqb_opt(estimates: Estimates, t: int) -> Ruling:
    """The largest upper confidence bound."""
    return Ruling(_upper_confidence(estimates, t))


def _newcomer_with(history: History, t: int, servers: Iterable[int]) -> tuple[Pair, ...]:
    newcomer = history.newcomer(t)
    return () if newcomer is None else tuple((newcomer, k) for k in servers)


def _servers(history: History, t: int) -> int:
    return len(history.features(history.waiting(t)[0]))


def cqb_epsilon(estimates: Estimates, t: int, round_robin_rounds: int, later_probability: float) -> Ruling:
    """A newcomer is explored: at round-robin servers in rounds t <= tau, later with a probability at a uniform server.

    Until tau every newcomer is explored, so the round-robin counter is the number of arrivals in rounds 1 .. t-2.
    later_probability: T^(-1/2).
    """
    history, servers = estimates.history, _servers(estimates.history, t)
    if history.newcomer(t) is None:
        return Ruling(_upper_confidence(estimates, t))
    if t <= round_robin_rounds:
        turn = sum(features is not None for features in history.arrivals[: t - 2]) % servers
        return Ruling(_upper_confidence(estimates, t), 1.0, _newcomer_with(history, t, [turn]))
    return Ruling(_upper_confidence(estimates, t), later_probability, _newcomer_with(history, t, range(servers)))


def cqb_eta_2(estimates: Estimates, t: int, first_phase: int, second_phase: int, eta: float) -> Ruling:
    """Algorithm 1 of CQB-eta-2: a newcomer is served at a uniform server with probability 1, eta, 0 in the phases.

    The phases are t <= first_phase, first_phase < t <= second_phase, and after; eta is eps_0 / 4 in the theory.
    """
    history, servers = estimates.history, _servers(estimates.history, t)
    if history.newcomer(t) is None:
        return Ruling(_upper_confidence(estimates, t))
    coin = 1.0 if t <= first_phase else eta if t <= second_phase else 0.0
    return Ruling(_upper_confidence(estimates, t), coin, _newcomer_with(history, t, range(servers)))


def acqb_law(estimates: Estimates, t: int) -> tuple[Array, Array]:
    """Mean [d] and covariance [d, d] of every parameter drawn in round t: theta_{t-1} and beta_{t-1}^2 V_{t-1}^-1."""
    inverse = np.linalg.solve(estimates.design(t - 1), np.eye(estimates.settings.dimension))
    return estimates.theta(t - 1), estimates.radius(t - 1) ** 2 * (inverse + inverse.T) / 2


def acqb(
    estimates: Estimates, t: int, samples: Array, exploration_scale: float = 1.0, explorations_before: int | None = None
) -> Ruling:
    """The largest sampled logit over samples [M, d]; with probability min(1, c / sqrt(t+1)) a newcomer, round robin.

    explorations_before: how many rounds explored so far (the round-robin counter); None accepts any server.
    """
    history, servers = estimates.history, _servers(estimates.history, t)
    scores = {}
    for job, k in history.pairs(t):
        scores[job, k] = max(float(history.features(job)[k] @ theta) for theta in np.asarray(samples))
    turns = range(servers) if explorations_before is None else [explorations_before % servers]
    exploration = _newcomer_with(history, t, turns)
    chance = min(1.0, exploration_scale / math.sqrt(t + 1)) if exploration else 0.0
    return Ruling(scores, chance, exploration)


def _attempts_and_successes(history: History, t: int, servers: int) -> tuple[Array, Array]:
    attempts, successes = np.zeros(servers), np.zeros(servers)
    for service in history.services[: t - 1]:
        if service is not None:
            attempts[service[1]] += 1
            successes[service[1]] += service[2]
    return attempts, successes


def q_exploration(t: int, servers: int) -> float:
    """min(1, 3 K log^2(max(t, 2)) / t)."""
    return min(1.0, 3 * servers * math.log(max(t, 2)) ** 2 / t)


def _earliest(history: History, t: int, of_server: Sequence[float], exploration: float) -> Ruling:
    first = history.waiting(t)[0]
    scores = {(first, k): float(of_server[k]) for k in range(len(of_server))}
    return Ruling(scores, exploration, tuple(scores))


def q_ucb(history: History, t: int) -> Ruling:
    """Earliest job; success rate + sqrt(log^2(max(t, 2)) / (2 N_k)), infinite for a server never tried."""
    servers = _servers(history, t)
    attempts, successes = _attempts_and_successes(history, t, servers)
    index = [math.inf] * servers
    for k in np.flatnonzero(attempts):
        index[k] = successes[k] / attempts[k] + math.sqrt(math.log(max(t, 2)) ** 2 / (2 * attempts[k]))
    return _earliest(history, t, index, q_exploration(t, servers))


def q_ths_posterior(history: History, t: int) -> tuple[Array, Array]:
    """Parameters a, b [K] of every server's Beta posterior from the prior Beta(1, 1)."""
    attempts, successes = _attempts_and_successes(history, t, _servers(history, t))
    return 1 + successes, 1 + attempts - successes


def q_ths(history: History, t: int, draws: Sequence[float]) -> Ruling:
    """Earliest job; the server with the largest of the given posterior draws [K]."""
    return _earliest(history, t, draws, q_exploration(t, _servers(history, t)))


def random(history: History, t: int) -> Ruling:
    """Every waiting pair, each with the same probability."""
    pairs = history.pairs(t)
    return Ruling(dict.fromkeys(pairs, 0.0), 1.0, tuple(pairs))


def fifo_random(history: History, t: int) -> Ruling:
    """The earliest job at every server with the same probability."""
    return _earliest(history, t, [0.0] * _servers(history, t), 1.0)


def oracle(history: History, t: int, probabilities: Array) -> Ruling:
    """The pair with the largest true probability; probabilities [jobs, K] by number of the job."""
    return Ruling({(job, k): float(probabilities[job][k]) for job, k in history.pairs(t)})
