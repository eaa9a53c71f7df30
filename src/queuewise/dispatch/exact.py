"""Exact numbers for routing rules that look at the queues alone: Poisson arrivals, exponential service, constant rates.

The stationary law, the share of decisions that two rules disagree on, the busy period, the best routing of two servers, and
M/M/1 and M/M/c in closed form: what the simulator is held against, and what the slope of a fixed rule's regret is read from.

How far the truncation is off
-----------------------------
The chain is solved on the states with |q| ≤ L, arrivals at level L lost. Let π̃ be its law, continued by 0; Q the generator of
the system itself, π its law; H_f(q) = E_q[∫ f dt until the system is empty], in the system itself; h = H_1. Then π̃Q is
−λ π̃(q) at each q of level L and λ π̃(q) p_i(q) at q + e_i. Solving νQ = r away from the empty state (with its Green's
function, killed there) gives for every f with f(0) = 0

    π(f) = (π̃(f) + δ_f)/(1 + δ_1),   δ_f = λ Σ_{|q|=L} π̃(q) (Σ_i p_i(q) H_f(q + e_i) − H_f(q)) + Σ_q r(q) H_f(q),

where r = π̃Q̃ is what rounding leaves of the solved chain's balance equations. Nothing in this is approximate. If V ≥ 0
satisfies V(0) = 0 and QV(q) ≤ −|q| for all q ≠ 0, then |H_f| ≤ V for f = |q| and for every |f| ≤ 1 with f(0) = 0 (Dynkin),
so that all |δ| are at most

    E = λ Σ_{|q|=L} π̃(q) max(V(q), Σ_i p_i(q) V(q + e_i)) + Σ_q |r(q)| V(q),

the mean number is off by at most E (1 + π̃(|q|))/(1 − E), and the probability of any event by at most 2E/(1 − E).

V = s(Aφ + U). φ(q) = Σ_i Σ_{k ≤ q_i} x_i(k)/w_i with the weights w and levels x_i(k) = max(c_i, k) by which the rule compares
(LASED (17) is the case of two servers with one slot). With the true weights w* = cμ, and d_i(q) x_i(q_i) = w*_i q_i,

    Qφ(q) = λt − Σ_i w*_i q_i/w_i,   t = min_i x_i(q_i + 1)/w_i.

Since x_i(k) < k + c_i, every q_i is at least w_i t − c_i; with N = |q|, c = Σc_i, W = Σw_i and K = Σ c_i w*_i/w_i therefore

    Qφ(q) ≤ K − (Σw*_i − λ)t − min_i(w*_i/w_i) (N + c − tW) ≤ K − σ(N + c),   σ = min(min_i w*_i/w_i, (Σw*_i − λ)/W),

the middle being linear in t, and largest at t = 0 or at t = (N + c)/W. So Aφ does it where N is large. U is, in
the solved chain, the expected time spent until empty where Aφ does not, weighted by what is missing there, and beyond level L
the largest value that it has on it, from where it can only fall. s ≥ 1 makes up for U being solved to three digits. The
inequality is looked up in every state of level ≤ L, and follows from the line above beyond. (A rule that counts ĉ_i < c_i
slots has K larger by up to μ_i c_i²/(4w_i) for each such server.)

Proven, up to rounding in looking it up: for `sed`, `sed_ratio`, `esed` and `jsq`. For other rules the inequality is looked up
in every state of level ≤ L and *taken to hold* beyond, and where it fails (`jiq` close to its own limit), twice the H of the
solved chain is *taken* for V. `Stationary.proven` says which. Queue-blind rules are solved in closed form.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from ..fields import require_count, require_number, require_positive
from . import chains, engine
from .chains import Chain
from .policies import make
from .policies._delay import law as fixed_law
from .policies.power_of_d import law as power_law
from .policies.random import law as random_law
from .policies.sed import law as sed_law
from .policies.sed_of_d import law as sampled_law
from .policies.weighted_random import law as weighted_law
from .policy import Policy
from .systems import System

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: States that a chain may have: about 100 bytes each, and some seconds for as many as this.
MOST_STATES = 3_000_000
#: How many times the tolerance ρ^L may be, at the most states, for a solution to be tried.
HOPELESS = 1e3
#: Decay of the law from level to level above which a rule is held to be unstable.
FLAT = 0.9995

#: Levels that the top of a chain is looked at over, for the decay of its law.
_TAIL = 0.25


class Queue(NamedTuple):
    """One queue in closed form.

    mean_number : in system · mean_sojourn_time · utilisation : ρ, fraction of the servers busy · wait_probability : that an
    arrival waits · mean_wait : before service · mean_waiting : jobs that wait · empty_probability
    """

    mean_number: float
    mean_sojourn_time: float
    utilisation: float
    wait_probability: float
    mean_wait: float
    mean_waiting: float
    empty_probability: float


def mm1(arrival_rate: float, service_rate: float) -> Queue:
    """M/M/1: one server, Poisson arrivals, exponential service.

    Parameters
    ----------
    arrival_rate : λ, jobs per time · service_rate : μ, jobs per time.

    Raises
    ------
    ValueError : rates that are not positive, λ ≥ μ.
    """
    return mmc(arrival_rate, service_rate, 1)


def mmc(arrival_rate: float, service_rate: float, servers: int) -> Queue:
    """M/M/c: c servers on one queue.

    Parameters
    ----------
    arrival_rate : λ, jobs per time · service_rate : μ of each server, jobs per time · servers : c.

    Raises
    ------
    ValueError : values out of range, λ ≥ cμ.
    """
    require_positive("arrival_rate", arrival_rate)
    require_positive("service_rate", service_rate)
    require_count("servers", servers)
    offered = arrival_rate / service_rate
    load = offered / servers
    if load >= 1.0:
        raise ValueError(
            f"arrival_rate must be below what the servers do together, {servers * service_rate:g}, not {arrival_rate:g}"
        )
    blocked = 1.0  # Erlang's B(k) = aB(k − 1)/(k + aB(k − 1)) (Erlang 1917)
    for k in range(1, servers + 1):
        blocked = offered * blocked / (k + offered * blocked)
    waits = blocked / (1.0 - load * (1.0 - blocked))  # Erlang's C
    waiting = waits * load / (1.0 - load)
    counts = np.arange(servers + 1)
    terms = counts * math.log(offered) - gammaln(counts + 1.0)  # log of π(k)/π(0) for k ≤ c
    terms[-1] -= math.log1p(-load)
    empty = math.exp(-float(logsumexp(terms)))
    return Queue(
        waiting + offered,
        waiting / arrival_rate + 1.0 / service_rate,
        load,
        waits,
        waiting / arrival_rate,
        waiting,
        empty,
    )


def _mmc_law(arrival_rate: float, service_rate: float, servers: int, most: int) -> Floats:
    """P(N = k) for k = 0..most: π(k) = π(k − 1) λ/(min(k, c)μ)."""
    if arrival_rate == 0.0:
        return np.asarray(np.eye(1, most + 1)[0])
    k = np.arange(1, most + 1)
    steps = np.log(arrival_rate) - np.log(np.minimum(k, servers) * service_rate)
    empty = math.log(mmc(arrival_rate, service_rate, servers).empty_probability)
    return np.asarray(np.exp(empty + np.concatenate([[0.0], np.cumsum(steps)])))


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stationary:
    """The stationary law of a system under a routing rule.

    Attributes
    ----------
    mean_number : E[N], jobs in the system · mean_sojourn_time : E[N]/λ (Little).
    utilisation : float64[n], fraction of each server's slots that are busy.
    shares : float64[n], fraction of the arrivals that each server gets (arrivals see time averages).
    truncation_error : bound on how far `mean_number` and any probability are off, rounding in solving included; see the head
        of :mod:`queuewise.dispatch.exact`. Infinite where no bound was found. · proven : whether the bound is proven for this
        rule, or its one inequality was looked up in the states solved and taken to hold beyond.
    level : L, the most jobs in the states that were solved.
    number : float64[L + 1], P(N = k) · queue : int64[S, n], the states, by level · law : float64[S], their probabilities.
    """

    mean_number: float
    mean_sojourn_time: float
    utilisation: Floats
    shares: Floats
    truncation_error: float
    proven: bool
    level: int
    number: Floats
    _marginals: tuple[Floats, ...] | None = field(default=None, repr=False)
    _law: Floats | None = field(default=None, repr=False)

    @property
    def queue(self) -> Ints:
        """int64[S, n]."""
        states: Ints = _lattice(len(self.shares), self.level).queue.copy()  # the lattice is kept for the next solution
        return states

    @property
    def law(self) -> Floats:
        """float64[S]."""
        if self._marginals is None:
            assert self._law is not None
            return self._law
        queue = self.queue
        return np.asarray(np.prod([law[queue[:, i]] for i, law in enumerate(self._marginals)], axis=0))

    def probability(self, queue: Sequence[int]) -> float:
        """π(q); 0 for states with more than L jobs, whose probabilities together are below the truncation error.

        Raises ValueError unless `queue` is one whole number of at least 0 per server."""
        if len(queue) != len(self.shares):
            raise ValueError(f"queue must have one number per server, {len(self.shares)}, not {len(queue)}")
        for count in queue:
            require_count("queue", count, 0)
        if self._marginals is not None:
            inside = all(int(q) < len(law) for q, law in zip(queue, self._marginals, strict=True))
            if not inside:
                return 0.0
            return float(np.prod([law[int(q)] for q, law in zip(queue, self._marginals, strict=True)]))
        if sum(queue) > self.level:
            return 0.0
        return float(self.law[(self.queue == np.asarray(queue)).all(axis=1)][0])


class BusyPeriod(NamedTuple):
    """From an arrival at the empty system until the system is empty again.

    mean : time · second_moment : time² · truncation_error : bound on how far `mean` is off, proven where that of
    :func:`stationary` is · second_moment_error : how far `second_moment` is from that of the chain with three quarters of the
    levels, an estimate that errs on the large side · arrivals_mean : jobs served in it
    """

    mean: float
    second_moment: float
    truncation_error: float
    second_moment_error: float
    arrivals_mean: float


class Optimal(NamedTuple):
    """The routing of two servers with the least mean delay.

    mean_number, mean_sojourn_time : under it · table : int8[L + 1, L + 1], table[q₁, q₂] is the server of an arrival that finds
    q, −1 where q₁ + q₂ > L · sed_mean_number : under SED · gap : by how much SED's mean number is above the least,
    as a fraction of it · level : L
    """

    mean_number: float
    mean_sojourn_time: float
    table: NDArray[np.int8]
    sed_mean_number: float
    gap: float
    level: int


# --- what can be solved -----------------------------------------------------------------------------------------------


def _check_system(system: System) -> None:
    if not isinstance(system, System):
        raise ValueError(f"system must be a System, not {system!r}")
    process = system.arrivals.settings().get("process")
    if process != "poisson":
        raise ValueError(f"arrivals must be Poisson for an exact solution, not {process}; simulate the others")
    if system.service.name != "exponential":
        raise ValueError(
            f"service must be exponential for an exact solution, not {system.service.name}; simulate the others"
        )
    if len(system.rates) > 1:
        raise ValueError("service_rates must be constant for an exact solution, not a schedule")
    if system.load >= 1.0:
        raise ValueError(
            f"arrival_rate must leave the load below 1 for a stationary law to exist, not {system.load:.4g}"
        )


def _check_policy(policy: str | Policy) -> Policy:
    found = make(policy)
    if found.law is None:
        raise ValueError(
            f"policy must depend on the queue lengths alone (have a law) for an exact solution; {found.name} does not: "
            "simulate it"
        )
    return found


def _check_tolerance(tolerance: float) -> None:
    require_number("tolerance", tolerance)
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"tolerance must be above 0 and below 1, not {tolerance!r}")


def _lattice(servers: int, level: int) -> chains.Lattice:
    states = chains.count_states(servers, level)
    if states > MOST_STATES:
        raise ValueError(
            f"level must leave at most {MOST_STATES} states, and {servers} servers with up to {level} jobs have {states}"
        )
    return chains.lattice(servers, level)


class _Rule(NamedTuple):
    """A rule's law, and the Lyapunov function that goes with it: weights w and slots ĉ by which it compares, and whether the
    drift beyond the truncation is proven for it."""

    law: Callable[[Ints], Floats]
    weights: Floats
    slots: Ints
    proven: bool


def _rule(system: System, policy: Policy) -> _Rule:
    params, _, _ = engine.prepare(policy, engine.shape_of(system, policy.clairvoyant))
    weights, slots = system.weights[0], system.slot_counts

    def law(queue: Ints) -> Floats:
        found = np.asarray(policy.law(params, weights, queue, slots), dtype=np.float64)  # type: ignore[misc]
        if (
            found.shape != queue.shape
            or not (found >= 0.0).all()
            or not np.allclose(found.sum(axis=1), 1.0, atol=1e-12)
        ):
            raise ValueError(f"policy: the law of {policy.name} must be probabilities of every server in every state")
        return found

    if policy.law is fixed_law:
        return _Rule(law, params.weights, params.slots, True)
    if policy.law is sed_law or policy.clairvoyant:
        return _Rule(law, weights, slots, policy.law is sed_law)
    return _Rule(law, np.ones(system.servers), np.ones(system.servers, np.int64), False)


def _solve_at(system: System, rule: _Rule, level: int) -> tuple[Chain, Floats]:
    states = _lattice(system.servers, level)
    chain = chains.chain(states, system.rate, system.rates[0], system.slot_counts, rule.law(states.queue))
    return chain, chains.stationary(chain)


class _Bound(NamedTuple):
    """E, by its part from truncation and its part from rounding."""

    lost: float
    rounding: float

    @property
    def both(self) -> float:
        return self.lost + self.rounding


_NO_BOUND = _Bound(math.inf, 0.0)


def _bound(system: System, rule: _Rule, chain: Chain, law: Floats) -> _Bound:
    """E as at the head of this module; infinite where no V is found."""
    states = chain.lattice
    queue, up, down = states.queue, states.up, states.down
    level = len(states.levels) - 2
    last = states.levels[-2]
    rate, true = system.rate, system.slot_counts * system.rates[0]
    number = queue.sum(axis=1).astype(np.float64)

    # φ, what one job more adds to it, and its drift.
    n = system.servers
    # x_i(k)/w_i for k = 1..L + 1
    steps = np.maximum(rule.slots[:, None], np.arange(1, level + 2)) / rule.weights[:, None]
    sums = np.concatenate([np.zeros((n, 1)), np.cumsum(steps, axis=1)], axis=1)
    energy = np.sum([sums[i, queue[:, i]] for i in range(n)], axis=0)
    more = np.stack([steps[i, queue[:, i]] for i in range(n)], axis=1)
    less = np.stack([steps[i, np.maximum(queue[:, i] - 1, 0)] for i in range(n)], axis=1)  # d_i is 0 where q_i is
    drift = rate * (chain.routing * more).sum(axis=1) - (chain.leaving * less).sum(axis=1)

    slope, constant, jobs = 0.0, 0.0, float(rule.slots.sum())
    if rule.proven:
        slope = _slope(system, rule)  # σ
        fewer = rule.slots < system.slot_counts
        constant = float((true / rule.weights * rule.slots).sum())  # K
        constant += float((fewer * system.rates[0] * system.slot_counts**2 / (4.0 * rule.weights)).sum())
        # A(σ(N + c) − K) ≥ N has to hold from N = L + 1 on; twice 1/σ does where L is large, more where it is not.
        room = slope * (level + 1 + jobs) - constant
        if room <= 0.0:
            return _NO_BOUND
        factor = max(2.0 / slope, 1.01 * (level + 1) / room)
    elif (drift[last:] >= 0.0).any():
        return _guess(system, chain, law, number)
    else:
        factor = 2.0 * float((number[last:] / -drift[last:]).max())

    missing = np.maximum(number + factor * drift, 0.0)
    within = chains.until_empty(chain, missing, law, accuracy=1e-3)
    highest = float(within[last:].max())
    total = factor * drift - within * (rate + chain.leaving.sum(axis=1)) + (chain.leaving * within[down]).sum(axis=1)
    total[:last] += rate * (chain.routing[:last] * within[up[:last]]).sum(axis=1)
    total[last:] += rate * highest
    if (total[1:] >= 0.0).any() or (factor * energy + within < 0.0).any():
        return _NO_BOUND if rule.proven else _guess(system, chain, law, number)
    scale = max(1.0, float((number[1:] / -total[1:]).max()))
    below = scale * (factor * energy + within)
    above = scale * (factor * (energy[last:] + (chain.routing[last:] * more[last:]).sum(axis=1)) + highest)
    lost = rate * float(law[last:] @ np.maximum(below[last:], above))
    return _Bound(lost, float(np.abs(chains.residual(chain, law)) @ below))


def _slope(system: System, rule: _Rule) -> float:
    """σ as at the head of this module."""
    true = system.slot_counts * system.rates[0]
    return min(float((true / rule.weights).min()), (system.capacity - system.rate) / float(rule.weights.sum()))


def _guess(system: System, chain: Chain, law: Floats, number: Floats) -> _Bound:
    """E with twice the solved chain's own H, of the highest levels, for V: an estimate."""
    last = chain.lattice.levels[-2]
    value = 2.0 * chains.until_empty(chain, number, law, accuracy=1e-3)
    lost = system.rate * float(law[last:] @ value[last:])
    return _Bound(lost, float(np.abs(chains.residual(chain, law)) @ value))


def _first_level(system: System, rule: _Rule, tolerance: float) -> int:
    """A guess: the level at which a law that decays as ρ^N, spread as the weights are, meets the bound."""
    load = min(max(system.load, 1e-3), 0.9999)
    slope = _slope(system, rule)
    spread = float(rule.weights.sum())
    total = float(system.slot_counts.sum())
    level = 4.0
    for _ in range(50):
        energy = 2.0 / slope * (level + total) ** 2 / (2.0 * spread)
        needed = math.log(tolerance / (4.0 * system.rate * energy * (1.0 + total + 1.0 / (1.0 - load))))
        level = max(4.0, needed / math.log(load))
    return math.ceil(level + total)


def _solve(
    system: System, policy: Policy, tolerance: float, level: int | None, error: Callable[[float, Floats, Floats], float]
) -> tuple[Chain, Floats, _Bound, bool]:
    """The chain at a level given, or at the first one tried at which the error is within the tolerance."""
    rule = _rule(system, policy)
    if level is not None:
        require_count("level", level, 2)
        chain, law = _solve_at(system, rule, level)
        return chain, law, _bound(system, rule, chain, law), rule.proven
    level = _first_level(system, rule, tolerance)
    most = bisect_right(range(MOST_STATES), MOST_STATES, key=lambda k: chains.count_states(system.servers, k)) - 1
    if system.load ** max(0.0, most - float(system.slot_counts.sum())) > min(1.0, HOPELESS * tolerance):
        raise ValueError(_too_large(system, tolerance, most))
    level = min(level, most)
    while True:
        chain, law = _solve_at(system, rule, level)
        levels = chain.lattice.levels
        mass = np.add.reduceat(law, levels[:-1])
        bound = _bound(system, rule, chain, law)
        found = error(bound.both, law, mass)
        if found <= tolerance:
            return chain, law, bound, rule.proven
        if error(bound.lost, law, mass) <= 0.5 * tolerance:
            raise ValueError(f"tolerance must be at least {found:.1g}, what rounding leaves here, not {tolerance:g}")
        middle = max(1, int((1.0 - _TAIL) * level))
        decay = (mass[level] / mass[middle]) ** (1.0 / (level - middle)) if mass[middle] > 0.0 else 0.0
        if decay >= FLAT:
            raise ValueError(
                f"policy: {policy.name} does not seem to keep this system stable: with up to {level} jobs solved, "
                f"more jobs are no less likely than fewer (ratio {decay:.4g} from one number to the next)"
            )
        if level >= most:
            raise ValueError(_too_large(system, tolerance, most))
        further = (
            math.log(2.0 * found / tolerance) / -math.log(max(decay, 1e-6)) if math.isfinite(found) else 0.3 * level
        )
        level = min(most, level + max(4, math.ceil(further)))


def _too_large(system: System, tolerance: float, level: int) -> str:
    return (
        f"tolerance: {tolerance:g} cannot be met with {MOST_STATES} states, which is {level} jobs in {system.servers} servers, "
        f"at load {system.load:.3g}; allow more, give level=, or simulate"
    )


# --- the public face --------------------------------------------------------------------------------------------------


def stationary(system: System, policy: str | Policy, tolerance: float = 1e-8, level: int | None = None) -> Stationary:
    """The stationary law of a system under a routing rule.

    Parameters
    ----------
    system : Poisson arrivals, exponential service, constant rates, a few servers.
    policy : a rule that depends on the queue lengths alone: `sed`, `sed_ratio`, `esed`, `jsq`, `jiq`, `power_of_d`, `sed_of_d`,
        `random`, `weighted_random`, `optimal`, or one of your own with a ``law``.
    tolerance : how far the mean number, and every probability, may be off; the truncation is chosen so that the bound on it
        is no larger.
    level : L, to choose the truncation yourself; then the bound is what it is.

    Returns
    -------
    Stationary : see there. Queue-blind rules are solved in closed form, as independent M/M/c_i queues (unless `level` is
        given): only `number` is then cut, where less than the tolerance is left.

    Raises
    ------
    ValueError : another kind of system or rule; a rule that cannot keep it stable; a tolerance out of reach.
    """
    _check_system(system)
    policy = _check_policy(policy)
    _check_tolerance(tolerance)
    if level is None:
        shares = _blind_shares(system, policy)
        if shares is not None:
            return _product(system, shares, tolerance)

    def error(e: float, law: Floats, mass: Floats) -> float:
        return math.inf if e >= 1.0 else e * (1.0 + max(1.0, float(mass @ np.arange(len(mass))))) / (1.0 - e)

    chain, law, bound, proven = _solve(system, policy, tolerance, level, error)
    states = chain.lattice
    mass = np.add.reduceat(law, states.levels[:-1])
    mean = float(mass @ np.arange(len(mass)))
    return Stationary(
        mean,
        mean / system.rate,
        law @ (np.minimum(states.queue, system.slot_counts) / system.slot_counts),
        law @ chain.routing,
        error(bound.both, law, mass),
        proven,
        len(mass) - 1,
        mass,
        _law=law,
    )


def _blind_shares(system: System, policy: Policy) -> Floats | None:
    """The probabilities of a rule that is blind to queues; None for any other."""
    alone = policy.law in (power_law, sampled_law) and policy.options.get("choices") == 1  # one random server
    if policy.law not in (random_law, weighted_law) and not alone:
        return None
    return np.asarray(_rule(system, policy).law(np.zeros((1, system.servers), np.int64))[0])


def _product(system: System, shares: Floats, tolerance: float) -> Stationary:
    """Independent M/M/c_i queues: a Poisson stream that is split at random is independent Poisson streams."""
    found = []
    for i, (share, rate, slots) in enumerate(zip(shares, system.rates[0], system.slot_counts, strict=True)):
        if share * system.rate >= rate * slots:
            raise ValueError(
                f"policy: sends server {i + 1} {share * system.rate:g} jobs per time and it can serve {rate * slots:g}, so its "
                "queue grows without end"
            )
        found.append(mmc(share * system.rate, float(rate), int(slots)) if share > 0.0 else None)
    most = 8
    while True:
        marginals = tuple(
            _mmc_law(share * system.rate, float(rate), int(slots), most)
            for share, rate, slots in zip(shares, system.rates[0], system.slot_counts, strict=True)
        )
        number = marginals[0]
        for law in marginals[1:]:
            number = np.convolve(number, law)[: most + 1]
        beyond = max(0.0, 1.0 - float(number.sum()))
        if beyond <= max(tolerance, 1e-13):
            break
        most *= 2
    level = int(np.searchsorted(np.cumsum(number), 1.0 - max(tolerance, 1e-13)))
    level = min(level + 1, most)
    mean = sum(queue.mean_number for queue in found if queue is not None)
    return Stationary(
        mean,
        mean / system.rate,
        np.array([0.0 if queue is None else queue.utilisation for queue in found]),
        shares,
        max(0.0, 1.0 - float(number[: level + 1].sum())),
        True,
        level,
        number[: level + 1],
        _marginals=marginals,
    )


def disagreement(system: System, a: str | Policy, b: str | Policy, tolerance: float = 1e-8) -> float:
    """The probability that an arrival is sent by rule `a` to a server that rule `b` would not choose.

    In a system that `a` runs, each arrival is compared with all the servers that are optimal for `b` at the same queues: those
    that tie, where `b` breaks ties. With `b` = `sed` this is the regret per arrival of `a`, that is the slope of the
    regret of a fixed rule (LASED, section 2.2).

    Parameters
    ----------
    system, tolerance : as in :func:`stationary`; the probability is off by no more than that law's bound.
    a, b : rules that depend on the queue lengths alone.

    Raises
    ------
    ValueError : as :func:`stationary`.
    """
    _check_system(system)
    a, b = _check_policy(a), _check_policy(b)
    _check_tolerance(tolerance)
    if "ties" in b.options:
        b = replace(b, options={**b.options, "ties": "random"})

    def error(e: float, law: Floats, mass: Floats) -> float:
        return math.inf if e >= 1.0 else 2.0 * e / (1.0 - e)

    chain, law, _, _ = _solve(system, a, tolerance, None, error)
    chosen = _rule(system, b).law(chain.lattice.queue) > 0.0
    return float(law @ np.where(chosen, 0.0, chain.routing).sum(axis=1))


def busy_period(system: System, policy: str | Policy, tolerance: float = 1e-8) -> BusyPeriod:
    """The first two moments of the busy period, by first-step analysis.

    With h(q) = E_q[T] and m(q) = E_q[T²] for the time T until the system is empty, Qh = −1 and Qm = −2h away from the empty
    state. In the system itself E[B] = (1/π(0) − 1)/λ, so the bound on π(0) is one on E[B].

    Parameters
    ----------
    system, policy : as in :func:`stationary`.
    tolerance : how far the mean may be off, as a fraction of it.

    Raises
    ------
    ValueError : as :func:`stationary`.
    """
    _check_system(system)
    policy = _check_policy(policy)
    _check_tolerance(tolerance)

    def error(e: float, law: Floats, mass: Floats) -> float:
        # 1/π(0) = (1 + δ_1)/π̃(0), so E[B] is off by |δ_1|/(λπ̃(0)), where it is (1 − π̃(0))/(λπ̃(0)).
        return e / max(1.0 - float(law[0]), 1e-300)

    chain, law, bound, _ = _solve(system, policy, tolerance, None, error)
    mean, second = _moments(chain, law)
    less, less_law = _solve_at(system, _rule(system, policy), max(2, (3 * (len(chain.lattice.levels) - 2)) // 4))
    return BusyPeriod(
        mean,
        second,
        bound.both / (system.rate * float(law[0])),
        abs(second - _moments(less, less_law)[1]),
        1.0 + system.rate * mean,
    )


def _moments(chain: Chain, law: Floats) -> tuple[float, float]:
    """E[B], E[B²]."""
    first = chains.until_empty(chain, np.ones(len(law)), law, accuracy=1e-11)
    second = chains.until_empty(chain, 2.0 * first, law, accuracy=1e-11)
    start, up = chain.routing[0], chain.lattice.up[0]
    return float(start @ first[up]), float(start @ second[up])


def optimal(system: System, level: int | None = None) -> Optimal:
    """The routing of two servers with the least mean delay, by policy iteration from SED.

    Parameters
    ----------
    system : as in :func:`stationary`, with two servers and a load of at most 0.95.
    level : L, the most jobs in the states of the table; None for so many that ρ^L is 1e-5. The decisions are solved on
        states with up to 2L jobs, so that what is lost at the edge (which lowers the mean) does not bend the table.

    Raises
    ------
    ValueError : another kind of system; more or fewer servers; a load above 0.95.
    """
    from .policies.optimal import solve  # here, not above: the policy of that name shadows its module

    _check_system(system)
    table, best = solve(
        system.rate,
        tuple(float(rate) for rate in system.rates[0]),
        tuple(int(count) for count in system.slot_counts),
        tuple(float(weight) for weight in system.weights[0]),
        level,
    )
    mean = best.mean_number
    return Optimal(mean, mean / system.rate, table.copy(), best.first, best.first / mean - 1.0, len(table) - 1)
