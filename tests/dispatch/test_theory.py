"""LASED's lemmas as functions: by hand, in each argument, and held against the chains whose numbers they bound."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.stats import f as f_law

from queuewise.dispatch import System, exact, sed_ratio, simulate, theory
from queuewise.dispatch.policies.lased import lased
from queuewise.dispatch.theory import excursions, learning
from tests.naive.sed_pair import Passage, busy_period

HALF = theory.pair("1/2", [1, 1])  # all constants are round here
#: λ, (μ₁, μ₂), r: loads from 0.05 to 0.9; r true, too low, too high, 1, a fraction.
SETTINGS = [
    ("0.1", (1, 1), "1"),
    ("0.5", (1, 1), "1"),
    ("1.4", (1, 1), "1"),
    ("0.5", (1, 1), "3/2"),
    ("1", (5, 10), "2"),
    ("4.5", (5, 10), "2"),
    ("9", (5, 10), "2"),
    ("13.5", (5, 10), "2"),
    ("4.5", (5, 10), "1/2"),
    ("4.5", (5, 10), "7/3"),
    ("2", (3, 1), "1/3"),
    ("2", (3, 1), "5"),
]
PAIRS = [theory.pair(*setting) for setting in SETTINGS]
SMALL = [pair for pair in PAIRS if pair.core_jobs < 100]


def rates_of(pair: theory.Pair) -> tuple[float, tuple[float, float], Fraction]:
    return float(pair.arrival_rate), (float(pair.service_rates[0]), float(pair.service_rates[1])), pair.ratio


def grid(most: int) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.meshgrid(np.arange(most + 1), np.arange(most + 1), indexing="ij")
    return first, second


def empty(state: tuple[int, int]) -> bool:
    return state == (0, 0)


def name(pair: theory.Pair) -> str:
    return f"{float(pair.arrival_rate):g}-{pair.service_rates[0]}-{pair.service_rates[1]}-{pair.ratio}"


each = pytest.mark.parametrize("pair", PAIRS, ids=name)
each_small = pytest.mark.parametrize("pair", SMALL, ids=name)


# --- ratios: (2), (3), Lemmas 1 and 11 --------------------------------------------------------------------------------

RATIOS = ["1", "2", "1/3", "3/2", "7/3", "0.37", "1.982"]


@pytest.mark.parametrize("ratio", RATIOS)
def test_ratio_gap_is_the_least_of_all_distances_and_no_less_than_its_floor(ratio: str) -> None:
    exact_ratio, before = Fraction(ratio), math.inf
    for m in range(1, 25):
        distances = {abs(Fraction(a, b) - exact_ratio) for a in range(1, m + 2) for b in range(1, m + 2)} - {0}
        gap = theory.ratio_gap(ratio, m)
        assert gap == float(min(distances))
        assert theory.ratio_gap_floor(ratio, m) <= gap * (1 + 1e-15)
        assert gap <= before
        before = gap


def test_ratio_gap_floor_by_hand() -> None:
    assert theory.ratio_gap_floor("7/3", 4) == 1 / 15
    assert theory.ratio_gap_floor(1.5, 9) == 1 / 20
    assert theory.ratio_gap(2, 0) == 1.0  # |1/1 − 2|


@pytest.mark.parametrize(("ratio", "believed"), [("2", "2.6"), ("2", "1"), ("1", "2"), ("3/2", "0.1"), ("7/3", "2")])
def test_disagreement_is_what_the_two_rules_do(ratio: str, believed: str) -> None:
    r, held, m = Fraction(ratio), Fraction(believed), 20
    found = theory.disagreement(ratio, believed, m)
    assert found.shape == (m + 1, m + 1)
    for q1 in range(m + 1):
        for q2 in range(m + 1):
            chosen = 1 if held * (q1 + 1) <= q2 + 1 else 2
            right = {1} if r * (q1 + 1) < q2 + 1 else {2} if r * (q1 + 1) > q2 + 1 else {1, 2}
            assert found[q1, q2] == (chosen not in right)
            slope = Fraction(q2 + 1, q1 + 1)
            if slope != held:  # (2)
                assert found[q1, q2] == ((slope - r) * (slope - held) < 0)


def test_at_a_tie_of_the_believed_ratio_the_product_of_2_is_zero_and_the_decision_may_be_wrong() -> None:
    assert theory.disagreement(2, 1, 0)[0, 0]
    assert not theory.disagreement(1, 2, 0)[0, 0]


@pytest.mark.parametrize("ratio", RATIOS)
def test_within_the_gap_nothing_disagrees(ratio: str) -> None:
    for m in range(1, 15):
        gap = Fraction(theory.ratio_gap(ratio, m))
        for share in (Fraction(999, 1000), Fraction(1, 2), Fraction(-1, 2), Fraction(-999, 1000)):
            believed = Fraction(ratio) + share * gap
            if believed > 0:
                assert not theory.disagreement(Fraction(ratio), believed, m).any()


def test_safe_queue() -> None:
    assert [theory.safe_queue(k, 5.0) for k in (1, 2, 3, 100)] == [0, 3, 5, 23]
    with pytest.raises(ValueError, match="episode must be a whole number of at least 1, not 0"):
        theory.safe_queue(0, 5.0)
    with pytest.raises(ValueError, match="depth must be positive"):
        theory.safe_queue(3, -1.0)


# --- constants: (20)–(23), (30), (31), θ_r, ℓ_r ------------------------------------------------------------------------


def test_constants_by_hand() -> None:
    assert (HALF.slack, HALF.pull, HALF.push, HALF.core) == (1, 0.25, 3, 12)
    assert HALF.span == 24.0
    assert HALF.log_return_chance == pytest.approx(12 * math.log(2 / 3))
    assert HALF.ceiling == HALF.ceiling_closed == 91.0  # (13, 0)
    assert HALF.decay == pytest.approx(math.log(1.05 / 0.95))  # D = 1, d = 0.25/5
    assert HALF.first_state() == (1, 0)
    assert [(a, b) for a, b in HALF.boundary()] == [(q, 13 - q) for q in range(14)]

    paper = theory.pair(13.5, [5, 10])
    assert (paper.ratio, paper.slack, paper.pull, paper.push) == (2, Fraction(3, 2), 0.375, 94)
    assert paper.core == Fraction(752, 3)
    assert paper.log_return_chance == pytest.approx(752 / 3 * math.log(5 / 18.5))
    assert paper.log_return_chance / math.log(10) == pytest.approx(-142.4, abs=0.05)
    assert paper.ceiling == 251 * 252 / 2  # (0, 251), the first state above q₁ = 0
    assert paper.first_state() == (0, 1)

    slow = theory.pair(1, [2, 1], "1/4")
    assert slow.slack == 1 and slow.pull == 0.125
    assert slow.push == 6 and slow.core == 24 and slow.core_jobs == 96 and slow.span == 192.0


@each
def test_boundary_is_one_arrival_away_from_the_core(pair: theory.Pair) -> None:
    boundary = pair.boundary()
    wide, high = max(q for q, _ in boundary) + 2, max(q for _, q in boundary) + 2

    def inside(q1: int, q2: int) -> bool:
        return q1 >= 0 and q2 >= 0 and pair.ratio * q1 + q2 <= pair.core

    if wide * high < 15_000:
        every = [(a, b) for a in range(wide) for b in range(high)]
        assert boundary == [s for s in every if not inside(*s) and (inside(s[0] - 1, s[1]) or inside(s[0], s[1] - 1))]
    assert pair.ceiling == max(float(theory.potential(pair, *state)) for state in boundary)
    assert pair.ceiling <= pair.ceiling_closed * (1 + 1e-12)
    assert max(a + b for a, b in boundary) <= pair.core_jobs + 1
    first, second = np.array(boundary).T
    assert not theory.in_core(pair, first, second).any()


def test_constants_get_worse_with_the_load() -> None:
    rates = [theory.pair(rate, [5, 10]) for rate in ("0.5", "3", "5", "8", "11", "13", "14.5")]
    for light, heavy in itertools.pairwise(rates):
        assert heavy.slack <= light.slack and heavy.pull <= light.pull
        assert heavy.push > light.push and heavy.core > light.core and heavy.span > light.span
        assert heavy.decay < light.decay and heavy.log_return_chance < light.log_return_chance
        assert heavy.ceiling > light.ceiling
        assert theory.least_depth(heavy) > theory.least_depth(light)
        assert theory.log_overflow_bound(heavy, 50) > theory.log_overflow_bound(light, 50)
        for ahead, behind in (
            (theory.log_busy_period(light), theory.log_busy_period(heavy)),
            (theory.log_leaving_time(light), theory.log_leaving_time(heavy)),
            (theory.log_arrivals(light, [1, 20]), theory.log_arrivals(heavy, [1, 20])),
        ):
            assert behind.log_mean > ahead.log_mean and behind.log_second > ahead.log_second


def test_constants_get_worse_away_from_ratio_one() -> None:
    for ratios in (["1", "2", "3.5", "10", "40"], ["1", "1/2", "0.3", "1/10"]):
        pairs = [theory.pair("0.7", [1, 1], ratio) for ratio in ratios]
        for near, far in itertools.pairwise(pairs):
            assert far.core_jobs > near.core_jobs and far.span > near.span
            assert far.log_return_chance < near.log_return_chance
            assert far.ceiling_closed > near.ceiling_closed
            assert far.exponent < near.exponent


def test_servers_in_the_other_order_with_the_ratio_turned_over_are_the_same_up_to_scale() -> None:
    # φ_{1/r} of the exchanged queues is φ_r/r: (20) and (30) do not change, κ scales by what φ does where b does.
    one, other = theory.pair("0.8", [1, 2], "3"), theory.pair("0.8", [2, 1], "1/3")
    assert one.slack == other.slack
    assert one.core_jobs == pytest.approx(other.core_jobs)
    assert one.log_return_chance == pytest.approx(other.log_return_chance)
    assert one.span == pytest.approx(other.span)


# --- drift: (16), (17), Lemmas 2 and 3 --------------------------------------------------------------------------------


def test_potential_and_drift_by_hand() -> None:
    pair = theory.pair(3, [5, 10])
    assert float(theory.potential(pair, 2, 3)) == 2 * 3 + 6
    assert pair.potential((2, 3)) == 12.0
    # at (2, 3): 2·3 > 4, so to server 2: 3·4 − 5·2·2 − 10·3
    assert float(theory.potential_drift(pair, 2, 3)) == 12 - 20 - 30
    assert float(theory.potential_drift(pair, 0, 0)) == 3.0
    # the mean change of q₁ alone: arrivals go to server 1 from (0, 1) on
    assert theory.generator(pair, lambda a, b: a, [0, 0, 1], [0, 1, 0]).tolist() == [0.0, 3.0, -5.0]
    assert theory.entrance_time(HALF, (20, 0)) == (8 * math.sqrt(210), 64 * 210)
    assert theory.entrance_time(HALF, (12, 0)) == (0.0, 0.0)


@each
def test_drift_is_below_its_bound_in_every_state(pair: theory.Pair) -> None:
    first, second = grid(max(400, int(1.5 * float(pair.core))))
    drift = theory.potential_drift(pair, first, second)
    assert np.allclose(
        drift, theory.generator(pair, lambda a, b: theory.potential(pair, a, b), first, second), atol=1e-6
    )
    assert (drift <= theory.drift_bound(pair, first, second)).all()
    outside = ~theory.in_core(pair, first, second)
    assert outside.any() and (drift[outside] < 0).all()
    assert (
        theory.in_core(pair, first, second) == (float(pair.ratio) * first + second <= float(pair.core) + 1e-9)
    ).all()


@each
def test_exponential_of_the_root_falls_outside_the_core(pair: theory.Pair) -> None:
    first, second = grid(max(400, int(1.5 * float(pair.core))))
    outside = ~theory.in_core(pair, first, second)
    q1, q2 = first[outside], second[outside]

    def root(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.sqrt(theory.potential(pair, a, b))

    largest = float(root(q1, q2).max()) + 2.0
    change = theory.generator(pair, lambda a, b: np.exp(pair.decay * (root(a, b) - largest)), q1, q2)
    assert (change < 0).all()
    # what the choice of θ_r rests on: a mean fall of √φ, and steps that are never longer than √(r ∨ 1)
    assert (theory.generator(pair, root, q1, q2) <= -pair.pull / 2 + 1e-9).all()
    steps = [np.abs(root(first + a, second + b) - root(first, second)).max() for a, b in ((1, 0), (0, 1))]
    assert max(steps) <= math.sqrt(pair.wide) * (1 + 1e-12)


@each
def test_decay_is_the_largest_that_bounded_steps_and_drift_allow(pair: theory.Pair) -> None:
    step, fall = math.sqrt(pair.wide), pair.pull / (2 * pair.total_rate)
    up = (step - fall) / (2 * step)  # steps ±D with mean −d: the worst that there is
    worst = up * math.exp(pair.decay * step) + (1 - up) * math.exp(-pair.decay * step)
    assert worst == pytest.approx(1.0, abs=1e-12)


@cache
def until_core(pair: theory.Pair, most: int, closed: bool) -> Passage:
    """Until C_r; beyond `most` too if closed."""

    def over(state: tuple[int, int]) -> bool:
        return pair.in_core(state) or (closed and max(state) > most)

    return Passage(*rates_of(pair), most + 1, over)


@each_small
def test_entrance_times_are_below_their_bounds(pair: theory.Pair) -> None:
    passage = until_core(pair, int(1.3 * pair.core_jobs) + 20, False)
    mean, second = passage.moments()
    for i in range(0, len(passage.inside), 17):
        # far from the edge of the grid, where lost arrivals do not matter
        if max(passage.inside[i]) <= pair.core_jobs + 5:
            bound = theory.entrance_time(pair, passage.inside[i])
            assert 0 < mean[i] <= bound.mean and second[i] <= bound.second


# --- Lemmas 5 to 8 ----------------------------------------------------------------------------------------------------


def test_excursions_by_hand() -> None:
    theta = math.log(1.05 / 0.95)
    assert theory.log_hitting_bound(HALF, (13, 0), 20) == pytest.approx(-theta * (20 / math.sqrt(2) - math.sqrt(91)))
    overflow = 12 * math.log(1.5) - theta * (20 / math.sqrt(2) - math.sqrt(91))
    assert theory.log_overflow_bound(HALF, 20) == pytest.approx(overflow)
    leaving = theory.log_leaving_time(HALF)
    assert leaving.log_mean == pytest.approx(math.log(48) + 12)
    assert leaving.log_second == pytest.approx(math.log(8 * 24**2) + 24)
    mean = 8.0 + 1.5**12 * (48 * math.exp(12) + 8 * math.sqrt(91))
    second = 128.0 + 16 * 1.5**24 * (8 * 24**2 * math.exp(24) + 64 * 91)
    found = theory.log_return_time(HALF, (1, 0))
    assert math.exp(found.log_mean) == pytest.approx(mean, rel=1e-12)
    assert math.exp(found.log_second) == pytest.approx(second, rel=1e-12)
    assert theory.log_busy_period(HALF) == found
    assert theory.log_return_time(HALF, (0, 0)).log_mean < found.log_mean


@each
def test_excursions_move_with_their_arguments(pair: theory.Pair) -> None:
    bounds = [theory.log_overflow_bound(pair, m) for m in (1, 5, 50, 5000)]
    assert bounds == sorted(bounds, reverse=True)
    least = theory.telling_queue(pair)
    assert theory.log_overflow_bound(pair, least) < 0 <= theory.log_overflow_bound(pair, least - 1)
    near, far = theory.log_return_time(pair, (1, 1)), theory.log_return_time(pair, (900, 900))
    assert far.log_mean >= near.log_mean and far.log_second >= near.log_second
    edge = (0, int(pair.core) + 1)
    m = edge[1] + 40
    assert theory.log_hitting_bound(pair, edge, m + 1) < theory.log_hitting_bound(pair, edge, m)
    assert theory.log_hitting_bound(pair, (0, edge[1] + 5), m) > theory.log_hitting_bound(pair, edge, m)


@each_small
def test_hitting_chances_are_below_their_bounds(pair: theory.Pair) -> None:
    m = int(1.2 * pair.core_jobs) + 12
    passage = until_core(pair, m, True)
    chance = passage.chance(lambda state: max(state) > m)
    assert (chance > 0).any()
    for i, state in enumerate(passage.inside):
        assert chance[i] <= math.exp(theory.log_hitting_bound(pair, state, m)) + 1e-12


@each
def test_solved_overflow_is_that_of_the_equations(pair: theory.Pair) -> None:
    found = []
    for m in (1, 2, 3, 8):
        passage = Passage(*rates_of(pair), m, lambda state, m=m: empty(state) or max(state) > m)
        chance = passage.chance(lambda state: not empty(state))[passage.place[pair.first_state()]]
        found.append(theory.log_overflow(pair, m))
        if chance > 1e-9:
            assert found[-1] == pytest.approx(math.log(chance), rel=1e-6)
    assert found == sorted(found, reverse=True)


def test_solved_overflow_by_hand_and_far_out() -> None:
    # m = 1, r = 1: (1,0), (1,1), (0,1). From (1,1) an arrival overflows: h = λ/(λ+2)·1 + 2/(λ+2)·g, g = λ/(λ+1)·h.
    rate = 0.5
    g = rate / (rate + 1) * (rate / (rate + 2)) / (1 - rate / (rate + 1) * 2 / (rate + 2))
    assert theory.log_overflow(HALF, 1) == pytest.approx(math.log(g), rel=1e-12)
    # far out the chance decays as it does on the joined queue, by ρ for each job: two per unit of m
    tail = theory.log_overflow(HALF, 60) - theory.log_overflow(HALF, 59)
    assert tail == pytest.approx(2 * math.log(0.25), rel=1e-6)
    with pytest.raises(ValueError, match="m must be at most 300"):
        theory.log_overflow(HALF, 301)
    with pytest.raises(ValueError, match="fit a float"):
        theory.log_overflow(theory.pair("0.01", [1, 1]), 100)


@each
def test_overflow_is_below_its_bound(pair: theory.Pair) -> None:
    for m in (1, 3, 10, 25, 45):
        assert theory.log_overflow(pair, m) <= theory.log_overflow_bound(pair, m)
    least = theory.telling_queue(pair)
    if least <= 100:  # where the bound says something
        assert theory.log_overflow(pair, least) <= theory.log_overflow_bound(pair, least) < 0


def test_overflow_and_both_serving_are_what_busy_periods_do() -> None:
    pair, runs, m = theory.pair(9, [5, 10]), 10_000, 4
    rng = np.random.default_rng(5)
    lived = [busy_period(*rates_of(pair), rng) for _ in range(runs)]
    for found, log_chance in (
        (sum(longest > m for _, longest, _ in lived), theory.log_overflow(pair, m)),
        (sum(all(worked) for _, _, worked in lived), theory.log_both_serve(pair)),
    ):
        chance = math.exp(log_chance)
        assert abs(found - runs * chance) < 4.5 * math.sqrt(runs * chance * (1 - chance))
    lengths = np.array([length for length, _, _ in lived])
    bound = theory.log_busy_period(pair)
    assert math.log(lengths.mean()) < bound.log_mean and math.log((lengths**2).mean()) < bound.log_second


@each_small
def test_leaving_the_core_is_as_fast_and_as_lucky_as_bounded(pair: theory.Pair) -> None:
    most = int(pair.core_jobs) + 2
    passage = Passage(*rates_of(pair), most, lambda state: empty(state) or not pair.in_core(state))
    mean, second = passage.moments()
    bound = theory.log_leaving_time(pair)
    assert math.log(mean.max()) <= bound.log_mean and math.log(second.max()) <= bound.log_second
    assert math.log(passage.chance(empty).min()) >= pair.log_return_chance


@each
def test_busy_periods_are_shorter_than_bounded(pair: theory.Pair) -> None:
    rate, rates, ratio = rates_of(pair)
    found = exact.busy_period(System(arrival_rate=rate, service_rates=list(rates)), sed_ratio(ratio=ratio), 1e-6)
    bound = theory.log_busy_period(pair)
    assert math.log(found.mean) <= bound.log_mean and math.log(found.second_moment) <= bound.log_second


def test_return_times_from_seven_and_seven_are_shorter_than_bounded() -> None:
    for pair in SMALL:
        passage = Passage(*rates_of(pair), 70, empty)
        mean, second = passage.moments()
        start = passage.place[7, 7]
        bound = theory.log_return_time(pair, (7, 7))
        assert math.log(mean[start]) <= bound.log_mean and math.log(second[start]) <= bound.log_second


# --- learning: Lemmas 9, 10, 12 to 14, Theorem 1 ----------------------------------------------------------------------


def test_learning_by_hand() -> None:
    assert theory.exploration_threshold(1) == pytest.approx(math.log(2) ** 4)
    assert theory.log_deviation_bound(2, 128, 2.0) == pytest.approx(math.log(4) - 1.0)
    assert theory.log_misestimation_bound("3/2", 20, 2.0) == pytest.approx(math.log(4) - math.log(20) ** 2 / 512 / 36)
    # v* = 1/6 for equal servers at load 0.1: level 2 from 1, μ/λ = 5
    light = theory.pair("0.2", [1, 1])
    assert theory.log_both_serve_floor(light) == pytest.approx(-math.log(6))
    explores = 2 * math.exp(-(10**6) / 36 / 64) + 2**10 * math.exp(17) / (10**6 - 1) ** 3
    assert theory.log_exploration_bound(light, 10**6) == pytest.approx(math.log(explores), rel=1e-12)
    # r* = 2 and room 20 − 2 on one side, 2 − 1/20 on the other: u_2(1) = 1 is small enough, and m(k) ≥ 1 from e^{1/5} on
    pair = theory.pair(9, [5, 10])
    assert theory.first_settled_episode(pair, [1, 20], 5.0) == 2
    # room 1/2 about r* = 1 = [2/3, 3/2] needs u_1(m) = 1/(m + 1) < 1/3: m = 3, from k = e^{3/2} = 4.48 on
    assert theory.first_settled_episode(theory.pair(1, [1, 1]), ["0.9", "1.35"], 2.0) == 5


@pytest.mark.parametrize("samples", [1, 5, 50, 2000])
@pytest.mark.parametrize("accuracy", [0.01, 0.3, 1.0, 3.9])
def test_ratios_deviate_less_often_than_bounded(samples: int, accuracy: float) -> None:
    # r̂/r* = (G₁/m)/(G₂/m) with Gamma(m) sums of service times: Fisher's law with (2m, 2m) degrees of freedom
    relative = accuracy / 2.0
    chance = f_law.sf(1 + relative, 2 * samples, 2 * samples) + f_law.cdf(1 - relative, 2 * samples, 2 * samples)
    assert chance <= math.exp(theory.log_deviation_bound(2, samples, accuracy))


def test_ratios_ever_deviating_from_some_number_of_samples_on() -> None:
    rng, least, most, accuracy = np.random.default_rng(3), 400, 4000, 1.5
    off = 0
    for _ in range(400):
        first, second = (np.cumsum(rng.exponential(size=most))[least - 1 :] / np.arange(least, most + 1) for _ in "12")
        # the worst of all pairs of numbers of samples
        worst = max(first.max() / second.min() - 1, 1 - first.min() / second.max())
        off += worst >= accuracy / 2
    assert off / 400 <= math.exp(theory.log_deviation_bound(2, least, accuracy))
    assert theory.log_deviation_bound(2, least, accuracy) < 0.0


@pytest.mark.parametrize("ratio", ["1", "2", "3/2", "1/7"])
@pytest.mark.parametrize("depth", [0.5, 2.0, 5.0])
def test_misestimation_bound_follows_from_the_deviations(ratio: str, depth: float) -> None:
    exact_ratio = Fraction(ratio)
    for episode in (8, 30, 1000, 10**6, 10**12):
        m = theory.safe_queue(episode, depth)
        samples = math.ceil(theory.exploration_threshold(episode))
        gap = 1 / ((m + 1) * exact_ratio.denominator)
        sharper = theory.log_deviation_bound(exact_ratio, samples, gap)
        assert sharper <= theory.log_misestimation_bound(exact_ratio, episode, depth) + 1e-12


def test_learning_moves_with_its_arguments() -> None:
    def falls(values: list[float]) -> bool:
        return all(a > b for a, b in itertools.pairwise(values))

    assert falls([theory.log_deviation_bound(2, m, 0.5) for m in (1, 10, 100)])
    assert falls([theory.log_deviation_bound(2, 50, e) for e in (0.1, 0.5, 3.0)])
    assert falls([-theory.log_deviation_bound(r, 50, 0.1) for r in (1, 2, 5)])
    assert falls([theory.log_misestimation_bound(2, k, 5.0) for k in (2, 100, 10**9)])
    assert falls([-theory.log_misestimation_bound(2, 100, depth) for depth in (1.0, 2.0, 9.0)])
    pair = theory.pair(9, [5, 10])
    least = theory.first_explored_episode(pair)
    assert falls([theory.log_exploration_bound(pair, k) for k in (least, 2 * least, 10**9, 10**200)])
    assert falls([theory.log_episode_overflow_bound(pair, k, 5.0) for k in (2, 100, 10**9)])
    # a lower arrival rate gives server 1 work less often
    slow = theory.pair(1, [5, 10])
    assert theory.log_both_serve(slow) < theory.log_both_serve(pair)
    assert theory.log_both_serve_floor(slow) < theory.log_both_serve_floor(pair)
    assert theory.first_explored_episode(slow) > least
    wider = [theory.log_arrivals(pair, limits) for limits in ([4, 11], [1, 20], ["1/10", 100])]
    assert falls([-found.log_mean for found in wider]) and falls([-found.log_second for found in wider])


@each
def test_both_servers_work_as_often_as_the_equations_say(pair: theory.Pair) -> None:
    """Until the second server gets its first job the queue of the first one is alone; solved as a chain of its own."""
    first = pair.first_state()
    used = 0 if first == (1, 0) else 1
    most = 60

    def over(state: tuple[int, int]) -> bool:
        return empty(state) or state[1 - used] > 0

    passage = Passage(*rates_of(pair), most, over)
    chance = passage.chance(lambda state: not empty(state))[passage.place[first]]
    assert math.exp(theory.log_both_serve(pair)) == pytest.approx(chance, rel=1e-8)


@pytest.mark.parametrize("rates", [(1, 1), (5, 10), (10, 1), (1, 30), (3, 2), (3, 4), (7, 5)])
def test_floor_of_both_serving_holds_within_half_of_the_ratio_and_is_met(rates: tuple[int, int]) -> None:
    for load in ("0.2", "0.5", "0.95"):
        arriving = Fraction(load) * sum(rates)
        true = Fraction(rates[1], rates[0])
        floor = theory.log_both_serve_floor(theory.pair(arriving, rates))
        close = [true / 2 + true * Fraction(i, 1000) for i in range(1, 1000)]
        chances = [theory.log_both_serve(theory.pair(arriving, rates, ratio)) for ratio in close]
        assert min(chances) >= floor - 1e-12
        assert min(chances) == pytest.approx(floor, rel=1e-12, abs=1e-12)


def test_reaching_a_level_far_up_does_not_overflow() -> None:
    assert learning._log_reach(1.0, 1.0, 7) == pytest.approx(-math.log(7))
    assert learning._log_reach(1.0, 1.0 + 1e-8, 7) == pytest.approx(-math.log(7), abs=1e-6)
    assert learning._log_reach(1.0, 2.0, 3) == pytest.approx(-math.log(7))
    assert learning._log_reach(2.0, 1.0, 3) == pytest.approx(-math.log(1.75))
    assert learning._log_reach(1.0, 10.0, 1000) == pytest.approx(math.log(9) - 1000 * math.log(10))
    values = [learning._log_reach(1.0, 3.0, level) for level in range(20, 35)]
    assert np.allclose(np.diff(values), -math.log(3), atol=1e-8)


@pytest.mark.parametrize("pair", [theory.pair(9, [5, 10]), theory.pair(1, [5, 10]), HALF], ids=name)
def test_first_explored_episode_is_where_the_condition_begins_to_hold(pair: theory.Pair) -> None:
    least = theory.first_explored_episode(pair)
    floor = math.exp(theory.log_both_serve_floor(pair))
    for k in (least, 2 * least, 10 * least):
        assert k >= 4 * theory.exploration_threshold(k) / floor + 1
    for k in {2, 3, 8, 20, 60, least // 2, least - 1}:
        assert k < 4 * theory.exploration_threshold(k) / floor + 1
    with pytest.raises(ValueError, match="Lemma 13 assumes that the episode is at least 4α"):
        theory.log_exploration_bound(pair, least - 1)


def test_constants_of_lemma_13_follow_from_the_deviations() -> None:
    """P(|r̂_m − r*| ≥ r*/2) ≤ 4 exp(−ln⁴(m + 1)/512) ≤ c m⁻³ with c = 4e¹⁷, and 2¹⁰e¹⁷ leaves room for 4³·3.5·c."""
    episodes = np.unique(np.round(np.logspace(0, 15, 20_000)))
    assert (4 * np.exp(-(np.log1p(episodes) ** 4) / 512) <= 4 * math.exp(17) * episodes**-3.0).all()
    assert 4**3 * 3.5 * 4 <= 2**10
    assert theory.log_deviation_bound(2, 512, 1.0) == pytest.approx(math.log(4) - 1.0)  # ε = r*/2: 4 exp(−m/512)


def test_lased_no_longer_explores_where_lemma_13_says_so() -> None:
    system = System(arrival_rate=9, service_rates=[5, 10])
    least = theory.first_explored_episode(theory.pair(9, [5, 10]))
    result = simulate(system, [lased(ratio_bounds=(1 / 20, 20))], arrivals=3_000_000, runs=2, seed=2, workers=1)
    episodes = result._columns["lased.episode"]
    for run in range(2):
        at = int(np.searchsorted(episodes[run], least))
        assert at < episodes.shape[1] - 1  # the run gets that far
        forced = result.regret_by_cause("lased")["exploration"]
        assert forced.mean[-1] == forced.mean[at]


def test_arrivals_cover_every_ratio_between_the_ends() -> None:
    pair = theory.pair(9, [5, 10])
    found = theory.log_arrivals(pair, [1, 20])
    for ratio in np.geomspace(1 / 20, 20, 61):
        one = theory.pair(9, [5, 10], float(ratio))
        inner = excursions.log_return_moments(one, one.potential((7, 7)), one.ceiling)
        assert math.log(9) + inner.log_mean <= found.log_mean + 1e-9
        assert math.log(4 * 81) + inner.log_second <= found.log_second + 1e-9


def test_regret_adds_up_what_its_proof_adds_up() -> None:
    pair, limits = theory.pair("0.3", [1, 1]), ["1/2", 2]
    depth = 1.5 * theory.least_depth(pair)
    found = theory.log_regret_bound(pair, limits, depth)
    assert found.first_episode == theory.first_explored_episode(pair)
    arrivals = theory.log_arrivals(pair, limits)
    assert found.early == pytest.approx(math.log(found.first_episode - 1) + arrivals.log_mean)
    parts = [found.early, found.exploration, found.misestimation, found.overflow]
    assert found.total == pytest.approx(float(np.logaddexp.reduce(parts)))
    spread = 1024 * depth**2  # the root of Lemma 10's bound is 2 exp(−ln²k/spread)
    root = math.log(2) - math.log(10**9) ** 2 / spread
    assert theory.log_misestimation_bound(1, 10**9, depth) / 2 == pytest.approx(root, rel=1e-12)
    assert found.misestimation == pytest.approx(arrivals.log_second / 2 + learning._log_misses(spread), rel=1e-12)
    later = [found.first_episode + i for i in range(3000)]
    for part, bound in (
        (found.exploration, lambda k: theory.log_exploration_bound(pair, k)),
        (found.misestimation, lambda k: theory.log_misestimation_bound(1, k, depth)),
        (found.overflow, lambda k: theory.log_episode_overflow_bound(pair, k, depth)),
    ):
        summed = float(np.logaddexp.reduce([bound(k) / 2 for k in later]))
        assert arrivals.log_second / 2 + summed <= part


def test_sums_of_theorem_1_are_bounded_by_their_integrals() -> None:
    for spread in (0.5, 3.0, 20.0):
        k = np.arange(2, 2_000_000, dtype=np.float64)
        assert (2 * np.exp(-(np.log(k) ** 2) / spread)).sum() <= math.exp(learning._log_misses(spread))
    for power, first in ((1.2, 3), (2.0, 10)):
        k = np.arange(first, 2_000_000, dtype=np.float64)
        assert (k**-power).sum() <= math.exp(learning._log_powers(power, first)) <= 3 * (k**-power).sum()
    for log_rate, first in ((-2.0, 2), (-9.0, 50)):
        k = np.arange(first, 1_000_000, dtype=np.float64)
        assert np.exp(-math.exp(log_rate) * k).sum() == pytest.approx(
            math.exp(learning._log_geometric(log_rate, first))
        )


def test_regret_stays_below_its_bound_and_the_bound_is_absurd() -> None:
    system = System(arrival_rate=1, service_rates=[5, 10], initial_rates=["5", "0.1"])
    pair = theory.pair(1, [5, 10])
    result = simulate(system, [lased(ratio_bounds=(1 / 20, 20))], arrivals=100_000, runs=3, seed=1, workers=1)
    found = theory.log_regret_bound(pair, [1, 20], 1.01 * theory.least_depth(pair))
    assert math.log(result.regret("lased").mean[-1]) < found.total
    assert found.total > 1e6  # e to the power of millions


# --- assumptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: theory.pair(15, [5, 10]),
            "SED\\(r\\) assumes that the arrival rate is below .*, not 15 \\(Σμ_i = 15",
        ),
        (lambda: theory.pair("0.3", ["0.1", "0.2"]), "not 0.3"),
        (lambda: theory.pair(1, [1, 1, 1]), "service_rates must be those of two servers, not of 3"),
        (lambda: theory.pair(1, [1, -1]), "service_rates must be positive"),
        (lambda: theory.pair(1, [1, 1], 0), "ratio must be positive"),
        (
            lambda: theory.log_hitting_bound(HALF, (6, 6), 20),
            "Lemma 5 assumes that the start lies outside C_r, not \\(6, 6\\)",
        ),
        (
            lambda: theory.log_hitting_bound(HALF, (30, 0), 20),
            "no queue is longer than m at the start, not \\(30, 0\\)",
        ),
        (lambda: theory.log_hitting_bound(HALF, (13, 0), 0), "m must be a whole number of at least 1"),
        (lambda: theory.log_overflow_bound(HALF, 0), "m must be a whole number of at least 1"),
        (lambda: theory.log_return_time(HALF, (1, 2, 3)), "start must be the lengths of two queues"),
        (lambda: theory.entrance_time(HALF, (-1, 2)), "start must be a whole number of at least 0"),
        (lambda: theory.potential(HALF, 0.5, 1), "first must be whole queue lengths"),
        (lambda: theory.potential(HALF, 0, [3, -1]), "second must be whole queue lengths"),
        (
            lambda: theory.log_deviation_bound(2, 10, 4.0),
            "Lemma 12 assumes that the accuracy ε is above 0 and below 2r\\*, not 4",
        ),
        (
            lambda: theory.log_misestimation_bound(2, 1, 5.0),
            "Lemma 10 assumes that the episode is at least max\\(2.*, not 1",
        ),
        (lambda: theory.log_misestimation_bound(2, 100, 0.2), "not 100 \\(that is 148.4"),
        (lambda: theory.log_misestimation_bound(2, 100, 1e-4), "that is exp\\(10000\\)"),
        (lambda: theory.first_settled_episode(HALF, [1, 2], 5.0), "Lemma 9 assumes that the service rates lie within"),
        (lambda: theory.log_arrivals(HALF, [2, 3]), "Section 5.4 assumes that the service rates lie within"),
        (lambda: theory.log_arrivals(HALF, [3, 2]), "rate_bounds must be two rates, the smaller one first"),
        (lambda: theory.log_regret_bound(HALF, ["1/2", 2], 5.0), "Theorem 1 assumes that c₁ is above 2/θ\\*, not 5"),
        (lambda: theory.ratio_gap(-1, 3), "ratio must be positive"),
        (lambda: theory.pair("1.9999999", [1, 1]).ceiling, "along C_r, which must be at most"),
    ],
)
def test_what_is_not_assumed_is_said_in_one_sentence(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=sentence) as raised:
        call()
    assert "\n" not in str(raised.value)


# --- everything for one system ----------------------------------------------------------------------------------------


def test_bounds_of_the_papers_system_are_those_of_the_functions() -> None:
    system, pair = System(arrival_rate=9, service_rates=[5, 10]), theory.pair(9, [5, 10])
    found = {
        bound.name: bound
        for bound in theory.bounds(system, queue=4000, start=(0, 90), episode=10**6, rate_bounds=(1, 20), accuracy=0.1)
    }
    assert all(bound.holds and bound.value is not None for bound in found.values())
    depth = 1.01 * theory.least_depth(pair)
    for key, value in {
        "gap": theory.ratio_gap(2, 4000),
        "core": float(pair.core),
        "decay": pair.decay,
        "log_hitting_bound": theory.log_hitting_bound(pair, (0, 90), 4000),
        "log_overflow_bound": theory.log_overflow_bound(pair, 4000),
        "log_busy_period_second": theory.log_busy_period(pair).log_second,
        "log_misestimation_bound": theory.log_misestimation_bound(2, 10**6, depth),
        "log_deviation_bound": theory.log_deviation_bound(2, 1000, 0.1),
        "log_exploration_bound": theory.log_exploration_bound(pair, 10**6),
        "log_regret_bound": theory.log_regret_bound(pair, (1, 20), depth).total,
    }.items():
        assert found[key].value == value
        assert found[key].log == key.startswith("log_")
    assert len(found) == 27 and all(bound.reads and bound.source.startswith("LASED") for bound in found.values())


def test_bounds_say_which_assumption_fails_and_give_no_number() -> None:
    found = {bound.name: bound for bound in theory.bounds(System(arrival_rate=9, service_rates=[5, 10]), depth=5.0)}

    def unmet(bound) -> list[str]:  # type: ignore[no-untyped-def]
        assert bound.value is None
        return [assumption.name for assumption in bound.assumptions if not assumption.holds]

    assert unmet(found["log_hitting_bound"]) == ["the start lies outside C_r"]
    assert unmet(found["log_exploration_bound"]) == ["the episode is at least 4α(k)/v* + 1"]
    assert unmet(found["log_regret_bound"]) == ["the service rates lie within the known bounds", "c₁ is above 2/θ*"]
    assert found["settled_episode"].holds is None
    assert found["log_overflow_bound"].value is not None

    bad = System(
        arrival_rate=9,
        service_rates=[5, 10, 3],
        slots=[1, 2, 1],
        service=lambda rng, n: np.ones(n),
        allow_unstable=True,
    )
    for bound in theory.bounds(bad):
        assert unmet(bound) == [
            "there are two servers",
            "every server has one slot",
            "service is exponential of mean size 1",
        ]
    unstable = System(arrival_rate=16, service_rates=[5, 10], allow_unstable=True)
    assert {tuple(unmet(bound)) for bound in theory.bounds(unstable)} == {
        ("the arrival rate is below what the servers do together",)
    }


def test_bounds_check_their_arguments() -> None:
    system = System(arrival_rate=9, service_rates=[5, 10])
    for options, sentence in (
        ({"queue": 0}, "queue must be"),
        ({"episode": 0}, "episode must be"),
        ({"start": (1,)}, "start must be"),
        ({"depth": -1.0}, "depth must be"),
        ({"rate_bounds": (2, 1)}, "rate_bounds must be"),
        ({"ratio": 0}, "ratio must be"),
    ):
        with pytest.raises(ValueError, match=sentence):
            theory.bounds(system, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"system must be a dispatch\.System"):
        theory.bounds("system")  # type: ignore[arg-type]
    wide = theory.bounds(system, accuracy=4.0)
    (deviation,) = (bound for bound in wide if bound.name == "log_deviation_bound")
    assert deviation.value is None and deviation.holds is False
