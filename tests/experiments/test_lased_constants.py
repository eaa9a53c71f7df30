"""LASED's constants for its own examples: the numbers in the tables, what is judged, and the command."""

import json
import math
import xml.etree.ElementTree as xml
from fractions import Fraction
from pathlib import Path

import pytest

from queuewise.dispatch import theory
from queuewise.experiments import registry
from queuewise.experiments.claims import FAILS, HOLDS
from queuewise.experiments.papers import lased_constants as constants

LOADS = {"μ = (5, 10), load 0.3 (7.2)": 0.3, "μ = (5, 10), load 0.6 (7.2)": 0.6, "μ = (5, 10), load 0.9 (7.2)": 0.9}
LOADS |= {"μ = (1, 1), load 0.1 (7.4)": 0.1, "μ = (1, 1), load 0.9 (7.4)": 0.9}


def test_examples_have_the_loads_that_they_are_named_for() -> None:
    for example in constants.EXAMPLES:
        pair = example.pair
        if example.label in LOADS:
            assert float(pair.arrival_rate / sum(pair.service_rates)) == LOADS[example.label]
    assert len(constants.EXAMPLES) == len(LOADS) + 1  # and λ = 1 of Section 7.3


def test_numbers_are_written_so_that_they_can_be_read() -> None:
    assert [constants.power(x) for x in (math.log10(0.25), -142.43, 3.0, 50.75, 2.38e6)] == [
        "0.25",
        "10^-142.4",
        "1e+03",
        "10^50.8",
        "10^(2.38e+06)",
    ]
    assert [constants.whole(x) for x in (12, 70749, 10**12)] == ["12", "70,749", "10^12.0"]
    assert constants.tens(math.log(1000.0)) == pytest.approx(3.0)


def test_common_queue_is_where_the_chance_passes_one_in_a_hundred() -> None:
    pair = constants.EXAMPLES[2].pair
    m = constants.common_queue(pair)
    assert theory.log_overflow(pair, m) <= math.log(0.01) < theory.log_overflow(pair, m - 1)


def test_the_product_of_2_fails_only_at_ties_below_the_true_ratio() -> None:
    for believed in constants.BELIEVED:
        wrong, product, ties = constants.wrong_and_product(believed)
        assert not ((wrong != product) & ~ties).any()
        assert (wrong & ties).sum() == (ties.sum() if believed < constants.RATIO else 0)
        assert ties.any() == (max(believed.as_integer_ratio()) <= constants.LOOKED_AT + 1)
    assert constants.wrong_and_product(Fraction(3, 2))[0][
        1, 2
    ]  # 2(1 + 1) > 2 + 1, and 3/2 (1 + 1) = 2 + 1 sends to server 1


def test_judged_by_where_the_bounds_lie() -> None:
    example = constants.EXAMPLES[4]
    right = constants.Busy(1.0, 2.0, 1.0, 3.0, (-1.0,) * 6, (0.5,) * 6)
    verdicts = constants.claims({example: right})
    assert [verdict.verdict for verdict in verdicts] == [HOLDS, HOLDS, FAILS]
    for wrong in (
        right._replace(mean_bound=0.9),
        right._replace(second_bound=0.9),
        right._replace(overflow_bound=(0.5,) * 5 + (-1.5,)),
    ):
        assert constants.claims({example: wrong})[0].verdict == FAILS


def test_constants_are_made_again(tmp_path: Path) -> None:
    outcome = registry.reproduce("lased-constants", out=tmp_path)
    assert [verdict.verdict for verdict in outcome.verdicts] == [HOLDS, HOLDS, FAILS]
    assert len(outcome.verdicts[0].parts) == 4 * len(constants.EXAMPLES)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    xml.parse(tmp_path / "figure.svg")
    text = (tmp_path / "claims.md").read_text()
    assert "| μ = (5, 10), load 0.9 (7.2) | 1.5 | 0.375 | 94 | 250.7 | 6.58e-03 | 10^-142.4 | 31,626 | 100.3 |" in text
    found = {one["example"]: one for one in json.loads((tmp_path / "claims.json").read_text())["settings"]}
    heavy = found["μ = (5, 10), load 0.9 (7.2)"]
    assert heavy["log10_p"] == pytest.approx(-142.43, abs=0.01)
    assert heavy["busy_period"]["mean_bound"] - heavy["busy_period"]["mean"] == pytest.approx(732.4, abs=0.1)
    assert 10 ** heavy["busy_period"]["mean"] == pytest.approx(1.52, abs=0.01)
    for one in found.values():
        assert one["regret"]["log_bound"] > 10_000
    assert not (tmp_path / "rows").exists()
    with pytest.raises(ValueError, match="no runs"):
        registry.reproduce("lased-constants", runs=5, out=tmp_path)
