"""``load``: the results in a folder, of either model."""

from __future__ import annotations

import os
from typing import Any

from .dispatch.result import load as _load_dispatch
from .runs.result import load as _load_scheduling
from .runs.store import Store


def load(folder: str | os.PathLike[str]) -> Any:
    """The result in a folder that ``Result.save`` or ``simulate(folder=...)`` wrote.

    Runs are taken from the first on, up to the first that is missing.

    Raises
    ------
    ValueError : no results there, or a damaged file (rerun the same simulation with this folder to have it replaced).
    """
    store = Store(folder, None)
    numbers = store.consecutive()
    if store.settings.get("model") == "dispatch":
        return _load_dispatch(store, numbers)
    return _load_scheduling(store, numbers)
