"""What the service did lately: samples, percentiles, shares, and that they take no more room than they may."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest

from queuewise.live.router import Ended
from queuewise.live.service import config
from queuewise.live.service.history import COLUMNS, KEPT, SHARED, STEP, TRACED, Delays, History
from queuewise.live.service.service import Service


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def built(text: str, clock: Clock) -> tuple[Service, History]:
    service = Service(config.parse(text))
    for group in service.groups.values():
        group._clock = clock
        group.router = group._new_router(group.config)
    history = History(service)
    history._last = clock.now
    service.listeners = (history.note,)
    return service, history


TWO = "groups: {default: {backends: {a: {url: 'http://a', slots: 2}, b: 'http://b'}}}"


def second(history: History, clock: Clock, seconds: float = 1.0) -> None:
    clock.now += seconds
    history.tick(clock.now)


def last(history: History, group: str = "default") -> dict[str, float | None]:
    found = history.since(group, history.next - 1)
    return {name: found[name][-1] for name in COLUMNS}


def test_a_sample_counts_what_came_and_what_ended_in_its_second() -> None:
    clock = Clock()
    service, history = built(TWO, clock)
    router = service.groups["default"].router
    second(history, clock)
    tickets = [router.route() for _ in range(7)]
    clock.now += 0.25
    for ticket in tickets[:3]:
        router.complete(ticket)
    router.fail(tickets[3])
    router.fail(tickets[4], "timeout")
    router.cancel(tickets[5])
    second(history, clock, 0.75)
    found = last(history)
    assert (found["arrivals"], found["done"], found["failed"], found["given_up"]) == (7, 3, 2, 1)
    assert found["in_flight"] == 1 and found["queue"] == 0 and found["seconds"] == 1.0
    assert found["at"] == pytest.approx(service.wall(clock.now), abs=0.006)
    assert found["mean"] == pytest.approx(0.25)
    assert found["p50"] == pytest.approx(0.25, rel=0.07) and found["p95"] == pytest.approx(0.25, rel=0.07)
    second(history, clock)
    found = last(history)
    assert (found["arrivals"], found["done"], found["failed"], found["given_up"]) == (0, 0, 0, 0)
    assert found["mean"] is None and found["p50"] is None and found["p95"] is None


def test_the_queue_is_what_is_beyond_the_slots() -> None:
    clock = Clock()
    service, history = built(TWO, clock)
    router = service.groups["default"].router
    kept = [router.watch("a") for _ in range(5)] + [router.watch("b")]
    second(history, clock)
    found = last(history)
    assert found["queue"] == 3 and found["in_flight"] == 6 and found["arrivals"] == 6
    assert len(kept) == 6


def test_counts_from_before_a_restart_are_no_arrivals() -> None:
    clock = Clock()
    service, history = built(TWO, clock)
    router = service.groups["default"].router
    for _ in range(50):
        router.complete(router.watch("a"))
    kept = router.snapshot()
    again, history = built(TWO, clock)
    router = again.groups["default"].router
    router.restore(*kept)
    ticket = router.watch("b")
    second(history, clock)
    assert last(history)["arrivals"] == 1
    second(history, clock)
    assert last(history)["arrivals"] == 0
    router.complete(ticket)
    router.complete(router.watch("b"))
    assert history.shares("default", router.estimates()) == {"a": 0.0, "b": 1.0}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_percentiles_of_the_histogram_are_right_to_a_bucket(seed: int) -> None:
    random = np.random.default_rng(seed)
    drawn = random.lognormal(-1.0, 1.5, 5000)
    delays = Delays()
    for delay in drawn:
        delays.add(float(delay))
    assert delays.mean == pytest.approx(drawn.mean())
    for share in (0.05, 0.5, 0.95, 0.99):
        truth = float(np.quantile(drawn, share, method="inverted_cdf"))
        assert 10.0 ** (-1 / 20) <= delays.quantile(share) / truth <= 10.0 ** (1 / 20)


def test_delays_beyond_the_histogram_are_in_its_ends() -> None:
    delays = Delays()
    assert math.isnan(delays.mean) and math.isnan(delays.quantile(0.5))
    delays.add(0.0)
    assert 1e-4 <= delays.quantile(0.5) <= 1.2e-4
    for _ in range(3):
        delays.add(1e9)
    assert 0.8e4 <= delays.quantile(0.9) <= 1e4
    assert sum(delays.counts) == delays.number == 4


def test_samples_are_numbered_and_the_oldest_are_dropped() -> None:
    clock = Clock()
    _, history = built(TWO, clock)
    for _ in range(KEPT + 25):
        second(history, clock)
    everything = history.since("default", 0)
    assert (everything["first"], everything["next"]) == (25, KEPT + 25)
    assert all(len(everything[name]) == KEPT for name in COLUMNS)
    assert np.allclose(np.diff(everything["at"]), 1.0, atol=0.011)
    few = history.since("default", KEPT + 20)
    assert (few["first"], few["next"]) == (KEPT + 20, KEPT + 25)
    assert few["at"] == everything["at"][-5:]
    none = history.since("default", KEPT + 25)
    assert none["at"] == [] and none["first"] == none["next"] == KEPT + 25
    assert history.since("default", 10**9)["at"] == []
    json.dumps(everything, allow_nan=False)


def test_a_group_that_comes_later_begins_later_and_one_that_is_gone_is_forgotten() -> None:
    clock = Clock()
    service, history = built(TWO, clock)
    for _ in range(4):
        second(history, clock)
    both = config.parse("groups: {default: {models: [m], backends: {a: 'http://a'}}, new: {backends: {c: 'http://c'}}}")
    service.reload(both)
    assert history.since("new", 0)["at"] == []
    second(history, clock)
    found = history.since("new", 0)
    assert (found["first"], found["next"], len(found["at"])) == (4, 5, 1)
    service.reload(config.parse("groups: {new: {backends: {c: 'http://c'}}}"))
    history.note("default", Ended(1, "a", "exploit", None, 1.0, 0.0, 1.0, "done", None))
    second(history, clock)
    assert set(history._kept) == set(history._tallies) == {"new"}
    assert history.since("default", 0)["at"] == []
    assert history.shares("default", {"a": {}}) == {"a": None}


def test_shares_are_of_the_last_minute() -> None:
    clock = Clock()
    service, history = built(TWO, clock)
    router = service.groups["default"].router
    assert history.shares("default", router.estimates()) == {"a": None, "b": None}
    second(history, clock)
    assert history.shares("default", router.estimates()) == {"a": None, "b": None}
    for _ in range(3):
        router.complete(router.watch("a"))
    router.complete(router.watch("b"))
    assert history.shares("default", router.estimates()) == {"a": 0.75, "b": 0.25}
    for _ in range(SHARED * STEP + STEP):
        second(history, clock)
    assert history.shares("default", router.estimates()) == {"a": None, "b": None}
    ticket = router.watch("b")
    assert history.shares("default", router.estimates()) == {"a": 0.0, "b": 1.0}
    router.cancel(ticket)
    assert history.shares("default", router.estimates()) == {"a": 0.0, "b": 1.0}


def test_a_backend_that_comes_again_under_its_name_starts_from_nothing() -> None:
    clock = Clock()
    service, history = built(TWO, clock)
    group = service.groups["default"]
    for _ in range(9):
        group.router.complete(group.router.watch("a"))
    second(history, clock)
    backend = group.backends["a"].config
    group.remove("a")
    group.add("a", backend)
    group.router.complete(group.router.watch("a"))
    group.router.complete(group.router.watch("b"))
    assert history.shares("default", group.router.estimates()) == {"a": 0.5, "b": 0.5}


def test_a_trace_has_the_learned_rate_with_its_interval_every_tenth_second() -> None:
    clock = Clock()
    service, history = built(TWO, clock)
    router = service.groups["default"].router
    for _ in range(3 * STEP):
        for name, delay in (("a", 0.25), ("b", 0.5)):
            ticket = router.watch(name)
            clock.now += delay
            router.complete(ticket)
        second(history, clock, 0.25)
    trace = history.trace("default", "b")
    assert len(trace["at"]) == 3 and trace["sent"] == [9.0, 10.0, 10.0]  # one before the first mark
    assert trace["in_flight"] == [0.0, 0.0, 0.0]
    (rates,) = trace["rates"]
    assert rates["rate"][-1] == pytest.approx(2.0, rel=0.1)
    assert all(low < rate < high for low, rate, high in zip(rates["low"], rates["rate"], rates["high"], strict=True))
    json.dumps(trace, allow_nan=False)
    assert history.trace("default", "nobody")["at"] == []
    assert history.trace("nothing", "b")["rates"] == []


def test_traces_have_a_rate_per_class_and_are_bounded() -> None:
    clock = Clock()
    service, history = built(
        "groups: {default: {classes: [short, long], backends: {a: 'http://a', b: 'http://b'}}}", clock
    )
    group = service.groups["default"]
    group.router.complete(group.router.route("long"))
    for _ in range(STEP * (TRACED + 5)):
        second(history, clock)
    trace = history.trace("default", "a")
    assert len(trace["at"]) == TRACED and len(trace["rates"]) == 2
    assert all(len(values) == TRACED for one in trace["rates"] for values in one.values())
    group.remove("a")
    for _ in range(STEP):
        second(history, clock)
    assert history.trace("default", "a")["at"] == []


def test_hearing_of_an_end_and_a_look_at_64_backends_are_quick() -> None:
    """A microsecond and some milliseconds, that is; the limits are for machines that are busy with something else."""
    names = ", ".join(f"b{k}: 'http://b{k}'" for k in range(64))
    clock = Clock()
    service, history = built(f"groups: {{default: {{backends: {{{names}}}}}}}", clock)
    second(history, clock)
    ended = Ended(1, "b1", "exploit", None, 1.0, 0.0, 0.137, "done", None)
    best = min(_seconds(lambda: [history.note("default", ended) for _ in range(1000)]) for _ in range(5)) / 1000
    assert best < 100e-6
    best = min(_seconds(lambda: second(history, clock)) for _ in range(STEP))
    assert best < 100e-3
    assert service.groups["default"].router.report()["decisions"] == 0


def test_a_tick_at_a_time_that_has_been_is_none() -> None:
    clock = Clock()
    _, history = built(TWO, clock)
    second(history, clock)
    history.tick(clock.now)
    history.tick(clock.now - 1.0)
    assert history.next == 1


def _seconds(call: object) -> float:
    began = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - began
