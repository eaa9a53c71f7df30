"""Policies on recorded outcomes: what can be carried, the rules that know the record, and the whole command in small."""

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import queuewise as qw
from queuewise.experiments import offline, recorded_outcomes
from queuewise.experiments.recorded_outcomes import CASES, Case, Lengths, available, capacities, lengths, read_case
from queuewise.experiments.registry import reproduce
from queuewise.scheduling.recorded import RecordedOutcomes, RecordedSystem

DATA = Path(os.environ.get("QUEUEWISE_DATA") or Path(__file__).parents[3] / "shared" / "data")


def record(jobs: int = 12, servers: int = 3, seed: int = 5) -> RecordedOutcomes:
    rng = np.random.default_rng(seed)
    outcomes = rng.integers(0, 11, (jobs, servers)) / 10
    outcomes[0] = 0
    return RecordedOutcomes(
        tuple(f"j{i:02d}" for i in range(jobs)),
        tuple(f"s{k}" for k in range(servers)),
        ("x",),
        rng.normal(size=(jobs, 1)),
        outcomes,
    )


def system_of(limit: int | None = 4, rate: float = 0.2) -> RecordedSystem:
    if limit is None:
        return record().system(arrival_rate=rate, truth="fit")
    return record().system(arrival_rate=rate, impossible="attempts", max_attempts=limit)


# --- capacities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 4, 7, None])
def test_capacities_are_those_of_attempts_one_by_one(limit: int | None) -> None:
    system = system_of(limit)
    p = system.law.probabilities  # type: ignore[attr-defined]
    found = capacities(system)

    def slowly(choose: Any) -> tuple[float, float]:
        attempts, lost = 0.0, 0.0
        for row in range(len(p)):
            waiting = 1.0
            for n in range(limit or 4000):
                attempts += waiting
                waiting *= 1 - p[row, choose(row, n)]
            lost += waiting
        return attempts / len(p), lost / len(p)

    alone = [slowly(lambda _, n, k=k: k) for k in range(3)]
    # Where all give up at once, all carry alike, and the one that does most is best.
    order = sorted(range(3), key=lambda k: (round(alone[k][0], 9), -round(p[:, k].mean(), 9)))
    z = np.einsum("rdk,d->rk", system.law.features, system.fitted_theta)  # type: ignore[attr-defined]
    for way, expected in (
        (found.single, alone[order[0]]),
        (found.fallback, slowly(lambda _, n: order[n % 3])),
        (found.router, slowly(lambda row, _: z[row].argmax())),
        (found.matched, slowly(lambda row, _: p[row].argmax())),
    ):
        assert (way.attempts, way.given_up) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert way.rate == 1 / way.attempts
    assert found.server == f"s{order[0]}"
    assert found.matched.rate == pytest.approx((1 - system.slack()) ** -1 * system.arrival_rate)
    assert found.matched.rate >= max(found.single.rate, found.router.rate)


def test_a_router_is_worth_what_the_features_tell_of_jobs_it_has_not_seen() -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=400)
    told = np.where(x[:, None] > 0, [0.9, 0.2], [0.2, 0.9])
    for outcomes, more in ((told, 1.5), (told[rng.permutation(400)], 1.0)):
        names = tuple(f"{i:03d}" for i in range(400))
        record = RecordedOutcomes(names, ("a", "b"), ("x",), x[:, None], outcomes)
        found = capacities(record.system(load=0.5))
        assert found.held_out.success == pytest.approx(more * found.single.success, rel=0.12)
        assert found.matched.success == pytest.approx(0.9)
    # A feature per job is learned by heart, which is worth nothing to the others.
    noise = RecordedOutcomes(
        names[:40], ("a", "b"), tuple(names[:40]), 30 * np.eye(40), rng.integers(1, 10, (40, 2)) / 10
    )
    known = capacities(noise.system(load=0.5, scale=None))
    assert known.router.success == pytest.approx(known.matched.success)
    assert known.held_out.success <= known.single.success + 1e-9


# --- the rules that know the record ----------------------------------------------------------------------------------


def attempts_of(trace: Any, run: int, job: int) -> list[int]:
    return [int(server) for server in trace.server[run][trace.job[run] == job]]


def test_the_three_rules_do_what_they_say() -> None:
    system = system_of(limit=7, rate=0.15)
    order = [int(k) for k in offline.by_success(system)]
    rules = [offline.single(system), offline.fallback(system), offline.router(system)]
    result = qw.scheduling.simulate(system, rules, rounds=300, runs=2, seed=3, trace=True)
    z = np.einsum("rdk,d->rk", system.law.features, system.fitted_theta)  # type: ignore[attr-defined]
    longest = 0
    for run in range(2):
        rows = qw.scheduling.engine.draw(system, 300, 3, run).contexts  # type: ignore[attr-defined]
        for name, trace in ((name, result.trace[name]) for name in ("single", "fallback", "router")):
            served = trace.job[run][trace.job[run] >= 0]
            assert (np.diff(served) >= 0).all()  # the earliest job, until it has left
            for job in np.unique(served):
                tried = attempts_of(trace, run, job)
                longest = max(longest, len(tried))
                if name == "single":
                    assert set(tried) == {order[0]}
                elif name == "fallback":
                    assert tried == [order[n % 3] for n in range(len(tried))]
                else:
                    assert set(tried) == {int(z[rows[job]].argmax())}
    assert longest > 3  # the chain has gone round


def test_the_rules_are_policies_like_others() -> None:
    system = system_of()
    for policy in (offline.single(system), offline.fallback(system), offline.router(system)):
        assert policy.label == policy.name
        compiled = qw.scheduling.simulate(system, [policy], rounds=120, runs=2, seed=1)
        plain = qw.scheduling.simulate(system, [policy], rounds=120, runs=2, seed=1, compiled=False)
        np.testing.assert_array_equal(compiled.queue_length[policy.name], plain.queue_length[policy.name])


def test_hiding_features_changes_nothing_but_what_is_seen() -> None:
    system = system_of()
    hidden = recorded_outcomes.blind(system)
    assert hidden.dimension == hidden.servers == 3 and hidden.max_attempts == 4
    assert hidden.settings() != system.settings() and hidden.slack() == system.slack()
    shown, unseen = (
        qw.scheduling.simulate(one, ["oracle", "random", "cqb_opt"], rounds=200, runs=3, seed=4, trace=True)
        for one in (system, hidden)
    )
    # The same arrivals, jobs and luck: who does not look at features does the same.
    for name in ("oracle", "random"):
        np.testing.assert_array_equal(shown.queue_length[name], unseen.queue_length[name])
    # To who looks at nothing, all jobs are alike, and the earliest is served until it has left.
    served = unseen.trace["cqb_opt"].job
    assert all((np.diff(row[row >= 0]) >= 0).all() for row in served)
    assert any((np.diff(row[row >= 0]) < 0).any() for row in shown.trace["cqb_opt"].job)


def test_context_pays_where_features_tell_and_not_where_they_do_not() -> None:
    rng = np.random.default_rng(8)
    x = rng.choice([-1.0, 1.0], 60)
    told = np.where(x[:, None] > 0, [0.9, 0.2], [0.2, 0.9])
    names = tuple(f"{i:03d}" for i in range(60))
    for outcomes, pays in ((told, True), (told[rng.permutation(60)], False)):
        system = RecordedOutcomes(names, ("a", "b"), ("x",), x[:, None], outcomes).system(load=0.8)
        chosen = recorded_outcomes.policies(system)[:8]
        shown = qw.scheduling.simulate(system, chosen, rounds=400, runs=6, seed=2)
        hidden = qw.scheduling.simulate(recorded_outcomes.blind(system), chosen, rounds=400, runs=6, seed=2)
        found = recorded_outcomes.what_context_pays(shown, hidden)
        assert (found.high < 0) == pays
        best = min(shown.mean_regret(name).mean for name in recorded_outcomes.CONTEXTUAL)
        others = [hidden.mean_regret(name).mean for name in recorded_outcomes.CONTEXTUAL]
        others += [shown.mean_regret(name).mean for name in recorded_outcomes.PLAIN]
        assert found.mean == pytest.approx(best - min(others))


def test_characters_are_counted_attempt_by_attempt(tmp_path: Path) -> None:
    system = system_of()
    chars = np.random.default_rng(1).integers(10, 1000, (12, 3))
    lines = [["job", "s2", "s0", "s1"], *([f"j{i:02d}", *row[[2, 0, 1]]] for i, row in enumerate(chars))]
    with (tmp_path / "chars.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    case = Case("x", "x", "", {}, {}, lengths=str(tmp_path / "chars.csv"))
    result = qw.scheduling.simulate(system, ["random"], rounds=150, runs=2, seed=7, trace=True)
    found, means = lengths(case, system, result)
    written, attempts, done = 0, 0, 0
    for run in range(2):
        rows = qw.scheduling.engine.draw(system, 150, 7, run).contexts  # type: ignore[attr-defined]
        trace = result.trace["random"]
        for t in range(150):
            if trace.job[run, t] >= 0:
                written += chars[rows[trace.job[run, t]], trace.server[run, t]]
                attempts += 1
                done += bool(trace.departure[run, t])
    assert found["random"] == Lengths(pytest.approx(written / attempts), pytest.approx(written / done))
    assert means == pytest.approx({f"s{k}": chars[:, k].mean() for k in range(3)})


# --- the command -----------------------------------------------------------------------------------------------------


def invented(folder: Path, cases: list[Case], jobs: int = 30) -> None:
    """Files of the published layouts with outcomes of our own."""
    rng = np.random.default_rng(2)
    for case in cases:
        key = case.reading["id"]
        key = [key] if isinstance(key, str) else key
        columns = [*key, *case.reading["features"], *case.reading["outcomes"]]
        words = {"difficulty": ["easy", "hard"], "platform": ["here", "there"], "date": ["2", "3", "5"]}
        # As many kinds of job as there are components to reduce them to, and one more.
        kinds = [f"kind {i:02d}" for i in range(14)]
        path = folder / case.file
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = case.reading.get("feature_file")
        rows = []
        for i in range(jobs * 5):
            texts = [f"{i:03d}" for _ in key]
            texts += [words.get(name, kinds)[i % len(words.get(name, kinds))] for name in case.reading["features"]]
            rows.append([*texts, *(f"{int(rng.integers(0, 11)) / 10}" for _ in case.reading["outcomes"])])
        if case.file.startswith("livecodebench"):
            rows = rows[:jobs]
        tables = {path: (columns, rows)}
        if beside and not (folder / beside).exists():
            tables[folder / beside] = (columns, rows)
            if not case.file.startswith("livecodebench"):
                away = len(key) + len(case.reading["features"])
                tables[path] = (key + columns[away:], [row[: len(key)] + row[away:] for row in rows])
        if case.lengths:
            lengthy = [[row[0], *(str(len(key) * 100 + k) for k in range(10))] for row in rows]
            tables[folder / case.lengths] = ([*key, *case.reading["outcomes"]], lengthy)
        for target, (header, lines) in tables.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("w", newline="") as file:
                csv.writer(file).writerows([header, *lines])


def test_the_whole_command_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [
        case for case in CASES if case.name in ("testgen-repeat", "testgen-fit", "mmlu_pro-fit", "llmrouter-repeat")
    ]
    invented(tmp_path / "data", [case for case in chosen if not case.name.startswith("llmrouter")])
    monkeypatch.setenv("QUEUEWISE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(recorded_outcomes, "CASES", tuple(chosen))
    monkeypatch.setattr(recorded_outcomes.available, "__defaults__", (tuple(chosen),))
    monkeypatch.setattr(recorded_outcomes, "ROUNDS", 60)
    monkeypatch.setattr(recorded_outcomes, "LOADS", (0.8, 30.0))
    outcome = reproduce("recorded-outcomes", runs=3, out=tmp_path / "out")
    assert outcome.sentences[0] == "Left out, since QUEUEWISE_DATA does not have them: llmrouter."
    assert all(path.exists() for path in outcome.files)
    found = json.loads((tmp_path / "out" / "recorded-outcomes.json").read_text())
    assert [case["name"] for case in found["cases"]] == ["testgen-repeat", "testgen-fit", "mmlu_pro-fit"]
    # testgen-fit stands in the table of capacities alone, and nobody carries thirty times the best server's load.
    played = [(setting["case"], setting["load_of_best_single_server"]) for setting in found["settings"]]
    assert played == [("testgen-repeat", 0.8), ("mmlu_pro-fit", 0.8)]
    assert sum("Load 30 is more than the oracle carries." in sentence for sentence in outcome.sentences) == 2
    for setting in found["settings"]:
        regret = setting["mean_regret"]
        learners = [name for name in regret if name not in ("single", "fallback", "router")]
        assert len(learners) == 8
        assert setting["best_learner"] == min(learners, key=lambda name: regret[name]["mean"])
        assert setting["next_behind"]["mean"] >= 0
        with_features = min(regret[name]["mean"] for name in recorded_outcomes.CONTEXTUAL)
        without = [regret[name]["mean"] for name in recorded_outcomes.PLAIN]
        without += [hidden["mean"] for hidden in setting["mean_regret_features_hidden"].values()]
        assert len(without) == 8
        assert setting["context_difference"]["mean"] == pytest.approx(with_features - min(without))
        assert bool(setting["given_up"]) == (setting["case"] == "testgen-repeat")
        words = next(case.words for case in chosen if case.name == setting["case"])
        sentence = next(sentence for sentence in outcome.sentences if sentence.startswith(f"{words}: "))
        assert f"Smallest regret of all learners: {setting['best_learner']} at load 0.8." in sentence
        assert f"Context: {setting['context']} at load 0.8." in sentence
    titles = [table.title for table in outcome.tables]
    assert titles[:3] == ["What can be carried", "Who wins under which load", "Mean regret of every policy"]
    assert "Characters written, MMLU-Pro, fit, load 0.8" in titles
    # Rows that are there are taken up again.
    again = reproduce("recorded-outcomes", runs=3, out=tmp_path / "out")
    assert again.results["settings"] == outcome.results["settings"]


def test_without_any_data_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUEWISE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"none of its data sets is found \(livecodebench, llmrouter, mmlu_pro\)"):
        reproduce("recorded-outcomes", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_published_outcomes_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUEWISE_DATA", str(DATA))
    case = next(case for case in CASES if case.name == "execution-repeat")
    try:
        available([case])
    except ValueError:
        pytest.skip("livecodebench is not in QUEUEWISE_DATA")
    found = capacities(read_case(case).system(load=0.5, **case.building))
    assert found.server == "Dracarys-72B-Instruct"
    # Features do not tell which model will do: a fitted router carries no more than the best single one, though hindsight would
    # carry twice as much, and trying the next model half as much again.
    assert found.router.rate == pytest.approx(found.single.rate, rel=0.05)
    assert found.matched.rate > 2 * found.single.rate and found.fallback.rate > 1.4 * found.single.rate


@pytest.mark.slow
def test_the_page_says_what_published_outcomes_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUEWISE_DATA", str(DATA))
    try:
        found, _ = available()
    except ValueError:
        pytest.skip("its data sets are not in QUEUEWISE_DATA")
    page = (Path(__file__).parents[2] / "docs" / "recorded-outcomes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z][^|]*) \| (repeat|fit) ((?:\| 0\.\d{3} ){5})\|$", page, re.MULTILINE)
    said = {f"{words}, {truth}": numbers.strip("| ").split(" | ") for words, truth, numbers in rows}
    assert len(said) == 7
    for case in found:
        if case.played:
            published = read_case(case)
            known = capacities(published.system(load=0.5, **case.building), published.outcomes)
            assert said[case.words] == [f"{way.rate:.3f}" for way in known.ways().values()], case.words
