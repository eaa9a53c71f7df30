"""A slow, obvious live scheduler: lists of jobs and tickets, a policy's functions called as they are, nothing kept on disk."""

from __future__ import annotations

import numpy as np

from queuewise.rule import prepare
from queuewise.scheduling.policy import Ticket, Waiting

ROOM, ATTEMPTS = 64, 4096


class NaiveScheduler:
    """Every job has the slot of its number; retries go anywhere. Jobs: number → features [d, K]."""

    def __init__(self, policy, shape):
        self.policy, self.shape = policy, shape
        self.params, state, self.stream = prepare(policy, shape, 0)
        self.state = policy.grow_state(state, ATTEMPTS)
        self.columns = policy.new_columns(ROOM, shape.servers)
        self.features = np.zeros((ROOM, shape.dimension, shape.servers))
        self.truth = np.full((ROOM, shape.servers), np.nan)
        self.waiting, self.newcomers, self.open, self.finished = [], [], {}, {}
        self.rounds = self.attempts = 0

    def _call(self, name, waiting, *rest):
        with np.errstate(over="ignore"):
            return getattr(self.policy, name)(self.params, self.state, self.columns, waiting, *rest)

    def _seen(self, t, newest=-1, allowed=None):
        slots = np.full(ROOM, -1)
        slots[: len(self.waiting)] = sorted(self.waiting)
        everyone = np.ones(self.shape.servers, dtype=np.bool_)
        mask = everyone if allowed is None else allowed
        return Waiting(t, len(self.waiting), slots, newest, mask, self.features, self.truth)

    def submit(self, job, features):
        self.features[job] = features
        self.waiting.append(job)
        self.newcomers.append(job)
        self._call("admit", self._seen(max(self.rounds, 1), job), job)

    def next(self, allowed):
        if not self.waiting or not allowed.any():
            return None
        newest = self.newcomers.pop(0) if self.newcomers else -1
        self.rounds += 1
        job, server, reason = self._call("decide", self._seen(self.rounds, newest, allowed), self.stream)
        job, server = int(job), int(server)
        if job in self.newcomers:
            self.newcomers.remove(job)
        ticket = Ticket(self.rounds, job, server, reason, self.features[job, :, server].copy())
        self._call("assigned", self._seen(self.rounds), ticket)
        self.waiting.remove(job)
        self.attempts += 1
        self.open[self.attempts] = ticket
        return self.attempts, job, server

    def report(self, attempt, success):
        ticket = self.open.pop(attempt)
        self._call("observe", self._seen(self.rounds), ticket, success)
        if ticket.slot in self.finished:
            return
        if success:
            self.finished[ticket.slot] = attempt
        else:
            self.waiting.append(ticket.slot)

    def lose(self, attempt):
        ticket = self.open.pop(attempt)
        self._call("expired", self._seen(self.rounds), ticket)
        if ticket.slot not in self.finished:
            self.waiting.append(ticket.slot)
        return ticket

    def report_late(self, attempt, ticket, success):
        again = ticket._replace(round=self.rounds)
        self._call("assigned", self._seen(self.rounds), again)
        self._call("observe", self._seen(self.rounds), again, success)
        if success and ticket.slot not in self.finished:
            self.finished[ticket.slot] = attempt
            if ticket.slot in self.waiting:
                self.waiting.remove(ticket.slot)
                if ticket.slot in self.newcomers:
                    self.newcomers.remove(ticket.slot)
