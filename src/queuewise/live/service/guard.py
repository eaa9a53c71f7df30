"""Who may come in at the admin port, and what no browser may do with its answers.

On a loopback address it answers only those who call it by a loopback name, so that no web page can reach it under a name of its
own (DNS rebinding); nowhere does it take orders that a page of another origin sent.
"""

from __future__ import annotations

import re

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .auth import authorized
from .config import Address
from .errors import problem, unauthorized
from .service import Service

_READING = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Guard:
    """Stands before an app. public : paths that can be read without the token · loopback : whether only loopback names may be
    called. See the head of this module."""

    def __init__(self, inner: ASGIApp, service: Service, public: frozenset[str], loopback: bool) -> None:
        self._inner, self._service, self._public, self._loopback = inner, service, public, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                there = {name.lower() for name, _ in headers}
                headers += [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in there]
                message = {**message, "headers": headers}
            await send(message)

        refusal = self._refusal(scope)
        await (self._inner if refusal is None else refusal)(scope, receive, sent)

    def _refusal(self, scope: Scope) -> Response | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            return problem(400, "host: a request must name one", code="host")
        host = hosts[0].decode("latin-1").lower()
        if self._loopback and not _is_loopback(host):
            return problem(403, "host: this port answers to loopback names only, as localhost", code="host")
        reading = scope["method"] in _READING
        if not reading:
            given = {name: value.decode("latin-1").lower() for name, value in headers}
            if b"origin" in given and given[b"origin"].partition("://")[2] != host:
                return problem(403, "origin: a page of another origin may change nothing here", code="origin")
            if given.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
                return problem(403, "sec-fetch-site: a page of another site may change nothing here", code="origin")
            kind = given.get(b"content-type", "").partition(";")[0].strip()
            if kind not in ("", "application/json"):
                return problem(415, "content-type: must be application/json", code="content_type")
        token = self._service.config.admin_token
        open_to_all = reading and scope["path"] in self._public
        if token is not None and not open_to_all and not authorized(headers, token.get_secret_value()):
            tried = any(name == b"authorization" for name, _ in headers)
            asked = "for another token than was sent" if tried else "for its token"
            return unauthorized(
                message=f"authorization: this port asks {asked}, as in Authorization: Bearer TOKEN", code="token"
            )
        return None


def _is_loopback(host: str) -> bool:
    """Whether a Host header names this machine to itself."""
    found = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d{1,5})?", host)
    if found is None:
        return False
    return Address(host=found[1].strip("[]"), port=0).loopback
