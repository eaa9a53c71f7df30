"""Replays against traces that were worked out by hand, and against ``dispatch.simulate`` on the same jobs."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import queuewise as qw
from queuewise.replay import Drift, Log, parse_policy, read_log, read_rates, replay
from queuewise.replay.servers import time_for, work_by

DATA = Path(os.environ.get("QUEUEWISE_DATA") or Path(__file__).parents[3] / "shared" / "data")

#: Three jobs on servers of rates 1 and 2. SED sends them to 2, 1 (a tie), 2; round robin to 1, 2, 1; JSQ to 1, 2, 2.
THREE = Log(np.array([0.0, 1.0, 2.0]), np.array([4.0, 2.0, 2.0]))


def by_name(found) -> dict:
    return {standing.name: standing for standing in found.standings}


def test_three_jobs_by_hand() -> None:
    found = replay(THREE, [1, 2], policies=["sed", "round_robin", "jsq"], runs=2)
    ours = by_name(found)
    assert ours["sed"].delay.mean == pytest.approx((2 + 2 + 1) / 3)
    assert "brackets" not in found.table.note and "[" not in found.table.text()
    assert ours["jsq"].delay.mean == pytest.approx((4 + 1 + 1) / 3)
    assert ours["round_robin"].delay.mean == pytest.approx((4 + 1 + 4) / 3)
    assert [standing.name for standing in found.standings] == ["sed", "jsq", "round_robin"]
    # Up to the last arrival at 2: one job in the first second and two in the second one.
    assert ours["sed"].number.mean == pytest.approx(1.5)
    assert ours["round_robin"].excess.mean == pytest.approx(3 - 5 / 3)
    assert ours["sed"].wrong.mean == 0.0
    # Server 1 of rate 1 at an empty system, and later server 1 again with one job before it.
    assert ours["round_robin"].wrong.mean == 2.0
    assert ours["sed"].use == pytest.approx((0.5, 1.0))
    # Two mean jobs of work in two seconds, of which the servers can do six: 16/3 of 6.
    assert found.results["load"] == pytest.approx(8 / 9)
    assert ours["sed"].offered == pytest.approx((8 / 3 / 3 / 1, 2 / 3 * 8 / 3 / 2))


def test_rates_that_change_by_hand() -> None:
    # 4 units from time 0: two at rate 1, the rest at rate 2, done at 3, when the other job comes.
    drift = Drift(("a",), np.array([0.0, 2.0]), np.array([[1.0], [2.0]]), 2.0)
    log = Log(np.array([0.0, 3.0]), np.array([4.0, 1.0]))
    found = replay(log, drift=drift, policies=["sed"], runs=1)
    assert found.standings[0].delay.mean == pytest.approx((3 + 0.5) / 2)
    assert found.results["load"] == pytest.approx(2.5 / 4)
    # With rates given, the drift is about them: the first piece alone is the record's mean.
    doubled = replay(log, [2], drift=drift, policies=["sed"], runs=1)
    assert doubled.standings[0].delay.mean == pytest.approx((2 + 0.25) / 2)


def test_slots_by_hand() -> None:
    log = Log(np.array([0.0, 1.0, 2.0]), np.array([4.0, 4.0, 4.0]))
    found = replay(log, [1], slots=[2], policies=["jsq"], runs=1, allow_unstable=True)
    # The third begins when the first is done, at 4.
    assert found.standings[0].delay.mean == pytest.approx((4 + 4 + 6) / 3)


def test_speeds_from_a_log_give_back_the_recorded_durations() -> None:
    log = Log(
        np.array([0.0, 10.0, 20.0, 30.0]),
        np.array([1.0, 3.0, 1.0, 3.0]),
        servers=("quick", "slow", "quick", "slow"),
        durations=np.array([1.0, 3.0, 1.0, 3.0]),
    )
    found = replay(log, policies=["sed", "round_robin"], runs=1)
    assert found.servers.names == ("quick", "slow")
    assert [float(rate) for rate in found.servers.rates] == [2.0, 0.6667]
    # Every job is two units of work up to rounding of the speed to four digits: in turn, they take what they took.
    ours = by_name(found)
    assert ours["round_robin"].delay.mean == pytest.approx(2.0)
    assert ours["sed"].delay.mean == pytest.approx(1.0, rel=1e-3)
    assert "the work of a job is its duration times the speed" in " ".join(found.notes)


def test_speeds_from_sizes_and_durations() -> None:
    log = Log(
        np.array([0.0, 1.0, 9.0]),
        np.array([100.0, 300.0, 100.0]),
        servers=("a", "b", ""),
        durations=np.array([2.0, 2.0, 7.0]),
    )
    found = replay(log, policies=["sed"], runs=1)
    assert [float(rate) for rate in found.servers.rates] == [50.0, 150.0]
    assert replay(log, busiest=1, policies=["sed"], runs=1, allow_unstable=True).servers.names == ("a",)


def test_servers_whose_speed_is_hardly_known_are_named() -> None:
    jobs = 80
    names = (*("ab"[i % 2] for i in range(jobs - 1)), "rare")
    log = Log(np.arange(jobs) * 1.0, np.full(jobs, 0.5), servers=names, durations=np.full(jobs, 0.5))
    assert "hardly known: rare;" in " ".join(replay(log, policies=["jsq"], runs=1).notes)
    assert "hardly known" not in " ".join(replay(log, busiest=2, policies=["jsq"], runs=1).notes)


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_time_is_stretched_to_the_load(load: float) -> None:
    found = replay(THREE, [1, 2], load=load, policies=["jsq"], runs=1)
    assert found.log.span == pytest.approx(2 * 8 / 9 / load)
    assert found.results["load"] == load
    assert found.log.times[1] / found.log.span == pytest.approx(0.5)
    assert "to reach load" in " ".join(found.notes)


def test_time_is_stretched_to_the_load_of_drifting_rates() -> None:
    drift = Drift(("a", "b"), np.array([0.0, 1.0, 2.5]), np.array([[1.0, 1.0], [3.0, 2.0], [0.5, 0.5]]), 4.0)
    for fit in (False, True):
        found = replay(THREE, drift=drift, load=0.5, fit_rates=fit, policies=["jsq"], runs=1)
        assert found.results["load"] == 0.5
        assert work_by(found.servers, found.log.span) == pytest.approx(16 / 3 / 0.5)
    for work in (0.5, 2.0, 9.4, 20.0):
        assert work_by(found.servers, time_for(found.servers, work)) == pytest.approx(work)


def test_the_engine_is_that_of_simulate() -> None:
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.exponential(1.0, 3000))
    sizes = rng.lognormal(5.0, 1.0, 3000)
    found = replay(Log(times - times[0], sizes), [80, 200, 200], policies=["lased", "random"], runs=3, seed=7)
    mean = sizes.mean()
    system = qw.dispatch.System(
        service_rates=[80 / mean, 200 / mean, 200 / mean],
        arrivals=qw.dispatch.arrivals.recorded(times - times[0]),
        service=qw.dispatch.service.recorded_sizes(sizes / mean),
        initial_rates=[2999 / (times[-1] - times[0]) / 3] * 3,
    )
    same = qw.dispatch.simulate(system, ["random", "lased"], arrivals=3000, runs=3, seed=7)
    for name in ("lased", "random"):
        ours, theirs = by_name(found)[name].delay, same.mean_sojourn_time(name)
        assert (ours.mean, ours.sd) == pytest.approx((theirs.mean, theirs.sd), rel=1e-9, abs=1e-9)
    # Jobs are the same in all runs, so that rules without randomness are too.
    assert by_name(found)["lased"].delay.sd == pytest.approx(0.0, abs=1e-9)
    assert by_name(found)["random"].delay.sd > 0


def test_policies_do_not_depend_on_the_unit_of_size() -> None:
    rng = np.random.default_rng(4)
    times, sizes = np.cumsum(rng.exponential(1.0, 2000)), rng.exponential(1.0, 2000)
    few = ["lased", "greedy", "optimistic_sed", "dispatch_bandit"]
    found = [
        replay(Log(times - times[0], sizes * unit), [0.5 * unit, 1.0 * unit], policies=few, runs=1)
        for unit in (1.0, 1024.0)
    ]
    for name in few:
        one, other = (by_name(one)[name].delay.mean for one in found)
        assert one == pytest.approx(other)


def test_too_much_work_is_refused_by_how_much_and_replayed_on_request() -> None:
    with pytest.raises(
        ValueError, match=r"brings 2.67 units per second and the servers together do 2.00, 0.67 too lit"
    ):
        replay(THREE, [1, 1])
    found = replay(THREE, [1, 1], policies=["jsq"], runs=1, allow_unstable=True)
    assert found.results["load"] == pytest.approx(4 / 3)


def test_an_overflow_is_a_verdict_and_comes_last() -> None:
    log = Log(np.arange(40.0), np.ones(40))
    found = replay(log, ["0.2", 2], policies=["round_robin", "sed"], runs=2, most_in_system=5)
    assert [(s.name, s.verdict) for s in found.standings] == [("sed", "stable"), ("round_robin", "overflowed")]
    assert found.sentence.endswith("round_robin overflowed.")
    assert found.plot().axes
    lost = replay(log, ["0.2"], policies=["jsq"], runs=1, most_in_system=5, allow_unstable=True)
    assert lost.sentence == "jsq overflowed." and lost.plot().axes


def test_a_server_that_gets_too_much_is_named() -> None:
    log = Log(np.arange(200.0), np.ones(200))
    found = replay(log, ["0.2", 2], policies=["round_robin"], runs=1)
    assert found.standings[0].verdict == "overloads s1 (250 %)"


def test_the_sentence_says_what_would_have_happened() -> None:
    found = replay(THREE, [1, 2], policies=["jsq", "round_robin"], runs=1)
    assert found.sentence == (
        "With jsq the mean delay would have been 2.00 s, 20 % above that of the oracle; with round_robin, the slowest of "
        "those replayed, 3.00 s."
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "rates: give the servers' rates; the log does not say who served"),
        ({"rates": []}, "rates must have one rate for each server"),
        ({"rates": ["fast"]}, "rates must be numbers or fractions such as '1/3', not 'fast'"),
        ({"rates": [1, 0]}, "rates must be positive"),
        ({"rates": [1, 2], "slots": [1, 1, 1]}, "slots must have one number per server, 2"),
        ({"rates": [1, 2], "slots": [0]}, "slots must be a whole number of at least 1"),
        ({"rates": [1, 2], "busiest": 1}, "busiest must be left out with rates given"),
        ({"rates": [1, 2], "fit_rates": True}, "fit_rates must be left out"),
        ({"rates": [1, 2], "load": -1}, "load must be positive"),
        ({"rates": [1, 2], "load": 1.2}, "no policy can keep up"),
        ({"rates": [1, 2], "runs": 0}, "runs must be a whole number of at least 1"),
        ({"rates": [1, 2], "seed": -1}, "seed must be a whole number of at least 0"),
        ({"rates": [1, 2], "policies": ["sad"]}, "did you mean 'sed'"),
        ({"rates": [1, 2], "policies": ["jsq", "jsq"]}, "jsq"),
        ({"rates": [1, 2], "policies": []}, "polic"),
        ({"rates": [1, 2], "initial_rates": [1, 2, 3]}, "initial_rates must have one rate"),
        ({"rates": [1, 2], "most_in_system": 1}, "most_in_system must be"),
    ],
)
def test_bad_settings_are_one_sentence(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        replay(THREE, **options)


def test_policies_as_one_types_them() -> None:
    assert parse_policy("jsq").name == "jsq"
    policy = parse_policy("lased(ratio_bounds=(0.05, 20), name='mine')")
    assert policy.name == "mine" and "ratio_bounds" in policy.label
    for text, sentence in (
        ("lasd", "did you mean 'lased'"),
        ("lased(", "must be a rule's name"),
        ("lased(ratio_bounds=x)", "must be a rule's name"),
        ("__import__('os')", "no rule is called '__import__'"),
        ("a.b", "must be a rule's name"),
        ("power_of_d(choices=0)", "choices: must be"),
        ("jsq(3)", "policy: jsq"),
        ("lased(nothing=1)", "nothing"),
    ):
        with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
            replay(THREE, [1, 2], policies=[parse_policy(text)])


def test_files_are_written_and_a_rerun_gives_the_same(tmp_path: Path) -> None:
    found = replay(THREE, [1, 2], policies=["jsq", "random"], runs=2, out=tmp_path)
    assert {path.name for path in found.files} == {"figure.png", "figure.svg", "replay.json", "replay.md", "rows"}
    assert all(path.exists() for path in found.files)
    assert json.loads((tmp_path / "replay.json").read_text())["conclusion"] == found.sentence
    assert found.sentence in (tmp_path / "replay.md").read_text()
    assert qw.load(tmp_path / "rows").policies == ["jsq", "random"]
    again = replay(THREE, [1, 2], policies=["jsq", "random"], runs=2, out=tmp_path)
    assert again.results == found.results
    with pytest.raises(ValueError, match="seed"):
        replay(THREE, [1, 2], policies=["jsq", "random"], runs=2, out=tmp_path, seed=2)


# --- recorded data ---------------------------------------------------------------------------------------------------


def test_an_hour_of_conversations() -> None:
    path = DATA / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv.gz"
    if not path.is_file():
        pytest.skip("azure_llm_2023 is not in QUEUEWISE_DATA")
    found = replay(read_log(path), [300, 300, 900], load=0.8, policies=["sed", "optimistic_sed", "round_robin"], runs=1)
    ours = by_name(found)
    assert ours["sed"].excess.mean == 0.0 and ours["sed"].wrong.mean == 0.0
    assert ours["optimistic_sed"].delay.mean < 1.1 * ours["sed"].delay.mean
    assert ours["round_robin"].verdict.startswith("overloads s1") and ours["round_robin"].delay.mean > 100


def test_a_month_of_calls_on_its_own_agents() -> None:
    path = DATA / "technion_bank" / "calls_august_1999.csv.gz"
    if not path.is_file():
        pytest.skip("technion_bank is not in QUEUEWISE_DATA")
    found = replay(read_log(path, drop_bad=True), busiest=8, policies=["sed", "jsq", "round_robin"], runs=1)
    assert [standing.name for standing in found.standings] == ["sed", "jsq", "round_robin"]
    assert len(found.servers.names) == 8 and 0.2 < found.results["load"] < 0.3


def test_conversations_on_machines_that_drift() -> None:
    trace, speeds = (
        DATA / "azure_llm_2023" / "AzureLLMInferenceTrace_code.csv.gz",
        DATA / "azure_vm_noise" / "pg2500_c1_ro_tps_long.csv.gz",
    )
    if not (trace.is_file() and speeds.is_file()):
        pytest.skip("azure_llm_2023 or azure_vm_noise is not in QUEUEWISE_DATA")
    drift = read_rates(speeds, servers=["eastus/B8ms/vm00", "eastus/D8s_v5/vm00"])
    found = replay(read_log(trace), [40, 80], drift=drift, fit_rates=True, policies=["sed", "greedy"], runs=1)
    assert found.servers.drift is not None and found.servers.drift.span == pytest.approx(found.log.span)
    assert [float(rate) for rate in found.servers.rates] == [40.0, 80.0]
    assert found.standings[0].verdict == "stable"
