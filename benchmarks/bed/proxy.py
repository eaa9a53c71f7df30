"""The service of this package as the proxy of the test bed, in a process of its own, with a group for each rule.

    with Proxy({"router": "optimistic_sed", "known rates": TrueSed}, scenario, backends, seconds) as proxy:
        proxy.url, proxy.model["router"]
        proxy.start(zero)

A rule is a policy's name, which the service makes its router of, or the name of a class of `tests.live.virtual`: the same
objects as in virtual time, in a router that learns but does not decide (shadow mode).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from queuewise.live import NoServerError, Router, Server, Ticket
from tests.live import virtual

from .backends import HOST, ROOT
from .scenarios import ON_SOCKETS, Scenario


def slug(rule: str) -> str:
    """A rule's name, as that of a group and a model."""
    return re.sub(r"[^a-z0-9]+", "-", rule.lower()).strip("-")


class Ruled(Router):
    """A router that does as a rule of virtual time says. Its names are those of the backends, in order."""

    def __init__(self, names: Sequence[str], backends: Sequence[virtual.Backend], kind: str, seed: int) -> None:
        there = {name: Server(one.slots) for name, one in zip(names, backends, strict=True) if one.there[0] <= 0.0}
        super().__init__(there, "jsq", circuit=None, seed=seed)
        self.names = list(names)
        self.rule: virtual.Rule = getattr(virtual, kind)(backends, seed)
        self.zero = time.monotonic()
        self.tokens: dict[int, Any] = {}

    def route(self, key: str | None = None, work: float = 1.0, *, avoid: Iterable[str] = ()) -> Ticket:
        usable = set(self.servers) - set(avoid)
        there = [i for i, name in enumerate(self.names) if name in usable]
        if not there:
            raise NoServerError("no usable server")
        at, token = self.rule.choose(time.monotonic() - self.zero, there)
        ticket = self.watch(self.names[at], key, work)
        self.tokens[ticket.number] = token
        return ticket

    def complete(self, ticket: Ticket, work: float | None = None) -> bool:
        return self._done(ticket, super().complete(ticket, work), True)

    def fail(self, ticket: Ticket, kind: str = "error") -> bool:
        return self._done(ticket, super().fail(ticket, kind), False)

    def cancel(self, ticket: Ticket) -> bool:
        return self._done(ticket, super().cancel(ticket), False)

    def _done(self, ticket: Ticket, released: bool, ok: bool) -> bool:
        if released:
            now = time.monotonic()
            token = self.tokens.pop(ticket.number)
            self.rule.done(self.names.index(ticket.server), token, now - self.zero, ok, now - ticket.issued)
        return released


def settings(rules: Mapping[str, str], scenario: Scenario, urls: Mapping[str, str]) -> dict[str, Any]:
    """Of the service: a group for each rule. Rules other than ours have no circuits, and nothing is retried."""
    groups = {}
    for rule, kind in rules.items():
        name = slug(rule)
        policy = kind if not hasattr(virtual, kind) else "jsq"
        groups[name] = {
            "models": [name],
            "policy": policy,
            "backends": {
                f"b{i}": {"url": urls[f"{name}.b{i}"], "slots": one.slots}
                for i, one in enumerate(scenario.backends)
                if one.there[0] <= 0.0
            },
            **({} if policy == "optimistic_sed" else {"circuit": "off"}),
        }
    return {
        "listen": f"{HOST}:0",
        "admin": f"{HOST}:0",
        "limits": {"connections": 16384, "head_seconds": 3600.0},  # the load tool opens its connections beforehand
        "retries": {"tries": 1},
        "log": {"level": "error"},
        "groups": groups,
    }


class Proxy:
    """The service, for a scenario that lasts `seconds`. Ends with the block, or with this process."""

    def __init__(
        self, rules: Mapping[str, str], scenario: Scenario, urls: Mapping[str, str], seconds: float, seed: int = 0
    ) -> None:
        self.model = {rule: slug(rule) for rule in rules}
        self.scenario, self.urls, self.seconds = scenario, urls, seconds
        self.spec = {"rules": dict(rules), "scenario": scenario.name, "seconds": seconds, "seed": seed}
        self.config = settings(rules, scenario, urls)
        self.process: subprocess.Popen[str] | None = None
        self.url = self.admin = ""
        self.timers: list[threading.Timer] = []

    def __enter__(self) -> Proxy:
        self.folder = tempfile.TemporaryDirectory(prefix="queuewise-bed-")
        path = Path(self.folder.name) / "config.yaml"
        path.write_text(yaml.safe_dump(self.config))
        command = [sys.executable, "-m", "benchmarks.bed.proxy", str(path), json.dumps(self.spec)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, bufsize=1
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if not said:
            self.__exit__()
            raise RuntimeError("the proxy's process ended before it listened; what it said is above")
        self.url, self.admin = json.loads(said)
        return self

    def __exit__(self, *_: object) -> None:
        for timer in self.timers:
            timer.cancel()
        if self.process is not None:
            self.process.terminate()
            self.process.communicate()
            self.process = None
        self.folder.cleanup()

    def start(self, zero: float) -> None:
        """Time zero, on this machine's monotonic clock. Newcomers are added at their time, by the admin interface."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(f"{zero!r}\n")
        self.process.stdin.flush()
        for i, one in enumerate(self.scenario.backends):
            if one.there[0] > 0.0:
                delay = zero + one.there[0] * self.seconds - time.monotonic()
                timer = threading.Timer(delay, self._join, (i,))
                timer.daemon = True
                timer.start()
                self.timers.append(timer)

    def _join(self, i: int) -> None:
        for name in self.model.values():
            body = {
                "group": name,
                "name": f"b{i}",
                "url": self.urls[f"{name}.b{i}"],
                "slots": self.scenario.backends[i].slots,
            }
            request = urllib.request.Request(
                f"{self.admin}/workers", json.dumps(body).encode(), {"content-type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()

    def spent(self) -> float:
        """Seconds of processor time until now."""
        assert self.process is not None
        return processor_time(self.process.pid)


def processor_time(process: int) -> float:
    """Seconds that a process has computed, user and system."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _main(path: Path, spec: dict[str, Any]) -> None:
    import uvloop

    from queuewise.live.service import logs
    from queuewise.live.service.config import read
    from queuewise.live.service.server import Running

    scenario = next(one for one in ON_SOCKETS if one.name == spec["scenario"])
    backends = scenario.lasting(spec["seconds"])
    ruled: list[Ruled] = []
    config = read(path)
    logs.setup(config.log)

    async def main() -> None:
        running = Running(config, path)
        try:
            for k, (rule, kind) in enumerate(spec["rules"].items()):
                if hasattr(virtual, kind):
                    router = Ruled([f"b{i}" for i in range(len(backends))], backends, kind, spec["seed"] + k)
                    running.service.groups[slug(rule)].router = router
                    ruled.append(router)
            print(json.dumps(running.addresses), flush=True)
            threading.Thread(target=listen, daemon=True).start()
            await running.run(signals=True)
        finally:
            running.close()

    def listen() -> None:
        for line in sys.stdin:
            for router in ruled:
                router.zero = float(line)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


if __name__ == "__main__":
    _main(Path(sys.argv[1]), json.loads(sys.argv[2]))
