"""Whether it lives, and whether it is ready."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.applications import Starlette

from queuewise.live.service import health
from queuewise.live.service.config import parse
from queuewise.live.service.service import Service

from .calling import Caller

CONFIG = """
groups:
  chat:
    models: [small]
    backends:
      a: "http://127.0.0.1:9001"
      b: "http://127.0.0.1:9002"
  rest:
    backends:
      c: "http://127.0.0.1:9003"
"""


class Bench:
    """A service that says how it is."""

    def __init__(self, config: str = CONFIG) -> None:
        self.service = Service(parse(config))
        self.call = Caller(Starlette(routes=list(health.routes(self.service))))

    def statuses(self) -> list[int]:
        return [self.call("GET", path).status for path in ("/livez", "/readyz", "/healthz")]


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.call.close()


def test_all_is_well(bench: Bench) -> None:
    assert bench.statuses() == [200, 200, 200]
    answer = bench.call("GET", "/readyz")
    assert answer.body == b"ok\n" and answer.headers["cache-control"] == "no-store"
    assert bench.call("HEAD", "/readyz").status == 200
    assert bench.call("POST", "/readyz").status == 405


def test_the_end(bench: Bench) -> None:
    bench.service.stopping = True
    assert bench.statuses() == [200, 503, 503]
    assert bench.call("GET", "/readyz").body == b"not ready\n"


def test_a_group_without_a_backend_to_use(bench: Bench) -> None:
    router = bench.service.groups["chat"].router
    router.drain("a")
    assert bench.statuses() == [200, 200, 200]  # there is another
    router.rest("b", 60.0)
    assert bench.statuses() == [200, 200, 200]  # there is another group
    bench.service.groups["rest"].remove("c")
    assert bench.statuses() == [200, 503, 503]
    router.resume("a")
    assert bench.statuses() == [200, 200, 200]


def test_what_is_not_well(bench: Bench) -> None:
    bench.service.groups["rest"].router.drain("c")
    answer = bench.call("GET", "/readyz", query=b"verbose")
    assert answer.status == 200
    assert answer.json() == {
        "status": "ready",
        "checks": [
            {"name": "running", "ok": True, "said": "takes requests", "needed": True},
            {"name": "groups", "ok": True, "said": "1 of 2 groups have a backend that may be used", "needed": True},
            {"name": "group chat", "ok": True, "said": "2 of 2 backends may be used", "needed": False},
            {"name": "group rest", "ok": False, "said": "0 of 1 backends may be used", "needed": False},
        ],
    }
    bench.service.groups["rest"].router.resume("c")
    bench.service.stopping = True
    said = bench.call("GET", "/healthz", query=b"verbose=1").json()
    assert [check["ok"] for check in said["checks"]] == [False, True, True, True]
    assert bench.call("GET", "/readyz", query=b"verbose=0").body == b"not ready\n"


def test_who_may_know_more() -> None:
    """Probes have no token; what groups there are is for those who have one, or for whom the app around lets in."""
    bench = Bench("token: s3cret-one\n" + CONFIG)
    with bench.call as call:
        assert bench.statuses() == [200, 200, 200]
        assert call("GET", "/readyz", query=b"verbose").status == 401
        for token, status in ((b"s3cret-one", 200), (b"s3cret-two", 401)):
            headers = [(b"authorization", b"Bearer " + token)]
            assert call("GET", "/readyz", headers=headers, query=b"verbose").status == status
    with Caller(Starlette(routes=list(health.routes(bench.service, guarded=False)))) as call:
        assert call("GET", "/readyz", query=b"verbose").status == 200
