"""Confidence: the radius β_t, and the widths β‖φ‖_{V⁻¹} of waiting pairs kept up to date by rank-one updates.

Radii. WISE (9): β_t = (κ/2)√(d ln(1 + t/(dκ)) + 4 ln(t+1)) + √κ S.
CQB-η-2 (3): β_t = κ√(½ d ln(1 + t/(κλ₀d)) + ½ ln(1/δ)) + S√(κλ₀).
One-pass estimate (Zhang et al. 2025; constants as reconstructed here, L = max‖φ‖):
β_t² = 4λS² + 2η ln(1/δ) + dη(6η + 1) ln(1 + tL²/(4λd)), in the norm of H (see :mod:`one_pass`).
Or a fixed number (WISE's experiments: 100), or a formula scaled (CQB-η-2's experiments: × 0.1).

Between two fits of a schedule θ̂ is that of the last one, at time τ, and V has moved on. What is known is |⟨φ, θ̂ − θ*⟩| ≤
β_τ‖φ‖_{V_τ⁻¹}, and since V_τ ⪯ V_t, ‖φ‖²_{V_τ⁻¹} ≤ (det V_t/det V_τ) ‖φ‖²_{V_t⁻¹} (Abbasi-Yadkori, Pál and Szepesvári 2011,
Lemma 12). So β_t√(det V_t/det V_τ)‖φ‖_{V_t⁻¹} is a valid width, at most √(1 + growth) times that where outcomes come at once,
and still narrows where one has just tried. Attempts that expire count among what was added and never against it: with V_t =
V_τ + P − E, ‖φ‖²_{V_τ⁻¹} ≤ (det(V_τ + P)/det V_τ) ‖φ‖²_{(V_τ+P)⁻¹}, and V_t ⪯ V_τ + P makes the last norm only larger.

Where servers share no parameter, V falls apart into a block per server (see :mod:`logistic`), φ(x, k) is nonzero in block k
alone, and only d/K of its entries are looked at.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._compile import options
from . import logistic
from .logistic import Logistic

Floats = NDArray[np.float64]

FIXED, WISE, CQB_ETA_2, ONE_PASS = 0, 1, 2, 3
FORMULAS = {"wise": WISE, "cqb_eta_2": CQB_ETA_2, "one_pass": ONE_PASS}


class Radius(NamedTuple):
    """β_t: `formula` (FIXED, WISE, CQB_ETA_2 or ONE_PASS) with `scale` (the value itself where fixed) and the constants of it:
    κ, S, d, λ₀ (ridge; λ of a one-pass estimate), δ, η and L; and whether it is stretched between two fits of a
    schedule."""

    formula: int
    scale: float
    kappa: float
    bound: float
    dimension: int
    ridge: float
    delta: float
    step: float = 1.0
    feature_bound: float = 1.0
    stretched: bool = False


def radius_at(radius: Radius, t: int) -> float:
    """β_t, t ≥ 0. It moves on in empty rounds too."""
    if radius.formula == FIXED:
        return radius.scale
    d, kappa = radius.dimension, radius.kappa
    if radius.formula == WISE:  # WISE (9)
        growth = d * math.log(1.0 + t / (d * kappa)) + 4.0 * math.log(t + 1.0)
        return radius.scale * (0.5 * kappa * math.sqrt(growth) + math.sqrt(kappa) * radius.bound)
    if radius.formula == ONE_PASS:
        eta, unit = radius.step, radius.feature_bound**2 / (4.0 * radius.ridge * d)
        square = 4.0 * radius.ridge * radius.bound**2 + 2.0 * eta * math.log(1.0 / radius.delta)
        return radius.scale * math.sqrt(square + d * eta * (6.0 * eta + 1.0) * math.log(1.0 + unit * t))
    # CQB-η-2 (3)
    growth = 0.5 * d * math.log(1.0 + t / (kappa * radius.ridge * d)) + 0.5 * math.log(1.0 / radius.delta)
    return radius.scale * (kappa * math.sqrt(growth) + radius.bound * math.sqrt(kappa * radius.ridge))


def radius_now(radius: Radius, t: int, log_det: Floats) -> float:
    """β_t, stretched by √(det V_t/det V_τ) where θ̂ was last fitted at time τ (log_det : that of the estimate)."""
    beta = radius_at(radius, t)
    if radius.stretched:
        beta *= math.exp(0.5 * (log_det[0] - log_det[1]))
    return beta


def squared_norms(inverse: Floats, features: Floats, out: Floats) -> None:
    """out[k] = φ_kᵀ V⁻¹ φ_k for the columns φ_k of features : float64[d, K]; inverse : float64[d, b], K blocks or one."""
    d, servers = features.shape
    b = inverse.shape[1]
    for k in range(servers):
        out[k] = 0.0
    if b < d:
        for k in range(servers):
            for i in range(k * b, k * b + b):
                total = 0.0
                for j in range(b):
                    total += inverse[i, j] * features[k * b + j, k]
                out[k] += total * features[i, k]
        return
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


@options(inline="always")
def scores(vector: Floats, features: Floats, blocks: int, out: Floats) -> None:
    """out[k] = ⟨φ_k, vector⟩ for the columns φ_k of features : float64[d, K]; `blocks` : K or 1."""
    d, servers = features.shape
    if blocks > 1:
        b = d // blocks
        for k in range(servers):
            out[k] = 0.0
            for j in range(k * b, k * b + b):
                out[k] += vector[j] * features[j, k]
        return
    for k in range(servers):
        out[k] = vector[0] * features[0, k]
    for j in range(1, d):
        entry = vector[j]
        for k in range(servers):
            out[k] += entry * features[j, k]


@options(inline="always")
def shrink(move: Floats, sign: float, block: int, features: Floats, squares: Floats) -> None:
    """Follow one rank-one change of V: squares[k] −= sign·⟨φ_k, move⟩² (Sherman and Morrison). A move shorter than φ_k
    is one of this block, and so of this server's."""
    b = move.shape[0]
    if b < features.shape[0]:
        product = 0.0
        for j in range(b):
            product += move[j] * features[block * b + j, block]
        squares[block] -= sign * product * product
        return
    work = np.empty(squares.shape[0])
    scores(move, features, 1, work)
    for k in range(squares.shape[0]):
        squares[k] -= sign * work[k] * work[k]


def follow_design(
    estimate: Logistic,
    met: NDArray[np.int64],
    squares: Floats,
    features: Floats,
    slots: NDArray[np.int64],
    jobs: int,
) -> None:
    """Bring ‖φ(x, k)‖²_{V⁻¹} of the jobs in the first so many slots up to date; `met` holds how many moves of V each job has
    followed, −1 for a newcomer. One move behind costs a rank-one update; more, or every 1,024 moves, a fresh product."""
    inverse, move, sign = estimate.inverse, estimate.move, estimate.move_sign[0]
    moves, block = estimate.counts[1], estimate.counts[2]
    for position in range(jobs):
        slot = slots[position]
        behind = moves - met[slot]
        if behind == 0:
            continue
        if behind == 1 and met[slot] >= 0 and moves % 1024 != 0:
            shrink(move, sign, block, features[slot], squares[slot])
        else:
            squared_norms(inverse, features[slot], squares[slot])
        met[slot] = moves


@options(inline="always")
def optimism(theta: Floats, beta: float, squares: Floats, features: Floats, blocks: int, out: Floats) -> None:
    """The index of CQB-η-2 (1): out[k] = μ(⟨φ_k, θ̂⟩) + β‖φ_k‖_{V⁻¹}, squares[k] = ‖φ_k‖²_{V⁻¹}."""
    scores(theta, features, blocks, out)
    for k in range(out.shape[0]):
        out[k] = logistic.logistic(out[k]) + beta * math.sqrt(max(squares[k], 0.0))
