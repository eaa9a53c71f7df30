"""Figures are drawn without pyplot, look different line by line, and are written whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.runs.plot import COLOURS, STYLES, curves, label_of, save_figure, shortened, style
from queuewise.runs.result import Result, Rows


def result(runs: int = 5, rounds: int = 60, policies: int = 3) -> Result:
    names = [f"p{i}" for i in range(policies)]
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, 9, (runs, rounds)).astype(np.int32) for name in ["oracle", *names]}
    described = [{"name": name, "rule": name, "options": {}, "label": f"{name}(x=1)"} for name in names]
    settings: dict[str, Any] = {"rounds": rounds, "seed": 1, "policies": described, "version": "1"}
    return Result(settings, Rows(columns))


def test_lines_bands_and_labels() -> None:
    found = result()
    figure = found.plot(window=5)
    (axes,) = figure.axes
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    assert [line.get_label() for line in lines] == ["p0(x=1)", "p1(x=1)", "p2(x=1)"]
    np.testing.assert_allclose(lines[1].get_ydata(), found.regret("p1").smooth(5).mean)
    assert len(axes.collections) == 3
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["p0(x=1)", "p1(x=1)", "p2(x=1)"]
    assert axes.get_title(loc="left") == "5 runs, 95 % intervals of the mean, moving average over 5 rounds"
    assert (
        curves(found, ["p2"], band="sd", window=1).axes[0].get_title(loc="left")
        == "5 runs, ± 2 standard deviations of a run"
    )
    assert curves(found, title="mine").axes[0].get_title(loc="left") == "mine"


def test_a_policy_looks_the_same_in_every_panel() -> None:
    alone = curves(result(), ["p2"]).axes[0].lines[0]
    among = curves(result()).axes[0].lines[2]
    assert (alone.get_color(), alone.get_linestyle()) == (among.get_color(), among.get_linestyle())


def test_no_two_look_the_same() -> None:
    assert len({str(style(place)) for place in range(len(COLOURS) * len(STYLES))}) == len(COLOURS) * len(STYLES)


def test_one_run_has_no_band() -> None:
    figure = curves(result(runs=1))
    assert not figure.axes[0].collections
    assert figure.axes[0].get_title(loc="left") == "1 run, moving average over 25 rounds"


def test_a_long_label_does_not_push_the_curves_away() -> None:
    found = result()
    found.settings["policies"][0]["label"] = "p0(" + "x" * 100 + ")"
    assert curves(found).axes[0].lines[0].get_label() == "p0"


def test_long_lines_are_thinned() -> None:
    line = curves(result(runs=2, rounds=10_000, policies=1)).axes[0].lines[0]
    assert len(line.get_xdata()) == 1000


def test_files_are_whole_and_the_same_again(tmp_path: Path) -> None:
    paths = save_figure(curves(result()), tmp_path / "new", "figure")
    assert [path.name for path in paths] == ["figure.png", "figure.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in paths[1].read_bytes()
    again = save_figure(curves(result()), tmp_path / "again", "figure")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["figure.png", "figure.svg"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="folder: cannot write to"):
        save_figure(curves(result()), tmp_path / "file", "figure")


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="band must be 'interval', 'sd' or None, not 'both'"):
        curves(result(), band="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="none called 'p9'"):
        curves(result(), ["p9"])


def test_pyplot_is_left_alone() -> None:
    program = (
        "import sys; sys.path.insert(0, '.'); from tests.runs.test_plot import result;"
        "result().plot(); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


def test_a_name_is_no_formula_and_not_longer_than_a_figure() -> None:
    assert label_of("$x$", "$x$") == r"\$x\$"
    long = [f"{'a' * 100}, samples={i}" for i in (1, 2)]
    assert [len(shortened(name)) for name in long] == [44, 44]
    assert shortened(long[0]) != shortened(long[1])
    assert shortened("a" * 44) == "a" * 44


def test_many_policies_leave_room_for_the_curves(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    save_figure(curves(result(policies=40)), tmp_path, "many")
    assert not [str(warning.message) for warning in recwarn]
