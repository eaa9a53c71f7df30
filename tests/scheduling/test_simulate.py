"""`simulate` end to end: common randomness, the same numbers however they are made, and nothing lost on disk."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise import streams
from queuewise.loading import load
from queuewise.runs.result import Result
from queuewise.runs.runner import Interrupted
from queuewise.scheduling import engine, policies
from queuewise.scheduling.contexts import table_law, uniform_law, wise_figure_law
from queuewise.scheduling.policy import Policy
from queuewise.scheduling.simulate import simulate
from queuewise.scheduling.systems import family

SYSTEM = wise_figure_law(q=0.15, slack=0.05)
BLIND = ["random", "q_ucb", "fifo_random"]


def play(names: Any = BLIND, **options: Any) -> Result:
    return simulate(options.pop("system", SYSTEM), names, **{"rounds": 120, "runs": 12, "seed": 4, **options})


def assert_same(a: Result, b: Result, names: list[str] | None = None) -> None:
    assert a.runs == b.runs
    np.testing.assert_array_equal(a.oracle_queue_length, b.oracle_queue_length)
    for name in a.policies if names is None else names:
        np.testing.assert_array_equal(a.queue_length[name], b.queue_length[name])


# Common randomness


def test_runs_are_those_of_the_engine() -> None:
    result = play(runs=3, first_run=5)
    shape = engine.shape_of(SYSTEM, 120)
    for row, run in enumerate(range(5, 8)):
        draws = engine.draw(SYSTEM, 120, 4, run)
        for name in ("oracle", *BLIND):
            expected = engine.play(policies.make(name), shape, draws, seed=4, run=run).record.queue_length
            found = result.oracle_queue_length if name == "oracle" else result.queue_length[name]
            np.testing.assert_array_equal(found[row], expected)


def test_a_family_brings_a_fresh_instance_per_run() -> None:
    law = family(wise_figure_law, q=0.15, slack=0.05)
    result = play("q_ucb", system=law, runs=3)
    for run in range(3):
        alone = play("q_ucb", system=law.instance(streams.instance_seed(4, run)), runs=1, first_run=run)
        np.testing.assert_array_equal(result.queue_length["q_ucb"][run], alone.queue_length["q_ucb"][0])
    assert result.settings["system"]["family"] == "wise_figure_law"


def test_workers_order_company_and_splits_change_no_number() -> None:
    whole = play(workers=1)
    assert_same(whole, play(workers=2))
    assert_same(whole, play(BLIND[::-1], workers=3))
    assert_same(play(["q_ucb"]), whole, ["q_ucb"])
    assert_same(whole, play([*BLIND, policies.make("q_ths").named("another")]), BLIND)
    parts = [play(runs=5), play(runs=7, first_run=5)]
    for name in BLIND:
        np.testing.assert_array_equal(np.vstack([part.queue_length[name] for part in parts]), whole.queue_length[name])
    assert [part.first_run for part in parts] == [0, 5]


def test_more_rounds_extend_what_was_there() -> None:
    short, long = play("random", rounds=80), play("random", rounds=120)
    np.testing.assert_array_equal(long.queue_length["random"][:, :80], short.queue_length["random"])
    np.testing.assert_array_equal(long.oracle_queue_length[:, :80], short.oracle_queue_length)


def test_interpreted_is_compiled() -> None:
    assert_same(play(runs=2, rounds=60), play(runs=2, rounds=60, compiled=False))


def test_contextual_policies_too() -> None:
    one, two = (play(["cqb_opt", "random"], runs=4, workers=workers) for workers in (1, 2))
    assert_same(one, two)


def test_a_name_is_a_stream_and_a_key() -> None:
    twins = play([policies.make("random"), policies.make("random").named("again"), "oracle"])
    assert twins.policies == ["random", "again", "oracle"]
    assert not np.array_equal(twins.queue_length["random"], twins.queue_length["again"])
    np.testing.assert_array_equal(twins.queue_length["oracle"], twins.oracle_queue_length)
    assert twins.mean_regret("oracle")[:4] == (0, 0, 0, 0)
    assert twins.label("again") == "again: random"
    assert play("random").policies == ["random"]


def test_settings_say_what_was_simulated() -> None:
    result = play(policies.make("q_ucb", exploration_scale=0.5), rounds=np.int64(50), seed=np.int64(2))
    assert (result.rounds, result.seed, result.runs) == (50, 2, 12)
    assert result.settings["system"] == SYSTEM.settings()
    assert result.settings["policies"][0]["options"]["exploration_scale"] == 0.5
    assert result.label("q_ucb") == "q_ucb(exploration_scale=0.5)"


# Traces


def test_trace_agrees_with_the_queue() -> None:
    result = play(["random", "q_ucb"], trace=True, runs=4)
    assert_same(play(["random", "q_ucb"], runs=4), result)
    for name in ("random", "q_ucb", "oracle"):
        trace = result.trace[name]
        queue = result.oracle_queue_length if name == "oracle" else result.queue_length[name]
        assert ((trace.server >= 0) == (queue > 0)).all()
        assert (trace.gap >= 0).all()
        assert (name != "oracle") or (trace.gap == 0).all()
        for run in range(4):
            times = result.sojourn_time[name][run]
            arrivals = engine.draw(SYSTEM, 120, 4, run).arrivals
            assert times.shape == (arrivals.sum(),)
            assert np.nansum(trace.departure[run]) == np.isfinite(times).sum()
            # Little's law path by path: job-rounds by rounds are job-rounds by jobs (those that still wait, up to the end).
            born = np.flatnonzero(arrivals)
            assert np.where(np.isnan(times), 119 - born, times).sum() == queue[run].sum()


# Moments, and stopping at a width


def test_moments_say_the_same_and_do_not_depend_on_workers() -> None:
    whole = play(runs=30)
    summed = [play(runs=30, keep="moments", windows=[(50, 100)], workers=workers) for workers in (1, 2)]
    for name in BLIND:
        for found, other, expected in zip(*(r.regret(name)[:5] for r in (*summed, whole)), strict=True):
            np.testing.assert_array_equal(found, other)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
        for rounds in (None, (50, 100), (9, 9)):
            assert summed[0].mean_regret(name, rounds) == pytest.approx(whole.mean_regret(name, rounds), rel=1e-12)
    default = play(runs=30, keep="moments")
    assert default.compare("q_ucb", "random", (91, 120))[:5] == pytest.approx(
        whole.compare("q_ucb", "random", (91, 120))[:5], rel=1e-12
    )


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_runs_until_the_mean_is_known_well_enough(keep: Any) -> None:
    wanted = play(runs=40).mean_regret("random").half_width * 1.01
    results = [play(runs=400, half_width=wanted, keep=keep, workers=workers) for workers in (1, 2)]
    assert results[0].runs == results[1].runs < 400
    assert results[0].runs % 10 == 0
    assert all(results[0].mean_regret(name).half_width <= wanted for name in BLIND)
    before = play(runs=results[0].runs - 10)
    assert any(before.mean_regret(name).half_width > wanted for name in BLIND)
    assert play(runs=400, half_width=1e6).runs == 10
    assert play(runs=13, half_width=1e-9).runs == 13


def test_stopping_on_disk_plays_nothing_beyond_and_stops_there_again(tmp_path: Path) -> None:
    first = play(runs=100, half_width=1e6, folder=tmp_path, workers=2)
    assert load(tmp_path).runs == first.runs == 10
    play(runs=25, folder=tmp_path)
    assert_same(play(runs=100, half_width=1e6, folder=tmp_path), first)


# On disk


def count_plays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The runs of every call of the engine from here on, one per policy and the oracle; warming up plays one round."""
    played: list[int] = []
    original = engine.play

    def counted(policy: Any, shape: Any, draws: Any, **options: Any) -> Any:
        if len(draws.arrivals) > 1:
            played.append(options["run"])
        return original(policy, shape, draws, **options)

    monkeypatch.setattr(engine, "play", counted)
    return played


def test_a_rerun_reads_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = play()
    assert_same(whole, play(folder=tmp_path))
    played = count_plays(monkeypatch)
    assert_same(whole, play(folder=tmp_path))
    assert played == []
    (tmp_path / "runs" / "000003.parquet").unlink()
    cut = tmp_path / "runs" / "000007.parquet"
    cut.write_bytes(cut.read_bytes()[:-30])
    assert_same(whole, play(folder=tmp_path, workers=2))
    assert sorted(set(played)) == [3, 7]
    assert_same(play(runs=15), play(folder=tmp_path, runs=15))
    assert_same(load(tmp_path), play(runs=15))


def test_extending_plays_the_new_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(folder=tmp_path, runs=4)
    played = count_plays(monkeypatch)
    longer = play(folder=tmp_path, runs=6)
    assert sorted(set(played)) == [4, 5]
    fewer = play(folder=tmp_path, runs=2)
    assert sorted(set(played)) == [4, 5]
    np.testing.assert_array_equal(longer.queue_length["q_ucb"][:2], fewer.queue_length["q_ucb"])


def test_two_calls_fill_one_folder(tmp_path: Path) -> None:
    play(folder=tmp_path, runs=7, first_run=5)
    play(folder=tmp_path, runs=5)
    assert_same(load(tmp_path), play())


def test_saved_results_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(runs=5).save(tmp_path)
    played = count_plays(monkeypatch)
    extended = play(folder=tmp_path)
    assert sorted(set(played)) == list(range(5, 12))
    assert_same(extended, play())


def test_moments_from_disk(tmp_path: Path) -> None:
    fresh = play(keep="moments")
    for _ in range(2):
        again = play(keep="moments", folder=tmp_path)
        for a, b in zip(fresh.regret("q_ucb"), again.regret("q_ucb"), strict=True):
            np.testing.assert_array_equal(a, b)


def test_traces_on_disk(tmp_path: Path) -> None:
    play("random", folder=tmp_path, runs=3)
    traced = play("random", folder=tmp_path, runs=3, trace=True)  # the runs without traces are replayed
    for found in (load(tmp_path), play("random", runs=3, trace=True)):
        for name in ("random", "oracle"):
            for a, b in zip(found.trace[name], traced.trace[name], strict=True):
                np.testing.assert_array_equal(a, b)
                assert a.dtype == b.dtype
        np.testing.assert_array_equal(found.sojourn_time["random"][2], traced.sojourn_time["random"][2])
    assert_same(play("random", folder=tmp_path, runs=3), traced)


def test_another_experiment_in_the_folder(tmp_path: Path) -> None:
    play(folder=tmp_path, runs=2)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for options, sentence in [
        ({"seed": 5}, "seed is 4 there, 5 here"),
        ({"rounds": 121}, "rounds is 120 there, 121 here"),
        ({"system": wise_figure_law(q=0.15, slack=0.1)}, "system.slack is 0.05 there, 0.1 here"),
        ({"system": uniform_law(seed=0)}, "system.law is 'wise_figure_law' there, 'uniform_law' here"),
        ({"names": ["random", "q_ucb"]}, "policies.fifo_random is there but not here"),
        (
            {"names": ["random", policies.make("q_ucb", ties="random"), "fifo_random"]},
            "policies.q_ucb.options.ties is 'earliest' there, 'random' here",
        ),
    ]:
        with pytest.raises(ValueError, match="holds another experiment") as caught:
            play(folder=tmp_path, **options)
        assert sentence in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == kept


def first_server(params: Any, state: Any, columns: Any, waiting: Any, stream: Any) -> tuple[int, int, int]:
    return waiting.slots[0], 0, 0


def last_server(params: Any, state: Any, columns: Any, waiting: Any, stream: Any) -> tuple[int, int, int]:
    return waiting.slots[0], waiting.allowed.shape[0] - 1, 0


def test_an_edited_rule_of_the_users_is_another_experiment(tmp_path: Path) -> None:
    mine = Policy("mine", first_server)
    play(mine, folder=tmp_path, runs=2)
    play(dataclasses.replace(mine), folder=tmp_path, runs=2)
    with pytest.raises(ValueError, match=r"policies\.mine was edited since"):
        play(dataclasses.replace(mine, decide=last_server), folder=tmp_path, runs=2)


def test_another_version_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(folder=tmp_path, runs=2)
    monkeypatch.setattr("queuewise.runs.experiment.VERSION", "99.0")
    with pytest.warns(UserWarning, match=r"was begun by version .*, this is 99\.0"):
        play(folder=tmp_path, runs=2)


def test_nothing_is_written_for_options_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="q_ucb: "):
        play([policies.make("q_ucb", exploration_scale=-1.0)], folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"folder: cannot (write to|read) "):
        play(folder=tmp_path / "file" / "out")


# Interruptions


@pytest.mark.parametrize("workers", [1, 2])
def test_control_c_keeps_what_is_done(tmp_path: Path, workers: int) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(
        Interrupted, match=r"interrupted after \d+ of 200 runs; they are in .*, and the same call"
    ) as caught:
        play(runs=200, folder=tmp_path, workers=workers, progress=interrupt)
    done = caught.value.done
    assert 5 <= done < 30
    assert caught.value.total == 200
    assert_same(caught.value.result, play(runs=done))
    assert_same(play(runs=20, folder=tmp_path), play(runs=20))


def test_control_c_without_a_folder_still_has_the_result() -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"interrupted after 3 of 50 runs$") as caught:
        play(runs=50, keep="moments", workers=2, progress=interrupt)
    np.testing.assert_array_equal(
        caught.value.result.regret("q_ucb").mean, play(runs=3, keep="moments").regret("q_ucb").mean
    )


PROGRAM = """
import sys
from queuewise.scheduling.contexts import wise_figure_law
from queuewise.scheduling.simulate import simulate
simulate(wise_figure_law(q=0.15, slack=0.05), ["random", "q_ucb", "fifo_random"], rounds=120, runs=100_000, seed=4,
         folder=sys.argv[1], workers=2)
"""


def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    def finished() -> int:
        return len(list((tmp_path / "runs").glob("0*.parquet")))

    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
    try:
        wait_until(lambda: finished() >= 6 or process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    kept = finished()
    assert kept >= 6
    assert_same(play(folder=tmp_path, runs=kept + 3), play(runs=kept + 3))


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# Progress, and what is refused


def test_progress_counts_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    play(runs=6, workers=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 6) for i in range(1, 7)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": 0}, "rounds must be a whole number of at least 1, not 0"),
        ({"rounds": 2.5}, "rounds must be a whole number of at least 1, not 2.5"),
        ({"runs": 0}, "runs must be a whole number of at least 1, not 0"),
        ({"runs": True}, "runs must be a whole number"),
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"seed": None}, "seed must be a whole number of at least 0, not None"),
        ({"workers": 0}, "workers must be a whole number of at least 1, not 0"),
        ({"first_run": -1}, "first_run must be a whole number of at least 0, not -1"),
        ({"half_width": 0.0}, "half_width must be positive, not 0.0"),
        ({"half_width": float("nan")}, "half_width must be finite, not nan"),
        ({"keep": "all"}, "keep must be one of 'runs', 'moments', not 'all'"),
        ({"keep": "moments", "trace": True}, "trace must be False with keep='moments'"),
        ({"keep": "moments", "windows": [(1, 999)]}, r"windows must be a pair \(first, last\) of rounds"),
        ({"names": []}, "policies must name at least one policy"),
        ({"names": ["wize"]}, "no rule is called 'wize'; did you mean 'wise'"),
        ({"names": ["random", "random"]}, r"policies: two are called 'random'; give one of them another name"),
        ({"names": [policies.make("random").named("round")]}, "policies: a policy cannot be called 'round'"),
        (
            {"names": [policies.make("random").named("oracle")]},
            "policies: 'oracle' is the name of the oracle that regret",
        ),
        (
            {"names": [policies.make("oracle", ties="random")]},
            "policies: 'oracle' is the name of the oracle that regret",
        ),
        (
            {"names": ["random", policies.make("q_ucb").named("random.job")], "trace": True},
            "a policy cannot be called 'random.job'",
        ),
        ({"system": "wise"}, "system must be a System or a Family"),
        ({"folder": ""}, "folder must be a path"),
    ],
)
def test_bad_input(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        play(**options)


IMPATIENT = table_law([[[1.0]], [[2.0]]], [[0.4], [0.0]], arrival_rate=0.3, parameter_bound=1.0, max_attempts=2)


def test_jobs_given_up_are_kept_on_disk_and_found_again(tmp_path: Path) -> None:
    result = play(system=IMPATIENT, folder=tmp_path / "a")
    share = result.given_up["random"]
    assert share.shape == (12, 120)
    assert share.any()
    assert result.mean_given_up("random").mean == share.sum(axis=1).mean()
    assert result.mean_given_up("oracle", rounds=(1, 10)).mean == result.given_up["oracle"][:, :10].sum(axis=1).mean()
    result.save(tmp_path / "b")
    for again in (load(tmp_path / "a"), load(tmp_path / "b"), play(system=IMPATIENT, folder=tmp_path / "a")):
        assert_same(result, again)
        assert again.gives_up
        np.testing.assert_array_equal(again.given_up["q_ucb"], result.given_up["q_ucb"])


def test_given_up_is_refused_where_jobs_stay_or_runs_are_not_kept() -> None:
    with pytest.raises(ValueError, match=r"^given_up: in this system jobs stay until they are done"):
        _ = play().given_up
    with pytest.raises(ValueError, match=r"^given_up: the runs themselves were not kept"):
        play(system=IMPATIENT, keep="moments").mean_given_up("random")
    with pytest.raises(ValueError, match=r"cannot be called 'random.given_up', a column"):
        play([policies.make("random"), policies.make("q_ucb").named("random.given_up")], system=IMPATIENT)


def test_an_oracle_of_ones_own_is_what_regret_is_measured_against(tmp_path: Path) -> None:
    usual = play(["random", "fifo_random"], folder=tmp_path / "usual")
    own = play(["random"], oracle="fifo_random", folder=tmp_path / "own")
    np.testing.assert_array_equal(own.queue_length["random"], usual.queue_length["random"])
    assert own.settings["oracle"]["rule"] == "fifo_random"
    # The reference is called "oracle", so it draws from that name's stream, whatever rule it is.
    alone = play([policies.make("fifo_random").named("a")], oracle=policies.make("fifo_random").named("b"))
    np.testing.assert_array_equal(own.oracle_queue_length, alone.oracle_queue_length)
    assert_same(own, load(tmp_path / "own"))
    with pytest.raises(ValueError, match=r"holds another experiment .*oracle"):
        play(["random"], folder=tmp_path / "own")
    ties = policies.make("oracle", ties="random")
    assert play([ties], oracle=ties).mean_regret("oracle").mean == 0.0
    with pytest.raises(ValueError, match="'oracle' is the name of the oracle"):
        play([ties])
