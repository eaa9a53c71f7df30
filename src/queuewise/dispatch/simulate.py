"""``simulate``: policies and the oracle on the same arrivals and the same work, many times over."""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..fields import require_choice, require_count, require_list, require_positive
from ..runs.experiment import checked_workers, conduct, different_names, open_store, policy_settings, provenance
from ..runs.runner import Halted, Progress
from ..runs.statistics import Moments
from ..runs.store import Columns
from . import engine, loop
from .arrivals import Recorded
from .engine import Player
from .policies import make
from .policies.sed import sed
from .policy import Policy
from .result import CAUSES, MOST_SERVERS_KEPT, ORACLE, SHARED, Result, result_columns
from .systems import System

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Checkpoints per factor of ten, and batches that a run is cut into for batch means.
PER_DECADE, BATCHES = 16, 20
#: Run numbers are kept in 32 bits; and the largest c₁, for which gaps are looked up to m = 25 c₁.
MOST_RUNS, MOST_DEPTH = 2**31 - 1, 1000.0


def simulate(
    system: System,
    policies: str | Policy | Sequence[str | Policy],
    arrivals: int = 1_000_000,
    runs: int = 50,
    seed: int = 1,
    *,
    workers: int | None = None,
    warm_up: int | float = 0,
    checkpoints: Sequence[int] | None = None,
    quantiles: Sequence[float] = (),
    sizes: Literal["job", "server"] = "job",
    depth: float = engine.DEPTH,
    folder: str | os.PathLike[str] | None = None,
    half_width: float | None = None,
    progress: Progress = None,
    compiled: bool = True,
    first_run: int = 0,
) -> Result:
    """Route the same arrivals by every policy, and by the oracle, and collect what happened.

    Every run has its own arrival times and sizes, shared by all policies; a policy's own randomness depends on seed, run and
    the policy's name. So no number depends on which other policies take part, on their order, on the number of threads, or
    on how the runs are split between calls.

    Parameters
    ----------
    system : System
    policies : names, or policies made by factories such as ``lased(initial_rates=[5, 0.1])``.
    arrivals : of a run, at least 1; memory does not grow with it. A recorded trace ends a run earlier.
    runs : number of runs, at least 1; with `half_width` the largest number.
    seed : whole number of at least 0.
    workers : threads; None for as many as there are cores. Changes no result.
    warm_up : arrivals that averages leave out: a number, or a share of them as a float below 1. Regret counts from the start.
    checkpoints : numbers of arrivals at which everything is written down; None for 16 per factor of ten.
    quantiles : of the sojourn time, kept by a streaming sketch (t-digest: a fraction of a percent off).
    sizes : "job": a job needs the same work whoever serves it, so that policies differ by their routing alone. "server": the
        k-th job of server i needs the same work under every policy, so that service times are as in a comparison of servers.
    depth : c₁ of m(k) = ⌊c₁ ln k⌋ in the decomposition of regret.
    folder : where finished runs are written at once. A call with the same settings continues from what is there.
    half_width : stop as soon as the 95 % interval of every policy's mean regret at the end of the runs is at most ± this many
        decisions, not before 10 runs. Looked at every 10 runs, later every tenth more. Stopping at a width leaves the
        intervals' level right only as the width shrinks; where it matters add a margin.
    progress : True for a bar with the time left (where stderr is a terminal), or a function of (runs done, runs in all).
    compiled : False runs the policies as plain Python: the same numbers, slowly.
    first_run : number of the first run, to split one experiment between calls or machines.

    Returns
    -------
    Result

    Raises
    ------
    ValueError : a value out of range, an unknown policy, two policies of one name, or a folder of another experiment.
    Interrupted : on Ctrl-C; a ``KeyboardInterrupt`` whose ``.result`` has the runs that were done.

    References
    ----------
    The model and the regret: LASED, sections 2.1 and 3.2.
    """
    _check(system, arrivals=(arrivals, 1), runs=(runs, 1), seed=(seed, 0), first_run=(first_run, 0))
    if first_run + runs > MOST_RUNS:
        raise ValueError(f"first_run must leave run numbers below {MOST_RUNS}, not {first_run!r}")
    workers = checked_workers(workers)
    _check_sizes(system, sizes)
    require_positive("depth", depth)
    if half_width is not None:
        require_positive("half_width", half_width)
    if depth > MOST_DEPTH:
        raise ValueError(f"depth must be at most {MOST_DEPTH:g}, not {depth!r}")
    for q in require_list("quantiles", quantiles, "numbers"):
        if not isinstance(q, float) or not 0.0 < q < 1.0:
            raise ValueError(f"quantiles must lie strictly between 0 and 1, not {q!r}")
    arrivals = engine.last_arrival(system, int(arrivals))
    skipped = _warm_up(warm_up, arrivals)
    listed = _policies(policies)
    batch_marks = _batch_marks(skipped, arrivals)
    marks = _marks(checkpoints, skipped, batch_marks, arrivals)
    settings: dict[str, Any] = {
        "model": "dispatch",
        "arrivals": arrivals,
        "seed": int(seed),
        "warm_up": skipped,
        "checkpoints": marks.tolist(),
        "batch_marks": batch_marks,
        "quantiles": list(quantiles),
        "sizes": sizes,
        "depth": float(depth),
        "starts": _starts(system),
        "system": system.settings(),
        "policies": [policy_settings(policy) for policy in listed],
        **provenance(system),
    }
    game = _Game(system, listed, settings, compiled)
    store = None if folder is None else open_store(folder, settings)
    collected = _Collected([policy.name for policy in listed], int(runs), int(first_run))
    found: Result = conduct(
        game.play,
        range(first_run, first_run + runs),
        store=store,
        rows=len(marks),
        names=result_columns(settings),
        collected=collected,
        result=lambda: Result(settings, collected.columns(), first_run),
        warm_up=lambda: game.warm_up(first_run),
        workers=workers,
        progress=progress,
        halt=game.halt,
        stop=None if half_width is None else collected.narrower_than(half_width),
    )
    return found


def _check(system: Any, **counts: tuple[Any, int]) -> None:
    if not isinstance(system, System):
        raise ValueError(f"system must be a dispatch.System, not {system!r}")
    for field, (value, least) in counts.items():
        require_count(field, value, least)


def _check_sizes(system: System, sizes: str) -> None:
    require_choice("sizes", sizes, ("job", "server"))
    if sizes == "server" and system.service.recorded is not None:
        raise ValueError("sizes must be 'job' with recorded sizes, which belong to the jobs")


def _policies(policies: str | Policy | Sequence[str | Policy]) -> list[Policy]:
    """The policies by name, each once, none under a name that the rows need themselves."""
    if isinstance(policies, str | Policy):
        policies = [policies]
    listed = [make(policy) for policy in require_list("policies", policies, "policies and names")]
    names = different_names(listed, ("run", "round", *SHARED))
    for name in names:
        if name == ORACLE:
            raise ValueError(
                f"policies: {ORACLE!r} is the name of the system that regret is measured against; give the policy another "
                "name with .named(...)"
            )
    return listed


def _warm_up(given: int | float, arrivals: int) -> int:
    if isinstance(given, float) and 0.0 <= given < 1.0:
        return int(given * arrivals)
    require_count("warm_up", given, 0)  # type: ignore[arg-type]
    if given >= arrivals:
        raise ValueError(f"warm_up must be less than the {arrivals} arrivals of a run, not {given!r}")
    return int(given)


def _starts(system: System) -> float:
    """When averages over time begin: with the first arrival of a trace, whatever its clock says; else at 0."""
    return float(system.arrivals.times[0]) if isinstance(system.arrivals, Recorded) else 0.0


def _batch_marks(skipped: int, arrivals: int) -> list[int]:
    edges = np.linspace(skipped, arrivals, min(BATCHES, arrivals - skipped) + 1).round().astype(int)
    return [int(edge) for edge in edges if edge > 0]


def _marks(given: Sequence[int] | None, skipped: int, batch_marks: Sequence[int], arrivals: int) -> Ints:
    """Checkpoints in order, with the end of the warm-up, the batches' and the last arrival among them."""
    if given is None:
        decades = math.log10(max(arrivals, 2))
        chosen = {round(x) for x in np.logspace(0.0, decades, 1 + math.ceil(PER_DECADE * decades))}
    else:
        for mark in require_list("checkpoints", given, "numbers of arrivals"):
            require_count("checkpoints", mark)
            if mark > arrivals:
                raise ValueError(f"checkpoints must be at most the {arrivals} arrivals of a run, not {mark!r}")
        chosen = {int(mark) for mark in given}
    chosen |= {arrivals, *batch_marks}
    if skipped:
        chosen.add(skipped)
    return np.array(sorted(mark for mark in chosen if mark <= arrivals), dtype=np.int64)


def _is_oracle(policy: Policy) -> bool:
    """Whether a policy plays exactly as the oracle does, so that one system can stand for both."""
    reference = sed()
    return policy.decide is reference.decide and policy.options == reference.options


class _Game:
    """One experiment: plays the run of any number."""

    def __init__(self, system: System, policies: list[Policy], settings: dict[str, Any], compiled: bool) -> None:
        self.system, self.settings, self.compiled = system, settings, compiled
        self.policies = [sed(name=ORACLE), *policies]
        self.played = [policy for policy in self.policies if policy.name == ORACLE or not _is_oracle(policy)]
        self.marks = np.array(settings["checkpoints"], dtype=np.int64)
        self.halt = threading.Event()
        # Options out of range are refused here, before anything is compiled or written.
        for policy in self.played:
            engine.prepare(policy, engine.shape_of(system, policy.clairvoyant, settings["seed"]), settings["seed"])

    def _players(self, run: int) -> list[Player]:
        return [
            Player(
                policy,
                self.system,
                self.marks,
                seed=self.settings["seed"],
                run=run,
                own_sizes=self.settings["sizes"] == "server",
                listen=bool(self.settings["quantiles"]),
                compiled=self.compiled,
                depth=self.settings["depth"],
            )
            for policy in self.played
        ]

    def warm_up(self, run: int) -> None:
        """Play one arrival of every policy, so that each is compiled once, here, and not by several threads at a time."""
        if self.compiled:
            for times, work in engine.flows(self.system, 1, self.settings["seed"], run):
                for player in self._players(run):
                    player.advance(times, work)

    def play(self, run: int) -> Columns:
        """The columns of one run."""
        players = self._players(run)
        sketches = [_Sketch() for _ in players] if self.settings["quantiles"] else []
        chunk = engine.OWN_CHUNK if self.settings["sizes"] == "server" else engine.CHUNK
        for times, work in engine.flows(self.system, self.settings["arrivals"], self.settings["seed"], run, chunk):
            for position, player in enumerate(players):
                if self.halt.is_set():
                    raise Halted
                player.advance(times, work)
                if sketches and player.stable:
                    sketches[position].add(player.record.sojourn[: len(times)])
        longest = max(players, key=lambda player: player.tally.clock[loop.ARRIVED])  # the others may have overflowed
        columns: Columns = {"arrivals": self.marks.copy(), "time": longest.record.rows[:, loop.TIME].copy()}
        kept = {player.policy.name: player for player in players}
        for policy in self.policies:
            player = kept.get(policy.name, kept[ORACLE])
            columns |= _columns(policy.name, player, self.system.servers)
            for q in self.settings["quantiles"]:
                sketch = sketches[players.index(player)]
                value = sketch.quantile(q) if player.stable else math.nan
                columns[f"{policy.name}.quantile.{q!r}"] = np.full(len(self.marks), value)
        return columns


def _columns(name: str, player: Player, servers: int) -> Columns:
    """What one player wrote down, by name."""
    rows = player.record.rows
    found: Columns = {
        f"{name}.exploration": rows[:, loop.WRONG],
        f"{name}.misestimation": rows[:, loop.WRONG + 1],
        f"{name}.overflow": rows[:, loop.WRONG + 2],
        f"{name}.area": rows[:, loop.AREA],
        f"{name}.found": rows[:, loop.FOUND],
        f"{name}.sojourn": rows[:, loop.SOJOURN],
        f"{name}.busy_periods": rows[:, loop.BUSY_PERIODS],
        f"{name}.episode": rows[:, loop.EPISODE],
        f"{name}.largest": rows[:, loop.LARGEST],
    }
    if servers <= MOST_SERVERS_KEPT:
        for i in range(servers):
            found[f"{name}.served.{i}"] = rows[:, loop.PER_SERVER + i]
            found[f"{name}.busy.{i}"] = rows[:, loop.PER_SERVER + servers + i]
            found[f"{name}.rate.{i}"] = player.record.rates[:, i]
    return {key: np.ascontiguousarray(column) for key, column in found.items()}


class _Sketch:
    """A t-digest of sojourn times: memory that does not grow, the same numbers in every run of the same seed."""

    def __init__(self) -> None:
        from crick import TDigest

        self._digest = TDigest()

    def add(self, values: Floats) -> None:
        self._digest.update(values)

    def quantile(self, q: float) -> float:
        return float(self._digest.quantile(q))


class _Collected:
    """The runs so far, in order."""

    def __init__(self, names: list[str], runs: int, first_run: int) -> None:
        self.done = 0
        self._names, self._runs, self._first = names, runs, first_run
        self._columns: Columns = {}
        self._regret = Moments.none(len(names))

    def add(self, run: int, columns: Columns) -> None:
        """The next run."""
        if not self._columns:
            self._columns = {name: np.empty((self._runs, len(c)), c.dtype) for name, c in columns.items()}
        for name, column in columns.items():
            self._columns[name][run - self._first] = column
        self._regret = self._regret.add(
            np.array([sum(columns[f"{name}.{cause}"][-1] for cause in CAUSES) for name in self._names])
        )
        self.done += 1

    def narrower_than(self, half_width: float) -> Callable[[int], bool]:
        """The stopping rule: every policy's mean regret is known within ± this much."""

        def stop(done: int) -> bool:
            low, high = self._regret.interval(0.95)
            return done >= 2 and bool(np.all((high - low) / 2.0 <= half_width))

        return stop

    def columns(self) -> Columns:
        """name → [run, row]."""
        return {name: column[: self.done] for name, column in self._columns.items()}


class Job(NamedTuple):
    """Every job of one run of one policy, arrays of one length.

    arrival, began, departs : times · size : its work · server : int32, where it went · reason : int8, 1 if forced · cause :
    int8, −1 where the decision was the oracle's too, else 0 exploration, 1 misestimation, 2 overflow
    """

    arrival: Floats
    size: Floats
    server: NDArray[np.int32]
    reason: NDArray[np.int8]
    cause: NDArray[np.int8]
    began: Floats
    departs: Floats


def trace(
    system: System,
    policy: str | Policy,
    arrivals: int = 10_000,
    seed: int = 1,
    run: int = 0,
    *,
    sizes: Literal["job", "server"] = "job",
    depth: float = engine.DEPTH,
    compiled: bool = True,
) -> Job:
    """Every job of one run: what ``simulate`` would play as this run of this policy, written down job by job.

    With sizes="server" the sizes are those of the servers' own sequences. A run that overflows ends there, with a warning.
    `depth` : c₁ of m(k), as for ``simulate``.
    """
    _check(system, arrivals=(arrivals, 1), seed=(seed, 0), run=(run, 0))
    _check_sizes(system, sizes)
    arrivals = engine.last_arrival(system, arrivals)
    own = sizes == "server"
    player = Player(
        make(policy),
        system,
        np.array([arrivals]),
        seed=seed,
        run=run,
        own_sizes=own,
        trace=True,
        compiled=compiled,
        depth=depth,
    )
    chunks: list[tuple[NDArray[Any], ...]] = []
    for times, work in engine.flows(system, arrivals, seed, run, engine.OWN_CHUNK if own else engine.CHUNK):
        player.advance(times, work)
        record, done = player.record, int(player.tally.clock[loop.POSITION])
        columns = (times, record.size, record.server, record.reason, record.cause, record.began, record.departs)
        chunks.append(tuple(column[:done].copy() for column in columns))
        if not player.stable:
            warnings.warn(
                f"{player.policy.name}: {system.most_in_system} jobs were in the system after {len(chunks[-1][0])} more "
                "arrivals, so the run ends there as unstable",
                RuntimeWarning,
                stacklevel=2,
            )
            break
    return Job(*(np.concatenate(column) for column in zip(*chunks, strict=True)))
