"""Every registered dispatching policy keeps the contract; policies that break it are told which rule they broke."""

from __future__ import annotations

import functools
import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

import queuewise
from queuewise import dispatch
from queuewise.contract import PolicyError
from queuewise.dispatch import Policy, System, check_policy, engine, loop, schedule, simulate
from queuewise.dispatch.policies import REGISTER, make
from queuewise.dispatch.policy import EXPLORE

#: Options that a rule cannot do without.
REQUIRED: dict[str, dict[str, Any]] = {"esed": {"rates": [1.0, 2.5]}}
SYSTEM = System(2.0, [1, 2])
THREE = System(4.0, [1, 2, "3/2"], slots=[1, 2, 3])


@pytest.mark.parametrize("name", sorted(REGISTER))
def test_registered_policies_keep_the_contract(name: str) -> None:
    check_policy(make(name, **REQUIRED.get(name, {})))


@pytest.mark.parametrize("name", sorted(set(REGISTER) - {"sed_ratio", "optimal", "esed"}))
def test_the_contract_is_kept_with_more_servers_and_slots(name: str) -> None:
    check_policy(make(name), system=THREE)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lased", {"update": "completion", "order": "blocks", "quota": 7, "ties": "fastest", "initial_rates": [5, "1/10"]}),
        ("lased", {"rate_bounds": (0.1, 10.0), "scale": 0.1, "ties": "random"}),
        ("greedy", {"ties": "random"}),
        ("sed", {"ties": "fastest"}),
        ("optimistic_sed", {"confidence": 0.0, "ties": "highest"}),
        ("thompson_sed", {"ties": "random"}),
        ("weighted_random", {"weights": [1, 5]}),
    ],
)  # fmt: skip
def test_the_contract_is_kept_with_other_options(name: str, options: dict[str, Any]) -> None:
    check_policy(make(name, **options))


def test_a_registered_name_is_enough() -> None:
    queuewise.check_policy("dispatch.lased")
    queuewise.check_policy("jsq")
    queuewise.check_policy(dispatch.random())
    with pytest.raises(ValueError, match="no rule is called 'lasedd'; did you mean 'lased'"):
        queuewise.check_policy("dispatch.lasedd")
    with pytest.raises(PolicyError, match="esed: rates: esed needs a fixed estimate of every server's rate"):
        queuewise.check_policy("dispatch.esed")
    with pytest.raises(PolicyError, match="sed_ratio is a rule for 2 servers, not 3"):
        queuewise.check_policy("dispatch.sed_ratio", system=THREE)


def test_a_users_threshold_keeps_the_contract() -> None:
    check_policy(dispatch.lased(threshold=lambda k: 3.0))


# Broken ones


class Counted(NamedTuple):
    calls: Any


def counting(params: Any, shape: Any, stream: Any) -> Counted:
    return Counted(np.zeros(1))


def first(params: Any, state: Any, seen: Any, stream: Any) -> tuple[int, int]:
    return 0, 0


def by_calls(params: Any, state: Any, seen: Any, stream: Any) -> tuple[int, int]:
    return int(state.calls[0]) % 2, 0


def returning(found: Any) -> Any:
    return lambda: Policy("broken", lambda params, state, seen, stream: found)


def changing(what: str, where: str = "assigned") -> Any:
    def change(params, state, seen, *rest):
        getattr(seen, what)[0] += 1

    return lambda: Policy("broken", **{"decide": first, where: change})


def own_generator() -> Policy:
    generator = np.random.default_rng(0)
    return Policy("broken", lambda params, state, seen, stream: (int(generator.integers(2)), 0))


def shared_state() -> Policy:
    shared = Counted(np.zeros(1))

    def decide(params, state, seen, stream):
        state.calls[0] += 1.0
        return int(state.calls[0] // 7) % 2, 0

    return Policy("broken", decide, start=lambda params, shape, stream: shared)


def state_outside() -> Policy:
    memory: dict[str, Counted] = {}

    def start(params, shape, stream):
        memory["state"] = counting(params, shape, stream)
        return memory["state"]

    def decide(params, state, seen, stream):
        memory["state"].calls[0] += 1.0
        return int(memory["state"].calls[0] // 3) % 2, int(state.calls[0])

    return Policy("broken", decide, start=start)


def nan_state() -> Policy:
    def observe(params, state, seen, ticket, outcome):
        state.calls[0] += outcome.work

    return Policy("broken", first, observe=observe, start=counting)


def explains_too_much() -> Policy:
    def explain(params, state, seen):
        state.calls[0] += 1.0
        return {"calls": state.calls[0]}

    return Policy("broken", by_calls, start=counting, explain=explain)


def expects_order() -> Policy:
    def observe(params, state, seen, ticket, outcome):
        if ticket.issued < state.calls[0]:
            raise IndexError("out of order")
        state.calls[0] = ticket.issued

    return Policy("broken", first, observe=observe, start=counting)


def integers_that_wrap() -> Policy:
    def decide(params, state, seen, stream):
        large = 4611686018427387904
        large = large * 4  # 2**64, which is 0 for compiled integers
        return (large % 5 + seen.arrivals) % 2, 0

    return Policy("broken_wrap", decide)


class Fickle(NamedTuple):
    weight: float


def types_that_change() -> Policy:
    def configure(options, shape):
        return Fickle(1.0 if shape.slots[0] > 1 else 1)

    return Policy("broken_types", first, configure=configure)


def unstable_types() -> Policy:
    return Policy("broken", first, estimates=lambda params, state: (0, True))


BROKEN = [
    (returning((2, 0)), r"decide\(\) must name a server from 0 to 1, not 2"),
    (returning((-1, 0)), r"decide\(\) must name a server from 0 to 1, not -1"),
    (returning(None), r"decide\(\) must return \(server, reason\), not None"),
    (returning((0,)), r"decide\(\) must return \(server, reason\), not \(0,\)"),
    (returning(("a", 0)), r"decide\(\) must return \(server, reason\)"),
    (lambda: Policy("broken", lambda params: (0, 0)), r"decide\(\) must take 4 arguments"),
    (lambda: Policy("broken", first, observe=lambda params, state, seen: None), r"observe\(\) must take 5 arguments"),
    (lambda: Policy("broken", first, emptied=lambda: None), r"emptied\(\) must take 3 arguments"),
    (unstable_types, r"estimates\(\) must take 3 arguments"),
    (changing("queue"), r"assigned\(\) must not change what it is shown"),
    (changing("slots"), r"assigned\(\) must not change what it is shown"),
    (changing("began"), r"assigned\(\) must not change what it is shown"),
    (changing("queue", "decide"), r"decide\(\) must not change what it is shown"),
    (changing("queue", "emptied"), r"emptied\(\) must not change what it is shown"),
    (own_generator, "two runs with the same seed must be the same"),
    (shared_state, "two runs with the same seed must be the same"),
    (state_outside, "saved and restored must decide as the one that was not"),
    (nan_state, "state must stay free of NaN whatever becomes of jobs, but calls has some"),
    (explains_too_much, r"explain\(\) must not change what is decided"),
    (lambda: Policy("broken", first, explain=lambda *seen: "because"), r"explain\(\) must return a dict"),
    (expects_order, r"observe\(\) raised IndexError \(out of order\)"),
    (integers_that_wrap, "compiled and the interpreted run must make the same decisions"),
    (types_that_change, "same types in every run"),
    (lambda: Policy("broken", first, start=lambda p, s, r: Counted([0])), "state must be a named tuple of arrays"),
]


@pytest.mark.parametrize(("make_it", "sentence"), BROKEN, ids=[case[1][:40] for case in BROKEN])
def test_a_broken_rule_is_named(make_it: Any, sentence: str) -> None:
    policy = make_it()
    with pytest.raises(PolicyError, match=sentence) as caught:
        check_policy(policy)
    assert str(caught.value).startswith("broken")
    assert "\n" not in str(caught.value)


def test_params_are_not_to_be_changed() -> None:
    def observe(params, state, seen, ticket, outcome):
        params.calls[0] += 1.0

    with pytest.raises(PolicyError, match="params"):
        check_policy(Policy("broken", first, observe=observe, configure=lambda options, shape: Counted(np.zeros(1))))


def test_a_state_that_is_no_named_tuple() -> None:
    with pytest.raises(PolicyError, match="state must be a named tuple"):
        check_policy(Policy("broken", first, start=lambda params, shape, stream: {"calls": 0}))


def test_estimates_change_nothing() -> None:
    def estimates(params, state, rates):
        state.calls[0] += 1.0
        return 0, True

    with pytest.raises(PolicyError, match="estimates"):
        check_policy(Policy("broken", by_calls, start=counting, estimates=estimates))


def test_a_server_that_there_is_not_ends_a_run_with_a_sentence() -> None:
    policy = Policy("wild", lambda params, state, seen, stream: (7 if seen.arrivals == 30 else 0, 0))
    for compiled in (True, False):
        with pytest.raises(ValueError, match=r"wild: decide\(\) of arrival 30 named a server outside 0\.\.1"):
            simulate(SYSTEM, policy, arrivals=50, runs=1, compiled=compiled)


# Policies of the user's own


def alternating(params: Any, state: Any, seen: Any, stream: Any) -> tuple[int, int]:
    return seen.arrivals % 2, EXPLORE


def test_plain_functions_are_enough() -> None:
    mine = Policy("mine", alternating)
    check_policy(mine)
    result = simulate(SYSTEM, [mine, "jsq"], arrivals=400, runs=3)
    assert [share.mean for share in result.shares("mine")] == [0.5, 0.5]
    assert result.regret_by_cause("mine")["exploration"].mean[-1] == result.total_regret("mine").mean


def test_already_compiled_functions_are_taken_as_they_are() -> None:
    check_policy(Policy("ready_made", numba.njit(alternating)))


def shortest_by_arrays(params: Any, state: Any, seen: Any, stream: Any) -> tuple[int, int]:
    waiting = np.zeros(len(seen.queue))
    for i in range(len(seen.queue)):
        waiting[i] = seen.queue[i] + 1.0
    return int(np.argmin(waiting * np.ones(len(waiting)))), 0


def test_arrays_made_within_are_compiled_in_the_slower_way() -> None:
    mine = Policy("jsq", shortest_by_arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = simulate(SYSTEM, mine, arrivals=2000, runs=2)
        player = engine.Player(mine, SYSTEM, np.array([10]))
        player.advance(*next(engine.flows(SYSTEM, 10, 1, 0)))
    assert player._how == engine.COMPILED
    expected = simulate(SYSTEM, "jsq", arrivals=2000, runs=2)
    np.testing.assert_array_equal(found.regrets("jsq"), expected.regrets("jsq"))
    np.testing.assert_array_equal(found.sojourn_time["jsq"], expected.sojourn_time["jsq"])
    check_policy(mine)


def shortest_by_text(params: Any, state: Any, seen: Any, stream: Any) -> tuple[int, int]:
    queue = json.loads(json.dumps(seen.queue.tolist()))  # a library that numba does not know
    return queue.index(min(queue)), 0


def test_what_numba_refuses_runs_interpreted_with_one_warning() -> None:
    mine = Policy("jsq", shortest_by_text)
    with pytest.warns(RuntimeWarning, match=r"jsq: numba cannot compile this policy, so it runs as plain") as caught:
        found = simulate(SYSTEM, mine, arrivals=500, runs=3, workers=2)
    assert len(caught) == 1
    expected = simulate(SYSTEM, "jsq", arrivals=500, runs=3)
    np.testing.assert_array_equal(found.regrets("jsq"), expected.regrets("jsq"))
    np.testing.assert_array_equal(found.sojourn_time["jsq"], expected.sojourn_time["jsq"])
    check_policy(mine)


MINE = """
from queuewise.dispatch import Policy

SERVER = {server}

def helper(seen):
    return SERVER

def decide(params, state, seen, stream):
    return helper(seen), 0

def mine():
    return Policy("mine", decide)
"""


def test_a_users_file_plugs_in_and_edits_are_picked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "my_routing_rule.py"
    path.write_text(MINE.format(server=0))
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_routing_rule

    system = System(0.5, [1, 2])
    check_policy(my_routing_rule.mine())
    assert simulate(system, my_routing_rule.mine(), arrivals=50, runs=1).shares("mine")[0].mean == 1.0
    kept = my_routing_rule.mine()
    path.write_text(MINE.format(server=1) + "# edited\n")
    importlib.invalidate_caches()
    importlib.reload(my_routing_rule)
    assert simulate(system, my_routing_rule.mine(), arrivals=50, runs=1).shares("mine")[1].mean == 1.0
    my_routing_rule.SERVER = 0  # as a notebook's cell does
    assert simulate(system, my_routing_rule.mine(), arrivals=50, runs=1).shares("mine")[0].mean == 1.0
    assert simulate(system, kept, arrivals=50, runs=1).shares("mine")[0].mean == 1.0
    sys.modules.pop("my_routing_rule")


def test_what_a_rule_is_shown() -> None:
    """Rates, and when servers will be free, are for the clairvoyant alone."""
    shown: list[Any] = []

    def decide(params, state, seen, stream):
        shown.append(type(seen)(*(np.array(part) for part in seen)))
        return 1, 0

    system = System(2.0, schedule([0, 3], [[1, 3], [2, 5]]), slots=[1, 2])
    for clairvoyant in (False, True):
        shown.clear()
        simulate(system, Policy("mine", decide, clairvoyant=clairvoyant), arrivals=40, runs=1, compiled=False)
        assert [int(seen.arrivals) for seen in shown] == list(range(1, 41))
        assert all(seen.jobs == seen.queue.sum() for seen in shown)
        assert all(np.isnan(seen.weights).all() == (not clairvoyant) for seen in shown)
        assert all(np.isnan(seen.free).all() == (not clairvoyant) for seen in shown)
        assert {int(seen.changes) for seen in shown} == {0, 1}
        for seen in shown if clairvoyant else []:
            assert seen.weights.tolist() == [[1, 6], [2, 10]][int(seen.changes)]
            assert (seen.free[1] == -np.inf) == (seen.queue[1] < 2)


def test_the_loop_has_a_place_for_every_function_of_a_policy() -> None:
    assert all(hasattr(loop, name) for name in Policy.CALLED)


class Object:
    def __call__(self, params: Any, state: Any, seen: Any, stream: Any) -> tuple[int, int]:
        return 0, 0


@pytest.mark.parametrize("function", [Object(), Object().__call__, functools.partial(first)])
def test_callables_that_are_no_functions_are_refused(function: Any) -> None:
    with pytest.raises(ValueError, match="decide"):
        simulate(SYSTEM, Policy("mine", function), arrivals=5, runs=1)


def test_reasons_are_those_that_there_are() -> None:
    with pytest.raises(PolicyError, match="reason"):
        check_policy(Policy("broken", lambda params, state, seen, stream: (0, 300)))


@pytest.mark.parametrize("found", [(0.0, 0), 0])
def test_answers_of_other_types_end_with_a_sentence(found: Any) -> None:
    with pytest.raises(ValueError, match=r"decide\(\)"):
        simulate(SYSTEM, Policy("mine", lambda params, state, seen, stream: found), arrivals=5, runs=1, compiled=False)


def test_labels_are_the_same_in_every_process() -> None:
    assert " at 0x" not in dispatch.lased(threshold=lambda k: 1.0).label
