"""Users and servers: what is refused, and the exact laws against chains written down outcome by outcome."""

import numpy as np
import pytest

from queuewise import matching
from queuewise.matching.systems import chance_of_exploring

from ..naive import matching as naive
from ..naive.queueing import geo_geo_1_law

TABLE = [[0.5, 0.33, 0.33, 0.33, 0.25], [0.33, 0.5, 0.25, 0.33, 0.25], [0.25, 0.33, 0.5, 0.25, 0.25]]
RATES = [(0.35, 0.5), (0.1, 0.9), (0.6, 0.65), (0.3, 1.0), (0.0, 0.4)]


@pytest.mark.parametrize(("arrival", "service"), RATES)
def test_stationary_law_stays_what_it_is(arrival: float, service: float) -> None:
    law = matching.stationary(arrival, service)
    matrix = naive.arrival_first_matrix(arrival, service, len(law))
    assert law.sum() == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(law @ matrix, law, atol=1e-14)
    busy = arrival * (1 - service) / (service - arrival)  # E[Q] = r/(1 − r)
    assert law @ np.arange(len(law)) == pytest.approx(busy, rel=1e-10)


@pytest.mark.parametrize(("arrival", "service"), RATES)
def test_law_of_the_other_order_is_that_of_services_before_arrivals(arrival: float, service: float) -> None:
    law = matching.stationary(arrival, service, "service_first")
    np.testing.assert_allclose(law, geo_geo_1_law(arrival, service, len(law)), atol=1e-14)


@pytest.mark.parametrize("start", ["arrival_first", "service_first"])
def test_exploring_regret_is_that_of_all_outcomes_walked_through(start: str) -> None:
    system = matching.System([0.2, 0.3], [[0.8, 0.4, 0.3], [0.5, 0.2, 0.9]])
    mean, sd = matching.exploring_regret(system, 7, start)
    for u, (arrival, rates) in enumerate(zip(system.arrival_rates, system.service_rates, strict=True)):
        law = matching.stationary(arrival, max(rates), start)
        by_hand = naive.exploring_moments(law, arrival, list(rates), u, 7)
        np.testing.assert_allclose(mean[:, u], by_hand[0], atol=1e-12)
        np.testing.assert_allclose(sd[:, u], by_hand[1], atol=1e-7)
    assert mean[7].min() > 0.05


def test_exploration_is_certain_just_as_long_as_its_probability_is_one() -> None:
    end = matching.certain_exploration(5)
    assert end == 621
    assert all(chance_of_exploring(done, 5) == 1.0 for done in range(end))
    assert chance_of_exploring(end, 5) == pytest.approx(15 * np.log(621) ** 2 / 621) and chance_of_exploring(end, 5) < 1
    assert matching.certain_exploration(5, 0.0) == 5


@pytest.mark.parametrize(
    ("arrivals", "table", "field"),
    [
        ([0.35] * 2, TABLE, "service_rates"),
        ([], [], "service_rates"),
        ([0.35], [[0.5, 1.5]], "service_rates"),
        ([-0.1], [[0.5]], "arrival_rates"),
        ([0.1, 0.1], [[0.5], [0.4]], "service_rates"),
        ([0.1, 0.1], [[0.5, 0.4], [0.5, 0.4]], "service_rates"),
        ([0.1], [[0.5, 0.5]], "service_rates"),
        ([0.5], [[0.5, 0.4]], "arrival_rates"),
        ([0.1, 0.1], [[0.5, 0.4], [0.5]], "service_rates"),
        ("0.1", [[0.5]], "arrival_rates"),
    ],
)
def test_refuses_what_is_no_system(arrivals: list[float], table: list[list[float]], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}"):
        matching.System(arrivals, table)


def test_refuses_laws_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="arrival"):
        matching.stationary(0.5, 0.5)
    with pytest.raises(ValueError, match="order"):
        matching.stationary(0.1, 0.5, "both")
