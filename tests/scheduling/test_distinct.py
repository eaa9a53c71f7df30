"""Equal columns are found again, new ones are not, whatever their hashes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise import _compile
from queuewise.scheduling import distinct

place, hash_of = _compile.jit(distinct.place), _compile.jit(distinct.hash_of)


def _follow(vectors, find=place, room=None):
    """The column of every vector, and the trie."""
    room = room or len(vectors) + 1
    columns, branch, count, found = np.zeros((len(vectors[0]), room)), np.zeros((2, room), dtype=np.int64), 0, []
    for vector in vectors:
        column = find(columns, branch, count, vector, True)
        if column == count:
            columns[:, column] = vector
            count += 1
        found.append(int(column))
    return found, columns, branch, count


def _expected(vectors):
    seen: dict[bytes, int] = {}
    return [seen.setdefault(vector.tobytes(), len(seen)) for vector in vectors]


@settings(max_examples=150, deadline=None)
@given(
    numbers=st.lists(
        st.tuples(
            st.sampled_from([0.0, 1.0, -1.0, 1 / 3, 1e-300, 5e300]), st.sampled_from([1.0, math.nextafter(1, 2), 7.0])
        ),
        min_size=1,
        max_size=60,
    )
)
def test_equal_vectors_share_a_column_and_others_do_not(numbers) -> None:
    vectors = np.array(numbers)
    found, _, branch, count = _follow(vectors)
    assert found == _expected(vectors)
    plain = _follow(vectors, distinct.place)
    assert plain[0] == found
    np.testing.assert_array_equal(plain[2], branch)
    assert count == len(set(found))


def test_many_vectors_are_found_in_few_steps() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20_000, 3))
    found, columns, branch, count = _follow(vectors)
    assert found == list(range(20_000)) == _expected(vectors)
    for i in rng.integers(20_000, size=500):
        assert place(columns, branch, count, vectors[i], False) == i
        assert place(columns, branch, count, vectors[i] + 1e-9, False) == -1
    depth = np.zeros(20_001, dtype=int)
    for node in range(20_000):  # a column comes after the one that leads to it
        for side in range(2):
            if branch[side, node]:
                depth[branch[side, node]] = depth[node] + 1
    assert depth.max() <= 5 * math.log2(20_000)


def test_vectors_of_one_hash_are_told_apart(monkeypatch) -> None:
    monkeypatch.setattr(distinct, "hash_of", lambda vector: 5)
    vectors = np.arange(40.0).reshape(20, 2)[np.random.default_rng(1).integers(20, size=100)]
    assert _follow(vectors, distinct.place)[0] == _expected(vectors)


@pytest.mark.parametrize("count", [0, 3])
def test_a_search_adds_nothing(count) -> None:
    vectors = np.random.default_rng(2).normal(size=(3, 2))
    _, columns, branch, _ = _follow(vectors[:count]) if count else (0, np.zeros((2, 4)), np.zeros((2, 4), np.int64), 0)
    before = branch.copy()
    assert place(columns, branch, count, np.array([9.0, 9.0]), False) == -1
    np.testing.assert_array_equal(branch, before)


def test_hashes_are_whole_numbers_that_use_every_bit() -> None:
    rng = np.random.default_rng(3)
    vectors = [rng.normal(size=4) for _ in range(3000)] + [np.array([float(i), 1.0, 0.0, 0.5]) for i in range(3000)]
    hashes = np.array([hash_of(vector) for vector in vectors])
    assert hashes.min() >= 0
    assert hashes.max() < distinct.PRIME
    assert len(set(hashes)) >= len(vectors) - 3
    for bit in range(31):
        share = np.mean((hashes >> bit) & 1)
        assert abs(share - 0.5) <= 5 * 0.5 / math.sqrt(len(hashes)) + 1e-3, bit
    assert [distinct.hash_of(vector) for vector in vectors[::97]] == hashes[::97].tolist()


def test_zeros_of_either_sign_are_one_vector() -> None:
    found, *_ = _follow(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, -0.0], [1.0, 0.0]]))
    assert found == [0, 0, 1, 1]
