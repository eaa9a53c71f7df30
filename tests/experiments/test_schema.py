"""The JSON Schema of experiments agrees with the code that reads them."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from queuewise import dispatch, scheduling
from queuewise.experiments.description import LAWS, RULES, Run, parse
from queuewise.experiments.schema import described_parameters, schema
from tests.pages import DOCS, blocks

jsonschema = pytest.importorskip("jsonschema")
SCHEMA = schema()
VALID = jsonschema.Draft202012Validator(SCHEMA)


def complaints(described: Any) -> list[str]:
    return [error.message for error in VALID.iter_errors(described)]


def test_it_is_a_schema_and_json() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_every_law_rule_and_key_is_in_it() -> None:
    text = json.dumps(SCHEMA)
    for name in [*LAWS, *(rule for register in RULES.values() for rule in register)]:
        assert json.dumps({"const": name})[1:-1] in text, name
    assert set(SCHEMA["$defs"]["run"]["properties"]) == set(Run._fields)


GOOD = [
    '[system]\nlaw = "wise_figure_law"\nq = 0.5\ngrid.slack = [0.05, 0.1]\nfresh = true\n[run]\nrounds = 10\nover = [1, 5]\n',
    '[system]\nlaw = "uniform_law"\n[run]\nbaseline = "random"\nmethod = "bonferroni"\nhalf_width = 2\n',
    '[system]\nservice_rates = [5, "10/3"]\nload = 0.5\nservice = { law = "pareto", shape = 3 }\narrivals = "regular"\n',
    "[[system]]\nservice_rates = [5, 10]\ngrid.load = [0.5, 0.8]\nslots = [1, 2]\n",
    '[system]\nlaw = "table"\nfeatures = [[[1.0]]]\nprobabilities = [[0.9]]\narrival_rate = 0.5\nmax_attempts = 3\n',
]
BAD = [
    '[system]\nlaw = "wise_figure_law"\nq = 0.5\nslak = 0.1\n',
    '[system]\nlaw = "wise_figur_law"\nq = 0.5\nslack = 0.1\n',
    '[system]\nlaw = "wise_figure_law"\nq = "half"\nslack = 0.1\n',
    '[system]\nlaw = "wise_figure_law"\nq = 0.5\n',
    "[system]\nservice_rates = [5, 10]\nload = 0.5\narrival_rate = 2\n",
    "[system]\nservice_rates = [5, 10]\n",
    '[system]\nservice_rates = [5, 10]\nload = 0.5\nservice = "pareto"\n',
    '[system]\nlaw = "uniform_law"\n[run]\nruns = 1\n',
    '[system]\nlaw = "uniform_law"\n[run]\nlevel = 95\n',
    '[system]\nlaw = "uniform_law"\nfresh = "yes"\n',
    '[system]\nlaw = "table"\nload = 0.5\n',
    "[system.recorded]\nload = 0.5\n",
]


@pytest.mark.parametrize("text", GOOD)
def test_what_the_code_takes_the_schema_takes(text: str) -> None:
    described = {**tomllib.loads(text), "policy": [{"rule": "random"}]}
    parse(described)
    assert complaints(described) == []


@pytest.mark.parametrize("text", BAD)
def test_what_the_code_refuses_the_schema_refuses(text: str) -> None:
    described = {**tomllib.loads(text), "policy": [{"rule": "random"}]}
    with pytest.raises(ValueError):
        parse(described)
    assert complaints(described)


@pytest.mark.parametrize(
    ("policy", "taken"),
    [
        ({"rule": "acqb", "samples": 3, "radius": "wise"}, True),
        ({"rule": "acqb", "grid": {"samples": [1, 2]}, "name": "mine"}, True),
        ({"rule": "lased", "ratio_bounds": [0.05, 20]}, True),
        ({"rule": "power_of_d", "choices": 3}, True),
        ({"rule": "mine.py:steady", "whatever": 3}, True),
        ({"rule": "acqb", "sample": 3}, False),
        ({"rule": "acqb", "grid": {"sample": [3]}}, False),
        ({"rule": "acbq"}, False),
        ({"samples": 3}, False),
        ({"rule": "random", "samples": 3}, False),
    ],
)
def test_rules_and_their_options(policy: dict[str, Any], taken: bool) -> None:
    described = {"system": {"law": "digits"}, "policy": [policy]}
    assert (complaints(described) == []) == taken


def test_every_option_with_its_default_is_taken() -> None:
    for model in RULES.values():
        for rule, factory in model.items():
            try:
                defaults = factory().defaults
            except (TypeError, ValueError):
                continue
            options = {key: value for key, value in defaults.items() if isinstance(value, bool | int | float | str)}
            policy = {"rule": rule, **options}
            assert complaints({"system": {"law": "digits"}, "policy": [policy]}) == [], rule


def test_examples_in_the_docs_are_taken() -> None:
    found = 0
    for page in DOCS.glob("*.md"):
        for kind, block in blocks(page.read_text(encoding="utf-8")):
            described = tomllib.loads(block) if kind == "toml" else {}
            if "policy" in described:
                assert complaints(described) == [], page.name
                found += 1
    assert found >= 1


def test_what_docstrings_say_of_parameters() -> None:
    said = described_parameters(scheduling.wise_figure_law)
    assert said["q"].startswith("Share of jobs whose best server")
    assert said["low_interval"].startswith("Interval of slow pairs")
    assert described_parameters(scheduling.uniform_law)["slack"].startswith("*Context-wise* slack")
    assert "ValueError" not in described_parameters(dispatch.System)
    assert "fractions" in described_parameters(dispatch.System)["service_rates"]
