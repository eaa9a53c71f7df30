"""The numbers of a result, kept whole or as moments, before and after the disk."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.loading import load
from queuewise.runs.result import ARRIVAL, ORACLE, TRACE, Result, Rows, Summed, stack
from queuewise.runs.statistics import difference, interval, simultaneous_level
from queuewise.runs.store import Columns

ROUNDS, RUNS = 24, 40
NAMES = ["wise", "cqb_opt", "random"]
WINDOWS = [(1, ROUNDS), (19, ROUNDS)]


def settings(names: list[str] = NAMES) -> dict[str, Any]:
    policies = [{"name": name, "rule": name, "options": {}, "label": f"{name}()"} for name in names]
    return {"rounds": ROUNDS, "seed": 3, "system": {"law": "x"}, "policies": policies, "version": "9"}


def run(number: int) -> Columns:
    rng = np.random.default_rng(number)
    common = rng.integers(0, 20, ROUNDS)
    found = {ORACLE: common}
    found |= {name: common + rng.integers(0, 4 + place, ROUNDS) for place, name in enumerate(NAMES)}
    return {name: column.astype(np.int32) for name, column in found.items()}


@pytest.fixture
def whole() -> Result:
    return Result(settings(), Rows(stack([run(number) for number in range(RUNS)])))


@pytest.fixture
def summed() -> Result:
    kept = Summed(NAMES, ROUNDS, WINDOWS)
    for number in range(RUNS):
        kept.add(run(number))
    return Result(settings(), kept)


def test_attributes(whole: Result) -> None:
    assert whole.policies == NAMES
    assert (whole.rounds, whole.runs, whole.seed, whole.version, whole.first_run) == (ROUNDS, RUNS, 3, "9", 0)
    assert list(whole.queue_length) == NAMES
    assert whole.queue_length["wise"].shape == (RUNS, ROUNDS)
    assert whole.oracle_queue_length.dtype == np.int32
    assert repr(whole) == "Result(wise, cqb_opt, random: 40 runs of 24 rounds, seed 3)"
    assert whole.label("wise") == "wise()"
    assert whole.label("oracle") == "oracle"


def test_estimates_are_those_of_the_rows(whole: Result) -> None:
    regret = {name: whole.queue_length[name] - whole.oracle_queue_length for name in NAMES}
    curve = whole.regret("wise", 0.9)
    assert curve.rounds.tolist() == list(range(1, ROUNDS + 1))
    assert (curve.mean[4], curve.low[4], curve.high[4], curve.sd[4], curve.runs) == pytest.approx(
        interval(regret["wise"][:, 4], 0.9)
    )
    assert whole.mean_regret("wise") == pytest.approx(interval(regret["wise"].mean(axis=1)))
    assert whole.mean_regret("wise", (3, 5), 0.5) == pytest.approx(interval(regret["wise"][:, 2:5].mean(axis=1), 0.5))
    found = whole.compare("wise", "random", rounds=(19, 24))
    expected = difference(
        regret["wise"][:, 18:].mean(axis=1), regret["random"][:, 18:].mean(axis=1), ("wise", "random")
    )
    assert found[:5] == pytest.approx(expected[:5])
    assert found[5:] == ("wise", "random")
    assert whole.compare("random", "wise").mean == pytest.approx(-whole.compare("wise", "random").mean)
    np.testing.assert_allclose(
        whole.difference("wise", "random").mean, (regret["wise"] - regret["random"]).mean(axis=0)
    )
    np.testing.assert_allclose(whole.mean_queue_length("oracle").mean, whole.oracle_queue_length.mean(axis=0))
    assert whole.compare("wise", "wise")[:4] == (0, 0, 0, 0)


def test_rank(whole: Result) -> None:
    places = whole.rank()
    assert [place.name for place in places] == sorted(NAMES, key=lambda name: whole.mean_regret(name).mean)
    assert places[0].behind is None
    for place in places[1:]:
        assert place.regret == whole.mean_regret(place.name)
        assert place.behind == whole.compare(place.name, places[0].name, level=simultaneous_level(0.95, 3))
        assert place.behind.smaller == places[0].name


def test_moments_say_what_the_rows_say(whole: Result, summed: Result) -> None:
    assert summed.runs == RUNS
    everything = [*NAMES, ORACLE]
    for name in everything:
        for found, expected in zip(summed.regret(name)[:5], whole.regret(name)[:5], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(summed.mean_queue_length(name).sd, whole.mean_queue_length(name).sd, rtol=1e-12)
    for a, b in itertools.product(everything, repeat=2):
        np.testing.assert_allclose(summed.difference(a, b).low, whole.difference(a, b).low, rtol=1e-11, atol=1e-12)
        for rounds in (None, *WINDOWS, (7, 7)):
            found, expected = summed.compare(a, b, rounds), whole.compare(a, b, rounds)
            assert found[:5] == pytest.approx(expected[:5], rel=1e-11, abs=1e-12)
            assert found[5:] == (a, b)
    assert summed.mean_regret("wise", (19, 24)) == pytest.approx(whole.mean_regret("wise", (19, 24)), rel=1e-11)
    assert [place.name for place in summed.rank()] == [place.name for place in whole.rank()]


def test_moments_have_the_memory_of_no_run() -> None:
    kept = Summed(NAMES, ROUNDS, WINDOWS)
    kept.add(run(0))
    sizes = {key: value.nbytes for key, value in vars(kept).items() if isinstance(value, np.ndarray)}
    for number in range(1, 50):
        kept.add(run(number))
    assert {key: value.nbytes for key, value in vars(kept).items() if isinstance(value, np.ndarray)} == sizes


def test_save_and_load(whole: Result, tmp_path: Path) -> None:
    whole.save(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] == ["000000-000039.parquet"]
    found = load(tmp_path / "out")
    assert found.settings == whole.settings
    assert found.runs == RUNS
    np.testing.assert_array_equal(found.oracle_queue_length, whole.oracle_queue_length)
    for name in NAMES:
        np.testing.assert_array_equal(found.queue_length[name], whole.queue_length[name])
        assert found.queue_length[name].dtype == np.int32
        for a, b in zip(found.regret(name), whole.regret(name), strict=True):
            np.testing.assert_array_equal(a, b)


def test_saving_again_adds_what_is_missing(tmp_path: Path) -> None:
    def part(first: int, last: int) -> Result:
        return Result(settings(), Rows(stack([run(number) for number in range(first, last)])), first)

    part(3, 6).save(tmp_path)
    assert load(tmp_path).first_run == 3
    part(0, 10).save(tmp_path)
    part(4, 5).save(tmp_path)  # fewer: nothing is lost
    names = [path.name for path in sorted((tmp_path / "runs").iterdir())]
    assert names == ["000000-000002.parquet", "000003-000005.parquet", "000006-000009.parquet"]
    found = load(tmp_path)
    assert (found.first_run, found.runs) == (0, 10)
    np.testing.assert_array_equal(found.queue_length["wise"], part(0, 10).queue_length["wise"])


def test_moments_save_and_load(summed: Result, tmp_path: Path) -> None:
    summed.save(tmp_path)
    found = load(tmp_path)
    assert found.runs == RUNS
    for a, b in zip(found.regret("wise"), summed.regret("wise"), strict=True):
        np.testing.assert_array_equal(a, b)
    assert found.compare("wise", "random", (19, 24)) == summed.compare("wise", "random", (19, 24))
    (tmp_path / "moments.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(ValueError, match=r"moments\.npz is damaged"):
        load(tmp_path)


def test_nothing_is_unpickled(tmp_path: Path, summed: Result) -> None:
    summed.save(tmp_path)
    np.savez(tmp_path / "moments.npz", names=np.array([print], dtype=object))
    with pytest.raises(ValueError, match=r"moments\.npz is damaged"):
        load(tmp_path)


def test_load_takes_runs_up_to_a_gap(whole: Result, tmp_path: Path) -> None:
    whole.save(tmp_path)
    (tmp_path / "runs" / "000000-000039.parquet").rename(tmp_path / "runs" / "keep")
    small = Result(settings(), Rows(stack([run(number) for number in range(4)])))
    small.save(tmp_path)
    Result(settings(), Rows(stack([run(number) for number in (6, 7)])), 6).save(tmp_path)
    with pytest.warns(UserWarning, match="run 4 is missing in .*, so 2 later ones are left out"):
        assert load(tmp_path).runs == 4


def test_load_of_nothing_and_of_damage(whole: Result, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no results"):
        load(tmp_path)
    whole.save(tmp_path)
    path = next((tmp_path / "runs").iterdir())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"run 0 in .* is damaged; run the same simulation again"):
        load(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="no run is finished"):
        load(tmp_path)


def test_one_run(tmp_path: Path) -> None:
    result = Result(settings(), Rows(stack([run(0)])))
    assert result.mean_regret("wise").high == np.inf
    assert result.compare("wise", "random").smaller is None
    assert np.isnan(result.regret("wise").sd).all()
    assert [place.name for place in result.rank()]


def test_bad_input(whole: Result, summed: Result) -> None:
    for result in (whole, summed):
        with pytest.raises(ValueError, match="none called 'wize'; did you mean 'wise'"):
            result.regret("wize")
        with pytest.raises(ValueError, match="none called 'xyz'; it has 'wise', 'cqb_opt', 'random'"):
            result.compare("wise", "xyz")
        for rounds in [(0, 3), (5, 4), (1, ROUNDS + 1), (1, 2, 3), 7, (1.5, 3), "ab", (1, float("inf"))]:
            with pytest.raises(ValueError, match=r"rounds must be a pair \(first, last\) of rounds with 1 <= first"):
                result.mean_regret("wise", rounds)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
            result.regret("wise", 95)
    with pytest.raises(ValueError, match="none called 'wize'; did you mean 'wise'"):
        whole.queue_length["wize"]
    with pytest.raises(ValueError, match="trace: decisions were not written down; simulate with trace=True"):
        _ = whole.trace
    with pytest.raises(ValueError, match="sojourn_time: decisions were not written down"):
        _ = whole.sojourn_time
    with pytest.raises(ValueError, match=r"queue_length: the runs themselves were not kept"):
        _ = summed.queue_length
    with pytest.raises(ValueError, match=r"averages over \(2, 5\) were not kept, only over \(1, 24\), \(19, 24\)"):
        summed.mean_regret("wise", (2, 5))
    assert "wize" not in whole.queue_length
    assert whole.queue_length.get("wize") is None


def test_sojourn_times_by_hand(tmp_path: Path) -> None:
    # Jobs arrive at the end of rounds 1, 2 and 4; job 1 is served in round 3, job 0 in round 5, job 2 never.
    arrival = np.array([1, 1, 0, 1, 0, 0], dtype=bool)
    columns: Columns = {"oracle": np.array([0, 1, 2, 1, 2, 1], np.int32)}
    columns["wise"] = columns["oracle"]
    traces: Columns = {ARRIVAL: arrival}
    for name in ("wise", "oracle"):
        traces |= {f"{name}.{key}": np.zeros(6, kind) for key, kind in TRACE.items()}
        traces[f"{name}.job"] = np.array([-1, 0, 1, 0, 0, 2], np.int32)
        traces[f"{name}.departure"] = np.array([0, 0, 1, 0, 1, 0], bool)
    short = settings(["wise"]) | {"rounds": 6}
    result = Result(short, Rows(stack([columns | traces])))
    for found in (result, (result.save(tmp_path), load(tmp_path))[1]):
        for name in ("wise", "oracle"):
            np.testing.assert_array_equal(found.sojourn_time[name][0], [4.0, 1.0, np.nan])
        assert found.trace["wise"].job.tolist() == [[-1, 0, 1, 0, 0, 2]]
        assert found.trace["oracle"].gap.dtype == np.float64
        with pytest.raises(ValueError, match="none called 'wize'"):
            found.trace["wize"]
