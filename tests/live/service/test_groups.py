"""Groups and the service: which one a model goes to, what a reload keeps, when no more is taken."""

from __future__ import annotations

import pytest

from queuewise.live.router import Ended
from queuewise.live.service.config import BackendConfig, parse
from queuewise.live.service.groups import Backend, Group
from queuewise.live.service.service import Service


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def group(text: str, clock: Clock | None = None) -> Group:
    config = parse(f"groups: {{g: {{{text}}}}}")
    return Group("g", config.groups["g"], clock=clock or Clock())


def serve(one: Group, clock: Clock, name: str, seconds: float, times: int = 20) -> None:
    for _ in range(times):
        ticket = one.router.watch(name)
        clock.now += seconds
        one.router.complete(ticket)


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_a_url_with_and_without_v1_is_the_same_place(url: str) -> None:
    backend = Backend("a", BackendConfig(url=url))
    assert str(backend.url("/v1/chat/x%2Fy", "q=%20")) == "http://h:1/v1/chat/x%2Fy?q=%20"


def test_a_backend_under_a_path() -> None:
    assert str(Backend("a", BackendConfig(url="http://h/team/v1")).url("/v1/models", "")) == "http://h/team/v1/models"


def test_models_find_their_group() -> None:
    service = Service(parse("{groups: {x: {models: [m], backends: {a: 'http://a'}}, y: {backends: {b: 'http://b'}}}}"))
    assert [service.group_of(model) is service.groups[name] for model, name in (("m", "x"), ("n", "y"), (None, "y"))]
    only = Service(parse("{groups: {x: {models: [m], backends: {a: 'http://a'}}}}"))
    assert only.group_of(None) is only.groups["x"] and only.group_of("n") is None
    two = Service(
        parse("{groups: {x: {models: [m], backends: {a: 'http://a'}}, y: {models: [n], backends: {b: 'http://b'}}}}")
    )
    assert two.group_of(None) is None


def test_one_url_twice_is_warned_of_at_the_start_and_at_a_reload(caplog: pytest.LogCaptureFixture) -> None:
    once, twice = (parse(f"groups: {{g: {{backends: {{a: 'http://x', b: 'http://{b}'}}}}}}") for b in "yx")
    for begin, then in ((twice, once), (once, twice)):
        caplog.clear()
        Service(begin).reload(then)
        (warning,) = [one.getMessage() for one in caplog.records]
        assert warning.startswith("groups.g.backends: a and b have the same url")


def test_a_reload_keeps_what_was_learned_of_those_who_stay() -> None:
    clock = Clock()
    one = group("backends: {a: 'http://a', b: 'http://b'}", clock)
    serve(one, clock, "a", 0.5)
    before = one.router.estimates()["a"]
    held = one.router.watch("a")
    said = one.apply(parse("groups: {g: {backends: {a: {url: 'http://other', slots: 3}, c: 'http://c'}}}").groups["g"])
    assert said == ["group g: a has 3 slots now", "group g: c is new", "group g: b is gone"]
    after = one.router.estimates()
    assert list(after) == ["a", "c"] == list(one.backends)
    assert (after["a"]["rate"], after["a"]["slots"], after["a"]["in_flight"]) == (before["rate"], 3, 1)
    assert one.router.complete(held)
    assert str(one.backends["a"].url("/v1/x", "")) == "http://other/v1/x"


def test_a_new_policy_is_told_what_was_known() -> None:
    clock = Clock()
    heard: list[Ended] = []
    config = parse("groups: {g: {backends: {a: 'http://a', b: 'http://b'}}}").groups["g"]
    one = Group("g", config, [lambda name, ended: heard.append(ended)], clock)
    serve(one, clock, "a", 0.5)
    old, held = one.router, one.router.watch("a")
    rate = one.router.estimates()["a"]["rate"]
    said = one.apply(
        parse("groups: {g: {policy: greedy, half_life: 60, backends: {a: 'http://a', b: 'http://b'}}}").groups["g"]
    )
    assert said == ["group g: changed half_life, policy"]
    assert one.router is not old and one.router.policy.rule == "greedy"
    assert one.router.estimates()["a"]["rate"] == pytest.approx(rate)
    heard.clear()
    assert old.complete(held)  # what was under way ends where it began, and is heard of
    one.router.complete(one.router.route())
    assert [ended.end for ended in heard] == ["done", "done"]


def test_what_was_set_meanwhile_outlives_a_new_router() -> None:
    one = group("backends: {a: 'http://a', b: 'http://b', c: 'http://c'}")
    one.router.override("round_robin")
    one.router.rest("a", 30.0)
    one.router.drain("b")
    one.apply(
        parse("groups: {g: {half_life: 60, backends: {a: 'http://a', b: 'http://b', c: 'http://c'}}}").groups["g"]
    )
    assert one.router.report()["override"] == "round_robin"
    assert [one["state"] for one in one.router.estimates().values()] == ["resting", "draining", "up"]


def test_new_classes_learn_anew_and_say_so() -> None:
    one = group("backends: {a: 'http://a'}")
    said = one.apply(parse("groups: {g: {classes: [x, y], backends: {a: 'http://a'}}}").groups["g"])
    assert said == ["group g: its classes changed, so it learns anew", "group g: changed classes"]


def test_a_typed_rate_that_changes_is_taken_over() -> None:
    one = group("backends: {a: {url: 'http://a', rate: 2.0}}")
    said = one.apply(parse("groups: {g: {backends: {a: {url: 'http://a', rate: 4.0}}}}").groups["g"])
    assert said == ["group g: changed rate of a"]


def test_groups_come_and_go() -> None:
    service = Service(parse("groups: {x: {models: [m], backends: {a: 'http://a'}}}"))
    kept = service.groups["x"]
    said = service.reload(
        parse("groups: {x: {models: [m, n], backends: {a: 'http://a'}}, y: {backends: {b: 'http://b'}}}")
    )
    assert said == ["group y: is new"] and service.groups["x"] is kept
    assert service.group_of("n") is kept
    assert service.reload(parse("groups: {y: {backends: {b: 'http://b'}}}")) == ["group x: is gone"]
    assert list(service.groups) == ["y"]


def test_what_an_admin_added_goes_with_the_next_reload() -> None:
    one = group("backends: {a: 'http://a'}")
    one.add("b", BackendConfig(url="http://b"))
    with pytest.raises(ValueError, match="server: there is a server 'b' already"):
        one.add("b", BackendConfig(url="http://b"))
    assert list(one.backends) == ["a", "b"] == one.router.servers
    assert one.apply(one.config) == ["group g: b is gone"]
    one.remove("a")
    with pytest.raises(ValueError, match="server: there is no server 'a'"):
        one.remove("a")
    assert one.apply(one.config) == ["group g: a is new"]


def test_overload() -> None:
    clock = Clock()
    one = group("shed: {in_flight: 3, wait: 4}, backends: {a: {url: 'http://a', rate: 1.0}}", clock)
    out = []
    for _ in range(3):
        assert one.overload(None) is None
        out.append(one.router.route())
    reason, after = one.overload(None) or ("", 0.0)
    assert reason == "in_flight" and 1.0 <= after <= 4.0
    assert one.queue_depth() == 2
    one = group("shed: {wait: 1.5}, backends: {a: {url: 'http://a', rate: 1.0}}", clock)
    held = [one.router.route() for _ in range(2)]
    assert one.overload(None) == ("wait", pytest.approx(0.5))
    assert len(held) == 2


def test_a_free_slot_is_never_overloaded_whatever_is_believed() -> None:
    """One slow answer, or a failure, would close a group for good: nothing could come in to correct it."""
    clock = Clock()
    one = group("shed: {wait: 0.2}, circuit: off, backends: {a: {url: 'http://a', slots: 2}}", clock)
    assert one.overload(None) is None
    serve(one, clock, "a", 50.0)
    assert one.router.delays()["a"] > 10.0
    first = one.router.route()
    assert one.overload(None) is None
    second = one.router.route()
    assert (one.overload(None) or ("", 0.0))[0] == "wait"
    one.router.complete(first)
    assert one.overload(None) is None
    one.router.complete(second)
