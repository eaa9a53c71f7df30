"""Theory and exact numbers of a user's own systems, as the command line prints them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from queuewise import cli, dispatch, scheduling
from queuewise.experiments.description import parse_systems
from queuewise.experiments.evaluate import bounds, exact, magnitude
from queuewise.scheduling.exact import geo_geo_1_mean

QUEUES = {"service_rates": [5, 10], "load": 0.5}
#: Features of norm 1, so that the theorems' assumptions can be met.
PROPER = {"law": "table", "features": [[[1.0, 0.0], [0.0, 1.0]]], "theta": [0.9, 0.2], "arrival_rate": 0.2}


def cells(**system: Any) -> Any:
    return parse_systems({"system": system})


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as stopped:
        cli.app(arguments)
    return int(stopped.value.code or 0)


def test_bounds_are_those_of_the_theory() -> None:
    found = bounds(cells(**QUEUES), {"queue": 20, "rate_bounds": [1, 20]})
    expected = dispatch.theory.bounds(dispatch.System(7.5, [5, 10]), queue=20, rate_bounds=[1, 20])
    told = found.results["systems"][0]["bounds"]
    assert [(entry["name"], entry["value"]) for entry in told] == [(bound.name, bound.value) for bound in expected]
    assert any(entry["natural_logarithm"] for entry in told)
    (line,) = found.sentences
    assert f"{sum(bound.holds is True for bound in expected)} of {len(expected)} bounds are met" in line
    serving = bounds(cells(**PROPER), {"rounds": 100})
    values = {entry["source"]: entry["value"] for entry in serving.results["systems"][0]["bounds"]}
    radius = scheduling.theory.bounds(cells(**PROPER)[0].system, 100)[0].value
    assert values["WISE (9)"] == radius > 0


def test_failing_assumptions_stand_in_the_table_and_leave_no_number() -> None:
    found = bounds(cells(**QUEUES, service="deterministic"), {})
    table, assumptions = found.tables
    assert all(row[1] == "" for row in table.rows)
    assert all("needs: service is exponential" in row[2] for row in table.rows)
    verdicts = {row[0]: row[1] for row in assumptions.rows}
    assert verdicts["there are two servers"] == "holds"
    assert [name for name, verdict in verdicts.items() if verdict == "does not"] == [
        "service is exponential of mean size 1"
    ]


@pytest.mark.parametrize(
    ("value", "log", "text"),
    [
        (None, False, ""),
        (0.25, False, "0.25"),
        (math.log(0.25), True, "0.25"),
        (-327.65, True, "5.1e-143"),
        (1000.0, True, "2.0e+434"),
        (1.0e8, True, "10^4.34e+07"),
        (-math.inf, True, "0"),
        (math.inf, True, "∞"),
    ],
)
def test_logarithms_are_shown_as_powers_of_ten(value: float | None, log: bool, text: str) -> None:
    assert magnitude(value, log) == text


def test_exact_numbers_of_routing() -> None:
    found = exact(cells(**QUEUES))
    told = {entry["policy"]: entry for entry in found.results["systems"][0]["policies"]}
    law = dispatch.exact.stationary(dispatch.System(7.5, [5, 10]), "jsq")
    assert told["jsq"]["mean_number"] == law.mean_number
    assert told["sed"]["disagreement_with_sed"] == 0.0
    named = exact(cells(**QUEUES), [dispatch.sed_ratio(ratio=2)])
    assert [row[0] for row in named.tables[0].rows] == ["sed_ratio(ratio=2, ties='lowest')"]
    # A rule that no law exists of is said in the note, or refused where it was asked for.
    assert "random: policy: sends server" in exact(cells(service_rates=[5, 10], load=0.9)).tables[0].note
    with pytest.raises(ValueError, match=r"^parallel queues: policy"):
        exact(cells(service_rates=[5, 10], load=0.9), ["random"])


def test_exact_numbers_of_serving() -> None:
    one = {"law": "table", "features": [[[1.0]]], "probabilities": [[0.8]], "arrival_rate": 0.5}
    found = exact(cells(**one)).results["systems"][0]
    assert found["mean"] == pytest.approx(geo_geo_1_mean(0.5, 0.8))
    second = exact(cells(**one), rounds=2).results["systems"][0]
    assert second["probabilities"][:2] == pytest.approx([0.5, 0.5])  # empty in round 1, one arrival or none
    with pytest.raises(ValueError, match=r"^table: policy: only rules of dispatching"):
        exact(cells(**one), ["jsq"])


def test_a_family_has_no_theory() -> None:
    with pytest.raises(ValueError, match="fresh = true draws another system in every run"):
        bounds(cells(law="uniform_law", fresh=True), {})


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--set", "service_rates=[5, 10]", "--set", "load=0.5"]
    assert run(["bounds", *given, "--at", "queue=20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["systems"][0]["bounds"][0]["source"].startswith("LASED")
    (tmp_path / "mine.toml").write_text("[system]\nservice_rates = [5, 10]\ngrid.load = [0.3, 0.5]\n")
    assert run(["exact", str(tmp_path / "mine.toml"), "--policy", "power_of_d(choices=1)", "--json"]) == 0
    assert [entry["system"] for entry in json.loads(capsys.readouterr().out)["systems"]] == ["load=0.3", "load=0.5"]
    assert run(["bounds", *given]) == 0
    assert "LASED Lemma 8" in capsys.readouterr().out


def test_a_law_that_is_far_off_is_not_called_exact() -> None:
    chances = [0.5 + 0.005 * i for i in range(40)]
    many = cells(
        law="table", features=[[[p]] for p in chances], probabilities=[[p] for p in chances], arrival_rate=0.57
    )
    with pytest.raises(ValueError, match="system has too many classes of jobs for an exact law in the long run"):
        exact(many)
    assert exact(many, rounds=2).results["systems"][0]["mean"] == pytest.approx(0.57)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bounds"], "file: name a TOML file with a system, or describe one with --set"),
        (["exact", "a.toml", "--set", "load=1"], "and not both"),
        (["exact", "a.toml"], "a.toml: cannot be read"),
        (["bounds", "--set", "service_rates"], "set: must have the form name=value"),
        (["bounds", "--set", "service_rates=[5,10]", "--set", "load=0.5", "--at", "queu=3"], "did you mean 'queue'"),
        (["bounds", "--set", "service_rates=[5,10]", "--set", "load=0.5", "--at", "queue=0"], "at: queue must be"),
        (["bounds", "--set", "service_rates=[5,10]", "--set", "lod=0.5"], "lod: no such key"),
        (["exact", "--set", "law=uniform_law", "--policy", "jsqq"], "did you mean 'jsq'"),
        (["exact", "--set", "service_rates=[5,10]", "--set", "load=0.5", "--policy", "lased"], "lased"),
    ],
)
def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
