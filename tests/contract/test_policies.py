"""Every registered policy keeps the contract; policies that break it are told which rule they broke."""

import json
import sys
from typing import NamedTuple

import numpy as np
import pytest

from queuewise import scheduling
from queuewise.scheduling import Policy, check_policy
from queuewise.scheduling.checks import PolicyError
from queuewise.scheduling.policies import REGISTER, make


@pytest.mark.parametrize("name", sorted(REGISTER))
def test_registered_policies_keep_the_contract(name: str) -> None:
    check_policy(make(name, exploration=0.3) if name == "cqb_eta_2" else make(name))


def test_a_choice_that_does_not_wait_is_named() -> None:
    def decide(params, state, columns, waiting, stream):
        return -5, 0, 0

    with pytest.raises(PolicyError, match="does not wait"):
        check_policy(Policy("absent", decide))


def test_a_mask_that_is_ignored_is_named() -> None:
    def decide(params, state, columns, waiting, stream):
        return waiting.slots[0], 0, 0

    with pytest.raises(PolicyError, match="allowed server"):
        check_policy(Policy("stubborn", decide))


def test_wrong_signature_is_named() -> None:
    with pytest.raises(PolicyError, match="must take 5 arguments"):
        check_policy(Policy("short", lambda params: (0, 0, 0)))


class Counted(NamedTuple):
    calls: np.ndarray


def test_state_of_its_own_across_runs_is_named() -> None:
    shared = np.zeros(1)

    def decide(params, state, columns, waiting, stream):
        state.calls[0] += 1.0
        server = int(state.calls[0] // 7) % waiting.allowed.shape[0]
        return waiting.slots[int(state.calls[0]) % waiting.jobs], server, 0

    with pytest.raises(PolicyError, match="same seed"):
        check_policy(Policy("sticky", decide, start=lambda params, shape, stream: Counted(shared)))


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
        ("wise", {"radius": "wide"}, "radius: must be a number above 0 or one of"),
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
