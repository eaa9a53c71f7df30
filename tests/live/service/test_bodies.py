"""Bodies are read whole, to their limit and not beyond it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, MutableMapping
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from queuewise.live.service import bodies
from queuewise.live.service.errors import Refusal


class Client:
    """Sends these pieces; then it has gone, where there should be more. taken : messages that were read."""

    def __init__(self, pieces: Iterable[bytes], whole: bool = True) -> None:
        self.pieces, self.whole, self.taken = list(pieces), whole, 0

    async def __call__(self) -> MutableMapping[str, Any]:
        if self.taken == len(self.pieces):
            return {"type": "http.disconnect"}
        self.taken += 1
        more = self.taken < len(self.pieces) or not self.whole
        return {"type": "http.request", "body": self.pieces[self.taken - 1], "more_body": more}


@pytest.mark.parametrize("pieces", [[b""], [b"0123456789"], [b"01234", b"", b"56789"], [b"x"] * 10, [b"", b""]])
def test_a_body_within_the_limit_is_whole(pieces: list[bytes]) -> None:
    assert asyncio.run(bodies.read(Client(pieces), 10)) == b"".join(pieces)


def test_a_body_of_one_piece_is_not_copied() -> None:
    piece = bytes(10_000)
    assert asyncio.run(bodies.read(Client([piece]), 10_000)) is piece


def test_a_message_that_leaves_all_out_is_an_empty_body() -> None:
    async def nothing() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    assert asyncio.run(bodies.read(nothing, 1)) == b""


def test_a_body_beyond_the_limit_is_refused_as_soon_as_it_is_known() -> None:
    client = Client([b"01234", b"56789", b"!", b"never read"])
    with pytest.raises(Refusal) as caught:
        asyncio.run(bodies.read(client, 10))
    assert isinstance(caught.value, bodies.TooLargeError) and client.taken == 3
    response = caught.value.response
    assert response.status_code == 413 and response.headers["connection"] == "close"
    error = json.loads(bytes(response.body))["error"]
    assert error["code"] == "request_too_large" and error["message"] == "the request is larger than 10 bytes"


@pytest.mark.parametrize("pieces", [[], [b"half of it"]])
def test_who_goes_before_the_end_has_sent_nothing(pieces: list[bytes]) -> None:
    with pytest.raises(ClientDisconnect):
        asyncio.run(bodies.read(Client(pieces, whole=False), 100))
