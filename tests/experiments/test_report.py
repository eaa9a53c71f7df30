"""Tables, numbers, files and progress."""

import json
import math
from pathlib import Path

import pytest

from queuewise.experiments.report import Progress, Table, interval, output_folder, short, to_json, write_text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0.00"), (0.4213, "0.42"), (12.345, "12.3"), (1234.5, "1234"), (-0.004, "-0.0040"), (math.inf, "∞")],
)
def test_short(number: float, text: str) -> None:
    assert short(number) == text


def test_interval_has_as_many_decimals_as_its_width_has_a_use_for() -> None:
    assert interval(0.42, 0.3, 0.54) == "0.42 [0.30, 0.54]"
    assert interval(303.04, 297.9, 308.2) == "303.0 [297.9, 308.2]"
    assert interval(-0.0001, -0.4, 0.4) == "0.00 [-0.40, 0.40]"
    assert interval(1.0, -math.inf, math.inf) == "1.00 [-∞, ∞]"


def test_no_number_is_cut_in_a_narrow_terminal() -> None:
    cell = "128.8 [123.7, 134.0]"
    table = Table("A title [with brackets]", ("policy", *"abcd"), (("wise", cell, cell, cell, cell),), note="[a note]")
    text = table.text(width=60)
    assert text.count(cell) == 4 and "…" not in text
    assert "[with brackets]" in text and "[a note]" in text


def test_markdown_escapes_bars_and_joins_lines() -> None:
    assert "| a b | c\\|d |" in Table("t", ("a\nb", "c|d"), ()).markdown()


def test_json_has_null_for_what_is_no_number() -> None:
    assert json.loads(to_json({"a": [math.nan, math.inf, 1.5], "b": (1, "x")})) == {
        "a": [None, None, 1.5],
        "b": [1, "x"],
    }


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "a.txt", "one")
    path = write_text(tmp_path / "new" / "a.txt", "two")
    assert path.read_text() == "two"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]
    with pytest.raises(ValueError, match=r"cannot write to .*a\.txt"):
        write_text(path / "b.txt", "three")


def test_an_unwritable_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="out: cannot write to the folder"):
        output_folder(tmp_path / "file" / "out")


def test_time_left_follows_the_pace_of_the_latest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Progress(300, shown=False) as progress:
        advance = progress.begin("first")
        assert progress.seconds_left() is None
        now[0] = 40.0  # compiling
        for done in range(1, 101):  # found on disk: no time at all
            advance(done, 100)
        advance = progress.begin("second")
        for done in range(1, 101):
            now[0] += 0.5
            advance(done, 200)
        assert progress.done == 200
        assert progress.seconds_left() == pytest.approx(50.0)
