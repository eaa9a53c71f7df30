"""Context laws: their distributions, their exact constants, their bad input."""

from __future__ import annotations

import doctest
import importlib
import itertools
import math
import time
from typing import Any

import numpy as np
import pytest

from queuewise.scheduling.contexts import from_outcomes, function_law, table_law, uniform_law, wise_figure_law
from queuewise.scheduling.contexts.table import FiniteLaw, attempts_needed, ridge_logistic_fit

SETTINGS = list(itertools.product((0.0, 0.15, 0.5), (0.05, 0.1, 0.15)))


def z_score(values: np.ndarray, mean: float) -> float:
    return float((values.mean() - mean) / (values.std(ddof=1) / math.sqrt(len(values))))


# ---------------------------------------------------------------------------------------------- wise_figure_law


@pytest.mark.parametrize(("q", "slack"), SETTINGS)
def test_wise_law_has_the_stated_slack_by_simulation(q: float, slack: float) -> None:
    system = wise_figure_law(q, slack, seed=3)
    assert system.slack() == pytest.approx(slack, abs=1e-15)
    best = system.law.draw(20_000, np.random.default_rng(8)).probabilities.max(axis=1)
    assert abs(z_score(1 - 0.6 / best, slack)) < 5
    assert abs((best < 0.6).mean() - q) < 5 * math.sqrt(q * (1 - q) / 20_000) + 1e-12


@pytest.mark.parametrize("q", [0.0, 0.3])
def test_wise_law_is_exact_by_enumeration(q: float) -> None:
    servers, points = 3, 4
    system = wise_figure_law(q, 0.1, servers=servers, points=points, low_interval=(0.5, 0.58), seed=1)
    low = 0.5 + 0.08 * (np.arange(points) + 0.5) / points
    high = system.high_center - 0.01 + 0.02 * (np.arange(points) + 0.5) / points
    share = q ** (1 / servers)
    atoms = [(p, share / points) for p in low] + [(p, (1 - share) / points) for p in high]
    attempts = sum(
        math.prod(weight for _, weight in choice) / max(p for p, _ in choice)
        for choice in itertools.product(atoms, repeat=servers)
    )
    assert 1 - 0.6 * attempts == pytest.approx(0.1, abs=1e-14)
    lowest = low[0] if q else high[0]
    assert system.context_slack().value == pytest.approx(lowest - 0.6, abs=1e-15)
    extremes = [lowest, high[-1]]
    assert system.kappa("truth").value == pytest.approx(max(1 / (p * (1 - p)) for p in extremes))


def test_wise_law_pairs_follow_the_paper() -> None:
    system = wise_figure_law(0.5, 0.1, seed=2)
    draw = system.law.draw(4000, np.random.default_rng(4))
    p, features = draw.probabilities, draw.features
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 5.0, rtol=0, atol=1e-12)
    assert np.linalg.norm(system.theta) == pytest.approx(10.0, abs=1e-14)
    logits = np.einsum("rdk,d->rk", features, system.theta)
    np.testing.assert_allclose(logits, np.log(p / (1 - p)), rtol=0, atol=1e-12)

    slow = p < 0.6
    share = 0.5**0.1
    assert abs(slow.mean() - share) < 5 * math.sqrt(share * (1 - share) / slow.size)
    for values, low, width in ((p[slow], 0.54, 0.04), (p[~slow], system.high_center - 0.01, 0.02)):
        cell = (values - low) / width * 256 - 0.5
        np.testing.assert_allclose(cell, np.round(cell), rtol=0, atol=1e-9)
        counts = np.bincount(np.round(cell).astype(int), minlength=256)
        assert counts.shape == (256,)
        expected = len(values) / 256
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi_square - 255) < 5 * math.sqrt(2 * 255)
    # What is left of a feature besides the parameter's direction is one of 64 fixed unit vectors, evenly.
    axis = system.theta / 10
    rest = features.transpose(0, 2, 1).reshape(-1, 5) - np.outer((logits / 10).ravel(), axis)
    rest /= np.linalg.norm(rest, axis=1, keepdims=True)
    assert np.abs(rest @ axis).max() < 1e-12
    directions, counts = np.unique(rest.round(9), axis=0, return_counts=True)
    assert len(directions) == 64
    expected = counts.sum() / 64
    assert abs(((counts - expected) ** 2 / expected).sum() - 63) < 5 * math.sqrt(2 * 63)
    # Servers of one job are independent.
    both = np.outer(slow.mean(axis=0), slow.mean(axis=0))
    joint = slow.T.astype(float) @ slow / len(slow)
    off = ~np.eye(10, dtype=bool)
    assert np.abs(joint - both)[off].max() < 5 * math.sqrt(share * (1 - share) * share * (1 - share) / 4000) * 1.2


def test_wise_law_diversity_agrees_with_its_draws() -> None:
    system = wise_figure_law(0.5, 0.15, seed=7)
    pairs = system.law.draw(20_000, np.random.default_rng(1)).features.transpose(0, 2, 1).reshape(-1, 5)
    _, vectors = np.linalg.eigh(pairs.T @ pairs / len(pairs))
    squares = (pairs @ vectors[:, 0]) ** 2
    assert abs(z_score(squares, system.feature_diversity().value)) < 5
    assert system.feature_diversity().exact


def test_wise_law_carries_what_the_paper_types_in() -> None:
    system = wise_figure_law(q=0.15, slack=0.05)
    assert (system.suggested_radius, system.suggested_initial_design, system.suggested_ridge) == (100.0, 5.0, 1.0)
    assert (system.parameter_bound, system.feature_bound, system.arrival_rate) == (10.0, 5.0, 0.6)
    assert (system.servers, system.dimension) == (10, 5)
    assert system.low_interval == (0.57, 0.59)
    assert wise_figure_law(0, 0.05).low_interval is None
    assert system.kappa("ball").value == pytest.approx(5.18e21, rel=1e-2)
    assert system.high_center - 0.01 > 0.6


def test_wise_law_instances_differ_by_seed_alone() -> None:
    first, again, other = (wise_figure_law(0.15, 0.05, seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.theta, again.theta)
    assert (first.theta != other.theta).any()
    assert first.high_center == other.high_center


def test_wise_law_draws_fast() -> None:
    system, rng = wise_figure_law(0.15, 0.05), np.random.default_rng(0)
    system.law.draw(1200, rng)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        system.law.draw(1200, rng)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.01  # about 0.5 ms where it was written; the margin is for a machine that is busy


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"q": 0.3}, "low_interval must be given for q=0.3"),
        ({"q": 1.0}, "q must be at least 0 and below 1"),
        ({"q": -0.1}, "q must be at least 0 and below 1"),
        ({"q": math.nan}, "q must be finite"),
        ({"slack": 0.0}, "slack must lie strictly between 0 and 1"),
        ({"slack": 1.0}, "slack must lie strictly between 0 and 1"),
        ({"slack": 0.5}, r"slack=0.5 cannot be reached with q=0.15: .* gives a slack from 0\.\d+ to 0\.\d+"),
        ({"q": 0, "slack": 0.001}, r"slack=0.001 cannot be reached"),
        ({"arrival_rate": 1.5}, "arrival_rate must lie strictly between 0 and 1"),
        ({"servers": 0}, "servers must be a whole number of at least 1"),
        ({"dimension": 1}, "dimension must be a whole number of at least 2"),
        ({"directions": 0}, "directions must be a whole number of at least 1"),
        ({"points": 0}, "points must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"parameter_norm": 0.0}, "parameter_norm must be positive"),
        ({"feature_norm": 0.01}, r"feature_norm must be at least 0\.\d+ for these probabilities"),
        ({"high_width": 0.5}, "high_width must be below 1 - arrival_rate"),
        ({"low_interval": (0.5, 0.7)}, "low_interval must satisfy 0 <= low end < high end <= arrival_rate=0.6"),
        ({"low_interval": (0.58, 0.57)}, "low_interval must satisfy"),
        ({"low_interval": (math.nan, 0.57)}, "low_interval must be finite"),
        ({"low_interval": 0.5}, "low_interval must be a pair"),
    ],
)
def test_wise_law_refuses(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        wise_figure_law(**{"q": 0.15, "slack": 0.05, **arguments})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- uniform_law


def test_uniform_law_meets_slack_and_curvature_on_every_context() -> None:
    for seed in range(5):
        system = uniform_law(seed=seed)
        draw = system.law.draw(10, np.random.default_rng(0))
        features = draw.features
        assert features.shape == (1000, 10, 5)
        assert np.abs(features).max() <= 1
        assert np.abs(system.theta).max() <= 1
        p = 1 / (1 + np.exp(-np.einsum("rdk,d->rk", features, system.theta)))
        assert p.max(axis=1).min() >= 0.8
        assert (1 / (p * (1 - p))).max() <= 50
        assert system.context_slack().value == pytest.approx(p.max(axis=1).min() - 0.7, abs=1e-14)
        assert system.slack() == pytest.approx(1 - 0.7 * (1 / p.max(axis=1)).mean(), abs=1e-13)
        assert system.kappa("truth").value == pytest.approx((1 / (p * (1 - p))).max())
        assert system.kappa("ball").value > system.kappa("truth").value
        assert system.parameter_bound == pytest.approx(np.linalg.norm(system.theta))
        assert system.feature_bound == pytest.approx(math.sqrt(10))


def test_uniform_law_reports_what_rejection_costs() -> None:
    systems = [uniform_law(seed=seed) for seed in range(80)]
    tried = np.array([system.parameters_tried for system in systems])
    # About 64 % of parameters pass, so about 1.57 tries each (geometric: standard deviation 0.95).
    assert abs(tried.mean() - 1.57) < 5 * 0.95 / math.sqrt(80)
    assert 0.25 < np.mean([system.context_acceptance for system in systems]) < 0.42
    first = systems[0]
    assert first.parameter_acceptance == 1 / first.parameters_tried
    assert first.context_acceptance == 1000 / first.contexts_tried
    assert f"try {first.parameters_tried}" in first.describe()


def test_uniform_law_keeps_the_law_of_the_accepted_contexts() -> None:
    # Rejection must not favour any server: by symmetry each is best equally often.
    system = uniform_law(pool=4000, kappa=200, seed=1)
    best = system.law.draw(1, np.random.default_rng(0)).probabilities.argmax(axis=1)
    counts = np.bincount(best, minlength=5)
    assert abs(((counts - 800) ** 2 / 800).sum() - 4) < 5 * math.sqrt(8)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"servers": 0}, "servers must be a whole number of at least 1"),
        ({"dimension": 0}, "dimension must be a whole number of at least 1"),
        ({"pool": 0}, "pool must be a whole number of at least 1"),
        ({"slack": 0.3}, "slack must be below 1 - arrival_rate"),
        ({"slack": -0.1}, "slack must be positive"),
        ({"kappa": 6.0}, r"kappa must be above 6\.25"),
        ({"kappa": 6.3, "pool": 100}, "must leave room for an instance: none of 1000 parameters"),
        ({"arrival_rate": -0.2}, "arrival_rate must lie strictly between 0 and 1"),
    ],
)
def test_uniform_law_refuses(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        uniform_law(**arguments)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------- table_law


def test_table_takes_servers_second_and_stores_them_last() -> None:
    features = np.arange(12.0).reshape(2, 3, 2) / 100
    system = table_law(features, theta=[1.0, 2.0], arrival_rate=0.2)
    draw = system.law.draw(5, np.random.default_rng(0))
    assert draw.features.shape == (2, 2, 3)
    for context, server in itertools.product(range(2), range(3)):
        np.testing.assert_array_equal(draw.features[context, :, server], features[context, server])


def test_table_draws_contexts_with_their_weights_and_never_a_weight_of_zero() -> None:
    weights = [0, 2, 0, 5, 3, 0]
    system = table_law(np.full((6, 1, 1), 0.5), np.full((6, 1), 0.8), weights=weights, arrival_rate=0.5)
    rows = system.law.draw(20_000, np.random.default_rng(3)).rows
    counts = np.bincount(rows, minlength=6)
    assert (counts[[0, 2, 5]] == 0).all()
    expected = np.array([4000, 10_000, 6000])
    assert (((counts[[1, 3, 4]] - expected) ** 2) / expected).sum() < 2 + 5 * 2

    class Last:
        def random(self, jobs: int) -> np.ndarray:
            return np.full(jobs, np.nextafter(1.0, 0.0))

    assert system.law.draw(1, Last()).rows[0] == 4  # type: ignore[arg-type]


def test_constants_ignore_contexts_that_never_come() -> None:
    common: dict[str, Any] = {"arrival_rate": 0.5, "theta": [1.0]}
    system = table_law([[[2.0]], [[-30.0]]], weights=[1, 0], **common)
    assert system.max_feature_norm().value == 2.0
    assert system.capacity_slack() == table_law([[[2.0]]], **common).capacity_slack()
    assert system.kappa("truth") == table_law([[[2.0]]], **common).kappa("truth")


def test_a_table_finds_the_parameter_behind_its_probabilities() -> None:
    rng = np.random.default_rng(1)
    features, theta = rng.uniform(-1, 1, (6, 2, 3)), np.array([1.0, -2.0, 0.5])
    p = 1 / (1 + np.exp(-features @ theta))
    np.testing.assert_allclose(table_law(features, p, arrival_rate=0.2).theta, theta, rtol=1e-10)
    p[0, 0] += 0.01
    crooked = table_law(features, p, arrival_rate=0.2)
    assert crooked.theta is None
    assert crooked.parameter_bound > 0


@pytest.mark.parametrize(
    ("features", "probabilities", "change", "sentence"),
    [
        ([[1.0]], [[0.8]], {}, r"features must have shape \[contexts, servers, dimension\]"),
        (np.zeros((0, 2, 2)), np.zeros((0, 2)), {}, "features must hold at least one context"),
        (np.zeros((2, 0, 2)), np.zeros((2, 0)), {}, "features must hold at least one server"),
        (np.zeros((2, 2, 0)), np.zeros((2, 2)), {}, "features must hold at least one entry per feature vector"),
        ([[[math.nan]]], [[0.8]], {}, "features must be finite, but 1 of 1 entries are NaN or infinite"),
        ([[[math.inf]]], [[0.8]], {}, "features must be finite"),
        ([[[1.0]], [[1.0, 2.0]]], [[0.8]], {}, "features must be an array of numbers"),
        ([[["x"]]], [[0.8]], {}, "features must be an array of numbers"),
        ([[[1.0]]], [[1.2]], {}, r"probabilities must lie in \[0, 1\], but range from 1.2 to 1.2"),
        ([[[1.0]]], [[-0.2]], {}, r"probabilities must lie in \[0, 1\]"),
        ([[[1.0]]], [[math.nan]], {}, "probabilities must be finite"),
        ([[[1.0]]], [[0.8, 0.9]], {}, r"probabilities must have shape \[contexts, servers\] = \[1, 1\]"),
        ([[[1.0]]], None, {}, "probabilities or theta must be given"),
        ([[[1.0]]], None, {"theta": [1.0, 2.0]}, r"theta must have shape \[dimension\] = \[1\]"),
        ([[[1.0]]], [[0.8]], {"theta": [1.0]}, "probabilities must equal the logistic function"),
        ([[[1.0]]], [[0.8]], {"weights": [0.0]}, "weights must be at least 0 and have a positive sum"),
        ([[[1.0]], [[1.0]]], [[0.8], [0.8]], {"weights": [2.0, -1.0]}, "weights must be at least 0"),
        ([[[1.0]]], [[0.8]], {"weights": [1.0, 1.0]}, r"weights must have shape \[contexts\] = \[1\]"),
        ([[[1.0]]], [[0.0]], {}, "capacity_slack is -inf"),
    ],
)
def test_table_law_refuses(features: object, probabilities: object, change: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        table_law(features, probabilities, arrival_rate=0.5, **change)  # type: ignore[arg-type]


def test_the_ridge_fit_is_the_minimiser() -> None:
    rng = np.random.default_rng(2)
    pairs = rng.standard_normal((50, 3))
    separable = (pairs[:, 0] > 0).astype(float)
    for successes in (separable, rng.random(50), np.ones(50)):
        weights = rng.random(50)
        theta = ridge_logistic_fit(pairs, successes, weights, 0.1)
        gradient = pairs.T @ (weights * (1 / (1 + np.exp(-pairs @ theta)) - successes)) + 0.1 * theta
        assert np.abs(gradient).max() < 1e-9


# ------------------------------------------------------------------------------------------------ function_law

TABLE = np.random.default_rng(11).uniform(-0.5, 0.5, (9, 2, 3))
THETA = np.array([2.0, -1.0, 3.0])


def from_table(rng: np.random.Generator, n: int) -> np.ndarray:
    return TABLE[rng.integers(0, 9, n)]


def test_sampled_constants_agree_with_the_exact_ones() -> None:
    exact = table_law(TABLE, theta=THETA, arrival_rate=0.3)
    sampled = function_law(from_table, theta=THETA, arrival_rate=0.3, feature_bound=1.0, sample=5000)
    for name in ("capacity_slack", "feature_diversity"):
        true, estimate = getattr(exact, name)(), getattr(sampled, name)()
        assert true.exact
        assert not estimate.exact
        assert 0 < estimate.error < 0.01
        assert abs(estimate.value - true.value) < 5 * estimate.error
    # All nine contexts turn up among 5000, so the extremes are found.
    assert sampled.context_slack().value == pytest.approx(exact.context_slack().value)
    assert sampled.kappa("truth").value == pytest.approx(exact.kappa("truth").value)
    assert sampled.max_feature_norm().value == pytest.approx(exact.max_feature_norm().value)
    assert math.isnan(sampled.max_feature_norm().error)


def test_a_capricious_function_still_extends_its_runs() -> None:
    def capricious(rng: np.random.Generator, n: int) -> np.ndarray:
        first = rng.uniform(-0.5, 0.5, (1, 3, n))  # jobs last, so that one call is no prefix of a longer one
        return np.moveaxis(np.broadcast_to(first, (2, 3, n)), 2, 0)

    law = function_law(capricious, theta=THETA, arrival_rate=0.1, feature_bound=1.0, sample=50, block=16).law
    short, long = (law.draw(jobs, np.random.default_rng(5)) for jobs in (37, 200))
    np.testing.assert_array_equal(short.features, long.features[:37])


def test_function_law_takes_other_truths() -> None:
    def crooked(features: np.ndarray) -> np.ndarray:
        assert features.shape[1:] == (2, 3)
        return np.clip(features[:, :, 0] + 0.6, 0, 1)

    system = function_law(
        from_table, probability=crooked, parameter_bound=2.0, arrival_rate=0.2, feature_bound=1.0, sample=100
    )
    draw = system.law.draw(20, np.random.default_rng(0))
    np.testing.assert_allclose(draw.probabilities, np.clip(draw.features[:, 0, :] + 0.6, 0, 1))
    assert system.theta is None

    def hidden(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        return from_table(rng, n), rng.uniform(0.5, 0.9, (n, 2))

    system = function_law(hidden, parameter_bound=2.0, arrival_rate=0.2, feature_bound=1.0, sample=100)
    probabilities = system.law.draw(20, np.random.default_rng(0)).probabilities
    assert probabilities.min() >= 0.5


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"feature_bound": 0.1}, "draw_context must return features of norm at most feature_bound=0.1"),
        ({"feature_bound": -1.0}, "feature_bound must be positive"),
        ({"arrival_rate": 2.0}, "arrival_rate must lie strictly between 0 and 1"),
        ({"arrival_rate": 0.99}, "capacity_slack is -"),
        ({"theta": None}, "parameter_bound must be given where theta is not"),
        ({"theta": None, "parameter_bound": 1.0}, "theta or probability must be given, or draw_context return"),
        ({"probability": lambda features: features}, "theta and probability must not both be given"),
        ({"sample": 1}, "sample must be a whole number of at least 2"),
        ({"block": 0}, "block must be a whole number of at least 1"),
        ({"draw_context": lambda rng, n: np.zeros((n, 2))}, "draw_context must return features of shape"),
        ({"draw_context": lambda rng, n: np.zeros((3, 2, 3))}, "draw_context must return features of shape"),
        ({"draw_context": lambda rng, n: np.full((n, 2, 3), np.nan)}, "draw_context returns must be finite"),
        (
            {"draw_context": lambda rng, n: np.zeros((n, int(rng.integers(2, 9)), 3))},
            "draw_context must return features of shape .* in every call",
        ),
        (
            {"theta": None, "parameter_bound": 1.0, "probability": lambda features: np.full(features.shape[:2], 2.0)},
            r"probabilities must lie in \[0, 1\]",
        ),
    ],
)
def test_function_law_refuses(change: dict[str, object], sentence: str) -> None:
    arguments = {"draw_context": from_table, "theta": THETA, "arrival_rate": 0.3, "feature_bound": 1.0, "sample": 99}
    with pytest.raises(ValueError, match=sentence):
        function_law(**{**arguments, "block": 8, **change})  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------- from_outcomes

RECORD = np.array([[1.0, 0.0], [0.5, 0.25], [0.0, 0.0], [0.0, 1.0]])
KNOWN = np.array([[0.0, 3.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 2.0]])


def test_per_server_features_are_blocks_with_a_leading_one() -> None:
    system = from_outcomes(KNOWN, RECORD, load=0.5, impossible="drop", scale=None)
    features = system.law.draw(1, np.random.default_rng(0)).features
    assert features.shape == (3, 6, 2)
    np.testing.assert_array_equal(features[0, :, 0], [1, 0, 3, 0, 0, 0])
    np.testing.assert_array_equal(features[2, :, 1], [0, 0, 0, 1, -1, 2])
    np.testing.assert_array_equal(system.kept, [0, 1, 3])


def test_outcomes_are_the_truth_and_the_load_is_met() -> None:
    system = from_outcomes(KNOWN, RECORD, load=0.5, impossible="drop")
    # The best servers succeed with probability 1, 0.5 and 1: 4/3 attempts a job.
    assert system.arrival_rate == pytest.approx(0.375)
    assert system.slack() == pytest.approx(0.5)
    assert (system.jobs, system.dropped, system.floored) == (4, 1, 0)
    assert system.theta is None
    assert "4 recorded jobs, 1 of them done by no server (dropped)" in system.describe()
    assert system.matched_success() == pytest.approx(5 / 6)
    assert system.best_single_server() == (0, pytest.approx(0.5))
    assert system.max_feature_norm().value == pytest.approx(1.0)
    given = from_outcomes(KNOWN, RECORD, arrival_rate=0.375, impossible="drop")
    assert given.slack() == pytest.approx(0.5)


def test_impossible_jobs_are_refused_dropped_or_floored() -> None:
    with pytest.raises(ValueError, match="outcomes hold 1 of 4 jobs that no server ever did"):
        from_outcomes(KNOWN, RECORD, load=0.5)
    floored = from_outcomes(KNOWN, RECORD, load=0.5, impossible="floor", floor=0.1)
    probabilities = floored.law.draw(1, np.random.default_rng(0)).probabilities
    np.testing.assert_array_equal(probabilities, [[1.0, 0.0], [0.5, 0.25], [0.1, 0.1], [0.0, 1.0]])
    assert (floored.dropped, floored.floored) == (0, 1)
    assert "raised to 0.1" in floored.describe()
    assert RECORD[2].max() == 0  # the record itself is left alone
    with pytest.raises(ValueError, match="at least one job"):
        from_outcomes(KNOWN[2:3], RECORD[2:3], load=0.5, impossible="drop")


def test_a_fitted_truth_is_logistic_and_the_best_ridge_fit() -> None:
    rng = np.random.default_rng(3)
    known, record = rng.standard_normal((60, 2)), rng.integers(0, 2, (60, 3)).astype(float)
    system = from_outcomes(known, record, load=0.6, truth="fit", ridge=0.5)
    draw = system.law.draw(1, np.random.default_rng(0))
    assert system.theta is not None
    np.testing.assert_array_equal(system.theta, system.fitted_theta)
    assert system.parameter_bound == pytest.approx(np.linalg.norm(system.theta))
    p = 1 / (1 + np.exp(-np.einsum("rdk,d->rk", draw.features, system.theta)))
    np.testing.assert_allclose(draw.probabilities, p, atol=1e-15)
    # Servers are fitted apart, yet together they minimise the loss over all pairs.
    gradient = np.einsum("rdk,rk->d", draw.features, p - record) + 0.5 * system.theta
    assert np.abs(gradient).max() < 1e-9
    assert "kept, with fitted probabilities" in system.describe() or "each done by some server" in system.describe()


def test_shared_parameters_take_features_of_pairs() -> None:
    rng = np.random.default_rng(4)
    features, record = rng.standard_normal((30, 3, 2)), rng.integers(1, 3, (30, 3)) / 2
    system = from_outcomes(features, record, load=0.6, shared=True, weights=rng.random(30))
    assert (system.servers, system.dimension) == (3, 2)
    table = system.law.draw(1, np.random.default_rng(0)).features
    ratio = table.transpose(0, 2, 1) / features
    np.testing.assert_allclose(ratio, ratio[0, 0, 0])
    assert np.linalg.norm(table, axis=1).max() == pytest.approx(1.0)
    assert 0 < system.fitted_success() <= system.matched_success()


def test_weights_count_jobs() -> None:
    weighted = from_outcomes(KNOWN, RECORD, load=0.5, impossible="drop", weights=[2, 1, 1, 0])
    repeated = from_outcomes(KNOWN[[0, 0, 1, 2]], RECORD[[0, 0, 1, 2]], load=0.5, impossible="drop")
    assert weighted.arrival_rate == pytest.approx(repeated.arrival_rate)
    assert weighted.matched_success() == pytest.approx(repeated.matched_success())


def test_a_record_of_fair_coins_leaves_a_bound_above_zero() -> None:
    system = from_outcomes([[0.0], [1.0]], np.full((2, 2), 0.5), load=0.5)
    assert system.parameter_bound > 0
    assert system.theta is not None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"outcomes": [[1.5, 0.0]] * 4}, r"outcomes must lie in \[0, 1\]"),
        ({"outcomes": [[math.nan, 0.0]] * 4}, "outcomes must be finite, but 4 of 8"),
        ({"outcomes": [1.0, 0.0]}, r"outcomes must have shape \[jobs, servers\]"),
        ({"outcomes": np.zeros((4, 0))}, r"outcomes must have shape \[jobs, servers\] with at least one of each"),
        ({"features": KNOWN[:3]}, r"features must have shape \[jobs, m\] with jobs = 4"),
        ({"features": np.full((4, 2), np.inf)}, "features must be finite"),
        ({"shared": True}, r"features must have shape \[contexts, servers, dimension\]"),
        (
            {"shared": True, "features": np.ones((4, 3, 1))},
            r"features must have shape .* \[4, 2, ...\] with shared=True",
        ),
        ({"load": None}, "arrival_rate or load must be given, and not both"),
        ({"arrival_rate": 0.2}, "arrival_rate or load must be given, and not both"),
        ({"load": 1.0}, "load must lie strictly between 0 and 1"),
        ({"load": -0.5}, "load must be positive"),
        ({"load": None, "arrival_rate": 1.2}, "arrival_rate must lie strictly between 0 and 1"),
        ({"load": None, "arrival_rate": 0.95}, "capacity_slack is -"),
        ({"impossible": "ignore"}, "impossible must be one of 'error', 'drop', 'floor'"),
        ({"impossible": "floor"}, "floor must be given if and only if"),
        ({"floor": 0.1}, "floor must be given if and only if"),
        ({"impossible": "floor", "floor": 0.0}, r"floor must lie in \(0, 1\]"),
        ({"truth": "guess"}, "truth must be one of 'repeat', 'fit'"),
        ({"scale": "big"}, "scale must be one of 'unit'"),
        ({"ridge": 0.0}, "ridge must be positive"),
        ({"parameter_bound": -1.0}, "parameter_bound must be positive"),
        ({"weights": [1.0]}, r"weights must have shape"),
    ],
)
def test_from_outcomes_refuses(change: dict[str, object], sentence: str) -> None:
    arguments: dict[str, object] = {"features": KNOWN, "outcomes": RECORD, "load": 0.5, "impossible": "drop", **change}
    with pytest.raises(ValueError, match=sentence):
        from_outcomes(**arguments)  # type: ignore[arg-type]


def test_a_load_above_one_is_accepted_when_asked_for() -> None:
    system = from_outcomes(KNOWN, RECORD, load=1.2, impossible="drop", allow_unstable=True)
    assert system.slack() == pytest.approx(-0.2)


# ---------------------------------------------------------------------------------------------------- all laws


@pytest.mark.parametrize("module", ["function", "outcomes", "table", "uniform", "wise_figure"])
def test_examples_in_docstrings_hold(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"queuewise.scheduling.contexts.{module}"))
    assert results.failed == 0


def test_a_finite_law_does_not_copy_its_table() -> None:
    law = table_law([[[1.0]]], [[0.8]], arrival_rate=0.5).law
    assert isinstance(law, FiniteLaw)
    assert law.draw(5, np.random.default_rng(0)).features is law.features


@pytest.mark.parametrize(("p", "limit"), [(0.3, 1), (0.3, 4), (1.0, 3), (1e-9, 5), (0.0, 7)])
def test_attempts_needed_sum_the_chances_of_getting_to_each(p, limit):
    expected = sum((1 - p) ** j for j in range(limit))
    assert attempts_needed(np.array([p]), limit)[0] == pytest.approx(expected, rel=1e-9)


def test_a_limit_of_attempts_makes_hopeless_jobs_bearable():
    features, outcomes = [[0.0], [1.0]], [[0.5, 0.25], [0.0, 0.0]]
    with pytest.raises(ValueError, match="impossible must be 'drop', 'floor' or 'attempts'"):
        from_outcomes(features, outcomes, load=0.5)
    with pytest.raises(ValueError, match=r"^max_attempts must be given with impossible='attempts'"):
        from_outcomes(features, outcomes, load=0.5, impossible="attempts")
    with pytest.raises(ValueError, match=r"^max_attempts must be a whole number of at least 1, not 0$"):
        from_outcomes(features, outcomes, load=0.5, impossible="attempts", max_attempts=0)
    system = from_outcomes(features, outcomes, load=0.5, impossible="attempts", max_attempts=3)
    assert system.max_attempts == 3
    # (1 - 0.5³)/0.5 = 1.75 attempts for the one, 3 for the other.
    assert system.arrival_rate == pytest.approx(0.5 / ((1.75 + 3) / 2))
    assert system.slack() == pytest.approx(0.5)
    assert "given up after 3 attempts" in system.describe()
    assert all(check.holds is False for check in system.assumptions().values())
    dropped = from_outcomes(features, outcomes, load=0.5, impossible="drop")
    assert dropped.max_attempts is None
    assert "max_attempts" not in dropped.settings()
    assert system.settings()["max_attempts"] == 3
