"""Results on disk: killed at any moment, a rerun continues and ends with the identical result."""

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import queuewise as qw

SYSTEM = qw.scheduling.wise_figure_law(q=0.15, slack=0.1, seed=0)


def _simulate(policies=("random", "q_ucb"), **options):
    return qw.scheduling.simulate(SYSTEM, list(policies), **{"rounds": 150, "runs": 6, "seed": 2, **options})


def _same(one, other) -> bool:
    return np.array_equal(one.oracle_queue_length, other.oracle_queue_length) and all(
        np.array_equal(one.queue_length[name], other.queue_length[name]) for name in one.policies
    )


def test_neither_threads_nor_other_policies_nor_a_split_change_a_number() -> None:
    whole = _simulate(workers=1)
    assert _same(whole, _simulate(workers=2))
    more = _simulate(["fifo_random", "q_ucb", "q_ths", "random"])
    for name in ("random", "q_ucb"):
        assert np.array_equal(whole.queue_length[name], more.queue_length[name])
    late = _simulate(first_run=4, runs=2)
    assert np.array_equal(whole.queue_length["q_ucb"][4:], late.queue_length["q_ucb"])
    longer = _simulate(rounds=200)
    assert np.array_equal(whole.queue_length["q_ucb"], longer.queue_length["q_ucb"][:, :150])


def test_save_and_load_round_trip(tmp_path: Path) -> None:
    result = _simulate()
    result.save(tmp_path / "saved")
    again = qw.load(tmp_path / "saved")
    assert _same(result, again)
    assert again.seed == 2
    assert again.compare("random", "q_ucb") == result.compare("random", "q_ucb")


def test_a_rerun_continues_and_mends_what_is_broken(tmp_path: Path) -> None:
    whole, folder = _simulate(), tmp_path / "rows"
    _simulate(folder=folder, runs=3)
    parts = sorted(folder.rglob("*.parquet"))
    parts[0].write_bytes(parts[0].read_bytes()[:-200])  # cut short, as by a full disk
    assert _same(whole, _simulate(folder=folder))
    assert _same(whole, qw.load(folder))


def test_a_folder_of_another_experiment_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    _simulate(folder=folder, runs=1)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="seed"):
        _simulate(folder=folder, seed=3)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_killed_process_loses_at_most_the_runs_it_was_in(tmp_path: Path) -> None:
    code = (
        "import queuewise as qw\n"
        "system = qw.scheduling.wise_figure_law(q=0.15, slack=0.1, seed=0)\n"
        "qw.scheduling.simulate(system, ['random', 'q_ucb'], rounds=20000, runs=400, seed=2, folder='rows')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=dict(os.environ))
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "rows").rglob("*.parquet"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with warnings.catch_warnings():  # threads finish out of order: a later run may be there before an earlier one
        warnings.simplefilter("ignore")
        kept = qw.load(tmp_path / "rows")
    assert kept.runs >= 1
    fresh = qw.scheduling.simulate(SYSTEM, ["random", "q_ucb"], rounds=20000, runs=kept.runs + 1, seed=2)
    again = qw.scheduling.simulate(
        SYSTEM, ["random", "q_ucb"], rounds=20000, runs=kept.runs + 1, seed=2, folder=tmp_path / "rows"
    )
    assert _same(fresh, again)


def test_moments_answer_as_the_rows_do() -> None:
    rows, moments = _simulate(), _simulate(keep="moments")
    for name in ("random", "q_ucb"):
        for a, b in zip(rows.regret(name)[1:5], moments.regret(name)[1:5], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
        np.testing.assert_allclose(rows.mean_regret(name)[:4], moments.mean_regret(name)[:4], atol=1e-10)
    np.testing.assert_allclose(rows.compare("random", "q_ucb")[:4], moments.compare("random", "q_ucb")[:4], atol=1e-10)


def test_intervals_are_students() -> None:
    from scipy import stats

    result = _simulate()
    excess = (result.queue_length["random"] - result.oracle_queue_length).mean(axis=1)
    found = result.mean_regret("random")
    low, high = stats.t.interval(0.95, 5, excess.mean(), stats.sem(excess))
    np.testing.assert_allclose([found.mean, found.low, found.high], [excess.mean(), low, high], rtol=1e-12)


def test_runs_stop_when_the_interval_is_narrow_enough() -> None:
    result = _simulate(["random"], runs=400, half_width=3.0)
    assert 10 <= result.runs < 400
    found = result.mean_regret("random")
    assert (found.high - found.low) / 2 <= 3.0
    assert result.runs == _simulate(["random"], runs=400, half_width=3.0, workers=1).runs


def test_sojourn_times_add_up() -> None:
    result = _simulate(["random"], trace=True)
    queue = result.queue_length["random"]
    for run, times in enumerate(result.sojourn_time["random"]):
        done = np.asarray(times)[~np.isnan(times)]
        assert done.min() >= 1
        assert done.sum() <= queue[run].sum() + queue[run, -1] + 1  # Little's law, path by path


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": 0}, "rounds"),
        ({"runs": 0}, "runs"),
        ({"seed": -1}, "seed"),
        ({"workers": 0}, "workers"),
        ({"keep": "all"}, "keep"),
        ({"half_width": -1.0}, "half_width"),
        ({"policies": ["random", "random"]}, "random"),
        ({"policies": []}, "polic"),
    ],
)
def test_bad_arguments_are_named(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        _simulate(**options)


def test_an_unknown_policy_of_a_result_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="random"):
        _simulate().regret("randm")
