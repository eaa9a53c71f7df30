"""The same comparisons, split over machines, and what the machines bring back merged.

    queuewise sweep mine.toml --part 1/3 --out part-1       # on one machine; the others play parts 2/3 and 3/3
    queuewise sweep --merge part-1 --merge part-2 --merge part-3 --out all

Parts play different runs of one seed, so that the merged folder is, in every number, what one machine would have made. Folders
of different seeds (``--seed``) can be merged as well. What does not fit is refused: other settings, runs that two folders
have, systems that one lacks, runs that a folder should have. Parts that nobody named are pointed out.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._version import VERSION
from ..loading import load, pool
from ..runs.pooling import pieces
from ..runs.store import SETTINGS
from .compare import EXPERIMENT, Found, conclude_all, describe_json, folder_of, play
from .description import Cell, Experiment, Run, read
from .report import Table, output_folder, to_json, write_text


class Part(NamedTuple):
    """One of several equal parts of the runs, counted from 1."""

    number: int
    of: int

    def runs(self, total: int) -> range:
        """The runs of this part."""
        return range((self.number - 1) * total // self.of, self.number * total // self.of)


WHOLE = Part(1, 1)


def parse_part(text: str) -> Part:
    """``2/5``. Raises ValueError for anything else."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"part: must be such as 2/5, the second of five parts, not {text!r}")
    return Part(int(match[1]), int(match[2]))


def sweep(
    path: Path,
    out: Path,
    *,
    part: Part = WHOLE,
    seed: int | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Found:
    """Play the experiment in a TOML file, or one part of its runs, to `out`; conclude if it is the whole.

    What an earlier, interrupted call left in `out` is taken up again.

    Parameters
    ----------
    seed : of all randomness, in the place of the file's.

    Raises
    ------
    ValueError : for a mistake in the file or in the part, or a folder that cannot be written to or holds another experiment.
    """
    experiment = read(path)
    if seed is not None:
        experiment = experiment.with_seed(seed)
    numbers = part.runs(experiment.run.runs)
    if part.of > 1 and experiment.run.half_width is not None:
        raise ValueError(
            f"part: {path} stops at a half_width, which no part can see for the whole; leave half_width out"
        )
    if part.of > experiment.run.runs:
        raise ValueError(f"part: {experiment.run.runs} runs cannot be cut into {part.of} parts")
    output_folder(out)
    try:
        results = play(experiment, out, runs=numbers, workers=workers, progress=progress)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    described = {**describe_json(experiment), "first_run": numbers.start, "runs": len(numbers)}
    write_text(out / EXPERIMENT, to_json(described) + "\n")
    if part.of == 1:
        return conclude_all(experiment.title, experiment.cells, results, experiment.run, out)
    said = f"Part {part.number} of {part.of} is played: runs {numbers.start} to {numbers.stop - 1} of every system."
    rows = tuple(folder_of(out, cell, len(experiment.cells)) / "rows" for cell in experiment.cells)
    return Found((), (), (said,), rows, {"part": part._asdict(), "runs": [numbers.start, numbers.stop - 1]})


def merge(folders: Sequence[Path], out: Path) -> Found:
    """Merge what several machines played into `out`, and conclude.

    Parameters
    ----------
    folders : those that :func:`sweep` or ``compare`` wrote, at least two, of the same experiment.

    Raises
    ------
    ValueError : for a folder without an experiment, of another one, unfinished, or with runs that another has too. Nothing is
        written then.
    """
    if len(folders) < 2:
        raise ValueError("merge: name at least two folders")
    described = [_read_description(folder) for folder in folders]
    first = described[0]
    for folder, other in zip(folders, described, strict=True):
        _same_systems(folders[0], first, folder, other)
    cells = [Cell(item["name"], item["folder"], None, item["grid"]) for item in first["systems"]]
    merged = []
    for cell in cells:
        parts = [
            _finished(folder, folder / cell.folder / "rows", item, cell.name)
            for folder, item in zip(folders, described, strict=True)
        ]
        merged.append(pool(parts, [str(folder / cell.folder) for folder in folders]))
    for cell, result in zip(cells, merged, strict=True):
        _room(out / cell.folder / "rows", result)
    output_folder(out)
    for cell, result in zip(cells, merged, strict=True):
        result.save(out / cell.folder / "rows")
    run = Run(**{**first["run"], "over": tuple(first["run"]["over"]) if first["run"]["over"] else None})
    whole = {"version": VERSION, "first_run": merged[0].first_run, "runs": merged[0].runs}
    write_text(out / EXPERIMENT, to_json({**first, **whole, "merged": [str(folder) for folder in folders]}) + "\n")
    found = conclude_all(first["title"], cells, merged, run, out)
    return found._replace(sentences=(*found.sentences, *_remarks(merged[0], run)))


def _room(rows: Path, result: Any) -> None:
    """Refuse a folder that has runs of which the merged ones know nothing: what is concluded would not be on what is there."""
    if not (rows / SETTINGS).exists():
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            there = pieces(load(rows))
    except ValueError as error:
        raise ValueError(f"out: {rows} has results already ({error}); choose another folder") from error
    for piece in there:
        if not any(
            piece.seed == other.seed
            and other.first_run <= piece.first_run
            and piece.first_run + piece.runs <= other.first_run + other.runs
            for other in pieces(result)
        ):
            raise ValueError(
                f"out: {rows} has {piece} already, not all of which are merged here; choose another folder"
            )


def _remarks(result: Any, run: Run) -> list[str]:
    """What is merged though it may not have been meant so: less than the experiment, or what several versions played."""
    found = []
    for seed in sorted({piece.seed for piece in pieces(result)}):
        played = {
            number
            for piece in pieces(result)
            if piece.seed == seed
            for number in range(piece.first_run, piece.first_run + piece.runs)
        }
        missing = [number for number in range(run.runs) if number not in played]
        if missing and run.half_width is None:
            found.append(
                f"Not all is here: of the {run.runs} runs of seed {seed} {len(missing)} are in none of the folders, the first "
                f"of them {missing[0]}."
            )
    if " and " in str(result.version):
        found.append(f"The runs were played by the versions {result.version}.")
    return found


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / EXPERIMENT
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _ = [found[key] for key in ("title", "runs", "model", "policies")], Run(**found["run"])
        _ = [item[key] for item in found["systems"] for key in ("name", "folder", "grid")]
    except FileNotFoundError:
        raise ValueError(
            f"merge: {folder} has no {EXPERIMENT}; name a folder that queuewise sweep has written, and finished"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"merge: {path} is damaged ({type(error).__name__})") from error
    return found


def _same_systems(folder: Path, first: dict[str, Any], other_folder: Path, other: dict[str, Any]) -> None:
    """Refuse folders of different experiments; what is inside the systems is compared by their own settings."""
    for key in ("model", "policies"):
        if first[key] != other[key]:
            raise ValueError(
                f"merge: {other_folder} has the {key} {other[key]!r}, and {folder} {first[key]!r}: these do not fit"
            )
    for key, value in first["run"].items():
        if key not in ("seed", "runs") and other["run"].get(key) != value:
            raise ValueError(
                f"merge: {other_folder} has [run] {key} = {other['run'].get(key)!r}, and {folder} {value!r}: these do not fit"
            )
    names, others = ([item["name"] for item in described["systems"]] for described in (first, other))
    for name in [*names, *others]:
        if name not in names or name not in others:
            lacks, has = (other_folder, folder) if name in names else (folder, other_folder)
            raise ValueError(f"merge: {lacks} has no system {name!r}, which {has} has: these do not fit")


def _finished(folder: Path, rows: Path, described: dict[str, Any], name: str) -> Any:
    """All runs of one system in one folder."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a gap is refused below, in one sentence
            result = load(rows)
    except ValueError as error:
        raise ValueError(f"merge: {name}: {error}") from error
    if result.runs < described["runs"] and described["run"]["half_width"] is None:
        raise ValueError(
            f"merge: {folder} has {result.runs} of {described['runs']} runs of {name!r}; finish it first, with the command "
            "that began it"
        )
    return result


def listing(experiment: Experiment) -> Table:
    """Every system that a file describes, without playing anything."""
    cells, policies = experiment.cells, experiment.policies
    return Table(
        f"{experiment.title}: {len(cells)} systems, {len(policies)} policies, {experiment.run.runs} runs",
        ("system", "folder"),
        tuple((cell.name, cell.folder if len(cells) > 1 else ".") for cell in cells),
        note=f"Policies: {', '.join(policy.name for policy in policies)}.",
        wide=(0,),
    )
