"""Backends for tests: ASGI apps that do as they are told and remember what they were asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Heard:
    """A request as the backend got it."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """The value of a header that is there once; None where it is not."""
        found = [value for key, value in self.headers if key == name]
        assert len(found) <= 1, found
        return found[0] if found else None


Act = Callable[["Backend", Heard, Callable[..., Awaitable[None]]], Awaitable[None]]


async def echo(backend: Backend, heard: Heard, send: Callable[..., Awaitable[None]]) -> None:
    """What was asked, as JSON."""
    body = json.dumps({"backend": backend.name, "got": heard.body.decode("latin-1")}).encode()
    await answer(send, 200, body)


async def answer(
    send: Callable[..., Awaitable[None]], status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()
) -> None:
    """A whole answer."""
    raw = [(key.encode(), value.encode()) for key, value in headers] + [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def says(status: int, body: bytes = b"{}", headers: tuple[tuple[str, str], ...] = ()) -> Act:
    """Always this answer."""

    async def act(backend: Backend, heard: Heard, send: Callable[..., Awaitable[None]]) -> None:
        await answer(send, status, body, headers)

    return act


def streams(pieces: list[bytes], gap: float = 0.0, breaks: bool = False, silent: float = 0.0) -> Act:
    """Server-sent events: each piece, `gap` seconds apart. breaks : the connection is dropped before the end · silent : before
    the end, seconds."""

    async def act(backend: Backend, heard: Heard, send: Callable[..., Awaitable[None]]) -> None:
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            backend.sent += 1
            await asyncio.sleep(gap)
        await asyncio.sleep(silent)
        if not breaks:
            await send({"type": "http.response.body", "body": b""})

    return act


def waits(seconds: float) -> Act:
    """An answer after so long."""

    async def act(backend: Backend, heard: Heard, send: Callable[..., Awaitable[None]]) -> None:
        await asyncio.sleep(seconds)
        await echo(backend, heard, send)

    return act


@dataclass
class Backend:
    """An ASGI app. act : what it does · heard : all requests · left : clients that went before their answer · sent : pieces of
    streams that were sent."""

    name: str
    act: Act = echo
    heard: list[Heard] = field(default_factory=list)
    left: int = 0
    sent: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in scope["headers"]]
        heard = Heard(scope["method"], scope["raw_path"].decode(), scope["query_string"].decode(), headers, body)
        self.heard.append(heard)
        work = asyncio.create_task(self.act(self, heard, send))  # type: ignore[arg-type]
        gone = asyncio.create_task(receive())
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            self.left += 1
            work.cancel()
        gone.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)
