"""Equal vectors kept once: columns of a matrix, found again by a binary trie over the bits of their hashes.

Every column is a node. The way to a vector begins at column 0 and turns at each node by the next bit of the vector's hash
(after the last by the first again), until it meets an equal column or a gap. Hashes are random, so the way is about
log₂ n long, and a trie grows by being given more room: nothing is ever rehashed or moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bits import float_as_bits

Floats = NDArray[np.float64]

#: Hashes are below this prime, so that no product in them exceeds 63 bits.
PRIME = 2147483647


def hash_of(vector: Floats) -> int:
    """A whole number in [0, 2³¹ − 1) from the bits of a vector."""
    h = 1
    for j in range(vector.shape[0]):
        bits = float_as_bits(vector[j] + 0.0)  # −0.0 equals 0.0, so it has to lead to the same place
        h = (h * 48271 + (bits & 0xFFFFFFFF) + 69621 * ((bits >> 32) & 0xFFFFFFFF)) % PRIME
    return h


def place(columns: Floats, branch: NDArray[Any], count: int, vector: Floats, adding: bool) -> int:
    """The number of the column of columns : float64[n, ≥ count] that equals vector : float64[n].

    Where none of the first `count` does: −1, or, if `adding`, `count`; then the trie, branch : int64[2, ≥ count], leads to that
    column (0: no way on), and the caller writes it.
    """
    if count == 0:
        return 0 if adding else -1
    turns = hash_of(vector)
    left, node = turns, 0
    for _ in range(count):
        equal = True
        for j in range(vector.shape[0]):
            if columns[j, node] != vector[j]:
                equal = False
                break
        if equal:
            return node
        following = branch[left & 1, node]
        if following == 0:
            if not adding:
                return -1
            branch[left & 1, node] = count
            return count
        node = following
        left = left >> 1 if left > 1 else turns
    return -1
