"""What travels with a routed request, and the block of code that gives it back."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..dispatch.policy import CENSORED, DONE, FAILED, REASONS
from .steps import CAPPED, GIVEN, PROBE

if TYPE_CHECKING:
    from .router import Router

#: Reasons of a decision in words. "capped": the policy wanted to explore, over its allowance; "probe": the trial of a server
#: whose circuit is not closed; "given": somebody else chose (the old balancer in shadow mode, the plain rule, a second try).
WORDS = {**REASONS, CAPPED: "capped", PROBE: "probe", GIVEN: "given"}

#: How a request can end, and what it is to the policy. Failures of either kind count against the circuit. A time-out has cost
#: the time that it took; any other failure is charged a service time more: failing fast never looks like serving fast.
KINDS = {"error": FAILED, "refused": FAILED, "timeout": CENSORED}
#: And without anybody's fault: given up on by the client, garbage collected unreleased, out for too long.
ENDS = {"done": DONE, **KINDS, "cancelled": CENSORED, "lost": CENSORED, "expired": CENSORED}


class Ticket:
    """A routed request. Release it once, by the router's `complete`, `fail` or `cancel`.

    number : of the decision · server : where to · reason : a code, see `why` · issued : time of the router's clock · key :
    class of the job · work : in jobs · instead : the server that the policy would have chosen, where another choice was given
    """

    __slots__ = ("_router", "instead", "issued", "key", "number", "reason", "server", "work")

    def __init__(
        self,
        router: Router,
        number: int,
        server: str,
        reason: int,
        issued: float,
        key: str | None,
        work: float,
        instead: str | None = None,
    ) -> None:
        self._router = router
        self.number = number
        self.server = server
        self.reason = reason
        self.issued = issued
        self.key = key
        self.work = work
        self.instead = instead

    @property
    def why(self) -> str:
        """The reason in a word; see :data:`WORDS`."""
        return WORDS.get(self.reason, str(self.reason))

    @property
    def released(self) -> bool:
        """Whether it was released, expired, or its server was removed and it released since."""
        return self.number not in self._router._flights

    def __repr__(self) -> str:
        return f"Ticket({self.number}, server={self.server!r}, why={self.why!r}, released={self.released})"

    def __del__(self) -> None:
        # Nobody can release it any more. This may run in any thread, even one that holds the router's lock: so only a note.
        with contextlib.suppress(Exception):
            if self.number in self._router._flights:
                self._router._lost.append(self.number)


class Passage:
    """``with router.route_to() as server:`` and ``async with``: routed on entry, released once on exit, whatever happens.

    The block's end completes the ticket; a `TimeoutError` is a time-out, whatever is in `failures`; another exception of the
    types in `failures` a failure; any other (asyncio's cancellation among them) a cancellation. The exception goes on. A
    block may release `.ticket` itself.
    """

    __slots__ = ("_arguments", "_failures", "_router", "ticket")

    def __init__(
        self, router: Router, arguments: dict[str, Any], failures: type[BaseException] | tuple[type[BaseException], ...]
    ) -> None:
        self._router = router
        self._arguments = arguments
        self._failures = failures
        self.ticket: Ticket | None = None

    def __enter__(self) -> str:
        if self.ticket is not None:
            raise RuntimeError("route_to: one request has one block; call route_to() again for the next")
        self.ticket = self._router.route(**self._arguments)
        return self.ticket.server

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ticket = self.ticket
        if ticket is None or ticket.released:
            return
        if kind is None:
            self._router.complete(ticket)
        elif issubclass(kind, TimeoutError):
            self._router.fail(ticket, "timeout")
        elif issubclass(kind, self._failures):
            self._router.fail(ticket)
        else:
            self._router.cancel(ticket)

    async def __aenter__(self) -> str:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)
