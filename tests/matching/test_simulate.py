"""Many runs: what changes no result, what must hold on every path, and the authors' published numbers."""

import os
from pathlib import Path

import numpy as np
import pytest

import queuewise as qw
from queuewise import matching
from queuewise.matching.simulate import draw
from queuewise.runs.runner import Interrupted

from .test_systems import TABLE

SYSTEM = matching.System([0.35] * 3, TABLE)


def same(a: matching.Result, b: matching.Result) -> bool:
    return all((getattr(a, name) == getattr(b, name)).all() for name in ("slots", "queue", "independent", "common"))


def test_public_names() -> None:
    assert qw.matching is matching
    assert "matching" in dir(qw)


def test_workers_restarts_and_compilation_change_nothing(tmp_path: Path) -> None:
    options = {"slots": 700, "runs": 4, "seed": 3, "conflict": "random", "exploration": 0.5}
    whole = matching.simulate(SYSTEM, workers=1, **options)
    assert same(whole, matching.simulate(SYSTEM, workers=3, **options))
    assert same(whole, matching.simulate(SYSTEM, compiled=False, workers=1, **options))
    matching.simulate(SYSTEM, folder=tmp_path, **{**options, "runs": 2})
    written = (tmp_path / "runs" / "000000.parquet").read_bytes()
    assert same(whole, matching.simulate(SYSTEM, folder=tmp_path, **options))
    assert (tmp_path / "runs" / "000000.parquet").read_bytes() == written
    with pytest.raises(ValueError, match=r"holds another experiment.*matching"):
        matching.simulate(SYSTEM, folder=tmp_path, matching="greedy", **options)
    other = matching.simulate(SYSTEM, **{**options, "seed": 4})
    assert not same(whole, other)


def test_what_one_choice_draws_does_not_depend_on_the_others() -> None:
    a = draw(SYSTEM, 50, 1, 2, start="arrival_first", conflict="first")._asdict()
    b = draw(SYSTEM, 50, 1, 2, start="service_first", conflict="random")._asdict()
    for name in a.keys() - {"start", "tickets"}:
        np.testing.assert_array_equal(a[name], b[name])
    uniforms = np.concatenate(
        [a[name].ravel() for name in ("arrival", "service", "own_arrival", "own_service", "coin")]
    )
    assert len(set(uniforms)) == len(uniforms)  # no stream is another one's


def test_interruption_keeps_what_is_done() -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        matching.simulate(SYSTEM, slots=50, runs=5, workers=1, progress=stop)
    assert caught.value.result.runs == caught.value.done == 2


def test_checkpoints() -> None:
    result = matching.simulate(SYSTEM, slots=2500, runs=1)
    assert len(result.slots) == 1001 and result.slots[0] == 0 and result.slots[-1] == 2500
    some = matching.simulate(SYSTEM, slots=2500, runs=1, checkpoints=[2500, 250, 5])
    assert some.slots.tolist() == [5, 250, 2500]
    # A run of its own length whatever is written down.
    np.testing.assert_array_equal(some.queue[0, 1:], result.queue[0, [np.searchsorted(result.slots, 250), -1]])


@pytest.fixture(scope="module")
def many() -> matching.Result:
    return matching.simulate(SYSTEM, slots=3000, runs=1500, seed=1, checkpoints=[0, 50, 300, 600, 800, 1500, 3000])


def test_common_randomness_keeps_the_mean_and_takes_variance_away(many: matching.Result) -> None:
    independent, common = many.regrets("independent"), many.regrets("common")
    assert common.min() >= 0.0  # the optimal matching serves whenever any server would have
    assert (independent[:, 0] == 0.0).all() and (common[:, 0] == 0.0).all()
    difference = (independent - common)[:, 1:]
    z = difference.mean(axis=0) / (difference.std(axis=0, ddof=1) / np.sqrt(many.runs))
    assert np.abs(z).max() < 4.0
    # Least in the middle, where Q-UCB's own spread is nearly all there is.
    assert (common[:, [1, -1]].var(axis=0) < 0.75 * independent[:, [1, -1]].var(axis=0)).all()
    with pytest.raises(ValueError, match="randomness"):
        many.regrets("paired")


def test_comparison_systems_stay_stationary(many: matching.Result) -> None:
    law = matching.stationary(0.35, 0.5)
    mean, sd = law @ np.arange(len(law)), np.sqrt(law @ np.arange(len(law)) ** 2 - (law @ np.arange(len(law))) ** 2)
    for queue in (many.independent, many.common):
        z = (queue.mean(axis=0) - mean) / (sd / np.sqrt(many.runs))
        assert np.abs(z).max() < 4.5
        empty = (queue == 0).mean(axis=0)
        assert np.abs(empty - law[0]).max() < 4.5 * np.sqrt(law[0] * (1 - law[0]) / many.runs)


@pytest.mark.parametrize("start", ["arrival_first", "service_first"])
def test_exploring_regret_is_what_runs_have(start: str) -> None:
    result = matching.simulate(SYSTEM, slots=300, runs=3000, seed=2, start=start, checkpoints=[3, 20, 100, 300])
    mean, sd = (table[result.slots] for table in matching.exploring_regret(SYSTEM, 300, start))
    regrets = result.regrets()
    assert np.abs((regrets.mean(axis=0) - mean) / (sd / np.sqrt(result.runs))).max() < 4.0
    assert np.abs(regrets.std(axis=0) / sd - 1.0).max() < 0.08


def test_regret_rises_and_decays(many: matching.Result) -> None:
    mean = many.regrets("common").mean(axis=0)
    assert (np.diff(mean[:5, 2]) > 0).all() and (mean[4] > 10.0).all() and (mean[-1] < 3.0).all()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"slots": 0}, "slots"),
        ({"runs": 0}, "runs"),
        ({"seed": -1}, "seed"),
        ({"matching": "weight"}, "matching"),
        ({"conflict": "last"}, "conflict"),
        ({"start": "empty"}, "start"),
        ({"exploration": -1.0}, "exploration"),
        ({"checkpoints": [11]}, "checkpoints"),
        ({"checkpoints": []}, "checkpoints"),
        ({"workers": 0}, "workers"),
    ],
)
def test_refuses_what_is_out_of_range(options: dict, field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}"):
        matching.simulate(SYSTEM, **{"slots": 10, "runs": 2, **options})


def test_published_numbers() -> None:
    data = Path(os.environ.get("QUEUEWISE_DATA") or Path(__file__).parents[3] / "shared" / "data")
    path = data / "qucb_reference" / "qucb_queue_regret.csv"
    if not path.exists():
        pytest.skip("qucb_reference is not in QUEUEWISE_DATA")
    table = np.loadtxt(path, delimiter=",", skiprows=1)

    def largest_z(times: list[int], runs: int, exploration: float) -> float:
        rows = table[np.isin(table[:, 0], times)]
        result = matching.simulate(
            SYSTEM,
            slots=times[-1],
            runs=runs,
            seed=1,
            start="service_first",
            checkpoints=times,
            exploration=exploration,
        )
        regrets = result.regrets()
        error = np.sqrt(regrets.var(axis=0, ddof=1) / runs + rows[:, 4:] ** 2 / 1000)
        return float((np.abs(regrets.mean(axis=0) - rows[:, 1:4]) / error).max())

    assert largest_z([50, 500, 800, 1200, 1600, 2000, 4000, 10_000], 1000, 3.0) < 4.0
    assert largest_z([800, 1200, 1600], 500, 2.7) > 6.0  # a tenth less exploration is seen at once
