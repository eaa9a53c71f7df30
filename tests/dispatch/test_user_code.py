"""Functions of the user's own in systems and rules: known by their code, compiled anew when edited, not taken on trust."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from queuewise.dispatch import Policy, System, arrivals, exact, lased, service, simulate, trace

SYSTEM = System(1.0, [5, 10])


class Constant:
    """A threshold as an object."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, episode: int) -> float:
        return self.value


def constant(value: float, episode: int) -> float:
    return value


def play(system: System = SYSTEM, policy: Any = "jsq", **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what numba refuses runs as plain Python
        return simulate(system, policy, **{"arrivals": 60, "runs": 1, "workers": 1, **options})


@pytest.mark.parametrize(
    "make",
    [
        lambda f: System(1.0, [5, 10], arrivals=f),
        lambda f: System(1.0, [5, 10], service=service.from_function(f, mean=1.0)),
        lambda f: System(1.0, [5, 10], arrivals=arrivals.time_varying(lambda t: f(None, len(t)) * 0.5, 9.0)),
    ],
)
def test_a_folder_of_one_function_is_not_another_ones(make: Callable[[Any], System], tmp_path: Path) -> None:
    play(make(lambda rng, n: np.full(n, 1.0)), folder=tmp_path)
    with pytest.raises(ValueError, match="holds another experiment"):
        play(make(lambda rng, n: np.full(n, 0.5)), folder=tmp_path)


@pytest.mark.parametrize("make", [Constant, lambda value: functools.partial(constant, value)])
def test_thresholds_that_are_no_plain_functions_are_told_apart(make: Callable[[float], Any], tmp_path: Path) -> None:
    play(policy=lased(threshold=make(5.0)), folder=tmp_path)
    with pytest.raises(ValueError, match="holds another experiment"):
        play(policy=lased(threshold=make(0.0)), folder=tmp_path)


LEVEL = 1.0


def level_of(episode: int) -> float:
    return LEVEL if episode > 1 else 0.0


def test_an_edited_constant_of_a_threshold_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = lased(threshold=level_of)
    before = play(policy=policy, arrivals=400).regret_by_cause("lased")["exploration"].mean[-1]
    monkeypatch.setitem(globals(), "LEVEL", 1000.0)
    after = play(policy=policy, arrivals=400).regret_by_cause("lased")["exploration"].mean[-1]
    plain = play(policy=policy, arrivals=400, compiled=False).regret_by_cause("lased")["exploration"].mean[-1]
    assert after == plain > before


@numba.njit
def copied_queue(queue: Any) -> Any:
    return queue.copy()


def shortest_of_a_copy(params: Any, state: Any, seen: Any, stream: Any) -> tuple[int, int]:
    copy = copied_queue(seen.queue)
    best = 0
    for i in range(copy.shape[0]):
        if copy[i] < copy[best]:
            best = i
    return best, 0


def test_a_helper_that_the_user_compiled_and_that_makes_arrays() -> None:
    policy = Policy("mine", shortest_of_a_copy)
    first = trace(SYSTEM, policy, 500)
    np.testing.assert_array_equal(first.server, trace(SYSTEM, "jsq", 500).server)
    assert copied_queue(np.arange(3)).tolist() == [0, 1, 2]  # and it still works for its owner


def test_a_rule_that_is_nearly_blind_is_solved_as_a_chain() -> None:
    def law(params: Any, weights: Any, queue: Any, slots: Any) -> Any:
        found = np.full(queue.shape, 0.5)
        found[queue.sum(axis=1) == 1] = [1.0, 0.0]
        return found

    policy = Policy("nearly", lambda params, state, seen, stream: (0, 0), law=law)
    assert exact.stationary(SYSTEM, policy).mean_number == pytest.approx(
        exact.stationary(SYSTEM, policy, level=60).mean_number, abs=1e-7
    )


def test_states_of_a_solution_are_the_callers_own() -> None:
    exact.stationary(SYSTEM, "sed", level=12).queue[:] = 0
    assert np.isfinite(exact.stationary(SYSTEM, "sed", level=12).mean_number)


class Process:
    """An arrival process of the user's own."""

    def __init__(self, times: Any) -> None:
        self.times = times

    def start(self, rate: float, rng: Any) -> Any:
        return self

    def take(self, count: int) -> Any:
        return self.times(count)

    def settings(self) -> dict[str, Any]:
        return {"process": "mine"}


@pytest.mark.parametrize(
    "times",
    [
        lambda count: np.arange(count + 1.0),
        lambda count: np.arange(count)[::-1],
        lambda count: np.full(count, np.inf),
        lambda count: np.full(count, np.nan),
        lambda count: np.full(count, -1.0),
        lambda count: np.zeros((count, 2)),
    ],
)
@pytest.mark.parametrize("sizes", ["job", "server"])
def test_a_process_of_the_users_is_not_taken_on_trust(times: Any, sizes: str) -> None:
    with pytest.raises(ValueError, match="arrivals: "):
        play(System(1.0, [5, 10], arrivals=Process(times)), sizes=sizes)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"quota": 10**18}, "quota: must be at most"),
        ({"scale": 1e30}, "scale: must be a number"),
        ({"rate_bounds": (1, 2), "ratio_bounds": (0.5, 2.0)}, "ratio_bounds: must be left out"),
        ({"rate_bounds": (True, 2)}, "rate_bounds: must be two numbers"),
    ],
)
def test_lased_options_beyond_sense(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        play(policy=lased(**options))


@pytest.mark.parametrize("compiled", [True, False])
def test_a_reason_that_does_not_fit(compiled: bool) -> None:
    policy = Policy("broken", lambda params, state, seen, stream: (0, 300))
    with pytest.raises(ValueError, match=r"a reason outside 0\.\.127"):
        play(policy=policy, compiled=compiled)
