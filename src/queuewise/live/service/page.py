"""The status page: one file without a build chain."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope, Send


class Page:
    """The page: one file whose style and script are named by their hashes, so that nothing else runs in it."""

    def __init__(self) -> None:
        text = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
        policy = [
            *("default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'"),
            *("frame-ancestors 'none'", f"script-src {_hashes(text, 'script')}", f"style-src {_hashes(text, 'style')}"),
        ]
        self._response = HTMLResponse(text, headers={"content-security-policy": "; ".join(policy)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._response(scope, receive, send)


def _hashes(text: str, tag: str) -> str:
    """Of what stands in these elements, as a Content-Security-Policy names it."""
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in found]
    return " ".join(f"'sha256-{digest}'" for digest in digests)
