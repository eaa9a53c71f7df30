"""The OpenAPI document: that it is one, that its examples are examples, and that the API does as it says for requests that
schemathesis makes of it, good ones and bad ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import (
    ChecksConfig,
    GenerationConfig,
    NotAServerErrorConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from starlette.applications import Starlette

from queuewise._version import VERSION
from queuewise.live.service import decisions, openapi
from queuewise.live.service.config import parse
from queuewise.live.service.groups import Group
from queuewise.live.service.metrics import Metrics
from queuewise.live.service.service import Service

from .calling import Caller

TOKEN = "s3cret-and-long"
CONFIG = f"""
token: {TOKEN}
groups:
  chat:
    models: [small]
    backends:
      a: {{url: "http://127.0.0.1:9001", slots: 2}}
      b: "http://127.0.0.1:9002"
  rest:
    classes: [short, long]
    backends:
      c: "http://127.0.0.1:9003"
"""


class Fresh:
    """An ASGI app that can be begun anew: what is asked in one example must not be answered by what another has done."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.service = Service(parse(CONFIG))
        for (
            name,
            group,
        ) in self.service.groups.items():  # whether a backend rests still must not depend on how busy we are
            self.service.groups[name] = Group(name, group.config, clock=lambda: 0.0)
        self.app = Starlette(routes=list(decisions.routes(self.service, Metrics(self.service))))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


APP = Fresh()


def _settings() -> SchemathesisConfig:
    """All checks; 503 is no fault of the server's where all backends are to be avoided."""
    checks = ChecksConfig(not_a_server_error=NotAServerErrorConfig(expected_statuses=["2xx", "3xx", "4xx", "503"]))
    project = ProjectConfig(
        headers={"Authorization": f"Bearer {TOKEN}"},
        checks=checks,
        generation=GenerationConfig(deterministic=True, max_examples=40, database="none"),
    )
    return SchemathesisConfig(projects=ProjectsConfig(default=project))


#: What must be among the answers that a test gets, by its name: one whose requests were all refused would say nothing. A ticket
#: is good only after a request that gave it, so what releases one is answered with 200 and 409 in chains. What is generated
#: depends on what else is loaded (Hypothesis draws from the constants that it finds there), so nothing rare is wanted in
#: chains: no backend named by luck.
REFUSED = {401, 404, 405, 422}
WANTED: dict[str, dict[str, set[int]]] = {
    **{f"test_requests_to_{name}": {f"/{name}": REFUSED | {200}} for name in ("route", "watch")},
    **{f"test_requests_to_{name}": {f"/{name}": REFUSED} for name in ("complete", "fail", "cancel")},
    "runTest": {"/route": {200}} | {f"/{name}": {200, 409} for name in ("complete", "fail", "cancel")},
}

SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP, config=_settings())
SEEN: set[tuple[str, int]] = set()


@pytest.fixture(autouse=True)
def _what_was_seen(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test, whatever ran before it in this process: that it saw what it must see."""
    SEEN.clear()
    yield
    wanted = WANTED.get(request.node.name.partition("[")[0], {})
    assert wanted or not SEEN, "a test with generated requests that is not in WANTED"
    for path, statuses in wanted.items():
        assert statuses <= {status for at, status in SEEN if at == path}, (path, sorted(SEEN))
    assert all(status < 500 or status == 503 for _, status in SEEN)


def _generated(path: str) -> Any:
    """A test of one path. All in one would have one name for pytest, and pytest-xdist runs one test of a name."""

    @SCHEMA.include(path=path).parametrize()
    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    def test(case: schemathesis.Case) -> None:
        response = case.call_and_validate()
        SEEN.add((case.path, response.status_code))

    return test


test_requests_to_route = _generated("/route")
test_requests_to_watch = _generated("/watch")
test_requests_to_complete = _generated("/complete")
test_requests_to_fail = _generated("/fail")
test_requests_to_cancel = _generated("/cancel")


class Chains(SCHEMA.as_state_machine()):  # type: ignore[misc]
    """Requests that follow from answers, by the document's links: a ticket goes from /route to /complete."""

    def setup(self) -> None:
        APP.begin()

    def after_call(self, response: Any, case: Any) -> None:
        SEEN.add((case.path, response.status_code))


TestChains = Chains.TestCase
TestChains.settings = settings(
    max_examples=40,
    stateful_step_count=8,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_that_it_is_a_document_of_this_api() -> None:
    for token in (True, False):
        found = openapi.document(token)
        assert found["openapi"].startswith("3.1") and found["info"]["version"] == VERSION
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        for path, methods in found["paths"].items():
            answers = methods["post"]["responses"]
            assert ("401" in answers) is token and ("security" in methods["post"]) is token, path
        assert ("securitySchemes" in found["components"]) is token
    paths = {route.path for route in decisions.routes(APP.service)} - {"/openapi.json"}
    assert set(openapi.document()["paths"]) == paths


def test_that_examples_are_examples() -> None:
    """Of every request and every answer, by its schema."""
    found = openapi.document(token=True)
    seen = 0
    for methods in found["paths"].values():
        operation = methods["post"]
        for one in (operation["requestBody"], *operation["responses"].values()):
            content = one["content"]["application/json"]
            schema = {**content["schema"], "components": found["components"]}
            jsonschema.Draft202012Validator(schema).validate(content["example"])
            seen += 1
    assert seen == 5 + 2 * 11 + 3 * 10
    for name, schema in found["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        for example in schema.get("examples", ()):
            jsonschema.Draft202012Validator({**schema, "components": found["components"]}).validate(example)
        assert schema["additionalProperties"] is False, name


def test_that_the_examples_of_errors_are_real() -> None:
    """Each with the message's beginning, type, field and code that the API gives."""
    found = openapi.document(token=True)
    said: dict[str, dict[str, Any]] = {}
    APP.begin()
    router = APP.service.groups["chat"].router
    with Caller(APP, [(b"authorization", f"Bearer {TOKEN}".encode())]) as call, Caller(APP) as stranger:
        ticket = call.post("/route", {"group": "chat"}).json()["ticket"]
        call.post("/complete", {"ticket": ticket})
        kind = [(b"content-type", b"application/json")]
        said["400"] = call.post("/route", b"nope").error
        said["401"] = stranger.post("/route", {}).error
        said["404"] = call.post("/complete", {"ticket": "x" * 22}).error
        said["405"] = call("GET", "/complete").error
        said["409"] = call.post("/complete", {"ticket": ticket}).error
        said["413"] = call("POST", "/route", b" " * 70_000, kind).error
        said["415"] = call("POST", "/route", b"{}").error
        said["422"] = call.post("/route", {"work": 0}).error
        router.rest("a", 5.0)
        router.rest("b", 5.0)
        said["429"] = call.post("/route", {"group": "chat"}).error
        for name in "ab":
            router.resume(name)
            router.drain(name)
        said["503"] = call.post("/route", {"group": "chat"}).error
    for methods in found["paths"].values():
        for status, answer in methods["post"]["responses"].items():
            if status in said:
                example = answer["content"]["application/json"]["example"]["error"]
                assert {**example, "message": ""} == {**said[status], "message": ""}, status
    assert set(said) == set(openapi.PROBLEMS) - {"410"}
