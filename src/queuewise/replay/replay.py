"""``replay``: recorded jobs routed by every policy, and what an operator would have seen.

All policies meet the same jobs at the same times with the same work; they differ by their routing alone. The engine is that
of ``dispatch.simulate``. Sizes are divided by their mean, so that rates are jobs per second to the policies, which learn
rates from completions and busy time.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import replace as changed
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._version import VERSION
from ..dispatch import arrivals as arrival_laws
from ..dispatch import service as service_laws
from ..dispatch.policies import REGISTER
from ..dispatch.policy import Policy
from ..dispatch.result import MOST_SERVERS_KEPT, ORACLE, Result
from ..dispatch.simulate import simulate
from ..dispatch.systems import MOST_IN_SYSTEM, Rate, System, exact_rate, schedule
from ..experiments.report import Progress, Table, estimate_json, interval, output_folder, short, to_json, write_text
from ..fields import nearest, require_count, require_positive
from ..runs.statistics import Difference, Estimate
from .logs import Drift, Log, duration_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

#: What is replayed unless policies are named: all rules that make sense without options.
DEFAULT_POLICIES = (
    "sed",
    "lased",
    "greedy",
    "optimistic_sed",
    "thompson_sed",
    "jsq",
    "jiq",
    "round_robin",
    "random",
    "weighted_random",
    "power_of_d",
    "sed_of_d",
    "least_loaded",
    "dispatch_bandit",
)
#: Rules that learn the servers' speeds as they go.
LEARNERS = ("lased", "greedy", "optimistic_sed", "thompson_sed", "dispatch_bandit")
#: Quantiles of the delay that are kept.
QUANTILES = (0.5, 0.95, 0.99)
#: A server that is sent more than this share of what it can do is called overloaded: a log is short, and its end uneven.
OVERLOADED = 1.05
#: Servers that are shown one by one.
_FEW = 4
#: Checkpoints of the number in the system over time.
_POINTS = 240


class Servers(NamedTuple):
    """Who serves. names · rates : size per second of one slot of each, the mean where they drift · slots · drift : how the
    rates change, or None · origin : where the rates come from, for a person."""

    names: tuple[str, ...]
    rates: tuple[Fraction, ...]
    slots: tuple[int, ...]
    drift: Drift | None
    origin: str

    @property
    def capacity(self) -> float:
        """Size per second of all servers together, the mean where it drifts."""
        return sum(float(rate) * count for rate, count in zip(self.rates, self.slots, strict=True))


class Standing(NamedTuple):
    """What one policy did. Times are in seconds.

    delay : mean time from arrival to departure, over runs · median, p95, p99 : of the delay, means over runs
    number : time average of the number in the system · excess : mean delay above the oracle's, paired by run
    wrong : decisions that the oracle would not have taken, in the state that the policy was in · use : busy share of each
    server, None for more than 64 servers · offered : work sent to each server in terms of what it can do, or None
    verdict : "stable", "overloads …" or "overflowed"
    """

    name: str
    label: str
    delay: Estimate
    median: Estimate
    p95: Estimate
    p99: Estimate
    number: Estimate
    excess: Difference
    wrong: Estimate
    use: tuple[float, ...] | None
    offered: tuple[float, ...] | None
    verdict: str


class Replay(NamedTuple):
    """What a replay found. standings are ordered by mean delay; result has everything that ``dispatch.simulate`` keeps."""

    result: Result
    table: Table
    sentence: str
    standings: tuple[Standing, ...]
    log: Log
    servers: Servers
    notes: tuple[str, ...]
    results: dict[str, Any]
    files: tuple[Path, ...]

    def plot(self) -> Figure:
        """Delays of every policy, and the number in the system over time for a few."""
        from .plot import draw

        return draw(self)


# --- what is replayed ------------------------------------------------------------------------------------------------


def parse_policy(text: str) -> Policy:
    """A policy as one types it: ``lased``, or with options ``lased(ratio_bounds=(0.05, 20), name="mine")``.

    Raises ValueError for an unknown rule or option, or anything that is not a name with plain values.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        call = tree if isinstance(tree, ast.Call) else None
        called = tree if call is None else call.func
        if not isinstance(called, ast.Name) or (call is not None and any(word.arg is None for word in call.keywords)):
            raise ValueError
        values = [] if call is None else [ast.literal_eval(argument) for argument in call.args]
        options = {} if call is None else {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise ValueError(
            f"policy: {text!r} must be a rule's name, or one with options such as 'power_of_d(choices=3)'"
        ) from None
    if called.id not in REGISTER:
        raise ValueError(f"policy: no rule is called {called.id!r}{nearest(called.id, REGISTER)}")
    try:
        return REGISTER[called.id](*values, **options)
    except (ValueError, TypeError) as error:
        raise ValueError(f"policy: {text}: {error}") from error


def parse_where(texts: Sequence[str]) -> dict[str, str]:
    """``column=value`` texts as a mapping. Raises ValueError for one of another form."""
    found = {}
    for text in texts:
        column, sign, value = text.partition("=")
        if not sign or not column:
            raise ValueError(f"where: must be COLUMN=VALUE, not {text!r}")
        found[column] = value
    return found


def parse_slots(texts: Sequence[str] | None) -> list[int] | None:
    """Numbers of slots as one types them. Raises ValueError for anything but whole numbers."""
    try:
        return None if texts is None else [int(text) for text in texts]
    except ValueError:
        raise ValueError(f"slots must be whole numbers of at least 1, not {','.join(texts or ())!r}") from None


def _speeds(log: Log) -> tuple[tuple[str, ...], Floats, Floats]:
    """Names of the servers in a log, the rate of each (size per second of service), and how many jobs each served.

    Where the work of a job is known only by how long it took, the rate of a server is the mean duration over all servers'
    jobs divided by that of its own: 1 is average.
    """
    if log.servers is None:
        raise ValueError("rates: give the servers' rates; the log does not say who served each job")
    names = tuple(sorted({name for name in log.servers if name}))
    if not names:
        raise ValueError("rates: give the servers' rates; the log names no server")
    places = {name: i for i, name in enumerate(names)}
    who = np.array([places.get(name, -1) for name in log.servers])
    took = log.sizes if log.durations is None else log.durations
    jobs = np.bincount(who[who >= 0], minlength=len(names)).astype(np.float64)
    time = np.bincount(who[who >= 0], took[who >= 0], len(names))
    if _relative(log):
        known = took[who >= 0].mean()
        rates = known * jobs / time
    else:
        rates = np.bincount(who[who >= 0], log.sizes[who >= 0], len(names)) / time
    # Four digits: more would only look like knowledge, and decimals that short keep ties exact.
    return names, np.array([float(f"{rate:.4g}") for rate in rates]), jobs


def _relative(log: Log) -> bool:
    """Whether sizes are nothing but the durations themselves."""
    return log.durations is None or bool(np.array_equal(log.durations, log.sizes))


def _from_log(log: Log, busiest: int | None) -> tuple[Log, Servers, str]:
    """Servers as the log shows them, and the log with each job's work in place of the time that its server took for it."""
    names, rates, jobs = _speeds(log)
    total = len(names)
    note = ""
    if _relative(log):
        speed = dict(zip(names, rates, strict=True))
        factor = np.array([speed.get(name, 1.0) for name in log.servers or ()])
        log = changed(log, sizes=log.sizes * factor, unit="s of an average server")
        note = "the work of a job is its duration times the speed of the server that served it"
    if busiest is not None:
        require_count("busiest", busiest)
        if busiest > total:
            raise ValueError(f"busiest must be at most the {total} servers of the log, not {busiest}")
        kept = sorted(np.argsort(-jobs, kind="stable")[:busiest])
        names, rates = tuple(names[i] for i in kept), rates[kept]
    origin = (
        f"estimated from the log, {'all' if len(names) == total else f'the busiest {len(names)} of'} {total} servers"
    )
    return log, Servers(names, _exact(rates.tolist()), (1,) * len(names), None, origin), note


def _exact(rates: Sequence[Rate]) -> tuple[Fraction, ...]:
    return tuple(exact_rate("rates", rate) for rate in rates)


def _servers(
    log: Log, rates: Sequence[Rate] | None, drift: Drift | None, slots: Sequence[int] | None, busiest: int | None
) -> tuple[Log, Servers, str]:
    """The servers to replay on, the log in the units of their rates, and a note."""
    note = ""
    if busiest is not None and (rates is not None or drift is not None):
        raise ValueError("busiest must be left out with rates given; it chooses among the servers of the log")
    if drift is not None:
        mean = drift.mean()
        if rates is not None:
            if len(rates) != len(drift.names):
                raise ValueError(
                    f"rates must have one rate for each of the {len(drift.names)} servers of the rates file, not {len(rates)}"
                )
            wanted = np.array([float(rate) for rate in _exact(rates)])
            drift = drift._replace(rates=drift.rates / mean * wanted)
            mean = wanted
        origin = f"drifting over {duration_text(drift.span)}, {len(drift.times)} pieces"
        servers = Servers(drift.names, _exact(mean.tolist()), (1,) * len(mean), drift, origin)
    elif rates is not None:
        if not len(rates):
            raise ValueError("rates must have one rate for each server, at least one")
        names = tuple(f"s{i + 1}" for i in range(len(rates)))
        servers = Servers(names, _exact(rates), (1,) * len(rates), None, "as given")
    else:
        log, servers, note = _from_log(log, busiest)
    if slots is not None:
        if len(slots) not in (1, len(servers.names)):
            raise ValueError(
                f"slots must have one number per server, {len(servers.names)}, or one for all, not {len(slots)}"
            )
        counts = tuple(slots) * (len(servers.names) if len(slots) == 1 else 1)
        for count in counts:
            require_count("slots", count)
        servers = servers._replace(slots=counts)
    return log, servers, note


def _work_by(servers: Servers, time: float) -> float:
    """∫ of the capacity from 0 to `time`."""
    if servers.drift is None:
        return servers.capacity * time
    capacity = servers.drift.rates @ np.array(servers.slots, dtype=np.float64)
    ends = np.append(servers.drift.times[1:], math.inf)
    lasts = np.clip(np.minimum(ends, time) - servers.drift.times, 0.0, None)
    return float(capacity @ lasts)


def _time_for(servers: Servers, work: float) -> float:
    """The inverse: when all servers together have been able to do so much."""
    if servers.drift is None:
        return work / servers.capacity
    capacity = servers.drift.rates @ np.array(servers.slots, dtype=np.float64)
    done = np.concatenate([[0.0], np.cumsum(np.diff(servers.drift.times) * capacity[:-1])])
    piece = int(np.searchsorted(done, work, side="right")) - 1
    return float(servers.drift.times[piece] + (work - done[piece]) / capacity[piece])


def _work(log: Log) -> float:
    """All work but one mean job's: what n jobs bring in n − 1 gaps."""
    return float(log.sizes.mean()) * (len(log) - 1)


def _busiest_window(log: Log, capacity: float) -> tuple[float, float]:
    """Length of a window, an hour or a tenth of the log if that is less, and the largest load over such windows."""
    window = min(3600.0, log.span / 10.0)
    before = np.concatenate([[0.0], np.cumsum(log.sizes)])
    ends = np.searchsorted(log.times, log.times + window, side="left")
    return window, float((before[ends] - before[:-1]).max() / (capacity * window))


# --- the replay ------------------------------------------------------------------------------------------------------


def replay(
    log: Log,
    rates: Sequence[Rate] | None = None,
    *,
    drift: Drift | None = None,
    fit_rates: bool = False,
    slots: Sequence[int] | None = None,
    busiest: int | None = None,
    load: float | None = None,
    policies: Sequence[str | Policy] = DEFAULT_POLICIES,
    initial_rates: Sequence[Rate] | None = None,
    runs: int = 10,
    seed: int = 1,
    allow_unstable: bool = False,
    most_in_system: int = MOST_IN_SYSTEM,
    out: Path | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Replay:
    """Route the recorded jobs by every policy.

    Parameters
    ----------
    log : of :func:`read_log`.
    rates : of each server's slots, in the log's unit of size per second (tokens per second, …): numbers or fractions. None to
        estimate them from the log, where it names the server of each job. With `drift`, the means that the rates drift about.
    drift : rates that change, of :func:`read_rates`, from the first job on.
    fit_rates : squeeze or stretch the drift's time to the length of the replay.
    slots : jobs that each server serves at a time, each at the server's rate: one number per server or one for all; None: 1.
    busiest : replay on the so many servers of the log that served most jobs.
    load : work that arrives in terms of what the servers can do, over the whole log. The time between jobs is stretched to
        reach it, by one factor for all; None leaves time as recorded.
    policies : names (``"lased"``) or policies made by factories of :mod:`queuewise.dispatch`.
    initial_rates : what learning rules believe beforehand, in the unit of `rates`. None: all the same, each slot serves its
        share of the traffic and no more.
    runs : repetitions. Jobs are the same in all; only rules that draw at random differ from run to run.
    seed : of the rules' own randomness.
    allow_unstable : replay servers that cannot do the work that the log brings.
    most_in_system : jobs in the system at which a policy's replay ends with the verdict "overflowed".
    out : folder for rows, table (JSON, Markdown) and figure; None writes nothing.
    workers : threads; None for one per core. Changes no number.
    progress : show progress on stderr.

    Returns
    -------
    Replay

    Raises
    ------
    ValueError : a value out of range, servers that cannot do the work (by how much), an unknown policy, or a folder that
        cannot be written to or holds another replay.
    """
    log, servers, note = _servers(log, rates, drift, slots, busiest)
    notes = [note] if note else []
    if load is not None:
        require_positive("load", load)
    require_count("most_in_system", most_in_system, 2)
    recorded_span = log.span
    if fit_rates:
        if servers.drift is None:
            raise ValueError("fit_rates must be left out without drifting rates")
        # A stretched drift has the same mean capacity whatever its length.
        span = log.span if load is None else _work(log) / (load * servers.capacity)
        servers = servers._replace(drift=servers.drift.stretched(span))
    if load is not None:
        factor = _time_for(servers, _work(log) / load) / log.span
        log = changed(log, times=log.times * factor)
        notes.append(
            f"time is {'stretched' if factor >= 1.0 else 'squeezed'} by a factor of "
            f"{short(factor if factor >= 1.0 else 1.0 / factor)} to reach load {load:g}: "
            f"{duration_text(recorded_span)} become {duration_text(log.span)}"
        )
    actual = _work(log) / _work_by(servers, log.span)
    if load is not None and abs(actual / load - 1.0) < 1e-9:
        actual = float(load)
    if actual >= 1.0 and not allow_unstable:
        brings, can = _work(log) / log.span, _work_by(servers, log.span) / log.span
        raise ValueError(
            f"rates: the log brings {short(brings)} {log.unit} per second and the servers together do {short(can)}, "
            f"{short(brings - can)} too little (load {actual:.3g}), so no policy can keep up; give more or faster servers, a "
            "load below 1, or allow_unstable=True (--allow-unstable)"
        )
    window, peak = _busiest_window(log, _work_by(servers, log.span) / log.span)
    if peak >= 1.0 > actual:
        notes.append(
            f"the busiest {duration_text(window)} bring {peak:.2f} times what the servers can do, so queues grow then under "
            "every policy"
        )
    system = _system(log, servers, initial_rates, most_in_system)
    if out is not None:
        output_folder(out)
    require_count("runs", runs)
    with Progress(runs, shown=progress) as shown:
        result = simulate(
            system,
            list(policies),
            arrivals=len(log),
            runs=runs,
            seed=seed,
            quantiles=QUANTILES,
            checkpoints=sorted({round(x) for x in np.linspace(1, len(log), min(_POINTS, len(log)))}),
            workers=workers,
            folder=None if out is None else out / "rows",
            progress=shown.begin(log.source) if progress else None,
        )
    found = _standings(result, log, servers)
    sentence = conclusion(found)
    lines = (
        log.describe(),
        _describe(servers, log.unit),
        f"load {actual:.3g} over the whole log, {peak:.2f} in its busiest {duration_text(window)}",
        *notes,
    )
    table = standings_table(found, f"Replay of {log.source}", servers, len(log), runs)
    results: dict[str, Any] = {
        "version": VERSION,
        "log": {
            "source": log.source,
            "jobs": len(log),
            "seconds": log.span,
            "recorded_seconds": recorded_span,
            "mean_size": float(log.sizes.mean()),
            "unit": log.unit,
            "dropped": dict(log.dropped),
            "left_out": dict(log.left_out),
        },
        "servers": [
            {"name": name, "rate": float(rate), "slots": count}
            for name, rate, count in zip(servers.names, servers.rates, servers.slots, strict=True)
        ],
        "rates": servers.origin,
        "load": actual,
        "busiest": {"seconds": window, "load": peak},
        "runs": result.runs,
        "seed": seed,
        "oracle": {
            "mean_delay": estimate_json(result.mean_sojourn_time(ORACLE)),
            "mean_number_in_system": estimate_json(result.mean_number_in_system(ORACLE)),
        },
        "policies": [_json(standing) for standing in found],
        "notes": list(lines),
        "conclusion": sentence,
    }
    replayed = Replay(result, table, sentence, found, log, servers, lines, results, ())
    return replayed if out is None else replayed._replace(files=_write(replayed, out))


def _system(log: Log, servers: Servers, initial_rates: Sequence[Rate] | None, most_in_system: int) -> System:
    """The system in jobs of mean size per second: rules learn rates from completions and busy time."""
    mean = float(log.sizes.mean())
    exact_mean = Fraction(mean)
    # Sizes that are divided by their mean have a mean of one only to within rounding.
    if servers.drift is None:
        service_rates: Any = [rate / exact_mean for rate in servers.rates]
    else:
        service_rates = schedule(servers.drift.times.tolist(), (servers.drift.rates / mean).tolist())
    if initial_rates is None:
        beliefs = [log.rate / sum(servers.slots)] * len(servers.names)
    else:
        beliefs = [float(exact_rate("initial_rates", rate)) / mean for rate in initial_rates]
        if len(beliefs) == 1:
            beliefs = beliefs * len(servers.names)
    return System(
        service_rates=service_rates,
        slots=servers.slots,
        arrivals=arrival_laws.recorded(log.times),
        service=service_laws.recorded_sizes(log.sizes / mean),
        initial_rates=beliefs,
        allow_unstable=True,
        most_in_system=most_in_system,
    )


# --- what is said of it ----------------------------------------------------------------------------------------------


def _standings(result: Result, log: Log, servers: Servers) -> tuple[Standing, ...]:
    few = result.servers <= MOST_SERVERS_KEPT
    mean = servers.drift.mean() if servers.drift is not None else np.array([float(rate) for rate in servers.rates])
    # What each server can do by the last arrival, in shares of what all can.
    able = mean * np.array(servers.slots) / servers.capacity * _work_by(servers, log.span)
    found = []
    for place in result.rank():
        name = place.name
        overflowed = "unstable" in result.verdict[name]
        offered = None
        if few and not overflowed:
            offered = tuple(share.mean * _work(log) / a for share, a in zip(result.shares(name), able, strict=True))
        found.append(
            Standing(
                name,
                _label(result.label(name)),
                place.value,
                result.quantile(name, QUANTILES[0]),
                result.quantile(name, QUANTILES[1]),
                result.quantile(name, QUANTILES[2]),
                result.mean_number_in_system(name) if result.runs > 1 else _single(result, name),
                result.excess(name),
                result.total_regret(name),
                tuple(use.mean for use in result.utilisation(name)) if few and not overflowed else None,
                offered,
                _verdict(overflowed, offered, servers.names),
            )
        )
    return tuple(found)


def _label(label: str) -> str:
    """A label without the tie rule that every rule has unless told otherwise."""
    name, _, options = label.partition("(")
    kept = [text for text in options.removesuffix(")").split(", ") if text and text != "ties='lowest'"]
    return f"{name}({', '.join(kept)})" if kept else name


def _single(result: Result, name: str) -> Estimate:
    """The mean of the only run, without an interval: that over batches speaks of a steady state, which a log is not."""
    value = float(result.number_in_system[name][0, -1])
    return Estimate(value, math.nan, math.nan, math.nan, 1)


def _verdict(overflowed: bool, offered: tuple[float, ...] | None, names: Sequence[str]) -> str:
    if overflowed:
        return "overflowed"
    worst = max(range(len(names)), key=lambda i: offered[i]) if offered is not None else 0
    if offered is None or offered[worst] <= OVERLOADED:
        return "stable"
    return f"overloads {names[worst]} ({100.0 * offered[worst]:.0f} %)"


def _value(estimate: Estimate) -> str:
    """A value with its interval, or alone where all runs agree."""
    varies = estimate.runs > 1 and estimate.high - estimate.low > 1e-9 * abs(estimate.mean)
    return interval(estimate.mean, estimate.low, estimate.high) if varies else short(estimate.mean)


def _excess(standing: Standing) -> tuple[float, float]:
    """Mean delay above the oracle's, in seconds and as a share of it."""
    oracle = standing.delay.mean - standing.excess.mean
    return standing.excess.mean, standing.excess.mean / oracle if oracle > 0.0 else math.nan


def _percent(share: float, signed: bool = False) -> str:
    size = abs(100.0 * share)
    digits = 0 if size >= 10.0 else 1 if size >= 0.95 else 2
    text = f"{100.0 * share:{'+' if signed else ''}.{digits}f} %"
    return "0 %" if size < 0.005 else text


def _use(standing: Standing, servers: Servers) -> str:
    if standing.use is None:
        return "?"
    shares = [f"{100.0 * use:.0f}" for use in standing.use]
    return f"{' '.join(shares)} %" if len(shares) <= _FEW else f"{min(shares, key=int)}–{max(shares, key=int)} %"


def standings_table(found: Sequence[Standing], title: str, servers: Servers, jobs: int, runs: int) -> Table:
    """The replay as a table, smallest mean delay first."""
    rows = []
    for standing in found:
        seconds, share = _excess(standing)
        known = math.isfinite(seconds)
        sign = "+" if seconds > 0.0 else ""
        excess = "0" if seconds == 0.0 else f"{sign}{short(seconds)} ({_percent(share, True)})" if known else "?"
        rows.append(
            (
                standing.label if len(standing.label) <= 40 else standing.name,
                _value(standing.delay),
                short(standing.p95.mean),
                short(standing.p99.mean),
                _value(standing.number),
                excess,
                f"{standing.wrong.mean:,.0f} ({_percent(standing.wrong.mean / jobs)})",
                _use(standing, servers),
                standing.verdict,
            )
        )
    note = (
        "Delay: seconds from arrival to departure. Over oracle: mean delay above that of SED with the true rates. Wrong: "
        "decisions that this oracle would not have taken there. Use: busy share of each server"
    )
    note += f" ({', '.join(servers.names)})." if len(servers.names) <= _FEW else ", least and most."
    if any(standing.delay.high > standing.delay.low for standing in found):
        note += f" In brackets: 95% intervals over {runs} runs of rules that draw at random; the others play every run alike."
    return Table(
        title,
        ("policy", "mean delay", "95 %", "99 %", "in system", "over oracle", "wrong", "use", "verdict"),
        tuple(rows),
        note=note,
    )


def _told(share: float) -> str:
    if abs(share) < 5e-4:
        return "the same as"
    return f"{_percent(abs(share))} {'above' if share > 0 else 'below'}"


def conclusion(found: Sequence[Standing]) -> str:
    """What would have happened, in plain words."""
    alive = [standing for standing in found if math.isfinite(standing.delay.mean)]
    lost = [standing.name for standing in found if standing not in alive]
    parts = []
    if alive:
        learners = [standing for standing in alive if _rule(standing) in LEARNERS]
        chosen = (learners or [s for s in alive if _rule(s) != "sed"] or alive)[0]
        _, share = _excess(chosen)
        knows = ", which learns the servers' speeds as it goes," if _rule(chosen) in LEARNERS else ""
        that = f"{_told(share)} that of the oracle" + ("" if knows == "" else ", which knows them")
        if math.isnan(share):
            that = "with no oracle to hold it against, which overflowed"
        parts.append(f"With {chosen.name}{knows} the mean delay would have been {short(chosen.delay.mean)} s, {that}")
        worst = alive[-1]
        if worst is not chosen and worst.delay.mean > chosen.delay.mean:
            parts.append(f"with {worst.name}, the slowest of those replayed, {short(worst.delay.mean)} s")
    if lost:
        parts.append(f"{', '.join(lost)} overflowed")
    return "; ".join(parts) + "."


def _rule(standing: Standing) -> str:
    """The rule of a policy that may have a name of its own."""
    return standing.label.split("(")[0].strip() if standing.name not in REGISTER else standing.name


def _describe(servers: Servers, unit: str) -> str:
    shown = ", ".join(
        f"{name} {float(rate):.4g}" + (f" × {count} slots" if count > 1 else "")
        for name, rate, count in list(zip(servers.names, servers.rates, servers.slots, strict=True))[:12]
    )
    more = f", … ({len(servers.names)} in all)" if len(servers.names) > 12 else ""
    return f"servers, {unit} per second ({servers.origin}): {shown}{more}"


def _json(standing: Standing) -> dict[str, Any]:
    seconds, share = _excess(standing)
    return {
        "name": standing.name,
        "label": standing.label,
        "mean_delay": estimate_json(standing.delay),
        "median_delay": standing.median.mean,
        "p95_delay": standing.p95.mean,
        "p99_delay": standing.p99.mean,
        "mean_number_in_system": estimate_json(standing.number),
        "excess_over_oracle": estimate_json(standing.excess) | {"share": share, "seconds": seconds},
        "wrong_decisions": estimate_json(standing.wrong),
        "use": standing.use,
        "offered": standing.offered,
        "verdict": standing.verdict,
    }


def _write(found: Replay, out: Path) -> tuple[Path, ...]:
    """Figure, table and numbers, beside the rows."""
    from ..runs.plot import save_figure

    lines = "\n".join(f"- {line}" for line in found.notes)
    files = save_figure(found.plot(), out, "figure")
    files.append(write_text(out / "replay.json", to_json(found.results) + "\n"))
    files.append(write_text(out / "replay.md", f"{found.table.markdown()}\n{found.sentence}\n\n{lines}\n"))
    return (*files, out / "rows")


__all__ = [
    "DEFAULT_POLICIES",
    "Replay",
    "Servers",
    "Standing",
    "conclusion",
    "parse_policy",
    "parse_slots",
    "parse_where",
    "replay",
]
