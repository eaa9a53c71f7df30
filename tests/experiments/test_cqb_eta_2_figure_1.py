"""The reproduction of CQB-η-2's Figure 1: choices, verdicts on made-up measurements, and files of a tiny run."""

import json
import math
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from queuewise.experiments import registry
from queuewise.experiments.claims import FAILS, HOLDS, UNDECIDED
from queuewise.experiments.papers import cqb_eta_2_figure_1 as figure
from queuewise.experiments.papers._cqb_eta_2_choices import STATED, VARIATIONS, Choices
from queuewise.scheduling import presets, simulate, uniform_law
from queuewise.streams import instance_seed

NAME = "cqb-eta-2-figure-1"
DEFAULTS = registry.find(NAME).parameters
NAMES = [policy.name for policy in presets.cqb_eta_2_figure_1()]


# ------------------------------------------------------------------------------------------------------ choices


def test_the_defaults_are_the_presets_with_the_stated_ridge() -> None:
    chosen = {policy.name: dict(policy.options) for policy in Choices.of(DEFAULTS).policies()}
    for policy in presets.cqb_eta_2_figure_1(initial_design=1.0):
        assert chosen[policy.name] == policy.options


@pytest.mark.parametrize(
    ("field", "value", "option", "expected"),
    [
        ("parameter_bound", "sqrt_d", "parameter_bound", math.sqrt(10)),
        ("parameter_bound", 2.5, "parameter_bound", 2.5),
        ("initial_design", "kappa_lambda_0", "initial_design", 50.0),
        ("delta", "1/T^4", "delta", 2000.0**-4),
        ("delta", 0.05, "delta", 0.05),
        ("exploration", 0, "exploration", 0.0),
        ("lambda_0", 3.0, "initial_design", 3.0),
        ("lambda_0", 3.0, "ridge", 3.0),
        ("phase_1_end", 0, "phase_1_end", 0.0),
    ],
)
def test_a_choice_reaches_cqb_eta_2(field: str, value: Any, option: str, expected: float) -> None:
    policy = Choices.of({**DEFAULTS, field: value}).policies()[0]
    assert policy.options[option] == pytest.approx(expected, rel=1e-12)


def test_a_choice_reaches_the_law() -> None:
    law = Choices.of({**DEFAULTS, "pool": 70, "kappa_rejects": "contexts"}).law((0.05, 3))
    settings = uniform_law(seed=1, **law).settings()
    wanted = {"dimension": 10, "servers": 3, "arrival_rate": 0.7, "slack": 0.05, "kappa": 50.0, "pool": 70}
    assert settings.items() >= {**wanted, "kappa_rejects": "contexts"}.items()


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("parameter_bound", "root", r"^parameter_bound: must be 'norm', 'sqrt_d' or a number, not 'root'"),
        ("parameter_bound", 0, r"^parameter_bound: must be a number above 0, not 0"),
        ("lambda_0", -1.0, r"^lambda_0: must be a number above 0, not -1"),
        ("lambda_0", "one", r"^lambda_0: must be a number above 0, not 'one'"),
        ("initial_design", "kappa", r"^initial_design must be one of 'lambda_0', 'kappa_lambda_0', not 'kappa'"),
        ("delta", 1.5, r"^delta: must be a number above 0 and at most 1, not 1.5"),
        ("radius_scale", True, r"^radius_scale: must be a number above 0, not True"),
        ("phase_1_end", 0.4, r"^phase_1_end: must be a number at least 0 and at most 0.3, not 0.4"),
        ("acqb_exploration_scale", -1, r"^acqb_exploration_scale: must be a number at least 0, not -1"),
        ("pool", 10.5, r"^pool: must be a whole number of at least 1, not 10.5"),
        ("kappa_rejects", "jobs", r"^kappa_rejects must be one of 'parameters', 'contexts', not 'jobs'"),
        ("instance", "none", r"^instance must be one of 'per run', 'one for all runs', not 'none'"),
        ("exploration", "slack", r"^exploration: must be 'slack/4' or a number, not 'slack'"),
        ("epsilon_exploration", 1.1, r"^epsilon_exploration: must be a number at least 0 and at most 1, not 1.1"),
        ("acqb_samples", 0, r"^acqb_samples: must be a whole number of at least 1, not 0"),
        ("ties", "latest", r"^ties must be one of 'earliest', 'random', not 'latest'"),
        ("stable_within", 0, r"^stable_within: must be a number above 0, not 0"),
        ("choice_instances", 1, r"^choice_instances: must be 0 \(no table\) or at least 2, not 1"),
    ],
)
def test_a_choice_out_of_range_is_refused_before_anything_is_written(
    field: str, value: Any, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=sentence):
        registry.reproduce(NAME, quick=True, out=tmp_path / "out", parameters={field: value})
    assert not (tmp_path / "out").exists()


def test_every_variation_is_a_valid_choice_other_than_the_default() -> None:
    for field, value, policy in VARIATIONS:
        assert getattr(Choices.of({**DEFAULTS, field: value}), field) != DEFAULTS[field]
        assert policy in NAMES
    assert all(DEFAULTS[field] == value for field, value in STATED.items())
    assert {field for field, _, _ in VARIATIONS} == set(DEFAULTS) - {"stable_within", "choice_instances"}


# ------------------------------------------------------------------------------------------------------- claims


def way(finals: dict[figure.Setting, float], rivals: float = 60.0, sd: float = 1.0, runs: int = 100) -> figure.Way:
    """Made-up measurements: CQB-η-2's mean final regrets, CQB-ε one job above, the others at `rivals`."""
    rng = np.random.default_rng(5)

    def around(mean: float) -> np.ndarray:
        noise = rng.normal(size=runs)
        return mean + sd * (noise - noise.mean()) / noise.std()

    settings = {}
    for setting, final in finals.items():
        means = {"cqb_eta_2": final}
        if setting == figure.BASE:
            means |= {"cqb_epsilon": final + 1.0} | dict.fromkeys(figure.RIVALS, rivals)
        rows = {name: around(mean) for name, mean in means.items()}
        settings[setting] = figure.Measured(
            {}, {name: around(40.0) for name in means}, rows, {name: row + 10.0 for name, row in rows.items()}
        )
    return figure.Way("fresh-instances", f"{runs} fresh instances", runs, settings)


PAPERS = {(0.1, 5): 6.0, (0.05, 5): 14.0, (0.15, 5): 3.0, (0.1, 3): 5.0, (0.1, 10): 8.0}


@pytest.mark.parametrize(
    ("change", "rivals", "expected"),
    [
        ({}, 60.0, [HOLDS, HOLDS, HOLDS, HOLDS, HOLDS]),
        ({}, 6.5, [FAILS, HOLDS, HOLDS, HOLDS, HOLDS]),  # CQB-ε is above the others
        ({(0.15, 5): 9.0}, 60.0, [HOLDS, FAILS, FAILS, HOLDS, HOLDS]),
        ({(0.1, 10): 12.0}, 60.0, [HOLDS, HOLDS, HOLDS, FAILS, HOLDS]),
        ({(0.1, 3): 25.0}, 60.0, [HOLDS, HOLDS, HOLDS, FAILS, FAILS]),
    ],
)
def test_the_means_decide_the_claims(change: dict[figure.Setting, float], rivals: float, expected: list[str]) -> None:
    verdicts = figure.claims(way(PAPERS | change, rivals), stable_within=5.0)
    assert [verdict.verdict for verdict in verdicts] == expected


def test_stable_in_k_compares_the_largest_with_the_smallest_final_regret() -> None:
    measured = way(PAPERS | {(0.1, 3): 9.5, (0.1, 10): 2.0}, sd=0.5)
    verdict = figure.claims(measured, stable_within=5.0)[3]
    assert verdict.parts[0].value == pytest.approx(7.5, abs=1e-9)
    assert verdict.parts[0].low < 7.5 < verdict.parts[0].high
    assert figure.claims(measured, stable_within=9.0)[3].verdict == HOLDS
    assert "within 9 jobs" in figure.claims(measured, stable_within=9.0)[3].claim.text


def test_slacks_are_compared_run_by_run() -> None:
    measured = way(PAPERS)
    part = figure.claims(measured, stable_within=5.0)[1].claim.parts[0]
    differences = measured.ours((0.1, 5)) - measured.ours((0.05, 5))
    assert part.estimates[0].mean == pytest.approx(-8.0)
    assert part.estimates[0].sd == pytest.approx(differences.std(ddof=1))


def test_few_noisy_runs_leave_everything_undecided_and_the_sentences_say_so() -> None:
    measured = way(PAPERS, sd=60.0, runs=10)
    verdicts = figure.claims(measured, stable_within=5.0)
    assert {verdict.verdict for verdict in verdicts} == {UNDECIDED}
    said = figure.sentences([(measured, verdicts)])
    assert all("10 fresh instances cannot decide it" in sentence for sentence in said[:5])
    assert "undecided" in said[5]


def test_tables_are_whole_on_a_narrow_terminal() -> None:
    measured = way(PAPERS)
    verdicts = figure.claims(measured, stable_within=5.0)
    facts, parts = figure.facts_table(measured), figure.parts_table([(measured, verdicts)])
    assert len(facts.rows) == len(NAMES) + 4
    assert len(parts.rows) == 6 + 2 + 2 + 1 + 3
    assert all("…" not in table.text(width=80) for table in (facts, parts))


# ------------------------------------------------------------------------------------------------------ choices' effects


def made_up(finals: dict[str, float], sd: float = 0.5, runs: int = 50) -> figure.Measured:
    rng = np.random.default_rng(1)
    rows = {name: mean + sd * rng.normal(size=runs) for name, mean in finals.items()}
    return figure.Measured({}, rows, rows, {name: 2.0 * row for name, row in rows.items()})


def test_an_effect_is_the_paired_change_and_the_pairs_that_change_places() -> None:
    usual = made_up({"cqb_eta_2": 5.0, "cqb_epsilon": 6.0, "acqb": 60.0, "random": 300.0, "fifo_random": 301.0})
    other = made_up({"cqb_eta_2": 8.0, "cqb_epsilon": 6.0, "acqb": 60.0, "random": 400.0, "fifo_random": 301.0})
    found = figure.effect("lambda_0", 0.1, "cqb_eta_2", usual, other)
    assert found.final.mean == pytest.approx(3.0) and found.final.half_width < 1e-9
    assert found.mean.mean == pytest.approx(6.0)
    assert found.swaps == [("cqb_epsilon", "cqb_eta_2", True), ("fifo_random", "random", True)]
    unsure = made_up(
        {"cqb_eta_2": 6.2, "cqb_epsilon": 6.0, "acqb": 60.0, "random": 300.0, "fifo_random": 301.0}, sd=9.0
    )
    order = [name for name in unsure.order if name in figure.OURS]
    swaps = figure.effect("lambda_0", 0.1, "cqb_eta_2", usual, unsure).swaps
    assert all(not certain for _, _, certain in swaps)
    assert (("cqb_epsilon", "cqb_eta_2", False) in swaps) == (order == ["cqb_epsilon", "cqb_eta_2"])
    assert figure.effect("pool", 5, "acqb", usual, usual).swaps == []
    said = figure.choice_sentences([found])
    assert "lambda_0 = 0.1 (CQB-η-2: +3.0 jobs)" in said[0]
    assert "CQB-ε < CQB-η-2" in said[1] and "FIFO + Random < Random" in said[1]


def test_what_a_choice_does_not_touch_is_the_same_run_by_run() -> None:
    """Which is why such policies are not simulated again."""
    system = uniform_law(pool=50)
    changed = Choices.of({**DEFAULTS, "epsilon_exploration": 0.5}).policies()
    results = [simulate(system, each, rounds=600, runs=2) for each in (Choices.of(DEFAULTS).policies(), changed)]
    for name in NAMES:
        same = np.array_equal(*(result.queue_length[name] for result in results))
        assert same == (name != "cqb_epsilon"), name


def test_a_summary_is_what_the_queue_lengths_say() -> None:
    result = simulate(uniform_law(pool=50), presets.cqb_eta_2_figure_1(), rounds=500, runs=3)
    measured = figure.summarise(result)
    for name in NAMES:
        for run in range(3):
            regret = [
                int(a) - int(b)
                for a, b in zip(result.queue_length[name][run], result.oracle_queue_length[run], strict=True)
            ]
            assert measured.explored[name][run] == regret[399]
            assert measured.final[name][run] == regret[499]
            assert measured.mean[name][run] == pytest.approx(sum(regret) / 500)


# -------------------------------------------------------------------------------------------------------- files


def rows_of(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.rglob("*.parquet"))
    assert files, folder
    return [parquet.read_table(file).to_pydict() for file in files]


def test_files_of_a_tiny_run_and_a_rerun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One variation of each kind: of an estimate, the law, the instance, one policy's option, and a stated value.
    kinds = {
        ("lambda_0", 10.0),
        ("pool", 100),
        ("instance", "one for all runs"),
        ("epsilon_exploration", 0.0),
        ("delta", "1/T^4"),
    }
    varied = [each for each in VARIATIONS if each[:2] in kinds]
    assert len(varied) == len(kinds)
    monkeypatch.setattr(figure, "VARIATIONS", varied)

    def again() -> registry.Outcome:
        return registry.reproduce(NAME, runs=2, instances=3, out=tmp_path, parameters={"choice_instances": 2})

    outcome = again()
    assert len(outcome.verdicts) == 10
    found = json.loads((tmp_path / "claims.json").read_text())
    assert len(found["settings"]) == 10 and len(found["claims"]) == 10 and len(found["law"]) == 5
    assert [each["choice"] for each in found["choices"]] == [field for field, _, _ in varied]
    assert found["parameters"] == {**DEFAULTS, "choice_instances": 2}
    for stem in ("figure", "figure-fresh-instances"):
        assert (tmp_path / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        xml.parse(tmp_path / f"{stem}.svg")
    assert "cannot decide it" in (tmp_path / "claims.md").read_text()
    # With an instance per run, the paper's runs are the first of the fresh instances.
    setting = "slack0.1-servers5"
    few, many = (rows_of(tmp_path / "rows" / name / setting) for name in ("paper", "fresh-instances"))
    assert few == many[:2] and len(many) == 3
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "rows").rglob("*.parquet")}
    assert again().results == outcome.results
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "rows").rglob("*.parquet")}


def test_one_instance_for_all_runs_and_no_fresh_ones(tmp_path: Path) -> None:
    parameters = {"instance": "one for all runs", "pool": 30}
    outcome = registry.reproduce(NAME, runs=2, instances=0, out=tmp_path, parameters=parameters)
    assert len(outcome.verdicts) == 5 and outcome.results["choices"] == []
    assert {each["way"] for each in outcome.results["settings"]} == {"2 runs on one instance"}
    with pytest.raises(ValueError, match="another experiment"):
        registry.reproduce(NAME, runs=2, instances=0, out=tmp_path, parameters=parameters | {"pool": 31})


def test_acceptance_rates_are_shares_of_what_was_drawn() -> None:
    choices = Choices.of({**DEFAULTS, "pool": 40})
    rows = figure.law_rows(choices, seed=3, runs=4, advance=lambda done, total: None)
    assert rows[0]["setting"] == "slack 0.1, K = 5"
    for row, setting in zip(rows, figure.SETTINGS, strict=True):
        drawn = [uniform_law(seed=instance_seed(3, run), **choices.law(setting)) for run in range(4)]
        assert row["parameters_accepted"] == 4 / sum(system.parameters_tried for system in drawn)
        assert row["parameter_norm"] == pytest.approx(np.mean([np.linalg.norm(system.theta) for system in drawn]))
        assert row["contexts_accepted"] == pytest.approx(np.mean([40 / system.contexts_tried for system in drawn]))
    assert len(figure.law_table(rows).rows) == 5
