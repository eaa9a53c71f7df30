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


def cqb_eta_2_figure_1() -> list[Policy]:
    """The five policies of CQB-eta-2's Figure 1, under their plain names.

    The contextual ones take a tenth of that paper's confidence radius (its equation (3)), with its input kappa = 50;
    the ball of parameters, ridge and initial design are those that the system suggests. The share of explored newcomers
    in the second phase of ``cqb_eta_2`` is a quarter of the system's context-wise slack, which must be positive.

    Returns
    -------
    list of Policy
        ``cqb_eta_2``, ``cqb_epsilon``, ``acqb``, ``random``, ``fifo_random``.

    References
    ----------
    CQB-eta-2, Section 5.
    """
    estimator: dict[str, Any] = {"radius": "cqb_eta_2", "radius_scale": 0.1, "kappa": 50.0}
    return [
        cqb_eta_2(phase_1_end=0.2, phase_2_end=0.3, **estimator),
        cqb_epsilon(exploration_rounds=0.2, **estimator),
        acqb(samples=5, exploration_scale=20.0, **estimator),
        random(),
        fifo_random(),
    ]
