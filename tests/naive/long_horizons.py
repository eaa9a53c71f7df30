"""The two estimators for long horizons, slowly: the exact one on a schedule, and mirror descent; both as a judge's estimates.

Both subclasses of `policies.Estimates` answer the same questions (theta, design and radius after round t, an interval of round
i), so every rule of `policies` can be judged with them. Fits at the beginnings of WISE's epochs are forced where their rounds
are handed in.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import mpmath
import numpy as np
from mpmath import mp
from scipy.optimize import brentq
from scipy.special import expit

from .policies import DIGITS, Estimates, History, Settings

Array = np.ndarray


def log_det(matrix: Array) -> float:
    """ln det of a positive definite matrix."""
    return float(np.linalg.slogdet(matrix)[1])


class ScheduledEstimates(Estimates):
    """The constrained minimiser, computed after a service whenever det V has grown by 1 + growth since it last was.

    In between theta stays and the radius is multiplied by sqrt(det V_t / det V_tau).
    """

    def __init__(self, history: History, settings: Settings, growth: float, forced: Collection[int] = ()) -> None:
        super().__init__(history, settings)
        self.fits, last = [0], 0.0  # rounds after which theta was fitted, and ln det V at the last of them
        dets, v = [0.0], settings.initial_design * np.eye(settings.dimension)
        start = log_det(v)
        for t, service in enumerate(history.services, start=1):
            if service is not None:
                feature = history.features(service[0])[service[1]]
                v = v + np.outer(feature, feature)
            dets.append(log_det(v) - start)
            if (service is not None and dets[t] - last >= math.log1p(growth)) or t in forced:
                self.fits.append(t)
                last = dets[t]
        self.dets = dets

    def fitted(self, t: int) -> int:
        """The round after which theta_t was computed."""
        return max(fit for fit in self.fits if fit <= t)

    def theta(self, t: int) -> Array:
        return super().theta(self.fitted(t))

    def radius(self, t: int) -> float:
        return self.settings.radius(t) * math.exp((self.dets[t] - self.dets[self.fitted(t)]) / 2)


def project(theta: Array, metric: Array, bound: float) -> Array:
    """argmin ||x - theta||_metric over ||x|| <= bound: x = (metric + nu I)^-1 metric theta."""
    if np.linalg.norm(theta) <= bound:
        return theta
    d = len(theta)

    def at(nu: float) -> Array:
        return np.linalg.solve(metric + nu * np.eye(d), metric @ theta)

    high = 1.0
    while np.linalg.norm(at(high)) > bound:
        high *= 2.0
    nu = brentq(lambda x: float(np.linalg.norm(at(x)) - bound), 0.0, high, xtol=1e-15, rtol=1e-14, maxiter=500)
    return at(nu) * (bound / np.linalg.norm(at(nu)))


def mirror_step(
    theta: Array, metric: Array, feature: Array, success: bool, step: float, bound: float
) -> tuple[Array, Array]:
    """One outcome of online mirror descent: the new (theta, H)."""
    z = float(feature @ theta)
    tilted = metric + step * float(expit(z) * expit(-z)) * np.outer(feature, feature)
    slope = (float(expit(z)) - float(success)) * feature
    theta = project(theta - step * np.linalg.solve(tilted, slope), tilted, bound)
    z = float(feature @ theta)
    return theta, metric + float(expit(z) * expit(-z)) * np.outer(feature, feature)


def one_pass_radius(t: int, d: int, bound: float, initial: float, step: float, delta: float, length: float) -> float:
    """sqrt(4 lambda S^2 + 2 eta ln(1/delta) + d eta (6 eta + 1) ln(1 + t L^2 / (4 lambda d)))."""
    drift = d * step * (6 * step + 1) * math.log(1 + t * length**2 / (4 * initial * d))
    return math.sqrt(4 * initial * bound**2 + 2 * step * math.log(1 / delta) + drift)


class OnePassEstimates(Estimates):
    """Mirror descent from theta = 0 and H = initial_design I; H is what the others call the design.

    Intervals are formed after the services at which det H has grown by 1 + growth since the last one, and at `forced`
    rounds; at others the interval is the whole line.
    """

    def __init__(
        self, history: History, settings: Settings, step: float, growth: float = 0.0, forced: Collection[int] = ()
    ) -> None:
        super().__init__(history, settings)
        theta, metric = np.zeros(settings.dimension), settings.initial_design * np.eye(settings.dimension)
        self._all, self.formed, last = [(theta, metric)], {0}, log_det(metric)
        for t, service in enumerate(history.services, start=1):
            if service is not None:
                job, server, success = service
                feature = history.features(job)[server]
                theta, metric = mirror_step(theta, metric, feature, success, step, settings.parameter_bound)
            self._all.append((theta, metric))
            if (service is not None and log_det(metric) - last >= math.log1p(growth)) or t in forced:
                self.formed.add(t)
                last = log_det(metric)

    def theta(self, t: int) -> Array:
        return self._all[t][0]

    def design(self, t: int) -> Array:
        return self._all[t][1]

    def _inverse_design(self, t: int) -> mpmath.matrix:
        return mp.matrix(self._all[t][1]) ** -1

    def interval(self, job: int, server: int, i: int) -> tuple[mpmath.mpf, mpmath.mpf]:
        if i in self.formed:
            return super().interval(job, server, i)
        with mp.workdps(DIGITS):
            return self.limits()
