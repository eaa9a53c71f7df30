"""Verdicts on claims: what holds, what does not, what cannot be told."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from queuewise.experiments.claims import (
    EXACTLY,
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    Part,
    claims_table,
    in_words,
    known,
    parts_table,
    sentence,
    simultaneous,
)
from queuewise.runs.statistics import interval


class Known(NamedTuple):
    """An estimate given by hand."""

    mean: float
    sd: float
    runs: int


def claim(parts: list[Part], needed: int | None = None) -> Claim:
    return Claim("a claim", "a paper", "some runs", parts, needed)


def part(mean: float, sd: float = 0.1, **options: object) -> Part:
    return Part("a setting", [Known(mean, sd, 100)], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("means", "needed", "verdict"),
    [
        ([-1.0, -1.0], None, HOLDS),
        ([-1.0, 0.0], None, UNDECIDED),
        ([-1.0, 1.0], None, FAILS),
        ([0.0, 1.0], None, FAILS),
        ([-1.0, 1.0], 1, HOLDS),
        ([0.0, 1.0], 1, UNDECIDED),
        ([1.0, 1.0], 1, FAILS),
    ],
)
def test_verdict(means: list[float], needed: int | None, verdict: str) -> None:
    assert claim([part(mean) for mean in means], needed).judge().verdict == verdict


def test_direction_and_bound() -> None:
    assert claim([part(0.8, bound=1.0)]).judge().verdict == HOLDS
    assert claim([part(1.2, bound=1.0)]).judge().verdict == FAILS
    assert claim([part(1.2, bound=1.0, direction="above")]).judge().verdict == HOLDS


def test_one_interval_alone_is_the_t_interval() -> None:
    values = np.random.default_rng(1).normal(size=12)
    known = interval(values)
    low, high = simultaneous(known, 0.95, 1)
    assert (low, high) == pytest.approx((known.low, known.high))


def test_more_comparisons_widen_every_interval() -> None:
    widths = [np.subtract(*simultaneous(Known(0.0, 1.0, 10), 0.95, n)[::-1]) for n in (1, 2, 9, 63)]
    assert widths == sorted(widths) and widths[0] < widths[-1]


def test_every_difference_of_a_claim_counts_as_a_comparison() -> None:
    rivals = [Known(-1.0, 1.0, 10)] * 7
    judged = claim([Part("one", rivals), Part("two", rivals)]).judge()
    assert (judged.parts[0].low, judged.parts[0].high) == simultaneous(rivals[0], 0.95, 14)


def test_one_run_decides_nothing() -> None:
    judged = claim([Part("a setting", [Known(-5.0, math.nan, 1)])]).judge()
    assert judged.verdict == UNDECIDED
    assert judged.as_json()["parts"][0]["low"] is None


def test_rank_takes_the_order_statistic_of_value_and_interval() -> None:
    # Better than two rivals, worse than one: not first, but second.
    rivals = [Known(0.5, 0.1, 100), Known(-0.4, 0.1, 100), Known(-0.9, 0.1, 100)]
    assert claim([Part("first", rivals)]).judge().verdict == FAILS
    second = claim([Part("second", rivals, rank=2)]).judge()
    assert second.verdict == HOLDS
    assert second.parts[0].value == -0.4
    assert (second.parts[0].low, second.parts[0].high) == simultaneous(rivals[1], 0.95, 3)


def test_rank_outside_the_estimates_is_refused() -> None:
    with pytest.raises(ValueError, match="rank"):
        Part("a setting", [Known(0.0, 1.0, 10)], rank=2)


def test_simultaneous_intervals_cover_the_best_rival_whichever_it_is() -> None:
    """The truth is a tie among three rivals, the case in which picking the best one after looking would mislead."""
    rng = np.random.default_rng(7)
    missed = 0
    for _ in range(400):
        rivals = [interval(rng.normal(size=15)) for _ in range(3)]
        found = claim([Part("a setting", rivals)]).judge().parts[0]
        missed += not found.low <= 0.0 <= found.high
    # At most 5 % are missed; 400 tries have a standard error of 1.1 %.
    assert missed / 400 <= 0.05 + 4 * 0.011


def test_the_count_and_its_interval() -> None:
    judged = claim([part(-1.0), part(-0.001), part(0.001), part(1.0)], needed=2).judge()
    assert (judged.measured, judged.interval) == ("2 of 4", "[1, 3]")
    assert judged.as_json()["interval"]["agreeing"] == [1, 3]


def test_tables_say_the_verdict_in_text_and_markdown() -> None:
    verdicts = [claim([part(-1.0)]).judge(), claim([part(0.0)]).judge()]
    table = claims_table(verdicts)
    for rendered in (table.text(), table.markdown()):
        assert HOLDS in rendered and UNDECIDED in rendered and "[settings where it certainly holds" in rendered
    assert [row[0] for row in table.rows] == ["a claim (a paper)", ""]


def test_every_part_is_a_row_and_its_claim_is_named_once() -> None:
    table = parts_table([claim([part(-1.0), part(1.0, bound=0.5, direction="above")]).judge()], "Parts")
    assert [row[0] for row in table.rows] == ["a claim (some runs)", ""]
    assert [row[3:] for row in table.rows] == [("< 0", HOLDS), ("> 0.5", HOLDS)]
    assert table.sections == (1,)


@pytest.mark.parametrize(
    ("means", "said", "clause"),
    [
        (
            [-1.0],
            "a claim: holds (some runs; -1.00 [-1.02, -0.98]).",
            "over it it holds (-1.00 [-1.02, -0.98], wanted below 0)",
        ),
        (
            [-1.0, -0.001],
            "a claim: is undecided (some runs; by the means in 2 of 2 parts, with confidence in 1 to 2).",
            "it cannot decide it (true in 2 of 2 cases by the means, in 1 to 2 with confidence)",
        ),
        (
            [-1.0, 1.0],
            "a claim: does not hold (some runs; by the means in 1 of 2 parts, with confidence in 1).",
            "over it it does not hold (true in 1 of 2 cases by the means, in 1 with confidence)",
        ),
    ],
)
def test_verdicts_in_words(means: list[float], said: str, clause: str) -> None:
    verdict = claim([part(mean) for mean in means]).judge()
    assert sentence(verdict) == said and in_words("it", verdict, "cases") == clause


def test_what_is_counted_exactly_has_no_interval() -> None:
    verdict = Claim("a claim", "a paper", EXACTLY, [Part("a", [known(-1)]), Part("b", [known(1)])], needed=1).judge()
    assert verdict.verdict == HOLDS
    assert sentence(verdict) == "a claim: holds (counted exactly; in 1 of 2 parts, 1 needed)."
