"""Radii, epochs, design matrices and widths, as the papers write them."""

from __future__ import annotations

import math

import mpmath
import numpy as np
from scipy.special import expit

Array = np.ndarray


def kappa(parameter_bound: float, feature_bound: float = 1.0) -> float:
    """1 / mu'(S max||phi||): WISE, Assumption 1-2, where max||phi|| = 1."""
    z = parameter_bound * feature_bound
    return 1.0 / float(expit(z) * expit(-z))


def wise_radius(t: int, dimension: int, curvature: float, parameter_bound: float) -> float:
    """WISE, equation (9): (kappa/2) sqrt(d log(1 + t/(d kappa)) + 4 log(t+1)) + sqrt(kappa) S, also at t = 0."""
    inside = dimension * math.log(1 + t / (dimension * curvature)) + 4 * math.log(t + 1)
    return (curvature / 2) * math.sqrt(inside) + math.sqrt(curvature) * parameter_bound


def cqb_eta_2_radius(
    t: int, dimension: int, curvature: float, parameter_bound: float, ridge: float, delta: float
) -> float:
    """CQB-eta-2, equation (3): kappa sqrt(d/2 log(1 + t/(kappa ridge d)) + log(1/delta)/2) + S sqrt(kappa ridge)."""
    inside = 0.5 * dimension * math.log(1 + t / (curvature * ridge * dimension)) + 0.5 * math.log(1 / delta)
    return curvature * math.sqrt(inside) + parameter_bound * math.sqrt(curvature * ridge)


def epoch_start(m: int, shift: float) -> int:
    """tau_m of WISE, equation (10): tau_0 = 1 and tau_m = ceil(2^(m - 1 + U_0))."""
    if m == 0:
        return 1
    with mpmath.workdps(60):
        return int(mpmath.ceil(mpmath.mpf(2) ** (m - 1 + mpmath.mpf(shift))))


def epoch(t: int, shift: float) -> tuple[int, int]:
    """(m_t, tau_{m_t}) with m_t = max{m : tau_m <= t}, for t >= 1."""
    m = 0
    while epoch_start(m + 1, shift) <= t:
        m += 1
    return m, epoch_start(m, shift)


def design(phi: Array, initial: float, dimension: int) -> Array:
    """V = initial I + sum_i phi_i phi_i^T by a fresh sum; phi float64[n, d]."""
    total = initial * np.eye(dimension)
    for row in np.asarray(phi, dtype=float).reshape(-1, dimension):
        total = total + np.outer(row, row)
    return total


def width(feature: Array, matrix: Array) -> float:
    """||phi||_{V^-1}."""
    return math.sqrt(float(feature @ np.linalg.solve(matrix, feature)))
