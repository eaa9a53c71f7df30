"""A headless Chromium at the end of its DevTools protocol, for tests of the page. It needs nothing but the aiohttp that the
service has anyway."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

#: Seconds that anything may take here.
PATIENCE = 30.0


def found() -> str | None:
    """Where a Chromium is on this machine; ``QUEUEWISE_CHROMIUM`` can name it."""
    names = (os.environ.get("QUEUEWISE_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)


class Tab:
    """A page. errors : what its console or an exception said · requests : addresses of all that it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.errors: list[str] = []
        self.requests: list[str] = []

    async def listen(self) -> None:
        """Take in what the browser says, until it is gone."""
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                answer = self._answers.pop(said["id"])
                if not answer.done():
                    answer.set_result(said)
                continue
            method, given = said["method"], said.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                self.errors.append(str(details.get("exception", details).get("description", details)))
            elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
                self.errors.append(str([one.get("value", one) for one in given["args"]]))
            elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                self.errors.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
            elif method == "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])

    async def call(self, method: str, **given: Any) -> Any:
        """A command of the protocol."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": given})
        said = await asyncio.wait_for(answer, PATIENCE)
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']}")
        return said["result"]

    async def see(self, expression: str) -> Any:
        """The value of an expression of JavaScript, awaited where it is a promise."""
        said = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in said:
            raise RuntimeError(f"{expression}: {said['exceptionDetails']}")
        return said["result"].get("value")

    async def until(self, expression: str, seconds: float = PATIENCE) -> Any:
        """Wait until an expression is true; its value."""
        end = asyncio.get_running_loop().time() + seconds
        while not (value := await self.see(expression)):
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"not within {seconds} s: {expression}; errors: {self.errors}")
            await asyncio.sleep(0.05)
        return value

    async def size(self, width: int, height: int, dark: bool = False) -> None:
        """The window, and what its user likes better."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        value = "dark" if dark else "light"
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    async def press(self, key: str) -> None:
        """A key, as Enter or Tab."""
        codes = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, "")}
        code, text = codes[key]
        given = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **given)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    async def picture(self, path: Path, whole: bool = True) -> None:
        """What it looks like, as PNG."""
        said = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(said["data"]))


@contextlib.asynccontextmanager
async def browsing(program: str) -> AsyncIterator[Tab]:
    """A fresh browser with one empty tab, and nothing of it left afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = [
            *("--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run"),
            *("--disable-gpu", "--disable-extensions", "--disable-background-networking", "--disable-sync"),
            *("--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio"),
            *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
        ]
        process = await asyncio.create_subprocess_exec(
            *(program, *options, "about:blank"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
        )
        try:
            port = await _port(Path(folder) / "DevToolsActivePort", process)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    target = next(one for one in await answer.json(content_type=None) if one["type"] == "page")
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    tab = Tab(socket)
                    listening = asyncio.create_task(tab.listen())
                    try:
                        for domain in ("Page", "Runtime", "Log", "Network"):
                            await tab.call(f"{domain}.enable")
                        yield tab
                    finally:
                        listening.cancel()
                        await asyncio.gather(listening, return_exceptions=True)
        finally:
            if process.returncode is None:
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 10.0)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    """Where the browser listens, which it writes into its folder when it does."""
    for _ in range(int(PATIENCE / 0.05)):
        if process.returncode is not None:
            raise RuntimeError(f"the browser ended at once, with {process.returncode}")
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(file.read_text().splitlines()[0])
        await asyncio.sleep(0.05)
    raise RuntimeError("the browser does not listen")
