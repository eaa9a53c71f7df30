"""State as named arrays, some of which grow with the number of observations.

A state is a (nested) named tuple of arrays. A field annotated ``Annotated[Array, Grows(axis)]`` has room for
`capacity` attempts along that axis; :func:`grow` returns the same state with more room, everything kept.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeVar, cast, get_type_hints

import numpy as np

S = TypeVar("S")


class Grows(NamedTuple):
    """Marks an array of a state whose length along `axis` is `times` the attempts that it has room for, and `spare`.

    A named tuple that needs less than that says so by a method ``room(attempts)``: the entries to have room for, before
    there are more than so many attempts.
    """

    axis: int
    times: int = 1
    spare: int = 0


@cache
def growing_fields(state_type: type) -> dict[str, Grows]:
    """Field name → mark of the fields of a named tuple that are marked with :class:`Grows`."""
    hints = get_type_hints(state_type, include_extras=True)
    return {
        name: mark
        for name, hint in hints.items()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, Grows)
    }


def grow(state: S, capacity: int) -> S:
    """The state with room for `capacity` attempts assigned since the start, whether their outcomes are known, open or
    expired (never less than before). Arrays that grow are copied, and at least double."""
    marks = growing_fields(cast(type, type(state)))
    fields: dict[str, Any] = {}
    room = state.room(capacity) if hasattr(state, "room") else capacity
    for name, value in state._asdict().items():  # type: ignore[attr-defined]
        fields[name] = value
        if hasattr(value, "_fields"):
            fields[name] = grow(value, capacity)
        elif name in marks:
            axis, needed = marks[name].axis, marks[name].times * room + marks[name].spare
            if value.shape[axis] < needed:
                shape = list(value.shape)
                shape[axis] = max(needed, 2 * value.shape[axis])
                larger = np.zeros(shape, dtype=value.dtype)
                larger[tuple(slice(0, n) for n in value.shape)] = value
                fields[name] = larger
    return type(state)(**fields)


def copied(state: S) -> S:
    """The same state in arrays of its own."""
    return unflatten(state, {name: array.copy() for name, array in flatten(state).items()})


def flatten(state: Any, prefix: str = "") -> dict[str, Any]:
    """Every array of a state by its dotted name, for printing, saving and comparing."""
    found: dict[str, Any] = {}
    for name, value in state._asdict().items():
        if hasattr(value, "_fields"):
            found.update(flatten(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found


def matches(like: Any, arrays: dict[str, Any]) -> bool:
    """Whether these are the arrays, by dotted name, of such a state: of the same types and lengths, but where it grows."""
    fixed = _fixed_lengths(like, flatten(like))
    return fixed == _fixed_lengths(like, arrays)


def _fixed_lengths(like: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    grows = _growing_axes(like)
    return {
        name: (array.dtype, tuple(n for axis, n in enumerate(array.shape) if grows.get(name) != axis))
        for name, array in arrays.items()
    }


def _growing_axes(state: Any, prefix: str = "") -> dict[str, int]:
    found = {prefix + name: mark.axis for name, mark in growing_fields(cast(type, type(state))).items()}
    for name, value in state._asdict().items():
        if hasattr(value, "_fields"):
            found |= _growing_axes(value, f"{prefix}{name}.")
    return found


def unflatten(like: S, arrays: dict[str, Any], prefix: str = "") -> S:
    """A state of the same type as `like` from the arrays that :func:`flatten` gave."""
    fields = {
        name: unflatten(value, arrays, f"{prefix}{name}.") if hasattr(value, "_fields") else arrays[prefix + name]
        for name, value in like._asdict().items()  # type: ignore[attr-defined]
    }
    return type(like)(**fields)
