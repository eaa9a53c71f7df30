"""The decay of regret: slopes against power laws and a literal twin, windows, laws, made-up verdicts, and a small run."""

from __future__ import annotations

import itertools
import json
import math
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.experiments import registry
from queuewise.experiments.claims import FAILS, HOLDS, UNDECIDED
from queuewise.experiments.papers import regret_decay as decay_module
from queuewise.experiments.papers._slopes import (
    FEWEST,
    FLOOR,
    LEAST_Z,
    Floats,
    Points,
    decay,
    dyadic,
    late_decay,
    middle,
    reach,
    slope,
)
from queuewise.experiments.papers.regret_decay import NAMES, Bench, Panel, claims, finite_law, players, rate
from queuewise.experiments.registry import Request
from queuewise.experiments.report import Progress
from queuewise.runs.statistics import interval
from queuewise.scheduling import simulate

T = 2.0 ** np.arange(8, 17)


def power(exponent: float, runs: int = 60, noise: float = 0.3, seed: int = 0, height: float = 4.0) -> Points:
    """Runs of a power law with noise that runs have in common at all times and noise of every point."""
    rng = np.random.default_rng(seed)
    common, own = (rng.normal(size=shape) for shape in ((runs, 1), (runs, len(T))))
    return Points(T, height * T**exponent * (1.0 + noise * (common + own)))


# --- slopes


@pytest.mark.parametrize("exponent", [-1.5, -0.5, -0.25, 0.3])
def test_a_power_law_without_noise_is_found_exactly(exponent: float) -> None:
    found = slope(power(exponent, noise=0.0))
    assert found.mean == pytest.approx(exponent, abs=1e-12)
    assert found.high - found.low < 1e-9
    assert (found.first, found.last, found.points) == (T[0], T[-1], len(T))
    np.testing.assert_allclose(found.at(T), 4.0 * T**exponent, rtol=1e-10)


def literal(points: Points) -> tuple[float, float]:
    """Slope and its standard error by leaving out one run after the other and fitting with NumPy, as the text says it."""

    def line(values: Floats) -> float:
        mean = values.mean(axis=0)
        error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
        weight = 1.0 / np.maximum(error / mean, FLOOR)  # polyfit squares them
        return float(np.polyfit(np.log(points.x), np.log(mean), 1, w=weight)[0])

    n = len(points.values)
    left_out = [line(np.delete(points.values, i, axis=0)) for i in range(n)]
    pseudo = [n * line(points.values) - (n - 1) * each for each in left_out]
    return float(np.mean(pseudo)), float(np.std(pseudo, ddof=1) / math.sqrt(n))


@pytest.mark.parametrize("seed", range(5))
def test_the_slope_is_the_jackknife_of_a_weighted_line(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = Points(T, T**-0.7 * rng.gamma(1.0 + seed, 1.0, (15 + 10 * seed, len(T))))
    assert points.usable.all()
    found = slope(points)
    mean, error = literal(points)
    assert found.mean == pytest.approx(mean, abs=1e-10)
    assert found.sd / math.sqrt(found.runs) == pytest.approx(error, rel=1e-9)
    assert found.low < found.mean < found.high


def covered(draw: Any, exponent: float, repeats: int) -> tuple[float, float]:
    """Share of 95% intervals that hold the exponent, and the mean error of the slope in its own standard deviations."""
    rng = np.random.default_rng(11)
    found = [slope(Points(T, draw(rng))) for _ in range(repeats)]
    means = np.array([each.mean for each in found])
    hits = np.mean([each.low <= exponent <= each.high for each in found])
    return float(hits), float((means.mean() - exponent) / means.std(ddof=1))


@pytest.mark.parametrize("exponent", [-0.25, -0.5, -1.0])
def test_intervals_hold_the_exponent_though_points_of_a_run_depend_on_each_other(exponent: float) -> None:
    def draw(rng: np.random.Generator) -> Floats:
        shape = (80, len(T))
        return np.asarray(T**exponent * rng.gamma(1.0, 1.0, (80, 1)) * rng.gamma(0.5, 2.0, shape))

    share, bias = covered(draw, exponent, 500)
    # z of about 4 around 0.95; the jackknife of skewed runs is a little below.
    assert 0.95 - 0.015 - 4.0 * math.sqrt(0.95 * 0.05 / 500) < share < 0.95 + 4.0 * math.sqrt(0.95 * 0.05 / 500)
    assert abs(bias) < 0.2


def test_intervals_hold_the_exponent_where_few_runs_have_any_regret() -> None:
    """What late windows look like: a handful of jobs too many among 400 runs, all else 0."""

    def draw(rng: np.random.Generator) -> Floats:
        return np.asarray(rng.poisson(0.6 * (T / T[0]) ** -0.5, (400, len(T))) * rng.exponential(1.0, (400, len(T))))

    share, bias = covered(draw, -0.5, 400)
    assert 0.95 - 0.01 - 4.0 * math.sqrt(0.95 * 0.05 / 400) < share
    assert abs(bias) < 0.2


def test_more_noise_is_less_weight() -> None:
    steady = power(-0.5, noise=0.01)
    bent = steady.values.copy()
    bent[:, -1] *= 3.0
    noisy = bent.copy()
    noisy[:, -1] *= 1.0 + 1.5 * np.random.default_rng(1).choice([-1.0, 1.0], len(bent))
    exact, uncertain = slope(Points(T, bent)).mean, slope(Points(T, noisy)).mean
    assert -0.5 < uncertain < exact - 0.02


def test_no_run_alone_makes_a_usable_mean_negative_when_left_out() -> None:
    rng = np.random.default_rng(3)
    for _ in range(2000):
        n = int(rng.integers(3, 12))
        values = rng.standard_t(1.2, (n, 1)) + rng.normal()
        points = Points(np.ones(1), values)
        if points.usable[0]:
            assert (values.sum() - values > 0.0).all()


def test_a_fit_ends_before_regret_is_gone() -> None:
    points = power(-0.5, noise=0.1)
    values = points.values.copy()
    rng = np.random.default_rng(2)
    values[:, 6:8] = rng.normal(size=(len(values), 2))  # not told from 0
    gone = Points(T, values)
    assert gone.usable.tolist() == [True] * 6 + [False] * 2 + [True]
    found = decay(gone, first=1.0)
    assert (found.first, found.last, found.points) == (T[0], T[5], 6)
    late = late_decay(gone, first=1.0)
    assert (late.first, late.last, late.points) == (T[6 - FEWEST], T[5], FEWEST)
    # Where too few are left from `first` on, earlier ones are taken, as far back as regret is told from 0.
    assert decay(gone, first=float(T[5])).first == decay(gone, first=float(T[6])).first == T[6 - FEWEST]
    assert decay(gone, first=float(T[1])).points == 5
    assert math.isnan(decay(gone, first=float(T[7])).mean) and math.isnan(decay(gone, first=float(T[8])).mean)


def test_one_point_of_bad_luck_ends_no_fit() -> None:
    points = power(-0.5, noise=0.1)
    values = points.values.copy()
    values[:, 3] = np.random.default_rng(2).normal(size=len(values))
    found = decay(Points(T, values), first=1.0)
    assert (found.first, found.last, found.points) == (T[0], T[-1], len(T) - 1)
    assert reach(Points(T, values), 1.0) == len(T) and reach(Points(T, np.zeros_like(values)), 1.0) == 0


@pytest.mark.parametrize("values", [np.zeros((20, 9)), np.ones((2, 9)), -np.ones((20, 9))])
def test_where_there_is_no_slope_it_is_unknown(values: Floats) -> None:
    for found in (slope(Points(T, values)), decay(Points(T, values), 1.0)):
        assert math.isnan(found.mean) and (found.low, found.high, found.runs) == (-math.inf, math.inf, 1)


def test_z_tells_what_is_usable() -> None:
    values = np.column_stack([np.zeros(9), np.full(9, 2.0), np.full(9, -2.0), np.arange(9.0) - 3.9])
    points = Points(np.arange(1.0, 5.0), values)
    assert points.z[0] == 0.0 and points.z[1] == math.inf and points.z[2] == -math.inf
    assert points.z[3] == pytest.approx(0.1 / (values[:, 3].std(ddof=1) / 3.0))
    assert points.usable.tolist() == [False, True, False, False]
    assert LEAST_Z == 2.0


# --- windows


@pytest.mark.parametrize(("rounds", "first", "last"), [(131_071, 16, 65_536), (131_072, 16, 65_536), (100, 10, 32)])
def test_windows_are_dyadic_and_leave_no_round_out(rounds: int, first: int, last: int) -> None:
    windows = dyadic(rounds, first)
    assert windows[0][0] == 16 and windows[-1] == (last, 2 * last - 1) and windows[-1][1] <= rounds < 4 * last
    for (a, b), (c, _) in itertools.pairwise(windows):
        assert b == 2 * a - 1 and c == b + 1
    assert [middle(window) for window in windows] == pytest.approx([2.0**0.5 * window[0] for window in windows])


def test_windows_beyond_the_run_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^rounds: must reach to 31 for a window of rounds from 16 on, not 30$"):
        dyadic(30)


def test_horizons_end_at_the_last() -> None:
    assert decay_module._horizons(256, 65_536, 4) == [256, 1024, 4096, 16_384, 65_536]
    assert decay_module._horizons(256, 256, 2) == [256]


# --- laws and policies


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_the_first_law_meets_every_assumption_and_the_second_all_of_wise(seed: int) -> None:
    good, slow = finite_law(seed, 0.2), finite_law(seed, 0.2, slow=True)
    for system in (good, slow):
        assert (system.servers, system.dimension, len(system.law.weights)) == (3, 3, 8)  # type: ignore[attr-defined]
        assert system.slack() == pytest.approx(0.2, abs=1e-12)
        assert system.max_feature_norm().value == pytest.approx(1.0, abs=1e-12)
    checks = {name: check.holds for name, check in good.assumptions().items()}
    assert all(checks.values()), checks
    assert good.context_slack().value > 0.02
    kept = {name: check.holds for name, check in slow.assumptions().items()}
    assert slow.context_slack().value < -0.1
    assert kept == {"WISE Theorem 6": True, "CQB-eta-2 Theorem 5": False}
    # The two differ in two contexts alone.
    same = (good.law.probabilities == slow.law.probabilities).all(axis=1)  # type: ignore[attr-defined]
    assert same.tolist() == [False] * 2 + [True] * 6


def test_policies_have_the_papers_radii_or_one_fixed_radius() -> None:
    good, slow = finite_law(), finite_law(slow=True)
    fixed, theory = players(good, "fixed", 2.5, 1000), players(good, "theory", 2.5, 1000)
    assert set(fixed) == set(theory) == set(NAMES)
    assert all(policy.options["radius"] == 2.5 for policy in fixed.values())
    assert all(policy.options["radius"] is None for policy in theory.values())
    assert theory["cqb_eta_2"].options["delta"] == 1e-12
    assert fixed["cqb_eta_2"].options["exploration"] == pytest.approx(good.context_slack().value / 4.0)
    assert players(slow, "fixed", 2.5, 1000)["cqb_eta_2"].options["exploration"] == pytest.approx(0.25 / 4.0)


# --- runs


def bench(folder: Path, seed: int = 3) -> Bench:
    return Bench(Request(folder, 2, 0, seed=seed, workers=1), folder, Progress(1, shown=False))


def test_rows_are_means_over_windows_and_are_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, windows = finite_law(), [(16, 31), (32, 63), (40, 40)]
    listed = [players(system, "fixed", 3.0, 63)[name] for name in ("cqb_opt", "wise")]
    monkeypatch.setattr(decay_module, "_NUMBERS", 1)  # four runs at a time
    arguments = ("a", "words", system, listed, 63)
    bench(tmp_path).windows(*arguments, 3, windows)
    found = bench(tmp_path).windows(*arguments, 6, windows)
    result = simulate(system, listed, rounds=63, runs=6, seed=3)
    for name in ("cqb_opt", "wise"):
        regret = result.queue_length[name] - result.oracle_queue_length
        wanted = np.stack([regret[:, a - 1 : b].mean(axis=1) for a, b in windows], axis=1)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-12)
    monkeypatch.setattr(decay_module, "simulate", lambda *_, **__: pytest.fail("played again"))
    np.testing.assert_array_equal(bench(tmp_path).windows(*arguments, 4, windows)["wise"], found["wise"][:4])
    with pytest.raises(ValueError, match=r"^out: '.*a.json' holds runs of another experiment"):
        bench(tmp_path, seed=4).windows(*arguments, 4, windows)


# --- verdicts


def panel(key: str, exponents: dict[str, float], **options: Any) -> Panel:
    points = {
        name: power(exponents.get(name, -0.5), seed=i, **{"noise": 0.05, **options}) for i, name in enumerate(NAMES)
    }
    return Panel(key, key, points)


def verdict_of(panels: list[Panel], text: str, way: str) -> str:
    [found] = [v for v in claims({each.key: each for each in panels}) if v.claim.text == text and v.claim.way == way]
    return found.verdict


def test_steep_slopes_hold_the_rates_and_shallow_ones_do_not() -> None:
    steep = [panel("law-fixed", {}), panel("slow-law-fixed", {"wise": -1.2}), panel("wise-theorem-7", {})]
    assert verdict_of(steep, decay_module.WISE_RATE, "fixed radius") == HOLDS
    assert verdict_of(steep, decay_module.KNOWN_RATE, "fixed radius") == HOLDS
    assert verdict_of(steep, decay_module.QUARTER, "fixed radius") == HOLDS
    assert verdict_of(steep, decay_module.PICTURE, "fixed radius") == FAILS
    assert verdict_of(steep, decay_module.LOWER, "wise-theorem-7") == HOLDS
    shallow = [panel("law-fixed", {"cqb_eta_2": -0.3, "acqb": -0.3, "cqb_epsilon": -0.25}), *steep[1:]]
    assert verdict_of(shallow, decay_module.KNOWN_RATE, "fixed radius") == FAILS
    assert verdict_of(shallow, decay_module.QUARTER, "fixed radius") == HOLDS
    assert verdict_of(shallow, decay_module.PICTURE, "fixed radius") == HOLDS
    # Context-wise slack is an assumption of all but WISE's theorem.
    unslack = [steep[0], panel("slow-law-fixed", {"cqb_eta_2": 0.0, "acqb": 0.0}), steep[2]]
    assert verdict_of(unslack, decay_module.KNOWN_RATE, "fixed radius") == HOLDS
    assert verdict_of(unslack, decay_module.QUARTER, "fixed radius") == HOLDS
    unslack[1] = panel("slow-law-fixed", {"wise": 0.0})
    assert verdict_of(unslack, decay_module.WISE_RATE, "fixed radius") == FAILS


def test_a_policy_below_the_rate_on_its_family_contradicts_the_lower_bound() -> None:
    found = [panel("law-fixed", {}), panel("wise-theorem-7", {"cqb_opt": -0.8})]
    assert verdict_of(found, decay_module.LOWER, "wise-theorem-7") == FAILS


def test_noise_decides_nothing() -> None:
    found = [panel("law-fixed", {}, noise=8.0, runs=10)]
    assert verdict_of(found, decay_module.WISE_RATE, "fixed radius") == UNDECIDED


def test_growth_with_slack_is_judged_by_its_own_slope() -> None:
    x = np.array([0.2, 0.1, 0.05, 0.025])
    rng = np.random.default_rng(4)
    for exponent, verdict in ((-2.0, HOLDS), (-1.0, FAILS), (-3.0, HOLDS)):
        noise = 1.0 + 0.05 * rng.normal(size=(5, 40, 4))
        points = {name: Points(x, x**exponent * noise[i]) for i, name in enumerate(NAMES)}
        found = [Panel("law-slack", "law-slack", points, over="slack"), panel("law-fixed", {})]
        assert verdict_of(found, decay_module.SLACK_GROWTH, "law-slack") == verdict


def test_regret_that_is_gone_at_once_is_judged_by_its_ends() -> None:
    """Two points and then nothing: no slope to speak of, and faster than any power that is asked for."""
    rng = np.random.default_rng(5)
    values = np.zeros((100, len(T)))
    values[:, :2] = 1.0 + rng.normal(size=(100, 2))
    values[:, 4:] = 0.01 * rng.normal(size=(100, len(T) - 4))
    found = Panel("law-fixed", "law", dict.fromkeys(NAMES, Points(T, values)))
    assert found.slope("wise").points == 2 and found.gone("wise") == T[2]
    part = rate(found, "wise", -0.45, "below")
    assert part.label.endswith("by its ends") and part.bound == 0.0
    wanted = interval(values[:, -1] * T[-1] ** 0.45 - values[:, 0] * T[0] ** 0.45)
    assert part.estimates[0] == wanted and wanted.high < 0.0
    assert verdict_of([found], decay_module.WISE_RATE, "fixed radius") == HOLDS
    # Regret that stays where it is grows by √t times as much.
    flat = Panel("law-fixed", "law", dict.fromkeys(NAMES, Points(T[:2], 1.0 + 0.1 * rng.normal(size=(100, 2)))))
    assert verdict_of([flat], decay_module.WISE_RATE, "fixed radius") == FAILS


@pytest.mark.parametrize(
    ("eps", "rounds", "short"), [(0.025, 102_400, False), (0.025, 102_399, True), (0.125, 4096, False)]
)
def test_theorem_8_asks_for_so_many_rounds(eps: float, rounds: int, short: bool) -> None:
    assert decay_module.short_of(eps, rounds) is short
    setting = decay_module._at_slack(eps, decay_module.family_settings()[1])
    if short:
        with pytest.raises(ValueError, match="64/capacity_slack"):
            setting.law(**setting.arguments(rounds))
    else:
        assert setting.law(**setting.arguments(rounds)).slack() == pytest.approx(eps)


# --- the command


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"horizon": 3000}, "horizon: must be a power of 2, at least 512, not 3000"),
        ({"slack_rounds": 8}, "slack_rounds: must be at least 64, not 8"),
        ({"theory_runs": 1}, "theory_runs: must be 0 (leave out) or at least 2, since one run has no spread, not 1"),
        ({"radius": -1.0}, "radius: "),
        ({"long_estimator": "two_pass"}, "long_estimator must be"),
        ({"slack": 1.5}, "slack: "),
    ],
)
def test_sizes_out_of_range_are_refused(tmp_path: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as error:
        registry.reproduce("regret-decay", out=tmp_path, parameters=given)
    assert str(error.value).startswith(sentence)
    assert not list(tmp_path.iterdir())


def test_a_small_reproduction_writes_its_files(tmp_path: Path) -> None:
    small = {"horizon": 512, "family_horizon": 256, "slack_rounds": 64, "family_slack_rounds": 4096, "family_runs": 2}
    longest = {"long_horizon": 512, "long_runs": 2}
    outcome = registry.reproduce("regret-decay", runs=3, out=tmp_path, parameters={**small, **longest})
    numbers = json.loads((tmp_path / "claims.json").read_text())
    assert numbers["reproduction"] == "regret-decay" and numbers["choices"]["horizon"] == 512
    assert [entry["over"] for entry in numbers["panels"]] == ["rounds"] * 6 + ["slack"] * 2
    long = numbers["panels"].pop(4)
    assert list(long["policies"]) == ["wise", "acqb", "cqb_opt"] and "longest" in long["system"]
    for entry in numbers["panels"]:
        assert list(entry["policies"]) == list(NAMES)
        for found in entry["policies"].values():
            assert len(found["x"]) == len(found["regret"])
    assert numbers["panels"][4]["lower_bound"] == [pytest.approx(0.0057, rel=0.1)]
    for stem in ("figure", "figure-families", "slopes"):
        assert (tmp_path / f"{stem}.png").stat().st_size > 20_000
        xml.fromstring((tmp_path / f"{stem}.svg").read_text())
    drawing = (tmp_path / "figure-families.svg").read_text()
    for text in ("lower bound", "CQB-η-2", "capacity slack ε", "round t", "slope −2"):
        assert f"<!-- {text} -->" in drawing
    page = (tmp_path / "claims.md").read_text()
    assert "Theorem 8 has no family at slack 0.2 (above 1/8), and none at 0.1, 0.0625, 0.05, 0.025" in page
    assert "neither support nor contradict one" in page
    for table in outcome.tables:
        assert table.text(width=120)
    assert all(isinstance(verdict.verdict, str) for verdict in outcome.verdicts)
