"""Systems: constants, draws, assumptions, identification, bad input."""

from __future__ import annotations

import json
import math
import pickle
import re

import numpy as np
import pytest

from queuewise import fields
from queuewise._compile import fingerprint
from queuewise.scheduling import systems
from queuewise.scheduling.contexts import from_outcomes, function_law, table_law, uniform_law, wise_figure_law
from queuewise.scheduling.systems import Family, Quantity, System, family


def ball(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(-0.5, 0.5, (n, 2, 3))


def generators(seed: int) -> tuple[np.random.Generator, np.random.Generator, np.random.Generator]:
    arrivals, contexts, service = np.random.SeedSequence(seed).spawn(3)
    return np.random.default_rng(arrivals), np.random.default_rng(contexts), np.random.default_rng(service)


def every_law() -> dict[str, System]:
    rng = np.random.default_rng(5)
    record = rng.integers(1, 5, (40, 3)) / 4
    return {
        "wise": wise_figure_law(q=0.15, slack=0.1),
        "uniform": uniform_law(pool=60, dimension=4, servers=3),
        "table": table_law(rng.uniform(-1, 1, (7, 3, 2)), theta=[1.0, 2.0], arrival_rate=0.2, weights=range(7)),
        "function": function_law(
            ball, theta=[1.0, 2.0, 3.0], arrival_rate=0.3, feature_bound=1.0, sample=500, block=32
        ),
        "outcomes": from_outcomes(rng.standard_normal((40, 2)), record, load=0.7),
    }


LAWS = every_law()


@pytest.mark.parametrize("law", LAWS)
def test_a_draw_has_the_stated_shapes_and_types(law: str) -> None:
    system = LAWS[law]
    draw = system.draw(300, *generators(1))
    jobs = int(draw.arrivals.sum())
    rows = len(draw.features)
    assert draw.arrivals.dtype == np.bool_
    assert draw.arrivals.shape == (300,)
    assert draw.service.dtype == np.float64
    assert draw.service.shape == (300,)
    assert draw.contexts.dtype == np.int64
    assert draw.contexts.shape == (jobs,)
    assert draw.contexts.min() >= 0
    assert draw.contexts.max() < rows
    assert draw.features.shape == (rows, system.dimension, system.servers)
    assert draw.probabilities.shape == (rows, system.servers)
    for array in (draw.features, draw.probabilities):
        assert array.dtype == np.float64
        assert array.flags.c_contiguous
        # A read-only array would be another type to compiled code.
        assert array.flags.writeable


@pytest.mark.parametrize("law", LAWS)
def test_a_longer_horizon_extends_the_same_run(law: str) -> None:
    system = LAWS[law]
    short, long = system.draw(120, *generators(2)), system.draw(1000, *generators(2))
    jobs = len(short.contexts)
    np.testing.assert_array_equal(short.arrivals, long.arrivals[:120])
    np.testing.assert_array_equal(short.service, long.service[:120])
    np.testing.assert_array_equal(short.features[short.contexts], long.features[long.contexts[:jobs]])
    np.testing.assert_array_equal(short.probabilities[short.contexts], long.probabilities[long.contexts[:jobs]])


@pytest.mark.parametrize("law", LAWS)
def test_every_purpose_draws_from_its_own_generator(law: str) -> None:
    system = LAWS[law]
    arrivals, contexts, service = generators(3)
    base = system.draw(200, *generators(3))
    other = system.draw(200, arrivals, contexts, np.random.default_rng(99))
    np.testing.assert_array_equal(base.arrivals, other.arrivals)
    np.testing.assert_array_equal(base.features[base.contexts], other.features[other.contexts])
    assert (base.service != other.service).any()
    arrivals, contexts, service = generators(3)
    other = system.draw(200, np.random.default_rng(99), contexts, service)
    np.testing.assert_array_equal(base.service, other.service)
    shared = min(len(base.contexts), len(other.contexts))
    np.testing.assert_array_equal(base.features[base.contexts[:shared]], other.features[other.contexts[:shared]])


@pytest.mark.parametrize("law", LAWS)
def test_the_truth_is_logistic_where_a_parameter_is_stated(law: str) -> None:
    system = LAWS[law]
    draw = system.draw(200, *generators(4))
    if system.theta is None:
        assert law == "outcomes"
        return
    logits = np.einsum("rdk,d->rk", draw.features, system.theta)
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), draw.probabilities, rtol=0, atol=1e-13)


@pytest.mark.parametrize("law", LAWS)
def test_descriptions_and_settings_are_complete_and_plain(law: str) -> None:
    system = LAWS[law]
    text = system.describe()
    for words in ("capacity slack", "context-wise slack", "kappa over the ball", "kappa at the truth", "sigma_0^2"):
        assert words in text
    for theorem in ("WISE Theorem 6", "CQB-eta-2 Theorem 5"):
        assert theorem in text
    settings = system.settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings == every_law()[law].settings()
    assert settings["law"].startswith(("wise", "uniform", "table", "function", "from"))


@pytest.mark.parametrize("law", LAWS)
def test_systems_travel_to_other_processes(law: str) -> None:
    system = LAWS[law]
    copy = pickle.loads(pickle.dumps(system))
    assert copy.settings() == system.settings()
    np.testing.assert_array_equal(copy.draw(50, *generators(5)).features, system.draw(50, *generators(5)).features)


def test_arrivals_come_at_the_stated_rate() -> None:
    draw = LAWS["table"].draw(40_000, *generators(6))
    deviation = (draw.arrivals.mean() - 0.2) / math.sqrt(0.2 * 0.8 / 40_000)
    assert abs(deviation) < 5


def test_no_arrival_at_all_is_a_draw_like_others() -> None:
    for system in LAWS.values():
        law = system.law.draw(0, np.random.default_rng(0))
        assert law.rows.shape == (0,)
        assert law.features.shape[1:] == (system.dimension, system.servers)


def test_constants_of_two_contexts_by_hand() -> None:
    # p* is 0.8 with probability 3/4 and 0.5 with probability 1/4: E[1/p*] = 3/4 * 5/4 + 1/4 * 2 = 23/16.
    features = [[[1.0, 0.0], [0.0, 0.5]], [[0.0, 0.0], [-1.0, 0.0]]]
    theta = [math.log(4), -2 * math.log(4)]
    system = table_law(features, theta=theta, weights=[3, 1], arrival_rate=0.4)
    assert system.capacity_slack().value == pytest.approx(1 - 0.4 * 23 / 16, abs=1e-15)
    assert system.slack() == system.capacity_slack().value
    assert system.context_slack().value == pytest.approx(0.1, abs=1e-15)
    assert system.parameter_bound == pytest.approx(math.sqrt(5) * math.log(4))
    # p(1 - p) is least at p = 0.8 and 0.2, where it is 0.16.
    assert system.kappa("truth").value == pytest.approx(6.25)
    bound = system.parameter_bound
    assert system.kappa("ball").value == pytest.approx((1 + math.exp(bound)) * (1 + math.exp(-bound)))
    # E[(1/2) sum phi phi^T] = diag(3/4 * 1/2 + 1/4 * 1/2, 3/4 * 1/8).
    assert system.feature_diversity().value == pytest.approx(3 / 32)
    assert system.max_feature_norm() == Quantity(1.0)
    for value in (system.capacity_slack(), system.context_slack(), system.kappa(), system.feature_diversity()):
        assert value.exact
        assert value.error == 0.0


def test_both_theorems_hold_where_every_assumption_does() -> None:
    checks = table_law([[[1.0]]], [[0.8]], arrival_rate=0.5).assumptions()
    assert checks["WISE Theorem 6"].holds is True
    assert checks["CQB-eta-2 Theorem 5"].holds is True
    assert len(checks["WISE Theorem 6"].assumptions) == 3
    assert len(checks["CQB-eta-2 Theorem 5"].assumptions) == 5


def verdicts(system: System, theorem: str) -> dict[str, bool | None]:
    return {item.name: item.holds for item in system.assumptions()[theorem].assumptions}


def test_every_assumption_can_fail_by_itself() -> None:
    cqb, wise = "CQB-eta-2 Theorem 5", "WISE Theorem 6"
    long = table_law([[[2.0]]], [[0.8]], arrival_rate=0.5)
    assert [name for name, holds in verdicts(long, cqb).items() if holds is False] == ["features have norm at most 1"]
    assert "divided by that number" in long.describe()
    small_ball = table_law([[[1.0]]], [[0.8]], arrival_rate=0.5, parameter_bound=1.0)
    assert verdicts(small_ball, wise)["true parameter has norm at most S"] is False
    flat = table_law([[[1.0, 0.0]]], [[0.8]], arrival_rate=0.5)
    assert verdicts(flat, cqb)["features are diverse"] is False
    assert flat.assumptions()[wise].holds is True
    uneven = table_law([[[1.0]], [[-0.5]]], theta=[2.0], weights=[9, 1], arrival_rate=0.5)
    assert verdicts(uneven, cqb)["context-wise slack is positive"] is False
    assert uneven.assumptions()[wise].holds is True
    unstable = table_law([[[1.0]]], [[0.4]], arrival_rate=0.5, allow_unstable=True)
    assert verdicts(unstable, wise)["capacity slack is positive"] is False
    crooked = table_law([[[1.0]], [[1.0]]], [[0.9], [0.8]], arrival_rate=0.5)
    assert crooked.theta is None
    assert verdicts(crooked, wise)["true parameter has norm at most S"] is False


def test_a_sample_leaves_open_what_it_cannot_decide() -> None:
    system = function_law(ball, theta=[3.0, 0.0, 0.0], arrival_rate=0.1, feature_bound=1.5, sample=400)
    found = verdicts(system, "CQB-eta-2 Theorem 5")
    assert found["features have norm at most 1"] is None
    assert found["context-wise slack is positive"] is None
    assert system.assumptions()["CQB-eta-2 Theorem 5"].holds is None
    assert system.kappa("ball").value == pytest.approx(systems.inverse_slope(4.5))
    assert "at most" in str(system.context_slack())
    assert "±" in str(system.capacity_slack())


def test_kappa_is_infinite_where_a_pair_never_fails() -> None:
    system = from_outcomes([[0.0]], [[1.0, 0.0]], load=0.5)
    assert system.kappa("truth").value == math.inf
    assert system.theta is None
    assert table_law([[[1.0]]], [[0.8]], arrival_rate=0.5, parameter_bound=800.0).kappa().value == math.inf


def test_a_family_draws_a_fresh_instance_per_seed() -> None:
    group = family(wise_figure_law, q=0.15, slack=0.05)
    assert isinstance(group, Family)
    first, second = group.instance(1), group.instance(2)
    assert (first.theta != second.theta).any()
    np.testing.assert_array_equal(first.theta, wise_figure_law(0.15, 0.05, seed=1).theta)
    assert (group.servers, group.dimension, group.arrival_rate, group.feature_bound) == (10, 5, 0.6, 5.0)
    assert group.settings() == {"family": "wise_figure_law", "q": 0.15, "slack": 0.05}
    assert repr(group) == "family(wise_figure_law, q=0.15, slack=0.05)"
    with pytest.raises(ValueError, match="seed must be left out"):
        family(wise_figure_law, q=0.15, slack=0.05, seed=3)


def test_settings_tell_tables_apart_and_do_not_spell_them_out() -> None:
    first = table_law([[[1.0]]], [[0.8]], arrival_rate=0.5).settings()
    second = table_law([[[1.0]]], [[0.81]], arrival_rate=0.5).settings()
    assert first["sha256"] != second["sha256"]
    assert len(first["sha256"]) == 64
    assert fields.digest(np.arange(6.0)) != fields.digest(np.arange(6.0).reshape(2, 3))
    assert fields.digest(np.arange(3, dtype=">i8")) == fields.digest(np.arange(3, dtype="<i8"))
    assert systems.plain({"a": np.arange(3), "b": list(range(5000)), "c": ball, "d": np.float64(2)}) == {
        "a": {"sha256": fields.digest(np.arange(3))},
        "b": {"sha256": systems.plain(list(range(5000)))["sha256"]},
        "c": {"function": f"{__name__}.ball", "code": fingerprint(ball)},
        "d": 2.0,
    }


def test_the_logistic_functions_are_exact_at_the_far_ends() -> None:
    np.testing.assert_allclose(systems.logistic([-800.0, -50.0, 0.0, 50.0, 800.0]), [0, math.exp(-50), 0.5, 1, 1])
    np.testing.assert_allclose(systems.logit(systems.logistic([-3.0, 0.25])), [-3.0, 0.25], rtol=1e-14)
    assert systems.inverse_slope(50.0) == pytest.approx(5.1847e21, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"arrival_rate": 0.0}, "arrival_rate must lie strictly between 0 and 1"),
        ({"arrival_rate": 1.0}, "arrival_rate must lie strictly between 0 and 1"),
        ({"arrival_rate": math.nan}, "arrival_rate must be finite"),
        ({"arrival_rate": "half"}, "arrival_rate must be a number"),
        ({"parameter_bound": 0.0}, "parameter_bound must be positive"),
        ({"parameter_bound": -2.0}, "parameter_bound must be positive"),
        ({"parameter_bound": math.inf}, "parameter_bound must be finite"),
        ({"feature_bound": 0.5}, "features must have norm at most feature_bound=0.5, but one has norm 1"),
        ({"feature_bound": 0.0}, "feature_bound must be positive"),
        ({"suggested_radius": -1.0}, "suggested_radius must be positive"),
        ({"arrival_rate": 0.9}, "capacity_slack is -0.125, .* must be positive .*allow_unstable=True"),
    ],
)
def test_bad_values_are_refused_with_the_field_and_what_is_allowed(change: dict[str, object], sentence: str) -> None:
    arguments: dict[str, object] = {"arrival_rate": 0.5, **change}
    with pytest.raises(ValueError, match=sentence) as refusal:
        table_law([[[1.0]]], [[0.8]], **arguments)  # type: ignore[arg-type]
    assert not re.search(r"\n", str(refusal.value))


@pytest.mark.parametrize("rounds", [0, -1, 2.5, True, "many"])
def test_rounds_must_be_a_positive_whole_number(rounds: object) -> None:
    with pytest.raises(ValueError, match="rounds must be a whole number of at least 1"):
        LAWS["table"].draw(rounds, *generators(0))  # type: ignore[arg-type]


def test_an_unstable_system_is_accepted_when_asked_for() -> None:
    system = table_law([[[1.0]]], [[0.8]], arrival_rate=0.9, allow_unstable=True)
    assert system.slack() == pytest.approx(-0.125)
    assert system.settings()["allow_unstable"] is True


def test_kappa_knows_two_places() -> None:
    with pytest.raises(ValueError, match="where must be 'ball' or 'truth'"):
        LAWS["table"].kappa("there")  # type: ignore[arg-type]
