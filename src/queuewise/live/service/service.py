"""What the parts of the service share: its groups, and what became of their decisions."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from ..router import Ended
from .config import Config
from .groups import Group, Listener
from .summary import notes

log = logging.getLogger("queuewise.service")


class Service:
    """config : its settings · path : the file they came from, if they did · groups : name → :class:`.groups.Group` · stopping :
    whether it is about to end, so that nobody should send it more · closing : whether it takes no more.

    The parts that only look on (metrics, history, recording) are told of every decision that is over: `listeners`.
    """

    def __init__(self, config: Config, path: Path | None = None, listeners: tuple[Listener, ...] = ()) -> None:
        self.config, self.path = config, path
        self.listeners = listeners
        self.stopping = self.closing = False
        self.started = time.time()
        self._clock_to_wall = time.time() - time.monotonic()
        self.groups = {name: Group(name, one, (self._ended,)) for name, one in config.groups.items()}
        self._warn()

    def group_of(self, model: str | None) -> Group | None:
        """The group that serves a model: the one that names it, else the one that names none, else None. A request without a
        model goes to the latter too, or to the only group."""
        rest = None
        for group in self.groups.values():
            if model in group.config.models:
                return group
            if not group.config.models:
                rest = group
        if rest is None and model is None and len(self.groups) == 1:
            return next(iter(self.groups.values()))
        return rest

    def wall(self, at: float) -> float:
        """A time of the routers' clock in seconds since 1970."""
        return at + self._clock_to_wall

    def reload(self, config: Config) -> list[str]:
        """Take over other settings of groups, keeping what was learned; what changed, a sentence each. Nothing changes where
        one of them is refused: `config` has been checked, and so has each router in it."""
        said = []
        for name, one in config.groups.items():
            if name in self.groups:
                said += self.groups[name].apply(one)
            else:
                self.groups[name] = Group(name, one, (self._ended,))
                said.append(f"group {name}: is new")
        for name in [name for name in self.groups if name not in config.groups]:
            del self.groups[name]
            said.append(f"group {name}: is gone")
        self.config = config
        self._warn()
        return said

    def _warn(self) -> None:
        for note in notes(self.config):
            log.warning("%s", note)

    def _ended(self, group: str, ended: Ended) -> None:
        for listener in self.listeners:
            listener(group, ended)
