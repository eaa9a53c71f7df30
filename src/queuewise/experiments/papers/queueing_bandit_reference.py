"""Q-UCB in its authors' setting, against the curve that they published with their program.

Three users, five servers, jobs with probability 0.35 a slot, 10,000 slots. The published numbers are means over 1000 runs and
the standard deviations of a run, at 531 times (``qucb_reference/qucb_queue_regret.csv`` in the folder ``QUEUEWISE_DATA``).

How the curves are compared. At every time t > 0 and for every user, z = (ours − published)/(sd √(1/runs + 1/1000)), sd² the
variance of a run, pooled from both. (With separate ones every low mean would look sure: where few runs are far above the rest,
low means come with low deviations.) Neighbouring times are all but the same, so 1590 z are not 1590 chances. What the largest
|z| may be is found from our own runs: if both curves are means of the same process, the z are jointly normal (nearly) with the
correlations that the runs have. Centred runs, weighted with independent normal numbers and summed, are draws of such z; c is
the 95% quantile of the largest |z| over all users and times. "Agree" means: no |z| above c. That is the absence of a
contradiction. How large a difference could have gone unnoticed stands in a table: the largest |ours − published| that the
joint 95% band leaves room for. Beside that, Hotelling's T² of the differences at a few times far apart.

As long as exploration is certain (the first 600 slots or so) the expected regret is also known exactly, and the published curve
is held against it with no simulation of ours in between.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import matching
from ...fields import require_choice
from ...matching.loop import CONFLICTS
from ...matching.simulate import MATCHINGS, RANDOMNESS, Result
from ...matching.systems import STARTS
from ...runs import statistics
from ...runs.plot import new_figure, save_figure
from ..claims import Claim, Part, Verdict, known, parts_table, sentence
from ..registry import Outcome, Request
from ..report import Progress, Table, interval, output_folder
from . import _figures, _report

NAME = "queueing-bandit-reference"
REFERENCE = "Krishnasamy et al., published runs"
FILE = Path("qucb_reference") / "qucb_queue_regret.csv"
SYSTEM = matching.System(
    arrival_rates=[0.35, 0.35, 0.35],
    service_rates=[[0.5, 0.33, 0.33, 0.33, 0.25], [0.33, 0.5, 0.25, 0.33, 0.25], [0.25, 0.33, 0.5, 0.25, 0.25]],
)
SLOTS, PUBLISHED_RUNS = 10_000, 1000
#: Slots at which the published curve is known, and ours is written down.
MARKS = (*range(0, 200, 5), *range(200, SLOTS + 1, 20))
#: An early time, for the claim that the regret rises from there on while everything is exploration.
EARLY = 100
#: Times far enough apart that all differences can be judged together.
APART = (50, 200, 500, 800, 1200, 1600, 2000, 3000, 5000, 8000, 10_000)
#: Draws of the largest |z|; the error of its 95% quantile's level is half a percent.
DRAWS = 2000
LEVEL = 0.95
#: Rows of weights in memory at a time.
_BATCH = 200
#: Keep draws for statistics apart from those of the simulation, which has the same seed.
_LARGEST, _PEAK = 0x7A00_0000, 0x7B00_0000

SAME = "Our curve and the published one agree (largest |z| within chance)"
EXACT = "While exploration is certain, the published curve agrees with the exact expectation"
COUPLED = "Common and independent randomness agree on the mean regret"
RISE = "Regret rises while exploration is certain (slot 620 against slot 100)"
DECAY = "Regret decays: at slot 10,000 it is below a tenth of slot 620's"

Floats = NDArray[np.float64]


class Published(NamedTuple):
    """mean, sd : float64[mark, user]"""

    mean: Floats
    sd: Floats


def published() -> tuple[Published | None, str]:
    """The published curve, or None and a sentence that says where it was looked for. ValueError for a file of another form."""
    folder = os.environ.get("QUEUEWISE_DATA", "")
    if not folder:
        return None, f"The environment variable QUEUEWISE_DATA names no folder in which to look for {FILE}"
    path = Path(folder) / FILE
    if not path.is_file():
        return None, f"There is no {FILE} in the folder that QUEUEWISE_DATA names, {folder}"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = np.array(list(csv.reader(file))[1:], dtype=np.float64)
        if (
            table.shape != (len(MARKS), 1 + 2 * SYSTEM.users)
            or tuple(table[:, 0]) != MARKS
            or not np.isfinite(table).all()
        ):
            raise ValueError
    except (OSError, ValueError):
        raise ValueError(
            f"QUEUEWISE_DATA: {path} must be a table of {len(MARKS)} times, each with a mean and a standard deviation "
            f"for {SYSTEM.users} users"
        ) from None
    return Published(table[:, 1 : 1 + SYSTEM.users], table[:, 1 + SYSTEM.users :]), ""


# --- statistics ------------------------------------------------------------------------------------------------------


def largest_z(values: Floats, seed: int, draws: int = DRAWS) -> Floats:
    """Draws of the largest |z| among the columns of values[run, column], for means that are correlated as these are.

    float64[draws], ascending. Columns that are the same in every run take no part.
    """
    centred = values - values.mean(axis=0)
    spread = np.sqrt(np.square(centred).sum(axis=0))
    scaled = centred[:, spread > 0] / spread[spread > 0]
    rng = np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(_LARGEST,)))
    found = []
    for at in range(0, draws, _BATCH):
        z = rng.standard_normal((min(_BATCH, draws - at), len(values))) @ scaled
        found.append(np.abs(z).max(axis=1, initial=0.0))
    return np.sort(np.concatenate(found))


class Comparison(NamedTuple):
    """z, error : float64[mark, user], NaN and 0 where nothing varies; `error` is the difference's · critical : what the largest
    |z| stays below with probability LEVEL · p : probability, by chance, of a largest |z| as large as the one found"""

    z: Floats
    error: Floats
    critical: float
    p: float

    @property
    def largest(self) -> Floats:
        """The largest |z| of each user."""
        return np.asarray(np.nanmax(np.abs(self.z), axis=0))


def compared(difference: Floats, error: Floats, values: Floats, seed: int) -> Comparison:
    """Judge differences with their standard errors (float64[mark, user] each), correlated as values[run, mark, user] are."""
    z = np.divide(difference, error, out=np.full(error.shape, np.nan), where=error > 0)
    largest = largest_z(values.reshape(len(values), -1), seed)
    critical = float(largest[min(len(largest), math.ceil(LEVEL * (len(largest) + 1))) - 1])
    reached = len(largest) - int(np.searchsorted(largest, np.nanmax(np.abs(z))))
    return Comparison(z, error, critical, (1 + reached) / (1 + len(largest)))


def with_published(result: Result, randomness: str, there: Published, seed: int) -> Comparison:
    """Our curve minus the published one.

    Their runs had independent randomness, and its variance is taken for ours too, even where ours have common randomness and
    less variance: of that, a few hundred runs know too little, since late regret comes from few runs.
    """
    runs, alike = result.runs, result.regrets("independent")
    squares = (runs - 1) * alike.var(axis=0, ddof=1) + (PUBLISHED_RUNS - 1) * np.square(there.sd)
    error = np.sqrt(squares / (runs + PUBLISHED_RUNS - 2) * (1.0 / runs + 1.0 / PUBLISHED_RUNS))
    return compared(result.regrets(randomness).mean(axis=0) - there.mean, error, alike, seed)


def jointly(result: Result, randomness: str, there: Published) -> tuple[float, int, float] | None:
    """Hotelling's T² of all users' differences to the published curve at the times APART, their number, and the probability of
    a larger T² by chance. None where the runs are too few to know the covariances of so many."""
    from scipy.special import fdtrc

    at = [MARKS.index(mark) for mark in APART]
    alike = result.regrets("independent")[:, at].reshape(result.runs, -1)
    runs, count = alike.shape
    if runs < 2 * count:
        return None
    difference = result.regrets(randomness)[:, at].mean(axis=0).ravel() - there.mean[at].ravel()
    covariance = np.cov(alike, rowvar=False) * (1.0 / runs + 1.0 / PUBLISHED_RUNS)
    squared = float(difference @ np.linalg.solve(covariance, difference))
    return squared, count, float(fdtrc(count, runs - count, squared * (runs - count) / (count * (runs - 1))))


def certain_marks() -> int:
    """How many of MARKS lie in the slots of certain exploration."""
    return int(np.searchsorted(MARKS, matching.certain_exploration(SYSTEM.servers), side="right"))


def with_exact(result: Result, there: Published, start: str, seed: int) -> Comparison:
    """The published curve minus the exact one, while exploration is certain."""
    marks = list(MARKS[: certain_marks()])
    mean, sd = (table[marks] for table in matching.exploring_regret(SYSTEM, marks[-1], start))
    early = result.regrets("independent")[:, : len(marks)]
    return compared(there.mean[: len(marks)] - mean, sd / math.sqrt(PUBLISHED_RUNS), early, seed)


def between_couplings(result: Result, seed: int) -> Comparison:
    """Regret with independent randomness minus that with common randomness, paired by run."""
    difference = result.regrets("independent") - result.regrets("common")
    error = difference.std(axis=0, ddof=1) / math.sqrt(result.runs)
    return compared(difference.mean(axis=0), error, difference, seed)


def peak(regrets: Floats, seed: int, draws: int = 1000) -> tuple[int, tuple[int, int]]:
    """The slot where the mean of regrets[run, mark] is largest, with a 95% bootstrap interval (whole runs are resampled)."""
    rng = np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(_PEAK,)))
    times = rng.multinomial(len(regrets), np.full(len(regrets), 1.0 / len(regrets)), size=draws)
    tops = np.sort((times.astype(np.float64) @ regrets).argmax(axis=1))
    tail = round(draws * (1.0 - LEVEL) / 2.0)
    return MARKS[int(regrets.mean(axis=0).argmax())], (MARKS[tops[tail]], MARKS[tops[-1 - tail]])


# --- claims, tables, figure ------------------------------------------------------------------------------------------


def users(estimates: Sequence[Any], bound: float, direction: Any) -> list[Part]:
    """A part per user."""
    return [Part(f"user {u}", [estimate], bound, direction) for u, estimate in enumerate(estimates, 1)]


def claims(result: Result, randomness: str, comparisons: dict[str, Comparison]) -> list[Verdict]:
    """What was said about the curve; about the published one only where there is one."""
    regrets = result.regrets(randomness)
    way = f"{result.runs} runs"
    ways = {SAME: way, EXACT: f"{PUBLISHED_RUNS} published", COUPLED: way}
    found = [
        Claim(text, REFERENCE, ways[text], users([known(z) for z in one.largest], one.critical, "below")).judge(LEVEL)
        for text, one in comparisons.items()
    ]
    early, end = MARKS.index(EARLY), certain_marks() - 1
    rise = [statistics.interval(regrets[:, end, u] - regrets[:, early, u]) for u in range(SYSTEM.users)]
    decay = [statistics.interval(regrets[:, -1, u] - 0.1 * regrets[:, end, u]) for u in range(SYSTEM.users)]
    found += [
        Claim(RISE, REFERENCE, way, users(rise, 0.0, "above")).judge(LEVEL),
        Claim(DECAY, REFERENCE, way, users(decay, 0.0, "below")).judge(LEVEL),
    ]
    return found


def facts(result: Result, randomness: str, there: Published | None, seed: int) -> Table:
    """The peaks and the ends of the curves."""
    regrets = result.regrets(randomness)
    rows = []
    for u in range(SYSTEM.users):
        slot, (low, high) = peak(regrets[:, :, u], seed)
        for name, mean, sd, runs in (
            ("ours", regrets[:, :, u].mean(axis=0), regrets[:, :, u].std(axis=0, ddof=1), result.runs),
            *((("published", there.mean[:, u], there.sd[:, u], PUBLISHED_RUNS),) if there is not None else ()),
        ):
            top = int(mean.argmax())
            half = 1.96 * sd / math.sqrt(runs)
            rows.append(
                (
                    f"user {u + 1}, {name}",
                    f"{slot} [{low}, {high}]" if name == "ours" else f"{MARKS[top]}",
                    interval(mean[top], mean[top] - half[top], mean[top] + half[top]),
                    interval(mean[-1], mean[-1] - half[-1], mean[-1] + half[-1]),
                )
            )
    return Table(
        f"Queue regret, {result.runs} runs, {randomness} randomness",
        ("curve", "slot of its peak", "height of the peak", f"at slot {SLOTS:,}"),
        tuple(rows),
        note="95% intervals; that of the slot by resampling runs.",
    )


def differences(result: Result, randomness: str, there: Published, comparison: Comparison) -> Table:
    """Where and by how much our curve and the published one differ."""
    difference = result.regrets(randomness).mean(axis=0) - there.mean
    rows = []
    for u in range(SYSTEM.users):
        z = comparison.z[:, u]
        at = int(np.nanargmax(np.abs(z)))
        room = np.abs(difference[:, u]) + comparison.critical * comparison.error[:, u]
        rows.append(
            (
                f"user {u + 1}",
                f"{abs(z[at]):.2f} at {MARKS[at]}",
                f"{math.sqrt(np.nanmean(np.square(z))):.2f}",
                f"{100 * np.nanmean(np.abs(z) < 2.0):.0f}%",
                f"{np.abs(difference[:, u]).max():.2f}",
                f"{room.max():.2f}",
            )
        )
    return Table(
        "Ours minus the published curve",
        ("", "largest |z|", "root mean\nsquare of z", "|z| < 2", "largest\ndifference", "not excluded"),
        tuple(rows),
        note=f"By chance alone the largest |z| of all is below {comparison.critical:.2f} with 95% probability, and as large as "
        f"here with probability {comparison.p:.2f}. Differences in jobs; the last column is the largest one within the "
        "joint 95% band.",
    )


def draw(
    result: Result, randomness: str, there: Published | None, comparison: Comparison | None, out: Path
) -> list[Path]:
    """A column per user: both curves with their bands, and z below."""
    figure = new_figure(12.0, 6.2 if there is not None else 4.2)
    ratios = [2.2, 1.0] if there is not None else [1.0]
    panels = figure.subplots(len(ratios), SYSTEM.users, sharex=True, sharey="row", squeeze=False, height_ratios=ratios)
    regrets = result.regrets(randomness)
    marks = np.array(MARKS)
    end = matching.certain_exploration(SYSTEM.servers)
    for u in range(SYSTEM.users):
        top = panels[0, u]
        if there is not None:
            half = 2.0 * there.sd[:, u] / math.sqrt(PUBLISHED_RUNS)
            look = {"color": _figures.VERMILION, "linewidth": 1.3}
            top.plot(marks, there.mean[:, u], label=f"published, {PUBLISHED_RUNS} runs, ± 2 standard errors", **look)
            low, high = there.mean[:, u] - half, there.mean[:, u] + half
            top.fill_between(marks, low, high, color=_figures.VERMILION, alpha=0.2, linewidth=0)
        ours = f"ours, {result.runs} runs, 95% intervals"
        _figures.draw_curve(top, marks, regrets[:, :, u], ours, color=_figures.BLUE, linewidth=1.3)
        top.set_title(f"user {u + 1}", fontsize=10.5, loc="left")
        top.set_xscale("log")
        top.set_xlim(MARKS[1], SLOTS)
        for axes in panels[:, u]:
            axes.axvline(end, color="0.55", linewidth=0.9, linestyle=":", label=f"exploration certain up to slot {end}")
            _figures.bare(axes)
        if comparison is not None:
            below = panels[1, u]
            label = f"± {comparison.critical:.2f}, joint 95% bound on |z|"
            below.axhspan(-comparison.critical, comparison.critical, color="0.93", zorder=0, label=label)
            below.axhline(0.0, color="0.6", linewidth=0.8)
            below.plot(marks, comparison.z[:, u], color=_figures.BLACK, linewidth=0.9, label="z of ours − published")
        panels[-1, u].set_xlabel("slot")
    panels[0, 0].set_ylabel("queue regret (jobs)")
    panels[0, 0].set_ylim(bottom=0.0)
    handles, names = panels[0, 0].get_legend_handles_labels()
    if comparison is not None:
        panels[1, 0].set_ylabel("z")
        more, words = panels[1, 0].get_legend_handles_labels()
        handles, names = [*handles, *more[1:]], [*names, *words[1:]]
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(f"Q-UCB, 3 users, 5 servers: mean Q − Q*, {randomness} randomness", fontsize=12)
    return save_figure(figure, out, "figure")


# --- the command -----------------------------------------------------------------------------------------------------


def run(request: Request) -> Outcome:
    """Simulate, compare, judge, and write everything to ``request.out``."""
    chosen = dict(request.parameters)
    allowed = {"matching": MATCHINGS, "conflict": CONFLICTS, "start": STARTS, "randomness": RANDOMNESS}
    for name, words in allowed.items():
        require_choice(name, chosen[name], words)
    randomness = chosen.pop("randomness")
    there, missing = published()
    out = output_folder(request.out)
    with Progress(request.runs, shown=request.progress) as progress:
        result = matching.simulate(
            SYSTEM,
            slots=SLOTS,
            runs=request.runs,
            seed=request.seed,
            checkpoints=MARKS,
            workers=request.workers,
            folder=out / "rows",
            progress=progress.begin("simulating"),
            **chosen,
        )
        progress.begin("comparing and drawing")
        regrets = result.regrets(randomness)
        comparisons = {}
        if there is not None:
            comparisons[SAME] = with_published(result, randomness, there, request.seed)
            comparisons[EXACT] = with_exact(result, there, chosen["start"], request.seed)
        comparisons[COUPLED] = between_couplings(result, request.seed)
        files = draw(result, randomness, there, comparisons.get(SAME), out)
    verdicts = claims(result, randomness, comparisons)
    tables = [facts(result, randomness, there, request.seed)]
    said = [
        f"{name}: by chance the largest |z| is below {one.critical:.2f} with 95% probability; found {one.largest.max():.2f} "
        f"(p = {one.p:.2f})."
        for name, one in zip(
            ("Ours against the published curve", "Published against exact", "Independent against common randomness"),
            (comparisons.get(SAME), comparisons.get(EXACT), comparisons[COUPLED]),
            strict=True,
        )
        if one is not None
    ]
    if there is None:
        said += [f"{missing}: only our own curve is drawn, and claims about the published one are left out."]
    else:
        tables.append(differences(result, randomness, there, comparisons[SAME]))
        joint = jointly(result, randomness, there)
        if joint is not None:
            said.append(
                f"At {len(APART)} times far apart, all {joint[1]} differences together: T² = {joint[0]:.1f} "
                f"(p = {joint[2]:.2f})."
            )
    share = float(
        np.mean(result.regrets("common")[:, 1:].var(axis=0) / result.regrets("independent")[:, 1:].var(axis=0))
    )
    said += [
        f"Up to slot {matching.certain_exploration(SYSTEM.servers)} exploration is certain, so until then no matching by "
        "indices takes place.",
        f"With common randomness the variance of a run's regret is {100 * share:.0f}% of that with independent randomness "
        "(average over users and times).",
    ]
    results = {
        "parameters": dict(request.parameters),
        "slots": list(MARKS),
        "published": there is not None,
        "regret": {
            f"user {u + 1}": {
                "mean": regrets[:, :, u].mean(axis=0).tolist(),
                "sd": regrets[:, :, u].std(axis=0, ddof=1).tolist(),
                **({"z": comparisons[SAME].z[:, u].tolist()} if there is not None else {}),
            }
            for u in range(SYSTEM.users)
        },
        "largest_z": {
            text: {"per_user": one.largest.tolist(), "critical": one.critical, "p": one.p}
            for text, one in comparisons.items()
        },
    }
    sentences = [*map(sentence, verdicts), *said]
    return _report.finish(
        request, NAME, REFERENCE, verdicts, tables, sentences, results, files, below=[parts_table(verdicts)]
    )
