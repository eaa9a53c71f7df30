"""What happens to backends, in the log: who looks there first must find that one fails."""

from __future__ import annotations

import logging

from ..circuit import HALF_OPEN, OPEN
from .service import Service

log = logging.getLogger("queuewise.service")

#: States of a backend that are told of as trouble.
_TROUBLE = (OPEN, HALF_OPEN)


class Watch:
    """Compares the states of all backends with those of the last look, once a second."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._states: dict[tuple[str, str], str] = {}
        self._panic: dict[str, bool] = {}
        self._usable: dict[str, int] = {}

    def tick(self) -> None:
        """A line for each backend whose state is another one, and for each group that is in a panic or without backends."""
        states = {}
        for name, group in self._service.groups.items():
            report = group.router.report()
            for label, one in group.router.estimates().items():
                state = states[name, label] = one["state"]
                before = self._states.get((name, label), "up")
                if state == before:
                    continue
                failures = one["failures"]
                if state in _TROUBLE and before not in _TROUBLE:
                    log.warning("backend %s/%s fails: its circuit is open (%d failures so far)", name, label, failures)
                elif state not in _TROUBLE:
                    log.info("backend %s/%s is %s, was %s", name, label, state, before.replace("_", " "))
            panic, usable = bool(report["panic"]), len(report["usable"])
            if panic != self._panic.get(name, False):
                if panic:
                    log.warning("group %s: most of its backends fail, so circuits are ignored", name)
                else:
                    log.info("group %s: circuits count again", name)
            if (usable == 0) != (self._usable.get(name, 1) == 0):
                if usable == 0:
                    log.error("group %s: no backend can be used", name)
                else:
                    log.info("group %s: %d backends can be used", name, usable)
            self._panic[name], self._usable[name] = panic, usable
        self._states = states
