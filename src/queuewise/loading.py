"""``load`` and ``pool``: the results in a folder, and several results as one, of either model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .dispatch.result import load as _load_dispatch
from .runs import pooling
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


def pool(results: Sequence[Any], names: Sequence[str] | None = None) -> Any:
    """Several results of one experiment as one: runs that several machines made, or several seeds.

    Parameters
    ----------
    results : results of ``simulate`` or :func:`load`, at least one, of the same experiment but for their seeds and runs.
    names : what each is called in error messages; None to number them.

    Returns
    -------
    The result of all runs. Runs of one seed that follow each other are the result of one machine, in every number. Otherwise
    ``settings["seed"]`` lists the seeds and ``settings["pooled"]`` the runs, which are numbered anew from 0.

    Raises
    ------
    ValueError : results of different experiments, or a run that two results have.

    Examples
    --------
    ``qw.pool([qw.load("from-one-machine"), qw.load("from-another")])``
    """
    results = list(results)
    called = [f"results[{i}]" for i in range(len(results))] if names is None else list(names)
    order, settings, first_run = pooling.plan(results, called)
    if len(results) == 1:
        return results[0]
    return type(results[0]).joined([results[i] for i in order], settings, first_run)
