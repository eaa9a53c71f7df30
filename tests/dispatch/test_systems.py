"""Systems: exact weights, load, schedules, beliefs, and one clear sentence for everything that is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from queuewise.dispatch import arrivals, service, systems
from queuewise.dispatch.systems import System, schedule

THIRD = Fraction(1, 3)


@pytest.mark.parametrize(
    ("rates", "weights"),
    [
        ([5, 10], [1, 2]),
        ([0.1, 0.3], [1, 3]),
        ([np.float64(0.1), np.int64(3)], [1, 30]),
        ([THIRD, "2/3"], [1, 2]),
        (["0.25", Fraction(1, 2), 1], [1, 2, 4]),
        ([1e-300, 3e-300], [1, 3]),
        ([1e300, 2e300], [1, 2]),
    ],
)
def test_weights_are_whole_numbers_where_rates_are_fractions(rates: Any, weights: list[int]) -> None:
    system = System(1e-301, rates)
    assert system.exact
    assert system.weights.tolist() == [weights]
    assert "ties            exact" in system.describe()
    assert system.settings()["exact_ties"] is True


def test_slots_are_part_of_the_weights() -> None:
    system = System(1.0, [1, 2, 1.5], slots=[2, 1, 3])
    assert system.weights.tolist() == [[4, 4, 9]]
    assert system.capacity == 8.5
    assert system.slot_counts.tolist() == [2, 1, 3]


def test_fractions_that_are_too_long_are_floats_and_said_to_be() -> None:
    system = System(1.0, [math.pi, math.e])
    assert not system.exact
    assert system.weights.tolist() == [[math.pi, math.e]]
    assert "as floating point has them (the fractions are too long)" in system.describe()
    assert system.settings()["exact_ties"] is False


def test_exactness_is_lost_at_two_to_the_53() -> None:
    """Weight times (largest queue + 1) must stay below it."""
    for weight, exact in ((2**53 // 101, True), (2**53 // 101 + 1, False)):
        assert System(1.0, [1, weight], most_in_system=100).exact is exact
    assert System(1.0, [1, 2**40 + 1], most_in_system=100).exact
    assert not System(1.0, [1, 2**40 + 1], slots=[10_000, 1], most_in_system=100).exact


def test_load_and_ratio() -> None:
    system = System(1.5, [1, 2], service=service.resampled([0.5, 1.0]))
    assert system.load == pytest.approx(1.5 * 0.75 / 3)
    assert System(1.0, [3, 2]).ratio == Fraction(2, 3)
    assert System(1.0, [0.1, 0.3], allow_unstable=True).ratio == 3
    assert System(1.0, [1, 2, 3]).ratio is None
    assert System(1.0, [1, 2], slots=[1, 2]).ratio is None
    assert System(1.0, schedule([0, 1], [[1, 2], [2, 1]])).ratio is None


def test_the_long_run_of_a_schedule_is_its_last_piece() -> None:
    system = System(2.0, schedule([0, 10], [[0.5, 0.5], ["3/2", 1]]))
    assert system.load == pytest.approx(0.8)
    assert system.change_times.tolist() == [0.0, 10.0]
    assert system.rates.tolist() == [[0.5, 0.5], [1.5, 1.0]]
    assert system.weights.tolist() == [[1, 1], [3, 2]]
    with pytest.raises(ValueError, match="load 2"):
        System(2.0, schedule([0, 10], [["3/2", 1], [0.5, 0.5]]))
    assert "changing 1 times" in system.describe()


def test_arrivals_and_service_in_every_form() -> None:
    assert System(1.0, [2]).arrivals.settings() == {"process": "poisson"}
    assert System(1.0, [2], arrivals=lambda rng, count: np.ones(count)).settings()["arrivals"]["process"].endswith(">")
    trace = System(service_rates=[2], arrivals=[0.0, 1.0, 3.0], service=[1.0, 2.0, 0.5])
    assert trace.rate == pytest.approx(2 / 3)
    assert trace.service.recorded.tolist() == [1.0, 2.0, 0.5]
    assert System(1.0, [2], service=lambda rng, count: np.full(count, 0.5)).load == 0.25
    assert System(1.0, [2], service=service.erlang(2)).service.name == "erlang"


def test_beliefs() -> None:
    rng = np.random.default_rng(0)
    assert System(1.0, [2, 3]).beliefs(rng).tolist() == [1.0, 1.0]
    assert System(1.0, [2, 3], initial_rates=["1/4", 7]).beliefs(rng).tolist() == [0.25, 7.0]
    spread = System(1.0, [2, 6], initial_spread=4.0, service=service.resampled([2.0]))
    found = np.array([spread.beliefs(rng) for _ in range(4000)]) / [1.0, 3.0]
    assert found.min() >= 0.25
    assert found.max() <= 4.0
    logs = np.log(found) / math.log(4.0)
    assert np.abs(logs.mean(axis=0)).max() / math.sqrt(1 / 3 / 4000) < 4.5
    assert logs.var(axis=0) == pytest.approx(np.full(2, 1 / 3), rel=0.06)
    assert System(1.0, [2, 3], initial_spread=1).beliefs(rng).tolist() == [2.0, 3.0]


def test_settings_tell_systems_apart() -> None:
    options: list[dict[str, Any]] = [
        {}, {"arrival_rate": 0.9}, {"service_rates": [1, 3]}, {"slots": [1, 2]}, {"arrivals": arrivals.regular()},
        {"service": service.erlang(2)}, {"initial_rates": [1, 2]}, {"initial_spread": 2.0}, {"most_in_system": 99},
        {"service_rates": schedule([0, 1], [[1, 2], [1, 2]])}, {"service_rates": schedule([0, 2], [[1, 2], [1, 2]])},
    ]  # fmt: skip
    found = [repr(System(**{"arrival_rate": 1.0, "service_rates": [1, 2], **each}).settings()) for each in options]
    assert len(set(found)) == len(found)
    same = [System(1, rates).settings() for rates in ([1, 2], (1.0, 2.0), np.array([1, 2]), ["1", Fraction(2)])]
    assert all(each == same[0] for each in same)


def test_a_long_description_stays_short() -> None:
    text = System(1.0, [1] * 500).describe()
    assert "… (500 servers)" in text
    assert max(map(len, text.splitlines())) < 90


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"arrival_rate": None}, "arrival_rate is missing: jobs per time"),
    ({"arrival_rate": 0}, "arrival_rate must be positive, not 0"),
    ({"arrival_rate": -1}, "arrival_rate must be positive, not -1"),
    ({"arrival_rate": math.nan}, "arrival_rate must be finite, not nan"),
    ({"arrival_rate": math.inf}, "arrival_rate must be finite, not inf"),
    (
        {"arrival_rate": 3.75},
        r"arrival_rate: work arrives at 3\.75 per time and the servers together do 3, 0\.75 too little \(load 1\.25\), so "
        r"every rule is unstable; lower the rate, or allow_unstable=True",
    ),
    ({"arrival_rate": 3}, r"\(load 1\)"),
    ({"service": service.resampled([4.0])}, "work arrives at 4 per time"),
    ({"service_rates": []}, "service_rates must have one rate for each server, at least one"),
    ({"service_rates": [1, 0]}, "service_rates must be positive, not 0"),
    ({"service_rates": [1, -2.5]}, r"service_rates must be positive, not -2\.5"),
    ({"service_rates": [1, Fraction(-1, 2)]}, r"service_rates must be positive, not Fraction\(-1, 2\)"),
    ({"service_rates": [1, math.nan]}, "service_rates must be finite, not nan"),
    ({"service_rates": [1, True]}, "service_rates must be a number, not True"),
    ({"service_rates": [1, None]}, "service_rates must be a number, not None"),
    ({"service_rates": [1, "fast"]}, "service_rates must be numbers or fractions such as '1/3', not 'fast'"),
    ({"service_rates": [1, "1/0"]}, "service_rates must be numbers or fractions such as '1/3', not '1/0'"),
    ({"service_rates": [1, "nan"]}, "service_rates must be numbers or fractions"),
    ({"service_rates": schedule([0, 1], [[1, 2], [1]])}, "same number of servers in every row of the schedule"),
    ({"service_rates": schedule([0, 1], [[1, 2], [1, 0]])}, "service_rates must be positive, not 0"),
    ({"slots": [1]}, "slots must have one number per server, 2, not 1"),
    ({"slots": [1, 0]}, "slots must be a whole number of at least 1, not 0"),
    ({"slots": [1, 2.0]}, r"slots must be a whole number of at least 1, not 2\.0"),
    ({"slots": [10**9, 1]}, "slots must be at most 10000 per server, not 1000000000"),
    ({"initial_rates": [1]}, r"initial_rates must have one rate per server, 2, not \[1\]"),
    ({"initial_rates": [1, 0]}, "initial_rates must be positive, not 0"),
    ({"initial_spread": 0.9}, "initial_spread must be a factor of at least 1"),
    ({"initial_spread": math.nan}, "initial_spread must be finite, not nan"),
    ({"initial_spread": 2.0, "initial_rates": [1, 1]}, "initial_spread must be .* without initial_rates"),
    ({"most_in_system": 1}, "most_in_system must be a whole number of at least 2, not 1"),
    ({"arrivals": [1, 2]}, "arrival_rate must be left out with recorded arrivals, which bring their own"),
    (
        {"arrival_rate": None, "arrivals": [1, 3, 2]},
        r"times must be in order, but entry 2 \(2\) is before entry 1 \(3\)",
    ),
    ({"arrival_rate": None, "arrivals": [-1, 3, 4]}, "times must be finite and at least 0"),
    ({"arrivals": 3}, "times must be a list of at least 2 arrival times"),
    ({"service": [1.0, 0.0]}, "sizes must be finite and above 0, but entry 1 is 0"),
    ({"service": lambda rng, count: np.zeros(count)}, "must return 100000 finite sizes above 0"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_refusals(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        System(**{"arrival_rate": 1.0, "service_rates": [1, 2], **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("times", "rates", "sentence"),
    [
        ([1, 2], [[1], [1]], "times must increase, be finite and begin with 0"),
        ([], [], "times must increase, be finite and begin with 0"),
        ([0, 0], [[1], [1]], "times must increase"),
        ([0, math.nan], [[1], [1]], "times must increase"),
        ([0, math.inf], [[1], [1]], "times must increase"),
        ([0, 1], [[1]], "rates must have one row per time, 2, not 1"),
    ],
)
def test_schedules_refused(times: Any, rates: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        schedule(times, rates)


def test_unstable_systems_are_allowed_on_request() -> None:
    assert System(30.0, [1, 2], allow_unstable=True).load == 10.0


def test_a_load_of_exactly_one_is_refused_in_decimals_too() -> None:
    with pytest.raises(ValueError, match="load 1"):
        System(0.3, [0.1, 0.2])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"service_rates": ["1e400", 1]}, "service_rates"),
        ({"service_rates": [Fraction(1, 10**400), 1]}, "service_rates"),
        ({"service_rates": 5}, "service_rates"),
        ({"slots": 3}, "slots"),
        ({"initial_rates": 3}, "initial_rates"),
        ({"arrival_rate": "fast"}, "arrival_rate"),
        ({"arrival_rate": [1.0]}, "arrival_rate"),
        ({"service": service.exponential}, "service"),
        ({"service": "exponential"}, "service"),
        ({"arrivals": "poisson"}, "arrivals|times"),
    ],
)
def test_refusals_that_want_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        System(**{"arrival_rate": 1.0, "service_rates": [1, 2], **options})


def test_initial_rates_may_be_an_array() -> None:
    assert System(1.0, [1, 2], initial_rates=np.array([1.0, 2.0])).beliefs(np.random.default_rng(0)).tolist() == [1, 2]


def test_a_cap_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="most_in_system"):
        System(1.0, [1, 2], most_in_system=2**70)


def test_common_weights_of_one_server() -> None:
    weights, exact = systems.common_weights([[Fraction(7, 3)]], 10)
    assert weights.tolist() == [[1.0]]
    assert exact
