"""Every registered policy keeps the contract; policies that break it are told which rule they broke."""

import json
import sys
from typing import Annotated, NamedTuple

import numba
import numpy as np
import pytest

from queuewise import scheduling
from queuewise.growing import Grows
from queuewise.scheduling import Policy, Ticket, Waiting, check_policy, engine
from queuewise.scheduling.checks import PolicyError
from queuewise.scheduling.policies import REGISTER, make


@pytest.mark.parametrize("name", sorted(REGISTER))
def test_registered_policies_keep_the_contract(name: str) -> None:
    check_policy(make(name))


def test_a_registered_name_is_enough() -> None:
    check_policy("fifo_random")
    with pytest.raises(ValueError, match="did you mean 'wise'"):
        check_policy("wize")


@pytest.mark.parametrize("name", ["wise", "cqb_opt", "acqb", "q_ths", "oracle"])
def test_the_contract_is_kept_on_a_system_of_the_users_and_with_other_options(name: str) -> None:
    options = {"radius": 0.5} if name in ("wise", "cqb_opt", "acqb") else {"ties": "random"}
    check_policy(make(name, **options), system=scheduling.wise_figure_law(q=0.15, slack=0.1, seed=0, servers=4))


def first_allowed(waiting):
    for k in range(waiting.allowed.shape[0]):
        if waiting.allowed[k]:
            return k
    return -1


class Counted(NamedTuple):
    calls: np.ndarray


def start_counting(params, shape, stream):
    return Counted(np.zeros(1))


class Fickle(NamedTuple):
    weight: float


def _absent():
    return Policy("broken", lambda params, state, columns, waiting, stream: (-5, 0, 0))


def _past_the_end():
    return Policy("broken", lambda p, s, c, waiting, stream: (waiting.slots[-1], first_allowed(waiting), 0))


def _stubborn():
    return Policy("broken", lambda params, state, columns, waiting, stream: (waiting.slots[0], 0, 0))


def _short():
    return Policy("broken", lambda params: (0, 0, 0))


def _short_observe():
    return Policy("broken", _ordinary, observe=lambda params, state, columns, waiting, ticket: None)


def _ordinary(params, state, columns, waiting, stream):
    return waiting.slots[0], first_allowed(waiting), 0


def _fraction():
    return Policy("broken", lambda p, s, c, waiting, stream: (waiting.slots[0], first_allowed(waiting) + 0.0, 0))


def _pair():
    return Policy("broken", lambda p, s, c, waiting, stream: (waiting.slots[0], first_allowed(waiting)))


def _silent():
    return Policy("broken", lambda params, state, columns, waiting, stream: None)


def _own_generator():
    generator = np.random.default_rng(0)
    return Policy(
        "broken",
        lambda p, s, c, waiting, stream: (generator.choice(waiting.slots[: waiting.jobs]), first_allowed(waiting), 0),
    )


def _shared_state():
    shared = np.zeros(1)

    def decide(params, state, columns, waiting, stream):
        state.calls[0] += 1.0
        return waiting.slots[int(state.calls[0] // 7) % waiting.jobs], first_allowed(waiting), 0

    return Policy("broken", decide, start=lambda params, shape, stream: Counted(shared))


def _state_outside():
    """Counts in an object that no saved state holds; each start finds it fresh."""
    memory = {}

    def start(params, shape, stream):
        state = start_counting(params, shape, stream)
        memory["state"] = state
        return state

    def decide(params, state, columns, waiting, stream):
        memory["state"].calls[0] += 1.0
        return (
            waiting.slots[int(memory["state"].calls[0] // 3) % waiting.jobs],
            first_allowed(waiting),
            int(state.calls[0]),
        )

    return Policy("broken", decide, start=start)


class Roomy(NamedTuple):
    seen: Annotated[np.ndarray, Grows(axis=0)]


def _by_capacity():
    def decide(params, state, columns, waiting, stream):
        return waiting.slots[state.seen.shape[0] % waiting.jobs], first_allowed(waiting), 0

    return Policy("broken", decide, start=lambda params, shape, stream: Roomy(np.zeros(3)))


def _explains_too_much():
    def decide(params, state, columns, waiting, stream):
        return waiting.slots[int(state.calls[0]) % waiting.jobs], first_allowed(waiting), 0

    def explain(params, state, columns, waiting, slot, server):
        state.calls[0] += 1.0
        return {"calls": state.calls[0]}

    return Policy("broken", decide, start=start_counting, explain=explain)


def _explains_in_vain():
    return Policy("broken", _ordinary, explain=lambda *seen: "because")


def _changes(what):
    def assigned(params, state, columns, waiting, ticket):
        if what == "features":
            waiting.features[ticket.slot] += 1.0
        elif what == "slots":
            waiting.slots[0] = 0
        elif what == "allowed":
            waiting.allowed[:] = False
        elif what == "ticket":
            ticket.features[0] = 0.0

    return lambda: Policy("broken", _ordinary, assigned=assigned)


def _changing_params():
    def observe(params, state, columns, waiting, ticket, success):
        params.calls[0] += 1.0

    return Policy("broken", _ordinary, observe=observe, configure=lambda options, shape: Counted(np.zeros(1)))


def _expects_order():
    def observe(params, state, columns, waiting, ticket, success):
        assert ticket.round > state.calls[0]
        state.calls[0] = ticket.round

    return Policy("broken", _ordinary, observe=observe, start=start_counting)


def _forgets():
    def expired(params, state, columns, waiting, ticket):
        state.calls[0] -= np.inf

    def observe(params, state, columns, waiting, ticket, success):
        state.calls[0] += np.inf

    return Policy("broken", _ordinary, observe=observe, expired=expired, start=start_counting)


def _plain_dict():
    return Policy("broken", _ordinary, start=lambda params, shape, stream: {"calls": 0})


def _list_in_state():
    return Policy("broken", _ordinary, start=lambda params, shape, stream: Counted([0]))


def _integers_that_wrap():
    def decide(params, state, columns, waiting, stream):
        large = 4611686018427387904
        large = large * 4  # 2**64, which is 0 for compiled integers
        return waiting.slots[(large % 7 + waiting.round) % waiting.jobs], first_allowed(waiting), 0

    return Policy("broken_wrap", decide)


def _types_that_change():
    def configure(options, shape):
        return Fickle(1.0 if shape.servers > 1 else 1)

    return Policy("broken_types", _ordinary, configure=configure)


def _empty_queue():
    def observe(params, state, columns, waiting, ticket, success):
        if waiting.slots[0] < 0:
            raise IndexError("nothing waits")

    return Policy("broken", _ordinary, observe=observe)


BROKEN = [
    (_absent, "must choose a waiting job, and slot -5 does not wait"),
    (_past_the_end, "must choose a waiting job, and slot -1 does not wait"),
    (_stubborn, "must choose an allowed server, and server 0 is not allowed"),
    (_short, r"decide\(\) must take 5 arguments, not 1"),
    (_short_observe, r"observe\(\) must take 6 arguments, not 5"),
    (_fraction, "must return three whole numbers"),
    (_pair, r"must return \(slot, server, reason\)"),
    (_silent, r"must return \(slot, server, reason\), not None"),
    (_own_generator, "two runs with the same seed must be the same"),
    (_shared_state, "two runs with the same seed must be the same"),
    (_state_outside, "saved and restored must decide as"),
    (_by_capacity, "given more room must decide as"),
    (_explains_too_much, r"explain\(\) must not change what is decided"),
    (_explains_in_vain, r"explain\(\) must return a dict"),
    (_changes("features"), r"assigned\(\) changed its arguments: features belong to the caller"),
    (_changes("slots"), r"assigned\(\) changed its arguments: waiting.slots"),
    (_changes("allowed"), r"assigned\(\) changed its arguments: waiting.allowed"),
    (_changes("ticket"), r"assigned\(\) changed its arguments: ticket.features"),
    (_changing_params, r"observe\(\) changed params"),
    (_expects_order, r"observe\(\) raised AssertionError"),
    (_forgets, "free of NaN under late and missing feedback, but calls"),
    (_plain_dict, "state must be a named tuple, not dict"),
    (_list_in_state, "state must be a named tuple of arrays .* calls is of type list"),
    (_integers_that_wrap, "compiled and the interpreted run must make the same decisions"),
    (_types_that_change, "same types in every run"),
    (_empty_queue, r"observe\(\) raised IndexError \(nothing waits\)"),
]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(("make_it", "sentence"), BROKEN, ids=[case[1][:40] for case in BROKEN])
def test_a_broken_rule_is_named(make_it, sentence: str) -> None:
    with pytest.raises(PolicyError, match=sentence) as caught:
        check_policy(make_it())
    assert str(caught.value).startswith("broken")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_already_compiled_functions_are_taken_as_they_are() -> None:
    @numba.njit
    def decide(params, state, columns, waiting, stream):
        for k in range(waiting.allowed.shape[0]):
            if waiting.allowed[k]:
                return waiting.slots[0], k, 0
        return -1, -1, 0

    check_policy(Policy("ready_made", decide))


def test_options_that_the_policy_refuses_are_told_as_they_are() -> None:
    with pytest.raises(PolicyError, match="radius: must be a number at least 0"):
        check_policy(make("wise", radius=-1.0))


@pytest.mark.parametrize("name", sorted(REGISTER))
def test_room_for_observations_is_room_for_attempts_in_flight(name: str) -> None:
    """A caller counts observations. Compiled, an index past the room that was made would write into other memory."""
    system = scheduling.wise_figure_law(q=0.15, slack=0.1, seed=0, servers=3)
    shape, draws = engine.shape_of(system, 2000), engine.draw(system, 2000, 1, 0)
    policy, attempts = make(name, exploration=0.3) if name == "cqb_eta_2" else make(name), 12
    params, state, stream = engine.prepare(policy, shape)
    state, columns = policy.grow_state(state, attempts), policy.new_columns(attempts, 3)
    features = np.ascontiguousarray(draws.features[draws.contexts[:attempts]])
    truth = np.ascontiguousarray(draws.probabilities[draws.contexts[:attempts]])
    waiting = Waiting(1030, attempts, np.arange(attempts), -1, np.ones(3, np.bool_), features, truth)
    for slot in range(attempts):
        policy.admit(params, state, columns, waiting, slot)
    with np.errstate(over="ignore"):
        flying = []
        for _ in range(attempts):
            slot, server, reason = policy.decide(params, state, columns, waiting, stream)
            ticket = Ticket(1030, slot, server, reason, np.ascontiguousarray(features[slot, :, server]))
            policy.assigned(params, state, columns, waiting, ticket)
            flying.append(ticket)
        for ticket in reversed(flying):
            policy.observe(params, state, columns, waiting, ticket, True)
            policy.decide(params, state, columns, waiting, stream)


MINE = """
from queuewise.scheduling import Policy

OFFSET = {offset}

def helper(jobs):
    return (jobs - 1 + OFFSET) % jobs

def decide(params, state, columns, waiting, stream):
    for k in range(waiting.allowed.shape[0]):
        if waiting.allowed[k]:
            return waiting.slots[helper(waiting.jobs)], k, 0
    return -1, -1, 0

def mine():
    return Policy("mine", decide)
"""


def test_a_users_file_plugs_in(tmp_path, monkeypatch) -> None:
    (tmp_path / "my_rule.py").write_text(MINE.format(offset=0))
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_rule

    check_policy(my_rule.mine())
    system = scheduling.wise_figure_law(q=0.15, slack=0.1, seed=0)
    result = scheduling.simulate(system, ["random", my_rule.mine()], rounds=100, runs=2, seed=1)
    assert result.queue_length["mine"].shape == (2, 100)
    sys.modules.pop("my_rule")


def test_what_numba_refuses_runs_interpreted_with_one_warning() -> None:
    def decide(params, state, columns, waiting, stream):
        first = json.loads('{"first": 0}')["first"]  # a library that numba does not know
        allowed = [k for k in range(len(waiting.allowed)) if waiting.allowed[k]]
        return waiting.slots[first], allowed[0], 0

    policy = Policy("dictionary", decide)
    system = scheduling.wise_figure_law(q=0.15, slack=0.1, seed=0)
    with pytest.warns(RuntimeWarning, match="plain Python") as caught:
        scheduling.simulate(system, [policy], rounds=50, runs=2, seed=1, workers=1)
    assert len(caught) == 1
    check_policy(policy)


@pytest.mark.parametrize(
    ("make_it", "sentence"),
    [
        (lambda: make("wize"), "did you mean 'wise'"),
        (lambda: make("wise", raduis=3.0), "did you mean 'radius'"),
        (lambda: make("random", speed=3), "it has none"),
        (lambda: Policy("", lambda: 0), "non-empty name"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(make_it, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_it()


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("wise", {"radius": -1.0}, "radius: must be a number at least 0"),
        ("wise", {"radius": "wide"}, "radius: must be a number of at least 0 or one of"),
        ("cqb_opt", {"ridge": 0.0}, "ridge: must be a number above 0"),
        ("cqb_opt", {"ties": "latest"}, "ties: must be one of"),
        ("acqb", {"samples": 0}, "samples: must be a whole number of at least 1"),
        ("cqb_eta_2", {}, "exploration: cqb_eta_2 takes a quarter of the context-wise slack"),
        ("cqb_eta_2", {"exploration": 0.3, "phase_1_end": 0.5}, "phase_2_end: must not lie before phase_1_end"),
        ("cqb_epsilon", {"exploration_rounds": 1.5}, "exploration_rounds: must be a number of rounds"),
    ],
)
def test_options_out_of_range_are_named(name: str, options: dict, sentence: str) -> None:
    system = scheduling.wise_figure_law(q=0.5, slack=0.05, seed=0)
    with pytest.raises(ValueError, match=sentence):
        scheduling.simulate(system, [make(name, **options)], rounds=20, runs=1)
