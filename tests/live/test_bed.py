"""The test bed itself: that backends are as slow as they are said to be, that the load tool keeps its times, that rules do on
sockets what they do in virtual time."""

from __future__ import annotations

import contextlib
import heapq
import http.client
import json
import random
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the test bed needs queuewise[serve]")
pytest.importorskip("uvloop", reason="the test bed needs queuewise[serve]")

from benchmarks.bed import driver, page
from benchmarks.bed.backends import Backends
from benchmarks.bed.compared import compare
from benchmarks.bed.driver import NoToolError, OpenLoop, closed_loop, tool
from benchmarks.bed.line import Behaviour, Line
from benchmarks.bed.proxy import Ruled, settings, slug
from benchmarks.bed.scenarios import ON_SOCKETS, Scenario, behaviour
from queuewise.live import NoServerError
from tests.live import virtual
from tests.live.virtual import Backend, LeastConnections, play, steady


def wrk_is_here() -> bool:
    try:
        tool()
    except NoToolError:
        return False
    return True


needs_wrk = pytest.mark.skipif(not wrk_is_here(), reason="needs the Debian package wrk")


# --- the queue of a backend -------------------------------------------------------------------------------------------


class Clock:
    """Calls functions at their times, as an event loop does, but late by up to `late`."""

    def __init__(self, late: float) -> None:
        self.now, self.late, self.rng = 0.0, late, random.Random(1)
        self.due: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []

    def at(self, when: float, function: Callable[..., Any], *arguments: Any) -> None:
        heapq.heappush(self.due, (when, len(self.due) + 1000 * int(self.now), function, arguments))

    def run(self, until: float) -> None:
        while self.due and self.due[0][0] <= until:
            when, _, function, arguments = heapq.heappop(self.due)
            self.now = when + self.rng.uniform(0.0, self.late)
            function(*arguments)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("late", [0.0, 0.005])
def test_a_line_serves_as_virtual_time_does_however_late_its_timers(slots: int, late: float) -> None:
    rng = np.random.default_rng(slots)
    times, sizes = np.cumsum(rng.exponential(0.1, 400)), rng.exponential(size=400)
    backend = Backend([(0.0, 12.0 / slots), (15.0, 20.0 / slots)], slots)
    expected = play(LeastConnections([backend], 0), [backend], times, sizes)
    clock = Clock(late)
    line = Line(behaviour(backend), clock.at)
    departures: dict[int, float] = {}
    for job, (now, size) in enumerate(zip(times, sizes, strict=True)):
        clock.run(now)
        line.join(float(size), float(now), lambda _, departs, job=job: departures.setdefault(job, departs))
    clock.run(np.inf)
    found = np.array([departures[job] for job in range(400)]) - times
    if late == 0.0:
        assert found == pytest.approx(expected.sojourn, abs=1e-9)
    else:  # lateness can only tell a job's rate or its slot wrongly, it never adds up
        assert np.abs(found - expected.sojourn).max() < 2.0 * late + 0.1
        assert found.mean() == pytest.approx(expected.sojourn.mean(), rel=0.02)
    assert line.busy == 0 and not line.waiting


def test_slots_that_come_are_used_at_once_and_slots_that_go_serve_to_the_end() -> None:
    clock = Clock(0.0)
    line = Line(Behaviour([(0.0, 1.0)], slots=1), clock.at)
    departures: list[float] = []
    for _ in range(4):
        line.join(1.0, 0.0, lambda _, departs: departures.append(departs))
    assert departures == [1.0]
    line.behaviour.slots = 2
    line.resized(0.5)
    assert departures == [1.0, 1.5]
    line.behaviour.slots = 1
    clock.run(10.0)
    assert departures == [1.0, 1.5, 2.5, 3.5]


@pytest.mark.parametrize(("law", "c2"), [("exponential", 1.0), ("lognormal", 4.0), ("deterministic", 0.0)])
def test_sizes_have_mean_1_and_the_spread_that_is_said(law: str, c2: float) -> None:
    rng, count = random.Random(3), 40_000
    sizes = np.array([Behaviour(law=law).size(rng) for _ in range(count)])
    assert abs(sizes.mean() - 1.0) <= 4.5 * np.sqrt(c2 / count)
    assert sizes.var() == pytest.approx(c2, rel=0.25)


@pytest.mark.parametrize("wrong", [{"rates": []}, {"rates": [(0.0, 0.0)]}, {"law": "uniform"}])
def test_behaviour_that_there_is_not(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Behaviour(**wrong)


# --- backends over HTTP -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bed() -> Iterator[Backends]:
    behaviours = {
        "slow": Behaviour([(0.0, 10.0)], slots=2),
        "echo": Behaviour(),
        "failing": Behaviour(fails=(0.0, np.inf), share=0.5, seed=4),
        "shy": Behaviour(),
    }
    with Backends(behaviours) as backends:
        yield backends


def ask(url: str, **body: Any) -> tuple[int, dict[str, str], bytes, float]:
    """Status, headers, body, seconds."""
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)) as connection:
        begin = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"x-request-id": "mine"})
        answer = connection.getresponse()
        content = answer.read()
        spent = time.perf_counter() - begin
        return answer.status, dict(answer.getheaders()), content, spent


def test_a_request_takes_its_size_over_the_rate(bed: Backends) -> None:
    before = bed.served()["slow"].get("busy_time", 0.0)
    status, headers, content, spent = ask(bed.url["slow"], model="small", size=1.5)
    assert status == 200 and headers["x-request-id"] == "mine"
    assert json.loads(content)["choices"][0]["message"]["role"] == "assistant"
    assert 0.145 < spent < 2.0
    counts = bed.served()["slow"]
    assert counts["busy_time"] - before == pytest.approx(0.15)
    assert counts["inside"] == 0


def test_an_echo_takes_no_time(bed: Backends) -> None:
    assert min(ask(bed.url["echo"])[3] for _ in range(5)) < 0.1


def test_a_stream_is_spread_over_the_service_and_ends_with_done(bed: Backends) -> None:
    with closing(http.client.HTTPConnection(bed.url["slow"].removeprefix("http://"), timeout=10)) as connection:
        begin = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", json.dumps({"stream": True, "size": 4.0}))
        answer = connection.getresponse()
        first = answer.readline()
        early = time.perf_counter() - begin
        lines = [first, *answer.read().splitlines()]
        whole = time.perf_counter() - begin
    assert answer.getheader("content-type") == "text/event-stream"
    assert lines[-2] == b"data: [DONE]" or lines[-1] == b"data: [DONE]"
    assert sum(line.startswith(b"data: {") for line in lines) == 8
    assert early < 0.9 * whole and whole > 0.39


def test_a_share_fails_at_once_as_openai_s_interface_does(bed: Backends) -> None:
    found = [ask(bed.url["failing"]) for _ in range(60)]
    failed = [one for one in found if one[0] == 500]
    assert {one[0] for one in found} == {200, 500}
    assert abs(len(failed) - 30) < 4.5 * np.sqrt(15)
    assert "failing" in json.loads(failed[0][2])["error"]["message"]
    counts = bed.served()["failing"]
    assert counts["failed"] == len(failed) and counts["served"] == 60 - len(failed)


def test_what_is_set_at_run_time(bed: Backends) -> None:
    url = bed.url["shy"]
    bed.set("shy", listens=False)
    with pytest.raises(ConnectionRefusedError):
        ask(url)
    bed.set("shy", listens=True, rates=[[0.0, 10.0]])
    spent = 0.0
    for _ in range(100):
        with contextlib.suppress(ConnectionRefusedError):
            spent = ask(url, size=1.0)[3]
            break
        time.sleep(0.01)
    assert spent > 0.095
    for name, changes in (("shy", {"speed": 1}), ("nobody", {}), ("shy", {"rates": []})):
        with pytest.raises(urllib.error.HTTPError) as refused:
            bed.set(name, **changes)
        refused.value.close()


def test_what_is_to_happen_happens_on_the_clock_of_the_run() -> None:
    behaviours = {
        "drifts": Behaviour([(0.0, 1000.0), (0.5, 5.0)]),
        "refuses": Behaviour(refuses=(0.45, np.inf)),
        "fails": Behaviour(fails=(0.45, np.inf)),
    }
    with Backends(behaviours) as backends:
        zero = backends.start(time.monotonic() + 0.1)
        assert min(ask(backends.url["drifts"], size=1.0)[3] for _ in range(3)) < 0.15
        assert ask(backends.url["refuses"])[0] == ask(backends.url["fails"])[0] == 200
        time.sleep(max(0.0, zero + 0.55 - time.monotonic()))
        assert ask(backends.url["drifts"], size=1.0)[3] > 0.19
        assert ask(backends.url["fails"])[0] == 500
        with pytest.raises(ConnectionRefusedError):
            ask(backends.url["refuses"])


# --- the load tool ----------------------------------------------------------------------------------------------------


def test_where_the_tool_is_missing_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.shutil, "which", lambda name: None)
    with pytest.raises(NoToolError, match="Debian package wrk"):
        tool()


@needs_wrk
def test_every_request_is_sent_at_its_time_with_its_size_though_nothing_is_answered_yet(bed: Backends) -> None:
    rng = np.random.default_rng(0)
    times, sizes = np.sort(rng.uniform(0.0, 0.2, 100)), rng.uniform(0.25, 0.35, 100)
    bed.set("shy", rates=[[0.0, 1.0]], slots=100)
    before = bed.served()["shy"]["busy_time"]
    zero = time.monotonic() + 0.5
    found = OpenLoop(bed.url["shy"], times, sizes, zero, connections=128).wait()
    assert found.ok.all()
    assert np.median(np.abs(found.sent - times)) < 0.05
    assert bed.served()["shy"]["busy_time"] - before == pytest.approx(sizes.sum(), rel=1e-6)
    extra = found.latency - sizes
    assert -0.001 < np.median(extra) < 0.05


@needs_wrk
@pytest.mark.slow
def test_the_loop_is_open() -> None:
    """Nothing is answered for a second, and still everything is sent."""
    with Backends({"a": Behaviour([(0.0, 1.0)], slots=40)}) as backends:
        times = np.linspace(0.0, 0.3, 40)
        found = OpenLoop(backends.url["a"], times, np.ones(40), time.monotonic() + 0.5, connections=64).wait()
        assert found.ok.all()
        assert np.abs(found.sent - times).max() < 0.6
        few = OpenLoop(backends.url["a"], times, np.ones(40), time.monotonic() + 0.5, connections=10).wait()
        assert np.nanmax(few.sent - times) > 0.9  # and where connections are missing, it shows


@needs_wrk
def test_what_never_comes_back_has_no_time(bed: Backends) -> None:
    bed.set("shy", rates=[[0.0, 20.0]], slots=1)
    times = np.zeros(4)
    found = OpenLoop(
        bed.url["shy"], times, np.array([1.0, 1.0, 1000.0, 1.0]), time.monotonic() + 0.5, patience=0.5
    ).wait()
    assert list(found.status) == [200, 200, 0, 0]
    assert np.isnan(found.delay[2:]).all() and found.delay[1] > 0.095


@needs_wrk
def test_the_closed_loop_counts(bed: Backends) -> None:
    before = bed.served()["echo"]["came"]
    found = closed_loop(bed.url["echo"], 2, 1.0)
    assert found["requests"] > 100
    assert sum(found[kind] for kind in ("connect", "read", "write", "status", "timeout")) == 0
    assert abs(bed.served()["echo"]["came"] - before - found["requests"]) <= 2
    assert 0.0 < found["median"] <= found["p99"]


# --- scenarios, and rules on sockets ----------------------------------------------------------------------------------


def test_events_are_fractions_of_a_run() -> None:
    scenario = next(one for one in ON_SOCKETS if one.name.startswith("one slows down"))
    backends = scenario.lasting(90.0)
    assert [since for since, _ in backends[0].rates] == pytest.approx([0.0, 30.0, 60.0])
    assert scenario.stretches(90.0) == pytest.approx(np.array([[0, 30], [30, 60], [60, 90]]))
    learned = scenario.learned(np.array([1.0, 14.0, 16.0, 29.0, 31.0, 50.0, 61.0, 89.0]), 90.0)
    assert list(learned) == [False, False, True, True, False, True, False, True]
    times, sizes = scenario.demand(1000, 1)
    again = scenario.demand(1000, 1)
    assert np.array_equal(times, again[0]) and np.array_equal(sizes, again[1])


def test_every_scenario_can_be_carried_and_has_a_name_of_its_own() -> None:
    assert len({one.name for one in ON_SOCKETS}) == len(ON_SOCKETS)
    for scenario in ON_SOCKETS:
        for since, until in scenario.stretches(1.0):
            now = 0.5 * (since + until)
            up = [one for one in scenario.backends if one.there[0] <= now and not one.failing(now)]
            assert scenario.rate < 0.9 * sum(one.slots * one.rate(now) for one in up)


def test_a_ruled_router_does_as_its_rule_says_and_tells_it_once() -> None:
    backends = [steady(4), steady(1), Backend([(0.0, 9.0)], there=(50.0, np.inf))]
    router = Ruled(["b0", "b1", "b2"], backends, "TrueSed", 0)
    tickets = [router.route() for _ in range(5)]
    assert [ticket.server for ticket in tickets].count("b0") == 4  # one in five is as good at the slow one
    assert router.complete(tickets[0]) and not router.complete(tickets[0])
    assert router.rule.out.sum() == 4  # type: ignore[attr-defined]
    assert router.fail(tickets[1]) and router.cancel(tickets[2])
    assert router.rule.out.sum() == 2  # type: ignore[attr-defined]
    assert router.route(avoid=["b0"]).server == "b1"
    router.add("b2")
    assert router.route().server == "b2"
    with pytest.raises(NoServerError):
        router.route(avoid=["b0", "b1", "b2"])
    assert router.estimates()["b0"]["completions"] == 1


def test_every_rule_has_a_group_of_its_own_in_settings_that_are_good() -> None:
    config = pytest.importorskip("queuewise.live.service.config", reason="needs queuewise[serve]")
    scenario = next(one for one in ON_SOCKETS if one.watched is not None and one.backends[-1].there[0] > 0.0)
    rules = {"known rates": "TrueSed", "router": "optimistic_sed", "round robin": "round_robin"}
    urls = {f"{slug(rule)}.b{i}": f"http://127.0.0.1:{9000 + i}" for rule in rules for i in range(3)}
    found = config.parse(json.dumps(settings(rules, scenario, urls)))
    assert set(found.groups) == {"known-rates", "router", "round-robin"}
    assert found.groups["router"].circuit is not None and found.groups["round-robin"].circuit is None
    assert list(found.groups["router"].backends) == ["b0", "b1"]  # the newcomer comes later


@needs_wrk
@pytest.mark.slow
def test_rules_do_on_sockets_what_they_do_in_virtual_time() -> None:
    run = compare(ON_SOCKETS[0], 10.0, 5)
    for rule in ("known rates", "router", "least connections"):
        assert run.sockets[rule].own_errors == 0
        assert run.sockets[rule].mean() == pytest.approx(run.virtual[rule].mean(), rel=0.35)
    assert run.sockets["round robin"].mean() > 3.0 * run.sockets["router"].mean()


# --- the page ---------------------------------------------------------------------------------------------------------


def test_a_part_of_the_page_is_replaced_and_the_others_stay(tmp_path: Any) -> None:
    there = tmp_path / "live.md"
    page.put("sockets", "## On sockets\n\none", there)
    page.put("virtual time", page.table(["a", "b"], [["1", "2"]]), there)
    page.put("sockets", "## On sockets\n\ntwo", there)
    text = there.read_text()
    assert text.count("<!-- sockets -->") == 1 and "two" in text and "one\n" not in text
    assert text.index("<!-- virtual time -->") < text.index("<!-- sockets -->")
    assert "| a | b |\n| --- | --- |\n| 1 | 2 |\n" in text
    with pytest.raises(ValueError, match="part"):
        page.put("rumours", "", there)


def test_true_sed_knows_who_fails() -> None:
    backends = [steady(1), Backend([(0.0, 50.0)], fails=(1.0, 2.0))]
    rule = virtual.TrueSed(backends, 0)
    assert [rule.choose(now, [0, 1])[0] for now in (0.5, 1.5, 2.5)] == [1, 0, 1]
    assert isinstance(Scenario("x", tuple(backends), 1.0).lasting(2.0)[1], Backend)
