"""Dispatching: continuous time, parallel queues; route each arrival at once.

The model of LASED: a *system* (arrivals, work, servers), *policies* that choose a server for each arrival and learn rates
from what completes, an *oracle* that knows the rates, and *regret*, the number of decisions against it, on common random
numbers.
"""

from . import arrivals, exact, policies, service, theory
from .checks import check_policy
from .policies.dispatch_bandit import dispatch_bandit
from .policies.esed import esed
from .policies.greedy import greedy
from .policies.jiq import jiq
from .policies.jsq import jsq
from .policies.lased import lased
from .policies.least_loaded import least_loaded
from .policies.optimal import optimal
from .policies.optimistic_sed import optimistic_sed
from .policies.power_of_d import power_of_d
from .policies.random import random
from .policies.round_robin import round_robin
from .policies.sed import sed
from .policies.sed_of_d import sed_of_d
from .policies.sed_ratio import sed_ratio
from .policies.thompson_sed import thompson_sed
from .policies.weighted_random import weighted_random
from .policy import Outcome, Policy, Seen, Shape, Ticket
from .result import Result
from .simulate import simulate, trace
from .systems import System, schedule

__all__ = [
    "Outcome",
    "Policy",
    "Result",
    "Seen",
    "Shape",
    "System",
    "Ticket",
    "arrivals",
    "check_policy",
    "dispatch_bandit",
    "esed",
    "exact",
    "greedy",
    "jiq",
    "jsq",
    "lased",
    "least_loaded",
    "optimal",
    "optimistic_sed",
    "policies",
    "power_of_d",
    "random",
    "round_robin",
    "schedule",
    "sed",
    "sed_of_d",
    "sed_ratio",
    "service",
    "simulate",
    "theory",
    "thompson_sed",
    "trace",
    "weighted_random",
]
