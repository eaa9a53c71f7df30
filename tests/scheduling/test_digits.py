"""Real outcomes: classifiers of handwritten digits as servers."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pytest

pytest.importorskip("sklearn")

from queuewise.scheduling.digits import CLASSIFIERS, DigitsSystem, digits_system


@pytest.fixture(scope="module")
def system() -> DigitsSystem:
    return digits_system()


def test_success_probabilities_are_fractions_of_replicas(system: DigitsSystem) -> None:
    draw = system.law.draw(1, np.random.default_rng(0))
    counts = draw.probabilities * 20
    np.testing.assert_allclose(counts, np.round(counts), rtol=0, atol=1e-9)
    assert ((counts > 0.5) & (counts < 19.5)).mean() > 0.3  # real fractions, not only 0 and 1
    assert system.jobs == 897
    assert len(draw.probabilities) == len(system.digits) == 897 - system.dropped


def test_the_context_matters(system: DigitsSystem) -> None:
    _, single = system.best_single_server()
    assert single < 0.65
    assert system.matched_success() > 0.95
    # What a logistic model of the context can reach lies well above the best server and above the arrival rate.
    assert system.fitted_success() > single + 0.2
    assert system.fitted_success() > system.arrival_rate
    assert system.slack() == pytest.approx(0.5)


def test_specialists_are_best_at_their_own_digits(system: DigitsSystem) -> None:
    probabilities = system.law.draw(1, np.random.default_rng(0)).probabilities
    for server, classifier in enumerate(CLASSIFIERS[:4]):
        own = np.isin(system.digits, classifier.digits)
        assert probabilities[own, server].mean() > 0.85
        assert probabilities[own].mean(axis=0).argmax() == server
        assert probabilities[~own, server].mean() < 0.6


def test_shape_name_and_identity(system: DigitsSystem) -> None:
    assert (system.servers, system.dimension) == (5, 30)
    assert system.max_feature_norm().value == pytest.approx(1.0)
    assert system.theta is None
    assert system.server_names == tuple(classifier.name for classifier in CLASSIFIERS)
    assert "best single server" in system.describe()
    settings = system.settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings["law"] == "digits_system"
    assert settings == digits_system().settings()
    assert settings["sha256"] != digits_system(seed=1, replicas=5).settings()["sha256"]


def test_a_fitted_truth_is_logistic() -> None:
    fitted = digits_system(truth="fit", replicas=5, load=0.8)
    assert fitted.theta is not None
    assert fitted.slack() == pytest.approx(0.2)
    assert fitted.assumptions()["WISE Theorem 6"].holds is True


def test_training_takes_seconds() -> None:
    start = time.process_time()
    digits_system(seed=2)
    assert time.process_time() - start < 6  # well below one second of one core where it was written


def test_without_scikit_learn_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"digits_system needs scikit-learn: install queuewise\[examples\]"):
        digits_system()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"load": 1.5}, "load must lie strictly between 0 and 1"),
        ({"components": 0}, "components must be a whole number of at least 1"),
        ({"components": 65}, "components must be at most 64"),
        ({"replicas": 0}, "replicas must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"impossible": "hide", "replicas": 1}, "impossible must be one of"),
        ({"truth": "guess", "replicas": 1}, "truth must be one of"),
    ],
)
def test_digits_refuse(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        digits_system(**{"replicas": 1, **change})  # type: ignore[arg-type]
