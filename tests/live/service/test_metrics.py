"""What Prometheus reads: by its own parsers, with the names and units that its practice asks for, and with bounded labels."""

from __future__ import annotations

import asyncio
import math
import random
import re
import threading
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from starlette.applications import Starlette

from queuewise._version import VERSION
from queuewise.live.router import Ended
from queuewise.live.service import metrics
from queuewise.live.service.config import parse
from queuewise.live.service.metrics import Metrics
from queuewise.live.service.service import Service
from queuewise.live.tickets import ENDS, WORDS

from .calling import Caller

CONFIG = """
groups:
  chat:
    models: [small, large]
    backends:
      a: {url: "http://127.0.0.1:9001", slots: 2, rate: 5}
      b: "http://127.0.0.1:9002"
  rest:
    classes: [short, long]
    circuit: off
    backends:
      c: "http://127.0.0.1:9003"
"""

#: All that the docs name: name → (type, labels).
FAMILIES = {
    "queuewise_requests": ("counter", {"group", "backend", "model", "code_class"}),
    "queuewise_attempts": ("counter", {"group"}),
    "queuewise_request_duration_seconds": ("histogram", {"group", "backend", "code_class"}),
    "queuewise_time_to_first_byte_seconds": ("histogram", {"group", "backend"}),
    "queuewise_router_overhead_seconds": ("histogram", {"group"}),
    "queuewise_decision_duration_seconds": ("histogram", set()),
    "queuewise_backend_service_rate": ("gauge", {"group", "backend", "class"}),
    "queuewise_backend_service_rate_lower": ("gauge", {"group", "backend", "class"}),
    "queuewise_backend_service_rate_upper": ("gauge", {"group", "backend", "class"}),
    "queuewise_backend_inflight": ("gauge", {"group", "backend"}),
    "queuewise_backend_slots": ("gauge", {"group", "backend"}),
    "queuewise_backend_samples": ("counter", {"group", "backend", "outcome"}),
    "queuewise_backend_explorations": ("counter", {"group", "backend"}),
    "queuewise_backend_circuit_state": ("gauge", {"group", "backend"}),
    "queuewise_backend_state": ("gauge", {"group", "backend", "state"}),
    "queuewise_decisions": ("counter", {"group", "why"}),
    "queuewise_retries": ("counter", {"reason"}),
    "queuewise_retry_budget_remaining": ("gauge", set()),
    "queuewise_shed": ("counter", {"group", "reason"}),
    "queuewise_queue_depth": ("gauge", {"group"}),
    "queuewise_panic": ("gauge", {"group"}),
    "queuewise_override": ("gauge", {"group"}),
    "queuewise_config_reloads": ("counter", {"result"}),
    "queuewise_state_save_failures": ("counter", set()),
    "queuewise_recorded_lost": ("counter", set()),
    "queuewise_build": ("info", {"version"}),
}


def started(config: str = CONFIG) -> tuple[Service, Metrics]:
    service = Service(parse(config))
    found = Metrics(service)
    service.listeners = (found.ended,)
    return service, found


def everything() -> tuple[Service, Metrics]:
    """A service in which something of everything has happened."""
    service, found = started()
    found.retry_budget, found.recorded_lost = (lambda: 12.5), (lambda: 3)
    for k in range(20):
        router = service.groups["chat"].router
        ticket = router.route()
        found.decision(2e-6)
        (router.complete, router.fail, router.cancel)[k % 3](ticket)
        ended = service.groups["rest"].router.route("short")
        service.groups["rest"].router.complete(ended)
    found.request("chat", "a", "small", 200, 0.3, 0.2, 0.001, 1)
    found.request("chat", "b", "no such", 502, 0.3, None, 0.001, 3)
    found.request(None, None, None, 404, 0.001)
    found.retry("timeout")
    found.shed("chat", "wait")
    found.reload(True)
    found.reload(False)
    found.save_failed()
    return service, found


def value(found: Metrics, name: str, **labels: str) -> float | None:
    result: float | None = found.registry.get_sample_value(name, labels)
    return result


def series(found: Metrics) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """All of ours."""
    return {
        (sample.name, frozenset(sample.labels.items()))
        for family in found.registry.collect()
        if family.name.startswith("queuewise")
        for sample in family.samples
    }


def exposed(found: Metrics, accept: str = "") -> tuple[str, str]:
    with Caller(Starlette(routes=[metrics.route(found)])) as call:
        answer = call("GET", "/metrics", headers=[(b"accept", accept.encode())] if accept else [])
    assert answer.status == 200
    return answer.body.decode(), answer.headers["content-type"]


def test_the_families() -> None:
    _, found = everything()
    seen = {family.name: family for family in found.registry.collect()}
    ours = {name for name in seen if name.startswith("queuewise")}
    assert ours == set(FAMILIES)
    for name, (kind, labels) in FAMILIES.items():
        family = seen[name]
        assert family.type == kind, name
        assert family.samples, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels, sample
    assert {"process_cpu_seconds", "process_open_fds"} <= set(seen)


def _lint(family: Metric) -> list[str]:
    """What `promtool check metrics` complains of, and a little more."""
    said = []
    name = family.name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or "__" in name:
        said.append("name")
    if not family.documentation:
        said.append("no help")
    if family.type != "counter" and name.endswith("_total"):
        said.append("a gauge called total")
    if any(name.endswith(end) for end in ("_count", "_sum", "_bucket", "_gauge", "_counter", "_histogram", "_metric")):
        said.append("a type in its name")
    if any(unit in name.split("_") for unit in ("ms", "milliseconds", "microseconds", "minutes", "kb", "percent")):
        said.append("no base unit")
    if family.type == "histogram" and not name.endswith(("_seconds", "_bytes")):
        said.append("no unit")
    for sample in family.samples:
        if family.type == "counter" and not sample.name.endswith("_total"):
            said.append("a counter not called total")
        said += [f"label {label}" for label in sample.labels if not re.fullmatch(r"[a-z][a-z_]*", label)]
        if family.type != "histogram" and {"le", "quantile"} & set(sample.labels):
            said.append("a label of histograms")
        if math.isnan(sample.value):
            said.append("NaN")
    return said


def test_names_and_units() -> None:
    _, found = everything()
    for family in found.registry.collect():
        if family.name.startswith("queuewise"):
            assert _lint(family) == [], family.name


@pytest.mark.parametrize(
    "accept, kind",
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/html,*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=abc", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text;version=x.y", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text; version=1.0.0"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0"),
    ],
)
def test_the_exposition(accept: str, kind: str) -> None:
    """Both formats hold the same numbers, as their own parsers read them."""
    _, found = everything()
    text, given = exposed(found, accept)
    assert given.startswith(kind)
    openmetrics = "openmetrics" in kind
    assert text.endswith("# EOF\n") is openmetrics and text.count("# EOF") == openmetrics
    families = list(read_openmetrics(text) if openmetrics else read_text(text))
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    read = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        if family.name.startswith("queuewise")
        for sample in family.samples
    }
    kept = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in found.registry.collect()
        if family.name.startswith("queuewise")
        for sample in family.samples
    }
    assert read == kept
    assert read["queuewise_build_info", frozenset({("version", VERSION)})] == 1.0


def test_the_method() -> None:
    _, found = started()
    with Caller(Starlette(routes=[metrics.route(found)])) as call:
        assert call("HEAD", "/metrics").status == 200
        assert call("POST", "/metrics").status == 405


def test_who_may_read() -> None:
    _, found = started("token: s3cret-one\n" + CONFIG)
    with Caller(Starlette(routes=[metrics.route(found, guarded=True), metrics.route(found, "/open")])) as call:
        assert call("GET", "/metrics").status == 401
        assert call("GET", "/metrics", headers=[(b"authorization", b"Bearer s3cret-one")]).status == 200
        assert call("GET", "/open").status == 200
    _, found = started()
    with Caller(Starlette(routes=[metrics.route(found, guarded=True)])) as call:
        assert call("GET", "/metrics").status == 200  # there is no token


def test_that_others_have_their_turn() -> None:
    """A scrape of many backends is not one piece of work."""
    lines = "".join(f'      b{k}: "http://127.0.0.1:{9000 + k}"\n' for k in range(64))
    _, found = started(f"groups:\n  g:\n    backends:\n{lines}")

    async def scrape() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(count())
        await metrics.exposition(found, "")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return turns

    assert asyncio.run(scrape()) >= 20


def test_that_requests_are_counted_where_they_belong() -> None:
    """Against a twin that keeps every request."""
    _, found = started()
    rng = random.Random(7)
    kept = []
    for _ in range(3000):
        group, backend = rng.choice([("chat", "a"), ("chat", "b"), ("rest", "c")])
        model = rng.choice(["small", "large", "unknown", None])
        code = rng.choice([200, 200, 206, 404, 429, 500, 503])
        first = rng.choice([None, rng.choice([0.005, 0.25, rng.expovariate(3.0)])])
        request = (group, backend, model, code, rng.choice([0.01, 1000.0, rng.expovariate(1.0)]), first, 0.002)
        found.request(*request)
        kept.append(request)
    for group, backend in (("chat", "a"), ("chat", "b"), ("rest", "c")):
        mine = [one for one in kept if one[:2] == (group, backend)]
        for label, models in (("small", ["small"]), ("large", ["large"]), ("other", ["unknown"]), ("", [None])):
            for code in (2, 4, 5):
                expected = sum(one[2] in models and one[3] // 100 == code for one in mine)
                labels = {"group": group, "backend": backend, "model": label, "code_class": f"{code}xx"}
                assert value(found, "queuewise_requests_total", **labels) == expected
        for code in (2, 4, 5):
            labels = {"group": group, "backend": backend, "code_class": f"{code}xx"}
            _check_histogram(
                *(found, "queuewise_request_duration_seconds", labels, metrics.DURATIONS),
                [one[4] for one in mine if one[3] // 100 == code],
            )
        labels = {"group": group, "backend": backend}
        firsts = [one[5] for one in mine if one[5] is not None]
        _check_histogram(found, "queuewise_time_to_first_byte_seconds", labels, metrics.DURATIONS, firsts)
    for group in ("chat", "rest"):
        spent = [one[6] for one in kept if one[0] == group]
        _check_histogram(found, "queuewise_router_overhead_seconds", {"group": group}, metrics.OVERHEADS, spent)
        assert value(found, "queuewise_attempts_total", group=group) == len(spent)


def _check_histogram(found: Metrics, name: str, labels: Any, ends: tuple[float, ...], values: list[float]) -> None:
    assert value(found, f"{name}_count", **labels) == len(values)
    assert value(found, f"{name}_sum", **labels) == pytest.approx(sum(values))
    for end in ends:
        assert value(found, f"{name}_bucket", le=repr(end), **labels) == sum(one <= end for one in values), end
    assert value(found, f"{name}_bucket", le="+Inf", **labels) == len(values)


def test_that_no_client_makes_a_series() -> None:
    _, found = started()

    def once(model: str | None, group: str | None = "chat", reason: str = "x") -> None:
        found.request(group, "a" if group == "chat" else None, model, 200, 0.1, 0.1, 0.001)
        found.retry(reason)

    for model in ("small", "large", "other", None):
        once(model)
    for model in ("small", "other", None):
        once(model, None)
    before = series(found)
    rng = random.Random(1)
    for _ in range(10_000):
        once("".join(rng.choices('abc{}"\n\\,=', k=8)), rng.choice(["chat", None, "no such group"]))
    assert series(found) == before
    assert value(found, "queuewise_requests_total", group="chat", backend="a", model="small", code_class="2xx") == 1
    for k in range(1000):
        found.retry(f"reason {k}")
    assert len(found._retries) == metrics.REASONS + 1 and found._retries["other"] == 1000 - metrics.REASONS + 1
    # Nor does a group that names none: all models are its own.
    assert value(found, "queuewise_requests_total", group="", backend="", model="other", code_class="2xx") > 3000
    text, _ = exposed(found)
    assert len(text) < 40_000


def test_that_what_is_gone_is_forgotten() -> None:
    service, found = everything()
    chat = service.groups["chat"]
    ticket = next(t for t in (chat.router.route() for _ in range(50)) if t.server == "b")
    chat.remove("b")
    assert not any(("backend", "b") in labels for _, labels in series(found))
    assert any(("backend", "a") in labels for _, labels in series(found))
    chat.router.complete(ticket)  # late
    found.request("chat", "b", "small", 200, 0.1)
    assert not any(("backend", "b") in labels for _, labels in series(found))
    service.reload(parse(CONFIG.split("  rest:")[0].replace("[small, large]", "[large]")))
    gone = {("group", "rest"), ("model", "small"), ("backend", "c")}
    assert not any(labels & gone for _, labels in series(found))
    found.request("chat", "a", "small", 200, 0.1)
    found.request("chat", "a", "large", 200, 0.1)
    labels = {"group": "chat", "backend": "a", "code_class": "2xx"}
    assert value(found, "queuewise_requests_total", model="other", **labels) == 1
    assert value(found, "queuewise_requests_total", model="large", **labels) == 1


def test_that_memory_is_bounded_without_a_reader() -> None:
    """Backends that come and go leave nothing, even if nobody ever asks."""
    service, found = started()
    other = Metrics(service)
    chat = service.groups["chat"]
    backend = chat.config.backends["a"]
    for k in range(50):
        chat.add(f"x{k}", backend)
        found.request("chat", f"x{k}", "small", 200, 0.1)
        found.ended("chat", Ended(k, f"x{k}", "exploit", None, 1.0, 0.0, 1.0, "done", None))
        other.ended("chat", Ended(k, f"x{k}", "exploit", None, 1.0, 0.0, 1.0, "done", None))
        chat.remove(f"x{k}")
    assert len(found._requests) <= 2 and len(found._durations) <= 2 and len(found._samples) <= 2
    assert len(other._samples) <= 2


def test_how_decisions_end() -> None:
    service, found = started()
    router = service.groups["rest"].router
    for end in ("done", "error", "timeout", "cancelled", "lost"):
        ticket = router.route("long")
        if end == "done":
            router.complete(ticket)
        elif end == "cancelled":
            router.cancel(ticket)
        elif end != "lost":
            router.fail(ticket, end)
    del ticket
    router.report()
    seen = {
        end: value(found, "queuewise_backend_samples_total", group="rest", backend="c", outcome=end) for end in ENDS
    }
    assert seen == {
        **dict.fromkeys(ENDS, 0.0),
        "done": 1.0,
        "error": 1.0,
        "timeout": 1.0,
        "cancelled": 1.0,
        "lost": 1.0,
    }
    decided = [value(found, "queuewise_decisions_total", group="rest", why=why) for why in WORDS.values()]
    assert sum(one or 0 for one in decided) == 5


def test_what_routers_know() -> None:
    service, found = started()
    router = service.groups["chat"].router
    at = {"group": "chat", "backend": "a"}
    assert value(found, "queuewise_backend_service_rate", **at, **{"class": ""}) == 5.0
    low = value(found, "queuewise_backend_service_rate_lower", **at, **{"class": ""})
    high = value(found, "queuewise_backend_service_rate_upper", **at, **{"class": ""})
    assert low is not None and high is not None and 0 < low < 5 < high < math.inf
    unknown = {"group": "rest", "backend": "c", "class": "short"}
    assert value(found, "queuewise_backend_service_rate", **unknown) is None  # nothing is known, so nothing is said
    assert value(found, "queuewise_backend_service_rate_lower", **unknown) == 0.0
    assert value(found, "queuewise_backend_service_rate_upper", **unknown) == math.inf
    kept = [router.watch("a") for _ in range(5)]
    assert value(found, "queuewise_backend_inflight", **at) == 5.0
    assert value(found, "queuewise_backend_slots", **at) == 2.0
    assert value(found, "queuewise_queue_depth", group="chat") == 3.0
    router.override("jsq")
    assert value(found, "queuewise_override", group="chat") == 1.0
    assert value(found, "queuewise_override", group="rest") == 0.0
    assert len(kept) == 5


def state(found: Metrics, backend: str) -> tuple[str, float | None]:
    """(the one state that it is in, its circuit's number)."""
    at = {"group": "chat", "backend": backend}
    [now] = [one for one in metrics.STATES if value(found, "queuewise_backend_state", **at, state=one) == 1.0]
    return now, value(found, "queuewise_backend_circuit_state", **at)


def test_states() -> None:
    service, found = started(
        CONFIG.replace("models: [small, large]", "models: [small]\n    circuit: {failures: 2, pause: 0.01}")
    )
    router = service.groups["chat"].router
    assert state(found, "b") == ("up", 0.0)
    for _ in range(2):
        router.fail(router.watch("b"))
    assert state(found, "b") == ("open", 2.0)
    trial = None
    for _ in range(10_000):
        ticket = router.route()
        if ticket.why == "probe":
            trial = ticket
            break
        router.complete(ticket)
    assert trial is not None and state(found, "b") == ("half_open", 1.0)
    router.drain("b")
    assert state(found, "b") == ("draining", 1.0)
    router.rest("a", 60.0)
    assert state(found, "a") == ("resting", 0.0)
    assert value(found, "queuewise_backend_circuit_state", group="rest", backend="c") is None  # it has none


def test_many_threads() -> None:
    """Nothing is lost, and no reader waits for ever: a router tells under its own lock, a reader asks the routers."""
    service, found = started()
    router = service.groups["chat"].router
    stop = threading.Event()

    def write() -> None:
        for _ in range(3000):
            router.complete(router.route())
            found.request("chat", "a", "small", 200, 0.1, 0.05, 0.001)
            found.decision(1e-6)

    def read() -> None:
        while not stop.is_set():
            list(found.registry.collect())

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write) for _ in range(4)]
    reader.start()
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    stop.set()
    reader.join(60)
    assert not any(thread.is_alive() for thread in (reader, *writers))
    labels = {"group": "chat", "backend": "a", "model": "small", "code_class": "2xx"}
    assert value(found, "queuewise_requests_total", **labels) == 12_000
    assert value(found, "queuewise_decision_duration_seconds_count") == 12_000
    done = sum(
        value(found, "queuewise_backend_samples_total", group="chat", backend=backend, outcome="done") or 0
        for backend in "ab"
    )
    assert done == 12_000
