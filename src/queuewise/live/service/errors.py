"""Errors as clients of OpenAI's interface expect them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from email.utils import formatdate

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

#: What `type` is for a status where nothing else is said.
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """A request that is answered with an error. reason : that :meth:`.metrics.Metrics.shed` counts, if one."""

    def __init__(self, response: Response, reason: str = "") -> None:
        self.response, self.reason = response, reason


def problem(
    status: int,
    message: str,
    *,
    type_: str | None = None,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An answer that says what is wrong. `type_` : by default what goes with the status · code : for programs."""
    kind = type_ or _TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status, {"date": formatdate(usegmt=True), **(headers or {})})


def unauthorized(
    headers: Headers | Iterable[tuple[bytes, bytes]] = (), message: str = "", code: str = "invalid_api_key"
) -> JSONResponse:
    """The answer to a request without the token that the settings ask for. headers : of the request, for the default message
    to tell a missing token from a wrong one."""
    if not message:
        raw = headers.raw if isinstance(headers, Headers) else headers
        tried = any(name == b"authorization" for name, _ in raw)
        message = "another bearer token is needed than was sent" if tried else "a bearer token is needed"
    return problem(401, message, code=code, headers={"www-authenticate": 'Bearer realm="queuewise"'})


def retry_after(seconds: float) -> dict[str, str]:
    """The header that says when to come back: in whole seconds, and never at once."""
    return {"retry-after": str(max(1, math.ceil(seconds)))}
