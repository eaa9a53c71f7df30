"""``simulate``: policies and the oracle on the same arrivals, contexts and service uniforms, many times over."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from .. import streams
from ..fields import require_choice, require_count, require_positive
from ..runs.experiment import checked_workers, conduct, different_names, open_store, policy_settings, provenance
from ..runs.result import (
    ARRIVAL,
    ORACLE,
    TRACE,
    Kept,
    Result,
    Rows,
    Summed,
    Window,
    check_window,
    given_up_column,
    trace_columns,
)
from ..runs.runner import Halted, Progress
from ..runs.statistics import Moments
from ..runs.store import Columns
from . import engine
from .policies import make
from .policies import oracle as clairvoyant_oracle
from .policy import Policy
from .systems import (
    Family,
    System,
)

#: Names that columns of the rows have themselves.
_RESERVED = ("run", "round", ARRIVAL)


def simulate(
    system: System | Family,
    policies: str | Policy | Sequence[str | Policy],
    rounds: int = 2000,
    runs: int = 100,
    seed: int = 1,
    *,
    workers: int | None = None,
    trace: bool = False,
    keep: Literal["runs", "moments"] = "runs",
    windows: Sequence[Window] | None = None,
    folder: str | os.PathLike[str] | None = None,
    half_width: float | None = None,
    progress: Progress = None,
    compiled: bool = True,
    first_run: int = 0,
    oracle: str | Policy | None = None,
) -> Result:
    """Play every policy, and the oracle, on the same random systems, and collect what happened.

    Every run has its own arrivals, contexts and service uniforms, shared by all policies; a policy's own randomness
    depends on seed, run and the policy's name. So no number depends on which other policies take part, on their order, on
    the number of threads, or on how the runs are split between calls.

    Parameters
    ----------
    system : System or Family
        One system for all runs, or a family: then every run draws its own instance.
    policies : names, or policies made by factories such as ``acqb(samples=3)``.
    rounds : rounds of a run, at least 1.
    runs : number of runs, at least 1; with `half_width` the largest number.
    seed : whole number of at least 0.
    workers : threads; None for as many as there are cores. Changes no result.
    trace : also keep every decision, departure and departure rate gap, and with them sojourn times.
    keep : "runs" keeps all queue lengths (4 bytes per run, round and policy); "moments" keeps means and variances alone, in
        memory that does not grow with the number of runs.
    windows : with keep="moments", the (first, last) rounds over which averages are wanted later; all rounds are always kept.
        Default: also the last quarter.
    folder : where finished runs are written at once, each whole or not at all. A call with the same settings continues from
        what is there, after an interruption, a kill, or with more `runs`, and ends with the result of an uninterrupted call.
    half_width : stop as soon as the 95 % interval of every policy's mean regret over all rounds (the oracle's apart) is at most
        ± this many jobs, not before 10 runs. Looked at every 10 runs, later every tenth more. Stopping at a width leaves
        the intervals' level right only as the width shrinks; where it matters add a margin.
    progress : True for a bar with the time left (where stderr is a terminal), or a function of (runs done, runs in all).
    compiled : False runs the policies as plain Python: the same numbers, slowly.
    first_run : number of the first run, to split one experiment between calls or machines.
    oracle : the policy that stands for the oracle, so that regret is measured against it; None for the papers', which serves
        the pair of largest success probability. A policy of your own that is ``clairvoyant`` sees the truth too.

    Returns
    -------
    Result

    Raises
    ------
    ValueError : a value out of range, an unknown policy, two policies of one name, or a folder of another experiment or
        that cannot be written to.
    Interrupted : on Ctrl-C; a ``KeyboardInterrupt`` whose ``.result`` has the runs that were done.

    References
    ----------
    The model and the regret: WISE, section 2.1; CQB-eta-2, section 2.
    """
    if not isinstance(system, System | Family):
        raise ValueError(f"system must be a System or a Family (wise_figure_law(...), say), not {system!r}")
    for field, value, least in (
        ("rounds", rounds, 1),
        ("runs", runs, 1),
        ("seed", seed, 0),
        ("first_run", first_run, 0),
    ):
        require_count(field, value, least)
    workers = checked_workers(workers)
    require_choice("keep", keep, ("runs", "moments"))
    if half_width is not None:
        require_positive("half_width", half_width)
    if trace and keep == "moments":
        raise ValueError("trace must be False with keep='moments': decisions take memory with every run")
    rounds, runs, seed, first_run = int(rounds), int(runs), int(seed), int(first_run)
    reference = _reference(oracle)
    listed = _policies(policies, reference, trace)
    summed = (
        Summed([policy.name for policy in listed], rounds, _windows(windows, keep, rounds))
        if keep == "moments"
        else None
    )

    game = _Game(system, [reference, *listed], rounds, seed, trace, compiled)
    settings: dict[str, Any] = {
        "model": "scheduling",
        "rounds": rounds,
        "seed": seed,
        "system": system.settings(),
        "policies": [policy_settings(policy) for policy in listed],
        **provenance(system),
    }
    if oracle is not None:
        settings["oracle"] = {key: value for key, value in policy_settings(reference).items() if key != "label"}
    store = None if folder is None else open_store(folder, settings)
    collected = _Collected([policy.name for policy in listed if policy.name != ORACLE], rounds, runs, first_run, summed)

    def result() -> Result | None:
        kept = collected.kept()
        return None if kept is None else Result(settings, kept, first_run)

    found: Result = conduct(
        game.play,
        range(first_run, first_run + runs),
        store=store,
        rows=rounds,
        names=game.columns,
        collected=collected,
        result=result,
        warm_up=lambda: game.warm_up(first_run),
        workers=workers,
        progress=progress,
        halt=game.halt,
        stop=None if half_width is None else collected.narrower_than(half_width),
    )
    return found


def _reference(oracle: str | Policy | None) -> Policy:
    """The policy that stands for the oracle, under the oracle's name."""
    return clairvoyant_oracle() if oracle is None else make(oracle).named(ORACLE)


def _policies(policies: str | Policy | Sequence[str | Policy], reference: Policy, trace: bool) -> list[Policy]:
    """The policies by name, each once, none under a name that the rows need themselves."""
    if isinstance(policies, str | Policy):
        policies = [policies]
    listed = [make(policy) for policy in policies]
    names = different_names(listed, _RESERVED)
    for policy in listed:
        if policy.name == ORACLE and (policy.rule, policy.options, policy.decide) != (
            reference.rule,
            reference.options,
            reference.decide,
        ):
            raise ValueError(
                f"policies: {ORACLE!r} is the name of the oracle that regret is measured against; give the policy "
                f"{policy.label!r} another name with .named(...)"
            )
    clash = set(names) & {given_up_column(name) for name in [*names, ORACLE]}
    clash |= set(names) & set(trace_columns([*names, ORACLE]) if trace else ())
    if clash:
        raise ValueError(f"policies: a policy cannot be called {min(clash)!r}, a column of the rows has that name")
    return listed


def _windows(windows: Sequence[Window] | None, keep: str, rounds: int) -> list[Window]:
    if windows is None:
        return [(1, rounds), (3 * rounds // 4 + 1, rounds)]
    return [(1, rounds), *(check_window("windows", window, rounds) for window in windows)]


class _Game:
    """One experiment: plays the run of any number."""

    def __init__(
        self, system: System | Family, policies: list[Policy], rounds: int, seed: int, trace: bool, compiled: bool
    ) -> None:
        self.system, self.rounds, self.seed, self.trace, self.compiled = system, rounds, seed, trace, compiled
        # The first is the oracle; one that is listed again plays the same.
        self.policies = [policies[0], *(policy for policy in policies[1:] if policy.name != ORACLE)]
        self.halt = threading.Event()
        names = [policy.name for policy in self.policies]
        self._shape = engine.shape_of(system, rounds) if isinstance(system, System) else None
        # Options out of range are refused here, before anything is compiled or written.
        _, shape = self._instance(0)
        self.columns = [
            *names,
            *(given_up_column(name) for name in names if shape.max_attempts),
            *(trace_columns(names) if trace else []),
        ]
        for policy in self.policies:
            engine.prepare(policy, shape, seed)

    def _instance(self, run: int) -> tuple[System, engine.Shape]:
        if isinstance(self.system, System):
            assert self._shape is not None
            return self.system, self._shape
        instance = self.system.instance(streams.instance_seed(self.seed, run))
        return instance, engine.shape_of(instance, self.rounds)

    def warm_up(self, run: int) -> None:
        """Play one round of every policy, so that each is compiled once, here, and not by several threads at a time."""
        if self.compiled:
            instance, shape = self._instance(run)
            draws = engine.draw(instance, 1, self.seed, run)
            for policy in self.policies:
                engine.play(policy, shape, draws, seed=self.seed, run=run)

    def play(self, run: int) -> Columns:
        """The columns of one run: queue lengths by name, and the trace if asked for."""
        instance, shape = self._instance(run)
        draws = engine.draw(instance, self.rounds, self.seed, run)
        columns: Columns = {}
        traces: Columns = {ARRIVAL: draws.arrivals} if self.trace else {}
        for policy in self.policies:
            if self.halt.is_set():
                raise Halted
            record = engine.play(
                policy, shape, draws, seed=self.seed, run=run, trace=self.trace, compiled=self.compiled
            ).record
            columns[policy.name] = record.queue_length
            if shape.max_attempts:
                traces[given_up_column(policy.name)] = record.given_up
            if self.trace:
                traces.update({f"{policy.name}.{key}": getattr(record, key) for key in TRACE})
        return columns | traces


class _Collected:
    """The runs so far, in order."""

    def __init__(self, names: list[str], rounds: int, runs: int, first_run: int, summed: Summed | None) -> None:
        self.done = 0
        self._names, self._rounds, self._runs, self._first = names, rounds, runs, first_run
        self._summed = summed
        self._columns: Columns = {}
        self._regret = Moments.none(len(names))

    def add(self, run: int, columns: Columns) -> None:
        """The next run."""
        if self._summed is not None:
            self._summed.add(columns)
        else:
            if not self._columns:
                # Pages that no run is written to are never taken from the machine.
                self._columns = {name: np.empty((self._runs, self._rounds), c.dtype) for name, c in columns.items()}
            for name, column in columns.items():
                self._columns[name][run - self._first] = column
        oracle_mean = columns[ORACLE].mean()
        self._regret = self._regret.add(np.array([columns[name].mean() - oracle_mean for name in self._names]))
        self.done += 1

    def narrower_than(self, half_width: float) -> Callable[[int], bool]:
        """The stopping rule: every policy's mean regret is known within ± this much."""

        def stop(done: int) -> bool:
            low, high = self._regret.interval(0.95)
            return done >= 2 and bool(np.all((high - low) / 2.0 <= half_width))

        return stop

    def kept(self) -> Kept | None:
        """How the runs are kept in the result; None where there are none."""
        if self.done == 0:
            return None
        if self._summed is not None:
            return self._summed
        if self.done < self._runs:
            return Rows({name: column[: self.done].copy() for name, column in self._columns.items()})
        return Rows(self._columns)
