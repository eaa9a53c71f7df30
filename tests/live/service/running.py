"""A real server on a free port of loopback, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from uvicorn.server import ServerState


@contextlib.asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncIterator[str]:
    """Serve an ASGI app by uvicorn's protocol while the block runs; yields its URL. What still runs at the end is cancelled."""
    settings = {
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "http": "httptools",
        "access_log": False,
        **options,
    }
    config = uvicorn.Config(app, **settings)
    config.load()
    state = ServerState()
    state.default_headers = config.encoded_headers
    # With the protocol's number asyncio sends at once; without it an answer of two pieces waits 40 ms for the client's word.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    protocol: Any = config.http_protocol_class
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config=config, server_state=state, app_state={}), sock=listener, backlog=2048
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()
        tasks = list(state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
        await server.wait_closed()
