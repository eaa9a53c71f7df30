"""`simulate` and `trace` end to end: common randomness, the same numbers however they are made, nothing lost on disk."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise import streams
from queuewise.dispatch import arrivals, engine, policies, service
from queuewise.dispatch.policies import greedy, jsq, lased, random, sed
from queuewise.dispatch.policy import Policy
from queuewise.dispatch.result import Result
from queuewise.dispatch.simulate import simulate, trace
from queuewise.dispatch.systems import System, schedule
from queuewise.loading import load
from queuewise.runs.runner import Interrupted

SYSTEM = System(2.0, [1, 2])
NAMES = ["lased", "greedy", "random"]


def play(names: Any = NAMES, **options: Any) -> Result:
    return simulate(options.pop("system", SYSTEM), names, **{"arrivals": 300, "runs": 6, "seed": 4, **options})


def assert_same(a: Result, b: Result, names: list[str] | None = None, rows: Any = slice(None)) -> None:
    names = [*(a.policies if names is None else names), "oracle"]
    for key, column in a._columns.items():
        if key in ("arrivals", "time") or key.rsplit(".", 3)[0] in names or key.split(".")[0] in names:
            np.testing.assert_array_equal(column[rows], b._columns[key], err_msg=key)


# Common randomness


@pytest.mark.parametrize("sizes", ["job", "server"])
@pytest.mark.parametrize("name", ["lased", "greedy", "random", "sed"])
def test_trace_is_what_simulate_plays(name: str, sizes: Any) -> None:
    result = play(name, runs=2, sizes=sizes, first_run=3, checkpoints=range(1, 301))
    for run in range(2):
        jobs = trace(SYSTEM, name, 300, seed=4, run=3 + run, sizes=sizes)
        assert result.arrivals.tolist() == list(range(1, 301))
        np.testing.assert_array_equal(result.time[run], jobs.arrival)
        np.testing.assert_array_equal(result.regrets(name)[run], np.cumsum(jobs.cause >= 0))
        for code, cause in enumerate(("exploration", "misestimation", "overflow")):
            np.testing.assert_array_equal(result._columns[f"{name}.{cause}"][run], np.cumsum(jobs.cause == code))
        for server in range(2):
            np.testing.assert_array_equal(
                result._columns[f"{name}.served.{server}"][run], np.cumsum(jobs.server == server)
            )
        means = np.cumsum(jobs.departs - jobs.arrival) / np.arange(1, 301)
        np.testing.assert_allclose(result.sojourn_time[name][run], means, rtol=1e-12)
        if name != "lased":
            assert (jobs.reason == 0).all()


def test_workers_order_company_and_splits_change_no_number() -> None:
    whole = play(workers=1)
    assert_same(whole, play(workers=2))
    assert_same(whole, play(NAMES[::-1], workers=3))
    assert_same(play(["greedy"]), whole, ["greedy"])
    assert_same(whole, play([*NAMES, jsq().named("another")]))
    assert_same(whole, play(runs=2), rows=slice(0, 2))
    part = play(runs=4, first_run=2)
    assert_same(whole, part, rows=slice(2, 6))
    assert part.first_run == 2


@pytest.mark.parametrize("sizes", ["job", "server"])
@pytest.mark.parametrize(
    "system",
    [
        SYSTEM,
        System(4.2, [1, 2, 1], slots=[2, 1, 1], service=service.lognormal(2.0)),
        System(2.0, schedule([0, 40], [[2, 1], [1, 2]]), arrivals=arrivals.markov_modulated([1, 3], [5, 5])),
    ],
)
def test_chunks_change_no_number(system: System, sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = play(system=system, sizes=sizes, runs=2)
    jobs = trace(system, "lased", 300, sizes=sizes)
    monkeypatch.setattr(engine, "CHUNK", 7)
    monkeypatch.setattr(engine, "OWN_CHUNK", 13)
    assert_same(whole, play(system=system, sizes=sizes, runs=2))
    for a, b in zip(jobs[:1] + jobs[2:], trace(system, "lased", 300, sizes=sizes)[:1] + jobs[2:], strict=True):
        np.testing.assert_array_equal(a, b)


def test_more_arrivals_extend_what_was_there() -> None:
    short, long = (play(arrivals=count, checkpoints=[50, 150, 200]) for count in (200, 300))
    at = np.searchsorted(long.arrivals, [50, 150, 200])
    for name in NAMES:
        np.testing.assert_array_equal(
            long.regrets(name)[:, at], short.regrets(name)[:, np.searchsorted(short.arrivals, [50, 150, 200])]
        )


def test_interpreted_is_compiled() -> None:
    assert_same(play(runs=2), play(runs=2, compiled=False))
    for a, b in zip(trace(SYSTEM, "lased", 200), trace(SYSTEM, "lased", 200, compiled=False), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_name_is_a_stream_and_a_key() -> None:
    result = play(["random", random(name="again"), "sed", sed(name="mine", ties="highest")])
    assert result.policies == ["random", "again", "sed", "mine"]
    assert not np.array_equal(result.regrets("random"), result.regrets("again"))
    assert result.total_regret("sed")[:4] == (0, 0, 0, 0)
    assert result.total_regret("mine")[:4] == (0, 0, 0, 0)  # every tied server is optimal
    np.testing.assert_array_equal(result.sojourn_time["sed"], result.sojourn_time["oracle"])
    assert not np.array_equal(result.sojourn_time["mine"], result.sojourn_time["oracle"])


def test_beliefs_differ_by_run_and_are_shared_by_policies() -> None:
    system = System(2.0, [1, 2], initial_spread=10.0)
    result = play(["greedy", greedy(name="other"), "lased"], system=system, checkpoints=[1], arrivals=40)
    first = result.estimates["greedy"][:, 0]
    assert len(np.unique(first[:, 0])) == 6
    np.testing.assert_array_equal(first, result.estimates["other"][:, 0])
    np.testing.assert_array_equal(first, result.estimates["lased"][:, 0])
    for run in range(6):
        drawn = system.beliefs(streams.generator(4, run, streams.INSTANCE))
        assert first[run] == pytest.approx(drawn)
        assert (np.abs(np.log(drawn / [1, 2])) <= math.log(10.0)).all()
    assert (play("greedy", checkpoints=[1]).estimates["greedy"][:, 0] == 1.0).all()


def test_sizes_of_servers_are_coupled_by_server() -> None:
    """The k-th job of a server needs the same work under every policy; with sizes of jobs the k-th job of all does."""
    own = [trace(SYSTEM, name, 400, sizes="server") for name in ("random", "jsq")]
    for server, rate in enumerate((1.0, 2.0)):
        times = [(jobs.departs - jobs.began)[jobs.server == server] * rate for jobs in own]
        common = min(map(len, times))
        assert common > 100
        np.testing.assert_allclose(times[0][:common], times[1][:common], rtol=1e-9)
    assert not np.array_equal(own[0].server, own[1].server)
    shared = [trace(SYSTEM, name, 400) for name in ("random", "jsq")]
    np.testing.assert_array_equal(shared[0].size, shared[1].size)
    for jobs in shared:
        rates = np.array([1.0, 2.0])[jobs.server]
        np.testing.assert_allclose((jobs.departs - jobs.began) * rates, jobs.size, rtol=1e-9)


def test_own_sizes_are_said_to_be_the_work_of_the_job() -> None:
    jobs = trace(SYSTEM, "random", 200, sizes="server")
    work = (jobs.departs - jobs.began) * np.array([1.0, 2.0])[jobs.server]
    np.testing.assert_allclose(jobs.size, work, rtol=1e-9)


def test_large_seeds() -> None:
    big = play("random", seed=2**70, runs=1)
    assert big.seed == 2**70
    assert not np.array_equal(big.time, play("random", seed=2**70 + 1, runs=1).time)
    np.testing.assert_array_equal(big.time, play("random", seed=2**70, runs=1).time)


# Recorded, unstable, small and extreme


def test_a_recorded_trace_ends_a_run_early() -> None:
    times = np.cumsum(np.random.default_rng(0).exponential(0.6, 120))
    system = System(service_rates=[1, 2], arrivals=times)
    result = play(system=system, arrivals=10**9, warm_up=0.1)
    assert result.arrivals[-1] == 120
    assert result.warm_up == 12
    np.testing.assert_array_equal(result.time[:, -1], np.full(6, times[-1]))
    np.testing.assert_array_equal(trace(system, "greedy", 10**9).arrival, times)
    assert play(system=system, arrivals=50).arrivals[-1] == 50


def test_recorded_sizes_are_the_same_in_every_run() -> None:
    times, sizes = np.arange(60) / 2, np.random.default_rng(0).exponential(1.0, 60)
    system = System(service_rates=[1, 2], arrivals=times, service=sizes)
    result = play(["jsq", "random"], system=system)
    assert len(np.unique(result.sojourn_time["jsq"][:, -1])) == 1
    assert len(np.unique(result.sojourn_time["random"][:, -1])) > 1
    np.testing.assert_array_equal(trace(system, "jsq").size, sizes)
    with pytest.raises(ValueError, match="sizes must be 'job' with recorded sizes, which belong to the jobs"):
        play(system=system, sizes="server")
    with pytest.raises(ValueError, match="service: 5 recorded sizes are too few for 300 arrivals"):
        play(system=System(1.0, [1, 2], service=[1.0] * 5))


def test_equal_times_are_served_in_the_order_given() -> None:
    system = System(service_rates=[1, 1], arrivals=[0, 0, 0, 0, 10], service=[1.0, 2.0, 3.0, 4.0, 1.0])
    jobs = trace(system, "jsq")
    assert jobs.server.tolist() == [0, 1, 0, 1, 0]
    assert jobs.began.tolist() == [0, 0, 1, 2, 10]
    assert jobs.departs.tolist() == [1, 2, 4, 6, 11]
    np.testing.assert_allclose(play("jsq", system=system).number_in_system["jsq"][:, -1], (1 + 2 + 4 + 6) / 10)


def test_an_unstable_policy_is_stopped_and_harms_no_other(tmp_path: Path) -> None:
    system = System(1.0, ["1/10", 3], most_in_system=30)
    result = play(["random", "jsq", "sed"], system=system, arrivals=2000, quantiles=[0.5], folder=tmp_path)
    alone = play(["jsq"], system=system, arrivals=2000, quantiles=[0.5])
    assert_same(result, alone, ["jsq"])
    assert result.verdict["random"] == ["unstable"] * 6
    assert result.verdict["jsq"] == result.verdict["sed"] == result.verdict["oracle"] == ["stable"] * 6
    for run in range(6):
        gone = np.isnan(result.regret("random").mean) if run == 0 else np.isnan(result.regrets("random")[run])
        assert gone[-1]
        assert not gone[0]
        assert (np.diff(gone.astype(int)) >= 0).all()
    assert np.isfinite(result.time).all()
    assert np.isnan(result.quantile("random", 0.5).mean)
    assert np.isnan(result.mean_sojourn_time("random").mean)
    assert result.rank()[-1].name == "random"
    assert result.compare("random", "jsq").smaller is None
    loaded = load(tmp_path)
    assert loaded.verdict == result.verdict
    assert_same(result, loaded)
    with pytest.warns(RuntimeWarning, match="ends there as unstable"):
        jobs = trace(system, "random", 2000, seed=4)
    assert len(jobs.server) < 2000


def test_an_unstable_system() -> None:
    system = System(6.0, [1, 2], allow_unstable=True, most_in_system=40)
    result = play(system=system, arrivals=500)
    assert {verdict for found in result.verdict.values() for verdict in found} == {"unstable"}
    assert np.isfinite(result.regrets("greedy")[:, 0]).all()
    assert np.isnan(result.regrets("greedy")[:, -1]).all()
    result.plot()


def test_verdicts_of_runs_of_which_some_are_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CHUNK", 7)  # some chunks of an unstable run are whole
    system = System(2.4, [1, 2], most_in_system=11)
    result = play("jsq", system=system, arrivals=150, runs=12, quantiles=[0.5])
    assert {"stable", "unstable"} == set(result.verdict["jsq"])
    for verdict, end, median in zip(
        result.verdict["jsq"], result.regrets("jsq")[:, -1], result._columns["jsq.quantile.0.5"][:, -1], strict=True
    ):
        assert np.isnan(end) == np.isnan(median) == (verdict == "unstable")


def test_one_server_one_arrival_and_many_servers() -> None:
    assert play(["jsq", "lased", "greedy"], system=System(0.5, [1])).total_regret("lased").mean == 0.0
    one = play(arrivals=1, runs=1)
    assert one.arrivals.tolist() == [1]
    assert one.mean_number_in_system("greedy").mean == 0.0
    assert one.mean_sojourn_time("greedy").mean > 0.0
    many = play(["jsq"], system=System(20.0, [1] * 65), arrivals=100)
    with pytest.raises(ValueError, match="utilisation: not kept of each server for more than 64 servers"):
        many.utilisation("jsq")
    assert many.number_in_system["jsq"].shape == many.time.shape


def test_units_of_time_change_no_decision() -> None:
    """Up to the ends of what floats can hold; powers of two change not one bit of a mantissa."""
    for scale in (2.0**-900, 2.0**900):
        system = System(2.0 * scale, [scale, 2.0 * scale], initial_rates=[scale, scale])
        found = play(["greedy", "random"], system=system)
        base = play(["greedy", "random"])
        for name in ("greedy", "random"):
            np.testing.assert_array_equal(found.regrets(name), base.regrets(name))
            np.testing.assert_allclose(found.sojourn_time[name] * scale, base.sojourn_time[name], rtol=1e-12)


# On disk


def count_plays(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The runs that are drawn from here on, warming up apart."""
    played: set[int] = set()
    original = engine.flows

    def counted(system: Any, count: int, seed: int, run: int, *chunk: int) -> Any:
        if count > 1:
            played.add(run)
        return original(system, count, seed, run, *chunk)

    monkeypatch.setattr(engine, "flows", counted)
    return played


def test_a_rerun_reads_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = play(quantiles=[0.9])
    assert_same(whole, play(quantiles=[0.9], folder=tmp_path))
    played = count_plays(monkeypatch)
    assert_same(whole, play(quantiles=[0.9], folder=tmp_path))
    assert played == set()
    (tmp_path / "runs" / "000003.parquet").unlink()
    cut = tmp_path / "runs" / "000005.parquet"
    cut.write_bytes(cut.read_bytes()[:-30])
    assert_same(whole, play(quantiles=[0.9], folder=tmp_path, workers=2))
    assert played == {3, 5}
    longer = play(quantiles=[0.9], folder=tmp_path, runs=8)
    assert played == {3, 5, 6, 7}
    assert_same(load(tmp_path), longer)


@pytest.mark.parametrize("workers", [1, 2])
def test_control_c_keeps_what_is_done(tmp_path: Path, workers: int) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=r"interrupted after \d+ of 200 runs; they are in .*, and the same") as caught:
        play(runs=200, folder=tmp_path, workers=workers, progress=interrupt)
    done = caught.value.done
    assert 4 <= done < 40
    assert_same(caught.value.result, play(runs=done))
    assert_same(play(runs=20, folder=tmp_path), play(runs=20))


@pytest.mark.parametrize("workers", [1, 2])
def test_control_c_ends_a_long_run_at_once(workers: int) -> None:
    play("jsq")  # compiled
    timer = threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT))
    begun = time.monotonic()
    timer.start()
    with pytest.raises(Interrupted, match=r"interrupted after 0 of 1 runs$") as caught:
        play("jsq", arrivals=10**10, runs=1, workers=workers, checkpoints=[1])
    assert time.monotonic() - begun < 5.0
    assert caught.value.result is None


def test_saved_results_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(runs=3).save(tmp_path)
    played = count_plays(monkeypatch)
    assert_same(play(folder=tmp_path), play(workers=1))
    assert {3, 4, 5} <= played


def test_another_experiment_in_the_folder(tmp_path: Path) -> None:
    play(folder=tmp_path, runs=2)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for options, sentence in [
        ({"seed": 5}, "seed is 4 there, 5 here"),
        ({"arrivals": 301}, "arrivals is 300 there, 301 here"),
        ({"sizes": "server"}, "sizes is 'job' there, 'server' here"),
        ({"depth": 4.0}, "depth is 5.0 there, 4.0 here"),
        ({"quantiles": [0.5]}, r"quantiles is \[\] there, \[0.5\] here"),
        ({"warm_up": 10}, "warm_up is 0 there, 10 here"),
        ({"system": System(2.1, [1, 2])}, "system.arrival_rate is 2.0 there, 2.1 here"),
        ({"system": System(2.0, [1, 2], most_in_system=99)}, "system.most_in_system is 1000000 there, 99 here"),
        ({"names": ["lased", "random"]}, "policies.greedy is there but not here"),
        ({"names": [lased(scale=2.0), "greedy", "random"]}, "policies.lased.options.scale is 1.0 there, 2.0 here"),
    ]:
        with pytest.raises(ValueError, match="holds another experiment.*" + sentence):
            play(folder=tmp_path, runs=2, **options)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == kept


def first_server(params: Any, state: Any, seen: Any, stream: Any) -> tuple[int, int]:
    return 0, 0


def second_server(params: Any, state: Any, seen: Any, stream: Any) -> tuple[int, int]:
    return 1, 0


def test_an_edited_rule_of_the_users_is_another_experiment(tmp_path: Path) -> None:
    mine = Policy("mine", first_server)
    play(mine, folder=tmp_path, runs=2)
    play(dataclasses.replace(mine), folder=tmp_path, runs=2)
    with pytest.raises(ValueError, match=r"policies\.mine was edited since"):
        play(dataclasses.replace(mine, decide=second_server), folder=tmp_path, runs=2)
    with pytest.raises(ValueError, match=r"policies\.lased.* was edited since"):
        for factor in (2.0, 3.0):
            play(lased(threshold=lambda k, f=factor: f * k), folder=tmp_path / "lased", runs=1, compiled=False)


def test_nothing_is_written_for_options_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lased: scale: must be a number at least 0 and at most"):
        play(lased(scale=-1.0), folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_odd_names_survive_the_disk(tmp_path: Path) -> None:
    names = ["a/b", "a.served", "../../x", " ", "ü✓", "line\nbreak", "x" * 300, "oracle.area"]
    result = play([jsq(name=name) for name in names], folder=tmp_path, runs=2, quantiles=[0.5])
    found = load(tmp_path)
    assert found.policies == names
    for name in names:
        np.testing.assert_array_equal(found.regrets(name), result.regrets("a/b"))
        np.testing.assert_array_equal(found.sojourn_time[name], result.sojourn_time["a/b"])


# What is refused


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"arrivals": 0}, "arrivals must be a whole number of at least 1, not 0"),
    ({"arrivals": 2.5}, r"arrivals must be a whole number of at least 1, not 2\.5"),
    ({"runs": 0}, "runs must be a whole number of at least 1, not 0"),
    ({"runs": True}, "runs must be a whole number"),
    ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
    ({"seed": None}, "seed must be a whole number of at least 0, not None"),
    ({"first_run": -1}, "first_run must be a whole number of at least 0, not -1"),
    ({"workers": 0}, "workers must be a whole number of at least 1, not 0"),
    ({"sizes": "jobs"}, "sizes must be one of 'job', 'server', not 'jobs'"),
    ({"depth": 0}, "depth must be positive, not 0"),
    ({"depth": math.nan}, "depth must be finite, not nan"),
    ({"warm_up": 300}, "warm_up must be less than the 300 arrivals of a run, not 300"),
    ({"warm_up": 1.0}, "warm_up must be a whole number"),
    ({"warm_up": -0.1}, "warm_up must be a whole number"),
    ({"warm_up": math.nan}, "warm_up must be a whole number"),
    ({"checkpoints": [0]}, "checkpoints must be a whole number of at least 1, not 0"),
    ({"checkpoints": [301]}, "checkpoints must be at most the 300 arrivals of a run, not 301"),
    ({"quantiles": [0.0]}, r"quantiles must lie strictly between 0 and 1, not 0\.0"),
    ({"quantiles": [1]}, "quantiles must lie strictly between 0 and 1, not 1"),
    ({"quantiles": [math.nan]}, "quantiles must lie strictly between 0 and 1, not nan"),
    ({"system": "wise"}, r"system must be a dispatch\.System, not 'wise'"),
    ({"folder": ""}, "folder must be a path, not an empty text"),
    ({"names": []}, "policies must name at least one policy"),
    ({"names": ["lasedd"]}, "policy: no rule is called 'lasedd'; did you mean 'lased'?"),
    ({"names": ["random", "random"]}, "policies: two are called 'random'; give one of them another name with"),
    ({"names": [jsq(name="run")]}, "policies: a policy cannot be called 'run', the rows on disk have a column"),
    ({"names": [jsq(name="round")]}, "policies: a policy cannot be called 'round'"),
    ({"names": [jsq(name="time")]}, "policies: a policy cannot be called 'time'"),
    ({"names": [jsq(name="arrivals")]}, "policies: a policy cannot be called 'arrivals'"),
    ({"names": [jsq(name="oracle")]}, "policies: 'oracle' is the name of the system that regret is measured against"),
    ({"names": "oracle"}, "policy: no rule is called 'oracle'"),
    ({"names": [lased(ratio_bounds=(2, 3))]}, r"lased: ratio_bounds: must lie on both sides of 1, not \(2, 3\)"),
    ({"names": [lased(rate_bounds=(1, 1))]}, "rate_bounds: must be two numbers with 0 < lower < upper"),
    ({"names": [lased(quota=0)]}, "quota: must be a whole number of at least 1, not 0"),
    ({"names": [lased(order="x")]}, r"order: must be one of \['blocks', 'round_robin'\], not 'x'"),
    ({"names": [lased(initial_rates=[1])]}, r"initial_rates: must be one rate per server, 2, not \[1\]"),
    ({"names": [jsq(ties="first")]}, r"jsq: ties: must be one of .* not 'first'"),
    ({"names": [policies.make("sed_ratio", ratio=0)]}, "sed_ratio: ratio must be positive, not 0"),
    ({"names": [policies.make("sed_ratio", ratio=-2)]}, "sed_ratio: ratio must be positive, not -2"),
    ({"names": [policies.make("sed_ratio", ratio=math.nan)]}, "sed_ratio: ratio must be finite, not nan"),
    ({"names": ["esed"]}, "esed: rates: esed needs a fixed estimate of every server's rate"),
    ({"names": [policies.make("esed", rates=[1, 0])]}, "esed: rates must be positive, not 0"),
    ({"names": [policies.make("power_of_d", choices=3)]}, "choices: must be at most the number of servers 2, not 3"),
    ({"names": [policies.make("weighted_random", weights=[1, -1])]}, "weighted_random: weights must be positive, not -1"),
    ({"names": ["sed_ratio"], "system": System(1.0, [1, 1, 1])}, "sed_ratio is a rule for 2 servers, not 3"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_refusals(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        play(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: lased(treshold=3), "treshold: no such parameter of 'lased'; did you mean 'threshold'?"),
        (lambda: policies.make("jsq", speed=3), "speed: no such parameter of 'jsq'; known: ties"),
        (
            lambda: lased(threshold=lambda k: -1.0),
            r"threshold: must be finite and at least 0, but it is -1\.0 at episode 1",
        ),
        (lambda: lased(threshold=lambda k: 5.0 - k), r"threshold: .* it is -1\.0 at episode 6"),
        (lambda: lased(threshold=lambda k: math.nan), "threshold: must be finite and at least 0, but it is nan"),
        (lambda: lased(threshold=lambda k: 1 / 0), r"threshold: .* it raised ZeroDivisionError"),
        (lambda: lased(threshold=3), "threshold: must be a function of the episode, not 3"),
        (lambda: jsq().named(""), "name: a policy needs a non-empty name, not ''"),
        (lambda: Policy("", first_server), "rule: a policy needs a non-empty name, not ''"),
        (lambda: Policy("mine", 3), "decide: the policy 'mine' needs a function, not 3"),
        (lambda: trace(SYSTEM, "jsq", 0), "arrivals must be a whole number of at least 1, not 0"),
        (lambda: trace(SYSTEM, "jsq", 5, sizes="x"), "sizes must be one of 'job', 'server', not 'x'"),
        (lambda: trace(SYSTEM, "lasedd", 5), "did you mean 'lased'?"),
    ],
)
def test_refusals_of_the_others(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        make()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda folder: trace(SYSTEM, "jsq", 5, seed=-1), "seed"),
        (lambda folder: trace(SYSTEM, "jsq", 5, seed="a"), "seed"),
        (lambda folder: trace(SYSTEM, "jsq", 5, run=-1), "run"),
        (lambda folder: trace("x", "jsq", 5), "system"),
        (lambda folder: trace(System(1.0, [2], service=[1.0] * 9), "jsq", 5, sizes="server"), "belong to the jobs"),
        (lambda folder: play(5), "polic"),
        (lambda folder: play(jsq), "polic"),
        (lambda folder: play(checkpoints=5), "checkpoints"),
        (lambda folder: play(quantiles=0.5), "quantiles"),
        (lambda folder: play(depth=1e300), "depth"),
        (lambda folder: play(first_run=2**31, runs=1, folder=folder), "first_run"),
        (lambda folder: play(jsq(ties=["lowest"])), "ties"),
        (lambda folder: play(lased(initial_rates=1)), "initial_rates"),
        (lambda folder: play(lased(ratio_bounds=("a", "b"))), "ratio_bounds"),
        (lambda folder: play(policies.make("esed", rates=1)), "rates"),
        (lambda folder: play(jsq(name="\ud800")), "name"),
    ],
)
def test_refusals_that_want_a_sentence(make: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path)


def test_runs_stop_at_a_half_width() -> None:
    system = System(arrival_rate=9.0, service_rates=[5, 10])
    result = simulate(system, ["jsq", "random"], arrivals=2000, runs=200, seed=3, half_width=25.0)
    assert 10 <= result.runs < 200
    assert all(result.total_regret(name).half_width <= 25.0 for name in result.policies)
    before = simulate(system, ["jsq", "random"], arrivals=2000, runs=10, seed=3)
    if result.runs > 10:
        assert any(before.total_regret(name).half_width > 25.0 for name in before.policies)
    with pytest.raises(ValueError, match=r"^half_width must be positive, not 0$"):
        simulate(system, ["jsq"], arrivals=100, runs=2, half_width=0)
