"""The whole service, as a process of its own: started, reloaded, stopped, killed, and started again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .backends import Backend, streams, waits
from .running import serving

QUICK = aiohttp.ClientTimeout(total=20)


def free_port() -> int:
    """A port that nobody has now, and that is none of those (from 32768 on, or higher) that systems give to whoever connects or
    binds to any: such a one may be somebody's by the time that the service starts."""
    while True:
        port = secrets.choice(range(12_000, 32_000))
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


class Process:
    """`queuewise serve` with a file of settings, and what it says."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.file = folder, folder / "queuewise.yaml"
        self.port, self.admin = free_port(), free_port()
        self.url, self.admin_url = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.admin}"
        self.write(settings)
        self.process: subprocess.Popen[str] | None = None

    def write(self, settings: dict[str, Any]) -> None:
        whole = {"listen": self.port, "admin": self.admin, "log": {"format": "json"}, **settings}
        self.file.write_text(json.dumps(whole))

    def start(self) -> None:
        self.log = (self.folder / "log").open("a+")
        command = [sys.executable, "-W", "error", "-m", "queuewise", "serve", str(self.file)]
        self.process = subprocess.Popen(command, stderr=self.log, stdout=self.log, text=True)
        for _ in range(600):
            with contextlib.suppress(OSError):
                self.get("/livez")
                return
            if self.process.poll() is not None:
                raise AssertionError(self.said())
            time.sleep(0.05)
        raise AssertionError("it does not listen")

    def said(self) -> str:
        return (self.folder / "log").read_text()

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ends(self, seconds: float = 20.0) -> int:
        assert self.process is not None
        code = self.process.wait(seconds)
        self.log.close()
        return code

    def get(self, path: str, admin: bool = False) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen((self.admin_url if admin else self.url) + path, timeout=5) as answer:
                text = answer.read().decode()
                status = answer.status
        except urllib.error.HTTPError as error:
            with error:
                text, status = error.read().decode(), error.code
        return status, json.loads(text) if text.startswith("{") else text

    def completions(self) -> dict[str, int]:
        _, found = self.get("/workers", admin=True)
        return {one["name"]: sum(rate["completions"] for rate in one["rates"]) for one in found["workers"]}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Process]]:
    """Processes that are killed at the end, whatever became of the test."""
    found: list[Process] = []
    yield found
    for one in found:
        if one.process is not None and one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        if one.process is not None:
            one.log.close()


@contextlib.asynccontextmanager
async def backends(*names: str) -> AsyncIterator[tuple[dict[str, Backend], dict[str, str]]]:
    async with contextlib.AsyncExitStack() as stack:
        apps = {name: Backend(name) for name in names}
        yield apps, {name: await stack.enter_async_context(serving(one)) for name, one in apps.items()}


def groups(urls: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"groups": {"g": {"backends": urls, **more}}}


async def posts(url: str, count: int, at_once: int = 8) -> list[int]:
    async with aiohttp.ClientSession(timeout=QUICK) as client:
        gate = asyncio.Semaphore(at_once)

        async def one() -> int:
            async with gate, client.post(url + "/v1/chat/completions", json={"model": "m"}) as answer:
                await answer.read()
                return answer.status

        return await asyncio.gather(*(one() for _ in range(count)))


def test_from_start_to_end_and_on_from_there(tmp_path: Path, started: list[Process]) -> None:
    """Traffic; a reload with a mistake; a reload that adds and removes; SIGTERM while a stream runs; a second start that knows
    what the first one learned; the decisions of both on disk."""

    async def test() -> None:
        async with backends("a", "b", "c") as (apps, urls):
            ab = {name: urls[name] for name in ("a", "b")}
            kept = {"state": "learned", "record": {"folder": "decisions", "flush_seconds": 60}}
            one = Process(tmp_path, {**kept, **groups(ab)})
            started.append(one)
            await asyncio.to_thread(one.start)
            assert set(await posts(one.url, 60)) == {200}
            assert sum(one.completions().values()) == 60
            assert one.get("/readyz") == (200, "ok\n")
            assert 'queuewise_requests_total{backend="a"' in one.get("/metrics")[1]
            assert "<html" in one.get("/", admin=True)[1]

            one.write({**kept, **groups(ab), "retrys": {}})
            one.signal(signal.SIGHUP)
            await until(lambda: "nothing was changed" in one.said())
            assert "retrys: there is no such setting; did you mean 'retries'?" in one.said()
            assert 'queuewise_config_reloads_total{result="failure"} 1' in one.get("/metrics")[1]
            assert list(one.completions()) == ["a", "b"]

            before = one.completions()
            bc = {name: urls[name] for name in ("b", "c")}
            one.write({**kept, **groups(bc), "log": {"format": "text"}})
            one.signal(signal.SIGHUP)
            await until(lambda: "reload: done" in one.said())
            assert "log can only change by a restart" in one.said()
            assert one.completions() == {"b": before["b"], "c": 0}
            assert set(await posts(one.url, 40)) == {200}
            assert apps["c"].heard

            for app in apps.values():
                app.act = streams([b"data: 1\n\n"] * 10, gap=0.1)
            async with (
                aiohttp.ClientSession(timeout=QUICK) as client,
                client.post(one.url + "/v1/chat/completions", json={}) as answer,
            ):
                assert await answer.content.readany() == b"data: 1\n\n"
                one.signal(signal.SIGTERM)
                assert (await answer.read()).count(b"data") == 9  # it is finished
            assert await asyncio.to_thread(one.ends) == 0
            assert one.said().count("stopped") == 1 and "Traceback" not in one.said()

            again = Process(tmp_path, {**kept, **groups(bc)})
            started.append(again)
            await asyncio.to_thread(again.start)
            assert sum(again.completions().values()) == 40 + before["b"] + 1
            again.signal(signal.SIGINT)
            assert await asyncio.to_thread(again.ends) == 0

    asyncio.run(test())
    from queuewise.replay.recordings import read_recording

    log = read_recording(tmp_path / "decisions")
    assert log.recorded is not None
    command = [sys.executable, "-m", "queuewise", "replay", str(tmp_path / "decisions"), "--json", "--out"]
    told = subprocess.run([*command, str(tmp_path / "out")], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert "same" in told.stdout and found


async def endless(url: str) -> None:
    while True:
        await posts(url, 50)


async def until(true: Any, seconds: float = 10.0) -> None:
    for _ in range(int(seconds / 0.02)):
        if await asyncio.to_thread(true):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came true")


def test_killed_under_load_it_goes_on_where_it_was(tmp_path: Path, started: list[Process]) -> None:
    async def test() -> None:
        async with backends("a", "b") as (_, urls):
            settings = {"state": "learned", "save_seconds": 0.2, **groups(urls)}
            file = tmp_path / "learned"
            learned = 0
            for _ in range(3):
                one = Process(tmp_path, settings)
                started.append(one)
                await asyncio.to_thread(one.start)
                assert sum(one.completions().values()) >= learned
                load = asyncio.create_task(endless(one.url))
                await until(lambda one=one, least=learned: sum(one.completions().values()) > least + 20)
                learned = sum(one.completions().values())
                for _ in range(2):  # a save may have begun before that; the next one has not
                    before = file.stat().st_mtime_ns if file.exists() else 0
                    await until(lambda before=before: file.exists() and file.stat().st_mtime_ns != before)
                one.signal(signal.SIGKILL)
                load.cancel()
                await asyncio.gather(load, return_exceptions=True)
                assert await asyncio.to_thread(one.ends) == -signal.SIGKILL
            assert learned > 0
            assert not list(tmp_path.glob("*damaged*"))
            assert len(list(tmp_path.glob("*.new"))) <= 1

    asyncio.run(test())


def test_what_a_reload_may_not_change_stays(tmp_path: Path, started: list[Process]) -> None:
    """A port stays where it is, so it keeps its token too; and a plain rule goes on deciding."""

    async def test() -> None:
        async with backends("a", "b") as (_, urls):
            one = Process(tmp_path, {"token": "t0ken", **groups(urls)})
            started.append(one)
            await asyncio.to_thread(one.start)
            one.write({"listen": "127.0.0.1:1", "limits": {"body": 10}, **groups(urls)})
            one.signal(signal.SIGHUP)
            await until(lambda: "listen, limits can only change by a restart" in one.said())
            assert await posts(one.url, 1) == [200]  # on a loopback address it may do without
            one.write({"listen": f"0.0.0.0:{one.port}", "token": "t0ken", **groups(urls)})
            one.signal(signal.SIGHUP)
            await until(lambda: one.said().count("reload: done") == 2)
            assert await posts(one.url, 1) == [401]
            async with aiohttp.ClientSession(timeout=QUICK) as client:
                order = {"group": "g", "rule": "round_robin"}
                async with client.post(one.admin_url + "/override", json=order) as answer:
                    assert answer.status == 200
            one.write({**groups(urls, half_life=5.0)})
            one.signal(signal.SIGHUP)
            await until(lambda: one.said().count("reload: done") == 3)
            assert one.get("/report", admin=True)[1]["groups"]["g"]["override"] == "round_robin"

    asyncio.run(test())


def test_not_ready_is_said_before_the_port_is_closed(tmp_path: Path, started: list[Process]) -> None:
    async def test() -> None:
        async with backends("a") as (_, urls):
            one = Process(tmp_path, {"timeouts": {"notice": 1.0}, **groups(urls)})
            started.append(one)
            await asyncio.to_thread(one.start)
            one.signal(signal.SIGTERM)
            await until(lambda: one.get("/readyz")[0] == 503)
            assert one.get("/livez")[0] == 200
            assert await posts(one.url, 1) == [200]  # who has not noticed yet is served
            assert await asyncio.to_thread(one.ends) == 0

    asyncio.run(test())


def test_what_does_not_end_is_ended(tmp_path: Path, started: list[Process]) -> None:
    async def test() -> None:
        async with backends("a") as (apps, urls):
            one = Process(tmp_path, {"timeouts": {"grace": 0.5}, **groups(urls)})
            started.append(one)
            await asyncio.to_thread(one.start)
            apps["a"].act = waits(60.0)
            hanging = asyncio.create_task(posts(one.url, 1))
            await until(lambda: bool(apps["a"].heard))
            one.signal(signal.SIGTERM)
            assert await asyncio.to_thread(one.ends, 10.0) == 0
            assert await hanging == [503]
            await until(lambda: apps["a"].left == 1)
            assert "Traceback" not in one.said()


def test_told_twice_it_does_not_wait_and_asks_nobody_else(tmp_path: Path, started: list[Process]) -> None:
    async def test() -> None:
        async with backends("a", "b") as (apps, urls):
            one = Process(tmp_path, {"log": {"format": "json", "requests": True}, **groups(urls)})
            started.append(one)
            await asyncio.to_thread(one.start)
            apps["a"].act = apps["b"].act = waits(60.0)
            hanging = asyncio.create_task(posts(one.url, 1))
            await until(lambda: bool(apps["a"].heard or apps["b"].heard))
            one.signal(signal.SIGTERM)
            await until(lambda: "told to stop" in one.said())
            one.signal(signal.SIGTERM)
            assert await asyncio.to_thread(one.ends, 10.0) == 0
            assert await hanging == [503]
            assert len(apps["a"].heard) + len(apps["b"].heard) == 1
            assert "Traceback" not in one.said() and '"end":"answered"' in one.said()

    asyncio.run(test())


def run_cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "queuewise", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_what_cannot_be_started_says_why_in_a_sentence(tmp_path: Path, started: list[Process]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("{groups: {g: {backends: {a: 'http://x'}}}, listen: 0.0.0.0:1, admin: off}")
    for arguments, sentence in (
        (("serve",), "serve: name a file of settings, or backends by --backend URL (not both)"),
        (("serve", str(file), "--backend", "http://x"), "(not both)"),
        (("serve", str(file), "--policy", "jsq"), "go with --backend"),
        (("serve", str(file)), f"{file}: token: is needed where listen is no loopback address, as 0.0.0.0:1 is"),
        (("serve", str(tmp_path / "no.yaml")), "cannot be read (No such file or directory)"),
        (("serve", "--backend", "http://x", "--policy", "sedd"), "no rule is called 'sedd'; did you mean 'sed'?"),
        (("check-config",), "file: name a file of settings (or --schema)"),
    ):
        told = run_cli(*arguments)
        assert (told.returncode, told.stdout) == (2, ""), told
        assert told.stderr.startswith("queuewise: ") and sentence in told.stderr, told.stderr
        assert "Traceback" not in told.stderr and told.stderr.count("\n") == 1


def test_a_second_process_on_the_same_state_or_port(tmp_path: Path, started: list[Process]) -> None:
    one = Process(tmp_path, {"state": "learned", **groups({"a": "http://127.0.0.1:1"})})
    started.append(one)
    one.start()
    other = tmp_path / "other.yaml"
    other.write_text(
        json.dumps({"listen": free_port(), "admin": "off", "state": "learned", **groups({"a": "http://x"})})
    )
    told = run_cli("serve", str(other))
    assert told.returncode == 2 and f"learned is in use by process {one.process.pid}" in told.stderr, told  # type: ignore[union-attr]
    other.write_text(json.dumps({"listen": one.port, "admin": "off", **groups({"a": "http://x"})}))
    told = run_cli("serve", str(other))
    assert told.returncode == 2 and f"listen: 127.0.0.1:{one.port} cannot be listened on" in told.stderr
    assert one.get("/readyz")[0] == 200


def test_check_config(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("groups: {g: {models: [m], backends: {a: {url: 'http://x', key: '${KEY}'}}}}")
    good = run_cli("check-config", str(file), KEY="s3cret")
    assert good.returncode == 0 and "group g: m; optimistic_sed; sheds nothing" in good.stdout
    assert "a: http://x, 1 slot, a key of its own" in good.stdout and good.stderr == ""
    assert "s3cret" not in good.stdout + good.stderr
    file.write_text("groups: {g: {backends: {a: 'http://x', b: 'http://x'}}}")
    noted = run_cli("check-config", str(file))
    assert noted.returncode == 0 and "is good:" in noted.stdout
    assert noted.stderr.startswith(f"queuewise: {file}: warning: groups.g.backends: a and b have the same url")
    assert len(json.loads(run_cli("check-config", str(file), "--json").stdout)["notes"]) == 1
    file.write_text("{groups: {g: {policy: sedd, backends: {a: 'http://x'}}}, listen: 0.0.0.0:1}")
    bad = run_cli("check-config", str(file))
    assert bad.returncode == 2 and bad.stderr.count("queuewise: ") == 2 == bad.stderr.count("\n")
    as_json = run_cli("check-config", str(file), "--json")
    assert as_json.returncode == 2 and len(json.loads(as_json.stdout)["mistakes"]) == 2
    assert json.loads(run_cli("check-config", "--schema").stdout)["type"] == "object"


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise ModuleNotFoundError('no', name='yaml')")
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    for command in ("serve", "check-config"):
        told = run_cli(command, "x.yaml", PYTHONPATH=paths)
        assert told.returncode == 2
        assert told.stderr == (
            f"queuewise: {command}: needs yaml, which is not installed; the extra serve has all it needs: pip install "
            "'queuewise[serve]', or in a clone pip install -e '.[serve]'\n"
        )


def test_it_takes_as_many_files_as_its_connections_need(caplog: pytest.LogCaptureFixture) -> None:
    from queuewise.live.service.config import LimitsConfig
    from queuewise.live.service.server import _want_files

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        _want_files(LimitsConfig(connections=100))
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (328, before[1]) and not caplog.records
        _want_files(LimitsConfig(connections=10))  # more than that is nobody's harm
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (328, before[1])
        if before[1] != resource.RLIM_INFINITY:
            _want_files(LimitsConfig(connections=before[1]))
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
            assert f"but only {before[1]} may be" in caplog.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
