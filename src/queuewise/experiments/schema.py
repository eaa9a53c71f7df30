"""The JSON Schema of a file that describes an experiment, for editors that complete and check TOML.

It is made from the code that reads such files: laws' and rules' parameters, their default values and what their docstrings say
of them. Use: ``queuewise compare --schema > experiment.schema.json``, and ``#:schema experiment.schema.json`` as the first
line of a file.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from .. import dispatch
from ..dispatch.result import MEASURES
from ..runs.simultaneous import METHODS
from ..scheduling.contexts import from_outcomes
from ..scheduling.recorded import read_outcomes
from .description import ARRIVALS, DISPATCH, FRESH, LAWS, QUEUES, RULES, SCHEDULING, SERVICE, Run
from .recorded import KEYS as RECORDED

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Something in a Python file of the user's own.
_OWN = {"type": "string", "pattern": r"\.py:[A-Za-z_][\w.]*$", "description": "A function or object in a Python file."}
#: Words that a parameter may have, where its type says no more than that it is a text.
_WORDS = {
    "impossible": ["error", "drop", "floor", "attempts"],
    "truth": ["repeat", "fit"],
    "ties": ["earliest", "lowest", "highest", "fastest", "random"],
}


def schema() -> Schema:
    """The schema, as JSON values."""
    system = {
        "oneOf": [
            *(_law(name, law) for name, law in LAWS.items()),
            {"title": "a function of your own", "type": "object", "required": ["law"], "properties": {"law": _OWN}},
            _recorded(),
            _queues(),
        ]
    }
    rules = sorted({rule for model in RULES.values() for rule in model})
    return {
        "$schema": DIALECT,
        "title": "An experiment of Queuewise",
        "type": "object",
        "required": ["system", "policy"],
        "additionalProperties": False,
        "properties": {
            "title": {"type": "string", "description": "Heading of tables and figures. Default: the file's name."},
            "system": {
                "oneOf": [{"$ref": "#/$defs/system"}, {"type": "array", "minItems": 1, "items": _ref("system")}]
            },
            "run": _ref("run"),
            "policy": {"type": "array", "minItems": 1, "items": _ref("policy")},
            "oracle": {
                "description": "What regret is measured against, for scheduling. Default: the papers' oracle.",
                **_ref("policy"),
            },
        },
        "$defs": {
            "system": system,
            "run": _run(),
            "policy": {
                "type": "object",
                "required": ["rule"],
                "properties": {"rule": {"anyOf": [{"enum": rules}, _OWN]}},
                "oneOf": [
                    *(
                        _rule(rule, [register[rule] for register in RULES.values() if rule in register])
                        for rule in rules
                    ),
                    {"title": "a rule of your own", "properties": {"rule": _OWN}},
                ],
            },
        },
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _grid(keys: Mapping[str, Any]) -> Schema:
    """Lists of values for any of these keys."""
    return {
        "type": "object",
        "description": "Values to try; every combination is one.",
        "additionalProperties": False,
        "properties": {key: {"type": "array", "minItems": 1} for key in keys},
    }


def _open(title: str, properties: dict[str, Schema], required: list[str], fixed: dict[str, Schema]) -> Schema:
    """A table with these parameters; what is required may come from its grid instead."""
    needs = [{"anyOf": [{"required": [key]}, _in_grid(key)]} for key in required]
    return {
        "title": title,
        "type": "object",
        "required": list(fixed),
        "additionalProperties": False,
        "properties": {**fixed, **properties, "grid": _grid(properties)},
        **({"allOf": needs} if needs else {}),
    }


def _in_grid(key: str) -> Schema:
    return {"required": ["grid"], "properties": {"grid": {"required": [key]}}}


def _law(name: str, law: Callable[..., Any]) -> Schema:
    parameters = inspect.signature(law).parameters
    said = described_parameters(law)
    properties = {key: _value(key, parameter, said.get(key, "")) for key, parameter in parameters.items()}
    required = [key for key, parameter in parameters.items() if parameter.default is inspect.Parameter.empty]
    properties["name"] = {"type": "string", "description": "Heading in tables and figures, and the folder's name."}
    if name == "table":
        properties["file"] = {
            "type": "string",
            "description": "A CSV file with columns context, server, probability, weight; all others are features.",
        }
        required.remove("features")
    if name in FRESH:
        properties["fresh"] = {"type": "boolean", "description": "A fresh instance in every run.", "default": False}
    return _open(_first_line(law), properties, required, {"law": {"const": name}})


def _recorded() -> Schema:
    inner: dict[str, Schema] = {"file": {"type": "string", "description": "A CSV file, a line per job."}}
    for function in (read_outcomes, from_outcomes):
        said = described_parameters(function)
        for key, parameter in inspect.signature(function).parameters.items():
            if key in RECORDED:
                inner.setdefault(key, _value(key, parameter, said.get(key, "")))
    inner["scale"]["enum"] = ["unit", "none"]
    return {
        "title": "Recorded outcomes of jobs on servers, from a CSV file.",
        "type": "object",
        "required": ["recorded"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "recorded": {
                "type": "object",
                "additionalProperties": False,
                "anyOf": [{"required": ["file"]}, _in_grid("file")],
                "properties": {**inner, "grid": _grid(inner)},
            },
        },
    }


def _queues() -> Schema:
    said = described_parameters(dispatch.System)
    rate = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^\d+/\d+$"}]}
    properties: dict[str, Schema] = {key: {"description": said.get(key, "")} for key in QUEUES}
    properties["arrival_rate"] |= {"type": "number", "exclusiveMinimum": 0}
    properties["load"] = {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "Share of the servers' capacity that arrivals need; in the place of arrival_rate.",
    }
    properties["times"] = {
        "type": "array",
        "items": {"type": "number"},
        "description": "When the rates change, beginning with 0; service_rates then has a list for each time.",
    }
    properties["slots"] |= {"type": "array", "items": {"type": "integer", "minimum": 1}}
    properties["initial_rates"] |= {"type": "array", "items": rate}
    properties["initial_spread"] |= {"type": "number", "minimum": 1}
    properties["allow_unstable"] |= {"type": "boolean", "default": False}
    properties["service_rates"] |= {"type": "array", "items": {"anyOf": [rate, {"type": "array", "items": rate}]}}
    properties["name"] = {"type": "string"}
    properties["arrivals"] = _process(ARRIVALS, said.get("arrivals", ""))
    properties["service"] = _process(SERVICE, said.get("service", ""))
    either = {
        "oneOf": [{"anyOf": [{"required": [key]}, _in_grid(key)]} for key in ("arrival_rate", "load")],
    }
    found = _open("Parallel queues (dispatching).", properties, ["service_rates"], {})
    return {**found, "allOf": [*found["allOf"], either]}


def _process(laws: Mapping[str, Callable[..., Any]], said: str) -> Schema:
    bare = [name for name, law in laws.items() if not inspect.signature(law).parameters]
    kinds = []
    for name, law in laws.items():
        parameters = inspect.signature(law).parameters
        kinds.append(
            {
                "title": _first_line(law),
                "type": "object",
                "additionalProperties": False,
                "required": ["law", *parameters],
                "properties": {
                    "law": {"const": name},
                    **{key: _value(key, parameter, "") for key, parameter in parameters.items()},
                },
            }
        )
    return {"description": said, "oneOf": [{"enum": bare}, *kinds]}


def _run() -> Schema:
    models = {"rounds": SCHEDULING, "over": SCHEDULING, "arrivals": DISPATCH, "warm_up": DISPATCH, "measure": DISPATCH}
    kinds: dict[str, Schema] = {
        "runs": {"type": "integer", "minimum": 2, "description": "Runs; with half_width the largest number."},
        "seed": {"type": "integer", "minimum": 0, "description": "Of all randomness."},
        "half_width": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "Stop when every policy's mean regret is known within this much.",
        },
        "level": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "description": "Of the intervals."},
        "method": {"enum": list(METHODS), "description": "How intervals of differences hold together."},
        "baseline": {"type": "string", "description": "A policy that the others are compared with beside the best."},
        "rounds": {"type": "integer", "minimum": 1, "description": "Of a run."},
        "over": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1},
            "minItems": 2,
            "maxItems": 2,
            "description": "First and last round over which regret is averaged. Default: all.",
        },
        "arrivals": {"type": "integer", "minimum": 1, "description": "Of a run."},
        "warm_up": {"type": "integer", "minimum": 0, "description": "Arrivals that averages leave out."},
        "measure": {"enum": list(MEASURES), "description": "What policies are ranked by."},
    }
    assert set(kinds) == set(Run._fields)
    for key, default in Run._field_defaults.items():
        if default is not None:
            kinds[key]["default"] = default
        if key in models:
            kinds[key]["description"] = f"{models[key].capitalize()}: {kinds[key]['description']}"
    return {"type": "object", "additionalProperties": False, "properties": kinds}


def _rule(rule: str, factories: list[Callable[..., Any]]) -> Schema:
    """A rule's parameters; a rule of both models has those of either."""
    properties: dict[str, Schema] = {}
    for factory in factories:
        said = described_parameters(factory)
        for key, default in factory().defaults.items() if _bare(factory) else _required(factory):
            properties.setdefault(key, _option(key, default, said.get(key, "")))
    properties["name"] = {"type": "string", "description": "Key in the results; keys the rule's random stream."}
    return _open(_first_line(factories[0]), properties, [], {"rule": {"const": rule}})


def _bare(factory: Callable[..., Any]) -> bool:
    try:
        factory()
    except (TypeError, ValueError):
        return False
    return True


def _required(factory: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Parameters of a factory that cannot be called without them."""
    return [
        (key, None if parameter.default is inspect.Parameter.empty else parameter.default)
        for key, parameter in inspect.signature(factory).parameters.items()
        if key != "name" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def _option(key: str, default: Any, said: str) -> Schema:
    """What a rule's option may be: of the type of its default, or anything where that is None or stands for a choice."""
    found: Schema = {"description": said} if said else {}
    if isinstance(default, bool):
        found["type"] = "boolean"
    elif isinstance(default, int | float):
        found["type"] = ["number", "string"] if key == "radius" else "number"
    elif isinstance(default, str):
        found["type"] = "string"
        if default in _WORDS.get(key, ()):
            found["enum"] = _WORDS[key]
    if isinstance(default, bool | int | float | str):
        found["default"] = default
    return found


def _value(key: str, parameter: inspect.Parameter, said: str) -> Schema:
    """What a law's parameter may be, from its annotation."""
    annotation = str(parameter.annotation)
    kinds = {"float": "number", "int": "integer", "bool": "boolean", "str": "string"}
    words = [kinds[word] for word in re.findall(r"\w+", annotation) if word in kinds]
    found: Schema = {"description": said} if said else {}
    if any(mark in annotation for mark in ("ArrayLike", "Sequence", "tuple", "list")):
        # A name or several: "str | Sequence[str]".
        found["type"] = ["string", "array"] if re.match(r"str \|", annotation) else "array"
    elif len(words) == 1:
        found["type"] = words[0]
    if key in _WORDS and key != "ties":
        found["enum"] = _WORDS[key]
    if isinstance(parameter.default, bool | int | float | str):
        found["default"] = parameter.default
    return found


def _first_line(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").splitlines()[0]


#: How a line begins that gives a parameter's type, in NumPy's way, rather than saying something of it.
_TYPE = re.compile(r"(float|int|bool|str|array_like|column|path|callable)\b|[{(]")


def described_parameters(function: Callable[..., Any]) -> dict[str, str]:
    """Parameter → what the docstring says of it: ``name : text``, or NumPy's way with the text on the lines below."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    indentation = 0
    text, _, _ = (inspect.getdoc(function) or "").partition("Returns\n---")
    for line in text.partition("Raises\n---")[0].splitlines():
        depth = len(line) - len(line.lstrip())
        head = re.match(r"([A-Za-z_][\w, ]*) : (.*)", line.strip())
        if head is not None and (not current or depth <= indentation):
            indentation = depth
            found.update(dict.fromkeys((name.strip() for name in head[1].split(",")), current := [head[2]]))
        elif current and line.strip() and depth > indentation:
            current.append(line.strip())
        else:
            current = []
    return {name: " ".join(lines[1:] if _TYPE.match(lines[0]) else lines) for name, lines in found.items()}
