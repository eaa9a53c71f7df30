"""What a live caller asks of a scheduling policy, as one entry that is compiled once per policy.

The functions named here are placeholders, bound to a policy's own by :func:`queuewise._compile.program`: the files of the
scheduling wing are used as they are. One entry for all five, since each entry costs compilation and a cache file.
"""

from __future__ import annotations

from typing import Any

from ..scheduling.policy import Ticket, Waiting, admit, assigned, expired, observe

DECIDE, ADMIT, ASSIGNED, OBSERVE, EXPIRED = range(5)


def decide(params: Any, state: Any, columns: Any, waiting: Waiting, stream: Any) -> tuple[int, int, int]:
    """Placeholder, bound per policy."""
    return waiting.slots[0], 0, 0


def call(
    what: int, params: Any, state: Any, columns: Any, waiting: Waiting, stream: Any, ticket: Ticket, success: bool
) -> tuple[int, int, int]:
    """One call of the policy; (slot, server, reason) of `DECIDE`, (−1, −1, 0) of the others. `ADMIT` takes its slot from the
    ticket."""
    if what == DECIDE:
        slot, server, reason = decide(params, state, columns, waiting, stream)
        return slot, server, reason
    if what == ADMIT:
        admit(params, state, columns, waiting, ticket.slot)
    elif what == ASSIGNED:
        assigned(params, state, columns, waiting, ticket)
    elif what == OBSERVE:
        observe(params, state, columns, waiting, ticket, success)
    else:
        expired(params, state, columns, waiting, ticket)
    return -1, -1, 0
