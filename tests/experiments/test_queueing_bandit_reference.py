"""Q-UCB against its authors' published curve: the statistics on made-up curves, and the command with and without data."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from queuewise import matching
from queuewise.experiments import registry
from queuewise.experiments.claims import FAILS, HOLDS
from queuewise.experiments.papers import queueing_bandit_reference as reference
from queuewise.experiments.papers.queueing_bandit_reference import MARKS, SYSTEM, Published

NAME = "queueing-bandit-reference"
DATA = Path(os.environ.get("QUEUEWISE_DATA") or Path(__file__).parents[3] / "shared" / "data")


def made_up(runs: int, seed: int = 0) -> matching.Result:
    """Runs of a walk that reverts to its mean, around a hump."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(runs, len(MARKS), SYSTEM.users))
    walk = np.zeros_like(steps)
    for i in range(1, len(MARKS)):
        walk[:, i] = 0.8 * walk[:, i - 1] + steps[:, i]
    hump = 20.0 * np.sqrt(np.array(MARKS) / 650.0) * np.exp(0.5 - np.array(MARKS) / 1300.0)
    queue = np.rint(100.0 + hump[None, :, None] + 3.0 * walk).astype(np.int32)
    queue[:, 0] = 100
    other = np.full_like(queue, 100)
    return matching.Result({}, np.array(MARKS), queue, other, other)


def curve_of(result: matching.Result) -> Published:
    regrets = result.regrets()
    return Published(regrets.mean(axis=0), regrets.std(axis=0, ddof=1))


# --- statistics ------------------------------------------------------------------------------------------------------


def test_largest_z_of_independent_and_of_equal_columns() -> None:
    values = np.random.default_rng(1).normal(size=(3000, 50))
    largest = reference.largest_z(values, 1, draws=4000)
    exact = norm.ppf((1 + 0.95 ** (1 / 50)) / 2)
    assert np.quantile(largest, 0.95) == pytest.approx(exact, abs=0.1)
    equal = np.repeat(values[:, :1], 50, axis=1)
    # Whatever its unit, and beside a column that never varies, one number repeated is one chance.
    equal = np.concatenate([1e3 * equal, np.ones((3000, 1))], axis=1)
    assert np.quantile(reference.largest_z(equal, 1, draws=4000), 0.95) == pytest.approx(1.96, abs=0.1)


def test_same_process_agrees_as_often_as_it_should_and_another_one_does_not() -> None:
    agreeing = 0
    for trial in range(12):
        there = curve_of(made_up(1000, 2 * trial + 1))
        found = reference.with_published(made_up(60, 2 * trial), "independent", there, trial)
        agreeing += found.largest.max() < found.critical
        assert (found.p > 0.05) == (found.largest.max() < found.critical)
    assert agreeing >= 9  # 11.4 expected; 8 or fewer have probability 0.0002
    there = curve_of(made_up(1000, 5))
    shifted = there._replace(mean=there.mean + 3.0 * (np.arange(3) == 1))
    found = reference.with_published(made_up(60), "independent", shifted, 1)
    assert found.largest[1] > found.critical and found.p < 0.01


def test_joint_test_finds_what_no_single_time_shows() -> None:
    result = made_up(400)
    there = curve_of(made_up(1000, 3))
    squared, count, p = reference.jointly(result, "independent", there) or (0.0, 0, 0.0)
    assert count == 33 and p > 0.01 and squared > 0.0
    signs = np.where(np.random.default_rng(3).random((len(MARKS), 3)) < 0.5, -1.0, 1.0)
    shifted = there._replace(mean=there.mean + 0.6 * signs)
    assert reference.with_published(result, "independent", shifted, 1).p < 0.5
    assert (reference.jointly(result, "independent", shifted) or (0.0, 0, 1.0))[2] < 1e-4
    assert reference.jointly(made_up(60), "independent", there) is None


def test_peak_of_a_hump() -> None:
    slot, (low, high) = reference.peak(made_up(400).regrets()[:, :, 0], 1)
    assert low <= slot <= high and low >= 480 and high <= 840  # √t e^(−t/1300) is largest at 650


def test_claims_about_made_up_curves() -> None:
    result = made_up(100)
    verdicts = {v.claim.text: v.verdict for v in reference.claims(result, "independent", {})}
    assert verdicts == {reference.RISE: HOLDS, reference.DECAY: HOLDS}
    flat = matching.Result({}, result.slots, result.common + 5, result.common, result.common)
    verdicts = {v.claim.text: v.verdict for v in reference.claims(flat, "independent", {})}
    assert verdicts[reference.DECAY] == FAILS and verdicts[reference.RISE] != HOLDS


# --- the command -----------------------------------------------------------------------------------------------------


def test_without_the_published_curve_ours_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUEUEWISE_DATA", raising=False)
    outcome = registry.reproduce(NAME, runs=12, out=tmp_path, workers=2)
    assert any("QUEUEWISE_DATA names no folder" in sentence for sentence in outcome.sentences)
    assert [v.claim.text for v in outcome.verdicts] == [reference.COUPLED, reference.RISE, reference.DECAY]
    found = json.loads((tmp_path / "claims.json").read_text())
    assert not found["published"] and found["parameters"]["conflict"] == "first"
    assert len(found["regret"]["user 3"]["mean"]) == len(MARKS)
    for path in outcome.files:
        assert path.exists()
    # The same rows serve the other comparison system; a rule that changes the runs does not pass for them.
    registry.reproduce(NAME, runs=12, out=tmp_path, parameters={"randomness": "common"})
    with pytest.raises(ValueError, match="holds another experiment"):
        registry.reproduce(NAME, runs=12, out=tmp_path, parameters={"conflict": "largest"})


def test_with_a_published_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (DATA / reference.FILE).exists():
        pytest.skip("qucb_reference is not in QUEUEWISE_DATA")
    monkeypatch.setenv("QUEUEWISE_DATA", str(DATA))
    outcome = registry.reproduce(NAME, runs=120, out=tmp_path, workers=2, parameters={"randomness": "common"})
    verdicts = {v.claim.text: v.verdict for v in outcome.verdicts}
    assert verdicts == dict.fromkeys(
        (reference.SAME, reference.EXACT, reference.COUPLED, reference.RISE, reference.DECAY), HOLDS
    )
    assert len(outcome.tables) == 3 and any("T²" in sentence for sentence in outcome.sentences)


def test_exact_numbers_refute_a_curve_of_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    result = matching.simulate(SYSTEM, runs=50, seed=1, slots=10_000, checkpoints=MARKS)
    marks = list(MARKS[: reference.certain_marks()])
    assert marks[-1] == 620
    mean, sd = (table[marks] for table in matching.exploring_regret(SYSTEM, 620))
    there = Published(mean, sd)
    assert reference.with_exact(result, there, "arrival_first", 1).p == 1.0
    assert reference.with_exact(result, there._replace(mean=1.3 * mean), "arrival_first", 1).p < 0.001


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "There is no"), ("t,a\n1,2\n", "must be a table"), ("t\nx\n", "must be a table"), ("", "must be a table")],
)
def test_a_missing_file_is_said_and_a_damaged_one_refused(
    content: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUEWISE_DATA", str(tmp_path))
    if content is None:
        there, said = reference.published()
        assert there is None and words in said
        return
    path = tmp_path / reference.FILE
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(ValueError, match=words):
        reference.published()


@pytest.mark.parametrize("name", ["matching", "conflict", "start", "randomness"])
def test_refuses_unknown_choices(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be one of"):
        registry.reproduce(NAME, runs=2, out=tmp_path, parameters={name: "whatever"})
