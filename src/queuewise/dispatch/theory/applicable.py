"""Everything that LASED's theory says about one system, and where it says nothing, why."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...bounds import Assumption, Bound, all_hold
from ...fields import require_count, require_number, require_positive
from ..systems import Rate, System, exact_rate
from . import excursions, learning
from .drift import entrance_time
from .ratios import ratio_gap, ratio_gap_floor
from .servers import MOST_WIDE, Pair, pair, require_state, stability

#: A c₁ that Theorem 1 allows, as a multiple of the least one, where none is given.
ROOM = 1.01


def _nothing(found: Pair) -> tuple[Assumption, ...]:
    return ()


@dataclass(frozen=True)
class _Line:
    """One quantity: how it is found, what it asks for beyond a stable pair of servers, and what it says."""

    name: str
    source: str
    unit: str
    reads: str
    value: Callable[[Pair], float]
    asks: Callable[[Pair], tuple[Assumption, ...]] = _nothing
    log: bool = False


def bounds(
    system: System,
    *,
    ratio: Rate | None = None,
    queue: int = 50,
    start: Sequence[int] = learning.LEFT,
    episode: int = 10_000,
    depth: float | None = None,
    samples: int = 1_000,
    accuracy: float | None = None,
    rate_bounds: Sequence[Rate] | None = None,
) -> list[Bound]:
    """Every quantity of LASED's theory for one system.

    Parameters
    ----------
    system : any; where it is not one of the paper's (two servers with one slot each and constant rates, Poisson arrivals,
        exponential service, a load below 1) all values are None and the assumptions say why.
    ratio : r of SED(r); None for μ₂/μ₁.
    queue : m, jobs, at least 1 · start : q, two queue lengths · episode : k, at least 1
    depth : c₁ of m(k) = ⌊c₁ ln k⌋; None for a hundredth above the least that Theorem 1 allows.
    samples, accuracy : m, at least 1, and ε of Lemma 12; None for ε = r*/2.
    rate_bounds : (μ_min, μ_max) of Theorem 1; None where they are not known, and then nothing is said about regret.

    Returns
    -------
    list of Bound, in the paper's order.

    Raises
    ------
    ValueError : an argument that is no such number.
    """
    require_count("queue", queue)
    require_count("episode", episode)
    require_count("samples", samples)
    state = require_state("start", start)
    if depth is not None:
        require_positive("depth", depth)
    if accuracy is not None:
        require_number("accuracy", accuracy)
    if ratio is not None:
        exact_rate("ratio", ratio)
    if rate_bounds is not None:
        learning._bounds(rate_bounds)
    common = assumptions(system)
    found = pair(system.rate, system._exact[0], ratio) if all_hold(common) else None

    def deepest(one: Pair) -> float:
        return ROOM * learning.least_depth(one) if depth is None else float(depth)

    lines = _lines(queue, state, episode, deepest, samples, accuracy, rate_bounds)
    return [_evaluate(line, common, found) for line in lines]


def _evaluate(line: _Line, common: tuple[Assumption, ...], found: Pair | None) -> Bound:
    asked = common if found is None else (*common, *line.asks(found))
    value = line.value(found) if found is not None and all_hold(asked) else None
    return Bound(line.name, line.source, value, line.log, line.unit, asked, line.reads)


def assumptions(system: System) -> tuple[Assumption, ...]:
    """What Section 2.1 and (7) ask of a system."""
    if not isinstance(system, System):
        raise ValueError(f"system must be a dispatch.System, not {system!r}")
    process = str(system.arrivals.settings().get("process"))
    law, mean = system.service.name, float(system.service.mean)
    slots, pieces = int(system.slot_counts.max()), len(system.rates)
    total = [rate * int(count) for rate, count in zip(system._exact[-1], system.slot_counts, strict=True)]
    return (
        Assumption("there are two servers", system.servers == 2, str(system.servers), "LASED, Section 2.1"),
        Assumption("every server has one slot", slots == 1, str(slots), "the most that one has"),
        Assumption("rates are constant", pieces == 1, str(pieces), "pieces of their schedule"),
        Assumption("arrivals are Poisson", process == "poisson", process, "LASED, Section 2.1"),
        Assumption(
            "service is exponential of mean size 1", law == "exponential" and mean == 1.0, law, f"mean size {mean:g}"
        ),
        stability(exact_rate("arrival_rate", system.rate), total),
    )


def _lines(
    queue: int,
    state: tuple[int, int],
    episode: int,
    depth: Callable[[Pair], float],
    samples: int,
    accuracy: float | None,
    rate_bounds: Sequence[Rate] | None,
) -> list[_Line]:
    at, m, k = f"({state[0]}, {state[1]})", queue, f"episode {episode:,}"

    def off(one: Pair) -> float:
        return float(one.true_ratio) / 2.0 if accuracy is None else float(accuracy)

    def known(one: Pair) -> tuple[Assumption, ...]:
        if rate_bounds is None:
            reason = "μ_min and μ_max: give rate_bounds"
            return (Assumption("the service rates lie within the known bounds", None, "not given", reason),)
        return (learning.inside(one, rate_bounds),)

    def late(one: Pair) -> tuple[Assumption, ...]:
        return (learning.late(episode, depth(one)),)

    limits = () if rate_bounds is None else tuple(rate_bounds)
    return [
        _Line(
            "gap",
            "LASED (3), Lemma 1",
            "ratio",
            f"r̂ closer to r than this decides as SED(r) while no queue exceeds {m}",
            lambda one: ratio_gap(one.ratio, m),
        ),
        _Line(
            "gap_floor",
            "LASED Lemma 11",
            "ratio",
            f"at most u_r({m}), from the denominator of r alone",
            lambda one: ratio_gap_floor(one.ratio, m),
        ),
        _Line(
            "slack",
            "LASED (20)",
            "jobs per time",
            "δ_min, by which servers outrun arrivals, in the worse direction",
            lambda one: float(one.slack),
        ),
        _Line(
            "pull",
            "LASED (21)",
            "per time",
            "a_r: outside C_r, φ_r falls by at least a_r √φ_r per time (Lemma 2)",
            lambda one: one.pull,
        ),
        _Line(
            "push",
            "LASED (22)",
            "per time",
            "b_r: in C_r, φ_r rises by at most b_r per time (Lemma 2)",
            lambda one: float(one.push),
        ),
        _Line(
            "core",
            "LASED (23)",
            "jobs",
            "κ_r: C_r = {rq₁ + q₂ ≤ κ_r}, where the drift may be upwards",
            lambda one: float(one.core),
        ),
        _Line(
            "entrance_time",
            "LASED Lemma 3",
            "time",
            f"mean time until C_r from {at} is at most this",
            lambda one: entrance_time(one, state).mean,
        ),
        _Line(
            "entrance_time_second",
            "LASED Lemma 3",
            "time²",
            f"second moment of the time until C_r from {at}, at most",
            lambda one: entrance_time(one, state).second,
        ),
        _Line(
            "decay",
            "LASED Lemma 4",
            "",
            "θ_r: exp(θ_r √φ_r) falls in the mean outside C_r (our choice of θ_r)",
            lambda one: one.decay,
        ),
        _Line(
            "log_hitting_bound",
            "LASED Lemma 5",
            "probability",
            f"chance that from {at} a queue exceeds {m} before C_r, at most",
            lambda one: excursions.log_hitting_bound(one, state, m),
            lambda one: excursions.between(one, state, m),
            True,
        ),
        _Line(
            "log_return_chance",
            "LASED (30)",
            "probability",
            "p_r: from C_r, the chance to be empty before leaving it, at least",
            lambda one: one.log_return_chance,
            log=True,
        ),
        _Line(
            "ceiling",
            "LASED (31)",
            "",
            "ξ_r: φ_r on the boundary of C_r is at most this",
            lambda one: one.ceiling,
            _wide,
        ),
        _Line(
            "log_overflow_bound",
            "LASED Lemma 6",
            "probability",
            f"chance that a queue exceeds {m} in a busy period, at most",
            lambda one: excursions.log_overflow_bound(one, m),
            _wide,
            True,
        ),
        _Line(
            "telling_queue",
            "LASED Lemma 6",
            "jobs",
            "the least m at which that bound is below 1",
            lambda one: float(excursions.telling_queue(one)),
            _wide,
        ),
        _Line(
            "span",
            "LASED Lemma 7",
            "time",
            "ℓ_r: C_r is served within it with chance 1/2 if nobody arrives, at least",
            lambda one: one.span,
        ),
        _Line(
            "log_leaving_time",
            "LASED Lemma 7",
            "time",
            "mean time from C_r until empty or outside, at most",
            lambda one: excursions.log_leaving_time(one).log_mean,
            log=True,
        ),
        _Line(
            "log_leaving_time_second",
            "LASED Lemma 7",
            "time²",
            "its second moment, at most",
            lambda one: excursions.log_leaving_time(one).log_second,
            log=True,
        ),
        _Line(
            "log_busy_period",
            "LASED Lemma 8",
            "time",
            "β_r: mean busy period, at most",
            lambda one: excursions.log_busy_period(one).log_mean,
            _wide,
            True,
        ),
        _Line(
            "log_busy_period_second",
            "LASED Lemma 8",
            "time²",
            "γ_r: second moment of the busy period, at most",
            lambda one: excursions.log_busy_period(one).log_second,
            _wide,
            True,
        ),
        _Line(
            "settled_episode",
            "LASED Lemma 9",
            "episodes",
            "k₀: from here on clipping r̂ hides no small error",
            lambda one: float(learning.first_settled_episode(one, limits, depth(one))),
            known,
        ),
        _Line(
            "log_misestimation_bound",
            "LASED Lemma 10",
            "probability",
            f"chance that {k} starts with r̂ off by u(m(k)), at most",
            lambda one: learning.log_misestimation_bound(one.true_ratio, episode, depth(one)),
            late,
            True,
        ),
        _Line(
            "log_deviation_bound",
            "LASED Lemma 12",
            "probability",
            f"chance that r̂ is off by ε with {samples:,} completions of each server, at most",
            lambda one: learning.log_deviation_bound(one.true_ratio, samples, off(one)),
            lambda one: (learning.within(one.true_ratio, off(one)),),
            True,
        ),
        _Line(
            "log_both_serve_floor",
            "LASED Lemma 14",
            "probability",
            "v*: chance that both servers complete a job in an episode, at least (our choice of v*)",
            learning.log_both_serve_floor,
            log=True,
        ),
        _Line(
            "log_exploration_bound",
            "LASED Lemma 13",
            "probability",
            f"chance that {k} explores, at most",
            lambda one: learning.log_exploration_bound(one, episode),
            lambda one: (learning.explored(one, episode),),
            True,
        ),
        _Line(
            "log_episode_overflow_bound",
            "LASED Section 5.3",
            "probability",
            f"chance that a queue exceeds m(k) in {k}, otherwise good, at most",
            lambda one: learning.log_episode_overflow_bound(learning._true(one), episode, depth(one)),
            lambda one: (*late(one), *_wide(one)),
            True,
        ),
        _Line(
            "least_depth",
            "LASED Theorem 1",
            "",
            "2/θ*: c₁ has to be above it for the sum of overflows to converge",
            learning.least_depth,
        ),
        _Line(
            "log_regret_bound",
            "LASED Theorem 1",
            "decisions",
            "mean regret of LASED after any number of arrivals, at most",
            lambda one: learning.log_regret_bound(one, limits, depth(one)).total,
            lambda one: (*known(one), learning.deep(one, depth(one)), *_wide(one)),
            True,
        ),
    ]


def _wide(one: Pair) -> tuple[Assumption, ...]:
    widest = math.floor(one.core / one.ratio)
    return (
        Assumption(
            "C_r can be gone through for ξ_r", widest <= MOST_WIDE, str(widest), f"at most {MOST_WIDE} jobs wide"
        ),
    )
