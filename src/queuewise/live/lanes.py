"""A dispatching policy at work outside of a simulation: its options, its state, and its one compiled entry.

A *lane* is the policy of one class of jobs. It is started anew whenever the servers that it may choose from change (one was
added, drained, or its circuit opened) and then told what is known of each; so a policy never sees a server that it must
not use, and no rule knows of circuits. What a rule keeps beyond that (LASED's episode, the visits of optimistic SED) starts
anew.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _compile, growing
from ..dispatch.policies import make
from ..dispatch.policy import Policy, Shape
from ..streams import policy_stream
from . import steps
from .steps import Event, Fleet, Settings

#: Options with a number per server; a router's servers come and go, so it takes the numbers with them.
PER_SERVER = ("initial_rates", "rates", "weights")
#: Programs that numba has refused in this process.
REFUSED: dict[Any, Exception] = {}
#: What a policy is told about it: nobody counts.
MOST_IN_SYSTEM = 1 << 20


def live_policy(policy: str | Policy) -> Policy:
    """A policy that a router can use; by name with random ties, since routers that break ties alike send all to one server.

    Raises ValueError for an unknown name, and for a policy that knows what no router knows.
    """
    if not isinstance(policy, str | Policy):
        raise ValueError(f"policy must be a name or a dispatching policy, not {policy!r}")
    found = make(policy)
    if isinstance(policy, str) and "ties" in found.defaults:
        found = make(policy, ties="random")
    if found.clairvoyant and found.rule != "sed":
        raise ValueError(f"policy: {found.rule!r} knows the future or the true rates, which nobody does here")
    if "arrival_rate" in found.defaults and found.options["arrival_rate"] is None:
        raise ValueError(
            f"policy: {found.rule!r} needs arrival_rate, in requests per second, which nobody else tells it here"
        )
    for key in PER_SERVER:
        if found.options.get(key) is not None:
            raise ValueError(f"policy: leave out {key} and give each server its rate, as in Server(rate=2.5)")
    return found


class Lane:
    """The policy of one class of jobs. `stream` : its randomness, kept when it is started anew · `rule` : the policy in use. A
    policy that cannot do with the servers that are left (best of two, and one is left) is replaced by the shortest queue until
    it can again: what opens a circuit must not stop the routing."""

    def __init__(self, policy: Policy, seed: int, number: int, compiled: bool) -> None:
        self.policy = self.rule = policy
        self.number = number
        self.stream = policy_stream(seed, number, policy.name)
        self.params: Any = None
        self.state: Any = None
        self._plain = not compiled
        self._begun = False
        self._call: Callable[..., tuple[int, int, float]] | None = None

    def begin(self, fleet: Fleet, settings: Settings, rates: NDArray[np.float64]) -> None:
        """Start the policy anew for the places of a fleet. `rates` : float64[n], what is believed of each, per slot.

        Raises ValueError, the first time only, where the policy's options do not suit these servers."""
        self.rule = self.policy
        try:
            self._begin(fleet, settings, rates)
        except ValueError:
            if not self._begun:
                raise
            self.rule = make("jsq", ties="random")
            self._begin(fleet, settings, rates)
        self._begun = True

    def _begin(self, fleet: Fleet, settings: Settings, rates: NDArray[np.float64]) -> None:
        n = len(fleet.rows)
        true = rates.copy() if self.policy.clairvoyant else np.full(n, math.nan)
        shape = Shape(n, fleet.slots.copy(), math.nan, true, rates.copy(), MOST_IN_SYSTEM)
        with np.errstate(over="ignore"):
            try:
                self.params = self.rule.configure(self.rule.options, shape)
                self.state = self.rule.start(self.params, shape, self.stream)
            except ValueError as error:
                raise ValueError(f"{self.policy.name}: {error}") from error
        event = Event(steps.RECALL, 0.0, self.number, -1, 1.0, 0, 0.0, 0, 1.0, 0)
        self._call = self._entry((self.params, self.state, fleet, settings, event, self.stream))

    def __call__(self, fleet: Fleet, settings: Settings, event: Event) -> tuple[int, int, float]:
        """One event; see :func:`.steps.step`."""
        assert self._call is not None
        return self._call(self.params, self.state, fleet, settings, event, self.stream)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that the policy has in memory, by name."""
        return {**growing.flatten(self.state), "stream": self.stream}

    def put_back(self, arrays: dict[str, NDArray[Any]]) -> bool:
        """Take over what :meth:`arrays` gave, if it is of the same form; whether it was."""
        mine = self.arrays()
        if mine.keys() != arrays.keys() or any(
            mine[name].shape != array.shape or mine[name].dtype != array.dtype for name, array in arrays.items()
        ):
            return False
        for name, array in arrays.items():
            mine[name][...] = array
        return True

    def _entry(self, arguments: tuple[Any, ...]) -> Callable[..., tuple[int, int, float]]:
        """The program for arguments of these types: lean, else compiled as usual, else plain Python with a warning."""
        bound = {**self.rule.functions, "forget": self.rule.forget, "believe": self.rule.believe}
        ways = [] if self._plain else [True, False]
        if ways and _compile.calls_compiled(bound.values()):
            ways = [False]
        refusal: Exception | None = None
        for lean in ways:
            program = _compile.program(steps.step, bound, lean=lean)
            if program in REFUSED:
                refusal = REFUSED[program]
                continue
            try:
                return _compile.direct(program, arguments)
            except Exception as error:  # whatever numba stumbled over, routing goes on
                REFUSED[program] = refusal = error
        if refusal is not None and not self._plain:
            warnings.warn(
                f"{self.policy.name}: numba cannot compile this policy, so it decides in plain Python, many times slower "
                f"({_compile.reason(refusal)})",
                RuntimeWarning,
                stacklevel=2,
            )
        self._plain = True
        plain = _compile.interpreted(steps.step, bound)

        def call(*arguments: Any) -> tuple[int, int, float]:
            with np.errstate(over="ignore"):  # the random stream's arithmetic wraps around by design
                row, reason, busy = plain(*arguments)
            return int(row), int(reason), float(busy)

        return call
