"""What was learned, on disk: it comes back, nothing damages it, and nobody else has it."""

from __future__ import annotations

import json
import logging
import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from queuewise.live.errors import StoreError
from queuewise.live.service.config import parse
from queuewise.live.service.service import Service
from queuewise.live.service.state import FORMAT, State

TEXT = "groups: {x: {models: [m], backends: {a: 'http://a', b: 'http://b'}}, y: {backends: {c: 'http://c'}}}"


def taught() -> Service:
    service = Service(parse(TEXT))
    for group in service.groups.values():
        for _ in range(30):
            group.router.complete(group.router.route())
    return service


def known(service: Service) -> dict[str, list[int]]:
    return {
        name: [one["completions"] for one in group.router.estimates().values()]
        for name, group in service.groups.items()
    }


def test_it_comes_back(tmp_path: Path) -> None:
    service = taught()
    state = State(tmp_path / "deep" / "learned")
    assert state.save(service.groups)
    state.close()
    anew = Service(parse(TEXT))
    state = State(tmp_path / "deep" / "learned")
    assert [state.restore(group) for group in anew.groups.values()] == [["a", "b"], ["c"]]
    assert known(anew) == known(service) and sum(known(anew)["x"]) == 30
    other = Service(
        parse("groups: {x: {models: [m], classes: [k], backends: {a: 'http://a'}}, z: {backends: {c: 'http://c'}}}")
    )
    assert [state.restore(group) for group in other.groups.values()] == [[], []]
    state.close()


def test_a_group_that_is_away_is_not_forgotten(tmp_path: Path) -> None:
    service = taught()
    state = State(tmp_path / "learned")
    gone = service.groups.pop("y")
    state.keep(gone)
    assert state.save(service.groups)
    state.close()
    state = State(tmp_path / "learned")
    assert state.save({})
    state.close()
    anew = Service(parse(TEXT))
    state = State(tmp_path / "learned")
    assert [state.restore(group) for group in anew.groups.values()] == [["a", "b"], ["c"]]
    state.close()


def test_a_link_to_it_is_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "learned")
    state = State(tmp_path / "learned")
    with pytest.raises(StoreError, match="in use"):
        State(tmp_path / "link")
    state.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    state = State(tmp_path / "learned")
    with pytest.raises(
        StoreError, match=r"^state: .*learned is in use by this process already; one process at a time"
    ) as found:
        State(tmp_path / "learned")
    assert found.value.status == "locked"
    state.close()
    State(tmp_path / "learned").close()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "nonsense", "no about", "pickled"])
def test_what_cannot_be_read_is_moved_aside(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "learned"
    state = State(path)
    state.save(taught().groups)
    state.close()
    whole = path.read_bytes()
    if damage == "no about":
        with path.open("wb") as handle:
            np.savez(handle, x=np.zeros(3))
    elif damage == "pickled":
        with path.open("wb") as handle:
            np.savez(handle, about=np.array([{"format": 1}], dtype=object))
    else:
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes(byte ^ 255 for byte in whole[middle : middle + 400]) + whole[middle + 400 :]
        path.write_bytes({"cut": whole[:-200], "flipped": flipped, "empty": b"", "nonsense": b"not a zip file"}[damage])
    damaged = path.read_bytes()
    with caplog.at_level(logging.ERROR):
        state = State(path)
    (sentence,) = [one.getMessage() for one in caplog.records]
    (aside,) = tmp_path.glob("learned.damaged-*")
    assert sentence == f"state: {path} is damaged, or no file of this service; moved to {aside.name}, learning anew"
    service = Service(parse(TEXT))
    assert state.restore(service.groups["x"]) == []
    assert aside.read_bytes() == damaged
    assert state.save(service.groups) and path.exists()
    state.close()


def test_a_later_versions_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "learned"
    about = json.dumps({"format": FORMAT + 1, "version": "99.0", "groups": {}}).encode()
    with path.open("wb") as handle:
        np.savez(handle, about=np.frombuffer(about, dtype=np.uint8))
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"was written by version 99\.0, a later one"):
        State(path)
    assert path.read_bytes() == before
    with pytest.raises(StoreError, match="a later one"):
        State(path)  # and the lock was let go


def test_a_full_disk_is_said_once_and_keeps_the_old_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "learned"
    service = taught()
    state = State(path)
    assert state.save(service.groups)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with caplog.at_level(logging.INFO):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # no file may grow beyond it: as on a full disk
            assert not state.save(service.groups) and not state.save(service.groups)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert state.failures == 2 and state.trouble
        assert caplog.text.count("cannot be written") == 1
        assert path.read_bytes() == before
        assert sorted(os.listdir(tmp_path)) == ["learned", "learned.lock"]
        assert state.save(service.groups) and state.trouble is None
        assert "can be written again" in caplog.text
    state.close()


def test_whatever_a_flipped_bit_makes_of_the_file_it_is_moved_aside(tmp_path: Path) -> None:
    """Every bit of a member's head in turn: names of compressions that there are not, encryption, heads that are no heads."""
    path = tmp_path / "learned"
    state = State(path)
    state.save(taught().groups)
    state.close()
    whole = path.read_bytes()
    central = whole.index(b"PK\x01\x02")
    aside = 0
    for at in (*range(4, 14), *range(central + 4, central + 14), *range(len(whole) - 22, len(whole), 3)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << bit
            path.write_bytes(flipped)
            State(path).close()
            for one in tmp_path.glob("learned.damaged-*"):
                one.unlink()
                aside += 1
    assert aside > 20


def test_saves_at_the_same_time_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that ends while its slow disk still takes the save before."""
    real = os.fsync

    def slow(handle: int) -> None:
        time.sleep(0.1)
        real(handle)

    monkeypatch.setattr(os, "fsync", slow)
    service, state = taught(), State(tmp_path / "learned")
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: state.save(service.groups), range(3))) == [True] * 3
    assert state.failures == 0
    state.close()


def test_a_folder_that_cannot_be_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path, sentence in (
        ("file/learned", "state: there can be no folder .*file"),
        ("file/deep/learned", "state: there can be no folder .*deep"),
        ("folder", r"folder cannot be read \(Is a directory\)"),
    ):
        with pytest.raises(StoreError, match=sentence) as found:
            State(tmp_path / path)
        assert found.value.status == "failed"
