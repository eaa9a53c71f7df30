"""Several results of one experiment as one: the runs of several machines, or of several seeds.

Runs are independent of each other and known by (seed, number). Results fit if everything that identifies their experiment
is the same but for the seed, and if no run is in two of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from .result import Described
from .store import differences, identity

#: In the settings of a pooled result: which runs it is made of.
POOLED = "pooled"


class Piece(NamedTuple):
    """Consecutive runs of one seed."""

    seed: int
    first_run: int
    runs: int

    def __str__(self) -> str:
        last = self.first_run + self.runs - 1
        numbers = f"run {last}" if self.runs == 1 else f"runs {self.first_run} to {last}"
        return f"{numbers} of seed {self.seed}"


class Plan(NamedTuple):
    """In which order results are joined, and what the whole is called."""

    order: list[int]
    settings: dict[str, Any]
    first_run: int


def pieces(result: Any) -> list[Piece]:
    """Which runs a result is made of."""
    given = result.settings.get(POOLED)
    if given is None:
        return [Piece(result.seed, result.first_run, result.runs)]
    return [Piece(int(piece["seed"]), int(piece["first_run"]), int(piece["runs"])) for piece in given]


def plan(results: Sequence[Any], names: Sequence[str]) -> Plan:
    """How results are to be joined.

    Parameters
    ----------
    results : of either model, at least one.
    names : what each is called in error messages.

    Raises
    ------
    ValueError : a result of another experiment, or runs that two results have.
    """
    if not results:
        raise ValueError("results must hold at least one result")
    for result, name in zip(results, names, strict=True):
        if not isinstance(result, Described):
            raise ValueError(f"results must be results of simulate or load, not {result!r}")
        differing = differences(_fitting(results[0]), _fitting(result))
        if differing:
            more = f", and {len(differing) - 3} more" if len(differing) > 3 else ""
            raise ValueError(
                f"{name} holds another experiment than {names[0]} ({'; '.join(differing[:3])}{more}); only seeds and runs "
                "may differ"
            )
    taken: list[tuple[Piece, str]] = []
    for result, name in zip(results, names, strict=True):
        for piece in pieces(result):
            for other, where in taken:
                if piece.seed == other.seed and _overlap(piece, other):
                    raise ValueError(
                        f"{name} has {piece}, and {where} has {other}: these overlap, and no run may count twice"
                    )
            taken.append((piece, name))
    order = sorted(range(len(results)), key=lambda i: pieces(results[i])[0])
    joined = [piece for i in order for piece in pieces(results[i])]
    settings = {key: value for key, value in results[order[0]].settings.items() if key != POOLED}
    settings["version"] = " and ".join(dict.fromkeys(str(results[i].version) for i in order))
    if any(results[i].settings.get("made_with") != settings.get("made_with") for i in order):
        settings.pop("made_with", None)
    one_seed = len({piece.seed for piece in joined}) == 1
    if one_seed and all(a.first_run + a.runs == b.first_run for a, b in itertools.pairwise(joined)):
        return Plan(order, settings, joined[0].first_run)
    settings["seed"] = sorted({piece.seed for piece in joined})
    settings[POOLED] = [piece._asdict() for piece in joined]
    return Plan(order, settings, 0)


def _fitting(result: Any) -> dict[str, Any]:
    """What has to be the same."""
    return {key: value for key, value in identity(result.settings).items() if key not in ("seed", POOLED)}


def _overlap(a: Piece, b: Piece) -> bool:
    return a.first_run < b.first_run + b.runs and b.first_run < a.first_run + a.runs
