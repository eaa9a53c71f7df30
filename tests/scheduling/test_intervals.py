"""WISE's intervals: widths without cancellation, midpoints in probability, epochs, freezing, and newcomers."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp

from queuewise import _compile
from queuewise.scheduling import intervals, logistic
from tests.naive import confidence as naive

key, middle = _compile.jit(intervals.width_key), _compile.jit(intervals.midpoint)
LOGIT = st.floats(-60, 60, allow_subnormal=False)
#: Steps from one end to the other: whole-line, ordinary, tiny, and a few ulp.
STEP = st.one_of(st.floats(0, 110), st.floats(0, 3), st.floats(0, 1e-9), st.sampled_from([0.0, 1e-12, 1e-15]))


def _mu(z: float) -> mpmath.mpf:
    return 1 / (1 + mp.exp(-mp.mpf(z)))


def _width(low: float, high: float) -> mpmath.mpf:
    return _mu(high) - _mu(low)


def _ordered_as_exact_widths(first: tuple[float, float], second: tuple[float, float]) -> None:
    """The keys order two intervals as their exact widths do, unless these agree to a few ulp of width and complement."""
    with mp.workdps(360):  # logits of 1e-308 are added to one half
        exact = [_width(*first), _width(*second)]
        scale = min(max(exact), 1 - min(exact))
        if abs(exact[0] - exact[1]) > max(2e-15 * scale, 1e-300):  # beyond, doubles lose their digits
            assert (key(*first) > key(*second)) == (exact[0] > exact[1]), (first, second)


def _one_half(low: float, offset: float) -> tuple[float, float]:
    """An interval from `low` whose width is 1/2 + offset, where the key changes its formula."""
    with mp.workdps(60):
        p = _mu(low) + mp.mpf(0.5) + mp.mpf(offset)
        return low, float(mp.log(p / (1 - p)))


@settings(max_examples=1500, deadline=None)
@given(LOGIT, STEP, LOGIT, STEP)
def test_width_keys_order_any_two_intervals(a: float, step_a: float, b: float, step_b: float) -> None:
    _ordered_as_exact_widths((a, a + step_a), (b, b + step_b))


def _adversaries() -> dict[str, list[tuple[float, float]]]:
    rng = np.random.default_rng(0)
    cases: dict[str, list[tuple[float, float]]] = {
        "nearly the whole line": [(-50 + x, 50 - y) for x, y in 3 * rng.random((60, 2))],
        "the whole line but for ulps": [(-50 + x, 50 - y) for x, y in 1e-12 * rng.random((60, 2))],
        "mirror images": [(-50.0, 49.5), (-49.5, 50.0), (-50.0, 49.0), (-49.0, 50.0)],
        "beyond the paper's ends": [(-700.0 + x, 700.0 - y) for x, y in 5 * rng.random((30, 2))],
        "tiny at the top": [(50 - 1e-12 * x - 1e-12, 50 - 1e-12 * x) for x in range(30)],
        "tiny at the bottom": [(-50 + 1e-12 * x, -50 + 1e-12 * (x + 1)) for x in range(30)],
        "tiny at both ends": [(s * 50 - 1e-12 * x, s * 50 + 1e-12 * x) for s in (-1, 1) for x in range(1, 20)],
        "tiny anywhere": [(a, a + 1e-9 * x) for a, x in zip(30 * rng.normal(size=60), rng.random(60), strict=True)],
        "one end at the rim": [(-50.0, z) for z in np.linspace(-50, 50, 41)],
        "near one half": [
            _one_half(low, sign * 10.0**-power)
            for low in (-3.0, -1.0986122886681098, -0.2)
            for sign in (-1, 1)
            for power in range(3, 15)
        ],
        "points": [(0.0, 0.0), (50.0, 50.0), (-50.0, -50.0), (1.0, 1.0 + 1e-15)],
    }
    return {name: [(float(a), float(b)) for a, b in pairs if a <= b] for name, pairs in cases.items()}


@pytest.mark.parametrize("name", _adversaries())
def test_width_keys_order_adversarial_intervals(name: str) -> None:
    pairs = _adversaries()[name]
    assert len(pairs) > 3
    for i, first in enumerate(pairs):
        for second in pairs[:i]:
            _ordered_as_exact_widths(first, second)


def test_kinds_of_intervals_are_ordered_among_each_other() -> None:
    pairs = [pair for some in _adversaries().values() for pair in some[::6]]
    for i, first in enumerate(pairs):
        for second in pairs[:i]:
            _ordered_as_exact_widths(first, second)


def test_width_keys_say_the_width_or_its_complement() -> None:
    with mp.workdps(60):
        for low, high in [(-1.0, 0.5), (40.0, 41.0), (-50.0, -49.9), (3.0, 3.0 + 1e-12), (-3.0, 3.0), (-50.0, 50.0)]:
            width = _width(low, high)
            expected = width if width <= 0.5 else 1 / (1 - width)
            assert abs(key(low, high) / expected - 1) <= 2e-15
            assert intervals.width_key(low, high) == pytest.approx(key(low, high), rel=1e-15)


def test_the_midpoint_of_the_papers_example() -> None:
    assert middle(-5.0, 1.0) == pytest.approx(-0.54, abs=5e-3)
    assert intervals.midpoint(-5.0, 1.0) == pytest.approx(middle(-5.0, 1.0), rel=1e-15)


@settings(max_examples=500, deadline=None)
@given(LOGIT, STEP)
def test_the_midpoint_is_one_of_probabilities(low: float, step: float) -> None:
    high = low + step
    with mp.workdps(80):
        p = (_mu(low) + _mu(high)) / 2
        exact = mp.log(p / (1 - p))
        found = middle(low, high)
        # Relative where the logit is large, absolute (a few ulp of the odds) where it is near zero.
        assert abs(found - exact) <= 2e-15 + 4e-16 * abs(exact)
    assert low - 1e-14 * (1 + abs(low)) <= found <= high + 1e-14 * (1 + abs(high))


@pytest.mark.parametrize("shift", [0.0, 1e-12, 0.2, 0.5, math.log2(3) - 1, math.log2(5) - 2, 0.99, 1 - 2.0**-53])
def test_epochs_are_those_of_the_paper(shift: float) -> None:
    for t in [*range(1, 300), *(2**n + j for n in range(9, 18) for j in (-1, 0, 1))]:
        m, tau = naive.epoch(t, shift)
        found = intervals.epoch_of(t, shift)
        assert found == m, t
        assert intervals.epoch_start(found, shift) == tau, t


class _Epoch:
    """One epoch of a running estimate, with the slow reading of its log beside it."""

    def __init__(self, seed: int, d: int = 3, initial_design: float = 1.0, room: int = 200) -> None:
        self.rng = np.random.default_rng(seed)
        self.settings = logistic.Settings(1.0, 3.0, initial_design, 1e-8)
        self.estimate, self.log = logistic.start(self.settings, d, room), intervals.start(d, 2 * room)
        self.formed: list[tuple[np.ndarray, np.ndarray, float]] = []  # θ̂_i, V_i⁻¹, β_i
        self.flying: list[np.ndarray] = []

    def begin(self, beta: float, m: int = 1) -> None:
        intervals.begin_epoch(self.log, self.estimate, m, beta)
        self.formed = []
        self._form(beta)

    def _form(self, beta: float) -> None:
        self.formed.append((self.estimate.theta.copy(), np.linalg.inv(self.estimate.design), beta))

    def assign(self) -> None:
        phi = self.rng.normal(size=self.estimate.theta.shape[0])
        self.flying.append(phi)
        logistic.move_design(self.estimate, phi, 1.0)
        intervals.log_move(self.log, self.estimate)

    def answer(self, beta: float) -> None:
        phi = self.flying.pop(int(self.rng.integers(len(self.flying))))
        logistic.learn(self.settings, self.estimate, phi, bool(self.rng.random() < 0.7))
        intervals.log_outcome(self.log, self.estimate, beta)
        self._form(beta)

    def expire(self) -> None:
        logistic.move_design(self.estimate, self.flying.pop(), -1.0)
        intervals.log_move(self.log, self.estimate)

    def close(self, beta: float) -> None:
        if not self.log.formed[self.log.counts[1] - 1]:
            self._form(beta)
        intervals.close(self.log, beta)

    def slow(self, features: np.ndarray, bound: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lines 7 to 13 of Algorithm 1, pair by pair, from θ̂_i, V_i⁻¹ and β_i themselves."""
        servers = features.shape[1]
        low, high, frozen = np.full(servers, -bound), np.full(servers, bound), np.zeros(servers)
        for theta, inverse, beta in self.formed:
            for k in range(servers):
                if frozen[k]:
                    continue
                reach = beta * math.sqrt(features[:, k] @ inverse @ features[:, k])
                below = max(low[k], features[:, k] @ theta - reach)
                above = min(high[k], features[:, k] @ theta + reach)
                if below > above:
                    with mp.workdps(40):
                        p = (_mu(low[k]) + _mu(high[k])) / 2
                        low[k] = high[k] = float(mp.log(p / (1 - p)))
                    frozen[k] = 1.0
                else:
                    low[k], high[k] = below, above
        return low, high, frozen


def _columns(servers: int) -> np.ndarray:
    return np.full((4, servers), np.nan)


def _squares(epoch: _Epoch, features: np.ndarray) -> np.ndarray:
    return np.einsum("ik,ij,jk->k", features, np.linalg.inv(epoch.estimate.design), features)


@pytest.mark.parametrize("beta", [0.1, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_held_intervals_are_the_slow_intersections(beta: float, seed: int) -> None:
    epoch = _Epoch(seed)
    features = np.ascontiguousarray(epoch.rng.normal(size=(3, 4)))
    held, met = _columns(4), 0
    froze = 0.0
    epoch.begin(beta)
    for i in range(60):
        before = held.copy()
        epoch.assign()
        epoch.answer(beta)
        intervals.meet(epoch.log, 3.0, met, *held, np.empty(held.shape[1]), features)
        met = epoch.log.counts[1]
        assert met == i + 2  # one interval a round, and the epoch's first
        low, high, frozen = epoch.slow(features, 3.0)
        np.testing.assert_allclose(held[0], low, atol=1e-11)
        np.testing.assert_allclose(held[1], high, atol=1e-11)
        np.testing.assert_array_equal(held[2], frozen)
        np.testing.assert_allclose(held[3], _squares(epoch, features), rtol=1e-11)
        if i:  # nested within the epoch; what froze stays where it froze
            assert np.all(held[0] >= before[0] - 1e-15)
            assert np.all(held[1] <= before[1] + 1e-15)
            np.testing.assert_array_equal(held[:2, before[2] == 1], before[:2, before[2] == 1])
        assert np.all(held[0] <= held[1])
        froze = max(froze, held[2].sum())
    assert (froze > 0) == (beta <= 1.0)


@pytest.mark.parametrize("beta", [0.1, 0.3, 1.0, 4.0])
def test_a_newcomer_meets_the_epoch_as_if_it_had_been_there(beta: float) -> None:
    epoch, features = _Epoch(1), np.ascontiguousarray(np.random.default_rng(2).normal(size=(3, 4)))
    meet = _compile.jit(intervals.meet)
    always, met = _columns(4), 0
    epoch.begin(beta)
    for i in range(60):
        epoch.assign()
        epoch.answer(beta)
        meet(epoch.log, 3.0, met, *always, np.empty(always.shape[1]), features)
        met = epoch.log.counts[1]
        if i % 7 == 0:
            newcomer, interpreted = _columns(4), _columns(4)
            meet(epoch.log, 3.0, 0, *newcomer, np.empty(newcomer.shape[1]), features)
            np.testing.assert_array_equal(newcomer, always)
            intervals.meet(epoch.log, 3.0, 0, *interpreted, np.empty(interpreted.shape[1]), features)
            np.testing.assert_allclose(interpreted, always, atol=1e-13)


def test_a_new_epoch_thaws_and_forgets() -> None:
    epoch, features = _Epoch(3), np.ascontiguousarray(np.random.default_rng(4).normal(size=(3, 4)))
    held = _columns(4)
    epoch.begin(0.1)
    for _ in range(40):
        epoch.assign()
        epoch.answer(0.1)
    intervals.meet(epoch.log, 3.0, 0, *held, np.empty(held.shape[1]), features)
    assert held[2].sum() > 0
    epoch.begin(2.0, m=2)
    assert epoch.log.counts[:2].tolist() == [2, 1]
    intervals.meet(epoch.log, 3.0, 0, *held, np.empty(held.shape[1]), features)
    assert not held[2].any()
    centre = features.T @ epoch.estimate.theta
    reach = 2.0 * np.sqrt(_squares(epoch, features))
    np.testing.assert_allclose(held[0], np.maximum(centre - reach, -3.0), rtol=1e-11)
    np.testing.assert_allclose(held[1], np.minimum(centre + reach, 3.0), rtol=1e-11)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    beta=st.sampled_from([0.1, 0.5, 3.0]),
    events=st.lists(st.sampled_from("aaoox."), min_size=1, max_size=40),
)
def test_any_order_of_feedback_keeps_intervals_nested_and_those_of_the_log(seed, beta, events) -> None:
    """a: an attempt is assigned, o: some outcome arrives, x: an attempt expires, full stop: a decision is due."""
    epoch = _Epoch(seed, d=2)
    features = np.ascontiguousarray(epoch.rng.normal(size=(2, 3)))
    held, met = _columns(3), 0
    epoch.begin(beta)
    for event in [*events, "."]:
        if event == "a":
            epoch.assign()
        elif event == "o" and epoch.flying:
            epoch.answer(beta)
        elif event == "x" and epoch.flying:
            epoch.expire()
        elif event == ".":
            epoch.close(beta)
            before = held.copy()
            intervals.meet(epoch.log, 3.0, met, *held, np.empty(held.shape[1]), features)
            if met:
                assert np.all(held[0] >= before[0] - 1e-15)
                assert np.all(held[1] <= before[1] + 1e-15)
            met = epoch.log.counts[1]
            assert np.all(held[0] <= held[1])
            newcomer = _columns(3)
            intervals.meet(epoch.log, 3.0, 0, *newcomer, np.empty(newcomer.shape[1]), features)
            np.testing.assert_array_equal(newcomer, held)
            np.testing.assert_allclose(held[3], _squares(epoch, features), rtol=1e-9)
    low, high, frozen = epoch.slow(features, 3.0)
    if np.array_equal(frozen, held[2]):  # rounding may decide whether an intersection is empty
        np.testing.assert_allclose(held[0], low, atol=1e-9)
        np.testing.assert_allclose(held[1], high, atol=1e-9)


def test_a_decision_between_assignment_and_outcome_forms_an_interval_of_what_is_known() -> None:
    epoch, features = _Epoch(5), np.ascontiguousarray(np.random.default_rng(6).normal(size=(3, 2)))
    epoch.begin(1.0)
    epoch.assign()
    held = _columns(2)
    intervals.meet(epoch.log, 3.0, 0, *held, np.empty(held.shape[1]), features)
    without = held[:2].copy()
    epoch.close(1.0)
    epoch.close(1.0)  # closing twice changes nothing
    assert epoch.log.counts[1] == 2
    intervals.meet(epoch.log, 3.0, 0, *held, np.empty(held.shape[1]), features)
    assert np.all(held[1] - held[0] < without[1] - without[0])  # V has moved: concurrent attempts do not look alike
