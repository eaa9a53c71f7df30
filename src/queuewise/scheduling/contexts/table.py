"""Finite context laws: a table of contexts with weights, on which every constant is exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...fields import digest, require_count, require_positive
from ..systems import (
    ROUNDING,
    Constants,
    Contexts,
    Floats,
    Quantity,
    System,
    least_eigenvalue,
    logistic,
    logit,
)


@dataclass(frozen=True, eq=False)
class FiniteLaw:
    """Contexts drawn from the rows of a table.

    Attributes
    ----------
    features : float64[rows, d, K]
        C-contiguous, server axis last.
    probabilities : float64[rows, K]
    weights : float64[rows]
        Probability of each row; sums to 1.
    max_attempts : int or None
        Failed attempts after which a job is given up; None for never.
    blocks : int
        K where ``phi(x, k)`` vanishes outside the k-th of K equal parts, else 1.
    """

    features: Floats
    probabilities: Floats
    weights: Floats
    max_attempts: int | None = None
    blocks: int = 1

    def __post_init__(self) -> None:
        if self.max_attempts is not None:
            require_count("max_attempts", self.max_attempts)

    @property
    def servers(self) -> int:
        return int(self.features.shape[2])

    @property
    def dimension(self) -> int:
        return int(self.features.shape[1])

    def draw(self, jobs: int, rng: np.random.Generator) -> Contexts:
        cumulative = np.cumsum(self.weights)
        # Divided by the last sum, so that it ends at exactly 1 and a row of weight 0 is never drawn.
        rows = np.searchsorted(cumulative / cumulative[-1], rng.random(jobs), side="right")
        return Contexts(rows.astype(np.int64, copy=False), self.features, self.probabilities)

    def mean_attempts(self) -> float:
        """The mean number of attempts of a job on its best server: ``E[1/p*]``, infinite where some context has no server
        that ever succeeds, or ``E[(1 - (1 - p*)^m) / p*]`` where jobs are given up after m."""
        occurs = self.weights > 0
        return float(self.weights[occurs] @ attempts_needed(self.probabilities[occurs].max(axis=1), self.max_attempts))

    def constants(self) -> Constants:
        occurs = self.weights > 0
        features, probabilities, weights = self.features[occurs], self.probabilities[occurs], self.weights[occurs]
        pairs = features.transpose(0, 2, 1).reshape(-1, self.dimension)
        moment = (pairs * np.repeat(weights / self.servers, self.servers)[:, None]).T @ pairs
        return Constants(
            mean_attempts=Quantity(self.mean_attempts()),
            lowest_best=Quantity(float(probabilities.max(axis=1).min())),
            least_variance=Quantity(float((probabilities * (1.0 - probabilities)).min())),
            largest_norm=Quantity(float(np.linalg.norm(features, axis=1).max())),
            diversity=Quantity(least_eigenvalue(moment)),
        )


def attempts_needed(probabilities: Floats, max_attempts: int | None) -> Floats:
    """The mean of a geometric number of attempts, cut at `max_attempts`: ``sum_{j<m} (1 - p)^j = (1 - (1 - p)^m) / p``."""
    possible = np.where(probabilities > 0, probabilities, 1.0)
    if max_attempts is None:
        return np.where(probabilities > 0, 1.0 / possible, np.inf)
    with np.errstate(divide="ignore"):  # log1p(-1) where an attempt always succeeds
        done = -np.expm1(max_attempts * np.log1p(-possible))
    return np.where(probabilities > 0, done / possible, float(max_attempts))


def table_law(
    features: npt.ArrayLike,
    probabilities: npt.ArrayLike | None = None,
    *,
    arrival_rate: float,
    theta: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    parameter_bound: float | None = None,
    feature_bound: float | None = None,
    suggested_radius: float | None = None,
    suggested_initial_design: float | None = None,
    suggested_ridge: float | None = None,
    max_attempts: int | None = None,
    name: str = "table",
    allow_unstable: bool = False,
) -> System:
    """A system whose contexts come from a finite table.

    Parameters
    ----------
    features : array_like [contexts, servers, dimension]
        ``phi(x, k)`` of every context and server.
    probabilities : array_like [contexts, servers], optional
        True success probability of an attempt. May be left out where `theta` is given.
    arrival_rate : float
        Jobs per round, in (0, 1).
    theta : array_like [dimension], optional
        True parameter. Where it is left out and some parameter reproduces `probabilities` exactly, the system carries
        that one (of least norm); otherwise the truth is not logistic and the system's ``theta`` is None.
    weights : array_like [contexts], optional
        Relative frequencies of the contexts; equal by default.
    parameter_bound : float, optional
        ``S``. By default the norm of the true parameter, or of a ridge-logistic fit where there is none.
    feature_bound : float, optional
        Bound on the norms of the features that the law states; by default the largest norm in the table.
    suggested_radius, suggested_initial_design, suggested_ridge : float, optional
        What the law suggests to policies that are named without these values.
    max_attempts : int, optional
        Failed attempts after which a job is given up and leaves the queue; never by default, as in the papers.
    name : str
        Title in tables and figures.
    allow_unstable : bool
        Accept a system without capacity slack.

    Returns
    -------
    System

    Raises
    ------
    ValueError
        If an array has the wrong shape or a value out of range, or if the system has no capacity slack.

    Examples
    --------
    One kind of job and one server that succeeds in four attempts of five:

    >>> system = table_law([[[1.0]]], [[0.8]], arrival_rate=0.5)
    >>> round(system.slack(), 12)
    0.375
    """
    table = feature_table(features)
    contexts, dimension, servers = table.shape
    parameter = None if theta is None else parameter_vector(theta, dimension)
    if probabilities is None:
        if parameter is None:
            raise ValueError("probabilities or theta must be given: one of them says how likely an attempt succeeds")
        truth = probabilities_at(table, parameter)
    else:
        truth = probability_table(probabilities, (contexts, servers))
        if parameter is None:
            parameter = logistic_parameter(table, truth)
        elif not reproduces(table, truth, parameter):
            raise ValueError("probabilities must equal the logistic function of features times theta, or leave out one")
    law = FiniteLaw(table, truth, weight_vector(weights, contexts), max_attempts)
    return System(
        name=name,
        arrival_rate=arrival_rate,
        law=law,
        theta=parameter,
        parameter_bound=default_parameter_bound(law, parameter) if parameter_bound is None else parameter_bound,
        feature_bound=stated_feature_bound(table, feature_bound),
        suggested_radius=suggested_radius,
        suggested_initial_design=suggested_initial_design,
        suggested_ridge=suggested_ridge,
        allow_unstable=allow_unstable,
        identification={
            "law": "table_law",
            "name": name,
            "arrival_rate": arrival_rate,
            "parameter_bound": parameter_bound,
            "feature_bound": feature_bound,
            "suggested_radius": suggested_radius,
            "suggested_initial_design": suggested_initial_design,
            "suggested_ridge": suggested_ridge,
            **patience(max_attempts),
            "sha256": digest(law.features, law.probabilities, law.weights),
        },
    )


def patience(max_attempts: int | None) -> dict[str, int]:
    """The limit of attempts as part of a system's identity; nothing where there is none, so that folders of results that
    were begun before there were limits go on."""
    return {} if max_attempts is None else {"max_attempts": int(max_attempts)}


def feature_table(features: npt.ArrayLike) -> Floats:
    """Check features [contexts, K, d] and give them as C-contiguous [contexts, d, K]."""
    table = numbers("features", features)
    if table.ndim != 3:
        raise ValueError(f"features must have shape [contexts, servers, dimension], not {list(table.shape)}")
    for axis, word in enumerate(("context", "server", "entry per feature vector")):
        if table.shape[axis] == 0:
            raise ValueError(f"features must hold at least one {word}, but have shape {list(table.shape)}")
    return np.ascontiguousarray(table.transpose(0, 2, 1))


def numbers(field: str, values: npt.ArrayLike) -> Floats:
    """Finite floating-point numbers, or one sentence that names the field."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{field} must be an array of numbers with rows of equal length") from None
    if not np.isfinite(array).all():
        bad = int(np.count_nonzero(~np.isfinite(array)))
        raise ValueError(f"{field} must be finite, but {bad} of {array.size} entries are NaN or infinite")
    return array


def probability_table(values: npt.ArrayLike, shape: tuple[int, int], field: str = "probabilities") -> Floats:
    """Check success probabilities [contexts, K]."""
    table = np.ascontiguousarray(numbers(field, values))
    if table.shape != shape:
        raise ValueError(f"{field} must have shape [contexts, servers] = {list(shape)}, not {list(table.shape)}")
    if table.min() < 0 or table.max() > 1:
        raise ValueError(f"{field} must lie in [0, 1], but range from {table.min():.4g} to {table.max():.4g}")
    return table


def parameter_vector(theta: npt.ArrayLike, dimension: int) -> Floats:
    """Check a parameter [d]."""
    vector = numbers("theta", theta)
    if vector.shape != (dimension,):
        raise ValueError(f"theta must have shape [dimension] = [{dimension}], not {list(vector.shape)}")
    return vector.copy()


def weight_vector(weights: npt.ArrayLike | None, contexts: int) -> Floats:
    """Check relative frequencies [contexts] and scale them to sum 1."""
    if weights is None:
        return np.full(contexts, 1.0 / contexts)
    vector = numbers("weights", weights)
    if vector.shape != (contexts,):
        raise ValueError(f"weights must have shape [contexts] = [{contexts}], not {list(vector.shape)}")
    if vector.min() < 0 or not vector.sum() > 0:
        raise ValueError("weights must be at least 0 and have a positive sum")
    return normalised(vector)


def normalised(weights: Floats) -> Floats:
    """Weights scaled to sum 1; those that do already, up to rounding, are left as they are, so that a law that was written
    down and read back is the same law."""
    total = float(weights.sum())
    if abs(total - 1.0) <= len(weights) * np.finfo(np.float64).eps:
        return weights.copy()
    return np.asarray(weights / total, dtype=np.float64)


def stated_feature_bound(table: Floats, bound: float | None) -> float:
    """The stated norm bound, after checking every row [contexts, d, K] against it; by default the largest norm."""
    largest = float(np.linalg.norm(table, axis=1).max())
    if bound is None:
        # All-zero features are legal (nothing to learn from); a bound must still be positive.
        return largest or 1.0
    require_positive("feature_bound", bound)
    if largest > bound * (1 + ROUNDING):
        raise ValueError(f"features must have norm at most feature_bound={bound:g}, but one has norm {largest:.6g}")
    return float(bound)


def probabilities_at(table: Floats, theta: Floats) -> Floats:
    """``mu(<phi, theta>)`` for features [contexts, d, K]: [contexts, K]."""
    return logistic(np.einsum("rdk,d->rk", table, theta))


def reproduces(table: Floats, probabilities: Floats, theta: Floats) -> bool:
    """Whether the logistic function of features times theta gives the probabilities, up to rounding."""
    return bool(np.abs(probabilities_at(table, theta) - probabilities).max() <= ROUNDING)


def logistic_parameter(table: Floats, probabilities: Floats) -> Floats | None:
    """The parameter of least norm that reproduces the probabilities exactly, or None if the truth is not logistic."""
    if probabilities.min() <= 0 or probabilities.max() >= 1:
        return None
    pairs = table.transpose(0, 2, 1).reshape(-1, table.shape[1])
    theta = np.asarray(np.linalg.lstsq(pairs, logit(probabilities).ravel())[0], dtype=np.float64)
    return theta if reproduces(table, probabilities, theta) else None


def default_parameter_bound(law: FiniteLaw, theta: Floats | None, ridge: float = 1.0) -> float:
    """``S`` where none is given: the norm of the true parameter, or else of a ridge-logistic fit to the table."""
    if theta is None:
        pairs = law.features.transpose(0, 2, 1).reshape(-1, law.dimension)
        weights = np.repeat(law.weights * len(law.weights), law.servers)
        theta = ridge_logistic_fit(pairs, law.probabilities.ravel(), weights, ridge)
    # A true parameter of zero (every attempt is a fair coin) leaves nothing to bound; any ball will do.
    return float(np.linalg.norm(theta)) or 1.0


def ridge_logistic_fit(pairs: Floats, successes: Floats, weights: Floats, ridge: float) -> Floats:
    """Minimise the weighted log-loss plus ``ridge/2 ||theta||^2``.

    Parameters
    ----------
    pairs : float64[n, d]
        Feature vectors.
    successes : float64[n]
        Success fractions in [0, 1].
    weights : float64[n]
        How many observations each entry stands for.
    ridge : float
        Positive, so that the minimiser exists and is unique even for separable data.

    Returns
    -------
    float64[d]
    """

    def loss(theta: Floats) -> float:
        z = pairs @ theta
        return float(weights @ (np.logaddexp(0.0, z) - successes * z) + 0.5 * ridge * theta @ theta)

    def gradient(theta: Floats) -> Floats:
        return np.asarray(pairs.T @ (weights * (logistic(pairs @ theta) - successes)) + ridge * theta)

    def hessian(theta: Floats) -> Floats:
        p = logistic(pairs @ theta)
        return np.asarray((pairs * (weights * p * (1.0 - p))[:, None]).T @ pairs + ridge * np.eye(pairs.shape[1]))

    # Imported where it is used: it takes longer than the rest of the package, and few systems need a fit.
    from scipy.optimize import minimize  # type: ignore[import-untyped,unused-ignore]

    start = np.zeros(pairs.shape[1])
    found = minimize(loss, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-8})
    theta = np.asarray(found.x, dtype=np.float64)
    # One full Newton step from there: it squares the remaining distance and costs one solve.
    return theta - np.linalg.solve(hessian(theta), gradient(theta))
