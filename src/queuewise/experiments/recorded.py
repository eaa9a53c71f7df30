"""Recorded outcomes in a TOML file: the table ``[system.recorded]``.

    [system.recorded]
    file = "evaluations.csv"          # relative to the TOML file
    id = "question"
    features = ["topic", "length"]
    outcomes = "model-*"
    load = 0.8
    impossible = "drop"

Its keys are those of :func:`queuewise.scheduling.read_outcomes`, and of ``from_outcomes`` but for its arrays.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..fields import nearest
from ..scheduling.contexts import from_outcomes
from ..scheduling.recorded import RecordedSystem, read_outcomes
from ..sheets import SheetError

#: Arguments of ``from_outcomes`` that the file brings.
_BROUGHT = ("features", "outcomes", "weights", "shared")
_READING = tuple(key for key in inspect.signature(read_outcomes).parameters if key != "path")
_BUILDING = tuple(key for key in inspect.signature(from_outcomes).parameters if key not in _BROUGHT)
#: Keys that are paths.
_PATHS = ("file", "feature_file")
#: Every key of the table.
KEYS = ("file", *_READING, *_BUILDING)

_TEXT, _COUNT, _NUMBER, _SWITCH = "a text", "a whole number", "a number", "true or false"
_COLUMNS = "a column or a list of columns"
#: What a key must be. TOML has types of its own, and a wrong one should be named before anything is read.
_KINDS = {
    **dict.fromkeys(
        (
            "file",
            "feature_file",
            "weight",
            "missing",
            "without_success",
            "encoding",
            "truth",
            "impossible",
            "scale",
            "name",
        ),
        _TEXT,
    ),
    **dict.fromkeys(("outcomes", "features", "id", "exclude", "categories", "pair_features", "join"), _COLUMNS),
    **dict.fromkeys(("least_count", "components", "jobs", "seed", "max_attempts"), _COUNT),
    **dict.fromkeys(("standardise", "allow_unstable"), _SWITCH),
}


def recorded_system(table: Mapping[str, Any], folder: Path, where: str = "system.recorded") -> RecordedSystem:
    """The system that a table of a TOML file describes.

    Parameters
    ----------
    table : the keys of ``[system.recorded]``, see KEYS.
    folder : where relative paths start; what is not there is looked for in ``QUEUEWISE_DATA``.
    where : name of the table, for sentences.

    Raises
    ------
    ValueError : for a mistake in the table or in the file; the sentence names the table and the key.
    """
    for key, value in table.items():
        if key not in KEYS:
            raise ValueError(f"[{where}] {key}: no such key{nearest(key, KEYS)}")
        kind = _KINDS.get(key, _NUMBER)
        if not _is(kind, value):
            raise ValueError(f"[{where}] {key}: must be {kind}, not {value!r}")
    if "file" not in table:
        raise ValueError(f"[{where}] file: is missing; it names a CSV file with a line per job and a column per server")
    given: dict[str, Any] = {key: _path(folder, value) if key in _PATHS else value for key, value in table.items()}
    reading: dict[str, Any] = {key: given[key] for key in _READING if key in given}
    building: dict[str, Any] = {key: given[key] for key in _BUILDING if key in given}
    # TOML has no None; scale = "none" takes features as they are.
    if building.get("scale") == "none":
        building["scale"] = None
    try:
        found = read_outcomes(given["file"], **reading)
    except SheetError as error:
        raise ValueError(f"[{where}] file: {error}") from error
    except ValueError as error:
        raise ValueError(f"[{where}] {error}") from error
    try:
        return found.system(**building)
    except ValueError as error:
        raise ValueError(f"[{where}] {error}") from error


def _path(folder: Path, given: str) -> str:
    """A path of the table: in the folder, else among the data, never in whatever folder the command was called from."""
    if not (folder / given).is_file() and not Path(given).is_absolute():
        data = os.environ.get("QUEUEWISE_DATA", "")
        if data and (Path(data) / given).is_file():
            return str(Path(data) / given)
    return str(folder / given)


def _is(kind: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == _TEXT:
        return isinstance(value, str)
    if kind == _COUNT:
        return number and isinstance(value, int)
    if kind == _SWITCH:
        return isinstance(value, bool)
    if kind == _COLUMNS:
        return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))
    return number
