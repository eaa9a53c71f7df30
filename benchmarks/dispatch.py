"""The dispatching wing: events a second, beside SimPy and Cimba, memory, a figure's worth of runs, first calls, decisions.

An event is an arrival or a departure: a run of a million arrivals has two million. Everything that is always computed is
computed: the oracle's choice at every arrival (regret), its cause, time averages; and the arrival times and sizes are drawn.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import mean, stdev

import numpy as np

from queuewise import _compile, dispatch
from queuewise.dispatch import engine, loop
from queuewise.dispatch.policies import REGISTER, make
from queuewise.dispatch.policy import DONE, Outcome, Policy, Seen, Ticket
from queuewise.runs.runner import default_workers

from .report import at_least, at_most, in_a_new_process, in_turn, line, median, ratio
from .two_queues import ARRIVAL_RATE, RATES

#: SimPy and Cimba are measured where they are installed; nothing here needs them.
MISSING = [name for name in ("simpy", "cimba") if importlib.util.find_spec(name) is None]
if "simpy" not in MISSING:
    from . import in_simpy
if "cimba" not in MISSING:
    from . import in_cimba  # here: once numba has compiled anything, it no longer learns Cimba's types

MILLION = 1_000_000
#: Promised million events a second; LASED keeps books of every completion, and begins an episode whenever it is empty.
RULES = {"sed": 30.0, "jsq": 30.0, "greedy": 30.0, "optimistic_sed": 30.0, "lased": 20.0}

TRACED = ("sed", "lased")


def _two(arrival_rate: float = ARRIVAL_RATE) -> dispatch.System:
    return dispatch.System(arrival_rate, RATES)


def _play(policy: str | Policy, system: dispatch.System, arrivals: int, seed: int = 1) -> engine.Player:
    """One run on one thread, draws included."""
    player = engine.Player(make(policy), system, np.array([arrivals]), seed=seed)
    for times, sizes in engine.flows(system, arrivals, seed, 0):
        player.advance(times, sizes)
    return player


def rates_in_this_process() -> None:
    """Print million events a second of every rule at two loads, and with a record of every job: medians of five."""

    def show(what: str, times: list[float]) -> None:
        print(f"{what}|{2.0 / median(times)}")

    for arrival_rate in (13.5, 9.0):
        system = _two(arrival_rate)
        found = in_turn(
            *(lambda rule=rule, system=system: _play(rule, system, MILLION) for rule in RULES),
            repeats=5,
        )
        for rule, times in zip(RULES, found, strict=True):
            show(f"{rule}, λ = {arrival_rate:g}", times)
    found = in_turn(
        *(lambda rule=rule: dispatch.trace(_two(), rule, MILLION) for rule in TRACED),
        repeats=5,
    )
    for rule, times in zip(TRACED, found, strict=True):
        show(f"{rule}, every job written down", times)


def throughput() -> None:
    """One core, two servers, a million arrivals; and with a record of every job.

    Processes differ, by where the machine code comes to lie and by what else the machine does, so that this is the median
    of seven of them, with the range."""
    code = "from benchmarks.dispatch import rates_in_this_process as show; show()"
    rows = [dict(row.split("|") for row in in_a_new_process(code).splitlines()) for _ in range(7)]
    for what in rows[0]:
        rates = sorted(float(row[what]) for row in rows)
        promised = 15.0 if "written" in what else RULES[what.split(",")[0]]
        note = f" ({rates[0]:.0f} to {rates[-1]:.0f})"
        at_least(what, median(rates), promised, "M events/s", note=note)


_BUSY = """
import time
from queuewise import dispatch
system = dispatch.System({rate}, {rates})
dispatch.simulate(system, "lased", 1000, runs=1)
begin = time.perf_counter()
dispatch.simulate(system, "lased", 1_000_000, runs=10, workers=1)
print(time.perf_counter() - begin)
"""


def cores() -> None:
    """Two threads against one; beside it two processes against one, which is what the machine has to give at the moment."""
    if default_workers() < 2:
        line("two cores against one", "one core here", "at least 1.6")
        return
    system = _two()

    def simulate(workers: int) -> None:
        dispatch.simulate(system, "lased", MILLION, runs=4, workers=workers)

    one, two = in_turn(lambda: simulate(1), lambda: simulate(2))
    at_least("two threads against one (median of 7)", ratio(one, two), 1.6, "x", 2)
    code = _BUSY.format(rate=ARRIVAL_RATE, rates=RATES)
    with ThreadPoolExecutor(2) as pool:
        alone = [float(in_a_new_process(code)) for _ in range(3)]
        together = [max(map(float, pool.map(in_a_new_process, [code, code]))) for _ in range(3)]
    line("two processes against one (median of 3)", f"{2.0 * median(alone) / median(together):.2f} x")


def many_servers() -> None:
    """A thousand servers, rates spread by a factor of ten, load 0.8; and what the start of an episode costs there."""
    rates = tuple(np.geomspace(1.0, 10.0, 1000).round(2).tolist())
    system, arrivals = dispatch.System(round(0.8 * sum(rates), 3), rates), 200_000
    rules = ("sed", "lased")
    found = in_turn(*(lambda rule=rule: _play(rule, system, arrivals) for rule in rules), repeats=5)
    for rule, times in zip(rules, found, strict=True):
        at_least(f"{rule}, 1,000 servers", 2e-6 * arrivals / median(times), 2.0, "M events/s")
    # Jobs so rare that the system is empty after each: every arrival begins an episode, and that is the difference.
    rare = dispatch.System(1e-3, rates)
    never = dispatch.lased(scale=0.0)
    episodes = int(_play(never, rare, 2000).tally.clock[loop.PERIODS])
    without, with_episodes = in_turn(lambda: _play("jsq", rare, 2000), lambda: _play(never, rare, 2000), repeats=5)
    extra = median(b - a for a, b in zip(without, with_episodes, strict=True))
    line("one start of an episode of lased, 1,000 servers", f"{1e6 * extra / episodes:.1f} us")


def rivals() -> None:
    """Beside SimPy and Cimba, on the same work: two queues under SED, mean number and mean sojourn time; one thread each."""
    system = _two()
    true_mean = dispatch.exact.stationary(system, "sed").mean_number
    line("mean number in the system, exact", f"{true_mean:.4f}")
    # All simulate one system, so one spread between runs holds for all: a few runs of each would give a poor one.
    spread = stdev(_mean_number(_play("sed", system, MILLION, seed)) for seed in range(1000, 1040))
    programs: dict[str, tuple[int, float | None, Callable[[int], float]]] = {
        "queuewise": (MILLION, None, lambda seed: _mean_number(_play("sed", system, MILLION, seed)))
    }
    if MISSING:
        line(f"not installed: {' and '.join(MISSING)}", "", f"pip install {' '.join(MISSING)}")
    if "simpy" not in MISSING:
        few = MILLION // 20
        programs["SimPy, a process per job"] = few, 300.0, lambda seed: in_simpy.process_per_job(few, seed)[0]
        programs["SimPy, a process per server"] = few, None, lambda seed: in_simpy.process_per_server(few, seed)[0]
    if "cimba" not in MISSING:
        processes, events = in_cimba.Processes(), in_cimba.Events()
        processes.arrivals = events.arrivals = MILLION
        programs["Cimba, processes"] = MILLION, 5.0, lambda seed: in_cimba.play(processes, seed)[0]
        programs["Cimba, events alone"] = MILLION, 5.0, lambda seed: in_cimba.play(events, seed)[0]

    means: dict[str, list[float]] = {name: [] for name in programs}
    seeds = itertools.count(1)

    def once(name: str) -> None:
        means[name].append(programs[name][2](next(seeds)))

    found = in_turn(*(lambda name=name: once(name) for name in programs), repeats=9)
    times = dict(zip(programs, found, strict=True))
    for name, (arrivals, _, _) in programs.items():
        error = spread * math.sqrt(MILLION / arrivals / len(means[name]))
        off = (mean(means[name]) - true_mean) / error
        line(
            f"{name}: mean number",
            f"{mean(means[name]):.3f}",
            f"within 5 standard errors ({off:+.1f})",
            kept=abs(off) <= 5.0,
        )
        line(f"{name}: events a second", f"{2e-6 * arrivals / median(times[name]):.3g} M")
    for name, (arrivals, promised, _) in programs.items():
        if name != "queuewise":
            times_quicker = ratio(times[name], times["queuewise"], MILLION / arrivals)
            if promised is None:
                line(f"against {name}", f"{times_quicker:.1f} x")
            else:
                at_least(f"against {name}", times_quicker, promised, "x")


def _mean_number(player: engine.Player) -> float:
    row = player.record.rows[-1]
    return float(row[loop.AREA] / row[loop.TIME])


_PEAK = """
import resource
from pathlib import Path
from queuewise import dispatch

def peak():
    rows = Path("/proc/self/status")
    if rows.exists():
        return int(rows.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

system = dispatch.System({rate}, {rates})
dispatch.simulate(system, "lased", 10_000, runs=1, workers=1)
forget = Path("/proc/self/clear_refs")
if forget.exists():
    forget.write_text("5")  # the peak so far, of importing and compiling
before = peak()
dispatch.simulate(system, "lased", {arrivals}, runs=1, workers=1)
print(before, peak())
"""


def memory(long: bool) -> None:
    """The largest memory of one run of LASED and of the oracle, beyond what the process held before."""
    first = 0.0
    for arrivals in (MILLION, 10 * MILLION, *([100 * MILLION] if long else [])):
        printed = in_a_new_process(_PEAK.format(rate=ARRIVAL_RATE, rates=RATES, arrivals=arrivals))
        before, after = map(float, printed.split())
        if arrivals == MILLION:
            first = after - before
            line("a process that has imported and compiled", f"{before:.0f} MiB")
            line(f"{arrivals:,} arrivals take", f"{first:.1f} MiB more")
        else:
            at_most(f"{arrivals:,} arrivals, beyond that", after - before - first, 4, "MiB", 1)


def figure() -> None:
    """A figure's worth of runs: a million arrivals, a hundred runs, two policies and the oracle, on two cores."""
    system, policies, workers = _two(), ["lased", "greedy"], min(2, default_workers())
    dispatch.simulate(system, policies, 1000, runs=1)
    begin = time.perf_counter()
    dispatch.simulate(system, policies, MILLION, runs=100, workers=workers)
    at_most(f"100 runs of 10⁶ arrivals, 2 policies, {workers} cores", time.perf_counter() - begin, 15, "s", 1)


_FIRST_CALLS = """
import time; begin = time.perf_counter()
import numpy as np
from queuewise import dispatch
from queuewise.dispatch import engine
from queuewise.dispatch.policies import REGISTER, make
print("import", time.perf_counter() - begin)
system = dispatch.System({rate}, {rates})
for name in REGISTER:
    begin = time.perf_counter()
    policy = make(name, rates={rates}) if name == "esed" else make(name)
    player = engine.Player(policy, system, np.array([1]))
    for times, sizes in engine.flows(system, 1, 1, 0):
        player.advance(times, sizes)
    print(name, time.perf_counter() - begin)
"""


def first_calls() -> None:
    """The first arrival of every policy: on a machine that has compiled nothing yet, and in the next process."""
    code = _FIRST_CALLS.format(rate=ARRIVAL_RATE, rates=RATES)
    with tempfile.TemporaryDirectory() as cache:
        rounds = [dict(row.split() for row in in_a_new_process(code, cache).splitlines()) for _ in range(2)]
    for name in ("import", *REGISTER):
        line(
            f"{name}: first, then in the next process",
            f"{float(rounds[0][name]):.1f} s, {float(rounds[1][name]):.2f} s",
        )
    totals = [sum(map(float, found.values())) for found in rounds]
    line("all of them", f"{totals[0]:.1f} s, {totals[1]:.2f} s")


def decisions() -> None:
    """decide + assigned + observe called from Python, as a live dispatcher would."""
    system = _two()
    for name in ("sed", "lased", "optimistic_sed"):
        policy = make(name)
        params, state, stream = engine.prepare(policy, engine.shape_of(system, policy.clairvoyant))
        functions = {key: _compile.jit(function) for key, function in policy.functions.items()}
        queue, slots = np.zeros(2, np.int64), system.slot_counts
        free, weights = np.full(2, -math.inf), np.ascontiguousarray(system.weights[0])
        if not policy.clairvoyant:
            free, weights = np.full(2, math.nan), np.full(2, math.nan)
        spent = []
        for t in range(1, 1000):
            seen = Seen(0.1 * t, 0, t, 0, queue, slots, np.zeros(2), free, weights)
            begin = time.perf_counter()
            server, reason = functions["decide"](params, state, seen, stream)
            ticket = Ticket(server, reason, seen.now)
            joined = seen._replace(jobs=1)
            functions["assigned"](params, state, joined, ticket)
            functions["observe"](params, state, seen, ticket, Outcome(DONE, 0.05, 0.5))
            spent.append(time.perf_counter() - begin)
        line(f"{name}: decide, assign, observe from Python", f"{1e6 * float(np.median(spent)):.0f} us")


def sections(long: bool) -> dict[str, Callable[[], None]]:
    """Name → section."""
    return {
        "throughput": throughput,
        "cores": cores,
        "many_servers": many_servers,
        "rivals": rivals,
        "memory": lambda: memory(long),
        "figure": figure,
        "first_calls": first_calls,
        "decisions": decisions,
    }
