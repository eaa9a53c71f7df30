"""What clients may take time and room for: uvicorn's HTTP protocol with limits on how long and how large a request's head is,
on how long its body takes to come, and on how long an answer is left lying. uvicorn has none, so a client that sends or takes
a byte a minute would hold its connection for as long as it likes.

Two things that uvicorn leaves out are put right, too: a request that offers to change to another protocol keeps its body
(Java's client offers HTTP/2 with every one), and a client of HTTP/1.0 gets no chunks.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .config import LimitsConfig
from .errors import problem

_IDLE, _HEAD, _BODY = range(3)
#: What is answered even where there are too many connections: a supervisor must not end a process for being in demand.
_ALWAYS = b"/livez"


def limited(limits: LimitsConfig) -> type[HttpToolsProtocol]:
    """The protocol with these limits, for uvicorn's setting `http`."""
    return type("LimitedProtocol", (_Limited,), {"limits": limits})


class _Limited(HttpToolsProtocol):
    """A timer runs from the first byte of a head until it is there, and from then until the body is; it is only started where a
    piece is not there at once, since nearly all requests come in one."""

    limits: LimitsConfig

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.limit_concurrency = None  # ours is said in JSON, and not to who asks whether the process lives
        self._awaited, self._head_bytes, self._too_large = _IDLE, 0, False
        self._timer: asyncio.TimerHandle | None = None
        self._timed = _IDLE
        self._stuck: asyncio.TimerHandle | None = None
        self._left = 0
        self._offers = self._got_body = self._began = False
        self._bare = 0  # bytes since the last of the body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # In silence: a client that connects early would take a 408 for the answer to its first request.
        self._timer = self.loop.call_later(self.limits.keep_alive, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._awaited
        self._bare += len(data)
        self._began = False
        while data:
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as offer:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse(405, "Method Not Allowed")
                    return
                data = self._declined() + data[offer.args[0] :]
            except httptools.HttpParserError:
                self._refuse(400, "Bad Request")
                return
        # A head that spans pieces; a piece with the end of a body before it does not count: most of it may be that.
        if self._awaited == _HEAD:
            of_others = self._began and self._got_body
            self._head_bytes = 0 if of_others else self._head_bytes + len(data)
            self._too_large = self._too_large or self._head_bytes > self.limits.head
        # Trailers, and what chunks are announced with: kept by the parser, or by nobody, but never part of the body.
        if self._awaited != _BODY or self._got_body or before != _BODY:
            self._bare = 0
        self._got_body = False
        self._too_large = self._too_large or self._bare > self.limits.head
        if self._too_large:
            self._refuse(431, "Request Header Fields Too Large")
        elif self._awaited != self._timed or (
            self._timer is not None and self._awaited == _IDLE and self.cycle is not None
        ):
            self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._unset_keepalive_if_required()  # not before: empty lines between requests are none
        self._awaited, self._began = _HEAD, True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._awaited == _HEAD:  # else it is a trailer, which is no header (RFC 9110, section 6.5.1)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._awaited, self._head_bytes = _BODY, 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        self._too_large = size > self.limits.head
        self._offers = bool(self.parser.should_upgrade())
        if self._too_large or self._offers:
            return
        full = len(self.connections) > self.limits.connections and not self.url.startswith(_ALWAYS)
        self.app = _full if full else self.config.loaded_app
        super().on_headers_complete()
        if self.scope["http_version"] != "1.1":
            self.cycle.__class__ = _Unchunked

    def on_body(self, body: bytes) -> None:
        self._got_body = True
        if not self._too_large:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offers:
            return
        self._awaited = _IDLE
        if not self._too_large:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_taken()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # the last answer is lying there still
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_taken()

    def resume_writing(self) -> None:
        if not self.transport.is_closing():
            self._taken()
        super().resume_writing()

    def _declined(self) -> bytes:
        """The head of a request without its offer of another protocol, for a new parser: the old one takes what follows for
        that protocol's. An offer that nobody takes up is to be overlooked (RFC 9110, section 7.8)."""
        line = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        lines = [line, *(name + b": " + value for name, value in self.headers if name != b"upgrade"), b"", b""]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return b"\r\n".join(lines)

    def _await_taken(self) -> None:
        """Let go of a client that takes nothing for as long as its own body might take."""
        self._taken()
        self._left = self.transport.get_write_buffer_size()
        self._stuck = self.loop.call_later(self.limits.body_seconds, self._look)

    def _look(self) -> None:
        if self.transport.get_write_buffer_size() < self._left:
            self._await_taken()
        else:
            self.transport.abort()

    def _taken(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _watch(self) -> None:
        self._unwatch()
        self._timed = self._awaited
        if self._awaited != _IDLE:
            seconds = self.limits.head_seconds if self._awaited == _HEAD else self.limits.body_seconds
            self._timer = self.loop.call_later(seconds, self._too_slow)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.flow.read_paused:  # it is we who wait: for the answer to the request before
            self._watch()
        else:
            self._refuse(408, "Request Timeout")

    def _refuse(self, status: int, phrase: str) -> None:
        """Close the connection; say why where nothing was said yet."""
        self._unwatch()
        if self.transport.is_closing():
            return
        answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not answering:
            said = problem(status, phrase.lower(), headers={"connection": "close"})
            lines = [b"HTTP/1.1 %d %s" % (status, phrase.encode()), *(b"%s: %s" % one for one in said.raw_headers)]
            self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(said.body))
        self.transport.close()
        self._await_taken()


class _Unchunked(RequestResponseCycle):
    """An answer to HTTP/1.0, which knows no chunks: where its length is not known it ends with the connection."""

    _ends_with_connection = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            if not any(name.lower() == b"content-length" for name, _ in message.get("headers", ())):
                self.chunked_encoding, self._ends_with_connection = False, True
        elif self._ends_with_connection:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


async def _full(scope: Any, receive: Any, send: Any) -> None:
    """What a request gets for which there is one connection too many."""
    headers = {"retry-after": "1", "connection": "close"}
    await problem(503, "there are too many connections", code="too_many_connections", headers=headers)(
        scope, receive, send
    )
