"""``queuewise report FOLDER``: one self-contained page about the results in a folder, as a referee would want to read them.

A folder is taken as what it holds: results of one experiment (``settings.json`` and ``runs/``), the output of ``compare``,
``replay`` or ``reproduce`` (results in ``rows/``, figures, a JSON file of what was found), or many of these below each
other. Nothing is simulated: the page is computed from the rows, so the same folder gives the same page.
"""

from __future__ import annotations

import itertools
import json
import math
import platform
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._version import VERSION
from ..dispatch.result import Result as DispatchResult
from ..loading import load
from ..runs import diagnostics
from ..runs.plot import new_figure, shortened
from ..runs.result import Described, Result
from ..runs.store import FOR_PEOPLE, SETTINGS
from . import html_page as html
from . import html_tables as tables
from .accounts import Account, account, and_, conclusion, estimate_text, measures, value_text
from .compare import draw
from .report import Table, estimate_json, output_folder, short, to_json, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The page's name in the folder, unless another is asked for.
PAGE = "report.html"
#: Files beside results that say what was found, by the command that wrote them.
FINDINGS = ("claims.json", "summary.json", "comparison.json", "replay.json", "sweep.json", "experiment.json")
#: More results than this are listed without the full account of each.
MOST_IN_FULL = 6
#: A larger SVG file is left out for the PNG file of the same name.
_LARGEST_SVG = 1_500_000
#: Packages whose versions are named.
_PACKAGES = ("numpy", "scipy", "numba", "pyarrow", "matplotlib")
#: Most rows of the table of all pairs that are not folded away.
_MOST_PAIRS = 15


class Report(NamedTuple):
    """What was written: the page, its conclusions, its tables of findings, and the same as plain JSON values."""

    path: Path
    sentences: list[str]
    tables: list[Table]
    results: dict[str, Any]


@dataclass(frozen=True)
class Found:
    """A result and what it says.

    Attributes
    ----------
    where : str
        Its path below the folder; empty for the folder itself.
    described : Described
        Its settings.
    runs : int
    accounts : tuple of Account
        One by each measure.
    result : Result or None
        None where results are many, so that only one is in memory at a time.
    """

    where: str
    described: Described
    runs: int
    accounts: tuple[Account, ...]
    result: Any

    @property
    def label(self) -> str:
        """Where it stood, without the folders that are called ``rows`` in any case; empty for the folder itself."""
        return "/".join(part for part in Path(self.where).parts if part != "rows")


def report(folder: Path, out: Path | None = None) -> Report:
    """Write the page about the results in a folder.

    Parameters
    ----------
    folder : holds results, at any depth.
    out : the page's path; None for ``report.html`` in the folder.

    Raises
    ------
    ValueError : the folder does not exist, has nothing to report, holds damaged results, or cannot be written to.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"folder: {str(folder)!r} is not a folder")
    path = folder / PAGE if out is None else Path(out)
    if path.is_dir():
        raise ValueError(f"out: must be the name of a file, and {str(path)!r} is a folder")
    output_folder(path.parent)
    findings = _findings(folder)
    results, notes = _results(folder, _run(findings))
    pictures = _pictures(folder)
    if not results and not findings:
        hint = f" ({notes[0]})" if notes else ""
        raise ValueError(f"folder: {folder} has nothing to report: no {SETTINGS} with finished runs below it{hint}")
    writer = _Writer(folder, findings, notes)
    writer.write(results, pictures)
    written = write_text(path, html.page(writer.title, writer.pieces))
    return Report(written, writer.sentences, writer.tables, writer.results)


# --- what is there ----------------------------------------------------------------------------------------------------


def _findings(folder: Path) -> dict[str, Any]:
    """What a command found and wrote down, by file name."""
    found = {}
    for name in FINDINGS:
        path = folder / name
        if not path.is_file():
            continue
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"folder: {path} cannot be read ({type(error).__name__})") from error
        if isinstance(value, dict):
            found[name] = value
    return found


def _run(findings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table [run] of the experiment's description, where there is one: what its author wanted to compare by."""
    run = findings.get("experiment.json", {}).get("run")
    return run if isinstance(run, Mapping) else {}


def _results(folder: Path, run: Mapping[str, Any]) -> tuple[list[Found], list[str]]:
    """Every result below a folder, in order of their paths with numbers in them as numbers, and what was left out."""
    found, notes = [], []
    paths = [path.parent for path in folder.rglob(SETTINGS)]
    paths.sort(key=lambda path: _natural(path.relative_to(folder).as_posix()))
    full = len(paths) <= MOST_IN_FULL
    for path in paths:
        where = path.relative_to(folder).as_posix()
        where = "" if where == "." else where
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = load(path)
            except ValueError as error:
                notes.append(f"{where or folder.name} is left out: {error}.")
                continue
        notes += [f"{where or folder.name}: {warning.message}." for warning in caught]
        if not isinstance(result, Result | DispatchResult):
            notes.append(f"{where or folder.name} is left out: its model has no comparison of policies by queues.")
            continue
        wanted = measures(isinstance(result, DispatchResult), run)
        accounts = tuple(account(result, measure, full, run.get("baseline")) for measure in wanted)
        described = Described(result.settings, result.first_run)
        found.append(Found(where, described, result.runs, accounts, result if full else None))
    return found, notes


def _natural(text: str) -> list[tuple[float, str]]:
    """A key that puts load2 before load10."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(part), "") if i % 2 else (math.inf, part) for i, part in enumerate(parts)]


def _pictures(folder: Path) -> list[Path]:
    """Figures at the top of the folder, one file of each name."""
    stems: dict[str, Path] = {}
    for path in sorted(folder.glob("*.png")):
        stems[path.stem] = path
    for path in sorted(folder.glob("*.svg")):
        if path.stat().st_size <= _LARGEST_SVG or path.stem not in stems:
            stems[path.stem] = path
    return [stems[stem] for stem in sorted(stems, key=_natural)]


def versions() -> dict[str, str]:
    """This package and what it computes with."""
    found = {"queuewise": VERSION, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


METHOD = (
    (
        "Runs and pairing",
        "A run is one independent repetition. Within a run all policies, and the oracle, meet the same arrivals and the same "
        "luck of service, so policies are compared by the difference within each run: what they share cancels.",
    ),
    (
        "Intervals of a mean",
        "Student's t over runs at 95 %: of all such intervals, 95 % hold the true mean. Each is for one mean by itself. "
        "Whether two policies differ is not to be read from whether their intervals overlap, but from their difference.",
    ),
    (
        "Simultaneous intervals and adjusted p",
        "Which policy comes first is seen only in the runs, so the intervals of differences are wide enough that those of all "
        "pairs hold together in 95 % of experiments. Max-t takes the needed width from the largest |t| in resamples of whole "
        "runs, which keeps the dependence between policies and the skewness of runs (single-step max-t; Westfall and Young "
        "1993, Romano and Wolf 2005). With fewer than 8 runs, or where runs were not kept, it is Student's t with "
        "Bonferroni's correction. An adjusted p-value is the chance of a |t| this large anywhere in the family if no policies "
        "differed; it is at most 0.05 exactly where the simultaneous interval leaves out 0.",
    ),
    (
        "Effect sizes",
        "The ratio of two means has Fieller's interval, and is undefined where the mean below may be 0. d_z is the mean "
        "difference in standard deviations of a run's difference, with Hedges' correction and the interval of the noncentral "
        "t distribution; it says how visible a difference is in one run, and depends on the length of runs. The share of runs "
        "in which a policy beats the first counts ties half and has Wilson's interval.",
    ),
    (
        "Convergence",
        "Mean and interval of the first n runs. A width that falls like 1/√n, and a mean that stays inside earlier "
        "intervals, are what independent runs with a finite variance give; jumps are single extreme runs.",
    ),
)


# --- the page ---------------------------------------------------------------------------------------------------------


class _Writer:
    """Collects the page's pieces, and with them its sentences, tables and JSON."""

    def __init__(self, folder: Path, findings: Mapping[str, Any], notes: Sequence[str]) -> None:
        self._folder = folder
        self.findings, self.notes = findings, list(notes)
        self.title = self._title(folder)
        self.pieces: list[str] = []
        self.sentences: list[str] = []
        self.tables: list[Table] = []
        self.results: dict[str, Any] = {"title": self.title, "versions": versions(), "results": []}
        self._sections: list[tuple[str, str]] = []
        self._salt = itertools.count(1)

    def _title(self, folder: Path) -> str:
        for value in self.findings.values():
            if isinstance(value.get("title"), str):
                return str(value["title"])
        claims = self.findings.get("claims.json")
        if claims is not None and "reproduction" in claims:
            return f"{claims['reproduction']}: {claims.get('reference', 'claims')}"
        return folder.resolve().name or "Results"

    def write(self, results: Sequence[Found], pictures: Sequence[Path]) -> None:
        claims = self.findings.get("claims.json")
        single = len(results) == 1
        if claims is not None:
            try:
                self._claims(claims)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"folder: {self._folder / 'claims.json'} is damaged ({error!r})") from error
        self._conclude(results, claims is not None)
        # Figures of a single result are drawn again below, from its rows, with what is said about them.
        if pictures and not (single and claims is None):
            self._section("Figures", "figures")
            for path in pictures:
                self._picture(path)
        if len(results) > 1:
            self._overview(results)
        for number, one in enumerate(results, 1):
            if one.result is not None:
                self._result(one, "" if single else f"{number}-", single)
        if any(one.result is None for one in results):
            self.pieces.append(
                html.paragraph(
                    f"With more than {MOST_IN_FULL} results, each is summed up by a line. The full account of one is what "
                    f"queuewise report makes of its own folder."
                )
            )
        if not results and "comparison.json" in self.findings:
            try:
                self._compared(self.findings["comparison.json"])
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"folder: {self._folder / 'comparison.json'} is damaged ({error!r})") from error
        self._method(bool(results))
        self._versions(results)
        self._front(results)

    # --- parts of it

    def _section(self, title: str, anchor: str) -> None:
        self._sections.append((anchor, title))
        self.pieces.append(html.heading(2, title, anchor))

    def _table(self, table: Table, folded: str = "", listed: bool = True) -> None:
        """listed : among those that a terminal shows; settings are for the page alone."""
        if listed:
            self.tables.append(table)
        piece = html.table(table)
        self.pieces.append(html.folded(folded, [piece]) if folded else piece)

    def _figure(self, figure: Figure, caption: str, alternative: str) -> None:
        self.pieces.append(html.drawn(figure, caption, alternative, f"report-{next(self._salt)}"))

    def _picture(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            self.notes.append(f"{path.name} is left out: {error.strerror or error}.")
            return
        kind = "svg+xml" if path.suffix == ".svg" else "png"
        self.pieces.append(html.figure(content, kind, path.name, f"Figure from the file {path.name}"))

    def _front(self, results: Sequence[Found]) -> None:
        """Title, conclusions and contents, which are known last."""
        under = [self._summary(results)] if results else []
        pieces = [html.heading(1, self.title), *(html.paragraph(text, "under") for text in under)]
        if self.sentences:
            pieces.append(html.listed(self.sentences))
        pieces += [html.paragraph(note, "warn") for note in self.notes]
        self.pieces[:0] = [*pieces, html.contents(self._sections)]
        self.results["conclusions"] = list(self.sentences)
        self.results["notes"] = list(self.notes)

    def _summary(self, results: Sequence[Found]) -> str:
        if len(results) > 1:
            runs = sorted({one.runs for one in results})
            each = f"{runs[0]} runs" if len(runs) == 1 else f"{runs[0]} to {runs[-1]} runs"
            return f"{len(results)} results of {each} each. Made by queuewise {and_(_made_by(results))}."
        (one,) = results
        settings = one.described.settings
        routes = settings.get("model") == "dispatch"
        size = f"{settings['arrivals']} arrivals" if routes else f"{settings['rounds']} rounds"
        names = one.described.policies
        seed = settings["seed"]
        seeds = f"seeds {and_(list(map(str, seed)))}" if isinstance(seed, list) else f"seed {seed}"
        return (
            f"{len(names)} polic{'y' if len(names) == 1 else 'ies'} of the {'dispatching' if routes else 'scheduling'} model "
            f"over {one.runs} run{'s' * (one.runs != 1)} of {size}, {seeds}. Made by queuewise {one.described.version}."
        )

    def _claims(self, claims: Mapping[str, Any]) -> None:
        self._section("Claims", "claims")
        judged = [claim for claim in claims.get("claims", []) if {"claim", "verdict", "parts"} <= set(claim)]
        self.sentences += [str(text) for text in claims.get("conclusions", [])]
        if claims.get("quick"):
            self.pieces.append(
                html.paragraph(
                    "Made with --quick: few runs, for a first look. No claim should be judged by it.", "warn"
                )
            )
        if judged:
            self._table(tables.claims_table(judged))
            self.pieces.append(
                html.folded("The parts of every claim", [html.table(tables.parts_table(c)) for c in judged])
            )
        behind = [table for table in tables.markdown_tables(self._folder / "claims.md") if table.columns[0] != "claim"]
        if behind:
            self.pieces.append(html.folded("The tables that the claims rest on", map(html.table, behind)))
        self.results["claims"] = list(claims.get("claims", []))

    def _conclude(self, results: Sequence[Found], claimed: bool) -> None:
        for value in self.findings.values():
            for key in ("conclusions", "sentences"):
                texts = value.get(key)
                if not claimed and isinstance(texts, list):
                    self.sentences += [str(text) for text in texts]
        if len(results) == 1:
            self.sentences += [conclusion(here, results[0].runs) for here in results[0].accounts]
            for here in results[0].accounts:
                found = [
                    f"{here.measure.words} of {one.name}: {warning}"
                    for one in [*here.convergence.values(), *here.behind.values()]
                    for warning in one.warnings
                ]
                if found:
                    count = len(found) - 1
                    more = f" (under Convergence {'stand' if count > 1 else 'stands'} {count} more)" if count else ""
                    self.sentences.append(f"To be read with care: {found[0]}{more}.")

    def _overview(self, results: Sequence[Found]) -> None:
        self._section("All results", "all")
        for measure in dict.fromkeys(here.measure for one in results for here in one.accounts):
            lines = [(one, here) for one in results for here in one.accounts if here.measure == measure]
            found, those = [one for one, _ in lines], [here for _, here in lines]
            if max(len(here.order) for here in those) > 1:
                wins = tables.wins_table(those, measure.words)
                if "claims.json" not in self.findings and wins.rows:
                    name, many, first, sure, _ = wins.rows[0]
                    self.sentences.append(
                        f"By {measure.words}, {name} is first most often: in {first} of {many} results, significantly in "
                        f"{sure}."
                    )
                self._table(wins)
            table = tables.overview_table([(one.label, one.runs) for one in found], those, measure.words)
            self._table(table, "Every result by " + measure.words if len(found) > 3 * MOST_IN_FULL else "")
            for one, here in lines:
                self._json(one, here)
        self._table(tables.policies_table([one.described for one in results]), listed=False)
        self.pieces.append(
            html.folded(
                "Settings of every result (JSON)",
                [html.preformatted(to_json({one.where or ".": one.described.settings for one in results}))],
            )
        )

    def _result(self, one: Found, prefix: str, single: bool) -> None:
        result, accounts = one.result, one.accounts
        if not single:
            self._section(one.label or "This folder", f"{prefix}result")
        for here in accounts:
            words = here.measure.words
            anchor = f"{prefix}{re.sub(r'[^a-z0-9]+', '-', words)}"
            if single:
                self._section(f"Ranking by {words}", anchor)
                self._json(one, here)
            else:
                self.pieces.append(html.heading(3, f"Ranking by {words}", anchor))
                self.pieces.append(html.paragraph(conclusion(here, result.runs)))
            self._table(tables.ranking_table(here))
            self._differences(result, here)
            if here.against is not None:
                self._table(tables.against_table(here, here.against))
            if len(here.order) > 2:
                pairs = tables.pairs_table(here)
                self._table(pairs, "All pairs of policies" if len(pairs.rows) > _MOST_PAIRS or not single else "")
        self._head(single, "Regret over time", f"{prefix}regret-over-time")
        self._curves(result)
        if isinstance(result, DispatchResult):
            self._head(single, "Regret by cause", f"{prefix}causes")
            self._table(tables.causes_table(result))
        else:
            left = tables.given_up_table(result)
            if left is not None:
                self._table(left)
        if any(here.convergence for here in accounts):
            self._head(single, "Convergence with runs", f"{prefix}convergence")
            for here in accounts:
                self._convergence(result, here)
            self._head(single, "Single runs", f"{prefix}runs")
            for here in accounts:
                self._distribution(result, here)
        elif result.runs > 1:
            self.pieces.append(
                html.paragraph(
                    "The runs themselves were not kept (or ended early), so neither the convergence of intervals nor single "
                    "runs can be shown.",
                    "warn",
                )
            )
        self._what(result, prefix, single)

    def _head(self, single: bool, title: str, anchor: str) -> None:
        if single:
            self._section(title, anchor)
        else:
            self.pieces.append(html.heading(3, title, anchor))

    def _places(self, result: Any, names: Sequence[str]) -> list[int]:
        return [result.policies.index(name) for name in names]

    def _differences(self, result: Any, here: Account) -> None:
        if result.runs < 2 or len(here.order) < 2:
            return
        found = [here.comparison(name) for name in here.order[1:]]
        found = [comparison for comparison in found if math.isfinite(comparison.difference.low)]
        if not found:
            return
        figure = new_figure(8.0, 1.15 + 0.36 * len(found))
        names = [comparison.difference.first for comparison in found]
        unit = here.measure.unit
        diagnostics.draw_comparisons(
            figure.add_subplot(), found, self._places(result, names), f"above {here.order[0]} ({unit})"
        )
        said = "; ".join(f"{c.difference.first} {estimate_text(c.difference)}" for c in found)
        self._figure(
            figure,
            f"Differences in {here.measure.words} to {here.order[0]}, with intervals that hold together over all pairs. A "
            "hollow point is not told from 0.",
            f"Differences in {here.measure.words} to {here.order[0]}: {said}.",
        )

    def _curves(self, result: Any) -> None:
        if isinstance(result, DispatchResult):
            figure, over = result.plot(), "arrivals"
        else:
            figure, over = draw(result), "rounds"
        shown = f", {figure.axes[0].get_title(loc='left')}"
        figure.axes[0].set_title("", loc="left")
        ends = "; ".join(f"{name} {short(float(result.regret(name).mean[-1]))}" for name in result.policies)
        self._figure(
            figure,
            f"Regret over {over}{shown}. The band is that of each point by itself.",
            f"Curves of mean regret over {over}. At the end: {ends}.",
        )

    def _convergence(self, result: Any, here: Account) -> None:
        if not here.convergence:
            return
        names = [name for name in here.order if name in here.convergence]
        behind = [name for name in names if name in here.behind]
        columns = max(1, min(4, 120 // (6 + max(len(shortened(name)) for name in names))))
        # Room for the legend's lines below the panels.
        figure = new_figure(9.6, 3.9 + 0.2 * max(0, len(names) // columns - 1))
        unit = f"{here.measure.words} ({here.measure.unit})"
        axes = figure.subplots(1, 2)
        means = [here.convergence[name] for name in names]
        diagnostics.draw_means(axes[0], means, self._places(result, names), unit)
        differences = [here.behind[name] for name in behind] or means
        what = f"half width of the difference\nto {here.order[0]}" if behind else "half width"
        diagnostics.draw_half_widths(axes[1], differences, self._places(result, behind or names), what)
        handles, labels = axes[0].get_legend_handles_labels()
        more, further = axes[1].get_legend_handles_labels()
        if further and further[-1] == "1/√n":
            handles, labels = [*handles, more[-1]], [*labels, further[-1]]
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(columns, len(labels)), frameon=False, fontsize=9
        )
        table = tables.convergence_table(here)
        self._figure(
            figure,
            f"{here.measure.words.capitalize()} of the first n runs with its interval (left), and how the paired "
            "differences' intervals narrow (right).",
            "; ".join(f"{row[0]}: {row[2]} after {row[1]} runs" for row in table.rows) + ".",
        )
        self._table(table)
        for one in [*here.convergence.values(), *here.behind.values()]:
            self.pieces += [html.paragraph(f"{one.name}: {warning}.", "warn") for warning in one.warnings]

    def _distribution(self, result: Any, here: Account) -> None:
        values = {name: here.values[name] for name in here.order if name in here.values}
        values = {name: runs for name, runs in values.items() if np.isfinite(runs).any()}
        if not values:
            return
        figure = new_figure(8.0, 1.1 + 0.52 * len(values))
        words = f"{here.measure.words} ({here.measure.unit})"
        diagnostics.draw_distribution(figure.add_subplot(), values, self._places(result, list(values)), words)
        medians = "; ".join(f"{name} {short(float(np.nanmedian(v)))}" for name, v in values.items())
        self._figure(
            figure,
            f"Every run's {here.measure.words}: a point each; box from quartile to quartile, thick line at the median, diamond "
            "at the mean.",
            f"Distribution of the {here.measure.words} of single runs. Medians: {medians}.",
        )

    def _what(self, result: Any, prefix: str, single: bool) -> None:
        self._head(single, "What was run", f"{prefix}what")
        settings = dict(result.settings)
        system = settings.pop("system", {})
        settings.pop("policies", None)
        described = settings.get("description")
        for key in FOR_PEOPLE:
            settings.pop(key, None)
        if "pooled" not in settings:  # else it says which runs there are
            settings = {"numbers of runs": f"{result.first_run} to {result.first_run + result.runs - 1}", **settings}
        both = [
            tables.settings_table("System", system if isinstance(system, Mapping) else {"system": system}),
            tables.settings_table("Runs", {"runs": result.runs, **settings}),
        ]
        self.pieces.append(html.beside(map(html.table, both)))
        if isinstance(described, str):
            title = "The system's constants, and which theorems' assumptions it meets"
            self.pieces.append(html.folded(title, [html.preformatted(described)]))
        self._table(tables.policies_table([result]), listed=False)
        self.pieces.append(
            html.folded(
                "To run it again: all settings as JSON (settings.json)", [html.preformatted(to_json(result.settings))]
            )
        )
        self.pieces.append(
            html.paragraph(
                "The same settings, seed and version give the same numbers in every run, whatever the number of threads. "
                "simulate(..., folder=...) with these settings and the folder of these rows continues them.",
                "note",
            )
        )

    def _compared(self, found: Mapping[str, Any]) -> None:
        """What ``compare`` wrote, where its rows are gone."""
        self._section("Ranking", "ranking")
        rows = []
        for policy in found.get("policies", []):
            cells = [
                "" if value is None else value_text(value["mean"], value["low"], value["high"])
                for value in (policy.get("mean_regret"), policy.get("behind_best"))
            ]
            rows.append((str(policy["name"]), *cells))
        self._table(Table("Policies by mean regret", ("policy", "mean regret", "above the first"), tuple(rows)))
        if isinstance(found.get("conclusion"), str):
            self.sentences.append(found["conclusion"])

    def _method(self, measured: bool) -> None:
        if not measured:
            return
        self._section("What the numbers mean", "method")
        self.pieces.append(html.definitions(METHOD))

    def _versions(self, results: Sequence[Found]) -> None:
        self._section("Versions", "versions")
        made = _made_by(results) or [str(v["version"]) for v in self.findings.values() if "version" in v][:1]
        rows = [("rows were made by", f"queuewise {and_(made)}")] if made else []
        with_ = {json.dumps(one.described.settings.get("made_with")) for one in results}
        if len(with_) == 1:
            rows += [
                (f"rows were made with: {name}", version) for name, version in (json.loads(with_.pop()) or {}).items()
            ]
        rows += [(f"this page: {name}", version) for name, version in versions().items()]
        self._table(Table("What made these numbers", ("what", "version"), tuple(rows)), listed=False)

    def _json(self, one: Found, here: Account) -> None:
        self.results["results"].append(
            {
                "result": one.where,
                "measure": here.measure.words,
                "unit": here.measure.unit,
                "runs": one.runs,
                "seed": one.described.settings["seed"],
                "version": one.described.version,
                "order": here.order,
                "means": {name: estimate_json(here.means[name]) for name in here.order},
                "method": here.pairs.method,
                "method_reason": here.pairs.reason,
                "level": here.pairs.level,
                "critical": here.pairs.critical,
                "pairs": [
                    {
                        "first": comparison.difference.first,
                        "second": comparison.difference.second,
                        **estimate_json(comparison.difference),
                        "adjusted_p": comparison.p,
                    }
                    for comparison in here.pairs
                ],
                "effects_against_first": {
                    name: {key: getattr(effects, key)._asdict() for key in ("standardised", "better", "ratio")}
                    for name, effects in here.effects.items()
                },
                "warnings": [
                    f"{found.name}: {warning}"
                    for found in [*here.convergence.values(), *here.behind.values()]
                    for warning in found.warnings
                ],
            }
        )


def _made_by(results: Sequence[Found]) -> list[str]:
    return sorted({one.described.version for one in results})
