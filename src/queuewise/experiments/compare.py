"""Experiments of the user's own: a TOML file with a system, policies and the size of the simulation.

[system]
law = "wise_figure_law"        # or "uniform_law", "digits_system"
q = 0.15
slack = 0.1
fresh = true                   # optional: a fresh instance per run

[run]                          # all optional
rounds = 2000
runs = 50
seed = 1
half_width = 0.1

[[policy]]
rule = "wise"

[[policy]]
rule = "acqb"
name = "acqb-3"
samples = 3
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import scheduling
from ..runs.result import Result
from ..scheduling.policies import REGISTER, make
from ..scheduling.policy import Policy, nearest
from ..scheduling.systems import Family, System, family
from .report import Progress, Table, estimate_json, interval, output_folder, short, to_json, write_text

LAWS: dict[str, Callable[..., System]] = {
    "wise_figure_law": scheduling.wise_figure_law,
    "uniform_law": scheduling.uniform_law,
    "digits_system": scheduling.digits_system,
}
RUN: dict[str, Any] = {"rounds": 2000, "runs": 50, "seed": 1, "half_width": None}
TABLES = ("system", "run", "policy")


@dataclass(frozen=True)
class Experiment:
    """What a file asks for: the system, the policies, and the arguments of ``simulate`` under [run]."""

    system: System | Family
    policies: tuple[Policy, ...]
    run: Mapping[str, Any]


def read(path: Path) -> Experiment:
    """Read and check an experiment. Raises ValueError with one sentence that names table and key."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: is not TOML ({error})") from error
    for name in tables:
        if name not in TABLES:
            raise ValueError(f"{path}: no table is called [{name}]{nearest(name, TABLES)}")
    return Experiment(_system(path, tables), _policies(path, tables), _run(path, tables))


def _table(path: Path, tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"{path}: {name} must be a table, [{name}]")
    return dict(table)


def _system(path: Path, tables: Mapping[str, Any]) -> System | Family:
    table = _table(path, tables, "system")
    law = table.pop("law", None)
    if law not in LAWS:
        raise ValueError(f"{path}: [system] law must be one of {', '.join(LAWS)}, not {law!r}{nearest(law, LAWS)}")
    fresh = table.pop("fresh", False)
    if not isinstance(fresh, bool):
        raise ValueError(f"{path}: [system] fresh must be true or false, not {fresh!r}")
    known = inspect.signature(LAWS[law]).parameters
    for key in table:
        if key not in known:
            raise ValueError(f"{path}: [system] {key} is no parameter of {law}{nearest(key, known)}")
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in table:
            raise ValueError(f"{path}: [system] {key} is missing, {law} needs it")
    try:
        return family(LAWS[law], **table) if fresh else LAWS[law](**table)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: [system] {error}") from error


def _policies(path: Path, tables: Mapping[str, Any]) -> tuple[Policy, ...]:
    entries = tables.get("policy", [])
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path}: there must be at least one [[policy]]")
    found = []
    for number, entry in enumerate(entries, start=1):
        options = dict(entry)
        rule = options.pop("rule", None)
        if rule not in REGISTER:
            raise ValueError(
                f"{path}: [[policy]] {number}: rule must be a known policy, not {rule!r}{nearest(rule, REGISTER)}"
            )
        try:
            found.append(make(rule, **options))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: [[policy]] {number}: {error}") from error
    return tuple(found)


def _run(path: Path, tables: Mapping[str, Any]) -> dict[str, Any]:
    table = _table(path, tables, "run")
    for key in table:
        if key not in RUN:
            raise ValueError(f"{path}: [run] {key} is not known{nearest(key, RUN)}")
    return {**RUN, **table}


def compare(
    path: Path, out: Path, workers: int | None = None, progress: bool = False
) -> tuple[Result, list[Table], dict[str, Any]]:
    """Simulate the experiment of a file into `out` (rows, figure, results.json); a rerun continues.

    Returns the result, tables to print, and everything as JSON values. Raises ValueError for a mistake in the file.
    """
    experiment = read(path)
    folder = output_folder(out)
    with Progress(int(experiment.run["runs"]), shown=progress) as bar:
        advanced = bar.begin(path.name)
        result = scheduling.simulate(
            experiment.system,
            experiment.policies,
            folder=folder / "rows",
            workers=workers,
            progress=advanced,
            **experiment.run,
        )
    figure = result.plot()
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"regret.{suffix}", dpi=150)
    table, found = ranking(result)
    write_text(folder / "results.json", to_json(found) + "\n")
    return result, [table], found


def ranking(result: Result) -> tuple[Table, dict[str, Any]]:
    """Policies from the least mean regret on, each with its interval and its paired distance to the first."""
    names = [name for name in result.policies if name != "oracle"]
    means = {name: result.mean_regret(name) for name in names}
    order = sorted(names, key=lambda name: means[name].mean)
    best = order[0]
    rows, found = [], []
    for name in order:
        mean = means[name]
        final = result.mean_regret(name, rounds=(max(1, result.rounds * 3 // 4), result.rounds))
        row = [name, interval(mean.mean, mean.low, mean.high), interval(final.mean, final.low, final.high), "first"]
        entry = {"policy": name, "mean_regret": estimate_json(mean), "late_regret": estimate_json(final)}
        if name != best:
            apart = result.compare(name, best)
            row[3] = interval(apart.mean, apart.low, apart.high)
            entry[f"minus_{best}"] = estimate_json(apart)
        rows.append(tuple(row))
        found.append(entry)
    oracle = float(result.oracle_queue_length.mean())
    note = (
        f"{result.runs} runs of {result.rounds} rounds, 95% intervals. The oracle's mean queue: {short(oracle)} jobs."
    )
    headers = ("policy", "mean regret", "last quarter", f"minus {best}")
    json = {"runs": result.runs, "rounds": result.rounds, "seed": result.seed, "oracle": oracle, "policies": found}
    return Table("Jobs in queue beyond the oracle's", headers, tuple(rows), note=note), json
