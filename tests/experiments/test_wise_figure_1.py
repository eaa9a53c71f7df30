"""The reproduction of WISE's Figure 1: settings and verdicts on made-up measurements, and files of a tiny run."""

import json
import xml.etree.ElementTree as xml
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from queuewise.experiments import registry
from queuewise.experiments.claims import FAILS, HOLDS, UNDECIDED
from queuewise.experiments.papers import wise_figure_1 as figure
from queuewise.runs.statistics import Curve, Difference, Estimate
from queuewise.scheduling import presets, wise_figure_law

NAMES = [policy.name for policy in presets.wise_figure_1()]


def estimate(mean: float, sd: float = 0.1, runs: int = 100) -> Estimate:
    return Estimate(mean, mean - sd / 5, mean + sd / 5, sd, runs)


def setting(q: float, slack: float, rank: int, late: float = 0.3, sd: float = 0.1) -> figure.Setting:
    """A made-up setting in which WISE has this rank, one job apart from its neighbours."""
    means = {name: float(place + 1 + (place + 1 >= rank)) for place, name in enumerate(NAMES[1:])} | {
        "wise": float(rank)
    }
    means = {name: means[name] for name in NAMES}
    rounds = np.arange(1, 2001)
    curve = Curve(rounds, *(np.full(2000, value) for value in (1.0, 0.5, 1.5, 0.2)), runs=100)
    return figure.Setting(
        q,
        slack,
        curves=dict.fromkeys(NAMES, curve),
        mean={name: estimate(mean, sd) for name, mean in means.items()},
        late=dict.fromkeys(NAMES, estimate(late, sd)),
        difference={
            name: Difference(*estimate(means["wise"] - mean, sd), "wise", name)
            for name, mean in means.items()
            if name != "wise"
        },
    )


def way(ranks: list[int], late: float = 0.3, sd: float = 0.1) -> figure.Way:
    settings = (setting(*where, rank, late, sd) for where, rank in zip(figure.SETTINGS, ranks, strict=True))
    return figure.Way("one-instance", "100 runs on one instance", 100, tuple(settings))


@pytest.mark.parametrize(
    ("ranks", "smallest", "second"),
    [
        ([1] * 5 + [2] * 4, HOLDS, HOLDS),  # what the paper reports
        ([1] * 9, HOLDS, HOLDS),
        ([1] * 4 + [2] * 5, FAILS, HOLDS),
        ([1] * 5 + [2] * 3 + [3], HOLDS, FAILS),
    ],
)
def test_ranks_decide_the_claims(ranks: list[int], smallest: str, second: str) -> None:
    measured = way(ranks)
    assert [setting.rank for setting in measured.settings] == ranks
    first, other, below = figure.claims(measured)
    assert (first.verdict, other.verdict, below.verdict) == (smallest, second, HOLDS)


def test_late_regret_above_one_in_one_setting_contradicts_the_third_claim() -> None:
    measured = way([1] * 9)
    spoiled = replace(measured, settings=(*measured.settings[:-1], setting(0.5, 0.15, 1, late=1.4)))
    assert figure.claims(spoiled)[2].verdict == FAILS


def test_wide_intervals_leave_everything_undecided_and_the_sentence_says_so() -> None:
    measured = way([1] * 9, late=0.9, sd=40.0)
    verdicts = figure.claims(measured)
    assert {verdict.verdict for verdict in verdicts} == {UNDECIDED}
    said = figure.sentences((measured, verdicts), None)
    assert all("100 runs on one instance cannot decide it" in sentence for sentence in said[:3])
    assert "first in 9 settings" in said[3]


def test_tables_have_every_setting_and_policy() -> None:
    measured = way([1] * 9)
    verdicts = figure.claims(measured)
    assert len(figure.settings_table(measured, verdicts[0]).rows) == 9
    assert len(figure.late_table([measured], [verdicts[2]]).rows) == 9
    assert len(figure.facts_table(measured).rows) == 3 * (1 + len(NAMES))
    for table in (figure.settings_table(measured, verdicts[0]), figure.facts_table(measured)):
        assert "…" not in table.text(width=80)


def test_the_grid_is_the_papers() -> None:
    grid = tuple((q, slack) for q in (0.0, 0.15, 0.5) for slack in (0.05, 0.1, 0.15))
    assert grid == figure.SETTINGS
    for q, slack in figure.SETTINGS:
        assert wise_figure_law(q=q, slack=slack).slack() == pytest.approx(slack, abs=1e-9)
    assert set(figure.STYLES) == set(figure.LABELS) == set(NAMES)


def test_files_of_a_tiny_run_and_a_rerun(tmp_path: Path) -> None:
    outcome = registry.reproduce("wise-figure-1", runs=2, instances=2, out=tmp_path)
    assert len(outcome.verdicts) == 6
    found = json.loads((tmp_path / "claims.json").read_text())
    assert len(found["settings"]) == 18 and len(found["claims"]) == 6
    for stem in ("figure", "figure-fresh-instances"):
        assert (tmp_path / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        xml.parse(tmp_path / f"{stem}.svg")
    assert "undecided" in (tmp_path / "claims.md").read_text()
    rows = sorted((tmp_path / "rows").rglob("*.parquet"))
    assert len(rows) == 36
    stamps = [path.stat().st_mtime_ns for path in rows]
    assert registry.reproduce("wise-figure-1", runs=2, instances=2, out=tmp_path).results == outcome.results
    assert [path.stat().st_mtime_ns for path in rows] == stamps


def test_another_seed_does_not_mix_with_what_is_there(tmp_path: Path) -> None:
    registry.reproduce("wise-figure-1", runs=2, instances=0, out=tmp_path)
    with pytest.raises(ValueError, match="another experiment"):
        registry.reproduce("wise-figure-1", runs=2, instances=0, out=tmp_path, seed=2)
