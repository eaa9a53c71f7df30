"""`queuewise.load` reads the results of either model, and says what is wrong with a folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import queuewise as qw
from queuewise import dispatch, scheduling

ROUTING = dispatch.System(1.0, [1, 2])
SERVING = scheduling.wise_figure_law(q=0.15, slack=0.1, seed=0)


def test_either_model(tmp_path: Path) -> None:
    routed = dispatch.simulate(ROUTING, "jsq", arrivals=50, runs=3, seed=1, folder=tmp_path / "routed")
    served = scheduling.simulate(SERVING, "random", rounds=50, runs=3, seed=1, folder=str(tmp_path / "served"))
    found, other = qw.load(tmp_path / "routed"), qw.load(str(tmp_path / "served"))
    assert isinstance(found, dispatch.Result)
    assert isinstance(other, qw.Result)
    np.testing.assert_array_equal(found.regrets("jsq"), routed.regrets("jsq"))
    np.testing.assert_array_equal(other.queue_length["random"], served.queue_length["random"])


def test_one_model_never_continues_the_other(tmp_path: Path) -> None:
    dispatch.simulate(ROUTING, "random", arrivals=50, runs=1, folder=tmp_path)
    with pytest.raises(ValueError, match="holds another experiment"):
        scheduling.simulate(SERVING, "random", rounds=50, runs=1, folder=tmp_path)


def test_a_later_part_alone(tmp_path: Path) -> None:
    part = dispatch.simulate(ROUTING, "random", arrivals=50, runs=2, first_run=5, folder=tmp_path)
    found = qw.load(tmp_path)
    assert (found.first_run, found.runs) == (5, 2)
    np.testing.assert_array_equal(found.regrets("random"), part.regrets("random"))


def test_runs_are_taken_up_to_a_gap(tmp_path: Path) -> None:
    dispatch.simulate(ROUTING, "random", arrivals=50, runs=4, folder=tmp_path)
    (tmp_path / "runs" / "000002.parquet").unlink()
    with pytest.warns(UserWarning, match="run 2 is missing in .*, so 1 later ones are left out"):
        assert qw.load(tmp_path).runs == 2


def test_what_is_wrong_with_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"folder: .* holds no results"):
        qw.load(tmp_path / "nowhere")
    dispatch.simulate(ROUTING, "random", arrivals=50, runs=2, folder=tmp_path)
    path = tmp_path / "runs" / "000001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"run 1 in .* is damaged; run the same simulation again"):
        qw.load(tmp_path)
    for file in (tmp_path / "runs").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match="no run is finished"):
        qw.load(tmp_path)
    settings = tmp_path / "settings.json"
    settings.write_text(settings.read_text()[:-10])
    with pytest.raises(ValueError, match=r"settings\.json is damaged"):
        qw.load(tmp_path)
    settings.unlink()
    with pytest.raises(ValueError, match=r"no settings\.json"):
        qw.load(tmp_path)


def test_settings_that_were_edited_do_not_match_the_rows(tmp_path: Path) -> None:
    dispatch.simulate(ROUTING, "random", arrivals=50, runs=2, folder=tmp_path)
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 99}))
    with pytest.raises(ValueError, match="is damaged"):
        qw.load(tmp_path)


def test_what_settings_say_for_people_identifies_nothing(tmp_path: Path) -> None:
    result = scheduling.simulate(SERVING, "random", rounds=20, runs=2, seed=1, folder=tmp_path)
    assert set(result.settings["made_with"]) == {"python", "numpy", "numba"}
    assert result.settings["description"] == SERVING.describe()
    path = tmp_path / "settings.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "made_with": {"python": "2.7"}, "description": "?"}))
    again = scheduling.simulate(SERVING, "random", rounds=20, runs=3, seed=1, folder=tmp_path)
    assert again.runs == 3
