"""Log lines: one per record, whatever is in it, and no secret in any."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queuewise.live.service import logs
from queuewise.live.service.config import LogConfig, parse
from queuewise.live.service.server import Running

FIELDS = {
    "group": "chat",
    "model": "small",
    "backend": "a",
    "status": 200,
    "duration_ms": 12.345,
    "tried": "b,a",
    "end": "answered",
    "request_id": "7f3c",
}


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root = logging.getLogger()
    names = ("", "queuewise", "uvicorn")
    before = {name: logging.getLogger(name).level for name in names}
    logs._SECRETS.clear()
    logs._PATTERN = None
    yield
    root.handlers[:] = [handler for handler in root.handlers if not isinstance(handler, logs._Handler)]
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
    logs._SECRETS.clear()
    logs._PATTERN = None
    logging.captureWarnings(False)


def written(format_: Any, level: Any = "info") -> io.StringIO:
    out = io.StringIO()
    handler = logs.setup(LogConfig(format=format_, level=level), out)
    logging.getLogger().handlers[:] = [handler]  # not the test runner's, which cannot send half characters on
    return out


LOG = logging.getLogger("queuewise.requests")


def test_json() -> None:
    out = written("json")
    LOG.info("%s %s", "POST", "/v1/chat/completions", extra=FIELDS)
    said = json.loads(out.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said.pop("time"))
    assert said == {
        "level": "info",
        "logger": "queuewise.requests",
        "message": "POST /v1/chat/completions",
        **FIELDS,
    }


def test_text() -> None:
    out = written("text")
    LOG.info("%s %s", "POST", "/v1/x", extra={**FIELDS, "model": "my model", "backend": None})
    LOG.warning("all quiet")
    first, second = out.getvalue().splitlines()
    assert re.fullmatch(
        r"\S+Z INFO    queuewise\.requests: POST /v1/x group=chat model='my model' status=200 "
        r"duration_ms=12\.345 tried=b,a end=answered request_id=7f3c",
        first,
    )
    assert second.endswith("Z WARNING queuewise.requests: all quiet")


def test_an_exception_is_one_field() -> None:
    def fail() -> None:
        try:
            raise ValueError("first\n2026-01-01T00:00:00.000Z INFO    queuewise: all is well\x1b[2J")
        except ValueError:
            LOG.exception("it broke", stack_info=True)

    out = written("json")
    fail()
    [line] = out.getvalue().splitlines()
    said = json.loads(line)
    assert said["message"] == "it broke" and said["exception"].startswith("Traceback")
    assert "all is well" in said["exception"] and "Stack (most recent call last)" in said["exception"]
    out = written("text")
    fail()
    first, *rest = out.getvalue().splitlines()
    assert first.endswith("ERROR   queuewise.requests: it broke") and len(rest) > 5
    assert all(line.startswith("    ") for line in rest)  # none looks like a record
    assert "\x1b" not in out.getvalue()


def test_that_half_of_a_text_is_no_reason_to_fail() -> None:
    for format_ in ("json", "text"):
        out = written(format_)
        circle: list[Any] = []
        circle.append(circle)
        LOG.info(
            "x", extra={"a": float("nan"), "b": object, "c": {("k",): 1}, "d": circle, "e": "\ud800", "f": b"\xff"}
        )
        LOG.info("not a number", extra={"a": float("inf"), "status": 200})
        LOG.info("\ud800 and the rest", extra={"level": "fake", "time": "never", "e\ud800": 1})
        out.getvalue().encode()  # could be written to a file
        if format_ == "json":
            first, third, second = (
                json.loads(line, parse_constant=pytest.fail) for line in out.getvalue().splitlines()
            )
            assert first["message"] == "x" and first["a"] == "nan" and third["a"] == "inf"
            assert second["message"] == "? and the rest" and second["level"] == "info" and second["time"] != "never"


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    message=st.text(st.characters(exclude_categories=[])),
    field=st.one_of(st.text(st.characters(exclude_categories=[])), st.floats(), st.integers(), st.none(), st.binary()),
    error=st.none() | st.text(st.characters(exclude_categories=[])),
    format_=st.sampled_from(["json", "text"]),
)
@example("a\x7fb\x85c\u2028d\x00", "\x7f", "\x7f\r\n", "json")
@example("a\x7fb\x85c\u2028d\x00", "\x7f", "\x7f\r\n", "text")
def test_that_no_text_forges_a_line(message: str, field: Any, error: str | None, format_: str) -> None:
    """Neither a line's end nor any character that moves a cursor, wherever it comes from."""
    out = written(format_)
    record = logging.makeLogRecord({"name": "queuewise.x", "levelno": 20, "levelname": "INFO", "msg": message})
    record.model = field
    if error is not None:
        raised = ValueError(error)
        record.exc_info = (ValueError, raised, None)
    logging.getLogger("queuewise").handle(record)
    text = out.getvalue()
    text.encode()
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    assert all(line.isprintable() for line in lines)
    if format_ == "json":
        [line] = lines
        said = json.loads(line, parse_constant=pytest.fail)
        assert said["logger"] == "queuewise.x" and ("exception" in said) is (error is not None)
        assert said["message"] == message.encode("utf-8", "replace").decode()
    else:
        assert re.match(r"\S+Z INFO    queuewise\.x: ", lines[0])
        assert all(line.startswith("    ") for line in lines[1:])


def test_levels() -> None:
    out = written("text", "warning")
    LOG.info("not this")
    logging.getLogger("uvicorn.error").info("nor this")
    LOG.warning("this")
    logging.getLogger("some.library").warning("and this")
    assert [line.rsplit(": ")[-1] for line in out.getvalue().splitlines()] == ["this", "and this"]
    out = written("text", "info")
    logging.getLogger("uvicorn.error").info("Started server process")  # it is said better by ours
    logging.getLogger("some.library").info("chatter")
    LOG.debug("not this")
    assert out.getvalue() == ""
    out = written("text", "debug")
    LOG.debug("now")
    logging.getLogger("uvicorn.error").debug("now too")
    assert len(out.getvalue().splitlines()) == 2


def test_that_setting_up_again_takes_the_place() -> None:
    first, second = written("text"), written("json")
    LOG.info("once")
    assert first.getvalue() == "" and len(second.getvalue().splitlines()) == 1


def test_warnings() -> None:
    out = written("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("something odd", RuntimeWarning, stacklevel=1)
    said = json.loads(out.getvalue())
    assert said["logger"] == "py.warnings" and "something odd" in said["message"]


CONFIG = """
listen: 127.0.0.1:0
admin: 127.0.0.1:0
token: tok-public-1234
admin_token: 'tok-"''admin\\1234'
log: {format: json, level: debug, requests: true}
timeouts: {connect: 1, first_byte: 1, deadline: 2, grace: 1}
groups:
  chat:
    models: [small]
    backends:
      gone: {url: "http://127.0.0.1:9", key: key-of-gone-1234}
      also: {url: "http://127.0.0.1:9/v1", key: key-of-also-1234}
  open:
    backends:
      keyless: {url: "http://127.0.0.1:9"}
"""
SECRETS = ("tok-public-1234", "tok-\"'admin\\1234", "key-of-gone-1234", "key-of-also-1234")


@pytest.mark.parametrize("format_", ["json", "text"])
def test_that_secrets_are_hidden(format_: str) -> None:
    out = written(format_)
    logs.hide(parse(CONFIG))
    for secret in SECRETS:
        LOG.info("got %s", secret, extra={"given": f"x{secret}x"})
        try:
            raise ValueError(secret)
        except ValueError:
            LOG.exception("said %s twice %s", secret, secret)
    LOG.info("{'Authorization': 'Bearer sk-somebody-elses'} authorization: bearer sk-somebody-elses")
    text = out.getvalue()
    assert text.count(logs.HIDDEN) >= 5 * len(SECRETS) + 2
    for secret in (*SECRETS, "sk-somebody-elses"):
        assert secret not in text and json.dumps(secret)[1:-1] not in text
    LOG.info("a bearer token is needed")
    assert "a bearer token is needed" in out.getvalue()


def test_that_no_secret_is_logged() -> None:
    """By the whole service at its most talkative, whatever goes wrong: backends that are gone, wrong tokens, bad requests. And
    with nothing hidden afterwards, so that hiding is not what keeps them out."""
    config = parse(CONFIG)
    out = io.StringIO()
    logs.setup(config.log, out)
    secrets = [*SECRETS, "sk-of-a-client"]

    async def play() -> None:
        running = Running(config)
        task = asyncio.create_task(running.run())
        try:
            await asyncio.wait_for(running.ready.wait(), 30)
            public, admin = running.addresses
            statuses = []
            async with aiohttp.ClientSession() as session:
                for token in (SECRETS[0], "wrong", SECRETS[1], "sk-of-a-client"):
                    headers = {"authorization": f"Bearer {token}"}
                    for method, url, body in (
                        ("POST", f"{public}/v1/chat/completions", b'{"model": "small"}'),
                        ("POST", f"{public}/v1/chat/completions", b'{"model": "no such"}'),
                        ("POST", f"{public}/v1/chat/completions", b"no json"),
                        ("POST", f"{public}/route", b'{"model": "small"}'),
                        ("POST", f"{public}/route", b"nope"),
                        ("GET", f"{public}/v1/models", b""),
                        ("GET", f"{public}/metrics", b""),
                        ("GET", f"{admin}/workers", b""),
                        ("GET", f"{admin}/nothing", b""),
                    ):
                        kind = {"content-type": "application/json"}
                        async with session.request(
                            method, url, data=body or None, headers={**headers, **kind}
                        ) as answer:
                            statuses.append(answer.status)
                            text = await answer.text()
                            assert not [secret for secret in secrets if secret in text]
                host, port = public.removeprefix("http://").split(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"GET /v1/models HTTP/1.1\r\nauthorization: Bearer tok-public-1234\r\nbad\r\n\r\n")
                await writer.drain()
                with contextlib.suppress(OSError, TimeoutError):
                    await asyncio.wait_for(reader.read(), 2)
                writer.close()
            assert {200, 400, 401, 404, 502} <= set(statuses), statuses
        finally:
            running.stop()
            await task
            running.close()

    asyncio.run(play())
    text = out.getvalue()
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if line["logger"] == "queuewise.requests" and "status" in line]
    assert len(requests) >= 12 and {line["status"] for line in requests} >= {400, 401, 502}
    served = next(line for line in requests if line["status"] == 502)
    assert set(FIELDS) <= set(served)
    for secret in secrets:
        assert secret not in text and json.dumps(secret)[1:-1] not in text
    assert logs.HIDDEN not in text
