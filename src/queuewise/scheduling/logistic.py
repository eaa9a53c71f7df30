"""The ball-constrained, ridge-regularised logistic maximum-likelihood estimate, exact after every observation.

    θ̂ = argmin_{‖θ‖ ≤ S}  Σ_i [log(1 + e^{z_i}) − y_i z_i] + (ridge/2)‖θ‖²,   z_i = ⟨φ_i, θ⟩

WISE (8) has ridge = 1, CQB-η-2 (2) ridge = λ₀. The objective is `ridge`-strongly convex, so a point with multiplier
ν ≥ 0 (ν = 0 or ‖θ‖ = S) lies within ‖∇f(θ) + νθ‖/ridge of the constrained minimiser: that number is the
*certificate*, and :func:`refit` works until it is below the tolerance.

What an observation costs. The old optimum and its Hessian, corrected for the one new term, give a Newton step without
looking at the history. One pass over the history at the new point gives the exact gradient and Hessian there, hence a
second Newton step s whose remaining gradient is known without another pass: by Taylor's theorem at most
½ max|μ̈| max‖φ‖ Σ(φ_i·s)², and Σφφᵀ is at hand. One pass is enough once the estimate moves little; early rounds,
whose history is short, take two or three.

Everything here is plain Python compiled by the engine; the passes alone may reorder sums (SIMD), which is why an
interpreted run agrees with a compiled one to rounding and not to the bit.
"""

from __future__ import annotations

import math
import struct
from typing import Annotated, Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from .._compile import options, replaced_when_compiled
from ..growing import Grows

Floats = NDArray[np.float64]

#: max |μ̈| = max |μ(1−μ)(1−2μ)|, reached at μ = (1 ± 1/√3)/2.
LARGEST_SECOND_DERIVATIVE = 1.0 / (6.0 * math.sqrt(3.0))
#: Rows of the history that one sweep handles at a time: five arrays of this length stay in the first two caches.
BLOCK = 1024
#: Above this dimension a Hessian costs many gradients, so it is refreshed only when the steps contract slowly.
CHEAP_HESSIAN = 12
#: Passes over the history after which a refit gives up. Shortened steps are many where logits are in the hundreds.
MOST_PASSES = 20_000
#: The inverse of the design is recomputed from the design after this many rank-one updates.
REFRESH = 256
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # ln 2 in two pieces
SHIFTER = 6755399441055744.0  # 1.5·2⁵²: adding it rounds to an integer, which then sits in the low bits
SIMD = {"reassoc", "contract", "nsz", "arcp"}  # never "nnan", "ninf": they carry meaning


class Logistic(NamedTuple):
    """What the estimator knows. `n` observations, capacity `c` ≥ n.

    theta : float64[d], the estimate · multiplier : float64[1], ν of the ball · certificate : float64[1]
    design : float64[d, d], V = V₀ + Σφφᵀ over assigned attempts · inverse : float64[d, d], V⁻¹
    move : float64[d], V⁻¹φ/√(1 ± φᵀV⁻¹φ) of the last change of V, with sign move_sign : float64[1]
    hessian : float64[d, d], of the objective at (or near) theta · scatter : float64[d, d], Σφφᵀ over known outcomes
    largest_norm : float64[1], max ‖φ‖ seen
    features : float64[d, c], outcomes : float64[c], the history · counts : int64[2], observations and moves of V
    """

    theta: Floats
    multiplier: Floats
    certificate: Floats
    design: Floats
    inverse: Floats
    move: Floats
    move_sign: Floats
    hessian: Floats
    scatter: Floats
    largest_norm: Floats
    features: Annotated[Floats, Grows(axis=1)]
    outcomes: Annotated[Floats, Grows(axis=0)]
    counts: NDArray[np.int64]


class Settings(NamedTuple):
    """Parameters of the estimate: ridge > 0, ball radius S, scale v₀ of V₀ = v₀·I, tolerance of the certificate."""

    ridge: float
    bound: float
    initial_design: float
    tolerance: float


def start(settings: Settings, dimension: int, capacity: int) -> Logistic:
    """The estimator before the first observation: θ̂ = 0, V = V₀."""
    identity = np.eye(dimension)
    return Logistic(
        theta=np.zeros(dimension),
        multiplier=np.zeros(1),
        certificate=np.zeros(1),
        design=settings.initial_design * identity,
        inverse=identity / settings.initial_design,
        move=np.zeros(dimension),
        move_sign=np.ones(1),
        hessian=settings.ridge * identity,
        scatter=np.zeros((dimension, dimension)),
        largest_norm=np.zeros(1),
        features=np.zeros((dimension, capacity)),
        outcomes=np.zeros(capacity),
        counts=np.zeros(2, dtype=np.int64),
    )


# --- the logistic function at SIMD speed ---------------------------------------------------------------------------


@replaced_when_compiled
def _bits_as_float(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


@replaced_when_compiled
def _float_as_bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


@intrinsic
def _to_float(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), generate


@intrinsic
def _to_bits(typing_context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


@overload(_bits_as_float, inline="always")
def _compiled_bits_as_float(bits):  # type: ignore[no-untyped-def]
    return lambda bits: _to_float(bits)  # type: ignore[call-arg]


@overload(_float_as_bits, inline="always")
def _compiled_float_as_bits(number):  # type: ignore[no-untyped-def]
    return lambda number: _to_bits(number)  # type: ignore[call-arg]


@options(inline="always")
def exp_of_negative(x: float) -> float:
    """e^x for x ≤ 0 within 2 ulp (0 ≥ x ≥ −700; below, e^−700), written so that compilers turn loops over it into SIMD.

    x = n ln 2 + r with |r| ≤ ½ ln 2; a Taylor polynomial of degree 12 leaves 2e-16; 2ⁿ is built from its bits.
    """
    x = x if x > -700.0 else -700.0
    shifted = x * 1.4426950408889634 + SHIFTER
    n = shifted - SHIFTER
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _bits_as_float(((_float_as_bits(shifted) - _float_as_bits(SHIFTER)) + 1023) << 52)


def logistic(z: float) -> float:
    """μ(z) = 1/(1 + e^{−z}), accurate to a few ulp *relative* to the result at both ends."""
    e = exp_of_negative(-math.fabs(z))
    return (1.0 if z >= 0.0 else e) / (1.0 + e)


# --- passes over the history ---------------------------------------------------------------------------------------


@options(fastmath=SIMD)
def _add_scaled(scale: float, x: Floats, y: Floats) -> None:
    for i in range(y.shape[0]):
        y[i] += scale * x[i]


@options(fastmath=SIMD)
def _dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for i in range(y.shape[0]):
        total += x[i] * y[i]
    return total


@options(fastmath={"contract"})  # not "reassoc": it would cancel the shift that rounds in exp_of_negative
def _residuals(z: Floats, outcomes: Floats, residual: Floats, weight: Floats) -> None:
    """residual = μ(z) − y, weight = μ̇(z)."""
    for i in range(z.shape[0]):
        e = exp_of_negative(-math.fabs(z[i]))
        p = 1.0 / (1.0 + e)
        residual[i] = p * (1.0 if z[i] >= 0.0 else e) - outcomes[i]
        weight[i] = e * p * p


@options(fastmath=SIMD)
def _weighted(weight: Floats, x: Floats, out: Floats) -> None:
    for i in range(out.shape[0]):
        out[i] = weight[i] * x[i]


def gradient(estimate: Logistic, ridge: float, theta: Floats, out: Floats, hessian: Floats, with_hessian: bool) -> None:
    """∇f(θ) into `out`, and ∇²f(θ) into `hessian` if asked for: one pass over the history."""
    d, n = theta.shape[0], estimate.counts[0]
    length = min(n, BLOCK)
    z, residual = np.empty(length), np.empty(length)
    weight, weighted = np.empty(length), np.empty(length)
    for j in range(d):
        out[j] = ridge * theta[j]
    if with_hessian:
        for j in range(d):
            for l in range(d):
                hessian[j, l] = 0.0
            hessian[j, j] = ridge
    for first in range(0, n, BLOCK):
        last = min(n, first + BLOCK)
        z_, residual_ = z[: last - first], residual[: last - first]
        weight_, weighted_ = weight[: last - first], weighted[: last - first]
        fill(z_, 0.0)
        for j in range(d):
            _add_scaled(theta[j], estimate.features[j, first:last], z_)
        _residuals(z_, estimate.outcomes[first:last], residual_, weight_)
        for j in range(d):
            row = estimate.features[j, first:last]
            out[j] += _dot(residual_, row)
            if with_hessian:
                _weighted(weight_, row, weighted_)
                for l in range(j + 1):
                    hessian[j, l] += _dot(weighted_, estimate.features[l, first:last])
    if with_hessian:
        for j in range(d):
            for l in range(j):
                hessian[l, j] = hessian[j, l]


# --- small dense algebra (LAPACK's call overhead is several times the work at these sizes) ---------------------------


def cholesky(matrix: Floats, shift: float, lower: Floats) -> None:
    """lower · lowerᵀ = matrix + shift·I, for a positive definite matrix; only the lower triangle is read or written."""
    d = matrix.shape[0]
    for j in range(d):
        total = matrix[j, j] + shift
        for l in range(j):
            total -= lower[j, l] * lower[j, l]
        lower[j, j] = math.sqrt(max(total, 1e-300))
        for i in range(j + 1, d):
            total = matrix[i, j]
            for l in range(j):
                total -= lower[i, l] * lower[j, l]
            lower[i, j] = total / lower[j, j]


def solve_lower(lower: Floats, right: Floats) -> None:
    """right ← lower⁻¹ right, in place."""
    for i in range(right.shape[0]):
        total = right[i]
        for l in range(i):
            total -= lower[i, l] * right[l]
        right[i] = total / lower[i, i]


def solve_upper(lower: Floats, right: Floats) -> None:
    """right ← lower⁻ᵀ right, in place."""
    d = right.shape[0]
    for i in range(d - 1, -1, -1):
        total = right[i]
        for l in range(i + 1, d):
            total -= lower[l, i] * right[l]
        right[i] = total / lower[i, i]


def fill(x: Floats, value: float) -> None:
    """x[i] ← value. (Loops, because slice assignments cost numba a third of a second of compilation each.)"""
    for i in range(x.shape[0]):
        x[i] = value


def copy_into(x: Floats, source: Floats) -> None:
    """x[i] ← source[i]."""
    for i in range(x.shape[0]):
        x[i] = source[i]


def norm(x: Floats) -> float:
    """Euclidean norm."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    return math.sqrt(total)


# --- the design ------------------------------------------------------------------------------------------------------


def _refresh_inverse(estimate: Logistic) -> None:
    d = estimate.design.shape[0]
    lower = np.zeros((d, d))
    column = np.empty(d)
    cholesky(estimate.design, 0.0, lower)
    for j in range(d):
        fill(column, 0.0)
        column[j] = 1.0
        solve_lower(lower, column)
        solve_upper(lower, column)
        copy_into(estimate.inverse[j], column)


def move_design(estimate: Logistic, features: Floats, sign: float) -> None:
    """V ← V ± φφᵀ (sign +1 when an attempt is assigned, −1 when it expires unanswered), V⁻¹ with it.

    Afterwards, for every ψ, ψᵀV⁻¹ψ has changed by −sign·(ψ·move)²: what a waiting pair's width needs to follow.
    """
    d = features.shape[0]
    product = np.empty(d)
    leverage = 0.0
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += estimate.inverse[i, j] * features[j]
        product[i] = total
        leverage += total * features[i]
    # Taking out what is nearly all that V knows of a direction cancels: then V⁻¹ is computed afresh, and a second move is
    # counted, so that waiting pairs are recomputed too.
    remaining = 1.0 + sign * leverage
    cancels = remaining < 1e-6
    scale = 1.0 / math.sqrt(max(remaining, 1e-6))
    for i in range(d):
        estimate.move[i] = product[i] * scale
    estimate.move_sign[0] = sign
    for i in range(d):
        for j in range(d):
            estimate.design[i, j] += sign * features[i] * features[j]
            estimate.inverse[i, j] -= sign * estimate.move[i] * estimate.move[j]
    estimate.counts[1] += 1
    if cancels:
        estimate.counts[1] += 1
    if cancels or estimate.counts[1] % REFRESH == 0:
        _refresh_inverse(estimate)


# --- the constrained Newton step -------------------------------------------------------------------------------------


def newton_in_ball(
    theta: Floats, gradient_: Floats, hessian: Floats, bound: float, multiplier: float, target: Floats
) -> float:
    """The minimiser of gᵀ(x−θ) + ½(x−θ)ᵀH(x−θ) over ‖x‖ ≤ bound, into `target`; returns its multiplier ν ≥ 0.

    On the boundary x(ν) = (H + νI)⁻¹(Hθ − g) with ‖x(ν)‖ = bound: Newton's method on 1/‖x(ν)‖ (Moré and Sorensen,
    SIAM J. Sci. Stat. Comput. 4, 1983), from the previous multiplier.
    """
    d = theta.shape[0]
    lower = np.zeros((d, d))
    right, q = np.empty(d), np.empty(d)
    for i in range(d):
        total = -gradient_[i]
        for j in range(d):
            total += hessian[i, j] * theta[j]
        right[i] = total
    nu = multiplier
    previous_gap = math.inf
    for _ in range(60):
        cholesky(hessian, nu, lower)
        copy_into(target, right)
        solve_lower(lower, target)
        solve_upper(lower, target)
        length = norm(target)
        if nu == 0.0 and length <= bound:
            return 0.0
        gap = math.fabs(length - bound)
        if gap <= 2e-15 * bound or (gap <= 1e-9 * bound and gap >= previous_gap):  # quadratic until rounding stops it
            break
        previous_gap = gap
        copy_into(q, target)
        solve_lower(lower, q)
        ratio = length / norm(q)
        following = max(0.0, nu + ratio * ratio * (length - bound) / bound)
        if following == nu:
            break
        nu = following
    scale = bound / norm(target)
    for i in range(d):
        target[i] *= scale
    return nu


def stationarity(theta: Floats, gradient_: Floats, bound: float) -> tuple[float, float]:
    """(‖∇f + νθ‖, ν) with the best admissible multiplier: ν = 0 inside the ball, ν ≥ 0 on its boundary."""
    d = theta.shape[0]
    nu = 0.0
    if norm(theta) >= bound * (1.0 - 1e-14):
        inner = 0.0
        for i in range(d):
            inner += theta[i] * gradient_[i]
        nu = max(0.0, -inner / (bound * bound))
    total = 0.0
    for i in range(d):
        total += (gradient_[i] + nu * theta[i]) ** 2
    return math.sqrt(total), nu


def _quadratic(matrix: Floats, x: Floats) -> float:
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            total += x[i] * matrix[i, j] * x[j]
    return total


def refit(settings: Settings, estimate: Logistic) -> None:
    """Move θ̂ to the constrained minimiser, to a certified distance ≤ tolerance. `hessian` must hold ∇²f near θ̂, and
    the last row of the history be the one that θ̂ has not met yet (with no new row it only tightens)."""
    d = estimate.theta.shape[0]
    ridge, bound, tolerance = settings.ridge, settings.bound, settings.tolerance
    theta, hessian = estimate.theta, estimate.hessian
    slope, target, step = np.empty(d), np.empty(d), np.empty(d)
    exact_hessian = d <= CHEAP_HESSIAN
    best = math.inf
    stalled = 0
    for _ in range(MOST_PASSES):
        gradient(estimate, ridge, theta, slope, hessian, exact_hessian)
        residual, nu = stationarity(theta, slope, bound)
        estimate.multiplier[0] = nu
        estimate.certificate[0] = residual / ridge
        if residual <= tolerance * ridge:
            return
        if stalled >= 20:  # rounding is in the way: the certificate says how far we got
            return
        use_hessian = exact_hessian
        if d > CHEAP_HESSIAN:
            if not exact_hessian and residual > 0.1 * best:  # slow: this point deserves its own Hessian
                gradient(estimate, ridge, theta, slope, hessian, True)
                use_hessian = True
            exact_hessian = False
        halved = residual <= 0.5 * best
        best = min(best, residual)
        nu = newton_in_ball(theta, slope, hessian, bound, nu, target)
        for i in range(d):
            step[i] = target[i] - theta[i]
        # Generalised self-concordance (Sun and Tran-Dinh, Math. Program. 178, 2019): a full step descends while
        # max‖φ‖·‖s‖ ≤ 1, a longer one is shortened to log(1+δ)/δ of itself.
        reach = estimate.largest_norm[0] * norm(step)
        if reach > 1.0:
            damping = math.log1p(reach) / reach
            for i in range(d):
                theta[i] += damping * step[i]
            continue
        stalled = 0 if halved else stalled + 1  # only full steps count: shortened ones are slow by design
        if use_hessian:
            # What is left of the gradient at the target: the linear model's own error, and Taylor's remainder.
            linear = 0.0
            for i in range(d):
                total = slope[i] + nu * target[i]
                for j in range(d):
                    total += hessian[i, j] * step[j]
                linear += total * total
            spread = _quadratic(estimate.scatter, step)
            left = math.sqrt(linear) + 0.5 * LARGEST_SECOND_DERIVATIVE * estimate.largest_norm[0] * max(spread, 0.0)
            copy_into(theta, target)
            if left <= tolerance * ridge:
                estimate.multiplier[0] = nu
                estimate.certificate[0] = left / ridge
                return
        else:
            copy_into(theta, target)


def learn(settings: Settings, estimate: Logistic, features: Floats, success: bool) -> None:
    """One more outcome: append it and move θ̂ to the new minimiser. The order of outcomes does not matter."""
    d = features.shape[0]
    theta, hessian = estimate.theta, estimate.hessian
    n = estimate.counts[0]
    outcome = 1.0 if success else 0.0
    z = 0.0
    for j in range(d):
        estimate.features[j, n] = features[j]
        z += features[j] * theta[j]
    estimate.outcomes[n] = outcome
    estimate.counts[0] = n + 1
    estimate.largest_norm[0] = max(estimate.largest_norm[0], norm(features))
    # The old optimum has ∇f = −νθ̂; one new term is added to gradient and Hessian: a Newton step without a pass.
    p = logistic(z)
    weight = p * (1.0 - p)
    slope, target = np.empty(d), np.empty(d)
    for i in range(d):
        slope[i] = (p - outcome) * features[i] - estimate.multiplier[0] * theta[i]
        for j in range(d):
            hessian[i, j] += weight * features[i] * features[j]
            estimate.scatter[i, j] += features[i] * features[j]
    newton_in_ball(theta, slope, hessian, settings.bound, estimate.multiplier[0], target)
    reach = 0.0
    for i in range(d):
        reach += (target[i] - theta[i]) ** 2
    reach = math.sqrt(reach) * estimate.largest_norm[0]
    damping = 1.0 if reach <= 1.0 else math.log1p(reach) / reach
    for i in range(d):
        theta[i] += damping * (target[i] - theta[i])
    refit(settings, estimate)
