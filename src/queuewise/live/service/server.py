"""The running service: both ports, signals, reload, and what is to be done from time to time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.routing import Router as Routes
from starlette.types import ASGIApp, Receive, Scope, Send

from . import admin, decisions, health, logs, metrics
from .config import Address, Config, ConfigError, LimitsConfig, read
from .errors import problem
from .groups import Group
from .history import History
from .metrics import Metrics
from .protocol import limited
from .proxy import Proxy
from .recording import Recorder, settings_of
from .service import Service
from .state import State
from .upstream import new_session
from .watch import Watch

log = logging.getLogger("queuewise.service")

#: Seconds between a look whether something is to be done.
TICK = 1.0
#: Open files beside connections: logs, what is kept on disk, libraries.
_OTHER_FILES = 128
#: Settings that a reload cannot change, since they are bound to sockets and files.
_FIXED = ("listen", "admin", "state", "record", "limits", "log")


class Running:
    """A service from start to end.

    with contextlib.closing(Running(config)) as running:
        asyncio.run(running.run())

    addresses : (of the proxy, of the admin port), which are known once it listens, with the real ports.

    Raises StoreError where another process has the state file, ConfigError where an address cannot be had.
    """

    def __init__(self, config: Config, path: Path | None = None) -> None:
        self.service = Service(config, path)
        self.metrics = Metrics(self.service)
        self.history = History(self.service)
        self.state = None if config.state is None else State(config.state)
        self.recorder = self._new_recorder(config)
        self.ready, self._hurry = asyncio.Event(), asyncio.Event()
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self._proxy: Proxy | None = None
        self._servers: list[_Server] = []
        self._stop: asyncio.Event | None = None
        try:
            self._sockets = [_bind("listen", config.listen)]
            if config.admin is not None:
                self._sockets.append(_bind("admin", config.admin))
        except BaseException:
            self.close()
            raise
        listeners = [self.metrics.ended, self.history.note]
        if self.recorder is not None:
            self.metrics.recorded_lost = lambda: self.recorder.lost if self.recorder is not None else 0
            listeners.append(self.recorder.note)
        self.service.listeners = tuple(listeners)
        if self.state is not None:
            for group in self.service.groups.values():
                self._recall(group)

    @property
    def addresses(self) -> list[str]:
        """URLs that it listens on: the proxy's, and the admin port's if there is one."""
        return [f"http://{Address(host=name[0], port=name[1])}" for name in (s.getsockname() for s in self._sockets)]

    async def run(self, *, signals: bool = False) -> None:
        """Serve until :meth:`stop` is called. signals : SIGTERM and SIGINT stop it, SIGHUP reloads the settings."""
        config = self.service.config
        self._stop = asyncio.Event()
        limits = config.limits
        async with new_session() as session:
            self._proxy = Proxy(self.service, session, self.metrics)
            self.metrics.retry_budget = lambda: self._proxy.budget.remaining if self._proxy is not None else 0.0
            apps: list[Any] = [self._public(self._proxy)]
            if config.admin is not None:
                apps.append(self._private())
            self._servers = [_server(app, limits, config.timeouts.grace) for app in apps]
            with self._signals() if signals else contextlib.nullcontext():
                tasks = [
                    asyncio.create_task(server.serve([s]))
                    for server, s in zip(self._servers, self._sockets, strict=True)
                ]
                while not all(server.started for server in self._servers) and not any(task.done() for task in tasks):
                    await asyncio.sleep(0.005)
                self.ready.set()
                chores = [asyncio.create_task(_again_and_again(*chore)) for chore in self._chores()]
                stopped = asyncio.create_task(self._stop.wait())
                try:  # a port that is lost ends the service: whoever started it can start it anew
                    await asyncio.wait({stopped, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    stopped.cancel()
                    await self._end(tasks, chores)

    def stop(self) -> None:
        """Take nothing new, finish what runs, save, end. Called a second time it does not wait for what runs."""
        if self._stop is None:
            return
        log.info("told to stop" + (", at once" if self._stop.is_set() else ""))
        if self._stop.is_set():
            self._hurry.set()
            for server in self._servers:
                server.force_exit = True
        self.service.stopping = True
        self._stop.set()

    async def reload(self) -> None:
        """Read the settings again. Where they are wrong, all stays as it is and the log says what is wrong."""
        async with self._reloading:
            await self._reload()

    async def _reload(self) -> None:
        path = self.service.path
        if path is None:
            log.warning("reload: the settings came from no file")
            return
        try:
            wanted = await asyncio.to_thread(_read_and_compile, path)
            old = self.service.config
            fixed = {field: getattr(old, field) for field in _FIXED}
            kept = [field for field in _FIXED if getattr(wanted, field) != fixed[field]]
            config = wanted.model_copy(update=fixed)
            mistakes = config.mistakes()  # what was fine with other addresses may not be with these
            if mistakes:
                raise ConfigError(str(path), mistakes)
            before = dict(self.service.groups)
            said = self.service.reload(config)
        except (ConfigError, ValueError) as error:
            self.metrics.reload(False)
            for mistake in getattr(error, "mistakes", [str(error)]):
                log.error("reload: %s", mistake)
            log.error("reload: nothing was changed")
            return
        if self.state is not None:
            for name, group in self.service.groups.items():
                if name not in before:
                    self._recall(group)
            for name, group in before.items():
                if name not in self.service.groups:
                    self.state.keep(group)
        if self._proxy is not None:
            self._proxy.settle()
        logs.hide(config)
        self.metrics.reload(True)
        for sentence in said:
            log.info("reload: %s", sentence)
        if kept:
            log.warning("reload: %s can only change by a restart", ", ".join(kept))
        log.info("reload: done")

    def close(self) -> None:
        """Give back files and sockets; :meth:`run` has ended, or was never called."""
        for one in self._sockets:
            one.close()
        if self.state is not None:
            self.state.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _public(self, proxy: Proxy) -> ASGIApp:
        routes = Routes(
            [
                *decisions.routes(self.service, self.metrics),
                *health.routes(self.service),
                metrics.route(self.metrics, guarded=True),
            ],
            redirect_slashes=False,
            default=_nothing_here,
        )

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and (scope["path"].startswith("/v1/") or scope["path"] == "/v1"):
                await proxy(scope, receive, send)
            else:
                await routes(scope, receive, send)

        return app

    def _private(self) -> Any:
        extra = [*health.routes(self.service, guarded=False), metrics.route(self.metrics)]
        return admin.app(self.service, self.history, routes=extra, public=("/", "/livez"))

    def _recall(self, group: Group) -> None:
        assert self.state is not None
        found = self.state.restore(group)
        if found:
            log.info("group %s: what was learned of %s is known again", group.name, ", ".join(found))

    def _new_recorder(self, config: Config) -> Recorder | None:
        record = config.record
        if record is None:
            return None
        return Recorder(
            record.folder,
            lambda: {name: settings_of(group.router) for name, group in self.service.groups.items()},
            flush_seconds=record.flush_seconds,
            part_rows=record.part_rows,
        )

    def _chores(self) -> list[tuple[Callable[[], float], Callable[[], Awaitable[None]]]]:
        """(seconds between, what to do): each goes its own way, so that a disk that hangs holds up nothing else."""

        watch = Watch(self.service)

        async def tick() -> None:
            self.history.tick()
            watch.tick()

        return [
            (lambda: TICK, tick),
            (lambda: self.service.config.save_seconds, self._save),
            (lambda: TICK, self._record),
        ]

    async def _save(self) -> None:
        if self.state is not None and not await asyncio.to_thread(self.state.save, dict(self.service.groups)):
            self.metrics.save_failed()

    async def _record(self, *, whole: bool = False) -> None:
        if self.recorder is not None and (whole or self.recorder.due()):
            await asyncio.to_thread(self.recorder.flush)

    async def _end(self, tasks: list[asyncio.Task[None]], chores: list[asyncio.Task[None]]) -> None:
        timeouts = self.service.config.timeouts
        self.service.stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeouts.notice):
                await self._hurry.wait()
        log.info("stopping: finishing what runs, for at most %g s", timeouts.grace)
        self.service.closing = True
        for server in self._servers:
            server.should_exit = True
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        running = [task for server in self._servers for task in server.server_state.tasks]
        for task in running:  # who was told twice to stop does not wait for these
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        kept = await asyncio.gather(self._save(), self._record(whole=True), return_exceptions=True)
        for error in (*ended, *kept):
            if isinstance(error, Exception):
                log.error("while stopping: %s", error, exc_info=error)
        log.info("stopped")

    def _reload_soon(self) -> None:
        task = asyncio.create_task(self.reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop}
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._reload_soon
        try:
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
        except NotImplementedError:  # Windows
            for number, handler in handlers.items():
                signal.signal(number, lambda *_, handler=handler: loop.call_soon_threadsafe(handler))
            handlers = {}
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)


async def _again_and_again(seconds: Callable[[], float], chore: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds())
        try:
            await chore()
        except Exception:  # a chore that fails must not end itself for ever, nor the service
            log.exception("a chore failed")


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: there are two of them, and one owner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: Any, limits: Any, grace: float) -> _Server:
    config = uvicorn.Config(
        app,
        http=limited(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # uvicorn would believe X-Forwarded-For of anybody on this machine
        timeout_keep_alive=limits.keep_alive,
        timeout_graceful_shutdown=math.ceil(grace),
    )
    return _Server(config)


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await problem(404, "there is nothing at this path")(scope, receive, send)


def _bind(field: str, address: Address) -> socket.socket:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        one = socket.socket(family, kind, protocol)
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(where)
            one.listen(2048)
        except BaseException:
            one.close()
            raise
    except OSError as error:
        raise ConfigError("config", [f"{field}: {address} cannot be listened on ({error.strerror or error})"]) from None
    one.setblocking(False)
    return one


def _read_and_compile(path: Path) -> Config:
    """The settings, with every policy in them compiled, which may take seconds: in a thread, while requests are served."""
    config = read(path)
    for group in config.groups.values():
        group.router(seed=0)
    return config


def _settle_down(service: Service) -> None:
    """Load what is only loaded when first used, and take all that is there by now out of the garbage collector's sight: a full
    collection of what compiling left behind takes longer than hundreds of requests."""
    for group in service.groups.values():
        group.router.estimates()
    gc.collect()
    gc.freeze()


def _want_files(limits: LimitsConfig) -> None:
    """Be allowed as many open files as there may be connections to clients and to backends, where the system lets us: by
    default a process gets 1024, whatever it is for."""
    if sys.platform == "win32":
        return
    import resource

    wanted = 2 * limits.connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    if soft < wanted:
        log.warning(
            "limits.connections: %d take up to %d open files, but only %d may be", limits.connections, wanted, soft
        )


def serve(config: Config, path: Path | None = None) -> None:
    """Run the service until it is told to end, by a signal. Raises as :class:`Running` does."""
    if hasattr(signal, "SIGHUP"):  # which would end the process before there is anything to reload
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logs.setup(config.log)
    logs.hide(config)
    log.info("starting; the first time on a machine the policies are compiled, which takes some seconds")
    _want_files(config.limits)
    # An answer that broke off at the backend is broken off here: on purpose, so no error.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "without completing" not in record.getMessage())

    async def main() -> None:
        running = Running(config, path)
        try:
            proxy, *others = running.addresses
            backends = sum(len(group.backends) for group in config.groups.values())
            log.info("routing to %d backends at %s/v1/", backends, proxy)
            for address in others:
                log.info("a page to look at, and the admin interface, are at %s/", address)
            _settle_down(running.service)
            await running.run(signals=True)
        finally:
            running.close()

    if sys.platform == "win32":
        asyncio.run(main())
    else:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
