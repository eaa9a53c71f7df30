"""Laws of sizes: the means, variances and distributions that they promise, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from queuewise.dispatch import service

COUNT = 200_000
#: Law → squared coefficient of variation, and its distribution function.
LAWS = {
    "exponential": (service.exponential(), 1.0, stats.expon.cdf),
    "erlang": (service.erlang(4), 0.25, stats.gamma(4, scale=0.25).cdf),
    "erlang-1": (service.erlang(1), 1.0, stats.expon.cdf),
    "hyperexponential": (service.hyperexponential(3.0), 3.0, None),
    "hyperexponential-1": (service.hyperexponential(1), 1.0, stats.expon.cdf),
    "lognormal": (service.lognormal(0.8), 0.8, stats.lognorm(math.sqrt(math.log(1.8)), scale=1.8**-0.5).cdf),
    "pareto": (service.pareto(6), 1.0 / 24.0, stats.pareto(6, scale=5 / 6).cdf),
    "resampled": (service.resampled([0.5, 1.5, 1.0]), 1.0 / 6.0, None),
}


def draw(law: service.Service, count: int = COUNT, seed: int = 11) -> Any:
    return law.sizes(np.random.default_rng(seed), count)


@pytest.mark.parametrize("name", LAWS)
def test_mean_and_variance(name: str) -> None:
    law, variation, distribution = LAWS[name]
    sizes = draw(law)
    assert law.mean == 1.0
    assert abs(sizes.mean() - 1.0) / math.sqrt(variation / COUNT) < 4.5
    squares = np.square(sizes - 1.0)
    assert abs(squares.mean() - variation) / (squares.std() / math.sqrt(COUNT)) < 4.5
    if distribution is not None:
        assert stats.kstest(sizes, distribution).pvalue > 7e-6  # z = 4.5


def test_hyperexponential_has_balanced_means() -> None:
    variation = 3.0
    p = 0.5 * (1.0 + math.sqrt(0.5))
    mixed = lambda x: p * stats.expon.cdf(x, scale=0.5 / p) + (1 - p) * stats.expon.cdf(x, scale=0.5 / (1 - p))  # noqa: E731
    assert stats.kstest(draw(service.hyperexponential(variation)), mixed).pvalue > 7e-6


def test_deterministic() -> None:
    assert draw(service.deterministic(), 5).tolist() == [1.0] * 5


def test_pareto_below_two_has_its_mean_and_tail() -> None:
    sizes = draw(service.pareto(1.5))
    assert stats.kstest(sizes, stats.pareto(1.5, scale=1 / 3).cdf).pvalue > 7e-6


def test_resampled_draws_each_value_equally_often() -> None:
    counts = np.unique(draw(service.resampled([3, 1, 2])), return_counts=True)
    assert counts[0].tolist() == [1.0, 2.0, 3.0]
    assert stats.chisquare(counts[1]).pvalue > 7e-6
    assert service.resampled([3, 1, 2]).mean == 2.0


@pytest.mark.parametrize("name", [name for name in LAWS if not name.startswith("hyper")])
def test_sizes_are_continued_over_chunks(name: str) -> None:
    """One stream, cut anywhere. (A mixture draws the choices of a chunk before its sizes, so there it depends on the cut.)"""
    law, rng = LAWS[name][0], np.random.default_rng(3)
    pieces = np.concatenate([law.sizes(rng, count) for count in (5, 1, 4)])
    np.testing.assert_array_equal(pieces, law.sizes(np.random.default_rng(3), 10))


def test_recorded_sizes_are_those_recorded() -> None:
    given = np.array([1.0, 2.0, 4.0])
    law = service.recorded_sizes(given)
    given[:] = 7.0
    assert law.recorded.tolist() == [1.0, 2.0, 4.0]
    assert law.mean == pytest.approx(7 / 3)


def test_functions_of_ones_own() -> None:
    law = service.from_function(lambda rng, count: 2.0 * rng.random(count) + 1e-9)
    assert law.mean == pytest.approx(1.0, abs=4.5 * math.sqrt(1 / 3 / 1e5))
    assert service.from_function(lambda rng, count: np.full(count, 3), mean=3).mean == 3.0
    assert draw(service.from_function(lambda rng, count: np.full(count, 3)), 2).dtype == np.float64


@pytest.mark.parametrize(
    "found", [lambda n: -np.ones(n), np.zeros, lambda n: np.ones(n - 1), lambda n: 1.0, lambda n: np.full(n, np.nan)]
)
def test_a_function_that_returns_something_else_is_named(found: Any) -> None:
    with pytest.raises(ValueError, match=r"service: the law .* must return 100000 finite sizes above 0"):
        service.from_function(lambda rng, count: found(count))


def test_settings_tell_laws_apart() -> None:
    laws = [law for law, _, _ in LAWS.values()] + [service.recorded_sizes([1, 2]), service.recorded_sizes([2, 1])]
    found = [repr(law.settings()) for law in laws]
    assert len(set(found)) == len(found)
    assert service.erlang(4).settings() == {"law": "erlang", "phases": 4}
    assert service.resampled([1, 2]).settings() == service.resampled(np.array([1.0, 2.0])).settings()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: service.erlang(0), "phases must be a whole number of at least 1, not 0"),
        (lambda: service.erlang(2.0), "phases must be a whole number of at least 1, not 2.0"),
        (lambda: service.hyperexponential(0.9), "variation must be at least 1 for a hyperexponential law, not 0.9"),
        (lambda: service.hyperexponential(math.nan), "variation must be finite, not nan"),
        (lambda: service.lognormal(0), "variation must be positive, not 0"),
        (lambda: service.lognormal("x"), "variation must be a number, not 'x'"),
        (lambda: service.pareto(1), "shape must be above 1, or sizes have no mean, not 1"),
        (lambda: service.resampled([]), r"sizes must be a non-empty list, not an array of shape \(0,\)"),
        (lambda: service.resampled([[1.0]]), r"sizes must be a non-empty list, not an array of shape \(1, 1\)"),
        (lambda: service.resampled([1, 0]), "sizes must be finite and above 0, but entry 1 is 0"),
        (lambda: service.recorded_sizes([1, 2, -3]), "sizes must be finite and above 0, but entry 2 is -3"),
        (lambda: service.recorded_sizes([math.inf]), "sizes must be finite and above 0, but entry 0 is inf"),
        (lambda: service.from_function(3), r"service must be a law or a function of \(rng, n\), not 3"),
        (lambda: service.from_function(np.ones, mean=0.0), "mean must be positive, not 0.0"),
    ],
)
def test_refusals(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_variation_beyond_floats_is_refused() -> None:
    with pytest.raises(ValueError, match="variation"):
        draw(service.hyperexponential(1e20), 5)
