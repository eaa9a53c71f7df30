"""What an answer means to the router."""

from __future__ import annotations

import pytest

from queuewise.live.service.upstream import DONE, FAILED, NEITHER, REFUSED, judge, seconds_of


@pytest.mark.parametrize(
    ("status", "own_key", "known_model", "meaning", "untouched"),
    [
        (200, False, False, DONE, False),
        (302, False, False, DONE, False),
        (400, True, True, NEITHER, False),
        (401, False, True, NEITHER, False),
        (401, True, False, FAILED, True),
        (403, True, False, FAILED, True),
        (404, True, False, NEITHER, False),
        (404, False, True, FAILED, True),
        (408, False, False, FAILED, False),
        (429, False, False, REFUSED, True),
        (500, False, False, FAILED, False),
        (503, False, False, REFUSED, False),
        (504, False, False, FAILED, False),
    ],
)
def test_statuses(status: int, own_key: bool, known_model: bool, meaning: str, untouched: bool) -> None:
    verdict = judge(status, None, own_key=own_key, known_model=known_model)
    assert (verdict.meaning, verdict.untouched, verdict.rest) == (meaning, untouched, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("5", 5.0),
        (" 12 ", 12.0),
        ("0", None),
        ("-3", None),
        ("soon", None),
        ("", None),
        ("1e3", None),
        ("９", None),
        ("9" * 400, 999999999.0),
        ("Thu, 01 Jan 1970 00:16:50 GMT", 10.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", None),
        ("Thu, 99 Jan 1970 00:00:00 GMT", None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert seconds_of(text, lambda: 1000.0) == seconds


def test_only_429_and_503_ask_for_a_rest() -> None:
    assert judge(429, "7", own_key=False, known_model=False).rest == 7.0
    assert judge(503, "7", own_key=False, known_model=False).rest == 7.0
    assert judge(500, "7", own_key=False, known_model=False).rest is None
    assert judge(200, "7", own_key=False, known_model=False).rest is None
