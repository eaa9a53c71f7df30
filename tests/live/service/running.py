"""A real server on a free port of loopback, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn


@contextlib.asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncIterator[str]:
    """Serve an ASGI app while the block runs; yields its URL."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        **{"ws": "none", "lifespan": "off", "log_config": None, "http": "httptools", "access_log": False, **options},
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server._serve([listener]))
    try:
        while not server.started:
            await asyncio.sleep(0.002)
            if task.done():
                task.result()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True
        await task
        listener.close()
