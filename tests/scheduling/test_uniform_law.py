"""The uniform law's two ways of rejecting by kappa. (Its other properties: test_contexts.)"""

import numpy as np
import pytest

from queuewise.scheduling.contexts import uniform_law


def logits_of(system: object) -> np.ndarray:
    features = system.law.draw(10, np.random.default_rng(0)).features  # type: ignore[attr-defined]
    return np.einsum("rdk,d->rk", features, system.theta)  # type: ignore[attr-defined]


@pytest.mark.parametrize("servers", [3, 5])
def test_contexts_rejected_one_by_one_meet_slack_and_curvature(servers: int) -> None:
    for seed in range(6):
        system = uniform_law(servers=servers, pool=300, seed=seed, kappa_rejects="contexts")
        p = 1 / (1 + np.exp(-logits_of(system)))
        assert p.shape == (300, servers)
        assert p.max(axis=1).min() >= 0.8
        assert (1 / (p * (1 - p))).max() <= 50
        assert system.context_acceptance == 300 / system.contexts_tried


def test_contexts_rejected_one_by_one_are_those_that_a_plain_filter_keeps() -> None:
    system = uniform_law(pool=300, seed=4, kappa_rejects="contexts")
    rng = np.random.default_rng(4)
    theta = rng.uniform(-1, 1, 10)
    kept = []
    tried = 0
    while len(kept) < 300:
        batch = rng.uniform(-1, 1, (300, 10, 5))
        for context in batch:
            if len(kept) == 300:
                break
            tried += 1
            p = [1 / (1 + np.exp(-float(theta @ context[:, k]))) for k in range(5)]
            if max(p) >= 0.8 and max(1 / (value * (1 - value)) for value in p) <= 50:
                kept.append(context)
    np.testing.assert_array_equal(system.theta, theta)
    np.testing.assert_array_equal(system.law.draw(1, np.random.default_rng(0)).features, kept)
    assert (system.parameters_tried, system.contexts_tried) == (1, tried)


def test_rejecting_contexts_accepts_the_parameters_that_are_too_long_otherwise() -> None:
    seeds = range(60)
    strict = [uniform_law(pool=500, seed=seed) for seed in seeds]
    lenient = [uniform_law(pool=500, seed=seed, kappa_rejects="contexts") for seed in seeds]
    assert all(system.parameters_tried == 1 for system in lenient)
    assert sum(system.parameters_tried for system in strict) > 70
    rejected = [b.parameter_bound for a, b in zip(strict, lenient, strict=True) if a.parameters_tried > 1]
    accepted = [b.parameter_bound for a, b in zip(strict, lenient, strict=True) if a.parameters_tried == 1]
    # Short parameters hardly ever reach the largest logit, long ones always do.
    assert min(accepted) < min(rejected) and max(accepted) < max(rejected)
    error = np.sqrt(np.var(rejected) / len(rejected) + np.var(accepted) / len(accepted))
    assert np.mean(rejected) - np.mean(accepted) > 4 * error


def test_the_way_of_rejecting_is_part_of_what_identifies_the_law() -> None:
    plain, other = uniform_law(pool=50), uniform_law(pool=50, kappa_rejects="contexts")
    assert plain.settings()["kappa_rejects"] == "parameters"
    assert other.settings() == plain.settings() | {"kappa_rejects": "contexts"}
    with pytest.raises(ValueError, match=r"kappa_rejects must be one of 'parameters', 'contexts', not 'both'"):
        uniform_law(kappa_rejects="both")  # type: ignore[arg-type]
