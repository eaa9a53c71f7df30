"""The admin port: what it tells, what it does, and to whom it listens."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import numpy as np
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from queuewise.live.router import PLAIN_RULES, REMEMBERED
from queuewise.live.service import admin, answers, config, logs
from queuewise.live.service.history import History
from queuewise.live.service.service import Service
from queuewise.live.tickets import WORDS

from .calling import Answer, Caller
from .running import serving

KEY = "sk-very-secret-key"
TOKEN = "the-admin-token"
TEXT = f"""
groups:
  chat:
    models: [llama]
    backends:
      a: {{url: "http://127.0.0.1:9001", slots: 2, key: {KEY}, model: llama-3}}
      b: {{url: "http://127.0.0.1:9002/v1"}}
  embed:
    classes: [short, long]
    backends:
      c: "http://127.0.0.1:9003"
"""


class Port:
    """The port of a service, with what is behind it."""

    def __init__(self, text: str = TEXT, **options: Any) -> None:
        self.service = Service(config.parse(text))
        self.history = History(self.service)
        self.service.listeners = (self.history.note,)
        self.app = admin.app(self.service, self.history, **options)
        self.call = Caller(_as_named(self.app, [b"127.0.0.1:8081"]))

    def at(self, *hosts: str) -> Caller:
        """To be called by these names, or none."""
        return Caller(_as_named(self.app, [host.encode() for host in hosts]))

    def get(self, path: str, query: bytes = b"") -> Any:
        answer = self.call("GET", path, query=query)
        assert answer.status == 200, answer
        return answer.json()

    def send(self, method: str, path: str, given: Any = None, **headers: str) -> Answer:
        body = b"" if given is None else given if isinstance(given, bytes) else json.dumps(given).encode()
        named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        if given is not None and "content_type" not in headers:
            named.append((b"content-type", b"application/json"))
        return self.call(method, path, body, named)

    def traffic(self, number: int = 20) -> None:
        router = self.service.groups["chat"].router
        for _ in range(number):
            router.complete(router.route())


def _as_named(app: Any, hosts: list[bytes]) -> Any:
    """The app, called under other names than a `Caller` says."""

    async def called(scope: Any, receive: Any, send: Any) -> None:
        headers = [pair for pair in scope["headers"] if pair[0] != b"host"]
        await app({**scope, "headers": [*((b"host", host) for host in hosts), *headers]}, receive, send)

    return called


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.call.close()


def said(answer: Answer, status: int, param: str | None = None) -> str:
    """The sentence of a refusal."""
    assert answer.status == status, answer
    assert answer.error["param"] == param
    message: str = answer.error["message"]
    return message


# --- backends -------------------------------------------------------------------------------------------------------------


def test_workers_of_all_groups_and_of_one(port: Port) -> None:
    port.traffic()
    found = port.get("/workers")["workers"]
    assert [(one["group"], one["name"]) for one in found] == [("chat", "a"), ("chat", "b"), ("embed", "c")]
    a, b, c = found
    assert a["url"] == "http://127.0.0.1:9001" and a["model"] == "llama-3" and a["key"] is True and a["slots"] == 2
    assert b["key"] is False and b["model"] is None and b["state"] == "up"
    assert a["outcomes"]["done"] + b["outcomes"]["done"] == 20
    (rate,) = a["rates"]
    assert rate["class"] is None and rate["low"] < rate["rate"] < rate["high"] and rate["delay"] > 0
    assert [rate["class"] for rate in c["rates"]] == ["short", "long"]
    assert c["rates"][0]["rate"] is None and c["rates"][0]["delay"] is None
    assert [one["name"] for one in port.get("/workers", b"group=embed")["workers"]] == ["c"]
    assert port.get("/workers/chat/a") == port.get("/workers")["workers"][0]


def test_a_worker_is_added_used_resized_drained_resumed_reset_and_removed(port: Port, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "queuewise.service")
    group = port.service.groups["chat"]
    given = {"group": "chat", "name": "n", "url": "http://127.0.0.1:9009/v1", "slots": 3, "rate": 2.5, "key": KEY}
    answer = port.send("POST", "/workers", given)
    assert answer.status == 201 and answer.headers["location"] == "/workers/chat/n"
    assert answer.json()["slots"] == 3 and answer.json()["rates"][0]["rate"] == pytest.approx(2.5)
    assert group.backends["n"].authorization == f"Bearer {KEY}" and "n" in group.router.servers
    assert "n" in {group.router.route().server for _ in range(60)}

    for method, path in (("PATCH", "/workers/chat/n"), ("PUT", "/workers/chat/n/slots")):
        slots = 7 if method == "PUT" else 5
        assert port.send(method, path, {"slots": slots}).json()["slots"] == slots
        assert group.backends["n"].config.slots == slots == group.router.estimates()["n"]["slots"]
        assert group.backends["n"].authorization == f"Bearer {KEY}"

    assert port.send("POST", "/workers/chat/n/drain").json()["state"] == "draining"
    assert "n" not in {group.router.route().server for _ in range(60)}
    assert port.send("POST", "/workers/chat/n/resume", {}).json()["state"] == "up"
    assert "n" in {group.router.route().server for _ in range(120)}
    answer = port.send("POST", "/workers/chat/n/reset")
    assert answer.json()["rates"][0]["completions"] == 0

    in_flight = group.router.estimates()["n"]["in_flight"]
    assert port.send("DELETE", "/workers/chat/n").json() == {"group": "chat", "removed": "n", "in_flight": in_flight}
    assert "n" not in group.backends and "n" not in group.router.servers
    assert "has no backend 'n'" in said(port.call("GET", "/workers/chat/n"), 404, "name")
    words = ("added chat/n", "5 slots", "drained chat/n", "resumed chat/n", "reset chat/n", "removed chat/n")
    for word in words:
        assert word in caplog.text
    assert KEY not in caplog.text


def test_the_key_of_a_worker_that_was_added_is_never_printed(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where something else says it: a backend's error, an exception's text."""
    monkeypatch.setattr(logs, "_SECRETS", set())
    monkeypatch.setattr(logs, "_PATTERN", None)
    said = logging.makeLogRecord({"msg": "a backend said: %s is no key of ours", "args": ("sk-new-key",)})
    formatter = logs._Json()
    assert "sk-new-key" in formatter.format(said)
    given = {"group": "chat", "name": "n", "url": "http://127.0.0.1:9009/v1", "key": "sk-new-key"}
    assert port.send("POST", "/workers", given).status == 201
    assert "sk-new-key" not in formatter.format(said) and logs.HIDDEN in formatter.format(said)


@pytest.mark.parametrize(
    ("given", "status", "field", "words"),
    [
        ({}, 422, "group", "is missing"),
        ({"group": 3}, 422, "group", "must be a text"),
        ({"group": "chat"}, 422, "name", "is missing"),
        ({"group": "chta", "name": "n", "url": "http://h"}, 404, "group", "did you mean 'chat'"),
        ({"group": "chat", "name": "a", "url": "http://h"}, 409, "name", "already"),
        ({"group": "chat", "name": "n"}, 422, "url", "is missing"),
        ({"group": "chat", "name": "a b", "url": "http://h"}, 422, "name", "is no name"),
        ({"group": "chat", "name": "<b>", "url": "http://h"}, 422, "name", "is no name"),
        ({"group": "chat", "name": "n", "url": "ftp://h"}, 422, "url", "http://host:port"),
        ({"group": "chat", "name": "n", "url": "http://user:word@h"}, 422, "url", "without user"),
        ({"group": "chat", "name": "n", "url": "http://h", "slots": 0}, 422, "slots", "at least 1"),
        ({"group": "chat", "name": "n", "url": "http://h", "slots": 10**30}, 422, "slots", "at most"),
        (
            {"group": "chat", "name": "n", "url": "http://h", "slots": "many"},
            422,
            "slots",
            "must be a whole number, not 'many'",
        ),
        ({"group": "chat", "name": "n", "url": "http://h", "rate": -1}, 422, "rate", "greater than 0"),
        ({"group": "chat", "name": "n", "url": "http://h", "slot": 1}, 422, "slot", "did you mean 'slots'"),
        ({"group": "chat", "name": "n", "url": "http://h", "key": "two\nlines"}, 422, "key", "visible ASCII"),
        ({"group": "chat", "name": "n", "url": "http://h", "key": ["a-list"]}, 422, "key", "must be a text"),
    ],
)
def test_a_worker_that_cannot_be_added(port: Port, given: dict[str, Any], status: int, field: str, words: str) -> None:
    before = port.get("/workers")
    message = said(port.send("POST", "/workers", given), status, field)
    assert words in message and message.startswith(field) and "groups." not in message
    assert port.get("/workers") == before


def test_a_policy_that_goes_by_typed_in_rates_takes_no_worker_without_one() -> None:
    port = Port("groups: {g: {policy: sed, backends: {a: {url: 'http://a', rate: 2}}}}")
    message = said(port.send("POST", "/workers", {"group": "g", "name": "b", "url": "http://b"}), 422)
    assert "typed-in rates" in message and list(port.service.groups["g"].backends) == ["a"]
    port.call.close()


@pytest.mark.parametrize("slots", [0, -1, 1.5, True, "3", None, 10**30, [1]])
def test_slots_that_cannot_be(port: Port, slots: Any) -> None:
    assert "whole number" in said(port.send("PATCH", "/workers/chat/a", {"slots": slots}), 422, "slots")
    assert port.get("/workers/chat/a")["slots"] == 2


def test_there_is_no_such_worker(port: Port) -> None:
    for method, path in (
        *(("GET", "/workers/chat/z"), ("GET", "/workers/chat/z/estimate"), ("GET", "/workers/chat/z/history")),
        *(("DELETE", "/workers/chat/z"), ("POST", "/workers/chat/z/drain"), ("POST", "/workers/chat/z/reset")),
    ):
        assert "has no backend 'z'" in said(port.send(method, path), 404, "name")
    for path in ("/workers/nope/a", "/explain/nope/1", "/explain/nope"):
        assert "there is no group 'nope'" in said(port.call("GET", path), 404, "group")
    for path in ("/workers", "/estimates", "/report", "/decisions", "/shadow", "/status.json"):
        assert "there is no group" in said(port.call("GET", path, query=b"group=x"), 404, "group")
    assert "slots: is missing" in said(port.send("PATCH", "/workers/chat/a", {}), 422, "slots")
    assert "no such field" in said(port.send("PATCH", "/workers/chat/a", {"slots": 1, "url": "x"}), 422, "url")


# --- what is known --------------------------------------------------------------------------------------------------------


def test_estimates_reports_and_shadow_are_the_routers(port: Port) -> None:
    port.traffic()
    router = port.service.groups["chat"].router
    assert port.get("/estimates")["groups"]["chat"] == json.loads(json.dumps(router.estimates()))
    assert port.get("/workers/chat/a/estimate") == json.loads(json.dumps(router.estimates()["a"]))
    assert port.get("/report", b"group=chat") == {"groups": {"chat": json.loads(json.dumps(router.report()))}}
    router.complete(router.watch("a"))
    assert port.get("/shadow")["groups"]["chat"]["watched"] == 1


def test_decisions_newest_last_with_their_reason_in_words(port: Port) -> None:
    port.traffic(30)
    router = port.service.groups["chat"].router
    router.override("random")
    port.traffic(1)
    found = port.get("/decisions", b"group=chat&last=5")["decisions"]
    assert [one["number"] for one in found] == [27, 28, 29, 30, 31]
    assert all(one["why"] in WORDS.values() and one["said"].startswith(admin.SAID[one["why"]]) for one in found)
    assert abs(found[-1]["at"] - port.service.wall(router._clock())) < 5.0
    assert found[-1]["why"] == "given" and f"it would have taken {found[-1]['instead']}" in found[-1]["said"]
    embed = port.service.groups["embed"].router
    embed.complete(embed.route("long"))
    newest = port.get("/decisions")["decisions"][-1]
    assert (newest["group"], newest["key"], newest["server"]) == ("embed", "long", "c")
    for last in (b"0", b"-1", b"x", b"257", b"1e3", "٣".encode(), b"9" * 40):
        assert "whole number" in said(port.call("GET", "/decisions", query=b"last=" + last), 422, "last")


def test_every_reason_has_words() -> None:
    assert set(admin.SAID) == set(WORDS.values())


def test_explain_says_what_was_seen(port: Port) -> None:
    assert "none of the last" in said(port.call("GET", "/explain/chat"), 404, "number")
    port.traffic(30)
    found = port.get("/explain/chat/30")
    assert found["number"] == 30 and found["released"] is True and found["said"]
    assert set(found["seen"]) == {"a", "b"} and found["policy"]["servers"] == ["a", "b"]
    assert port.get("/explain/chat")["number"] == 30
    port.traffic(REMEMBERED)
    assert "none of the last" in said(port.call("GET", "/explain/chat/30"), 404, "number")
    for number in ("x", "-1", "1.5", "9" * 30):
        assert "number" in said(port.call("GET", f"/explain/chat/{number}"), 422, "number")


@pytest.mark.parametrize("policy", ["lased", "greedy", "jsq", "round_robin", "power_of_d"])
def test_explanations_of_other_policies_can_be_sent(policy: str) -> None:
    port = Port(f"groups: {{chat: {{policy: {policy}, backends: {{a: 'http://a', b: 'http://b'}}}}}}")
    port.traffic(3)
    assert port.get("/explain/chat/2")["number"] == 2
    port.call.close()


def test_what_json_cannot_hold_is_null() -> None:
    given = {"a": np.array([1.0, np.nan]), "b": [float("inf"), (np.int64(2), None, True)], 3: {"c": np.float64("nan")}}
    assert json.loads(answers.Answer(given).body) == {"a": [1.0, None], "b": [None, [2, None, True]], "3": {"c": None}}


# --- the kill switch ------------------------------------------------------------------------------------------------------


def test_a_plain_rule_decides_until_it_is_taken_back(port: Port, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "queuewise.service")
    router = port.service.groups["chat"].router
    for rule in (*PLAIN_RULES, None):
        answer = port.send("POST", "/override", {"group": "chat", "rule": rule})
        assert answer.status == 200 and answer.json() == {"group": "chat", "override": rule}
        assert router.report()["override"] == rule
        assert f"group chat goes by {rule or 'its policy'}" in caplog.text
    for given, field in (
        ({"group": "chat"}, "rule"),
        ({"rule": None}, "group"),
        ({"group": "chat", "rule": "lased"}, "rule"),
        ({"group": "chat", "rule": ["jsq"]}, "rule"),
        ({"group": "chat", "rule": "jsq", "more": 1}, "more"),
    ):
        said(port.send("POST", "/override", given), 422, field)
    assert router.report()["override"] is None
    assert router.report()["decisions"] == 0


# --- what the page asks for -----------------------------------------------------------------------------------------------


def test_the_page_gets_all_in_one_go_and_then_only_what_is_new(port: Port) -> None:
    port.traffic(30)
    port.history.tick(port.history._last + 1.0)
    found = port.get("/status.json")
    assert [group["name"] for group in found["groups"]] == ["chat", "embed"]
    group = found["group"]
    assert group["name"] == "chat" and group["decisions"] == 30 and group["explore_cap"] == 0.05
    assert group["models"] == ["llama"] and group["policy"].startswith("optimistic_sed") and group["queue"] == 0
    assert [one["name"] for one in group["workers"]] == ["a", "b"]
    assert found["history"]["next"] == 1 and found["history"]["done"] == [30]
    numbers = [one["number"] for one in found["recent"]]
    assert len(numbers) == admin.SHOWN and numbers[admin.UNUSUAL :] == list(range(31 - admin.SHOWN + admin.UNUSUAL, 31))
    seen = found["recent"][-1]["seen"]
    assert seen["servers"] == ["a", "b"] and len(seen["queue"]) == len(seen["rate"]) == 2

    again = f"group=chat&boot={found['boot']}&since=1&decided=29".encode()
    later = port.get("/status.json", again)
    assert later["history"]["at"] == [] and [one["number"] for one in later["recent"]] == [30]
    restarted = port.get("/status.json", again.replace(found["boot"].encode(), b"another"))
    assert restarted["history"]["at"] and len(restarted["recent"]) == admin.SHOWN
    assert port.get("/status.json", b"group=embed")["group"]["classes"] == ["short", "long"]
    for query, field in ((b"since=-1", "since"), (b"decided=x", "decided")):
        answer = port.call("GET", "/status.json", query=query + b"&boot=" + found["boot"].encode())
        said(answer, 422, field)
    assert KEY not in json.dumps(found)


def test_unusual_decisions_are_not_lost_among_the_usual_ones(port: Port) -> None:
    router = port.service.groups["chat"].router
    port.traffic(2)
    router.override("random")
    port.traffic(5)  # numbers 3 to 7
    router.override(None)
    port.traffic(100)
    usual = [one.number for one in router.decisions() if one.why == "exploit"]
    recent = port.get("/status.json")["recent"]
    numbers, whys = [one["number"] for one in recent], [one["why"] for one in recent]
    assert numbers == sorted(set(numbers)) and len(numbers) == admin.SHOWN
    assert len([why for why in whys if why != "exploit"]) >= admin.UNUSUAL
    assert numbers[-1] == 107 and set(numbers[admin.UNUSUAL :]) <= {*usual, *range(100, 108)}
    for length in range(12):
        few = admin._worth_a_look(router.decisions()[:length])
        assert [one.number for one in few] == sorted({one.number for one in few})
        assert len(few) == min(length, admin.SHOWN)


def test_a_decision_that_is_forgotten_is_shown_without_what_was_seen(port: Port) -> None:
    port.traffic(3)
    router = port.service.groups["chat"].router
    router.drain("b")  # the policy starts anew: what was seen before is gone
    seen = [one["seen"] for one in port.get("/status.json")["recent"]]
    assert seen == [None, None, None]
    assert admin._Admin(port.service, port.history)._seen(port.service.groups["chat"], 12345) is None


def test_a_service_without_groups_has_a_page_too(port: Port) -> None:
    port.service.groups.clear()
    found = port.get("/status.json")
    assert found["groups"] == [] and "group" not in found


def test_a_trace_of_a_backend(port: Port) -> None:
    port.traffic()
    for _ in range(10):
        port.history.tick(port.history._last + 1.0)
    found = port.get("/workers/chat/a/history")
    assert len(found["at"]) == 1 and len(found["rates"]) == 1 and found["classes"] == []


# --- who may come in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8081", "127.0.0.1", "127.8.9.1:80", "[::1]", "[::1]:8081"])
def test_loopback_names_may_call(port: Port, host: str) -> None:
    with port.at(host) as call:
        assert call("GET", "/report").status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0", "[::2]"),
        *("", "localhost:80:80", "evil.example@localhost", "localhost/", "[127.0.0.1", "127.0.0.1:port", "::1:80"),
    ],
)
def test_a_name_that_is_no_loopback_name_is_refused_on_a_loopback_port(port: Port, host: str) -> None:
    with port.at(host) as call:
        for path in ("/", "/report", "/status.json"):
            answer = call("GET", path)
            assert answer.error["code"] == "host" and answer.status == 403


def test_a_request_names_one_host(port: Port) -> None:
    for hosts in ([], ["localhost", "evil.example"]):
        with port.at(*hosts) as call:
            assert call("GET", "/report").status == 400


def test_elsewhere_any_host_may_be_called_with_the_token() -> None:
    port = Port(f"admin: 0.0.0.0:8081\nadmin_token: {TOKEN}\n{TEXT}")
    with port.at("router.example:8081") as call:
        assert "asks for its token" in said(call("GET", "/report"), 401)
        wrong = [(b"authorization", b"Bearer another")]
        assert "asks for another token than was sent" in said(call("GET", "/report", headers=wrong), 401)
        assert call("GET", "/report", headers=[(b"authorization", f"Bearer {TOKEN}".encode())]).status == 200
        foreign = [(b"authorization", f"Bearer {TOKEN}".encode()), (b"origin", b"http://evil.example")]
        assert call("DELETE", "/workers/chat/a", headers=foreign).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1:8081.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "origin": "http://127.0.0.1:8081"},
    ],
)
def test_pages_of_other_origins_may_change_nothing(port: Port, headers: dict[str, str]) -> None:
    for method, path, given in (
        ("POST", "/workers/chat/a/drain", None),
        ("DELETE", "/workers/chat/a", None),
        ("POST", "/override", {"group": "chat", "rule": "jsq"}),
    ):
        answer = port.send(method, path, given, **headers)
        assert answer.status == 403 and answer.error["code"] == "origin"
    assert port.get("/workers/chat/a")["state"] == "up"
    assert port.service.groups["chat"].router.report()["override"] is None


def test_the_page_itself_may(port: Port) -> None:
    own = {"origin": "http://127.0.0.1:8081", "sec_fetch_site": "same-origin"}
    assert port.send("POST", "/workers/chat/a/drain", {}, **own).json()["state"] == "draining"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_a_form_can_send_is_not_taken(port: Port, kind: str) -> None:
    given = json.dumps({"group": "chat", "rule": "jsq"}).encode()
    assert port.send("POST", "/override", given, content_type=kind).status == 415
    assert port.send("POST", "/workers/chat/a/drain", b"", content_type=kind).status == 415
    assert port.call("POST", "/override", given).status == 415  # not said at all
    assert port.service.groups["chat"].router.report()["override"] is None


def test_all_but_the_page_asks_for_the_token() -> None:
    port = Port(f"admin_token: {TOKEN}\n{TEXT}", public=("/", "/livez"), routes=[Route("/livez", _alive)])
    token = [(b"authorization", f"Bearer {TOKEN}".encode())]
    for method, path in (
        *(("GET", "/status.json"), ("GET", "/workers"), ("GET", "/explain/chat"), ("GET", "/nothing")),
        *(("POST", "/"), ("POST", "/livez"), ("POST", "/workers/chat/a/drain"), ("DELETE", "/workers/chat/a")),
    ):
        for headers in ([], [(b"authorization", b"Bearer wrong")], [(b"authorization", TOKEN.encode())]):
            answer = port.call(method, path, headers=headers)
            assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer")
            assert TOKEN not in answer.body.decode()
    assert port.call("GET", "/").status == 200 and port.call("GET", "/livez").status == 200
    assert port.call("GET", "/status.json", headers=token).status == 200
    assert port.call("POST", "/workers/chat/a/drain", headers=token).status == 200
    assert TOKEN not in port.call("GET", "/status.json", headers=token).body.decode()
    port.call.close()


async def _alive(request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


async def _broken(request: Request) -> PlainTextResponse:
    raise RuntimeError("a secret in a message")


# --- bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"3", b'"text"', b"null", b'{"group": NaN}', b"\xff\xfe", b"[" * 30_000, b"{}{}"],
)
def test_what_is_no_json_object(port: Port, body: bytes) -> None:
    assert said(port.send("POST", "/override", body), 400).startswith("body: ")
    assert said(port.send("POST", "/workers", body), 400).startswith("body: ")


def test_a_body_is_bounded_however_it_comes(port: Port) -> None:
    pieces = [b"{" + b" " * 20_000] * 4
    for path in ("/override", "/workers/chat/a/drain"):
        answer = port.call("POST", path, pieces, [(b"content-type", b"application/json")])
        assert "64 KiB" in said(answer, 413)
    assert "must be left out" in said(port.send("POST", "/workers/chat/a/drain", {"now": True}), 400)
    assert port.get("/workers/chat/a")["state"] == "up"


def test_what_is_not_there(port: Port) -> None:
    assert "/nothing" in said(port.call("GET", "/nothing"), 404)
    answer = port.call("PUT", "/override", headers=[(b"content-type", b"application/json")])
    assert "does not take PUT" in said(answer, 405) and answer.headers["allow"] == "POST"
    answer = port.call("PUT", "/workers/chat/a", headers=[(b"content-type", b"application/json")])
    assert answer.status == 405 and answer.headers["allow"] == "DELETE, GET, HEAD, PATCH"
    assert len(said(port.call("GET", "/" + "x" * 5000), 404)) < 200


def test_an_error_of_its_own_tells_nothing() -> None:
    port = Port(routes=[Route("/broken", _broken)])

    async def asked() -> tuple[int, str]:
        async with serving(port.app) as url, aiohttp.ClientSession() as session, session.get(url + "/broken") as answer:
            return answer.status, await answer.text()

    status, text = asyncio.run(asked())
    assert status == 500 and "secret" not in text and json.loads(text)["error"]["type"] == "server_error"
    port.call.close()


def test_every_answer_says_what_browsers_may_do_with_it(port: Port) -> None:
    for answer in (port.call("GET", "/report"), port.call("GET", "/nothing"), port.call("GET", "/")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    policy = port.call("GET", "/").headers["content-security-policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert re.search(r"script-src 'sha256-[^']+';", policy) and re.search(r"style-src 'sha256-[^']+'", policy)


def test_the_page_asks_for_nothing_elsewhere_and_makes_no_markup_of_data(port: Port) -> None:
    answer = port.call("GET", "/")
    text = answer.body.decode()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", 'style="', "onclick"):
        assert word not in text
    addresses = set(re.findall(r"https?://[^'\"\s)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert port.call("HEAD", "/").status == 200


def test_the_routes_of_others_are_behind_the_same_door() -> None:
    port = Port(routes=[Route("/livez", _alive)])
    assert port.call("GET", "/livez").body == b"ok"
    port.call.close()
    with port.at("evil.example") as call:
        assert call("GET", "/livez").status == 403


def test_over_a_socket_by_a_client(port: Port) -> None:
    async def asked() -> None:
        async with serving(port.app) as url, aiohttp.ClientSession() as session:
            given = {"group": "embed", "name": "d", "url": "http://127.0.0.1:9004"}
            async with session.post(url + "/workers", json=given) as answer:
                assert answer.status == 201
                where = answer.headers["location"]
            async with session.get(url + where) as answer:
                assert (await answer.json())["url"] == given["url"]
            async with session.delete(url + where) as answer:
                assert answer.status == 200
            async with session.post(
                url + "/workers", data=b"x" * 100_000, headers={"content-type": "application/json"}
            ) as answer:
                assert answer.status == 413

    asyncio.run(asked())
