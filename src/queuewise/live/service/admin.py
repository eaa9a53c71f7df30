"""The admin port: backends, what is known of them, decisions and why they were made, and a page to look at.

    served = admin.app(service, history, routes=[Route("/livez", ...), Route("/metrics", ...)])

Who reaches this port controls where requests go. On a loopback address it answers only those who call it by a loopback name,
so that no web page can reach it under a name of its own (DNS rebinding); nowhere does it take orders that a page of another
origin sent. With `admin_token` set, all but the page itself asks for it. Keys and tokens are never shown.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Collection, Sequence
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp

from ..._version import VERSION
from ...fields import nearest
from ..router import MOST_SLOTS, PLAIN_RULES, REMEMBERED, Decision
from . import asked, logs
from .answers import Answer
from .config import BackendConfig, Config, sentences
from .errors import Refusal, problem
from .groups import Group
from .guard import Guard
from .history import History
from .page import Page
from .service import Service

log = logging.getLogger("queuewise.service")

#: Decisions that ``GET /decisions`` gives unless told otherwise; new ones that the page gets at a time, with what was seen; of
#: these, unusual ones that are not among the newest.
DECISIONS, SHOWN, UNUSUAL = 50, 8, 3

#: Why a decision was made, in words.
SAID = {
    "exploit": "by the estimates it takes the least time there",
    "explore": "to learn how fast it is",
    "capped": "the policy wished to explore, beyond its allowance, so it went by the estimates",
    "probe": "a trial of a backend whose circuit is not closed",
    "given": "not the policy's choice (a second try, a plain rule, or another balancer's)",
}


def app(
    service: Service,
    history: History,
    *,
    routes: Sequence[BaseRoute] = (),
    public: Collection[str] = ("/",),
    loopback: bool | None = None,
) -> ASGIApp:
    """What answers on the admin port.

    routes : of others, that belong on this port too · public : paths that can be read without the token · loopback : whether
    the port is on a loopback address, so that only loopback names may be called; left out, as the settings say.
    """
    if loopback is None:
        loopback = service.config.admin is None or service.config.admin.loopback
    answers = _Admin(service, history)
    worker = "/workers/{group}/{name}"
    inner = Starlette(
        routes=[
            Route("/", Page(), methods=["GET"]),
            Route("/status.json", answers.status, methods=["GET"]),
            Route("/workers", answers.workers, methods=["GET"]),
            Route("/workers", answers.add, methods=["POST"]),
            Route(worker, answers.worker, methods=["GET"]),
            Route(worker, answers.resize, methods=["PATCH"]),
            Route(worker, answers.remove, methods=["DELETE"]),
            Route(worker + "/slots", answers.resize, methods=["PUT"]),
            Route(worker + "/estimate", answers.estimate, methods=["GET"]),
            Route(worker + "/history", answers.trace, methods=["GET"]),
            Route(worker + "/drain", answers.drain, methods=["POST"]),
            Route(worker + "/resume", answers.resume, methods=["POST"]),
            Route(worker + "/reset", answers.reset, methods=["POST"]),
            Route("/estimates", answers.estimates, methods=["GET"]),
            Route("/report", answers.report, methods=["GET"]),
            Route("/decisions", answers.decisions, methods=["GET"]),
            Route("/explain/{group}", answers.explain, methods=["GET"]),
            Route("/explain/{group}/{number}", answers.explain, methods=["GET"]),
            Route("/override", answers.override, methods=["POST"]),
            Route("/shadow", answers.shadow, methods=["GET"]),
            *routes,
        ],
        exception_handlers={
            Refusal: _refused,
            HTTPException: _http_error,
            ClientDisconnect: _http_error,
            Exception: _own_error,
        },
    )
    return Guard(inner, service, frozenset(public), loopback)


class _Admin:
    """The endpoints. What changes something waits for nothing between its look and its change, so nobody else comes between."""

    def __init__(self, service: Service, history: History) -> None:
        self._service, self._history = service, history

    @property
    def _patience(self) -> float:
        """Seconds until a body must have come."""
        return self._service.config.limits.body_seconds

    # --- backends -----------------------------------------------------------------------------------------------------

    async def workers(self, request: Request) -> Response:
        """All backends of all groups, or of one."""
        groups = self._groups(request)
        return Answer({"workers": [one for group in groups for one in self._backends(group)]})

    async def add(self, request: Request) -> Response:
        """A new backend. It is gone after a reload or restart, unless it is in the file too."""
        given = await asked.json_object(request, self._patience)
        group = self._group(asked.text(given, "group"))
        name = asked.text(given, "name")
        config = _backend_config(group.name, name, {k: v for k, v in given.items() if k not in ("group", "name")})
        if name in group.backends:
            raise asked.refused(409, f"name: group {group.name!r} has a backend {name!r} already", "name", "taken")
        logs.hide(config)
        try:
            group.add(name, config)
        except ValueError as error:
            raise asked.refused(422, str(error)) from None
        self._log(request, f"added {group.name}/{name} ({config.url}, {config.slots} slots)")
        location = f"/workers/{group.name}/{name}"
        return Answer(self._one(group, name), 201, {"location": location})

    async def worker(self, request: Request) -> Response:
        """One backend and what is known of it."""
        return Answer(self._one(*self._named(request)))

    async def estimate(self, request: Request) -> Response:
        """What is known of one backend, as the router says it."""
        group, name = self._named(request)
        return Answer(group.router.estimates()[name])

    async def trace(self, request: Request) -> Response:
        """One backend's last 15 minutes."""
        group, name = self._named(request)
        found = self._history.trace(group.name, name)
        return Answer({"group": group.name, "name": name, "classes": list(group.classes), **found})

    async def resize(self, request: Request) -> Response:
        """Other slots."""
        given = await asked.json_object(request, self._patience)
        group, name = self._named(request)
        slots = asked.single(given, "slots")
        if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= MOST_SLOTS:
            raise asked.refused(
                422, f"slots: must be a whole number from 1 to {MOST_SLOTS}, not {asked.shown(slots)}", "slots"
            )
        group.resize(name, slots)
        self._log(request, f"{group.name}/{name} has {slots} slots now")
        return Answer(self._one(group, name))

    async def remove(self, request: Request) -> Response:
        """A backend is gone; what it is serving goes on."""
        await asked.nothing(request, self._patience)
        group, name = self._named(request)
        in_flight = group.router.estimates()[name]["in_flight"]
        group.remove(name)
        self._log(request, f"removed {group.name}/{name}")
        return Answer({"group": group.name, "removed": name, "in_flight": in_flight})

    async def drain(self, request: Request) -> Response:
        """Send it nothing more."""
        await asked.nothing(request, self._patience)
        group, name = self._named(request)
        group.router.drain(name)
        self._log(request, f"drained {group.name}/{name}")
        return Answer(self._one(group, name))

    async def resume(self, request: Request) -> Response:
        """Use it again."""
        await asked.nothing(request, self._patience)
        group, name = self._named(request)
        group.router.resume(name)
        self._log(request, f"resumed {group.name}/{name}")
        return Answer(self._one(group, name))

    async def reset(self, request: Request) -> Response:
        """It was restarted or replaced: what is known of it is dropped, and its circuit closed."""
        await asked.nothing(request, self._patience)
        group, name = self._named(request)
        group.router.reset(name)
        self._log(request, f"reset {group.name}/{name}")
        return Answer(self._one(group, name))

    # --- what is known, and why ---------------------------------------------------------------------------------------

    async def estimates(self, request: Request) -> Response:
        """See :meth:`..router.Router.estimates`."""
        return Answer({"groups": {group.name: group.router.estimates() for group in self._groups(request)}})

    async def report(self, request: Request) -> Response:
        """See :meth:`..router.Router.report`."""
        return Answer({"groups": {group.name: group.router.report() for group in self._groups(request)}})

    async def shadow(self, request: Request) -> Response:
        """See :meth:`..router.Router.shadow`."""
        return Answer({"groups": {group.name: group.router.shadow() for group in self._groups(request)}})

    async def decisions(self, request: Request) -> Response:
        """The last decisions, newest last."""
        last = asked.whole_number(request, "last", DECISIONS, 1, REMEMBERED)
        found = [(group, one) for group in self._groups(request) for one in group.router.decisions(last)]
        found.sort(key=lambda pair: pair[1].at)
        return Answer({"decisions": [self._decision(group, one) for group, one in found[-last:]]})

    async def explain(self, request: Request) -> Response:
        """Why a request went where it went: the one of this number, or the last one."""
        group = self._group(request.path_params["group"])
        text = request.path_params.get("number")
        if text is None:
            number = max((one.number for one in group.router.decisions(1)), default=0)
        elif text.isascii() and text.isdecimal() and len(text) < 19:
            number = int(text)
        else:
            raise asked.refused(422, f"number: must be that of a decision, not {asked.shown(text)}", "number")
        try:
            found = group.router.explain(number)
        except ValueError:
            message = f"number: {number} is none of the last {REMEMBERED} decisions of group {group.name!r}"
            raise asked.refused(404, message, "number") from None
        return Answer({"group": group.name, **found, "said": _said(found["why"], found["instead"])})

    async def override(self, request: Request) -> Response:
        """The kill switch: a plain rule decides, or the policy again."""
        given = await asked.json_object(request, self._patience)
        group = self._group(asked.text(given, "group"))
        if "rule" not in given:
            raise asked.refused(422, "rule: is missing; null lets the policy decide again", "rule")
        rule = asked.single({key: value for key, value in given.items() if key != "group"}, "rule")
        if rule is not None and rule not in PLAIN_RULES:
            allowed = ", ".join(PLAIN_RULES)
            raise asked.refused(422, f"rule: must be one of {allowed}, or null, not {asked.shown(rule)}", "rule")
        # In a thread: the first time on a machine, a rule is compiled.
        await run_in_threadpool(group.router.override, rule)
        self._log(request, f"group {group.name} goes by {rule or 'its policy'}")
        return Answer({"group": group.name, "override": rule})

    async def status(self, request: Request) -> Response:
        """All that the page shows, in one go. Of one group, `group` or the first; samples from number `since` on, if `boot` is
        this start of the service, and at most SHOWN decisions after number `decided`, with what was seen at each."""
        service, history = self._service, self._history
        found: dict[str, Any] = {
            "boot": history.boot,
            "version": VERSION,
            "started": service.started,
            "now": time.time(),
            "stopping": service.stopping,
            "rules": PLAIN_RULES,
            "groups": [],
        }
        chosen = request.query_params.get("group")
        group = next(iter(service.groups.values()), None) if chosen is None else self._group(chosen)
        reports = {}
        for name, each in service.groups.items():
            reports[name] = report = each.router.report()
            found["groups"].append(
                {
                    "name": name,
                    "backends": len(each.backends),
                    "usable": len(report["usable"]),
                    "in_flight": report["out"],
                    "panic": report["panic"],
                    "override": report["override"],
                }
            )
        if group is None:
            return Answer(found)
        same = request.query_params.get("boot") == history.boot
        since = asked.whole_number(request, "since", 0, 0, 1 << 53) if same else 0
        decided = asked.whole_number(request, "decided", 0, 0, 1 << 53) if same else 0
        report = reports[group.name]
        estimates = group.router.estimates()
        backends = self._backends(group, estimates)
        found["group"] = {
            "name": group.name,
            "models": group.config.models,
            "policy": group.router.policy.label,
            "classes": group.classes,
            "explore_cap": group.config.explore_share,
            **report,
            "queue": group.queue_depth(estimates),
            "shadow": group.router.shadow(),
            "workers": backends,
        }
        found["history"] = history.since(group.name, since)
        found["recent"] = []
        for one in _worth_a_look([one for one in group.router.decisions() if one.number > decided]):
            found["recent"].append(self._decision(group, one) | {"seen": self._seen(group, one.number)})
            # With many backends this takes a quarter of a millisecond, and requests are waiting.
            await asyncio.sleep(0)
        return Answer(found)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _group(self, name: str) -> Group:
        group = self._service.groups.get(name)
        if group is None:
            message = f"group: there is no group {asked.shown(name)}{nearest(name, self._service.groups)}"
            raise asked.refused(404, message, "group", "unknown")
        return group

    def _groups(self, request: Request) -> list[Group]:
        """The group that the query names, or all."""
        name = request.query_params.get("group")
        return list(self._service.groups.values()) if name is None else [self._group(name)]

    def _named(self, request: Request) -> tuple[Group, str]:
        group, name = self._group(request.path_params["group"]), request.path_params["name"]
        if name not in group.backends:
            message = f"name: group {group.name!r} has no backend {asked.shown(name)}{nearest(name, group.backends)}"
            raise asked.refused(404, message, "name", "unknown")
        return group, name

    def _backends(self, group: Group, estimates: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Every backend of a group. key : whether it has one · share : of the last minute's requests · rates : per class, with
        `delay`, the seconds that a request now would be expected to take, for those that may be used.

        estimates : the router's, if at hand."""
        router = group.router
        estimates = router.estimates() if estimates is None else estimates
        shares = self._history.shares(group.name, estimates)
        labels = group.classes or (None,)
        delays = [router.delays(label) for label in labels]
        found = []
        for name, one in estimates.items():
            backend = group.backends.get(name)
            if backend is None:  # removed from the router's side, at this very moment
                continue
            rest = dict(one)
            rates = list(rest.pop("classes").values()) if group.classes else [_rate_of(rest)]
            for label, rate, delay in zip(labels, rates, delays, strict=True):
                rate["class"], rate["delay"] = label, delay.get(name)
            config = backend.config
            found.append(
                {
                    "group": group.name,
                    "name": name,
                    "url": config.url,
                    "model": config.model,
                    "key": config.key is not None,
                    **rest,
                    "share": shares.get(name),
                    "rates": rates,
                }
            )
        return found

    def _one(self, group: Group, name: str) -> dict[str, Any]:
        return next(one for one in self._backends(group) if one["name"] == name)

    def _decision(self, group: Group, one: Decision) -> dict[str, Any]:
        fields = one._asdict() | {"at": round(self._service.wall(one.at), 3)}
        return {"group": group.name, **fields, "said": _said(one.why, one.instead)}

    def _seen(self, group: Group, number: int) -> dict[str, Any] | None:
        """What was seen at a decision, as short lists: of 256 decisions, those of a busy second are forgotten in the next."""
        try:
            seen = group.router.explain(number).get("seen")
        except ValueError:
            return None
        if seen is None:
            return None
        return {"servers": list(seen), **{field: [one[field] for one in seen.values()] for field in ("queue", "rate")}}

    def _log(self, request: Request, what: str) -> None:
        log.info("admin: %s (from %s)", what, request.client.host if request.client else "?")


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response


def _http_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        path, headers = asked.shown(request.url.path), error.headers
        said = {404: f"there is no {path} here", 405: f"{path} does not take {request.method}"}
        if error.status_code == 405:
            there = [one for one in request.app.routes if one.matches(request.scope)[0] is not Match.NONE]
            allowed = {method for one in there for method in getattr(one, "methods", None) or ()}
            headers = {"allow": ", ".join(sorted(allowed))}
        return problem(error.status_code, said.get(error.status_code, error.detail), headers=headers)
    return problem(400, "body: the client went away")


def _own_error(request: Request, error: Exception) -> Response:
    return problem(500, "the service made an error, which is in its log")


def _backend_config(group: str, name: str, given: dict[str, Any]) -> BackendConfig:
    """As in the file, with the same sentences, in which only the path to the backend is left out."""
    try:
        config = Config.model_validate({"groups": {group: {"backends": {name: given}}}})
    except ValidationError as error:
        mistakes = sentences(error)
    else:
        mistakes = config.mistakes()
        if not mistakes:
            return config.groups[group].backends[name]
    path = f"groups.{group}.backends.{name}"
    said = [mistake.removeprefix(path + ".").removeprefix(path + ": ") for mistake in mistakes]
    said = [f"name: {one}" if one.startswith(repr(name)) else one for one in said]
    field = re.match(r"\w+", said[0])
    raise asked.refused(422, "; ".join(said), field[0] if field else None)


def _said(why: str, instead: str | None) -> str:
    said = SAID.get(why, why)
    return said if instead is None else f"{said}; it would have taken {instead}"


def _worth_a_look(decisions: list[Decision]) -> list[Decision]:
    """At most SHOWN of them in order: the last ones that did not go by the estimates, up to UNUSUAL, and else the newest."""
    unusual = [one for one in decisions[:-SHOWN] if one.why != "exploit"][-UNUSUAL:]
    return [*unusual, *decisions[-(SHOWN - len(unusual)) :]]


def _rate_of(one: dict[str, Any]) -> dict[str, Any]:
    """Take what belongs to a class out of the numbers of a backend that has none."""
    return {
        field: one.pop(field) for field in ("rate", "low", "high", "samples", "busy_time", "completions", "changes")
    }
