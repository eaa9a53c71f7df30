"""Errors as clients of OpenAI's interface expect them."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate

from starlette.responses import JSONResponse

#: What `type` is for a status where nothing else is said.
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


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
