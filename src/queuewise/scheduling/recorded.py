"""Reading recorded outcomes from CSV files: a line per job, a column per server, and what is known of a job beforehand.

    found = read_outcomes("evaluations.csv", id="question", features=["topic", "length"], outcomes="model-*")
    system = found.system(load=0.8, impossible="drop")

The order of the lines carries no meaning: jobs are put in an order of their own, so that a shuffled file is the same system
to the last bit, under the same name in a folder of results. What cannot be used is refused with its file, line and column.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..fields import require_choice, require_count, require_positive
from ..runs.store import make_folder, write_atomically
from ..sheets import TRUTHS, PathLike, Row, Sheet, SheetError, chosen, read_sheet
from .contexts.outcomes import OutcomesSystem, from_outcomes
from .contexts.table import FiniteLaw
from .recorded_features import Column, FeatureReader, encode, listed, reduce, second_file
from .systems import (
    Floats,
    System,
)

#: Jobs that share a text in a column of features, below which the text is no level of its own.
LEAST_COUNT = 5
#: What the laws suggest to policies that are named without these values: practical ones, far below what theory asks for.
SUGGESTED = {"suggested_radius": 1.0, "suggested_initial_design": 1.0, "suggested_ridge": 1.0}
_SEPARATOR = "\x1f"


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedSystem(OutcomesSystem):
    """The system of :meth:`RecordedOutcomes.system`.

    Attributes
    ----------
    server_names, feature_names : tuple of str
    job_ids : tuple of str
        Of the rows of the law's table.
    """

    server_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    job_ids: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RecordedOutcomes:
    """Outcomes of jobs on servers, checked and in an order that does not depend on the file's.

    Attributes
    ----------
    job_ids : tuple of str
        As in the file, or numbers where it has no ids.
    server_names, feature_names : tuple of str
    features : float64[jobs, m], or float64[jobs, servers, d] where every pair has its own
    outcomes : float64[jobs, servers]
        Success fractions in [0, 1].
    weights : float64[jobs] or None
        Relative frequencies; None where all are alike.
    source : str
        What was read.
    notes : tuple of str
        What was left out, pooled or changed, in words.
    """

    job_ids: tuple[str, ...]
    server_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    features: Floats
    outcomes: Floats
    weights: Floats | None = None
    source: str = "recorded outcomes"
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        jobs, servers = self.outcomes.shape
        return f"RecordedOutcomes({self.source}: {jobs} jobs, {servers} servers, {len(self.feature_names)} features)"

    @property
    def of_pairs(self) -> bool:
        """Whether every (job, server) pair brings a feature vector of its own."""
        return self.features.ndim == 3

    def describe(self) -> str:
        """Servers with their mean success, features, and what was done to the file, as text."""
        mean = np.average(self.outcomes, axis=0, weights=self.weights)
        order = np.argsort(-mean, kind="stable")
        lines = [f"{self.source}: {len(self.job_ids)} jobs"]
        lines += [f"  {self.server_names[k]}: mean success {mean[k]:.3f}" for k in order]
        lines.append("  features: " + (", ".join(self.feature_names) or "none"))
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def system(
        self, *, load: float | None = None, arrival_rate: float | None = None, **arguments: Any
    ) -> RecordedSystem:
        """The system of these jobs and servers.

        Parameters
        ----------
        load, arrival_rate : float
            Exactly one of them, see :func:`from_outcomes`.
        **arguments
            Others of :func:`from_outcomes` (``truth``, ``impossible``, ...). Policies that are named without a radius, a ridge
            or an initial design get 1 of each, unless said otherwise here. Pairs with features of their own share one
            parameter and are not scaled.

        Raises
        ------
        ValueError
            For what :func:`from_outcomes` refuses.
        """
        for key in ("features", "outcomes", "weights", "shared"):
            if key in arguments:
                raise ValueError(f"{key} must be left out, the record brings it")
        given: dict[str, Any] = {"name": self.source, **SUGGESTED, **arguments}
        if self.of_pairs:
            given = {"shared": True, "scale": None, **given}
        system = from_outcomes(
            self.features, self.outcomes, load=load, arrival_rate=arrival_rate, weights=self.weights, **given
        )
        carried = {item.name: getattr(system, item.name) for item in fields(system)}
        carried["identification"] = {**system.identification, "servers": list(self.server_names)}
        table = system.law
        assert isinstance(table, FiniteLaw)  # from_outcomes builds no other
        mean = table.weights @ table.probabilities
        named = "; ".join(f"{name} {value:.3f}" for name, value in zip(self.server_names, mean, strict=True))
        carried["notes"] = (*system.notes, f"servers, with mean success: {named}", *self.notes)
        return RecordedSystem(
            **carried,
            server_names=self.server_names,
            feature_names=self.feature_names,
            job_ids=tuple(self.job_ids[row] for row in system.kept),
        )

    def write(self, path: PathLike) -> Path:
        """Write a CSV file that reads back to exactly these numbers (gzipped where the name ends in .gz).

        Read it with :meth:`reading`: ``read_outcomes(path, **found.reading())``.

        Raises
        ------
        ValueError
            If the file cannot be written, or a name of a feature is a server's too.
        """
        columns, pairs = list(self.feature_names), []
        if self.of_pairs:
            columns = []
            pairs = [f"{feature}:{server}" for feature in self.feature_names for server in self.server_names]
        header = ["id", *(["weight"] if self.weights is not None else []), *columns, *pairs, *self.server_names]
        twice = [name for name, count in Counter(header).items() if count > 1]
        if twice:
            raise ValueError(f"names of features and servers must differ, but {twice[0]!r} would be written twice")
        jobs = len(self.job_ids)
        # Numbers by repr, which read back to the same bits. [jobs, d, K] runs over features first, as the header does.
        known = self.features.transpose(0, 2, 1).reshape(jobs, -1) if self.of_pairs else self.features
        rows = (
            [self.job_ids[i], *(_texts(self.weights[i : i + 1]) if self.weights is not None else [])]
            for i in range(jobs)
        )
        body = (row + _texts(known[i]) + _texts(self.outcomes[i]) for i, row in enumerate(rows))
        return _write_rows(Path(path), [header], body)

    def reading(self) -> dict[str, Any]:
        """Arguments with which :func:`read_outcomes` reads what :meth:`write` wrote."""
        found: dict[str, Any] = {
            "id": "id",
            "outcomes": list(self.server_names),
            "pair_features" if self.of_pairs else "features": list(self.feature_names),
            "standardise": False,
            "without_success": "keep",
        }
        return found | ({"weight": "weight"} if self.weights is not None else {})


def _texts(values: Iterable[float]) -> list[str]:
    return [repr(float(value)) for value in values]


def _write_rows(path: Path, *parts: Iterable[Sequence[str]]) -> Path:
    """Write a CSV file whole or not at all; the same rows give the same bytes."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for rows in parts:
        writer.writerows(rows)
    content = text.getvalue().encode("utf-8")
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    make_folder(path.parent)
    write_atomically(path, lambda file: file.write(content))
    return path


def recorded_law(system: System) -> RecordedOutcomes:
    """The table of a system with finitely many contexts, as a record that can be written.

    The probabilities become the outcomes, and every pair keeps its feature vector. Written and read again it is the same
    table to the last bit: ``recorded_law(system).system(arrival_rate=system.arrival_rate)`` has the constants of `system`
    (pass ``parameter_bound`` and the suggested values too, where they matter).

    Raises
    ------
    ValueError
        If the law of `system` is not a finite table.
    """
    law = system.law
    if not isinstance(law, FiniteLaw):
        raise ValueError(
            f"system must have a finite table of contexts, and {system.name!r} draws them from {type(law).__name__}"
        )
    rows, dimension, servers = law.features.shape
    equal = bool((law.weights == law.weights[0]).all())
    names = getattr(system, "server_names", None) or tuple(f"server {k}" for k in range(servers))
    return RecordedOutcomes(
        job_ids=_numbered(rows),
        server_names=tuple(names),
        feature_names=tuple(f"x{i}" for i in range(dimension)),
        features=np.ascontiguousarray(law.features.transpose(0, 2, 1)),
        outcomes=law.probabilities.copy(),
        weights=None if equal else law.weights.copy(),
        source=system.name,
    )


def _numbered(jobs: int) -> tuple[str, ...]:
    """Numbers of equal length, so that they sort as texts."""
    width = len(str(max(jobs - 1, 0)))
    return tuple(f"{i:0{width}d}" for i in range(jobs))


# --- reading ---------------------------------------------------------------------------------------------------------


def read_outcomes(
    path: PathLike,
    *,
    outcomes: str | Sequence[str] | None = None,
    features: str | Sequence[str] = (),
    id: str | Sequence[str] | None = None,
    weight: str | None = None,
    exclude: str | Sequence[str] = (),
    categories: str | Sequence[str] = "auto",
    least_count: int = LEAST_COUNT,
    components: int | None = None,
    standardise: bool = True,
    pair_features: str | Sequence[str] = (),
    feature_file: PathLike | None = None,
    join: str | Sequence[str] | None = None,
    out_of: float = 1.0,
    missing: str = "error",
    without_success: str = "error",
    jobs: int | None = None,
    seed: int = 0,
    encoding: str = "utf-8",
) -> RecordedOutcomes:
    """Read which server did which job, and how often.

    Parameters
    ----------
    path : path
        A CSV file with a line of column names and a line per job, gzipped or not; looked for in ``QUEUEWISE_DATA`` too.
    outcomes : column names or patterns, optional
        One column per server: success fractions in [0, 1], or single results (0 and 1, false and true). A pattern has ``*``
        for any characters, ``?`` for one. By default all columns that no other argument names.
    features : column names or patterns
        What a policy may know of a job before it is served. Numbers are standardised; dates (ISO 8601) count as days; texts
        become indicators, one per level but the first in order of the alphabet. None by default: then all jobs look alike.
    id : column name(s), optional
        What tells jobs apart. Without it they are told apart by their cells.
    weight : column name, optional
        Relative frequency of the job.
    exclude : column names or patterns
        Not servers; needed only where `outcomes` is left out or is a pattern.
    categories : "auto" or column names
        Features that are texts though they hold numbers, beside those that hold texts.
    least_count : int
        Texts of fewer jobs than that share one level, ``(other)``.
    components : int, optional
        Replace the features by so many principal components of them, scaled as one.
    standardise : bool
        False takes numbers as they are.
    pair_features : column names
        Features of a (job, server) pair, one column per server: ``price`` stands for ``price:gpt``, ``price:llama``, ... Taken
        as they are, with one parameter for all servers, instead of `features`.
    feature_file : path, optional
        A second file that brings further features: CSV, or an ``.npz`` file with one array [jobs, m], whose columns are called
        by the array's name and a number from 1 (``X1``, ``X2``, ...).
    join : column name(s), optional
        What joins the second file; `id` by default. Without, or with ``[]``, its lines belong to the first file's one by one.
    out_of : float
        The score that is certain success, by which scores are divided.
    missing : {"error", "drop"}
        Refuse an empty cell in a column that is used, or leave its job out and count it.
    without_success : {"error", "drop", "keep"}
        Refuse a server that did no job at all, leave it out, or take it as it is.
    jobs : int, optional
        Only so many jobs, chosen by a hash of `seed` and their ids: the same ones in whatever order the lines come.
    seed : int
    encoding : str
        Of the text of both files.

    Returns
    -------
    RecordedOutcomes

    Raises
    ------
    ValueError
        For a file that cannot be used; the sentence names the file, the line and the column.
    """
    require_choice("missing", missing, ("error", "drop"))
    require_choice("without_success", without_success, ("error", "drop", "keep"))
    require_positive("out_of", out_of)
    require_count("least_count", least_count)
    require_count("seed", seed, 0)
    if jobs is not None:
        require_count("jobs", jobs)
    if components is not None:
        require_count("components", components)
    pairs = listed("pair_features", pair_features)
    if pairs and (listed("features", features) or components is not None or feature_file is not None):
        raise ValueError(
            "pair_features must be left out with features, components and feature_file, which are about jobs"
        )
    sheet = read_sheet(path, encoding)
    key = [sheet.columns[sheet.at(name, "id")] for name in listed("id", id)]
    joined = key if join is None else listed("join", join)
    beside = None if feature_file is None else second_file(feature_file, joined, encoding)
    reader = FeatureReader(sheet, beside, joined)
    known = reader.features(features)
    used = {*key, *known, *joined, *([weight] if weight is not None else [])}
    servers = _servers(sheet, outcomes, used, exclude, pairs)
    columns = [f"{feature}:{server}" for feature in pairs for server in servers]
    for column in columns:
        sheet.at(column, "pair_features")
    if weight is not None:
        sheet.at(weight, "weight")

    notes: list[str] = []
    needed = [
        *servers,
        *columns,
        *key,
        *([weight] if weight is not None else []),
        *(n for n in known if n in sheet.columns),
    ]
    rows, places = _complete(sheet, needed, missing, reader, known, notes)
    ids = _ids(sheet, rows, key)
    recorded = np.array([[_score(sheet, row, name, out_of) for name in servers] for row in rows]).reshape(
        -1, len(servers)
    )
    own = np.array([[sheet.number(row, name) for name in columns] for row in rows]).reshape(
        len(rows), len(pairs), len(servers)
    )
    given = None if weight is None else np.array([_frequency(sheet, row, weight) for row in rows])
    found = [reader.column(name, rows, places) for name in known]

    order = _order(ids, sheet, rows, [*servers, *columns], given, found, jobs, seed)
    if jobs is not None and jobs < len(rows):
        notes.append(f"{jobs} of {len(rows)} jobs, chosen by a hash of their ids and seed {seed}")
    recorded, found = recorded[order], [column.take(order) for column in found]
    alive = _alive(sheet, servers, recorded, without_success, notes)
    names, values = encode(found, len(order), categories, known, least_count, standardise, notes)
    if components is not None:
        names, values = reduce(names, values, components, notes)
    if pairs:
        names, values = pairs, own[order].transpose(0, 2, 1)[:, alive]
    return RecordedOutcomes(
        job_ids=_numbered(len(order)) if ids is None else tuple(ids[i] for i in order),
        server_names=tuple(servers[k] for k in alive),
        feature_names=tuple(names),
        features=np.ascontiguousarray(values),
        outcomes=np.ascontiguousarray(recorded[:, alive]),
        weights=None if given is None else given[order],
        source=sheet.path.name,
        notes=tuple(notes),
    )


def _servers(
    sheet: Sheet,
    outcomes: str | Sequence[str] | None,
    used: set[str],
    exclude: str | Sequence[str],
    pairs: Sequence[str],
) -> list[str]:
    """The columns of outcomes, in the order of the file, or of a list of names."""
    left_out = set(chosen(listed("exclude", exclude), sheet.columns, "exclude", sheet.path))
    of_pairs = {name for name in sheet.columns if any(name.startswith(f"{pair}:") for pair in pairs)}
    if outcomes is None:
        servers = [name for name in sheet.columns if name not in used | left_out | of_pairs]
    else:
        servers = chosen(listed("outcomes", outcomes), sheet.columns, "outcomes", sheet.path)
        servers = [name for name in servers if name not in left_out]
        both = [name for name in servers if name in used]
        if both:
            raise SheetError(
                f"{sheet.path}: outcomes: column {both[0]!r} cannot be a server and be used as something else too"
            )
    if not servers:
        raise SheetError(
            f"{sheet.path}: outcomes: no column is left for servers; its columns are {', '.join(sheet.columns)}"
        )
    return servers


def _score(sheet: Sheet, row: Row, column: str, out_of: float) -> float:
    text = row.values[sheet.columns.index(column)].strip().lower()
    value = TRUTHS[text] * out_of if text in TRUTHS else sheet.number(row, column)
    if not 0.0 <= value <= out_of:
        hint = "; out_of=100 reads percentages" if out_of == 1.0 and 1.0 < value <= 100.0 else ""
        raise sheet.bad(row, column, f"is {text}, and a score must lie in [0, {out_of:g}]{hint}")
    return value / out_of


def _frequency(sheet: Sheet, row: Row, column: str) -> float:
    value = sheet.number(row, column)
    if value < 0.0:
        raise sheet.bad(row, column, f"is {value:g}, and a weight must be at least 0")
    return value


def _complete(
    sheet: Sheet, needed: Sequence[str], missing: str, reader: FeatureReader, known: Sequence[str], notes: list[str]
) -> tuple[list[Row], list[int]]:
    """The rows with a value in every column that is used, and each one's place in the second file."""
    at = [(sheet.columns.index(name), name) for name in dict.fromkeys(needed)]
    kept, places, empty = [], [], 0
    for number, row in enumerate(sheet.rows):
        gap = next((name for i, name in at if not row.values[i].strip()), None)
        if gap is not None and missing == "error":
            raise sheet.bad(row, gap, "is empty; missing='drop' leaves such lines out")
        place = -1 if gap is not None else reader.place(number, row)
        if gap is None and place >= 0:
            beside = reader.gap(place, known)
            if beside is not None and missing == "error":
                raise SheetError(f"{beside} is empty; missing='drop' leaves such jobs out")
            gap = beside
        if gap is not None:
            empty += 1
            continue
        kept.append(row)
        places.append(place)
    if empty:
        notes.append(f"{empty} of {len(sheet.rows)} lines left out, with an empty cell in a column that is used")
    if not kept:
        raise SheetError(f"{sheet.path}: every line has an empty cell in a column that is used, so no job is left")
    return kept, places


def _ids(sheet: Sheet, rows: Sequence[Row], key: Sequence[str]) -> list[str] | None:
    """One text per job; refuse two lines of one."""
    if not key:
        return None
    at = [sheet.columns.index(name) for name in key]
    seen: dict[str, int] = {}
    ids = []
    for row in rows:
        text = "/".join(row.values[i].strip() for i in at)
        if text in seen:
            names = "/".join(key)
            raise SheetError(
                f"{sheet.path}: line {row.line}: column {names!r} has {text!r}, which line {seen[text]} has already"
            )
        seen[text] = row.line
        ids.append(text)
    return ids


def _order(
    ids: Sequence[str] | None,
    sheet: Sheet,
    rows: Sequence[Row],
    names: Sequence[str],
    weights: Floats | None,
    found: Sequence[Column],
    jobs: int | None,
    seed: int,
) -> list[int]:
    """The jobs, of those chosen by hash, in an order that does not depend on the file's.

    By id; else by their cells, equal ones numbered, so that they are chosen independently.
    """
    if ids is None:
        at = [sheet.columns.index(name) for name in names]
        cells = [
            _SEPARATOR.join(
                [*(column.texts[i] for column in found), *(row.values[j].strip() for j in at)]
                + ([] if weights is None else [repr(float(weights[i]))])
            )
            for i, row in enumerate(rows)
        ]
        seen: Counter[str] = Counter()
        labels = []
        for text in cells:
            labels.append(f"{text}{_SEPARATOR}{seen[text]:09d}")
            seen[text] += 1
    else:
        labels = list(ids)
    order = sorted(range(len(labels)), key=labels.__getitem__)
    if jobs is not None and jobs < len(order):
        drawn = sorted(order, key=lambda i: hashlib.sha256(f"{seed}{_SEPARATOR}{labels[i]}".encode()).digest())
        order = sorted(drawn[:jobs], key=labels.__getitem__)
    return order


def _alive(sheet: Sheet, servers: Sequence[str], recorded: Floats, without_success: str, notes: list[str]) -> list[int]:
    """Positions of the servers that are kept."""
    if without_success == "keep":
        return list(range(len(servers)))
    dead = [k for k in range(len(servers)) if not recorded[:, k].any()]
    if dead and without_success == "error":
        raise SheetError(
            f"{sheet.path}: column {servers[dead[0]]!r} has no success in {len(recorded)} jobs; without_success must be 'drop' "
            "or 'keep' to say what becomes of such servers"
        )
    if len(dead) == len(servers):
        raise SheetError(f"{sheet.path}: no server has any success in {len(recorded)} jobs")
    if dead:
        notes.append("servers left out, without any success: " + "; ".join(servers[k] for k in dead))
    return [k for k in range(len(servers)) if k not in dead]
