"""The decision API, for those who send their requests themselves: ask where to, say what became of it.

    POST /route      {"model": "small"}                →  200 {"ticket": "…", "server": "b", "url": "http://…", …}
    POST /complete   {"ticket": "…"}                       /fail, /cancel alike
    POST /watch      {"group": "chat", "server": "a"}      shadow mode: somebody else decided

A ticket is 128 random bits. It means something to the process that gave it only, so that after a restart an old one is unknown
and never another's. One that is never given back is given up after its group's `expire_after`, like any other.

Release twice and the second is told so (409): who has lost the answer to the first knows that it got through. A request to
/route whose answer was lost can be sent again with the same `id`, and gets the ticket that is out already.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, NamedTuple

from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..router import NoServerError, Router
from ..tickets import Ticket
from . import bodies, openapi, wire
from .auth import authorized
from .errors import Refusal, problem, retry_after, unauthorized
from .groups import Group
from .metrics import Metrics
from .service import Service

#: Bytes of a request's body.
LARGEST = 64 << 10
#: Tickets that may be out at a time, and ended ones whose end is remembered (of released ones, and of expired ones).
MOST_OUT, MOST_ENDED = 1 << 17, 1 << 16
#: Seconds between looks at all tickets that are out.
SWEEP = 10.0
_JSON = (b"content-type", b"application/json")


class _Out(NamedTuple):
    """A ticket that is out. router : that gave it; a reload may have replaced it since · asked : the request, if it has an id ·
    said : its answer."""

    ticket: Ticket
    group: str
    router: Router
    asked: wire.RouteRequest | wire.WatchRequest | None
    said: dict[str, Any]


class _Memory(OrderedDict[str, str]):
    """How tickets ended; the oldest are forgotten."""

    def note(self, name: str, end: str) -> None:
        self[name] = end
        if len(self) > MOST_ENDED:
            self.popitem(last=False)


class Decisions:
    """The tickets that clients have, and what they say of them. For one event loop: no call waits for anything."""

    def __init__(self, service: Service, metrics: Metrics | None = None) -> None:
        self.service, self.metrics = service, metrics
        self._out: dict[str, _Out] = {}
        self._order: dict[Router, OrderedDict[str, None]] = {}  # of issue, in which a router's tickets expire
        self._by_id: dict[tuple[str, str], str] = {}
        self._released, self._expired = _Memory(), _Memory()
        self._swept = time.monotonic()

    @property
    def out(self) -> int:
        """Tickets that are out, as far as has been looked."""
        return len(self._out)

    # --- what clients ask and say; all raise Refusal ------------------------------------------------------------------

    def route(self, asked: wire.RouteRequest) -> dict[str, Any]:
        """Where a request goes."""
        group = self._group(asked)
        again = self._again(group, asked)
        if again is not None:
            return again
        key = self._admit(group, asked.key)
        shed = group.overload(key)
        if shed is not None:
            raise self._turned_away(group, *shed, "too many requests are waiting")
        begun = time.perf_counter()
        try:
            ticket = group.router.route(key, asked.work, avoid=asked.avoid)
        except NoServerError as error:
            if error.retry_after is not None:
                raise self._turned_away(group, "resting", error.retry_after, str(error)) from None
            raise Refusal(problem(503, str(error), code="no_backend", headers=retry_after(1.0))) from None
        if self.metrics is not None:
            self.metrics.decision(time.perf_counter() - begun)
        return self._give(group, ticket, asked)

    def watch(self, asked: wire.WatchRequest) -> dict[str, Any]:
        """Somebody else has decided."""
        group = self._group(asked)
        again = self._again(group, asked)
        if again is not None:
            return again
        if asked.server not in group.backends:
            sentence = f"server: there is no backend {asked.server!r} in group {group.name!r}"
            raise Refusal(problem(404, sentence, code="unknown_server", param="server"))
        key = self._admit(group, asked.key)
        return self._give(group, group.router.watch(asked.server, key, asked.work), asked)

    def complete(self, asked: wire.CompleteRequest) -> dict[str, Any]:
        """It was served."""
        out = self._taken(asked.ticket)
        return self._over(asked.ticket, out, "done", out.router.complete(out.ticket, asked.work))

    def fail(self, asked: wire.FailRequest) -> dict[str, Any]:
        """It failed. A backend that takes no more and says for how long is left alone for so long, and not blamed."""
        if asked.kind == "refused" and asked.retry_after is not None:
            said = self.cancel(asked)
        else:
            out = self._taken(asked.ticket)
            said = self._over(asked.ticket, out, asked.kind, out.router.fail(out.ticket, asked.kind))
        group = self.service.groups.get(said["group"])
        if asked.retry_after is not None and group is not None:
            seconds = min(asked.retry_after, self.service.config.timeouts.longest_rest)
            with contextlib.suppress(ValueError):  # the backend was removed since
                group.router.rest(said["server"], seconds)
        return said

    def cancel(self, asked: wire.CancelRequest | wire.FailRequest) -> dict[str, Any]:
        """It was given up on."""
        out = self._taken(asked.ticket)
        return self._over(asked.ticket, out, "cancelled", out.router.cancel(out.ticket))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _group(self, asked: wire.RouteRequest | wire.WatchRequest) -> Group:
        if asked.group is None:
            group = self.service.group_of(asked.model)
            if group is None and asked.model is None:
                raise Refusal(problem(404, "group: name a group or a model", code="unknown_group", param="group"))
        else:
            group = self.service.groups.get(asked.group)
            if group is None:
                sentence = f"group: there is no group {asked.group!r}"
                raise Refusal(problem(404, sentence, code="unknown_group", param="group"))
        if group is None or (
            asked.model is not None and group.config.models and asked.model not in group.config.models
        ):
            where = "" if group is None else f" in group {group.name!r}"
            sentence = f"model: there is no model {asked.model!r}{where}"
            raise Refusal(problem(404, sentence, code="model_not_found", param="model"))
        return group

    def _again(self, group: Group, asked: wire.RouteRequest | wire.WatchRequest) -> dict[str, Any] | None:
        """The answer to a request that was answered before."""
        if asked.id is None:
            return None
        name = self._by_id.get((group.name, asked.id))
        if name is None:
            return None
        out = self._out[name]
        if out.ticket.released:
            self._forget(name)
            self._expired.note(name, "expired")
            return None
        if out.asked != asked:
            sentence = f"id: {asked.id!r} was another request's, and its ticket is out"
            raise Refusal(problem(409, sentence, code="id_reused", param="id"))
        passed = time.monotonic() - out.ticket.issued
        return {**out.said, "expires_in": max(0.0, out.said["expires_in"] - passed)}

    def _admit(self, group: Group, key: str | None) -> str | None:
        """The class of a new request. Refuses where nothing new is taken, and a class that there is not."""
        if self.service.closing:
            raise Refusal(problem(503, "the service is about to stop", code="stopping", headers=retry_after(1.0)))
        if key is None:
            key = group.classes[0] if group.classes else None
        elif key not in group.classes:
            known = ", ".join(map(repr, group.classes)) or "it has none"
            sentence = f"key: there is no class {key!r} in group {group.name!r}; known: {known}"
            raise Refusal(problem(404, sentence, code="unknown_class", param="key"))
        if len(self._out) >= MOST_OUT:
            self._sweep_all()
        if len(self._out) >= MOST_OUT:
            raise self._turned_away(group, "tickets", 1.0, f"{MOST_OUT} tickets are out; give some back")
        return key

    def _turned_away(self, group: Group, reason: str, seconds: float, sentence: str) -> Refusal:
        if self.metrics is not None:
            self.metrics.shed(group.name, reason)
        return Refusal(problem(429, sentence, code="overloaded", headers=retry_after(seconds)))

    def _give(self, group: Group, ticket: Ticket, asked: wire.RouteRequest | wire.WatchRequest) -> dict[str, Any]:
        router, backend = group.router, group.backends.get(ticket.server)
        if backend is None:  # removed in this instant
            router.cancel(ticket)
            raise Refusal(problem(503, "no usable server", code="no_backend", headers=retry_after(1.0)))
        name = secrets.token_urlsafe(16)
        said = {
            "ticket": name,
            "group": group.name,
            "server": ticket.server,
            "url": backend.config.root,
            "model": backend.config.model or asked.model,
            "why": ticket.why,
            "instead": ticket.instead,
            "expires_in": group.config.expire_after,
        }
        self._out[name] = _Out(ticket, group.name, router, asked if asked.id is not None else None, said)
        self._order.setdefault(router, OrderedDict())[name] = None
        if asked.id is not None:
            self._by_id[group.name, asked.id] = name
        if ticket.issued - self._swept >= SWEEP:
            self._sweep_all()
        return said

    def _taken(self, name: str) -> _Out:
        """A ticket that is out, as far as we know, to be released now."""
        out = self._out.get(name)
        if out is None:
            raise self._ended(name)
        self._forget(name)
        return out

    def _over(self, name: str, out: _Out, end: str, released: bool) -> dict[str, Any]:
        if not released:
            self._expired.note(name, "expired")
            raise self._ended(name)
        self._released.note(name, end)
        return {"ticket": name, "group": out.group, "server": out.ticket.server, "end": end}

    def _ended(self, name: str) -> Refusal:
        if name in self._expired:
            return Refusal(problem(410, "ticket: has expired", code="expired", param="ticket"))
        end = self._released.get(name)
        if end is not None:
            return Refusal(problem(409, f"ticket: is over already, {end}", code="already_released", param="ticket"))
        sentence = "ticket: there is none like this; it may be from before a restart, or long over"
        return Refusal(problem(404, sentence, code="unknown_ticket", param="ticket"))

    def _forget(self, name: str) -> None:
        out = self._out.pop(name)
        order = self._order[out.router]
        del order[name]
        if not order:
            del self._order[out.router]
        if out.asked is not None and out.asked.id is not None:
            self._by_id.pop((out.group, out.asked.id), None)

    def _sweep_all(self) -> None:
        """Forget the tickets that their routers have given up. One that a reload has replaced is asked nothing else any more,
        so it looks at its clock here."""
        self._swept = time.monotonic()
        for router, order in tuple(self._order.items()):
            router.report()
            while order:
                name = next(iter(order))
                if not self._out[name].ticket.released:
                    break
                self._forget(name)
                self._expired.note(name, "expired")


class _Post:
    """An ASGI app for one path of the API. It is one itself, without the framework's request object: that takes as long as all
    the rest here."""

    def __init__(self, service: Service, model: type[wire.Wire], answer: Callable[[Any], dict[str, Any]]) -> None:
        self._service, self._model, self._answer = service, model, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            said = self._answer(self._checked(await self._body(scope, receive)))
        except Refusal as refusal:
            await refusal.response(scope, receive, send)
            return
        except ClientDisconnect:
            return
        body = json.dumps(said, separators=(",", ":")).encode()
        date = formatdate(usegmt=True).encode()
        headers = [_JSON, (b"content-length", b"%d" % len(body)), (b"date", date)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        token = self._service.config.token
        if token is not None and not authorized(scope["headers"], token.get_secret_value()):
            raise Refusal(unauthorized(scope["headers"]))
        if scope["method"] != "POST":
            sentence = f"must be POST, not {scope['method']}"
            raise Refusal(problem(405, sentence, code="method_not_allowed", headers={"allow": "POST"}))
        kinds = [value for name, value in scope["headers"] if name == b"content-type"]
        kind = kinds[0].partition(b";")[0].strip().lower() if len(kinds) == 1 else b""
        # Nothing else, and not nothing: a page in a browser may send texts and forms anywhere, JSON only where it is let.
        if kind != b"application/json":
            sentence = "content-type: must be application/json"
            raise Refusal(problem(415, sentence, code="unsupported_media_type", headers={"accept": "application/json"}))
        return await bodies.read(receive, LARGEST)

    def _checked(self, body: bytes) -> wire.Wire:
        try:
            return self._model.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if first["type"] == "json_invalid":
                raise Refusal(problem(400, f"body: {first['msg']}", code="invalid_json")) from None
            sentence, field = wire.wrong(error, self._model)
            raise Refusal(problem(422, sentence, code="invalid_value", param=field)) from None


class _Document:
    """An ASGI app for the OpenAPI document."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            response: Response = JSONResponse(openapi.document(token=self._service.config.token is not None))
        else:
            sentence = f"must be GET, not {scope['method']}"
            response = problem(405, sentence, code="method_not_allowed", headers={"allow": "GET, HEAD"})
        await response(scope, receive, send)


def routes(service: Service, metrics: Metrics | None = None) -> list[Route]:
    """The API's paths, and its OpenAPI document's."""
    decisions = Decisions(service, metrics)
    return [
        Route("/openapi.json", _Document(service), name="openapi"),
        Route("/route", _Post(service, wire.RouteRequest, decisions.route), name="route"),
        Route("/watch", _Post(service, wire.WatchRequest, decisions.watch), name="watch"),
        Route("/complete", _Post(service, wire.CompleteRequest, decisions.complete), name="complete"),
        Route("/fail", _Post(service, wire.FailRequest, decisions.fail), name="fail"),
        Route("/cancel", _Post(service, wire.CancelRequest, decisions.cancel), name="cancel"),
    ]
