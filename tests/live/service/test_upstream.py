"""What an answer means to the router."""

from __future__ import annotations

import pytest

from queuewise.live.service.upstream import DONE, DOUBTFUL, FAILED, NEITHER, REFUSED, judge, seconds_of


@pytest.mark.parametrize(
    ("status", "meaning", "untouched"),
    [
        (200, DONE, False),
        (302, DONE, False),
        (400, NEITHER, False),
        (401, DOUBTFUL, True),
        (403, DOUBTFUL, True),
        (404, DOUBTFUL, True),
        (408, FAILED, False),
        (422, NEITHER, False),
        (429, REFUSED, True),
        (500, FAILED, False),
        (503, REFUSED, False),
        (504, FAILED, False),
    ],
)
def test_statuses(status: int, meaning: str, untouched: bool) -> None:
    verdict = judge(status, None)
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
    assert judge(429, "7").rest == 7.0
    assert judge(503, "7").rest == 7.0
    assert judge(500, "7").rest is None
    assert judge(200, "7").rest is None
