"""What a dispatching experiment found: regret, numbers in the system and sojourn times at checkpoints, run by run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runs import convergence, effects, simultaneous
from ..runs.result import ORACLE as ORACLE
from ..runs.result import ByName, Described, stack
from ..runs.simultaneous import RESAMPLES, Comparisons, Method
from ..runs.statistics import Difference, Estimate, Moments
from ..runs.store import Columns, Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

#: Why decisions were against the oracle (LASED, section 3.3).
CAUSES = ("exploration", "misestimation", "overflow")
#: What every run keeps of a policy at each checkpoint.
FIELDS = (*CAUSES, "area", "found", "sojourn", "busy_periods", "episode", "largest")
#: What is kept of each server, up to so many of them.
SERVER_FIELDS = ("served", "busy", "rate")
MOST_SERVERS_KEPT = 64
#: Columns that all policies of a run share.
SHARED = ("arrivals", "time")

Measure = Literal["regret", "number_in_system", "sojourn_time"]
MEASURES = ("regret", "number_in_system", "sojourn_time")


def policy_columns(name: str, servers: int) -> list[str]:
    """The columns of one policy."""
    kept = servers if servers <= MOST_SERVERS_KEPT else 0
    return [
        *(f"{name}.{key}" for key in FIELDS),
        *(f"{name}.{key}.{i}" for key in SERVER_FIELDS for i in range(kept)),
    ]


class Curve(NamedTuple):
    """A mean over runs at every checkpoint.

    arrivals : int64[m], arrivals so far · mean, low, high, sd : float64[m], the interval of each checkpoint alone; NaN from
    where a run was stopped as unstable
    """

    arrivals: NDArray[np.int64]
    mean: Floats
    low: Floats
    high: Floats
    sd: Floats
    runs: int


class Place(NamedTuple):
    """One policy's place in a ranking: its value, and how far it is behind the first. The intervals of `behind` hold for all
    places at once."""

    name: str
    value: Estimate
    behind: Difference | None


class Result(Described):
    """What happened to every policy, and to the oracle's own system, over the same arrivals.

    Made by ``dispatch.simulate`` and ``queuewise.load``. Regret is the number of decisions so far that are not in the
    oracle's set at the state that the policy is in (LASED, section 3.2). Means are over runs, with Student's t intervals.

    Attributes
    ----------
    settings : dict
        What was simulated, as plain JSON values.
    arrivals : int64[m]
        Checkpoints: numbers of arrivals so far.
    policies : list of str
    runs, seed, first_run : int
    """

    def __init__(self, settings: Mapping[str, Any], columns: Columns, first_run: int = 0) -> None:
        super().__init__(settings, first_run)
        self._columns = columns
        self.arrivals: NDArray[np.int64] = columns["arrivals"][0].astype(np.int64)

    def __repr__(self) -> str:
        return f"Result({', '.join(self.policies)}: {self.runs} runs of {self.arrivals[-1]} arrivals, seed {self.seed})"

    @property
    def runs(self) -> int:
        """Runs that were completed."""
        return len(self._columns["arrivals"])

    @property
    def servers(self) -> int:
        """n."""
        return len(self.settings["system"]["slots"])

    @property
    def warm_up(self) -> int:
        """Arrivals that averages leave out."""
        return int(self.settings["warm_up"])

    # --- regret -------------------------------------------------------------------------------------------------------

    def regrets(self, name: str) -> Floats:
        """float64[run, checkpoint]: decisions against the oracle so far, run by run."""
        self._known(name)
        return np.asarray(sum(self._columns[f"{name}.{cause}"] for cause in CAUSES), dtype=np.float64)

    def regret(self, name: str, level: float = 0.95) -> Curve:
        """Mean number of decisions against the oracle so far, at every checkpoint.

        Raises ValueError for an unknown name (with the nearest known one) or a level outside (0, 1).
        """
        return self._curve(self.regrets(name), level)

    def regret_by_cause(self, name: str, level: float = 0.95) -> dict[str, Curve]:
        """The same, split into "exploration" (forced), "misestimation" and "overflow" (LASED, section 3.3).

        Two servers with constant rates and one slot each have all three; a rule without episodes has no overflow, and other
        systems have exploration and the rest, which stands under "misestimation".
        """
        self._known(name)
        return {cause: self._curve(self._columns[f"{name}.{cause}"], level) for cause in CAUSES}

    def total_regret(self, name: str, level: float = 0.95) -> Estimate:
        """Mean number of decisions against the oracle over the whole run."""
        return Moments.of(self.regrets(name)[:, -1]).estimate(level)

    # --- what an operator feels ---------------------------------------------------------------------------------------

    @property
    def time(self) -> Floats:
        """float64[run, checkpoint]: when the checkpoints' arrivals came."""
        return self._columns["time"]

    @property
    def number_in_system(self) -> dict[str, Floats]:
        """Policy → float64[run, checkpoint]: time average of the number in the system from the end of the warm-up to the
        checkpoint, also under "oracle"; NaN up to the end of the warm-up."""
        return self._averages("area", self.time, self._starts)

    @property
    def number_at_arrivals(self) -> dict[str, Floats]:
        """The same, averaged over what arrivals found instead of over time."""
        return self._averages("found", self._columns["arrivals"])

    @property
    def sojourn_time(self) -> dict[str, Floats]:
        """Policy → float64[run, checkpoint]: mean time from arrival to departure of the jobs that arrived between the end of
        the warm-up and the checkpoint, counting what those still present have before them."""
        return self._averages("sojourn", self._columns["arrivals"])

    @property
    def _starts(self) -> float:
        """When averages over time begin without a warm-up: 0, or the first arrival of a recorded trace."""
        return float(self.settings.get("starts", 0.0))

    def _averages(self, field: str, divisor: NDArray[Any], begin: float = 0.0) -> dict[str, Floats]:
        since = self._since()
        found: dict[str, Floats] = ByName()
        for name in self._names():
            sums = self._columns[f"{name}.{field}"]
            before, start = (sums[:, [since]], divisor[:, [since]]) if since >= 0 else (0.0, begin)
            with np.errstate(divide="ignore", invalid="ignore"):
                found[name] = (sums - before) / (divisor - start)
            found[name][:, : since + 1] = np.nan
        return found

    def _since(self) -> int:
        """The checkpoint at the end of the warm-up; −1 where there is none."""
        return int(np.searchsorted(self.arrivals, self.warm_up)) if self.warm_up else -1

    def mean_number_in_system(self, name: str, level: float = 0.95) -> Estimate:
        """Time average of the number in the system after the warm-up.

        The interval is over runs; with a single run it is over batches of it, which estimates a steady state.
        """
        return self._steady(name, "number_in_system", level)

    def mean_sojourn_time(self, name: str, level: float = 0.95) -> Estimate:
        """Mean sojourn time after the warm-up; intervals as in :meth:`mean_number_in_system`."""
        return self._steady(name, "sojourn_time", level)

    def _steady(self, name: str, measure: Measure, level: float) -> Estimate:
        self._known(name)
        if self.runs > 1:
            return Moments.of(self._final(name, measure)).estimate(level)
        return Moments.of(self.batch_means(name, measure)).estimate(level)

    def batch_means(self, name: str, measure: Measure = "number_in_system", run: int = 0) -> Floats:
        """Averages over equally many arrivals each, after the warm-up: float64[batches]. Their intervals are honest only
        where a batch is long beside the time in which the system forgets its state."""
        self._known(name)
        self._measure(measure)
        if not 0 <= run < self.runs:
            raise ValueError(f"run must be from 0 to {self.runs - 1}, not {run!r}")
        if measure == "regret":
            raise ValueError("measure must be 'number_in_system' or 'sojourn_time' for batch means, not 'regret'")
        edges = [int(edge) for edge in self.settings["batch_marks"]]
        at = np.searchsorted(self.arrivals, edges)
        field, divisor = (
            ("area", self.time) if measure == "number_in_system" else ("sojourn", self._columns["arrivals"])
        )
        sums, count = self._columns[f"{name}.{field}"][run, at], divisor[run, at].astype(np.float64)
        if not self.warm_up:
            begin = self._starts if measure == "number_in_system" else 0.0
            sums, count = np.concatenate([[0.0], sums]), np.concatenate([[begin], count])
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.diff(sums) / np.diff(count)
        return np.asarray(means[np.diff(count) > 0.0])  # a recorded trace may begin with a batch that takes no time

    def excess(self, name: str, of: Measure = "sojourn_time", level: float = 0.95) -> Difference:
        """How much larger the policy's mean is than that of the oracle's own system, paired by run."""
        return self.compare(name, ORACLE, of, level)

    def compare(self, a: str, b: str, of: Measure = "regret", level: float = 0.95) -> Difference:
        """Mean difference `a` − `b` at the end of the runs, paired by run; negative favours `a`.

        of : "regret", "number_in_system" or "sojourn_time" (averages after the warm-up).
        """
        values = self._final(a, of) - self._final(b, of)
        return Difference(*Moments.of(values).estimate(level), a, b)

    def rank(
        self,
        of: Measure = "sojourn_time",
        level: float = 0.95,
        method: Method = "bonferroni",
        resamples: int = RESAMPLES,
    ) -> list[Place]:
        """Policies in order of their means, each with its paired difference to the first (intervals hold for all pairs)."""
        values = {name: Moments.of(self._final(name, of)).estimate(level) for name in self.policies}
        order = sorted(self.policies, key=lambda name: (np.isnan(values[name].mean), values[name].mean))
        found = self.compare_all(of, level, None, method, resamples)
        behind = [None, *(found.of(name, order[0]).difference for name in order[1:])]
        return [Place(name, values[name], difference) for name, difference in zip(order, behind, strict=True)]

    def compare_all(
        self,
        of: Measure = "sojourn_time",
        level: float = 0.95,
        against: str | None = None,
        method: Method = "max_t",
        resamples: int = RESAMPLES,
    ) -> Comparisons:
        """Paired differences at the end of the runs whose intervals hold all together.

        of : as in :meth:`compare` · level : probability with which all hold · against : None for all pairs, a policy's name,
        or "best" for the one with the smallest mean (intervals then hold for all pairs) · method : "max_t", or "bonferroni",
        which is used for very few runs too, and ``reason`` says so · resamples : of "max_t".

        Raises ValueError for an unknown policy, measure or method, a level outside (0, 1), or too few resamples.
        """
        if against is not None and against != "best":
            self._known(against)
        final = {name: self._final(name, of) for name in self.policies}
        return simultaneous.compare_all(
            self.policies,
            {name: float(values.mean()) for name, values in final.items()},
            lambda a, b: Moments.of(final[a] - final[b]),
            final.__getitem__,
            against=against,
            level=level,
            method=method,
            resamples=resamples,
            seed=self.seed,
        )

    def run_means(self, name: str, of: Measure = "sojourn_time") -> Floats:
        """float64[run]: the measure at the end of every run; NaN for one that was stopped as unstable."""
        return np.array(self._final(name, of))

    def effects(self, a: str, b: str, of: Measure = "sojourn_time", level: float = 0.95) -> effects.Effects:
        """How large the difference `a` − `b` is: in deviations, in share of runs, as a ratio of means; see
        :mod:`queuewise.runs.effects`."""
        first, second = self._final(a, of), self._final(b, of)
        difference = Moments.of(first - second)
        return effects.Effects(
            a,
            b,
            effects.standardised(difference, level),
            effects.better(first, second, level),
            effects.ratio(Moments.of(first), Moments.of(second), difference, level),
            difference.count,
        )

    def convergence(
        self, what: str | tuple[str, str], of: Measure = "sojourn_time", level: float = 0.95
    ) -> convergence.Convergence:
        """How the interval of a policy's mean, or of the difference of a pair of them, shrank with the runs.

        Raises ValueError for fewer than two runs, or a run that was stopped as unstable.
        """
        if isinstance(what, str):
            return convergence.convergence(what, self._final(what, of), level)
        a, b = what
        return convergence.convergence(f"{a} - {b}", self._final(a, of) - self._final(b, of), level)

    def _measure(self, of: str) -> None:
        if of not in MEASURES:
            raise ValueError(f"of must be one of {', '.join(map(repr, MEASURES))}, not {of!r}")

    def _final(self, name: str, of: Measure) -> Floats:
        self._known(name)
        self._measure(of)
        if of == "regret":
            return self.regrets(name)[:, -1]
        return (self.number_in_system if of == "number_in_system" else self.sojourn_time)[name][:, -1]

    # --- servers and episodes -----------------------------------------------------------------------------------------

    def utilisation(self, name: str, level: float = 0.95) -> list[Estimate]:
        """Per server: share of its slots that is busy, averaged over time after the warm-up."""
        slots = self.settings["system"]["slots"]
        return [
            Moments.of(self._per_time(f"{name}.busy.{i}") / slots[i]).estimate(level)
            for i in self._servers(name, "utilisation")
        ]

    def shares(self, name: str, level: float = 0.95) -> list[Estimate]:
        """Per server: share of the jobs that it was sent, after the warm-up."""
        since = self._since()
        found = []
        for i in self._servers(name, "shares"):
            served = self._columns[f"{name}.served.{i}"]
            before = served[:, since] if since >= 0 else 0.0
            share = (served[:, -1] - before) / (self.arrivals[-1] - self.warm_up)
            found.append(Moments.of(share).estimate(level))
        return found

    def _per_time(self, column: str) -> Floats:
        since, sums = self._since(), self._columns[column]
        if since < 0:
            return np.asarray(sums[:, -1] / (self.time[:, -1] - self._starts))
        return np.asarray((sums[:, -1] - sums[:, since]) / (self.time[:, -1] - self.time[:, since]))

    def _servers(self, name: str, field: str) -> range:
        self._known(name)
        if self.servers > MOST_SERVERS_KEPT:
            raise ValueError(f"{field}: not kept of each server for more than {MOST_SERVERS_KEPT} servers")
        return range(self.servers)

    @property
    def estimates(self) -> dict[str, Floats]:
        """Policy → float64[run, checkpoint, n]: the rates that it believes in, NaN where it has none."""
        return ByName(
            {
                name: np.stack(
                    [self._columns[f"{name}.rate.{i}"] for i in self._servers(name, "estimates")],
                    axis=-1,
                )
                for name in self._names()
            }
        )

    @property
    def episodes(self) -> dict[str, NDArray[np.int64]]:
        """Policy → int64[run]: the number of its episode at the end; 0 for rules without episodes."""
        return ByName({n: np.nan_to_num(self._columns[f"{n}.episode"][:, -1]).astype(np.int64) for n in self._names()})

    @property
    def busy_periods(self) -> dict[str, NDArray[np.int64]]:
        """Policy → int64[run]: how often its system became empty."""
        return ByName(
            {n: np.nan_to_num(self._columns[f"{n}.busy_periods"][:, -1]).astype(np.int64) for n in self._names()}
        )

    @property
    def largest(self) -> dict[str, Floats]:
        """Policy → float64[run]: the largest number in the system."""
        return ByName({name: self._columns[f"{name}.largest"][:, -1] for name in self._names()})

    @property
    def verdict(self) -> dict[str, list[str]]:
        """Policy → per run: "stable", or "unstable" where the system reached its stated cap and the run was ended there."""
        return ByName(
            {
                name: ["unstable" if np.isnan(end) else "stable" for end in self._columns[f"{name}.area"][:, -1]]
                for name in self._names()
            }
        )

    def quantile(self, name: str, q: float, level: float = 0.95) -> Estimate:
        """A quantile of the sojourn times (all jobs, the warm-up's included), averaged over runs. Needs
        ``simulate(quantiles=[...])`` with this q."""
        self._known(name)
        if not isinstance(q, float):
            raise ValueError(f"q: must be one of the quantiles that were kept, not {q!r}")
        column = f"{name}.quantile.{q!r}"
        if column not in self._columns:
            known = ", ".join(f"{value!r}" for value in self.settings["quantiles"]) or "none"
            raise ValueError(
                f"q: the quantile {q!r} was not kept ({known} were); ask for it in simulate(quantiles=...)"
            )
        return Moments.of(self._columns[column][:, -1]).estimate(level)

    # --- the rest -----------------------------------------------------------------------------------------------------

    @classmethod
    def joined(cls, results: Sequence[Result], settings: Mapping[str, Any], first_run: int) -> Result:
        """The runs of several results, one after the other; see :func:`queuewise.pool`."""
        columns = [result._columns for result in results]
        return cls(settings, {name: np.concatenate([c[name] for c in columns]) for name in columns[0]}, first_run)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write settings (JSON) and rows (Parquet) to a folder; ``queuewise.load`` reads them back.

        Raises ValueError where the folder holds another experiment or cannot be written to; nothing is changed then.
        """
        store = Store(folder, self.settings)
        names, rows = list(self._columns), len(self.arrivals)
        missing = [
            number
            for number in range(self.first_run, self.first_run + self.runs)
            if store.read(number, rows, names) is None
        ]
        for _, group in itertools.groupby(enumerate(missing), key=lambda item: item[1] - item[0]):
            numbers = [number for _, number in group]
            many = [{name: self._columns[name][number - self.first_run] for name in names} for number in numbers]
            store.write_many(numbers[0], many)

    def plot(self, policies: Sequence[str] | None = None, *, level: float = 0.95, title: str | None = None) -> Figure:
        """Mean regret with its interval over the number of arrivals, both axes logarithmic above one."""
        from .plot import regrets

        return regrets(self, policies, level=level, title=title)

    def _curve(self, values: Floats, level: float) -> Curve:
        moments = Moments.of(values)
        low, high = moments.interval(level)
        return Curve(self.arrivals, moments.mean, low, high, moments.sd, moments.count)


def result_columns(settings: Mapping[str, Any]) -> list[str]:
    """All columns of a run of these settings."""
    names = list(dict.fromkeys([ORACLE, *(policy["name"] for policy in settings["policies"])]))
    servers = len(settings["system"]["slots"])
    quantiles = settings.get("quantiles", [])
    return [
        *SHARED,
        *(column for name in names for column in policy_columns(name, servers)),
        *(f"{name}.quantile.{q!r}" for name in names for q in quantiles),
    ]


def load(store: Store, numbers: Sequence[int]) -> Result:
    """The result of the runs of these consecutive numbers in a folder."""
    columns = result_columns(store.settings)
    rows = len(store.settings["checkpoints"])
    if not numbers:
        raise ValueError(f"folder: no run is finished in {store.folder}")
    return Result(store.settings, stack([store.read_whole(number, rows, columns) for number in numbers]), numbers[0])
