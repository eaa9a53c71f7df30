"""The one-pass estimate: online mirror descent on the logistic loss, O(d²) memory and no history (Zhang et al. 2025).

    H̃ = H + η μ̇(⟨φ, θ⟩) φφᵀ
    θ ← argmin_{‖x‖ ≤ S} ⟨∇ℓ(θ), x⟩ + (1/2η) ‖x − θ‖²_H̃,  ∇ℓ(θ) = (μ(⟨φ, θ⟩) − y) φ
    H ← H + μ̇(⟨φ, θ⟩) φφᵀ  at the new θ;  H₁ = λI

The minimiser is θ − ηH̃⁻¹∇ℓ, projected onto the ball in the norm of H̃ where it lies outside. H stands where V stands for the
other estimators (:class:`logistic.Logistic`: `design`, its `inverse` and `move`), so that whatever follows V follows H; but it
moves when an *outcome* is known, since μ̇ is taken at the estimate which that outcome gives. Attempts in flight are
therefore invisible to it, and one that expires leaves no trace.

The theory takes η = 1 + S and its runs λ = d, for features in the unit ball. With L = max‖φ‖ the same problem has features
φ/L and parameters Lθ, so here η = 1 + SL and λ = dL². A step of η = 1 is Newton's, and as good as the exact estimate in
the long run; a longer one multiplies the variance by about η/2 (stochastic approximation with gain η/t), which is the
price of the proof.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .logistic import Logistic, Settings, copy_into, logistic, move_design, newton_in_ball, norm

Floats = NDArray[np.float64]


def learn(settings: Settings, estimate: Logistic, features: Floats, success: bool, block: int = 0) -> None:
    """One more outcome, of φ = `features` : float64[d], nonzero in this block alone. Outcomes in another order give another
    estimate; none is better founded than the other."""
    (d, b), eta = estimate.design.shape, settings.step
    first, last = block * b, block * b + b
    phi, theta = features[first:last], estimate.theta[first:last]
    inverse, direction = estimate.inverse[first:last], np.empty(b)
    z, leverage = 0.0, 0.0
    for i in range(b):
        direction[i] = 0.0
        for j in range(b):
            direction[i] += inverse[i, j] * phi[j]
        z += phi[i] * theta[i]
        leverage += phi[i] * direction[i]
    p = logistic(z)
    slope = p * logistic(-z)
    # H̃⁻¹φ = H⁻¹φ / (1 + η μ̇ φᵀH⁻¹φ), by Sherman and Morrison.
    step = eta * (p - (1.0 if success else 0.0)) / (1.0 + eta * slope * leverage)
    for i in range(b):
        theta[i] -= step * direction[i]
    if norm(estimate.theta) > settings.bound:
        _project(settings, estimate, phi, eta * slope, block)
    z = 0.0
    for i in range(b):
        z += phi[i] * theta[i]
    root = math.sqrt(logistic(z) * logistic(-z))
    scaled = np.zeros(d)
    for i in range(b):
        scaled[first + i] = root * phi[i]
    move_design(estimate, scaled, 1.0, block)
    estimate.counts[0] += 1


def _project(settings: Settings, estimate: Logistic, phi: Floats, weight: float, block: int) -> None:
    """θ ← the point of the ball that is nearest in the norm of H̃ = H + weight·φφᵀ."""
    hessian, (d, b) = estimate.hessian, estimate.design.shape
    for i in range(d):
        copy_into(hessian[i], estimate.design[i])
    for i in range(b):
        for j in range(b):
            hessian[block * b + i, j] += weight * phi[i] * phi[j]
    target, moving = estimate.theta.copy(), np.ones(estimate.distinct.shape[0], dtype=np.bool_)
    nu = newton_in_ball(estimate.theta, np.zeros(d), hessian, settings.bound, estimate.multiplier[0], moving, target)
    estimate.multiplier[0] = nu
    copy_into(estimate.theta, target)
