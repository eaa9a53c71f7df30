"""The state file: who may open it, versions, damage, and what is kept of what."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from queuewise.live import store as module
from queuewise.live.book import Event, Kind
from queuewise.live.errors import StoreError
from queuewise.live.store import MIGRATIONS, Entry, NewAttempt, NewJob, Snapshot, Store, pack, unpack


def fails(status: str, call, *arguments, **options) -> str:
    with pytest.raises(StoreError) as caught:
        call(*arguments, **options)
    assert caught.value.status == status
    return str(caught.value)


def submitted(number: int, job: int, name: str) -> Entry:
    return Entry(Event(number, Kind.SUBMITTED, 1.0, job, status="waiting"), NewJob(name, b"12345678", b"\0", None))


def issued(number: int, job: int, attempt: int) -> Entry:
    return Entry(
        Event(number, Kind.ISSUED, 2.0, job, attempt, 0, False, "running", b"\1"), NewAttempt(1, 0, attempt, 60.0)
    )


def test_everything_written_is_read_again(tmp_path) -> None:
    store = Store(tmp_path / "state.db")
    store.write([submitted(1, 1, "x"), issued(2, 1, 1)])
    store.write([Entry(Event(3, Kind.EXTENDED, 3.0, 1, 1, 0, False, "running"), 99.5)])
    store.write([Entry(Event(4, Kind.ANSWERED, 4.0, 1, 1, 0, True, "done"))])
    store.write([Entry(Event(5, Kind.SERVER, 5.0, server=0, success=True), "gpu")])
    store.close()
    store = Store(tmp_path / "state.db")
    row = store.job_by_id("x")
    assert row == store.job(1)
    assert (row.status, row.tries, row.finished, row.attempt, row.features) == ("done", 1, 4.0, 1, b"12345678")
    attempt = store.attempt(1)
    assert (attempt.status, attempt.lease, attempt.answered, attempt.server) == ("success", 99.5, 4.0, 0)
    assert [event.number for event in store.events(0)] == [1, 2, 3, 4, 5]
    assert store.events(1, 2) == [issued(2, 1, 1).event]
    assert store.servers() == [(0, "gpu", True)]
    assert store.last_numbers() == (5, 1, 1) and store.counts() == {"done": 1}
    store.close()


def test_a_transaction_is_all_or_nothing(tmp_path) -> None:
    store = Store(tmp_path / "state.db")
    store.write([submitted(1, 1, "x")])
    fails("failed", store.write, [submitted(2, 2, "y"), submitted(3, 3, "x")])
    assert store.job_by_id("y") is None and store.last_numbers() == (1, 1, 0)
    store.write([submitted(2, 2, "y")])
    store.close()


def test_a_second_opener_is_told_who_has_the_file(tmp_path) -> None:
    path = tmp_path / "state.db"
    store = Store(path)
    assert "this process already" in fails("locked", Store, path)
    code = f"import sys; from queuewise.live.store import Store\ntry: Store({str(path)!r})\nexcept Exception as e: print(e)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"in use by process {os.getpid()} on " in said
    store.close()
    store.close()
    Store(path).close()


FORKED = """
import os, sys, time
from queuewise.live.book import Event, Kind
from queuewise.live.errors import StoreError
from queuewise.live.store import Entry, NewJob, Store

store = Store(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        store.write([Entry(Event(1, Kind.SUBMITTED, 1.0, 1, status="waiting"), NewJob("x", b"", b"", None))])
    except StoreError as error:
        if error.status == "closed":
            time.sleep(60)
    os._exit(1)
try:
    time.sleep(0.1)
    store.close()
    Store(sys.argv[1]).close()  # while the child lives
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
finally:
    os.kill(child, 9)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_neither_writes_nor_keeps_the_lock(tmp_path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED, str(tmp_path / "state.db")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_to_the_file_is_the_file(tmp_path) -> None:
    store = Store(tmp_path / "state.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "state.db")
    assert "this process already" in fails("locked", Store, tmp_path / "link.db")
    store.close()


def test_other_files_are_left_alone(tmp_path) -> None:
    foreign = tmp_path / "other.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE theirs (a)")
    connection.commit()
    connection.close()
    before = foreign.read_bytes()
    assert "no state file of this program" in fails("foreign", Store, foreign)
    assert foreign.read_bytes() == before
    (tmp_path / "text").write_text("not a database " * 100)
    assert "is damaged" in fails("damaged", Store, tmp_path / "text")
    fails("failed", Store, tmp_path / "missing" / "state.db")
    with pytest.raises(ValueError, match="durability: must be one of"):
        Store(tmp_path / "x.db", durability="most")


def test_a_damaged_file_is_refused(tmp_path) -> None:
    path = tmp_path / "state.db"
    store = Store(path)
    for number in range(1, 400):
        store.write([submitted(number, number, f"job {number}")])
    store.close()
    data = bytearray(path.read_bytes())
    data[8192 : len(data) - 4096] = os.urandom(len(data) - 12288)
    path.write_bytes(data)
    assert "restore it from a copy" in fails("damaged", Store, path)


def test_migrations(tmp_path) -> None:
    """A file of the first version becomes one of the next, keeps what it holds, and the old program then refuses it."""
    path = tmp_path / "state.db"
    store = Store(path)
    store.write([submitted(1, 1, "x")])
    store.close()
    shutil.copy(path, tmp_path / "copy.db")

    def second(connection) -> None:
        connection.execute("ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 7")

    def broken(connection) -> None:
        connection.execute("ALTER TABLE jobs ADD COLUMN more INTEGER")
        raise sqlite3.OperationalError("no")

    fails("failed", Store, path, migrations=(*MIGRATIONS, broken))
    Store(path).close()  # nothing of the broken step is there
    Store(path, migrations=(*MIGRATIONS, second)).close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT id, priority FROM jobs").fetchall() == [("x", 7)]
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    connection.close()
    said = fails("newer", Store, path)
    assert f"its format is {len(MIGRATIONS) + 1}, this program knows {len(MIGRATIONS)}" in said
    # From nothing to the last version at once.
    Store(tmp_path / "new.db", migrations=(*MIGRATIONS, second)).close()
    connection = sqlite3.connect(tmp_path / "new.db")
    assert "priority" in [row[1] for row in connection.execute("PRAGMA table_info(jobs)")]
    connection.close()


def test_version_1_of_the_format_is_what_it_was() -> None:
    """A released step is never edited: files of that version are out there."""
    connection = sqlite3.connect(":memory:")
    MIGRATIONS[0](connection)
    tables = {
        name: " ".join(row[1] for row in connection.execute(f"PRAGMA table_info({name})"))
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert tables == {
        "meta": "key value",
        "servers": "number name present",
        "jobs": "number id features ineligible deadline submitted status tries finished attempt",
        "attempts": "number job server round reason try issued lease status answered",
        "events": "number kind at job attempt server success status detail",
        "snapshots": "event taken format digest arrays",
    }
    assert [(kind.name, kind.value) for kind in Kind] == [
        ("SUBMITTED", 1), ("ISSUED", 2), ("ANSWERED", 3), ("LOST", 4), ("LATE", 5), ("OVERDUE", 6), ("CANCELLED", 7),
        ("SERVER", 8), ("EXTENDED", 9),
    ]  # fmt: skip


def snapshot(event: int, taken: float = 0.0) -> Snapshot:
    return Snapshot(event, taken, {"a": np.arange(3.0), "b": np.array([True, False])})


def test_two_snapshots_are_kept_with_the_events_after_the_older(tmp_path) -> None:
    store = Store(tmp_path / "state.db")
    for number in range(1, 41):
        store.write([submitted(number, number, str(number))])
        if number % 10 == 0:
            store.write_snapshot(snapshot(number))
    assert [kept.event for kept in store.snapshots()] == [40, 30]
    assert [kept.event for kept in store.snapshots(40)] == [30]
    assert [event.number for event in store.events(0)] == list(range(31, 41))
    np.testing.assert_array_equal(next(store.snapshots()).arrays["a"], [0.0, 1.0, 2.0])
    store.close()


def test_a_snapshot_that_cannot_be_read_is_passed_over(tmp_path) -> None:
    path = tmp_path / "state.db"
    store = Store(path)
    store.write([submitted(1, 1, "x"), submitted(2, 2, "y")])
    for event in (1, 2):
        store.write_snapshot(snapshot(event))
    store.close()
    connection = sqlite3.connect(path)
    data = bytearray(connection.execute("SELECT arrays FROM snapshots WHERE event = 2").fetchone()[0])
    data[len(data) // 2] ^= 1
    connection.execute("UPDATE snapshots SET arrays = ? WHERE event = 2", (bytes(data),))
    connection.commit()
    connection.close()
    store = Store(path)
    assert [kept.event for kept in store.snapshots()] == [1]
    store.close()


def test_a_snapshot_that_is_replaced_while_others_are_read_is_passed_over() -> None:
    store = Store(None)
    for event in (1, 2):
        store.write_snapshot(snapshot(event))
    reading = store.snapshots()
    assert next(reading).event == 2
    store.write_snapshot(snapshot(3))
    assert list(reading) == []
    store.close()


def test_snapshots_are_never_unpickled() -> None:
    data = pack({"a": np.arange(3)})
    np.testing.assert_array_equal(unpack(data)["a"], [0, 1, 2])
    evil = pack({"a": np.array([{}], dtype=object)})
    with pytest.raises(ValueError, match="allow_pickle"):
        unpack(evil)


def test_finished_jobs_are_forgotten_only_when_no_event_speaks_of_them(tmp_path) -> None:
    store = Store(tmp_path / "state.db")
    store.write([submitted(1, 1, "x"), issued(2, 1, 1)])
    store.write([Entry(Event(3, Kind.ANSWERED, 4.0, 1, 1, 0, True, "done"))])
    store.write([submitted(4, 2, "y"), issued(5, 2, 2)])
    for event, taken in ((5, 10.0), (6, 100.0), (7, 200.0)):
        store.write([Entry(Event(event + 1, Kind.SERVER, taken, server=0, success=True), "a")])
        store.write_snapshot(snapshot(event, taken), keep=50.0)
        assert (store.job_by_id("x") is None) == (event > 5)
    assert store.attempt(1) is None and store.attempts_of(1) == []
    assert store.job_by_id("y").status == "running", "never what is not finished"
    store.close()


def test_a_closed_store_says_so(tmp_path) -> None:
    store = Store(tmp_path / "state.db")
    store.close()
    assert fails("closed", store.write, [submitted(1, 1, "x")]) == fails("closed", store.meta)


def test_one_that_waited_while_the_store_was_closed_is_told_so(tmp_path) -> None:
    store = Store(tmp_path / "state.db")
    told, begun = [], threading.Event()

    def write() -> None:
        begun.set()
        try:
            store.write([submitted(1, 1, "x")])
        except Exception as error:
            told.append(error)

    thread = threading.Thread(target=write)
    with store._writing:
        thread.start()
        assert begun.wait(30)
        time.sleep(0.05)  # it waits for the lock by now
        store._close()
    thread.join(30)
    assert [(type(error), error.status) for error in told] == [(StoreError, "closed")]


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
def test_durability_is_sqlites_own(tmp_path, durability: str, level: int) -> None:
    store = Store(tmp_path / "state.db", durability=durability)
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (level,)
    assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_the_lock_file_names_its_holder_for_people(tmp_path) -> None:
    store = Store(tmp_path / "state.db")
    assert json.loads((tmp_path / "state.db.lock").read_text())["pid"] == os.getpid()
    store.close()
    (tmp_path / "state.db.lock").write_text("{")  # as after a crash between two writes
    Store(tmp_path / "state.db").close()
    assert module.APPLICATION.to_bytes(4, "big") == b"QWis"
