"""Random numbers inside kernels: one ``uint64[4]`` array is one independent stream (xoshiro256++).

Whoever calls a policy owns its stream and hands it in; the functions here advance it in place. The same source runs
compiled and interpreted and gives the same numbers. Reference: Blackman and Vigna, "Scrambled linear pseudorandom
number generators", ACM Transactions on Mathematical Software 47 (2021), Figure 2 and section 3.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Stream = NDArray[np.uint64]

_11, _17, _19, _23, _41, _45 = (np.uint64(n) for n in (11, 17, 19, 23, 41, 45))
_TO_UNIT = 2.0**-53


def next_word(stream: Stream) -> np.uint64:
    """The next 64 random bits."""
    s0, s1, s2, s3 = stream[0], stream[1], stream[2], stream[3]
    total = s0 + s3
    word = ((total << _23) | (total >> _41)) + s0
    shifted = s1 << _17
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = (s3 << _45) | (s3 >> _19)
    stream[0], stream[1], stream[2], stream[3] = s0, s1, s2, s3
    return np.uint64(word)


def uniform(stream: Stream) -> float:
    """A uniform number in [0, 1) with 53 random bits."""
    return np.float64(next_word(stream) >> _11) * _TO_UNIT


def below(stream: Stream, bound: int) -> int:
    """A uniform integer in {0, …, bound − 1}; `bound` is far below 2⁵³, so the bias is below 2⁻⁵³·bound."""
    return int(uniform(stream) * bound)


def normal(stream: Stream) -> float:
    """A standard normal number (Box and Muller; one of the pair is thrown away, so that no state hides here)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(stream)))
    return radius * math.cos(2.0 * math.pi * uniform(stream))


def gamma(stream: Stream, shape: float) -> float:
    """A Gamma(shape, 1) number for shape ≥ 1 (Marsaglia and Tsang, ACM TOMS 26, 2000)."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(stream)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        if math.log(1.0 - uniform(stream)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v


def beta(stream: Stream, a: float, b: float) -> float:
    """A Beta(a, b) number for a, b ≥ 1."""
    x = gamma(stream, a)
    return x / (x + gamma(stream, b))
