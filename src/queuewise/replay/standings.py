"""What each policy did, as an operator wants to know it: delays, use, verdict; a table, a sentence, and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..dispatch.policies import REGISTER
from ..dispatch.result import MOST_SERVERS_KEPT, Result
from ..experiments.report import Table, estimate_json, interval, short
from ..runs.statistics import Difference, Estimate, Moments
from .logs import Log
from .servers import Servers, total_work, work_by

Floats = npt.NDArray[np.float64]

#: Rules that learn the servers' speeds as they go.
LEARNERS = ("lased", "greedy", "optimistic_sed", "thompson_sed", "dispatch_bandit")
#: Rules that do not look at queues, so that a server to which they send too much is overloaded for good.
BLIND = ("round_robin", "random", "weighted_random", "dispatch_bandit")
#: Quantiles of the delay that are kept.
QUANTILES = (0.5, 0.95, 0.99)
#: A server that is sent more than this share of what it can do is called overloaded: a log is short, and its end uneven.
OVERLOADED = 1.05
#: Servers that are shown one by one.
_FEW = 4


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


class Had(NamedTuple):
    """What the log itself had, or has when its own choices are replayed. Times are in seconds, as in :class:`Standing`."""

    label: str
    mean_delay: float
    median_delay: float
    p95_delay: float
    p99_delay: float
    mean_number_in_system: float
    use: tuple[float, ...]


def as_recorded(log: Log, servers: Servers) -> tuple[Had, ...]:
    """Delays as recorded, and as they are when the recorded choices are replayed; none where the log does not say."""
    recorded = log.recorded
    if recorded is None or log.servers is None or log.durations is None:
        return ()
    who = np.array(log.servers)
    use = tuple(
        float(log.durations[who == name].sum()) / (slots * log.span)
        for name, slots in zip(servers.names, servers.slots, strict=True)
    )
    found = []
    for label, delays in (
        (f"as recorded ({recorded.policy})", recorded.delays),
        ("the same choices", recorded.choices),
    ):
        median, p95, p99 = (float(q) for q in np.quantile(delays, QUANTILES))
        # Up to the last arrival, as for the policies.
        number = float(np.minimum(delays, log.span - log.times).sum()) / log.span
        found.append(Had(label, float(delays.mean()), median, p95, p99, number, use))
    return tuple(found)


def standings(result: Result, log: Log, servers: Servers) -> tuple[Standing, ...]:
    few = result.servers <= MOST_SERVERS_KEPT
    mean = servers.drift.mean() if servers.drift is not None else np.array([float(rate) for rate in servers.rates])
    # What each server can do by the last arrival, in shares of what all can.
    able = mean * np.array(servers.slots) / servers.capacity * work_by(servers, log.span)
    found = []
    for place in result.rank():
        name = place.name
        overflowed = "unstable" in result.verdict[name]
        offered = None
        if few and not overflowed:
            offered = tuple(
                share.mean * total_work(log) / a for share, a in zip(result.shares(name), able, strict=True)
            )
        found.append(
            Standing(
                name,
                _label(result.label(name)),
                place.value,
                result.quantile(name, QUANTILES[0]),
                result.quantile(name, QUANTILES[1]),
                result.quantile(name, QUANTILES[2]),
                over_runs(result.number_in_system[name][:, -1]),
                result.excess(name),
                result.total_regret(name),
                tuple(use.mean for use in result.utilisation(name)) if few and not overflowed else None,
                offered,
                _verdict(overflowed, offered if _rule(result, name) in BLIND else None, servers.names),
            )
        )
    return tuple(found)


def _rule(result: Result, name: str) -> str:
    """The rule that a policy's name stands for."""
    return next(str(policy["rule"]) for policy in result.settings["policies"] if policy["name"] == name)


def _label(label: str) -> str:
    """A label without the tie rule that every rule has unless told otherwise."""
    name, _, options = label.partition("(")
    kept = [text for text in options.removesuffix(")").split(", ") if text and text != "ties='lowest'"]
    return f"{name}({', '.join(kept)})" if kept else name


def over_runs(values: Floats) -> Estimate:
    """The mean over runs. A single run has no interval: one over batches speaks of a steady state, which a log is not."""
    return Moments.of(values).estimate(0.95)


def _verdict(overflowed: bool, offered: tuple[float, ...] | None, names: Sequence[str]) -> str:
    if overflowed:
        return "overflowed"
    worst = max(range(len(names)), key=lambda i: offered[i]) if offered is not None else 0
    if offered is None or offered[worst] <= OVERLOADED:
        return "stable"
    return f"overloads {names[worst]} ({100.0 * offered[worst]:.0f} %)"


def _value(estimate: Estimate) -> str:
    """A value with its interval, or alone where all runs agree."""
    return interval(estimate.mean, estimate.low, estimate.high) if _varies(estimate) else short(estimate.mean)


def _varies(estimate: Estimate) -> bool:
    return estimate.runs > 1 and estimate.high - estimate.low > 1e-9 * abs(estimate.mean)


def _excess(standing: Standing) -> tuple[float, float]:
    """Mean delay above the oracle's, in seconds and as a share of it."""
    oracle = standing.delay.mean - standing.excess.mean
    return standing.excess.mean, standing.excess.mean / oracle if oracle > 0.0 else math.nan


def _number(count: float) -> str:
    """A mean number of decisions; with a decimal where it is small and not whole."""
    if math.isnan(count):
        return "?"
    return f"{count:,.0f}" if count >= 10.0 or count == round(count) else f"{count:.1f}"


def _percent(share: float, signed: bool = False) -> str:
    size = abs(100.0 * share)
    digits = 0 if size >= 10.0 else 1 if size >= 0.95 else 2
    text = f"{100.0 * share:{'+' if signed else ''}.{digits}f} %"
    return "0 %" if size < 0.005 else text


def _shares(use: Sequence[float]) -> str:
    shares = [f"{100.0 * one:.0f}" for one in use]
    if len(shares) <= _FEW:
        return f"{' '.join(shares)} %"
    least, most = min(shares, key=int), max(shares, key=int)
    return f"{least} %" if least == most else f"{least}–{most} %"


def _above(seconds: float, share: float) -> str:
    sign = "+" if seconds > 0.0 else ""
    known = math.isfinite(seconds)
    return "0" if seconds == 0.0 else f"{sign}{short(seconds)} ({_percent(share, True)})" if known else "?"


def standings_table(
    found: Sequence[Standing],
    title: str,
    servers: Servers,
    jobs: int,
    runs: int,
    had: Sequence[Had] = (),
    oracle: float = math.nan,
) -> Table:
    """The replay as a table, smallest mean delay first; `had` stands among the policies, whose oracle has that mean delay."""
    rows = []
    for one in had:
        over = one.mean_delay - oracle
        cells = (
            one.label if len(one.label) <= 40 else "as recorded",
            short(one.mean_delay),
            short(one.p95_delay),
            short(one.p99_delay),
            short(one.mean_number_in_system),
            _above(over, over / oracle),
            "",
            _shares(one.use),
            "recorded" if one is had[0] else "replayed",
        )
        rows.append((one.mean_delay, cells))
    for standing in found:
        cells = (
            standing.label if len(standing.label) <= 40 else standing.name,
            _value(standing.delay),
            short(standing.p95.mean),
            short(standing.p99.mean),
            _value(standing.number),
            _above(*_excess(standing)),
            f"{_number(standing.wrong.mean)} ({_percent(standing.wrong.mean / jobs)})",
            "?" if standing.use is None else _shares(standing.use),
            standing.verdict,
        )
        mean = standing.delay.mean
        rows.append((mean if math.isfinite(mean) else math.inf, cells))
    rows.sort(key=lambda row: float(f"{row[0]:.9g}"))  # what is the same but for rounding stays in the order given
    note = (
        "Delay: seconds from arrival to departure. Over oracle: mean delay above that of SED with the true rates. Wrong: "
        "decisions that this oracle would not have taken there. Use: busy share of each server"
    )
    note += f" ({', '.join(servers.names)})." if len(servers.names) <= _FEW else ", least and most."
    if any(_varies(standing.delay) for standing in found):
        note += f" In brackets: 95% intervals over {runs} runs of rules that draw at random; the others play every run alike."
    return Table(
        title,
        ("policy", "mean delay", "95 %", "99 %", "in system", "over oracle", "wrong", "use", "verdict"),
        tuple(cells for _, cells in rows),
        note=note,
    )


def _told(share: float) -> str:
    if abs(share) < 5e-4:
        return "the same as"
    return f"{_percent(abs(share))} {'above' if share > 0 else 'below'}"


def conclusion(found: Sequence[Standing], had: Sequence[Had] = ()) -> str:
    """What would have happened, in plain words."""
    alive = [standing for standing in found if math.isfinite(standing.delay.mean)]
    lost = [standing.name for standing in found if standing not in alive]
    parts = []
    if alive:
        learners = [standing for standing in alive if rule_of(standing) in LEARNERS]
        chosen = (learners or [s for s in alive if rule_of(s) != "sed"] or alive)[0]
        _, share = _excess(chosen)
        knows = ", which learns the servers' speeds as it goes," if learners else ""
        if len(learners) > 1:
            knows = f", the best of the {len(learners)} rules that learn the servers' speeds as they go,"
        that = f"{_told(share)} that of the oracle" + ("" if knows == "" else ", which knows them")
        if math.isnan(share):
            that = "with no oracle to hold it against, which overflowed"
        parts.append(f"With {chosen.name}{knows} the mean delay would have been {short(chosen.delay.mean)} s, {that}")
        worst = alive[-1]
        if worst is not chosen and worst.delay.mean > chosen.delay.mean:
            parts.append(f"with {worst.name}, the slowest of those replayed, {short(worst.delay.mean)} s")
    if had:
        recorded, choices = (one.mean_delay for one in had)
        off = choices / recorded - 1.0
        met = "meets" if abs(off) < 5e-4 else f"misses by {_percent(off, True)}"
        parts.append(f"as recorded it was {short(recorded)} s, which the replay of the recorded choices {met}")
    if lost:
        parts.append(f"{', '.join(lost)} overflowed")
    return "; ".join(parts) + "."


def rule_of(standing: Standing) -> str:
    """The rule of a policy that may have a name of its own."""
    return standing.label.split("(")[0].strip() if standing.name not in REGISTER else standing.name


def standing_json(standing: Standing) -> dict[str, Any]:
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
