"""What goes over the wire of the decision API: its requests and answers, and the sentence for a field that is wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...fields import nearest
from .config import LEAST_WORK, MOST_WORK
from .words import allowed

#: A ticket: 128 random bits, as URL-safe Base64.
TICKET = r"^[A-Za-z0-9_-]{22}$"
#: Names in `avoid`, and letters of a name, of other texts. The largest request that fits these fits :data:`.decisions.LARGEST`.
MOST_AVOIDED, LONGEST_NAME, LONGEST = 64, 64, 256
#: Mistakes that are named, and letters of a value that is shown.
MOST_SAID, LONGEST_SHOWN = 5, 80

_TICKET = "q6lVbm3bT0-9vYrR4wPzXA"

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Text = Annotated[str, Field(min_length=1, max_length=LONGEST)]
Work = Annotated[
    float,
    Field(
        ge=LEAST_WORK,
        le=MOST_WORK,
        description="Size in usual requests; choose the unit so that a usual one is about 1.",
    ),
]
TicketName = Annotated[
    str, Field(pattern=TICKET, min_length=22, max_length=22, description="As /route or /watch gave it.")
]
GroupName = Annotated[Name | None, Field(description="Group of backends. Without it the model decides.")]
ModelName = Annotated[Text | None, Field(description="Model that is asked for; decides the group where none is named.")]
ClassName = Annotated[
    Text | None, Field(description="Class of the request, where there are classes; without it the first.")
]
RequestId = Annotated[
    Text | None,
    Field(
        description="Chosen by the client, different for each request. The same one again is answered with the same ticket for "
        "as long as that is out; so a request whose answer was lost can be sent again."
    ),
]


class Wire(BaseModel):
    """Fields that there are, and no others; a text is no number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class RouteRequest(Wire):
    """A request that is about to be sent to a backend."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "small", "work": 1.5, "avoid": ["a"]}]})

    group: GroupName = None
    model: ModelName = None
    key: ClassName = None
    work: Work = 1.0
    avoid: Annotated[
        list[Name],
        Field(
            max_length=MOST_AVOIDED,
            description="Backends that it must not go to, as for a second try. Names that there are not are no mistake.",
        ),
    ] = []
    id: RequestId = None


class WatchRequest(Wire):
    """Shadow mode: a request that somebody else has sent to a backend."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"group": "chat", "server": "a"}]})

    server: Annotated[Name, Field(description="Where it was sent to.")]
    group: GroupName = None
    model: ModelName = None
    key: ClassName = None
    work: Work = 1.0
    id: RequestId = None


class CompleteRequest(Wire):
    """It was served."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ticket": _TICKET, "work": 1.25}]})

    ticket: TicketName
    work: Annotated[Work | None, Field(description="What its size turned out to be.")] = None


class FailRequest(Wire):
    """It failed, by a fault of the backend's."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"ticket": _TICKET, "kind": "refused", "retry_after": 5}]}
    )

    ticket: TicketName
    kind: Annotated[
        Literal["error", "refused", "timeout"],
        Field(description="What happened: it was answered with an error, not taken at all, or not answered in time."),
    ] = "error"
    retry_after: Annotated[
        float | None,
        Field(gt=0, le=86400, description="Seconds that the backend asked to be left alone for (its Retry-After)."),
    ] = None


class CancelRequest(Wire):
    """It was given up on, by no fault of the backend's."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ticket": _TICKET}]})

    ticket: TicketName


class Decision(Wire):
    """Where a request goes, and the ticket to give back when it is over."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "ticket": _TICKET,
                    "group": "chat",
                    "server": "b",
                    "url": "http://127.0.0.1:9002",
                    "model": "small",
                    "why": "exploit",
                    "instead": None,
                    "expires_in": 3600.0,
                }
            ]
        }
    )

    ticket: TicketName
    group: str
    server: str
    url: Annotated[
        str, Field(description="Of the backend, without /v1: a request's own path, as /v1/embeddings, comes behind it.")
    ]
    model: Annotated[str | None, Field(description="What the backend calls the model.")]
    why: Annotated[
        Literal["exploit", "explore", "capped", "probe", "given"],
        Field(
            description="exploit, explore: the policy's choice; capped: it wanted to explore, over its allowance; probe: the "
            "trial of a backend whose circuit is not closed; given: not its choice, as for a second try, by a plain rule, or "
            "where another balancer decided."
        ),
    ]
    instead: Annotated[str | None, Field(description="What the policy would have chosen, where the choice was given.")]
    expires_in: Annotated[float, Field(ge=0, description="Seconds after which the ticket is given up.")]


class Released(Wire):
    """A ticket that is over."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"ticket": _TICKET, "group": "chat", "server": "b", "end": "done"}]}
    )

    ticket: TicketName
    group: str
    server: str
    end: Literal["done", "error", "refused", "timeout", "cancelled"]


class Problem(Wire):
    """What is wrong."""

    message: Annotated[str, Field(description="A sentence for people.")]
    type: str
    param: Annotated[str | None, Field(description="The field that is wrong.")]
    code: Annotated[str | None, Field(description="For programs.")]


class ProblemAnswer(Wire):
    """An error, in the form of OpenAI's interface."""

    error: Problem


def wrong(error: ValidationError, model: type[BaseModel]) -> tuple[str, str | None]:
    """(a sentence per mistake, the first field that is wrong), where a body was no JSON at all: no field."""
    said: list[str] = []
    fields: list[str] = []
    for one in error.errors(include_url=False):
        path = ".".join(map(str, one["loc"])) or "body"
        fields.append(path)
        said.append(f"{path}: {_allowed(one, model)}")
    more = len(said) - MOST_SAID
    sentence = "; ".join(said[:MOST_SAID]) + (f"; and {more} more" if more > 0 else "")
    return sentence, None if fields[0] == "body" else fields[0]


def _allowed(one: Any, model: type[BaseModel]) -> str:
    kind, given = one["type"], one["input"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"there is no such field{nearest(str(one['loc'][-1]), model.model_fields)}"
    if kind == "string_pattern_mismatch" or one["loc"][-1:] == ("ticket",):
        return "must be a ticket, as /route gives it"
    text = repr(given)
    hidden = isinstance(given, dict | list) or len(text) > LONGEST_SHOWN
    return allowed(one) + ("" if hidden else f", not {text}")
