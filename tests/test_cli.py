"""The command line as a user meets it: outputs, exit codes, one sentence per mistake."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from queuewise import cli


def run(arguments: list[str]) -> int:
    """The exit code of the command line."""
    with pytest.raises(SystemExit) as stopped:
        cli.app(arguments)
    return int(stopped.value.code or 0)


GOOD = """
[system]
law = "wise_figure_law"
q = 0.15
slack = 0.1

[run]
rounds = 120
runs = 4

[[policy]]
rule = "random"

[[policy]]
rule = "q_ucb"
name = "bounds"
exploration_scale = 0.5
"""


def test_compare_writes_rows_figure_and_json(tmp_path: Path, capsys) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    assert run(["compare", str(file), "--out", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {entry["name"] for entry in found["policies"]} == {"random", "bounds"}
    assert found["policies"][0]["mean_regret"]["mean"] <= found["policies"][1]["mean_regret"]["mean"]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "figure.png",
        "figure.svg",
        "comparison.json",
        "rows",
    }
    # A rerun continues: nothing is simulated again, and the numbers are the same.
    assert run(["compare", str(file), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    # Another experiment does not overwrite this one.
    file.write_text(GOOD.replace("rounds = 120", "rounds = 121"))
    assert run(["compare", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "rounds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[system]", "[sistem]", "did you mean 'system'"),
        ("slack = 0.1", "slak = 0.1", "did you mean 'slack'"),
        ("slack = 0.1", "", "slack"),
        ("slack = 0.1", "slack = 1.5", "[system]"),
        ('"wise_figure_law"', '"wise_figur_law"', "did you mean 'wise_figure_law'"),
        ("rounds = 120", "rouns = 120", "did you mean 'rounds'"),
        ("rounds = 120", "rounds = 0", "rounds"),
        ('rule = "random"', 'rule = "randon"', "did you mean 'random'"),
        ("exploration_scale", "exploration_scal", "did you mean 'exploration_scale'"),
        ("q = 0.15", "q = ", "mine.toml"),
        ('name = "bounds"', 'name = "random"', "'random'"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(tmp_path: Path, capsys, old: str, new: str, sentence: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace(old, new, 1))
    assert run(["compare", str(file), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") <= 2
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reproduce", "wise-figure-2"], "did you mean 'wise-figure-1'"),
        (["reproduce", "wise-figure-1", "--runs", "1"], "runs: must be 0"),
        (["reproduce", "wise-figure-1", "--runs", "0", "--instances", "0"], "nothing to measure"),
        (["reproduce"], "name a reproduction"),
        (["compare", "nowhere.toml"], "cannot be read"),
        (["reproduze"], "No such command"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(capsys, arguments: list[str], sentence: str) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said


def test_an_unwritable_folder_is_one_sentence(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run(["reproduce", "digits", "--runs", "2", "--out", str(tmp_path / "file" / "out")]) == 2
    assert "cannot write to the folder" in capsys.readouterr().err


def test_lists_policies_and_reproductions(capsys) -> None:
    assert run(["policies", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 10
    assert run(["reproduce", "--list", "--json"]) == 0
    assert {entry["name"] for entry in json.loads(capsys.readouterr().out)} == {"wise-figure-1", "digits"}


def test_doctor_checks_itself(capsys) -> None:
    assert run(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["healthy"] is True


def test_figure_and_claims_are_written(tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    assert run(["reproduce", "wise-figure-1", "--runs", "2", "--instances", "2", "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {claim["verdict"] for claim in found["claims"]} <= {"holds", "does not", "undecided"}
    assert len(found["settings"]) == 18
    assert {"figure.png", "figure.svg", "figure-fresh-instances.png", "claims.json", "claims.md"} <= {
        path.name for path in out.iterdir()
    }


def test_help_is_quick_and_imports_no_numba() -> None:
    code = "import sys, queuewise.cli; sys.exit(any(m in sys.modules for m in ('numba', 'matplotlib', 'pyarrow')))"
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0
