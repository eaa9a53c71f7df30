"""The proxy on real sockets: what goes on to backends, what comes back, what is tried again, and what the router is told."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import json
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import aiohttp
import pytest
from yarl import URL

from queuewise.live.service.config import parse
from queuewise.live.service.groups import Group
from queuewise.live.service.metrics import Metrics
from queuewise.live.service.proxy import SHORT, Proxy
from queuewise.live.service.service import Service
from queuewise.live.service.upstream import new_session

from .backends import Act, Backend, answer, echo, says, streams, waits
from .running import serving

CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
#: Makes a router ask "a" first.
A_FIRST = {"a": "rate: 1000.0", "b": "rate: 1.0"}
QUICK = aiohttp.ClientTimeout(total=20)


class Bed:
    """A proxy in front of backends, and a client."""

    def __init__(self, url: str, proxy: Proxy, backends: dict[str, Backend], client: aiohttp.ClientSession) -> None:
        self.url, self.proxy, self.backends, self.client = url, proxy, backends, client

    @property
    def group(self) -> Group:
        return next(iter(self.proxy.service.groups.values()))

    def do(self, act: Act, *names: str) -> None:
        for name in names or self.backends:
            self.backends[name].act = act

    async def post(self, path: str = CHAT, **options: Any) -> tuple[int, bytes, Any]:
        options = {"json": {"model": "m", "messages": []}, **options} if "data" not in options else options
        async with self.client.post(URL(self.url + path, encoded=True), **options) as response:
            return response.status, await response.read(), response.headers

    async def get(self, path: str, **options: Any) -> tuple[int, bytes, Any]:
        async with self.client.get(URL(self.url + path, encoded=True), **options) as response:
            return response.status, await response.read(), response.headers

    @property
    def heard(self) -> int:
        return sum(len(backend.heard) for backend in self.backends.values())

    def outcomes(self, name: str | None = None) -> dict[str, int]:
        router = self.group.router
        found = router.report()["outcomes"] if name is None else router.estimates()[name]["outcomes"]
        return {end: count for end, count in found.items() if count}

    async def settle(self) -> None:
        """Until nothing is out."""
        for _ in range(200):
            if self.group.router.report()["out"] == 0:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("a ticket was never released")


@contextlib.asynccontextmanager
async def bed(
    names: tuple[str, ...] = ("a", "b"),
    group: str = "",
    settings: str = "",
    backend: dict[str, str] | None = None,
    dead: tuple[str, ...] = (),
) -> AsyncIterator[Bed]:
    """group, settings, backend : more of the YAML file, in flow style · dead : names of backends that nobody listens for."""
    async with contextlib.AsyncExitStack() as stack:
        backends = {name: Backend(name) for name in names}
        urls = {name: await stack.enter_async_context(serving(one)) for name, one in backends.items()}
        urls |= dict.fromkeys(dead, "http://127.0.0.1:1")
        listed = ", ".join(f'{name}: {{url: "{url}", {(backend or {}).get(name, "")}}}' for name, url in urls.items())
        config = parse(f"{{groups: {{g: {{backends: {{{listed}}}, {group}}}}}, {settings}}}")
        service = Service(config)
        metrics = Metrics(service)
        service.listeners = (metrics.ended,)
        session = await stack.enter_async_context(new_session())
        proxy = Proxy(service, session, metrics)
        url = await stack.enter_async_context(serving(proxy, server_header=False, date_header=False))
        client = await stack.enter_async_context(aiohttp.ClientSession(timeout=QUICK))
        yield Bed(url, proxy, backends, client)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def error_of(body: bytes) -> dict[str, Any]:
    found = json.loads(body)
    assert list(found) == ["error"]
    assert set(found["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = found["error"]
    return error


# --- what goes on, and what comes back --------------------------------------------------------------------------------


def test_a_request_goes_through_byte_for_byte_and_so_does_its_answer() -> None:
    async def test() -> None:
        async with bed(("a",)) as b:
            back = bytes(range(256)) * 3
            b.do(says(201, back, (("content-type", "x/y"), ("openai-processing-ms", "12"), ("set-cookie", "k=v"))))
            sent = b'{"model":  "m",\t"n": 1.0e2, "n": 2, "\\u00e9": "\xc3\xa9"}'
            status, body, headers = await b.post(
                "/v1/audio/speech?x=1&y=a%2Fb",
                data=sent,
                headers={
                    "content-type": "application/json",
                    "authorization": "Bearer client",
                    "x-request-id": "r-1",
                    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                    "x-queuewise-work": "2.5",
                    "connection": "keep-alive, x-private",
                    "x-private": "for this connection",
                    "te": "trailers",
                },
            )
            assert (status, body) == (201, back)
            assert headers["content-type"] == "x/y" and headers["openai-processing-ms"] == "12"
            assert headers["set-cookie"] == "k=v"
            assert headers["x-queuewise-backend"] == "a" and headers["x-queuewise-attempts"] == "1"
            assert 0.0 < float(headers["x-queuewise-overhead-ms"]) < 1000.0
            assert headers["x-request-id"] == "r-1"
            (heard,) = b.backends["a"].heard
            assert (heard.method, heard.path, heard.query) == ("POST", "/v1/audio/speech", "x=1&y=a%2Fb")
            assert heard.body == sent
            assert heard.header("authorization") == "Bearer client"
            assert heard.header("x-request-id") == "r-1"
            assert heard.header("traceparent") == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            assert heard.header("host") == b.group.config.backends["a"].url.removeprefix("http://")
            assert heard.header("content-length") == str(len(sent))
            for gone in ("x-queuewise-work", "x-private", "te"):
                assert heard.header(gone) is None
            assert b.group.router.decisions(1)[0].work == 2.5
            await b.settle()
            assert b.outcomes() == {"done": 1}

    run(test())


def test_methods_without_a_body_and_answers_without_one() -> None:
    async def test() -> None:
        async with bed(("a",)) as b:
            status, _, _ = await b.get("/v1/files")
            assert status == 200 and b.backends["a"].heard[-1].header("content-length") is None
            async with b.client.head(b.url + "/v1/files") as response:
                assert response.status == 200 and await response.read() == b""
            b.do(says(204, b""))
            async with b.client.delete(b.url + "/v1/files/x") as response:
                assert response.status == 204
            b.do(says(302, b"", (("location", "http://elsewhere.example/"),)))
            async with b.client.get(b.url + "/v1/x", allow_redirects=False) as response:
                assert response.status == 302 and response.headers["location"] == "http://elsewhere.example/"
            assert b.outcomes() == {"done": 4}

    run(test())


def test_a_stream_is_passed_on_piece_by_piece_to_its_end() -> None:
    async def test() -> None:
        async with bed(("a",)) as b:
            pieces = [b'data: {"n": %d}\n\n' % n for n in range(4)] + [b"data: [DONE]\n\n"]
            b.do(streams(pieces, gap=0.05))
            got = []
            begin = time.perf_counter()
            async with b.client.post(b.url + CHAT, json={"stream": True}) as response:
                assert response.headers["content-type"] == "text/event-stream"
                async for piece in response.content.iter_any():
                    got.append((time.perf_counter() - begin, piece))
                    if len(got) == 1:
                        assert b.group.router.report()["out"] == 1  # the slot is held until the end
            assert b"".join(piece for _, piece in got) == b"".join(pieces)
            assert got[0][0] < got[-1][0] - 0.05  # the first came long before the last
            await b.settle()
            assert b.outcomes() == {"done": 1}

    run(test())


def test_a_long_answer_of_known_length_is_streamed_too() -> None:
    async def test() -> None:
        async with bed(("a",)) as b:
            long = bytes(SHORT + 10)
            b.do(says(200, long))
            status, body, headers = await b.post()
            assert (status, body) == (200, long) and headers["content-length"] == str(len(long))
            b.do(says(500, long))
            status, body, headers = await b.post()
            assert (status, body, headers["x-queuewise-attempts"]) == (500, long, "1")
            await b.settle()
            assert b.outcomes() == {"done": 1, "error": 1}

    run(test())


def test_a_large_request_goes_through() -> None:
    async def test() -> None:
        async with bed(("a",)) as b:
            large = bytes(3 << 20)
            status, _, _ = await b.post(data=io.BytesIO(large), headers={"content-type": "application/octet-stream"})
            assert status == 200 and b.backends["a"].heard[0].body == large

    run(test())


def test_a_backend_has_its_own_key_and_name_of_the_model() -> None:
    async def test() -> None:
        settings = {"a": 'key: "sk-own", model: "up/stream"'}
        async with bed(("a",), backend=settings, group="models: [m]") as b:
            sent = {"model": "m", "messages": ["é"], "temperature": 0.1}
            await b.post(json=sent, headers={"authorization": "Bearer client"})
            (heard,) = b.backends["a"].heard
            assert heard.header("authorization") == "Bearer sk-own"
            assert json.loads(heard.body) == {**sent, "model": "up/stream"}
            half = b'{"model": "m", "messages": ["\\ud83d"], "x": NaN}'  # half a character, as clients make by cutting texts
            status, _, _ = await b.post(data=half, headers=JSON)
            assert status == 200 and b"\\ud83d" in b.backends["a"].heard[1].body
            assert b.outcomes() == {"done": 2}

    run(test())


# --- what is tried again ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_failure_is_tried_at_another_backend_and_told_the_router(status: int) -> None:
    async def test() -> None:
        async with bed(backend=A_FIRST) as b:
            b.do(says(status, b"no"), "a")
            for _ in range(4):
                found, _, headers = await b.post()
                assert found == 200 and headers["x-queuewise-backend"] == "b"
            await b.settle()
            assert "done" not in b.outcomes("a")
            assert b.outcomes("a") == {"refused" if status in (429, 503) else "error": len(b.backends["a"].heard)}
            assert b.outcomes("b") == {"done": 4}
            assert b.backends["a"].heard, "it was never asked"

    run(test())


def test_a_backend_that_cannot_be_reached_is_passed_by() -> None:
    async def test() -> None:
        async with bed(("a",), dead=("gone",)) as b:
            for _ in range(10):
                status, _, headers = await b.post("/v1/files", data=b"once only")
                assert status == 200 and headers["x-queuewise-backend"] == "a"
            assert b.outcomes("gone")["refused"] >= 1
            assert b.group.router.estimates()["gone"]["state"] == "open" or b.outcomes("gone")["refused"] < 5

    run(test())


def test_a_backend_that_takes_no_connection_in_time_is_passed_by() -> None:
    """A full queue of connections: what is sent to it gets no answer, as from a machine that is off."""

    async def test() -> None:
        with contextlib.ExitStack() as stack:
            full = stack.enter_context(socket.socket())
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for _ in range(3):
                one = stack.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            async with bed(("b",), dead=("a",), settings="timeouts: {connect: 0.2}") as b:
                url = f"http://127.0.0.1:{full.getsockname()[1]}"
                configs = {**b.group.config.backends}
                configs["a"] = configs["a"].model_copy(update={"url": url, "rate": 1000.0})
                configs["b"] = configs["b"].model_copy(update={"rate": 1.0})
                b.group.apply(b.group.config.model_copy(update={"backends": configs}))
                for _ in range(30):
                    status, _, headers = await b.post("/v1/files", data=b"once only")
                    assert status == 200 and headers["x-queuewise-backend"] == "b"
                    if b.outcomes("a"):
                        break
                assert b.outcomes("a") == {"refused": 1}

    run(test())


def test_no_backend_is_blamed_where_files_are_used_up_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def none_left(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    async def test() -> None:
        async with bed() as b:
            assert (await b.post())[0] == 200  # the client has its connection
            with monkeypatch.context() as patch:
                patch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", none_left)
                await b.proxy.session.close()
                b.proxy.session = new_session()
                for _ in range(12):
                    status, body, headers = await b.post()
                    assert (status, error_of(body)["code"], headers["retry-after"]) == (503, "exhausted", "1")
            assert b.outcomes() == {"done": 1, "cancelled": 12}
            assert {one["state"] for one in b.group.router.estimates().values()} == {"up"}
            assert caplog.text.count("no connection to a backend can be made here: Too many open files") == 1
            assert (await b.post())[0] == 200
            await b.proxy.session.close()

    run(test())


def test_the_last_failure_is_what_the_client_gets() -> None:
    async def test() -> None:
        async with bed() as b:
            b.do(says(500, b'{"error": "mine"}', (("x-detail", "7"), ("content-type", "application/json"))))
            status, body, headers = await b.post()
            assert (status, body, headers["x-detail"]) == (500, b'{"error": "mine"}', "7")
            assert headers["x-queuewise-attempts"] == "2" and b.heard == 2

    run(test())


def test_the_last_answer_that_there_was_is_kept_when_the_next_backend_says_nothing() -> None:
    async def test() -> None:
        async with bed(("a",), dead=("b",), backend=A_FIRST) as b:
            b.do(says(500, b"mine"))
            status, body, headers = await b.post()
            assert (status, body, headers["x-queuewise-attempts"]) == (500, b"mine", "2")
            assert headers["x-queuewise-backend"] == "a"

    run(test())


def test_a_long_failure_of_unknown_length_is_passed_on_whole() -> None:
    async def long(backend: Backend, heard: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        for _ in range(10):
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})

    async def test() -> None:
        async with bed() as b:
            b.do(long)
            status, body, _ = await b.post()
            assert status == 500 and len(body) == 1_000_003 and body.endswith(b"end")
            await b.settle()
            assert b.outcomes() == {"error": 1}

    run(test())


def test_a_retry_that_nobody_can_take_is_not_counted() -> None:
    async def test() -> None:
        async with bed(("a", "b", "c"), settings="retries: {share: 0.0, per_second: 0.1}", group="circuit: off") as b:
            b.do(says(500))
            b.group.router.drain("b")
            b.group.router.drain("c")
            for _ in range(5):
                status, _, headers = await b.post()
                assert (status, headers["x-queuewise-attempts"]) == (500, "1")
            assert b.proxy.budget.remaining == pytest.approx(1.0, abs=0.1)
            b.group.router.resume("b")
            assert (await b.post())[2]["x-queuewise-attempts"] == "2"

    run(test())


def test_nothing_is_sent_twice_that_might_have_been_done_unless_its_path_allows_it() -> None:
    async def test() -> None:
        async with bed() as b:
            b.do(says(500))
            status, _, headers = await b.post("/v1/files", data=b"x")
            assert (status, headers["x-queuewise-attempts"]) == (500, "1")
            status, _, headers = await b.get("/v1/files")
            assert (status, headers["x-queuewise-attempts"]) == (500, "2")
            b.do(says(429))  # a backend that takes nothing has done nothing
            _, _, headers = await b.post("/v1/files", data=b"x")
            assert headers["x-queuewise-attempts"] == "2"

    run(test())


def test_retries_end_with_their_budget() -> None:
    async def test() -> None:
        async with bed(settings="retries: {share: 0.0, per_second: 0.5}", group="circuit: off") as b:
            b.do(says(500))
            attempts = [(await b.post())[2]["x-queuewise-attempts"] for _ in range(8)]
            assert attempts.count("2") == 5  # ten seconds' worth of a half
            assert attempts[-1] == "1"

    run(test())


def test_nothing_is_tried_again_after_the_first_byte() -> None:
    async def test() -> None:
        async with bed() as b:
            b.do(streams([b"data: 1\n\n"], breaks=True))
            got = b""
            with pytest.raises(aiohttp.ClientPayloadError):
                async with b.client.post(b.url + CHAT, json={}) as response:
                    async for piece in response.content.iter_any():
                        got += piece
            assert got == b"data: 1\n\n" and b.heard == 1
            await b.settle()
            assert b.outcomes() == {"error": 1}

    run(test())


def test_a_short_answer_that_breaks_off_is_tried_elsewhere() -> None:
    async def breaks(backend: Backend, heard: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"12345", "more_body": True})
        raise ConnectionError

    async def test() -> None:
        async with bed(backend=A_FIRST) as b:
            b.do(breaks, "a")
            for _ in range(4):
                status, _, headers = await b.post()
                assert status == 200 and headers["x-queuewise-backend"] == "b"
            assert b.outcomes("a") == {"error": len(b.backends["a"].heard)} and b.backends["a"].heard

    run(test())


def test_retry_after_is_heeded_and_passed_on_when_all_ask_for_it() -> None:
    async def test() -> None:
        async with bed(backend=A_FIRST) as b:
            b.do(says(429, b"slow down", (("retry-after", "30"),)), "a")
            for _ in range(6):
                assert (await b.post())[0] == 200
            assert len(b.backends["a"].heard) == 1
            assert b.group.router.estimates()["a"]["state"] == "resting"
            assert b.outcomes("a") == {"cancelled": 1}  # it is no failure
            b.do(says(503, b"me too", (("retry-after", "20"),)), "b")
            status, body, headers = await b.post()
            assert (status, body, headers["retry-after"]) == (503, b"me too", "20")
            status, body, headers = await b.post()
            assert status == 429 and 15 <= int(headers["retry-after"]) <= 20
            assert error_of(body)["code"] == "overloaded"
            assert b.heard == 8

    run(test())


# --- who is to blame --------------------------------------------------------------------------------------------------


def test_a_clients_mistake_is_neither_service_nor_failure() -> None:
    async def test() -> None:
        async with bed(("a",)) as b:
            for status in (400, 401, 403, 404, 413, 422):
                b.do(says(status, b"you"))
                assert (await b.post())[:2] == (status, b"you")
            assert b.outcomes() == {"cancelled": 6}
            assert b.group.router.estimates()["a"]["state"] == "up"

    run(test())


@pytest.mark.parametrize("status", [401, 404])
def test_a_backend_that_refuses_what_others_serve_attracts_no_traffic(status: int) -> None:
    """It is set up wrongly (a key, a path), and always idle: a few clients see it, then another one is asked, which tells."""

    async def test() -> None:
        async with bed(backend=A_FIRST) as b:
            b.do(says(status), "a")
            found = [(await b.post())[0] for _ in range(30)]
            assert found[:2] == [status, status] and set(found[2:]) == {200}
            assert 5 <= len(b.backends["a"].heard) <= 10
            assert b.group.router.estimates()["a"]["state"] == "open"
            assert b.outcomes("a") == {"cancelled": len(b.backends["a"].heard)}

    run(test())


def test_who_breaks_off_has_not_served_and_blames_nobody() -> None:
    async def breaks(backend: Backend, heard: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"123", "more_body": True})
        raise ConnectionError

    async def test() -> None:
        async with bed(backend=A_FIRST) as b:
            b.do(says(404), "a")
            b.do(breaks, "b")
            for _ in range(12):
                await b.post()
            assert b.group.router.estimates()["a"]["state"] == "up"

    run(test())


def test_what_all_refuse_is_the_clients_doing() -> None:
    """A path that nobody has must not cost the backends their names, nor others twice the load."""

    async def test() -> None:
        async with bed(("a", "b", "c"), group="models: [m]") as b:
            for _ in range(20):
                assert (await b.post())[0] == 200
            before = b.group.router.estimates()
            b.do(says(404))
            statuses = [await b.post("/v1/nowhere") for _ in range(40)]
            assert {status for status, _, _ in statuses} == {404}
            assert sum(int(headers["x-queuewise-attempts"]) for _, _, headers in statuses) <= 44
            after = b.group.router.estimates()
            for name, one in before.items():
                assert after[name]["state"] == "up"
                if one["rate"] is not None:  # a refusal takes as long as an answer here, and completes nothing
                    assert after[name]["rate"] > one["rate"] / 10.0

    run(test())


def test_a_client_that_leaves_ends_the_work_for_it() -> None:
    async def test() -> None:
        async with bed(("a",)) as b:
            b.do(waits(10.0))
            with pytest.raises(TimeoutError):
                await b.post(timeout=aiohttp.ClientTimeout(total=0.15))
            await b.settle()
            b.do(streams([b"data: 1\n\n"] * 1000, gap=0.02))
            async with b.client.post(b.url + CHAT, json={}) as response:
                await response.content.readany()
            await b.settle()
            await asyncio.sleep(0.2)
            assert b.backends["a"].left == 2 and b.backends["a"].sent < 100
            assert b.outcomes() == {"cancelled": 2}

    run(test())


def test_deadlines() -> None:
    async def test() -> None:
        async with bed(("a",), settings="timeouts: {deadline: 0.2}") as b:
            b.do(waits(10.0))
            status, body, _ = await b.post()
            assert status == 504 and error_of(body)["code"] == "deadline_exceeded"
            assert b.outcomes() == {"timeout": 1}
        async with bed(("a",)) as b:
            b.do(waits(10.0))
            status, _, _ = await b.post(headers={"x-queuewise-timeout": "0.1"})
            assert status == 504 and b.outcomes() == {"cancelled": 1}  # the client's haste is no backend's fault
        async with bed(backend=A_FIRST, settings="timeouts: {first_byte: 0.2}") as b:
            b.do(waits(10.0), "a")
            for _ in range(3):
                status, _, headers = await b.post()
                assert status == 200 and headers["x-queuewise-backend"] == "b"
            assert b.outcomes("a") == {"timeout": len(b.backends["a"].heard)} and b.backends["a"].heard
            b.do(waits(10.0))
            status, body, _ = await b.post()
            assert status == 504 and error_of(body)["code"] == "backend_timeout"
        async with bed(("a",), settings="timeouts: {idle: 0.2}") as b:
            b.do(streams([b"data: 1\n\n"], silent=10.0))
            with pytest.raises(aiohttp.ClientPayloadError):
                await b.post()
            await b.settle()
            assert b.outcomes() == {"timeout": 1}

    run(test())


def test_a_stream_may_go_on_beyond_the_deadline() -> None:
    async def test() -> None:
        async with bed(("a",), settings="timeouts: {deadline: 0.2}") as b:
            b.do(streams([b"data: 1\n\n"] * 8, gap=0.06))
            status, body, _ = await b.post()
            assert (status, body) == (200, b"data: 1\n\n" * 8)

    run(test())


# --- what is answered here --------------------------------------------------------------------------------------------


def test_nobody_to_ask() -> None:
    async def test() -> None:
        async with bed(("a",), dead=()) as b:
            b.group.router.drain("a")
            status, body, headers = await b.post()
            assert status == 503 and error_of(body)["code"] == "no_backend" and "retry-after" in headers
            assert "x-request-id" in headers
        async with bed((), dead=("x", "y")) as b:
            status, body, headers = await b.post()
            error = error_of(body)
            assert (status, error["code"], headers["x-queuewise-attempts"]) == (502, "backend_refused", "2")
            assert "127.0.0.1" not in body.decode()  # where backends are is nobody's business

    run(test())


def test_shedding() -> None:
    async def test() -> None:
        async with bed(("a",), group="shed: {in_flight: 2}") as b:
            b.do(waits(0.3))
            found = await asyncio.gather(*(b.post() for _ in range(5)))
            assert sorted(status for status, _, _ in found) == [200, 200, 429, 429, 429]
            for status, body, headers in found:
                if status == 429:
                    assert error_of(body)["type"] == "rate_limit_error" and int(headers["retry-after"]) >= 1
        async with bed(("a",), group="shed: {wait: 1.0}", backend={"a": "rate: 1.0"}) as b:
            b.do(waits(0.3))
            found = await asyncio.gather(*(b.post() for _ in range(5)))
            assert sorted(status for status, _, _ in found) == [200, 200, 429, 429, 429]

    run(test())


def test_models_are_mapped_to_groups() -> None:
    async def test() -> None:
        one, two, rest = Backend("one"), Backend("two"), Backend("rest")
        async with serving(one) as u1, serving(two) as u2, serving(rest) as u3:
            config = parse(
                f'{{groups: {{g1: {{models: [m, n], backends: {{one: "{u1}"}}}}, g2: {{models: [big], '
                f'backends: {{two: "{u2}"}}}}}}}}'
            )
            with_rest = parse(
                f'{{groups: {{g1: {{models: [m], backends: {{one: "{u1}"}}}}, g3: {{backends: {{rest: "{u3}"}}}}}}}}'
            )
            for settings in (config, with_rest):
                service = Service(settings)
                async with new_session() as session:
                    proxy = Proxy(service, session, Metrics(service))
                    async with serving(proxy) as url, aiohttp.ClientSession(timeout=QUICK) as client:
                        b = Bed(url, proxy, {}, client)
                        assert (await b.post(json={"model": "m"}))[2]["x-queuewise-backend"] == "one"
                        status, body, _ = await b.post(json={"model": "other"})
                        listed = json.loads((await b.get("/v1/models"))[1])
                        if settings is with_rest:
                            assert status == 200 and json.loads(body)["backend"] == "rest"
                            assert [one["id"] for one in listed["data"]] == ["m"]
                            continue
                        assert status == 404 and error_of(body)["code"] == "model_not_found"
                        assert error_of(body)["param"] == "model"
                        assert (await b.post(json={}))[0] == 404
                        form = aiohttp.FormData({"file": io.BytesIO(b"sound"), "model": "big"})
                        found = await b.post("/v1/audio/transcriptions", data=form)
                        assert found[2]["x-queuewise-backend"] == "two"
                        for options in ({"data": b"form", "headers": {}}, {"json": {}, "headers": {}}):
                            options["headers"]["x-queuewise-model"] = "big"
                            found = await b.post("/v1/audio/transcriptions", **options)
                            assert found[2]["x-queuewise-backend"] == "two"
                        lines = {"content-type": "application/x-ndjson", "x-queuewise-model": "m"}
                        assert (await b.post("/v1/batch", data=b"{}\n{}", headers=lines))[0] == 200
                        assert (await b.post(json={"model": "big"}))[2]["x-queuewise-backend"] == "two"
                        assert listed["object"] == "list"
                        assert [one["id"] for one in listed["data"]] == ["m", "n", "big"]
                        assert json.loads((await b.get("/v1/models/n"))[1])["id"] == "n"
                        assert (await b.get("/v1/models/no"))[0] == 404

    run(test())


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ({"data": b"{", "headers": JSON}, 400, "invalid_json"),
        ({"data": b"[1]", "headers": JSON}, 400, "invalid_json"),
        ({"data": b"[" * 100_000, "headers": JSON}, 400, "invalid_json"),
        ({"json": {"model": 5}}, 400, "invalid_value"),
        ({"json": {"model": "m" * 100_000}}, 400, "invalid_value"),
        ({"json": {"model": "no such"}}, 404, "model_not_found"),
        ({"json": {"model": "m"}, "headers": {"x-queuewise-work": "nan"}}, 400, "invalid_value"),
        ({"json": {"model": "m"}, "headers": {"x-queuewise-work": "-1"}}, 400, "invalid_value"),
        ({"json": {"model": "m"}, "headers": {"x-queuewise-timeout": "soon"}}, 400, "invalid_value"),
        ({"json": {"model": "m"}, "headers": {"x-queuewise-timeout": "inf"}}, 400, "invalid_value"),
        ({"json": {"model": "m"}, "headers": {"x-queuewise-class": "no"}}, 400, "invalid_value"),
        ({"data": b"x" * 5000}, 413, "request_too_large"),
    ],
)
def test_bad_requests_get_one_sentence_and_reach_no_backend(options: dict[str, Any], status: int, code: str) -> None:
    async def test() -> None:
        limits = "limits: {body: 200kB}" if status != 413 else "limits: {body: 4kB}"
        async with bed(("a",), group="models: [m], classes: [chat, embed]", settings=limits) as b:
            found, body, headers = await b.post(**options)
            assert (found, error_of(body)["code"]) == (status, code)
            assert len(body) < 300 and headers["x-request-id"] and b.heard == 0
            assert b.group.router.report()["decisions"] == 0
            assert (await b.post(json={"model": "m"}))[0] == 200  # and nothing is wrong after it

    run(test())


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "messages": ["\\ud83d"]}',
        b'\xef\xbb\xbf{"model": "m"}',
        '{"model": "m"}'.encode("utf-16"),
        b'{"model": "m", "x": NaN}',
        b'{"model": "n", "model": "m"}',
        b'{"model": "m", "deep": ' + b"[" * 400 + b"]" * 400 + b"}",
    ],
    ids=["half", "bom", "utf-16", "nan", "twice", "deep"],
)
def test_the_model_is_found_in_any_json(body: bytes) -> None:
    async def test() -> None:
        async with bed(("a",), group="models: [m]") as b:
            assert (await b.post(data=body, headers=JSON))[0] == 200
            assert b.backends["a"].heard[0].body == body

    run(test())


def test_a_large_request_of_many_small_things_takes_little_memory() -> None:
    body = b'{"model": "m", "x": [' + b"{}," * 1_000_000 + b"{}]}"

    async def test() -> None:
        async with bed(("a",), group="models: [m]") as b:
            tracemalloc.start()
            try:
                status, _, _ = await b.post(data=io.BytesIO(body), headers=JSON)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert status == 200
            assert peak < 12 * len(body)  # a million of Python's objects are more than that alone

    run(test())


def test_classes_of_requests() -> None:
    async def test() -> None:
        async with bed(("a",), group="classes: [chat, embed]") as b:
            await b.post()
            await b.post(headers={"x-queuewise-class": "embed"})
            assert [decision.key for decision in b.group.router.decisions()] == ["chat", "embed"]

    run(test())


def test_paths_that_lead_out_of_v1_are_refused() -> None:
    more = ("/v1/x%5c..%5c..%5cadmin", "/v1/x\\..\\..\\admin", "/v1/..;/admin", "/v1/x/..%3Ba=b/..;/admin")

    async def test() -> None:
        async with bed(("a",)) as b:
            host, port = b.url.removeprefix("http://").split(":")
            for path in ("/v1/../admin", "/v1/%2e%2e/admin", "/v1/x/%2E%2e/y", "/v1/./x", "/v1/..%5cadmin", *more):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
                said = await reader.read()
                assert said.startswith(b"HTTP/1.1 400"), (path, said)
                writer.close()
                await writer.wait_closed()
            assert b.heard == 0
            for path in ("/v1/a..b/.hidden", "/v1/files/a.b;v=1", "/v1/...", "/v1/x;..y"):
                assert (await b.get(path))[0] == 200

    run(test())


@pytest.mark.parametrize("method", ["TRACE", "CONNECT"])
def test_methods_that_would_show_a_backends_key_or_open_a_tunnel_are_not_passed_on(method: str) -> None:
    async def test() -> None:
        async with bed(("a",), backend={"a": "key: sk-own"}) as b:
            host, port = b.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"{method} /v1/x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
            said = await reader.read()
            writer.close()
            await writer.wait_closed()
            assert said.startswith(b"HTTP/1.1 405") and error_of(said.partition(b"\r\n\r\n")[2])
            assert b.heard == 0

    run(test())


def test_a_token_is_asked_for_and_never_passed_on() -> None:
    async def test() -> None:
        async with bed(("a",), settings="token: t0ken") as b:
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "t0ken"}):
                status, body, back = await b.post(headers=headers)
                assert status == 401 and error_of(body)["type"] == "authentication_error"
                assert back["www-authenticate"].startswith("Bearer")
            assert b.heard == 0
            assert (await b.post(headers={"authorization": "Bearer t0ken"}))[0] == 200
            assert b.backends["a"].heard[0].header("authorization") is None

    run(test())


def test_every_ticket_is_released_once_whatever_happens() -> None:
    """A storm: backends that answer, fail, stream, break off and hang, clients that leave."""

    async def moody(backend: Backend, heard: Any, send: Any) -> None:
        acts = [
            echo,
            says(500),
            says(429),
            says(503, b"", (("retry-after", "1"),)),
            says(404),
            streams([b"data: 1\n\n"] * 3, gap=0.01),
            streams([b"data: 1\n\n"], breaks=True),
            waits(0.3),
        ]
        await acts[len(backend.heard) % len(acts)](backend, heard, send)

    async def test() -> None:
        settings = "timeouts: {first_byte: 0.2, idle: 0.2, deadline: 0.5, longest_rest: 0.05}"
        async with bed(("a", "b", "c"), settings=settings) as b:
            b.do(moody)
            ends: dict[str, int] = {}

            async def one(number: int) -> None:
                total = 0.02 if number % 7 == 0 else 5.0
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    await b.post(timeout=aiohttp.ClientTimeout(total=total))

            b.group.router.listen(lambda ended: ends.__setitem__(ended.end, ends.get(ended.end, 0) + 1))
            for _ in range(6):
                await asyncio.gather(*(one(number) for number in range(40)))
            await b.settle()
            report = b.group.router.report()
            assert report["out"] == 0 and report["released_twice"] == 0
            assert sum(ends.values()) == report["decisions"] > 240
            assert {"done", "error", "refused", "cancelled", "timeout"} <= set(ends)
            assert not {"lost", "expired"} & set(ends)
            assert all(one["in_flight"] == 0 for one in b.group.router.estimates().values())

    run(test())


def test_an_answer_of_ours_is_an_answer() -> None:
    """`answer` is used by hand in other tests: it must be what a client can read."""

    async def test() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await answer(send, 200, b"x")

        async with serving(app) as url, aiohttp.ClientSession() as client, client.get(url) as response:
            assert await response.read() == b"x"

    run(test())


# --- reloads, while requests are under way ----------------------------------------------------------------------------


def test_a_reload_that_changes_the_policy_does_not_disturb_what_runs() -> None:
    """The group has another router then. What runs is released at the one that sent it: neither sent twice, nor lost."""

    async def late_500(backend: Backend, heard: Any, send: Any) -> None:
        await asyncio.sleep(0.2)
        await answer(send, 500, b"late")

    async def test() -> None:
        half_life = 100
        for act, end, body in (
            (waits(0.2), "done", None),
            (streams([b"data: 1\n\n"] * 4, gap=0.08), "done", b"data: 1\n\n" * 4),
            (late_500, "error", b"late"),
        ):
            async with bed() as b:
                b.do(act)
                old = b.group.router
                asking = asyncio.create_task(b.post("/v1/once", data=b"x"))
                while not b.heard:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                half_life += 1
                config = b.proxy.service.config
                group = config.groups["g"].model_copy(update={"half_life": half_life})
                b.proxy.service.reload(config.model_copy(update={"groups": {"g": group}}))
                assert b.group.router is not old
                status, said, _ = await asking
                assert status == (500 if end == "error" else 200) and (body is None or said == body)
                assert b.heard == 1, "it was sent twice"
                assert {end: 1} == {end: count for end, count in old.report()["outcomes"].items() if count}
                assert b.group.router.report()["out"] == 0

    run(test())


def test_a_reload_that_changes_the_classes_does_not_disturb_a_second_try() -> None:
    async def late(backend: Backend, heard: Any, send: Any) -> None:
        await asyncio.sleep(0.2)
        await answer(send, 500, b"late")

    async def test() -> None:
        for before, after in (("classes: [x, y]", ()), ("", ("x", "y")), ("classes: [x, y]", ("z",))):
            async with bed(group=before) as b:
                b.do(late)
                asking = asyncio.create_task(b.post())
                while not b.heard:
                    await asyncio.sleep(0.01)
                config = b.proxy.service.config
                group = config.groups["g"].model_copy(update={"classes": after})
                b.proxy.service.reload(config.model_copy(update={"groups": {"g": group}}))
                status, said, headers = await asking
                assert (status, said, headers["x-queuewise-attempts"]) == (500, b"late", "2")

    run(test())


def test_a_backend_that_is_removed_while_it_fails_leaves_the_others_to_try() -> None:
    async def late(backend: Backend, heard: Any, send: Any) -> None:
        await asyncio.sleep(0.2)
        await answer(send, 500, b"late")

    async def test() -> None:
        async with bed() as b:
            b.do(late)
            asking = asyncio.create_task(b.post())
            while not b.heard:
                await asyncio.sleep(0.01)
            first, other = ("a", "b") if b.backends["a"].heard else ("b", "a")
            b.do(echo, other)
            await asyncio.sleep(0.05)
            b.group.remove(first)
            status, _, headers = await asking
            assert (status, headers["x-queuewise-backend"], headers["x-queuewise-attempts"]) == (200, other, "2")

    run(test())


# --- backends that say odd things -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def saying(said: bytes) -> AsyncIterator[str]:
    """A backend that answers every request with these bytes and hangs up; its URL."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


LENGTH = b"content-length: 2\r\n\r\nhi"


@pytest.mark.parametrize(
    ("said", "status", "body", "end"),
    [
        (b"HTTP/1.1 304 Not Modified\r\netag: x\r\ncontent-length: 10\r\n\r\n", 304, b"", "done"),
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 10\r\n\r\n", 204, b"", "done"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n" + LENGTH, 200, b"hi", "done"),
        (b"HTTP/1.1 200 OK\r\nx-a: b\x01\x1bc\r\n" + LENGTH, 200, b"hi", "done"),
        (b"HTTP/1.1 200 OK\r\nx-a: b\r\n c\r\n" + LENGTH, 200, b"hi", "done"),
        (b"HTTP/1.1 200 OK\r\nx-queuewise-backend: forged\r\n" + LENGTH, 200, b"hi", "done"),
        (b"HTTP/1.1 200 OK\r\nconnection: content-length\r\n" + LENGTH, 200, b"hi", "done"),
        (b"HTTP/1.1 999 Odd\r\n" + LENGTH, 502, None, "error"),
        (b"HTTP/1.1 600 Odd\r\n" + LENGTH, 502, None, "error"),
        (b"HTTP/1.1 099 Odd\r\n" + LENGTH, 502, None, "error"),
        (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nhi", 502, None, "error"),
        (b"HTTP/1.1 200 OK\r\nx-a: b\rc: d\r\n" + LENGTH, 502, None, "error"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n" + LENGTH, 502, None, "error"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n" + LENGTH, 502, None, "error"),
        (b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 5000 + LENGTH, 502, None, "error"),
        (b"HTTP/1.1 200 OK\r\nx-a: " + b"b" * (1 << 17) + b"\r\n" + LENGTH, 502, None, "error"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 502, None, "error"),
        (b"", 502, None, "error"),
    ],
    ids=map(str, range(18)),
)
def test_backends_that_say_odd_things(
    said: bytes, status: int, body: bytes | None, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with saying(said) as url, bed((), dead=("a",)) as b:
            config = b.group.config.backends["a"].model_copy(update={"url": url})
            b.group.apply(b.group.config.model_copy(update={"backends": {"a": config}}))
            found, got, headers = await b.get("/v1/x")
            assert found == status and headers.getall("x-queuewise-backend") == ["a"]
            if body is None:
                assert error_of(got)["code"] == "backend_broken"
            else:
                assert got == body
            assert b.outcomes() == {end: 1} and b.group.router.report()["out"] == 0
            assert not caplog.records

    run(test())


# --- mistakes of our own ----------------------------------------------------------------------------------------------


def test_a_mistake_of_ours_is_a_500_that_gives_nothing_away_and_keeps_no_ticket(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(*_: Any, **__: Any) -> Any:
        raise KeyError("secret of /etc/queuewise")

    async def test() -> None:
        async with bed(("a",)) as b:
            with monkeypatch.context() as patch:
                patch.setattr("queuewise.live.service.upstream.judge", wrong)
                status, body, headers = await b.post(headers={"x-request-id": "r-7"})
            error = error_of(body)
            assert (status, error["type"], error["code"]) == (500, "server_error", "internal_error")
            assert "secret" not in body.decode() and headers["x-request-id"] == "r-7"
            assert "r-7" in caplog.text and "KeyError" in caplog.text
            assert b.group.router.report()["out"] == 0 and b.outcomes() == {"cancelled": 1}
            assert b.proxy.metrics.registry.get_sample_value(
                "queuewise_requests_total", {"group": "g", "backend": "a", "model": "", "code_class": "5xx"}
            )
            assert (await b.post())[0] == 200

    run(test())
