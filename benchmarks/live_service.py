"""The service on real sockets: what it costs, and how long requests take under its policies and under other balancers' rules.

Everything is on this machine: backends (:mod:`.bed.backends`), the load tool wrk, and the service between them share its cores.
``--quick`` runs seconds where a full run takes minutes, and judges no delays. A full run writes its part of benchmarks/live.md.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from .bed.backends import HOST, ROOT, Backends
from .bed.compared import RULES, Compared, Outcome, compare
from .bed.driver import SETTLE, Answers, NoToolError, OpenLoop, closed_loop, tool
from .bed.line import Behaviour
from .bed.page import PAGE, put, table
from .bed.proxy import processor_time
from .bed.scenarios import ON_SOCKETS
from .report import at_least, at_most, line

#: Requests per second of the open loop; connections of the closed one.
RATE, CONNECTIONS = 300.0, 32
#: Means that differ by less than this factor in virtual time may come in any order on sockets.
APART = 1.15


@contextlib.contextmanager
def service(backends: Backends) -> Iterator[tuple[str, int]]:
    """`queuewise serve` as anybody starts it: its URL and its process."""
    with tempfile.TemporaryDirectory(prefix="queuewise-bed-") as folder:
        path = Path(folder) / "config.yaml"
        config = {
            "listen": f"{HOST}:0",
            "admin": f"{HOST}:0",
            "limits": {"head_seconds": 600.0},  # the load tool opens its connections beforehand
            "groups": {
                "default": {"models": ["small"], "backends": {name: {"url": url} for name, url in backends.url.items()}}
            },
        }
        path.write_text(yaml.safe_dump(config))
        log = Path(folder) / "log"
        with log.open("w") as out:
            command = [sys.executable, "-m", "queuewise", "serve", str(path)]
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            yield _address(process, log), process.pid
        finally:
            ended = process.poll()
            process.terminate()
            process.wait(timeout=30)
            if ended is not None:
                print(f"queuewise serve ended by itself with {ended}: {log.read_text().strip()}", file=sys.stderr)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it listens, as it says itself."""
    for _ in range(600):
        found = re.search(r"(http://[^/\s]+)/v1/", log.read_text())
        if found:
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError("queuewise serve does not listen")


# --- cost -------------------------------------------------------------------------------------------------------------


class Straight(NamedTuple):
    """One round: what the tool found straight to a backend, and through the service; its processor time a request."""

    straight: Answers
    through: Answers
    spent: float


def _open(url: str, seconds: float, seed: int, stream: bool = False, rate: float = RATE) -> Answers:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(1.0 / rate, int(rate * seconds)))
    return OpenLoop(url, times, None, time.monotonic() + SETTLE, connections=128, stream=stream).wait()


def _quantile(answers: Answers, at: float) -> float:
    """Of the latencies of a round, in ms."""
    return 1e3 * float(np.quantile(answers.latency[answers.ok], at))


def cost(quick: bool) -> None:
    """What the service adds to a request, and how many it gets through; nothing may fail."""
    try:
        tool()
    except NoToolError as error:
        line("cost", "not measured", str(error))
        return
    rounds, seconds = (1, 5.0) if quick else (5, 10.0)
    with Backends({name: Behaviour() for name in "abcd"}) as backends, service(backends) as (url, pid):
        closed_loop(url, 4, 1.0)  # everything has been imported, and everybody knows everybody
        found = []
        for k in range(rounds):
            straight = _open(backends.url["a"], seconds, k)
            before = processor_time(pid)
            through = _open(url, seconds, k)
            spent = (processor_time(pid) - before) / len(through.status)
            found.append(Straight(straight, through, spent))
        chunks = [_open(one, seconds / 2.0, 0, True, 60.0) for one in (backends.url["a"], url)]
        loops = [closed_loop(one, CONNECTIONS, seconds / 2.0) for one in (backends.url["a"], url)]
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            said = answer.read().decode()
    rows = []

    def told(what: str, value: float, limit: float | None, unit: str, note: str, least: bool = False) -> None:
        digits = 0 if value > 100.0 or limit == 0.0 else 2
        if limit is None:
            line(what, f"{value:.{digits}f} {unit}", note.strip(" ()"))
        elif least:
            at_least(what, value, limit, unit, digits, note)
        else:
            at_most(what, value, limit, unit, digits, note)
        kept = "" if limit is None else "yes" if (value >= limit if least else value <= limit) else "**no**"
        wanted = "" if limit is None else f"{'≥' if least else '≤'} {limit:,g} {unit}".strip()
        rows.append([what, f"{value:,.{digits}f} {unit}".strip(), wanted, kept, note.strip(" ()")])

    pairs = [(one.straight, one.through) for one in found]
    for name, at, limit in (("median", 0.5, 1.5), ("99 % quantile", 0.99, 5.0)):
        here, there = ([_quantile(pair[side], at) for pair in pairs] for side in (0, 1))
        added = [b - a for a, b in zip(here, there, strict=True)]
        note = f" (medians of rounds: {median(here):.2f} straight, {median(there):.2f} through; "
        note += f"added {min(added):.2f} to {max(added):.2f})"
        told(f"added at the {name}, {RATE:.0f} requests/s, open loop", median(added), limit, "ms", note)
    here, there = (float(np.mean(np.concatenate([pair[side].latency for pair in pairs]))) * 1e3 for side in (0, 1))
    told("added on average", there - here, None, "ms", f"{here:.2f} straight, {there:.2f} through")
    told("its processor time a request", 1e3 * float(np.mean([one.spent for one in found])), None, "ms", "")
    here, there = (_quantile(one, 0.5) for one in chunks)
    told("added at the median to a stream of 8 chunks, 60/s", there - here, None, "ms", f"{here:.2f}, {there:.2f}")
    note = f" ({loops[0]['requests'] / loops[0]['seconds']:,.0f} straight)"
    told(
        f"requests with {CONNECTIONS} connections",
        *(loops[1]["requests"] / loops[1]["seconds"], 1000.0, "/s", note, True),
    )
    wrong = sum(int((one.through.status != 200).sum()) for one in found) + int((chunks[1].status != 200).sum())
    wrong += sum(loops[1][kind] for kind in ("connect", "read", "write", "status", "timeout"))
    total = sum(len(one.through.status) for one in found) + len(chunks[1].status) + loops[1]["requests"]
    told("requests that were not answered with 200", float(wrong), 0.0, "", f" (of {total:,})")
    counted = sum(float(text.rsplit(" ", 1)[1]) for text in said.splitlines() if _counts_errors(text))
    told("answers of 5xx that it counted itself", counted, 0.0, "", "")
    if not quick:
        head = ["", "measured", "wanted", "kept", "of it"]
        text = f"""## What the service costs

`python -m benchmarks live_service.cost`: `queuewise serve` between wrk and four backends that answer at once, {rounds} rounds
of {seconds:.0f} s straight to a backend and {seconds:.0f} s through the service, the same Poisson arrivals. Load tool, service
and backends share two cores.

"""
        put("cost", text + table(head, rows))


def _counts_errors(text: str) -> bool:
    """499 is a client that went away, as the load tool does at the end of a closed loop."""
    return text.startswith("queuewise_requests_total{") and 'code_class="5' in text


# --- scenarios --------------------------------------------------------------------------------------------------------


def scenarios(quick: bool) -> None:
    """Every scenario, all rules at once, beside virtual time."""
    try:
        tool()
    except NoToolError as error:
        line("scenarios", "not measured", str(error))
        return
    found = []
    for k, scenario in enumerate(ON_SOCKETS):
        run = compare(scenario, 6.0 if quick else scenario.seconds, k + 1, 2.0 if quick else 5.0)
        found.append(run)
        _report(run, quick)
    if not quick:
        put("sockets", _page(found))
        _draw(found)


def _ratio(run: Compared, rule: str) -> tuple[float, float]:
    """Mean delay after learning over that of known rates, on sockets and in virtual time."""
    return (
        run.sockets[rule].after / run.sockets["known rates"].after,
        run.virtual[rule].after / run.virtual["known rates"].after,
    )


def _same_order(run: Compared) -> tuple[int, int]:
    """Of the pairs of rules whose means are apart in virtual time: how many are in the same order on sockets, and how many
    there are."""
    same = pairs = 0
    names = list(RULES)
    for i, a in enumerate(names):
        for b in names[:i]:
            here, there = (one[a].after / one[b].after for one in (run.sockets, run.virtual))
            if max(there, 1.0 / there) > APART:
                pairs += 1
                same += (here > 1.0) == (there > 1.0)
    return same, pairs


def _report(run: Compared, quick: bool) -> None:
    known = run.sockets["known rates"].after, run.virtual["known rates"].after
    line(run.scenario.name, f"{1e3 * known[0]:.0f} ms", f"known rates ({1e3 * known[1]:.0f} ms in virtual time)")
    for rule in list(RULES)[1:]:
        here, there = _ratio(run, rule)
        one = run.sockets[rule]
        note = f" (virtual time {there:.2f})"
        if one.failed > 0.0:
            note += f", {100 * one.failed:.1f} % failed"
        if one.waiting:
            note += f", {one.waiting} still waiting at the end"
        if rule == "router" and not quick:
            at_most("  router, of known rates", here, 1.25, "", 2, note)
        else:
            line(f"  {rule}", f"{here:.2f}", note.strip())
    same, pairs = _same_order(run)
    if not quick:
        at_least("  pairs of rules in the same order as in virtual time", same, pairs, "", 0)
    at_most("  errors of the proxy's own", sum(one.own_errors for one in run.sockets.values()), 0, "", 0)
    late = " ".join(f"{1e3 * value:.1f}" for value in run.late)
    spent = f"proxy {1e3 * run.spent[0]:.2f}, backends {1e3 * run.spent[1]:.2f} ms a request"
    line("  load tool late by (mean, 99 %, most)", f"{late} ms", spent)


def _page(found: list[Compared]) -> str:
    others = list(RULES)[1:]
    rows = []
    for run in found:
        known = run.sockets["known rates"].after, run.virtual["known rates"].after
        cells = []
        for rule in others:
            here, there = _ratio(run, rule)
            text = f"{_short(here)} ({_short(there)})"
            cells.append(f"**{text}**" if rule == "router" and here > 1.25 else text)
        same, pairs = _same_order(run)
        rows.append([run.scenario.name, f"{1e3 * known[0]:.0f} ({1e3 * known[1]:.0f})", *cells, f"{same} of {pairs}"])
    head = ["scenario", "known rates, ms", *others, "same order"]
    count = sum(len(run.sockets["router"].delay) * len(RULES) for run in found)
    wrong = sum(one.own_errors for run in found for one in run.sockets.values())
    late = max(run.late[1] for run in found)
    text = f"""## On real sockets

`python -m benchmarks live_service.scenarios`: HTTP backends, wrk and the service on two cores; all rules at once, each with
backends of its own behind the same proxy, the same requests at the same times, {found[0].seconds:.0f} s a scenario.
Mean delay of those served, after learning (the second half of each stretch between events), over that of shortest expected
delay with the true rates. In brackets: the same requests played in virtual time. Wanted: the router within 1.25 of known
rates, and the order of virtual time for every pair of rules that is {100 * (APART - 1):.0f} % apart there.
Nothing is retried here, so that failures show; the other rules have no circuits.

"""
    text += table(head, rows)
    text += f"""
{count:,} requests; answers that no backend has given: {wrong}. The load tool sent 99 % of its requests within
{1e3 * late:.0f} ms of their time. Requests take about {_extra(found):.0f} ms longer than in virtual time, where proxy, sockets,
timers and whatever else the machine does cost nothing.
Beyond its capacity a backend has no mean delay, so where round robin and random overload one their numbers are those of the
run's length.

![Mean delay after learning of every rule in every scenario, on sockets and in virtual time](live-delays.png)

"""
    rows = []
    for run in found:
        watched = run.scenario.watched
        if watched is None:
            continue
        for rule in RULES:
            if run.sockets[rule].waiting:
                continue  # nobody knows where those are that never came back
            shares = []
            for outcomes in (run.sockets, run.virtual):
                one = outcomes[rule]
                parts = [100 * one.share(watched, 0.5 * (a + b), b) for a, b in run.scenario.stretches(run.seconds)]
                shares.append(", ".join(f"{part:.1f}" for part in parts))
            failed = run.sockets[rule].failed, run.virtual[rule].failed
            lost = f"{100 * failed[0]:.1f} ({100 * failed[1]:.1f})" if max(failed) > 0.0 else ""
            rows.append([run.scenario.name, rule, f"{shares[0]} ({shares[1]})", lost])
    text += "Where something happens to a backend, its share of the traffic in the second half of each stretch, and failures "
    text += "(in brackets in virtual time):\n\n"
    text += table(["scenario", "rule", "share, %", "requests failed, %"], rows)
    return text + "\n![Share of the traffic that the backend gets to which something happens](live-events.png)\n"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.0f}"


def _extra(found: list[Compared]) -> float:
    """ms that known rates take longer on sockets than in virtual time: the median over scenarios."""
    return 1e3 * float(
        np.median([run.sockets["known rates"].after - run.virtual["known rates"].after for run in found])
    )


# --- figures ----------------------------------------------------------------------------------------------------------

#: Okabe and Ito's palette.
_COLOURS = dict(zip(RULES, ("#000000", "#0072B2", "#D55E00", "#E69F00", "#009E73", "#CC79A7"), strict=True))
_MARKERS = dict(zip(RULES, "oDsv^P", strict=True))


def _draw(found: list[Compared]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8.0, 0.62 * len(found) + 1.5), layout="constrained")
    for row, run in enumerate(found):
        for k, rule in enumerate(list(RULES)[1:]):
            here, there = _ratio(run, rule)
            height = row + 0.12 * (k - 2)
            style: dict[str, Any] = {"marker": _MARKERS[rule], "color": _COLOURS[rule], "linestyle": "none"}
            axes.plot([there, here], [height] * 2, color=_COLOURS[rule], linewidth=0.8)
            axes.plot(there, height, markerfacecolor="white", markersize=5, **style)
            axes.plot(here, height, markersize=5, label=rule if row == 0 else None, **style)
    axes.axvline(1.0, color="black", linewidth=1.0)
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 5, 10, 20, 50, 100], [str(n) for n in (1, 2, 5, 10, 20, 50, 100)])
    axes.minorticks_off()
    axes.set_yticks(range(len(found)), [run.scenario.name for run in found])
    axes.invert_yaxis()
    axes.set_xlabel("mean delay after learning, over that with known rates\nfilled: on sockets, open: in virtual time")
    figure.legend(ncols=5, loc="outside upper right", frameon=False, columnspacing=1.2, handletextpad=0.3)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    figure.savefig(PAGE.parent / "live-delays.png", dpi=110)
    plt.close(figure)

    watched = [run for run in found if run.scenario.watched is not None]
    figure, panels = plt.subplots(len(watched), 1, figsize=(8.0, 2.1 * len(watched) + 0.5), layout="constrained")
    for axes, run in zip(panels, watched, strict=True):
        edges = np.linspace(0.0, run.seconds, 31)
        for rule in ("known rates", "router", "latency x in flight", "least connections"):
            axes.stairs(
                _shares(run.sockets[rule], int(run.scenario.watched or 0), edges),
                edges,
                color=_COLOURS[rule],
                label=rule,
                linewidth=2.0 if rule == "router" else 1.2,
                linestyle=":" if rule == "known rates" else "-",
                baseline=None,
            )
        for event in run.scenario.events:
            axes.axvline(event * run.seconds, color="0.6", linewidth=0.8, linestyle="--")
        axes.set_title(run.scenario.name, fontsize=10, loc="left")
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlim(0.0, run.seconds)
        axes.set_ylabel("share")
    panels[0].legend(ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.12), frameon=False)
    panels[-1].set_xlabel("seconds since the start")
    figure.savefig(PAGE.parent / "live-events.png", dpi=110)
    plt.close(figure)


def _shares(outcome: Outcome, server: int, edges: NDArray[np.float64]) -> list[float]:
    return [outcome.share(server, a, b) for a, b in pairwise(edges)]


def sections(quick: bool = False) -> dict[str, Callable[[], None]]:
    """Name → section."""
    return {"cost": lambda: cost(quick), "scenarios": lambda: scenarios(quick)}
