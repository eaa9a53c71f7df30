"""The ball-constrained, ridge-regularised logistic maximum-likelihood estimate, exact after every observation.

    θ̂ = argmin_{‖θ‖ ≤ S}  Σ_i [log(1 + e^{z_i}) − y_i z_i] + (ridge/2)‖θ‖²,   z_i = ⟨φ_i, θ⟩

WISE (8) has ridge = 1, CQB-η-2 (2) ridge = λ₀. The objective is `ridge`-strongly convex, so a point with multiplier
ν ≥ 0 (ν = 0 or ‖θ‖ = S) lies within ‖∇f(θ) + νθ‖/ridge of the constrained minimiser: that number is the
*certificate*, and :func:`fit` works until it is below the tolerance.

What an observation costs. The old optimum and its Hessian, corrected for the one new term, give a Newton step without
looking at the history. One pass over the history at the new point gives the exact gradient and Hessian there, hence a
second Newton step s whose remaining gradient is known without another pass: by Taylor's theorem at most
½ max|μ̈| max‖φ‖ Σ(φ_i·s)², and Σφφᵀ is at hand. One pass is enough once the estimate moves little; early rounds,
whose history is short, take two or three.

Counts. Equal feature vectors make one row of the history, with so many attempts and so many successes: on a law of finitely
many contexts a pass costs the same in round 10⁶ as in round 10⁴, and the estimate is the same.

A schedule. The minimiser may also be found only now and then, whenever det V has grown by a factor since it last was
(`growth`): outcomes are added to the gradient and the Hessian as they come, and the fit starts from there. What widths mean in
between: see :func:`confidence.radius_now`.

Blocks. Where servers share no parameter, θ, the history and every matrix fall apart into one block per server, and an
outcome belongs to one of them. Blocks meet only in the ball's multiplier: inside the ball an outcome moves its own block
and no other, so that the pass sees that server's history alone; on the ball's boundary all move, but the other blocks so
little that Taylor's bound spares them their passes for many rounds. One block is the general case, and the same code.
Matrices are kept as float64[d, b], the diagonal blocks one under the other: rows block·b to block·b + b are a block.

Everything here is plain Python compiled by the engine; the passes alone may reorder sums (SIMD), which is why an
interpreted run agrees with a compiled one to rounding and not to the bit.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._compile import options
from ..growing import Grows
from .bits import bits_as_float, float_as_bits
from .distinct import place

Floats = NDArray[np.float64]

#: max |μ̈| = max |μ(1−μ)(1−2μ)|, reached at μ = (1 ± 1/√3)/2.
LARGEST_SECOND_DERIVATIVE = 1.0 / (6.0 * math.sqrt(3.0))
#: How θ̂ follows the outcomes: the minimiser after each of them, the minimiser on a schedule, mirror descent (one_pass.py).
EXACT, SCHEDULED, ONE_PASS = 0, 1, 2
#: In place of one block: all of them.
ALL = -1
#: Rows of the history that one sweep handles at a time: five arrays of this length stay in the first two caches.
SWEEP = 1024
#: Above this length of a block a Hessian costs many gradients, so it is refreshed only when the steps contract slowly.
CHEAP_HESSIAN = 12
#: Steps and passes over the history after which a refit gives up. Shortened steps are many where logits are in the hundreds.
MOST_STEPS = 40_000
#: The inverse of the design is recomputed from the design after this many rank-one updates.
REFRESH = 256
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # ln 2 in two pieces
SHIFTER = 6755399441055744.0  # 1.5·2⁵²: adding it rounds to an integer, which then sits in the low bits
SIMD = {"reassoc", "contract", "nsz", "arcp"}  # never "nnan", "ninf": they carry meaning


class Logistic(NamedTuple):
    """What the estimator knows: B blocks of length b, d = B·b, room for `c` distinct feature vectors in each.

    theta : float64[d], the estimate · multiplier : float64[1], ν of the ball · certificate : float64[1]
    design : float64[d, b], V = V₀ + Σφφᵀ over assigned attempts · inverse : float64[d, b], V⁻¹
    move : float64[b], V⁻¹φ/√(1 ± φᵀV⁻¹φ) of the last change of V, with sign move_sign : float64[1], in its block
    anchor : float64[d], where each block's history was last passed over · slope : float64[d], ∇f(anchor)
    hessian : float64[d, b], ∇²f at (or near) anchor · scatter : float64[d, b], Σφφᵀ over known outcomes
    largest_norm : float64[1], max ‖φ‖ seen
    log_det : float64[2], what attempts have added to ln det V since the start, and what they had when θ̂ was last fitted
    features : float64[d, c], attempts : float64[B, c], successes : float64[B, c], the history: a block's first
    distinct : int64[B] columns; branch : int64[B, 2, c], how they are found again. Mirror descent keeps none (0 rows)
    counts : int64[4], observations, moves of V, the block of the last move, and attempts taken out of V again
    """

    theta: Floats
    multiplier: Floats
    certificate: Floats
    design: Floats
    inverse: Floats
    move: Floats
    move_sign: Floats
    anchor: Floats
    slope: Floats
    hessian: Floats
    scatter: Floats
    largest_norm: Floats
    log_det: Floats
    features: Annotated[Floats, Grows(axis=1)]
    attempts: Annotated[Floats, Grows(axis=1)]
    successes: Annotated[Floats, Grows(axis=1)]
    branch: Annotated[NDArray[np.int64], Grows(axis=2)]
    distinct: NDArray[np.int64]
    counts: NDArray[np.int64]

    def room(self, attempts: int) -> int:
        """Columns to have before there are more than so many attempts: the unanswered ones may all be new."""
        return int(self.distinct.max() + attempts - self.counts[0] - self.counts[3])


class Settings(NamedTuple):
    """Parameters of the estimate: ridge > 0, ball radius S, scale v₀ of V₀ = v₀·I, tolerance of the certificate, the
    number of blocks, which divides d; the estimator (EXACT, SCHEDULED or ONE_PASS), ln(1 + growth) of det V after which the
    schedule has θ̂ fitted and WISE's log has its next entry, and the step η of mirror descent."""

    ridge: float
    bound: float
    initial_design: float
    tolerance: float
    blocks: int = 1
    estimator: int = EXACT
    log_growth: float = 0.0
    step: float = 1.0


def start(settings: Settings, dimension: int, capacity: int) -> Logistic:
    """The estimator before the first observation: θ̂ = 0, V = V₀."""
    blocks, length = settings.blocks, dimension // settings.blocks
    rows = (0, 0) if settings.estimator == ONE_PASS else (dimension, blocks)
    identity = np.tile(np.eye(length), (blocks, 1))
    return Logistic(
        theta=np.zeros(dimension),
        multiplier=np.zeros(1),
        certificate=np.zeros(1),
        design=settings.initial_design * identity,
        inverse=identity / settings.initial_design,
        move=np.zeros(length),
        move_sign=np.ones(1),
        anchor=np.zeros(dimension),
        slope=np.zeros(dimension),
        hessian=settings.ridge * identity,
        scatter=np.zeros((dimension, length)),
        largest_norm=np.zeros(1),
        log_det=np.zeros(2),
        features=np.zeros((rows[0], capacity)),
        attempts=np.zeros((rows[1], capacity)),
        successes=np.zeros((rows[1], capacity)),
        branch=np.zeros((rows[1], 2, capacity), dtype=np.int64),
        distinct=np.zeros(blocks, dtype=np.int64),
        counts=np.zeros(4, dtype=np.int64),
    )


# --- the logistic function at SIMD speed ---------------------------------------------------------------------------


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
    return p * bits_as_float(((float_as_bits(shifted) - float_as_bits(SHIFTER)) + 1023) << 52)


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
def _residuals(z: Floats, attempts: Floats, successes: Floats, residual: Floats, weight: Floats) -> None:
    """residual = n·μ(z) − s, weight = n·μ̇(z), for n attempts and s successes."""
    for i in range(z.shape[0]):
        e = exp_of_negative(-math.fabs(z[i]))
        p = 1.0 / (1.0 + e)
        share = attempts[i] * p
        residual[i] = share * (1.0 if z[i] >= 0.0 else e) - successes[i]
        weight[i] = e * p * share


@options(fastmath=SIMD)
def _weighted(weight: Floats, x: Floats, out: Floats) -> None:
    for i in range(out.shape[0]):
        out[i] = weight[i] * x[i]


def gradient(
    features: Floats,
    attempts: Floats,
    successes: Floats,
    ridge: float,
    theta: Floats,
    out: Floats,
    hessian: Floats,
    with_hessian: bool,
) -> None:
    """∇f(θ) into `out`, and ∇²f(θ) into `hessian` if asked for, of one block: one pass over its history, the first columns
    of features : float64[b, ≥ n], with attempts and successes : float64[n]."""
    d, n = theta.shape[0], attempts.shape[0]
    length = min(n, SWEEP)
    z, residual = np.empty(length), np.empty(length)
    weight, weighted = np.empty(length), np.empty(length)
    for j in range(d):
        out[j] = ridge * theta[j]
    if with_hessian:
        for j in range(d):
            for l in range(d):
                hessian[j, l] = 0.0
            hessian[j, j] = ridge
    for first in range(0, n, SWEEP):
        last = min(n, first + SWEEP)
        z_, residual_ = z[: last - first], residual[: last - first]
        weight_, weighted_ = weight[: last - first], weighted[: last - first]
        fill(z_, 0.0)
        for j in range(d):
            _add_scaled(theta[j], features[j, first:last], z_)
        _residuals(z_, attempts[first:last], successes[first:last], residual_, weight_)
        for j in range(d):
            row = features[j, first:last]
            out[j] += _dot(residual_, row)
            if with_hessian:
                _weighted(weight_, row, weighted_)
                for l in range(j + 1):
                    hessian[j, l] += _dot(weighted_, features[l, first:last])
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
    d, b = estimate.design.shape
    lower = np.zeros((b, b))
    column = np.empty(b)
    for first in range(0, d, b):
        cholesky(estimate.design[first : first + b], 0.0, lower)
        for j in range(b):
            fill(column, 0.0)
            column[j] = 1.0
            solve_lower(lower, column)
            solve_upper(lower, column)
            copy_into(estimate.inverse[first + j], column)


def move_design(estimate: Logistic, features: Floats, sign: float, block: int = 0) -> None:
    """V ← V ± φφᵀ (sign +1 when an attempt is assigned, −1 when it expires unanswered), V⁻¹ with it. `features` :
    float64[d], nonzero in this block alone.

    Afterwards, for every ψ, ψᵀV⁻¹ψ has changed by −sign·(ψ·move)² (ψ's own block): what a waiting pair's width needs to
    follow.
    """
    d = estimate.move.shape[0]
    first, last = block * d, block * d + d
    design, inverse, move = estimate.design[first:last], estimate.inverse[first:last], estimate.move
    phi = features[first:last]
    product = np.empty(d)
    leverage = 0.0
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += inverse[i, j] * phi[j]
        product[i] = total
        leverage += total * phi[i]
    # Taking out what is nearly all that V knows of a direction cancels: then V⁻¹ is computed afresh, and a second move is
    # counted, so that waiting pairs are recomputed too.
    remaining = 1.0 + sign * leverage
    cancels = remaining < 1e-6
    scale = 1.0 / math.sqrt(max(remaining, 1e-6))
    for i in range(d):
        move[i] = product[i] * scale
    estimate.move_sign[0] = sign
    for i in range(d):
        for j in range(d):
            design[i, j] += sign * phi[i] * phi[j]
            inverse[i, j] -= sign * move[i] * move[j]
    estimate.counts[1] += 1
    estimate.counts[2] = block
    if sign > 0.0:
        estimate.log_det[0] += math.log(remaining)
    else:
        estimate.counts[3] += 1
    if cancels:
        estimate.counts[1] += 1
    if cancels or estimate.counts[1] % REFRESH == 0:
        _refresh_inverse(estimate)


# --- the constrained Newton step -------------------------------------------------------------------------------------


def newton_in_ball(
    anchor: Floats,
    slope: Floats,
    hessian: Floats,
    bound: float,
    multiplier: float,
    moving: NDArray[np.bool_],
    target: Floats,
) -> float:
    """The minimiser of gᵀ(x−a) + ½(x−a)ᵀH(x−a) over ‖x‖ ≤ bound, into `target`; returns its multiplier ν ≥ 0. a is the
    anchor, at which the gradient g (`slope`) was taken.

    On the boundary x(ν) = (H + νI)⁻¹(Ha − g) with ‖x(ν)‖ = bound: Newton's method on 1/‖x(ν)‖ (Moré and Sorensen,
    SIAM J. Sci. Stat. Comput. 4, 1983), from the previous multiplier. While ν = 0 blocks are independent, and only those
    that are `moving` are solved for; the others' part of `target` stays as it is handed in.
    """
    d, b = hessian.shape
    lower = np.zeros((d, b))
    right, q = np.empty(d), np.empty(d)
    nu = multiplier
    everything = nu > 0.0
    for i in range(d):
        total = -slope[i]
        for j in range(b):
            total += hessian[i, j] * anchor[i - i % b + j]
        right[i] = total
    previous_gap = math.inf
    for _ in range(60):
        for block in range(moving.shape[0]):
            if everything or moving[block]:
                first, last = block * b, block * b + b
                factor, x = lower[first:last], target[first:last]
                copy_into(x, right[first:last])
                cholesky(hessian[first:last], nu, factor)
                solve_lower(factor, x)
                solve_upper(factor, x)
        length = norm(target)
        if nu == 0.0 and length <= bound:
            return 0.0
        if not everything and b < d:  # the ball is in the way, and so all blocks are
            everything = True
            continue
        gap = math.fabs(length - bound)
        if gap <= 2e-15 * bound or (gap <= 1e-9 * bound and gap >= previous_gap):  # quadratic until rounding stops it
            break
        previous_gap = gap
        copy_into(q, target)
        for first in range(0, d, b):
            solve_lower(lower[first : first + b], q[first : first + b])
        ratio = length / norm(q)
        following = max(0.0, nu + ratio * ratio * (length - bound) / bound)
        if following == nu:
            break
        nu = following
        everything = True
    scale = bound / norm(target)
    for i in range(d):
        target[i] *= scale
    return nu


def best_multiplier(theta: Floats, gradient_: Floats, bound: float) -> float:
    """The admissible ν that makes ‖∇f + νθ‖ least: 0 inside the ball, ν ≥ 0 on its boundary."""
    if norm(theta) < bound * (1.0 - 1e-14):
        return 0.0
    inner = 0.0
    for i in range(theta.shape[0]):
        inner += theta[i] * gradient_[i]
    return max(0.0, -inner / (bound * bound))


# --- following the outcomes --------------------------------------------------------------------------------------------


def _pass(estimate: Logistic, ridge: float, block: int, with_hessian: bool) -> None:
    """Gradient and Hessian of a block at θ̂, from its history: there is its anchor now."""
    b, n = estimate.hessian.shape[1], estimate.distinct[block]
    first, last = block * b, block * b + b
    theta = estimate.theta[first:last]
    copy_into(estimate.anchor[first:last], theta)
    features, attempts, successes = estimate.features[first:last], estimate.attempts[block], estimate.successes[block]
    slope, hessian = estimate.slope[first:last], estimate.hessian[first:last]
    gradient(features, attempts[:n], successes[:n], ridge, theta, slope, hessian, with_hessian)


def _slope_now(
    theta: Floats, anchor: Floats, slope: Floats, hessian: Floats, scatter: Floats, largest_norm: float, out: Floats
) -> float:
    """One block of ∇f(θ̂) as far as it is known without a pass: g + H(θ̂ − a) from its anchor a, into `out`. Returns what
    the true one is at most away, by Taylor's theorem.

    Where the Hessian is not that of the anchor (long blocks) nothing is known of a block that has moved.
    """
    d = theta.shape[0]
    spread = 0.0
    for i in range(d):
        total, along = slope[i], 0.0
        for j in range(d):
            step = theta[j] - anchor[j]
            total += hessian[i, j] * step
            along += scatter[i, j] * step
        out[i] = total
        spread += along * (theta[i] - anchor[i])
    if d > CHEAP_HESSIAN and spread != 0.0:
        return math.inf
    return 0.5 * LARGEST_SECOND_DERIVATIVE * largest_norm * max(spread, 0.0)


def fit(settings: Settings, estimate: Logistic, block: int) -> None:
    """Move θ̂ to the constrained minimiser, to a certified distance ≤ tolerance. `slope` and `hessian` must be near those at
    the anchor, and `block` be the only one whose history θ̂ has not met wholly yet (or `ALL`).

    Every block answers for its share of the tolerance, so that inside the ball no block waits for another.
    """
    blocks, (d, b) = estimate.distinct.shape[0], estimate.hessian.shape
    ridge, bound = settings.ridge, settings.bound
    share = settings.tolerance * ridge / math.sqrt(blocks)
    theta, anchor, slope, hessian = estimate.theta, estimate.anchor, estimate.slope, estimate.hessian
    scatter, largest_norm = estimate.scatter, estimate.largest_norm[0]
    now, target = np.empty(d), np.empty(d)
    doubts, moving = np.zeros(blocks), np.zeros(blocks, dtype=np.bool_)
    for k in range(blocks):
        if block in (ALL, k):
            doubts[k], moving[k] = math.inf, True
    # A Newton step without a pass.
    copy_into(target, theta)
    newton_in_ball(anchor, slope, hessian, bound, estimate.multiplier[0], moving, target)
    step_towards(theta, target, largest_norm)
    best = math.inf
    stalled = 0
    for _ in range(MOST_STEPS):
        for k in range(blocks):
            first, last = k * b, k * b + b
            if moving[k] and doubts[k] > 0.5 * share:
                _pass(estimate, ridge, k, b <= CHEAP_HESSIAN)
            doubts[k] = _slope_now(
                theta[first:last],
                anchor[first:last],
                slope[first:last],
                hessian[first:last],
                scatter[first:last],
                largest_norm,
                now[first:last],
            )
        nu = best_multiplier(theta, now, bound)
        residual, left = 0.0, 0.0
        settled, due = True, False
        for k in range(blocks):
            square = 0.0
            for i in range(k * b, k * b + b):
                square += (now[i] + nu * theta[i]) ** 2
            at_most = math.sqrt(square) + doubts[k]
            moving[k] = at_most > share
            settled = settled and not moving[k]
            due = due or (moving[k] and doubts[k] > 0.5 * share)
            residual += square
            left += at_most * at_most
        residual = math.sqrt(residual)
        estimate.multiplier[0] = nu
        estimate.certificate[0] = math.sqrt(left) / ridge
        if settled:
            return
        if due:
            continue
        if stalled >= 20:  # rounding is in the way: the certificate says how far we got
            return
        if b > CHEAP_HESSIAN and residual > 0.1 * best:  # slow: this point deserves its own Hessian
            for k in range(blocks):
                if moving[k]:
                    _pass(estimate, ridge, k, True)
        halved = residual <= 0.5 * best
        best = min(best, residual)
        copy_into(target, theta)
        newton_in_ball(anchor, slope, hessian, bound, nu, moving, target)
        if step_towards(theta, target, largest_norm):  # only full steps count: shortened ones are slow by design
            stalled = 0 if halved else stalled + 1


def step_towards(theta: Floats, target: Floats, largest_norm: float) -> bool:
    """θ ← target, or part of the way; says whether it went all the way.

    Generalised self-concordance (Sun and Tran-Dinh, Math. Program. 178, 2019): a full step descends while
    max‖φ‖·‖s‖ ≤ 1, a longer one is shortened to log(1+δ)/δ of itself.
    """
    reach = 0.0
    for i in range(theta.shape[0]):
        reach += (target[i] - theta[i]) ** 2
    reach = math.sqrt(reach) * largest_norm
    if reach <= 1.0:
        copy_into(theta, target)
        return True
    damping = math.log1p(reach) / reach
    for i in range(theta.shape[0]):
        theta[i] += damping * (target[i] - theta[i])
    return False


def has_grown(settings: Settings, log_det: Floats) -> bool:
    """Whether det V has grown by the scheduled factor since it last had; from now on counted afresh."""
    if log_det[0] - log_det[1] < settings.log_growth:
        return False
    log_det[1] = log_det[0]
    return True


@options(inline="always")
def learn(settings: Settings, estimate: Logistic, features: Floats, success: bool, block: int = 0) -> bool:
    """One more outcome, of φ = `features` : float64[d], nonzero in this block alone: put it down and move θ̂ to the new
    minimiser, if that is due; says whether it was. The order of outcomes does not matter."""
    b = estimate.hessian.shape[1]
    first, last = block * b, block * b + b
    phi, theta, anchor = features[first:last], estimate.theta[first:last], estimate.anchor[first:last]
    slope, hessian, scatter = estimate.slope[first:last], estimate.hessian[first:last], estimate.scatter[first:last]
    history, count, outcome = estimate.features[first:last], estimate.distinct[block], 1.0 if success else 0.0
    column = place(history, estimate.branch[block], count, phi, True)
    if column == count:
        copy_into(history[:, column], phi)
        estimate.distinct[block] = count + 1
    estimate.attempts[block, column] += 1.0
    estimate.successes[block, column] += outcome
    estimate.counts[0] += 1
    z = 0.0
    for j in range(b):
        z += phi[j] * theta[j]
    estimate.largest_norm[0] = max(estimate.largest_norm[0], norm(phi))
    # The gradient at θ̂ is known well, and one new term is added to it and to the Hessian.
    p = logistic(z)
    weight = p * (1.0 - p)
    for i in range(b):
        slope[i] += (p - outcome) * phi[i]
        for j in range(b):
            slope[i] += hessian[i, j] * (theta[j] - anchor[j])
    for i in range(b):
        anchor[i] = theta[i]
        for j in range(b):
            hessian[i, j] += weight * phi[i] * phi[j]
            scatter[i, j] += phi[i] * phi[j]
    if settings.estimator == SCHEDULED and not has_grown(settings, estimate.log_det):
        return False
    fit(settings, estimate, block if settings.estimator == EXACT else ALL)
    return True
