"""Scheduling: slotted time, one queue of jobs with features, K servers; choose whom to serve where.

The model of WISE and CQB-η-2: a *system* (arrivals, contexts, success probabilities), *policies* that choose a waiting
job and a server and learn from the outcome, an *oracle* that knows the probabilities, and *queue length regret*, the
expected excess over the oracle's queue, all on common random numbers.
"""

from . import exact, policies, presets, theory
from .checks import check_policy
from .contexts import from_outcomes, function_law, table_law, uniform_law, wise_figure_law
from .contexts import hard as hard_instances
from .coupling import attribute
from .digits import digits_system
from .policies.acqb import acqb
from .policies.cqb_epsilon import cqb_epsilon
from .policies.cqb_eta_2 import cqb_eta_2
from .policies.cqb_opt import cqb_opt
from .policies.fifo_random import fifo_random
from .policies.oracle import oracle
from .policies.q_ths import q_ths
from .policies.q_ucb import q_ucb
from .policies.random import random
from .policies.wise import wise
from .policy import Policy, Shape, Ticket, Waiting
from .recorded import read_outcomes
from .simulate import simulate
from .systems import Family, System, family

__all__ = [
    "Family",
    "Policy",
    "Shape",
    "System",
    "Ticket",
    "Waiting",
    "acqb",
    "attribute",
    "check_policy",
    "cqb_epsilon",
    "cqb_eta_2",
    "cqb_opt",
    "digits_system",
    "exact",
    "family",
    "fifo_random",
    "from_outcomes",
    "function_law",
    "hard_instances",
    "oracle",
    "policies",
    "presets",
    "q_ths",
    "q_ucb",
    "random",
    "read_outcomes",
    "simulate",
    "table_law",
    "theory",
    "uniform_law",
    "wise",
    "wise_figure_law",
]
