"""CSV files with a line of column names, read cell by cell, so that a mistake is named with its file, line and column.

Plain or gzipped; commas, semicolons or tabs. A path that is not found is looked for in the folder that ``QUEUEWISE_DATA``
names. Nothing is repaired in silence.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import math
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .fields import nearest

PathLike = str | os.PathLike[str]

#: Words for yes and no in columns of outcomes, in small letters.
TRUTHS = {"true": 1.0, "false": 0.0}
_GZIP = b"\x1f\x8b"
_DELIMITERS = ",;\t"


class SheetError(ValueError):
    """Something in a file is wrong; the sentence begins with its path."""


class Row(NamedTuple):
    """One record: the line on which it begins, counted from 1, and its cells."""

    line: int
    values: list[str]


class Sheet(NamedTuple):
    """A CSV file: its path, the names of its columns, its records in order."""

    path: Path
    columns: list[str]
    rows: list[Row]

    def at(self, column: str, field: str) -> int:
        """Position of a column. Raises SheetError for an unknown one, with the nearest."""
        if column not in self.columns:
            raise SheetError(f"{self.path}: {field}: there is no column {column!r}{nearest(column, self.columns)}")
        return self.columns.index(column)

    def bad(self, row: Row, column: str, what: str) -> SheetError:
        """The sentence for one cell."""
        return SheetError(f"{self.path}: line {row.line}: column {column!r} {what}")

    def number(self, row: Row, column: str) -> float:
        """A finite number, or one sentence."""
        try:
            return finite(row.values[self.columns.index(column)])
        except ValueError as error:
            raise self.bad(row, column, str(error)) from None

    def uneven(self, row: Row) -> str:
        """What is wrong with the number of cells of a record; "" where there is one for each column."""
        there, wanted = len(row.values), len(self.columns)
        if there == wanted:
            return ""
        without = f"; the first without one is {self.columns[there]!r}" if there < wanted else ""
        return f"has {there} value{'s' * (there != 1)} for {wanted} columns{without}"


def is_number(text: str) -> bool:
    """Whether a text is a number (or nan, or inf). Python's 1_000 is none in a file."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def finite(text: str) -> float:
    """A finite number. Raises ValueError with what is wrong, to be put behind the name of the column."""
    if is_number(text):
        value = float(text)
    else:
        text = text.strip()
        point = "; decimals need a point" if is_number(text.replace(",", ".")) else ""
        raise ValueError(f"has {text!r}, not a number{point}")
    if not math.isfinite(value):
        raise ValueError(f"has {text.strip()!r}, not a finite number")
    return value


def chosen(names: str | Sequence[str], known: Sequence[str], field: str, where: object) -> list[str]:
    """Columns by name, or by a pattern in which ``*`` stands for any characters and ``?`` for one; each once, in order.

    Raises SheetError for a name or pattern that meets no column.
    """
    found: dict[str, None] = {}
    for name in [names] if isinstance(names, str) else names:
        if name in known:
            found[name] = None
            continue
        pieces = [".*" if mark == "*" else "." if mark == "?" else re.escape(mark) for mark in str(name)]
        met = [column for column in known if re.fullmatch("".join(pieces), column)] if set("*?") & set(name) else []
        if not met:
            raise SheetError(f"{where}: {field}: there is no column {name!r}{nearest(name, known)}")
        found.update(dict.fromkeys(met))
    return list(found)


def find(path: PathLike) -> Path:
    """The file itself, or the one of this name below ``QUEUEWISE_DATA``. Raises SheetError where there is neither."""
    given = Path(path)
    if given.is_file():
        return given
    data = os.environ.get("QUEUEWISE_DATA", "")
    if data and not given.is_absolute() and (Path(data) / given).is_file():
        return Path(data) / given
    what = "is a folder, not a file" if given.is_dir() else "cannot be read (no such file)"
    raise SheetError(f"{given}: {what}" + (f", nor is it in QUEUEWISE_DATA, {data}" if data else ""))


def read_sheet(path: PathLike, encoding: str = "utf-8", *, strict: bool = True) -> Sheet:
    """Read a CSV file.

    Parameters
    ----------
    path : the file, gzipped or not.
    encoding : of its text; a mark of byte order at the beginning is skipped.
    strict : refuse a column without a name, and records with more or fewer cells than there are columns. If not, one column
        (an index, as pandas writes it) may be called "", and :meth:`Sheet.uneven` says which records are so.

    Raises
    ------
    SheetError : the file is not found, not text of that encoding, or no table with one name per column; the sentence names
        the line, and the column where there is one.
    ValueError : there is no such encoding.
    """
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, TypeError):
        raise ValueError(
            f"encoding: there is none called {encoding!r}; 'utf-8', 'latin-1' and 'cp1252' are usual"
        ) from None
    found = find(path)
    try:
        content = found.read_bytes()
        if content[:2] == _GZIP:
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise SheetError(f"{found}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    try:
        text = content.decode("utf-8-sig" if name == "utf-8" else name)
    except (UnicodeDecodeError, UnicodeError) as error:
        raise _not_text(found, content, encoding, error) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise SheetError(
            f"{found}: line {line}: holds a NUL character, so it is not {encoding} text; encoding='utf-16'?"
        )
    rows = _records(found, text)
    header = next(rows, None)
    if header is None:
        raise SheetError(f"{found}: is empty; it needs a line of column names")
    sheet = Sheet(found, [column.strip() for column in header.values], list(rows))
    _check_header(sheet, header.line, strict)
    for row in sheet.rows if strict else ():
        if uneven := sheet.uneven(row):
            raise SheetError(f"{found}: line {row.line}: {uneven}")
    if not sheet.rows:
        raise SheetError(f"{found}: has no line after the column names")
    return sheet


def _records(path: Path, text: str) -> Iterator[Row]:
    """The records of a CSV text, each with the line on which it begins; empty lines are skipped."""
    # Of what stands between the names, not of what stands in them.
    first = re.sub('"[^"]*"', "", text.lstrip("\r\n").split("\n", 1)[0])
    delimiter = max(_DELIMITERS, key=lambda mark: (first.count(mark), mark == ","))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for values in reader:
            if values:
                yield Row(line, values)
            line = reader.line_num + 1
    except csv.Error as error:
        raise SheetError(f"{path}: line {line}: is not CSV text ({error})") from error


def _check_header(sheet: Sheet, line: int, strict: bool) -> None:
    path, columns = sheet.path, sheet.columns
    for position, name in enumerate(columns, 1):
        if not name and strict:
            raise SheetError(f"{path}: line {line}: column {position} of {len(columns)} has no name")
        if columns.count(name) > 1:
            raise SheetError(f"{path}: line {line}: names the column {name!r} twice")
    if all(is_number(name) for name in columns):
        raise SheetError(f"{path}: line {line}: must name the columns, but it holds only numbers")


def _not_text(path: Path, content: bytes, encoding: str, error: UnicodeError) -> SheetError:
    """Where a file stops to be text of an encoding."""
    if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return SheetError(f"{path}: line 1: is UTF-16 text, not {encoding}; say encoding='utf-16'")
    if not isinstance(error, UnicodeDecodeError):
        return SheetError(f"{path}: is not {encoding} text ({error})")
    byte = content[error.start]
    line = content[: error.start].count(b"\n") + 1
    cell = ""
    # Latin-1 reads any byte, one character each: the byte's place in the table is found in that reading.
    try:
        records = list(_records(path, content.decode("latin-1")))
        for row in records[1:]:
            for name, value in zip(records[0].values, row.values, strict=False):
                if not _decodes(value.encode("latin-1"), encoding):
                    place = Row(row.line, row.values)
                    cell = f" in column {name.strip()!r}"
                    return SheetError(_encoding_sentence(path, max(place.line, line), cell, encoding, byte))
    except SheetError:
        pass
    return SheetError(_encoding_sentence(path, line, cell, encoding, byte))


def _encoding_sentence(path: Path, line: int, cell: str, encoding: str, byte: int) -> str:
    return (
        f"{path}: line {line}: is not {encoding} text (byte 0x{byte:02x}{cell}); name the encoding it has, such as "
        "encoding='cp1252'"
    )


def _decodes(value: bytes, encoding: str) -> bool:
    try:
        value.decode(encoding)
    except UnicodeError:
        return False
    return True
