"""Experiments in TOML files: what they may say beside the laws of the papers, and who wins."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.experiments.compare import compare, parse, read
from queuewise.scheduling.systems import Family

POLICY = [{"rule": "random"}]
TABLE = """context,server,probability,weight,one,two
a,x,0.9,3,1,0
a,y,0.3,3,0,1
b,x,0.4,1,1,1
b,y,0.8,1,0,2
"""
OUTCOMES = "size,age,fast,slow\n1,2,1,0\n2,1,0.5,0.9\n3,3,0.2,0.8\n"


def system(**keys: Any) -> dict[str, Any]:
    return {"system": keys, "policy": POLICY}


def test_a_table_in_the_file() -> None:
    found = parse(
        system(law="table", arrival_rate=0.5, features=[[[1.0], [0.5]]], probabilities=[[0.8, 0.6]]),
    )
    assert found.system.servers == 2 and (found.rounds, found.runs, found.seed) == (2000, 100, 1)


def test_a_table_from_csv_has_contexts_servers_features_and_weights(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(TABLE)
    found = parse(system(law="table", file="table.csv", arrival_rate=0.4), tmp_path).system
    law = found.law  # type: ignore[union-attr]
    np.testing.assert_allclose(law.probabilities, [[0.9, 0.3], [0.4, 0.8]])
    np.testing.assert_allclose(law.weights, [0.75, 0.25])
    np.testing.assert_allclose(law.features[1], [[1, 0], [1, 2]])  # [feature, server]


def test_outcomes_from_csv(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(OUTCOMES)
    keys = {"law": "outcomes", "file": "log.csv", "load": 0.5}
    columns = {"feature_columns": ["size", "age"], "outcome_columns": ["fast", "slow"]}
    found = parse(system(**keys, **columns), tmp_path).system
    np.testing.assert_allclose(found.law.probabilities, [[1, 0], [0.5, 0.9], [0.2, 0.8]])  # type: ignore[union-attr]


def test_fresh_makes_a_family() -> None:
    assert isinstance(parse(system(law="wise_figure_law", q=0.15, slack=0.1, fresh=True)).system, Family)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TABLE.replace("b,y,0.8,1,0,2\n", ""), "no line for context 'b' and server 'y'"),
        (TABLE + "b,y,0.8,1,0,2\n", "two lines for one context and server"),
        (TABLE.replace("b,y,0.8,1", "b,y,0.8,2"), "more than one weight"),
        (TABLE.replace("0.9", "high"), "line 2 .* has 'high' in column 'probability'"),
        (TABLE.replace("0.9,3,1,0", "0.9,3,1"), "line 2 .* has 5 values, not 6"),
        (TABLE.replace("server", "sever"), "no column 'server'; did you mean 'sever'"),
        ("context,server,probability\na,x,0.9\n", "no feature column"),
        ("context,server\n", "needs a line of column names and at least one more line"),
    ],
)
def test_a_mistake_in_a_csv_file_names_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        parse(system(law="table", file="table.csv", arrival_rate=0.4), tmp_path)


@pytest.mark.parametrize(
    ("described", "sentence"),
    [
        ({"policy": POLICY}, r"\[system\] is missing"),
        (system(), r"\[system\] law is missing"),
        (system(law="digits", fresh=True), r"\[system\] fresh: law 'digits' has one instance only"),
        (system(law="uniform_law", fresh=True, seed=3), r"\[system\] seed: must be left out"),
        (system(law="uniform_law", fresh="yes"), r"\[system\] fresh: must be true or false"),
        (system(law="table", arrival_rate=0.5), r"\[system\] features: is missing \(or file"),
        (system(law="table", arrival_rate=0.5, file="nowhere.csv"), r"\[system\] file: cannot read"),
        ({**system(law="uniform_law"), "policy": []}, r"\[\[policy\]\] is missing"),
        ({**system(law="uniform_law"), "policy": [{"rule": "random", "ties": "x"}]}, r"\[\[policy\]\] 1 ties"),
        ({**system(law="uniform_law"), "policy": [{"name": "a"}]}, r"\[\[policy\]\] 1 rule is missing"),
        ({**system(law="uniform_law"), "run": {"half_width": 0}}, r"\[run\] half_width"),
        ({**system(law="uniform_law"), "run": {"runs": 1}}, r"\[run\] runs: must be a whole number of at least 2"),
        ({**system(law="uniform_law"), "run": 3}, r"\[run\] must be a table"),
    ],
)
def test_a_mistake_names_table_and_key(described: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse(described)


def test_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"mine\.toml: is not UTF-8"):
        read(tmp_path / "mine.toml")


EXPERIMENT = """
[system]
law = "table"
arrival_rate = 0.5
features = [[[1.0], [-1.0]]]
probabilities = [[0.9, 0.2]]

[run]
rounds = 300
runs = 6

[[policy]]
rule = "random"

[[policy]]
rule = "q_ths"
"""


def test_a_clear_winner_is_said_with_its_interval(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(EXPERIMENT.replace("q_ths", "oracle").replace("runs = 6", "runs = 20"))
    found = compare(tmp_path / "mine.toml", tmp_path / "out")
    assert found.winner == "oracle" and found.sentence.startswith("oracle wins: ")
    assert all(path.exists() for path in found.files)
    behind = found.standings[1].behind
    assert behind is not None and behind.low > 0


def test_too_few_runs_name_no_winner(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    assert "6 runs cannot tell it from random" in compare(tmp_path / "mine.toml", tmp_path / "out").sentence
