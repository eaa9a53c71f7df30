"""Slow and large clients: what uvicorn lacks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from queuewise.live.service.config import LimitsConfig
from queuewise.live.service.protocol import limited

from .running import serving

LIMITS = LimitsConfig(head=2000, head_seconds=0.3, body_seconds=0.5)
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
        said = await asyncio.wait_for(reading, 3.0)
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
    ("pieces", "status", "least", "most"),
    [
        ([1.0], b"408", 0.25, 0.8),  # says nothing
        ([b"POST", 1.0], b"408", 0.25, 0.8),
        ([b"POST / HTTP/1.1\r\n", *[b"a: b\r\n", 0.1] * 8], b"408", 0.25, 0.8),  # a line at a time
        ([HEAD, b"12345", 1.0], b"408", 0.45, 1.0),
        ([HEAD, *[b"1", 0.1] * 8], b"408", 0.45, 1.0),
    ],
)
def test_slow_clients(pieces: list[bytes | float], status: bytes, least: float, most: float) -> None:
    found, seconds = said(pieces)
    assert found.startswith(b"HTTP/1.1 " + status), found
    assert least <= seconds <= most


def test_slow_within_the_limits() -> None:
    found, _ = said([LAST[:20], 0.2, LAST[20:] + b"12345", 0.4, b"67890"])
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
    found, seconds = said(pieces)
    assert found.startswith(b"HTTP/1.1 431"), found
    assert seconds < 0.3


def test_nonsense() -> None:
    found, _ = said([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 5])
    assert found.startswith(b"HTTP/1.1 400")


def test_requests_one_after_the_other_and_at_once_are_served() -> None:
    request, last = HEAD + b"1234567890", LAST + b"1234567890"
    found, _ = said([request, 0.05, request, request, 0.05, HEAD, 0.2, b"1234567890", last])
    assert found.count(b"HTTP/1.1 200") == 5


def test_a_kept_connection_may_be_idle_longer_than_a_head_may_take() -> None:
    request, last = HEAD + b"1234567890", LAST + b"1234567890"
    found, _ = said([request, 0.6, last])
    assert found.count(b"HTTP/1.1 200") == 2 and b"408" not in found


def test_the_second_request_of_a_connection_is_timed_too() -> None:
    found, seconds = said([HEAD + b"1234567890", 0.1, b"POST / HT", 1.0])
    assert found.count(b"HTTP/1.1 200") == 1 and b"HTTP/1.1 408" in found
    assert 0.35 <= seconds <= 0.9


def test_an_answer_is_not_timed() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.8)
        await app(scope, receive, send)

    async def run() -> bytes:
        async with serving(slow, http=limited(LIMITS)) as url:
            return (await talk(url, [LAST + b"1234567890"]))[0]

    assert asyncio.run(run()).startswith(b"HTTP/1.1 200")
