"""What LASED's constants are for the paper's own examples, and how far its bounds lie from exact numbers. Nothing is simulated.

θ_r, p_r, ξ_r and the rest for the systems of Section 7; Lemma 6 beside the exact chance that a queue exceeds m in a busy
period; Lemma 8 beside the exact moments of the busy period; where Theorem 1's ingredients begin to say something. θ_r, v* and
(31) are cut from the text: ours are derived in ``docs/theory-lased.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...dispatch import theory
from ...runs.plot import new_figure, save_figure
from ..claims import EXACTLY, Claim, Part, Verdict, known
from ..registry import Outcome, Request
from ..report import Table, output_folder
from . import _lased
from ._figures import BLUE, VERMILION, bare

NAME, REFERENCE = "lased-constants", "LASED, Sections 4 and 5"
#: μ_min and μ_max of Theorem 1 are not in the text: a factor of ten around each example's rates.
AROUND = 10
#: c₁ as a multiple of the least that Theorem 1 allows: close to it, as the bound grows fast in c₁.
DEPTH = 1.01
#: Queues at which Lemma 6 is compared, and up to which Lemma 2 is looked up.
QUEUES, DRIFT_UP_TO = (1, 2, 5, 10, 20, 40), 600
#: Queue of the table.
SHOWN = 20
#: Accuracy of the exact busy period, as a fraction of its mean.
ACCURACY = 1e-8
#: Chance of an overflow that a queue is looked for which has no more.
RARE = 0.01
#: r* = 2 and ratios that are held for it, for (2): of the last three a fraction of small numbers is one boundary.
RATIO, BELIEVED = Fraction(2), tuple(map(Fraction, ("2.37", "1.73", "5/2", "3/2", "5/3")))
LOOKED_AT = 40

LEMMAS = "Every bound of Lemmas 2, 6 and 8 lies on the right side of the exact number"
DISAGREE = "SED(r̂) is wrong just where ((q₂+1)/(q₁+1) − r)((q₂+1)/(q₁+1) − r̂) < 0, off its own ties"
TIES = "SED(r̂), ties to server 1, is wrong just where that product is negative, in all states"


class Example(NamedTuple):
    """A system of Section 7: λ and μ as the text has them, or as the reproductions choose them."""

    label: str
    arrival_rate: str
    service_rates: tuple[str, str]

    @property
    def pair(self) -> theory.Pair:
        """Under SED."""
        return theory.pair(self.arrival_rate, self.service_rates)


EXAMPLES = (
    Example("μ = (5, 10), λ = 1 (7.3)", "1", ("5", "10")),
    Example("μ = (5, 10), load 0.3 (7.2)", "4.5", ("5", "10")),
    Example("μ = (5, 10), load 0.6 (7.2)", "9", ("5", "10")),
    Example("μ = (5, 10), load 0.9 (7.2)", "13.5", ("5", "10")),
    Example("μ = (1, 1), load 0.1 (7.4)", "0.2", ("1", "1")),
    Example("μ = (1, 1), load 0.9 (7.4)", "1.8", ("1", "1")),
)


class Busy(NamedTuple):
    """Of one example: log10 of the busy period's moments, exact and bounded; log10 of the chance of an overflow, by QUEUES."""

    mean: float
    mean_bound: float
    second: float
    second_bound: float
    overflow: tuple[float, ...]
    overflow_bound: tuple[float, ...]


def tens(natural: float) -> float:
    """log10 from a natural logarithm."""
    return natural / math.log(10.0)


def busy(example: Example) -> Busy:
    """The exact numbers of Lemmas 6 and 8 and their bounds."""
    from ...dispatch import exact
    from ...dispatch.policies.sed import sed
    from ...dispatch.systems import System

    pair = example.pair
    system = System(arrival_rate=float(pair.arrival_rate), service_rates=list(example.service_rates))
    found, bound = exact.busy_period(system, sed(), ACCURACY), theory.log_busy_period(pair)
    return Busy(
        math.log10(found.mean),
        tens(bound.log_mean),
        math.log10(found.second_moment),
        tens(bound.log_second),
        tuple(tens(theory.log_overflow(pair, m)) for m in QUEUES),
        tuple(tens(theory.log_overflow_bound(pair, m)) for m in QUEUES),
    )


def drift_excess(pair: theory.Pair) -> float:
    """The largest of (L_r φ_r)(q) minus Lemma 2's bound, over b_r, in the states with queues up to DRIFT_UP_TO."""
    first, second = np.meshgrid(np.arange(DRIFT_UP_TO + 1), np.arange(DRIFT_UP_TO + 1), indexing="ij")
    over = theory.potential_drift(pair, first, second) - theory.drift_bound(pair, first, second)
    return float(over.max()) / float(pair.push)


def common_queue(pair: theory.Pair) -> int:
    """The least m that a busy period exceeds with a chance of at most RARE."""
    m = 1
    while theory.log_overflow(pair, m) > math.log(RARE):
        m += 1
    return m


def wrong_and_product(believed: Fraction) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """In states with queues up to LOOKED_AT: whether SED(r̂) is wrong, whether (2)'s product is negative, ties of SED(r̂)."""
    wrong = theory.disagreement(RATIO, believed, LOOKED_AT)
    product, ties = np.zeros_like(wrong), np.zeros_like(wrong)
    for q1 in range(LOOKED_AT + 1):
        for q2 in range(LOOKED_AT + 1):
            slope = Fraction(q2 + 1, q1 + 1)
            product[q1, q2] = (slope - RATIO) * (slope - believed) < 0
            ties[q1, q2] = slope == believed
    return wrong, product, ties


def claims(found: dict[Example, Busy]) -> list[Verdict]:
    """What can be judged: on which side the bounds lie, and (2)."""
    sides = []
    for example, one in found.items():
        gaps = [bound - value for value, bound in zip(one.overflow, one.overflow_bound, strict=True)]
        sides += [
            Part(
                f"{example.label}: Lemma 2, least room over b_r",
                [known(-drift_excess(example.pair))],
                0.0,
                "above",
            ),
            Part(f"{example.label}: Lemma 6, least powers of ten", [known(min(gaps))], 0.0, "above"),
            Part(f"{example.label}: Lemma 8, mean", [known(one.mean_bound - one.mean)], 0.0, "above"),
            Part(f"{example.label}: Lemma 8, second moment", [known(one.second_bound - one.second)], 0.0, "above"),
        ]
    off, at = [], []
    for believed in BELIEVED:
        wrong, product, ties = wrong_and_product(believed)
        label = f"r = {RATIO}, r̂ = {believed}: states where it is not so"
        off.append(Part(label, [known(int(((wrong != product) & ~ties).sum()))], 0.5))
        at.append(Part(label, [known(int((wrong != product).sum()))], 0.5))
    way = EXACTLY
    return [
        Claim(LEMMAS, "LASED, Lemmas 2, 6, 8", way, sides).judge(),
        Claim(DISAGREE, "LASED, (2)", way, off).judge(),
        Claim(TIES, "LASED, (2)", way, at).judge(),
    ]


# --- tables ----------------------------------------------------------------------------------------------------------


def power(log10: float) -> str:
    """A number by its decimal logarithm: 0.25, or 10^-142.4."""
    if abs(log10) >= 1e5:
        return f"10^({log10:.3g})"
    return f"{10.0**log10:.3g}" if -3.0 < log10 < 4.0 else f"10^{log10:.1f}"


def whole(value: float) -> str:
    """A count, in full where that is readable."""
    return f"{value:,.0f}" if value < 1e9 else power(math.log10(value))


def constants_table() -> Table:
    """(20)–(23), θ_r, (30), (31), ℓ_r for every example."""
    rows = []
    for example in EXAMPLES:
        pair = example.pair
        rows.append(
            (
                example.label,
                f"{float(pair.slack):.3g}",
                f"{pair.pull:.3g}",
                f"{float(pair.push):.3g}",
                f"{float(pair.core):.4g}",
                f"{pair.decay:.2e}",
                power(tens(pair.log_return_chance)),
                f"{pair.ceiling:,.0f}",
                f"{pair.span:.4g}",
            )
        )
    return Table(
        "LASED's constants under SED (r = r*)",
        ("example", "δ_min", "a_r", "b_r", "κ_r", "θ_r", "p_r", "ξ_r", "ℓ_r"),
        tuple(rows),
        note="θ_r and ξ_r are ours where the text is cut: the largest that the proof allows, and the exact maximum.",
    )


def bounds_table(found: dict[Example, Busy]) -> Table:
    """Lemmas 8 and 6 beside the exact numbers."""
    rows, at = [], QUEUES.index(SHOWN)
    for example, one in found.items():
        rows.append(
            (
                example.label,
                power(one.mean),
                power(one.mean_bound),
                power(one.second),
                power(one.second_bound),
                power(one.overflow[at]),
                power(one.overflow_bound[at]),
                whole(common_queue(example.pair)),
                whole(theory.telling_queue(example.pair)),
            )
        )
    return Table(
        "Bounds beside exact numbers",
        (
            "example",
            "E[B]",
            "at most β",
            "E[B²]",
            "at most γ",
            f"P(queue > {SHOWN})",
            "at most",
            f"m with P ≤ {RARE:g}",
            "m with bound < 1",
        ),
        tuple(rows),
        note="B: busy period. P: chance in one busy period that some queue exceeds m (Lemma 6). Exact, but for the bounds.",
    )


def looseness_table(found: dict[Example, Busy]) -> Table:
    """By how many powers of ten each bound is too large."""
    rows = []
    for example, one in found.items():
        rows.append(
            (
                example.label,
                f"{one.mean_bound - one.mean:.1f}",
                f"{one.second_bound - one.second:.1f}",
                *(f"{bound - value:.1f}" for value, bound in zip(one.overflow, one.overflow_bound, strict=True)),
            )
        )
    return Table(
        "How loose the bounds are, in powers of ten",
        ("example", "E[B]", "E[B²]", *(f"queue > {m}" for m in QUEUES)),
        tuple(rows),
    )


class Regret(NamedTuple):
    """What Theorem 1 comes to: the least c₁, v*, k of Lemma 13, log10 of the k of Lemma 10 and of the bound on the regret."""

    least_depth: float
    both_serve: float
    explored: int
    log_estimated: float
    log_bound: float


def regret(example: Example) -> Regret:
    """Theorem 1's ingredients at c₁ a little above the least that it allows."""
    pair = example.pair
    least = theory.least_depth(pair)
    limits = (min(pair.service_rates) / AROUND, max(pair.service_rates) * AROUND)
    # Lemma 10 says something from 4k^{−ln k/(512a²c₁²)} < 1 on.
    telling = math.sqrt(512.0 * math.log(4.0)) * pair.true_ratio.numerator * DEPTH * least
    return Regret(
        least,
        math.exp(theory.log_both_serve_floor(pair)),
        theory.first_explored_episode(pair),
        tens(telling),
        tens(theory.log_regret_bound(pair, limits, DEPTH * least).total),
    )


def regret_table(found: dict[Example, Regret]) -> Table:
    """Theorem 1's ingredients for every example."""
    rows = [
        (
            example.label,
            f"{one.least_depth:.1f}",
            f"{one.both_serve:.3g}",
            whole(one.explored),
            power(one.log_estimated),
            power(one.log_bound),
        )
        for example, one in found.items()
    ]
    return Table(
        "What Theorem 1 comes to",
        ("example", "c₁ above", "v*", "Lemma 13 from episode", "Lemma 10 below 1 from episode", "regret at most"),
        tuple(rows),
        note=f"With c₁ {100 * (DEPTH - 1):.0f}% above the least, μ_min and μ_max a factor {AROUND} outside the rates. Nearly "
        "all of the last column is the sum over episodes of Lemma 10's bound, about exp(256a²c₁²) where r* = a/b.",
    )


# --- figure ----------------------------------------------------------------------------------------------------------

_SOLVED = (1, 2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80, 100)
_FAR = 200_000


def draw(out: Path) -> list[Path]:
    """Lemma 6 and the exact chance, for the three loads of Section 7.2."""
    figure = new_figure(10.6, 3.9)
    axes = figure.subplots(1, 3, sharey=True)
    far = np.unique(np.round(np.geomspace(1, _FAR, 200)).astype(int))
    for axis, example in zip(axes, EXAMPLES[1:4], strict=True):
        pair = example.pair
        load = float(pair.arrival_rate / sum(pair.service_rates))
        exact = [tens(theory.log_overflow(pair, m)) for m in _SOLVED]
        bound = [tens(theory.log_overflow_bound(pair, int(m))) for m in far]
        axis.axhline(0.0, color="0.6", linewidth=0.9)
        axis.plot(far, bound, color=VERMILION, linestyle="--", linewidth=1.7, label="Lemma 6")
        axis.plot(_SOLVED, exact, color=BLUE, linewidth=1.7, label=f"exact (solved up to {_SOLVED[-1]})")
        axis.set_xscale("log")
        axis.set_xlim(1, _FAR)
        axis.set_ylim(-120, 160)
        axis.set_xlabel("m, jobs")
        axis.set_title(f"load {load:g}", fontsize=10, loc="left")
        bare(axis)
    axes[0].set_ylabel("log₁₀ of the chance")
    axes[2].legend(frameon=False, fontsize=9.5, loc="lower left")
    figure.suptitle("Chance that a queue exceeds m in a busy period: μ = (5, 10), SED", fontsize=12)
    return save_figure(figure, out, "figure")


def run(request: Request) -> Outcome:
    """Solve, evaluate, draw, and write everything to ``request.out``."""
    out = output_folder(request.out)
    found = {example: busy(example) for example in EXAMPLES}
    adds = {example: regret(example) for example in EXAMPLES}
    tables = [constants_table(), bounds_table(found), looseness_table(found), regret_table(adds)]
    said, numbers = sentences(found, adds), results(found, adds)
    return _lased.finish(request, NAME, REFERENCE, claims(found), tables, said, numbers, draw(out))


def sentences(found: dict[Example, Busy], adds: dict[Example, Regret]) -> list[str]:
    """What the tables show, in a few words."""
    means = [one.mean_bound - one.mean for one in found.values()]
    depths = [one.least_depth for one in adds.values()]
    least = min(one.log_bound for one in adds.values())
    return [
        f"Lemma 8's bound on the mean busy period is too large by {min(means):.0f} to {max(means):.0f} powers of ten.",
        f"Theorem 1 asks for c₁ above {min(depths):.0f} to {max(depths):.0f}.",
        f"The bound on the regret that Theorem 1's proof adds up to has {math.floor(least) + 1:,} digits where it is smallest: "
        "it says that the regret is finite, and nothing of its size.",
    ]


def results(found: dict[Example, Busy], adds: dict[Example, Regret]) -> dict[str, Any]:
    """The tables' numbers, for machines: decimal logarithms."""
    settings: Sequence[dict[str, Any]] = [
        {
            "example": example.label,
            "arrival_rate": example.arrival_rate,
            "service_rates": list(example.service_rates),
            "theta": example.pair.decay,
            "log10_p": tens(example.pair.log_return_chance),
            "xi": example.pair.ceiling,
            "kappa": float(example.pair.core),
            "busy_period": found[example]._asdict(),
            "queues": list(QUEUES),
            "regret": adds[example]._asdict(),
        }
        for example in EXAMPLES
    ]
    return {"settings": settings}
