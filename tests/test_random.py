"""The random stream against its reference values, and its laws."""

import numpy as np
from scipy import stats

from queuewise import _compile, _random, streams


def test_first_words_are_those_of_xoshiro256_plus_plus() -> None:
    stream = np.array([1, 2, 3, 4], dtype=np.uint64)
    with np.errstate(over="ignore"):
        words = [int(_random.next_word(stream)) for _ in range(5)]
    assert words == [41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205]


def test_compiled_and_interpreted_streams_agree_and_have_the_stated_laws() -> None:
    for function, arguments, law in [
        (_random.uniform, (), stats.uniform()),
        (_random.normal, (), stats.norm()),
        (_random.gamma, (3.5,), stats.gamma(3.5)),
        (_random.beta, (2.0, 5.0), stats.beta(2.0, 5.0)),
    ]:
        compiled, stream = _compile.jit(function), streams.policy_stream(1, 2, "wise")
        twin = stream.copy()
        values = [compiled(stream, *arguments) for _ in range(20_000)]
        with np.errstate(over="ignore"):
            assert [function(twin, *arguments) for _ in range(50)] == values[:50]
        assert stats.kstest(values, law.cdf).pvalue > 1e-5


def test_streams_depend_on_seed_run_and_name_alone() -> None:
    seen = {tuple(streams.policy_stream(s, r, n)) for s in (1, 2) for r in (0, 1) for n in ("wise", "acqb")}
    assert len(seen) == 8
    assert np.array_equal(streams.policy_stream(1, 0, "wise"), streams.policy_stream(1, 0, "wise"))
