"""States that grow: room is made before it is needed, nothing is lost, and saved arrays are recognised."""

from typing import Annotated, NamedTuple

import numpy as np
import pytest

from queuewise import growing
from queuewise.growing import Grows


class Plain(NamedTuple):
    fixed: np.ndarray
    rows: Annotated[np.ndarray, Grows(axis=1, times=2, spare=1)]


class Modest(NamedTuple):
    kept: Annotated[np.ndarray, Grows(axis=0)]
    used: np.ndarray

    def room(self, attempts: int) -> int:
        return int(self.used[0]) + attempts // 10


class Both(NamedTuple):
    plain: Plain
    modest: Modest
    log: Annotated[np.ndarray, Grows(axis=0)]


def _both(rows=3, kept=2, used=0, log=4):
    plain = Plain(np.arange(2.0), np.arange(2.0 * rows).reshape(2, rows))
    return Both(plain, Modest(np.arange(float(kept)), np.array([used])), np.ones(log, dtype=np.int64))


def test_arrays_have_room_for_what_is_asked_and_keep_what_they_had() -> None:
    before = _both()
    after = growing.grow(before, 20)
    assert after.plain.rows.shape == (2, 41)
    np.testing.assert_array_equal(after.plain.rows[:, :3], before.plain.rows)
    assert not after.plain.rows[:, 3:].any()
    assert after.plain.fixed is before.plain.fixed
    assert after.log.shape == (20,)
    assert after.log.dtype == np.int64
    assert growing.grow(after, 20).log is after.log  # room enough


@pytest.mark.parametrize(("used", "attempts", "length"), [(0, 19, 2), (0, 30, 4), (1, 20, 4), (40, 100, 50)])
def test_a_state_that_needs_less_says_so_and_growth_at_least_doubles(used, attempts, length) -> None:
    assert growing.grow(_both(used=used), attempts).modest.kept.shape == (length,)


def test_many_small_steps_copy_little() -> None:
    state, copies = _both(), 0
    for attempts in range(5000):
        before = state.log
        state = growing.grow(state, attempts)
        copies += state.log is not before
    assert copies <= 12
    assert 4999 <= state.log.shape[0] <= 10_000


def test_saved_arrays_match_whatever_their_room() -> None:
    like, saved = _both(), growing.flatten(growing.grow(_both(used=7), 50))
    assert growing.matches(like, saved)
    np.testing.assert_array_equal(growing.unflatten(like, saved).plain.rows, saved["plain.rows"])
    for name, wrong in (
        ("plain.rows", np.zeros((3, 101))),
        ("plain.rows", np.zeros((2, 101), dtype=np.float32)),
        ("plain.fixed", np.zeros(3)),
        ("modest.used", np.zeros((1, 1), dtype=np.int64)),
        ("more", np.zeros(1)),
    ):
        assert not growing.matches(like, saved | {name: wrong}), name
    assert not growing.matches(like, {name: array for name, array in saved.items() if name != "log"})
