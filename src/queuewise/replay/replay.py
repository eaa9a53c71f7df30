"""``replay``: recorded jobs routed by every policy, and what an operator would have seen.

All policies meet the same jobs at the same times with the same work; they differ by their routing alone. The engine is that
of ``dispatch.simulate``. Sizes are divided by their mean, so that rates are jobs per second to the policies, which learn
rates from completions and busy time.
"""

from __future__ import annotations

import ast
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
from ..dispatch.result import ORACLE, Result
from ..dispatch.simulate import simulate
from ..dispatch.systems import MOST_IN_SYSTEM, Rate, System, exact_rate, schedule
from ..experiments.report import Progress, Table, estimate_json, output_folder, short, to_json, write_text
from ..fields import nearest, require_count, require_positive
from .logs import Drift, Log, duration_text
from .servers import Servers, busiest_window, describe, servers_of, time_for, total_work, work_by
from .standings import (
    QUANTILES,
    Standing,
    as_recorded,
    conclusion,
    over_runs,
    standing_json,
    standings,
    standings_table,
)

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
#: Checkpoints of the number in the system over time.
_POINTS = 240


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
    log : of :func:`read_log` or :func:`read_recording`.
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
    # Only where servers and times are the log's own can what it had stand beside what a policy would have had.
    comparable = all(given is None for given in (rates, drift, busiest, load))
    log, servers, notes = servers_of(log, rates, drift, slots, busiest)
    notes += log.notes
    if load is not None:
        require_positive("load", load)
    require_count("most_in_system", most_in_system, 2)
    recorded_span = log.span
    if fit_rates:
        if servers.drift is None:
            raise ValueError("fit_rates must be left out without drifting rates")
        # A stretched drift has the same mean capacity whatever its length.
        span = log.span if load is None else total_work(log) / (load * servers.capacity)
        drifting = servers.drift.stretched(span)
        servers = servers._replace(drift=drifting, origin=f"{servers.origin}, made to last {duration_text(span)}")
    if load is not None:
        factor = time_for(servers, total_work(log) / load) / log.span
        log = changed(log, times=log.times * factor)
        notes.append(
            f"time is {'stretched' if factor >= 1.0 else 'squeezed'} by a factor of "
            f"{short(factor if factor >= 1.0 else 1.0 / factor)} to reach load {load:g}: "
            f"{duration_text(recorded_span)} become {duration_text(log.span)}"
        )
    actual = total_work(log) / work_by(servers, log.span)
    if load is not None and abs(actual / load - 1.0) < 1e-9:
        actual = float(load)
    if actual >= 1.0 and not allow_unstable:
        brings, can = total_work(log) / log.span, work_by(servers, log.span) / log.span
        raise ValueError(
            f"rates: the log brings {short(brings)} {log.unit} per second and the servers together do {short(can)}, "
            f"{short(brings - can)} too little (load {actual:.3g}), so no policy can keep up; give more or faster servers, a "
            "load below 1, or allow_unstable=True (--allow-unstable)"
        )
    window, peak = busiest_window(log, work_by(servers, log.span) / log.span)
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
    found = standings(result, log, servers)
    oracle = over_runs(result.sojourn_time[ORACLE][:, -1])
    had = as_recorded(log, servers) if comparable else ()
    sentence = conclusion(found, had)
    lines = (
        log.describe(),
        describe(servers, log.unit),
        f"load {actual:.3g} over the whole log, {peak:.2f} in its busiest {duration_text(window)}",
        *notes,
    )
    table = standings_table(found, f"Replay of {log.source}", servers, len(log), runs, had, oracle.mean)
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
            "mean_delay": estimate_json(oracle),
            "mean_number_in_system": estimate_json(over_runs(result.number_in_system[ORACLE][:, -1])),
        },
        "recorded": [one._asdict() for one in had],
        "policies": [standing_json(standing) for standing in found],
        "notes": list(lines),
        "conclusion": sentence,
    }
    replayed = Replay(result, table, sentence, found, log, servers, lines, results, ())
    return replayed if out is None else replayed._replace(files=_write(replayed, out))


def _system(log: Log, servers: Servers, initial_rates: Sequence[Rate] | None, most_in_system: int) -> System:
    """The system in jobs of mean size per second: rules learn rates from completions and busy time."""
    mean = float(log.sizes.mean())
    exact_mean = Fraction(mean)
    if servers.drift is None:
        service_rates: Any = [rate / exact_mean for rate in servers.rates]
    else:
        service_rates = schedule(servers.drift.times.tolist(), (servers.drift.rates / mean).tolist())
    if initial_rates is None:
        beliefs = [log.rate / sum(servers.slots)] * len(servers.names)
    else:
        if len(initial_rates) not in (1, len(servers.names)):
            raise ValueError(
                f"initial_rates must have one rate, or one for each of {len(servers.names)} servers, "
                f"not {list(initial_rates)!r}"
            )
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
