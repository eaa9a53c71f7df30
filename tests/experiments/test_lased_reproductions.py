"""Reproductions of LASED's numerical section: estimates and verdicts on made-up measurements, exact numbers, tiny runs."""

import json
import math
import xml.etree.ElementTree as xml
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from queuewise.dispatch import System, simulate
from queuewise.dispatch.theory import ratio_gap
from queuewise.experiments import registry
from queuewise.experiments.claims import FAILS, HOLDS, UNDECIDED, Verdict, known
from queuewise.experiments.papers import _lased
from queuewise.experiments.papers import lased_boundaries as boundaries
from queuewise.experiments.papers import lased_exploitation as exploitation
from queuewise.experiments.papers import lased_exploration as exploration
from queuewise.experiments.papers import lased_fixed_estimates as fixed
from queuewise.experiments.papers import lased_trade_off as trade_off
from queuewise.runs.statistics import interval

NAMES = ["lased-fixed-estimates", "lased-exploitation", "lased-exploration", "lased-trade-off", "lased-boundaries"]
#: Claims, and runs' folders, of each.
EXPECTED = {
    "lased-fixed-estimates": (14, 4),
    "lased-exploitation": (7, 3),
    "lased-exploration": (5, 1),
    "lased-trade-off": (6, 4),
}


def verdict_of(verdicts: list[Verdict], text: str, way: str = "") -> str:
    (found,) = (verdict.verdict for verdict in verdicts if verdict.claim.text == text and way in verdict.claim.way)
    return found


# --- estimates -------------------------------------------------------------------------------------------------------


def test_checkpoints_have_the_shares_that_claims_look_at() -> None:
    for arrivals in (100, 1000, 1_000_000, 3_000_000):
        marks = _lased.checkpoints(arrivals)
        assert marks == sorted(set(marks)) and marks[0] >= 1 and marks[-1] == arrivals
        for sixtieths in (3, 6, 30, 40):
            assert arrivals * sixtieths // 60 in marks


def test_shares_of_a_result() -> None:
    result = simulate(
        System(arrival_rate=1.0, service_rates=[5, 10], initial_rates=["5", "0.1"]),
        [_lased.learner(), "greedy"],
        arrivals=1200,
        runs=4,
        checkpoints=_lased.checkpoints(1200),
        workers=1,
    )
    # Greedy is wrong whenever server 1 is not much emptier, which at this load is nearly always: a straight line.
    assert _lased.last_share(result, "greedy").mean == pytest.approx(1 / 3, abs=0.01)
    assert _lased.last_share(result, "greedy", 0.0).mean == 1.0
    assert _lased.regret_at(result, "greedy", 0.0).tolist() == [0.0] * 4
    for name in ("lased", "greedy"):
        assert _lased.regret_at(result, name, 1.0).mean() == result.total_regret(name).mean
        settled = 10 ** _lased.settling(result, name)
        assert (settled >= 1).all() and (settled <= 1200).all()
    assert _lased.slope(result, "greedy").mean == pytest.approx(result.total_regret("greedy").mean / 1200)


def test_ratio_of_means_covers_the_truth() -> None:
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(400):
        below = rng.gamma(4.0, 1.0, 60)
        found = _lased.ratio(0.3 * below + rng.normal(0.0, 0.2, 60), below)
        missed += not found.low <= 0.3 <= found.high
    assert missed / 400 <= 0.05 + 4 * 0.011
    assert _lased.ratio(np.zeros(5), np.zeros(5))[:3] == (0.0, 0.0, 0.0)


def test_a_ratio_that_one_run_makes_decides_nothing() -> None:
    """One endless episode in a hundred runs: the share of the regret in the last third is a third by it alone."""
    total = np.full(100, 1000.0)
    total[7] = 1e6
    late = np.zeros(100)
    late[7] = 1e6 / 3
    found = _lased.ratio(late, total, at=_lased.LEVEL)
    assert found.mean == pytest.approx(late.sum() / total.sum())
    assert found.low < _lased.LEVEL < found.high
    assert _lased.ratio(late, total).low > _lased.LEVEL


def test_words() -> None:
    assert (_lased.count(1234.5), _lased.count(-0.01), _lased.count(math.nan)) == ("1,234", "0.0", "?")
    assert _lased.counted(known(3.0)) == "3.0 ± 0.0"
    assert _lased.counted(interval([1.0])) == "1.0"


# --- fixed estimates -------------------------------------------------------------------------------------------------


def test_the_two_readings() -> None:
    ratio, decisions = fixed.readings()
    assert ratio.believed / ratio.ratio == Fraction(101, 100)
    assert ratio.ratio < 2 < ratio.believed  # the fraction 2/1 lies between: (0, 1) is decided wrongly
    assert decisions.ratio == 2
    assert fixed.wrong(decisions.rates, fixed.REFERENCE_LOAD, decisions.believed) == pytest.approx(0.01, abs=0.005)
    # The error that the module says would show nothing.
    assert fixed.wrong(("5", "10"), 0.9, Fraction("2.02")) < 1e-7
    first = np.argwhere(boundaries.disagrees((1, 2), (1, Fraction("2.02")), boundaries.grid(110)))
    assert first[:, 0].min() == 50
    # Neither do equal servers: a tie is no error.
    assert not boundaries.disagrees((1, 1), (1, Fraction("1.01")), boundaries.grid(99)).any()


def test_exact_slopes_are_the_simulated_ones() -> None:
    for reading in fixed.readings():
        for load in (0.5, 0.9):
            system = _lased.system_of(reading.rates, load)
            result = simulate(
                system, [fixed.esed(rates=reading.belief)], 40_000, 16, seed=5, workers=1, checkpoints=[40_000]
            )
            cell = fixed.Cell(reading, load, system, result, fixed.wrong(reading.rates, load, reading.believed))
            assert abs(cell.z) <= 4.5
            wrong = fixed.Cell(reading, load, system, result, 1.2 * cell.exact)
            assert abs(wrong.z) > 4.5


# --- the trade-off ---------------------------------------------------------------------------------------------------


def test_what_a_wrong_ratio_means() -> None:
    for ratio in trade_off.RATIOS:
        for error in trade_off.ERRORS:
            for over in (False, True):
                first, second = map(Fraction, trade_off.beliefs(ratio, error, over))
                assert second / first == ratio * Fraction(error)
                right = (first == 1, second == ratio)
                assert any(right)
                if over:
                    assert first >= 1 and second >= ratio
                else:
                    assert first <= 1 and second <= ratio


def made_up(spread: float, sign: float = 1.0) -> dict[tuple[int, float], trade_off.Cell]:
    """A map that agrees with every claim of the paper (`sign` 1) or with the opposite of the first four (-1)."""
    rng = np.random.default_rng(1)
    cells = {}
    for ratio in trade_off.RATIOS:
        for load in trade_off.LOADS:
            wanted = np.full(len(trade_off.ERRORS), 1000.0 * (1.0 - 0.9 * load))
            if (ratio, load) == (1, 0.1):
                wanted[[0, -1]] = -1000.0
                wanted[2] += 500.0
            noise = spread * rng.normal(size=(20, len(trade_off.ERRORS)))
            cells[ratio, load] = trade_off.Cell(
                ratio, load, 2000.0 + sign * wanted + noise, np.full(noise.shape, 2000.0)
            )
    return cells


def test_verdicts_on_the_map() -> None:
    assert {verdict.verdict for verdict in trade_off.claims(made_up(1.0))} == {HOLDS}
    against = trade_off.claims(made_up(1.0, -1.0))
    assert [verdict.verdict for verdict in against[:4]] == [FAILS] * 4
    assert {verdict.verdict for verdict in trade_off.claims(made_up(1e5))} == {UNDECIDED}


def test_a_monotone_difference_does_not_turn() -> None:
    cells = {key: trade_off.Cell(*key, np.arange(7.0) + np.zeros((5, 7)), np.zeros((5, 7))) for key in made_up(1.0)}
    assert verdict_of(trade_off.claims(cells), trade_off.TURNS, "along r̂₁") == FAILS


# --- boundaries ------------------------------------------------------------------------------------------------------


def test_boundaries_are_counted_by_hand() -> None:
    queue = boundaries.grid(3)
    best = boundaries.optimal((1, 2), queue)
    for q1 in range(4):
        for q2 in range(4):
            assert best[q1, q2].tolist() == [2 * (q1 + 1) <= q2 + 1, 2 * (q1 + 1) >= q2 + 1]
    assert boundaries.choice((1, 2), np.array([0, 1])) == 0  # the tie goes to server 1
    assert boundaries.wrong_states(Fraction(2), 30) == 0
    assert np.argwhere(boundaries.disagrees((1, 2), (1, Fraction("2.6")), queue)).tolist() == []
    assert np.argwhere(boundaries.disagrees((1, 2), (1, Fraction("2.6")), boundaries.grid(4))).tolist() == [[1, 4]]
    assert boundaries.nearest(Fraction(2), 4) == Fraction(5, 3)
    assert ratio_gap(2, 4) == pytest.approx(1 / 3)


def test_regions_of_three_servers_fill_the_triangle() -> None:
    def area(polygon: list[np.ndarray]) -> float:
        x, y = np.array(polygon).T
        return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2

    whole = math.sqrt(3) / 4
    for rates in (boundaries.THREE, boundaries.THREE_BELIEVED):
        assert sum(area(boundaries._region(rates, k)) for k in range(3)) == pytest.approx(whole)
    pieces = [
        area(piece)
        for i in range(3)
        for j in range(3)
        if (piece := boundaries._overlap(boundaries._region((4, 3, 2), i), boundaries._region((4, 4, 2), j)))
    ]
    assert sum(pieces) == pytest.approx(whole)


def test_boundaries_hold_and_are_drawn(tmp_path: Path) -> None:
    outcome = registry.reproduce("lased-boundaries", out=tmp_path)
    assert {verdict.verdict for verdict in outcome.verdicts} == {HOLDS}
    for stem in ("figure", "figure-three-servers"):
        assert (tmp_path / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        xml.parse(tmp_path / f"{stem}.svg")
    assert not (tmp_path / "rows").exists()
    assert "| 2.6 | +30% | (1, 4) |" in (tmp_path / "claims.md").read_text()
    with pytest.raises(ValueError, match="no runs"):
        registry.reproduce("lased-boundaries", runs=5, out=tmp_path)
    with pytest.raises(ValueError, match="no arrivals"):
        registry.reproduce("lased-boundaries", arrivals=1000, out=tmp_path)


# --- whole commands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(EXPECTED))
def test_files_of_a_tiny_run_and_a_rerun(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The corners of the grids are enough here.
    monkeypatch.setattr(fixed, "LOADS", (0.3, 0.9))
    monkeypatch.setattr(trade_off, "LOADS", (0.1, 0.9))
    monkeypatch.setattr(trade_off, "RATIOS", (1, 16))
    sizes = {"runs": 2, "arrivals": 600, "out": tmp_path, "workers": 1}
    outcome = registry.reproduce(name, **sizes)  # type: ignore[arg-type]
    claims, folders = EXPECTED[name]
    assert len(outcome.verdicts) == claims
    found = json.loads((tmp_path / "claims.json").read_text())
    assert (found["runs"], found["arrivals"], len(found["claims"])) == (2, 600, claims)
    assert len(found["settings"]) == folders
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    xml.parse(tmp_path / "figure.svg")
    text = (tmp_path / "claims.md").read_text()
    assert all(sentence in text for sentence in outcome.sentences)
    assert all(path.exists() for path in outcome.files)
    for table in outcome.tables:
        assert "…" not in table.text(width=100)
    rows = sorted((tmp_path / "rows").rglob("*.parquet"))
    stamps = [path.stat().st_mtime_ns for path in rows]
    assert len(rows) == 2 * folders
    assert registry.reproduce(name, **sizes).results == outcome.results  # type: ignore[arg-type]
    assert [path.stat().st_mtime_ns for path in rows] == stamps


def test_another_horizon_does_not_mix_with_what_is_there(tmp_path: Path) -> None:
    registry.reproduce("lased-exploration", runs=2, arrivals=200, out=tmp_path, workers=1)
    with pytest.raises(ValueError, match="another experiment"):
        registry.reproduce("lased-exploration", runs=2, arrivals=300, out=tmp_path, workers=1)
    with pytest.raises(ValueError, match="arrivals"):
        registry.reproduce("lased-exploration", runs=2, arrivals=5, out=tmp_path)


def test_a_bad_start_starves_greedy_and_not_lased(tmp_path: Path) -> None:
    outcome = registry.reproduce("lased-exploration", runs=6, arrivals=20_000, out=tmp_path, workers=1)
    assert verdict_of(list(outcome.verdicts), exploration.LINEAR) == HOLDS
    assert verdict_of(list(outcome.verdicts), exploration.LESS) == HOLDS
    # Twenty thousand arrivals are far too few for LASED to have stopped exploring.
    assert verdict_of(list(outcome.verdicts), exploration.FLAT) == FAILS


def test_ties_cost_customers() -> None:
    first, second = exploitation.exact_customers(0.3)
    assert 0.62 < first < 0.64 < second


def test_all_are_listed() -> None:
    assert set(NAMES) <= set(registry.REPRODUCTIONS)
    sizes = {row[0]: row[3] for row in registry.listing().rows}
    assert sizes["lased-boundaries"] == "exact, no runs"
    assert sizes["lased-exploration"] == "100 runs of 3,000,000 arrivals per setting"
