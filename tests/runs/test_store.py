"""Runs on disk: whole or not at all, found again bit for bit, never mixed with those of another experiment."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from queuewise.runs.store import Columns, Store, write_atomically

SETTINGS: dict[str, Any] = {
    "model": "test",
    "rounds": 30,
    "seed": 1,
    "system": {"law": "some", "slack": 0.05},
    "policies": [
        {"name": "wise", "rule": "wise", "options": {"radius": 100.0}, "label": "wise"},
        {"name": "mine", "rule": "mine", "options": {}, "label": "mine", "code": "abc"},
    ],
    "version": "1.0",
}
NAMES = ["oracle", "wise", "mine"]


def changed(**fields: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(SETTINGS)), **fields}


def columns(run: int) -> Columns:
    rng = np.random.default_rng(run)
    return {name: rng.integers(0, 90, 30).astype(np.int32) for name in NAMES}


def same(found: Columns | None, expected: Columns) -> bool:
    return (
        found is not None
        and list(found) == list(expected)
        and all(found[name].dtype == expected[name].dtype for name in expected)
        and all(np.array_equal(found[name], expected[name]) for name in expected)
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_runs_come_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "out", SETTINGS)
    assert store.runs() == []
    store.write(7, columns(7))
    store.write_many(0, [columns(run) for run in range(3)])
    again = Store(tmp_path / "new" / "out", SETTINGS)
    assert again.runs() == [0, 1, 2, 7]
    for run in (0, 1, 2, 7):
        assert same(again.read(run, 30, NAMES), columns(run))
    assert again.read(3, 30, NAMES) is None
    assert not list((tmp_path / "new" / "out").rglob("*.tmp"))


def test_rows_are_one_tidy_table(tmp_path: Path) -> None:
    store = Store(tmp_path, SETTINGS)
    store.write_many(0, [columns(0), columns(1)])
    store.write(2, columns(2))
    table = pq.read_table(tmp_path / "runs")
    assert table.column_names == ["run", "round", *NAMES]
    assert {str(field.type) for field in table.schema} == {"int32"}
    assert table["run"].to_pylist() == [run for run in range(3) for _ in range(30)]
    assert table["round"].to_pylist() == [*range(1, 31)] * 3
    assert table["wise"].to_pylist() == [value for run in range(3) for value in columns(run)["wise"].tolist()]


def test_settings_are_plain_json(tmp_path: Path) -> None:
    Store(tmp_path, SETTINGS)
    assert json.loads((tmp_path / "settings.json").read_text()) == SETTINGS
    assert Store(tmp_path, None).settings == SETTINGS


def test_runs_version_labels_and_order_are_no_part_of_the_experiment(tmp_path: Path) -> None:
    Store(tmp_path, SETTINGS).write(0, columns(0))
    other = changed(version="2.0", policies=[dict(policy, label="L") for policy in reversed(SETTINGS["policies"])])
    assert same(Store(tmp_path, other).read(0, 30, NAMES), columns(0))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (changed(seed=2), "seed is 1 there, 2 here"),
        (changed(rounds=31), "rounds is 30 there, 31 here"),
        (changed(system={"law": "some", "slack": 0.1}), "system.slack is 0.05 there, 0.1 here"),
        (changed(policies=SETTINGS["policies"][:1]), "policies.mine is there but not here"),
        (
            changed(policies=[*SETTINGS["policies"], {"name": "acqb", "rule": "acqb", "options": {}}]),
            "policies.acqb is here but not there",
        ),
        (
            changed(
                policies=[
                    {"name": "wise", "rule": "wise", "options": {"radius": 9.0}},
                    {"name": "mine", "rule": "mine", "options": {}, "code": "abd"},
                ]
            ),
            "policies.wise.options.radius is 100.0 there, 9.0 here; policies.mine was edited since",
        ),
        (changed(seed=2, rounds=1, model="m", system={}), "and 2 more"),
    ],
)
def test_another_experiment_is_refused(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    Store(tmp_path, SETTINGS).write(0, columns(0))
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="holds another experiment") as caught:
        Store(tmp_path, settings)
    assert sentence in str(caught.value)
    assert "nothing was changed" in str(caught.value)
    assert contents(tmp_path) == before


def test_a_damaged_file_counts_as_not_finished_and_is_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path, SETTINGS)
    for run in range(6):
        store.write(run, columns(run))
    paths = [tmp_path / "runs" / f"{run:06d}.parquet" for run in range(6)]
    data = paths[0].read_bytes()
    paths[0].write_bytes(data[: len(data) // 2])  # cut off
    paths[1].write_bytes(b"")
    paths[2].write_bytes(b"PAR1 this is not a table PAR1")
    middle = bytearray(paths[3].read_bytes())
    middle[len(middle) // 4] ^= 0x10  # one bit
    paths[3].write_bytes(bytes(middle))
    paths[4].write_bytes(paths[5].read_bytes())  # another run under this name
    store = Store(tmp_path, SETTINGS)
    for run in range(5):
        assert store.read(run, 30, NAMES) is None
        store.write(run, columns(run))
    again = Store(tmp_path, SETTINGS)
    assert all(same(again.read(run, 30, NAMES), columns(run)) for run in range(6))
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [path.name for path in paths]


def test_another_experiments_file_is_not_taken(tmp_path: Path) -> None:
    theirs = Store(tmp_path / "theirs", changed(seed=2))
    theirs.write(0, columns(0))
    ours = Store(tmp_path / "ours", SETTINGS)
    (tmp_path / "ours/runs/000000.parquet").write_bytes((tmp_path / "theirs/runs/000000.parquet").read_bytes())
    assert Store(tmp_path / "ours", SETTINGS).read(0, 30, NAMES) is None
    assert ours.read(0, 30, NAMES) is None


def test_a_damaged_file_of_many_runs_goes_when_all_are_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path, SETTINGS)
    store.write_many(0, [columns(run) for run in range(3)])
    path = tmp_path / "runs" / "000000-000002.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    store = Store(tmp_path, SETTINGS)
    for run in range(3):
        assert path.exists()
        assert store.read(run, 30, NAMES) is None
        store.write(run, columns(run))
    assert not path.exists()
    assert same(Store(tmp_path, SETTINGS).read(1, 30, NAMES), columns(1))


def test_missing_columns_count_as_not_finished(tmp_path: Path) -> None:
    store = Store(tmp_path, SETTINGS)
    store.write(0, columns(0))
    assert store.read(0, 30, [*NAMES, "wise.job"]) is None
    assert same(store.read(0, 30, NAMES[:2]), {name: columns(0)[name] for name in NAMES[:2]})
    assert store.read(0, 29, NAMES) is None


def test_leftovers_of_a_kill_are_cleared_when_old(tmp_path: Path) -> None:
    Store(tmp_path, SETTINGS)
    old, young = tmp_path / "runs" / ".000001.parquet.1-1.tmp", tmp_path / "runs" / ".000002.parquet.1-1.tmp"
    for path in (old, young):
        path.write_bytes(b"half a run")
    os.utime(old, (time.time() - 7200,) * 2)
    assert Store(tmp_path, SETTINGS).runs() == []
    assert not old.exists()
    assert young.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"policies": 3}', '{"policies": [{}]}', "\ufffd"])
def test_damaged_settings(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(ValueError, match=r"settings\.json is damaged"):
        Store(tmp_path, SETTINGS)
    assert (tmp_path / "settings.json").read_text() == text


def test_settings_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"folder: cannot read .*settings\.json"):
        Store(tmp_path, SETTINGS)


def test_results_without_settings(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(ValueError, match=r"has results but no settings\.json"):
        Store(tmp_path, SETTINGS)
    with pytest.raises(ValueError, match=r"holds no results \(settings\.json is missing\)"):
        Store(tmp_path / "nowhere", None)


def test_unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=r"folder: cannot (write to|read) .*file"):
            Store(folder, SETTINGS)
    assert (tmp_path / "file").read_text() == "in the way"
    with pytest.raises(ValueError, match="folder must be a path, not an empty text"):
        Store("", SETTINGS)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    store = Store(tmp_path / "out", SETTINGS)
    store.write(0, columns(0))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"folder: cannot write to .*runs \(No space left on device\)"):
        store.write(0, columns(1))
    assert same(store.read(0, 30, NAMES), columns(0))
    assert not list(tmp_path.rglob("*.tmp"))


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")

    def half(file: Any) -> None:
        file.write(b"half")
        raise RuntimeError("stopped in the middle")

    with pytest.raises(RuntimeError):
        write_atomically(path, half)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert path.read_text() == "before"


def test_settings_without_a_json_form(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="settings cannot be written as JSON"):
        Store(tmp_path / "out", changed(system=object()))
    assert not (tmp_path / "out").exists()
