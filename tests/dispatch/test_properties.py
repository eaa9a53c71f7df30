"""What holds for every rule in every system: conservation, Little's law, work conservation, order; and LASED's own laws."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise.dispatch import choice, engine, loop
from queuewise.dispatch import service as services
from queuewise.dispatch.policies import REGISTER, lased, make
from queuewise.dispatch.policy import EXPLORE, Policy
from queuewise.dispatch.simulate import simulate
from queuewise.dispatch.systems import System

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True)
FEW = settings(max_examples=25, deadline=None, derandomize=True)


class Played(NamedTuple):
    """A run with a row after every arrival; columns per job."""

    player: engine.Player
    times: Any
    server: Any
    reason: Any
    cause: Any
    began: Any
    departs: Any

    @property
    def rows(self) -> Any:
        return self.player.record.rows

    @property
    def sojourn(self) -> Any:
        return self.departs - self.times

    def queues(self, job: int) -> list[int]:
        """What a job found at every server; who departs at the same time is gone."""
        there = self.departs[:job] > self.times[job]
        return np.bincount(self.server[:job][there], minlength=self.player.system.servers).tolist()


def play(policy: Policy, system: System, arrivals: int, seed: int, **options: Any) -> Played:
    player = engine.Player(policy, system, np.arange(1, arrivals + 1), seed=seed, trace=True, **options)
    ((times, sizes),) = engine.flows(system, arrivals, seed, 0, arrivals)
    player.advance(times, sizes)
    found = player.record
    jobs = slice(0, arrivals)
    columns = (found.server, found.reason, found.cause, found.began, found.departs)
    return Played(player, times, *(column[jobs] for column in columns))


LAWS = [services.exponential(), services.deterministic(), services.hyperexponential(5.0), services.erlang(3)]


@st.composite
def systems(draw: Any, servers: Any = None, most_slots: int = 3, least_load: float = 0.2) -> System:
    """A stable system."""
    n = draw(st.integers(1, 4) if servers is None else st.just(servers))
    rates = [draw(st.sampled_from([1, 2, 3, 10, "1/3", 0.7])) for _ in range(n)]
    slots = [draw(st.integers(1, most_slots)) for _ in range(n)]
    load = draw(st.floats(least_load, 0.94))
    capacity = System(1e-9, rates, slots=slots).capacity
    return System(load * capacity, rates, slots=slots, service=draw(st.sampled_from(LAWS)))


@st.composite
def rules(draw: Any, n: int) -> Policy:
    """Any rule that can play with n servers."""
    left_out = {1: {"sed_ratio", "optimal", "power_of_d", "sed_of_d"}, 2: set()}.get(n, {"sed_ratio", "optimal"})
    name = draw(st.sampled_from([name for name in REGISTER if name not in left_out]))
    options: dict[str, Any] = {}
    if name == "esed":
        options = {"rates": [1.1 + i for i in range(n)]}
    if name == "optimal":
        options = {"level": 8}
    if name == "lased":
        options = {"scale": draw(st.sampled_from([0.0, 0.02, 1.0]))}
    return make(name, **options)


@st.composite
def games(draw: Any) -> tuple[Policy, System, int, bool]:
    system = draw(systems())
    return draw(rules(system.servers)), system, draw(st.integers(0, 2**32)), draw(st.booleans())


@EXAMPLES
@given(games())
def test_jobs_are_conserved(game):
    policy, system, seed, own = game
    played = play(policy, system, 300, seed, own_sizes=own)
    tally, servers = played.player.tally, played.player.servers
    there = played.departs > played.times[-1]
    assert tally.clock[loop.ARRIVED] == 300
    # Departures are played out up to the last arrival, not beyond.
    assert tally.clock[loop.PRESENT] == int(there.sum()) == int(servers.queue.sum())
    assert tally.served.sum() == 300
    for i in range(system.servers):
        mine = played.server == i
        assert tally.served[i] == mine.sum()
        assert servers.queue[i] == (there & mine).sum()
        gone = mine & ~there
        np.testing.assert_allclose(tally.busy[i], (played.departs - played.began)[gone].sum(), rtol=1e-9, atol=1e-12)
    for j in range(0, 300, 37):
        assert played.rows[j, loop.FOUND] == sum(sum(played.queues(k)) for k in range(j + 1))


@EXAMPLES
@given(games())
def test_littles_law_holds_path_by_path(game):
    """Up to any moment at which the system is empty, the integral of the number is the sum of the sojourn times; and at
    any other what is missing is the time that those present still have to stay."""
    policy, system, seed, own = game
    played = play(policy, system, 300, seed, own_sizes=own)
    for j in range(300):
        left = np.maximum(played.departs[: j + 1] - played.times[j], 0.0).sum()
        np.testing.assert_allclose(
            played.rows[j, loop.AREA] + left, played.rows[j, loop.SOJOURN], rtol=1e-9, err_msg=f"arrival {j}"
        )
    # A busy period ends whenever a job finds nobody; the last one before the first job did not happen.
    empty = [j for j in range(1, 300) if not sum(played.queues(j))]
    for j in empty:
        before = played.rows[j, loop.SOJOURN] - played.sojourn[j]
        np.testing.assert_allclose(played.rows[j, loop.AREA], before, rtol=1e-9)
    assert played.rows[-1, loop.BUSY_PERIODS] == len(empty)


@EXAMPLES
@given(games())
def test_first_come_first_served_and_no_slot_idles_while_a_job_waits(game):
    policy, system, seed, own = game
    played = play(policy, system, 300, seed, own_sizes=own)
    assert (played.began >= played.times).all()
    assert (played.departs > played.began).all()
    for i in range(system.servers):
        mine = np.flatnonzero(played.server == i)
        began, departs, slots = played.began[mine], played.departs[mine], int(system.slot_counts[i])
        assert (np.diff(began) >= 0.0).all()  # in order of arrival
        for k, job in enumerate(mine):
            before = slice(0, k)
            if began[k] > played.times[job]:
                assert began[k] in departs[before]  # at the moment at which a slot becomes free
                moments = [played.times[job], *departs[before][departs[before] < began[k]]]
                for moment in moments:
                    if moment >= played.times[job]:
                        assert ((began[before] <= moment) & (departs[before] > moment)).sum() == slots
            assert ((began[before] <= began[k]) & (departs[before] > began[k])).sum() < slots


@EXAMPLES
@given(games())
def test_only_decisions_outside_the_oracles_set_are_counted(game):
    policy, system, seed, own = game
    played = play(policy, system, 200, seed, own_sizes=own)
    for j in range(200):
        queues = np.array(played.queues(j))
        levels = [
            max(int(c), int(q) + 1) / (rate * int(c))
            for q, c, rate in zip(queues, system.slot_counts, system._exact[0], strict=True)
        ]
        assert (played.cause[j] >= 0) == (levels[played.server[j]] > min(levels))
    assert played.rows[-1, loop.WRONG : loop.WRONG + 3].sum() == (played.cause >= 0).sum()


# --- the index -------------------------------------------------------------------------------------------------------
@st.composite
def changes(draw: Any) -> tuple[Any, Any, Any, list[tuple[int, int, float]]]:
    n = draw(st.integers(choice.INDEX_FROM, 40))
    weight = st.sampled_from([1.0, 2.0, 3.0, 6.0])
    slots = np.array(draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)))
    queue = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    weights = np.array(draw(st.lists(weight, min_size=n, max_size=n))) * slots
    moves = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, 4), weight), max_size=30))
    return queue, slots, weights, moves


@pytest.mark.parametrize("ties", ["lowest", "highest", "fastest"])
@EXAMPLES
@given(changes())
def test_the_index_chooses_what_a_look_at_all_servers_chooses(ties, start):
    queue, slots, weights, moves = start
    rule, stream = choice.TIES[ties], np.zeros(4, np.uint64)
    index = choice.new_index(len(queue), rule)
    choice.build_index(index, queue, slots, weights, rule)
    for server, length, weight in [(0, int(queue[0]), weights[0]), *moves]:
        queue[server], weights[server] = length, weight * slots[server]
        choice.update_index(index, queue, slots, weights, rule, server)
        best = choice.best_server(index, queue, slots, weights, rule, stream)
        assert best == choice.shortest_delay(queue, slots, weights, rule, stream)
        assert choice.is_shortest(queue, slots, weights, best)
        law = choice.law_of(queue[None, :], slots, weights, rule)[0]
        assert law[best] == 1.0


# --- LASED -----------------------------------------------------------------------------------------------------------
class Episode(NamedTuple):
    """One finished episode: forced jobs per server, completions learned at its beginning and at the next one's."""

    number: int
    forced: list[int]
    before: list[float]
    after: list[float]


def episodes(policy: Policy, system: System, arrivals: int, seed: int) -> list[Episode]:
    """Step arrival by arrival and look at the rule's own state."""
    player = engine.Player(policy, system, np.array([arrivals]), seed=seed, trace=True)
    ((times, sizes),) = engine.flows(system, arrivals, seed, 0, arrivals)
    found: list[Episode] = []
    forced, number = [0] * system.servers, 1
    before = player.state.learned.completions.tolist()
    periods = owed = 0
    for j in range(arrivals):
        player.advance(times[j : j + 1], sizes[j : j + 1])
        emptied = int(player.tally.clock[loop.PERIODS]) - periods
        periods += emptied
        # The episode is over when the system empties, unless forced jobs are still to come.
        ended = emptied == 1 and owed == 0 and j > 0
        assert player.state.at[0] == number + ended
        if ended:
            after = player.state.learned.completions.tolist()
            found.append(Episode(number, forced, before, after))
            forced, before, number = [0] * system.servers, after, number + 1
        server = int(player.record.server[0])
        forced[server] += int(player.record.reason[0] == EXPLORE)
        owed = int(player.state.at[1])
    return found


@FEW
@given(
    systems(servers=2, most_slots=1),
    st.integers(0, 1000),
    st.sampled_from([None, [5, 0.1], [0.2, 3]]),
    st.sampled_from(["round_robin", "blocks"]),
)
def test_exploration_brings_the_samples_that_it_is_for(system, seed, initial, order):
    policy = lased(initial_rates=initial, rate_bounds=(0.1, 20), order=order)
    for episode in episodes(policy, system, 1200, seed):
        alpha = math.log(episode.number + 1) ** 4
        missing = [alpha - n for n in episode.before]
        if max(missing) > 0:
            assert episode.forced == [max(1, math.ceil(short)) for short in missing]
            assert min(episode.after) >= alpha
            assert max(episode.forced) <= 7  # the paper's bound, from which at most 14 arrivals (Lemma 16)
        else:
            assert episode.forced == [0, 0]
        # N >= alpha(k) after every episode, explored or not, and so before the next.
        assert min(episode.after) >= alpha


@FEW
@given(
    systems(servers=3, most_slots=2), st.integers(0, 1000), st.sampled_from([0.1, 2.5]), st.sampled_from(["fill", 4])
)
def test_exploration_of_other_sizes(system, seed, scale, quota):
    policy = lased(rate_bounds=(0.1, 20), scale=scale, quota=quota)
    for episode in episodes(policy, system, 800, seed):
        alpha = scale * math.log(episode.number + 1) ** 4
        if min(episode.before) >= alpha:
            assert episode.forced == [0, 0, 0]
        elif quota == 4:
            assert episode.forced == [4, 4, 4]
        else:
            assert episode.forced == [max(1, math.ceil(alpha - n)) for n in episode.before]
            assert min(episode.after) >= alpha


@FEW
@given(st.sampled_from([1, 2, 3]), st.floats(0.2, 0.8), st.integers(0, 1000))
def test_with_bounds_on_the_rates_no_run_is_stuck(ratio, load, seed):
    """SED(r) is stable for every r within the bounds, so that the system empties again and again (LASED, section 4).

    "Stable" says little where r is far from r*: with r = 1/50 and more jobs than the first server can do, its queue grows
    to 50, and a busy period ends with a chance of about (mu_1/lambda)^50. So the bounds are narrow here."""
    system = System(load * (1 + ratio), [1, ratio])
    played = play(lased(rate_bounds=(0.7, 3.5)), system, 6000, seed)
    episode = played.rows[:, loop.EPISODE]
    assert episode[-1] > 20
    assert episode[-1] > episode[3000] + 5


@FEW
@given(
    systems(servers=2, most_slots=1, least_load=0.6),
    st.integers(0, 1000),
    st.sampled_from([0.3, 1.0, 3.0]),
    st.sampled_from([0.0, 0.05]),
    st.sampled_from([None, (1, 1.9), (3, 2)]),
)
def test_every_overflow_happened_beyond_the_safe_queue(system, seed, depth, scale, initial):
    """Lemma 1: while no queue exceeds m(k), an estimate within u_{r*}(m(k)) of r* decides like the oracle."""
    policy = lased(initial_rates=initial, rate_bounds=(0.3, 10), scale=scale)
    _overflows(play(policy, system, 1000, seed, depth=depth), depth)


def _overflows(played: Played, depth: float) -> int:
    overflows = np.flatnonzero(played.cause == loop.OVERFLOW)
    for j in overflows:
        assert max(played.queues(j)) > math.floor(depth * math.log(played.rows[j, loop.EPISODE]))
    return len(overflows)


def test_overflows_do_happen():
    """Else the test above would say nothing."""
    policy = lased(initial_rates=[1, 1.9], rate_bounds=(0.3, 10), scale=0.05)
    for depth in (0.3, 1.0):
        found = sum(_overflows(play(policy, System(2.8, [1, 2]), 4000, s, depth=depth), depth) for s in range(8))
        assert found > 20, depth


# --- together and alone ----------------------------------------------------------------------------------------------
@settings(max_examples=8, deadline=None, derandomize=True)
@given(systems(servers=2), st.integers(0, 1000), st.permutations(["lased", "power_of_d", "thompson_sed", "random"]))
def test_no_number_depends_on_who_else_plays(system, seed, names):
    together = simulate(system, names, arrivals=200, runs=2, seed=seed, workers=1)
    for name in names[:2]:
        alone = simulate(system, name, arrivals=200, runs=2, seed=seed, workers=1)
        own = [key for key in alone._columns if key.startswith((f"{name}.", "oracle."))]
        assert f"{name}.sojourn" in own
        for key in own:
            np.testing.assert_array_equal(alone._columns[key], together._columns[key], err_msg=key)
