"""Two servers under SED(r), state by state: equations written down as they are read, and a busy period lived through.

A state is (q₁, q₂); a set of states is a function of a state. Nothing here is shared with the package.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import splu

State = tuple[int, int]
Set = Callable[[State], bool]


def steps(arrival_rate: float, rates: tuple[float, float], ratio: Fraction, state: State) -> list[tuple[State, float]]:
    """Where the process goes from a state, and at which rates."""
    q1, q2 = state
    to_one = ratio * (q1 + 1) <= q2 + 1
    found = [((q1 + 1, q2) if to_one else (q1, q2 + 1), float(arrival_rate))]
    if q1 > 0:
        found.append(((q1 - 1, q2), float(rates[0])))
    if q2 > 0:
        found.append(((q1, q2 - 1), float(rates[1])))
    return found


class Passage:
    """The process on the states of a grid, until it enters a set. Arrivals that would leave the grid are lost, so that the
    grid is given large enough, or the set given to contain what lies beyond.
    """

    def __init__(self, arrival_rate: float, rates: tuple[float, float], ratio: Fraction, most: int, until: Set) -> None:
        self.inside = [(a, b) for a in range(most + 1) for b in range(most + 1) if not until((a, b))]
        self.place = {state: i for i, state in enumerate(self.inside)}
        rows, columns, values = [], [], []
        self.ends: list[tuple[int, State, float]] = []
        for i, state in enumerate(self.inside):
            for there, rate in steps(arrival_rate, rates, ratio, state):
                if there in self.place:
                    rows += [i, i]
                    columns += [i, self.place[there]]
                    values += [rate, -rate]
                elif until(there):
                    rows.append(i)
                    columns.append(i)
                    values.append(rate)
                    self.ends.append((i, there, rate))
        self.solver = splu(csr_matrix((values, (rows, columns)), shape=(len(self.inside),) * 2).tocsc())

    def chance(self, of: Set) -> np.ndarray:
        """For every state inside, the chance that the set is entered in `of`."""
        source = np.zeros(len(self.inside))
        for i, there, rate in self.ends:
            if of(there):
                source[i] += rate
        return np.asarray(self.solver.solve(source))

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """For every state inside, the mean and the second moment of the time until the set is entered."""
        mean = self.solver.solve(np.ones(len(self.inside)))
        return np.asarray(mean), np.asarray(self.solver.solve(2.0 * mean))


def busy_period(
    arrival_rate: float, rates: tuple[float, float], ratio: Fraction, rng: np.random.Generator
) -> tuple[float, int, tuple[bool, bool]]:
    """One busy period: how long, its longest queue, and which servers had work."""
    state, clock = steps(arrival_rate, rates, ratio, (0, 0))[0][0], 0.0
    longest, worked = max(state), [state[0] > 0, state[1] > 0]
    while state != (0, 0):
        there, speed = zip(*steps(arrival_rate, rates, ratio, state), strict=True)
        total = sum(speed)
        clock += rng.exponential(1.0 / total)
        state = there[int(np.searchsorted(np.cumsum(speed), rng.random() * total))]
        longest = max(longest, *state)
        worked = [worked[0] or state[0] > 0, worked[1] or state[1] > 0]
    return clock, longest, (worked[0], worked[1])
