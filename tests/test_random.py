"""The random stream against its reference values, and its laws."""

import math

import numpy as np
import pytest
from scipy import stats

from queuewise import _compile, _random, streams

#: The first outputs of xoshiro256++ from the state {1, 2, 3, 4}.
REFERENCE = [
    41943041,
    58720359,
    3588806011781223,
    3591011842654386,
    9228616714210784205,
    9973669472204895162,
    14011001112246962877,
    12406186145184390807,
    15849039046786891736,
    10450023813501588000,
]


def test_first_words_are_those_of_xoshiro256_plus_plus() -> None:
    for next_word in (_random.next_word, _compile.jit(_random.next_word)):
        stream = np.array([1, 2, 3, 4], dtype=np.uint64)
        with np.errstate(over="ignore"):
            assert [int(next_word(stream)) for _ in REFERENCE] == REFERENCE


def test_the_stream_is_the_recurrence_in_exact_integers() -> None:
    mask = 2**64 - 1

    def rotated(x: int, k: int) -> int:
        return ((x << k) | (x >> (64 - k))) & mask

    stream = np.array([2**64 - 1, 0, 2**63, 12345678901234567890], dtype=np.uint64)
    s = [int(word) for word in stream]
    for _ in range(500):
        word = (rotated((s[0] + s[3]) & mask, 23) + s[0]) & mask
        shifted = (s[1] << 17) & mask
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = rotated(s[3], 45)
        with np.errstate(over="ignore"):
            assert int(_random.next_word(stream)) == word
        assert [int(entry) for entry in stream] == s


LAWS = [
    (_random.uniform, (), stats.uniform()),
    (_random.normal, (), stats.norm()),
    (_random.gamma, (1.0,), stats.gamma(1.0)),
    (_random.gamma, (3.5,), stats.gamma(3.5)),
    (_random.gamma, (2000.0,), stats.gamma(2000.0)),
    (_random.beta, (1.0, 1.0), stats.beta(1.0, 1.0)),
    (_random.beta, (2.0, 5.0), stats.beta(2.0, 5.0)),
    (_random.beta, (1.0, 300.0), stats.beta(1.0, 300.0)),
    (_random.beta, (700.0, 300.0), stats.beta(700.0, 300.0)),
]


@pytest.mark.parametrize(("function", "arguments", "law"), LAWS, ids=[f"{c[0].__name__}{c[1]}" for c in LAWS])
def test_laws_and_agreement_of_compiled_and_interpreted_streams(function, arguments, law) -> None:
    compiled, stream = _compile.jit(function), streams.policy_stream(1, 2, "wise")
    twin = stream.copy()
    values = np.array([compiled(stream, *arguments) for _ in range(20_000)])
    with np.errstate(over="ignore"):
        assert [function(twin, *arguments) for _ in range(50)] == values[:50].tolist()
    assert stats.kstest(values, law.cdf).pvalue > 1e-5
    assert abs(values.mean() - law.mean()) <= 5 * law.std() / math.sqrt(len(values))
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) <= 5 / math.sqrt(len(values))


def test_uniform_numbers_lie_in_the_half_open_unit_interval() -> None:
    """The largest and the smallest word give 1 − 2⁻⁵³ and 0, so that no logarithm of 1 − u is infinite."""
    # With s0 = 0 the word is s3 rotated by 23 places.
    for word, expected in ((2**64 - 1, 1 - 2.0**-53), (0, 0.0), (2**11, 2.0**-53), (2**11 - 1, 0.0)):
        s3 = ((word >> 23) | (word << 41)) & (2**64 - 1)
        stream = np.array([0, 1, 2, s3], dtype=np.uint64)
        with np.errstate(over="ignore"):
            assert _random.uniform(stream) == expected


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 1000])
def test_integers_below_a_bound_are_uniform(bound) -> None:
    compiled, stream = _compile.jit(_random.below), streams.policy_stream(3, 0, "random")
    twin = stream.copy()
    values = np.array([compiled(stream, bound) for _ in range(40_000)])
    with np.errstate(over="ignore"):
        assert [_random.below(twin, bound) for _ in range(50)] == values[:50].tolist()
    counts = np.bincount(values, minlength=bound)
    assert len(counts) == bound
    if bound > 1:
        assert stats.chisquare(counts).pvalue > 1e-5


def test_streams_depend_on_seed_run_and_name_alone() -> None:
    seen = {tuple(streams.policy_stream(s, r, n)) for s in (1, 2) for r in (0, 1) for n in ("wise", "acqb")}
    assert len(seen) == 8
    assert np.array_equal(streams.policy_stream(1, 0, "wise"), streams.policy_stream(1, 0, "wise"))


def test_streams_of_different_purposes_and_runs_are_unrelated() -> None:
    columns = [
        streams.generator(1, run, purpose).random(5000)
        for run in (0, 1)
        for purpose in (streams.ARRIVALS, streams.CONTEXTS, streams.SERVICE)
    ]
    compiled = _compile.jit(_random.uniform)
    for name in ("wise", "acqb"):
        stream = streams.policy_stream(1, 0, name)
        columns.append(np.array([compiled(stream) for _ in range(5000)]))
    correlations = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlations).max() <= 5 / math.sqrt(5000)
    assert streams.instance_seed(1, 0) != streams.instance_seed(1, 1)
