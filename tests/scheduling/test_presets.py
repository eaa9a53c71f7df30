"""The preset of CQB-eta-2's Figure 1: the paper's parameters, and which argument reaches which policy."""

import pytest

from queuewise.scheduling import presets, simulate, uniform_law

CONTEXTUAL = ("cqb_eta_2", "cqb_epsilon", "acqb")


def options(**arguments: object) -> dict[str, dict[str, object]]:
    return {policy.name: dict(policy.options) for policy in presets.cqb_eta_2_figure_1(**arguments)}  # type: ignore[arg-type]


def test_the_defaults_are_the_papers() -> None:
    found = options()
    assert list(found) == [*CONTEXTUAL, "random", "fifo_random"]
    for name in CONTEXTUAL:
        assert (found[name]["radius"], found[name]["radius_scale"], found[name]["kappa"]) == ("cqb_eta_2", 0.1, 50.0)
        assert found[name]["delta"] is None and found[name]["parameter_bound"] is None
    assert (found["cqb_eta_2"]["phase_1_end"], found["cqb_eta_2"]["phase_2_end"]) == (0.2, 0.3)
    assert found["cqb_epsilon"]["exploration_rounds"] == 0.2
    assert (found["acqb"]["samples"], found["acqb"]["exploration_scale"]) == (5, 20.0)


@pytest.mark.parametrize(
    ("argument", "value", "option", "names"),
    [
        ("radius_scale", 0.5, "radius_scale", CONTEXTUAL),
        ("kappa", 70.0, "kappa", CONTEXTUAL),
        ("ridge", 2.0, "ridge", CONTEXTUAL),
        ("parameter_bound", 3.0, "parameter_bound", CONTEXTUAL),
        ("initial_design", 50.0, "initial_design", CONTEXTUAL),
        ("delta", 0.01, "delta", CONTEXTUAL),
        ("ties", "random", "ties", CONTEXTUAL),
        ("exploration", 0.3, "exploration", ("cqb_eta_2",)),
        ("epsilon_exploration", 0.0, "exploration", ("cqb_epsilon",)),
        ("acqb_exploration_scale", 1.0, "exploration_scale", ("acqb",)),
        ("acqb_samples", 2, "samples", ("acqb",)),
        ("acqb_radius_scale", 1.0, "radius_scale", ("acqb",)),
    ],
)
def test_an_argument_reaches_the_policies_that_it_is_about_and_no_other(
    argument: str, value: object, option: str, names: tuple[str, ...]
) -> None:
    usual, changed = options(), options(**{argument: value})
    for name, found in changed.items():
        expected = usual[name] | ({option: value} if name in names else {})
        assert found == expected, name


def test_the_first_rounds_are_explored_by_two_policies() -> None:
    usual, changed = options(), options(phase_1_end=0.1)
    assert changed["cqb_eta_2"] == usual["cqb_eta_2"] | {"phase_1_end": 0.1}
    assert changed["cqb_epsilon"] == usual["cqb_epsilon"] | {"exploration_rounds": 0.1}
    assert all(changed[name] == usual[name] for name in ("acqb", "random", "fifo_random"))


def test_a_value_out_of_range_is_refused_with_its_name_once_it_is_used() -> None:
    with pytest.raises(ValueError, match=r"^cqb_eta_2: delta: must be a number above 0 and at most 1, not 2"):
        simulate(uniform_law(pool=20), presets.cqb_eta_2_figure_1(delta=2.0), rounds=10, runs=1)
