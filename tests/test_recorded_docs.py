"""The page about recorded outcomes: what it tells a reader to type does what it says."""

import contextlib
import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from queuewise.cli import app
from queuewise.experiments.recorded import recorded_system
from queuewise.scheduling import read_outcomes
from tests.pages import DOCS, blocks, typed_in

PAGE = (DOCS / "recorded-outcomes.md").read_text(encoding="utf-8")
BLOCKS = blocks(PAGE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's CSV file."""
    found = tmp_path_factory.mktemp("page")
    with contextlib.chdir(found):
        exec(BLOCKS[0][1], {})
    return found


def test_every_block_of_python_prints_what_the_page_says(folder: Path) -> None:
    names, printed, compared = typed_in(PAGE, folder)
    assert compared == 3
    # What the page plays last is a ranking that a learner does not lead: the router knows the record.
    assert printed.startswith("RecordedOutcomes") and names["result"].rank()[0].name == "router"  # type: ignore[attr-defined]


def test_the_toml_file_is_the_system_of_the_page(folder: Path) -> None:
    text = next(text for kind, text in BLOCKS if kind == "toml")
    system = recorded_system(tomllib.loads(text)["system"]["recorded"], folder)
    record = read_outcomes(folder / "evaluations.csv", id="request", features=["topic", "words"], outcomes="model-*")
    assert system.settings() == record.system(load=0.9, impossible="attempts", max_attempts=10).settings()
    assert f"{system.arrival_rate:.2f} jobs per round" in PAGE


def test_the_command_of_the_page_ranks_as_the_page_says(folder: Path) -> None:
    # A quarter of the rounds and a fifth of the runs, which is enough to tell who drowns.
    text = next(text for kind, text in BLOCKS if kind == "toml").replace("2000", "500").replace("runs = 20", "runs = 4")
    (folder / "mine.toml").write_text(text)
    command = re.search(r"^    queuewise (compare .*)$", PAGE, re.MULTILINE)
    assert command is not None
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, command[1].split())
    assert done.exit_code == 0, done.output
    found = json.loads((folder / "out" / "mine" / "comparison.json").read_text())
    order = [policy["name"] for policy in found["policies"]]
    assert set(order[:2]) == {"cqb_opt", "acqb"} and set(order[2:]) == {"q_ucb", "random"}


REFUSED = [
    ("a missing cell", "r001,law,300,0.8", "r001,law,300,", "utf-8"),
    ("a score that is no number", "r001,law,300,0.8", "r001,law,300,good", "utf-8"),
    ("a score out of range", "r001,law,300,0.8", "r001,law,300,80", "utf-8"),
    ("an id twice", "r001,law", "r000,law", "utf-8"),
    ("a wrong header", "topic", "topics", "utf-8"),
    ("a server that never did anything", r"(?m),[0-9.]+$", ",0", "utf-8"),
    ("another encoding", "r001,law", "r001,lé", "cp1252"),
]


@pytest.mark.parametrize(("what", "old", "new", "encoding"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_refused_is_refused_in_these_words(
    folder: Path, tmp_path: Path, what: str, old: str, new: str, encoding: str
) -> None:
    text, count = re.subn(old, new, (folder / "evaluations.csv").read_text())
    assert count
    (tmp_path / "evaluations.csv").write_bytes(text.encode(encoding))
    row = re.search(rf"^\| {re.escape(what)} \| `(.*)` \|$", PAGE, re.MULTILINE)
    assert row is not None
    with contextlib.chdir(tmp_path), pytest.raises(ValueError) as caught:
        read_outcomes("evaluations.csv", id="request", features=["topic", "words"], outcomes="model-*")
    assert str(caught.value) == row[1]


def test_every_row_of_the_refusals_is_tried() -> None:
    rows = re.findall(r"^\| (.*?) \| `evaluations\.csv: .*` \|$", PAGE, re.MULTILINE)
    assert rows == [row[0] for row in REFUSED]
