"""Comparisons of a user's own systems and policies, described in a TOML file.

    [system]
    law = "wise_figure_law"     # see LAWS
    q = 0.15
    slack = 0.05
    fresh = true                # a fresh instance in every run, where the law has a seed

    [run]
    rounds = 2000
    runs = 100                  # with half_width: the largest number
    seed = 1
    half_width = 0.5            # stop when every mean regret is known within this many jobs

    [[policy]]
    rule = "wise"

    [[policy]]
    rule = "acqb"
    name = "acqb with more exploration"
    exploration_scale = 20.0

Every mistake in the file is one sentence that names the table and the key.
"""

from __future__ import annotations

import csv
import inspect
import itertools
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .._version import VERSION
from ..fields import nearest
from ..runs.plot import save_figure
from ..runs.result import Result
from ..runs.statistics import Difference, Estimate
from ..scheduling import contexts, digits
from ..scheduling.policies import REGISTER
from ..scheduling.policy import (
    Policy,
)
from ..scheduling.simulate import simulate
from ..scheduling.systems import Family, System, family
from .report import Progress, Table, estimate_json, interval, output_folder, to_json, write_text

#: Laws that a file may name. "table" and "outcomes" may also read a CSV file.
LAWS: dict[str, Callable[..., System]] = {
    "wise_figure_law": contexts.wise_figure_law,
    "uniform_law": contexts.uniform_law,
    "table": contexts.table_law,
    "outcomes": contexts.from_outcomes,
    "digits": digits.digits_system,
}
#: Keys of [system] that are not parameters of the law.
_SYSTEM_KEYS = {"law", "fresh"}
_CSV_KEYS = {"table": ("file",), "outcomes": ("file", "feature_columns", "outcome_columns")}
_RUN_DEFAULTS: dict[str, Any] = {"rounds": 2000, "runs": 100, "seed": 1, "half_width": None}
#: Largest mean regret in terms of the smallest, from which on a linear axis would hide the smallest.
_SPREAD = 15.0
#: Columns of a "table" file that are not features.
_TABLE_COLUMNS = ("context", "server", "probability", "weight")


@dataclass(frozen=True)
class Experiment:
    """What a file describes."""

    system: System | Family
    policies: tuple[Policy, ...]
    rounds: int
    runs: int
    seed: int
    half_width: float | None


class Standing(NamedTuple):
    """One policy in the comparison: its mean regret, its paired difference to the best, and the queue it ends with."""

    name: str
    label: str
    regret: Estimate
    behind: Difference | None
    final_queue: Estimate


class Comparison(NamedTuple):
    """What a comparison found; `standings` are ordered by mean regret."""

    result: Result
    standings: tuple[Standing, ...]
    winner: str
    sentence: str
    table: Table
    files: tuple[Path, ...]
    results: dict[str, Any]


def read(path: Path) -> Experiment:
    """The experiment in a TOML file.

    Raises
    ------
    ValueError : the file cannot be read, or something in it is wrong; the sentence names file, table and key.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
    try:
        described = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: is not TOML: {error}") from error
    try:
        return parse(described, path.parent)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse(described: Mapping[str, Any], folder: Path = Path()) -> Experiment:
    """The experiment in a mapping of the same form as the file; relative paths in it start at `folder`."""
    _known("", described, ("system", "run", "policy"))
    if "system" not in described:
        raise ValueError(f"[system] is missing; it names a law: {', '.join(LAWS)}")
    run = {**_RUN_DEFAULTS, **_table("run", described.get("run", {}))}
    _known("run", run, _RUN_DEFAULTS)
    _count("run", run, "rounds", 1)
    _count("run", run, "runs", 2)
    _count("run", run, "seed", 0)
    width = run["half_width"]
    if width is not None and not (_is_number(width) and 0 < width < math.inf):
        raise ValueError(f"[run] half_width: must be a number of jobs above 0, not {width!r}")
    return Experiment(
        _system(_table("system", described["system"]), folder),
        _policies(described.get("policy", [])),
        run["rounds"],
        run["runs"],
        run["seed"],
        None if width is None else float(width),
    )


def _system(given: Mapping[str, Any], folder: Path) -> System | Family:
    name = given.get("law")
    if not isinstance(name, str) or name not in LAWS:
        missing = "law is missing" if name is None else f"law: there is none called {name!r}"
        raise ValueError(f"[system] {missing}{nearest(str(name), LAWS)}")
    law = LAWS[name]
    signature = inspect.signature(law)
    allowed = {*signature.parameters, *_SYSTEM_KEYS, *_CSV_KEYS.get(name, ())}
    _known("system", given, allowed, f"law {name!r}")
    arguments = {key: value for key, value in given.items() if key not in _SYSTEM_KEYS}
    if "file" in arguments:
        reader = _read_table if name == "table" else _read_outcomes
        arguments = reader(arguments, folder)
    for key, parameter in signature.parameters.items():
        if parameter.default is inspect.Parameter.empty and key not in arguments:
            hint = " (or file, a CSV file)" if name in _CSV_KEYS and key in ("features", "outcomes") else ""
            raise ValueError(f"[system] {key}: is missing{hint}; law {name!r} needs it")
    if "low_interval" in arguments and isinstance(arguments["low_interval"], list):
        arguments["low_interval"] = tuple(arguments["low_interval"])
    fresh = given.get("fresh", False)
    if not isinstance(fresh, bool):
        raise ValueError(f"[system] fresh: must be true or false, not {fresh!r}")
    if fresh and name not in ("wise_figure_law", "uniform_law"):
        raise ValueError(f"[system] fresh: law {name!r} has one instance only; leave it out or set it to false")
    if fresh and "seed" in arguments:
        raise ValueError("[system] seed: must be left out with fresh = true, every run draws its own instance")
    try:
        return family(law, **arguments) if fresh else law(**arguments)
    except (ValueError, TypeError) as error:
        raise ValueError(f"[system] {error}") from error


def _policies(given: Any) -> tuple[Policy, ...]:
    if not isinstance(given, list) or not given:
        raise ValueError("[[policy]] is missing; give at least one, each with a rule: " + ", ".join(REGISTER))
    found: list[Policy] = []
    for number, table in enumerate(given, 1):
        where = f"[[policy]] {number}"
        if not isinstance(table, Mapping):
            raise ValueError(f"{where}: must be a table with a rule, not {table!r}")
        rule = table.get("rule")
        if not isinstance(rule, str) or rule not in REGISTER:
            missing = "rule is missing" if rule is None else f"rule: there is none called {rule!r}"
            raise ValueError(f"{where} {missing}{nearest(str(rule), REGISTER)}")
        name = table.get("name", "")
        if not isinstance(name, str):
            raise ValueError(f"{where} name: must be a text, not {name!r}")
        options = {key: value for key, value in table.items() if key not in ("rule", "name")}
        try:
            policy = REGISTER[rule](name=name, **options)
        except TypeError:  # a rule without options
            raise ValueError(f"{where} {next(iter(options))}: no such parameter of {rule!r}; it has none") from None
        except ValueError as error:
            raise ValueError(f"{where} {error}") from error
        if any(policy.name == other.name for other in found):
            raise ValueError(f"{where} name: {policy.name!r} is taken by an earlier policy; give this one another name")
        found.append(policy)
    return tuple(found)


def _read_csv(given: Mapping[str, Any], folder: Path) -> tuple[Path, list[str], list[list[str]]]:
    file = given["file"]
    if not isinstance(file, str):
        raise ValueError(f"[system] file: must be a path, not {file!r}")
    path = folder / file
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            rows = [row for row in csv.reader(lines) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"[system] file: cannot read {str(path)!r} ({getattr(error, 'strerror', None) or error})"
        ) from error
    if len(rows) < 2:
        raise ValueError(f"[system] file: {str(path)!r} needs a line of column names and at least one more line")
    header = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise ValueError(f"[system] file: line {number} of {str(path)!r} has {len(row)} values, not {len(header)}")
    return path, header, rows[1:]


def _numbers(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]], column: str) -> list[float]:
    position = header.index(column)
    found = []
    for number, row in enumerate(rows, 2):
        try:
            found.append(float(row[position]))
        except ValueError:
            raise ValueError(
                f"[system] file: line {number} of {str(path)!r} has {row[position]!r} in column {column!r}, not a number"
            ) from None
    return found


def _read_table(given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Arguments of ``table_law`` from a CSV file with a line per (context, server) pair.

    Columns: context, server (any labels; every context has every server), optionally probability and weight (of the
    context, the same on all its lines); every other column is a feature.
    """
    for key in ("features", "probabilities", "weights"):
        if key in given:
            raise ValueError(f"[system] {key}: must be left out with file, the CSV file brings it")
    path, header, rows = _read_csv(given, folder)
    for column in ("context", "server"):
        if column not in header:
            raise ValueError(f"[system] file: {str(path)!r} has no column {column!r}{nearest(column, header)}")
    features = [column for column in header if column not in _TABLE_COLUMNS]
    if not features:
        raise ValueError(f"[system] file: {str(path)!r} has no feature column beside {', '.join(header)}")
    context, server = header.index("context"), header.index("server")
    row_contexts = list(dict.fromkeys(row[context] for row in rows))
    servers = list(dict.fromkeys(row[server] for row in rows))
    at = {(row[context], row[server]): number for number, row in enumerate(rows)}
    for pair in itertools.product(row_contexts, servers):
        if pair not in at:
            raise ValueError(f"[system] file: {str(path)!r} has no line for context {pair[0]!r} and server {pair[1]!r}")
    if len(at) != len(rows):
        raise ValueError(f"[system] file: {str(path)!r} has two lines for one context and server")
    values = {name: _numbers(path, header, rows, name) for name in header if name not in ("context", "server")}
    found = {key: value for key, value in given.items() if key != "file"}
    found["features"] = [[[values[f][at[c, s]] for f in features] for s in servers] for c in row_contexts]
    if "probability" in header:
        found["probabilities"] = [[values["probability"][at[c, s]] for s in servers] for c in row_contexts]
    if "weight" in header:
        for c in row_contexts:
            if len({values["weight"][at[c, s]] for s in servers}) > 1:
                raise ValueError(f"[system] file: {str(path)!r} gives context {c!r} more than one weight")
        found["weights"] = [values["weight"][at[c, servers[0]]] for c in row_contexts]
    return found


def _read_outcomes(given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Arguments of ``from_outcomes`` from a CSV file with a line per job.

    ``outcome_columns`` names one column per server, ``feature_columns`` those that policies may know of a job.
    """
    for key in ("features", "outcomes"):
        if key in given:
            raise ValueError(f"[system] {key}: must be left out with file, the CSV file brings it")
    path, header, rows = _read_csv(given, folder)
    found = {key: value for key, value in given.items() if key not in _CSV_KEYS["outcomes"]}
    for key, argument in (("feature_columns", "features"), ("outcome_columns", "outcomes")):
        names = given.get(key)
        if not isinstance(names, list) or not names:
            raise ValueError(f"[system] {key}: must be a list of columns of {str(path)!r}: {', '.join(header)}")
        for name in names:
            if name not in header:
                raise ValueError(f"[system] {key}: {str(path)!r} has no column {name!r}{nearest(str(name), header)}")
        columns = [_numbers(path, header, rows, name) for name in names]
        found[argument] = [list(row) for row in zip(*columns, strict=True)]
    return found


def _table(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"[{where}] must be a table, not {value!r}")
    return value


def _known(where: str, given: Mapping[str, Any], allowed: Any, whose: str = "") -> None:
    for key in given:
        if key not in allowed:
            kind = f"[{where}] {key}: no such key" if where else f"[{key}]: no such table"
            raise ValueError(f"{kind}{f' of {whose}' if whose else ''}{nearest(key, allowed)}")


def _count(where: str, given: Mapping[str, Any], key: str, least: int) -> None:
    value = given[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"[{where}] {key}: must be a whole number of at least {least}, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def standings(result: Result, level: float = 0.95) -> tuple[Standing, ...]:
    """Policies by mean regret. The differences' intervals hold together over all pairs, since the best is not known
    beforehand."""
    found = []
    for place in result.rank(level=level):
        queue = result.mean_queue_length(place.name)
        mean, low, high, sd = (float(column[-1]) for column in (queue.mean, queue.low, queue.high, queue.sd))
        final = Estimate(mean, low, high, sd, result.runs)
        found.append(Standing(place.name, result.label(place.name), place.regret, place.behind, final))
    return tuple(found)


def standings_table(found: Sequence[Standing], title: str) -> Table:
    """The comparison as a table, best policy first."""
    best = found[0].name
    rows = tuple(
        (
            standing.name,
            interval(standing.regret.mean, standing.regret.low, standing.regret.high),
            ""
            if standing.behind is None
            else interval(standing.behind.mean, standing.behind.low, standing.behind.high),
            interval(standing.final_queue.mean, standing.final_queue.low, standing.final_queue.high),
        )
        for standing in found
    )
    return Table(
        title,
        ("policy", "mean regret", f"behind {best}", "final queue"),
        rows,
        note="In jobs, with 95% intervals over runs. Those of the third column, paired by run, hold together for whichever "
        "policy is truly best.",
    )


def winner(found: Sequence[Standing]) -> str:
    """Who wins, by how much, in one sentence; or that the runs cannot tell."""
    first = found[0]
    if len(found) == 1:
        return f"{first.name} is the only policy: mean regret {_jobs(first.regret)}."
    second = found[1]
    assert second.behind is not None
    beaten = [standing.name for standing in found[1:] if standing.behind is not None and standing.behind.low > 0]
    if len(beaten) == len(found) - 1:
        return f"{first.name} wins: its mean regret is {_jobs(second.behind)} below that of {second.name}, the next."
    close = [standing.name for standing in found[1:] if standing.name not in beaten]
    others = f", and both are below {', '.join(beaten)}" if beaten and len(close) == 1 else ""
    return (
        f"{first.name} has the smallest mean regret, but {first.regret.runs} runs cannot tell it from {' or '.join(close)}: "
        f"{second.name} is {_jobs(second.behind)} behind{others}."
    )


def _jobs(estimate: Estimate | Difference) -> str:
    return f"{interval(estimate.mean, estimate.low, estimate.high)} jobs"


def draw(result: Result) -> Any:
    """Regret of every policy over rounds. Where the largest would flatten the others the axis is logarithmic above 1."""
    figure = result.plot(window=25 if result.rounds >= 250 else 1)
    means = [abs(result.mean_regret(name).mean) for name in result.policies]
    if max(means) > _SPREAD * max(min(means), 0.05):
        from matplotlib.ticker import FuncFormatter, NullLocator, SymmetricalLogLocator

        axes = figure.axes[0]
        low, high = axes.get_ylim()
        axes.set_yscale("symlog", linthresh=1.0)
        axes.set_ylim(max(low, -1.0), high)
        axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1.0, subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylabel(f"{axes.get_ylabel()}, logarithmic above 1")
    return figure


def conclude(result: Result, out: Path, title: str, extra: Mapping[str, Any] | None = None) -> Comparison:
    """Rank the policies of a result, draw their regret, and write figure and JSON to `out`."""
    found = standings(result)
    sentence = winner(found)
    table = standings_table(found, title)
    files = save_figure(draw(result), out, "figure")
    results: dict[str, Any] = {
        "version": VERSION,
        "title": title,
        "rounds": result.rounds,
        "runs": result.runs,
        "seed": result.seed,
        **(extra or {}),
        "policies": [
            {
                "name": standing.name,
                "label": standing.label,
                "mean_regret": estimate_json(standing.regret),
                "behind_best": None if standing.behind is None else estimate_json(standing.behind),
                "final_queue_length": estimate_json(standing.final_queue),
            }
            for standing in found
        ],
        "conclusion": sentence,
    }
    files.append(write_text(out / "comparison.json", to_json(results) + "\n"))
    files.append(write_text(out / "comparison.md", f"# {title}\n\n{sentence}\n\n{table.markdown()}"))
    return Comparison(result, found, found[0].name, sentence, table, tuple(files), results)


def compare(path: Path, out: Path, *, workers: int | None = None, progress: bool = False) -> Comparison:
    """Run the experiment in a TOML file and write figure, rows and JSON to `out`.

    What an earlier, interrupted call left in `out` is taken up again.

    Raises
    ------
    ValueError : for a mistake in the file, or a folder that cannot be written to or holds another experiment.
    """
    experiment = read(path)
    output_folder(out)
    with Progress(experiment.runs, shown=progress) as shown:
        try:
            result = simulate(
                experiment.system,
                policies=list(experiment.policies),
                rounds=experiment.rounds,
                runs=experiment.runs,
                seed=experiment.seed,
                half_width=experiment.half_width,
                workers=workers,
                folder=out / "rows",
                progress=shown.begin(path.name),
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    title = f"{experiment.system.name}: {result.runs} runs of {result.rounds} rounds"
    found = conclude(result, out, title, {"settings": result.settings})
    return found._replace(files=(*found.files, out / "rows"))
