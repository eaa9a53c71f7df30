"""``check_policy``: the contract tests of either wing."""

from __future__ import annotations

from typing import Any

from . import dispatch, scheduling


def check_policy(policy: Any, **options: Any) -> None:
    """Run the contract tests on a policy of either wing, or on a registered name ("dispatch.lased", "wise").

    See :func:`queuewise.dispatch.check_policy` and :func:`queuewise.scheduling.check_policy`. Raises PolicyError, a
    ValueError, with one sentence that names the rule broken.
    """
    if isinstance(policy, str):
        wing, _, name = policy.rpartition(".")
        if wing == "dispatch" or (not wing and name in dispatch.policies.REGISTER and name not in _SCHEDULING):
            policy = dispatch.policies.make(name)
        else:
            policy = scheduling.policies.make(name)
    check = dispatch.check_policy if isinstance(policy, dispatch.Policy) else scheduling.check_policy
    check(policy, **options)


_SCHEDULING = scheduling.policies.REGISTER
