"""Parts of an experiment, played apart and merged, are the whole; what does not fit is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import queuewise as qw
from queuewise.experiments.sweep import Part, merge, parse_part, sweep

TEXT = """
[system]
law = "wise_figure_law"
q = 0.15
grid.slack = [0.05, 0.1]
fresh = true

[run]
rounds = 60
runs = 7

[[policy]]
rule = "random"

[[policy]]
rule = "q_ucb"
"""
QUEUES = """
[system]
service_rates = [1, 2]
load = 0.5

[run]
arrivals = 60
runs = 5

[[policy]]
rule = "jsq"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("text", [TEXT, QUEUES])
def test_merged_parts_are_the_whole(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    whole = sweep(file, tmp_path / "whole")
    for number in (1, 2, 3):
        assert f"Part {number} of 3" in sweep(file, tmp_path / f"{number}", part=Part(number, 3)).sentences[0]
    merged = merge([tmp_path / "3", tmp_path / "1", tmp_path / "2"], tmp_path / "all")
    assert merged.sentences == whole.sentences
    assert [table.rows for table in merged.tables] == [table.rows for table in whole.tables]
    for rows in (tmp_path / "whole").rglob("rows"):
        a, b = qw.load(rows), qw.load(tmp_path / "all" / rows.relative_to(tmp_path / "whole"))
        assert a.settings == b.settings
        for name in a.policies:
            for what in ("queue_length", "number_in_system"):
                if hasattr(a, what):
                    np.testing.assert_array_equal(getattr(a, what)[name], getattr(b, what)[name])
    # The merged folder goes on like any other.
    sweep(file, tmp_path / "all")


def test_an_interrupted_part_is_taken_up_again(tmp_path: Path, file: Path) -> None:
    part = Part(2, 2)
    sweep(file, tmp_path / "a", part=part)
    lost = sorted((tmp_path / "a" / "slack=0.1" / "rows" / "runs").iterdir())[-1]
    content = lost.read_bytes()
    lost.unlink()
    sweep(file, tmp_path / "b", part=Part(1, 2))
    with pytest.raises(ValueError, match=r"^merge: .*/a has 3 of 4 runs of 'slack=0.1'; finish it first"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    assert not (tmp_path / "all").exists()
    sweep(file, tmp_path / "a", part=part)
    assert lost.read_bytes() == content
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all").parts[0].result.runs == 7


def test_folders_of_different_seeds_are_pooled(tmp_path: Path, file: Path) -> None:
    for seed in (1, 8):
        sweep(file, tmp_path / str(seed), seed=seed)
    found = merge([tmp_path / "1", tmp_path / "8"], tmp_path / "all")
    for part in found.parts:
        assert (part.result.runs, part.result.settings["seed"]) == (14, [1, 8])
    again = json.loads((tmp_path / "all" / "summary.json").read_text())
    assert again["systems"][0]["runs"] == 14


@pytest.mark.parametrize(
    ("change", "part", "sentence"),
    [
        (
            ("rounds = 60", "rounds = 61"),
            Part(2, 2),
            r"has \[run\] rounds = 61, and .* 60: these do not fit",
        ),
        (("runs = 7", "runs = 7\nlevel = 0.5"), Part(2, 2), r"has \[run\] level = 0.5, and .* 0.95: these do not fit"),
        (("q = 0.15", "q = 0.5"), Part(2, 2), r"holds another experiment than .*system.q is 0.15 there, 0.5 here"),
        (("0.05, 0.1]", "0.05]"), Part(2, 2), r"has no system '.*', which .* has: these do not fit"),
        (("0.05, 0.1]", "0.05, 0.1, 0.15]"), Part(2, 2), r"has no system 'slack=0.15', which .* has: these do not fit"),
        (('"q_ucb"', '"q_ths"'), Part(2, 2), r"has the policies \['random', 'q_ths'\], and .*: these do not fit"),
        (
            ('"q_ucb"', '"q_ucb"\nexploration_scale = 2'),
            Part(2, 2),
            r"holds another experiment .*policies.q_ucb.options",
        ),
        (("", ""), Part(1, 2), r"has runs 0 to 2 of seed 1, and .* has runs 0 to 2 of seed 1: these overlap"),
        (("", ""), Part(1, 1), r"these overlap, and no run may count twice"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, file: Path, change: Any, part: Part, sentence: str) -> None:
    sweep(file, tmp_path / "a", part=Part(1, 2))
    file.write_text(TEXT.replace(*change))
    sweep(file, tmp_path / "b", part=part)
    with pytest.raises(ValueError, match=sentence):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_what_is_no_result_is_refused(tmp_path: Path, file: Path) -> None:
    sweep(file, tmp_path / "a", part=Part(1, 2))
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=r"^merge: .*b has no experiment.json"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    (tmp_path / "b" / "experiment.json").write_text("{}")
    with pytest.raises(ValueError, match=r"^merge: .*experiment.json is damaged"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    with pytest.raises(ValueError, match=r"^merge: name at least two folders"):
        merge([tmp_path / "a"], tmp_path / "all")


def test_parts_cover_all_runs_once() -> None:
    for total in (5, 7, 100):
        for of in (1, 2, 3, 5):
            runs = [run for number in range(1, of + 1) for run in Part(number, of).runs(total)]
            assert runs == list(range(total))
    assert parse_part(" 2/5 ") == (2, 5)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/2/3", "-1/2", "1.5/2"])
def test_a_part_is_so_many_of_so_many(text: str) -> None:
    with pytest.raises(ValueError, match=r"^part: must be such as 2/5"):
        parse_part(text)


def test_a_part_cannot_stop_at_a_width(tmp_path: Path, file: Path) -> None:
    file.write_text(TEXT.replace("runs = 7", "runs = 7\nhalf_width = 1"))
    with pytest.raises(ValueError, match=r"^part: .* stops at a half_width"):
        sweep(file, tmp_path / "a", part=Part(1, 2))
    file.write_text(TEXT)
    with pytest.raises(ValueError, match=r"^part: 7 runs cannot be cut into 9 parts"):
        sweep(file, tmp_path / "a", part=Part(1, 9))


def test_a_folder_with_other_runs_is_not_merged_into(tmp_path: Path, file: Path) -> None:
    for number in (1, 2, 3):
        sweep(file, tmp_path / f"{number}", part=Part(number, 3))
    before = qw.load(tmp_path / "3" / "slack=0.1" / "rows")
    with pytest.raises(ValueError, match=r"out: .*rows has runs 4 to 6 of seed 1 already, not all of which are merged"):
        merge([tmp_path / "1", tmp_path / "2"], tmp_path / "3")
    after = qw.load(tmp_path / "3" / "slack=0.1" / "rows")
    assert (after.first_run, after.runs) == (before.first_run, before.runs) == (4, 3)
    # One of the merged ones is as good as any other.
    assert merge([tmp_path / "1", tmp_path / "2"], tmp_path / "1").parts[0].result.runs == 4
    assert qw.load(tmp_path / "1" / "slack=0.1" / "rows").runs == 4


def test_parts_that_nobody_named_are_pointed_out(tmp_path: Path, file: Path) -> None:
    for number in (1, 2, 3):
        sweep(file, tmp_path / f"{number}", part=Part(number, 3))
    found = merge([tmp_path / "1", tmp_path / "3"], tmp_path / "some")
    assert found.sentences[-1] == (
        "Not all is here: of the 7 runs of seed 1 2 are in none of the folders, the first of them 2."
    )
    found = merge([tmp_path / "some", tmp_path / "2"], tmp_path / "all")
    assert not any("Not all" in sentence for sentence in found.sentences)
    for settings in (tmp_path / "2").rglob("settings.json"):
        settings.write_text(settings.read_text().replace(qw.__version__, "9.9.9"))
    found = merge([tmp_path / "1", tmp_path / "2", tmp_path / "3"], tmp_path / "mixed")
    assert found.sentences[-1] == f"The runs were played by the versions {qw.__version__} and 9.9.9."


def test_no_part_is_empty_though_another_is_not(tmp_path: Path, file: Path) -> None:
    with pytest.raises(ValueError, match="part: 7 runs cannot be cut into 8 parts"):
        sweep(file, tmp_path / "a", part=Part(8, 8))
