"""Named choices of reproductions, as the command line passes them on."""

from __future__ import annotations

import pytest

from queuewise.experiments import registry
from queuewise.experiments.registry import Outcome, Reproduction, Request, parse_settings

CHOICES = {"pool": 1000, "instance": "per run"}


def _reproduction(name: str, parameters: dict[str, object]) -> Reproduction:
    return Reproduction(name, "", "", "", 2, 0, 2, 0, module="queuewise.experiments.registry", parameters=parameters)


def test_settings_are_numbers_truth_values_or_words() -> None:
    given = parse_settings(["pool=500", "instance = one", "bound=1e-3", "kept=true", "word='5'"])
    assert given == {"pool": 500, "instance": "one", "bound": 1e-3, "kept": True, "word": "5"}


@pytest.mark.parametrize("text", ["pool", "=5", ""])
def test_a_setting_without_a_name_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^set: must have the form name=value"):
        parse_settings([text])


def test_what_is_set_reaches_the_reproduction_beside_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []

    def run(request: Request) -> Outcome:
        seen.append(request)
        return Outcome((), (), (), ())

    monkeypatch.setitem(registry.REPRODUCTIONS, "mine", _reproduction("mine", dict(CHOICES)))
    monkeypatch.setattr(registry, "run", run, raising=False)
    registry.reproduce("mine", parameters={"pool": 7})
    registry.reproduce("mine")
    assert [dict(request.parameters) for request in seen] == [{"pool": 7, "instance": "per run"}, CHOICES]


def test_an_unknown_setting_is_refused_with_the_nearest_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.REPRODUCTIONS, "mine", _reproduction("mine", dict(CHOICES)))
    monkeypatch.setitem(registry.REPRODUCTIONS, "bare", _reproduction("bare", {}))
    with pytest.raises(ValueError, match=r"^poll: no such parameter of mine; did you mean 'pool'\?$"):
        registry.reproduce("mine", parameters={"poll": 7})
    with pytest.raises(ValueError, match=r"^poll: bare has no parameters to set$"):
        registry.reproduce("bare", parameters={"poll": 7})
