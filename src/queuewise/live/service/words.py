"""What pydantic finds wrong, in our words: one way for settings and for requests. No sentence shows Python's names for things,
those of classes and types, since who reads it has written YAML or JSON."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ...fields import nearest

#: Of pydantic, and in our sentences.
_WORDS = (
    ("Input should be", "must be"),
    ("String should", "must"),
    ("List should", "must"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
)
#: pydantic's names for what is of another type than it must be: what it must be, unless a place says so itself.
_TYPES = {
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("int_parsing", "int_parsing_size", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    "string_type": "a text",
    "path_type": "a path",
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "an object"),
}
_NO_NAME = "is no name: up to 64 letters, digits, '.', '_' or '-', the first a letter or digit"


@dataclass(frozen=True)
class Means:
    """Beside a type in ``Annotated``: what must stand there, behind "must be" · off : whether it may be ``off``."""

    what: str | None = None
    off: bool = False


@dataclass(frozen=True)
class _Place:
    """Where something is wrong. kind : the type that is wanted there · means : what else is known of it."""

    kind: Any
    means: tuple[Means, ...] = ()

    @property
    def what(self) -> str | None:
        """What must stand here, as the place itself says it."""
        said = next((one.what for one in self.means if one.what is not None), None)
        example = getattr(self.kind, "example", None)
        if said is None and example is not None:
            said = f"settings by name, as in {example}"
        return said

    @property
    def off(self) -> str:
        return ", or off" if any(one.off for one in self.means) else ""

    @property
    def fields(self) -> Collection[str]:
        """Names of settings here."""
        return self.kind.model_fields if isinstance(self.kind, type) and issubclass(self.kind, BaseModel) else ()


def allowed(one: Mapping[str, Any], place: _Place | None = None) -> str:
    """One of pydantic's findings as the rest of one of our sentences, behind the field's name and a colon."""
    kind = one["type"]
    if kind in _TYPES:
        what = _TYPES[kind]
        if place is None:
            return f"must be {what}"
        return f"must be {place.what or what}{place.off}"
    if kind == "invalid_key":
        return "must be a text, as names are"
    message: str = one["msg"]
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    return message[:1].lower() + message[1:] + ("" if place is None else place.off)


def sentences(error: ValidationError, root: type[BaseModel], secrets: Collection[str] = ()) -> list[str]:
    """pydantic's findings in settings, a sentence each: the path of the setting, and what is allowed.

    root : the model of all settings · secrets : names of settings whose values are never shown.
    """
    found = []
    for one in error.errors(include_url=False):
        where = [str(part) for part in one["loc"]]
        path = ".".join(where) or "settings"
        kind, context = one["type"], one.get("ctx", {})
        if kind == "extra_forbidden":
            found.append(f"{path}: there is no such setting{nearest(where[-1], _place(root, where[:-1]).fields)}")
        elif kind == "missing":
            found.append(f"{path}: is missing")
        elif kind == "too_short":
            found.append(f"{path}: must name at least one")
        elif kind == "value_error":
            found.append(f"{path}: {context['error']}")
        elif kind == "string_pattern_mismatch" or where[-1:] == ["[key]"]:
            name = where[-2] if where[-1] == "[key]" else path
            found.append(f"{'.'.join(where[:-1]) or path}: {name!r} {_NO_NAME}")
        else:
            secret = bool(where) and where[-1] in secrets
            found.append(f"{path}: {allowed(one, _place(root, where))}{'' if secret else given(one['input'])}")
    return found


def given(value: Any) -> str:
    """What stands there, where that is short."""
    if value is None:
        return ", not nothing"
    if isinstance(value, bool):  # as YAML has it
        return f", not {str(value).lower()}"
    return "" if isinstance(value, dict | list) else f", not {value!r}"


def _place(root: type[BaseModel], path: list[str]) -> _Place:
    """What is known of the place that a path leads to."""
    place = _Place(root)
    for part in path:
        fields = getattr(place.kind, "model_fields", None)
        arguments = get_args(place.kind)
        if fields is not None:
            place = _bare(fields[part]) if part in fields else _Place(None)
        elif get_origin(place.kind) is dict:
            place = _bare(arguments[1])
        elif get_origin(place.kind) in (tuple, list):
            place = _bare(arguments[0])
        else:
            place = _Place(None)
    return place


def _bare(kind: Any) -> _Place:
    """A type without what stands around it: ``Annotated``, ``| None``, the field that has it."""
    means: list[Means] = []
    while True:
        if isinstance(kind, FieldInfo):
            means += [one for one in kind.metadata if isinstance(one, Means)]
            kind = kind.annotation
        elif get_origin(kind) is Annotated:
            kind, *others = get_args(kind)
            means += [one for one in others if isinstance(one, Means)]
        elif get_origin(kind) in (Union, types.UnionType):
            kinds = [one for one in get_args(kind) if one is not type(None)]
            if len(kinds) > 1:
                return _Place(None, tuple(means))
            (kind,) = kinds
        else:
            return _Place(kind, tuple(means))
