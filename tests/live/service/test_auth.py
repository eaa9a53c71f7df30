"""Who may come in."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from queuewise.live.service.auth import authorized


@pytest.mark.parametrize(
    "value, good",
    [
        (b"Bearer s3cret", True),
        (b"bearer s3cret", True),
        (b"BEARER   s3cret ", True),
        (b"Bearer s3cre", False),
        (b"Bearer s3crets", False),
        (b"Bearer", False),
        (b"Bearer ", False),
        (b"s3cret", False),
        (b"Basic s3cret", False),
        (b"Bearers3cret", False),
        (b"Bearer s3cret s3cret", False),
        ("Bearer s3cr\u00e9t".encode(), False),
        (b"Bearer \xff\xfe", False),
        (b"", False),
    ],
)
def test_that_a_token_is_asked_for(value: bytes, good: bool) -> None:
    raw = [(b"host", b"x"), (b"authorization", value)]
    assert authorized(raw, "s3cret") is good
    assert authorized(Headers(raw=raw), "s3cret") is good
    assert authorized(raw, None)


def test_that_no_header_and_two_headers_are_no_token() -> None:
    assert not authorized([], "s3cret")
    assert not authorized([(b"authorization", b"Bearer s3cret")] * 2, "s3cret")
    assert not authorized([(b"x-api-key", b"Bearer s3cret")], "s3cret")
    assert authorized([], None)
