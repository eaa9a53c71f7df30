"""Comparisons of a user's own systems and policies: playing them, ranking the policies, and saying who wins.

``compare`` plays what a file describes (see :mod:`.description`) and concludes; ``sweep`` splits the same work over machines
and merges what they bring back (see :mod:`.sweep`). Both leave in their folder

    experiment.json                 what was described, and the systems' names and folders
    <system>/rows/                  every run, as it was played; straight in the folder where there is one system
    <system>/comparison.json, .md   the ranking
    <system>/figure.png, .svg       regret over time
    summary.json, .md, .png, .svg   all systems side by side, where there are several
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import dispatch
from .._version import VERSION
from ..dispatch.simulate import simulate as simulate_dispatch
from ..runs.plot import frameless, label_of, new_figure, save_figure, style
from ..runs.simultaneous import Comparison as Pair
from ..runs.simultaneous import Comparisons
from ..runs.statistics import Difference, Estimate, quantile, simultaneous_level
from ..scheduling.simulate import simulate as simulate_scheduling
from . import usercode
from .description import SCHEDULING, Cell, Experiment, Run, read
from .report import Progress, Table, estimate_json, interval, output_folder, short, to_json, write_text

#: Largest mean regret in terms of the smallest, from which on a linear axis would hide the smallest.
_SPREAD = 15.0
#: Max-t intervals so much wider than Bonferroni's deserve a word of why.
_WIDE = 2.0
#: What each measure of dispatching is called, and its unit.
_MEASURES = {
    "regret": ("regret", "decisions"),
    "sojourn_time": ("mean time in system", "units of time"),
    "number_in_system": ("mean number in system", "jobs"),
}
#: Measure → the estimate of it in what is written down.
_ESTIMATES = {
    "regret": "total_regret",
    "sojourn_time": "mean_sojourn_time",
    "number_in_system": "mean_number_in_system",
}
EXPERIMENT = "experiment.json"


class Standing(NamedTuple):
    """One policy in a comparison.

    value : what policies are ranked by · behind : its paired difference to the best, with an interval that holds together with
    all others and an adjusted p-value; None for the best · against : the same to the baseline, None without one · further :
    other estimates, by what they are
    """

    name: str
    label: str
    value: Estimate
    behind: Pair | None
    against: Pair | None
    further: dict[str, Estimate]


class Comparison(NamedTuple):
    """What was found on one system; `standings` are ordered by what policies are ranked by."""

    name: str
    result: Any
    standings: tuple[Standing, ...]
    sentence: str
    table: Table
    files: tuple[Path, ...]
    results: dict[str, Any]

    @property
    def winner(self) -> str:
        """The policy with the smallest mean."""
        return self.standings[0].name

    @property
    def decided(self) -> str | None:
        """The same where it is below all others with confidence; None where runs are too few to say."""
        rest = self.standings[1:]
        return self.winner if all(s.behind is not None and s.behind.difference.low > 0 for s in rest) else None


class Found(NamedTuple):
    """What was found on all systems of an experiment."""

    parts: tuple[Comparison, ...]
    tables: tuple[Table, ...]
    sentences: tuple[str, ...]
    files: tuple[Path, ...]
    results: dict[str, Any]


# --- playing ---------------------------------------------------------------------------------------------------------


def folder_of(out: Path, cell: Cell, cells: int) -> Path:
    """Where the results of one system go: the experiment's own folder where it is the only one."""
    return out if cells == 1 else out / cell.folder


def play(
    experiment: Experiment,
    out: Path,
    *,
    runs: range | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> list[Any]:
    """Play the runs of these numbers (None for all) on every system, and give the results in order of systems.

    What an earlier, interrupted call left in `out` is taken up again. Raises ValueError where a folder holds another
    experiment or a policy cannot be used on a system.
    """
    run, cells = experiment.run, experiment.cells
    numbers = range(run.runs) if runs is None else runs
    found = []
    with Progress(len(cells) * len(numbers), shown=progress) as shown:
        for cell in cells:
            common: dict[str, Any] = {
                "policies": list(experiment.policies),
                "runs": len(numbers),
                "first_run": numbers.start,
                "seed": run.seed,
                "half_width": run.half_width,
                "workers": workers,
                "folder": folder_of(out, cell, len(cells)) / "rows",
                "progress": shown.begin(cell.name),
            }
            try:
                if experiment.model == SCHEDULING:
                    result: Any = simulate_scheduling(
                        cell.system, rounds=run.rounds, oracle=experiment.oracle, **common
                    )
                else:
                    result = simulate_dispatch(cell.system, arrivals=run.arrivals, warm_up=run.warm_up, **common)
            except (Exception, SystemExit) as error:
                said = _said(error, experiment)
                if not said:
                    raise
                raise ValueError(f"{cell.name}: {said}" if len(cells) > 1 else said) from error
            found.append(result)
    return found


def _said(error: BaseException, experiment: Experiment) -> str:
    """One sentence for what a user can do something about; "" for an error that is none of theirs."""
    blamed = usercode.blame(error)
    if blamed or isinstance(error, ValueError):
        return blamed or str(error)
    own = [policy.name for policy in experiment.policies if usercode.is_own(policy.decide)]
    if not own:
        return ""
    return (
        f"{' or '.join(own)} does not keep to the contract ({type(error).__name__}: {error}); check_policy says where"
    )


# --- who wins --------------------------------------------------------------------------------------------------------


def standings(result: Any, run: Run | None = None) -> tuple[tuple[Standing, ...], Comparisons]:
    """The policies of a result of either model in order, and how the intervals of their differences were made."""
    run = run or Run()
    method: Any = run.method
    found: list[Standing] = []
    if isinstance(result, dispatch.Result):
        measure: Any = run.measure
        together = result.compare_all(measure, run.level, "best", method)
        control = result.compare_all(measure, run.level, run.baseline, method) if run.baseline else None
        places = result.rank(measure, run.level)
        values = {place.name: place.value for place in places}
    else:
        together = result.compare_all(run.over, run.level, "best", method)
        control = result.compare_all(run.over, run.level, run.baseline, method) if run.baseline else None
        values = {place.name: place.regret for place in result.rank(run.over, run.level)}
    order = list(values)
    for name in order:
        behind = None if name == order[0] else together.of(name, order[0])
        against = None if control is None or name == run.baseline else control.of(name, str(run.baseline))
        further = _further(result, name, run)
        found.append(Standing(name, result.label(name), values[name], behind, against, further))
    return tuple(found), together


def _further(result: Any, name: str, run: Run) -> dict[str, Estimate]:
    """Beside what policies are ranked by."""
    if isinstance(result, dispatch.Result):
        further = {
            "total_regret": result.total_regret(name, run.level),
            "mean_sojourn_time": result.mean_sojourn_time(name, run.level),
            "mean_number_in_system": result.mean_number_in_system(name, run.level),
        }
        further.pop(_ESTIMATES[run.measure])
        return further
    queue = result.mean_queue_length(name, run.level)
    mean, low, high, sd = (float(column[-1]) for column in (queue.mean, queue.low, queue.high, queue.sd))
    found = {"final_queue_length": Estimate(mean, low, high, sd, result.runs)}
    if result.gives_up:
        found["given_up"] = result.mean_given_up(name, level=run.level)
    return found


#: What the further estimates are called in a table.
_WORDS = {
    "final_queue_length": "final queue",
    "given_up": "jobs given up",
    "total_regret": "regret",
    "mean_sojourn_time": "time in system",
    "mean_number_in_system": "number in system",
}


def measured(result: Any, run: Run) -> tuple[str, str]:
    """What policies are ranked by, in words, and its unit."""
    return _MEASURES[run.measure] if isinstance(result, dispatch.Result) else ("mean regret", "jobs")


def standings_table(found: Sequence[Standing], together: Comparisons, result: Any, run: Run, title: str) -> Table:
    """The comparison as a table, best policy first."""
    best = found[0].name
    what, unit = measured(result, run)
    columns = ["policy", what]
    if len(found) > 1:
        columns += [f"behind {best}", "p"]
    if run.baseline is not None:
        columns.append(f"minus {run.baseline}")
    columns += [_WORDS[key] for key in found[0].further]
    rows = []
    for standing in found:
        row = [standing.name, _interval(standing.value)]
        if len(found) > 1:
            behind = standing.behind
            row += ["", ""] if behind is None else [_interval(behind.difference), short(behind.p)]
        if run.baseline is not None:
            row.append("" if standing.against is None else _interval(standing.against.difference))
        row += [_interval(estimate) for estimate in standing.further.values()]
        rows.append(tuple(row))
    note = f"In {unit}, {100 * run.level:g}% intervals over {result.runs} runs."
    if len(found) > 1:
        note += f" Differences are paired by run; those to {best}: {together.describe()}, whichever is truly best."
        usual = quantile(simultaneous_level(run.level, together.family), max(1, result.runs - 1))
        if together.critical > _WIDE * usual:
            note += " A rule with rare, very long runs widens them all: play more runs, or leave it out."
    if run.baseline is not None:
        note += f" Those to {run.baseline} hold together among themselves."
    if "given_up" in found[0].further:
        note += " A queue is kept short by giving up, too: look at both."
    unstable = [name for name in result.policies if "unstable" in result.verdict[name]] if _routes(result) else []
    if unstable:
        note += f" Some runs of {', '.join(unstable)} were ended as unstable."
    return Table(title, tuple(columns), tuple(rows), note=note)


def _routes(result: Any) -> bool:
    return isinstance(result, dispatch.Result)


def winner(found: Sequence[Standing], what: str = "mean regret", unit: str = "jobs") -> str:
    """Who wins, by how much, in one sentence; or that the runs cannot tell."""
    first = found[0]
    if len(found) == 1:
        return f"{first.name} is the only policy: {what} {_interval(first.value)} {unit}."
    behind = {standing.name: standing.behind.difference for standing in found[1:] if standing.behind is not None}
    beaten = [name for name, difference in behind.items() if difference.low > 0]
    close = [name for name in behind if name not in beaten]
    named = close[0] if close else found[1].name
    how_far = f"{_interval(behind[named])} {unit}"
    if not close:
        return f"{first.name} wins: its {what} is {how_far} below that of {named}, the next."
    others = f", and it is below {', '.join(beaten)}" if beaten else ""
    return (
        f"{first.name} has the smallest {what}, but {first.value.runs} runs cannot tell it from {' or '.join(close)}: "
        f"{named} is {how_far} behind{others}."
    )


def _interval(estimate: Estimate | Difference) -> str:
    return interval(estimate.mean, estimate.low, estimate.high)


# --- pictures --------------------------------------------------------------------------------------------------------


def draw(result: Any) -> Any:
    """Regret of every policy over time. Where the largest would flatten the others the axis is logarithmic above 1."""
    if isinstance(result, dispatch.Result):
        return result.plot()
    figure = result.plot(window=25 if result.rounds >= 250 else 1)
    means = [abs(result.mean_regret(name).mean) for name in result.policies]
    if _spread(means):
        axes = figure.axes[0]
        low, high = axes.get_ylim()
        _logarithmic(axes)
        axes.set_ylim(max(low, -1.0), high)
    return figure


def _spread(means: Sequence[float]) -> bool:
    sizes = [abs(mean) for mean in means if math.isfinite(mean)]
    return bool(sizes) and max(sizes) > _SPREAD * max(min(sizes), 0.05)


def _logarithmic(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator, SymmetricalLogLocator

    axes.set_yscale("symlog", linthresh=1.0)
    axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1.0, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylabel(f"{axes.get_ylabel()}, logarithmic above 1")


def draw_summary(cells: Sequence[Cell], parts: Sequence[Comparison], what: str, unit: str) -> Any:
    """Every policy's mean on every system: over the grid's values where it has one axis of numbers, else side by side."""
    numbers = _one_axis(cells)
    names = parts[0].result.policies
    # As high as the legend beside it needs.
    figure = new_figure(8.0 if numbers else max(8.0, 1.1 * len(parts) + 2.0), max(5.0, 0.6 + 0.2 * len(names)))
    axes = figure.add_subplot()
    found = [{standing.name: standing.value for standing in part.standings} for part in parts]
    # Side by side, so that intervals do not hide each other.
    step = (max(numbers[1]) - min(numbers[1])) / 100.0 if numbers else 0.5 / max(1, len(names) - 1)
    for position, name in enumerate(names):
        values = [standing[name] for standing in found]
        mean = [value.mean for value in values]
        bars = [[m - value.low for m, value in zip(mean, values, strict=True)], [v.high - v.mean for v in values]]
        look = style(position)
        shift = step * (position - 0.5 * (len(names) - 1))
        places = [x + shift for x in (numbers[1] if numbers else range(len(parts)))]
        axes.errorbar(
            places,
            mean,
            yerr=bars,
            label=label_of(parts[0].result.label(name), name),
            color=look["color"],
            linestyle=look["linestyle"] if numbers else "none",
            marker="o",
            markersize=4,
            capsize=2,
        )
    axes.set_ylabel(f"{what} ({unit})")
    if _spread([value.mean for standing in found for value in standing.values()]):
        _logarithmic(axes)
    axes.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    if numbers:
        axes.set_xlabel(numbers[0])
    else:
        axes.set_xticks(range(len(parts)), [label_of(part.name, part.name) for part in parts])
        if sum(len(part.name) for part in parts) > 60:
            axes.tick_params(axis="x", labelrotation=20)
    frameless(axes)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9, handlelength=3.2)
    return figure


def _one_axis(cells: Sequence[Cell]) -> tuple[str, list[float]] | None:
    """The grid's only axis and its values, where they are different numbers."""
    keys = {key for cell in cells for key in cell.grid}
    if len(keys) != 1:
        return None
    key = keys.pop()
    values = [cell.grid.get(key) for cell in cells]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    numbers = [float(value) for value in values if value is not None]
    return (key, numbers) if len(set(numbers)) == len(cells) else None


# --- concluding ------------------------------------------------------------------------------------------------------


def conclude(
    result: Any, out: Path, title: str, extra: Mapping[str, Any] | None = None, run: Run | None = None, name: str = ""
) -> Comparison:
    """Rank the policies of a result, draw their regret, and write figure, table and JSON to `out`."""
    run = run or Run()
    found, together = standings(result, run)
    what, unit = measured(result, run)
    sentence = winner(found, what, unit)
    table = standings_table(found, together, result, run, title)
    files = save_figure(draw(result), out, "figure")
    value_key = _ESTIMATES[run.measure] if _routes(result) else "mean_regret"
    length = {"arrivals": int(result.arrivals[-1])} if _routes(result) else {"rounds": result.rounds}
    results: dict[str, Any] = {
        "version": VERSION,
        "title": title,
        **length,
        "runs": result.runs,
        "seed": result.settings["seed"],
        "level": run.level,
        "ranked_by": value_key,
        "intervals": together.describe(),
        **(extra or {}),
        "policies": [
            {
                "name": standing.name,
                "label": standing.label,
                value_key: estimate_json(standing.value),
                "behind_best": _pair_json(standing.behind),
                **({} if run.baseline is None else {"minus_baseline": _pair_json(standing.against)}),
                **{key: estimate_json(estimate) for key, estimate in standing.further.items()},
            }
            for standing in found
        ],
        "conclusion": sentence,
    }
    files.append(write_text(out / "comparison.json", to_json(results) + "\n"))
    files.append(write_text(out / "comparison.md", f"# {title}\n\n{sentence}\n\n{table.markdown()}"))
    return Comparison(name or title, result, found, sentence, table, tuple(files), results)


def _pair_json(pair: Pair | None) -> dict[str, Any] | None:
    return None if pair is None else {**estimate_json(pair.difference), "adjusted_p": pair.p}


def conclude_all(
    title: str, cells: Sequence[Cell], results: Sequence[Any], run: Run, out: Path, *, runs_kept: bool = True
) -> Found:
    """Conclude on every system, and on all of them side by side where there are several."""
    parts = []
    for cell, result in zip(cells, results, strict=True):
        folder = folder_of(out, cell, len(cells))
        length = f"{result.arrivals[-1]:,} arrivals" if _routes(result) else f"{result.rounds} rounds"
        heading = f"{cell.name}: {result.runs} runs of {length}"
        part = conclude(result, folder, heading, {"settings": result.settings}, run, cell.name)
        parts.append(part._replace(files=(*part.files, folder / "rows") if runs_kept else part.files))
    if len(parts) == 1:
        (only,) = parts
        return Found((only,), (only.table,), (only.sentence,), only.files, only.results)
    what, unit = measured(results[0], run)
    table = summary_table(parts, what, unit, title)
    sentences = summary_sentences(parts)
    files = save_figure(draw_summary(cells, parts, what, unit), out, "summary")
    summary = {
        "version": VERSION,
        "title": title,
        "conclusions": list(sentences),
        "systems": [{"name": part.name, **part.results} for part in parts],
    }
    files.append(write_text(out / "summary.json", to_json(summary) + "\n"))
    lines = [f"# {title}", "", *(f"- {sentence}" for sentence in sentences), "", table.markdown()]
    files.append(write_text(out / "summary.md", "\n".join([*lines, *(part.table.markdown() for part in parts)])))
    everything = (*files, *(folder_of(out, cell, len(cells)) for cell in cells))
    return Found(tuple(parts), (*(part.table for part in parts), table), sentences, everything, summary)


def summary_table(parts: Sequence[Comparison], what: str, unit: str, title: str) -> Table:
    """A row per system: every policy's mean, and which is best."""
    names = list(dict.fromkeys(standing.name for part in parts for standing in part.standings))
    rows = []
    for part in parts:
        values = {standing.name: standing.value for standing in part.standings}
        means = [_interval(values[name]) if name in values else "" for name in names]
        rows.append((part.name, *means, part.decided or "undecided"))
    note = (
        f"{what[:1].upper()}{what[1:]} in {unit}, each with its own interval. A best policy is named where its paired "
    )
    note += "differences to all others leave out 0 together; intervals hold per system, not over all systems at once."
    return Table(title, ("system", *names, "best"), tuple(rows), note=note)


def summary_sentences(parts: Sequence[Comparison]) -> tuple[str, ...]:
    """Which policy is best on how many systems; and system by system where they are few."""
    decided = [part.decided for part in parts]
    counts = {name: decided.count(name) for name in dict.fromkeys(decided) if name is not None}
    said = [f"{name} is best on {count} of {len(parts)} systems" for name, count in counts.items()]
    if None in decided:
        said.append(f"{decided.count(None)} of {len(parts)} are undecided")
    return (f"{'; '.join(said)}.", *(f"{part.name}: {part.sentence}" for part in parts))


def describe_json(experiment: Experiment) -> dict[str, Any]:
    """What a folder says of the experiment in it: how policies are compared, and where each system's results are."""
    return {
        "title": experiment.title,
        "model": experiment.model,
        "version": VERSION,
        "run": experiment.run._asdict(),
        "systems": [
            {"name": cell.name, "folder": cell.folder if len(experiment.cells) > 1 else "", "grid": cell.grid}
            for cell in experiment.cells
        ],
        "policies": [policy.name for policy in experiment.policies],
        "described": experiment.described,
        "first_run": 0,
        "runs": experiment.run.runs,
    }


def compare(
    path: Path,
    out: Path,
    *,
    workers: int | None = None,
    progress: bool = False,
) -> Found:
    """Run the experiment in a TOML file, rank its policies on every system, and write everything to `out`.

    What an earlier, interrupted call left in `out` is taken up again.

    Raises
    ------
    ValueError : for a mistake in the file, or a folder that cannot be written to or holds another experiment.
    """
    experiment = read(path)
    output_folder(out)
    try:
        results = play(experiment, out, workers=workers, progress=progress)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    write_text(out / EXPERIMENT, to_json(describe_json(experiment)) + "\n")
    return conclude_all(experiment.title, experiment.cells, results, experiment.run, out)
