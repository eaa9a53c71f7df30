"""The ball-constrained, ridge-regularised logistic maximum likelihood estimate, slowly and accurately.

    minimise  f(theta) = sum_i log(1 + exp(-s_i <phi_i, theta>)) + (ridge / 2) ||theta||^2   over ||theta|| <= S

with s_i = +1 for a departure and -1 for a failure: WISE, equation (8), has ridge 1 and CQB-eta-2, equation (2), has
ridge lambda_0. Inside the ball the answer is the unconstrained one. Otherwise there is one multiplier nu > 0 for which
the minimiser of f(theta) + (nu / 2) ||theta||^2 has norm S, and it is found by root finding on nu.
Gradients are summed in extended precision so that rounding does not limit the answer.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit
from threadpoolctl import ThreadpoolController

Array = np.ndarray
BLAS = ThreadpoolController()  # the matrices are tiny: a second BLAS thread only spins, and on a busy machine badly so


def signs(outcomes: Array) -> Array:
    """+1 for every departure, -1 for every failure."""
    return np.where(np.asarray(outcomes, dtype=float) > 0.5, 1.0, -1.0)


def log_loss(theta: Array, phi: Array, outcomes: Array) -> float:
    """sum_i -log P(outcome_i | theta); finite for every logit that a float can hold."""
    phi = np.asarray(phi, dtype=float)
    return float(np.logaddexp(0.0, -signs(outcomes) * (phi @ np.asarray(theta, dtype=float))).sum())


def objective(theta: Array, phi: Array, outcomes: Array, ridge: float) -> float:
    """The function f of the module's first lines."""
    theta = np.asarray(theta, dtype=float)
    return log_loss(theta, phi, outcomes) + 0.5 * ridge * float(theta @ theta)


def gradient(theta: Array, phi: Array, outcomes: Array, ridge: float) -> Array:
    """grad f, in extended precision: -sum_i s_i mu(-s_i z_i) phi_i + ridge theta."""
    phi, theta, s = (np.asarray(a, dtype=np.longdouble) for a in (phi, theta, signs(outcomes)))
    return ridge * theta - (s * expit(-s * (phi @ theta))) @ phi


def hessian(theta: Array, phi: Array, ridge: float) -> Array:
    """The second derivative of f, float64[d, d]."""
    phi, theta = np.asarray(phi, dtype=float), np.asarray(theta, dtype=float)
    z = phi @ theta
    return (phi.T * (expit(z) * expit(-z))) @ phi + ridge * np.eye(len(theta))


def newton(phi: Array, outcomes: Array, ridge: float, start: Array, gradient_tolerance: float = 1e-13) -> Array:
    """The unconstrained minimiser for this ridge, by damped Newton steps; returns extended precision."""
    theta = np.asarray(start, dtype=np.longdouble)
    for _ in range(200):
        g = gradient(theta, phi, outcomes, ridge)
        if float(np.sqrt(g @ g)) <= gradient_tolerance * ridge:
            break
        step = np.linalg.solve(hessian(theta, phi, ridge), g.astype(float))
        if np.linalg.norm(step) <= 1e-17 * (1.0 + float(np.sqrt(theta @ theta))):
            break
        here, slope, size = objective(theta, phi, outcomes, ridge), float(g @ step), 1.0
        # Where the promised decrease drowns in rounding, the full Newton step is the right one.
        while slope > 1e-10 * (1.0 + abs(here)) and size > 1e-12:
            if objective(theta - size * step, phi, outcomes, ridge) <= here - 1e-4 * size * slope:
                break
            size /= 2
        theta = theta - size * step
    g = gradient(theta, phi, outcomes, ridge).astype(float)
    remaining = np.linalg.norm(np.linalg.solve(hessian(theta, phi, ridge), g))
    if not remaining <= 1e-11:
        raise RuntimeError(f"the Newton iteration stalled at distance {remaining:.1e}")
    return theta


def fit(phi: Array, outcomes: Array, ridge: float, bound: float) -> Array:
    """The constrained estimate, float64[d]. phi float64[n, d]; outcomes bool or 0/1 [n]; ridge > 0; bound S > 0."""
    phi = np.asarray(phi, dtype=float)
    d = phi.shape[1]
    if len(phi) == 0:
        return np.zeros(d)
    with BLAS.limit(limits=1):
        rough = minimize(
            lambda x: (objective(x, phi, outcomes, ridge), gradient(x, phi, outcomes, ridge).astype(float)),
            np.zeros(d),
            jac=True,
            method="L-BFGS-B",
        ).x
    theta = newton(phi, outcomes, ridge, rough)
    if float(np.sqrt(theta @ theta)) <= bound:
        return theta.astype(float)

    # On the boundary: theta(nu) = argmin f + (nu/2)||.||^2 has a norm that falls in nu.
    # (ridge + nu) theta(nu) = sum_i s_i mu(-s_i z_i) phi_i, hence nu = sum_i ||phi_i|| / S is large enough.
    def excess(nu: float) -> float:
        at = newton(phi, outcomes, ridge + nu, theta)
        return float(np.sqrt(at @ at) - bound)

    nu = brentq(excess, 0.0, float(np.linalg.norm(phi, axis=1).sum()) / bound, xtol=1e-15, rtol=1e-15, maxiter=500)
    theta = newton(phi, outcomes, ridge + nu, theta)
    return (theta * (bound / np.sqrt(theta @ theta))).astype(float)


def multiplier(theta: Array, phi: Array, outcomes: Array, ridge: float) -> float:
    """The nu >= 0 that makes ||grad f + nu theta|| smallest."""
    theta = np.asarray(theta, dtype=np.longdouble)
    square = float(theta @ theta)
    return 0.0 if square == 0 else max(0.0, -float(gradient(theta, phi, outcomes, ridge) @ theta) / square)


def certificate(theta: Array, phi: Array, outcomes: Array, ridge: float, bound: float) -> float:
    """A proven bound on ||theta - theta_hat||.

    f is ridge-strongly convex, so for a point of norm exactly S and any nu >= 0 the distance is at most
    ||grad f + nu theta|| / ridge, and for any point of the ball it is at most ||grad f|| / ridge. A float vector has
    norm S only up to rounding; so the first bound is taken at the point of norm S in the same direction (in extended
    precision), and the way to that point is added. The smaller of the bounds that apply is returned.
    """
    theta = np.asarray(theta, dtype=np.longdouble)
    norm = np.sqrt(theta @ theta)
    bounds = []
    if norm <= bound:
        g = gradient(theta, phi, outcomes, ridge)
        bounds.append(float(np.sqrt(g @ g)) / ridge)
    if norm > 0:
        on_sphere = theta * (np.longdouble(bound) / norm)
        residual = gradient(on_sphere, phi, outcomes, ridge) + multiplier(on_sphere, phi, outcomes, ridge) * on_sphere
        bounds.append(float(abs(norm - bound)) + float(np.sqrt(residual @ residual)) / ridge)
    return min(bounds)
