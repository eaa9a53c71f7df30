"""Arrival processes: their rates, their variability, the shape of varying ones, and recorded times as they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from queuewise.dispatch import arrivals, service

COUNT, RATE = 200_000, 2.5
RENEWALS = {
    "poisson": (arrivals.poisson(), 1.0),
    "gamma": (arrivals.gamma_renewal(2.0), 2.0),
    "gamma-regular": (arrivals.gamma_renewal(0.25), 0.25),
    "hyperexponential": (arrivals.hyperexponential_renewal(4.0), 4.0),
    "own": (arrivals.renewal(lambda rng, count: 2.0 * rng.random(count)), 1.0 / 3.0),
}
MODULATED = arrivals.markov_modulated([1, 5], [30, 10])
THREE = arrivals.markov_modulated([0, 1, 4], [5, 10, 2], [[0, 0.5, 0.5], [0.9, 0, 0.1], [1, 0, 0]])
WAVE = arrivals.time_varying(lambda t: 1.0 + 0.8 * np.sin(2.0 * np.pi * t), 1.8)


def take(process: Any, count: int = COUNT, rate: float = RATE, seed: int = 5) -> Any:
    return process.start(rate, np.random.default_rng(seed)).take(count)


@pytest.mark.parametrize("name", RENEWALS)
def test_gaps_have_mean_and_variance(name: str) -> None:
    process, variation = RENEWALS[name]
    times = take(process)
    assert times.shape == (COUNT,)
    gaps = np.diff(times, prepend=0.0) * RATE
    assert abs(gaps.mean() - 1.0) / math.sqrt(variation / COUNT) < 4.5
    squares = np.square(gaps - 1.0)
    assert abs(squares.mean() - variation) / (squares.std() / math.sqrt(COUNT)) < 4.5
    neighbours = np.corrcoef(gaps[1:], gaps[:-1])[0, 1]
    assert abs(neighbours) * math.sqrt(COUNT) < 4.5


def test_laws_of_gaps() -> None:
    gaps = {name: np.diff(take(process), prepend=0.0) * RATE for name, (process, _) in RENEWALS.items()}
    assert stats.kstest(gaps["poisson"], stats.expon.cdf).pvalue > 7e-6
    assert stats.kstest(gaps["gamma"], stats.gamma(0.5, scale=2).cdf).pvalue > 7e-6
    drawn = service.hyperexponential(4.0).sizes(np.random.default_rng(1), COUNT)
    assert stats.ks_2samp(gaps["hyperexponential"], drawn).pvalue > 7e-6


def test_regular() -> None:
    np.testing.assert_allclose(take(arrivals.regular(), 4, 2.0), [0.5, 1.0, 1.5, 2.0])


@pytest.mark.parametrize(
    "process",
    [*(process for name, (process, _) in RENEWALS.items() if name != "hyperexponential"), arrivals.regular(), MODULATED,
     THREE, WAVE, arrivals.recorded(np.sqrt(np.arange(12.0)))],
)  # fmt: skip
def test_times_are_continued_over_chunks(process: Any) -> None:
    source = process.start(RATE, np.random.default_rng(2))
    pieces = [source.take(5), source.take(1), source.take(4)]
    np.testing.assert_array_equal(np.concatenate(pieces), take(process, 10, seed=2))


@pytest.mark.parametrize("process", [RENEWALS["hyperexponential"][0], MODULATED, WAVE])
def test_many_small_chunks_are_one_process(process: Any) -> None:
    """Where the draws depend on the cut the law does not: in order, no gap at the seams, of the same rate."""
    source = process.start(RATE, np.random.default_rng(2))
    times = np.concatenate([source.take(37) for _ in range(1500)])
    assert len(times) == 37 * 1500
    assert (np.diff(times) >= 0.0).all()
    batches = np.diff(times[::1110])
    assert abs(batches.mean() - 1110 / RATE) / (batches.std() / math.sqrt(len(batches))) < 4.5


@pytest.mark.parametrize("process", [MODULATED, THREE])
def test_modulated_processes_have_the_rate(process: Any) -> None:
    """`arrival_rate` is the long-run rate, whatever the phases."""
    batches = np.diff(take(process)[::2000])
    assert abs(batches.mean() - 2000 / RATE) / (batches.std() / math.sqrt(len(batches))) < 4.5


def test_modulated_counts_have_the_variance() -> None:
    """Var N(t) of two phases: rate·t + 2 s₁s₂(λ₁−λ₂)²/(s₁+s₂)³ (t − (1 − e^{−(s₁+s₂)t})/(s₁+s₂))."""
    times = take(MODULATED, 400_000)
    first, second = 1 / 30 * RATE, 1 / 10 * RATE  # stays are in mean gaps
    low = RATE / (0.75 * 1 + 0.25 * 5)
    both, window = first + second, 20.0 / RATE
    expected = RATE * window + 2 * first * second * (4 * low) ** 2 / both**3 * (
        window - (1 - math.exp(-both * window)) / both
    )
    counts = np.bincount(((times - 100.0)[times > 100.0] / window).astype(int))[:-1]
    squares = np.square(counts - RATE * window)
    groups = squares[: len(squares) // 40 * 40].reshape(-1, 40).mean(axis=1)  # neighbours are dependent
    assert abs(groups.mean() - expected) / (groups.std() / math.sqrt(len(groups))) < 4.5
    assert expected > 2 * RATE * window


def test_a_phase_without_arrivals_is_silent() -> None:
    process = arrivals.markov_modulated([0, 1], [1000, 1000])
    gaps = np.diff(take(process, 20_000, 1.0), prepend=0.0)
    long = gaps[gaps > 50]
    assert 3 <= len(long) < 40
    assert np.delete(gaps, np.argsort(gaps)[-40:]).mean() == pytest.approx(0.5, rel=0.1)


def test_thinning_follows_the_intensity() -> None:
    times = take(WAVE)
    bins = 20
    counts = np.bincount((np.mod(times[times < np.floor(times[-1])], 1.0) * bins).astype(int), minlength=bins)
    edges = np.arange(bins + 1) / bins
    shares = np.diff(edges - 0.8 / (2 * np.pi) * np.cos(2 * np.pi * edges))
    assert stats.chisquare(counts, counts.sum() * shares).pvalue > 7e-6
    whole = np.bincount(times.astype(int))[:-1]
    assert abs(whole.mean() - RATE) / math.sqrt(RATE / len(whole)) < 4.5
    assert whole.var() == pytest.approx(RATE, rel=0.05)  # Poisson over whole periods


def test_an_intensity_outside_its_bounds_is_named() -> None:
    for bad in (lambda t: 2.0 + 0.0 * t, lambda t: -1.0 + 0.0 * t, lambda t: np.nan * t, lambda t: 1.0):
        with pytest.raises(ValueError, match=r"intensity must return numbers between 0 and most = 1\.5, one per time"):
            take(arrivals.time_varying(bad, 1.5), 5)


def test_recorded_times_are_played_once_and_never_scaled() -> None:
    given = np.array([0.0, 2.0, 2.0, 5.0])
    process = arrivals.recorded(given)
    given[:] = 9.0
    source = process.start(123.0, np.random.default_rng(0))
    assert source.take(3).tolist() == [0.0, 2.0, 2.0]
    assert source.take(3).tolist() == [5.0]
    assert source.take(3).tolist() == []
    assert process.rate == pytest.approx(3 / 5)
    assert process.start(1.0, np.random.default_rng(0)).take(9).tolist() == [0.0, 2.0, 2.0, 5.0]


def test_what_is_taken_from_a_trace_belongs_to_the_caller() -> None:
    process = arrivals.recorded([1.0, 2.0, 3.0])
    process.start(1.0, np.random.default_rng(0)).take(3)[:] = 0.0
    assert process.times.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("found", [lambda n: -np.ones(n), lambda n: np.ones(n + 1), lambda n: np.full(n, np.inf)])
def test_gaps_that_are_none_are_named(found: Any) -> None:
    with pytest.raises(ValueError, match="arrivals: the function of gaps must return 4 finite numbers of at least 0"):
        take(arrivals.renewal(lambda rng, count: found(count)), 4)


def test_settings_tell_processes_apart() -> None:
    processes = [process for process, _ in RENEWALS.values()] + [MODULATED, THREE, WAVE, arrivals.regular()]
    processes += [arrivals.recorded([0, 1]), arrivals.recorded([0, 2])]
    found = [repr(process.settings()) for process in processes]
    assert len(set(found)) == len(found)
    assert arrivals.poisson().settings() == {"process": "poisson"}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: arrivals.gamma_renewal(0), "variation must be positive, not 0"),
        (lambda: arrivals.gamma_renewal(math.inf), "variation must be finite, not inf"),
        (lambda: arrivals.hyperexponential_renewal(0.5), "variation must be at least 1"),
        (lambda: arrivals.renewal(2.0), r"gaps must be a function of \(rng, n\), not 2.0"),
        (lambda: arrivals.markov_modulated([1], [1]), "phases must be a whole number of at least 2, not 1"),
        (lambda: arrivals.markov_modulated([1, 2], [1]), "stays must have one number per phase, 2, not 1"),
        (lambda: arrivals.markov_modulated([1, 2], [1, 0]), "stays must be positive, not 0"),
        (lambda: arrivals.markov_modulated([1, -2], [1, 1]), r"rates must be at least 0 and not all 0, not \[1, -2\]"),
        (lambda: arrivals.markov_modulated([0, 0], [1, 1]), "rates must be at least 0 and not all 0"),
        (lambda: arrivals.markov_modulated([1, math.nan], [1, 1]), "rates must be finite, not nan"),
        (lambda: arrivals.markov_modulated([1, 2], [1, 1], [[0, 1], [0.5, 0]]), "jumps must be a 2 × 2 matrix"),
        (lambda: arrivals.markov_modulated([1, 2], [1, 1], [[0, 1]]), "jumps must be a 2 × 2 matrix"),
        (lambda: arrivals.time_varying(1.0, 2.0), "intensity must be a function of times, not 1.0"),
        (lambda: arrivals.time_varying(np.cos, 0), "most must be positive, not 0"),
        (lambda: arrivals.recorded([1.0]), "times must be a list of at least 2 arrival times"),
        (lambda: arrivals.recorded([[1, 2]]), r"times must be a list .* not an array of shape \(1, 2\)"),
        (lambda: arrivals.recorded([1, 3, 2]), r"times must be in order, but entry 2 \(2\) is before entry 1 \(3\)"),
        (lambda: arrivals.recorded([-1, 3]), "times must be finite and at least 0"),
        (lambda: arrivals.recorded([1, math.nan]), "times must be finite and at least 0"),
        (lambda: arrivals.recorded([2, 2]), "times must not all be the same"),
    ],
)
def test_refusals(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("jumps", [[[1, 0], [0, 1]], [[1, 0], [1, 0]]])
def test_phases_that_are_never_left(jumps: Any) -> None:
    with pytest.raises(ValueError, match=r"jumps|rates"):
        take(arrivals.markov_modulated([0, 1], [1, 1], jumps), 5)
