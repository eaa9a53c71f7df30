"""The context law of the experiments of CQB-eta-2 (Section 5 of that paper): uniform features, rejected to fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...fields import require_choice, require_count, require_positive
from ..systems import (
    Floats,
    System,
    inverse_slope,
    logit,
    require_arrival_rate,
)
from .table import FiniteLaw, probabilities_at

#: Candidates per wanted context after which a parameter counts as one that too few contexts suit.
_PATIENCE = 50
#: What an inverse slope above kappa rejects.
KAPPA_REJECTS = ("parameters", "contexts")
#: Parameters tried before the settings count as impossible in practice.
_MOST_PARAMETERS = 1000


@dataclass(frozen=True, eq=False, kw_only=True)
class UniformSystem(System):
    """The system of :func:`uniform_law`, with what its rejections cost.

    Attributes
    ----------
    parameters_tried : int
        True parameters drawn until one was accepted.
    contexts_tried : int
        Contexts drawn for the accepted parameter until the pool was full.
    """

    parameters_tried: int
    contexts_tried: int

    @property
    def parameter_acceptance(self) -> float:
        """Share of true parameters accepted: one over :attr:`parameters_tried`. Average its inverse over seeds."""
        return 1.0 / self.parameters_tried

    @property
    def context_acceptance(self) -> float:
        """Share of contexts accepted, given the true parameter."""
        pool: int = self.identification["pool"]
        return pool / self.contexts_tried


def uniform_law(
    dimension: int = 10,
    servers: int = 5,
    arrival_rate: float = 0.7,
    slack: float = 0.1,
    kappa: float = 50.0,
    pool: int = 1000,
    seed: int = 0,
    kappa_rejects: Literal["parameters", "contexts"] = "parameters",
) -> UniformSystem:
    """Uniform features and parameter, rejected until slack and curvature are as wanted.

    Every entry of the true parameter and of every feature vector is uniform on [-1, 1]. A context is rejected unless
    its best server succeeds with probability at least ``arrival_rate + slack``; a parameter is rejected unless every
    pair of the pool of accepted contexts has slope at least ``1/kappa`` (or, if `kappa_rejects` says so, each context is
    rejected for itself). Jobs draw their contexts uniformly from that pool, so that every constant of the system is exact.

    Parameters
    ----------
    dimension, servers : int
        Entries of a feature vector, and servers.
    arrival_rate : float
        In (0, 1).
    slack : float
        *Context-wise* slack, ``min p* - arrival_rate`` (what the paper calls epsilon), positive.
    kappa : float
        Largest inverse slope at the true parameter, above 4.
    pool : int
        Number of contexts. With 1000 and the paper's other values, two parameters in three are accepted, and for an
        accepted one a third of the contexts; a larger pool holds rarer logits and so rejects more parameters.
    seed : int
        Draws parameter and pool.
    kappa_rejects : {"parameters", "contexts"}
        Whether one pair with an inverse slope above kappa rejects the parameter, or only its context. Contexts are
        rejected for the parameter at hand, so that hardly any parameter is rejected then, and longer ones occur.

    Returns
    -------
    UniformSystem
        With ``.parameter_acceptance`` and ``.context_acceptance``. Its parameter bound is the norm of the true
        parameter; it suggests ridge 1 and initial design 1. Feature norms are near ``sqrt(dimension / 3)``, above the
        1 that the paper's theory assumes.

    Raises
    ------
    ValueError
        If an argument is out of range or no instance with these values can be found.

    References
    ----------
    CQB-eta-2, Section 5. The paper leaves open how rejection is done; pool and order are this library's choice.
    """
    for field, count, least in (
        ("dimension", dimension, 1),
        ("servers", servers, 1),
        ("pool", pool, 1),
        ("seed", seed, 0),
    ):
        require_count(field, count, least)
    require_arrival_rate(arrival_rate)
    require_positive("slack", slack)
    if not arrival_rate + slack < 1:
        raise ValueError(f"slack must be below 1 - arrival_rate = {1 - arrival_rate:g} (context-wise), not {slack!r}")
    require_positive("kappa", kappa)
    require_choice("kappa_rejects", kappa_rejects, KAPPA_REJECTS)
    least_logit = float(logit(arrival_rate + slack))
    # Best servers sit at this logit or above, so a pair with at least this inverse slope is in every pool.
    unavoidable = inverse_slope(max(least_logit, 0.0))
    if not kappa > unavoidable:
        raise ValueError(
            f"kappa must be above {unavoidable:.4g}, the inverse slope of a server that succeeds with probability "
            f"arrival_rate + slack = {arrival_rate + slack:g}, not {kappa!r}"
        )
    rng = np.random.default_rng(seed)
    most_logit = float(np.arccosh(kappa / 2 - 1))
    parameters_tried, drawn = 0, None
    while drawn is None:
        if parameters_tried == _MOST_PARAMETERS:
            raise ValueError(
                f"slack={slack:g} and kappa={kappa:g} must leave room for an instance: none of {_MOST_PARAMETERS} "
                f"parameters had a pool of {pool} contexts that meets both (lower slack, raise kappa or shrink pool)"
            )
        parameters_tried += 1
        theta = rng.uniform(-1.0, 1.0, dimension)
        drawn = _pool(rng, theta, servers, pool, least_logit, most_logit, one_by_one=kappa_rejects == "contexts")
    features, contexts_tried = drawn
    law = FiniteLaw(features, probabilities_at(features, theta), np.full(pool, 1.0 / pool))
    return UniformSystem(
        name=f"uniform law, d={dimension}, K={servers}",
        arrival_rate=float(arrival_rate),
        law=law,
        theta=theta,
        parameter_bound=float(np.linalg.norm(theta)),
        feature_bound=float(np.sqrt(dimension)),
        suggested_initial_design=1.0,
        suggested_ridge=1.0,
        parameters_tried=parameters_tried,
        contexts_tried=contexts_tried,
        notes=(
            f"pool of {pool} contexts, {100 * pool / contexts_tried:.1f} % of those drawn; "
            f"parameter accepted at try {parameters_tried}",
        ),
        identification={
            "law": "uniform_law",
            "dimension": int(dimension),
            "servers": int(servers),
            "arrival_rate": float(arrival_rate),
            "slack": float(slack),
            "kappa": float(kappa),
            "pool": int(pool),
            "seed": int(seed),
            "kappa_rejects": str(kappa_rejects),
        },
    )


def _pool(
    rng: np.random.Generator,
    theta: Floats,
    servers: int,
    pool: int,
    least_logit: float,
    most_logit: float,
    *,
    one_by_one: bool,
) -> tuple[Floats, int] | None:
    """Accepted contexts [pool, d, K] and how many were drawn for them; None if the parameter is to be rejected.

    A logit beyond `most_logit` rejects its context if `one_by_one`, else the parameter.
    """
    # No logit exceeds the sum of absolute entries: spare the draws for a parameter that no context can suit.
    if np.abs(theta).sum() < least_logit:
        return None
    kept: list[Floats] = []
    found = 0
    for batch in range(_PATIENCE):
        candidates = rng.uniform(-1.0, 1.0, (pool, len(theta), servers))
        logits = np.einsum("rdk,d->rk", candidates, theta)
        accepted = logits.max(axis=1) >= least_logit
        if one_by_one:
            accepted &= np.abs(logits).max(axis=1) <= most_logit
        positions = np.flatnonzero(accepted)[: pool - found]
        if not one_by_one and len(positions) and np.abs(logits[positions]).max() > most_logit:
            return None
        kept.append(candidates[positions])
        found += len(positions)
        if found == pool:
            return np.concatenate(kept), batch * pool + int(positions[-1]) + 1
    return None
