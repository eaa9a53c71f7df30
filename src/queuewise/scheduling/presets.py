"""Lists of policies with the parameters that a paper's experiments state, ready for ``simulate``."""

from __future__ import annotations

from typing import Any

from .policies.acqb import acqb
from .policies.cqb_epsilon import cqb_epsilon
from .policies.cqb_eta_2 import cqb_eta_2
from .policies.cqb_opt import cqb_opt
from .policies.fifo_random import fifo_random
from .policies.q_ths import q_ths
from .policies.q_ucb import q_ucb
from .policies.random import random
from .policies.wise import wise
from .policy import Policy


def wise_figure_1() -> list[Policy]:
    """The eight policies of WISE's Figure 1, under their plain names.

    The contextual ones share one estimator: ridge 1, parameters in a ball of radius 10, a design matrix that starts
    from five times the identity, and the fixed confidence (or sampling) radius 100.

    Returns
    -------
    list of Policy
        ``wise``, ``cqb_opt``, ``cqb_epsilon``, ``cqb_eta_2``, ``acqb``, ``q_ucb``, ``q_ths``, ``random``.

    References
    ----------
    WISE, Section 6 and Appendix F.
    """
    estimator: dict[str, Any] = {"radius": 100.0, "initial_design": 5.0, "ridge": 1.0, "parameter_bound": 10.0}
    return [
        wise(logit_bound=50.0, **estimator),
        cqb_opt(**estimator),
        cqb_epsilon(exploration_rounds=200, **estimator),
        cqb_eta_2(phase_1_end=0.3, phase_2_end=0.7, exploration=0.3, **estimator),
        acqb(samples=5, exploration_scale=1.0, **estimator),
        q_ucb(),
        q_ths(),
        random(),
    ]


def cqb_eta_2_figure_1(
    *,
    radius_scale: float = 0.1,
    kappa: float = 50.0,
    phase_1_end: float = 0.2,
    acqb_exploration_scale: float = 20.0,
    ridge: float = 1.0,
    parameter_bound: float | None = None,
    initial_design: float | None = None,
    delta: float | None = None,
    exploration: float | None = None,
    epsilon_exploration: float | None = None,
    acqb_samples: int = 5,
    acqb_radius_scale: float | None = None,
    ties: str = "earliest",
) -> list[Policy]:
    """The five policies of CQB-eta-2's Figure 1, under their plain names.

    The contextual ones take a tenth of that paper's confidence radius (its equation (3)), with its input kappa = 50.
    What the paper leaves open can be chosen; None is the system's own value, else the paper's rule.

    Parameters
    ----------
    radius_scale, kappa : float
        The radius's factor and its kappa (stated in the paper).
    phase_1_end : float
        Share of the rounds that ``cqb_eta_2`` and ``cqb_epsilon`` explore first, at most 0.3 (stated in the paper).
    acqb_exploration_scale : float
        c_1 of ``acqb`` (stated in the paper).
    ridge : float
        lambda_0.
    parameter_bound : float or None
        S of the ball of parameters and of the radius; None for the system's bound.
    initial_design : float or None
        V_0 is so many times the identity; None for what the system suggests, else the ridge (its Algorithm 1).
    delta : float or None
        Of the radius; None for one over the number of rounds, as in the paper's experiments.
    exploration : float or None
        Share of explored newcomers in the second phase of ``cqb_eta_2``; None for a quarter of the system's context-wise
        slack, which must be positive.
    epsilon_exploration : float or None
        Share of explored newcomers after the first rounds of ``cqb_epsilon``; None for one over the root of the rounds.
    acqb_samples : int
        Draws of ``acqb`` a round.
    acqb_radius_scale : float or None
        The factor of its radius; None for `radius_scale`.
    ties : {"earliest", "random"}
        Of equal indices.

    Returns
    -------
    list of Policy
        ``cqb_eta_2``, ``cqb_epsilon``, ``acqb``, ``random``, ``fifo_random``.

    Raises
    ------
    ValueError
        Once they are used, if an option is out of range.

    References
    ----------
    CQB-eta-2, Section 5.
    """
    estimator: dict[str, Any] = {
        "radius": "cqb_eta_2",
        "radius_scale": radius_scale,
        "kappa": kappa,
        "ridge": ridge,
        "parameter_bound": parameter_bound,
        "initial_design": initial_design,
        "delta": delta,
        "ties": ties,
    }
    sampling = estimator | ({} if acqb_radius_scale is None else {"radius_scale": acqb_radius_scale})
    return [
        cqb_eta_2(phase_1_end=phase_1_end, phase_2_end=0.3, exploration=exploration, **estimator),
        cqb_epsilon(exploration_rounds=phase_1_end, exploration=epsilon_exploration, **estimator),
        acqb(samples=acqb_samples, exploration_scale=acqb_exploration_scale, **sampling),
        random(),
        fifo_random(),
    ]
