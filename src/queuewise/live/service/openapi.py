"""The decision API's OpenAPI document, made from the models in :mod:`.wire`."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from ..._version import VERSION
from . import wire

#: Of the OpenAPI specification.
FORMAT = "3.1.0"

#: Answers that are errors: status → what it means, and an example's code and sentence.
PROBLEMS: dict[str, tuple[str, str, str]] = {
    "400": ("The body is no JSON.", "invalid_json", "body: Invalid JSON: expected value at line 1 column 1"),
    "401": ("The token is missing or wrong.", "invalid_api_key", "a bearer token is needed"),
    "404": ("There is no such thing.", "unknown_ticket", "ticket: there is none like this"),
    "405": ("Another method than POST.", "method_not_allowed", "must be POST, not GET"),
    "409": ("It was done before.", "already_released", "ticket: is over already, done"),
    "410": ("The ticket has expired.", "expired", "ticket: has expired"),
    "413": ("The body is too large.", "request_too_large", "the request is larger than 65536 bytes"),
    "415": ("The body is of another type.", "unsupported_media_type", "content-type: must be application/json"),
    "422": ("A field is wrong.", "invalid_value", "work: must be at least 0.001, not 0"),
    "429": ("Too much waits, or all backends rest.", "overloaded", "too many requests are waiting"),
    "503": ("No backend can be used, or the service is about to stop.", "no_backend", "no usable server"),
}
_ALWAYS = ("400", "405", "413", "415", "422")
_RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}


def document(token: bool = False) -> dict[str, Any]:
    """The document. token : whether the API asks for a bearer token."""
    decide = (*_ALWAYS, "404", "409", "429", "503")
    release = (*_ALWAYS, "404", "409", "410")
    paths = {
        "/route": _post("route", "Ask where to send a request", wire.RouteRequest, wire.Decision, decide, token),
        "/watch": _post("watch", "Tell where somebody else sent one", wire.WatchRequest, wire.Decision, decide, token),
        "/complete": _post("complete", "It was served", wire.CompleteRequest, wire.Released, release, token),
        "/fail": _post("fail", "It failed", wire.FailRequest, wire.Released, release, token),
        "/cancel": _post("cancel", "It was given up on", wire.CancelRequest, wire.Released, release, token),
    }
    _, schemas = models_json_schema(
        [
            *((model, "validation") for model in (wire.RouteRequest, wire.WatchRequest)),
            *((model, "validation") for model in (wire.CompleteRequest, wire.FailRequest, wire.CancelRequest)),
            *((model, "serialization") for model in (wire.Decision, wire.Released, wire.ProblemAnswer)),
        ],
        ref_template="#/components/schemas/{model}",
    )
    components: dict[str, Any] = {"schemas": schemas["$defs"]}
    if token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": FORMAT,
        "info": {
            "title": "Queuewise decision API",
            "version": VERSION,
            "description": "For those who send their requests themselves. Ask /route where to, send the request there, "
            "and give the ticket back once: /complete, /fail or /cancel.",
        },
        "paths": paths,
        "components": components,
    }


def _post(
    name: str,
    summary: str,
    asked: type[wire.Wire],
    said: type[wire.Wire],
    problems: tuple[str, ...],
    token: bool,
) -> dict[str, Any]:
    answers: dict[str, Any] = {"200": {"description": (said.__doc__ or "").strip(), "content": _json(said)}}
    if said is wire.Decision:
        answers["200"]["links"] = {
            then: {"operationId": then, "requestBody": {"ticket": "$response.body#/ticket"}}
            for then in ("complete", "fail", "cancel")
        }
    for status in sorted((*problems, "401") if token else problems):
        description, code, sentence = PROBLEMS[status]
        kind = {"401": "authentication_error", "429": "rate_limit_error", "503": "server_error"}
        example = {
            "error": {
                "message": sentence,
                "type": kind.get(status, "invalid_request_error"),
                "param": sentence.split(":")[0] if status in ("404", "409", "410", "422") else None,
                "code": code,
            }
        }
        answers[status] = {"description": description, "content": _json(wire.ProblemAnswer, example)}
        if status in ("429", "503"):
            answers[status]["headers"] = _RETRY_AFTER
    found: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "description": (asked.__doc__ or "").strip(),
        "requestBody": {"required": True, "content": _json(asked)},
        "responses": answers,
    }
    if token:
        found["security"] = [{"token": []}]
    return {"post": found}


def _json(model: type[wire.Wire], example: Any = None) -> dict[str, Any]:
    if example is None:
        example = model.model_json_schema()["examples"][0]
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}, "example": example}}
