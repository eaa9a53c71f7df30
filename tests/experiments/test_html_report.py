"""The page about a folder: what it says of every layout, that its HTML is sound, and that it needs nothing else."""

from __future__ import annotations

import base64
import json
import math
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.dispatch.simulate import simulate as dispatch
from queuewise.dispatch.systems import System
from queuewise.experiments import html_page, html_report, html_tables
from queuewise.experiments.accounts import p_value, value_text
from queuewise.experiments.claims import Claim, Part, claims_table, parts_table
from queuewise.experiments.compare import conclude
from queuewise.experiments.html_report import report
from queuewise.experiments.report import Table, to_json
from queuewise.loading import pool
from queuewise.runs.result import ORACLE, Result, Rows, Summed
from queuewise.runs.statistics import Estimate

EVIL = '<script>alert("1")</script> & $x$ "ü'
NAMES = ["wise", EVIL, "random"]
ROUNDS = 30
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Parses strictly: every element closed in order; collects texts, links, anchors, pictures, tables."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.anchors: list[str] = []
        self.links: list[str] = []
        self.pictures: list[str] = []
        self.alternatives: list[str] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.widths: list[int] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        assert len(found) == len(attrs), f"an attribute twice in {tag}"
        assert not any(name.startswith("on") for name in found)
        if "id" in found:
            self.anchors.append(str(found["id"]))
        if "href" in found:
            self.links.append(str(found["href"]))
        if "src" in found:
            self.pictures.append(str(found["src"]))
            self.alternatives.append(str(found["alt"]))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"{tag} closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)
        if self.rows and ("td" in self.open or "th" in self.open):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def checked(path: Path) -> Page:
    """The page, after all that holds of every page."""
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "base", "form"} & set(page.tags)
    assert page.tags.count("h1") == 1 and page.tags.count("main") == 1
    assert len(set(page.anchors)) == len(page.anchors)
    assert all(link.startswith("#") and link[1:] in page.anchors for link in page.links)
    assert all(re.match(r"data:image/(svg\+xml|png);base64,", picture) for picture in page.pictures)
    assert all(page.alternatives)
    assert "url(" not in text and "@import" not in text
    # No address of another place but the names of XML dialects, which are inside the pictures' base64.
    assert "http://" not in text and "https://" not in text
    for row in page.rows:
        assert len(row) >= 2
    assert "nan" not in page.text.lower().replace("nancy", "").split()
    return page


def pictures(page: Page) -> list[bytes]:
    return [base64.b64decode(picture.partition(",")[2]) for picture in page.pictures]


def settings(seed: int = 3) -> dict[str, Any]:
    policies = [{"name": n, "rule": "wise", "options": {"ridge": 1.5, "radius": None}, "label": n} for n in NAMES]
    system = {"law": "wise_figure_law", "q": 0.15, "long": list(range(400))}
    return {
        "model": "scheduling",
        "rounds": ROUNDS,
        "seed": seed,
        "system": system,
        "policies": policies,
        "version": "0.0.7",
    }


def scheduling(runs: int = 20, seed: int = 3, gap: int = 2) -> Result:
    rng = np.random.default_rng(seed)
    common = rng.integers(0, 20, (runs, ROUNDS))
    columns = {ORACLE: common}
    columns |= {name: common + rng.integers(0, 3 + gap * place, (runs, ROUNDS)) for place, name in enumerate(NAMES)}
    return Result(settings(seed), Rows({name: column.astype(np.int32) for name, column in columns.items()}))


@pytest.fixture(scope="module")
def dispatched() -> Any:
    return dispatch(System(1.6, [1, 2]), ["sed", "jsq", "random"], arrivals=400, runs=12, seed=2, quantiles=[0.9])


def test_one_scheduling_result(tmp_path: Path) -> None:
    result = scheduling()
    result.save(tmp_path / "mine")
    found = report(tmp_path / "mine")
    assert found.path == tmp_path / "mine" / "report.html"
    page = checked(found.path)
    for sentence in found.sentences:
        assert " ".join(sentence.split()) in page.text
    assert "wise has the smallest mean regret" in found.sentences[0]
    # The names are there as they are, and as no markup.
    assert EVIL in page.text and "<script>alert" not in found.path.read_text()
    order = [row[0] for row in page.rows if row[1:2] in (["1"], ["2"], ["3"])][:3]
    assert order == NAMES
    expected = result.mean_regret("wise")
    assert value_text(*expected[:3]) in page.text
    behind = result.compare_all().of("random", "wise")
    assert value_text(*behind.difference[:3]) in page.text
    assert len(page.pictures) == 4  # differences, regret, convergence, single runs
    assert "radius = not set" in page.text and "ridge = 1.5" in page.text
    assert "400 values, from 0 to 399" in page.text
    assert "queuewise 0.0.7" in page.text
    assert json.loads(next(text for text in page.texts if text.startswith("{"))) == result.settings
    titles = [table.title for table in found.tables]
    for words in ("Policies by", "All pairs by", "Convergence of"):
        assert f"{words} mean regret" in titles
    (numbers,) = found.results["results"]
    assert numbers["order"] == NAMES and numbers["method"] == "max_t" and len(numbers["pairs"]) == 3
    assert numbers["effects_against_first"]["random"]["better"]["value"] == pytest.approx(
        result.effects("random", "wise").better.value
    )
    json.loads(to_json(found.results))


def test_the_same_folder_gives_the_same_page(tmp_path: Path) -> None:
    scheduling().save(tmp_path / "mine")
    first = report(tmp_path / "mine").path.read_bytes()
    assert report(tmp_path / "mine").path.read_bytes() == first
    elsewhere = report(tmp_path / "mine", tmp_path / "other" / "page.html")
    assert elsewhere.path == tmp_path / "other" / "page.html" and elsewhere.path.read_bytes() == first
    assert not [path for path in (tmp_path / "mine").iterdir() if path.name.startswith(".")]


def test_one_dispatching_result(tmp_path: Path, dispatched: Any) -> None:
    dispatched.save(tmp_path / "rows")
    found = report(tmp_path)
    page = checked(found.path)
    assert [entry["measure"] for entry in found.results["results"]] == ["mean sojourn time", "regret"]
    for words in (
        "Regret by cause",
        "misestimation",
        "overflow",
        "oracle",
        "90 % quantile",
        "of the dispatching model",
    ):
        assert words in page.text
    quantile = dispatched.quantile("jsq", 0.9)
    assert value_text(*quantile[:3]) in page.text
    assert len(page.pictures) == 8 - 1  # one of regret over arrivals for both measures


def test_a_single_run_decides_nothing(tmp_path: Path) -> None:
    scheduling(runs=1).save(tmp_path / "rows")
    found = report(tmp_path)
    checked(found.path)
    assert found.sentences == ["wise has the smallest mean regret (" + found.sentences[0].split("(")[1]]
    assert "in the single run, which decides nothing" in found.sentences[0]


def test_few_runs_fall_back_and_say_so(tmp_path: Path) -> None:
    scheduling(runs=5).save(tmp_path / "rows")
    found = report(tmp_path)
    assert "Bonferroni, since 5 runs are too few to resample" in checked(found.path).text
    assert found.results["results"][0]["method"] == "bonferroni"


def test_moments_alone(tmp_path: Path) -> None:
    rows = scheduling()
    kept = Summed(NAMES, ROUNDS, [(1, ROUNDS)])
    for run in range(20):
        columns = {name: rows.queue_length[name][run] for name in NAMES}
        kept.add({ORACLE: rows.oracle_queue_length[run], **columns})
    Result(settings(), kept).save(tmp_path / "rows")
    found = report(tmp_path)
    page = checked(found.path)
    assert "keep='moments'" in page.text and "The runs themselves were not kept" in page.text
    assert "unknown" in [row[-1] for row in page.rows]  # the share of runs
    assert len(page.pictures) == 2


def test_pooled_runs_of_two_seeds(tmp_path: Path) -> None:
    whole = pool([scheduling(seed=3), scheduling(seed=5)])
    whole.save(tmp_path / "rows")
    found = report(tmp_path)
    page = checked(found.path)
    assert "over 40 runs of 30 rounds, seeds 3 and 5" in page.text
    assert "seed 5, first run 0, runs 20" in page.text and "numbers of runs" not in page.text
    assert found.results["results"][0]["seed"] == [3, 5]


def test_the_output_of_compare(tmp_path: Path) -> None:
    result = scheduling()
    result.save(tmp_path / "rows")
    conclude(result, tmp_path, f"My system & {EVIL}")
    found = report(tmp_path)
    page = checked(found.path)
    assert f"My system & {EVIL}" in page.text and len(page.pictures) == 4
    # Without its rows, what was written down is left.
    for path in sorted((tmp_path / "rows").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    bare = report(tmp_path)
    page = checked(bare.path)
    assert value_text(*result.mean_regret("random")[:3]) in page.text
    assert len(page.pictures) == 1 and "wise" in bare.sentences[0]


def reproduction(folder: Path) -> list[Any]:
    estimates = [Estimate(-1.0, -2.0, 0.0, 1.0, 20), Estimate(0.5, 0.1, 0.9, 0.4, 20)]
    claims = [
        Claim("It is below", "Paper, 1", "20 runs", [Part("one|half", [estimates[0]]), Part("two", [estimates[1]])]),
        Claim("It is below", "Paper, 1", "5 instances", [Part("one|half", [estimates[0]])]),
    ]
    verdicts = [claim.judge() for claim in claims]
    facts = Table("Facts | more", ("setting", "jobs"), (("one|half", "3"),), note="A note.")
    tables = [facts, parts_table(verdicts), claims_table(verdicts)]
    (folder / "claims.json").write_text(
        to_json(
            {
                "reproduction": "my-figure",
                "reference": "Paper",
                "version": "0.0.7",
                "quick": True,
                "claims": [verdict.as_json() for verdict in verdicts],
                "conclusions": ["It does not hold."],
            }
        )
    )
    (folder / "claims.md").write_text("# Mine\n\n- said\n\n" + "\n".join(table.markdown() for table in tables))
    return verdicts


def test_a_reproduction(tmp_path: Path) -> None:
    verdicts = reproduction(tmp_path)
    figure = scheduling().plot()
    figure.savefig(tmp_path / "figure.png")
    figure.savefig(tmp_path / "figure.svg")
    figure.savefig(tmp_path / "figure-two.png")
    for load in (10, 2):
        scheduling(seed=load).save(tmp_path / "rows" / f"load{load}")
    found = report(tmp_path)
    page = checked(found.path)
    assert found.results["title"] == "my-figure: Paper"
    assert found.sentences == ["It does not hold."]
    assert [row[1] for row in page.rows if row[0].startswith("It is below")] == [verdicts[0].verdict]
    assert [row[1] for row in page.rows if row[2:3] == ["5 instances"]] == [verdicts[1].verdict]
    assert {"does not", "holds"} == {verdict.verdict for verdict in verdicts}
    assert "Facts | more" in page.text and "one|half" in page.text and "A note." in page.text
    # What stands in claims.json already is not shown again.
    assert "What the claims rest on" not in page.text
    assert "Made with --quick" in page.text
    kinds = [picture[:18] for picture in page.pictures]
    assert kinds[:2] == ["data:image/svg+xml", "data:image/png;bas"]
    # Results in order of their numbers, each with its own account.
    assert page.text.index("load2") < page.text.index("load10")
    assert len(page.pictures) == 2 + 2 * 4


def test_a_reproduction_without_runs(tmp_path: Path) -> None:
    reproduction(tmp_path)
    found = report(tmp_path)
    page = checked(found.path)
    assert "It does not hold." in page.text and not page.pictures


def test_many_results_are_summed_up(tmp_path: Path, dispatched: Any) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps({"title": "A sweep", "conclusions": ["Many."]}))
    for cell in range(8):
        scheduling(seed=cell + 1, gap=0 if cell == 7 else 2).save(tmp_path / f"cell-{cell}" / "rows")
    dispatched.save(tmp_path / "other" / "rows")
    found = report(tmp_path)
    page = checked(found.path)
    assert found.sentences[0] == "Many." and found.results["title"] == "A sweep"
    wins = next(table for table in found.tables if table.title == "How often each policy is first, by mean regret")
    rows = {row[0]: [int(cell) for cell in row[1:]] for row in wins.rows}
    assert sum(first for _, first, _, _ in rows.values()) == 8
    assert rows["wise"][0] == 8 and rows["wise"][2] <= rows["wise"][1]
    overview = next(table for table in found.tables if table.title == "All results, by mean regret")
    assert [row[0] for row in overview.rows] == [f"cell-{cell}" for cell in range(8)]
    assert [row[-1] for row in overview.rows][:7] == ["0"] * 7
    assert "other" in page.text and "by mean sojourn time" in page.text
    assert len(found.results["results"]) == 8 + 2


def test_the_experiments_own_choices(tmp_path: Path, dispatched: Any) -> None:
    choices = {"title": "Mine", "run": {"over": [21, 30], "measure": "number_in_system", "baseline": "random"}}
    (tmp_path / "experiment.json").write_text(json.dumps(choices))
    result = scheduling()
    result.save(tmp_path / "a" / "rows")
    dispatched.save(tmp_path / "b" / "rows")
    found = report(tmp_path)
    page = checked(found.path)
    late, *queues = found.results["results"]
    assert late["means"]["wise"]["mean"] == pytest.approx(result.mean_regret("wise", (21, 30)).mean)
    assert late["measure"] == "mean regret over rounds 21–30"
    assert [entry["measure"] for entry in queues] == ["mean number in system", "mean sojourn time", "regret"]
    against = next(table for table in found.tables if table.title.startswith("Against the baseline random"))
    difference = result.compare_all(rounds=(21, 30), against="random").of("wise", "random").difference
    assert against.rows[0][:2] == ("wise", value_text(*difference[:3]))
    assert "2 intervals hold together" in page.text


def test_one_long_run(tmp_path: Path) -> None:
    dispatch(System(1.6, [1, 2]), ["sed", "jsq"], arrivals=2000, runs=1, seed=2).save(tmp_path / "rows")
    found = report(tmp_path)
    page = checked(found.path)
    assert "with a single run, those of averages are over batches of it" in page.text
    assert all("in the single run, which decides nothing" in sentence for sentence in found.sentences)


def test_damaged_results_are_named(tmp_path: Path) -> None:
    scheduling().save(tmp_path / "good")
    scheduling(seed=4).save(tmp_path / "bad")
    for path in (tmp_path / "bad" / "runs").iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    found = report(tmp_path)
    assert "bad is left out:" in checked(found.path).text
    assert len(found.results["results"]) == 1


def test_unstable_runs(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system = System(2.4, [1, 2], most_in_system=30)
        result = dispatch(system, ["sed", "random"], arrivals=3000, runs=10, seed=2)
    assert "unstable" in result.verdict["random"]
    result.save(tmp_path / "rows")
    found = report(tmp_path)
    page = checked(found.path)
    assert f"{result.verdict['random'].count('unstable')} of 10" in page.text


@pytest.mark.parametrize("make", ["missing", "file", "empty", "settings only"])
def test_nothing_to_report(tmp_path: Path, make: str) -> None:
    folder = tmp_path / "out"
    if make == "file":
        folder.write_text("x")
    elif make != "missing":
        folder.mkdir()
    if make == "settings only":
        (folder / "settings.json").write_text(json.dumps(settings()))
    expected = "is not a folder" if make in ("missing", "file") else "has nothing to report"
    with pytest.raises(ValueError, match=f"^folder: .*{expected}"):
        report(folder)
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("text", ["{", '{"claims": [{"claim": 1, "verdict": 2, "parts": 3}]}'])
def test_damaged_findings(tmp_path: Path, text: str) -> None:
    (tmp_path / "claims.json").write_text(text)
    with pytest.raises(ValueError, match=r"^folder: .*claims\.json (cannot be read|is damaged)"):
        report(tmp_path)


def test_out_must_be_a_file(tmp_path: Path) -> None:
    scheduling(runs=2).save(tmp_path / "rows")
    with pytest.raises(ValueError, match="out: must be the name of a file"):
        report(tmp_path, tmp_path)


def test_pictures_are_those_of_the_figures(tmp_path: Path) -> None:
    scheduling().save(tmp_path / "rows")
    page = checked(report(tmp_path).path)
    for picture in pictures(page):
        assert picture.lstrip().startswith(b"<?xml") and b"</svg>" in picture


# --- the parts --------------------------------------------------------------------------------------------------------


def test_table_markup() -> None:
    table = Table(
        "A <title>", ("name", "number", "verdict"), (("a<b", "1.5 [1.0, 2.0]", "holds"), ("c", "", "x\ny")), "n & m"
    )
    page = Page(html_page.table(table))
    assert page.rows == [["name", "number", "verdict"], ["a<b", "1.5 [1.0, 2.0]", "holds"], ["c", "", "xy"]]
    text = html_page.table(table)
    assert '<td class="n">1.5 <span class="ci">[1.0, 2.0]</span></td>' in text
    assert '<td class="holds">' in text and "a&lt;b" in text and "n &amp; m" in text and "x<br>y" in text


@pytest.mark.parametrize(
    ("p", "text"), [(0.0001, "< 0.001"), (0.0123, "0.012"), (0.46, "0.46"), (1.0, "1.00"), (math.nan, "")]
)
def test_p_value(p: float, text: str) -> None:
    assert p_value(p) == text


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.0, 0.0, 0.0), "0"),
        ((1234.6, 1200.2, 1300.0), "1235 [1200, 1300]"),
        ((1.0, 0.5, 1.5), "1.00 [0.50, 1.50]"),
        ((1.0, -math.inf, math.inf), "1.00 [-∞, ∞]"),
    ],
)
def test_value_text(numbers: tuple[float, float, float], text: str) -> None:
    assert value_text(*numbers) == text


def test_markdown_tables_come_back(tmp_path: Path) -> None:
    tables = [
        Table("One | two", ("a", "b|c"), (("x", "1"), ("y|z", "")), note="Said."),
        Table("Next", ("a", "b"), (("p", "q"),)),
    ]
    (tmp_path / "m.md").write_text("# All\n\n" + "\n".join(table.markdown() for table in tables))
    found = html_tables.markdown_tables(tmp_path / "m.md")
    assert [(t.title, t.columns, t.rows, t.note) for t in found] == [
        (t.title, t.columns, t.rows, t.note) for t in tables
    ]
    assert html_tables.markdown_tables(tmp_path / "none.md") == []


def test_paths_are_ordered_by_their_numbers() -> None:
    names = ["load10", "load2", "load0.3-b", "load0.3-a"]
    assert sorted(names, key=html_report._natural) == ["load0.3-a", "load0.3-b", "load2", "load10"]
