"""The scheduling wing: WISE's figure, the slow twins, first calls, decisions one by one, recorded systems, long runs.

Absolute times depend on the machine and its mood; promises are ratios of two things timed in turn, or a time beside its
limit.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from queuewise import _compile, scheduling
from queuewise.scheduling import engine, presets
from queuewise.scheduling.policies import REGISTER, make
from queuewise.scheduling.policy import Ticket, Waiting
from tests.naive import simulate as naive

from .report import at_least, at_most, fastest, in_a_new_process, in_turn, line, ratio, timed

SETTINGS = [(q, slack) for q in (0.0, 0.15, 0.5) for slack in (0.05, 0.1, 0.15)]


def _system() -> scheduling.System:
    return scheduling.wise_figure_law(q=0.15, slack=0.05, seed=0)


def figure() -> None:
    """All of WISE's Figure 1 in one process: nine settings, ten runs, eight policies and the oracle, 2,000 rounds."""
    policies = presets.wise_figure_1()
    systems = [scheduling.wise_figure_law(q=q, slack=slack, seed=0) for q, slack in SETTINGS]
    scheduling.simulate(systems[0], policies, rounds=50, runs=1)
    begin = time.perf_counter()
    for system in systems:
        scheduling.simulate(system, policies, rounds=2000, runs=10, seed=1)
    at_most("Figure 1, simulation alone", time.perf_counter() - begin, 8, "s")
    with tempfile.TemporaryDirectory() as out:
        command = [
            sys.executable,
            "-m",
            "queuewise.cli",
            "reproduce",
            "wise-figure-1",
            "--instances",
            "0",
            "--out",
            out,
        ]
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        at_most("Figure 1, the whole command", time.perf_counter() - begin, 12, "s")


def against_naive(literal: bool) -> None:
    """One run of 2,000 rounds beside the slow twins, on the same draws."""
    system = _system()
    shape, draws = engine.shape_of(system, 2000), engine.draw(system, 2000, 1, 0)
    times = {}
    for name in REGISTER:
        policy = make(name, exploration=0.3) if name == "cqb_eta_2" else make(name)
        times[name] = fastest(lambda policy=policy: engine.play(policy, shape, draws, seed=1))
        line(f"{name}, one run of 2,000 rounds", f"{1e3 * times[name]:.1f} ms")
    extra = 1e3 * (times["wise"] - times["cqb_opt"])
    at_most("WISE beyond CQB-Opt", extra, 60, "ms", 1)
    lbfgs = timed(lambda: naive.cqb_opt_lbfgs(draws, 100.0))
    at_least("CQB-Opt against the NumPy loop with L-BFGS", lbfgs / times["cqb_opt"], 60, "x", 0, f" ({lbfgs:.2f} s)")
    lbfgs = timed(lambda: naive.wise_lbfgs(draws, 0.5, 100.0))
    at_least("WISE against the NumPy loop with L-BFGS", lbfgs / times["wise"], 60, "x", 0, f" ({lbfgs:.2f} s)")
    newton = timed(lambda: naive.wise_newton(draws, 0.5, 100.0))
    line("WISE against the NumPy loop with Newton", f"{newton / times['wise']:.0f} x", f"({newton:.2f} s)")
    if literal:
        slow = timed(lambda: naive.wise_literal(draws, 0.5, 100.0))
        at_least("WISE against the literal transcription", slow / times["wise"], 600, "x", 0, f" ({slow:.0f} s)")


_ALL_POLICIES = """
import time; begin = time.perf_counter()
import queuewise as qw
from queuewise.scheduling.policies import REGISTER, make
system = qw.scheduling.wise_figure_law(q=0.15, slack=0.05, seed=0)
policies = [make(n, exploration=0.3) if n == "cqb_eta_2" else make(n) for n in REGISTER]
qw.scheduling.simulate(system, policies[:{first}], rounds=50, runs=1, workers=1)
print(time.perf_counter() - begin)
"""


def first_calls() -> None:
    """A machine's first call, a later process's first result, and imports."""
    with tempfile.TemporaryDirectory() as cache:

        def run(code: str) -> float:
            return float(in_a_new_process(code, cache))

        at_most("first call on a machine, all ten policies", run(_ALL_POLICIES.format(first=10)), 45, "s", 1)
        at_most("next process, WISE's first result", run(_ALL_POLICIES.format(first=1)), 2, "s")
        line("next process, first result of all ten", f"{run(_ALL_POLICIES.format(first=10)):.2f} s")
        code = "import time, numba; b = time.perf_counter(); import {0}; print(time.perf_counter() - b)"
        at_most("import queuewise, beyond numba", run(code.format("queuewise")), 0.3, "s", 3)
        line("import queuewise.scheduling, beyond numba", f"{run(code.format('queuewise.scheduling')):.3f} s")


def decisions() -> None:
    """decide + assigned + observe called from Python, as a live scheduler would, with ten jobs waiting."""
    system = _system()
    shape, draws = engine.shape_of(system, 2000), engine.draw(system, 2000, 1, 0)
    for name in ("wise", "cqb_opt", "q_ucb"):
        policy = make(name)
        params, state, stream = engine.prepare(policy, shape)
        state, columns = policy.grow_state(state, 3000), policy.new_columns(10, shape.servers)
        functions = {key: _compile.jit(function) for key, function in policy.functions.items()}
        features = np.ascontiguousarray(draws.features[:10])
        truth, allowed = np.full((10, shape.servers), np.nan), np.ones(shape.servers, dtype=np.bool_)
        waiting = Waiting(1, 10, np.arange(10), -1, allowed, features, truth)
        for slot in range(10):
            functions["admit"](params, state, columns, waiting, slot)
        spent = []
        for t in range(1, 400):
            waiting = waiting._replace(round=t)
            begin = time.perf_counter()
            slot, server, reason = functions["decide"](params, state, columns, waiting, stream)
            ticket = Ticket(t, int(slot), int(server), int(reason), np.ascontiguousarray(features[slot, :, server]))
            functions["assigned"](params, state, columns, waiting, ticket)
            functions["observe"](params, state, columns, waiting, ticket, t % 3 > 0)
            spent.append(time.perf_counter() - begin)
        line(f"{name}: decide, assign, observe from Python", f"{1e6 * float(np.median(spent)):.0f} us")


def _recorded_system() -> scheduling.System:
    """A record as of ten language models: 500 tasks of five features and how often each model does each task."""
    rng = np.random.default_rng(0)
    features, skill = rng.normal(size=(500, 5)), rng.normal(size=(6, 10))
    logits = 0.5 + 0.8 * (skill[0] + features @ skill[1:])
    return scheduling.from_outcomes(features, 1.0 / (1.0 + np.exp(-logits)), load=0.8, suggested_radius=1.0)


def recorded() -> None:
    """A recorded system with parameters of each server's own (d = 60): twenty runs of eight policies, 5,000 rounds; and what
    it gains that servers share no parameter."""
    system, rounds = _recorded_system(), 5000
    names = ("wise", "cqb_opt", "cqb_epsilon", "cqb_eta_2", "acqb", "q_ucb", "q_ths", "random")
    policies = [make(name, exploration=0.3) if name == "cqb_eta_2" else make(name) for name in names]
    scheduling.simulate(system, policies, rounds=50, runs=1)
    spent = timed(lambda: scheduling.simulate(system, policies, rounds=rounds, runs=20, seed=1))
    at_most("twenty runs of eight policies, 5,000 rounds, d = 60", spent, 60, "s", 1)
    shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, 1, 0)
    for policy in policies[:5]:
        split, whole = in_turn(
            lambda policy=policy: engine.play(policy, shape, draws, seed=1),
            lambda policy=policy: engine.play(policy, shape._replace(blocks=1), draws, seed=1),
            repeats=3,
        )
        at_least(f"{policy.name}: one block against ten", ratio(whole, split), 8, "x", 1, f" ({min(split):.2f} s)")


def _finite_system() -> scheduling.System:
    """Fifty contexts in five dimensions, five servers, 92 % busy under the oracle."""
    rng = np.random.default_rng(0)
    features, theta = rng.normal(size=(50, 5, 5)), rng.normal(size=5)
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    return scheduling.table_law(
        features,
        theta=3.0 * theta / np.linalg.norm(theta),
        arrival_rate=0.72,
        parameter_bound=4.0,
        feature_bound=1.0,
        suggested_radius=1.0,
        suggested_initial_design=1.0,
    )


def _cost(policy: scheduling.Policy, system: scheduling.System, rounds: int) -> float:
    """Seconds a round between rounds/2 and `rounds`: two runs of the same beginning, the rest of their times."""
    times = []
    for horizon in (rounds // 2, rounds):
        shape, draws = engine.shape_of(system, horizon), engine.draw(system, horizon, 1, 0)
        repeats = max(1, 20_000 // horizon)
        times.append(min(timed(lambda s=shape, d=draws: engine.play(policy, s, d, seed=1)) for _ in range(repeats)))
    return 2.0 * (times[1] - times[0]) / rounds


_MILLION = """
import time
from queuewise.scheduling import engine, wise_figure_law
from queuewise.scheduling.policies import make
system, rounds = wise_figure_law(q=0.15, slack=0.05, seed=0), {rounds}
shape, draws = engine.shape_of(system, rounds), engine.draw(system, rounds, 1, 0)
begin = time.perf_counter()
engine.play(make("wise", estimator="one_pass"), shape, draws, seed=1)
spent = time.perf_counter() - begin
peak = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(spent, peak[0] / 1024)
"""


def long_run() -> None:
    """Long runs: what a round costs late in them, by estimator, and a million rounds of WISE in time and memory."""
    finite, figure = _finite_system(), _system()
    cases = [("exact", "finite law", finite, 6), ("exact", "WISE's law", figure, 5)]
    cases += [(name, "WISE's law", figure, 6) for name in ("scheduled", "one_pass")]
    for rule in ("wise", "cqb_opt"):
        for estimator, law, system, decades in cases:
            policy = make(rule, estimator=estimator)
            engine.play(policy, engine.shape_of(system, 300), engine.draw(system, 300, 1, 0), seed=1)
            costs = [1e6 * _cost(policy, system, 10**power) for power in range(3, decades + 1)]
            what = f"{rule}, {estimator}, {law}: us a round up to 10^3..10^{decades}"
            line(what, " ".join(f"{cost:.1f}" for cost in costs))
            if decades == 6:
                at_most(f"{rule}, {estimator}, {law}: 10^6 against 10^4", costs[3] / costs[1], 1.5, "x")
    if sys.platform == "linux":
        in_a_new_process(_MILLION.format(rounds=100))
        spent, peak = (float(number) for number in in_a_new_process(_MILLION.format(rounds=10**6)).split())
        at_most("a million rounds of WISE, one pass", spent, 60, "s", 1)
        at_most("its process's largest memory", peak, 500, "MiB", 0)


def sections(literal: bool, long: bool) -> dict[str, Callable[[], None]]:
    """Name → section."""
    found: dict[str, Callable[[], None]] = {
        "first_calls": first_calls,
        "figure": figure,
        "naive": lambda: against_naive(literal),
        "decisions": decisions,
        "recorded": recorded,
    }
    return {**found, "long": long_run} if long else found
