"""What an experiment found: queue lengths of every policy and of the oracle, run by run, and what follows from them."""

from __future__ import annotations

import difflib
import functools
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from . import convergence, effects, simultaneous
from .simultaneous import RESAMPLES, Comparisons, Method
from .statistics import Curve, Difference, Estimate, Moments, interval
from .store import Columns, Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The key of the oracle's queue among the columns of a run.
ORACLE = "oracle"
#: What a trace keeps for every round, per policy and for the oracle: column name → type.
TRACE: dict[str, type[np.generic]] = {
    "job": np.int32,
    "server": np.int32,
    "reason": np.int32,
    "departure": np.bool_,
    "gap": np.float64,
}
#: The column that says in which rounds a job arrived; kept with traces.
ARRIVAL = "arrival"
#: What is appended to a policy's name for the column of the rounds in which a job was given up; kept where jobs may be.
GIVEN_UP = "given_up"

Window = tuple[int, int]


class Trace(NamedTuple):
    """What one policy did, each [run, round].

    job, server : int32, the chosen pair (jobs numbered in order of arrival), −1 in an empty round · reason : int32, as the
    policy gave it · departure : bool, whether it was done · gap : float64, the departure rate gap: the largest true success
    probability waiting minus the chosen pair's (WISE, section 3.1)
    """

    job: NDArray[np.int32]
    server: NDArray[np.int32]
    reason: NDArray[np.int32]
    departure: NDArray[np.bool_]
    gap: NDArray[np.float64]


class Place(NamedTuple):
    """One policy's place in a ranking: its mean regret, and how far it is behind the policy in the first place.

    behind : paired difference to the first, None for the first itself. The intervals of `behind` hold for all places at
    once, whichever policy is first.
    """

    name: str
    regret: Estimate
    behind: Difference | None


class Kept(Protocol):
    """How runs are kept. `a` and `b` name policies or the oracle; the moments are those of Q_a − Q_b, or of Q_a alone."""

    @property
    def runs(self) -> int: ...

    def by_round(self, a: str, b: str | None) -> Moments: ...

    def over(self, a: str, b: str | None, window: Window) -> Moments: ...


class Rows:
    """Every run kept whole. columns : name → array [run, round]."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    @property
    def runs(self) -> int:
        return len(self.columns[ORACLE])

    def _values(self, a: str, b: str | None) -> NDArray[Any]:
        return self.columns[a] if b is None else self.columns[a] - self.columns[b]

    def by_round(self, a: str, b: str | None) -> Moments:
        return Moments.of(self._values(a, b))

    def over(self, a: str, b: str | None, window: Window) -> Moments:
        first, last = window
        return Moments.of(self._values(a, b)[:, first - 1 : last].mean(axis=1))


class Summed:
    """Running moments alone: memory that does not grow with the number of runs.

    Kept per round, and for the average over each of a few windows of rounds: every queue length, and every difference of
    two of them (a regret is a difference to the oracle).

    Parameters
    ----------
    policies : names, without the oracle.
    rounds : rounds of a run.
    windows : (first, last) round of each window whose average is kept.
    """

    def __init__(self, policies: Sequence[str], rounds: int, windows: Sequence[Window]) -> None:
        self.names = [ORACLE, *(name for name in policies if name != ORACLE)]
        self.windows = list(dict.fromkeys(windows))
        pairs = list(itertools.combinations(range(len(self.names)), 2))
        self._first = np.array([i for i, _ in pairs], dtype=np.int64)
        self._second = np.array([j for _, j in pairs], dtype=np.int64)
        keys: list[tuple[str, str | None]] = [(name, None) for name in self.names]
        keys += [(self.names[i], self.names[j]) for i, j in pairs]
        self._series = {key: position for position, key in enumerate(keys)}
        self._count = 0
        # Rounds, then the average over each window: one table of everything, updated in place.
        width = rounds + len(self.windows)
        self._mean, self._squares = np.zeros((len(keys), width)), np.zeros((len(keys), width))
        self._value, self._step = np.empty((len(keys), width)), np.empty((len(keys), width))
        self._rounds = rounds

    @property
    def runs(self) -> int:
        return self._count

    def add(self, columns: Columns) -> None:
        """One more run. The sums' last bits depend on the order of runs, so they are added in order."""
        value, step, rounds, singles = self._value, self._step, self._rounds, len(self.names)
        for position, name in enumerate(self.names):
            value[position, :rounds] = columns[name]
        np.subtract(value[self._first, :rounds], value[self._second, :rounds], out=value[singles:, :rounds])
        for position, (first, last) in enumerate(self.windows):
            value[:, rounds + position] = value[:, first - 1 : last].mean(axis=1)
        np.subtract(value, self._mean, out=step)
        self._mean += step / (self._count + 1)
        np.subtract(value, self._mean, out=value)
        self._squares += np.multiply(step, value, out=step)
        self._count += 1

    def _moments(self, a: str, b: str | None, columns: slice | int) -> Moments:
        if a == b:
            shape = np.shape(self._mean[0, columns])
            return Moments(self._count, np.zeros(shape), np.zeros(shape))
        position = self._series.get((a, b))
        if position is None:
            return self._moments(str(b), a, columns).negated()
        return Moments(self._count, np.array(self._mean[position, columns]), np.array(self._squares[position, columns]))

    def by_round(self, a: str, b: str | None) -> Moments:
        return self._moments(a, b, slice(0, self._rounds))

    def over(self, a: str, b: str | None, window: Window) -> Moments:
        first, last = window
        if first == last:
            return self._moments(a, b, first - 1)
        if window not in self.windows:
            known = ", ".join(map(str, self.windows))
            raise ValueError(
                f"rounds: with keep='moments' averages over {window} were not kept, only over {known} and single rounds; "
                "name the windows in simulate(windows=[...]), or keep='runs'"
            )
        return self._moments(a, b, self._rounds + self.windows.index(window))

    def arrays(self) -> Columns:
        """Everything, as named arrays."""
        return {
            "names": np.array(self.names),
            "windows": np.array(self.windows, dtype=np.int64).reshape(-1, 2),
            "count": np.array(self._count),
            "mean": self._mean,
            "squares": self._squares,
        }

    @classmethod
    def from_arrays(cls, arrays: Columns) -> Summed:
        """What :meth:`arrays` gave."""
        windows = [(int(first), int(last)) for first, last in arrays["windows"]]
        summed = cls([str(name) for name in arrays["names"]], arrays["mean"].shape[1] - len(windows), windows)
        summed._count = int(arrays["count"])
        summed._mean[:], summed._squares[:] = arrays["mean"], arrays["squares"]
        return summed

    def merge(self, other: Summed) -> Summed:
        """The moments of the runs of both together. ValueError where averages over other windows were kept."""
        if self.windows != other.windows or self.names != other.names:
            raise ValueError("results: averages over other windows of rounds were kept, so they cannot be pooled")
        together = Moments(self._count, self._mean, self._squares).merge(
            Moments(other._count, other._mean, other._squares)
        )
        merged = Summed(self.names[1:], self._rounds, self.windows)
        merged._count, merged._mean, merged._squares = together.count, together.mean, together.squares
        return merged


class ByName(dict[str, Any]):
    """A dictionary by policy that answers a wrong name with a sentence."""

    def __missing__(self, name: object) -> Any:
        raise ValueError(unknown_policy(name, self))


def unknown_policy(name: object, known: Iterable[str]) -> str:
    """The sentence for a name that is not among the policies, with the nearest that is."""
    names = list(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(map(repr, names)) or 'none'}"
    return f"policy: the result has none called {name!r}; {hint}"


class Described:
    """What a result of either model says of itself: its settings, its policies by name, its seed.

    Attributes
    ----------
    settings : dict
        What was simulated, as plain JSON values.
    first_run : int
        Number of the first run.
    """

    def __init__(self, settings: Mapping[str, Any], first_run: int) -> None:
        self.settings: dict[str, Any] = dict(settings)
        self.first_run = first_run

    @property
    def policies(self) -> list[str]:
        """Names of the policies, in the order in which they were given."""
        return [policy["name"] for policy in self.settings["policies"]]

    @property
    def seed(self) -> int:
        """The seed of all streams; of a pooled result the smallest of its seeds."""
        seed = self.settings["seed"]
        return int(seed[0] if isinstance(seed, list) else seed)

    @property
    def version(self) -> str:
        """The version of this package that began the experiment."""
        return str(self.settings.get("version", "unknown"))

    def label(self, name: str) -> str:
        """A policy's name with the options that differ from its rule's defaults, for legends."""
        self._known(name)
        found = [policy.get("label", name) for policy in self.settings["policies"] if policy["name"] == name]
        return str(found[0]) if found else name

    def _names(self) -> list[str]:
        return [*(name for name in self.policies if name != ORACLE), ORACLE]

    def _known(self, name: str) -> str:
        if name != ORACLE and name not in self.policies:
            raise ValueError(unknown_policy(name, self.policies))
        return name


class Result(Described):
    """Queue lengths of every policy and of the oracle over the same arrivals, contexts and service uniforms.

    Made by ``simulate`` and :func:`load`. Regret is Q − Q_oracle at the beginning of a round, in jobs; intervals are
    Student's t over runs.

    Attributes
    ----------
    settings : dict
        What was simulated, as plain JSON values: seed, rounds, system, policies, version.
    policies : list of str
    rounds, runs, seed : int
    first_run : int
        Number of the first run; the runs are ``first_run .. first_run + runs − 1``.
    version : str
    """

    def __init__(self, settings: Mapping[str, Any], kept: Kept, first_run: int = 0) -> None:
        super().__init__(settings, first_run)
        self._kept = kept

    def __repr__(self) -> str:
        return f"Result({', '.join(self.policies)}: {self.runs} runs of {self.rounds} rounds, seed {self.seed})"

    @property
    def rounds(self) -> int:
        """Rounds of every run."""
        return int(self.settings["rounds"])

    @property
    def runs(self) -> int:
        """Runs that were completed."""
        return self._kept.runs

    @property
    def queue_length(self) -> dict[str, NDArray[np.int32]]:
        """Policy → int32[run, round]: jobs waiting at the beginning of rounds 1..rounds."""
        rows = self._rows("queue_length")
        return ByName({name: rows.columns[name] for name in self.policies})

    @property
    def oracle_queue_length(self) -> NDArray[np.int32]:
        """int32[run, round]: the same of the oracle."""
        return self._rows("oracle_queue_length").columns[ORACLE]

    @property
    def trace(self) -> dict[str, Trace]:
        """Policy → :class:`Trace`, also under "oracle". Needs ``simulate(..., trace=True)``."""
        columns = self._traced("trace")
        return ByName({name: Trace(*(columns[f"{name}.{key}"] for key in TRACE)) for name in self._names()})

    @property
    def sojourn_time(self) -> dict[str, list[NDArray[np.float64]]]:
        """Policy → one float64[jobs] per run, also under "oracle": rounds from a job's arrival to its departure.

        Jobs in order of arrival; NaN for those that were given up or still wait at the end (so a plain mean over the others
        is biased downwards). Needs ``simulate(..., trace=True)``.
        """
        arrival = self._traced("sojourn_time")[ARRIVAL]
        born = [np.flatnonzero(row) for row in arrival]
        found: dict[str, list[NDArray[np.float64]]] = ByName()
        for name, trace in self.trace.items():
            found[name] = []
            for run, rounds_born in enumerate(born):
                gone = np.full(rounds_born.shape[0], np.nan)
                left = np.flatnonzero(trace.departure[run])
                gone[trace.job[run, left]] = left
                found[name].append(gone - rounds_born)
        return found

    @property
    def gives_up(self) -> bool:
        """Whether jobs are given up after so many failed attempts, and the runs say where."""
        return isinstance(self._kept, Rows) and given_up_column(ORACLE) in self._kept.columns

    @property
    def given_up(self) -> dict[str, NDArray[np.bool_]]:
        """Policy → bool[run, round], also under "oracle": whether a job was given up in the round.

        A queue is kept short by giving up too, so look at it beside the regret. Needs a system with `max_attempts`.
        """
        columns = self._rows("given_up").columns
        if not self.gives_up:
            raise ValueError("given_up: in this system jobs stay until they are done; make one with max_attempts")
        return ByName({name: columns[given_up_column(name)] for name in self._names()})

    def mean_given_up(self, name: str, rounds: Window | None = None, level: float = 0.95) -> Estimate:
        """Jobs given up in a run, on average over runs; "oracle" for the oracle's.

        Parameters and errors are those of :meth:`mean_regret`, and those of :attr:`given_up`.
        """
        first, last = self._window(rounds)
        return interval(self.given_up[self._known(name)][:, first - 1 : last].sum(axis=1), level)

    def regret(self, name: str, level: float = 0.95) -> Curve:
        """Mean over runs of Q − Q_oracle, for every round.

        Parameters
        ----------
        name : one of :attr:`policies`.
        level : confidence level of each round's interval.

        Raises
        ------
        ValueError : an unknown name (with the nearest known one), or a level outside (0, 1).
        """
        return self._kept.by_round(self._known(name), ORACLE).curve(level)

    def mean_queue_length(self, name: str, level: float = 0.95) -> Curve:
        """Mean over runs of Q for every round; "oracle" for the oracle's."""
        return self._kept.by_round(self._known(name), None).curve(level)

    def difference(self, a: str, b: str, level: float = 0.95) -> Curve:
        """Mean over runs of Q_a − Q_b, paired by run, for every round."""
        return self._kept.by_round(self._known(a), self._known(b)).curve(level)

    def mean_regret(self, name: str, rounds: Window | None = None, level: float = 0.95) -> Estimate:
        """Regret averaged over rounds, then over runs.

        Parameters
        ----------
        name : one of :attr:`policies`.
        rounds : (first, last) round, both included, counted from 1; None for all.
        level : confidence level.

        Raises
        ------
        ValueError : an unknown name, rounds outside 1..rounds, or a level outside (0, 1).
        """
        return self._kept.over(self._known(name), ORACLE, self._window(rounds)).estimate(level)

    def compare(self, a: str, b: str, rounds: Window | None = None, level: float = 0.95) -> Difference:
        """The mean difference in queue length (or regret: the same) `a` − `b`, paired by run; negative favours `a`.

        Parameters and errors are those of :meth:`mean_regret`.
        """
        moments = self._kept.over(self._known(a), self._known(b), self._window(rounds))
        return Difference(*moments.estimate(level), a, b)

    def rank(
        self,
        rounds: Window | None = None,
        level: float = 0.95,
        method: Method = "bonferroni",
        resamples: int = RESAMPLES,
    ) -> list[Place]:
        """Policies in order of mean regret, each with its paired difference to the first.

        The first place goes to whichever policy came out lowest, so the differences' intervals are widened to hold for
        *all pairs* of policies at once: then they hold for whichever pairs are looked at afterwards. Parameters and errors
        are those of :meth:`compare_all`, which also says what method was used in the end.
        """
        regret = {name: self.mean_regret(name, rounds, level) for name in self.policies}
        order = sorted(self.policies, key=lambda name: regret[name].mean)  # ties keep the given order
        found = self.compare_all(rounds, level, None, method, resamples)
        behind = [None, *(found.of(name, order[0]).difference for name in order[1:])]
        return [Place(name, regret[name], difference) for name, difference in zip(order, behind, strict=True)]

    def compare_all(
        self,
        rounds: Window | None = None,
        level: float = 0.95,
        against: str | None = None,
        method: Method = "max_t",
        resamples: int = RESAMPLES,
    ) -> Comparisons:
        """Paired differences in mean queue length (or regret: the same) whose intervals hold all together.

        Parameters
        ----------
        rounds : (first, last) round, both included, counted from 1; None for all.
        level : probability with which all intervals hold together.
        against : None for all pairs of policies, the name of a policy for all others against it, or "best" for all others
            against the one with the smallest mean (whose intervals then hold for all pairs, since the runs chose it).
        method : "max_t" resamples whole runs, by a seed that follows from the result's; "bonferroni" corrects t intervals.
            With keep="moments", very few runs, or policies that differ in a few runs only, it is Bonferroni, and the result's
            ``reason`` says so. See :mod:`queuewise.runs.simultaneous`.
        resamples : of "max_t".

        Raises
        ------
        ValueError : an unknown policy or method, rounds outside 1..rounds, a level outside (0, 1), too few resamples.
        """
        window = self._window(rounds)
        if against is not None and against != "best":
            self._known(against)
        return simultaneous.compare_all(
            self.policies,
            {name: float(self._kept.over(name, ORACLE, window).mean) for name in self.policies},
            lambda a, b: self._kept.over(a, b, window),
            (lambda name: self.run_means(name, rounds)) if isinstance(self._kept, Rows) else None,
            against=against,
            level=level,
            method=method,
            resamples=resamples,
            seed=self.seed,
        )

    def run_means(self, name: str, rounds: Window | None = None) -> NDArray[np.float64]:
        """float64[run]: regret averaged over rounds, run by run. Needs the runs (not keep="moments")."""
        first, last = self._window(rounds)
        columns = self._rows("run_means").columns
        regret = columns[self._known(name)][:, first - 1 : last] - columns[ORACLE][:, first - 1 : last]
        return np.asarray(regret.mean(axis=1))

    def effects(self, a: str, b: str, rounds: Window | None = None, level: float = 0.95) -> effects.Effects:
        """How large the difference `a` − `b` in mean regret is: in deviations, in share of runs, as a ratio.

        With keep="moments" the share of runs is not known. Parameters and errors are those of :meth:`mean_regret`; see
        :mod:`queuewise.runs.effects`.
        """
        window = self._window(rounds)
        difference = self._kept.over(self._known(a), self._known(b), window)
        share = effects.UNDEFINED
        if isinstance(self._kept, Rows):
            share = effects.better(self.run_means(a, rounds), self.run_means(b, rounds), level)
        first, second = (self._kept.over(name, ORACLE, window) for name in (a, b))
        return effects.Effects(
            a,
            b,
            effects.standardised(difference, level),
            share,
            effects.ratio(first, second, difference, level),
            difference.count,
        )

    def convergence(
        self, what: str | tuple[str, str], rounds: Window | None = None, level: float = 0.95
    ) -> convergence.Convergence:
        """How the interval of a policy's mean regret, or of the difference of a pair of them, shrank with the runs.

        Needs the runs (not keep="moments"), at least two. Errors are those of :meth:`mean_regret`.
        """
        if isinstance(what, str):
            return convergence.convergence(what, self.run_means(what, rounds), level)
        a, b = what
        difference = self.run_means(a, rounds) - self.run_means(b, rounds)
        return convergence.convergence(f"{a} - {b}", difference, level)

    @classmethod
    def joined(cls, results: Sequence[Result], settings: Mapping[str, Any], first_run: int) -> Result:
        """The runs of several results, one after the other; see :func:`queuewise.pool`."""
        kept = [result._kept for result in results]
        if all(isinstance(part, Rows) for part in kept):
            columns = [part.columns for part in kept if isinstance(part, Rows)]
            # A column that some lack, a trace say, is left out of the whole.
            common = [name for name in columns[0] if all(name in others for others in columns)]
            return cls(settings, Rows({name: np.concatenate([c[name] for c in columns]) for name in common}), first_run)
        summed = [part for part in kept if isinstance(part, Summed)]
        if len(summed) < len(kept):
            raise ValueError("results: some kept their runs and some moments alone, so they cannot be pooled")
        return cls(settings, functools.reduce(Summed.merge, summed), first_run)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write settings (JSON) and rows (Parquet) to a folder; :func:`load` reads them back, ``simulate`` continues there.

        Runs that the folder has already are left as they are: the same experiment's runs are the same. The layout is
        described in :mod:`queuewise.runs.store`.

        Raises
        ------
        ValueError : the folder holds another experiment or cannot be written to; nothing is changed then.
        """
        store = Store(folder, self.settings)
        if isinstance(self._kept, Summed):
            store.write_moments({**self._kept.arrays(), "first_run": np.array(self.first_run)})
            return
        columns = self._rows("save").columns
        names = list(columns)
        missing = [
            number
            for number in range(self.first_run, self.first_run + self.runs)
            if store.read(number, self.rounds, names) is None
        ]
        # Consecutive numbers share a file.
        for _, group in itertools.groupby(enumerate(missing), key=lambda item: item[1] - item[0]):
            numbers = [number for _, number in group]
            rows = [{name: columns[name][number - self.first_run] for name in names} for number in numbers]
            store.write_many(numbers[0], rows)

    def plot(self, policies: Sequence[str] | None = None, **options: Any) -> Figure:
        """Regret of the policies with bands, as a matplotlib figure; see :func:`queuewise.runs.plot.curves`."""
        from .plot import curves

        return curves(self, policies, **options)

    def _window(self, rounds: Window | None) -> Window:
        return (1, self.rounds) if rounds is None else check_window("rounds", rounds, self.rounds)

    def _rows(self, field: str) -> Rows:
        if not isinstance(self._kept, Rows):
            raise ValueError(f"{field}: the runs themselves were not kept (keep='moments'); simulate with keep='runs'")
        return self._kept

    def _traced(self, field: str) -> Columns:
        columns = self._rows(field).columns
        if ARRIVAL not in columns:
            raise ValueError(f"{field}: decisions were not written down; simulate with trace=True")
        return columns


def check_window(field: str, rounds: Any, last_round: int) -> Window:
    """A pair (first, last) of rounds, both included; ValueError for anything else."""
    try:
        first, last = rounds
        valid = first == int(first) and last == int(last) and 1 <= first <= last <= last_round
    except (TypeError, ValueError, OverflowError):
        valid = False
    if not valid:
        raise ValueError(
            f"{field} must be a pair (first, last) of rounds with 1 <= first <= last <= {last_round}, not {rounds!r}"
        )
    return int(first), int(last)


def stack(runs: Sequence[Columns]) -> Columns:
    """The columns of several runs, one below the other: name → array [run, round]."""
    return {name: np.stack([columns[name] for columns in runs]) for name in runs[0]}


def load(store: Store, numbers: Sequence[int]) -> Result:
    """The result of the runs of these consecutive numbers in a folder; of the moments kept there if there are no runs."""
    settings = store.settings
    if not numbers:
        arrays = store.read_moments()
        if arrays is None:
            raise ValueError(f"folder: no run is finished in {store.folder}")
        return Result(settings, Summed.from_arrays(arrays), int(arrays["first_run"]))
    rounds = int(settings["rounds"])
    names = list(dict.fromkeys([ORACLE, *(policy["name"] for policy in settings["policies"])]))
    wanted = list(names)
    for further in ([given_up_column(name) for name in names], trace_columns(names)):
        if all(set(further) <= set(store.columns(number)) for number in numbers):
            wanted += further
    return Result(settings, Rows(stack([store.read_whole(number, rounds, wanted) for number in numbers])), numbers[0])


def given_up_column(name: str) -> str:
    """The column that says in which rounds this policy, or the oracle, gave a job up."""
    return f"{name}.{GIVEN_UP}"


def trace_columns(names: Sequence[str]) -> list[str]:
    """The further columns of a run with a trace, for these policies and the oracle."""
    return [ARRIVAL, *(f"{name}.{key}" for name in names for key in TRACE)]
