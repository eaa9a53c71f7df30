"""Slow and large clients: what uvicorn lacks."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest

from queuewise.live.service.config import LimitsConfig
from queuewise.live.service.protocol import limited

from .running import serving

#: For those who are to be too slow, and for those who are not: a busy machine holds up anybody, sometimes for a second.
LIMITS = LimitsConfig(head=2000, head_seconds=0.3, body_seconds=0.5)
PATIENT = LimitsConfig(head=2000, head_seconds=2.0, body_seconds=2.0)
#: Seconds within which all that should come comes, on a busy machine too.
SOON = 5.0
HEAD = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n"
#: The same, of a connection's last request.
LAST = HEAD.replace(b"host: x", b"host: x\r\nconnection: close")


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Reads all, says how much."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    text = b"%d" % len(body)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


async def talk(url: str, pieces: list[bytes | float]) -> tuple[bytes, float]:
    """Send pieces and wait between them; what came back until the connection was closed, and when that was."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    begin = time.perf_counter()
    reading = asyncio.create_task(reader.read())
    for piece in pieces:
        if isinstance(piece, float):
            await asyncio.wait({reading}, timeout=piece)
        elif not writer.transport.is_closing():
            writer.write(piece)
    try:
        said = await asyncio.wait_for(reading, 2 * SOON)
    except ConnectionError:
        said = b""
    finally:
        writer.close()
    return said, time.perf_counter() - begin


def said(pieces: list[bytes | float], limits: LimitsConfig = LIMITS) -> tuple[bytes, float]:
    async def run() -> tuple[bytes, float]:
        async with serving(app, http=limited(limits)) as url:
            return await talk(url, pieces)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("pieces", "least"),
    [
        ([b"POST"], 0.25),
        ([b"POST / HTTP/1.1\r\n", *[b"a: b\r\n", 0.1] * 100], 0.25),  # a line at a time, until it is told
        ([HEAD, b"12345"], 0.45),
        ([HEAD.replace(b"10", b"99"), *[b"1", 0.1] * 98], 0.45),
    ],
)
def test_slow_clients(pieces: list[bytes | float], least: float) -> None:
    """Those who say a little at a time would go on for twice SOON."""
    found, seconds = said(pieces)
    assert found.startswith(b"HTTP/1.1 408"), found
    assert least <= seconds <= SOON


def test_who_connects_early_is_not_told_that_he_is_slow() -> None:
    """A 408 would be taken for the answer to the first request."""
    found, _ = said([0.6, LAST + b"1234567890"])
    assert found.startswith(b"HTTP/1.1 200")
    found, seconds = said([], LIMITS.model_copy(update={"keep_alive": 0.3}))
    assert found == b"" and 0.25 <= seconds <= SOON
    found, _ = said([b"\r\n", 0.1, b"\r\n"], LIMITS.model_copy(update={"keep_alive": 0.3}))
    assert found == b""


def test_empty_lines_between_requests_are_none() -> None:
    """They must not keep a connection open that is not used."""

    async def run() -> tuple[bytes, float]:
        async with serving(app, http=limited(LIMITS), timeout_keep_alive=1) as url:
            return await talk(url, [HEAD + b"1234567890", 0.1, b"\r\n", 0.1, b"\r\n"])

    found, seconds = asyncio.run(run())
    assert found.count(b"HTTP/1.1") == 1 and 0.8 <= seconds < 4.5


CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r\n0\r\n"


def test_trailers_are_no_headers() -> None:
    """One that says who it is from would be believed, whatever stands in front of the service and looks at headers."""
    heard: list[bytes] = []

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        heard.extend(name for name, _ in scope["headers"])

    async def run() -> bytes:
        async with serving(noting, http=limited(LIMITS)) as url:
            return (await talk(url, [CHUNKED + b"authorization: Bearer T\r\n\r\n"]))[0]

    found = asyncio.run(run())
    assert found.startswith(b"HTTP/1.1 200") and found.endswith(b"3")
    assert heard == [b"host", b"transfer-encoding", b"connection"]


@pytest.mark.parametrize("piece", [b"a: b\r\n" * 50, b"y" * 300])
def test_trailers_without_end(piece: bytes) -> None:
    found, seconds = said([CHUNKED, b"a: ", *[piece, 0.01] * 20])
    assert found.startswith(b"HTTP/1.1 431") and seconds <= SOON


def test_a_head_that_begins_in_the_piece_of_a_large_body_is_no_large_head() -> None:
    large = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n" + bytes(100_000)
    found, _ = said([large + LAST[:10], 0.2, LAST[10:] + b"1234567890"], PATIENT)
    assert found.count(b"HTTP/1.1 200") == 2


def test_slow_within_the_limits() -> None:
    found, _ = said([LAST[:20], 0.5, LAST[20:] + b"12345", 0.5, b"67890"], PATIENT)
    assert found.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET / HTTP/1.1\r\nhost: x\r\nbig: " + b"y" * 3000 + b"\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 500 + b"\r\n"],
        [b"GET /" + b"y" * 3000 + b" HTTP/1.1\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nhost: x\r\nbig: ", *[b"y" * 500] * 6],
        [b"GET / HTTP/1.1\r\nhost: x\r\nbig: ", *[b"y" * 500, 0.01] * 6],
        [b"POST / HTTP/1.1\r\ncontent-length: 4\r\nbig: " + b"y" * 3000 + b"\r\n\r\n1234"],
    ],
)
def test_large_heads(pieces: list[bytes | float]) -> None:
    found, seconds = said(pieces, LimitsConfig(head=2000, head_seconds=4 * SOON, body_seconds=4 * SOON))
    assert found.startswith(b"HTTP/1.1 431"), found
    assert seconds < SOON


def test_nonsense() -> None:
    found, _ = said([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 5])
    assert found.startswith(b"HTTP/1.1 400")


def test_requests_one_after_the_other_and_at_once_are_served() -> None:
    request, last = HEAD + b"1234567890", LAST + b"1234567890"
    found, _ = said([request, 0.05, request, request, 0.05, HEAD, 0.2, b"1234567890", last], PATIENT)
    assert found.count(b"HTTP/1.1 200") == 5


def test_a_kept_connection_may_be_idle_longer_than_a_head_may_take() -> None:
    request, last = HEAD + b"1234567890", LAST + b"1234567890"
    found, _ = said([request, 0.9, last], LimitsConfig(head_seconds=0.6, body_seconds=0.6))
    assert found.count(b"HTTP/1.1 200") == 2 and b"408" not in found


def test_the_second_request_of_a_connection_is_timed_too() -> None:
    found, seconds = said([HEAD + b"1234567890", 0.1, b"POST / HT"])
    assert found.count(b"HTTP/1.1 200") == 1 and b"HTTP/1.1 408" in found
    assert 0.35 <= seconds <= SOON


def test_an_answer_is_not_timed() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.6)
        await app(scope, receive, send)

    async def run() -> bytes:
        async with serving(slow, http=limited(LIMITS)) as url:
            return (await talk(url, [LAST + b"1234567890"]))[0]

    assert asyncio.run(run()).startswith(b"HTTP/1.1 200")


# --- clients that take their time, or too many connections ------------------------------------------------------------


async def large(scope: Any, receive: Any, send: Any) -> None:
    """32 MiB; how the sending went is noted in `sent`."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(512):
        await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("whole", [True, False])
def test_a_client_that_does_not_take_its_answer_is_let_go_of(whole: bool) -> None:
    """whole : the answer is complete, and lies in the buffer; else it goes on being sent."""
    lost = asyncio.Event()

    class Noted(limited(LIMITS)):  # type: ignore[misc]
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    async def at_once(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": bytes(32 << 20)})

    async def test() -> None:
        async with serving(at_once if whole else large, http=Noted) as url:
            host, port = url.removeprefix("http://").split(":")
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect((host, int(port)))
                client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                begin = time.perf_counter()
                await asyncio.wait_for(lost.wait(), SOON)
                assert time.perf_counter() - begin > 0.4

    asyncio.run(test())


def test_a_client_that_takes_its_answer_slowly_gets_it() -> None:
    async def test() -> None:
        async with serving(large, http=limited(LimitsConfig(body_seconds=1.5))) as url:
            host, port = url.removeprefix("http://").split(":")
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, (host, int(port)))
            reader, writer = await asyncio.open_connection(sock=client, limit=1 << 16)
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            got = 0
            begin = time.perf_counter()
            while piece := await reader.read(1 << 17):
                got += len(piece)
                if time.perf_counter() - begin < 1.7:  # longer than `body_seconds`
                    await asyncio.sleep(0.02)
            writer.close()
            assert got > 32 << 20

    asyncio.run(test())


def test_one_connection_too_many_is_told_so_and_the_process_still_lives() -> None:
    async def test() -> None:
        limits = LimitsConfig(connections=2, head_seconds=4 * SOON)
        async with serving(app, http=limited(limits)) as url:
            host, port = url.removeprefix("http://").split(":")
            idle = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
            found, _ = await talk(url, [LAST + b"1234567890"])
            assert found.startswith(b"HTTP/1.1 503") and b'"code":"too_many_connections"' in found
            found, _ = await talk(url, [LAST.replace(b"POST /x", b"POST /livez") + b"1234567890"])
            assert found.startswith(b"HTTP/1.1 200")
            idle[0][1].close()
            async with asyncio.timeout(SOON):  # until the server has noticed
                while not (await talk(url, [LAST + b"1234567890"]))[0].startswith(b"HTTP/1.1 200"):
                    await asyncio.sleep(0.01)
            idle[1][1].close()

    asyncio.run(test())


def test_the_limits_speak_as_all_other_errors_do() -> None:
    for pieces, status in (([b"POST"], 408), ([b"GET /" + b"y" * 3000], 431), ([b"nonsense\r\n\r\n"], 400)):
        found, _ = said(pieces)  # type: ignore[arg-type]
        head, _, body = found.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status) and b"content-type: application/json" in head
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


# --- what uvicorn leaves out ------------------------------------------------------------------------------------------


def test_a_request_that_offers_another_protocol_keeps_its_body(caplog: pytest.LogCaptureFixture) -> None:
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAA\r\n"
    offering = HEAD.replace(b"host: x\r\n", b"host: x\r\n" + offer)
    chunked = offering.replace(b"content-length: 10", b"transfer-encoding: chunked") + b"4\r\n1234\r\n0\r\n\r\n"
    last = LAST + b"1234567890"
    for pieces, bodies in (
        ([offering + b"1234567890", 0.1, last], [b"10", b"10"]),
        ([offering[:30], 0.02, offering[30:], 0.02, b"12345", 0.02, b"67890" + last], [b"10", b"10"]),
        ([offering + b"1234567890" + offering + b"1234567890" + last], [b"10", b"10", b"10"]),
        ([chunked + last], [b"4", b"10"]),
        ([offering.replace(b"h2c", b"websocket") + b"1234567890" + last], [b"10", b"10"]),
    ):
        found, _ = said(pieces, PATIENT)  # type: ignore[arg-type]
        answers = found.split(b"HTTP/1.1 200 OK")[1:]
        assert [one.rpartition(b"\r\n\r\n")[2] for one in answers] == bodies, found
    assert not caplog.records


def test_nobody_gets_a_tunnel() -> None:
    found, _ = said([b"CONNECT /x HTTP/1.1\r\nhost: x\r\n\r\nanything"])
    assert found.startswith(b"HTTP/1.1 405") and found.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(("version", "chunked"), [(b"1.0", False), (b"1.1", True)])
def test_a_client_of_an_old_protocol_gets_no_chunks(version: bytes, chunked: bool) -> None:
    async def pieces(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one", b"two"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def test() -> bytes:
        async with serving(pieces, http=limited(LIMITS)) as url:
            return (await talk(url, [b"GET / HTTP/" + version + b"\r\nconnection: close\r\n\r\n"]))[0]

    found = asyncio.run(test())
    assert (b"transfer-encoding" in found) is chunked
    assert chunked or found.endswith(b"\r\n\r\nonetwo")


def test_a_body_that_waits_for_the_answer_before_it_is_not_too_slow() -> None:
    """It comes after `body_seconds`, which begin anew for as long as the server does not read."""
    waits = [1.0, 0.0]

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(waits.pop(0))
        await app(scope, receive, send)

    async def test() -> bytes:
        async with serving(slow, http=limited(LimitsConfig(body_seconds=0.8))) as url:
            return (await talk(url, [HEAD + b"1234567890" + LAST, 1.1, b"1234567890"]))[0]

    assert asyncio.run(test()).count(b"HTTP/1.1 200") == 2
