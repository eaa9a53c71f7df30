"""What is known of recorded jobs beforehand: columns of one or two files, turned into numbers.

Numbers are standardised, dates count as days, texts become indicators; optionally all of it is reduced to principal
components. Whatever is computed is rounded, so that it does not depend on the order in which sums were taken.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..sheets import PathLike, Row, Sheet, SheetError, chosen, find, is_number, read_sheet
from .systems import (
    Floats,
)

#: The level that rare texts are pooled in.
POOLED = "(other)"
#: Decimals that standardised numbers and principal components are rounded to: sums of another order, or another library of
#: linear algebra, then give the same system.
DECIMALS = 6
#: Largest number that can be standardised: squares of larger ones have no place among floats.
LARGEST = 1e150


def listed(name: str, given: str | Sequence[str] | None) -> list[str]:
    """One name, several or none, as a list."""
    if given is None:
        return []
    if isinstance(given, str):
        return [given]
    if isinstance(given, Mapping) or not hasattr(given, "__iter__") or not all(isinstance(item, str) for item in given):
        raise ValueError(f"{name} must be a column or a list of columns, not {given!r}")
    return list(given)


class Column(NamedTuple):
    """A feature before it is numbers: the file and line of each job's cell, and its text."""

    name: str
    path: Path
    lines: list[int]
    texts: list[str]

    def bad(self, i: int, what: str) -> SheetError:
        return SheetError(f"{self.path}: line {self.lines[i]}: column {self.name!r} {what}")

    def take(self, order: Sequence[int]) -> Column:
        return self._replace(lines=[self.lines[i] for i in order], texts=[self.texts[i] for i in order])


class Beside(NamedTuple):
    """A second file of features: its columns as texts, and for each job the row that is its own."""

    path: Path
    columns: list[str]
    lines: list[int]
    cells: Callable[[int, str], str]
    keys: list[str] | None


# --- a second file ---------------------------------------------------------------------------------------------------


class FeatureReader:
    """Columns of features, from the first file or, where that has none of the name, from the second."""

    def __init__(self, sheet: Sheet, beside: Beside | None, joined: Sequence[str]) -> None:
        self._sheet, self._beside, self._names = sheet, beside, list(joined)
        self._found: dict[str, int] = {}
        self._at: list[int] = []
        if beside is None:
            return
        if beside.keys is not None:
            self._at = [sheet.at(name, "join") for name in joined]
            self._found = {text: place for place, text in reversed(list(enumerate(beside.keys)))}
        elif len(beside.lines) != len(sheet.rows):
            raise SheetError(
                f"{beside.path}: has {len(beside.lines)} lines for the {len(sheet.rows)} jobs of {sheet.path}; name a column "
                "that joins them (join, or id)"
            )

    def features(self, given: str | Sequence[str]) -> list[str]:
        """The names of the features that are asked for."""
        beside = (
            [] if self._beside is None else [name for name in self._beside.columns if name not in self._sheet.columns]
        )
        return chosen(listed("features", given), [*self._sheet.columns, *beside], "features", self._sheet.path)

    def place(self, number: int, row: Row) -> int:
        """The row of the second file that belongs to a row of the first."""
        if self._beside is None:
            return -1
        if self._beside.keys is None:
            return number
        text = "/".join(row.values[i].strip() for i in self._at)
        if text not in self._found:
            raise self._sheet.bad(row, "/".join(self._names), f"has {text!r}, which {self._beside.path} does not have")
        return self._found[text]

    def gap(self, place: int, known: Sequence[str]) -> str | None:
        """The first empty cell of a row of the second file, in words."""
        if self._beside is None:
            return None
        for name in known:
            if name not in self._sheet.columns and not self._beside.cells(place, name):
                return f"{self._beside.path}: line {self._beside.lines[place]}: column {name!r}"
        return None

    def column(self, name: str, rows: Sequence[Row], places: Sequence[int]) -> Column:
        """The cells of a feature, job by job."""
        if name in self._sheet.columns:
            at = self._sheet.columns.index(name)
            return Column(name, self._sheet.path, [row.line for row in rows], [row.values[at].strip() for row in rows])
        assert self._beside is not None  # no other file has features
        self._agree(name)
        lines = [self._beside.lines[place] for place in places]
        return Column(name, self._beside.path, lines, [self._beside.cells(place, name) for place in places])

    def _agree(self, name: str) -> None:
        """Refuse two lines for one key that say different things in a column that is used."""
        beside = self._beside
        if beside is None or beside.keys is None:
            return
        for place, text in enumerate(beside.keys):
            first = self._found[text]
            if beside.cells(place, name) != beside.cells(first, name):
                raise SheetError(
                    f"{beside.path}: line {beside.lines[place]}: column {name!r} has {beside.cells(place, name)!r} for "
                    f"{text!r}, and line {beside.lines[first]} has {beside.cells(first, name)!r}"
                )


def second_file(path: PathLike, joined: Sequence[str], encoding: str) -> Beside:
    """Read a second file of features."""
    if str(path).endswith(".npz"):
        return _arrays(path, joined)
    sheet = read_sheet(path, encoding)
    lines = [row.line for row in sheet.rows]
    keys = None
    if joined:
        at = [sheet.at(name, "join") for name in joined]
        keys = ["/".join(row.values[i].strip() for i in at) for row in sheet.rows]
    positions = {name: i for i, name in enumerate(sheet.columns)}

    def cell(place: int, name: str) -> str:
        return sheet.rows[place].values[positions[name]].strip()

    return Beside(sheet.path, sheet.columns, lines, cell, keys)


def _arrays(path: PathLike, joined: Sequence[str]) -> Beside:
    """Features from the one table in an .npz file; lines are counted from 1, as there are no column names."""
    found = find(path)
    try:
        with np.load(found, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise SheetError(f"{found}: cannot be read as arrays ({getattr(error, 'strerror', None) or error})") from error
    tables = [name for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind in "fiub"]
    if len(tables) != 1:
        said = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items()) or "nothing"
        raise SheetError(f"{found}: must hold one array of numbers [jobs, m], and holds {said}")
    table = arrays[tables[0]].astype(np.float64)
    keys = None
    if joined:
        if len(joined) > 1 or joined[0] not in arrays or arrays[joined[0]].shape != table.shape[:1]:
            raise SheetError(
                f"{found}: join: there is no array {'/'.join(joined)!r} [{len(table)}] beside {tables[0]!r}"
            )
        keys = [str(value) for value in arrays[joined[0]].tolist()]
    columns = [f"{tables[0]}{i}" for i in range(1, table.shape[1] + 1)]
    positions = {name: i for i, name in enumerate(columns)}
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise SheetError(
            f"{found}: line {row + 1}: column {columns[column]!r} has {table[row, column]}, not a finite number"
        )

    def cell(place: int, name: str) -> str:
        return repr(float(table[place, positions[name]]))

    return Beside(found, columns, list(range(1, len(table) + 1)), cell, keys)


# --- features as numbers ---------------------------------------------------------------------------------------------


def encode(
    found: Sequence[Column],
    jobs: int,
    categories: str | Sequence[str],
    known: Sequence[str],
    least_count: int,
    standardise: bool,
    notes: list[str],
) -> tuple[list[str], Floats]:
    """Features as numbers: names, and float64[jobs, m]."""
    texts = (
        set()
        if categories == "auto"
        else set(chosen(listed("categories", categories), known, "categories", "features"))
    )
    names: list[str] = []
    columns: list[Floats] = []
    constant: list[str] = []
    for column in found:
        numbers = None if column.name in texts else _numbers(column)
        if numbers is None:
            for name, indicator in _indicators(column, least_count, notes):
                names.append(name)
                columns.append(indicator)
            if len(set(column.texts)) == 1:
                constant.append(column.name)
        elif not standardise:
            names.append(column.name)
            columns.append(numbers)
        elif numbers.min() == numbers.max():
            constant.append(column.name)
        elif np.abs(numbers).max() > LARGEST:
            worst = int(np.abs(numbers).argmax())
            raise column.bad(worst, f"has {column.texts[worst]!r}, too large to be standardised")
        else:
            names.append(column.name)
            columns.append(np.round((numbers - numbers.mean()) / numbers.std(), DECIMALS))
    if constant:
        notes.append("features left out, the same for all jobs: " + ", ".join(constant))
    if not columns:
        return [], np.zeros((jobs, 0))
    return names, np.column_stack(columns)


def _numbers(column: Column) -> Floats | None:
    """A column of numbers or of dates, else None. Refuses one that is mostly numbers, or mostly dates, but not quite."""
    for kind, read in (("number", _finite), ("date", _days)):
        values = [read(text) for text in column.texts]
        strange = [i for i, value in enumerate(values) if value is None]
        if not strange:
            return np.array(values, dtype=np.float64)
        if 2 * len(strange) < len(values):
            # The job whose line comes first, whatever the order here.
            i = min(strange, key=lambda j: column.lines[j])
            others = len(values) - len(strange)
            raise column.bad(
                i,
                f"has {column.texts[i]!r}, not a finite {kind} as {others} of {len(values)} cells of the column are; "
                f"categories=[{column.name!r}] takes all of them as texts",
            )
    return None


def _finite(text: str) -> float | None:
    if not is_number(text):
        return None
    value = float(text)
    return value if np.isfinite(value) else None


def _days(text: str) -> float | None:
    """Days since 1970 of an ISO 8601 date or time; without a time zone it is taken as UTC."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() / 86400.0


def _indicators(column: Column, least_count: int, notes: list[str]) -> Iterator[tuple[str, Floats]]:
    """One indicator per level but the first; rare levels are one."""
    counts = Counter(column.texts)
    rare = {text for text, count in counts.items() if count < least_count}
    if len(rare) == 1:
        # Alone in a level of its own or in the pooled one is the same.
        rare = set()
    levels = sorted(set(counts) - rare) + ([POOLED] if rare else [])
    if rare:
        pooled = sum(counts[text] for text in rare)
        notes.append(
            f"{column.name}: {len(rare)} levels of fewer than {least_count} jobs pooled as {POOLED} ({pooled} jobs)"
        )
    for level in levels[1:]:
        same = rare if level == POOLED else {level}
        yield f"{column.name}={level}", np.array([float(text in same) for text in column.texts])


def reduce(names: Sequence[str], values: Floats, components: int, notes: list[str]) -> tuple[list[str], Floats]:
    """The first principal components, scaled by one number so that their mean squares sum to 1.

    Their signs are those that make the largest loading positive, and they are rounded.
    """
    most = min(values.shape)
    if components > most:
        raise ValueError(f"components must be at most {most}, the number of features (or jobs), not {components}")
    centred = values - values.mean(axis=0)
    left, sizes, loadings = np.linalg.svd(centred, full_matrices=False)
    sizes, loadings = sizes[:components], loadings[:components]
    total = float((centred**2).sum())
    if not sizes[-1] > 1e-9 * max(sizes[0], 1e-300):
        raise ValueError(f"components must be fewer than {components}: the features do not vary in so many directions")
    # Of loadings that are equally large the first decides.
    largest = (np.abs(loadings) > np.abs(loadings).max(axis=1, keepdims=True) - 1e-9).argmax(axis=1)
    signs = np.sign(loadings[np.arange(components), largest])
    scores = left[:, :components] * sizes * signs / np.sqrt((sizes**2).sum() / len(values))
    share = float((sizes**2).sum()) / total
    notes.append(f"{components} principal components of {len(names)} features, with {share:.0%} of their variance")
    return [f"component {i}" for i in range(1, components + 1)], np.round(scores, DECIMALS)
