"""`queuewise.pool` joins results of one experiment, and refuses what does not belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import queuewise as qw
from queuewise import dispatch, scheduling

ROUTING = dispatch.System(1.0, [1, 2])
SERVING = scheduling.wise_figure_law(q=0.15, slack=0.1, seed=0)


def served(**options: Any) -> qw.Result:
    return scheduling.simulate(SERVING, ["random", "q_ucb"], rounds=60, **{"runs": 4, "seed": 1, **options})


def routed(**options: Any) -> dispatch.Result:
    return dispatch.simulate(ROUTING, ["random", "jsq"], arrivals=60, **{"runs": 4, "seed": 1, **options})


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_parts_of_one_seed_are_the_whole(keep: str) -> None:
    whole = served(runs=7, keep=keep)
    parts = [served(runs=3, first_run=4, keep=keep), served(runs=4, keep=keep)]
    pooled = qw.pool(parts)
    assert (pooled.runs, pooled.first_run, pooled.settings) == (7, 0, whole.settings)
    assert pooled.mean_regret("random") == pytest.approx(whole.mean_regret("random"))
    assert pooled.compare("random", "q_ucb")[:5] == pytest.approx(whole.compare("random", "q_ucb")[:5])
    if keep == "runs":
        np.testing.assert_array_equal(pooled.queue_length["q_ucb"], whole.queue_length["q_ucb"])


def test_parts_of_one_seed_are_the_whole_in_the_other_model() -> None:
    whole, pooled = routed(runs=7), qw.pool([routed(runs=5, first_run=2), routed(runs=2)])
    np.testing.assert_array_equal(pooled.regrets("jsq"), whole.regrets("jsq"))
    assert pooled.settings == whole.settings


def test_seeds_are_joined_in_order_and_can_be_kept(tmp_path: Path) -> None:
    a, b = served(seed=9, runs=2), served(seed=2, runs=3)
    pooled = qw.pool([a, b])
    assert pooled.settings["seed"] == [2, 9]
    assert (pooled.seed, pooled.runs, pooled.first_run) == (2, 5, 0)
    both = np.concatenate([b.queue_length["random"], a.queue_length["random"]])
    np.testing.assert_array_equal(pooled.queue_length["random"], both)
    pooled.save(tmp_path)
    again = qw.load(tmp_path)
    np.testing.assert_array_equal(again.queue_length["random"], both)
    more = qw.pool([again, served(seed=5, runs=2)])
    assert more.runs == 7
    assert [piece["seed"] for piece in more.settings["pooled"]] == [2, 9, 5]
    with pytest.raises(ValueError, match=r"holds another experiment .*seed"):
        served(seed=2, runs=3, folder=tmp_path)
    with pytest.raises(ValueError, match=r"overlap, and no run may count twice"):
        qw.pool([again, served(seed=9, runs=1, first_run=1)])


def test_a_gap_between_parts_is_no_whole_but_counts() -> None:
    pooled = qw.pool([served(runs=2), served(runs=2, first_run=5)])
    assert (pooled.runs, pooled.settings["seed"]) == (4, [1])


def test_a_column_that_some_lack_is_left_out() -> None:
    pooled = qw.pool([served(trace=True), served(seed=2)])
    assert pooled.runs == 8
    with pytest.raises(ValueError, match="simulate with trace=True"):
        _ = pooled.trace


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        (
            lambda: [served(), served(runs=1, first_run=3)],
            r"results\[1\] has run 3 of seed 1, and results\[0\] has runs 0 to 3",
        ),
        (
            lambda: [served(), scheduling.simulate(SERVING, ["random"], rounds=60, runs=2, seed=2)],
            r"results\[1\] holds another experiment than results\[0\] \(policies.q_ucb is there but not here\)",
        ),
        (lambda: [served(), served(keep="moments", seed=2)], "some kept their runs and some moments alone"),
        (lambda: [served(keep="moments"), served(keep="moments", seed=2, windows=[(1, 5)])], "other windows"),
        (lambda: [served(), routed(seed=2)], "holds another experiment"),
        (lambda: [served(), "elsewhere"], "results must be results of simulate or load, not 'elsewhere'"),
        (list, "results must hold at least one result"),
    ],
)
def test_what_does_not_fit_is_refused(others: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        qw.pool(others())
