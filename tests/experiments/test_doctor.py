"""The self-check, and that it notices what is wrong."""

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from queuewise.experiments import doctor


@pytest.mark.parametrize(("arrival_rate", "success"), [(0.5, 0.75), (0.2, 0.9), (0.6, 0.65)])
def test_the_exact_mean_is_that_of_the_chain(arrival_rate: float, success: float) -> None:
    """Independent of the closed form: up with probability a(1-s), down with s(1-a), so P(q) by detailed balance."""
    up, down = arrival_rate * (1 - success), success * (1 - arrival_rate)
    weights = [1.0, arrival_rate / down]
    weights += [weights[1] * (up / down) ** n for n in range(1, 3000)]
    mean = sum(q * weight for q, weight in enumerate(weights)) / sum(weights)
    assert doctor.geo_geo_1_mean(arrival_rate, success) == pytest.approx(mean)


def test_what_the_service_needs_is_the_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = [re.split(r"[>=;\s]", line)[0] for line in project["optional-dependencies"]["serve"]]
    assert list(doctor.SERVICE) == [name for name in extra if name != "uvloop" or sys.platform != "win32"]


def test_health_and_what_spoils_it() -> None:
    report = doctor.examine(runs=40)
    assert report.healthy and report.sentence.startswith("All is well")
    assert replace(report, deviations=6.0).sentence.startswith("Not all is well: the simulated queue")
    assert not replace(report, as_oracle=False).healthy
    assert not replace(report, routed_deviations=-6.0).healthy
    assert not replace(report, loaded_next=False).healthy
    without = replace(report, service=report.service | {"uvicorn": "not installed"})
    assert without.healthy and without.lacking == ["uvicorn"] and not without.as_json()["serve"]["installed"]
    assert "the extra serve lacks uvicorn" in without.tables()[1].text(100)
    assert len(report.tables()) == 3 and report.as_json()["self_check"]["agrees"]
