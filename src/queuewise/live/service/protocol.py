"""What clients may take time and room for: uvicorn's HTTP protocol with limits on how long and how large a request's head is,
and on how long its body takes to come. uvicorn has none, so a client that sends a byte a minute would hold its connection for
as long as it likes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .config import LimitsConfig

_IDLE, _HEAD, _BODY = range(3)


def limited(limits: LimitsConfig) -> type[HttpToolsProtocol]:
    """The protocol with these limits, for uvicorn's setting `http`."""
    return type("LimitedProtocol", (_Limited,), {"limits": limits})


class _Limited(HttpToolsProtocol):
    """A timer runs from the first byte of a head until it is there, and from then until the body is; it is only started where a
    piece is not there at once, since nearly all requests come in one."""

    limits: LimitsConfig

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._awaited, self._head_bytes, self._too_large = _HEAD, 0, False
        self._timer: asyncio.TimerHandle | None = None
        self._timed = _IDLE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._awaited
        super().data_received(data)
        if (
            self._awaited == _HEAD
        ):  # it spans pieces; what ended before it in its first piece counts too, which is little
            self._head_bytes = self._head_bytes + len(data) if before == _HEAD else len(data)
            self._too_large = self._too_large or self._head_bytes > self.limits.head
        if self._too_large:
            self._refuse(431, "Request Header Fields Too Large")
        elif self._awaited != self._timed:
            self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._awaited = _HEAD

    def on_headers_complete(self) -> None:
        self._awaited, self._head_bytes = _BODY, 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        self._too_large = size > self.limits.head
        if not self._too_large:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._too_large:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._awaited = _IDLE
        if not self._too_large:
            super().on_message_complete()

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
        self._refuse(408, "Request Timeout")

    def _refuse(self, status: int, phrase: str) -> None:
        """Close the connection; say why where nothing was said yet."""
        self._unwatch()
        if self.transport.is_closing():
            return
        answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not answering:
            text = phrase.encode()
            head = b"HTTP/1.1 %d %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (status, text, len(text)) + text)
        self.transport.close()
