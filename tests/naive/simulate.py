"""Complete slow simulators: baselines for timing, and independent samples of the same laws.

Every simulator takes a draw with the arrays

    arrivals bool[rounds]; contexts int64[jobs]; features float64[rows, d, K]; probabilities float64[rows, K];
    service float64[rounds]

and returns a `Run`, whose queue_length int64[rounds] is the length at the beginning of every round, 0 in the first.
A round serves first (departure iff service[t] <= p), then a job may arrive. Radii are a number or a function
t -> beta_t, t = 0, 1, ...
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from . import confidence
from .logistic import BLAS
from .policies import History

Array = np.ndarray
Radius = float | Callable[[int], float]
Refit = Callable[[Array, Array, float, float, Array], Array]  # phi, outcomes, ridge, bound, start -> theta


class Run(NamedTuple):
    """queue_length int64[rounds]; services[t-1] = (job, server, success) or None; departures: jobs as they left."""

    queue_length: Array
    services: list[tuple[int, int, bool] | None]
    departures: list[int]


@BLAS.wrap(limits=1)
def run(
    draw: Any,
    choose: Callable[[int, list[int]], tuple[int, int]],
    observe: Callable[[int, tuple[int, int, bool] | None, int | None], None] | None = None,
) -> Run:
    """Play all rounds with a Python rule.

    choose(t, waiting) -> (job, server) is called in every round with waiting jobs (numbers in order of arrival);
    observe(t, service, arrival) at the end of every round, with None for an empty round and for no arrival.
    """
    rounds, jobs = len(draw.arrivals), 0
    waiting: list[int] = []
    lengths = np.zeros(rounds, dtype=np.int64)
    services: list[tuple[int, int, bool] | None] = []
    departures = []
    for t in range(1, rounds + 1):
        lengths[t - 1] = len(waiting)
        service = arrival = None
        if waiting:
            job, server = choose(t, list(waiting))
            success = bool(draw.service[t - 1] <= draw.probabilities[draw.contexts[job], server])
            service = (job, server, success)
            if success:
                waiting.remove(job)
                departures.append(job)
        if draw.arrivals[t - 1]:
            arrival = jobs
            waiting.append(jobs)
            jobs += 1
        services.append(service)
        if observe is not None:
            observe(t, service, arrival)
    return Run(lengths, services, departures)


def history(draw: Any, services: list[tuple[int, int, bool] | None]) -> History:
    """The history that the judges of `policies` read, from a draw and the services of a run on it."""
    arrivals: list[Array | None] = [None] * len(draw.arrivals)
    for job, t in enumerate(np.flatnonzero(draw.arrivals)):
        arrivals[t] = np.ascontiguousarray(draw.features[draw.contexts[job]].T)
    return History(arrivals, services)


def oracle(draw: Any, ties: str = "earliest", seed: int = 0) -> Run:
    """The pair with the largest probability in the queue; ties: "earliest", "latest" or "random" (of the jobs)."""
    rng = np.random.default_rng(seed)

    def choose(t: int, waiting: list[int]) -> tuple[int, int]:
        best = [max(draw.probabilities[draw.contexts[job]]) for job in waiting]
        tied = [job for job, p in zip(waiting, best, strict=True) if p == max(best)]
        job = {"earliest": tied[0], "latest": tied[-1], "random": tied[rng.integers(len(tied))]}[ties]
        return job, int(np.argmax(draw.probabilities[draw.contexts[job]]))

    return run(draw, choose)


# --- refits: what a careful user of NumPy and SciPy would write ------------------------------------------------------
def _value_and_gradient(theta: Array, phi: Array, s: Array, ridge: float) -> tuple[float, Array]:
    z = s * (phi @ theta)
    return np.logaddexp(0.0, -z).sum() + 0.5 * ridge * (theta @ theta), ridge * theta - (s * expit(-z)) @ phi


def _gradient_and_hessian(theta: Array, phi: Array, s: Array, ridge: float) -> tuple[Array, Array]:
    p = expit(s * (phi @ theta))
    curvature = (phi.T * (p * (1 - p))) @ phi
    curvature.flat[:: len(theta) + 1] += ridge
    return ridge * theta - (s * (1 - p)) @ phi, curvature


def _newton(phi: Array, s: Array, ridge: float, start: Array, tolerance: float = 1e-9) -> Array:
    """Newton from the last estimate; halves a step that raises the gradient, which only a far start needs."""
    theta = start
    g, h = _gradient_and_hessian(theta, phi, s, ridge)
    size = math.sqrt(g @ g)
    while size > tolerance * ridge:
        step, length = np.linalg.solve(h, g), 1.0
        while True:
            new = theta - length * step
            new_g, new_h = _gradient_and_hessian(new, phi, s, ridge)
            new_size = math.sqrt(new_g @ new_g)
            if new_size < size or length < 1e-6:
                break
            length /= 2
        if new_size >= size:  # rounding
            break
        theta, g, h, size = new, new_g, new_h, new_size
    return theta


def _onto_boundary(phi: Array, s: Array, ridge: float, bound: float, start: Array) -> Array:
    """The estimate of norm S: Newton on nu -> 1 / ||theta(nu)||, which is nearly linear in nu (Hebden's iteration)."""
    nu, theta = 0.0, start
    for _ in range(50):
        theta = _newton(phi, s, ridge + nu, theta)
        square = theta @ theta
        norm = math.sqrt(square)
        if abs(norm - bound) <= 1e-10 * bound:
            break
        _, h = _gradient_and_hessian(theta, phi, s, ridge + nu)
        nu = max(0.0, nu + (norm / bound - 1) * square / (theta @ np.linalg.solve(h, theta)))
    return theta * (bound / np.linalg.norm(theta))


def refit_lbfgs(phi: Array, outcomes: Array, ridge: float, bound: float, start: Array) -> Array:
    """SciPy's L-BFGS from the last estimate; the boundary, where it is needed, by the multiplier."""
    s = 2.0 * outcomes - 1.0
    options = {"gtol": 1e-8, "ftol": 1e-15}
    theta = minimize(_value_and_gradient, start, args=(phi, s, ridge), jac=True, method="L-BFGS-B", options=options).x
    return theta if theta @ theta <= bound * bound else _onto_boundary(phi, s, ridge, bound, theta)


def refit_newton(phi: Array, outcomes: Array, ridge: float, bound: float, start: Array) -> Array:
    """A hand-written Newton iteration from the last estimate."""
    s = 2.0 * outcomes - 1.0
    theta = _newton(phi, s, ridge, start)
    return theta if theta @ theta <= bound * bound else _onto_boundary(phi, s, ridge, bound, theta)


class _Learner:
    """Services so far, theta_hat and the inverse design, refitted after every service."""

    def __init__(self, draw: Any, refit: Refit, ridge: float, initial_design: float, bound: float) -> None:
        rounds, d = len(draw.arrivals), draw.features.shape[1]
        self.refit, self.ridge, self.bound, self.n = refit, ridge, bound, 0
        self.phi, self.outcomes = np.zeros((rounds, d)), np.zeros(rounds)
        self.theta, self.design = np.zeros(d), initial_design * np.eye(d)
        self.inverse = np.linalg.inv(self.design)

    def learn(self, feature: Array, success: bool) -> None:
        self.phi[self.n], self.outcomes[self.n] = feature, success
        self.n += 1
        self.design = self.design + np.outer(feature, feature)
        self.inverse = np.linalg.inv(self.design)
        self.theta = self.refit(self.phi[: self.n], self.outcomes[: self.n], self.ridge, self.bound, self.theta)


def _radius(radius: Radius) -> Callable[[int], float]:
    return radius if callable(radius) else lambda t: float(radius)


def _cqb_opt(draw: Any, refit: Refit, radius: Radius, ridge: float, initial_design: float, bound: float) -> Run:
    learner, beta = _Learner(draw, refit, ridge, initial_design, bound), _radius(radius)
    features = np.ascontiguousarray(draw.features.transpose(0, 2, 1))  # [rows, K, d]
    servers = features.shape[1]

    def choose(t: int, waiting: list[int]) -> tuple[int, int]:
        phi = features[draw.contexts[waiting]].reshape(-1, features.shape[2])
        widths = np.sqrt(((phi @ learner.inverse) * phi).sum(axis=1))
        best = int(np.argmax(expit(phi @ learner.theta) + beta(t - 1) * widths))
        return waiting[best // servers], best % servers

    def observe(t: int, service: tuple[int, int, bool] | None, arrival: int | None) -> None:
        if service is not None:
            learner.learn(features[draw.contexts[service[0]], service[1]], service[2])

    return run(draw, choose, observe)


# --- WISE in floats: ends as logits ----------------------------------------------------------------------------------
def _midpoint(low: Array, high: Array) -> Array:
    """Logit of (mu(low) + mu(high)) / 2; numerator and complement are sums of positive terms, so nothing cancels."""
    return np.log(expit(low) + expit(high)) - np.log(expit(-low) + expit(-high))


def _wideness(low: Array, high: Array) -> Array:
    """log(w / (1 - w)) for w = mu(high) - mu(low), increasing in w and accurate for w near 0 and near 1."""
    with np.errstate(divide="ignore"):
        log_width = np.log(expit(high)) + np.log(expit(-low)) + np.log(-np.expm1(low - high))
    return log_width - np.log(expit(low) + expit(-high))


def _widest_candidate(low: Array, high: Array) -> int:
    """Position of the widest pair whose upper end reaches the largest lower end (first at a tie)."""
    # A frozen interval has width 0 and wideness -inf, so those that are out must be left out, not marked with -inf.
    candidates = np.flatnonzero(high >= low.max())
    return int(candidates[np.argmax(_wideness(low[candidates], high[candidates]))])


class _Past:
    """theta_i, V_i^-1 and beta_i for i = 0, 1, ..., and the intervals that they give, ends as logits."""

    def __init__(self, learner: _Learner, radius: Radius, limit: float) -> None:
        self.learner, self.beta, self.limit = learner, _radius(radius), limit
        self.theta, self.inverse = [learner.theta], [learner.inverse]

    def append(self) -> None:
        self.theta.append(self.learner.theta)
        self.inverse.append(self.learner.inverse)

    def interval(self, phi: Array, i: int) -> tuple[Array, Array]:
        """Ends of I_i for features [pairs, d]."""
        if i == 0:
            return np.full(len(phi), -self.limit), np.full(len(phi), self.limit)
        centre = phi @ self.theta[i]
        reach = self.beta(i) * np.sqrt(((phi @ self.inverse[i]) * phi).sum(axis=1))
        return np.maximum(centre - reach, -self.limit), np.minimum(centre + reach, self.limit)


def wise_literal(
    draw: Any,
    shift: float,
    radius: Radius,
    ridge: float = 1.0,
    initial_design: float = 5.0,
    parameter_bound: float = 10.0,
    feature_bound: float = 5.0,
    refit: Refit = refit_newton,
) -> Run:
    """Algorithm 1 of WISE as it stands on the page: in every round, for every pair, for every i of the epoch."""
    learner = _Learner(draw, refit, ridge, initial_design, parameter_bound)
    past = _Past(learner, radius, parameter_bound * feature_bound)
    features = np.ascontiguousarray(draw.features.transpose(0, 2, 1))
    servers = features.shape[1]

    def interval(phi: Array, i: int) -> tuple[float, float]:
        if i == 0:
            return -past.limit, past.limit
        centre = phi @ past.theta[i]
        reach = past.beta(i) * math.sqrt(phi @ past.inverse[i] @ phi)
        return max(centre - reach, -past.limit), min(centre + reach, past.limit)

    def choose(t: int, waiting: list[int]) -> tuple[int, int]:
        _, tau = confidence.epoch(t, shift)
        pairs = [(job, k) for job in waiting for k in range(servers)]
        held = []
        for job, k in pairs:
            phi = features[draw.contexts[job], k]
            low, high = interval(phi, tau - 1)
            for i in range(tau, t):
                other_low, other_high = interval(phi, i)
                if max(low, other_low) > min(high, other_high):
                    low = high = float(_midpoint(np.array(low), np.array(high)))
                    break
                low, high = max(low, other_low), min(high, other_high)
            held.append((low, high))
        low_ends, high_ends = np.array(held).T
        return pairs[_widest_candidate(low_ends, high_ends)]

    def observe(t: int, service: tuple[int, int, bool] | None, arrival: int | None) -> None:
        if service is not None:
            learner.learn(features[draw.contexts[service[0]], service[1]], service[2])
        past.append()

    return run(draw, choose, observe)


def wise_arrays(
    draw: Any,
    shift: float,
    radius: Radius,
    ridge: float = 1.0,
    initial_design: float = 5.0,
    parameter_bound: float = 10.0,
    feature_bound: float = 5.0,
    refit: Refit = refit_newton,
) -> Run:
    """The same rounds, intersecting the whole epoch again in every round, with one array operation per index i.

    The loop over i is Python, the arithmetic of one i runs over all waiting pairs at once.
    """
    learner = _Learner(draw, refit, ridge, initial_design, parameter_bound)
    past = _Past(learner, radius, parameter_bound * feature_bound)
    features = np.ascontiguousarray(draw.features.transpose(0, 2, 1))
    servers = features.shape[1]

    def choose(t: int, waiting: list[int]) -> tuple[int, int]:
        phi = features[draw.contexts[waiting]].reshape(-1, features.shape[2])
        _, tau = confidence.epoch(t, shift)
        low, high = past.interval(phi, tau - 1)
        frozen = np.zeros(len(phi), dtype=bool)
        for i in range(tau, t):
            other_low, other_high = past.interval(phi, i)
            new_low, new_high = np.maximum(low, other_low), np.minimum(high, other_high)
            freeze = ~frozen & (new_low > new_high)
            if freeze.any():
                low[freeze] = high[freeze] = _midpoint(low[freeze], high[freeze])
                frozen |= freeze
            low, high = np.where(frozen, low, new_low), np.where(frozen, high, new_high)
        best = _widest_candidate(low, high)
        return waiting[best // servers], best % servers

    def observe(t: int, service: tuple[int, int, bool] | None, arrival: int | None) -> None:
        if service is not None:
            learner.learn(features[draw.contexts[service[0]], service[1]], service[2])
        past.append()

    return run(draw, choose, observe)


def _wise(
    draw: Any,
    refit: Refit,
    shift: float,
    radius: Radius,
    ridge: float,
    initial_design: float,
    parameter_bound: float,
    feature_bound: float,
) -> Run:
    """WISE with the held intervals kept: one intersection per waiting job and round, the whole epoch for a newcomer."""
    learner = _Learner(draw, refit, ridge, initial_design, parameter_bound)
    past = _Past(learner, radius, parameter_bound * feature_bound)
    features = np.ascontiguousarray(draw.features.transpose(0, 2, 1))
    servers = features.shape[1]
    held: dict[int, tuple[Array, Array, Array]] = {}  # job -> low, high, frozen, each [K]

    def from_epoch_start(phi: Array, tau: int, t: int) -> tuple[Array, Array, Array]:
        """Intersect I_{tau-1} .. I_{t-1} for features [K, d] with array operations over i."""
        indices = np.arange(tau - 1, t)
        centre = np.array(past.theta[tau - 1 : t]) @ phi.T
        norms = np.sqrt(((phi @ np.array(past.inverse[tau - 1 : t])) * phi).sum(axis=2))
        reach = np.array([past.beta(i) for i in indices])[:, None] * norms
        low, high = np.maximum(centre - reach, -past.limit), np.minimum(centre + reach, past.limit)
        if tau == 1:
            low[0], high[0] = -past.limit, past.limit
        low, high = np.maximum.accumulate(low), np.minimum.accumulate(high)
        empty = low > high
        frozen, first = empty.any(axis=0), empty.argmax(axis=0)
        last = np.where(frozen, first - 1, len(indices) - 1)
        at = np.arange(len(phi))
        low, high = low[last, at], high[last, at]
        middle = _midpoint(low, high)
        return np.where(frozen, middle, low), np.where(frozen, middle, high), frozen

    def choose(t: int, waiting: list[int]) -> tuple[int, int]:
        _, tau = confidence.epoch(t, shift)
        for job in list(held):
            if job not in waiting:
                del held[job]
        old = [job for job in waiting if job in held and t > tau]
        if old:  # jobs that waited in round t-1, inside the epoch: one more intersection
            phi = features[draw.contexts[old]].reshape(-1, features.shape[2])
            low, high, frozen = (np.concatenate(parts) for parts in zip(*(held[job] for job in old), strict=True))
            other_low, other_high = past.interval(phi, t - 1)
            new_low, new_high = np.maximum(low, other_low), np.minimum(high, other_high)
            freeze = ~frozen & (new_low > new_high)
            if freeze.any():
                low[freeze] = high[freeze] = _midpoint(low[freeze], high[freeze])
                frozen = frozen | freeze
            low, high = np.where(frozen, low, new_low), np.where(frozen, high, new_high)
            for n, job in enumerate(old):
                part = slice(n * servers, (n + 1) * servers)
                held[job] = low[part], high[part], frozen[part]
        for job in waiting:
            if job not in old:
                held[job] = from_epoch_start(features[draw.contexts[job]], tau, t)
        low = np.concatenate([held[job][0] for job in waiting])
        high = np.concatenate([held[job][1] for job in waiting])
        best = _widest_candidate(low, high)
        return waiting[best // servers], best % servers

    def observe(t: int, service: tuple[int, int, bool] | None, arrival: int | None) -> None:
        if service is not None:
            learner.learn(features[draw.contexts[service[0]], service[1]], service[2])
        past.append()

    return run(draw, choose, observe)


def cqb_opt_lbfgs(
    draw: Any, radius: Radius, ridge: float = 1.0, initial_design: float = 5.0, parameter_bound: float = 10.0
) -> Run:
    """CQB-Opt as a NumPy loop with SciPy's L-BFGS after every service."""
    return _cqb_opt(draw, refit_lbfgs, radius, ridge, initial_design, parameter_bound)


def cqb_opt_newton(
    draw: Any, radius: Radius, ridge: float = 1.0, initial_design: float = 5.0, parameter_bound: float = 10.0
) -> Run:
    """CQB-Opt as a NumPy loop with a hand-written Newton step."""
    return _cqb_opt(draw, refit_newton, radius, ridge, initial_design, parameter_bound)


def wise_lbfgs(
    draw: Any,
    shift: float,
    radius: Radius,
    ridge: float = 1.0,
    initial_design: float = 5.0,
    parameter_bound: float = 10.0,
    feature_bound: float = 5.0,
) -> Run:
    """WISE as a NumPy loop that keeps the held intervals, with SciPy's L-BFGS after every service."""
    return _wise(draw, refit_lbfgs, shift, radius, ridge, initial_design, parameter_bound, feature_bound)


def wise_newton(
    draw: Any,
    shift: float,
    radius: Radius,
    ridge: float = 1.0,
    initial_design: float = 5.0,
    parameter_bound: float = 10.0,
    feature_bound: float = 5.0,
) -> Run:
    """The same with a hand-written Newton step."""
    return _wise(draw, refit_newton, shift, radius, ridge, initial_design, parameter_bound, feature_bound)
