"""What every model's ``simulate`` does with policies and folders."""

from __future__ import annotations

import os
import platform
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numba
import numpy as np

from .. import _compile
from .._version import VERSION
from ..fields import plain, require_count
from ..rule import Rule
from .runner import Interrupted, Progress, default_workers, replicate
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


def provenance(system: Any) -> dict[str, Any]:
    """What settings say for people beside what identifies an experiment: what made the runs, and the system in words."""
    found: dict[str, Any] = {
        "version": VERSION,
        "made_with": {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__},
    }
    if hasattr(system, "describe"):
        found["description"] = system.describe()
    return found


class Collected(Protocol):
    """The runs so far."""

    @property
    def done(self) -> int: ...

    def add(self, run: int, columns: Columns) -> None: ...


def conduct(
    play: Callable[[int], Columns],
    numbers: range,
    *,
    store: Store | None,
    rows: int,
    names: Sequence[str],
    collected: Collected,
    result: Callable[[], Any],
    warm_up: Callable[[], object],
    workers: int,
    progress: Progress,
    halt: threading.Event,
    stop: Callable[[int], bool] | None = None,
) -> Any:
    """Play the runs of these numbers, read those that are on disk, and return ``result()``.

    What is played is on disk before it is counted. `rows` and `names` : rows and columns of a whole run · `warm_up` :
    compiles what is to be played, here and not by several threads at a time. Raises Interrupted on Ctrl-C, with the result
    of the runs that were done.
    """

    def remembered(run: int) -> Columns:
        assert store is not None
        found = store.read(run, rows, names)
        if found is None:
            found = play(run)
            store.write(run, found)
        return found

    try:
        if store is None or not set(numbers) <= set(store.runs()):
            warm_up()
        replicate(
            play if store is None else remembered,
            numbers,
            workers=workers,
            on_done=collected.add,
            progress=progress,
            stop=stop,
            halt=halt,
        )
    except KeyboardInterrupt as interrupt:
        where = f"; they are in {store.folder}, and the same call continues from there" if store is not None else ""
        found = result() if collected.done else None
        raise Interrupted(collected.done, len(numbers), where, found) from interrupt
    return result()


def checked_workers(workers: int | None) -> int:
    """The threads to use: as many as asked for, else one per core."""
    if workers is None:
        return default_workers()
    require_count("workers", workers)
    return int(workers)
