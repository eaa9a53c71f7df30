"""One request to one backend: what is sent on, what an answer means to the router, and what may be tried again."""

from __future__ import annotations

import email.utils
import io
import time
from collections.abc import Callable
from typing import NamedTuple

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from .config import TimeoutsConfig

#: Headers of one connection, not of the request (RFC 9110, section 7.6.1), and those that are made anew for each backend.
HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade"),
    )
)
#: How headers between a client and this proxy begin.
OWN = b"x-queuewise-"
#: Control characters in a header's value become spaces, as RFC 9110, section 5.5, has it for the worst of them.
_VISIBLE = bytes(32 if (code < 32 and code != 9) or code == 127 else code for code in range(256))
#: Seconds that an idle connection to a backend is kept: less than the two to five after which common servers close theirs,
#: since a request sent into a closing connection fails by nobody's fault.
KEEP_ALIVE = 1.5
#: From this many bytes on a body is handed over as a file, which is sent in pieces.
_IN_PIECES = 1 << 20
#: Headers that the client library would add of its own.
_NOT_OURS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

#: What an answer is to the router.
DONE, FAILED, REFUSED, DOUBTFUL, NEITHER = "done", "error", "refused", "doubtful", "neither"
#: Of those that are not passed on at once, since another backend may do better.
HELD = (FAILED, REFUSED, DOUBTFUL)


def timeout(timeouts: TimeoutsConfig) -> aiohttp.ClientTimeout:
    """How long a connection may take to be there, the look-up of its name included; all other limits are the proxy's."""
    return aiohttp.ClientTimeout(total=None, connect=timeouts.connect)


def new_session() -> aiohttp.ClientSession:
    """Connections to all backends. As many as there are requests: how many a backend gets is the router's business."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=30, keepalive_timeout=KEEP_ALIVE),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_NOT_OURS,
        max_line_size=1 << 16,
        max_field_size=1 << 16,
    )


async def send(
    session: aiohttp.ClientSession,
    timeout: aiohttp.ClientTimeout,
    method: str,
    url: URL,
    headers: CIMultiDict[str],
    body: bytes,
) -> aiohttp.ClientResponse:
    """Send a request and wait for the head of the answer. Raises aiohttp.ClientError where there is none: a switch of protocols
    that nobody asked for is none, and neither is a status that there is not."""
    data = io.BytesIO(body) if len(body) > _IN_PIECES else body or None
    response = await session.request(method, url, headers=headers, data=data, allow_redirects=False, timeout=timeout)
    if not 200 <= response.status <= 599:
        response.close()
        raise aiohttp.ClientError(f"status {response.status} is no answer")
    return response


def headers_back(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """Of an answer, for the client: all but those of the connection, and those that only this proxy may say. An answer that
    never has a body keeps no length of one either: what is sent is checked against it."""
    bare = response.status in (204, 304)
    raw = [(name.lower(), value) for name, value in response.raw_headers]
    named = {
        one.strip().lower() for name, value in raw if name == b"connection" for one in value.split(b",")
    }  # RFC 9110, section 7.6.1: the headers that it names are the connection's, too
    return [
        (name, value.translate(_VISIBLE))
        for name, value in raw
        if name not in HOP_BY_HOP
        and name not in named
        and not name.startswith(OWN)
        and not (bare and name == b"content-length")
    ]


class Verdict(NamedTuple):
    """meaning : DONE, FAILED, REFUSED (the backend has not done it, and may be asked for less), NEITHER (the client's fault:
    the time counts, no service was done) or DOUBTFUL (that, or the backend's; see :mod:`.doubts`) · untouched : whether the
    backend surely has not worked on it, so that any request may go to another · rest : seconds that it asks to be left
    alone."""

    meaning: str
    untouched: bool
    rest: float | None


def judge(status: int, retry_after: str | None, wall: Callable[[], float] = time.time) -> Verdict:
    """What a status means. A failure never counts as service, however fast it was, and neither does a request that was
    refused for what it asked."""
    if status in (429, 503):
        return Verdict(REFUSED, status == 429, seconds_of(retry_after, wall))
    if status >= 500 or status == 408:
        return Verdict(FAILED, False, None)
    if status in (401, 403, 404):
        return Verdict(DOUBTFUL, True, None)
    if status >= 400:
        return Verdict(NEITHER, False, None)
    return Verdict(DONE, False, None)


def seconds_of(retry_after: str | None, wall: Callable[[], float] = time.time) -> float | None:
    """Retry-After in seconds from now, given as seconds or as a date; None where it says nothing of use."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - wall()
        except (ValueError, TypeError, OverflowError):
            return None
    return seconds if seconds > 0.0 else None
