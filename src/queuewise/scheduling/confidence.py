"""Confidence: the radius β_t, and the widths β‖φ‖_{V⁻¹} of waiting pairs kept up to date by rank-one updates.

Radii. WISE (9): β_t = (κ/2)√(d ln(1 + t/(dκ)) + 4 ln(t+1)) + √κ S.
CQB-η-2 (3): β_t = κ√(½ d ln(1 + t/(κλ₀d)) + ½ ln(1/δ)) + S√(κλ₀).
Or a fixed number (WISE's experiments: 100), or either formula scaled (CQB-η-2's experiments: × 0.1).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import logistic
from .logistic import Logistic

Floats = NDArray[np.float64]

FIXED, WISE, CQB_ETA_2 = 0, 1, 2
FORMULAS = {"wise": WISE, "cqb_eta_2": CQB_ETA_2}


class Radius(NamedTuple):
    """β_t: `formula` (FIXED, WISE or CQB_ETA_2) with `scale` (the value itself where fixed) and the constants of it:
    κ, S, d, λ₀ (ridge) and δ."""

    formula: int
    scale: float
    kappa: float
    bound: float
    dimension: int
    ridge: float
    delta: float


def radius_at(radius: Radius, t: int) -> float:
    """β_t, t ≥ 0. It moves on in empty rounds too."""
    if radius.formula == FIXED:
        return radius.scale
    d, kappa = radius.dimension, radius.kappa
    if radius.formula == WISE:  # WISE (9)
        growth = d * math.log(1.0 + t / (d * kappa)) + 4.0 * math.log(t + 1.0)
        return radius.scale * (0.5 * kappa * math.sqrt(growth) + math.sqrt(kappa) * radius.bound)
    # CQB-η-2 (3)
    growth = 0.5 * d * math.log(1.0 + t / (kappa * radius.ridge * d)) + 0.5 * math.log(1.0 / radius.delta)
    return radius.scale * (kappa * math.sqrt(growth) + radius.bound * math.sqrt(kappa * radius.ridge))


def squared_norms(inverse: Floats, features: Floats, out: Floats) -> None:
    """out[k] = φ_kᵀ V⁻¹ φ_k for the columns φ_k of features : float64[d, K]."""
    d, servers = features.shape
    for k in range(servers):
        out[k] = 0.0
    product = np.empty(servers)
    for i in range(d):
        for k in range(servers):
            product[k] = 0.0
        for j in range(d):
            entry = inverse[i, j]
            for k in range(servers):
                product[k] += entry * features[j, k]
        for k in range(servers):
            out[k] += product[k] * features[i, k]


def scores(vector: Floats, features: Floats, out: Floats) -> None:
    """out[k] = ⟨φ_k, vector⟩ for the columns φ_k of features : float64[d, K]."""
    d, servers = features.shape
    for k in range(servers):
        out[k] = vector[0] * features[0, k]
    for j in range(1, d):
        entry = vector[j]
        for k in range(servers):
            out[k] += entry * features[j, k]


def shrink(move: Floats, sign: float, features: Floats, work: Floats, squares: Floats) -> None:
    """Follow one rank-one change of V: squares[k] −= sign·⟨φ_k, move⟩² (Sherman and Morrison)."""
    scores(move, features, work)
    for k in range(squares.shape[0]):
        squares[k] -= sign * work[k] * work[k]


def follow_design(estimate: Logistic, met: NDArray[np.int64], squares: Floats, features: Floats, slot: int) -> None:
    """Bring ‖φ(x, k)‖²_{V⁻¹} of the job in `slot` up to date; `met` holds how many moves of V each job has followed,
    −1 for a newcomer. One move behind costs a rank-one update; more, or every 1,024 moves, a fresh product."""
    moves = estimate.counts[1]
    behind = moves - met[slot]
    if behind == 0:
        return
    if behind == 1 and met[slot] >= 0 and moves % 1024 != 0:
        work = np.empty(squares.shape[1])
        shrink(estimate.move, estimate.move_sign[0], features[slot], work, squares[slot])
    else:
        squared_norms(estimate.inverse, features[slot], squares[slot])
    met[slot] = moves


def optimism(theta: Floats, beta: float, squares: Floats, features: Floats, out: Floats) -> None:
    """The index of CQB-η-2 (1): out[k] = μ(⟨φ_k, θ̂⟩) + β‖φ_k‖_{V⁻¹}, squares[k] = ‖φ_k‖²_{V⁻¹}."""
    scores(theta, features, out)
    for k in range(out.shape[0]):
        out[k] = logistic.logistic(out[k]) + beta * math.sqrt(max(squares[k], 0.0))
