"""How an interval converges, what it takes, and what is warned of; and the same through results."""

from __future__ import annotations

import math

import numpy as np
import pytest

from queuewise.runs.convergence import convergence
from queuewise.runs.result import ORACLE, Result, Rows, Summed
from queuewise.runs.statistics import interval

RNG = np.random.default_rng(17)


def test_every_point_is_the_interval_of_the_first_runs() -> None:
    values = RNG.normal(3.0, 2.0, 500)
    found = convergence("x", values, 0.9)
    assert found.runs[0] == 2 and found.runs[-1] == 500 and (np.diff(found.runs) > 0).all()
    assert len(found.runs) <= 40
    for i, n in enumerate(found.runs):
        expected = interval(values[:n], 0.9)
        assert (found.mean[i], found.low[i], found.high[i], found.sd[i]) == pytest.approx(expected[:4])
        assert found.half_width[i] == pytest.approx(expected.half_width)


@pytest.mark.parametrize("width", [5.0, 0.3, 0.02])
def test_needed_is_the_least_number_of_runs(width: float) -> None:
    values = RNG.normal(0.0, 1.0, 60)
    found = convergence("x", values)
    n = found.needed(width)
    from scipy import stats

    def half(count: int) -> float:
        return float(stats.t.ppf(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count))

    assert half(n) <= width
    assert n == 2 or half(n - 1) > width


def test_needed_for_the_width_that_is_there() -> None:
    found = convergence("x", RNG.normal(size=80))
    assert found.needed(float(found.half_width[-1]) * (1 + 1e-12)) == 80
    assert convergence("x", np.ones(20)).needed(0.1) == 2


@pytest.mark.parametrize("width", [0.0, -1.0, math.inf, math.nan, "wide", True])
def test_bad_width(width: object) -> None:
    with pytest.raises(ValueError, match="half_width must be a number above 0"):
        convergence("x", RNG.normal(size=8)).needed(width)  # type: ignore[arg-type]


def test_width_out_of_reach() -> None:
    with pytest.raises(ValueError, match="half_width: 1e-12 cannot be reached"):
        convergence("x", RNG.normal(size=8)).needed(1e-12)


def test_normal_runs_are_not_warned_of() -> None:
    said = sum(bool(convergence("x", RNG.normal(size=n)).warnings) for n in (10, 20, 50, 200) for _ in range(250))
    assert said <= 0.05 * 1000


def test_skewed_runs_are_warned_of() -> None:
    found = convergence("x", np.exp(1.5 * RNG.normal(size=60)))
    assert any("skewed" in warning and "runs on" in warning for warning in found.warnings)
    assert found.skewness > 1
    assert not convergence("x", RNG.exponential(size=2000)).warnings


def test_one_run_that_outweighs_all_is_warned_of() -> None:
    values = RNG.normal(size=100)
    values[70] = 40.0
    found = convergence("x", values)
    assert found.largest_share > 0.9
    assert any("heavy tail: one run has 9" in warning for warning in found.warnings)


def test_a_deviation_that_changes_is_warned_of() -> None:
    values = RNG.normal(size=200) * np.where(np.arange(200) < 100, 1.0, 4.0)
    found = convergence("x", values)
    assert found.drift == pytest.approx(4.0, rel=0.3)
    assert any("not stable" in warning for warning in found.warnings)


def test_few_runs_are_warned_of() -> None:
    assert "4 runs are too few" in convergence("x", np.arange(4.0)).warnings[0]


def test_no_spread_at_all() -> None:
    found = convergence("x", np.full(12, 0.1))
    assert math.isnan(found.skewness) and not found.warnings
    assert (found.half_width < 1e-15).all()
    assert "12 runs: 0.1" in str(found)


def test_text() -> None:
    text = str(convergence("wise", RNG.normal(5, 1, 100)))
    assert text.startswith("wise, 95 % intervals:\n       2 runs: ")
    assert "\n     100 runs: " in text and "half of that width would take about" in text


@pytest.mark.parametrize("values", [[], [1.0], [[1.0, 2.0]]])
def test_too_few(values: object) -> None:
    with pytest.raises(ValueError, match="convergence needs at least 2 runs"):
        convergence("x", np.array(values))


def test_unstable_runs() -> None:
    with pytest.raises(ValueError, match="convergence: 'x' has runs without a finite value"):
        convergence("x", np.array([1.0, math.nan, 2.0]))


# --- through a result -----------------------------------------------------------------------------------------------

NAMES = ["wise", "random", "best"]


def columns(runs: int = 40, rounds: int = 12) -> dict[str, np.ndarray]:
    common = RNG.integers(0, 20, (runs, rounds))
    found = {ORACLE: common}
    found |= {name: common + RNG.integers(0, 3 + 2 * place, (runs, rounds)) for place, name in enumerate(NAMES)}
    return {name: column.astype(np.int32) for name, column in found.items()}


def results() -> tuple[Result, Result]:
    policies = [{"name": name, "rule": name, "options": {}} for name in NAMES]
    settings = {"rounds": 12, "seed": 3, "system": {}, "policies": policies, "version": "9"}
    rows = columns()
    kept = Summed(NAMES, 12, [(1, 12)])
    for run in range(40):
        kept.add({name: column[run] for name, column in rows.items()})
    return Result(settings, Rows(rows)), Result(settings, kept)


def test_a_result_compares_all() -> None:
    whole, summed = results()
    found = whole.compare_all()
    assert found.method == "max_t" and found.family == 3
    first = found.of("wise", "random").difference
    assert first.mean == pytest.approx(whole.compare("wise", "random").mean)
    places = whole.rank(method="max_t")
    assert [place.name for place in places] == [place.name for place in whole.rank()]
    for place in places[1:]:
        assert place.behind is not None
        assert place.behind[:4] == pytest.approx(found.of(place.name, places[0].name).difference[:4])
    assert [c.difference.second for c in whole.compare_all(against="best")] == ["best", "best"]  # the policy called so
    late = whole.compare_all(rounds=(7, 12), against="wise").of("random", "wise")
    assert late.difference.mean == pytest.approx(whole.compare("random", "wise", (7, 12)).mean)
    moments = summed.compare_all()
    assert moments.method == "bonferroni" and "keep='moments'" in moments.reason
    expected = whole.compare_all(method="bonferroni")
    for a, b in zip(moments, expected, strict=True):
        assert a.difference[:5] == pytest.approx(b.difference[:5])
        assert a.p == pytest.approx(b.p)
    with pytest.raises(ValueError, match="policy: the result has none called 'wse'; did you mean 'wise'"):
        whole.compare_all(against="wse")


def test_a_result_has_effects() -> None:
    whole, summed = results()
    found = whole.effects("wise", "random")
    a, b = whole.run_means("wise"), whole.run_means("random")
    assert found.better.value == ((a < b).sum() + (a == b).sum() / 2) / 40
    assert found.ratio.value == pytest.approx(a.mean() / b.mean())
    assert found.standardised.value == pytest.approx((a - b).mean() / (a - b).std(ddof=1), rel=0.03)
    assert "of 40 runs" in str(found)
    moments = summed.effects("wise", "random")
    assert not moments.better.defined
    assert tuple(moments.ratio) == pytest.approx(tuple(found.ratio))
    assert tuple(moments.standardised) == pytest.approx(tuple(found.standardised))


def test_a_result_converges() -> None:
    whole, summed = results()
    found = whole.convergence("wise", rounds=(3, 5))
    expected = whole.mean_regret("wise", (3, 5))
    assert (found.mean[-1], found.low[-1], found.high[-1]) == pytest.approx(expected[:3])
    pair = whole.convergence(("wise", "random"), level=0.9)
    difference = whole.compare("wise", "random", level=0.9)
    assert pair.name == "wise - random"
    assert (pair.mean[-1], pair.low[-1], pair.high[-1]) == pytest.approx(difference[:3])
    with pytest.raises(ValueError, match=r"run_means: the runs themselves were not kept \(keep='moments'\)"):
        summed.convergence("wise")
