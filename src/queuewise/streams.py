"""Independent random streams, by purpose and by policy *name*.

One seed gives every run its arrivals, contexts, service uniforms and one stream per policy. A policy's stream depends
on its name alone, so that adding a policy, changing the order, the number of threads or the split of a run over
processes changes no number of the others.
"""

from __future__ import annotations

import hashlib

import numpy as np

from ._random import Stream

ARRIVALS, CONTEXTS, SERVICE, INSTANCE, POLICY = range(5)


def _sequence(seed: int, run: int, purpose: int, *words: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(entropy=seed, spawn_key=(run, purpose, *words))


def generator(seed: int, run: int, purpose: int, *words: int) -> np.random.Generator:
    """NumPy generator of one run and one purpose (``ARRIVALS``, ``CONTEXTS``, ``SERVICE``), further told apart by `words`."""
    return np.random.default_rng(_sequence(seed, run, purpose, *words))


def instance_seed(seed: int, run: int) -> int:
    """The seed from which a law's fresh instance of one run is drawn."""
    return int(_sequence(seed, run, INSTANCE).generate_state(1, np.uint64)[0] >> np.uint64(1))


def policy_stream(seed: int, run: int, name: str) -> Stream:
    """The stream (``uint64[4]``) that one policy draws its own randomness from in one run."""
    digest = hashlib.sha256(name.encode()).digest()
    words = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return _sequence(seed, run, POLICY, *words).generate_state(4, np.uint64).astype(np.uint64, copy=False)
