"""What goes wrong in live routing, in virtual time: each failure as other balancers have it, and the router in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from queuewise.dispatch import System, trace
from queuewise.live import CircuitSettings
from tests.live.virtual import (
    Backend,
    LatencyTimesInFlight,
    LeastConnections,
    LowestLatency,
    Played,
    Polled,
    Random,
    RoundRobin,
    Routed,
    Rule,
    TrueSed,
    compare,
    steady,
)

THREE = [steady(8), steady(4), steady(1)]
GEOMETRIC = [steady(float(rate)) for rate in np.geomspace(1, 10, 64)]


def played(
    backends: list[Backend], rate: float, count: int, seeds: int, *kinds: Any, burst: float = 1.0, **options: Any
) -> dict[str, list[Played]]:
    """Runs of the router, and of other rules, on the same arrivals."""
    rules: dict[str, Callable[[int], Rule]] = {"router": lambda seed: Routed(backends, seed, **options)}
    for kind in kinds:
        rules[kind.__name__] = lambda seed, kind=kind: kind(backends, seed)  # type: ignore[misc]
    found: dict[str, list[Played]] = {name: [] for name in rules}
    for seed in range(seeds):
        for name, one in compare(backends, rules, rate, count, seed, burst=burst).items():
            found[name].append(one)
    return found


def mean(runs: list[Played], since: float = 0.0, until: float = np.inf) -> float:
    """Mean sojourn time over runs."""
    return float(np.mean([run.mean(since, until) for run in runs]))


def share(runs: list[Played], server: int, since: float = 0.0, until: float = np.inf) -> float:
    """Share of the jobs that went to a server."""
    return float(np.mean([run.share(server, since, until) for run in runs]))


def after(runs: list[Played], jobs: int) -> list[float]:
    """Mean sojourn time of the first jobs, per run."""
    return [float(run.sojourn[:jobs].mean()) for run in runs]


# --- failing servers --------------------------------------------------------------------------------------------------


def test_a_server_that_fails_fast_does_not_attract_traffic() -> None:
    backends = [steady(5), steady(5), Backend([(0.0, 5.0)], fails=(60.0, 200.0))]
    found = played(backends, 7.0, 2100, 3, LeastConnections, LatencyTimesInFlight)
    assert share(found["LatencyTimesInFlight"], 2, 60, 200) > 0.95  # it answers at once: the black hole
    assert share(found["LeastConnections"], 2, 60, 200) > 0.4  # it is always idle
    assert share(found["router"], 2, 60, 200) < 0.03  # trials alone
    assert share(found["router"], 2, 240, 300) > 0.2  # and back again


def test_a_server_that_fails_sometimes_gets_less() -> None:
    backends = [steady(5), steady(5), Backend([(0.0, 5.0)], fails=(0.0, np.inf), share=0.3)]
    found = played(backends, 7.0, 2100, 3, LeastConnections)
    assert share(found["LeastConnections"], 2) > 0.35
    assert share(found["router"], 2) < 0.75 * share(found["LeastConnections"], 2)


def test_where_most_servers_fail_the_rest_is_not_drowned() -> None:
    """A fault in front of all: 95 % of what three of four are sent fails for a while. Without the panic rule the fourth gets
    everything, eight times what it can serve."""
    backends = [steady(5)] + [Backend([(0.0, 5.0)], fails=(30.0, 60.0), share=0.95, fail_time=0.1) for _ in range(3)]
    runs = {
        panic: played(backends, 14.0, 1400, 3, circuit=CircuitSettings(panic=panic))["router"] for panic in (0.5, 1.0)
    }
    assert share(runs[1.0], 0, 35, 60) > 0.9
    assert share(runs[0.5], 0, 35, 60) < share(runs[1.0], 0, 35, 60) - 0.1
    assert mean(runs[0.5]) < 0.75 * mean(runs[1.0])


# --- too little known -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["optimistic_sed", "greedy"])
def test_a_server_that_was_unlucky_once_is_tried_again(policy: str) -> None:
    """Twins, but the first requests to one of them take fifty times as long."""
    backends = [steady(5), Backend([(0.0, 0.1), (2.0, 5.0)])]
    found = played(backends, 4.0, 2400, 3, LowestLatency, policy=policy)
    assert share(found["LowestLatency"], 1, 100, 600) < 0.02  # one sample, and never again, or almost
    assert share(found["router"], 1, 100, 600) > 0.2


@pytest.mark.parametrize(("rate", "fair"), [(1.0, 0.02), (8.0, 0.6)])
def test_a_newcomer_is_neither_flooded_nor_left_out(rate: float, fair: float) -> None:
    backends = [steady(4), steady(4), Backend([(0.0, rate)], there=(60.0, np.inf))]
    found = played(backends, 6.0, 1800, 3, TrueSed, LatencyTimesInFlight)
    assert share(found["router"], 2, 100, 300) == pytest.approx(share(found["TrueSed"], 2, 100, 300), abs=0.06)
    if rate == 1.0:
        flood = [int((run.server[(run.arrived >= 60) & (run.arrived < 62)] == 2).sum()) for run in found["router"]]
        assert max(flood) <= 6
        other = [
            int((run.server[(run.arrived >= 60) & (run.arrived < 62)] == 2).sum())
            for run in found["LatencyTimesInFlight"]
        ]
        assert np.mean(other) > 1.5 * np.mean(flood)
    assert share(found["router"], 2, 100, 300) >= 0.8 * fair or rate == 1.0


def test_a_fleet_that_nobody_knows_is_not_judged_by_its_first_answers() -> None:
    """The first of 64 servers to complete anything had short requests. Taken at their word they get all there is."""
    found = played(GEOMETRIC, 200.0, 3000, 3, LeastConnections, LatencyTimesInFlight)
    assert mean(found["LatencyTimesInFlight"]) > 3.0 * mean(found["LeastConnections"])
    for jobs in (100, 1000, 3000):
        assert np.mean(after(found["router"], jobs)) < 1.05 * np.mean(after(found["LeastConnections"], jobs))


def test_exploration_is_capped_and_seen() -> None:
    """LASED as published forces 88 % of its first 10,000 jobs where load is low, in the paper's own instance."""
    system = System(arrival_rate=1.0, service_rates=[5, 10])
    forced = [float((trace(system, "lased", 10_000, seed=seed).reason == 1).mean()) for seed in range(3)]
    assert np.mean(forced) == pytest.approx(0.88, abs=0.02)
    backends = [steady(5), steady(10)]
    uncapped = played(backends, 1.0, 3000, 1, policy="lased", explore_share=1.0, half_life=None)["router"][0]
    capped = played(backends, 1.0, 3000, 1, policy="lased")["router"][0]
    assert uncapped.rule.router.report()["explore_share"] > 0.8
    report = capped.rule.router.report()
    assert report["explore_share"] <= 0.05 + 2 / 3000
    assert report["explorations_over_allowance"] > 1000
    assert capped.mean() < 0.9 * uncapped.mean()


# --- herds and drift --------------------------------------------------------------------------------------------------


def test_no_herd_follows_a_stale_count() -> None:
    backends = [steady(5) for _ in range(6)]
    found = played(backends, 24.0, 2500, 3, Polled, LeastConnections)
    assert mean(found["Polled"]) > 2.0 * mean(found["LeastConnections"])
    assert mean(found["router"]) < 1.1 * mean(found["LeastConnections"])


def test_a_server_that_slows_down_is_unloaded_within_seconds_and_found_again() -> None:
    backends = [Backend([(0.0, 8.0), (120.0, 1.6), (240.0, 8.0)]), steady(4), steady(4)]
    found = played(backends, 7.0, 2800, 4, TrueSed)
    before = share(found["router"], 0, 30, 120)
    assert before > 0.55
    assert share(found["router"], 0, 125, 140) < 0.5 * before
    assert share(found["router"], 0, 140, 240) < share(found["TrueSed"], 0, 140, 240) + 0.08
    assert share(found["router"], 0, 300, 400) > 0.75 * before
    never = played(backends, 7.0, 2800, 4, change_threshold=None, half_life=None)["router"]
    assert share(never, 0, 300, 400) < share(found["router"], 0, 300, 400)
    for run in found["router"]:
        assert run.rule.router.estimates()["s0"]["changes"] >= 1


@pytest.mark.parametrize(("slow", "within"), [(20.0, 10.0), (300.0, 30.0)])
def test_a_server_that_nobody_needs_is_found_again_when_it_recovers(slow: float, within: float) -> None:
    """Another one can do all the work, so nothing but looking tells that the fast one is back; a restart in between too."""
    back = 40.0 + slow
    backends = [Backend([(0.0, 20.0), (40.0, 1.0), (back, 20.0)], slots=4), steady(10, 4)]
    found = played(backends, 20.0, int(20.0 * (back + 70.0)), 3)["router"]
    assert share(found, 0, 20, 40) > 0.95
    assert share(found, 0, 45, back) < 0.1
    assert share(found, 0, back + within, back + 60.0) > 0.8


def test_what_a_slowed_server_was_is_known_after_a_restart() -> None:
    backends = [Backend([(0.0, 20.0), (40.0, 1.0)], slots=4), steady(10, 4)]
    (run,) = played(backends, 20.0, 1600, 1)["router"]
    arrays, kept = run.rule.router.snapshot()
    assert arrays["slowed"][0, 0, 0] > 0.0 and arrays["slowed"][1, 0, 0] == pytest.approx(20.0, rel=0.3)
    anew = Routed(backends, 5)
    anew.router.restore(arrays, kept)
    now = float(run.arrived[-1])
    anew.now = now
    assert anew.router.snapshot()[0]["slowed"][1, 0, 0] == arrays["slowed"][1, 0, 0]


def test_servers_that_do_not_change_are_seldom_found_changed() -> None:
    found = played(THREE, 9.0, 8000, 3)["router"]
    changes = sum(one["changes"] for run in found for one in run.rule.router.estimates().values())
    assert changes <= 3


# --- how long jobs take -----------------------------------------------------------------------------------------------


def test_jobs_take_about_as_long_as_if_all_rates_were_known() -> None:
    found = played(THREE, 9.0, 5000, 4, TrueSed, LeastConnections, RoundRobin, Random)
    half = float(np.mean([run.arrived[2500] for run in found["router"]]))
    assert mean(found["router"], half) < 1.1 * mean(found["TrueSed"], half)
    for jobs in (100, 500, 2000):
        assert np.mean(after(found["router"], jobs)) < 1.05 * np.mean(after(found["LeastConnections"], jobs))
    assert mean(found["RoundRobin"]) > 10.0 * mean(found["router"])
    assert mean(found["Random"]) > 10.0 * mean(found["router"])


LONG: dict[str, tuple[list[Backend], float, float]] = {
    "8:4:1, load 0.3": (THREE, 4.0, 1.0),
    "8:4:1, load 0.7": (THREE, 9.0, 1.0),
    "8:4:1, load 0.9": (THREE, 12.0, 1.0),
    "8:4:1, bursts": (THREE, 8.0, 1.4),
    "equal, load 0.8": ([steady(5)] * 4, 16.0, 1.0),
    "64 servers, load 0.8": (GEOMETRIC, 0.8 * sum(backend.rates[0][1] for backend in GEOMETRIC), 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(LONG))
def test_long_runs_are_within_a_tenth_of_known_rates_and_never_worse_than_least_connections(name: str) -> None:
    backends, rate, burst = LONG[name]
    found = played(backends, rate, 100_000, 20, TrueSed, LeastConnections, burst=burst)
    half = float(np.mean([run.arrived[50_000] for run in found["router"]]))
    late = mean(found["router"], half) / mean(found["TrueSed"], half)
    print(f"\n{name}: {late:.3f} of the delay with true rates after learning")
    assert late < 1.1
    for jobs in (100, 300, 1000, 3000, 10_000, 100_000):
        ours, theirs = np.array(after(found["router"], jobs)), np.array(after(found["LeastConnections"], jobs))
        error = float((ours - 1.05 * theirs).std() / np.sqrt(len(ours)))
        print(f"  first {jobs}: {ours.mean() / theirs.mean():.3f} of least connections")
        assert ours.mean() - 1.05 * theirs.mean() < 4.0 * error
