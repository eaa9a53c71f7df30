"""The context law of WISE's Figure 1 (Appendix F of that paper)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...fields import require_count, require_number, require_positive
from ..systems import (
    Constants,
    Contexts,
    Floats,
    Quantity,
    System,
    least_eigenvalue,
    logit,
    require_arrival_rate,
)

#: The low intervals that the paper states, by the probability q of a slow job.
PAPER_LOW_INTERVALS = {0.15: (0.57, 0.59), 0.5: (0.54, 0.58)}


#: Jobs whose numbers are drawn at a time, so that a long run needs no memory beyond its own.
_JOBS_AT_ONCE = 32_768


@dataclass(frozen=True, eq=False)
class _PairLaw:
    """K independent pairs per job: a success probability from two grids, and a direction from a fixed list.

    A pair's probability is one of the midpoints of the low interval (together: `low_share`) or of the high one. Both
    grids lie side by side in `points`, ascending.
    """

    servers: int
    low_share: float
    points: Floats  # [2 m], ascending: low midpoints, then high ones
    along: Floats  # [2 m], component of phi along the parameter
    across: Floats  # [2 m], component orthogonal to it
    axis: Floats  # [d], unit vector of the parameter
    directions: Floats  # [directions, d], unit vectors orthogonal to it

    @property
    def dimension(self) -> int:
        return len(self.axis)

    def draw(self, jobs: int, rng: np.random.Generator) -> Contexts:
        features = np.empty((jobs, self.dimension, self.servers))
        probabilities = np.empty((jobs, self.servers))
        for first in range(0, jobs, _JOBS_AT_ONCE):
            some = slice(first, min(jobs, first + _JOBS_AT_ONCE))
            self._draw_into(features[some], probabilities[some], rng)
        return Contexts(np.arange(jobs, dtype=np.int64), features, probabilities)

    def _draw_into(self, features: Floats, probabilities: Floats, rng: np.random.Generator) -> None:
        servers, half = self.servers, len(self.points) // 2
        uniforms = rng.random((len(features), 2 * servers))
        level, choice = uniforms[:, :servers], uniforms[:, servers:]
        # One uniform picks the interval and the point in it: below low_share it is a uniform number again once
        # divided by low_share, and above it likewise. The min guards against rounding up to the next point.
        low = level < self.low_share
        scaled = np.where(low, level / (self.low_share or 1.0), (level - self.low_share) / (1.0 - self.low_share))
        index = np.minimum((scaled * half).astype(np.int64), half - 1) + np.where(low, 0, half)
        turn = (choice * len(self.directions)).astype(np.int64)
        drawn = self.directions.T[:, turn] * self.across[index]
        drawn += self.axis[:, None, None] * self.along[index]
        features[:] = drawn.transpose(1, 0, 2)
        probabilities[:] = self.points[index]

    def constants(self) -> Constants:
        half = len(self.points) // 2
        occurs = np.repeat([self.low_share > 0, True], half)
        weight = np.repeat([self.low_share / half, (1.0 - self.low_share) / half], half)
        points, along, across = self.points[occurs], self.along[occurs], self.across[occurs]
        # Servers are independent and alike, so the mean over servers of phi phi^T is one pair's second moment; and a
        # pair's probability and direction are independent.
        mean_direction = self.directions.mean(axis=0)
        mixed = np.outer(self.axis, mean_direction)
        moment = (
            (weight * self.along**2).sum() * np.outer(self.axis, self.axis)
            + (weight * self.along * self.across).sum() * (mixed + mixed.T)
            + (weight * self.across**2).sum() * (self.directions.T @ self.directions) / len(self.directions)
        )
        return Constants(
            mean_attempts=Quantity(_mean_attempts(self.points, self.low_share, self.servers)),
            # Every server may sit at its lowest point at once, and any pair at any point.
            lowest_best=Quantity(float(points[0])),
            least_variance=Quantity(float((points * (1.0 - points)).min())),
            largest_norm=Quantity(float(np.sqrt(along**2 + across**2).max())),
            diversity=Quantity(least_eigenvalue(moment)),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class WiseFigureSystem(System):
    """The system of :func:`wise_figure_law`.

    Attributes
    ----------
    high_center : float
        Centre of the interval of fast pairs, at which the capacity slack is the wanted one.
    low_interval : (float, float) or None
        Interval of slow pairs; None where there are none.
    """

    high_center: float
    low_interval: tuple[float, float] | None


def wise_figure_law(
    q: float,
    slack: float,
    seed: int = 0,
    low_interval: tuple[float, float] | None = None,
    arrival_rate: float = 0.6,
    servers: int = 10,
    dimension: int = 5,
    directions: int = 64,
    points: int = 256,
    high_width: float = 0.02,
    feature_norm: float = 5.0,
    parameter_norm: float = 10.0,
) -> WiseFigureSystem:
    """The two-speed law behind WISE's Figure 1, with a given share of slow jobs and a given capacity slack.

    Every (job, server) pair draws its success probability from the low interval with probability ``q**(1/K)`` and
    from the high one otherwise, uniformly over midpoints of equal cells, so that a job's best server is slower than
    jobs arrive with probability q. The centre of the high interval is the one at which
    ``arrival_rate * E[1/p*] = 1 - slack``, with the expectation exact on the discrete law. Features have norm
    `feature_norm` and reproduce the probability exactly: a component along the true parameter sets the logit, the
    rest points to one of a few fixed directions orthogonal to it. `seed` draws the parameter and those directions.

    Parameters
    ----------
    q : float
        Share of jobs whose best server is slower than `arrival_rate`, in [0, 1).
    slack : float
        Capacity slack, in (0, 1).
    seed : int
        Draws the true parameter's direction and the fixed directions.
    low_interval : (float, float), optional
        Interval of slow pairs, below `arrival_rate`. The paper gives it for q = 0.15 and q = 0.5; for q = 0 it plays
        no part; any other q requires it.
    arrival_rate, servers, dimension, directions, points, high_width, feature_norm, parameter_norm
        The paper's values by default (`points` is the number of midpoints per interval).

    Returns
    -------
    WiseFigureSystem
        With ``.high_center``; it suggests the paper's radius 100, initial design 5 and ridge 1.

    Raises
    ------
    ValueError
        If an argument is out of range or no high interval gives the wanted slack.

    References
    ----------
    WISE, Appendix F.

    Examples
    --------
    >>> system = wise_figure_law(q=0.15, slack=0.05)
    >>> round(system.slack(), 12), round(float(system.max_feature_norm()), 12)
    (0.05, 5.0)
    """
    require_number("q", q)
    if not 0 <= q < 1:
        raise ValueError(f"q must be at least 0 and below 1 (share of slow jobs), not {q!r}")
    require_number("slack", slack)
    if not 0 < slack < 1:
        raise ValueError(f"slack must lie strictly between 0 and 1 (capacity slack), not {slack!r}")
    require_arrival_rate(arrival_rate)
    for field, count, least in (
        ("seed", seed, 0),
        ("servers", servers, 1),
        ("dimension", dimension, 2),
        ("directions", directions, 1),
        ("points", points, 1),
    ):
        require_count(field, count, least)
    for field, number in (
        ("high_width", high_width),
        ("feature_norm", feature_norm),
        ("parameter_norm", parameter_norm),
    ):
        require_positive(field, number)
    low = _low_interval(q, low_interval, arrival_rate)
    center = _high_center(q, slack, low, arrival_rate, servers, points, high_width)

    grid = np.concatenate([_midpoints(*low, points), _midpoints(*_around(center, high_width), points)])
    along = logit(grid) / parameter_norm
    if np.abs(along).max() > feature_norm:
        raise ValueError(
            f"feature_norm must be at least {np.abs(along).max():.4g} for these probabilities, not {feature_norm!r}"
        )
    rng = np.random.default_rng(seed)
    axis = rng.standard_normal(dimension)
    axis /= np.linalg.norm(axis)
    others = rng.standard_normal((directions, dimension))
    others -= np.outer(others @ axis, axis)
    # A second pass removes what rounding leaves of the parameter's direction.
    others -= np.outer(others @ axis, axis)
    others /= np.linalg.norm(others, axis=1, keepdims=True)

    return WiseFigureSystem(
        name=f"WISE figure law, q={q:g}, slack={slack:g}",
        arrival_rate=float(arrival_rate),
        law=_PairLaw(
            servers=servers,
            low_share=float(q) ** (1.0 / servers) if q > 0 else 0.0,
            points=grid,
            along=along,
            across=np.sqrt(feature_norm**2 - along**2),
            axis=axis,
            directions=others,
        ),
        theta=parameter_norm * axis,
        parameter_bound=float(parameter_norm),
        feature_bound=float(feature_norm),
        suggested_radius=100.0,
        suggested_initial_design=5.0,
        suggested_ridge=1.0,
        high_center=center,
        low_interval=low if q > 0 else None,
        notes=(f"fast pairs succeed with probability {center:.6f} ± {high_width / 2:g}",),
        identification={
            "law": "wise_figure_law",
            "q": float(q),
            "slack": float(slack),
            "seed": int(seed),
            "low_interval": list(low) if q > 0 else None,
            "arrival_rate": float(arrival_rate),
            "servers": int(servers),
            "dimension": int(dimension),
            "directions": int(directions),
            "points": int(points),
            "high_width": float(high_width),
            "feature_norm": float(feature_norm),
            "parameter_norm": float(parameter_norm),
        },
    )


def _low_interval(q: float, given: tuple[float, float] | None, arrival_rate: float) -> tuple[float, float]:
    """The interval of slow pairs; an arbitrary one where q = 0, as no pair ever falls into it."""
    if q == 0:
        return 0.25 * arrival_rate, 0.5 * arrival_rate
    interval = PAPER_LOW_INTERVALS.get(q) if given is None else given
    if interval is None:
        raise ValueError(f"low_interval must be given for q={q:g}; the paper states one for q=0.15 and q=0.5 only")
    try:
        low, high = interval
    except (TypeError, ValueError):
        raise ValueError(f"low_interval must be a pair (low end, high end), not {interval!r}") from None
    require_number("low_interval", low)
    require_number("low_interval", high)
    if not 0 <= low < high <= arrival_rate:
        raise ValueError(
            f"low_interval must satisfy 0 <= low end < high end <= arrival_rate={arrival_rate:g}, not {interval!r}"
        )
    return float(low), float(high)


@lru_cache(maxsize=256)
def _high_center(
    q: float, slack: float, low: tuple[float, float], arrival_rate: float, servers: int, points: int, width: float
) -> float:
    """Bisect for the centre at which the capacity slack, which grows with the centre, is the wanted one."""
    share = q ** (1.0 / servers) if q > 0 else 0.0
    low_points = _midpoints(*low, points)

    def capacity_slack(center: float) -> float:
        grid = np.concatenate([low_points, _midpoints(*_around(center, width), points)])
        return 1.0 - arrival_rate * _mean_attempts(grid, share, servers)

    least, most = arrival_rate + width / 2, 1.0 - width / 2
    if not least < most:
        raise ValueError(f"high_width must be below 1 - arrival_rate = {1 - arrival_rate:g}, not {width!r}")
    smallest, largest = capacity_slack(least), capacity_slack(most)
    if not smallest <= slack <= largest:
        raise ValueError(
            f"slack={slack:g} cannot be reached with q={q:g}: a high interval of width {width:g} between "
            f"arrival_rate={arrival_rate:g} and 1 gives a slack from {max(smallest, 0.0):.4f} to {largest:.4f}"
        )
    return _bisect(lambda center: capacity_slack(center) - slack, least, most)


def _bisect(increasing: Callable[[float], float], low: float, high: float) -> float:
    """The root of an increasing function to the last bit: halve until no number lies between the ends."""
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return low if abs(increasing(low)) <= abs(increasing(high)) else high
        if increasing(middle) < 0:
            low = middle
        else:
            high = middle


def _mean_attempts(points: Floats, low_share: float, servers: int) -> float:
    """``E[1 / max of K]`` for K independent draws from the two grids; `points` ascends, so the maximum's law is F^K."""
    half = len(points) // 2
    steps = np.arange(1, half + 1) / half
    distribution = np.concatenate([low_share * steps, low_share + (1.0 - low_share) * steps]) ** servers
    distribution[-1] = 1.0
    return float(np.diff(distribution, prepend=0.0) @ (1.0 / points))


def _midpoints(low: float, high: float, count: int) -> Floats:
    """Midpoints of `count` cells of equal width."""
    return low + (high - low) * (np.arange(count) + 0.5) / count


def _around(center: float, width: float) -> tuple[float, float]:
    return center - width / 2, center + width / 2
