"""The live scheduler: what it decides, what it teaches its policy, and what becomes of jobs."""

import threading

import numpy as np
import pytest

from queuewise.live.errors import Refused
from queuewise.live.scheduler import Scheduler
from queuewise.scheduling import logistic
from queuewise.scheduling.policies import make
from queuewise.scheduling.policies.q_ucb import q_ucb
from queuewise.scheduling.policy import Policy
from tests.naive.live_scheduler import NaiveScheduler

SERVERS = ["a", "b", "c"]


class Clock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def scheduler(servers=SERVERS, *, job_features=1, **options) -> Scheduler:
    """In memory, on a clock of its own, fast to open."""
    options.setdefault("clock", Clock())
    options.setdefault("policy", "q_ucb")
    if "pair_features" not in options:
        options["job_features"] = job_features
    return Scheduler(servers, **options)


def exact(name: str) -> Policy:
    """A policy by its name, with the exact estimator or the one after a stroke."""
    rule, _, estimator = name.partition("/")
    options = {"exploration": 0.5} if rule == "cqb_eta_2" else {}
    if estimator:
        options["estimator"] = estimator
    return make(rule, **options)


def refused(status: str, call, *arguments, **options) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments, **options)
    assert caught.value.status == status
    return str(caught.value)


# --- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["wise", "wise/scheduled", "wise/one_pass", "cqb_opt", "cqb_eta_2", "acqb/one_pass", "q_ucb", "q_ths"]
)
def test_decides_and_learns_as_the_policy_called_by_hand(name: str) -> None:
    """A thousand random happenings: several attempts in flight, workers that ask for themselves, outcomes out of order, lost
    leases and late reports. Both run interpreted, so that they agree to the last bit."""
    rng = np.random.default_rng(3)
    clock = Clock()
    live = Scheduler(
        dict.fromkeys(SERVERS, 2), pair_features=2, policy=exact(name), clock=clock, retry="anywhere", lease=50.0,
        compiled=False,
    )  # fmt: skip
    naive = NaiveScheduler(live._policy, live._shape)
    in_flight, ends, lost, jobs = {}, {}, {}, 0
    for _ in range(400):
        clock.now += 1.0
        for number in [n for n, end in ends.items() if end <= clock.now and n in in_flight]:
            lost[number] = (in_flight.pop(number), naive.lose(number))
        live.sweep()
        what = rng.random()
        if what < 0.25 and jobs < 60:
            features = rng.normal(size=(3, 2)) * 0.5
            live.submit(str(jobs), features)
            naive.submit(jobs, features.T)
            jobs += 1
        elif what < 0.6:
            server = None if rng.random() < 0.6 else str(rng.choice(SERVERS))
            busy = [sum(a.server == name for a in in_flight.values()) for name in SERVERS]
            allowed = np.array([n < 2 for n in busy]) if server is None else np.array([n == server for n in SERVERS])
            assignment, expected = live.next(server), naive.next(allowed)
            if expected is None:
                assert assignment is None
                continue
            assert (assignment.number, int(assignment.job_id), SERVERS.index(assignment.server)) == expected
            assert assignment.round == naive.rounds
            in_flight[assignment.number] = assignment
            ends[assignment.number] = clock.now + 50.0
        elif what < 0.9 and in_flight:
            number = int(rng.choice(list(in_flight)))
            success = bool(rng.random() < 0.4)
            live.report(in_flight.pop(number), success)
            naive.report(number, success)
        elif lost:
            number = int(rng.choice(list(lost)))
            assignment, ticket = lost.pop(number)
            success = bool(rng.random() < 0.5)
            assert live.report(assignment, success).status in ("late", "superseded")
            naive.report_late(number, ticket, success)
    assert naive.rounds > 80 and len(naive.finished) > 20 and len(ends) > len(in_flight) + len(naive.finished)
    assert np.array_equal(live._book.learner.stream, naive.stream)
    assert live.counts()["done"] == len(naive.finished)
    for job, attempt in naive.finished.items():
        assert live._store.job_by_id(str(job)).attempt == attempt
    if hasattr(naive.state, "estimate"):
        d = live._layout.dimension
        assert live._book.learner.state.estimate.counts[0] == naive.state.estimate.counts[0]
        np.testing.assert_array_equal(live._book.learner.state.estimate.theta, naive.state.estimate.theta)
        np.testing.assert_array_equal(live._book.learner.state.estimate.design, naive.state.estimate.design)
        assert naive.state.estimate.theta.shape == (d,)


def test_what_is_learned_does_not_depend_on_the_order_of_reports() -> None:
    """V holds the attempts open or answered, θ̂ is the minimiser over the outcomes, lost attempts are in neither."""
    rng = np.random.default_rng(4)
    clock = Clock()
    live = scheduler(policy=exact("cqb_opt"), job_features=2, clock=clock, lease=10.0)
    for job in range(60):
        live.submit(str(job), rng.uniform(-0.5, 0.5, 2))
    issued = []
    while len(issued) < 60:
        issued.append(live.next(str(rng.choice(SERVERS))))
    rng.shuffle(issued)
    answered = {assignment.number: bool(rng.random() < 0.5) for assignment in issued[:25]}
    for assignment in issued[:25]:
        live.report(assignment, answered[assignment.number])
    for assignment in issued[25:30]:
        live.extend(assignment, 100.0)  # still open at the end
    clock.now += 11.0
    assert (live.sweep(), live.sweep()) == (10, 0), "thirty, twenty at a time"
    for assignment in issued[30:40]:  # answered late
        answered[assignment.number] = bool(rng.random() < 0.5)
        assert live.report(assignment, answered[assignment.number]).status == "late"
    estimate = live._book.learner.state.estimate
    params = live._book.learner.params

    def phi(assignment):
        row = live._store.job_by_id(assignment.job_id)
        return live._layout.expand(live._layout.unpack(row.features))[:, SERVERS.index(assignment.server)]

    settings = params.settings
    design = np.zeros((9, 9))
    fresh = logistic.start(settings, 9, 100)
    with np.errstate(over="ignore"):
        for assignment in sorted(issued, key=lambda a: a.number):
            if assignment.number in answered:
                block = SERVERS.index(assignment.server)
                logistic.learn(settings, fresh, phi(assignment), answered[assignment.number], block)
    for assignment in issued[:40]:
        design += np.outer(phi(assignment), phi(assignment))
    kept = np.zeros((9, 9))
    for k in range(3):
        kept[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] = estimate.design[3 * k : 3 * k + 3]
    np.testing.assert_allclose(kept, settings.initial_design * np.eye(9) + design, atol=1e-9)
    assert estimate.counts[0] == len(answered) == 35
    np.testing.assert_allclose(estimate.theta, fresh.theta, atol=1e-7)


def test_learns_which_server_suits_which_job() -> None:
    """Two kinds of jobs and two servers, each good at one of them: in the end nine of ten go where they belong."""
    rng = np.random.default_rng(5)
    live = Scheduler(["words", "sums"], job_features=1, policy="cqb_opt", clock=Clock(), retry="anywhere")
    right = []
    for job in range(400):
        kind = job % 2
        live.submit(str(job), [1.0 if kind else -1.0])
        assignment = live.next()
        fits = assignment.server == ("sums" if int(assignment.job_id) % 2 else "words")
        right.append(fits)
        live.report(assignment, bool(rng.random() < (0.9 if fits else 0.2)))
    assert np.mean(right[200:]) > 0.9
    assert np.mean(right[200:]) > np.mean(right[:40])


def test_a_policy_by_name_has_the_estimator_that_keeps_no_history() -> None:
    for name in ("wise", "cqb_opt", "acqb"):
        options = scheduler(policy=name)._policy.options
        assert (options["estimator"], options["growth"]) == ("one_pass", 1.0)
    assert scheduler(policy=make("cqb_opt"))._policy.options["estimator"] == "exact"
    assert scheduler(policy="q_ucb")._policy.rule == "q_ucb"


def test_a_newcomer_is_shown_once_in_order_of_arrival() -> None:
    """`cqb_eta_2` that always explores serves newcomers first, each once, then falls back to its estimates."""
    live = scheduler({"a": 99}, policy=make("cqb_eta_2", exploration=1.0, phase_1_end=1.0, phase_2_end=1.0))
    for job in range(5):
        live.submit(str(job), [0.1])
    taken = [live.next() for _ in range(5)]
    assert [(a.job_id, a.reason) for a in taken] == [(str(job), "explore") for job in range(5)]
    live.report(taken[3], False)
    again = live.next()
    assert (again.job_id, again.reason, again.try_number) == ("3", "exploit", 2)


def test_central_choice_counts_slots_and_a_worker_that_asks_does_not() -> None:
    live = scheduler({"a": 1, "b": 2})
    for job in range(9):
        live.submit(str(job), [0.0])
    assert sorted(live.next().server for _ in range(3)) == ["a", "b", "b"]
    assert live.next() is None
    assert live.next("a").server == "a"
    assert live.servers["a"] == {"slots": 1, "running": 2, "open": True}


def test_nothing_to_do_is_none_and_no_decision() -> None:
    live = scheduler()
    assert live.next() is None and live.next("a") is None
    live.submit("1", [0.0])
    assert live.next().round == 1
    assert live.next() is None


def test_a_failed_job_goes_elsewhere_until_it_has_been_everywhere() -> None:
    live = scheduler(policy=q_ucb(exploration_scale=0.0))
    live.submit("x", [0.0])
    for _ in range(3):  # three rounds through all the servers
        seen = []
        for _ in SERVERS:
            assignment = live.next()
            seen.append(assignment.server)
            live.report(assignment, False)
        assert sorted(seen) == SERVERS
    assignment = live.next("b")
    live.report(assignment, False)
    assert live.next("b") is None, "it has just failed there"
    live.remove_server("a")
    live.remove_server("c")
    assert live.next("b") is not None, "there is nowhere else"


def test_retry_anywhere() -> None:
    live = scheduler(["a", "b"], policy=q_ucb(exploration_scale=0.0), retry="anywhere")
    live.submit("x", [0.0])
    live.report(live.next("b"), False)
    assert live.next("b").try_number == 2


def test_jobs_for_some_servers_only() -> None:
    live = scheduler({"a": 9, "b": 9, "c": 9})
    live.submit("1", [0.0], servers=["b"])
    live.submit("2", [0.0], servers="c")
    assert live.next("a") is None
    assert {(a.job_id, a.server) for a in (live.next(), live.next())} == {("1", "b"), ("2", "c")}
    pairs = scheduler({"a": 9, "b": 9}, pair_features=2)
    pairs.submit("1", {"b": [0.1, 0.2]})
    assert pairs.next("a") is None
    assert pairs.next().server == "b"


# --- jobs and attempts ------------------------------------------------------------------------------------------------


def test_a_lost_workers_job_returns_and_its_late_success_still_counts_once() -> None:
    clock = Clock()
    live = scheduler(clock=clock, lease=10.0, retry="anywhere")
    live.submit("x", [0.0])
    first = live.next()
    clock.now += 9.9
    assert live.next() is None
    clock.now += 0.2
    second = live.next()
    assert (second.job_id, second.try_number) == ("x", 2)
    receipt = live.report(first, True)
    assert (receipt.status, receipt.job_status, receipt.learned) == ("late", "done", True)
    assert live.job("x").finished_by == first.server
    receipt = live.report(second, True)
    assert (receipt.status, receipt.job_status, receipt.learned) == ("superseded", "done", True)
    assert live._store.job_by_id("x").attempt == first.number
    assert live.report(first, True).status == live.report(second, True).status == "repeated"
    assert live._book.learner.state.attempts.sum() == 2, "each outcome is learned once"
    assert live.next() is None and not live._book.jobs


def test_a_late_failure_teaches_and_changes_nothing_else() -> None:
    clock = Clock()
    live = scheduler(clock=clock, lease=10.0)
    live.submit("x", [0.0])
    first = live.next()
    clock.now += 11.0
    live.sweep()
    assert live._book.learner.state.attempts.sum() == 0
    receipt = live.report(first, False)
    assert (receipt.status, receipt.job_status, receipt.learned) == ("late", "waiting", True)
    assert live._book.learner.state.attempts.sum() == 1
    assert live.next().try_number == 2


def test_a_report_after_the_lease_counts_as_long_as_nobody_took_the_job_back() -> None:
    clock = Clock()
    live = scheduler(clock=clock, lease=10.0)
    live.submit("x", [0.0])
    assignment = live.next()
    clock.now += 1000.0
    assert live.report(assignment, True).status == "accepted"


def test_a_lost_attempt_can_count_as_a_failure() -> None:
    clock = Clock()
    live = scheduler(clock=clock, lease=10.0, lost="failure")
    live.submit("x", [0.0])
    first = live.next("a")
    clock.now += 11.0
    live.sweep()
    assert live._book.learner.state.attempts.tolist() == [1, 0, 0]
    receipt = live.report(first, True)
    assert (receipt.status, receipt.job_status, receipt.learned) == ("late", "done", False)
    assert live._book.learner.state.successes.sum() == 0


def test_heartbeats_keep_a_lease() -> None:
    clock = Clock()
    live = scheduler(clock=clock, lease=10.0)
    live.submit("x", [0.0])
    assignment = live.next()
    for _ in range(5):
        clock.now += 8.0
        assert live.extend(assignment) == clock.now + 10.0
        assert live.next() is None
    clock.now += 11.0
    assert live.next() is not None
    assert "expired" in refused("unknown_assignment", live.extend, assignment)


def test_attempts_run_out() -> None:
    clock = Clock()
    live = scheduler(clock=clock, max_attempts=3, lease=10.0)
    live.submit("x", [0.0])
    live.report(live.next(), False)
    lost = live.next()
    clock.now += 11.0
    assert live.report(live.next(), False).job_status == "failed"
    assert live.next() is None
    assert (live.job("x").status, live.job("x").tries) == ("failed", 3)
    receipt = live.report(lost, True)
    assert (receipt.status, receipt.job_status) == ("superseded", "failed"), "the first final result stands"


def test_deadlines() -> None:
    clock = Clock()
    live = scheduler(clock=clock, lease=100.0)
    live.submit("waits", [0.0], deadline=5.0)
    live.submit("fails late", [0.0], deadline=5.0)
    live.submit("succeeds late", [0.0], deadline=5.0)
    live.submit("free", [0.0])
    taken = {}
    for server in ("a", "b", "c"):
        assignment = live.next(server)
        taken[assignment.job_id] = assignment
    waits = ({"waits", "fails late", "succeeds late", "free"} - set(taken)).pop()
    clock.now += 6.0
    names = [name for name in taken if name != "free"]
    assert live.report(taken[names[0]], False).job_status == "overdue"
    assert live.report(taken[names[1]], True).job_status == "done", "begun in time"
    live.sweep()
    assert live.job(waits).status == ("overdue" if waits != "free" else "waiting")


def test_cancelling() -> None:
    live = scheduler()
    live.submit("waits", [0.0])
    assert live.cancel("waits") and not live.cancel("waits")
    assert live.next() is None
    live.submit("runs", [0.0])
    assignment = live.next()
    assert live.cancel("runs")
    receipt = live.report(assignment, True)
    assert (receipt.status, receipt.job_status, receipt.learned) == ("superseded", "cancelled", True)
    refused("unknown_job", live.cancel, "nobody")
    refused("duplicate_job", live.submit, "waits", [0.0])


# --- servers ----------------------------------------------------------------------------------------------------------


def test_servers_come_and_go() -> None:
    live = scheduler(["a"], spare=1)
    live.submit("1", [0.0])
    assert "none is called" in refused("unknown_server", live.next, "b")
    live.add_server("b", slots=3)
    assert live.next("b").server == "b"
    refused("no_room", live.add_server, "c")
    live.remove_server("a")
    live.submit("2", [0.0])
    assert live.next("a") is None
    assert live.next().server == "b"
    live.add_server("a")
    live.submit("3", [0.0])
    assert live.next("a").server == "a"
    assert list(live.servers) == ["a", "b"]


def test_pairs_described_before_a_server_came_do_not_go_there() -> None:
    live = scheduler(["a"], pair_features=2, spare=1)
    live.submit("old", {"a": [0.1, 0.1]})
    live.add_server("b")
    live.submit("new", [[0.1, 0.1], [0.2, 0.2]])
    assert live.next("b").job_id == "new"
    assert live.next("b") is None


# --- what is refused --------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_in_one_sentence_and_changes_nothing() -> None:
    live = scheduler(job_features=2)
    live.submit("x", [0.0, 0.0])
    assignment = live.next()
    before = live.state()
    assert "must be 2 numbers, not 3" in refused("bad_features", live.submit, "y", [1, 2, 3])
    assert "must be finite, and number 2 is nan" in refused("bad_features", live.submit, "y", [1.0, np.nan])
    assert "length of at most" in refused("bad_features", live.submit, "y", [5.0, 5.0])
    refused("bad_features", live.submit, "y", "text")
    refused("bad_features", live.submit, "y", [[0.0], [0.0]])
    refused("bad_features", live.submit, "y", [1e308, 1e308])
    refused("bad_option", live.submit, "", [0.0, 0.0])
    refused("bad_option", live.submit, 7, [0.0, 0.0])
    refused("bad_option", live.submit, "\ud800", [0.0, 0.0])
    refused("bad_option", live.submit, "y", [0.0, 0.0], deadline=-1.0)
    said = refused("bad_option", live.submit, "y", [0.0, 0.0], deadline=1796052000.5)
    assert said == "deadline: must be in seconds from now, and no time since 1970, as 1796052000.5 is"
    refused("unknown_server", live.submit, "y", [0.0, 0.0], servers=["z"])
    assert "already a job 'x'" in refused("duplicate_job", live.submit, "x", [0.0, 0.0])
    refused("bad_option", live.submit_many, ["yz"])
    with pytest.raises(Refused, match="deadline: must be in seconds from now"):
        live.submit_many([("y", [0.0, 0.0])], deadline=1796052000)
    refused("duplicate_job", live.submit_many, [("y", [0.0, 0.0]), ("y", [0.0, 0.0])])
    refused("duplicate_job", live.submit_many, [("y", [0.0, 0.0]), ("x", [0.0, 0.0])])
    assert "there are a, b, c" in refused("unknown_server", live.next, "z")
    refused("unknown_server", live.next, ["a"])
    refused("bad_option", live.next, lease=0)
    assert "no attempt 99" in refused("unknown_assignment", live.report, 99, True)
    refused("unknown_assignment", live.report, "1", True)
    refused("unknown_assignment", live.extend, 99)
    refused("unknown_assignment", live.explain, 99)
    refused("bad_option", live.report, assignment, "yes")
    refused("unknown_job", live.job, "y")
    after = live.state()
    assert all(np.array_equal(before[name], after[name]) for name in before | after)
    live.report(assignment.number, False)
    assert "as a failure before" in refused("conflicting_report", live.report, assignment, True)


def test_bad_options_are_refused() -> None:
    for options, word in (
        ({"servers": []}, "servers"),
        ({"servers": "a"}, "servers"),
        ({"servers": ["a", "a"]}, "servers"),
        ({"servers": {"a": 0}}, "slots of 'a'"),
        ({"policy": "wize"}, "did you mean 'wise'"),
        ({"policy": "oracle"}, "true probabilities"),
        ({"policy": 3}, "policy"),
        ({"policy": make("wise", radius=-1.0)}, "wise: radius"),
        ({"policy": "cqb_eta_2"}, "exploration"),
        ({"job_features": None}, "job_features or pair_features"),
        ({"pair_features": 2}, "job_features or pair_features"),
        ({"job_features": 1.5}, "job_features"),
        ({"lease": -1}, "lease"),
        ({"lease": float("nan")}, "lease"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"retry": "never"}, "retry"),
        ({"lost": "and found"}, "lost"),
        ({"scale": 0.0}, "scale"),
        ({"scale": [1.0, 2.0]}, "scale"),
        ({"feature_bound": 0.5}, "feature_bound"),
        ({"too_long": "cut"}, "too_long"),
        ({"durability": "none"}, "durability"),
        ({"spare": -1}, "spare"),
    ):
        with pytest.raises(ValueError, match=word) as caught:
            Scheduler(**{"servers": SERVERS, "job_features": 1, **options})
        assert caught.value.status == "bad_option"


def test_long_features_are_shrunk_where_asked() -> None:
    live = scheduler(job_features=2, feature_bound=2.0, too_long="shrink", scale=[1.0, 10.0])
    live.submit("x", [3.0, 40.0])
    phi = live._book.learner.features[0]
    np.testing.assert_allclose(np.linalg.norm(phi, axis=0), 2.0)
    np.testing.assert_allclose(phi[1:3, 0], np.array([3.0, 4.0]) * np.sqrt(3.0) / 5.0)
    assert phi[0, 0] == 1.0 and not phi[3:, 0].any()


def test_a_policy_that_breaks_the_rules_is_told_so_and_nothing_is_lost() -> None:
    def decide(params, state, columns, waiting, stream):
        return waiting.slots[0], 7 if waiting.round == 2 else 0, 0

    live = scheduler({"a": 9}, policy=Policy("broken", decide), compiled=False)
    live.submit("1", [0.0])
    live.submit("2", [0.0])
    first = live.next()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a server that is not allowed"):
            live.next()
    assert live.report(first, True).status == "accepted"
    assert live.counts() == {"done": 1, "waiting": 1}


# --- explanations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wise", "cqb_opt", "acqb", "q_ucb"])
def test_explains_a_decision_as_it_was_then(name: str) -> None:
    """What :meth:`explain` says later is what the policy would have said at once, and asking changes nothing."""
    rng = np.random.default_rng(6)
    live = scheduler(dict.fromkeys(SERVERS, 9), policy=exact(name), job_features=1, snapshot_every=20)
    said = {}
    for job in range(25):
        live.submit(str(job), rng.uniform(-0.5, 0.5, 1))
        learner = live._book.learner
        live._snapshot_event = live._book.event  # no snapshot while we look
        allowed = learner.present & (live._busy < 9)
        twin = live._rebuild(live._rules, live._book.event)
        choice = twin.choose(allowed)
        expected = twin.learner.explain(choice, allowed & twin.learner.open_to(choice.slot))
        assignment = live.next()
        said[assignment.number] = (assignment, expected)
        if job % 3:
            live.report(assignment, bool(rng.random() < 0.5))
    before = live.state()
    for assignment, expected in said.values():
        explanation = live.explain(assignment)
        assert (explanation["job"], explanation["server"]) == (assignment.job_id, assignment.server)
        assert explanation["waiting"] >= 1 and explanation["servers"] == SERVERS
        expected.pop("candidates", None)
        candidates = explanation["because"].pop("candidates", None)
        assert explanation["because"] == expected
        if candidates is not None:
            assert (assignment.job_id, assignment.server) in candidates
    after = live.state()
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_explanations_reach_back_to_the_older_snapshot() -> None:
    live = scheduler({"a": 99}, snapshot_every=10)
    first = None
    for job in range(30):
        live.submit(str(job), [0.0])
        assignment = live.next()
        first = first or assignment
        live.report(assignment, True)
    assert "before the snapshots" in refused("too_old", live.explain, first)
    assert live.explain(assignment)["job"] == "29"


# --- several threads --------------------------------------------------------------------------------------------------


def test_threads_do_everything_once() -> None:
    live = Scheduler({"a": 4, "b": 4}, job_features=1, policy="q_ucb", lease=60.0, snapshot_every=37)
    jobs, finished, errors = 120, [], []

    def submit(part: int) -> None:
        for job in range(part, jobs, 3):
            live.submit(str(job), [0.0])

    def work(server: str | None, seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            while len(finished) < jobs:
                assignment = live.next(server)
                if assignment is not None:
                    receipt = live.report(assignment, bool(rng.random() < 0.7))
                    if receipt.job_status == "done":
                        finished.append(receipt.job_id)
        except Exception as error:
            errors.append(error)
            finished.extend("" for _ in range(jobs))

    threads = [threading.Thread(target=submit, args=(part,)) for part in range(3)]
    threads += [threading.Thread(target=work, args=(server, seed)) for seed, server in enumerate([None, "a", "b"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert sorted(finished, key=int) == [str(job) for job in range(jobs)]
    assert live.counts() == {"done": jobs}
    outcomes = live._store.outcomes()
    assert live._book.learner.state.attempts.sum() == len(outcomes)
    again = live._rebuild(live._rules)
    assert all(np.array_equal(a, b) for a, b in zip(again.arrays().values(), live.state().values(), strict=True))
    assert live.diverged == 0
