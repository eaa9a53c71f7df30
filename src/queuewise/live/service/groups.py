"""A group: backends that serve the same models, and the router that chooses among them."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from yarl import URL

from ..router import Ended, Router
from .config import BackendConfig, GroupConfig
from .doubts import Doubts

#: Hears of each decision that is over, with its group's name. See :meth:`..router.Router.listen`.
Listener = Callable[[str, Ended], None]
#: Settings of a group that its router is made of; a change of any takes a new router, which is told what the old one knew.
_ROUTING = frozenset(GroupConfig.model_fields) - {"models", "backends", "shed"}


class Backend:
    """Where a server of the router is. config : its settings · authorization : header for its key, if it has one."""

    __slots__ = ("_root", "authorization", "config", "name")

    def __init__(self, name: str, config: BackendConfig) -> None:
        self.name, self.config = name, config
        self.authorization = None if config.key is None else f"Bearer {config.key.get_secret_value()}"
        self._root = config.root

    def url(self, path: str, query: str) -> URL:
        """Of a request for `path`, which begins with /v1/; both as they stand in the request, escapes and all."""
        return URL(f"{self._root}{path}?{query}" if query else self._root + path, encoded=True)


class Group:
    """name, config · router : chooses · backends : name → where it is · doubts : about those that refuse. Its methods are the
    one way to change router and backends together.

    Raises ValueError as :class:`..router.Router` does.
    """

    def __init__(
        self,
        name: str,
        config: GroupConfig,
        listeners: Iterable[Listener] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.config = name, config
        self._listeners, self._clock = tuple(listeners), clock
        self.backends = {label: Backend(label, one) for label, one in config.backends.items()}
        self.doubts = Doubts()
        self.router = self._new_router(config)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of requests that have rates of their own."""
        return self.config.classes

    def add(self, label: str, backend: BackendConfig) -> None:
        """A new backend. Raises ValueError where the name is taken, or the policy needs a typed-in rate and it has none."""
        self.router.add(label, backend.server())
        self.backends[label] = Backend(label, backend)

    def remove(self, label: str) -> None:
        """A backend is gone; what it is serving goes on. Raises ValueError where there is none of this name."""
        self.router.remove(label)
        del self.backends[label]

    def resize(self, label: str, slots: int) -> None:
        """A backend serves so many requests at a time from now on. Raises ValueError where there is none of this name."""
        self.router.resize(label, slots)
        config = self.backends[label].config
        self.backends[label] = Backend(label, config.model_copy(update={"slots": slots}))

    def apply(self, config: GroupConfig) -> list[str]:
        """Take over new settings, keeping what was learned of the backends that stay; what changed, a sentence each.

        Where the policy or its surroundings change, a new router is told what the old one knew. Requests under way are then
        released at the old one: the new one counts only its own.
        """
        said = []
        old, kept = self.config, self.router.servers
        changed = sorted(field for field in _ROUTING if getattr(old, field) != getattr(config, field))
        retyped = [
            label
            for label, backend in config.backends.items()
            if label in self.backends and self.backends[label].config.rate != backend.rate
        ]
        if changed or retyped:
            router = self._new_router(config)
            if old.classes == config.classes:
                router.restore(*self.router.snapshot())
            else:
                said.append(f"group {self.name}: its classes changed, so it learns anew")
            self.router = router
            what = [*changed, *(f"rate of {label}" for label in retyped)]
            said.append(f"group {self.name}: changed {', '.join(what)}")
        else:
            for label, backend in config.backends.items():
                if label not in kept:
                    self.router.add(label, backend.server())
                elif self.backends[label].config.slots != backend.slots:
                    self.router.resize(label, backend.slots)
                    said.append(f"group {self.name}: {label} has {backend.slots} slots now")
            for label in kept:
                if label not in config.backends:
                    self.router.remove(label)
        said += [f"group {self.name}: {label} is new" for label in config.backends if label not in kept]
        said += [f"group {self.name}: {label} is gone" for label in kept if label not in config.backends]
        self.config = config
        self.backends = {label: Backend(label, one) for label, one in config.backends.items()}
        return said

    def overload(self, key: str | None) -> tuple[str, float] | None:
        """(reason, seconds to come back after) where the group takes no more, None where it does."""
        shed = self.config.shed
        if shed.in_flight is not None and self.router.in_flight >= shed.in_flight:
            return "in_flight", max(1.0, self.best_wait(key) / 2.0)
        if shed.wait is not None:
            wait = self.best_wait(key)
            if wait > shed.wait:
                return "wait", wait - shed.wait
        return None

    def best_wait(self, key: str | None) -> float:
        """Seconds until a request is expected to be served at the best backend: 0 where one has a free slot, whatever is
        believed of its speed, so that a belief that is wrong cannot close a group; 0 where nothing is known."""
        return min((wait for wait in self.router.waits(key).values() if math.isfinite(wait)), default=0.0)

    def queue_depth(self, estimates: dict[str, Any] | None = None) -> int:
        """Requests beyond the slots of the backends that they were sent to. `estimates` : the router's, if at hand."""
        found = self.router.estimates() if estimates is None else estimates
        return sum(max(0, one["in_flight"] - one["slots"]) for one in found.values())

    def _new_router(self, config: GroupConfig) -> Router:
        router = config.router(clock=self._clock)
        for listener in self._listeners:
            router.listen(functools.partial(listener, self.name))
        return router
