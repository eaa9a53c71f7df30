"""What the LASED paper proves about numbers, as functions: numbers in, numbers out, each with its equation.

======================= ================================================================================================
:mod:`~.ratios`         (2), (3), Lemmas 1 and 11: which decisions a wrong ratio changes
:mod:`~.servers`        two servers under SED(r): (7), (20)–(23), θ_r, (30), (31), ℓ_r
:mod:`~.drift`          (16), (17), Lemmas 2 and 3: the potential, its drift, the time until C_r
:mod:`~.excursions`     Lemmas 5 to 8: how far a busy period goes and how long it lasts
:mod:`~.learning`       Lemmas 9, 10, 12 to 14, (38), (39), Theorem 1: what is learned, and what not knowing costs
:mod:`~.solved`         the same quantities solved and not bounded
:mod:`~.applicable`     all of it for one system, with the assumptions that it meets
======================= ================================================================================================

What the paper's text lacks and is chosen or deduced here is derived in ``docs/theory-lased.md``. An assumption that is not
met raises a ValueError which names it and its value.
"""

from .applicable import bounds
from .drift import (
    Moments,
    drift_bound,
    entrance_time,
    generator,
    in_core,
    potential,
    potential_drift,
)
from .excursions import (
    LogMoments,
    log_busy_period,
    log_hitting_bound,
    log_leaving_time,
    log_overflow_bound,
    log_return_time,
    telling_queue,
)
from .learning import (
    LogRegret,
    exploration_threshold,
    first_explored_episode,
    first_settled_episode,
    least_depth,
    log_arrivals,
    log_both_serve,
    log_both_serve_floor,
    log_deviation_bound,
    log_episode_overflow_bound,
    log_exploration_bound,
    log_misestimation_bound,
    log_regret_bound,
)
from .ratios import disagreement, ratio_gap, ratio_gap_floor, ratio_gaps, safe_queue
from .servers import Pair, pair
from .solved import log_overflow

__all__ = [
    "LogMoments",
    "LogRegret",
    "Moments",
    "Pair",
    "bounds",
    "disagreement",
    "drift_bound",
    "entrance_time",
    "exploration_threshold",
    "first_explored_episode",
    "first_settled_episode",
    "generator",
    "in_core",
    "least_depth",
    "log_arrivals",
    "log_both_serve",
    "log_both_serve_floor",
    "log_busy_period",
    "log_deviation_bound",
    "log_episode_overflow_bound",
    "log_exploration_bound",
    "log_hitting_bound",
    "log_leaving_time",
    "log_misestimation_bound",
    "log_overflow",
    "log_overflow_bound",
    "log_regret_bound",
    "log_return_time",
    "pair",
    "potential",
    "potential_drift",
    "ratio_gap",
    "ratio_gap_floor",
    "ratio_gaps",
    "safe_queue",
    "telling_queue",
]
