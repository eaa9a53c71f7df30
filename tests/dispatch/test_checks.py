"""What `check_policy` puts a rule through: the imagined router's world is a possible one, and every kind of outcome occurs."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest

from queuewise.contract import PolicyError
from queuewise.dispatch import checks, policies
from queuewise.dispatch.checks import check_policy
from queuewise.dispatch.policy import CENSORED, DONE, FAILED, Policy, elapsed
from queuewise.dispatch.systems import System

SYSTEM = System(4.0, [1, 2, "3/2"], slots=[1, 2, 3])


class Memory(NamedTuple):
    calls: Any


def spread(params: Any, state: Any, seen: Any, stream: Any) -> tuple[int, int]:
    return seen.arrivals % len(seen.queue), 0


def spy(calls: list[tuple[str, Any]], **more: Any) -> Policy:
    """A rule that writes down what it is called with."""

    def noted(name: str, answer: Any = None) -> Any:
        def function(params, state, seen, *rest):
            calls.append((name, copy.deepcopy((seen, *rest))))
            return spread(params, state, seen, None) if name == "decide" else answer

        return function

    kept = {name: noted(name) for name in ("assigned", "observe", "emptied")}
    return Policy("spy", noted("decide"), **kept, **more)


@pytest.mark.parametrize("clairvoyant", [False, True])
def test_what_is_shown_is_possible(clairvoyant: bool) -> None:
    calls: list[tuple[str, Any]] = []
    checks._Rehearsal(spy(calls, clairvoyant=clairvoyant), SYSTEM).play()
    now = 0.0
    for name, (seen, *_) in calls:
        assert seen.now >= now
        now = seen.now
        assert seen.jobs == seen.queue.sum()
        assert seen.slots.tolist() == [1, 2, 3]
        assert all(elapsed(seen, i) >= -1e-9 for i in range(3))
        assert (name != "emptied") or seen.jobs == 0
        assert np.isnan(seen.weights).all() == np.isnan(seen.free).all() == (not clairvoyant)
        for i in range(3) if clairvoyant else []:
            assert (seen.free[i] == -np.inf) == (seen.queue[i] < seen.slots[i])


def test_every_job_has_one_outcome_of_some_kind_and_not_in_order() -> None:
    calls: list[tuple[str, Any]] = []
    checks._Rehearsal(spy(calls), SYSTEM).play()
    names = Counter(name for name, _ in calls)
    assert names["decide"] == names["assigned"] == names["observe"] == checks.DECISIONS
    assert names["emptied"] >= 1
    outcomes = [rest for name, rest in calls if name == "observe"]
    assert {outcome.kind for _, _, outcome in outcomes} == {DONE, FAILED, CENSORED}
    issued = [ticket.issued for _, ticket, _ in outcomes]
    assert issued != sorted(issued)
    assert sorted(issued) == [rest[1].issued for name, rest in calls if name == "assigned"]
    assert all(outcome.busy_time > 0.0 and np.isnan(outcome.work) for _, _, outcome in outcomes)


def test_rehearsals_are_repeatable() -> None:
    for name in ("lased", "thompson_sed", "random"):
        first, second = (checks._Rehearsal(policies.make(name), SYSTEM).play() for _ in range(2))
        assert first == second
        assert len({server for server, _ in first}) > 1


@pytest.mark.parametrize("name", ["lased", "optimistic_sed", "power_of_d"])
def test_states_are_taken_apart_and_put_together(name: str) -> None:
    rehearsal = checks._Rehearsal(policies.make(name), SYSTEM)
    before = rehearsal.state
    rehearsal.save_and_restore()
    assert rehearsal.state is not before
    assert type(rehearsal.state) is type(before)
    plain = checks._Rehearsal(policies.make(name), SYSTEM).play()
    assert checks._Rehearsal(policies.make(name), SYSTEM).play(checks._Rehearsal.save_and_restore) == plain


def test_the_users_system_is_the_one_that_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[Any] = []
    monkeypatch.setattr(checks, "_runs", lambda policy, system: played.append(system))
    check_policy("jsq", system=SYSTEM)
    assert played == [SYSTEM]
    played.clear()
    check_policy("jsq")
    assert [system.servers for system in played] == [2, 2]
    assert [len(system.rates) for system in played] == [1, 2]
    played.clear()
    check_policy("optimal")  # whatever of them suits a rule
    assert played


def test_refusals() -> None:
    with pytest.raises(PolicyError, match="sed_ratio: sed_ratio is a rule for 2 servers, not 3"):
        check_policy("sed_ratio", system=SYSTEM)
    with pytest.raises(PolicyError, match="lased: scale: must be a number at least 0 and at most"):
        check_policy(policies.make("lased", scale=-1))
    with pytest.raises(ValueError, match="no rule is called 'sedd'; did you mean 'sed'"):
        check_policy("sedd")


def test_what_goes_wrong_only_in_a_whole_run_is_found() -> None:
    """After more decisions than a rehearsal has."""
    policy = Policy("broken", lambda params, state, seen, stream: (9 if seen.arrivals > 200 else 0, 0))
    with pytest.raises(PolicyError, match=r"broken: decide\(\) of arrival 201 named a server outside 0\.\.1"):
        check_policy(policy)


def test_numpys_own_generator_is_found() -> None:
    policy = Policy("broken", lambda params, state, seen, stream: (int(np.random.random() < 0.5), 0))
    with pytest.raises(PolicyError, match="two runs with the same seed must be the same"):
        check_policy(policy)


def test_a_check_leaves_no_trace_in_the_policy() -> None:
    policy = policies.make("lased", scale=0.5)
    options = copy.deepcopy(dict(policy.options))
    check_policy(policy)
    assert dict(policy.options) == options


def test_settings_of_randomness_are_left_alone() -> None:
    np.random.seed(3)
    before = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    check_policy("random")
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # type: ignore[index]
