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
    assert {"dispatch.lased", "scheduling.wise"} <= set(json.loads(capsys.readouterr().out))
    assert run(["reproduce", "--list", "--json"]) == 0
    names = {entry["name"] for entry in json.loads(capsys.readouterr().out)}
    assert {"wise-figure-1", "digits", "lased-exploration"} <= names


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


LOG = "time,tokens,server\n0,4,a\n1,2,b\n2,2,b\n"


def test_replay_prints_a_table_and_json_and_writes_files(tmp_path: Path, capsys) -> None:
    (tmp_path / "log.csv").write_text(LOG)
    few = ["--size", "tokens", "--policy", "jsq", "--policy", "power_of_d(choices=1)", "--runs", "2"]
    arguments = ["replay", str(tmp_path / "log.csv"), "--rates", "1,2", *few]
    assert run(arguments) == 0
    said = capsys.readouterr().out
    assert "With jsq the mean delay would have been 2.00 s, 20 % above" in " ".join(said.split())
    assert "power_of_d(choices=1)" in said and "load 0.889 over the whole log" in said
    assert run([*arguments, "--json", "--out", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {entry["name"]: entry["verdict"] for entry in found["policies"]}["jsq"] == "stable"
    assert found["oracle"]["mean_delay"]["mean"] == pytest.approx(5 / 3)
    assert all(Path(path).exists() for path in found["files"]) and len(found["files"]) == 5


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        (LOG, ["--rates", "1,1"], "0.67 too little (load 1.33)"),
        (LOG, ["--rates", "1,x"], "rates must be numbers or fractions"),
        (LOG, ["--rates", "1,2", "--policy", "lasd"], "did you mean 'lased'"),
        (LOG, ["--rates", "1,2", "--slots", "1,b"], "slots must be whole numbers"),
        (LOG, ["--rates", "1,2", "--load", "0"], "load must be positive"),
        (LOG, ["--rates", "1,2", "--where", "server"], "where: must be COLUMN=VALUE"),
        (LOG, ["--time", "tme"], "did you mean 'time'"),
        (LOG, ["--rates-file", "nowhere.csv"], "cannot be read"),
        (LOG, ["--rates", "1,2", "--runs", "many"], "--runs"),
        (LOG.replace("2,2,b", "0.5,2,b"), ["--rates", "1,2"], "line 4: column 'time' goes back in time"),
        (LOG.replace("1,2,b", "1,0,b"), ["--rates", "1,2"], "line 3: column 'tokens' is 0"),
        ("", ["--rates", "1,2"], "is empty"),
    ],
)
def test_a_mistake_in_a_replay_is_one_sentence(
    tmp_path: Path, capsys, text: str, arguments: list[str], sentence: str
) -> None:
    (tmp_path / "log.csv").write_text(text)
    assert run(["replay", str(tmp_path / "log.csv"), "--size", "tokens", *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") <= 2
    assert "Traceback" not in said


def test_a_replay_sorts_and_drops_on_request(tmp_path: Path, capsys) -> None:
    (tmp_path / "log.csv").write_text("time,size\n3,1\n0,1\n1,0\n9,2\n")
    arguments = ["replay", str(tmp_path / "log.csv"), "--rates", "1/2,2", "--policy", "jsq", "--runs", "1"]
    assert run(arguments) == 2
    assert run([*arguments, "--sort"]) == 2
    assert run([*arguments, "--sort", "--drop-bad", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["log"]["jobs"] == 3 and found["log"]["dropped"] == {"lines with 'size' not above 0": 1}


def test_a_sweep_is_played_in_parts_merged_and_reported(tmp_path: Path, capsys) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace("slack = 0.1", "grid.slack = [0.1, 0.15]"))
    assert run(["sweep", str(file), "--list"]) == 0
    assert "slack=0.15" in capsys.readouterr().out
    for part in ("1/2", "2/2"):
        assert run(["sweep", str(file), "--part", part, "--out", str(tmp_path / part[0])]) == 0
    merged = ["sweep", "--merge", str(tmp_path / "1"), "--merge", str(tmp_path / "2"), "--out", str(tmp_path / "all")]
    capsys.readouterr()
    assert run([*merged, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(system["name"], system["runs"]) for system in found["systems"]] == [("slack=0.1", 4), ("slack=0.15", 4)]
    assert run(["report", str(tmp_path / "all")]) == 0
    page = tmp_path / "all" / "report.html"
    assert str(page) in capsys.readouterr().out
    assert "slack=0.15" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare"], "file: name a TOML file"),
        (["sweep"], "file: name a TOML file that describes systems and policies, or folders to --merge"),
        (["sweep", "mine.toml", "--part", "3/2"], "part: must be such as 2/5"),
        (["sweep", "mine.toml", "--merge", "a"], "merge: takes folders alone"),
        (["sweep", "--merge", "a", "--merge", "b"], "out: name a folder for what is merged"),
        (["sweep", "--merge", "a", "--merge", "b", "--out", "c"], "merge: a has no experiment.json"),
        (["report", "nowhere"], "nowhere"),
        (["reproduce", "wise-figure-1", "--set", "pool=3"], "pool: wise-figure-1 has no parameters to set"),
        (["reproduce", "cqb-eta-2-figure-1", "--set", "poll=3"], "did you mean 'pool'"),
    ],
)
def test_a_mistake_about_files_and_folders_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.strip().splitlines()) == 1


def test_the_schema_is_printed(capsys) -> None:
    assert run(["compare", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "An experiment of Queuewise"
