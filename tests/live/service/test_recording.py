"""Decisions on disk: nothing is written twice or in part, and a disk that takes nothing stops nobody."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from queuewise.live import Router
from queuewise.live.router import Ended, Server
from queuewise.live.service import recording
from queuewise.live.service.recording import COLUMNS, FORMAT, METADATA, Recorder, settings_of

SETTINGS = {
    "chat": {"policy": "jsq", "override": None, "work": "requests", "servers": {"a": {"slots": 2, "rate": None}}}
}


def ended(number: int, at: float = 0.0, server: str = "a", key: str | None = None, instead: str | None = None) -> Ended:
    return Ended(number, server, "exploit", key, 1.5, at, at + 0.25, "done", instead)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def rows(folder: Path) -> list[dict]:
    """Of all parts, in order of number, times in nanoseconds; every file in the folder must be one."""
    found = []
    for part in parts(folder):
        table = pq.read_table(part)
        assert len(table.to_pylist()) == table.num_rows  # pyarrow alone makes Python's datetimes of them
        for name in ("issued", "ended"):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, table.column(name).cast(pa.timestamp("ns", "UTC")).cast(pa.int64()))
        found += table.to_pylist()
    return sorted(found, key=lambda row: (row["group"], row["number"]))


def said(part: Path) -> dict:
    return json.loads(pq.read_schema(part).metadata[METADATA])


class Clock:
    """A router's clock and the wall's, set by hand."""

    def __init__(self) -> None:
        self.now, self.wall = 100.0, 1_700_000_000_000_000_000

    def __call__(self) -> float:
        return self.now


def test_what_is_noted_comes_back(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path / "new" / "er", lambda: SETTINGS, clock=clock, wall=lambda: clock.wall)
    clock.wall += 3_600_000_000_000  # somebody sets the clock: distances must not change
    recorder.note("chat", ended(7, 100.5, key="long", instead="b"))
    recorder.note("chat", ended(8, 101.0, server="b\udc80"))
    assert recorder.pending == 2
    assert recorder.flush() == 2
    assert (recorder.pending, recorder.written, recorder.lost) == (0, 2, 0)
    (part,) = parts(tmp_path / "new" / "er")
    table = pq.read_table(part)
    assert table.schema.names == list(COLUMNS)
    assert table.schema.field("issued").type == pa.timestamp("us", "UTC")
    assert pa.types.is_dictionary(table.schema.field("why").type)
    assert pq.ParquetFile(part).metadata.row_group(0).column(0).compression == "ZSTD"
    first, second = rows(part.parent)
    assert first["issued"] == 1_700_000_000_500_000_000
    assert first["ended"] == 1_700_000_000_750_000_000
    assert {name: first[name] for name in ("number", "group", "server", "why", "key", "work", "end", "instead")} == {
        "number": 7,
        "group": "chat",
        "server": "a",
        "why": "exploit",
        "key": "long",
        "work": 1.5,
        "end": "done",
        "instead": "b",
    }
    assert second["key"] is None and second["instead"] is None and second["server"] == "b?"
    told = said(part)
    assert told["format"] == FORMAT and told["lost"] == 0 and told["part"] == 1
    assert told["groups"]["chat"]["servers"] == {"a": {"slots": 2, "rate": None}}


def test_nothing_noted_is_no_part(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, lambda: SETTINGS)
    assert recorder.flush() == 0 and parts(tmp_path) == []


def test_a_part_is_due_by_time_or_by_rows(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, lambda: SETTINGS, flush_seconds=30.0, part_rows=3, clock=clock)
    recorder.note("chat", ended(1))
    assert not recorder.due()
    clock.now += 30.0
    assert recorder.due()
    recorder.flush()
    assert not recorder.due()
    for number in range(3):
        recorder.note("chat", ended(number))
    assert recorder.due()


def test_processes_and_groups_share_a_folder(tmp_path: Path) -> None:
    both = [Recorder(tmp_path, lambda: SETTINGS, part_rows=10) for _ in range(2)]
    for number in range(25):
        both[0].note("chat", ended(number))
        both[1].note("embed", ended(number))
    assert [recorder.flush() for recorder in both] == [25, 25]
    both[0].note("chat", ended(25))
    both[0].flush()
    assert [pq.read_metadata(part).num_rows <= 10 for part in parts(tmp_path)] == [True] * 7
    assert [row["number"] for row in rows(tmp_path)] == [*range(26), *range(25)]
    assert len({(said(part)["process"], said(part)["part"]) for part in parts(tmp_path)}) == 7


def test_each_part_has_the_settings_of_then(tmp_path: Path) -> None:
    router = Router({"a": Server(2, rate=1.5), "b": 1}, "jsq", seed=1, compiled=False)
    recorder = Recorder(tmp_path, lambda: {"chat": settings_of(router, "tokens")})
    router.listen(partial(recorder.note, "chat"))
    tickets = [router.watch("a"), router.watch("a"), router.watch("b")]
    router.complete(tickets[0])
    recorder.flush()
    router.resize("b", 4)
    router.remove("a")
    router.override("random")
    router.complete(tickets[1])
    recorder.flush()
    router.complete(tickets[2])
    recorder.flush()
    first, second, third = (said(part)["groups"]["chat"] for part in parts(tmp_path))
    assert first == {
        "policy": "jsq",
        "override": None,
        "classes": [],
        "work": "tokens",
        "servers": {"a": {"slots": 2, "rate": 1.5}, "b": {"slots": 1, "rate": None}},
    }
    # A server that is gone is told of as long as it has rows, and no longer.
    assert second["servers"] == {"a": {"slots": 2, "rate": 1.5}, "b": {"slots": 4, "rate": None}}
    assert second["override"] == "random"
    assert third["servers"] == {"b": {"slots": 4, "rate": None}}


def test_a_group_that_is_gone_is_told_of_while_it_has_rows(tmp_path: Path) -> None:
    settings = {**SETTINGS, "embed": {**SETTINGS["chat"], "policy": "greedy"}}
    recorder = Recorder(tmp_path, lambda: settings)
    recorder.note("chat", ended(1))
    recorder.flush()
    del settings["embed"]
    recorder.note("embed", ended(1))
    recorder.note("never heard of", ended(1))
    recorder.flush()
    assert {name: one["policy"] for name, one in said(parts(tmp_path)[1])["groups"].items()} == {
        "chat": "jsq",
        "embed": "greedy",
    }


def test_servers_that_are_long_gone_are_forgotten(tmp_path: Path) -> None:
    """Names may come and go for as long as the process lives; but what a server was serving may end after it is gone."""
    clock = Clock()
    one = {"slots": 1, "rate": None}
    settings = {"chat": {**SETTINGS["chat"], "servers": {}}, "embed": SETTINGS["chat"]}
    recorder = Recorder(tmp_path, lambda: settings, clock=clock)
    hour = recording._GONE / 2
    for number in range(200):
        settings["chat"]["servers"] = {f"s{number}": one}
        clock.now += hour
        recorder.note("chat", ended(number, server=f"s{max(0, number - 1)}"))
        recorder.flush()
        assert len(recorder._known["chat"]["servers"]) <= 3 and len(recorder._last) <= 4
    assert settings["embed"] == SETTINGS["chat"]  # the caller's own is left alone
    told = said(max(parts(tmp_path), key=lambda part: said(part)["part"]))["groups"]["chat"]["servers"]
    assert set(told) == {"s198", "s199"}
    del settings["embed"]
    shutil.move(tmp_path, tmp_path.with_name("elsewhere"))
    recorder.note("embed", ended(200))
    clock.now += 10 * hour
    assert recorder.flush() == 0 and set(recorder._known) == {"chat", "embed"}  # a row waits
    shutil.move(tmp_path.with_name("elsewhere"), tmp_path)
    assert recorder.flush() == 1
    told = said(max(parts(tmp_path), key=lambda part: said(part)["part"]))["groups"]
    assert told["embed"]["servers"] == {"a": {"slots": 2, "rate": None}}
    assert set(recorder._known) == {"chat"} and set(recorder._known["chat"]["servers"]) == {"s199"}


def test_a_disk_that_takes_nothing_costs_the_oldest_rows_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "gone"
    recorder = Recorder(folder, lambda: SETTINGS, part_rows=100, most_rows=500)
    for number in range(150):
        recorder.note("chat", ended(number))
    assert recorder.flush() == 150
    shutil.move(folder, tmp_path / "elsewhere")
    with caplog.at_level(logging.INFO, recording.__name__):
        for number in range(150, 900):
            recorder.note("chat", ended(number))
            if number % 50 == 0:
                assert recorder.flush() == 0
        assert recorder.failing and not recorder.due()  # with a full bucket, it tries again by time alone
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "No such file" in caplog.text and "routing goes on" in caplog.text
        assert recorder.pending + recorder.lost == 750
        assert 400 <= recorder.pending <= 600
        shutil.move(tmp_path / "elsewhere", folder)
        assert recorder.flush() == recorder.written - 150 == 750 - recorder.lost
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
        assert f"{recorder.lost} rows were dropped" in caplog.text
    assert not recorder.failing and recorder.pending == 0
    kept = [row["number"] for row in rows(folder)]
    assert kept == [*range(150), *range(150 + recorder.lost, 900)]
    assert said(parts(folder)[-1])["lost"] == recorder.lost


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_full_disk_leaves_no_piece_of_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    recorder = Recorder(tmp_path, lambda: SETTINGS)
    recorder.note("chat", ended(1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(recording.os, where, full)
        assert recorder.flush() == 0
    assert parts(tmp_path) == [] and recorder.pending == 1
    assert recorder.flush() == 1
    assert [row["number"] for row in rows(tmp_path)] == [1]


def test_the_oldest_rows_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path, lambda: SETTINGS, part_rows=10, most_rows=20)

    def full(*_: object) -> None:
        for number in range(15, 30):  # while the part of the first ten is written
            recorder.note("chat", ended(number))
        raise OSError(28, "No space left on device")

    for number in range(15):
        recorder.note("chat", ended(number))
    with monkeypatch.context() as patched:
        patched.setattr(recording.os, "replace", full)
        recorder.flush()
    assert (recorder.lost, recorder.flush()) == (10, 20)
    assert [row["number"] for row in rows(tmp_path)] == list(range(10, 30))


def test_a_fault_of_ours_is_raised_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path, lambda: SETTINGS)
    recorder.note("chat", ended(1))
    with monkeypatch.context() as patched:
        patched.setattr(recording, "as_table", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            recorder.flush()
    assert recorder.flush() == 1


def test_notes_do_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path, lambda: SETTINGS)
    recorder.note("chat", ended(1))
    writing, go_on = threading.Event(), threading.Event()
    real = os.fsync

    def slow(handle: int) -> None:
        writing.set()
        assert go_on.wait(20.0)
        real(handle)

    monkeypatch.setattr(recording.os, "fsync", slow)
    flushing = threading.Thread(target=recorder.flush)
    flushing.start()
    assert writing.wait(20.0)
    recorder.note("chat", ended(2))  # would hang here
    assert recorder.pending == 2
    go_on.set()
    flushing.join(20.0)
    assert recorder.flush() == 1


def test_threads_lose_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, lambda: SETTINGS, part_rows=700)
    each, threads = 4000, 4

    def work(which: int) -> None:
        for number in range(each):
            recorder.note("chat", ended(which * each + number))

    workers = [threading.Thread(target=work, args=(which,)) for which in range(threads)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        recorder.flush()
    recorder.flush()
    assert [row["number"] for row in rows(tmp_path)] == list(range(each * threads))
    assert recorder.written == each * threads and recorder.pending == 0


KILLED = """
import sys
from queuewise.live.router import Ended
from queuewise.live.service.recording import Recorder

recorder = Recorder(sys.argv[1], lambda: {"chat": {"servers": {}}}, part_rows=200)
number = 0
while True:
    for _ in range(500):
        number += 1
        recorder.note("chat", Ended(number, "a", "exploit", None, 1.0, 0.5, 0.75, "done", None))
    recorder.flush()
    print(number, flush=True)
"""


def test_a_kill_leaves_whole_parts(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(12):
        flushed = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    left, _ = child.communicate()
    flushed = int(([flushed, *left.split()])[-1])
    kept = sorted(
        number for part in tmp_path.glob("*.parquet") for number in pq.read_table(part).column("number").to_pylist()
    )
    assert kept == list(range(1, len(kept) + 1))
    assert flushed <= len(kept) <= flushed + 500


def test_pieces_that_a_kill_left_are_cleared_away(tmp_path: Path) -> None:
    old, young = tmp_path / ".old.parquet.tmp", tmp_path / ".young.parquet.tmp"
    for piece in (old, young):
        piece.touch()
    os.utime(old, (0, 0))
    Recorder(tmp_path, lambda: SETTINGS)
    assert parts(tmp_path) == [young]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"flush_seconds": 0.0}, "flush_seconds must be"),
        ({"part_rows": 0}, "part_rows must be"),
        ({"part_rows": 10, "most_rows": 9}, "most_rows must be"),
    ],
)
def test_what_is_out_of_range_is_one_sentence(tmp_path: Path, options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Recorder(tmp_path, lambda: SETTINGS, **options)


def test_a_folder_that_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"folder: cannot write to .*file"):
        Recorder(tmp_path / "file", lambda: SETTINGS)


def test_times_are_kept_to_the_microsecond() -> None:
    rng = np.random.default_rng(1)
    at = rng.uniform(0.0, 1e6, 50)
    table = recording.as_table([("chat", ended(k, float(t))) for k, t in enumerate(at)], 1_700_000_000_000_000_000)
    found = table.column("issued").cast(pa.int64()).to_numpy() - 1_700_000_000_000_000
    assert np.abs(found - at * 1e6).max() <= 0.501
