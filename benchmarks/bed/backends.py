"""HTTP backends, OpenAI-like: many of them in one process, a port each.

    with Backends({"a": Behaviour([(0.0, 8.0)]), "b": Behaviour()}) as backends:
        backends.url["a"]             # POST /v1/chat/completions, GET /v1/models
        backends.start()              # time zero of everything that is to happen
        backends.set("a", slots=2)
        backends.served()["a"]        # counts

A request may say how much work it is (``"size"`` in its body), so that several rules meet the same work; otherwise the backend
draws it. ``"stream": true`` is answered in chunks spread over the service time. A backend does not notice that a client went
away, and serves on, as many do. The control port answers ``GET /`` (counts), ``POST /start`` and ``POST /NAME``.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .line import Behaviour, Line

HOST = "127.0.0.1"
ROOT = Path(__file__).parents[2]
#: Chunks of a streamed answer.
CHUNKS = 8
JSON = (b"content-type", b"application/json")


class Backend:
    """One backend: an ASGI app. Its clock is `time.monotonic`, which is the event loop's too, but for the loop's whole ms."""

    def __init__(self, name: str, behaviour: Behaviour, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.loop = loop
        self.line = Line(behaviour, loop.call_at)
        self.rng = random.Random(f"{behaviour.seed} {name}")
        self.counts: Counter[str] = Counter()

    def counted(self) -> dict[str, Any]:
        """What was served until now."""
        inside = self.counts["came"] - self.counts["served"] - self.counts["failed"]
        return {**self.counts, "inside": inside, "busy_time": self.line.busy_time}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/v1/chat/completions":
            listed = {"object": "list", "data": [{"id": "small", "object": "model", "owned_by": self.name}]}
            await answer(send, 200 if scope["path"] in ("/v1/models", "/health") else 404, listed)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        now = time.monotonic()
        since = now - self.line.zero
        asked = json.loads(body) if body else {}
        kept = [(name, value) for name, value in scope["headers"] if name == b"x-request-id"]
        self.counts["came"] += 1
        behaviour = self.line.behaviour
        if behaviour.fails[0] <= since < behaviour.fails[1] and self.rng.random() < behaviour.share:
            await asyncio.sleep(behaviour.fail_time)
            self.counts["failed"] += 1
            error = {"message": f"backend {self.name} fails", "type": "server_error", "param": None, "code": None}
            await answer(send, 500, {"error": error}, kept)
            return
        size = asked.get("size")
        work = behaviour.size(self.rng) if size is None else float(size)
        placed: asyncio.Future[tuple[float, float]] = self.loop.create_future()
        self.line.join(work, now, lambda begins, departs: placed.set_result((begins, departs)))
        begins, departs = await placed
        if asked.get("stream"):
            await self.stream(send, begins, departs, kept)
        else:
            await self.until(departs)
            await answer(send, 200, self.completion("message", "done"), kept)
        self.counts["served"] += 1

    async def stream(self, send: Any, begins: float, departs: float, kept: list[tuple[bytes, bytes]]) -> None:
        headers = [(b"content-type", b"text/event-stream"), *kept]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in range(1, CHUNKS + 1):
            await self.until(begins + (departs - begins) * chunk / CHUNKS)
            data = json.dumps(self.completion("delta", f"{chunk} ")).encode()
            await send({"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    def completion(self, kind: str, text: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.counts['came']}",
            "object": "chat.completion" if kind == "message" else "chat.completion.chunk",
            "model": "small",
            "backend": self.name,
            "choices": [{"index": 0, kind: {"role": "assistant", "content": text}, "finish_reason": None}],
        }

    async def until(self, when: float) -> None:
        """Sleeps to a time, and about a millisecond longer: event loops have no finer timers."""
        if when > time.monotonic():
            woken = self.loop.create_future()
            self.loop.call_at(when, woken.set_result, None)
            await woken


async def answer(
    send: Any, status: int, body: dict[str, Any], headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """A JSON answer."""
    data = json.dumps(body).encode()
    length = (b"content-length", str(len(data)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [JSON, length, *(headers or [])]})
    await send({"type": "http.response.body", "body": data})


class Door:
    """A port where an app listens, or does not."""

    def __init__(self, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        from uvicorn.config import Config
        from uvicorn.server import ServerState

        self.loop = loop
        self.config = Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            timeout_keep_alive=3600,
        )
        self.config.load()
        self.state = ServerState()
        self.port = 0
        self.server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listens, at the same port as ever."""
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

        if self.server is not None:
            return
        plug = socket.socket()
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        plug.bind((HOST, self.port))
        self.port = plug.getsockname()[1]
        self.server = await self.loop.create_server(
            lambda: HttpToolsProtocol(self.config, self.state, {}), sock=plug, backlog=2048
        )

    def shut(self) -> None:
        """Refuses whoever comes, and hangs up on whoever is there."""
        if self.server is not None:
            self.server.close()
            self.server = None
        for connection in list(self.state.connections):
            connection.transport.abort()


class Bed:
    """The backends of one process, and their control port: an ASGI app too."""

    def __init__(self, behaviours: Mapping[str, Behaviour], loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.backends = {name: Backend(name, one, loop) for name, one in behaviours.items()}
        self.doors = {name: Door(one, loop) for name, one in self.backends.items()}
        self.control = Door(self, loop)
        self.timers: list[asyncio.TimerHandle] = []

    async def open(self) -> dict[str, Any]:
        for door in [*self.doors.values(), self.control]:
            await door.open()
        return {"control": self.control.port, "ports": {name: door.port for name, door in self.doors.items()}}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive()).get("body", b"")
        asked = json.loads(body) if body else {}
        name = scope["path"][1:]
        if name == "start":
            self.start(float(asked["at"]))
        elif name in self.backends:
            try:
                self.set(name, asked)
            except (TypeError, ValueError) as error:
                await answer(send, 400, {"error": str(error)})
                return
        elif name:
            await answer(send, 404, {"error": f"no backend is called {name!r}"})
            return
        await answer(send, 200, {name: one.counted() for name, one in self.backends.items()})

    def start(self, at: float) -> None:
        """The run begins at a time of this machine's monotonic clock; until then everything is as at its start."""
        for timer in self.timers:
            timer.cancel()
        self.timers = []
        for name, backend in self.backends.items():
            backend.line.zero = at
            shut, opened = backend.line.behaviour.refuses
            if shut < float("inf"):
                self.timers.append(self.loop.call_at(at + shut, self.doors[name].shut))
            if opened < float("inf"):
                again = self.doors[name].open
                self.timers.append(self.loop.call_at(at + opened, lambda again=again: self.loop.create_task(again())))

    def set(self, name: str, changes: dict[str, Any]) -> None:
        """Another behaviour from now on. `listens` : whether anybody does. Raises ValueError, TypeError for what is none."""
        listens = changes.pop("listens", None)
        line = self.backends[name].line
        line.behaviour = replace(line.behaviour, **changes)
        line.resized(time.monotonic())
        if listens is True:
            self.loop.create_task(self.doors[name].open())
        elif listens is False:
            self.doors[name].shut()


async def _serve(behaviours: Mapping[str, Behaviour]) -> None:
    loop = asyncio.get_running_loop()
    bed = Bed(behaviours, loop)
    print(json.dumps(await bed.open()), flush=True)
    # Whoever started this process holds the other end of its standard input; when that is gone, so are we.
    await loop.run_in_executor(None, sys.stdin.read)


class Backends:
    """Backends in a process of their own. Ends with the block, or with this process."""

    def __init__(self, behaviours: Mapping[str, Behaviour]) -> None:
        self.behaviours = dict(behaviours)
        self.url: dict[str, str] = {}
        self.process: subprocess.Popen[str] | None = None
        self.control = ""

    @property
    def pid(self) -> int:
        """Of their process."""
        assert self.process is not None
        return self.process.pid

    def __enter__(self) -> Backends:
        given = json.dumps({name: asdict(one) for name, one in self.behaviours.items()})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bed.backends"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(given + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        if not said:
            self.__exit__()
            raise RuntimeError("the backends' process ended before it listened; what it said is above")
        found = json.loads(said)
        self.control = f"http://{HOST}:{found['control']}"
        self.url = {name: f"http://{HOST}:{port}" for name, port in found["ports"].items()}
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.communicate()
            self.process = None

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Of the control port."""
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.control + path, data=data), timeout=10) as found:
            return json.load(found)

    def start(self, at: float | None = None) -> float:
        """Time zero, on this machine's monotonic clock: now, unless said."""
        zero = time.monotonic() if at is None else at
        self.ask("/start", {"at": zero})
        return zero

    def set(self, name: str, **changes: Any) -> None:
        """Another behaviour from now on; `listens=False` shuts the port."""
        self.ask(f"/{name}", changes)

    def served(self) -> dict[str, Any]:
        """What every backend has served."""
        found: dict[str, Any] = self.ask("/")
        return found


if __name__ == "__main__":
    import uvloop

    given = json.loads(sys.stdin.readline())
    uvloop.run(_serve({name: Behaviour(**one) for name, one in given.items()}))
