"""From what a user knows of a job to φ(x, k): checked, scaled, within the stated bound.

Two ways. *Job features*: m numbers x about the job; every server has parameters of its own, φ(x, k) = e_k ⊗ (1, x), so that
d = K(1 + m) and servers share nothing (`blocks` = K). *Pair features*: d numbers about each (job, server) pair, one parameter
vector shared by all servers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import Refused

Floats = NDArray[np.float64]


class Layout:
    """How features are laid out for a policy.

    Parameters
    ----------
    servers : K, places for servers, named or spare.
    job_features, pair_features : m or d; the other is None.
    scale : what a feature is divided by: one number, or one per feature.
    bound : largest ‖φ‖₂ after scaling; None for 3√(length of φ(x, k) without its zeros): room for
        standardised features.
    too_long : "refuse" features beyond the bound, or "shrink" them to it.
    """

    def __init__(
        self,
        servers: int,
        *,
        job_features: int | None,
        pair_features: int | None,
        scale: float | Sequence[float] = 1.0,
        bound: float | None = None,
        too_long: str = "refuse",
    ) -> None:
        if (job_features is None) == (pair_features is None):
            raise Refused(
                "bad_option",
                "job_features or pair_features: give one of them, the number of features of a job, or of a (job, server) pair",
            )
        self.servers = servers
        self.shared = pair_features is not None
        name, given = ("pair_features", pair_features) if self.shared else ("job_features", job_features)
        least = 1 if self.shared else 0
        if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < least:
            raise Refused("bad_option", f"{name}: must be a whole number of at least {least}, not {given!r}")
        self.given = int(given)
        self.length = self.given if self.shared else 1 + self.given
        self.dimension = self.length if self.shared else servers * self.length
        self.blocks = 1 if self.shared else servers
        self.scale = self._scale(scale)
        if bound is None:
            bound = 3.0 * math.sqrt(self.length)
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not 0 < bound < math.inf:
            raise Refused("bad_option", f"feature_bound: must be a number above 0, not {bound!r}")
        if not self.shared and bound <= 1.0 and self.given:
            raise Refused(
                "bad_option", f"feature_bound: must be above 1, since φ = (1, x) has length at least 1, not {bound!r}"
            )
        self.bound = float(bound)
        if too_long not in ("refuse", "shrink"):
            raise Refused("bad_option", f"too_long: must be 'refuse' or 'shrink', not {too_long!r}")
        self.too_long = too_long

    def _scale(self, scale: float | Sequence[float]) -> Floats:
        try:
            numbers = np.array(scale, dtype=np.float64)
        except (TypeError, ValueError):
            raise Refused("bad_option", f"scale: must be a number or one per feature, not {scale!r}") from None
        if numbers.shape not in ((), (self.given,)) or not (np.isfinite(numbers) & (numbers > 0)).all():
            raise Refused("bad_option", f"scale: must be a number above 0, or {self.given} of them, not {scale!r}")
        return numbers

    def describe(self) -> dict[str, Any]:
        """What must stay the same for what was learned to keep its meaning."""
        return {
            "servers": self.servers,
            "pair_features" if self.shared else "job_features": self.given,
            "scale": self.scale.tolist(),
            "feature_bound": self.bound,
            "too_long": self.too_long,
        }

    def read(self, features: Any, names: Mapping[str, int]) -> tuple[Floats, NDArray[np.bool_]]:
        """(what is kept, servers without features): float64[m], or float64[K, d]; bool[K].

        Parameters
        ----------
        features : of a job: m numbers. Of pairs: a mapping from server to d numbers (a server that is missing cannot do the
            job), or rows [K', d] in the order of the servers.
        names : servers and their places.

        Raises
        ------
        Refused : ``bad_features`` or ``unknown_server``.
        """
        missing = np.zeros(self.servers, dtype=np.bool_)
        if not self.shared:
            return self._numbers(features, "features", self.given, 1.0), missing
        missing[:] = True
        kept = np.zeros((self.servers, self.given))
        if isinstance(features, Mapping):
            rows = list(features.items())
            for name in features:
                if name not in names:
                    raise Refused(
                        "unknown_server", f"features: no server is called {name!r}; there are {', '.join(names)}"
                    )
        else:
            if not hasattr(features, "__len__") or isinstance(features, str | bytes) or len(features) != len(names):
                raise Refused(
                    "bad_features",
                    f"features: must be {len(names)} rows of {self.given} numbers, one per server in the order "
                    f"{', '.join(names)}, or a mapping from server to {self.given} numbers",
                )
            rows = list(zip(names, features, strict=True))
        for name, row in rows:
            kept[names[name]] = self._numbers(row, f"features of {name!r}", self.given, 0.0)
            missing[names[name]] = False
        if missing.all():
            raise Refused("bad_features", "features: must be given for at least one server")
        return kept, missing

    def _numbers(self, values: Any, what: str, count: int, constant: float) -> Floats:
        try:
            numbers = np.array([] if values is None else values, dtype=np.float64)
        except (TypeError, ValueError):
            raise Refused("bad_features", f"{what}: must be {count} numbers, not {_short(values)}") from None
        if numbers.shape != (count,):
            found = f"{numbers.shape[0]}" if numbers.ndim == 1 else f"an array of shape {numbers.shape}"
            raise Refused("bad_features", f"{what}: must be {count} numbers, not {found}")
        if not np.isfinite(numbers).all():
            at = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise Refused("bad_features", f"{what}: must be finite, and number {at + 1} is {numbers[at]}")
        with np.errstate(over="ignore"):
            numbers = numbers / self.scale
        length, room = math.hypot(*numbers), math.sqrt(self.bound**2 - constant)
        if not length <= room * (1 + 1e-12):
            if self.too_long == "refuse" or math.isinf(length):
                raise Refused(
                    "bad_features",
                    f"{what}: must have a length of at most {room:.6g} after scaling (feature_bound), not {length:.6g}; "
                    "see scale and too_long",
                )
            numbers *= room / length
        return numbers

    def pack(self, kept: Floats) -> bytes:
        """As bytes for the store."""
        return np.ascontiguousarray(kept, dtype="<f8").tobytes()

    def unpack(self, data: bytes) -> Floats:
        """What :meth:`pack` was given; with zeros for places that have been added since."""
        numbers = np.frombuffer(data, dtype="<f8").astype(np.float64)
        if not self.shared:
            return numbers
        kept = np.zeros((self.servers, self.given))
        rows = numbers.reshape(-1, self.given)
        kept[: rows.shape[0]] = rows
        return kept

    def expand(self, kept: Floats) -> Floats:
        """φ(x, ·) : float64[d, K]."""
        if self.shared:
            return np.ascontiguousarray(kept.T)
        expanded = np.zeros((self.dimension, self.servers))
        for k in range(self.servers):
            expanded[k * self.length, k] = 1.0
            expanded[k * self.length + 1 : (k + 1) * self.length, k] = kept
        return expanded


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
