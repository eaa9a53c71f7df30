"""Runs are handed over in order whatever the threads do, and an interruption keeps what is done."""

from __future__ import annotations

import io
import itertools
import os
import signal
import threading
import time

import pytest

from queuewise.runs.runner import Halted, Interrupted, checkpoints, default_workers, replicate


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_in_order_and_on_the_calling_thread(workers: int) -> None:
    found: list[tuple[int, int]] = []
    threads = set()

    def play(run: int) -> int:
        time.sleep(0.002 * (run % 3 == 0))  # later ones overtake
        return run * run

    def on_done(run: int, value: int) -> None:
        threads.add(threading.get_ident())
        found.append((run, value))

    shown: list[tuple[int, int]] = []
    done = replicate(play, range(5, 25), workers=workers, on_done=on_done, progress=lambda *a: shown.append(a))
    assert done == 20
    assert found == [(run, run * run) for run in range(5, 25)]
    assert threads == {threading.get_ident()}
    assert shown == [(i, 20) for i in range(1, 21)]


def test_little_is_under_way_at_a_time() -> None:
    begun: list[int] = []
    ahead = []

    def on_done(run: int, value: None) -> None:
        time.sleep(0.001)
        ahead.append(len(begun) - run)

    replicate(begun.append, range(100), workers=2, on_done=on_done)
    assert max(ahead) <= 7


@pytest.mark.parametrize("workers", [1, 3])
def test_stopping_rule_looks_at_checkpoints_and_plays_nothing_beyond(workers: int) -> None:
    played: list[int] = []
    done = replicate(
        played.append,
        range(500),
        workers=workers,
        on_done=lambda run, value: None,
        stop=lambda done: done >= 25,
    )
    assert done == 30
    assert sorted(played) == list(range(30))


def test_checkpoints() -> None:
    assert checkpoints(35) == [10, 20, 30, 35]
    assert checkpoints(10) == [10]
    assert checkpoints(3) == [3]
    late = checkpoints(10_000)
    assert late[-1] == 10_000
    assert len(late) < 70
    assert all(b - a >= 10 for a, b in itertools.pairwise(late[:-1]))


@pytest.mark.parametrize("workers", [1, 3])
def test_the_first_error_in_order_comes_out(workers: int) -> None:
    kept: list[int] = []

    def play(run: int) -> int:
        if run == 4:
            time.sleep(0.01)
        if run >= 4:
            raise ValueError(f"run {run} went wrong")
        return run

    with pytest.raises(ValueError, match="run 4 went wrong"):
        replicate(play, range(50), workers=workers, on_done=lambda run, value: kept.append(run))
    assert kept == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [1, 2])
def test_control_c_keeps_what_is_done(workers: int) -> None:
    kept: list[int] = []
    played: list[int] = []

    def play(run: int) -> None:
        time.sleep(0.002)
        played.append(run)

    def on_done(run: int, value: None) -> None:
        kept.append(run)
        if run == 6:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=r"interrupted after \d+ of 1000 runs") as caught:
        replicate(play, range(1000), workers=workers, on_done=on_done)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert kept == list(range(caught.value.done))
    assert 7 <= caught.value.done <= 7 + 3 * workers
    assert len(played) <= caught.value.done + 3 * workers
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_long_run_may_end_early_when_halted() -> None:
    halt = threading.Event()

    def play(run: int) -> int:
        if run == 2:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                time.sleep(0.002)
                if halt.is_set():
                    raise Halted
        return run

    with pytest.raises(Interrupted) as caught:
        replicate(play, range(10), workers=2, on_done=lambda run, value: None, halt=halt)
    assert caught.value.done == 2


def test_a_second_control_c_ends_at_once() -> None:
    def play(run: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("not reached")

    with pytest.raises(Interrupted) as caught:
        replicate(play, range(10), workers=1, on_done=lambda run, value: None)
    assert caught.value.done == 0


def test_an_application_keeps_its_own_handler() -> None:
    seen: list[int] = []

    def own(number: int, frame: object) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGINT, own)
    try:
        done = replicate(lambda run: os.kill(os.getpid(), signal.SIGINT), range(2), on_done=lambda run, value: None)
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == 2
    assert len(seen) == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = _Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        monkeypatch.setattr("sys.stderr", stream)
        assert replicate(lambda run: run, range(3), on_done=lambda run, value: None, progress=True) == 3
    assert "3/3" in terminal.getvalue()
    assert pipe.getvalue() == ""


def test_default_workers() -> None:
    assert 1 <= default_workers() <= (os.cpu_count() or 1)
