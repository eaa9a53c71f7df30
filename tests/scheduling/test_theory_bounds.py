"""``bounds``: every theorem for one system, with what it meets and fails."""

from __future__ import annotations

import math
from typing import Any

import pytest

from queuewise.bounds import Bound
from queuewise.scheduling import family, function_law, hard_instances, table_law, theory, uniform_law, wise_figure_law

#: One easy context in the unit ball.
EASY = table_law([[[1.0, 0.0], [0.0, 1.0]]], arrival_rate=0.25, theta=[1.2, -0.5])


def of(system: Any, rounds: int, **options: Any) -> dict[tuple[str, str], Bound]:
    found = theory.bounds(system, rounds, **options)
    assert len({(bound.source, bound.name) for bound in found}) == len(found)
    return {(bound.source, bound.name): bound for bound in found}


@pytest.mark.parametrize("rounds", [3, 1000, 10**9, 10**60])
@pytest.mark.parametrize(
    "system",
    [
        EASY,
        hard_instances.wise_theorem_7(),
        hard_instances.wise_theorem_8(),
        hard_instances.cqb_eta_2_theorem_10(),
        wise_figure_law(q=0.15, slack=0.05),
        uniform_law(pool=30, seed=2),
        table_law([[[0.0, 0.0]]], [[0.9]], arrival_rate=0.25),
        table_law([[[1.0, 0.0]]], [[0.9]], arrival_rate=0.25, max_attempts=3),
        table_law([[[1.0, 0.0], [0.5, 0.1]]], [[0.9, 0.1]], arrival_rate=0.95, allow_unstable=True),
    ],
    ids=lambda system: system.name,
)
def test_a_bound_has_a_value_exactly_where_no_assumption_fails(system: Any, rounds: int) -> None:
    for bound in of(system, rounds).values():
        failed = [assumption for assumption in bound.assumptions if assumption.holds is False]
        assert (bound.value is None) is bool(failed)
        assert bound.holds is (False if failed else None if any(a.holds is None for a in bound.assumptions) else True)
        assert bound.value is None or (math.isfinite(bound.value) and bound.value > 0)
        assert bound.reads and not bound.log
        for assumption in bound.assumptions:
            assert assumption.name and assumption.reason and str(assumption.value)


def test_the_values_are_those_of_the_functions() -> None:
    found = of(EASY, 10**25)
    numbers: dict[str, Any] = {"dimension": 2, "parameter_bound": EASY.parameter_bound}
    slack, context = EASY.slack(), EASY.context_slack().value
    assert found["WISE (9)", "confidence_radius"].value == theory.wise_radius(10**25, **numbers)
    count = theory.wide_intervals(0.2, 1, 10**25, **numbers)
    assert of(EASY, 10**25, width=0.2)["WISE Lemma 10", "wide_intervals"].value == count
    work = theory.lemma_12(10**25, 10**25, **numbers, capacity_slack=slack)
    assert found["WISE Lemma 12", "mean_workload"].value == work.mean_workload
    assert found["WISE Lemma 12", "work_left"].value == work.workload_tail
    whole: dict[str, Any] = {**numbers, "arrival_rate": 0.25, "context_slack": context, "diversity": 0.5}
    assert found["CQB-eta-2 Theorem 5", "regret"].value == pytest.approx(theory.theorem_5(10**25, **whole), rel=1e-9)
    assert found["WISE Theorem 7", "regret_of_any_policy"].value == theory.theorem_7(
        10**25, dimension=2, servers=2, arrival_rate=0.25
    )
    late = of(EASY, 10**90)["WISE Theorem 6", "regret"]
    assert late.value == theory.theorem_6(10**90, **numbers, arrival_rate=0.25, capacity_slack=slack)
    assert late.holds is None  # (62) is met with the least constant, but the paper's is unnamed
    assert found["WISE Theorem 6", "regret"].holds is False
    assert of(EASY, 10**90, condition_constant=1e60)["WISE Theorem 6", "regret"].holds is False


def test_the_families_meet_their_own_theorems() -> None:
    seventh = hard_instances.wise_theorem_7(rounds=500)
    assert of(seventh, 500)["WISE Theorem 7", "regret_of_any_policy"].value == pytest.approx(seventh.bound)
    eighth = hard_instances.wise_theorem_8(rounds=6000)
    assert of(eighth, 6000)["WISE Theorem 8", "regret_of_any_policy"].value == pytest.approx(eighth.bound, rel=1e-9)
    assert of(eighth, 4000)["WISE Theorem 8", "regret_of_any_policy"].value is None


def test_what_fails_is_named() -> None:
    figure = of(wise_figure_law(q=0.15, slack=0.05), 2000)
    failing = {a.name for bound in figure.values() for a in bound.assumptions if a.holds is False}
    assert {"features have norm at most 1", "context-wise slack is positive", "lambda is at most 1/4"} <= failing
    upper = [
        bound
        for (source, _), bound in figure.items()
        if source.startswith(("WISE (9)", "WISE Lemma", "WISE Theorem 6"))
    ]
    assert len(upper) == 6 and all(bound.value is None for bound in upper)
    short = of(EASY, 1000)["CQB-eta-2 Theorem 5", "regret"]
    (phases,) = [a for a in short.assumptions if a.name == "tau_2 - tau_1 >= T/2"]
    assert phases.holds is False and "rounds too few" in phases.reason


def test_a_sampled_law_leaves_open_what_a_sample_cannot_decide() -> None:
    def draw(rng: Any, jobs: int) -> Any:
        features = rng.normal(size=(jobs, 2, 3))
        return features / (1.0 + abs(features).sum(axis=2, keepdims=True))

    system = function_law(draw, arrival_rate=0.2, theta=[0.5, 0.1, 0.2], feature_bound=1.0, sample=2000)
    found = of(system, 10**30)
    assert found["WISE (9)", "confidence_radius"].holds is True
    assert found["CQB-eta-2 Theorem 5", "regret"].holds is None
    assert found["CQB-eta-2 Theorem 5", "regret"].value is not None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"system": family(hard_instances.wise_theorem_7)},
            r"^system must be a scheduling System \(of a family",
        ),
        ({"rounds": 2}, r"^rounds must be a whole number of at least 3, not 2"),
        ({"rounds": 9.5}, r"^rounds must be a whole number of at least 3, not 9.5"),
        ({"ridge": 0.0}, r"^ridge must be positive, not 0.0"),
        (
            {"condition_constant": 10.0},
            r"^condition_constant must be at least 1536 \(the proof of WISE's Lemma 12\), not 10.0",
        ),
        ({"width": 2.0}, r"^width must lie strictly between 0 and 1"),
        ({"c1": -1.0}, r"^c1 must be positive, not -1.0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        theory.bounds(**{"system": EASY, "rounds": 100, **options})
