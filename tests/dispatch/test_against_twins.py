"""Every rule of the dispatching wing, event for event against its slow twin on the same arrivals, sizes and draws."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise import _random, streams
from queuewise.dispatch import engine, loop
from queuewise.dispatch import service as services
from queuewise.dispatch.choice import INDEX_FROM
from queuewise.dispatch.policies import REGISTER, make
from queuewise.dispatch.policies.dispatch_bandit import best_fractions
from queuewise.dispatch.policy import Policy
from queuewise.dispatch.systems import System, schedule
from queuewise.dispatch.theory import ratio_gaps

from ..naive import dispatch as naive

SEED, RUN = 5, 2
#: Relative differences of times and integrals that rounding explains.
CLOSE = 1e-9


class Streams:
    """A rule's own randomness, from the package's generator."""

    def __init__(self, name: str) -> None:
        self.stream = streams.policy_stream(SEED, RUN, name)

    def uniform(self) -> float:
        return float(self._quietly(_random.uniform))

    def below(self, bound: int) -> int:
        return int(self._quietly(_random.below, bound))

    def gamma(self, shape: float) -> float:
        return float(self._quietly(_random.gamma, float(shape)))

    def _quietly(self, draw: Any, *arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return draw(self.stream, *arguments)


class Case(NamedTuple):
    """A system and how it is played."""

    system: System
    arrivals: int = 1500
    own_sizes: bool = False
    continuous: bool = True  # sizes from a density, so that learned delays never tie by accident
    depth: float = engine.DEPTH


def _many_servers() -> System:
    return System(60.0, [1 + i % 5 for i in range(30)])


CASES = {
    "paper": Case(System(1.0, [5, 10])),
    "crowded": Case(System(2.7, [1, 2])),
    "equal": Case(System(1.5, [1, 1])),
    "fractions": Case(System(0.8, ["1/3", "2/3"])),
    "decimals": Case(System(0.35, [0.1, 0.3])),
    "three": Case(System(5.0, [1, 2, 3])),
    "one": Case(System(0.7, [1])),
    "slots": Case(System(7.0, [1, 2, 1.5], slots=[2, 1, 3])),
    "thirty": Case(_many_servers(), 700),
    "deterministic": Case(System(2.4, [1, 2], service=services.deterministic()), continuous=False),
    "bursty": Case(System(2.0, [1, 2], service=services.hyperexponential(8.0))),
    "changing": Case(System(2.0, schedule([0, 100, 300], [[1, 2], [3, "1/3"], [1.5, 1.5]]))),
    "changing-slots": Case(System(5.0, schedule([0, 50, 90], [[1, 2, 1], [2, "1/3", 2], [1, 1, 3]]), slots=[1, 2, 2])),
    "own": Case(System(2.4, [1, 2]), own_sizes=True),
    "own-slots": Case(System(4.2, [1, 2, 1], slots=[2, 1, 1]), own_sizes=True),
}

#: Options without which a rule cannot play, by number of servers.
NEEDED = {
    "sed_ratio": lambda n: {"ratio": "5/3"},
    "esed": lambda n: {"rates": [1 + 0.3 * i for i in range(n)]},
    "optimal": lambda n: {"level": 12},
}
#: Rules for so many servers only.
ONLY = {
    "sed_ratio": lambda n: n == 2,
    "optimal": lambda n: n == 2,
    "power_of_d": lambda n: n >= 2,
    "sed_of_d": lambda n: n >= 2,
}


def options_for(name: str, n: int) -> dict[str, Any]:
    return NEEDED[name](n) if name in NEEDED else {}


def truth_of(system: System, depth: float) -> naive.Truth:
    times = [float(time) for time in system.change_times]
    rows = [[naive.fraction(rate) for rate in row] for row in system._exact]
    return naive.Truth(
        list(zip(times, rows, strict=True)),
        [int(c) for c in system.slot_counts],
        system.rate,
        float(system.service.mean),
        depth,
    )


def play_fast(policy: Policy, case: Case, marks: list[int], compiled: bool = True, chunk: int = 0) -> tuple[Any, Any]:
    """The player, and the jobs' columns of all chunks."""
    player = engine.Player(
        policy,
        case.system,
        np.array(marks),
        seed=SEED,
        run=RUN,
        own_sizes=case.own_sizes,
        trace=True,
        listen=True,
        compiled=compiled,
        depth=case.depth,
    )
    columns: dict[str, list[Any]] = {key: [] for key in ("server", "reason", "cause", "began", "departs", "sojourn")}
    for times, sizes in engine.flows(case.system, case.arrivals, SEED, RUN, chunk or case.arrivals):
        player.advance(times, sizes)
        for key, found in columns.items():
            found.append(getattr(player.record, key)[: len(times)].copy())
    return player, {key: np.concatenate(found) for key, found in columns.items()}


def play_slow(policy: Policy, case: Case, marks: list[int], follow: Any) -> naive.Trace:
    truth = truth_of(case.system, case.depth)
    known = truth.pieces[0][1] if policy.clairvoyant else []
    facts = naive.Facts(truth.servers, truth.slots, truth.arrival_rate, known)
    options = {key: value for key, value in policy.options.items() if value is not policy.defaults.get(key)}
    rule = naive.RULES[policy.rule](facts, Streams(policy.name), **options)
    ((times, sizes),) = engine.flows(case.system, case.arrivals, SEED, RUN, case.arrivals)
    own = None
    if case.own_sizes:
        rngs = [streams.generator(SEED, RUN, streams.SERVICE, 1 + i) for i in range(truth.servers)]
        own = [case.system.service.sizes(rng, engine.OWN_CHUNK).tolist() for rng in rngs]
    return naive.simulate(
        truth, rule, times.tolist(), None if own else sizes.tolist(), own, marks=marks, follow=follow.tolist()
    )


def marks_of(case: Case) -> list[int]:
    return sorted({1, 7, case.arrivals // 2, case.arrivals})


def compare(policy: Policy, case: Case) -> tuple[Any, naive.Trace]:
    """Play both, and hold everything that is written down against each other."""
    marks = marks_of(case)
    player, columns = play_fast(policy, case, marks)
    slow = play_slow(policy, case, marks, columns["server"])
    assert len(slow.jobs) == case.arrivals
    for key, attribute in (("server", "server"), ("reason", "reason"), ("cause", "cause")):
        expected = np.array([getattr(job, attribute) for job in slow.jobs])
        different = np.flatnonzero(columns[key] != expected)
        assert not len(different), (
            f"{key} of arrival {different[0]}: fast {columns[key][different[0]]}, slow {expected[different[0]]}, "
            f"queues {slow.jobs[different[0]].queues}, time {slow.jobs[different[0]].arrived!r}; {len(different)} differ"
        )
    np.testing.assert_allclose(columns["began"], [job.began for job in slow.jobs], rtol=CLOSE, atol=0)
    np.testing.assert_allclose(columns["departs"], [job.departs for job in slow.jobs], rtol=CLOSE, atol=0)
    sojourn = [job.departs - job.arrived for job in slow.jobs]
    np.testing.assert_allclose(columns["sojourn"], sojourn, rtol=CLOSE, atol=1e-9)
    n = case.system.servers
    for at, row in enumerate(slow.rows):
        fast = player.record.rows[at]
        assert fast[loop.TIME] == row.time
        assert fast[loop.WRONG : loop.WRONG + 3].tolist() == row.wrong
        np.testing.assert_allclose(fast[loop.AREA], row.area, rtol=CLOSE, atol=1e-9)
        assert fast[loop.FOUND] == row.found
        np.testing.assert_allclose(fast[loop.SOJOURN], row.sojourn, rtol=CLOSE)
        assert fast[loop.BUSY_PERIODS] == row.busy_periods
        assert fast[loop.EPISODE] == row.episode
        assert fast[loop.LARGEST] == row.largest
        assert fast[loop.PER_SERVER : loop.PER_SERVER + n].tolist() == row.served
        busy = fast[loop.PER_SERVER + n : loop.PER_SERVER + 2 * n]
        np.testing.assert_allclose(busy, row.busy, rtol=CLOSE, atol=1e-9)
        if row.rates is not None:
            np.testing.assert_allclose(player.record.rates[at], [float(rate) for rate in row.rates], rtol=CLOSE)
    if case.continuous:
        assert slow.near_ties == 0
    return player, slow


def test_every_registered_rule_has_a_twin():
    assert set(REGISTER) == set(naive.RULES)


def test_the_cases_are_what_they_are_for():
    assert all(case.system.exact for case in CASES.values())
    assert CASES["thirty"].system.servers >= INDEX_FROM


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", REGISTER)
def test_rule_in_system(name, case):
    n = CASES[case].system.servers
    if name in ONLY and not ONLY[name](n):
        return
    compare(make(name, **options_for(name, n)), CASES[case])


TIED_RULES = [name for name in REGISTER if "ties" in make(name).defaults]
NO_FASTEST = {"jiq"}


@pytest.mark.parametrize("ties", ["highest", "fastest", "random"])
@pytest.mark.parametrize("name", TIED_RULES)
def test_ties(name, ties):
    if ties == "fastest" and name in NO_FASTEST:
        return
    for case in ("paper", "slots", "thirty"):
        n = CASES[case].system.servers
        if (name not in ONLY or ONLY[name](n)) and not (name == "jsq" and ties == "fastest"):
            compare(make(name, ties=ties, **options_for(name, n)), CASES[case]._replace(arrivals=400))


VARIANTS = [
    ("paper", "lased", {"initial_rates": [5, 0.1]}),
    ("crowded", "lased", {"initial_rates": [5, 0.1], "ratio_bounds": (0.05, 20)}),
    ("crowded", "lased", {"rate_bounds": (1.2, 1.9)}),
    ("three", "lased", {"rate_bounds": (1.5, 2.5)}),
    ("three", "lased", {"ratio_bounds": (0.5, 1.37), "scale": 0.1}),
    ("slots", "lased", {"rate_bounds": (0.5, 3), "scale": 0.1}),
    ("crowded", "lased", {"scale": 0}),
    ("crowded", "lased", {"scale": 0, "initial_rates": [50, 0.1]}),
    ("crowded", "lased", {"scale": 3.7}),
    ("crowded", "lased", {"quota": 7}),
    ("three", "lased", {"quota": 2, "order": "blocks"}),
    ("crowded", "lased", {"order": "blocks"}),
    ("crowded", "lased", {"update": "completion", "scale": 0.02}),
    ("three", "lased", {"update": "completion", "scale": 0.02, "rate_bounds": (0.5, 5)}),
    ("thirty", "lased", {"update": "completion", "scale": 0.001}),
    ("crowded", "lased", {"scale": 0.01, "ties": "highest"}),
    ("crowded", "lased", {"threshold": lambda k: 2.0 * math.sqrt(k)}),
    ("paper", "greedy", {"initial_rates": [5, 0.1]}),
    ("equal", "greedy", {"initial_rates": ["1/3", 2]}),
    ("thirty", "greedy", {"initial_rates": [30 - i for i in range(30)]}),
    ("paper", "optimistic_sed", {"initial_rates": [5, 0.1], "patience": 20.0}),
    ("crowded", "optimistic_sed", {"confidence": 2.0, "patience": 3.0, "samples": 0.0}),
    ("slots", "optimistic_sed", {"patience": 0.5, "samples": 0.3}),
    ("paper", "thompson_sed", {"initial_rates": [5, 0.1]}),
    ("paper", "dispatch_bandit", {"initial_rates": [5, 0.1]}),
    ("three", "dispatch_bandit", {"scale": 0.0, "initial_rates": [1, 2, 3]}),
    ("three", "dispatch_bandit", {"arrival_rate": 0.4}),
    ("three", "dispatch_bandit", {"arrival_rate": 50.0}),
    ("slots", "weighted_random", {"weights": [1, "1/3", 0.25]}),
    ("three", "power_of_d", {"choices": 1}),
    ("three", "power_of_d", {"choices": 3}),
    ("thirty", "sed_of_d", {"choices": 5}),
    ("crowded", "sed_ratio", {"ratio": 2}),
    ("crowded", "sed_ratio", {"ratio": 1.9}),
    ("paper", "esed", {"rates": [5, 10.1]}),
    ("three", "esed", {"rates": ["1/3", 0.7, 1]}),
]


@pytest.mark.parametrize(
    ("case", "name", "options"), VARIANTS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_options(case, name, options):
    compare(make(name, **options), CASES[case])


def test_causes():
    """With safe regions of several depths all three occur; else the comparison would say little."""
    seen = set()
    for ratio in (2, "3/2", 1):
        load = 0.85 * float(1 + naive.fraction(ratio))
        policy = make("lased", initial_rates=[5, 0.1], scale=0.05)
        for depth in (0.3, 1.0, 5.0):
            _, slow = compare(policy, Case(System(load, [1, ratio]), 2000, depth=depth))
            seen |= {job.cause for job in slow.jobs}
    assert seen == {naive.NONE, naive.EXPLORATION, naive.MISESTIMATION, naive.OVERFLOW}


@pytest.mark.parametrize("name", ["lased", "greedy"])
@pytest.mark.parametrize("initial", [(0.1, 0.3), (0.3, 0.1)])
def test_initial_rates_tie_as_the_fractions_that_they_spell(name, initial):
    """Rates given as decimals are read as fractions: (0.3, 0.1) tie where q_1 + 1 = 3 (q_2 + 1)."""
    options = {"threshold": lambda k: 0.0} if name == "lased" else {}
    policy = make(name, initial_rates=initial, **options)
    arrivals = [0.001 * k for k in range(1, 41)]  # nothing is learned meanwhile
    system = System(None, [1, 1], arrivals=arrivals, service=[1.0] * 40, allow_unstable=True)
    compare(policy, Case(system, 40))


@pytest.mark.parametrize(
    "name",
    ["dispatch_bandit", "weighted_random", "lased", "least_loaded"],
)
def test_sizes_whose_mean_is_not_one(name):
    """The rate of completions is mu / E[size], and all that a learner sees of mu."""
    sizes = services.resampled([3.0, 1.0, 9.5, 0.25, 6.0])
    compare(make(name), Case(System(0.5, [1, 2], service=sizes), continuous=False))


@pytest.mark.parametrize(
    "name",
    list(REGISTER),
)
def test_arrivals_and_departures_at_the_same_time(name):
    """Whole numbers, exact in floating point: departures go first, those of lower servers before others."""
    times = [float(k // 2) for k in range(1, 801)]
    system = System(None, [1, 2, 0.5], slots=[1, 1, 2], arrivals=times, service=[1.0, 2.0, 1.0, 4.0, 0.5] * 160)
    if name not in ONLY or ONLY[name](3):
        compare(make(name, **options_for(name, 3)), Case(system, 800, continuous=False))


@pytest.mark.parametrize(
    "options", [{}, {"confidence": 3.0, "patience": 1.0}, {"confidence": 0.5, "patience": 2.0, "samples": 0.2}]
)
@pytest.mark.parametrize("case", ["paper", "crowded", "slots", "own"])
def test_upper_bounds_of_the_rates(case, options):
    """Decisions alone forgive small errors."""
    for arrivals in (10, 50, 300):
        player, slow = compare(make("optimistic_sed", **options), CASES[case]._replace(arrivals=arrivals))
        expected = [c * bound for c, bound in zip(CASES[case].system.slot_counts, slow.rule.bounds, strict=True)]
        np.testing.assert_allclose(player.state.weights, expected, rtol=1e-9)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([0.01, 0.3, 1.0, 1.0, 2.0, 2.5, 40.0]), min_size=1, max_size=4), st.floats(0.01, 1.3))
def test_best_fractions(capacity, load):
    """Against all sets of servers, and against a general constrained minimiser."""
    n, rate = len(capacity), load * sum(capacity)
    found = np.zeros(n)
    best_fractions(np.array(capacity), rate, np.zeros(n, np.int64), found)
    np.testing.assert_allclose(found, naive.best_fractions(capacity, rate), rtol=1e-9, atol=1e-12)
    assert abs(found.sum() - 1.0) < 1e-12
    if load < 0.95:

        def cost(p: Any) -> float:
            room = np.array(capacity) - rate * p
            return float((p / room).sum()) if (room > 0).all() else math.inf

        rng = np.random.default_rng(0)
        for other in rng.dirichlet(np.ones(n), 200):
            for step in (1.0, 0.1, 1e-3):
                assert cost(found) <= cost(found + step * (other - found)) + 1e-12


@pytest.mark.parametrize("ratio", ["2", "1", "1/3", "7/5", "101/50", "1/20", "355/113"])
def test_ratio_gaps(ratio):
    gaps = ratio_gaps(naive.fraction(ratio), 30)
    assert gaps.tolist() == [naive.ratio_gap(naive.fraction(ratio), m) for m in range(31)]


@pytest.mark.parametrize("case", ["crowded", "slots", "changing-slots", "own"])
@pytest.mark.parametrize("name", ["lased", "greedy", "optimistic_sed", "least_loaded"])
def test_chunks_do_not_matter(name, case):
    whole, columns = play_fast(make(name), CASES[case], marks_of(CASES[case]))
    pieces, in_pieces = play_fast(make(name), CASES[case], marks_of(CASES[case]), chunk=17)
    np.testing.assert_array_equal(whole.record.rows, pieces.record.rows)
    for key, column in columns.items():
        np.testing.assert_array_equal(column, in_pieces[key], err_msg=key)


@pytest.mark.parametrize("case", ["crowded", "slots", "changing-slots", "own-slots", "thirty"])
@pytest.mark.parametrize("name", REGISTER)
def test_compiled_and_interpreted_are_bitwise_equal(name, case):
    n = CASES[case].system.servers
    if name in ONLY and not ONLY[name](n):
        return
    played = CASES[case]._replace(arrivals=200)
    policy = make(name, **options_for(name, n))
    fast, columns = play_fast(policy, played, marks_of(played))
    plain, interpreted = play_fast(policy, played, marks_of(played), compiled=False)
    np.testing.assert_array_equal(fast.record.rows, plain.record.rows)
    np.testing.assert_array_equal(fast.record.rates, plain.record.rates)
    for key, column in columns.items():
        np.testing.assert_array_equal(column, interpreted[key], err_msg=key)


@pytest.mark.parametrize("case", ["paper", "crowded", "three", "bursty"])
@pytest.mark.parametrize("name", list(REGISTER))
def test_the_program_for_simple_systems_plays_the_same(name: str, case: str) -> None:
    """Where nothing is written down per job another program runs, without slots, changing rates and indices."""
    system = CASES[case].system
    n = system.servers
    if name in ONLY and not ONLY[name](n):
        return
    policy = make(name, **options_for(name, n))
    marks = np.array([1, 10, 500, 3000])
    played = [engine.Player(policy, system, marks, seed=SEED, run=RUN, trace=trace) for trace in (False, True)]
    for times, sizes in engine.flows(system, 3000, SEED, RUN):
        for player in played:
            player.advance(times, sizes)
    simple, general = played
    assert engine._is_simple(system, False, False, False) and not engine._is_simple(system, False, True, False)
    np.testing.assert_array_equal(simple.record.rows, general.record.rows)
    np.testing.assert_array_equal(simple.record.rates, general.record.rates)
