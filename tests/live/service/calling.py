"""An ASGI app called without a socket, for tests of what it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What an app said. headers : names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """What is wrong, of an answer that says so."""
        assert self.status >= 400 and self.headers["content-type"] == "application/json", self
        found = self.json()
        assert set(found) == {"error"} and set(found["error"]) == {"message", "type", "param", "code"}
        assert isinstance(found["error"]["message"], str) and found["error"]["message"]
        error: dict[str, Any] = found["error"]
        return error


class Caller:
    """Calls an app. Use it as a context, or :meth:`close` it. headers : of every request."""

    def __init__(self, app: Any, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.app, self.headers = app, list(headers)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End its event loop."""
        self._runner.close()

    def __call__(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Iterable[tuple[bytes, bytes]] = (),
        query: bytes = b"",
    ) -> Answer:
        """One request; a body of several pieces comes in several messages."""
        return self._runner.run(self.ask(method, path, body, headers, query))

    def post(self, path: str, given: Any = None, headers: Iterable[tuple[bytes, bytes]] = ()) -> Answer:
        """JSON, or bytes that say they are."""
        body = given if isinstance(given, bytes) else json.dumps(given).encode()
        return self("POST", path, body, [(b"content-type", b"application/json"), *headers])

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Iterable[tuple[bytes, bytes]] = (),
        query: bytes = b"",
    ) -> Answer:
        """As a call, from within an event loop."""
        pieces = [body] if isinstance(body, bytes) else list(body)
        messages = [
            {"type": "http.request", "body": piece, "more_body": k + 1 < len(pieces)} for k, piece in enumerate(pieces)
        ]
        said: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            said.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "root_path": "",
            "headers": [(b"host", b"test"), *self.headers, *headers],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 80),
        }
        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in said[0]["headers"]}
        return Answer(said[0]["status"], found, b"".join(message.get("body", b"") for message in said[1:]))
