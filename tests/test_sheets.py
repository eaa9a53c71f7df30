"""CSV files read cell by cell: places, patterns, encodings. (Broken files: tests/scheduling/test_recorded.py.)"""

from pathlib import Path

import pytest

from queuewise.sheets import SheetError, chosen, finite, is_number, read_sheet


def test_lines_are_those_on_which_records_begin(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('x,y\n\n1,"two\nlines"\n\n2,b\n')
    sheet = read_sheet(path)
    assert [(row.line, row.values) for row in sheet.rows] == [(3, ["1", "two\nlines"]), (6, ["2", "b"])]
    assert sheet.number(sheet.rows[1], "x") == 2.0
    assert str(sheet.bad(sheet.rows[1], "y", "is odd")) == f"{path}: line 6: column 'y' is odd"


@pytest.mark.parametrize(("mark", "header"), [(",", ["a", "b;c"]), (";", ["a,b", "c"]), ("\t", ["a", "b"])])
def test_the_delimiter_is_the_one_that_the_header_has_most_of(tmp_path: Path, mark: str, header: list[str]) -> None:
    path = tmp_path / "a.csv"
    quoted = [f'"{name}"' if set(",;") & set(name) else name for name in header]
    path.write_text(f"{mark.join(quoted)}\n{mark.join(['1'] * len(header))}\n")
    assert read_sheet(path).columns == header


def test_uneven_records_and_an_index_without_a_name_are_for_the_caller_to_judge(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",x\n0,1\n1\n2,3,4\n")
    sheet = read_sheet(path, strict=False)
    assert sheet.columns == ["", "x"]
    assert [sheet.uneven(row) for row in sheet.rows] == [
        "",
        "has 1 value for 2 columns; the first without one is 'x'",
        "has 3 values for 2 columns",
    ]
    with pytest.raises(SheetError, match="line 1: column 1 of 2 has no name"):
        read_sheet(path)


def test_patterns_take_letters_of_names_as_they_are() -> None:
    known = ["gpt-4", "gpt-4 (n=1)", "a[b]", "a.b", "axb", "b*"]
    assert chosen("gpt*", known, "outcomes", "f") == ["gpt-4", "gpt-4 (n=1)"]
    assert chosen(["*(n=1)", "gpt-?"], known, "outcomes", "f") == ["gpt-4 (n=1)", "gpt-4"]
    assert chosen("a?b", known, "outcomes", "f") == ["a.b", "axb"]
    assert chosen("a[b]", known, "outcomes", "f") == ["a[b]"]
    # A column of this very name is meant, not a pattern.
    assert chosen("b*", [*known, "bc"], "outcomes", "f") == ["b*"]
    with pytest.raises(SheetError, match=r"^f: outcomes: there is no column 'c\*'"):
        chosen("c*", known, "outcomes", "f")


def test_a_mark_of_byte_order_is_no_part_of_a_name(tmp_path: Path) -> None:
    for encoding, said in (("utf-8-sig", "utf-8"), ("utf-16", "utf-16")):
        (tmp_path / "a.csv").write_bytes("x,y\n1,é\n".encode(encoding))
        sheet = read_sheet(tmp_path / "a.csv", said)
        assert sheet.columns == ["x", "y"] and sheet.rows[0].values == ["1", "é"]


def test_a_number_is_what_others_take_for_one() -> None:
    assert [finite(text) for text in ("1", " -2.5 ", "1e3")] == [1.0, -2.5, 1000.0]
    assert not is_number("2023_10")  # which Python reads as 202310
    with pytest.raises(ValueError, match=r"has '2023_10', not a number$"):
        finite("2023_10")
    with pytest.raises(ValueError, match="has '0,5', not a number; decimals need a point"):
        finite("0,5")
