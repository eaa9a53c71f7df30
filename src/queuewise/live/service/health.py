"""Whether the service lives, and whether it should get requests now. To be judged by the status; the body is for people.

``/livez`` asks the process only: a restart would mend no backend. ``/readyz``, and ``/healthz`` as an older name, is 503 from
when the service is about to end, and where no group has a backend that may be used: one group that is down must not keep
requests from the others. With ``?verbose`` it says which; that takes the token, where there is one, since it names groups.
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .auth import authorized
from .errors import unauthorized
from .service import Service

_FRESH = {"cache-control": "no-store"}


class Check(NamedTuple):
    """name : of what was looked at · ok : whether it is well · said : what was found · needed : to be ready."""

    name: str
    ok: bool
    said: str
    needed: bool = True


def checks(service: Service) -> list[Check]:
    """All that there is to be looked at."""
    groups = []
    for name, group in tuple(service.groups.items()):
        usable, known = len(group.router.report()["usable"]), len(group.backends)
        groups.append(Check(f"group {name}", usable > 0, f"{usable} of {known} backends may be used", needed=False))
    well = sum(check.ok for check in groups)
    return [
        Check("running", not service.stopping, "is about to stop" if service.stopping else "takes requests"),
        Check("groups", well > 0, f"{well} of {len(groups)} groups have a backend that may be used"),
        *groups,
    ]


def routes(service: Service, *, guarded: bool = True) -> list[Route]:
    """``/livez``, ``/readyz`` and ``/healthz``. guarded : whether ``?verbose`` takes the settings' `token`, where there is one;
    not where the app around guards it."""

    async def live(request: Request) -> Response:
        return PlainTextResponse("ok\n", headers=_FRESH)

    async def ready(request: Request) -> Response:
        verbose = request.query_params.get("verbose", "no").lower() not in ("no", "0", "false")
        if verbose and guarded and not _may_know(service, request):
            return unauthorized(request.headers)
        found = checks(service)
        ok = all(check.ok for check in found if check.needed)
        status = 200 if ok else 503
        if verbose:
            said = {"status": "ready" if ok else "not ready", "checks": [check._asdict() for check in found]}
            return JSONResponse(said, status, _FRESH)
        return PlainTextResponse("ok\n" if ok else "not ready\n", status, _FRESH)

    return [Route("/livez", live), Route("/readyz", ready), Route("/healthz", ready)]


def _may_know(service: Service, request: Request) -> bool:
    token = service.config.token
    return token is None or authorized(request.headers, token.get_secret_value())
