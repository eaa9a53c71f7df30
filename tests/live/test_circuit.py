"""The circuit of one server: when it opens, how it is tried, when it closes."""

from __future__ import annotations

import pytest

from queuewise.live.circuit import CLOSED, HALF_OPEN, OPEN, Circuit, CircuitSettings


def failed(circuit: Circuit, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        circuit.outcome(False, now)


def test_it_opens_after_failures_in_a_row_and_not_before() -> None:
    circuit = Circuit(CircuitSettings(failures=3))
    failed(circuit, 2)
    circuit.outcome(True, 0.0)
    failed(circuit, 2)
    assert circuit.state == CLOSED
    assert circuit.outcome(False, 0.0)
    assert circuit.state == OPEN


def test_it_opens_where_a_share_of_a_full_window_failed() -> None:
    circuit = Circuit(CircuitSettings(failures=100, window=10, share=0.4))
    for _ in range(3):  # three of four: no verdict before the window is full
        failed(circuit, 1)
        circuit.outcome(True, 0.0)
    assert circuit.state == CLOSED
    for _ in range(3):
        circuit.outcome(True, 0.0)
    assert circuit.state == CLOSED  # three of nine
    assert circuit.outcome(False, 0.0)  # four of ten


def test_a_share_leaves_the_window_again() -> None:
    circuit = Circuit(CircuitSettings(failures=100, window=10, share=0.5))
    failed(circuit, 4)
    for _ in range(10):
        circuit.outcome(True, 0.0)
    failed(circuit, 4)
    assert circuit.state == CLOSED


def test_trials_go_one_at_a_time_after_the_pause_and_close_it() -> None:
    circuit = Circuit(CircuitSettings(failures=1, pause=5.0, trials=2))
    failed(circuit, 1, now=10.0)
    assert not circuit.wants_trial(14.9)
    assert circuit.wants_trial(15.0)
    assert circuit.state == HALF_OPEN
    circuit.trial_out = True
    assert not circuit.wants_trial(16.0)
    assert not circuit.outcome(True, 16.0, trial=True)
    assert circuit.wants_trial(16.0)
    assert circuit.outcome(True, 17.0, trial=True)
    assert circuit.state == CLOSED
    assert circuit.opened == 1


def test_each_failed_trial_doubles_the_pause_up_to_the_longest() -> None:
    circuit = Circuit(CircuitSettings(failures=1, pause=1.0, longest_pause=3.0))
    failed(circuit, 1)
    now = 0.0
    for pause in (1.0, 2.0, 3.0, 3.0):
        assert circuit.retry_at - now == pause
        now = circuit.retry_at
        assert circuit.wants_trial(now)
        assert not circuit.outcome(False, now, trial=True)


def test_what_was_sent_before_it_opened_says_nothing_afterwards() -> None:
    circuit = Circuit(CircuitSettings(failures=1, trials=1))
    failed(circuit, 1)
    retry_at = circuit.retry_at
    assert not circuit.outcome(True, 1.0)
    assert not circuit.outcome(False, 2.0)
    assert (circuit.state, circuit.retry_at) == (OPEN, retry_at)


def test_a_trial_that_was_cancelled_makes_room_for_another() -> None:
    circuit = Circuit(CircuitSettings(failures=1))
    failed(circuit, 1)
    assert circuit.wants_trial(100.0)
    circuit.trial_out = True
    circuit.forgotten()
    assert circuit.wants_trial(100.0)


def test_it_is_kept_and_restored_with_its_pause() -> None:
    circuit = Circuit(CircuitSettings(failures=1, pause=1.0))
    failed(circuit, 1)
    circuit.wants_trial(1.0)
    circuit.outcome(False, 1.0, trial=True)
    other = Circuit(circuit.settings)
    other.restore(circuit.plain(), now=1000.0)
    assert (other.state, other.opened, other.retry_at) == (OPEN, 2, 1002.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"failures": 0}, "circuit failures must be a whole number of at least 1"),
        ({"share": 0.0}, "circuit share must be above 0 and at most 1"),
        ({"panic": 1.5}, "circuit panic must be above 0 and at most 1"),
        ({"pause": float("nan")}, "circuit pause must be finite"),
        ({"pause": 10.0, "longest_pause": 5.0}, "circuit longest_pause must be at least pause"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        CircuitSettings(**options)  # type: ignore[arg-type]
