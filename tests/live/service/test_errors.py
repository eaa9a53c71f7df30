"""Answers that say what is wrong."""

from __future__ import annotations

import json

import pytest

from queuewise.live.service.errors import retry_after, unauthorized


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "1"), (0.2, "1"), (1.0, "1"), (1.01, "2"), (59.5, "60")])
def test_nobody_is_told_to_come_back_at_once(seconds: float, text: str) -> None:
    assert retry_after(seconds) == {"retry-after": text}


def test_who_has_no_token_is_told_how_it_is_sent() -> None:
    for response, code in ((unauthorized(), "invalid_api_key"), (unauthorized("a sentence", "token"), "token")):
        assert response.status_code == 401 and response.headers["www-authenticate"] == 'Bearer realm="queuewise"'
        error = json.loads(bytes(response.body))["error"]
        assert (error["type"], error["code"]) == ("authentication_error", code)
