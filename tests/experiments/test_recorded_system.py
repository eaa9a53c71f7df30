"""The table ``[system.recorded]`` of a TOML file."""

import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.experiments.recorded import KEYS, recorded_system
from queuewise.scheduling import read_outcomes

CSV = "question,topic,length,gpt,llama\nq1,law,10,1,0.2\nq2,maths,20,0.3,0.9\nq3,law,15,0.8,0\nq4,maths,12,0,0\n"
TABLE = """
[system.recorded]
file = "jobs.csv"
id = "question"
features = ["topic", "length"]
outcomes = ["gpt", "llama"]
least_count = 1
load = 0.7
impossible = "drop"
"""


def described(text: str, **changed: Any) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(text)["system"]["recorded"]
    return {key: value for key, value in {**table, **changed}.items() if value is not None}


def test_a_table_is_the_system_that_python_makes(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(CSV)
    found = recorded_system(described(TABLE), tmp_path)
    record = read_outcomes(tmp_path / "jobs.csv", id="question", features=["topic", "length"], least_count=1)
    assert found.settings() == record.system(load=0.7, impossible="drop").settings()
    assert found.server_names == ("gpt", "llama") and found.job_ids == ("q1", "q2", "q3")
    assert found.slack() == pytest.approx(0.3)


def test_a_second_file_and_giving_up(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(CSV)
    np.savez(tmp_path / "more.npz", question=np.array(["q1", "q2", "q3", "q4"]), X=np.arange(8.0).reshape(4, 2))
    table = described(
        TABLE,
        feature_file="more.npz",
        features=["X*"],
        impossible="attempts",
        max_attempts=5,
        scale="none",
        name="mine",
    )
    found = recorded_system(table, tmp_path)
    assert found.max_attempts == 5 and found.feature_names == ("X1", "X2") and found.name == "mine"
    assert found.max_feature_norm().value > 1


def test_a_file_is_looked_for_beside_the_toml_file_and_among_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, here = tmp_path / "data", tmp_path / "here"
    data.mkdir()
    here.mkdir()
    (here / "jobs.csv").write_text(CSV)
    monkeypatch.chdir(here)
    monkeypatch.delenv("QUEUEWISE_DATA", raising=False)
    with pytest.raises(ValueError, match=r"\[system.recorded\] file: .*jobs.csv: cannot be read \(no such file\)"):
        recorded_system(described(TABLE), data)
    monkeypatch.setenv("QUEUEWISE_DATA", os.fspath(here))
    assert recorded_system(described(TABLE), data).servers == 2


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"file": None}, r"^\[system.recorded\] file: is missing"),
        ({"file": 3}, r"^\[system.recorded\] file: must be a text, not 3"),
        ({"fil": "x"}, r"^\[system.recorded\] fil: no such key; did you mean 'file'"),
        ({"shared": True}, r"^\[system.recorded\] shared: no such key"),
        ({"features": 3}, r"^\[system.recorded\] features: must be a column or a list of columns, not 3"),
        ({"features": ["size"]}, r"^\[system.recorded\] file: .*jobs.csv: features: there is no column 'size'"),
        ({"jobs": 2.5}, r"^\[system.recorded\] jobs: must be a whole number, not 2.5"),
        ({"jobs": True}, r"^\[system.recorded\] jobs: must be a whole number"),
        ({"load": "high"}, r"^\[system.recorded\] load: must be a number, not 'high'"),
        ({"standardise": 1}, r"^\[system.recorded\] standardise: must be true or false"),
        ({"load": 1.5}, r"^\[system.recorded\] load must lie strictly between 0 and 1"),
        ({"load": None}, r"^\[system.recorded\] arrival_rate or load must be given"),
        ({"impossible": "error"}, r"^\[system.recorded\] outcomes hold 1 of 4 jobs that no server ever did"),
        ({"impossible": "attempts"}, r"^\[system.recorded\] max_attempts must be given"),
        ({"components": 9}, r"^\[system.recorded\] components must be at most 2"),
        ({"encoding": "x"}, r"^\[system.recorded\] encoding: there is none called 'x'"),
        ({"outcomes": ["gpt", "length"], "features": []}, r"\[system.recorded\] file: .*line 2: column 'length' is 10"),
    ],
)
def test_a_mistake_names_table_and_key(tmp_path: Path, changed: dict[str, Any], sentence: str) -> None:
    (tmp_path / "jobs.csv").write_text(CSV)
    with pytest.raises(ValueError, match=sentence) as caught:
        recorded_system(described(TABLE, **changed), tmp_path)
    assert "\n" not in str(caught.value)


def test_every_argument_has_a_key() -> None:
    assert {"file", "features", "outcomes", "load", "max_attempts", "encoding", "without_success"} <= set(KEYS)
    assert not {"weights", "shared", "path"} & set(KEYS) and len(KEYS) == len(set(KEYS))
