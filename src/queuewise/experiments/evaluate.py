"""Theory and exact numbers of a user's own systems, as tables: what ``queuewise bounds`` and ``queuewise exact`` print."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import dispatch, scheduling
from ..bounds import Assumption, Bound
from ..fields import nearest
from ..scheduling.systems import Family
from .description import Cell
from .report import Table, short

#: Rules whose stationary law is solved unless others are named: they look at queue lengths, or at nothing.
RULES = ("sed", "jsq", "sed_of_d", "power_of_d", "weighted_random", "random")
#: Bound on the error of an oracle's law from which on it is none that should be called exact.
COARSE = 0.1
#: Rounds at whose beginning the oracle's queue is looked at.
ROUNDS = 2000


@dataclass(frozen=True)
class Evaluation:
    """What was evaluated: tables to print, sentences that sum up, and all of it as JSON values."""

    tables: tuple[Table, ...]
    sentences: tuple[str, ...]
    results: dict[str, Any]


# --- bounds ----------------------------------------------------------------------------------------------------------


def bounds(cells: Sequence[Cell], arguments: Mapping[str, Any]) -> Evaluation:
    """Every bound of the papers on every system, with the assumptions that it meets and fails.

    Parameters
    ----------
    cells : systems of either model.
    arguments : of ``scheduling.theory.bounds`` (rounds, ridge, ...) or ``dispatch.theory.bounds`` (queue, episode, ...).

    Raises
    ------
    ValueError : an argument that the theory does not have, or one out of range.
    """
    tables: list[Table] = []
    sentences: list[str] = []
    results: list[dict[str, Any]] = []
    for cell in cells:
        found = _bounds(cell, arguments)
        tables += _bound_tables(cell.name, found)
        met = sum(bound.holds is True for bound in found)
        sentences.append(f"{cell.name}: the assumptions of {met} of {len(found)} bounds are met.")
        results.append({"system": cell.name, "bounds": [_bound_json(bound) for bound in found]})
    return Evaluation(tuple(tables), tuple(sentences), {"systems": results})


def _bounds(cell: Cell, arguments: Mapping[str, Any]) -> list[Bound]:
    evaluate: Callable[..., list[Bound]]
    given = dict(arguments)
    system = _instance(cell)
    if isinstance(system, dispatch.System):
        evaluate = dispatch.theory.bounds
    else:
        evaluate = scheduling.theory.bounds
        given.setdefault("rounds", ROUNDS)
    known = [name for name in inspect.signature(evaluate).parameters if name != "system"]
    for name in given:
        if name not in known:
            raise ValueError(f"at: {name}: the theory has no such argument{nearest(name, known)}")
    try:
        return evaluate(system, **given)
    except (ValueError, TypeError) as error:
        raise ValueError(f"at: {error}") from error


def _instance(cell: Cell) -> Any:
    """The system of a cell. Theory is about one system, so a family is refused."""
    if isinstance(cell.system, Family):
        raise ValueError(f"{cell.name}: fresh = true draws another system in every run; give it a seed instead")
    return cell.system


def magnitude(value: float | None, log: bool) -> str:
    """A number for a table; one given by its natural logarithm as a power of ten where it does not fit otherwise."""
    if value is None:
        return ""
    if not log:
        return short(value)
    if not math.isfinite(value):
        return "0" if value < 0 else "∞"
    exponent = value / math.log(10.0)
    if abs(exponent) < 4:
        return short(math.exp(value))
    if abs(exponent) >= 1e6:
        return f"10^{exponent:.3g}"
    whole = math.floor(exponent)
    return f"{10 ** (exponent - whole):.1f}e{whole:+d}"


def _bound_tables(name: str, found: Sequence[Bound]) -> list[Table]:
    rows = []
    for bound in found:
        failing = [assumption.name for assumption in bound.assumptions if assumption.holds is False]
        open_ = [assumption.name for assumption in bound.assumptions if assumption.holds is None]
        needs = [*failing, *(f"{name} (not decided)" for name in open_)]
        text = f"{bound.source}: {bound.reads}" + (f" [needs: {'; '.join(needs)}]" if needs else "")
        unit = f" ({bound.unit})" if bound.unit else ""
        rows.append((bound.name.removeprefix("log_"), magnitude(bound.value, bound.log), text + unit))
    note = "Where an assumption fails there is no number."
    tables = [Table(f"Bounds: {name}", ("quantity", "value", "reads"), tuple(rows), note, (2,))]
    distinct: dict[str, Assumption] = {}
    for bound in found:
        for assumption in bound.assumptions:
            distinct.setdefault(f"{assumption.name} {assumption.value}", assumption)
    words = {True: "holds", False: "does not", None: "undecided"}
    lines = [(item.name, words[item.holds], str(item.value), item.reason) for item in distinct.values()]
    tables.append(Table(f"Assumptions: {name}", ("assumption", "", "value", "reason"), tuple(lines), "", (0, 2, 3)))
    return tables


def _bound_json(bound: Bound) -> dict[str, Any]:
    return {
        "name": bound.name,
        "source": bound.source,
        "value": bound.value,
        "natural_logarithm": bound.log,
        "unit": bound.unit,
        "holds": bound.holds,
        "reads": bound.reads,
        "assumptions": [
            {"name": item.name, "holds": item.holds, "value": str(item.value), "reason": item.reason}
            for item in bound.assumptions
        ],
    }


# --- exact numbers ---------------------------------------------------------------------------------------------------


def exact(cells: Sequence[Cell], policies: Sequence[Any] | None = None, rounds: int | None = None) -> Evaluation:
    """The numbers that can be had without simulation.

    Parallel queues: mean number, mean time in system, use of servers and disagreement with SED of every rule. A contextual
    queue: the law of the oracle's queue length, in the long run or at the beginning of one round.

    Parameters
    ----------
    cells : systems of either model.
    policies : dispatching rules; None for RULES.
    rounds : look at the oracle's queue at the beginning of this round instead of in the long run.

    Raises
    ------
    ValueError : a system, or a rule that was named, that is out of reach of exact solutions.
    """
    tables, results = [], []
    for cell in cells:
        system = _instance(cell)
        try:
            if isinstance(system, dispatch.System):
                table, numbers = _routing(cell.name, system, policies)
            elif policies is not None:
                raise ValueError("policy: only rules of dispatching have exact laws; here it is the oracle's")
            else:
                table, numbers = _serving(cell.name, system, rounds)
        except ValueError as error:
            raise ValueError(f"{cell.name}: {error}") from error
        tables.append(table)
        results.append({"system": cell.name, **numbers})
    return Evaluation(tuple(tables), (), {"systems": results})


def _routing(name: str, system: dispatch.System, policies: Sequence[Any] | None) -> tuple[Table, dict[str, Any]]:
    rows, numbers, out_of_reach = [], [], []
    for policy in RULES if policies is None else policies:
        label = policy if isinstance(policy, str) else policy.label
        try:
            law = dispatch.exact.stationary(system, policy)
        except ValueError as error:
            if policies is not None:
                raise
            out_of_reach.append(f"{label}: {error}.")
            continue
        wrong = dispatch.exact.disagreement(system, policy, "sed")
        use = " ".join(f"{value:.3f}" for value in law.utilisation[:8]) + (" …" if len(law.utilisation) > 8 else "")
        error_text = f"{law.truncation_error:.0e}{'' if law.proven else ' *'}"
        rows.append((label, f"{law.mean_number:.6g}", f"{law.mean_sojourn_time:.6g}", use, f"{wrong:.3g}", error_text))
        numbers.append(
            {
                "policy": label,
                "mean_number": law.mean_number,
                "mean_sojourn_time": law.mean_sojourn_time,
                "utilisation": law.utilisation.tolist(),
                "shares": law.shares.tolist(),
                "disagreement_with_sed": wrong,
                "truncation_error": law.truncation_error,
                "proven": law.proven,
            }
        )
    columns = ("policy", "number", "time in system", "use of servers", "against SED", "error")
    note = f"In the long run, at load {system.load:.4g}. Against SED: share of decisions outside its set (LASED, Section 3.2). "
    note += "Error: bound on how far number and probabilities are off; with a star it is not proven for this rule."
    note = " ".join([note, *out_of_reach])
    return Table(f"Exact: {name}", columns, tuple(rows), note), {"policies": numbers}


def _serving(name: str, system: Any, rounds: int | None) -> tuple[Table, dict[str, Any]]:
    if rounds is None:
        law = scheduling.exact.stationary(system)
        probabilities, mean, error, when = law.probabilities, law.mean, law.truncation_error, "in the long run"
    else:
        laws = scheduling.exact.transient(system, rounds)
        probabilities, mean = laws.probabilities[-1], float(laws.mean[-1])
        error, when = float(laws.truncation_error[-1]), f"at the beginning of round {rounds}"
    if error > COARSE:
        raise ValueError(
            f"system has too many classes of jobs for an exact law {when}: with as many states as can be solved it is off by "
            f"up to {error:.1g}"
        )
    tails = probabilities[::-1].cumsum()[::-1]
    rows = []
    for length, (p, tail) in enumerate(zip(probabilities, tails, strict=True)):
        if tail < 1e-4 or length > 40:
            break
        rows.append((str(length), short(float(p)), short(float(tail))))
    note = f"Mean {mean:.6g} jobs; the law is off by at most {error:.1e}."
    numbers = {
        "mean": mean,
        "truncation_error": error,
        "probabilities": [float(p) for p in probabilities],
        "when": when,
    }
    return Table(f"The oracle's queue, {name}, {when}", ("jobs", "probability", "at least"), tuple(rows), note), numbers
