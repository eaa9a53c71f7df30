"""Answers that say what is wrong."""

from __future__ import annotations

import json

import pytest
from starlette.datastructures import Headers

from queuewise.live.service.errors import retry_after, unauthorized


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "1"), (0.2, "1"), (1.0, "1"), (1.01, "2"), (59.5, "60")])
def test_nobody_is_told_to_come_back_at_once(seconds: float, text: str) -> None:
    assert retry_after(seconds) == {"retry-after": text}


def test_who_has_no_token_is_told_how_it_is_sent() -> None:
    for response, code in (
        (unauthorized(), "invalid_api_key"),
        (unauthorized(message="a sentence", code="token"), "token"),
    ):
        assert response.status_code == 401 and response.headers["www-authenticate"] == 'Bearer realm="queuewise"'
        error = json.loads(bytes(response.body))["error"]
        assert (error["type"], error["code"]) == ("authentication_error", code)


def test_who_has_sent_another_token_is_told_that() -> None:
    for headers, sentence in (
        ([], "a bearer token is needed"),
        ([(b"accept", b"*/*")], "a bearer token is needed"),
        ([(b"authorization", b"Bearer x")], "another bearer token is needed than was sent"),
        (Headers({"Authorization": "Basic x"}), "another bearer token is needed than was sent"),
    ):
        assert json.loads(bytes(unauthorized(headers).body))["error"]["message"] == sentence
