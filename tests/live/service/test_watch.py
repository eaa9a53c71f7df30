"""What happens to backends is in the log, once."""

from __future__ import annotations

import logging

import pytest

from queuewise.live.service.config import parse
from queuewise.live.service.service import Service
from queuewise.live.service.watch import Watch


def test_a_line_per_change(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(parse("groups: {g: {backends: {a: 'http://a', b: 'http://b', c: 'http://c'}}}"))
    router = service.groups["g"].router
    watch = Watch(service)

    def said() -> list[str]:
        caplog.clear()
        watch.tick()
        return [record.getMessage() for record in caplog.records]

    with caplog.at_level(logging.INFO):
        assert said() == []
        for _ in range(5):
            router.fail(router.watch("a"))
        assert said() == ["backend g/a fails: its circuit is open (5 failures so far)"]
        assert said() == []
        for _ in range(5):
            router.fail(router.watch("b"))
        assert said() == [
            "backend g/b fails: its circuit is open (5 failures so far)",
            "group g: most of its backends fail, so circuits are ignored",
        ]
        router.reset("a")
        assert said() == ["backend g/a is up, was open", "group g: circuits count again"]
        router.drain("a")
        router.rest("c", 60.0)
        router.drain("b")
        assert said() == [
            "backend g/a is draining, was up",
            "backend g/b is draining, was open",
            "backend g/c is resting, was up",
            "group g: no backend can be used",
        ]
        router.resume("a")
        assert said() == ["backend g/a is up, was draining", "group g: 1 backends can be used"]
        service.groups.clear()
        assert said() == []
