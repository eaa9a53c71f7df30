"""Kills, restarts, full disks, other settings: nothing acknowledged is lost, and learning continues where it was."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from queuewise.live import store
from queuewise.live.errors import Refused, StoreError
from queuewise.live.scheduler import Scheduler
from queuewise.scheduling.policies import make
from queuewise.scheduling.policy import Policy

SERVERS = {"a": 2, "b": 2, "c": 2}


class Clock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def policy(name: str):
    """A policy by its name, with its estimator after a stroke."""
    rule, _, estimator = name.partition("/")
    options = {"estimator": estimator} if estimator else {}
    return make(rule, exploration=0.3, **options) if rule == "cqb_eta_2" else make(rule, **options)


def same(one: Scheduler, other: Scheduler) -> None:
    first, second = one.state(), other.state()
    assert first.keys() == second.keys()
    for key, array in first.items():
        np.testing.assert_array_equal(array, second[key], err_msg=key)


def drop(scheduler: Scheduler) -> None:
    """As a kill leaves it: nothing is written any more."""
    scheduler._store.close()


class Load:
    """Random but repeatable work: what it does depends on its own generator alone."""

    def __init__(self, seed: int, clock: Clock) -> None:
        self.rng, self.clock, self.jobs = np.random.default_rng(seed), clock, 0
        self.open, self.lost = [], []

    def step(self, scheduler: Scheduler):
        """One call; what it gave."""
        self.clock.now += 1.0
        what = self.rng.random()
        if what < 0.3:
            self.jobs += 1
            deadline = 300.0 if self.jobs % 7 == 0 else None
            return scheduler.submit(str(self.jobs), self.rng.uniform(-0.5, 0.5, 2), deadline=deadline)
        if what < 0.65:
            server = None if self.rng.random() < 0.7 else str(self.rng.choice(list(SERVERS)))
            assignment = scheduler.next(server)
            if assignment is not None:
                (self.lost if self.rng.random() < 0.2 else self.open).append(assignment)
            return assignment
        if what < 0.9 and self.open:
            assignment = self.open.pop(int(self.rng.integers(len(self.open))))
            return scheduler.report(assignment, bool(self.rng.random() < 0.5))
        if what < 0.94 and self.lost:
            assignment = self.lost.pop(0)
            return scheduler.report(assignment, bool(self.rng.random() < 0.5))
        if what < 0.96 and self.open:
            try:
                return scheduler.extend(self.open[0], 40.0)
            except Refused as error:
                return str(error)
        if what < 0.98:
            (scheduler.remove_server if self.rng.random() < 0.5 else scheduler.add_server)("b")
            return None
        return scheduler.sweep()


def opened(path: Path, name: str, clock: Clock, **options) -> Scheduler:
    return Scheduler(
        SERVERS, job_features=2, policy=policy(name), path=path, clock=clock, lease=30.0, max_attempts=6,
        durability="normal", **{"snapshot_every": 25, **options},
    )  # fmt: skip


POLICIES = [
    "wise",
    "wise/scheduled",
    "wise/one_pass",
    "cqb_opt/one_pass",
    "cqb_eta_2",
    "acqb/one_pass",
    "q_ucb",
    "q_ths",
]


@pytest.mark.parametrize("name", POLICIES)
def test_one_that_is_killed_after_every_few_calls_does_what_one_that_never_is_does(tmp_path, name: str) -> None:
    """Bit for bit: decisions, receipts, estimates, random stream."""
    clocks = Clock(), Clock()
    never, often = opened(tmp_path / "never.db", name, clocks[0]), opened(tmp_path / "often.db", name, clocks[1])
    loads = Load(8, clocks[0]), Load(8, clocks[1])
    kinds = set()
    for call in range(220):
        first, second = loads[0].step(never), loads[1].step(often)
        assert first == second, call
        kinds.add(getattr(first, "status", type(first).__name__))
        if call % 9 == 5:
            drop(often)
            often = opened(tmp_path / "often.db", name, clocks[1])
            often_open = {server: never.servers[server]["open"] for server in SERVERS}
            for server, is_open in often_open.items():  # the list of servers says who is there after a start
                if not is_open:
                    often.remove_server(server)
                    never.add_server(server)
                    never.remove_server(server)
            assert often.diverged == 0
            same(never, often)
    assert {"Assignment", "accepted", "late"} <= kinds
    assert never._book.learner.rounds > 50
    assert never.counts() == often.counts()
    assert len(never._book.learner._call.signatures) == 1, "a restored state has the types of a fresh one"
    drop(never)
    drop(often)


def test_a_clean_close_leaves_nothing_to_play_again(tmp_path) -> None:
    clock = Clock()
    load, path = Load(1, clock), tmp_path / "state.db"
    with opened(path, "cqb_opt", clock, snapshot_every=10_000) as scheduler:
        for _ in range(60):
            load.step(scheduler)
        for server in SERVERS:
            scheduler.add_server(server)
        before = scheduler.state()
    with opened(path, "cqb_opt", clock) as scheduler:
        assert scheduler._store.events(scheduler._snapshot_event) == []
        after = scheduler.state()
        assert all(np.array_equal(before[key], after[key]) for key in before | after)
    with pytest.raises(StoreError, match="closed"):
        scheduler.submit("x", [0.0, 0.0])


@pytest.mark.parametrize("name", ["wise", "cqb_opt", "wise/one_pass"])
def test_more_jobs_and_attempts_than_there_was_room_for(tmp_path, name: str) -> None:
    """Slots and histories have grown, some of it after the last snapshot."""
    clock, rng, path = Clock(), np.random.default_rng(9), tmp_path / "state.db"
    scheduler = opened(path, name, clock, snapshot_every=300)
    scheduler.submit_many([(str(job), rng.uniform(-0.5, 0.5, 2)) for job in range(150)])
    for _ in range(300):
        scheduler.report(scheduler.next(), bool(rng.random() < 0.4))
    learner = scheduler._book.learner
    assert learner.rank.shape[0] == 256 and learner.room == 512
    drop(scheduler)
    again = opened(path, name, clock)
    assert again.diverged == 0
    same(scheduler, again)
    drop(again)


def test_an_unreadable_snapshot_costs_time_and_nothing_else(tmp_path) -> None:
    clock = Clock()
    load, path = Load(2, clock), tmp_path / "state.db"
    scheduler = opened(path, "wise", clock)
    for _ in range(120):
        load.step(scheduler)
    for server in SERVERS:
        scheduler.add_server(server)
    scheduler._store._writer.execute(
        "UPDATE snapshots SET arrays = x'00' WHERE event = (SELECT max(event) FROM snapshots)"
    )
    drop(scheduler)
    again = opened(path, "wise", clock)
    assert again.diverged == 0
    same(scheduler, again)
    again._store._writer.execute("UPDATE snapshots SET arrays = x'00'")
    drop(again)
    with pytest.raises(StoreError, match="relearn=True") as caught:
        opened(path, "wise", clock)
    assert caught.value.status == "damaged"
    with opened(path, "wise", clock, relearn=True) as relearned:
        assert relearned._book.learner.state.estimate.counts[0] == scheduler._book.learner.state.estimate.counts[0]


def test_a_late_report_never_speaks_of_a_job_that_is_being_forgotten(tmp_path) -> None:
    """The report comes when a snapshot is about to forget its job, and would be written after it."""
    clock = Clock()
    options = {"job_features": 2, "policy": "q_ucb", "path": tmp_path / "state.db", "clock": clock, "compiled": False}
    scheduler = Scheduler(["a", "b"], keep_finished=100.0, lease=30.0, **options)
    scheduler.submit("x", [0.5, 0.0])
    lost = scheduler.next()
    clock.now += 40.0
    assert scheduler.sweep() == 0
    scheduler.report(scheduler.next(), True)
    for wait, status in ((50.0, "superseded"), (0.0, "repeated")):  # its job is still remembered
        clock.now += wait
        assert scheduler.report(lost, False).status == status
    scheduler.submit("y", [0.0, 0.5])
    lost_too = scheduler.next()
    clock.now += 40.0
    scheduler.sweep()
    scheduler.report(scheduler.next(), True)
    for _ in range(2):
        clock.now += 45.0
        scheduler.submit(str(clock.now), [0.0, 0.0])
        scheduler.snapshot()
    assert scheduler.job("y").status == "done", "not forgotten yet"
    clock.now += 20.0
    original, told = scheduler._store.write_snapshot, []

    def report() -> None:
        for assignment in (lost, lost_too):
            try:
                told.append(scheduler.report(assignment, True).status)
            except Refused as error:
                told.append(error.status)

    def between(snapshot, **more) -> None:
        thread = threading.Thread(target=report)
        thread.start()
        thread.join(30)
        original(snapshot, **more)

    scheduler._store.write_snapshot = between
    scheduler.submit("z", [0.1, 0.1])
    scheduler.snapshot()
    scheduler._store.write_snapshot = original
    assert told == ["unknown_assignment", "unknown_assignment"]
    with pytest.raises(Refused, match="no job 'y'"):
        scheduler.job("y")
    same_later = scheduler.state()
    drop(scheduler)
    with Scheduler(["a", "b"], keep_finished=100.0, lease=30.0, **options) as again:
        assert again.diverged == 0
        for key, array in again.state().items():
            np.testing.assert_array_equal(array, same_later[key], err_msg=key)


def test_an_event_of_a_missing_job_is_damage_that_can_be_learned_anew(tmp_path) -> None:
    options = {"job_features": 2, "policy": "q_ucb", "path": tmp_path / "state.db", "compiled": False}
    scheduler = Scheduler(["a"], **options)
    scheduler.submit("x", [0.5, 0.0])
    scheduler.submit("y", [0.5, 0.0])
    scheduler._store._writer.execute("DELETE FROM jobs WHERE id = 'x'")
    drop(scheduler)
    with pytest.raises(StoreError, match=r"speaks of a job that is not there \(job 1\)") as caught:
        Scheduler(["a"], **options)
    assert caught.value.status == "damaged"
    with Scheduler(["a"], relearn=True, **options) as again:
        assert again.next().job_id == "y"


# --- other settings ---------------------------------------------------------------------------------------------------


def test_other_settings_are_refused_or_learned_anew(tmp_path) -> None:
    clock = Clock()
    load, path = Load(3, clock), tmp_path / "state.db"
    scheduler = opened(path, "cqb_opt", clock)
    for _ in range(150):
        load.step(scheduler)
    scheduler.add_server("b")
    load.open += [scheduler.next("b"), scheduler.next()]
    outcomes = scheduler._store.outcomes()
    theta = scheduler._book.learner.state.estimate.theta.copy()
    waiting, running = scheduler._book.learner.jobs, sorted(scheduler._book.attempts)
    assert waiting and running
    drop(scheduler)
    with pytest.raises(StoreError, match="policy is 'cqb_opt' there, 'acqb' here") as caught:
        opened(path, "acqb", clock)
    assert caught.value.status == "other_settings"
    again = opened(path, "acqb", clock, relearn=True)
    learner = again._book.learner
    assert learner.jobs == waiting and sorted(again._book.attempts) == running
    assert learner.state.estimate.counts[0] == len(outcomes)
    np.testing.assert_allclose(learner.state.estimate.theta, theta, atol=1e-6)
    for _ in range(50):
        load.step(again)
    for server in SERVERS:
        again.add_server(server)
    drop(again)
    once_more = opened(path, "acqb", clock)
    assert once_more.diverged == 0
    same(again, once_more)
    drop(once_more)
    with pytest.raises(StoreError, match="what is known of a job"):
        Scheduler(SERVERS, job_features=3, policy="acqb", path=path, relearn=True)


def test_learning_anew_counts_lost_attempts_as_the_rules_say(tmp_path) -> None:
    clock, path = Clock(), tmp_path / "state.db"
    options = {"job_features": 0, "path": path, "clock": clock, "lease": 5.0, "lost": "failure"}
    scheduler = Scheduler({"a": 9}, policy="q_ucb", **options)
    for job in range(4):
        scheduler.submit(str(job))
    taken = [scheduler.next() for _ in range(4)]
    scheduler.report(taken[0], True)
    clock.now += 6.0
    scheduler.sweep()
    scheduler.report(taken[1], True)  # late: learned as a failure when it was lost
    before = scheduler._book.learner.state
    drop(scheduler)
    scheduler = Scheduler({"a": 9}, policy="q_ths", relearn=True, **options)
    after = scheduler._book.learner.state
    assert before.attempts.tolist() == after.attempts.tolist() == [4.0]
    assert before.successes.tolist() == after.successes.tolist() == [1.0]
    drop(scheduler)


def test_relearning_makes_room_for_servers(tmp_path) -> None:
    clock = Clock()
    load, path = Load(4, clock), tmp_path / "state.db"
    scheduler = opened(path, "cqb_opt", clock)
    for _ in range(80):
        load.step(scheduler)
    theta = scheduler._book.learner.state.estimate.theta.copy()
    drop(scheduler)
    more = Scheduler(
        {**SERVERS, "d": 1}, job_features=2, policy=policy("cqb_opt"), path=path, clock=clock, relearn=True,
        parameter_bound=5.0 * np.sqrt(3), spare=1, max_attempts=6,
    )  # fmt: skip
    np.testing.assert_allclose(more._book.learner.state.estimate.theta[:9], theta, atol=1e-6)
    more.submit("new", [0.0, 0.1], servers=["d"])
    taken = [assignment.job_id for assignment in iter(lambda: more.next("d"), None)]
    assert "new" in taken and len(taken) > 1, "and those that waited can go there too"
    drop(more)


def test_other_rules_hold_from_now_on(tmp_path) -> None:
    """What happened before is played again by the rules of then."""
    clock, path = Clock(), tmp_path / "state.db"
    scheduler = Scheduler(
        ["a"], job_features=0, policy="q_ucb", path=path, clock=clock, max_attempts=2, lost="failure", lease=5.0
    )
    scheduler.submit("x")
    scheduler.next()
    clock.now += 6.0
    scheduler.sweep()
    scheduler.report(scheduler.next(), False)
    scheduler.submit("y")
    drop(scheduler)
    scheduler = Scheduler(["a"], job_features=0, policy="q_ucb", path=path, clock=clock, lease=5.0)
    assert scheduler.diverged == 0
    assert scheduler.job("x").status == "failed"
    assert scheduler._book.learner.state.attempts.tolist() == [2.0]
    for _ in range(4):
        scheduler.next()
        clock.now += 6.0
        scheduler.sweep()
    assert scheduler.job("y").status == "waiting"
    assert scheduler._book.learner.state.attempts.tolist() == [2.0]
    drop(scheduler)


def test_the_list_of_servers_says_who_is_there(tmp_path) -> None:
    path = tmp_path / "state.db"
    options = {"job_features": 0, "policy": "q_ucb", "path": path}
    Scheduler(["a", "b"], spare=1, **options).close()
    with Scheduler(["c", "b"], spare=1, **options) as scheduler:
        assert [(name, server["open"]) for name, server in scheduler.servers.items()] == [
            ("a", False), ("b", True), ("c", True),
        ]  # fmt: skip
    with pytest.raises(Refused, match="no place for 'd'"):
        Scheduler(["c", "b", "d"], **options)
    with Scheduler(["c"], **options) as scheduler:
        assert [server["open"] for server in scheduler.servers.values()] == [False, False, True]
    with pytest.raises(StoreError, match=r"features\.servers is 3 there, 4 here"):
        Scheduler(["a", "b", "c", "d"], **options)
    with Scheduler(["a", "b", "c"], **options) as scheduler:
        assert all(server["open"] for server in scheduler.servers.values())


# --- a full disk ------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_and_loses_nothing(tmp_path) -> None:
    """SQLite's limit of pages stands in for the disk: the same error at the same place."""
    clock = Clock()
    scheduler = opened(tmp_path / "state.db", "cqb_opt", clock, snapshot_every=10_000)
    for job in range(30):
        scheduler.submit(f"first {job}", [0.1, 0.2])
    open_attempts = [scheduler.next(server) for server in ("a", "b", "c") for _ in range(2)]
    pages = scheduler._store._writer.execute("PRAGMA page_count").fetchone()[0]
    scheduler._store._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    acknowledged = [f"first {job}" for job in range(30)]
    with pytest.raises(StoreError, match="full, so nothing of this call was kept") as caught:
        for job in range(10_000):
            scheduler.submit(f"then {job}", [0.1, 0.2])
            acknowledged.append(f"then {job}")
    assert caught.value.status == "full"
    refusals = 0
    for call in [lambda: scheduler.submit("more", [0.0, 0.0]), scheduler.next, lambda: scheduler.next("a")] * 40:
        try:
            call()
        except StoreError as error:
            assert error.status == "full"
            refusals += 1
        rebuilt = scheduler._rebuild(scheduler._rules).arrays()
        assert all(np.array_equal(array, rebuilt[key]) for key, array in scheduler.state().items()), (
            "memory is the disk"
        )
    assert refusals > 20
    for job_id in acknowledged:
        assert scheduler.job(job_id).status in ("waiting", "running")
    scheduler._store._writer.execute("PRAGMA max_page_count = 1000000")
    for assignment in open_attempts:
        assert scheduler.report(assignment, True).status == "accepted"
    scheduler.submit("room again", [0.0, 0.0])
    assert scheduler.next() is not None
    assert scheduler._book.learner.state.estimate.counts[0] == 6
    assert scheduler.diverged == 0
    drop(scheduler)


def test_a_snapshot_without_room_is_left_out(tmp_path) -> None:
    clock = Clock()
    scheduler = opened(tmp_path / "state.db", "cqb_opt", clock, snapshot_every=5)
    original = scheduler._store.write_snapshot

    def full(*arguments, **options) -> None:
        raise StoreError("full", "no room")

    scheduler._store.write_snapshot = full
    for job in range(20):
        scheduler.submit(str(job), [0.0, 0.0])
    assert list(scheduler._store.snapshots()) == [] and scheduler.counts() == {"waiting": 20}
    with pytest.raises(StoreError, match="no room"):  # who asks for one is told
        scheduler.snapshot()
    scheduler._store.write_snapshot = original
    for job in range(20, 30):
        scheduler.submit(str(job), [0.0, 0.0])
    assert list(scheduler._store.snapshots())
    drop(scheduler)


def test_whatever_fails_in_a_snapshot_what_was_committed_counts(tmp_path, monkeypatch) -> None:
    clock = Clock()
    scheduler = opened(tmp_path / "state.db", "q_ucb", clock, snapshot_every=1)

    def pack(arrays) -> bytes:
        raise MemoryError

    monkeypatch.setattr(store, "pack", pack)
    for job in range(3):
        scheduler.submit(str(job), [0.0, 0.0])
    assert scheduler.counts() == {"waiting": 3} and scheduler._book.learner.jobs == 3
    with pytest.raises(MemoryError):
        scheduler.close()
    monkeypatch.undo()
    with opened(tmp_path / "state.db", "q_ucb", clock) as again:  # the file was released
        assert again.counts() == {"waiting": 3} and again.diverged == 0


def test_an_explicit_snapshot_forgets_finished_jobs_too() -> None:
    clock = Clock()
    scheduler = Scheduler(["a"], job_features=0, policy="q_ucb", clock=clock, keep_finished=10.0, compiled=False)
    scheduler.submit("x")
    scheduler.report(scheduler.next(), True)
    for _ in range(3):
        clock.now += 20.0
        scheduler.add_server("a")
        scheduler.submit(str(clock.now))
        scheduler.snapshot()
    assert scheduler.counts() == {"waiting": 3}
    scheduler.close()


def test_all_who_wait_for_a_commit_that_fails_are_told(tmp_path) -> None:
    """Group commit: callers of the batch that fails, and of the one begun meanwhile, hear of it, and memory is read back."""
    clock = Clock()
    scheduler = opened(tmp_path / "state.db", "q_ucb", clock)
    original, entered, leave, sizes = scheduler._store.write, threading.Event(), threading.Event(), []

    def slow(entries) -> None:
        sizes.append(len(entries))
        entered.set()
        assert leave.wait(30)
        if len(sizes) == 1:
            raise StoreError("failed", "the disk is gone")
        original(entries)

    scheduler._store.write = slow
    told = []

    def submit(name: str) -> None:
        try:
            scheduler.submit(name, [0.0, 0.0])
            told.append((name, "kept"))
        except StoreError as error:
            told.append((name, error.status))

    threads = [threading.Thread(target=submit, args=(str(job),)) for job in range(6)]
    threads[0].start()
    assert entered.wait(30)
    for thread in threads[1:]:
        thread.start()
    deadline = time.monotonic() + 30
    while len(scheduler._journal.batch.entries) < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
    leave.set()
    for thread in threads:
        thread.join(30)
    assert sorted(told) == [(str(job), "failed") for job in range(6)]
    assert scheduler.counts() == {} and scheduler._book.learner.jobs == 0
    entered.clear()
    leave.clear()
    threads = [threading.Thread(target=submit, args=(f"again {job}",)) for job in range(6)]
    threads[0].start()
    assert entered.wait(30)
    for thread in threads[1:]:
        thread.start()
    while len(scheduler._journal.batch.entries) < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
    leave.set()
    for thread in threads:
        thread.join(30)
    assert sizes == [1, 1, 5], "five callers, one commit"
    assert scheduler.counts() == {"waiting": 6}
    drop(scheduler)


def test_a_clock_that_goes_back_stands_still(tmp_path) -> None:
    clock = Clock()
    scheduler = opened(tmp_path / "state.db", "q_ucb", clock)
    scheduler.submit("x", [0.0, 0.0])
    clock.now -= 500.0
    assert scheduler.next().issued == 1000.0
    drop(scheduler)


# --- SIGKILL ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the kills need fork")
def test_killed_at_any_instant_under_load(tmp_path) -> None:
    """Twenty-five kills of a process with five threads at work; then everything acknowledged is looked up in the file."""
    script = Path(__file__).with_name("under_load.py")
    subprocess.run([sys.executable, str(script), str(tmp_path), "25", "11"], check=True, timeout=240)
    lines = [json.loads(line) for line in (tmp_path / "acknowledged").read_text().splitlines()]
    acknowledged = {kind: [line for line in lines if line["what"] == kind] for kind in ("submit", "next", "report")}
    assert len(acknowledged["submit"]) > 100 and len(acknowledged["report"]) > 50, "there was a load"
    kills = [line["what"] for line in lines].count("open")
    assert kills >= 20

    clock = Clock()
    clock.now = time.time() + 1000.0
    with Scheduler(
        {"a": 3, "b": 3}, job_features=2, policy="cqb_opt", path=tmp_path / "state.db", lease=0.05, clock=clock
    ) as scheduler:
        assert scheduler.diverged == 0
        store = scheduler._store
        for line in acknowledged["submit"]:
            assert store.job_by_id(line["job"]) is not None, line
        numbers = [line["attempt"] for line in acknowledged["next"]]
        assert len(set(numbers)) == len(numbers), "no attempt is handed out twice"
        for line in acknowledged["next"]:
            row = store.attempt(line["attempt"])
            assert row is not None and store.job(row.job).id == line["job"]
        finishers: dict[str, int] = {}
        for line in acknowledged["report"]:
            row = store.attempt(line["attempt"])
            outcome = "success" if line["success"] else "failure"
            assert row.status.endswith(outcome), line
            if line["status"] in ("accepted", "late") and line["job_status"] == "done" and line["success"]:
                assert line["job"] not in finishers, "one final result"
                finishers[line["job"]] = line["attempt"]
                job = store.job_by_id(line["job"])
                assert (job.status, job.attempt) == ("done", line["attempt"])
        assert len(finishers) > 30
        # Learned is what is written: once each, lost attempts not at all.
        estimate = scheduler._book.learner.state.estimate
        assert estimate.counts[0] == len(store.outcomes())
        # What was in flight at a kill returns; then everything can be finished, once.
        while scheduler.sweep():
            pass
        assert store.open_attempts() == [] and not scheduler._book.attempts
        done = scheduler.counts().get("done", 0)
        while (assignment := scheduler.next("a")) or (assignment := scheduler.next("b")):
            assert scheduler.report(assignment, True).job_status == "done"
            done += 1
        assert scheduler.counts() == {"done": done}


def test_an_error_of_one_caller_leaves_what_is_being_written_alone(tmp_path) -> None:
    """One batch is on its way to the disk, another is open, and a policy fails: the first is kept, the second is refused, and
    memory is as the disk."""
    broken = []

    def decide(params, state, columns, waiting, stream):
        return waiting.slots[0], 9 if broken else 0, 0

    scheduler = Scheduler(
        ["a"], job_features=0, policy=Policy("at times", decide), path=tmp_path / "state.db", compiled=False
    )
    original, entered, leave, told = scheduler._store.write, threading.Event(), threading.Event(), []

    def slow(entries) -> None:
        entered.set()
        assert leave.wait(30)
        original(entries)

    def submit(name: str) -> None:
        try:
            scheduler.submit(name)
            told.append((name, "kept"))
        except StoreError as error:
            told.append((name, str(error)))

    scheduler._store.write = slow
    threads = [threading.Thread(target=submit, args=(name,)) for name in ("first", "second")]
    threads[0].start()
    assert entered.wait(30)
    threads[1].start()
    deadline = time.monotonic() + 30
    while not scheduler._journal.batch.entries and time.monotonic() < deadline:
        time.sleep(0.001)
    broken.append(True)
    with pytest.raises(RuntimeError, match="not allowed"):
        scheduler.next()
    broken.clear()
    leave.set()
    for thread in threads:
        thread.join(30)
    told.sort()
    assert told[0] == ("first", "kept")
    assert told[1][0] == "second" and "something else failed meanwhile" in told[1][1]
    assert scheduler.counts() == {"waiting": 1}
    assert scheduler.next().job_id == "first"
    drop(scheduler)


WRITE_ERRORS = """
import resource, sys
from queuewise.live import Scheduler, StoreError
scheduler = Scheduler(["a"], job_features=2, policy="q_ucb", path=sys.argv[1])
scheduler.submit("first", [0, 0])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
kept, refused = ["first"], 0
for job in range(150):
    try:
        scheduler.submit(str(job), [0, 0])
        kept.append(str(job))
    except StoreError as error:
        assert error.status in ("failed", "full") and "cannot write" in str(error)
        refused += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert refused > 50 and scheduler.counts() == {"waiting": len(kept)}
assert scheduler.report(scheduler.next(), True).status == "accepted"
scheduler._store.close()
scheduler = Scheduler(["a"], job_features=2, policy="q_ucb", path=sys.argv[1])
assert scheduler.diverged == 0 and scheduler.counts() == {"done": 1, "waiting": len(kept) - 1}
assert all(scheduler.job(job) for job in kept)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files to set")
def test_writes_that_the_system_refuses(tmp_path) -> None:
    """A limit on the size of files breaks writes in the middle of the write-ahead log."""
    command = [sys.executable, "-c", WRITE_ERRORS, str(tmp_path / "state.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
