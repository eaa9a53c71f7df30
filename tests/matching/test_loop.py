"""The matchings against all assignments, and runs against a slow twin on the same uniforms."""

import itertools

import numpy as np
import pytest

from queuewise import matching
from queuewise.matching.loop import CONFLICTS, match_favourites, match_greedily
from queuewise.matching.simulate import draw

from ..naive import matching as naive
from .test_systems import TABLE

SHAPES = [(1, 1), (2, 2), (3, 5), (4, 4)]


def indices(users: int, servers: int, levels: int, count: int):
    """Made-up indices; with few levels many of them tie."""
    rng = np.random.default_rng([users, servers, levels])
    for _ in range(count):
        table = rng.random((users, servers)) if levels == 0 else rng.integers(levels, size=(users, servers)) / levels
        yield table.astype(np.float64), rng.random(users)


def empty(users: int, servers: int) -> tuple[np.ndarray, np.ndarray]:
    """Left-overs of an earlier slot, which no matching may depend on."""
    return np.full(users, 7), np.full(servers, 7)


def check_owners(server: np.ndarray, owner: np.ndarray) -> None:
    assert len(set(server)) == len(server)
    for k, user in enumerate(owner):
        assert (user == -1 and k not in server) or server[user] == k


@pytest.mark.parametrize(("users", "servers"), SHAPES)
@pytest.mark.parametrize("levels", [0, 3])
def test_greedy_takes_the_largest_pair_that_is_left(users: int, servers: int, levels: int) -> None:
    for index, _ in indices(users, servers, levels, 60):
        server, owner = empty(users, servers)
        match_greedily(index, server, owner)
        check_owners(server, owner)
        assert server.tolist() == naive.greedy(index)


@pytest.mark.parametrize(("users", "servers"), SHAPES)
@pytest.mark.parametrize("levels", [0, 3])
@pytest.mark.parametrize("conflict", CONFLICTS)
def test_cardinality_is_the_best_of_all_assignments(users: int, servers: int, levels: int, conflict: str) -> None:
    for index, tickets in indices(users, servers, levels, 40):
        server, owner = empty(users, servers)
        match_favourites(index, CONFLICTS.index(conflict), tickets, server, owner)
        check_owners(server, owner)
        assert server.tolist() == naive.cardinality(index, conflict, tickets)
        wanted = naive.favourites(index)
        most = max(
            sum(a == b for a, b in zip(assignment, wanted, strict=True))
            for assignment in itertools.permutations(range(servers), users)
        )
        assert (server == wanted).sum() == most


def test_rules_differ_where_users_want_the_same_server() -> None:
    index = np.array([[0.9, 0.5, 0.1], [0.95, 0.8, 0.2], [0.3, 0.7, 0.1]])
    tickets = np.array([0.9, 0.5, 0.1])
    found = {}
    for conflict in range(3):
        server, owner = empty(3, 3)
        match_favourites(index, conflict, tickets, server, owner)
        found[CONFLICTS[conflict]] = server.tolist()
    # User 3's favourite stays its own although user 1 or 2, having lost server 1, would like it better.
    assert found == {"first": [0, 2, 1], "largest": [2, 0, 1], "random": [2, 0, 1]}
    server, owner = empty(3, 3)
    match_greedily(np.array([[0.9, 0.5, 0.1], [0.95, 0.8, 0.2], [0.3, 0.4, 0.1]]), server, owner)
    assert server.tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("choice", "conflict"), [("greedy", "first"), *(("cardinality", conflict) for conflict in CONFLICTS)]
)
@pytest.mark.parametrize("exploration", [0.0, 0.05, 3.0])
def test_runs_are_those_of_the_slow_twin(choice: str, conflict: str, exploration: float) -> None:
    system = matching.System([0.35] * 3, TABLE)
    slots, runs = 100, 2
    options = {"matching": choice, "conflict": conflict, "exploration": exploration}
    result = matching.simulate(system, slots=slots, runs=runs, seed=4, checkpoints=range(slots + 1), **options)
    for run in range(runs):
        draws = draw(system, slots, 4, run, start="arrival_first", conflict=conflict)._asdict()
        twin = naive.play([0.35] * 3, TABLE, draws, slots, **options)
        for name, lengths in twin.items():
            np.testing.assert_array_equal(getattr(result, name)[run], lengths)
