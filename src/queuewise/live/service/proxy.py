"""The routing proxy: everything under ``/v1/`` goes to the backend that the router chooses, and comes back as it is.

A request is read whole (within `limits.body`), since it may have to be sent again. An answer is not: it is passed on piece by
piece as it comes. Only short ones of known length are read before they are passed on, so that one that breaks off can be
tried elsewhere. Nothing is tried again once a byte has gone to the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import math
import os
import re
import time
import uuid
from typing import Any, NamedTuple

import aiohttp
from multidict import CIMultiDict
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ..router import NoServerError, Router
from ..tickets import Ticket
from . import bodies, upstream
from .auth import authorized
from .budget import RetryBudget
from .config import LEAST_WORK, MOST_WORK
from .errors import Refusal, problem, retry_after, unauthorized
from .groups import Backend, Group
from .metrics import Metrics
from .service import Service
from .upstream import HOP_BY_HOP, OWN, Verdict

RawHeaders = list[tuple[bytes, bytes]]

log = logging.getLogger("queuewise.requests")

#: Answers of a known length up to this many bytes are read before they are passed on.
SHORT = 1 << 18
_LONGEST_ID = 256
_LONGEST_MODEL = 1024
#: Bytes of a body up to which it is read in another way if it is no JSON at first sight.
_READ_AGAIN = 1 << 20
#: CONNECT is about a connection, and what TRACE shows is the request as the backend got it: with its key.
_NOT_FOR_PROXIES = ("CONNECT", "TRACE")


class Gone(Exception):
    """The client has gone."""


class Asked(NamedTuple):
    """A request as it came. headers : those that go on · authorization : the client's, which goes on where there is no token to
    get in here · model : that it asks for · mapped : whether that stands in its JSON, where it can have another name."""

    method: str
    path: str
    query: str
    headers: CIMultiDict[str]
    authorization: str | None
    request_id: str
    body: bytes
    model: str | None
    mapped: bool
    key: str | None
    work: float
    seconds: float


class Answer(NamedTuple):
    """What a backend said."""

    status: int
    headers: RawHeaders
    body: bytes
    verdict: Verdict


#: Why no connection can be made, by no fault of the backend's: files, memory or ports are used up here.
_OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))
#: Seconds between two complaints about that.
_COMPLAIN = 10.0
#: What is told a client where no backend has answered: what went wrong → status, sentence.
_UNANSWERED = {
    "refused": (502, "the backend cannot be reached"),
    "broken": (502, "the backend broke off"),
    "timeout": (504, "the backend has not answered in time"),
}


class Proxy:
    """An ASGI app for ``/v1/`` and below."""

    def __init__(self, service: Service, session: aiohttp.ClientSession, metrics: Metrics) -> None:
        self.service, self.session, self.metrics = service, session, metrics
        self.budget = RetryBudget(service.config.retries, time.monotonic)
        self._complained = -math.inf
        self.settle()

    def settle(self) -> None:
        """Look at the settings again, after a reload."""
        groups = self.service.config.groups.values()
        self.budget.settings = self.service.config.retries
        self._reads_models = any(group.models for group in groups) or any(
            backend.model for group in groups for backend in group.backends.values()
        )
        token = self.service.config.token
        self._timeout = upstream.timeout(self.service.config.timeouts)
        self._token = None if token is None else token.get_secret_value()

    def exhausted(self, error: OSError) -> Refusal:
        """What a client gets where this machine has no connection left to give."""
        now = time.monotonic()
        if now - self._complained >= _COMPLAIN:
            self._complained = now
            log.error("no connection to a backend can be made here: %s", os.strerror(error.errno or 0))
        sentence = "no connection to a backend can be made now"
        return Refusal(problem(503, sentence, code="exhausted", headers=retry_after(1.0)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(self, scope, receive, send)
        try:
            await exchange.run()
        finally:
            exchange.account()


class _Exchange:
    """One request and its answer."""

    __slots__ = (
        *(
            "answered",
            "backend",
            "begun",
            "end",
            "finished",
            "first_byte",
            "group",
            "meaning",
            "model",
            "proxy",
            "receive",
        ),
        *("request_id", "router", "scope", "send", "sending", "status", "ticket", "tried", "waited"),
    )

    def __init__(self, proxy: Proxy, scope: Scope, receive: Receive, send: Send) -> None:
        self.proxy, self.scope, self.receive, self.send = proxy, scope, receive, send
        self.begun = time.perf_counter()
        self.waited = 0.0  # of that, for backends
        self.answered: float | None = None  # when the head of the answer went to the client
        self.first_byte: float | None = None  # and the first of its body
        self.status = 499  # as long as nothing was said: the client has gone (nginx's number)
        self.end = "broken"  # as long as it is not: "answered", the client has "left", the service has "stopped"
        self.tried: list[str] = []
        self.meaning = ""  # of the last answer
        self.ticket: Ticket | None = None  # while it is out
        self.router: Router | None = None  # that gave it: a reload may give the group another one
        self.sending = False  # while a piece goes to the client
        self.finished = False
        self.group: Group | None = None
        self.backend: str | None = None
        self.model: str | None = None
        self.request_id = ""

    async def run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        gone = False
        watcher: asyncio.Task[None] | None = None

        async def watch() -> None:
            nonlocal gone
            while (await self.receive())["type"] != "http.disconnect":
                pass
            if not self.finished:
                gone = True
                task.cancel()

        try:
            try:
                asked = await self._read()
                watcher = asyncio.create_task(watch())
                group = self.group
                assert group is not None
                async with asyncio.timeout(asked.seconds) as deadline:
                    await self._route(group, asked, deadline)
            except Refusal as refusal:
                await self._say(refusal.response, refusal.reason)
            except TimeoutError:
                if self.answered is None:
                    await self._say(problem(504, "no backend has answered in time", code="deadline_exceeded"))
            except (Gone, ClientDisconnect):
                self.end = "left"
            except Exception:  # a mistake of ours: the log has it, the client a sentence that gives nothing away
                log.exception("request %s failed by a mistake of the proxy", self.request_id)
                if self.answered is None:
                    await self._say(problem(500, "the proxy made a mistake", code="internal_error"))
        except asyncio.CancelledError:
            if gone:
                self.end = "left"
            elif self.proxy.service.closing:
                self.end = "stopped"
                if self.answered is None:
                    headers = {"connection": "close"}
                    await self._say(problem(503, "the service is stopping", code="stopping", headers=headers))
            else:
                raise
            task.uncancel()
        finally:
            if watcher is not None:
                watcher.cancel()

    # --- what is asked ------------------------------------------------------------------------------------------------

    async def _read(self) -> Asked:
        """The request, and its group in `self.group`."""
        scope, service = self.scope, self.proxy.service
        headers: CIMultiDict[str] = CIMultiDict()
        authorization = content_type = None
        ours: dict[bytes, str] = {}
        encoded = False
        named: set[bytes] = set()
        for name, value in scope["headers"]:
            if name == b"connection":
                named.update(one.strip().lower() for one in value.split(b","))
        for name, value in scope["headers"]:
            if name in HOP_BY_HOP or name in named or name in (b"host", b"content-length", b"expect"):
                continue
            text = _decoded(value)
            if name == b"authorization":
                authorization = text
            elif name.startswith(OWN):
                ours[name] = text
            elif name == b"x-request-id":
                if 0 < len(text) <= _LONGEST_ID and text.isprintable():
                    self.request_id = text
            else:
                content_type = text if name == b"content-type" else content_type
                encoded = encoded or name == b"content-encoding"
                headers.add(name.decode("latin-1"), text)
        if not self.request_id:
            self.request_id = uuid.uuid4().hex
        headers.add("x-request-id", self.request_id)
        if not authorized(scope["headers"], self.proxy._token):
            raise Refusal(unauthorized(scope["headers"]))
        raw = scope.get("raw_path") or scope["path"].encode()
        path = raw.decode("latin-1")
        if scope["method"] in _NOT_FOR_PROXIES:
            raise Refusal(problem(405, f"{scope['method']} is not passed on", code="method_not_allowed"))
        if _climbs(scope["path"]):
            raise Refusal(problem(400, "the path must not have . or .. in it", code="invalid_path"))
        body = await bodies.read(self.receive, service.config.limits.body)
        mapped = False
        method = scope["method"]
        kind = (content_type or "").partition(";")[0].strip().lower()
        if self.proxy._reads_models and body and not encoded:
            if kind == "multipart/form-data":
                self.model = _model_of_form(body)
            else:
                self.model = _model_of(body, strict=kind == "application/json" or kind.endswith("+json"))
                mapped = self.model is not None
        if self.model is None:  # what has no body has no other way to say
            self.model = ours.get(b"x-queuewise-model")
        if self.proxy._reads_models and method == "GET" and (path == "/v1/models" or path.startswith("/v1/models/")):
            raise Refusal(self._models(scope["path"]))
        group = service.group_of(self.model)
        if group is None:
            what = f"there is no model {self.model!r}" if self.model else "the request names no model"
            raise Refusal(problem(404, f"{what} here", code="model_not_found", param="model"))
        self.group = group
        key = _class_of(group, ours.get(b"x-queuewise-class"))
        work = _number(ours, b"x-queuewise-work", LEAST_WORK, MOST_WORK, 1.0)
        most = service.config.timeouts.deadline
        seconds = min(most, _number(ours, b"x-queuewise-timeout", 1e-3, math.inf, most))
        shed = group.overload(key)
        if shed is not None:
            reason, after = shed
            raise Refusal(
                problem(429, "too many requests are waiting", code="overloaded", headers=retry_after(after)), reason
            )
        query = scope["query_string"].decode("latin-1")
        return Asked(
            *(method, path, query, headers, None if self.proxy._token else authorization, self.request_id),
            *(body, self.model, mapped, key, work, seconds),
        )

    def _models(self, path: str) -> Response:
        """The models that the settings name, in OpenAI's form."""
        created = int(self.proxy.service.started)
        found = {
            model: {"id": model, "object": "model", "created": created, "owned_by": name}
            for name, group in self.proxy.service.groups.items()
            for model in group.config.models
        }
        wanted = path.removeprefix("/v1/models").strip("/")
        if not wanted:
            return JSONResponse({"object": "list", "data": list(found.values())})
        if wanted in found:
            return JSONResponse(found[wanted])
        return problem(404, f"there is no model {wanted!r} here", code="model_not_found", param="model")

    # --- to backends --------------------------------------------------------------------------------------------------

    async def _route(self, group: Group, asked: Asked, deadline: asyncio.Timeout) -> None:
        """Try backends until one answers, and pass its answer on."""
        retries, metrics = self.proxy.service.config.retries, self.proxy.metrics
        repeatable = asked.method in ("GET", "HEAD", "OPTIONS") or asked.path in retries.repeat
        tried = self.tried
        last: tuple[Answer, str] | None = None  # the last answer that there was, and whose
        refused: list[str] = []  # for what it is, which may be their fault
        said = "refused"
        budget = self.proxy.budget
        budget.request()
        while True:
            decided = time.perf_counter()
            try:
                router = group.router
                # A reload may have changed the classes.
                key = asked.key if asked.key in group.classes else _class_of(group, None)
                ticket = router.route(key, asked.work, avoid=tried)
            except NoServerError as error:
                if tried:
                    budget.give_back()
                    break
                raise self._nobody(error) from None
            metrics.decision(time.perf_counter() - decided)
            if tried:
                metrics.retry(said)
            self.backend = ticket.server
            tried.append(ticket.server)
            backend = group.backends.get(ticket.server)
            if backend is None:  # removed in this instant
                router.cancel(ticket)
                continue
            self.router, self.ticket = router, ticket
            self.meaning = ""
            answer, said, untouched = await self._try(group, backend, asked, deadline)
            if self.meaning == upstream.DONE and not said:  # and it did not break off
                group.doubts.served(ticket.server)
                for name in refused:
                    with contextlib.suppress(ValueError):  # it was removed since
                        router.blame(name)
            if self.answered is not None:
                return
            if answer is not None:
                last = answer, ticket.server
                if answer.verdict.meaning == upstream.DOUBTFUL:
                    refused.append(ticket.server)
                    if len(refused) > 1:
                        group.doubts.agreed(refused)
                        break
                    if not group.doubts.refused(ticket.server):
                        break
            if not (untouched or repeatable) or len(tried) >= retries.tries:
                break
            if not group.backends.keys() - tried or not budget.spend():
                break
        if last is None:
            status, sentence = _UNANSWERED[said]
            raise Refusal(problem(status, sentence, code=f"backend_{said}"))
        answer, self.backend = last
        await self._whole(answer)

    async def _try(
        self, group: Group, backend: Backend, asked: Asked, deadline: asyncio.Timeout
    ) -> tuple[Answer | None, str, bool]:
        """One backend: its answer, if it failed with one; what went wrong; whether it surely has not worked on the request. Any
        other answer has been passed on afterwards. The ticket is released in here, whatever happens."""
        headers = asked.headers.copy()
        authorization = backend.authorization or asked.authorization
        if authorization is not None:
            headers["authorization"] = authorization
        body = asked.body
        if backend.config.model is not None and asked.mapped:
            # Escaped throughout, since JSON may have half characters, which no encoding has.
            body = json.dumps({**json.loads(body), "model": backend.config.model}).encode()
        response: aiohttp.ClientResponse | None = None
        answer: Answer | None = None
        sent = time.perf_counter()
        try:
            async with asyncio.timeout(self.proxy.service.config.timeouts.first_byte):
                url = backend.url(asked.path, asked.query)
                response = await upstream.send(
                    self.proxy.session, self.proxy._timeout, asked.method, url, headers, body
                )
                verdict = upstream.judge(response.status, response.headers.get("retry-after"))
                self.meaning = verdict.meaning
                held = verdict.meaning in upstream.HELD
                length = response.content_length
                short = length <= SHORT if length is not None else held
                content = b""
                if short:
                    content, short = await _at_most(response, SHORT)
            self.waited += time.perf_counter() - sent
            answer = Answer(response.status, upstream.headers_back(response), content, verdict)
            if not short:
                deadline.reschedule(None)  # it has begun to answer: from here on only silence is too long
                await self._stream(group, answer, response)
                return None, "", False
            self._judged(group, verdict)
            if not held:
                await self._whole(answer)
                return None, "", False
            return answer, str(response.status), verdict.untouched
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            if getattr(error, "errno", None) in _OURS:
                self._let_go(None)
                raise self.proxy.exhausted(error) from None
            self._let_go("refused")
            return None, "refused", True
        except TimeoutError:
            self._let_go(None if self.sending else "timeout")
            if self.answered is not None:
                raise
            return None, "timeout", False
        except asyncio.CancelledError:
            # The deadline, if it is ours: one that a client set is no measure of a backend.
            ours = asked.seconds >= self.proxy.service.config.timeouts.deadline
            self._let_go("timeout" if deadline.expired() and ours else None)
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._let_go("error")
            log.debug("backend %s: %s", backend.name, type(error).__name__)
            return None, "broken", False  # if it had begun to answer, all that can be done is to break off, too
        finally:
            if answer is None:
                self.waited += time.perf_counter() - sent
            if response is not None:
                response.close()  # nothing where it was read to its end
            self._let_go(None)

    def _let_go(self, failure: str | None) -> None:
        """Release the ticket, if it is out: as a failure, or as given up on."""
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            assert self.router is not None
            if failure is None:
                self.router.cancel(ticket)
            else:
                self.router.fail(ticket, failure)

    def _judged(self, group: Group, verdict: Verdict) -> None:
        """Tell the router what an answer means, which releases the ticket."""
        ticket = self.ticket
        if ticket is None:
            return
        if verdict.meaning == upstream.DONE:
            self.ticket = None
            assert self.router is not None
            self.router.complete(ticket)
        elif verdict.meaning == upstream.FAILED:
            self._let_go("error")
        elif verdict.meaning == upstream.REFUSED and verdict.rest is None:
            self._let_go("refused")
        else:
            self._let_go(None)
            if verdict.rest is not None:
                longest = self.proxy.service.config.timeouts.longest_rest
                with contextlib.suppress(ValueError):  # it was removed since
                    group.router.rest(ticket.server, min(verdict.rest, longest))

    def _nobody(self, error: NoServerError) -> Refusal:
        if error.retry_after is not None:
            return Refusal(
                problem(
                    *(429, "all backends have asked to be left alone for a while"),
                    code="overloaded",
                    headers=retry_after(error.retry_after),
                ),
                "resting",
            )
        return Refusal(problem(503, "no backend can be used now", code="no_backend", headers=retry_after(1.0)))

    # --- back to the client -------------------------------------------------------------------------------------------

    async def _stream(self, group: Group, answer: Answer, response: aiohttp.ClientResponse) -> None:
        """Pass an answer on as it comes; its first pieces may have been read already."""
        idle = self.proxy.service.config.timeouts.idle
        loop = asyncio.get_running_loop()
        await self._head(answer.status, answer.headers)
        async with asyncio.timeout(idle) as silence:
            if answer.body:
                await self._piece(answer.body)
            async for piece in response.content.iter_any():
                await self._piece(piece)
                silence.reschedule(loop.time() + idle)
            self._judged(group, answer.verdict)
            await self._end(b"")

    async def _piece(self, piece: bytes) -> None:
        if self.first_byte is None:
            self.first_byte = time.perf_counter()
        self.sending = True
        await self.send({"type": "http.response.body", "body": piece, "more_body": True})
        self.sending = False

    async def _whole(self, answer: Answer) -> None:
        await self._head(answer.status, answer.headers)
        await self._end(answer.body)

    async def _end(self, body: bytes) -> None:
        self.finished, self.end = True, "answered"
        if self.first_byte is None:
            self.first_byte = time.perf_counter()
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def _head(self, status: int, headers: RawHeaders) -> None:
        self.status = status
        self.answered = time.perf_counter()
        spent = self.answered - self.begun - self.waited
        names = {name for name, _ in headers}
        own = [
            (b"x-queuewise-attempts", b"%d" % len(self.tried)),
            (b"x-queuewise-overhead-ms", b"%.3f" % (1e3 * spent)),
        ]
        if self.backend is not None:
            own.append((b"x-queuewise-backend", self.backend.encode()))
        if b"x-request-id" not in names:
            own.append((b"x-request-id", self.request_id.encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *own]})

    async def _say(self, response: Response, reason: str = "") -> None:
        """An answer of our own."""
        if reason:
            self.proxy.metrics.shed(self.group.name if self.group else "", reason)
        await self._head(response.status_code, list(response.raw_headers))
        await self._end(bytes(response.body))

    def account(self) -> None:
        """It is over."""
        now = time.perf_counter()
        duration = now - self.begun
        service, group = self.proxy.service, self.group
        self.proxy.metrics.request(
            group=group.name if group is not None else None,
            backend=self.backend,
            model=self.model,
            code=self.status,
            duration=duration,
            first_byte=None if self.first_byte is None else self.first_byte - self.begun,
            overhead=(self.answered or now) - self.begun - self.waited,
            attempts=len(self.tried),
        )
        if service.config.log.requests:
            log.info(
                "%s %s",
                self.scope["method"],
                self.scope["path"],
                extra={
                    "group": group.name if group is not None else None,
                    "model": self.model,
                    "backend": self.backend,
                    "status": self.status,
                    "duration_ms": round(1e3 * duration, 3),
                    "tried": ",".join(self.tried),
                    "end": self.end,
                    "request_id": self.request_id,
                },
            )


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _climbs(path: str) -> bool:
    """Whether a path, unescaped, has steps that lead out of /v1/ on a server that follows them."""
    if "." not in path:
        return False
    steps = path.replace("\\", "/").split("/")
    return any(step.partition(";")[0] in (".", "..") for step in steps)  # some servers take ..; for ..


class _Named(BaseModel):
    """All that is to be known of a request's JSON."""

    model: Any = None


def _model_of(body: bytes, strict: bool) -> str | None:
    """The model that a body's JSON names. strict : it says that it is JSON; else it may be anything.

    It is read without making Python's objects of it: of 16 MiB of small ones there are hundreds of MiB. That reader knows no
    half characters and no encodings but UTF-8, which Python's does.
    """
    try:
        model = _Named.__pydantic_validator__.validate_json(body).model
    except ValidationError:
        try:
            payload = json.loads(body) if len(body) <= _READ_AGAIN else None
        except (ValueError, RecursionError):
            payload = None
        if not isinstance(payload, dict):
            if strict:
                raise Refusal(problem(400, "the body must be a JSON object", code="invalid_json")) from None
            return None
        model = payload.get("model")
    if model is not None and not (isinstance(model, str) and len(model) <= _LONGEST_MODEL):
        sentence = f"model must be a text of at most {_LONGEST_MODEL} characters"  # it is in answers, and in the log
        raise Refusal(problem(400, sentence, code="invalid_value", param="model"))
    return model


#: A field of a form, in multipart/form-data (RFC 7578): its name, other headers, an empty line, its value.
_FORM_MODEL = re.compile(
    rb'content-disposition:[^\r\n]*[ ;]name="?model"?[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,256})\r\n',
    re.IGNORECASE,
)


def _model_of_form(body: bytes) -> str | None:
    """The model that a form names, as those do that send a file."""
    found = _FORM_MODEL.search(body)
    return None if found is None else _decoded(found[1])


def _class_of(group: Group, asked: str | None) -> str | None:
    if not group.classes:
        return None
    if asked is None:
        return group.classes[0]
    if asked not in group.classes:
        known = ", ".join(group.classes)
        sentence = f"x-queuewise-class must be one of {known}"
        raise Refusal(problem(400, sentence, code="invalid_value", param="x-queuewise-class"))
    return asked


def _number(ours: dict[bytes, str], name: bytes, least: float, most: float, otherwise: float) -> float:
    text = ours.get(name)
    if text is None:
        return otherwise
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most or math.isinf(value):
        allowed = f"from {least:g} to {most:g}" if most < math.inf else f"of at least {least:g}"
        field = name.decode()
        raise Refusal(problem(400, f"{field} must be a number {allowed}", code="invalid_value", param=field))
    return value


async def _at_most(response: aiohttp.ClientResponse, size: int) -> tuple[bytes, bool]:
    """(a body, or the first of it; whether that is all): reading ends once there are more than `size` bytes."""
    if response.content_length is not None:
        return await response.read(), True
    pieces: list[bytes] = []
    got = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        got += len(piece)
        if got > size:
            return b"".join(pieces), False
    return b"".join(pieces), True
