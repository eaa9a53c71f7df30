"""What is played and concluded: who wins, on one system or many, of either model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import queuewise as qw
from queuewise.experiments.compare import Found, Standing, compare, winner
from queuewise.experiments.description import Run
from queuewise.runs.simultaneous import Comparison
from queuewise.runs.statistics import Difference, Estimate

ONE = """
[system]
law = "table"
arrival_rate = 0.5
features = [[[1.0], [-1.0]]]
probabilities = [[0.9, 0.2]]

[run]
rounds = 300
runs = 6

[[policy]]
rule = "random"

[[policy]]
rule = "q_ths"
"""
QUEUES = """
[[system]]
name = "light"
service_rates = [5, 10]
load = 0.3

[[system]]
name = "heavy"
service_rates = [5, "10"]
arrival_rate = 12
service = { law = "lognormal", variation = 2 }

[run]
arrivals = 400
runs = 10
measure = "sojourn_time"
baseline = "jsq"

[[policy]]
rule = "optimistic_sed"

[[policy]]
rule = "jsq"

[[policy]]
rule = "random"
"""


def played(tmp_path: Path, text: str) -> Found:
    (tmp_path / "mine.toml").write_text(text)
    return compare(tmp_path / "mine.toml", tmp_path / "out")


def test_a_clear_winner_is_said_with_its_interval(tmp_path: Path) -> None:
    found = played(tmp_path, ONE.replace("q_ths", "oracle").replace("runs = 6", "runs = 20"))
    (part,) = found.parts
    assert part.winner == part.decided == "oracle"
    assert found.sentences[0].startswith("oracle wins: ")
    assert all(path.exists() for path in found.files)
    behind = part.standings[1].behind
    assert behind is not None
    assert behind.difference.low > 0
    assert behind.p < 0.05


def test_too_few_runs_name_no_winner(tmp_path: Path) -> None:
    found = played(tmp_path, ONE)
    assert "6 runs cannot tell it from random" in found.sentences[0]
    assert found.parts[0].decided is None


def test_the_ranking_is_that_of_the_rows(tmp_path: Path) -> None:
    found = played(tmp_path, ONE.replace("rounds = 300", "rounds = 300\nover = [201, 300]\nlevel = 0.8"))
    result = qw.load(tmp_path / "out" / "rows")
    for entry in json.loads((tmp_path / "out" / "comparison.json").read_text())["policies"]:
        mean = result.mean_regret(entry["name"], rounds=(201, 300), level=0.8)
        assert entry["mean_regret"] == pytest.approx(mean._asdict())
    assert "80% intervals" in found.tables[0].note
    again = compare(tmp_path / "mine.toml", tmp_path / "out")
    assert again.results == found.results


def test_queues_in_parallel_are_compared_too(tmp_path: Path) -> None:
    found = played(tmp_path, QUEUES)
    assert [part.name for part in found.parts] == ["light", "heavy"]
    for part in found.parts:
        result = qw.load(tmp_path / "out" / part.name / "rows")
        for standing in part.standings:
            assert standing.value == result.mean_sojourn_time(standing.name)
            assert standing.further["total_regret"] == result.total_regret(standing.name)
            assert (standing.against is None) == (standing.name == "jsq")
        assert part.winner != "random"
        entry = part.results["policies"][0]
        assert entry["mean_sojourn_time"]["mean"] == part.standings[0].value.mean
    assert [row[0] for row in found.tables[-1].rows] == ["light", "heavy"]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {"light", "heavy", "experiment.json", "summary.json", "summary.md", "summary.png", "summary.svg"}


def test_a_grid_makes_a_system_and_a_policy_of_every_combination(tmp_path: Path) -> None:
    text = ONE.replace("arrival_rate = 0.5", "grid.arrival_rate = [0.3, 0.5]\ngrid.parameter_bound = [1.0, 2]")
    found = played(tmp_path, text + "grid.ties = ['earliest', 'random']\n")
    assert [part.name for part in found.parts] == [
        f"arrival_rate={rate}, parameter_bound={bound}" for rate in (0.3, 0.5) for bound in (1.0, 2)
    ]
    for part in found.parts:
        assert sorted(part.result.policies) == ["q_ths ties=earliest", "q_ths ties=random", "random"]
        assert part.result.settings["system"]["arrival_rate"] == float(part.name.split("=")[1].split(",")[0])
    said = found.sentences[0]
    counted = sum(part.decided is None for part in found.parts)
    assert (f"{counted} are undecided" in said) == (counted > 0)


def test_an_oracle_and_a_rule_of_ones_own_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "compare_rules.py").write_text(
        "from queuewise.scheduling import Policy\n"
        "def decide(params, state, columns, waiting, stream):\n"
        "    return waiting.slots[0], 1, 0\n"
        "def stubborn(*, name=''):\n"
        "    return Policy('stubborn', decide, name=name)\n"
        "LAST = Policy('last', decide, clairvoyant=True)\n"
    )
    text = ONE.replace('"q_ths"', '"compare_rules.py:stubborn"') + '[oracle]\nrule = "compare_rules.py:LAST"\n'
    (part,) = played(tmp_path, text).parts
    assert part.result.settings["oracle"]["rule"] == "last"
    np.testing.assert_array_equal(part.result.queue_length["stubborn"], part.result.oracle_queue_length)
    assert part.result.mean_regret("random").mean < 0  # a bad oracle
    assert "code" in part.result.settings["policies"][1]


def test_what_is_given_up_stands_beside_the_regret(tmp_path: Path) -> None:
    text = ONE.replace("[[0.9, 0.2]]", "[[0.4, 0.0]]").replace(
        "arrival_rate = 0.5", "arrival_rate = 0.2\nmax_attempts = 2"
    )
    (part,) = played(tmp_path, text).parts
    assert part.table.columns[-1] == "jobs given up"
    assert all(standing.further["given_up"].mean > 0 for standing in part.standings)
    assert "kept short by giving up" in part.table.note


def test_the_only_policy_wins_nothing() -> None:
    system = qw.scheduling.table_law([[[1.0]]], [[0.8]], arrival_rate=0.5)
    result = qw.scheduling.simulate(system, ["random"], rounds=20, runs=2)
    from queuewise.experiments.compare import standings

    found, _ = standings(result, Run())
    assert winner(found).startswith("random is the only policy: mean regret 0.00 [0.00, 0.00] jobs")


def test_a_policy_that_a_system_cannot_have_names_the_system(tmp_path: Path) -> None:
    text = ONE.replace("arrival_rate = 0.5", "grid.arrival_rate = [0.3, 0.5]").replace('"q_ths"', '"q_ths"\nties = "x"')
    with pytest.raises(ValueError, match=r"mine.toml: arrival_rate=0.3: q_ths: ties: must be one of"):
        played(tmp_path, text)


@pytest.mark.parametrize("key", ["rows", "rows and settings"])
def test_a_folder_of_another_experiment_is_left_alone(tmp_path: Path, key: str) -> None:
    played(tmp_path, ONE)
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    changed: dict[str, Any] = {"rows": ("rounds = 300", "rounds = 301"), "rows and settings": ("0.9", "0.8")}
    with pytest.raises(ValueError, match=r"mine.toml: folder: .* holds another experiment"):
        played(tmp_path, ONE.replace(*changed[key]))
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before


OWN = """
from queuewise.scheduling import Policy


def decide(params, state, columns, waiting, stream):
    {body}


def make():
    return Policy("mine", decide)
"""


@pytest.mark.filterwarnings("ignore:mine. numba cannot compile:RuntimeWarning")
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("raise RuntimeError('a\\nb', str(waiting))", r"^[^\n]*own_rule.py, line 6, in decide: RuntimeError: [^\n]*$"),
        ("import sys; sys.exit(0)", "own_rule.py, line 6, in decide: SystemExit: 0"),
        ("return None", r"mine does not keep to the contract \(TypeError: .*\); check_policy says where"),
    ],
)
def test_a_rule_of_ones_own_that_fails_is_one_sentence(tmp_path: Path, body: str, sentence: str) -> None:
    import sys

    sys.modules.pop("user_own_rule", None)
    (tmp_path / "own_rule.py").write_text(OWN.replace("{body}", body))
    text = ONE.replace("rounds = 300", "rounds = 20").replace('rule = "q_ths"', 'rule = "own_rule.py:make"')
    with pytest.raises(ValueError, match=sentence):
        played(tmp_path, text)


def test_names_are_drawn_and_printed_as_they_are(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    from rich.console import Console

    from queuewise.experiments.report import print_table

    odd = ["$\\frac{x$", "[/]", "[bold]b[/bold]", "y" * 200, "\u65e5\u672c"]
    systems = "".join(f"[[system]]\nname = {json.dumps(name)}\nlaw = 'uniform_law'\nseed = 1\n" for name in odd[:2])
    policies = "".join(f"[[policy]]\nrule = 'random'\nname = {json.dumps(name)}\n" for name in odd)
    found = played(tmp_path, f"{systems}[run]\nrounds = 5\nruns = 2\n{policies}")
    console = Console(width=100, record=True, file=open(tmp_path / "printed", "w"), force_terminal=False)  # noqa: SIM115
    for table in found.tables:
        print_table(console, table)
    printed = console.export_text()
    assert all(name in printed for name in odd)
    assert not [str(warning.message) for warning in recwarn]


def _standing(name: str, mean: float, behind: tuple[float, float] | None) -> Standing:
    value = Estimate(mean, mean - 1, mean + 1, 1.0, 100)
    pair = None if behind is None else Comparison(Difference(sum(behind) / 2, *behind, 1.0, 100, name, "a"), 0.5)
    return Standing(name, name, value, pair, None, {})


def test_the_sentence_is_about_those_that_cannot_be_told_apart() -> None:
    """The second by its mean may be beaten for sure while the third, which varies more, is not."""
    found = [_standing("a", 1.0, None), _standing("b", 1.3, (0.2, 0.4)), _standing("c", 1.5, (-0.3, 1.3))]
    said = winner(found)
    assert "cannot tell it from c: c is 0.50 [-0.30, 1.30] jobs behind" in said
    assert said.endswith("and it is below b.")
    assert winner(found[:2]) == "a wins: its mean regret is 0.30 [0.20, 0.40] jobs below that of b, the next."
