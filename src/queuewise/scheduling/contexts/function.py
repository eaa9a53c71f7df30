"""Context laws given as functions; their constants are estimated by sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...fields import plain, require_count, require_positive
from ..systems import (
    ROUNDING,
    Constants,
    Contexts,
    Floats,
    Quantity,
    System,
    least_eigenvalue,
)
from .table import numbers, parameter_vector, probabilities_at, probability_table

DrawContext = Callable[[np.random.Generator, int], Any]
Probability = Callable[[Floats], npt.ArrayLike]

#: Seed of the sample behind the constants: fixed, and apart from every seed a run can have.
_SAMPLE_SEED = np.random.SeedSequence(entropy=0x71756575657769736573616D706C65)


@dataclass(frozen=True, eq=False)
class FunctionLaw:
    """Contexts from a user's function, called on whole blocks of jobs.

    Every block has a generator of its own, seeded from the run's, and the last block is cut to length: so the first
    contexts of a run do not depend on how many jobs arrive, however the function uses its generator.
    """

    draw_context: DrawContext
    probability: Probability | None
    theta: Floats | None
    feature_bound: float
    sample: int
    block: int
    servers: int
    dimension: int

    def draw(self, jobs: int, rng: np.random.Generator) -> Contexts:
        blocks = [self._block(rng) for _ in range(-(-jobs // self.block))]
        features = np.concatenate([np.empty((0, self.dimension, self.servers)), *(block[0] for block in blocks)])
        probabilities = np.concatenate([np.empty((0, self.servers)), *(block[1] for block in blocks)])
        return Contexts(np.arange(jobs, dtype=np.int64), features[:jobs], probabilities[:jobs])

    def _block(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        own = np.random.default_rng(rng.integers(0, 2**63, size=2))
        features, probabilities = _drawn(self.draw_context, own, self.block)
        if features.shape[1:] != (self.dimension, self.servers):
            raise ValueError(
                f"draw_context must return features of shape [n, {self.servers}, {self.dimension}] in every call, not "
                f"{[self.block, features.shape[2], features.shape[1]]}"
            )
        largest = float(np.linalg.norm(features, axis=1).max())
        if largest > self.feature_bound * (1 + ROUNDING):
            raise ValueError(
                f"draw_context must return features of norm at most feature_bound={self.feature_bound:g}, but one has "
                f"norm {largest:.6g}"
            )
        if self.theta is not None:
            return features, probabilities_at(features, self.theta)
        if self.probability is not None:
            probabilities = self.probability(np.ascontiguousarray(features.transpose(0, 2, 1)))
        if probabilities is None:
            raise ValueError("theta or probability must be given, or draw_context return (features, probabilities)")
        return features, probability_table(probabilities, (self.block, self.servers))

    def constants(self) -> Constants:
        # Block by block, to hold no more than one block of features; the second pass sees the same contexts again.
        moment = np.zeros((self.dimension, self.dimension))
        attempts = np.empty(self.sample)
        lowest_best, least_variance, largest_norm = 1.0, 0.25, 0.0
        for jobs, drawn in self._sampled():
            features, probabilities = drawn.features, drawn.probabilities
            best = probabilities.max(axis=1)
            attempts[jobs] = np.divide(1.0, best, out=np.full(len(best), np.inf), where=best > 0)
            lowest_best = min(lowest_best, float(best.min()))
            least_variance = min(least_variance, float((probabilities * (1.0 - probabilities)).min()))
            largest_norm = max(largest_norm, float(np.linalg.norm(features, axis=1).max()))
            pairs = features.transpose(0, 2, 1).reshape(-1, self.dimension)
            moment += pairs.T @ pairs / (self.sample * self.servers)
        # Delta method: to first order the least eigenvalue moves like the quadratic form of its own eigenvector.
        weakest = np.linalg.eigh(moment)[1][:, 0]
        squares = np.empty(self.sample)
        for jobs, drawn in self._sampled():
            squares[jobs] = (np.einsum("rdk,d->rk", drawn.features, weakest) ** 2).mean(axis=1)
        finite = lowest_best > 0
        at_most, at_least = f"at most, from {self.sample} contexts", f"at least, from {self.sample} contexts"
        return Constants(
            mean_attempts=Quantity(float(attempts.mean()), _standard_error(attempts) if finite else math.nan, False),
            lowest_best=Quantity(lowest_best, math.nan, False, at_most),
            least_variance=Quantity(least_variance, math.nan, False, at_most),
            largest_norm=Quantity(largest_norm, math.nan, False, at_least),
            diversity=Quantity(least_eigenvalue(moment), _standard_error(squares), False),
        )

    def _sampled(self) -> Iterator[tuple[slice, Contexts]]:
        """The sample behind the constants, in blocks: the same contexts at every call."""
        rng = np.random.default_rng(_SAMPLE_SEED)
        for start in range(0, self.sample, self.block):
            stop = min(start + self.block, self.sample)
            yield slice(start, stop), self.draw(stop - start, rng)


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def function_law(
    draw_context: DrawContext,
    *,
    arrival_rate: float,
    feature_bound: float,
    theta: npt.ArrayLike | None = None,
    probability: Probability | None = None,
    parameter_bound: float | None = None,
    sample: int = 65_536,
    block: int = 256,
    suggested_radius: float | None = None,
    suggested_initial_design: float | None = None,
    suggested_ridge: float | None = None,
    name: str | None = None,
    allow_unstable: bool = False,
) -> System:
    """A system whose contexts come from a function of the user.

    Parameters
    ----------
    draw_context : callable (numpy.random.Generator, int n) -> array_like [n, servers, dimension]
        Draws the features of n jobs, independent and alike, with the generator it is handed and nothing else. It may
        also return a pair ``(features, probabilities [n, servers])``, for a truth that depends on more than features.
        It is always called for whole blocks, so that a longer run extends a shorter one.
    arrival_rate : float
        Jobs per round, in (0, 1).
    feature_bound : float
        Bound on ``||phi(x, k)||`` that the law states; checked on every draw.
    theta : array_like [dimension], optional
        True parameter of a logistic truth.
    probability : callable float64[n, servers, dimension] -> array_like [n, servers], optional
        True success probabilities of a truth that is not logistic. Exclusive with `theta`.
    parameter_bound : float, optional
        ``S``; the norm of `theta` by default, required without it.
    sample : int
        Jobs sampled (with a fixed seed of their own) for the constants; at least 2.
    block : int
        Jobs per call of `draw_context`.
    suggested_radius, suggested_initial_design, suggested_ridge : float, optional
        What the law suggests to policies that are named without these values.
    name : str, optional
        The function's own name by default. `settings` identify the law by the functions' names, not by their code.
    allow_unstable : bool
        Accept a system without capacity slack.

    Returns
    -------
    System
        Its constants are estimates with standard errors.

    Raises
    ------
    ValueError
        If an argument is out of range, if the function returns wrong shapes, NaN or norms above the bound, or if the
        estimated capacity slack is not positive.

    Examples
    --------
    >>> def draw(rng, n):
    ...     return rng.uniform(-0.5, 0.5, (n, 3, 4))
    >>> system = function_law(draw, theta=[2.0, -1.0, 1.0, 0.5], arrival_rate=0.4, feature_bound=1.0)
    >>> system.servers, system.dimension, system.capacity_slack().exact
    (3, 4, False)
    """
    require_positive("feature_bound", feature_bound)
    require_count("sample", sample, 2)
    require_count("block", block)
    if theta is not None and probability is not None:
        raise ValueError("theta and probability must not both be given: each says how likely an attempt succeeds")
    if theta is None and parameter_bound is None:
        raise ValueError("parameter_bound must be given where theta is not (S, the radius of the parameter ball)")
    trial, _ = _drawn(draw_context, np.random.default_rng(_SAMPLE_SEED), block)
    _, dimension, servers = trial.shape
    parameter = None if theta is None else parameter_vector(theta, dimension)
    if parameter_bound is None:
        parameter_bound = float(np.linalg.norm(parameter if parameter is not None else 0.0)) or 1.0
    law = FunctionLaw(draw_context, probability, parameter, float(feature_bound), sample, block, servers, dimension)
    title = name if name is not None else getattr(draw_context, "__name__", type(draw_context).__name__)
    return System(
        name=title,
        arrival_rate=arrival_rate,
        law=law,
        theta=parameter,
        parameter_bound=parameter_bound,
        feature_bound=float(feature_bound),
        suggested_radius=suggested_radius,
        suggested_initial_design=suggested_initial_design,
        suggested_ridge=suggested_ridge,
        allow_unstable=allow_unstable,
        notes=(f"constants estimated from {sample} sampled contexts",),
        identification={
            "law": "function_law",
            "name": title,
            "draw_context": plain(draw_context),
            "probability": None if probability is None else plain(probability),
            "theta": None if parameter is None else plain(parameter),
            "arrival_rate": float(arrival_rate),
            "feature_bound": float(feature_bound),
            "parameter_bound": float(parameter_bound),
            "sample": int(sample),
            "block": int(block),
            "suggested_radius": suggested_radius,
            "suggested_initial_design": suggested_initial_design,
            "suggested_ridge": suggested_ridge,
        },
    )


def _drawn(draw_context: DrawContext, rng: np.random.Generator, jobs: int) -> tuple[Floats, Any]:
    """Features [n, d, K], checked, and the probabilities that came with them (or None)."""
    result = draw_context(rng, jobs)
    result, probabilities = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    features = numbers("the features that draw_context returns", result)
    if features.ndim != 3 or len(features) != jobs or 0 in features.shape:
        raise ValueError(
            f"draw_context must return features of shape [n, servers, dimension] with n = {jobs}, not "
            f"{list(features.shape)}"
        )
    return np.ascontiguousarray(features.transpose(0, 2, 1)), probabilities
