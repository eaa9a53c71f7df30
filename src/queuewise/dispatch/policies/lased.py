"""LASED, Learning Adaptive SED: episodes between empty systems, forced exploration while samples are few, then Shortest
Expected Delay with the estimates of the episode's beginning (LASED, Algorithm 1).

Episode k begins with an empty system. If min_i N_i < α(k), the next max(1, ⌈α(k) − N_i⌉) jobs go to server i, for every i;
all others go by SED(r̄), r̄ = clip(μ̂₂/μ̂₁, r_min, r_max), until the system is empty again. Then N, S and μ̂ = N/S take in all
completions of the episode. α(k) = ln⁴(k + 1).

For more than two servers the rule is the same with every μ̂_i clipped; its analysis is left open by the paper (section 3.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import _compile
from ..._compile import options
from ..._random import Stream
from ...fields import choice, number, whole
from ..estimation import Observed, count, discount, mean_rate, nothing_observed, set_observed
from ..policy import EXPLOIT, EXPLORE, Outcome, Policy, Seen, Shape, Ticket
from ..systems import Rate
from ._delay import Delays, Floats, Ints, all_changed, changed, initial_rates, new_delays, shortest, ties_of, weights_of

#: When estimates take in a completion: at the end of its episode (the paper), or at once.
EPISODE, COMPLETION = 0, 1
UPDATES = {"episode": EPISODE, "completion": COMPLETION}

#: Whom the forced jobs go to: one to each in turn, or all of one server's first.
ROUND_ROBIN, BLOCKS = 0, 1
ORDERS = {"round_robin": ROUND_ROBIN, "blocks": BLOCKS}

#: Jobs forced to one server in one episode, at most.
MOST_FORCED = 1_000_000_000
#: Episodes at which a threshold of the user's own is tried before it is taken.
_TRIED = (*range(1, 201), 10**3, 10**4, 10**5, 10**6, 10**9)


DEFAULTS: dict[str, Any] = {
    "initial_rates": None,
    "ratio_bounds": (0.01, 100.0),
    "rate_bounds": None,
    "threshold": None,
    "scale": 1.0,
    "quota": "fill",
    "order": "round_robin",
    "update": "episode",
    "ties": "lowest",
}


class Params(NamedTuple):
    """initial : float64[n], rates, and the same as weights · bounds of the ratio (two servers) and of the rates · scale of α ·
    quota (0: fill) · codes of update, order and ties."""

    initial: Floats
    initial_weights: Floats
    least_ratio: float
    most_ratio: float
    least_rate: float
    most_rate: float
    scale: float
    quota: int
    update: int
    order: int
    ties: int


class State(NamedTuple):
    """learned : N and S of finished episodes · pending : of this one · delays · owed : int64[n], forced jobs still to be sent
    · at : int64[3] = episode k, jobs owed in all, the server that was sent to last."""

    learned: Observed
    pending: Observed
    delays: Delays
    owed: Ints
    at: Ints


def threshold(episode: int) -> float:
    """α(k) = ln⁴(k + 1) (LASED (8); power and constant follow from its Lemmas 10 and 13)."""
    return math.log(episode + 1.0) ** 4


def configure(options: Any, shape: Shape) -> Params:
    """Check the options."""
    for field in ("ratio_bounds", "rate_bounds"):
        pair = options[field]
        if pair is None and field == "rate_bounds":
            continue
        numbers = (
            isinstance(pair, Sequence)
            and len(pair) == 2
            and all(isinstance(end, int | float) and not isinstance(end, bool) for end in pair)
        )
        if not numbers or not 0 < pair[0] < pair[1]:
            raise ValueError(f"{field}: must be two numbers with 0 < lower < upper, not {pair!r}")
    if options["rate_bounds"] is not None and options["ratio_bounds"] != DEFAULTS["ratio_bounds"]:
        raise ValueError("ratio_bounds: must be left out with rate_bounds, from which they follow")
    least_ratio, most_ratio = options["ratio_bounds"]
    least_rate, most_rate = 0.0, math.inf
    if options["rate_bounds"] is not None:
        least_rate, most_rate = options["rate_bounds"]
        least_ratio, most_ratio = least_rate / most_rate, most_rate / least_rate  # LASED, section 5
    if not most_ratio >= 1.0 or not least_ratio <= 1.0:
        raise ValueError(f"ratio_bounds: must lie on both sides of 1, not {options['ratio_bounds']!r}")
    quota = 0 if options["quota"] == "fill" else whole(options, "quota", 1)
    if quota > MOST_FORCED:
        raise ValueError(f"quota: must be at most {MOST_FORCED}, not {quota}")
    initial = initial_rates(options, shape)
    return Params(
        initial,
        weights_of("initial_rates", initial.tolist(), shape),
        float(least_ratio),
        float(most_ratio),
        float(least_rate),
        float(most_rate),
        number(options, "scale", 0.0, 1e6, strict=False),
        quota,
        choice(options, "update", UPDATES),
        choice(options, "order", ORDERS),
        ties_of(options),
    )


def least_of(params: Params, most: float) -> float:
    """The lower bound of a rate among more than two servers: μ_min if it is given, else by the spread below the largest."""
    return params.least_rate if params.least_rate > 0.0 else most / params.most_ratio


@options(inline="never")
def _weigh(params: Params, state: State, slots: Ints) -> None:
    """The weights of SED(r̄) from the estimates. The clip is for what was learned, not for initial rates."""
    learned, weights = state.learned, state.delays.weights
    n = weights.shape[0]
    most, any_learned = 0.0, False
    for i in range(n):
        weights[i] = mean_rate(learned, params.initial, i)
        most = max(most, weights[i])
        any_learned = any_learned or learned.completions[i] > 0.0
    if any_learned:
        if n == 2:
            ratio = weights[1] / weights[0]
            clipped = min(max(ratio, params.least_ratio), params.most_ratio)
            if clipped != ratio:
                weights[0], weights[1] = 1.0, clipped
        else:
            least = least_of(params, most)
            for i in range(n):
                if learned.completions[i] > 0.0:
                    weights[i] = min(max(weights[i], least), params.most_rate)
    for i in range(n):
        # Before anything is learned the rates are known numbers, whose ties are exact.
        weights[i] = weights[i] * slots[i] if any_learned else params.initial_weights[i]


@options(inline="never")
def _begin_episode(params: Params, state: State, slots: Ints) -> None:
    """Take in what the last episode brought, and see whether this one explores."""
    learned, pending = state.learned, state.pending
    n = state.owed.shape[0]
    state.at[0] += 1
    for i in range(n):
        learned.completions[i] += pending.completions[i]
        learned.busy[i] += pending.busy[i]
        pending.completions[i], pending.busy[i] = 0.0, 0.0
    _weigh(params, state, slots)
    alpha = min(params.scale * threshold(state.at[0]), float(MOST_FORCED))
    fewest = learned.completions[0]
    for i in range(1, n):
        fewest = min(fewest, learned.completions[i])
    if fewest < alpha:
        for i in range(n):
            missing = params.quota
            if params.quota == 0:
                missing = max(1, math.ceil(alpha - learned.completions[i]))
            state.owed[i] = missing
            state.at[1] += missing
        state.at[2] = n - 1 if params.order == ROUND_ROBIN else 0


def start(params: Params, shape: Shape, stream: Stream) -> State:
    """The first episode."""
    n = shape.servers
    delays = new_delays(np.ones(n), shape.slots, params.ties)
    state = State(nothing_observed(n), nothing_observed(n), delays, np.zeros(n, np.int64), np.zeros(3, np.int64))
    _begin_episode(params, state, shape.slots)
    return state


def decide(params: Params, state: State, seen: Seen, stream: Stream) -> tuple[int, int]:
    """A server that is owed jobs, while there is one; else the shortest delay."""
    if state.at[1] > 0:
        n = state.owed.shape[0]
        server = state.at[2]
        if params.order == ROUND_ROBIN or state.owed[server] == 0:
            server = (server + 1) % n
        while state.owed[server] == 0:
            server = (server + 1) % n
        return server, EXPLORE
    return shortest(state.delays, seen, params.ties, stream), EXPLOIT


def assigned(params: Params, state: State, seen: Seen, ticket: Ticket) -> None:
    """A forced job is sent: one less is owed."""
    if ticket.reason == EXPLORE and state.owed[ticket.server] > 0:
        state.owed[ticket.server] -= 1
        state.at[1] -= 1
        state.at[2] = ticket.server
    changed(state.delays, seen, params.ties, ticket.server)


def observe(params: Params, state: State, seen: Seen, ticket: Ticket, outcome: Outcome) -> None:
    """Keep the completion for the end of the episode, or take it in at once."""
    if params.update == EPISODE:
        count(state.pending, ticket.server, outcome)
        changed(state.delays, seen, params.ties, ticket.server)
    else:
        count(state.learned, ticket.server, outcome)
        _weigh(params, state, seen.slots)
        all_changed(state.delays, seen, params.ties)


def emptied(params: Params, state: State, seen: Seen) -> None:
    """The system is empty. The episode is over, unless forced jobs are still to be sent."""
    if state.at[1] == 0:
        _begin_episode(params, state, seen.slots)
        all_changed(state.delays, seen, params.ties)


def forget(params: Params, state: State, factor: float) -> None:
    """Samples count for less."""
    discount(state.learned, factor)
    discount(state.pending, factor)


def believe(params: Params, state: State, seen: Seen, server: int, completions: float, busy: float) -> None:
    """Other samples of one server, taken in at once."""
    set_observed(state.learned, server, completions, busy)
    set_observed(state.pending, server, 0.0, 0.0)
    _weigh(params, state, seen.slots)
    all_changed(state.delays, seen, params.ties)


def estimates(params: Params, state: State, rates: Floats) -> tuple[int, bool]:
    """μ̂ before the clip, the episode k, and whether the estimates lie within the bounds."""
    n = rates.shape[0]
    most, within = 0.0, True
    for i in range(n):
        rates[i] = mean_rate(state.learned, params.initial, i)
        most = max(most, rates[i])
    if n == 2:
        within = params.least_ratio <= rates[1] / rates[0] <= params.most_ratio
    else:
        for i in range(n):
            within = within and least_of(params, most) <= rates[i] <= params.most_rate
    return state.at[0], within


def explain(params: Params, state: State, seen: Seen) -> dict[str, Any]:
    """Episode, forced jobs still to be sent, samples and rates."""
    return {
        "episode": int(state.at[0]),
        "owed": state.owed.tolist(),
        "completions": state.learned.completions.tolist(),
        "rate": [mean_rate(state.learned, params.initial, i) for i in range(len(seen.queue))],
        "weight": state.delays.weights.tolist(),
    }


def _checked_threshold(function: Callable[[int], float]) -> Callable[[int], float]:
    for episode in _TRIED:
        try:
            value = float(function(episode))
        except Exception as error:
            raise ValueError(f"threshold: must be a function of the episode, but it raised {error!r}") from error
        if not (value >= 0.0 and math.isfinite(value)):
            raise ValueError(f"threshold: must be finite and at least 0, but it is {value!r} at episode {episode}")
    return function


def lased(initial_rates: Sequence[Rate] | None = None, *, name: str = "", **options: Any) -> Policy:
    """Learning Adaptive SED: forced exploration in episodes, then SED with the rates learned so far.

    initial_rates : one per server; None (default) for the system's, else all 1.
    ratio_bounds : r_min and r_max that the learned ratio is clipped to, for more than two servers the largest spread of the
        rates (default (0.01, 100)).
    rate_bounds : mu_min and mu_max, from which r_min = mu_min/mu_max and r_max = mu_max/mu_min; None (default) for none.
    threshold : alpha(k) as a function of the episode; None (default) for ln(k + 1)**4.
    scale : factor of alpha (default 1; 0 never explores).
    quota : forced jobs per server in an exploring episode: "fill" (default, up to alpha) or a number.
    order : "round_robin" (default) or "blocks".
    update : "episode" (default, the paper's) or "completion", which takes in every completion at once.
    ties : "lowest" (default, the paper's), "highest", "fastest" or "random".
    """
    own = options.get("threshold")
    functions: dict[str, Callable[..., Any]] = {"start": start, "emptied": emptied}
    if own is not None:
        if not callable(own):
            raise ValueError(f"threshold: must be a function of the episode, not {own!r}")
        begin = _compile.interpreted(_begin_episode, {"threshold": _checked_threshold(own)})
        functions = {
            key: _compile.interpreted(function, {"_begin_episode": begin}) for key, function in functions.items()
        }
    return Policy(
        "lased",
        decide,
        assigned=assigned,
        observe=observe,
        emptied=functions["emptied"],
        estimates=estimates,
        forget=forget,
        believe=believe,
        configure=configure,
        start=functions["start"],
        options={"initial_rates": initial_rates, **options},
        defaults=DEFAULTS,
        name=name,
        explain=explain,
    )
