"""Whether a request has the token that the settings ask for."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers


def authorized(headers: Headers | Iterable[tuple[bytes, bytes]], token: str | None) -> bool:
    """Whether a request may come in: no token is asked for, or it has ``Authorization: Bearer TOKEN``.

    headers : of the request; raw ones have names in lower case, as ASGI has them. Two of them are none: which one counts would
    be up to who reads them. The comparison takes as long for a token that is nearly right as for one that is not at all.
    """
    if token is None:
        return True
    raw = headers.raw if isinstance(headers, Headers) else headers
    given = [value for name, value in raw if name == b"authorization"]
    if len(given) != 1:
        return False
    scheme, _, credentials = given[0].partition(b" ")
    return hmac.compare_digest(credentials.strip(b" \t"), token.encode()) and scheme.lower() == b"bearer"
