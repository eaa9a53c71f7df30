"""How much service jobs need: laws of sizes, in units that a server of rate μ works off at μ per time.

All laws but recorded sizes and functions of your own have mean one, so that a server's rate is the jobs per time that one
of its slots serves, whatever the law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..fields import plain, require_count, require_number, require_positive, spelled

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Any]

#: Sizes drawn to learn the mean of a law that does not state it.
_SAMPLE = 100_000


@dataclass(frozen=True)
class Service:
    """A law of sizes: ``draw(rng, n)``, its mean, and what it is called in settings.

    recorded : sizes that belong to the jobs one by one, and are not random · sound : every size is finite and above 0 by
    construction, so that nobody need look
    """

    draw: Draw
    mean: float
    name: str
    parameters: tuple[tuple[str, Any], ...] = ()
    recorded: Floats | None = None
    sound: bool = False

    def settings(self) -> dict[str, Any]:
        """What identifies the law, as JSON values."""
        found = {"law": self.name, **dict(self.parameters)}
        draw = plain(self.draw)
        return found if isinstance(draw, str) else {**found, "draw": draw}

    def sizes(self, rng: np.random.Generator, count: int) -> Floats:
        """So many sizes, checked."""
        if self.sound:
            return np.asarray(self.draw(rng, count))
        found = np.asarray(self.draw(rng, count), dtype=np.float64)
        if found.shape != (count,) or not (np.isfinite(found) & (found > 0.0)).all():
            raise ValueError(f"service: the law {self.name} must return {count} finite sizes above 0")
        return found


def _exponential(rng: np.random.Generator, count: int) -> Floats:
    found = rng.standard_exponential(count)
    return np.maximum(found, 5e-324, out=found)


def exponential() -> Service:
    """Exponential service times: the model of the paper (LASED, section 2.1)."""
    return Service(_exponential, 1.0, "exponential", sound=True)


def deterministic() -> Service:
    """All jobs of the same size."""
    return Service(lambda rng, count: np.ones(count), 1.0, "deterministic", sound=True)


def erlang(phases: int) -> Service:
    """The sum of so many exponential phases; squared coefficient of variation 1/phases."""
    require_count("phases", phases)
    return Service(lambda rng, count: rng.gamma(phases, 1.0 / phases, count), 1.0, "erlang", (("phases", int(phases)),))


def hyperexponential_draw(variation: float) -> Draw:
    """A mixture of two exponentials of mean one with balanced means: p₁/ν₁ = p₂/ν₂."""
    require_number("variation", variation)
    if variation < 1.0:
        raise ValueError(f"variation must be at least 1 for a hyperexponential law, not {variation!r}")
    p = 0.5 * (1.0 + math.sqrt((variation - 1.0) / (variation + 1.0)))
    if p >= 1.0:
        raise ValueError(f"variation must be at most some 1e15 for a hyperexponential law, not {variation!r}")

    def draw(rng: np.random.Generator, count: int) -> Floats:
        means = np.where(rng.random(count) < p, 0.5 / p, 0.5 / (1.0 - p))
        return np.asarray(rng.standard_exponential(count) * means)

    return draw


def hyperexponential(variation: float) -> Service:
    """A mixture of many short and a few long exponential jobs. variation : squared coefficient of variation, at least 1."""
    draw = hyperexponential_draw(variation)
    return Service(draw, 1.0, "hyperexponential", (("variation", float(variation)),))


def lognormal(variation: float) -> Service:
    """Lognormal sizes. variation : squared coefficient of variation, above 0."""
    require_positive("variation", variation)
    s2 = math.log1p(variation)
    return Service(
        lambda rng, count: rng.lognormal(-0.5 * s2, math.sqrt(s2), count),
        1.0,
        "lognormal",
        (("variation", float(variation)),),
    )


def pareto(shape: float) -> Service:
    """Pareto sizes, P(S > s) = (s₀/s)^shape; shape above 1, or there is no mean."""
    require_number("shape", shape)
    if shape <= 1.0:
        raise ValueError(f"shape must be above 1, or sizes have no mean, not {shape!r}")
    least = (shape - 1.0) / shape
    return Service(
        lambda rng, count: least * (1.0 + rng.pareto(shape, count)), 1.0, "pareto", (("shape", float(shape)),)
    )


def _checked_sizes(values: npt.ArrayLike) -> Floats:
    found = np.array(values, dtype=np.float64)
    if found.ndim != 1 or not len(found):
        raise ValueError(f"sizes must be a non-empty list, not an array of shape {found.shape}")
    bad = np.flatnonzero(~(np.isfinite(found) & (found > 0.0)))
    if len(bad):
        raise ValueError(f"sizes must be finite and above 0, but entry {int(bad[0])} is {found[bad[0]]:g}")
    return found


def resampled(values: npt.ArrayLike) -> Service:
    """Sizes drawn with replacement from recorded ones."""
    found = _checked_sizes(values)
    return Service(
        lambda rng, count: found[rng.integers(0, len(found), count)],
        float(found.mean()),
        "resampled",
        (("values", plain(found)),),
    )


def recorded_sizes(values: npt.ArrayLike) -> Service:
    """Recorded sizes, the first for the first job and so on: the same in every run."""
    found = _checked_sizes(values)
    return Service(
        lambda rng, count: found[:count], float(found.mean()), "recorded", (("values", plain(found)),), recorded=found
    )


def from_function(draw: Draw, mean: float | None = None) -> Service:
    """Sizes from a function of your own, ``draw(rng, n)``.

    mean : of a size; None to have it estimated from 100,000 sizes (it decides only whether the system is called stable).
    """
    if not callable(draw):
        raise ValueError(f"service must be a law or a function of (rng, n), not {draw!r}")
    law = Service(draw, 1.0, spelled(draw))
    if mean is None:
        mean = float(law.sizes(np.random.default_rng(0), _SAMPLE).mean())
    require_positive("mean", mean)
    return Service(draw, float(mean), spelled(draw))
