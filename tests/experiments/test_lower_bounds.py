"""The reproduction of the lower bounds: its families, verdicts on made-up measurements, runs kept on disk, and files."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.experiments import registry
from queuewise.experiments.claims import FAILS, HOLDS, UNDECIDED
from queuewise.experiments.papers import lower_bounds
from queuewise.scheduling import exact, family, simulate
from queuewise.scheduling.policies import REGISTER, make
from queuewise.streams import instance_seed

SEVENTH, EIGHTH, TENTH = lower_bounds.SETTINGS
BLIND = [make("random"), make("q_ucb")]


def measured(means: dict[str, float], horizon: int = 100, bound: float = 0.01, runs: int = 50) -> lower_bounds.Measured:
    """Made-up runs: means in bounds with a standard deviation of half a bound."""
    noise = np.random.default_rng(3).normal(size=runs)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    values = {name: bound * (mean + 0.5 * noise) for name, mean in means.items()}
    return lower_bounds.Measured(horizon, bound, ["+" if i % 2 else "−" for i in range(runs)], values, values)


# --- settings


def test_every_family_exists_at_every_horizon() -> None:
    for setting in lower_bounds.SETTINGS:
        assert set(setting.quick_horizons) <= set(setting.horizons)
        for horizon in setting.horizons:
            one = setting.law(**setting.arguments(horizon))
            assert one.rounds == horizon and one.bound > 0
            assert setting.theorem.split(", ")[1] in one.name
    assert EIGHTH.law(**EIGHTH.arguments(4096)).slack() == pytest.approx(1 / 8)


def test_every_policy_plays_but_the_oracle() -> None:
    assert [policy.name for policy in lower_bounds.policies()] == [name for name in REGISTER if name != "oracle"]


# --- claims


def test_averages_above_the_bound_support_it_and_one_below_contradicts_it() -> None:
    fine = [measured({"wise": 10.0, "random": 9.0}), measured({"wise": 2.0, "random": 1.6}, 1000)]
    assert lower_bounds.claim(SEVENTH, fine).judge().verdict == HOLDS
    broken = [*fine, measured({"wise": 0.5, "random": 9.0}, 3000)]
    verdict = lower_bounds.claim(SEVENTH, broken).judge()
    assert verdict.verdict == FAILS
    assert [part.label for part in verdict.parts if part.verdict == FAILS] == ["WISE, t = 3,000"]
    near = [*fine, measured({"wise": 1.1, "random": 9.0}, 3000)]
    assert lower_bounds.claim(SEVENTH, near).judge().verdict == UNDECIDED
    assert len(verdict.parts) == 6


def test_the_oracle_would_contradict_the_bound() -> None:
    """What the claim is there to notice: a 'policy' that knows the member has no regret."""
    cheat = make("oracle").named("cheat")
    found = lower_bounds.measure(TENTH, 30, 20, seed=1, workers=1, path=None, played=[cheat])
    assert found.conditional["cheat"].tolist() == [0.0] * 20
    noisy = {"cheat": found.conditional["cheat"] + 1e-9 * np.arange(20)}
    verdict = lower_bounds.claim(TENTH, [lower_bounds.Measured(30, found.bound, found.members, noisy, noisy)]).judge()
    assert verdict.verdict == FAILS


# --- runs


def play(path: Path, runs: int, **options: Any) -> lower_bounds.Measured:
    return lower_bounds.measure(SEVENTH, 60, runs, seed=5, workers=1, path=path, played=BLIND, **options)


def test_a_run_is_what_simulate_plays_on_a_member(tmp_path: Path) -> None:
    found = play(tmp_path / "a.json", 7)
    law = family(SEVENTH.law, **SEVENTH.arguments(60))
    result = simulate(law, BLIND, rounds=60, runs=7, seed=5, trace=True)
    for name in ("random", "q_ucb"):
        np.testing.assert_array_equal(
            found.plain[name], result.queue_length[name][:, -1] - result.oracle_queue_length[:, -1]
        )
        wanted = exact.conditional_regret(result.trace[name].gap, result.queue_length[name], 0.25, 0.5)
        np.testing.assert_allclose(found.conditional[name], wanted, rtol=1e-12)
    for run, member in enumerate(found.members):
        signs = law.instance(instance_seed(5, run)).signs  # type: ignore[attr-defined]
        assert member == "".join("+" if sign > 0 else "−" for sign in signs)
    assert found.bound == SEVENTH.law(**SEVENTH.arguments(60)).bound


def test_runs_are_taken_up_again_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = play(tmp_path / "whole.json", 9)
    monkeypatch.setattr(lower_bounds, "_DECISIONS", 120)  # two runs at a time
    steps: list[tuple[int, int]] = []
    play(tmp_path / "parts.json", 4)
    parts = play(tmp_path / "parts.json", 9, progress=lambda done, total: steps.append((done, total)))
    assert steps[0] == (5, 9) and steps[-1] == (9, 9)
    for name in ("random", "q_ucb"):
        np.testing.assert_array_equal(parts.conditional[name], whole.conditional[name])
        np.testing.assert_array_equal(parts.plain[name], whole.plain[name])
    assert parts.members == whole.members
    monkeypatch.setattr(lower_bounds, "simulate", lambda *_, **__: pytest.fail("played again"))
    fewer = play(tmp_path / "parts.json", 3)
    np.testing.assert_array_equal(fewer.plain["random"], whole.plain["random"][:3])


@pytest.mark.parametrize("text", ["{}", "nonsense", '{"settings": {"seed": 5}, "members": []}', "[1]"])
def test_runs_of_another_experiment_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"^out: '.*rows.json' holds runs of another experiment"):
        play(path, 3)


def test_both_ways_of_measuring_have_one_mean(tmp_path: Path) -> None:
    found = lower_bounds.measure(SEVENTH, 100, 1500, seed=8, workers=None, path=tmp_path / "rows.json", played=BLIND)
    assert abs(lower_bounds._disagreement(found)) < 4
    for name in ("random", "q_ucb"):
        assert found.conditional[name].std() < found.plain[name].std() / 3


# --- tables


def test_luck_on_one_member_is_told_from_the_average() -> None:
    values = np.where(np.arange(20) % 2, 3.0, 0.1)
    found = lower_bounds.Measured(
        10, 1.0, ["+" if i % 2 else "−" for i in range(20)], {"wise": values}, {"wise": values}
    )
    lucky, policy, member = found.luckiest()
    assert (policy, member) == ("wise", "−") and lucky == pytest.approx(0.1)
    assert found.over_bound("wise").mean == pytest.approx(1.55)


def test_few_differences_are_no_ground_for_a_z() -> None:
    zeros = {"wise": np.zeros(20)}
    small = lower_bounds.Measured(10, 1.0, ["+"] * 20, {"wise": np.full(20, 0.01)}, zeros)
    assert math.isnan(lower_bounds._disagreement(small))


def test_a_small_reproduction_writes_its_files(tmp_path: Path) -> None:
    outcome = registry.reproduce("lower-bounds", runs=3, out=tmp_path, quick=True)
    assert len(outcome.verdicts) == 3 and len(outcome.sentences) == 5
    numbers = json.loads((tmp_path / "claims.json").read_text())
    assert numbers["reproduction"] == "lower-bounds" and numbers["quick"] is True
    assert len(numbers["settings"]) == 7
    assert all(1 < entry["regret"] / entry["bound"] < 16 for entry in numbers["least_average"])
    for entry in numbers["settings"]:
        assert set(entry["regret"]) == set(REGISTER) - {"oracle"}
        for name, estimate in entry["in_bounds"].items():
            assert estimate["mean"] == pytest.approx(entry["regret"][name]["mean"] / entry["bound"], rel=1e-9)
            assert estimate["runs"] == 3
    page = (tmp_path / "claims.md").read_text()
    assert "How far above the bound" in page and "quick: small" in page
    assert (tmp_path / "figure.png").stat().st_size > 20_000
    drawing = (tmp_path / "figure.svg").read_text()
    xml.fromstring(drawing)
    for text in (
        "lower bound",
        "FIFO + Random",
        "best of all policies",
        "WISE, Theorem 8",
        "average regret at t, in bounds",
    ):
        assert f"<!-- {text} -->" in drawing
    assert len(list((tmp_path / "rows").iterdir())) == 7
    for table in outcome.tables:
        assert table.text(width=120)
