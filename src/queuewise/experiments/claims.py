"""What a paper claims, measured: a value, an interval, a verdict.

A claim is made of parts, such as "WISE's mean regret is below one" in each of nine settings. All intervals of one claim
hold *together* with the stated confidence (Bonferroni over every difference that the claim looks at), because a claim
that looks at nine settings, or at the best of seven rivals, has that many chances to be fooled. With them

- a claim *holds* if enough of its parts hold with their whole intervals (all parts, unless it says how many),
- it *does not* hold if so many parts fail with their whole intervals that the others are too few,
- and is *undecided* otherwise: the runs were too few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .report import Table, interval, short

if TYPE_CHECKING:
    from ..runs.statistics import Estimate

HOLDS, FAILS, UNDECIDED = "holds", "does not", "undecided"
#: How a claim was measured where nothing is random.
EXACTLY = "counted exactly"


class Estimated(Protocol):
    """A mean over independent runs, or a mean difference between two policies, paired by run."""

    @property
    def mean(self) -> float: ...

    @property
    def sd(self) -> float: ...

    @property
    def runs(self) -> int: ...


@dataclass(frozen=True)
class Part:
    """One inequality that a claim needs.

    Attributes
    ----------
    label : str
        The setting, ``"q = 0, slack = 0.05"``.
    estimates : sequence of Estimated
        One estimate, or several of which the `rank`-th largest is meant: with WISE's differences to each of its rivals,
        the largest is its distance to the *best* rival, whichever that truly is, and the second largest its distance
        to the second best. The interval of an order statistic is the same order statistic of the intervals' ends.
    bound : float
        What the value is compared with.
    direction : {"below", "above"}
    rank : int
        From 1, the largest.
    """

    label: str
    estimates: Sequence[Estimated]
    bound: float = 0.0
    direction: Literal["below", "above"] = "below"
    rank: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= len(self.estimates):
            raise ValueError(
                f"rank: must lie between 1 and the number of estimates {len(self.estimates)}, not {self.rank}"
            )


@dataclass(frozen=True)
class MeasuredPart:
    """A part with its value, its simultaneous interval and what follows from it (`agrees`: by the value alone)."""

    label: str
    value: float
    low: float
    high: float
    verdict: str
    agrees: bool


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, in our words, that measurements can support or contradict.

    Attributes
    ----------
    text, reference : str
        The claim, and where the paper makes it.
    way : str
        How it was measured: ``"one instance, 10 runs"``.
    parts : sequence of Part
    needed : int or None
        How many of the parts have to hold; None for all.
    """

    text: str
    reference: str
    way: str
    parts: Sequence[Part]
    needed: int | None = None

    def judge(self, level: float = 0.95) -> Verdict:
        """Measure every part with intervals that hold together with probability `level`."""
        comparisons = sum(len(part.estimates) for part in self.parts)
        measured = tuple(_measure(part, level, comparisons) for part in self.parts)
        needed = len(measured) if self.needed is None else self.needed
        held = sum(part.verdict == HOLDS for part in measured)
        failed = sum(part.verdict == FAILS for part in measured)
        if held >= needed:
            verdict = HOLDS
        elif len(measured) - failed < needed:
            verdict = FAILS
        else:
            verdict = UNDECIDED
        return Verdict(self, measured, needed, level, verdict)


@dataclass(frozen=True)
class Verdict:
    """A claim, its measured parts, and what they say about it."""

    claim: Claim
    parts: tuple[MeasuredPart, ...]
    needed: int
    level: float
    verdict: str

    @property
    def agreeing(self) -> int:
        """Parts whose value (without its interval) agrees with the claim."""
        return sum(part.agrees for part in self.parts)

    @property
    def certain(self) -> tuple[int, int]:
        """Interval of the number of parts that are true: those that hold, and those that do not fail."""
        held = sum(part.verdict == HOLDS for part in self.parts)
        return held, len(self.parts) - sum(part.verdict == FAILS for part in self.parts)

    @property
    def measured(self) -> str:
        """The measured value in words: the value itself, or in how many settings the claim is met."""
        return short(self.parts[0].value) if len(self.parts) == 1 else f"{self.agreeing} of {len(self.parts)}"

    @property
    def interval(self) -> str:
        """The interval of what `measured` says."""
        if len(self.parts) == 1:
            return f"[{short(self.parts[0].low)}, {short(self.parts[0].high)}]"
        low, high = self.certain
        return f"[{low}, {high}]"

    def as_json(self) -> dict[str, Any]:
        """Everything about the verdict as plain JSON values (an interval that is not known is null)."""
        return {
            "claim": self.claim.text,
            "reference": self.claim.reference,
            "way": self.claim.way,
            "needed": self.needed,
            "measured": {"parts": len(self.parts), "agreeing": self.agreeing, "text": self.measured},
            "interval": {
                "level": self.level,
                "simultaneous": True,
                "agreeing": list(self.certain),
                "text": self.interval,
            },
            "verdict": self.verdict,
            "parts": [
                {
                    "setting": part.label,
                    "value": part.value,
                    "low": _finite(part.low),
                    "high": _finite(part.high),
                    "bound": wanted.bound,
                    "direction": wanted.direction,
                    "verdict": part.verdict,
                }
                for part, wanted in zip(self.parts, self.claim.parts, strict=True)
            ],
        }


def _measure(part: Part, level: float, comparisons: int) -> MeasuredPart:
    ends = [simultaneous(estimate, level, comparisons) for estimate in part.estimates]
    pick = len(ends) - part.rank
    value = sorted(estimate.mean for estimate in part.estimates)[pick]
    low, high = (sorted(side)[pick] for side in zip(*ends, strict=True))
    below, above = high < part.bound, low > part.bound
    holds, fails = (below, above) if part.direction == "below" else (above, below)
    agrees = value < part.bound if part.direction == "below" else value > part.bound
    return MeasuredPart(part.label, value, low, high, HOLDS if holds else FAILS if fails else UNDECIDED, agrees)


def simultaneous(estimate: Estimated, level: float, comparisons: int) -> tuple[float, float]:
    """The t interval of a mean such that `comparisons` of them hold together with probability `level`.

    A single run has no spread to judge by: its interval is the whole line.
    """
    if estimate.runs < 2:
        return -math.inf, math.inf
    # Imported here, so that the command line can list reproductions without loading SciPy.
    from ..runs.statistics import quantile, simultaneous_level

    each = simultaneous_level(level, comparisons)
    half = quantile(each, estimate.runs - 1) * estimate.sd / math.sqrt(estimate.runs)
    return estimate.mean - half, estimate.mean + half


def claims_table(verdicts: Sequence[Verdict], title: str = "Claims") -> Table:
    """One row per claim and way: claim, how it was measured, value, interval, verdict."""
    rows = []
    previous = ""
    for verdict in verdicts:
        text = f"{verdict.claim.text} ({verdict.claim.reference})"
        rows.append(
            ("" if text == previous else text, verdict.claim.way, verdict.measured, verdict.interval, verdict.verdict)
        )
        previous = text
    level = verdicts[0].level if verdicts else 0.95
    return Table(
        title,
        ("claim", "measured over", "measured", "interval", "verdict"),
        tuple(rows),
        note=f"A count has the interval [settings where it certainly holds, settings where it may]. Intervals of one claim "
        f"hold together with {level:.0%} confidence (t intervals over runs, Bonferroni).",
        wide=(0,),
    )


def parts_table(
    verdicts: Sequence[Verdict],
    title: str = "What the claims rest on",
    note: str = "The intervals of one claim hold together with 95% confidence.",
) -> Table:
    """Every inequality behind the verdicts, a row each."""
    rows, ends = [], []
    for verdict in verdicts:
        for i, (part, wanted) in enumerate(zip(verdict.parts, verdict.claim.parts, strict=True)):
            text = f"{verdict.claim.text} ({verdict.claim.way})" if i == 0 else ""
            measured = interval(part.value, part.low, part.high)
            rows.append((text, part.label, measured, inequality(wanted), part.verdict))
        ends.append(len(rows) - 1)
    columns = ("claim", "part", "measured", "wanted", "verdict")
    return Table(title, columns, tuple(rows), note=note, wide=(0, 1), sections=tuple(ends))


def inequality(part: Part) -> str:
    """What a part wants: "< 1"."""
    return f"{'<' if part.direction == 'below' else '>'} {part.bound:g}"


def sentence(verdict: Verdict) -> str:
    """A claim, what its verdict is, and the numbers that it rests on."""
    said = {HOLDS: "holds", UNDECIDED: "is undecided"}.get(verdict.verdict, "does not hold")
    if verdict.claim.way == EXACTLY:
        numbers = f"in {verdict.agreeing} of {len(verdict.parts)} parts"
    elif len(verdict.parts) == 1:
        numbers = f"{verdict.measured} {verdict.interval}"
    else:
        numbers = (
            f"by the means in {verdict.agreeing} of {len(verdict.parts)} parts, with confidence in {_sure(verdict)}"
        )
    needed = "" if verdict.needed == len(verdict.parts) else f", {verdict.needed} needed"
    return f"{verdict.claim.text}: {said} ({verdict.claim.way}; {numbers}{needed})."


def in_words(words: str, verdict: Verdict, parts: str) -> str:
    """What one way of measuring (`words`) says about a claim; `parts` is what its parts are called."""
    if len(verdict.parts) == 1:
        wanted = verdict.claim.parts[0]
        numbers = f"{verdict.measured} {verdict.interval}, wanted {wanted.direction} {wanted.bound:g}"
    else:
        numbers = f"true in {verdict.agreeing} of {len(verdict.parts)} {parts} by the means, in {_sure(verdict)} with "
        numbers += "confidence"
    if verdict.verdict == UNDECIDED:
        return f"{words} cannot decide it ({numbers})"
    return f"over {words} it {'holds' if verdict.verdict == HOLDS else 'does not hold'} ({numbers})"


def _sure(verdict: Verdict) -> str:
    low, high = verdict.certain
    return f"{low}" if low == high else f"{low} to {high}"


def known(value: float) -> Estimate:
    """A number without error, for claims about what is computed and not simulated."""
    from ..runs.statistics import Estimate

    return Estimate(value, value, value, 0.0, 2)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
