"""What every model's ``simulate`` does with policies and folders."""

from __future__ import annotations

import os
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .. import _compile
from ..fields import plain
from ..rule import Rule
from .store import Columns, Store

_PACKAGE = __name__.split(".")[0]


def different_names(policies: Sequence[Rule], reserved: Iterable[str]) -> list[str]:
    """The policies' names. ValueError where there are none, two alike, or one that the rows need themselves."""
    if not policies:
        raise ValueError("policies must name at least one policy")
    names = [policy.name for policy in policies]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"policies: two are called {name!r}; give one of them another name with .named(...)")
        if name in reserved:
            raise ValueError(
                f"policies: a policy cannot be called {name!r}, the rows on disk have a column of that name"
            )
    return names


def policy_settings(policy: Rule) -> dict[str, Any]:
    """What identifies a policy, as JSON values. A rule from outside this package is also known by its code, so that runs
    of two versions of it are never mixed in one folder."""
    found: dict[str, Any] = {
        "name": policy.name,
        "rule": policy.rule,
        "options": plain(policy.options),
        "label": policy.label,
    }
    functions = [*policy.functions.values(), *(getattr(policy, name) for name in ("configure", "start"))]
    outside = [f for f in functions if _has_code(f) and str(f.__module__).split(".")[0] != _PACKAGE]
    if outside:
        found["code"] = _compile.fingerprint(*outside)
    return found


def _has_code(function: Callable[..., Any]) -> bool:
    """Whether its code can be fingerprinted: a plain function, or one that numba compiled already."""
    return isinstance(function, types.FunctionType) or hasattr(function, "py_func")


def open_store(folder: str | os.PathLike[str], settings: Mapping[str, Any]) -> Store:
    """The folder of an experiment, with a warning where another version of this package began it."""
    store = Store(folder, settings)
    began = store.settings.get("version")
    if began != settings["version"]:
        warnings.warn(
            f"{store.folder} was begun by version {began}, this is {settings['version']}: its runs may differ",
            stacklevel=3,
        )
    return store


def remembering(
    play: Callable[[int], Columns], store: Store, rows: int, names: Sequence[str]
) -> Callable[[int], Columns]:
    """Plays the run of any number, unless it is on disk; then it is read. What is played is on disk before it is counted."""

    def played(run: int) -> Columns:
        found = store.read(run, rows, names)
        if found is None:
            found = play(run)
            store.write(run, found)
        return found

    return played
