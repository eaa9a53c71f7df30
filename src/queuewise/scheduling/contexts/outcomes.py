"""Systems estimated from recorded outcomes: which server did which job, and how often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...fields import digest, require_choice, require_number, require_positive
from ..systems import (
    Floats,
    Ints,
    System,
)
from .table import (
    FiniteLaw,
    feature_table,
    logistic_parameter,
    normalised,
    numbers,
    patience,
    probabilities_at,
    probability_table,
    ridge_logistic_fit,
    stated_feature_bound,
    weight_vector,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class OutcomesSystem(System):
    """The system of :func:`from_outcomes`.

    Attributes
    ----------
    jobs : int
        Recorded jobs.
    dropped, floored : int
        Jobs that no server ever did and that were left out, or given a least probability.
    kept : int64[rows]
        Index in the record of each row of the law's table (and so of what ``draw().contexts`` counts).
    fitted_theta : float64[d]
        The ridge-logistic fit to the record: what a policy can hope to learn of a truth that is not logistic.
    """

    jobs: int
    dropped: int
    floored: int
    kept: Ints
    fitted_theta: Floats

    def best_single_server(self) -> tuple[int, float]:
        """The server with the largest mean success probability over jobs, and that probability."""
        means = self._table().weights @ self._table().probabilities
        return int(means.argmax()), float(means.max())

    def matched_success(self) -> float:
        """Mean success probability when every job goes to its best server."""
        return float(self._table().weights @ self._table().probabilities.max(axis=1))

    def fitted_success(self) -> float:
        """Mean success probability when every job goes to the server that the ridge-logistic fit thinks best."""
        table = self._table()
        choice = np.einsum("rdk,d->rk", table.features, self.fitted_theta).argmax(axis=1)
        return float(table.weights @ table.probabilities[np.arange(len(choice)), choice])

    def _table(self) -> FiniteLaw:
        assert isinstance(self.law, FiniteLaw)  # from_outcomes builds no other
        return self.law


def from_outcomes(
    features: npt.ArrayLike,
    outcomes: npt.ArrayLike,
    *,
    arrival_rate: float | None = None,
    load: float | None = None,
    shared: bool = False,
    truth: str = "repeat",
    impossible: str = "error",
    floor: float | None = None,
    max_attempts: int | None = None,
    scale: str | None = "unit",
    ridge: float = 1.0,
    weights: npt.ArrayLike | None = None,
    parameter_bound: float | None = None,
    suggested_radius: float | None = None,
    suggested_initial_design: float | None = None,
    suggested_ridge: float | None = None,
    name: str = "recorded outcomes",
    allow_unstable: bool = False,
) -> OutcomesSystem:
    """A system whose jobs and success probabilities come from a record of (job, server) results.

    Parameters
    ----------
    features : array_like [jobs, m], or [jobs, servers, dimension] if `shared`
        What is known of a job before it is served. With per-server parameters (the default) the feature map is
        ``phi(x, k) = e_k (x) (1, features)``, of dimension ``servers * (1 + m)``. With `shared` parameters the record
        brings one feature vector per job and server.
    outcomes : array_like [jobs, servers]
        Success fractions in [0, 1], or single results 0 and 1.
    arrival_rate, load : float
        Exactly one of them: jobs per round, or ``arrival_rate * E[1/p*]``, both in (0, 1).
    shared : bool
        Whether all servers share one parameter.
    truth : {"repeat", "fit"}
        ``"repeat"``: the recorded fraction is the success probability of every attempt. ``"fit"``: the probabilities of
        a ridge-logistic fit to the record, so that the truth is logistic in the features.
    impossible : {"error", "drop", "floor", "attempts"}
        What happens to jobs that no server did (every outcome 0), which would never leave the queue: refuse them with
        their count, leave them out, raise all their probabilities to `floor`, or keep them until they have failed
        `max_attempts` times. It happens before a fit; a fit gives every job a positive probability, so that
        ``"error"`` then refuses nothing.
    floor : float
        In (0, 1]; given if and only if `impossible` is ``"floor"``.
    max_attempts : int, optional
        Failed attempts after which *any* job is given up and leaves the queue; never by default, as in the papers. A
        policy's queue is then also kept short by giving up: look at ``result.given_up`` beside the regret.
    scale : {"unit", None}
        ``"unit"`` divides all feature vectors by one number, the largest norm (as the papers' theory asks for norms of
        at most 1); None takes them as they are.
    ridge : float
        Penalty of the fit, ``ridge/2 ||theta||^2`` added to the log-loss summed over jobs and servers.
    weights : array_like [jobs], optional
        Relative frequencies of the recorded jobs; equal by default.
    parameter_bound : float, optional
        ``S``; the norm of the ridge-logistic fit by default.
    suggested_radius, suggested_initial_design, suggested_ridge : float, optional
        What the law suggests to policies that are named without these values.
    name : str
        Title in tables and figures.
    allow_unstable : bool
        Accept a system without capacity slack.

    Returns
    -------
    OutcomesSystem

    Raises
    ------
    ValueError
        If an array has the wrong shape or a value out of range, if there are impossible jobs and `impossible` is
        ``"error"``, or if the system has no capacity slack.

    Examples
    --------
    >>> system = from_outcomes([[0.0], [1.0]], [[1.0, 0.25], [0.25, 1.0]], load=0.8)
    >>> system.servers, system.dimension, round(system.slack(), 12)
    (2, 4, 0.2)
    """
    require_choice("truth", truth, ("repeat", "fit"))
    require_choice("impossible", impossible, ("error", "drop", "floor", "attempts"))
    if scale is not None:
        require_choice("scale", scale, ("unit",))
    require_positive("ridge", ridge)
    if (impossible == "floor") != (floor is not None):
        raise ValueError("floor must be given if and only if impossible is 'floor'")
    if impossible == "attempts" and max_attempts is None:
        raise ValueError("max_attempts must be given with impossible='attempts' (after how many a job is given up)")
    if floor is not None:
        require_number("floor", floor)
        if not 0 < floor <= 1:
            raise ValueError(f"floor must lie in (0, 1] (a success probability), not {floor!r}")
    table, recorded = _record(features, outcomes, shared)
    jobs = len(table)
    frequency = weight_vector(weights, jobs)

    hopeless = recorded.max(axis=1) == 0
    count = int(np.count_nonzero(hopeless))
    if count and impossible == "error" and truth == "repeat":
        raise ValueError(
            f"outcomes hold {count} of {jobs} jobs that no server ever did, which would never leave the queue; "
            "impossible must be 'drop', 'floor' or 'attempts' to say what becomes of them"
        )
    kept = np.flatnonzero(~hopeless) if impossible == "drop" else np.arange(jobs)
    if len(kept) == 0 or frequency[kept].sum() == 0:
        raise ValueError("outcomes must hold at least one job (of positive weight) that some server did")
    probabilities = recorded[kept]
    if floor is not None:
        probabilities[hopeless] = floor
    table, frequency = np.ascontiguousarray(table[kept]), normalised(frequency[kept])
    if scale == "unit":
        largest = float(np.linalg.norm(table, axis=1).max())
        table = table / (largest or 1.0)

    fitted = _fit(table, probabilities, frequency, ridge, shared)
    if truth == "fit":
        probabilities = probabilities_at(table, fitted)
    law = FiniteLaw(table, probabilities, frequency, max_attempts, 1 if shared else recorded.shape[1])
    best, matched = (frequency @ probabilities).max(), frequency @ probabilities.max(axis=1)
    return OutcomesSystem(
        name=name,
        arrival_rate=_rate(arrival_rate, load, law, allow_unstable),
        law=law,
        theta=fitted if truth == "fit" else logistic_parameter(table, probabilities),
        # A fit of zero (every outcome one half) leaves nothing to bound; any ball will do.
        parameter_bound=(float(np.linalg.norm(fitted)) or 1.0) if parameter_bound is None else parameter_bound,
        feature_bound=1.0 if scale == "unit" else stated_feature_bound(table, None),
        suggested_radius=suggested_radius,
        suggested_initial_design=suggested_initial_design,
        suggested_ridge=suggested_ridge,
        jobs=jobs,
        dropped=count if impossible == "drop" else 0,
        floored=count if impossible == "floor" else 0,
        kept=kept.astype(np.int64),
        fitted_theta=fitted,
        allow_unstable=allow_unstable,
        notes=(
            _fate(jobs, count, impossible, floor, max_attempts),
            f"mean success: best single server {best:.4f}, every job on its best server {matched:.4f}",
        ),
        identification={
            "law": "from_outcomes",
            "name": name,
            "arrival_rate": arrival_rate,
            "load": load,
            "shared": shared,
            "truth": truth,
            "impossible": impossible,
            "floor": floor,
            **patience(max_attempts),
            "scale": scale,
            "ridge": ridge,
            "parameter_bound": parameter_bound,
            "suggested_radius": suggested_radius,
            "suggested_initial_design": suggested_initial_design,
            "suggested_ridge": suggested_ridge,
            # Of the record itself: what is computed from it may differ by rounding from machine to machine.
            "sha256": digest(numbers("features", features), recorded, weight_vector(weights, jobs)),
        },
    )


def _record(features: npt.ArrayLike, outcomes: npt.ArrayLike, shared: bool) -> tuple[Floats, Floats]:
    """The feature table [jobs, d, K] and the outcomes [jobs, K], checked."""
    given = numbers("features", features)
    recorded = numbers("outcomes", outcomes)
    if recorded.ndim != 2 or 0 in recorded.shape:
        raise ValueError(
            f"outcomes must have shape [jobs, servers] with at least one of each, not {list(recorded.shape)}"
        )
    jobs, servers = recorded.shape
    recorded = probability_table(recorded, (jobs, servers), "outcomes").copy()
    if shared:
        table = feature_table(given)
        if table.shape[::2] != (jobs, servers):
            raise ValueError(
                f"features must have shape [jobs, servers, dimension] = [{jobs}, {servers}, ...] with shared=True, not "
                f"{list(given.shape)}"
            )
        return table, recorded
    if given.ndim != 2 or len(given) != jobs:
        raise ValueError(f"features must have shape [jobs, m] with jobs = {jobs}, not {list(given.shape)}")
    own = np.concatenate([np.ones((jobs, 1)), given], axis=1)
    table = np.zeros((jobs, servers, own.shape[1], servers))
    for server in range(servers):
        table[:, server, :, server] = own
    return table.reshape(jobs, servers * own.shape[1], servers), recorded


def _fit(table: Floats, probabilities: Floats, frequency: Floats, ridge: float, shared: bool) -> Floats:
    """Ridge-logistic fit to all pairs, with weights that sum to the number of jobs for each server."""
    jobs, dimension, servers = table.shape
    weights = frequency * jobs
    if shared:
        pairs = table.transpose(0, 2, 1).reshape(-1, dimension)
        return ridge_logistic_fit(pairs, probabilities.ravel(), np.repeat(weights, servers), ridge)
    # Parameters of different servers share no observation, so the fit falls apart into one per server.
    own = dimension // servers
    return np.concatenate(
        [
            ridge_logistic_fit(table[:, k * own : (k + 1) * own, k], probabilities[:, k], weights, ridge)
            for k in range(servers)
        ]
    )


def _fate(jobs: int, count: int, impossible: str, floor: float | None, max_attempts: int | None) -> str:
    """What became of the jobs that no server did, in words."""
    if count == 0:
        return f"{jobs} recorded jobs, each done by some server"
    fate = {
        "error": "kept, with fitted probabilities",
        "drop": "dropped",
        "floor": f"raised to {floor}",
        "attempts": f"given up after {max_attempts} attempts",
    }[impossible]
    return f"{jobs} recorded jobs, {count} of them done by no server ({fate})"


def _rate(arrival_rate: float | None, load: float | None, law: FiniteLaw, allow_unstable: bool) -> float:
    """The arrival rate, given or from the load of best servers."""
    if (arrival_rate is None) == (load is None):
        raise ValueError("arrival_rate or load must be given, and not both")
    if load is None:
        return arrival_rate if arrival_rate is not None else 0.0
    require_positive("load", load)
    if load >= 1 and not allow_unstable:
        raise ValueError(f"load must lie strictly between 0 and 1 (share of rounds that best servers need), not {load}")
    return load / law.mean_attempts()
