"""Bodies of requests, read whole and within bounds."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from .errors import Refusal, problem


class TooLargeError(Refusal):
    """A body beyond the limit. The connection ends with the answer: what else is sent on it is not read."""

    def __init__(self, most: int) -> None:
        sentence, headers = f"the request is larger than {most} bytes", {"connection": "close"}
        super().__init__(problem(413, sentence, code="request_too_large", headers=headers))


async def read(receive: Receive, most: int) -> bytes:
    """A body of at most so many bytes.

    Raises TooLargeError as soon as there are more, ClientDisconnect where the client goes before it has come.
    """
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > most:
            raise TooLargeError(most)
        if not message.get("more_body", False):
            return b"".join((*pieces, piece)) if pieces else piece  # most come in one: not copied
        pieces.append(piece)
