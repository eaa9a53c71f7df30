"""Experiments of the user's own, described in a TOML file.

    [system]                    # or several: [[system]]
    law = "wise_figure_law"     # a law of LAWS, or mine.py:my_system; or a table [system.recorded]; or service_rates
    q = 0.15
    fresh = true                # a fresh instance in every run, where the law has a seed
    grid.slack = [0.05, 0.1]    # a system for every combination of the grid's values

    [run]
    rounds = 2000
    runs = 100                  # with half_width: the largest number
    half_width = 0.5            # stop when every mean regret is known within this many jobs

    [[policy]]
    rule = "acqb"
    grid.samples = [1, 5]       # a policy for every combination

    [[policy]]
    rule = "mine.py:steady"     # a rule of one's own, from a file beside this one

    [oracle]                    # what regret is measured against; the papers' oracle if left out
    rule = "mine.py:clairvoyant"

A system with ``service_rates`` is one of parallel queues, and the experiment is one of dispatching. Every mistake in the file
is one sentence that names the table and the key. ``schema.py`` says the same as JSON Schema.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import dispatch
from ..dispatch import arrivals as arrival_laws
from ..dispatch import service as service_laws
from ..dispatch.policies import REGISTER as DISPATCH_RULES
from ..dispatch.result import MEASURES
from ..dispatch.systems import exact_rate
from ..fields import nearest, require_count, require_positive
from ..runs.result import ORACLE, check_window
from ..runs.simultaneous import METHODS
from ..scheduling import contexts, digits
from ..scheduling.policies import REGISTER as SCHEDULING_RULES
from ..scheduling.policy import Policy as SchedulingPolicy
from ..scheduling.systems import Family, System, family
from ..sheets import read_sheet
from . import usercode
from .recorded import recorded_system

SCHEDULING, DISPATCH = "scheduling", "dispatch"
#: Laws of scheduling that a file may name. "table" may also read a CSV file.
LAWS: dict[str, Callable[..., System]] = {
    "wise_figure_law": contexts.wise_figure_law,
    "uniform_law": contexts.uniform_law,
    "table": contexts.table_law,
    "outcomes": contexts.from_outcomes,
    "digits": digits.digits_system,
}
#: Laws that draw a fresh instance for every run if asked to.
FRESH = ("wise_figure_law", "uniform_law")
#: Arrival processes and service laws of dispatching that a file may name.
ARRIVALS: dict[str, Callable[..., Any]] = {
    "poisson": arrival_laws.poisson,
    "regular": arrival_laws.regular,
    "gamma_renewal": arrival_laws.gamma_renewal,
    "hyperexponential_renewal": arrival_laws.hyperexponential_renewal,
    "markov_modulated": arrival_laws.markov_modulated,
}
SERVICE: dict[str, Callable[..., Any]] = {
    "exponential": service_laws.exponential,
    "deterministic": service_laws.deterministic,
    "erlang": service_laws.erlang,
    "hyperexponential": service_laws.hyperexponential,
    "lognormal": service_laws.lognormal,
    "pareto": service_laws.pareto,
}
#: Keys of a system of parallel queues beside `arrivals` and `service`.
QUEUES = (
    "service_rates",
    "arrival_rate",
    "load",
    "slots",
    "times",
    "initial_rates",
    "initial_spread",
    "allow_unstable",
)
#: Keys of every [system] that are not parameters of its law.
SYSTEM_KEYS = ("law", "name", "fresh", "grid", "recorded")
TABLES = ("title", "system", "run", "policy", "oracle")
RULES: dict[str, Mapping[str, Callable[..., Any]]] = {SCHEDULING: SCHEDULING_RULES, DISPATCH: DISPATCH_RULES}
#: Most combinations of a grid's values.
MOST_IN_GRID = 10_000
#: Largest runs, rounds, arrivals and warm_up: what an experiment counts fits into 32 bits, but for arrivals.
MOST, MOST_ARRIVALS = 2**31 - 1, 10**15
#: Bytes of a folder's name; file systems allow 255.
_LONGEST_FOLDER = 120
#: What an experiment of several systems has beside its systems' folders.
_TAKEN = ("experiment.json", *(f"summary.{kind}" for kind in ("json", "md", "png", "svg")), "report.html")
#: Columns of a "table" file that are not features.
_TABLE_COLUMNS = ("context", "server", "probability", "weight")


class Run(NamedTuple):
    """The table [run]: how large the experiment is, and how its policies are compared.

    runs : with `half_width` the largest number · half_width : of every policy's mean regret, at which it stops · level : of
    the intervals · method : how intervals hold together · baseline : a policy that the others are compared with beside the
    best · rounds, over : of a run, and those that are averaged over (scheduling) · arrivals, warm_up, measure : of a run, those
    that averages leave out, and what policies are ranked by (dispatching)
    """

    runs: int = 100
    seed: int = 1
    half_width: float | None = None
    level: float = 0.95
    method: str = "max_t"
    baseline: str | None = None
    rounds: int = 2000
    over: tuple[int, int] | None = None
    arrivals: int = 100_000
    warm_up: int = 0
    measure: str = "regret"


#: Keys of [run] that only one of the models has.
RUN_KEYS = {SCHEDULING: ("rounds", "over"), DISPATCH: ("arrivals", "warm_up", "measure")}


class Cell(NamedTuple):
    """One system of the experiment: its name, the name of its folder, and what the grid set in it."""

    name: str
    folder: str
    system: Any
    grid: dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """What a file describes. All systems are of one model; every policy meets every system."""

    title: str
    model: str
    cells: tuple[Cell, ...]
    policies: tuple[Any, ...]
    run: Run
    oracle: SchedulingPolicy | None = None
    described: Mapping[str, Any] = field(default_factory=dict)

    @property
    def system(self) -> Any:
        """The first system."""
        return self.cells[0].system

    def with_seed(self, seed: int) -> Experiment:
        """The same experiment with another seed."""
        require_count("seed", seed, 0)
        return replace(self, run=self.run._replace(seed=seed))


def read(path: Path) -> Experiment:
    """The experiment in a TOML file.

    Raises
    ------
    ValueError : the file cannot be read, or something in it is wrong; the sentence names file, table and key.
    """
    described = _toml(path)
    try:
        return parse(described, path.parent, path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_systems(path: Path) -> tuple[Cell, ...]:
    """The systems in a TOML file, whatever else is in it. Raises ValueError as :func:`read` does."""
    described = _toml(path)
    try:
        return parse_systems(described, path.parent)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: is not TOML: {error}") from error


def parse(described: Mapping[str, Any], folder: Path = Path(), title: str = "") -> Experiment:
    """The experiment in a mapping of the same form as the file; relative paths in it start at `folder`."""
    _known("", described, TABLES)
    title = described.get("title", title)
    if not isinstance(title, str):
        raise ValueError(f"title: must be a text, not {title!r}")
    cells = parse_systems(described, folder)
    kinds = [DISPATCH if isinstance(cell.system, dispatch.System) else SCHEDULING for cell in cells]
    for cell, kind in zip(cells, kinds, strict=True):
        if kind != kinds[0]:
            raise ValueError(
                f"[[system]] {cells[0].name!r} is for {kinds[0]} and {cell.name!r} for {kind}; make two files of them, their "
                "policies are different ones"
            )
    policies = _policies(described.get("policy", []), kinds[0], folder)
    run = _run(described.get("run", {}), kinds[0], [policy.name for policy in policies])
    oracle = _oracle(described.get("oracle"), kinds[0], folder)
    return Experiment(title, kinds[0], cells, policies, run, oracle, described)


def parse_systems(described: Mapping[str, Any], folder: Path = Path()) -> tuple[Cell, ...]:
    """The systems in a mapping of the form of a file, which may be of both models."""
    if "system" not in described:
        raise ValueError(
            f"[system] is missing; it names a law ({', '.join(LAWS)}), has a table [system.recorded], or service_rates"
        )
    return _cells(described["system"], folder)


# --- [run] -----------------------------------------------------------------------------------------------------------


def _run(given: Any, model: str, policies: Sequence[str]) -> Run:
    table = _table("run", given)
    other = RUN_KEYS[DISPATCH if model == SCHEDULING else SCHEDULING]
    for key in table:
        if key in other:
            raise ValueError(f"[run] {key}: is for the other model; this is an experiment of {model}")
    _known("run", table, [key for key in Run._fields if key not in other])
    for key, least, most in (
        ("runs", 2, MOST),
        ("seed", 0, None),
        ("rounds", 1, MOST),
        ("arrivals", 1, MOST_ARRIVALS),
        ("warm_up", 0, MOST_ARRIVALS),
    ):
        if key in table:
            _count("run", table, key, least, most)
    if "half_width" in table and not (_is_number(table["half_width"]) and 0 < table["half_width"] < math.inf):
        what = "jobs" if model == SCHEDULING else "decisions"
        raise ValueError(f"[run] half_width: must be a number of {what} above 0, not {table['half_width']!r}")
    if "level" in table and not (_is_number(table["level"]) and 0 < table["level"] < 1):
        raise ValueError(f"[run] level: must lie strictly between 0 and 1, not {table['level']!r}")
    for key, allowed in (("method", METHODS), ("measure", MEASURES), ("baseline", policies)):
        if key in table and table[key] not in allowed:
            raise ValueError(f"[run] {key}: must be one of {', '.join(map(repr, allowed))}, not {table[key]!r}")
    run = Run(**table)
    if run.over is not None:
        run = run._replace(over=check_window("[run] over:", run.over, run.rounds))
    if model == DISPATCH and run.warm_up >= run.arrivals:
        raise ValueError(f"[run] warm_up: must be less than the {run.arrivals} arrivals of a run, not {run.warm_up}")
    return run


# --- [system] --------------------------------------------------------------------------------------------------------


def _cells(given: Any, folder: Path) -> tuple[Cell, ...]:
    tables = given if isinstance(given, list) else [given]
    if not tables:
        raise ValueError("[[system]] is empty; give at least one")
    found: list[Cell] = []
    for number, table in enumerate(tables, 1):
        where = f"system {number}" if isinstance(given, list) else "system"
        for grid, values in _grid(where, _table(where, table)):
            system = _system(where, values, folder)
            found.append(_named(where, values, grid, system, len(tables)))
    for cell in found:
        # Some file systems do not tell capital letters from small ones.
        others = [other for other in found if other.folder.casefold() == cell.folder.casefold() and other is not cell]
        if others:
            raise ValueError(
                f"[system] name: {cell.name!r} and {others[0].name!r} would have the same folder {cell.folder!r}; give one of "
                "them another name"
            )
    return tuple(found)


def _named(where: str, given: Mapping[str, Any], grid: dict[str, Any], system: Any, of: int) -> Cell:
    """A system with its name: the one it was given, and what the grid set."""
    name = given.get("name", "")
    if not isinstance(name, str):
        raise ValueError(f"[{where}] name: must be a text, not {name!r}")
    if not name and of > 1:
        name = str(given.get("law") or ("recorded" if "recorded" in given else "queues"))
    name = ", ".join([*([name] if name else []), *(f"{key}={value}" for key, value in grid.items())])
    name = name or getattr(system, "name", "parallel queues")
    return Cell(name, _folder(name), system, grid)


def _folder(name: str) -> str:
    """The name of a system's folder: that of the system, as file systems allow it, cut where it is long."""
    plain = re.sub(r"[^\w.=-]+", "-", name).strip("-.") or "system"
    if plain in _TAKEN:
        return f"{plain}-system"
    if len(plain.encode()) <= _LONGEST_FOLDER:
        return plain
    kept = plain.encode()[: _LONGEST_FOLDER - 11].decode(errors="ignore")
    return f"{kept}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def _grid(where: str, table: Mapping[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every combination of the values in the table's `grid`, each as (what it sets, the whole table without its grid)."""
    recorded = table.get("recorded")
    axes: list[tuple[str, str, list[Any]]] = []
    for part, inner in ((where, table), (f"{where}.recorded", recorded)):
        if not isinstance(inner, Mapping) or "grid" not in inner:
            continue
        for key, values in _table(f"{part}.grid", inner["grid"]).items():
            if not isinstance(values, list) or not values:
                raise ValueError(f"[{part}] grid.{key}: must be a list of values to try, not {values!r}")
            if key in inner:
                raise ValueError(f"[{part}] {key}: must be left out, grid.{key} sets it")
            axes.append(("recorded" if inner is recorded else "", key, values))
    if math.prod(len(axis[2]) for axis in axes) > MOST_IN_GRID:
        raise ValueError(f"[{where}] grid: has more than {MOST_IN_GRID} combinations")
    found = []
    for values in itertools.product(*(axis[2] for axis in axes)):
        whole = {key: value for key, value in table.items() if key != "grid"}
        if isinstance(recorded, Mapping):
            whole["recorded"] = {key: value for key, value in recorded.items() if key != "grid"}
        for (part, key, _), value in zip(axes, values, strict=True):
            (whole["recorded"] if part else whole)[key] = value
        found.append(({key: value for (_, key, _), value in zip(axes, values, strict=True)}, whole))
    return found


def _system(where: str, given: Mapping[str, Any], folder: Path) -> Any:
    kinds = [key for key in ("law", "recorded", "service_rates") if key in given]
    if len(kinds) > 1:
        raise ValueError(f"[{where}] {kinds[1]}: must be left out, {kinds[0]} already says what the system is")
    if not kinds:
        raise ValueError(
            f"[{where}] law is missing; known: {', '.join(LAWS)}, a function of yours as mine.py:name; or give a table "
            f"[{where}.recorded], or service_rates"
        )
    if kinds[0] == "recorded":
        _known(where, given, ("name", "recorded"), "a system of recorded outcomes, whose keys are in [system.recorded]")
        return recorded_system(_table(f"{where}.recorded", given["recorded"]), folder, f"{where}.recorded")
    if kinds[0] == "service_rates":
        return _queues(where, given, folder)
    law = given["law"]
    if isinstance(law, str) and usercode.names_file(law):
        return _own_system(where, law, given, folder)
    if not isinstance(law, str) or law not in LAWS:
        raise ValueError(f"[{where}] law: there is none called {law!r}{nearest(str(law), LAWS)}")
    return _system_of_law(where, law, given, folder)


def _own_system(where: str, law: str, given: Mapping[str, Any], folder: Path) -> Any:
    arguments = {key: value for key, value in given.items() if key not in SYSTEM_KEYS}
    try:
        found = usercode.load(law, folder)
        if not isinstance(found, System | Family | dispatch.System):
            found = usercode.call(law, found, arguments)
        elif arguments:
            raise ValueError(f"{law} is a system already, so {next(iter(arguments))} must be left out")
    except ValueError as error:
        raise ValueError(f"[{where}] law: {error}") from error
    if not isinstance(found, System | Family | dispatch.System):
        raise ValueError(f"[{where}] law: {law} must return a system of either model, not {found!r}")
    return found


def _system_of_law(where: str, name: str, given: Mapping[str, Any], folder: Path) -> System | Family:
    law = LAWS[name]
    parameters = inspect.signature(law).parameters
    allowed = {*parameters, *SYSTEM_KEYS, *(("file",) if name == "table" else ())}
    _known(where, given, allowed, f"law {name!r}")
    arguments = {key: value for key, value in given.items() if key not in SYSTEM_KEYS or key in parameters}
    if "file" in arguments:
        arguments = _table_of_contexts(where, arguments, folder)
    for key, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and key not in arguments:
            hint = " (or file, a CSV file)" if name == "table" and key == "features" else ""
            hint = " (a CSV file goes into a table [system.recorded])" if name == "outcomes" else hint
            raise ValueError(f"[{where}] {key}: is missing{hint}; law {name!r} needs it")
    if isinstance(arguments.get("low_interval"), list):
        arguments["low_interval"] = tuple(arguments["low_interval"])
    fresh = given.get("fresh", False)
    if not isinstance(fresh, bool):
        raise ValueError(f"[{where}] fresh: must be true or false, not {fresh!r}")
    if fresh and name not in FRESH:
        raise ValueError(f"[{where}] fresh: law {name!r} has one instance only; leave it out or set it to false")
    if fresh and "seed" in arguments:
        raise ValueError(f"[{where}] seed: must be left out with fresh = true, every run draws its own instance")
    try:
        return family(law, **arguments) if fresh else law(**arguments)
    except (ValueError, TypeError) as error:
        raise ValueError(f"[{where}] {error}") from error


def _queues(where: str, given: Mapping[str, Any], folder: Path) -> dispatch.System:
    """A system of parallel queues."""
    _known(where, given, ("name", "arrivals", "service", *QUEUES), "a system with service_rates")
    arguments = {key: value for key, value in given.items() if key in QUEUES and key not in ("load", "times")}
    for key, laws in (("arrivals", ARRIVALS), ("service", SERVICE)):
        if key in given:
            arguments[key] = _process(where, key, given[key], laws)
    if ("load" in given) == ("arrival_rate" in given):
        raise ValueError(f"[{where}] arrival_rate: give it, or load, and not both")
    if not isinstance(given.get("allow_unstable", False), bool):
        raise ValueError(f"[{where}] allow_unstable: must be true or false, not {given['allow_unstable']!r}")
    if "times" in given:
        _of_numbers(where, "times", given["times"])
        if not isinstance(given["service_rates"], list) or not all(isinstance(r, list) for r in given["service_rates"]):
            raise ValueError(
                f"[{where}] service_rates: must have a list of rates for each of the times, not {given['service_rates']!r}"
            )
    try:
        if "times" in given:
            arguments["service_rates"] = dispatch.schedule(given["times"], given["service_rates"])
        if "load" in given:
            require_positive("load", given["load"])
            spare = dispatch.System(**{**arguments, "arrival_rate": 1.0, "allow_unstable": True})
            # The rate as a fraction, so that a load of 0.3 is 0.3 exactly.
            rate = exact_rate("load", given["load"]) / (exact_rate("load", spare.load))
            arguments["arrival_rate"] = float(rate)
        return dispatch.System(**arguments)
    except OverflowError as error:
        raise ValueError(f"[{where}] {'load' if 'load' in given else 'service_rates'}: is too large") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"[{where}] {error}") from error


def _process(where: str, key: str, given: Any, laws: Mapping[str, Callable[..., Any]]) -> Any:
    """An arrival process or a service law: a name, or a table with `law` and its parameters."""
    table = {"law": given} if isinstance(given, str) else _table(f"{where}.{key}", given)
    name = table.get("law")
    if not isinstance(name, str) or name not in laws:
        raise ValueError(f"[{where}] {key}: there is no law {name!r}{nearest(str(name), laws)}")
    parameters = inspect.signature(laws[name]).parameters
    _known(f"{where}.{key}", table, ("law", *parameters), f"{name!r}")
    for parameter in parameters:
        if parameter not in table and parameters[parameter].default is inspect.Parameter.empty:
            raise ValueError(f"[{where}.{key}] {parameter}: is missing; {name!r} needs it")
    try:
        return laws[name](**{parameter: value for parameter, value in table.items() if parameter != "law"})
    except (ValueError, TypeError) as error:
        raise ValueError(f"[{where}.{key}] {error}") from error


def _table_of_contexts(where: str, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Arguments of ``table_law`` from a CSV file with a line per (context, server) pair.

    Columns: context, server (any labels; every context has every server), optionally probability and weight (of the
    context, the same on all its lines); every other column is a feature.
    """
    for key in ("features", "probabilities", "weights"):
        if key in given:
            raise ValueError(f"[{where}] {key}: must be left out with file, the CSV file brings it")
    if not isinstance(given["file"], str):
        raise ValueError(f"[{where}] file: must be a path, not {given['file']!r}")
    try:
        sheet = read_sheet(folder / given["file"])
        context, server = sheet.at("context", "columns"), sheet.at("server", "columns")
        features = [column for column in sheet.columns if column not in _TABLE_COLUMNS]
        if not features:
            raise ValueError(f"{sheet.path}: has no feature column beside {', '.join(sheet.columns)}")
        row_contexts = list(dict.fromkeys(row.values[context] for row in sheet.rows))
        servers = list(dict.fromkeys(row.values[server] for row in sheet.rows))
        at: dict[tuple[str, str], Any] = {}
        for row in sheet.rows:
            pair = row.values[context], row.values[server]
            if pair in at:
                raise ValueError(
                    f"{sheet.path}: lines {at[pair].line} and {row.line} are both for context {pair[0]!r} and server "
                    f"{pair[1]!r}"
                )
            at[pair] = row
        for pair in itertools.product(row_contexts, servers):
            if pair not in at:
                raise ValueError(f"{sheet.path}: there is no line for context {pair[0]!r} and server {pair[1]!r}")
        found = {key: value for key, value in given.items() if key != "file"}
        found["features"] = [[[sheet.number(at[c, s], f) for f in features] for s in servers] for c in row_contexts]
        if "probability" in sheet.columns:
            found["probabilities"] = [[sheet.number(at[c, s], "probability") for s in servers] for c in row_contexts]
        if "weight" in sheet.columns:
            for c in row_contexts:
                if len({sheet.number(at[c, s], "weight") for s in servers}) > 1:
                    raise sheet.bad(at[c, servers[-1]], "weight", f"gives context {c!r} another weight than before")
            found["weights"] = [sheet.number(at[c, servers[0]], "weight") for c in row_contexts]
    except ValueError as error:
        raise ValueError(f"[{where}] file: {error}") from error
    return found


# --- [[policy]] and [oracle] -----------------------------------------------------------------------------------------


def _policies(given: Any, model: str, folder: Path) -> tuple[Any, ...]:
    if not isinstance(given, list) or not given:
        raise ValueError("[[policy]] is missing; give at least one, each with a rule: " + ", ".join(RULES[model]))
    found: list[Any] = []
    for number, table in enumerate(given, 1):
        where = f"[[policy]] {number}"
        if not isinstance(table, Mapping):
            raise ValueError(f"{where}: must be a table with a rule, not {table!r}")
        for grid, values in _policy_grid(where, table):
            policy = _policy(where, values, model, folder, grid)
            if any(policy.name == other.name for other in found):
                raise ValueError(
                    f"{where} name: {policy.name!r} is taken by an earlier policy; give this one another name"
                )
            found.append(policy)
    return tuple(found)


def _policy_grid(where: str, table: Mapping[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    try:
        return _grid("policy", table)
    except ValueError as error:
        raise ValueError(str(error).replace("[policy]", where, 1)) from error


def _policy(where: str, table: Mapping[str, Any], model: str, folder: Path, grid: Mapping[str, Any]) -> Any:
    """One policy; what a grid sets is part of its name, since the name keys its random stream."""
    rules = RULES[model]
    rule = table.get("rule")
    if not isinstance(rule, str) or not (rule in rules or usercode.names_file(rule)):
        missing = "rule is missing" if rule is None else f"rule: there is none called {rule!r}"
        raise ValueError(f"{where} {missing}{nearest(str(rule), rules)}")
    name = table.get("name", "")
    if not isinstance(name, str):
        raise ValueError(f"{where} name: must be a text, not {name!r}")
    options = {key: value for key, value in table.items() if key not in ("rule", "name")}
    try:
        if rule in rules:
            found = rules[rule](**options)
        else:
            found = _own_policy(rule, options, model, folder)
    except TypeError:  # a rule without options
        raise ValueError(f"{where} {next(iter(options))}: no such parameter of {rule!r}; it has none") from None
    except ValueError as error:
        raise ValueError(f"{where} {error}") from error
    suffix = ", ".join(f"{key}={value}" for key, value in grid.items())
    name = name or (found.name if suffix else "")
    name = f"{name} {suffix}" if suffix else name
    return found.named(name) if name else found


def _own_policy(rule: str, options: dict[str, Any], model: str, folder: Path) -> Any:
    kind: type = SchedulingPolicy if model == SCHEDULING else dispatch.Policy
    try:
        found = usercode.load(rule, folder)
        if not isinstance(found, kind):
            found = usercode.call(rule, found, options)
        elif options:
            raise ValueError(f"{rule} is a policy already, so {next(iter(options))} must be left out")
    except ValueError as error:
        raise ValueError(f"rule: {error}") from error
    if not isinstance(found, kind):
        raise ValueError(f"rule: {rule} must return a policy of {model}, not {found!r}")
    return found


def _oracle(given: Any, model: str, folder: Path) -> SchedulingPolicy | None:
    if given is None:
        return None
    table = _table("oracle", given)
    if model == DISPATCH:
        raise ValueError(
            "[oracle]: is for scheduling; dispatching counts decisions against SED with the true rates, so list the rule as a "
            "[[policy]] and let [run] baseline name it"
        )
    if "name" in table:
        raise ValueError(f"[oracle] name: must be left out, it is always called {ORACLE!r}")
    policy: SchedulingPolicy = _policy("[oracle]", table, model, folder, {})
    return policy


# --- what every table needs ------------------------------------------------------------------------------------------


def _table(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"[{where}] must be a table, not {value!r}")
    return value


def _known(where: str, given: Mapping[str, Any], allowed: Any, whose: str = "") -> None:
    for key in given:
        if key not in allowed:
            kind = f"[{where}] {key}: no such key" if where else f"[{key}]: no such table"
            raise ValueError(f"{kind}{f' of {whose}' if whose else ''}{nearest(key, allowed)}")


def _of_numbers(where: str, key: str, value: Any) -> None:
    if not isinstance(value, list) or not all(_is_number(item) for item in value):
        raise ValueError(f"[{where}] {key}: must be a list of numbers, not {value!r}")


def _count(where: str, given: Mapping[str, Any], key: str, least: int, most: int | None = None) -> None:
    value = given[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"[{where}] {key}: must be a whole number of at least {least}, not {value!r}")
    if most is not None and value > most:
        raise ValueError(f"[{where}] {key}: must be at most {most}, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
