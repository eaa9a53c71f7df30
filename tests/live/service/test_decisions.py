"""The decision API: what it answers, that every ticket is released once, and that nothing of it outlives its time."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, get_args

import aiohttp
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from starlette.applications import Starlette

from queuewise.live.router import Ended
from queuewise.live.service import decisions, wire
from queuewise.live.service.config import parse
from queuewise.live.service.groups import Group
from queuewise.live.service.metrics import Metrics
from queuewise.live.service.service import Service
from queuewise.live.tickets import ENDS, KINDS, WORDS

from .calling import Answer, Caller
from .running import serving

CONFIG = """
groups:
  chat:
    models: [small, large]
    expire_after: 30
    backends:
      a: {url: "http://127.0.0.1:9001/v1", slots: 2, model: mini}
      b: {url: "http://127.0.0.1:9002"}
  embed:
    models: [vectors]
    classes: [short, long]
    backends:
      c: "http://127.0.0.1:9003"
  rest:
    backends:
      d: "http://127.0.0.1:9004"
"""


class Bench:
    """A service with its API, and what became of its decisions. clock : of the routers, seconds."""

    def __init__(
        self,
        config: str = CONFIG,
        headers: list[tuple[bytes, bytes]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ended: list[tuple[str, Ended]] = []
        self.service = Service(parse(config), listeners=(lambda group, one: self.ended.append((group, one)),))
        for name, one in self.service.config.groups.items():
            self.service.groups[name] = Group(name, one, (self.service._ended,), clock)
        self.metrics = Metrics(self.service)
        self.app = Starlette(routes=list(decisions.routes(self.service, self.metrics)))
        self.call = Caller(self.app, headers or [])

    def post(self, path: str, **given: Any) -> Answer:
        return self.call.post(path, given)

    def ends(self) -> list[tuple[str, str, str]]:
        return [(group, one.server, one.end) for group, one in self.ended]


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.call.close()


def test_that_a_request_is_routed_and_released(bench: Bench) -> None:
    answer = bench.post("/route", model="small", work=2.0)
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    said = answer.json()
    urls = {"a": "http://127.0.0.1:9001", "b": "http://127.0.0.1:9002"}  # however it is written
    assert said["group"] == "chat" and said["url"] == urls[said["server"]] and said["expires_in"] == 30.0
    assert said["model"] == {"a": "mini", "b": "small"}[said["server"]]
    assert said["why"] in WORDS.values() and said["instead"] is None
    router = bench.service.groups["chat"].router
    assert router.in_flight == 1
    answer = bench.post("/complete", ticket=said["ticket"], work=3.0)
    assert answer.json() == {"ticket": said["ticket"], "group": "chat", "server": said["server"], "end": "done"}
    assert router.in_flight == 0
    [(_, ended)] = bench.ended
    assert (ended.server, ended.end, ended.work) == (said["server"], "done", 3.0)


def test_how_requests_end(bench: Bench) -> None:
    ends = []
    for path, given, end in (
        ("/complete", {}, "done"),
        ("/cancel", {}, "cancelled"),
        ("/fail", {}, "error"),
        ("/fail", {"kind": "refused"}, "refused"),
        ("/fail", {"kind": "timeout"}, "timeout"),
        ("/fail", {"kind": "error"}, "error"),
    ):
        ticket = bench.post("/route", group="rest").json()["ticket"]
        assert bench.post(path, ticket=ticket, **given).json()["end"] == end
        ends.append(("rest", "d", end))
    assert bench.ends() == ends


def test_which_group(bench: Bench) -> None:
    for given, group in (
        ({"model": "large"}, "chat"),
        ({"model": "vectors", "key": "long"}, "embed"),
        ({"model": "another"}, "rest"),
        ({}, "rest"),
        ({"group": "chat"}, "chat"),
        ({"group": "chat", "model": "small"}, "chat"),
        ({"group": "rest", "model": "anything"}, "rest"),
        ({"group": None, "model": None}, "rest"),
    ):
        assert bench.post("/route", **given).json()["group"] == group, given


def test_a_class_goes_to_the_router(bench: Bench) -> None:
    for given in ({"key": "short"}, {"key": "long"}, {}):  # without one the first, as in the proxy
        ticket = bench.post("/route", model="vectors", **given).json()["ticket"]
        bench.post("/complete", ticket=ticket)
    assert [one.key for _, one in bench.ended] == ["short", "long", "short"]


def test_that_a_second_try_avoids_the_first(bench: Bench) -> None:
    for _ in range(10):
        assert bench.post("/route", group="chat", avoid=["a", "gone"]).json()["server"] == "b"
    answer = bench.post("/route", group="chat", avoid=["a", "b"])
    assert answer.status == 503 and answer.error["code"] == "no_backend"
    assert bench.service.groups["chat"].router.in_flight == 10


@pytest.mark.parametrize(
    "path, given, status, code, param",
    [
        ("/route", {"group": "chta"}, 404, "unknown_group", "group"),
        ("/route", {"group": "chat", "model": "vectors"}, 404, "model_not_found", "model"),
        ("/watch", {"group": "chat", "server": "c"}, 404, "unknown_server", "server"),
        ("/watch", {"group": "no", "server": "a"}, 404, "unknown_group", "group"),
        ("/route", {"model": "vectors", "key": "medium"}, 404, "unknown_class", "key"),
        ("/route", {"group": "chat", "key": "short"}, 404, "unknown_class", "key"),
        ("/watch", {"group": "chat"}, 422, "invalid_value", "server"),
        ("/route", {"work": 0}, 422, "invalid_value", "work"),
        ("/route", {"work": -1.0}, 422, "invalid_value", "work"),
        ("/route", {"work": "1"}, 422, "invalid_value", "work"),
        ("/route", {"work": True}, 422, "invalid_value", "work"),
        ("/route", {"work": None}, 422, "invalid_value", "work"),
        ("/route", {"work": float("nan")}, 422, "invalid_value", "work"),
        ("/route", {"work": float("inf")}, 422, "invalid_value", "work"),
        ("/route", {"work": 10**400}, 422, "invalid_value", "work"),
        ("/route", {"avoid": "a"}, 422, "invalid_value", "avoid"),
        ("/route", {"avoid": ["a", 1]}, 422, "invalid_value", "avoid.1"),
        ("/route", {"group": ""}, 422, "invalid_value", "group"),
        ("/route", {"group": "x" * 65}, 422, "invalid_value", "group"),
        ("/route", {"modell": "small"}, 422, "invalid_value", "modell"),
        ("/complete", {}, 422, "invalid_value", "ticket"),
        ("/complete", {"ticket": "x"}, 422, "invalid_value", "ticket"),
        ("/complete", {"ticket": "x" * 22 + "\n"}, 422, "invalid_value", "ticket"),
        ("/complete", {"ticket": "x" * 22}, 404, "unknown_ticket", "ticket"),
        ("/fail", {"ticket": "x" * 22, "kind": "slow"}, 422, "invalid_value", "kind"),
        ("/fail", {"ticket": "x" * 22, "retry_after": 0}, 422, "invalid_value", "retry_after"),
        ("/cancel", {"ticket": "x" * 22, "work": 1}, 422, "invalid_value", "work"),
    ],
)
def test_what_is_wrong_is_said(
    bench: Bench, path: str, given: dict[str, Any], status: int, code: str, param: str
) -> None:
    answer = bench.post(path, **given)
    assert answer.status == status
    assert (answer.error["code"], answer.error["param"]) == (code, param)
    assert answer.error["message"].startswith(f"{param}: ")
    assert bench.ended == [] and all(group.router.in_flight == 0 for group in bench.service.groups.values())


def test_sentences(bench: Bench) -> None:
    def said(path: str, **given: Any) -> str:
        message: str = bench.post(path, **given).error["message"]
        return message

    assert said("/route", modell="small") == "modell: there is no such field; did you mean 'model'?"
    assert said("/route", work=0) == "work: must be at least 0.001, not 0"
    assert said("/complete", ticket="x") == "ticket: must be a ticket, as /route gives it"
    assert said("/fail", ticket="x" * 22, kind=1) == "kind: must be 'error', 'refused' or 'timeout', not 1"
    assert said("/watch") == "server: is missing"
    no_class = "key: there is no class 'x' in group "
    assert said("/route", model="vectors", key="x") == no_class + "'embed'; known: 'short', 'long'"
    assert said("/route", group="chat", key="x") == no_class + "'chat'; known: it has none"
    many = said("/route", **{f"x{k}": 1 for k in range(20)})
    assert [f"x{k}: there" in many for k in range(20)] == [k < wire.MOST_SAID for k in range(20)]
    assert many.endswith("; and 15 more")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nope", b'{"a": }', b"\xff\xfe", b'{"model": "\\ud800"}', b"[" * 60_000, b"\xef\xbb\xbf{}"],
)
def test_that_a_body_is_json(bench: Bench, body: bytes) -> None:
    answer = bench.call.post("/route", body)
    assert answer.status == 400 and answer.error["code"] == "invalid_json"


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"text"', b"true"])
def test_that_a_body_is_an_object(bench: Bench, body: bytes) -> None:
    answer = bench.call.post("/route", body)
    assert answer.status == 422 and answer.error["message"].startswith("body: must be an object")


def test_the_type_of_a_body(bench: Bench) -> None:
    for kind in (b"application/json", b"application/json; charset=utf-8", b"Application/JSON"):
        assert bench.call("POST", "/route", b"{}", [(b"content-type", kind)]).status == 200
    for kinds in ([], [b"text/plain"], [b"application/x-www-form-urlencoded"], [b"application/json", b"text/plain"]):
        answer = bench.call("POST", "/route", b"{}", [(b"content-type", kind) for kind in kinds])
        assert answer.status == 415 and answer.error["code"] == "unsupported_media_type"


def test_the_size_of_a_body(bench: Bench) -> None:
    kind = [(b"content-type", b"application/json")]
    fits = b"{}" + b" " * (decisions.LARGEST - 2)
    assert bench.call("POST", "/route", fits, kind).status == 200
    for body in (fits + b" ", [b" " * 1000] * 66, [fits, b" ", b"never looked at"]):
        answer = bench.call("POST", "/route", body, kind)
        assert answer.status == 413 and answer.error["code"] == "request_too_large"
        assert answer.headers["connection"] == "close"
    pieces = [b'{"gro', b'up":', b"", b'"chat"}']
    assert bench.call("POST", "/route", pieces, kind).json()["group"] == "chat"


def test_the_method(bench: Bench) -> None:
    for path in ("/route", "/watch", "/complete", "/fail", "/cancel"):
        for method in ("GET", "PUT", "DELETE", "OPTIONS", "TRACE"):
            answer = bench.call(method, path)
            assert answer.status == 405 and answer.headers["allow"] == "POST" and answer.error
    assert bench.call("POST", "/openapi.json").status == 405


def test_that_a_client_that_leaves_costs_nothing(bench: Bench) -> None:
    kind = [(b"content-type", b"application/json")]

    async def leave() -> list[Any]:
        said: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            said.append(message)

        scope = {"type": "http", "method": "POST", "path": "/route", "headers": kind, "root_path": ""}
        await bench.app(scope, receive, send)
        return said

    assert asyncio.run(leave()) == []
    assert all(group.router.in_flight == 0 for group in bench.service.groups.values())


def test_the_token() -> None:
    config = "token: s3cret-and-long\n" + CONFIG
    for headers, status in (
        ([], 401),
        ([(b"authorization", b"Bearer s3cret-and-lon")], 401),
        ([(b"authorization", b"Bearer s3cret-and-long")], 200),
    ):
        bench = Bench(config, headers)
        with bench.call:
            answer = bench.post("/route")
            assert answer.status == status
            if status == 401:
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert answer.error["type"] == "authentication_error"
                assert b"s3cret" not in answer.body
                assert answer.error["message"].startswith("another" if headers else "a bearer token")
            assert bench.call("GET", "/openapi.json").status == 200  # says nothing that is not in the docs


def test_that_a_ticket_is_released_once(bench: Bench) -> None:
    ticket = bench.post("/route", group="chat").json()["ticket"]
    assert bench.post("/complete", ticket=ticket).status == 200
    for path in ("/complete", "/fail", "/cancel"):
        answer = bench.post(path, ticket=ticket)
        assert answer.status == 409 and answer.error["code"] == "already_released"
        assert answer.error["message"] == "ticket: is over already, done"
    assert len(bench.ended) == 1


def test_that_a_ticket_of_the_process_before_is_nobodys() -> None:
    first, second = Bench(), Bench()
    with first.call, second.call:
        old = [first.post("/route", group="chat").json()["ticket"] for _ in range(50)]
        new = [second.post("/route", group="chat").json()["ticket"] for _ in range(50)]
        assert len({*old, *new}) == 100
        for ticket in old:
            for path in ("/complete", "/fail", "/cancel"):
                answer = second.post(path, ticket=ticket)
                assert answer.status == 404 and answer.error["code"] == "unknown_ticket"
        assert second.ended == [] and second.service.groups["chat"].router.in_flight == 50


def test_that_a_request_may_be_sent_again(bench: Bench) -> None:
    first = bench.post("/route", group="chat", id="r1").json()
    again = bench.post("/route", group="chat", id="r1").json()
    assert 0.0 < again.pop("expires_in") < first.pop("expires_in")
    assert first == again and bench.service.groups["chat"].router.in_flight == 1
    answer = bench.post("/route", group="chat", work=2.0, id="r1")
    assert answer.status == 409 and answer.error["code"] == "id_reused"
    assert bench.post("/watch", group="chat", server="a", id="r1").status == 409
    assert bench.post("/route", group="rest", id="r1").status == 200  # groups have ids of their own
    bench.post("/complete", ticket=first["ticket"])
    assert bench.post("/route", group="chat", id="r1").json()["ticket"] != first["ticket"]


def test_shadow_mode(bench: Bench) -> None:
    said = bench.post("/watch", group="chat", server="a", id="w").json()
    assert (said["server"], said["why"], said["url"]) == ("a", "given", "http://127.0.0.1:9001")
    assert said["instead"] in ("a", "b")
    assert bench.post("/watch", group="chat", server="a", id="w").json()["ticket"] == said["ticket"]
    assert bench.post("/complete", ticket=said["ticket"]).status == 200
    assert bench.service.groups["chat"].router.shadow()["watched"] == 1


def test_shedding() -> None:
    bench = Bench(CONFIG.replace("expire_after: 30", "shed: {in_flight: 2}"))
    with bench.call:
        tickets = [bench.post("/route", group="chat").json()["ticket"] for _ in range(2)]
        answer = bench.post("/route", group="chat")
        assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1
        assert (answer.error["type"], answer.error["code"]) == ("rate_limit_error", "overloaded")
        found = bench.metrics.registry.get_sample_value(
            "queuewise_shed_total", {"group": "chat", "reason": "in_flight"}
        )
        assert found == 1.0
        bench.post("/complete", ticket=tickets[0])
        assert bench.post("/route", group="chat").status == 200


def test_that_a_backend_may_ask_to_be_left_alone(bench: Bench) -> None:
    ticket = bench.post("/route", group="rest").json()["ticket"]
    said = bench.post("/fail", ticket=ticket, kind="refused", retry_after=7.5).json()
    assert said["end"] == "cancelled"  # it has said what it wants, which is no failure
    answer = bench.post("/route", group="rest")
    assert answer.status == 429 and answer.headers["retry-after"] == "8" and "resting" in answer.error["message"]
    assert bench.service.groups["rest"].router.estimates()["d"]["failures"] == 0
    bench.service.groups["rest"].router.resume("d")
    ticket = bench.post("/route", group="rest").json()["ticket"]
    assert bench.post("/fail", ticket=ticket, kind="error", retry_after=80000).json()["end"] == "error"
    assert bench.post("/route", group="rest").headers["retry-after"] == "60"  # longest_rest


def test_without_a_usable_backend(bench: Bench) -> None:
    bench.service.groups["rest"].router.drain("d")
    answer = bench.post("/route", group="rest")
    assert answer.status == 503 and answer.error["code"] == "no_backend" and "retry-after" in answer.headers
    assert answer.error["message"] == "no usable server: 'd' is draining"


def test_that_nothing_new_is_taken_at_the_end(bench: Bench) -> None:
    ticket = bench.post("/route", group="rest").json()["ticket"]
    bench.service.stopping = True
    assert bench.post("/route", group="rest").status == 200  # who has not noticed yet is served
    bench.service.closing = True
    answer = bench.post("/route", group="rest")
    assert answer.status == 503 and answer.error["code"] == "stopping"
    assert bench.post("/watch", group="rest", server="d").status == 503
    assert bench.post("/complete", ticket=ticket).status == 200


def test_that_tickets_are_good_through_a_reload(bench: Bench) -> None:
    out = {group: bench.post("/route", group=group).json()["ticket"] for group in ("chat", "rest")}
    changed = CONFIG.replace("    expire_after: 30\n", "    half_life: 60\n").split("  rest:")[0]
    bench.service.reload(parse(changed))
    assert bench.post("/complete", ticket=out["chat"]).status == 200  # its router was replaced
    answer = bench.post("/fail", ticket=out["rest"], kind="refused", retry_after=5)  # its group is gone
    assert answer.status == 200
    assert bench.post("/route", group="rest").status == 404
    out_again = bench.post("/route", group="chat").json()
    bench.service.groups["chat"].remove(out_again["server"])
    answer = bench.post("/fail", ticket=out_again["ticket"], kind="refused", retry_after=5)  # its backend is gone
    assert answer.status == 200


class Clock:
    """The routers' clock, and the API's, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(decisions, "time", SimpleNamespace(monotonic=self, perf_counter=time.perf_counter))

    def __call__(self) -> float:
        return self.now


def test_that_a_ticket_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    bench = Bench(clock=clock)
    with bench.call:
        lost = bench.post("/route", group="chat", id="x").json()["ticket"]
        kept = bench.post("/route", group="rest").json()["ticket"]
        clock.now += 29.0
        said = bench.post("/route", group="chat", id="x").json()
        assert said["ticket"] == lost and said["expires_in"] == 1.0
        clock.now += 1.5
        answer = bench.post("/complete", ticket=lost)
        assert answer.status == 410 and answer.error["code"] == "expired"
        assert bench.post("/cancel", ticket=lost).status == 410
        assert [(group, end) for group, _, end in bench.ends()] == [("chat", "expired")]
        assert bench.service.groups["chat"].router.in_flight == 0
        assert bench.post("/complete", ticket=kept).status == 200
        again = bench.post("/route", group="chat", id="x").json()["ticket"]
        clock.now += 31.0
        bench.service.groups["chat"].router.report()
        third = bench.post("/route", group="chat", id="x").json()["ticket"]  # the one before is over
        assert len({lost, again, third}) == 3
        assert bench.post("/complete", ticket=again).status == 410


def test_that_lost_tickets_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    bench = Bench(clock=clock)
    api = decisions.Decisions(bench.service)
    with bench.call:
        ask = wire.RouteRequest(group="chat")
        first = [api.route(ask)["ticket"] for _ in range(100)]
        changed = CONFIG.replace("expire_after: 30", "expire_after: 40")
        bench.service.reload(parse(changed))  # the router that gave them is asked nothing any more
        clock.now += 31.0
        api.route(wire.RouteRequest(group="rest", id="y"))
        assert api.out == 1 and len(api._order) == 1 and len(api._by_id) == 1
        for ticket in first:
            with pytest.raises(decisions.Refusal) as caught:
                api.complete(wire.CompleteRequest(ticket=ticket))
            assert caught.value.response.status_code == 410


def test_that_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MOST_OUT", 50)
    monkeypatch.setattr(decisions, "MOST_ENDED", 20)
    bench = Bench()
    api = decisions.Decisions(bench.service, bench.metrics)
    with bench.call:
        out = [api.route(wire.RouteRequest(group="chat"))["ticket"] for _ in range(50)]
        with pytest.raises(decisions.Refusal) as caught:
            api.route(wire.RouteRequest(group="chat"))
        assert caught.value.response.status_code == 429
        for ticket in out:
            api.complete(wire.CompleteRequest(ticket=ticket))
        assert api.out == 0 and api._order == {} and len(api._released) == 20
        for k, ticket in enumerate(out):
            with pytest.raises(decisions.Refusal) as caught:
                api.complete(wire.CompleteRequest(ticket=ticket))
            assert caught.value.response.status_code == (404 if k < 30 else 409)


def test_that_what_is_out_is_not_garbage(bench: Bench) -> None:
    ticket = bench.post("/route", group="chat").json()["ticket"]
    gc.collect()
    bench.post("/route", group="chat")
    assert bench.ended == []
    assert bench.post("/complete", ticket=ticket).status == 200


def test_that_words_are_those_of_the_router() -> None:
    assert set(get_args(wire.FailRequest.model_fields["kind"].annotation)) == set(KINDS)
    assert set(get_args(wire.Decision.model_fields["why"].annotation)) == set(WORDS.values())
    assert set(get_args(wire.Released.model_fields["end"].annotation)) == set(ENDS) - {"lost", "expired"}


def test_over_sockets() -> None:
    """Through a real server: answers, a body that is too large, and many at once."""
    bench = Bench()

    async def play() -> None:
        async with serving(bench.app) as url, aiohttp.ClientSession(url) as session:

            async def one(k: int) -> int:
                async with session.post("/route", json={"group": "chat"}) as answer:
                    said = await answer.json()
                path = ("/complete", "/fail", "/cancel")[k % 3]
                async with session.post(path, json={"ticket": said["ticket"]}) as answer:
                    assert answer.status == 200
                async with session.post("/complete", json={"ticket": said["ticket"]}) as answer:
                    return answer.status

            assert await asyncio.gather(*(one(k) for k in range(60))) == [409] * 60
            for _ in range(3):  # the connection is closed after each, or read to its end: either is right
                async with session.post(
                    "/route", data=b" " * 200_000, headers={"content-type": "application/json"}
                ) as answer:
                    assert answer.status == 413
            async with session.get("/route") as answer:
                assert answer.status == 405

    asyncio.run(play())
    bench.call.close()
    assert bench.service.groups["chat"].router.in_flight == 0
    assert Counter(end for _, _, end in bench.ends()) == {"done": 20, "error": 20, "cancelled": 20}


class Api(RuleBasedStateMachine):
    """Whatever clients do, in whatever order: each ticket is released once, and what is out is what the model says."""

    tickets: Bundle[str] = Bundle("tickets")
    over: Bundle[str] = Bundle("over")

    @initialize()
    def begin(self) -> None:
        self.bench = Bench()
        self.out: dict[str, tuple[str, str, int]] = {}  # group, server, reloads of its group before; −1 for never
        self.reloads = 0
        self.ended: list[tuple[str, str, str]] = []

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.call.close()

    @rule(target=tickets, group=st.sampled_from(["chat", "rest"]), work=st.sampled_from([0.5, 1.0, 4.0]))
    def route(self, group: str, work: float) -> str:
        said = self.bench.post("/route", group=group, work=work).json()
        assert said["ticket"] not in self.out
        self.out[said["ticket"]] = (group, said["server"], self.reloads if group == "chat" else -1)
        return str(said["ticket"])

    @rule(target=tickets, server=st.sampled_from("ab"))
    def watch(self, server: str) -> str:
        said = self.bench.post("/watch", group="chat", server=server).json()
        self.out[said["ticket"]] = ("chat", server, self.reloads)
        return str(said["ticket"])

    @rule(
        target=over,
        ticket=consumes(tickets),
        way=st.sampled_from(["complete", "cancel", "fail error", "fail refused", "fail timeout"]),
    )
    def release(self, ticket: str, way: str) -> str:
        path, _, kind = way.partition(" ")
        answer = self.bench.post(f"/{path}", ticket=ticket, **({"kind": kind} if kind else {}))
        end = kind or {"complete": "done", "cancel": "cancelled"}[path]
        group, server, _ = self.out.pop(ticket)
        assert answer.status == 200
        assert answer.json() == {"ticket": ticket, "group": group, "server": server, "end": end}
        self.ended.append((group, server, end))
        return ticket

    @rule(ticket=over, path=st.sampled_from(["/complete", "/fail", "/cancel"]))
    def release_again(self, ticket: str, path: str) -> None:
        assert self.bench.post(path, ticket=ticket).status == 409

    @rule(path=st.sampled_from(["/complete", "/fail", "/cancel"]), letter=st.sampled_from("Az0_-"))
    def release_nothing(self, path: str, letter: str) -> None:
        assert self.bench.post(path, ticket=letter * 22).status == 404

    @rule()
    def reload(self) -> None:
        """Other settings of the router: a new one, which counts its own only."""
        self.reloads += 1
        kept = self.bench.service.config.groups["chat"].half_life
        self.bench.service.reload(
            parse(CONFIG.replace("expire_after: 30", "half_life: 60" if kept != 60 else "half_life: 90"))
        )

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "bench"):
            return
        assert self.bench.ends() == self.ended
        for group in ("chat", "rest"):
            router = self.bench.service.groups[group].router
            known = router.estimates()
            ours = Counter(
                server for at, server, before in self.out.values() if at == group and before in (self.reloads, -1)
            )
            assert {name: one["in_flight"] for name, one in known.items()} == {name: ours[name] for name in known}
            assert router.in_flight == ours.total()


Api.TestCase.settings = settings(
    max_examples=15,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestApi = Api.TestCase
