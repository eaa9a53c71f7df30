"""From a router to a recording to a replay: what is derived against what was true, and what cannot be right is said."""

import json
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from queuewise.cli import app
from queuewise.live.router import Ended
from queuewise.live.service.recording import METADATA, Recorder, settings_of
from queuewise.replay import parse_policy, read_recording, read_traffic, replay
from queuewise.replay.recordings import first_come, service_times
from tests.live.virtual import (
    Backend,
    LeastConnections,
    Played,
    Random,
    RoundRobin,
    Routed,
    TrueSed,
    arrivals,
    play,
    steady,
)
from tests.naive.recording import busy_time, first_come_service_times
from tests.pages import DOCS, typed_in

WALL = 1_700_000_000_000_000_000


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as stopped:
        app(arguments)
    return int(stopped.value.code or 0)


def record(
    folder: Path,
    requests: Iterable[tuple[float, float, str, str]],
    servers: dict[str, int] | None = None,
    group: str = "chat",
    work: Iterable[float] | None = None,
    keys: Iterable[str] | None = None,
) -> Path:
    """A recording of (issued, ended, server, end)."""
    rows = list(requests)
    slots = dict.fromkeys(sorted({row[2] for row in rows}), 1) if servers is None else servers
    settings = {"policy": "by hand", "work": "requests", "servers": {s: {"slots": c} for s, c in slots.items()}}
    recorder = Recorder(folder, lambda: {group: settings}, clock=lambda: 0.0, wall=lambda: WALL)
    sizes = [1.0] * len(rows) if work is None else list(work)
    classes = [None] * len(rows) if keys is None else list(keys)
    for number, (row, size, key) in enumerate(zip(rows, sizes, classes, strict=True)):
        issued, ended, server, end = row
        recorder.note(group, Ended(number, server, "exploit", key, size, issued, ended, end, None))
    recorder.flush()
    return folder


def queue(times: np.ndarray, took: np.ndarray, slots: int) -> list[tuple[float, float]]:
    """(issued, ended) of a server that is first come, first served."""
    return list(zip(times.tolist(), (times + first_come(times, took, slots)).tolist(), strict=True))


# --- the circle --------------------------------------------------------------------------------------------------------


def routed(
    folder: Path, backends: list[Backend], rate: float, count: int, seed: int
) -> tuple[Played, np.ndarray, np.ndarray]:
    """A router in virtual time, recorded: what became of every job, arrivals, sizes."""
    rng = np.random.default_rng(seed)
    times, sizes = arrivals(rate, count, rng), rng.exponential(size=count)
    rule = Routed(backends, seed)
    recorder = Recorder(
        folder,
        lambda: {"chat": settings_of(rule.router)},
        part_rows=count // 3,
        clock=lambda: rule.now,
        wall=lambda: WALL,
    )
    rule.router.listen(partial(recorder.note, "chat"))
    played = play(rule, backends, times, sizes, seed)
    recorder.flush()
    return played, times, sizes


def test_service_times_and_rates_are_found_again(tmp_path: Path) -> None:
    backends = [steady(4.0), steady(1.5, 3), steady(2.0, 2)]
    played, times, sizes = routed(tmp_path, backends, 9.0, 12_000, 2)
    log = read_recording(tmp_path)
    assert log.recorded is not None
    assert log.recorded.slots == {"s0": 1, "s1": 3, "s2": 2} and log.recorded.policy == "optimistic_sed"
    rates = np.array([backend.rate(0.0) for backend in backends])
    true = sizes / rates[played.server]
    assert log.servers == tuple(f"s{i}" for i in played.server)
    assert np.abs(log.times - (times - times[0])).max() < 2e-6
    assert (log.recorded.delays > log.durations + 1e-6).mean() > 0.2  # many had to wait
    assert np.abs(log.durations - true).max() < 2e-6
    assert np.abs(log.recorded.delays - played.sojourn).max() < 2e-6
    for i, rate in enumerate(rates):
        # A rate's standard error is rate/√n: exponential service.
        assert abs(log.recorded.rates[f"s{i}"] / rate - 1.0) < 4.5 / np.sqrt((played.server == i).sum())
    # Work is time times rate, so it is right up to the error of the rate and of times in microseconds.
    learned = np.array([log.recorded.rates[f"s{i}"] for i in range(3)])[played.server]
    assert log.sizes == pytest.approx(sizes * learned / rates[played.server], rel=1e-6, abs=1e-5)
    assert any("the same choices, replayed, have the same" in note for note in log.notes)
    assert not any("another time" in note or "before their turn" in note for note in log.notes)


def test_the_replay_ranks_policies_as_the_direct_simulation_does(tmp_path: Path) -> None:
    backends = [steady(4.0), steady(3.0), steady(2.0)]
    played, times, sizes = routed(tmp_path, backends, 5.6, 12_000, 4)
    direct = {
        "sed": TrueSed,
        "jsq": LeastConnections,
        "round_robin": RoundRobin,
        "random": Random,
    }
    means = {name: play(rule(backends, 1), backends, times, sizes, 1).mean() for name, rule in direct.items()}
    assert list(means) == sorted(means, key=lambda name: means[name])
    policies = [parse_policy("sed(ties='random')"), parse_policy("jsq(ties='random')"), "round_robin", "random"]
    found = replay(read_recording(tmp_path), policies=policies, runs=4)
    ours = {standing.name: standing.delay.mean for standing in found.standings}
    assert list(ours) == list(means)
    for name in (
        "sed",
        "jsq",
    ):  # the others keep the slowest server so busy that its rate's error makes a great difference
        assert ours[name] == pytest.approx(means[name], rel=0.06)
    recorded, choices = found.results["recorded"]
    assert recorded["mean_delay"] == pytest.approx(played.mean(), abs=1e-6)
    assert choices["mean_delay"] == pytest.approx(recorded["mean_delay"], rel=1e-6)
    table = found.table.text(140)
    assert "as recorded (optimistic_sed)" in table and "the same choices" in table
    assert "which the replay of the recorded choices meets" in found.sentence
    # In order of mean delay with the policies, and with the use that each server had.
    where = [row[0] for row in found.table.rows]
    assert where.index("as recorded (optimistic_sed)") < where.index("round_robin")
    busy = [float((sizes / 4.0)[played.server == 0].sum()) / times[-1]]
    assert recorded["use"][0] == pytest.approx(busy[0], rel=1e-2)
    assert recorded["mean_number_in_system"] == pytest.approx(played.mean() * 5.6, rel=0.03)  # Little


def test_a_replay_on_other_servers_has_no_recorded_row(tmp_path: Path) -> None:
    routed(tmp_path, [steady(4.0), steady(3.0)], 4.0, 600, 4)
    log = read_recording(tmp_path)
    for options in ({"rates": [5, 5, 5]}, {"load": 0.5}, {"busiest": 1, "allow_unstable": True}):
        found = replay(log, policies=["jsq"], runs=1, **options)
        assert found.results["recorded"] == [] and "recorded" not in found.sentence
        assert any(line.startswith("check: recorded under optimistic_sed") for line in found.notes)


# --- service times -----------------------------------------------------------------------------------------------------


def test_first_come_first_served_is_found_exactly() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        n, slots = int(rng.integers(1, 25)), int(rng.integers(1, 4))
        issued = np.sort(rng.integers(0, 40, n))
        took = rng.integers(1, 12, n)
        ended = (issued + first_come(issued.astype(float), took.astype(float), slots)).astype(np.int64)
        found = service_times(issued, ended, np.ones(n, bool), [(0, slots)])
        assert (found.took == took).all() and not found.overtook.any()
        assert (found.waited == (ended - took > issued)).all()
        assert found.took.tolist() == first_come_service_times(issued.tolist(), ended.tolist(), slots)


def test_service_times_add_up_to_the_busy_time_in_whatever_order_requests_return() -> None:
    rng = np.random.default_rng(2)
    overtaken = 0
    for _ in range(500):
        n, slots = int(rng.integers(1, 15)), int(rng.integers(1, 4))
        issued = np.sort(rng.integers(0, 30, n))
        ended = issued + rng.integers(1, 20, n)
        served = rng.random(n) < 0.7
        found = service_times(issued, ended, served, [(0, slots)])
        assert found.took.sum() == busy_time(issued.tolist(), ended.tolist(), slots)
        assert (found.took >= 0).all() and (found.took <= ended - issued).all()
        assert not found.overtook[~served].any()
        overtaken += int(found.overtook.sum())
    assert overtaken > 100


@pytest.mark.parametrize(
    ("issued", "ended", "served", "slots", "took"),
    [
        # One slot: the second begins when the first is over.
        ([0, 1], [5, 9], [1, 1], [(0, 1)], [5, 4]),
        # The second gives up while it waits: the third begins when the first is over all the same.
        ([0, 1, 2], [5, 4, 9], [1, 0, 1], [(0, 1)], [5, 0, 4]),
        # The second fails in service, and has held the slot until then.
        ([0, 1, 2], [5, 7, 9], [1, 0, 1], [(0, 1)], [5, 2, 2]),
        # The second is served before its turn: it had the slot since it came.
        ([0, 2], [9, 5], [1, 1], [(0, 1)], [6, 3]),
        # The third is served before the second, which had the slot from 4 on, and the third then: both wait for nothing else.
        ([0, 1, 2], [4, 9, 6], [1, 1, 1], [(0, 1)], [4, 3, 2]),
        # The third is served before its turn: it had the slot of the second, which began last, since it came.
        ([0, 1, 2], [9, 8, 5], [1, 1, 1], [(0, 2)], [9, 4, 3]),
        # Two slots more from 3 on: both that wait begin.
        ([0, 0, 0], [5, 9, 8], [1, 1, 1], [(0, 1), (3, 3)], [5, 6, 5]),
        # A second slot from 3 on: the second begins then.
        ([0, 1], [5, 9], [1, 1], [(0, 1), (3, 2)], [5, 6]),
        # One slot less from 2 on: both that are in service go on, the third waits for both.
        ([0, 0, 3], [5, 8, 9], [1, 1, 1], [(0, 2), (2, 1)], [5, 8, 1]),
        # One leaves in the moment in which the other comes.
        ([0, 5], [5, 6], [1, 1], [(0, 1)], [5, 1]),
    ],
)
def test_service_times_by_hand(
    issued: list[int], ended: list[int], served: list[int], slots: list[tuple[int, int]], took: list[int]
) -> None:
    found = service_times(np.array(issued), np.array(ended), np.array(served, bool), slots)
    assert found.took.tolist() == took


# --- what is left out, and what does not fit ------------------------------------------------------------------------------


def test_ends_by_hand(tmp_path: Path) -> None:
    requests = [
        (0.0, 2.0, "a", "done"),
        (1.0, 3.0, "a", "error"),  # in service from 2 on
        (1.5, 1.75, "a", "refused"),  # holds nothing
        (2.0, 5.0, "a", "done"),  # from 3 on
        (4.0, 6.0, "a", "cancelled"),  # from 5 on: a second of work at least
        (4.5, 5.5, "a", "timeout"),  # never began
        (5.0, 90.0, "a", "lost"),
        (6.0, 90.0, "a", "expired"),
        (7.0, 7.0, "a", "done"),
        (8.0, 11.0, "a", "done"),
        (12.0, 12.5, "a", "refused"),
        (12.25, 13.25, "a", "done"),
        (8.0, 9.0, "b", "error"),
        (8.5, 9.5, "b", "timeout"),
    ]
    log = read_recording(record(tmp_path, requests))
    assert log.times.tolist() == [0.0, 2.0, 4.0, 8.0, 12.25]
    assert log.durations is not None and log.durations.tolist() == [2.0, 2.0, 1.0, 3.0, 1.0]
    # Four completed in nine seconds of service; the failed one's second counts for nothing.
    assert log.recorded is not None and log.recorded.rates == {"a": 0.4444}
    assert log.sizes == pytest.approx(0.4444 * log.durations)
    assert log.recorded.delays.tolist() == [2.0, 3.0, 2.0, 3.0, 1.0]
    # Without the failed one before it, the second begins at once.
    assert log.recorded.choices.tolist() == [2.0, 2.0, 1.0, 3.0, 1.0]
    assert log.left_out == {
        "failed": 4,
        "lost or expired, of which nobody knows when they were over": 2,
        "at servers that completed nothing": 1,
        "given up before their service began": 1,
        "over when they were issued": 1,
    }
    notes = " ".join(log.notes)
    assert "1 timed out or were cancelled in service" in notes
    assert "mean delay of 2.2 s; the same choices, replayed, have 1.8 s, 18 % less" in notes
    found = replay(log, policies=["jsq"], runs=1)
    assert "misses by -18 %" in found.sentence
    # Up to the last arrival.
    assert found.results["recorded"][0]["mean_number_in_system"] == pytest.approx(10.0 / 12.25)
    assert found.results["recorded"][1]["mean_number_in_system"] == pytest.approx(8.0 / 12.25)


def test_columns_choose_what_is_replayed_and_not_who_was_served(tmp_path: Path) -> None:
    requests = [(0.0, 2.0, "a", "done"), (1.0, 5.0, "a", "done"), (2.0, 6.0, "a", "done")]
    record(tmp_path, requests, keys=["x", "y", "x"])
    log = read_recording(tmp_path, where={"key": "x"})
    assert log.durations is not None and log.durations.tolist() == [2.0, 1.0]
    assert log.left_out == {"without key=x": 1}
    together = "the classes x, y are replayed together, with one rate per server"
    assert together not in " ".join(log.notes) and together in " ".join(read_recording(tmp_path).notes)
    assert len(read_recording(tmp_path, jobs=2)) == 2


def test_parts_with_times_in_nanoseconds_are_read_too(tmp_path: Path) -> None:
    """As they were written at first."""
    (part,) = record(tmp_path, [(0.0, 0.25, "a", "done"), (1.0, 1.5, "a", "done")]).iterdir()
    table = pq.read_table(part)
    for name in ("issued", "ended"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(pa.timestamp("ns", "UTC")))
    pq.write_table(table, part)
    log = read_recording(tmp_path)
    assert log.times.tolist() == [0.0, 1.0] and log.durations.tolist() == [0.25, 0.5]


def test_a_rate_of_one_is_a_rate_like_any_other(tmp_path: Path) -> None:
    log = read_recording(record(tmp_path, [(0.0, 1.0, "a", "done"), (2.0, 3.0, "a", "done"), (4.0, 5.0, "a", "done")]))
    found = replay(log, policies=["jsq"], runs=1)
    assert found.log.unit == "requests" and [float(rate) for rate in found.servers.rates] == [1.0]


def test_sizes_as_they_were_recorded(tmp_path: Path) -> None:
    requests = [(0.0, 2.0, "a", "done"), (3.0, 5.0, "a", "done"), (6.0, 8.0, "a", "cancelled")]
    log = read_recording(record(tmp_path, requests, work=[3.0, 9.0, 5.0]), size="work")
    assert log.sizes.tolist() == [3.0, 9.0]
    # Twelve in six seconds, of which the one that was given up had two.
    assert log.recorded is not None and log.recorded.rates == {"a": 2.0}
    assert log.recorded.choices.tolist() == [1.5, 4.5]
    assert log.left_out == {"given up, whose work was not done": 1}


def test_a_slot_too_few_is_noticed_and_can_be_mended(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    times, took = np.cumsum(rng.exponential(1.0, 2000)), rng.exponential(2.5, 2000)
    record(tmp_path, [(*pair, "a", "done") for pair in queue(times, took, 4)], {"a": 1})
    notes = " ".join(read_recording(tmp_path).notes)
    assert "requests that had to wait took another time in service" in notes and "a (0." in notes
    assert "came back before their turn" in notes
    log = read_recording(tmp_path, slots=[4])
    assert log.durations == pytest.approx(took, abs=2e-6)
    assert len(log.notes) == 3 and log.notes[-1].endswith("the same")


def test_a_shared_processor_is_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    n = 3000
    times, sizes = np.cumsum(rng.exponential(1.0, n)), rng.lognormal(-0.5 * np.log(5.0), np.sqrt(np.log(5.0)), n) * 0.7
    # All that are there are served at equal shares.
    left, ended, now, coming = {}, np.zeros(n), 0.0, 0
    while coming < n or left:
        until = times[coming] if coming < n else np.inf
        first = min(left, key=left.__getitem__) if left else -1
        departs = now + left[first] * len(left) if left else np.inf
        step = (min(until, departs) - now) / max(1, len(left))
        left = {job: work - step for job, work in left.items()}
        now = min(until, departs)
        if departs <= until:
            del left[first]
            ended[first] = now
        else:
            left[coming] = sizes[coming]
            coming += 1
    log = read_recording(
        record(tmp_path, [(float(a), float(b), "a", "done") for a, b in zip(times, ended, strict=True)])
    )
    notes = " ".join(log.notes)
    assert "came back before their turn" in notes
    assert log.durations is not None and log.durations.sum() == pytest.approx(sizes.sum(), rel=1e-6)
    assert log.recorded is not None
    off = log.recorded.choices.mean() / log.recorded.delays.mean() - 1.0
    assert abs(off) > 0.05 and f"{100.0 * abs(off):.2g} %" in notes


def test_a_server_that_became_slow_is_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    times = np.cumsum(rng.exponential(1.0, 1000))
    took = rng.exponential(0.2, 1000) * np.where(np.arange(1000) < 500, 1.0, 3.0)
    steadily = rng.exponential(0.2, 1000)
    rows = [(*pair, "a", "done") for pair in queue(times, took, 1)]
    rows += [(*pair, "b", "done") for pair in queue(times, steadily, 1)]
    (said,) = [note for note in read_recording(record(tmp_path, rows)).notes if "second half" in note]
    assert 2.4 < float(said.split("which it was: a (")[1].split(")")[0]) < 3.6 and "b (" not in said


def test_slots_that_change_count_from_then_on(tmp_path: Path) -> None:
    now, slots = [0.0], [1]
    recorder = Recorder(
        tmp_path,
        lambda: {"chat": {"policy": "jsq", "work": "requests", "servers": {"a": {"slots": slots[0]}}}},
        clock=lambda: now[0],
        wall=lambda: WALL,
    )

    def note(number: int, issued: float, ended: float) -> None:
        recorder.note("chat", Ended(number, "a", "exploit", None, 1.0, issued, ended, "done", None))

    note(1, 0.0, 5.0)
    now[0] = 10.0
    recorder.flush()
    slots[0] = 2
    note(2, 11.0, 15.0)
    note(3, 12.0, 15.5)
    now[0] = 20.0
    recorder.flush()
    log = read_recording(tmp_path)
    assert log.durations is not None and log.durations.tolist() == [5.0, 4.0, 3.5]
    assert log.recorded is not None and log.recorded.slots == {"a": 2}
    assert any("slots changed in the recording, the replay has the last ones: a" in note for note in log.notes)


def test_two_processes_and_what_they_lost_are_said(tmp_path: Path) -> None:
    for shift in (0.0, 100.0):
        recorder = Recorder(tmp_path, dict, part_rows=1, most_rows=2, clock=lambda: 0.0, wall=lambda: WALL)
        for k in range(5):
            recorder.note("chat", Ended(k, "a", "exploit", None, 1.0, shift + k, shift + k + 0.5, "done", None))
        recorder.flush()
    notes = " ".join(read_recording(tmp_path).notes)
    assert "6 requests are missing" in notes and "recorded by 2 processes" in notes
    assert "taken to have one slot, since the recording does not say: a" in notes
    assert read_recording(tmp_path).times.tolist() == [0.0, 1.0, 100.0, 101.0]


# --- the command, and bad input ---------------------------------------------------------------------------------------------


ROWS = [(0.0, 1.0, "a", "done"), (0.5, 2.0, "a", "done"), (1.0, 3.0, "b", "done"), (4.0, 4.5, "b", "done")]
FEW = ["--policy", "jsq", "--runs", "1"]


def test_the_command_replays_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "r", ROWS, {"a": 1, "b": 1})
    assert run(["replay", str(tmp_path / "r"), *FEW]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "as recorded (by hand)" in said and "the same choices" in said
    assert "assumed: the work of a request is the time that it was in service at the server that served it" in said
    (part,) = (tmp_path / "r").iterdir()
    assert run(["replay", str(part), *FEW, "--slots", "2,1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [server["slots"] for server in found["servers"]] == [2, 1]
    assert found["recorded"][0]["label"] == "as recorded (by hand)"
    assert found["log"]["source"] == f"{part.name}, group chat"
    assert run(["replay", str(tmp_path / "r"), *FEW, "--rates", "1,1,1", "--slots", "1,1,2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [server["slots"] for server in found["servers"]] == [1, 1, 2] and found["recorded"] == []
    record(tmp_path / "r", ROWS, group="embed")
    assert run(["replay", str(tmp_path / "r"), *FEW, "--group", "embed", "--busiest", "1", "--allow-unstable"]) == 0


def test_a_folder_is_found_among_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "recorded here", ROWS)
    monkeypatch.setenv("QUEUEWISE_DATA", str(tmp_path))
    assert len(read_traffic("recorded here")) == 4


def _no_recording(folder: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), folder / "x.parquet")


def _newer(folder: Path) -> None:
    _altered(folder, format=99, version="7.0")


def _bad_metadata(folder: Path) -> None:
    _altered(folder, groups={"chat": {"servers": {"a": {"slots": 0}}}})


def _altered(folder: Path, **said: object) -> None:
    (part,) = record(folder, ROWS).iterdir()
    table = pq.read_table(part)
    old = json.loads(table.schema.metadata[METADATA])
    pq.write_table(table.replace_schema_metadata({METADATA: json.dumps(old | said).encode()}), part)


def _without_a_column(folder: Path) -> None:
    (part,) = record(folder, ROWS).iterdir()
    table = pq.read_table(part)
    pq.write_table(table.drop_columns(["work"]), part)


def _cut(folder: Path) -> None:
    (part,) = record(folder, ROWS).iterdir()
    part.write_bytes(part.read_bytes()[:-40])


def _flipped(folder: Path) -> None:
    """Bytes of the first column's pages."""
    (part,) = record(folder, ROWS * 40).iterdir()
    content = bytearray(part.read_bytes())
    at = pq.read_metadata(part).row_group(0).column(0).data_page_offset
    content[at + 20 : at + 30] = bytes(10)
    part.write_bytes(bytes(content))


def _twice(folder: Path) -> None:
    (part,) = record(folder, ROWS).iterdir()
    (folder / "copy.parquet").write_bytes(part.read_bytes())


def _failed(folder: Path) -> None:
    record(folder, [(0.0, 1.0, "a", "error"), (1.0, 2.0, "a", "error")])


def _one(folder: Path) -> None:
    record(folder, [(0.0, 1.0, "a", "done"), (1.0, 2.0, "a", "error")])


def _two_groups(folder: Path) -> None:
    record(folder, ROWS)
    record(folder, ROWS, group="embed")


def _good(folder: Path) -> None:
    record(folder, ROWS)


def _empty(folder: Path) -> None:
    folder.mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("make", "arguments", "sentence"),
    [
        (_empty, [], "holds no recording"),
        (_no_recording, [], "is no recording of queuewise serve"),
        (_newer, [], "is of format 99, written by version 7.0; this version reads up to format 1"),
        (_bad_metadata, [], "is damaged (its metadata or columns"),
        (_without_a_column, [], "is damaged (its metadata or columns"),
        (_cut, [], "cannot be read, or is damaged"),
        (_flipped, [], "cannot be read, or is damaged"),
        (_twice, [], "is the same part of the recording as"),
        (_failed, [], "nothing of its 2 requests was completed"),
        (_one, [], "1 requests that were completed are left"),
        (_two_groups, [], "has the groups chat, embed; name one (--group)"),
        (_two_groups, ["--group", "chta"], "group: there is none called 'chta'; did you mean 'chat'?"),
        (_good, ["--time", "issued"], "time: must be left out with a recording"),
        (_good, ["--sort"], "sort: must be left out with a recording"),
        (_good, ["--size", "tokens"], "size must be"),
        (_good, ["--where", "kay=1"], "where: there is no column of texts 'kay'; did you mean 'key'?"),
        (_good, ["--slots", "1,1,1"], "slots must have one number for each of the 2 servers of the recording (a, b)"),
        (_good, ["--slots", "0"], "slots must be"),
        (_good, ["--jobs", "1"], "jobs must be"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: object, arguments: list[str], sentence: str
) -> None:
    make(tmp_path)  # type: ignore[operator]
    assert run(["replay", str(tmp_path), *FEW, *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1 and "Traceback" not in said


def test_a_group_of_a_csv_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.csv").write_text("time\n1\n2\n")
    assert run(["replay", str(tmp_path / "log.csv"), "--group", "chat"]) == 2
    assert "group: must be left out with a CSV file" in capsys.readouterr().err


def test_what_is_no_parquet_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.parquet").write_text("time\n1\n2\n")
    for name in ("log.parquet", "nowhere.parquet"):
        assert run(["replay", str(tmp_path / name)]) == 2
        assert "cannot be read" in capsys.readouterr().err


def test_reading_needs_nothing_that_only_the_service_needs() -> None:
    code = "import sys, queuewise.replay; print(sorted({'aiohttp', 'pydantic', 'starlette', 'uvicorn'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    _, _, compared = typed_in((DOCS / "replay.md").read_text(encoding="utf-8"), tmp_path)
    assert compared == 1
