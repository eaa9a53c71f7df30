"""The map of all learning rules, and the long runs of ours: the goal's arithmetic, and both commands in small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from queuewise.experiments import registry
from queuewise.experiments.papers import adaptive_long, adaptive_map
from queuewise.experiments.papers.adaptive_map import OURS, Point


def point(ours: list[float], lased: float = 100.0, greedy: float = 40.0, servers: int = 3) -> Point:
    runs = len(ours)
    regret = {"lased": np.full(runs, lased), "greedy": np.full(runs, greedy), OURS: np.array(ours, dtype=np.float64)}
    return Point(servers, 2, 0.5, "exponential", regret, {}, np.ones(runs))


def test_the_goal_is_that_of_the_better_rule_with_its_allowance() -> None:
    assert point([0.0, 0.0]).limit == pytest.approx(1.05 * 40.0 + 20.0 * 2)
    assert point([0.0, 0.0], greedy=500.0).limit == pytest.approx(1.05 * 100.0 + 20.0 * 2)
    assert point([0.0, 0.0], servers=10).limit == pytest.approx(42.0 + 180.0)


@pytest.mark.parametrize(
    ("ours", "met"),
    [
        ([81.9] * 4, True),
        ([82.1] * 4, False),
        ([60.0, 60.0, 60.0, 100.0], False),  # the mean is below, its upper limit is not
        ([60.0, 61.0, 60.0, 61.0], True),
    ],
)
def test_the_upper_limit_decides(ours: list[float], met: bool) -> None:
    assert point(ours).met is met


def test_the_paired_part_agrees_with_the_goal_about_the_means() -> None:
    part = point([60.0, 61.0, 60.0, 61.0]).part
    assert part.bound == 40.0
    assert part.estimates[0].mean == pytest.approx(60.5 - 42.0)


def test_rates_are_geometric_and_short() -> None:
    assert adaptive_map.rates(3, 16) == ["1.000", "4.000", "16.000"]
    assert adaptive_map.rates(10, 1) == ["1.000"] * 10


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive_map, "SERVERS", (2, 3))
    monkeypatch.setattr(adaptive_map, "RATIOS", (1, 4))
    monkeypatch.setattr(adaptive_map, "LOADS", (0.3, 0.9))
    monkeypatch.setattr(adaptive_map, "LAWS", {"deterministic": adaptive_map.LAWS["deterministic"]})
    monkeypatch.setattr(adaptive_map, "MANY", 12)


@pytest.mark.usefixtures("small")
def test_the_map_in_small(tmp_path: Path) -> None:
    outcome = registry.reproduce("adaptive-map", runs=4, arrivals=300, out=tmp_path)
    assert [len(verdict.parts) for verdict in outcome.verdicts] == [8, 6, 9]
    found = json.loads((tmp_path / "claims.json").read_text())
    assert len(found["points"]) == 8 + 6 + 9
    for each in found["points"]:
        assert set(each["regret"]) == set(adaptive_map.LABELS)
        assert each["met"] == (each["regret"][OURS]["high"] <= each["limit"])
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("figure.png", "rules.png"))
    again = registry.reproduce("adaptive-map", runs=4, arrivals=300, out=tmp_path)  # from the rows alone
    assert again.results == outcome.results


def test_the_long_runs_in_small(tmp_path: Path) -> None:
    outcome = registry.reproduce("adaptive-long", runs=3, arrivals=6000, out=tmp_path)
    (verdict,) = outcome.verdicts
    assert [part.label for part in verdict.parts] == list(adaptive_long.instances())
    table = outcome.tables[0]
    assert table.columns == ("instance", "6", "60", "600", "6,000")
    assert (tmp_path / "figure.svg").exists()
