"""What a TOML file may say, and the one sentence for everything that it may not."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise import dispatch
from queuewise.experiments.description import parse, read
from queuewise.scheduling.systems import Family

POLICY = [{"rule": "random"}]
LAW = {"law": "uniform_law"}
QUEUES = {"service_rates": [1, 2], "arrival_rate": 1}
TABLE = """context,server,probability,weight,one,two
a,x,0.9,3,1,0
a,y,0.3,3,0,1
b,x,0.4,1,1,1
b,y,0.8,1,0,2
"""


def system(**keys: Any) -> dict[str, Any]:
    return {"system": keys, "policy": POLICY}


def toml(text: str) -> dict[str, Any]:
    return {"policy": POLICY, **tomllib.loads(text)}


def test_a_table_in_the_file() -> None:
    found = parse(
        system(law="table", arrival_rate=0.5, features=[[[1.0], [0.5]]], probabilities=[[0.8, 0.6]]),
    )
    assert found.system.servers == 2
    assert (found.run.rounds, found.run.runs, found.run.seed) == (2000, 100, 1)


def test_a_table_from_csv_has_contexts_servers_features_and_weights(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(TABLE)
    law = parse(system(law="table", file="table.csv", arrival_rate=0.4), tmp_path).system.law
    np.testing.assert_allclose(law.probabilities, [[0.9, 0.3], [0.4, 0.8]])
    np.testing.assert_allclose(law.weights, [0.75, 0.25])
    np.testing.assert_allclose(law.features[1], [[1, 0], [1, 2]])  # [feature, server]


def test_recorded_outcomes_have_a_table_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("id,size,fast,slow\n1,1,1,0\n2,2,0.5,0.9\n3,3,0.2,0.8\n")
    text = (
        "[system.recorded]\nfile = 'log.csv'\nid = 'id'\noutcomes = ['fast', 'slow']\nfeatures = ['size']\n"
        "grid.load = [0.5, 0.8]\n"
    )
    found = parse(toml(text), tmp_path)
    assert [cell.name for cell in found.cells] == ["load=0.5", "load=0.8"]
    assert [cell.system.slack() for cell in found.cells] == pytest.approx([0.5, 0.2])
    np.testing.assert_allclose(np.sort(found.system.law.probabilities, axis=0), [[0.2, 0], [0.5, 0.8], [1, 0.9]])


def test_fresh_makes_a_family() -> None:
    assert isinstance(parse(system(law="wise_figure_law", q=0.15, slack=0.1, fresh=True)).system, Family)


def test_queues_in_parallel() -> None:
    found = parse(
        toml(
            "[system]\nservice_rates = [5, '10/3']\nload = 0.3\nslots = [2, 1]\nservice = { law = 'erlang', phases = 3 }\n"
            "arrivals = 'regular'\ninitial_rates = [1, 2]\n"
        )
    )
    assert found.model == "dispatch"
    there = found.system
    assert there.load == pytest.approx(0.3, rel=1e-15)
    assert there.arrival_rate == float(Fraction(3, 10) * (10 + Fraction(10, 3)))
    assert (there.service.name, there.arrivals.settings()["process"]) == ("erlang", "regular")
    changing = parse(toml("[system]\nservice_rates = [[5, 10], [10, 5]]\ntimes = [0, 100]\narrival_rate = 3\n")).system
    np.testing.assert_array_equal(changing.rates, [[5, 10], [10, 5]])


def test_names_of_systems_are_what_tells_them_apart() -> None:
    text = """
[[system]]
law = "wise_figure_law"
q = 0.0
grid.slack = [0.05, 0.1]
[[system]]
name = "half / slow"
law = "wise_figure_law"
q = 0.5
slack = 0.1
"""
    cells = parse(toml(text)).cells
    assert [cell.name for cell in cells] == ["wise_figure_law, slack=0.05", "wise_figure_law, slack=0.1", "half / slow"]
    assert [cell.folder for cell in cells] == ["wise_figure_law-slack=0.05", "wise_figure_law-slack=0.1", "half-slow"]
    assert cells[1].grid == {"slack": 0.1}


def test_a_grid_of_policies_names_them() -> None:
    law = {"law": "wise_figure_law", "q": 0.0, "slack": 0.1}
    policies = [{"rule": "acqb", "name": "mine", "grid": {"samples": [1, 2], "ties": ["random"]}}, {"rule": "acqb"}]
    found = parse({"system": law, "policy": policies}).policies
    assert [policy.name for policy in found] == ["mine samples=1, ties=random", "mine samples=2, ties=random", "acqb"]
    assert [policy.options["samples"] for policy in found] == [1, 2, 5]


OWN = """
import queuewise as qw
from queuewise.scheduling import Policy

def make(rate, twice=False):
    return qw.scheduling.table_law([[[1.0]]], [[0.9]], arrival_rate=rate * (1 + twice))

def queues():
    return qw.dispatch.System(1.0, [1, 2])

def broken():
    raise KeyError("no")

def decide(params, state, columns, waiting, stream):
    return waiting.slots[0], 0, 0

def first(*, name="", **options):
    return Policy("first", decide, name=name, options=options, defaults={"a": 1})

FIXED = Policy("fixed", decide)
number = 3
"""


def test_systems_and_rules_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "described_own.py").write_text(OWN)
    text = """
[system]
law = "described_own.py:make"
rate = 0.2
grid.twice = [true, false]
[[policy]]
rule = "described_own.py:first"
a = 5
[[policy]]
rule = "described_own.py:FIXED"
name = "renamed"
"""
    found = parse(tomllib.loads(text), tmp_path)
    assert [cell.system.arrival_rate for cell in found.cells] == [0.4, 0.2]
    assert [policy.name for policy in found.policies] == ["first", "renamed"]
    assert found.policies[0].options == {"a": 5}
    queues = parse(system(law="described_own.py:queues"), tmp_path)
    assert isinstance(queues.system, dispatch.System)


@pytest.mark.parametrize(
    ("described", "sentence"),
    [
        (system(law="nowhere.py:make"), r"^\[system\] law: '.*nowhere.py' is no file$"),
        (system(law="own_mistakes.py"), r"^\[system\] law: 'own_mistakes.py' must say what is meant in the file"),
        (
            system(law="own_mistakes.py:mak"),
            r"own_mistakes.py has no 'mak'; it has make, queues, broken, decide, first",
        ),
        (system(law="own_mistakes.py:make"), r"own_mistakes.py:make: missing a required argument: 'rate'"),
        (
            system(law="own_mistakes.py:make", rate=2.0),
            r"^\[system\] law: arrival_rate must lie strictly between 0 and 1",
        ),
        (system(law="own_mistakes.py:broken"), r"own_mistakes.py:broken: KeyError: 'no'"),
        (system(law="own_mistakes.py:number"), r"own_mistakes.py:number is no function"),
        (system(law="own_mistakes.py:FIXED"), r"own_mistakes.py:FIXED is no function"),
        (system(law="own_syntax.py:make"), r"own_syntax.py cannot be imported: SyntaxError"),
        (
            {**system(**LAW), "policy": [{"rule": "own_mistakes.py:first", "b": 1}]},
            r"^\[\[policy\]\] 1 rule: b: no such parameter of 'first'",
        ),
        (
            {**system(**LAW), "policy": [{"rule": "own_mistakes.py:FIXED", "b": 1}]},
            r"^\[\[policy\]\] 1 rule: own_mistakes.py:FIXED is a policy already, so b must be left out$",
        ),
        (
            {**system(**LAW), "policy": [{"rule": "own_mistakes.py:make", "rate": 0.1}]},
            r"own_mistakes.py:make must return a policy of scheduling",
        ),
    ],
)
def test_a_mistake_in_a_file_of_ones_own(tmp_path: Path, described: dict[str, Any], sentence: str) -> None:
    import sys

    sys.modules.pop("user_own_mistakes", None)
    (tmp_path / "own_mistakes.py").write_text(OWN)
    (tmp_path / "own_syntax.py").write_text("def make(:\n")
    with pytest.raises(ValueError, match=sentence):
        parse(described, tmp_path)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same_name.py").write_text(OWN)
    parse(system(law="a/same_name.py:make", rate=0.1), tmp_path)
    with pytest.raises(ValueError, match=r"two files are called 'same_name.py' \(.*; rename one of them"):
        parse(system(law="b/same_name.py:make", rate=0.1), tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TABLE.replace("b,y,0.8,1,0,2\n", ""), "no line for context 'b' and server 'y'"),
        (TABLE + "b,y,0.8,1,0,2\n", "lines 5 and 6 are both for context 'b' and server 'y'"),
        (TABLE.replace("b,y,0.8,1", "b,y,0.8,2"), "line 5: column 'weight' gives context 'b' another weight"),
        (TABLE.replace("0.9", "high"), "line 2: column 'probability' has 'high', not a number"),
        (TABLE.replace("0.9,3,1,0", "0.9,3,1"), "line 2: has 5 values for 6 columns"),
        (TABLE.replace("server", "sever"), "no column 'server'; did you mean 'sever'"),
        ("context,server,probability\na,x,0.9\n", "no feature column"),
    ],
)
def test_a_mistake_in_a_csv_file_names_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"^\[system\] file: .*table.csv: .*{sentence}"):
        parse(system(law="table", file="table.csv", arrival_rate=0.4), tmp_path)


@pytest.mark.parametrize(
    ("described", "sentence"),
    [
        ({"policy": POLICY}, r"^\[system\] is missing"),
        ({**system(**LAW), "polcy": []}, r"^\[polcy\]: no such table; did you mean 'policy'"),
        ({**system(**LAW), "title": 3}, r"^title: must be a text"),
        (system(), r"^\[system\] law is missing"),
        (system(law="digits", fresh=True), r"^\[system\] fresh: law 'digits' has one instance only"),
        (system(law="uniform_law", fresh=True, seed=3), r"^\[system\] seed: must be left out"),
        (system(law="uniform_law", fresh="yes"), r"^\[system\] fresh: must be true or false"),
        (system(law="table", arrival_rate=0.5), r"^\[system\] features: is missing \(or file"),
        (system(law="outcomes", load=0.5), r"^\[system\] features: is missing \(a CSV file goes into a table"),
        (system(law="table", arrival_rate=0.5, file="nowhere.csv"), r"^\[system\] file: nowhere.csv: cannot be read"),
        (system(law="table", arrival_rate=0.5, file=3), r"^\[system\] file: must be a path"),
        (system(law="uniform_law", recorded={}), r"^\[system\] recorded: must be left out, law already says"),
        (system(recorded={}, load=0.5), r"^\[system\] load: no such key of a system of recorded outcomes"),
        (system(recorded=3), r"^\[system.recorded\] must be a table"),
        (system(recorded={"fil": "x"}), r"^\[system.recorded\] fil: no such key; did you mean 'file'"),
        ({"system": [], "policy": POLICY}, r"^\[\[system\]\] is empty"),
        ({"system": [LAW, {"law": "x"}], "policy": POLICY}, r"^\[system 2\] law: there is none called 'x'"),
        (
            {"system": [LAW, LAW], "policy": POLICY},
            r"^\[system\] name: 'uniform_law' and 'uniform_law' would have the same folder",
        ),
        (
            {"system": [{**LAW, "name": "A b"}, {**LAW, "name": "a-b"}], "policy": POLICY},
            r"'A b' and 'a-b' would have the same",
        ),
        ({"system": [LAW, QUEUES], "policy": POLICY}, r"'uniform_law' is for scheduling and 'queues' for dispatch"),
        (system(**LAW, name=3), r"^\[system\] name: must be a text"),
        (system(**LAW, grid=3), r"^\[system.grid\] must be a table"),
        (system(**LAW, grid={"slack": 3}), r"^\[system\] grid.slack: must be a list of values to try, not 3"),
        (system(**LAW, grid={"slack": []}), r"^\[system\] grid.slack: must be a list"),
        (system(**LAW, slack=0.1, grid={"slack": [0.1]}), r"^\[system\] slack: must be left out, grid.slack sets it"),
        (system(**LAW, grid={"slak": [0.1]}), r"^\[system\] slak: no such key .*did you mean 'slack'"),
        (system(**LAW, grid={"slack": [0.1, 3.0]}), r"^\[system\] slack must be below"),
        (
            system(**LAW, grid={"seed": list(range(200)), "pool": [5] * 200}),
            r"^\[system\] grid: has more than 10000 combinations",
        ),
        (system(service_rates=[1, 2]), r"^\[system\] arrival_rate: give it, or load, and not both"),
        (system(**QUEUES, load=0.5), r"^\[system\] arrival_rate: give it, or load, and not both"),
        (system(service_rates=[1, 2], load=2.0), r"^\[system\] arrival_rate: work arrives at"),
        (system(service_rates=3, load=0.5), r"^\[system\] service_rates must be a list"),
        (system(service_rates=[1, -2], load=0.5), r"^\[system\] service_rates must be positive"),
        (system(**QUEUES, service="paretto"), r"^\[system\] service: there is no law 'paretto'; did you mean 'pareto'"),
        (system(**QUEUES, service="pareto"), r"^\[system.service\] shape: is missing; 'pareto' needs it"),
        (system(**QUEUES, service={"law": "pareto", "shape": 0.5}), r"^\[system.service\] shape must be above 1"),
        (system(**QUEUES, service={"law": "pareto", "a": 2}), r"^\[system.service\] a: no such key of 'pareto'"),
        (system(**QUEUES, servce="pareto"), r"^\[system\] servce: no such key .*did you mean 'service'"),
        ({**system(**LAW), "policy": []}, r"^\[\[policy\]\] is missing"),
        ({**system(**LAW), "policy": {"rule": "random"}}, r"^\[\[policy\]\] is missing"),
        ({**system(**LAW), "policy": ["random"]}, r"^\[\[policy\]\] 1: must be a table with a rule, not 'random'"),
        ({**system(**LAW), "policy": [{"rule": "random", "ties": "x"}]}, r"^\[\[policy\]\] 1 ties"),
        (
            {**system(**LAW), "policy": [{"rule": "acqb", "grid": {"samples": 3}}]},
            r"^\[\[policy\]\] 1 grid.samples: must be",
        ),
        (
            {**system(**LAW), "policy": [{"rule": "acqb", "grid": {"sample": [3]}}]},
            r"1 sample: no such parameter of 'acqb'",
        ),
        ({**system(**LAW), "policy": [{"name": "a"}]}, r"^\[\[policy\]\] 1 rule is missing"),
        ({**system(**LAW), "policy": [{"rule": "lased"}]}, r"^\[\[policy\]\] 1 rule: there is none called 'lased'"),
        ({**system(**LAW), "policy": [POLICY[0], POLICY[0]]}, r"^\[\[policy\]\] 2 name: 'random' is taken"),
        ({**system(**LAW), "run": {"half_width": 0}}, r"^\[run\] half_width: must be a number of jobs above 0"),
        ({**system(**LAW), "run": {"runs": 1}}, r"^\[run\] runs: must be a whole number of at least 2"),
        ({**system(**LAW), "run": {"level": 95}}, r"^\[run\] level: must lie strictly between 0 and 1"),
        ({**system(**LAW), "run": {"arrivals": 100}}, r"^\[run\] arrivals: is for the other model"),
        ({**system(**QUEUES), "run": {"rounds": 100}}, r"^\[run\] rounds: is for the other model"),
        ({**system(**QUEUES), "run": {"measure": "delay"}}, r"^\[run\] measure: must be one of 'regret'"),
        ({**system(**QUEUES), "run": {"warm_up": 100_000}}, r"^\[run\] warm_up: must be less than the 100000"),
        ({**system(**LAW), "run": {"over": [1, 2001]}}, r"^\[run\] over: must be a pair"),
        ({**system(**LAW), "run": {"baseline": "wise"}}, r"^\[run\] baseline: must be one of 'random', not 'wise'"),
        ({**system(**LAW), "run": {"method": "t"}}, r"^\[run\] method: must be one of 'max_t', 'bonferroni'"),
        ({**system(**LAW), "run": 3}, r"^\[run\] must be a table"),
        ({**system(**LAW), "oracle": {"rule": "random", "name": "me"}}, r"^\[oracle\] name: must be left out"),
        ({**system(**LAW), "oracle": {"rule": "randm"}}, r"^\[oracle\] rule: there is none called 'randm'"),
        ({**system(**QUEUES), "oracle": {"rule": "jsq"}}, r"^\[oracle\]: is for scheduling"),
        ({**system(**LAW), "run": {"runs": 10**30}}, r"^\[run\] runs: must be at most 2147483647, not 1"),
        (
            {**system(**QUEUES), "run": {"arrivals": 10**21}, "policy": [{"rule": "sed"}]},
            r"^\[run\] arrivals: must be at most",
        ),
        (system(service_rates=[5, 10], load=1e308, allow_unstable=True), r"^\[system\] load: is too large"),
        (system(**QUEUES, allow_unstable="yes"), r"^\[system\] allow_unstable: must be true or false, not 'yes'"),
        (system(**{**QUEUES, "times": "x"}), r"^\[system\] times: must be a list of numbers, not 'x'"),
        (system(**{**QUEUES, "times": [0, "1"]}), r"^\[system\] times: must be a list of numbers"),
        (
            system(**{**QUEUES, "times": [0, 5]}),
            r"^\[system\] service_rates: must have a list of rates for each of the times",
        ),
        (
            system(**{**QUEUES, "times": [0, 5], "service_rates": 3}),
            r"^\[system\] service_rates: must have a list of rates",
        ),
    ],
)
def test_a_mistake_names_table_and_key(described: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse(described)


def test_every_name_has_a_folder_of_its_own_that_can_be_made(tmp_path: Path) -> None:
    names = ["summary.json", "experiment.json", "report.html", "é" * 200, "é" * 200 + "x", "x" * 300, "a/../b", ".."]
    found = parse({"system": [{"name": name, **LAW, "seed": i} for i, name in enumerate(names)], "policy": POLICY})
    folders = [cell.folder for cell in found.cells]
    assert [cell.name for cell in found.cells] == names
    assert len(set(folders)) == len(names)
    assert not {"summary.json", "experiment.json", "report.html"} & set(folders)
    for folder in folders:
        (tmp_path / folder).mkdir()
        assert (tmp_path / folder).resolve().parent == tmp_path.resolve()


@pytest.mark.parametrize("body", ["import sys\nsys.exit(0)\n", "def make():\n    raise SystemExit(5)\n"])
def test_a_file_that_ends_the_process_is_a_mistake_too(tmp_path: Path, body: str) -> None:
    import sys

    sys.modules.pop("user_own_exit", None)
    (tmp_path / "own_exit.py").write_text(body)
    with pytest.raises(ValueError, match=r"own_exit.py.*SystemExit: [05]"):
        parse(system(law="own_exit.py:make"), tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xff\xfe", r"mine\.toml: is not UTF-8 text"),
        (b"[system\n", r"mine\.toml: is not TOML: "),
        (b"[sistem]\n", r"mine\.toml: \[sistem\]: no such table; did you mean 'system'"),
    ],
)
def test_the_file_is_named(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        read(tmp_path / "mine.toml")
    with pytest.raises(ValueError, match=r"nowhere.toml: cannot be read"):
        read(tmp_path / "nowhere.toml")


def test_a_file_of_another_system_is_read_alike(tmp_path: Path) -> None:
    text = '[system]\nlaw = "uniform_law"\n[[policy]]\nrule = "random"\n'
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert read(tmp_path / "mine.toml").title == "mine"
