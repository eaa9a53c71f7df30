"""What the admin port is asked for: bodies, fields, numbers, each looked at with a sentence that names what is wrong.

All raise :class:`.errors.Refusal`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request

from . import bodies
from .errors import Refusal, problem

#: Bytes of a request's body at most.
LARGEST_BODY = 64 << 10
_LONGEST_SHOWN = 80


def refused(status: int, message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """To be raised."""
    return Refusal(problem(status, message, param=param, code=code))


async def json_object(request: Request, seconds: float) -> dict[str, Any]:
    """The JSON object that was sent, within so many seconds."""
    text = await _body(request, seconds)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise refused(415, "content-type: must be application/json", None, "content_type")
    try:
        given = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise refused(400, "body: is no JSON", None, "json") from None
    if not isinstance(given, dict):
        raise refused(400, "body: must be a JSON object", None, "json")
    return given


async def nothing(request: Request, seconds: float) -> None:
    """A request that needs no body may have an empty one, or an empty object."""
    text = await _body(request, seconds)
    if text.strip() not in (b"", b"{}"):
        raise refused(400, "body: must be left out, or {}", None, "json")


def text(given: dict[str, Any], field: str) -> str:
    """A field that must be there, and a text."""
    value = given.get(field)
    if not isinstance(value, str) or not value:
        missing = "is missing" if field not in given else f"must be a text, not {shown(value)}"
        raise refused(422, f"{field}: {missing}", field)
    return value


def single(given: dict[str, Any], field: str) -> Any:
    """The one field of an object."""
    others = [key for key in given if key != field]
    if others:
        raise refused(422, f"{shown(others[0])}: there is no such field; known: {field}", others[0])
    if field not in given:
        raise refused(422, f"{field}: is missing", field)
    return given[field]


def whole_number(request: Request, field: str, otherwise: int, least: int, most: int) -> int:
    """A whole number in the query."""
    value = request.query_params.get(field)
    if value is None:
        return otherwise
    if not (value.isascii() and value.isdecimal() and len(value) < 19 and least <= int(value) <= most):
        raise refused(422, f"{field}: must be a whole number from {least} to {most}, not {shown(value)}", field)
    return int(value)


def shown(value: Any) -> str:
    """Of what was sent, as much as helps."""
    said = repr(value)
    return said if len(said) <= _LONGEST_SHOWN else said[: _LONGEST_SHOWN - 3] + "..."


async def _body(request: Request, seconds: float) -> bytes:
    try:
        async with asyncio.timeout(seconds):
            return await bodies.read(request.receive, LARGEST_BODY)
    except bodies.TooLargeError:
        raise refused(413, f"body: must be at most {LARGEST_BODY >> 10} KiB", None, "too_large") from None
    except TimeoutError:
        raise refused(408, "body: did not come in time", None, "timeout") from None


def _no_number(said: str) -> float:
    raise ValueError(f"{said} is no number in JSON")
