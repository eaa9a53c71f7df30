"""What Prometheus reads: counts and durations of requests as they come in, and what the routers know when it asks.

The numbers are kept here and given to :mod:`prometheus_client` as a collector when somebody asks. Its own counters and
histograms take a lock per number and walk through the buckets, three times the cost per request, and cannot forget a backend
that is gone in one go.

Labels are bounded: groups and backends are those there are, a model is one that a group names or ``other``, and the series of a
backend go with it. So no client can add one.
"""

from __future__ import annotations

import asyncio
import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..._version import VERSION
from ..circuit import CLOSED, HALF_OPEN, OPEN
from ..router import Ended
from ..tickets import ENDS, WORDS
from .auth import authorized
from .errors import unauthorized
from .service import Service

#: Upper ends of buckets in seconds: of whole requests, of what the proxy adds to them, of a decision.
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
OVERHEADS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
DECISIONS = (1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 0.01, 0.1)
#: What `queuewise_backend_circuit_state` is.
CIRCUITS = {CLOSED: 0, HALF_OPEN: 1, OPEN: 2}
#: States of a backend, as :meth:`..router.Router.estimates` has them.
STATES = ("up", "draining", "resting", OPEN, HALF_OPEN)
#: Reasons of a kind; more than these are counted as "other".
REASONS = 32

Labels = tuple[str, ...]


class _Histogram:
    """Counts per bucket (the last one is for what is beyond all ends) and the sum."""

    __slots__ = ("counts", "ends", "sum")

    def __init__(self, ends: tuple[float, ...]) -> None:
        self.ends = ends
        self.counts = [0] * (len(ends) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.ends, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """(upper end as text, count up to it)."""
        found, total = [], 0
        for end, count in zip((*self.ends, math.inf), self.counts, strict=True):
            total += count
            found.append(("+Inf" if math.isinf(end) else repr(end), float(total)))
        return found


class _Requests:
    """Where a request of some labels is counted."""

    __slots__ = ("count", "duration", "first_byte")

    def __init__(self, duration: _Histogram, first_byte: _Histogram) -> None:
        self.count = 0
        self.duration, self.first_byte = duration, first_byte


class Metrics(Collector):
    """All that is counted. Thread-safe; nothing here calls a router but :meth:`collect`.

    Attributes
    ----------
    registry : to read from · retry_budget : called for the retries that may be made now · recorded_lost : called for the
        decisions that could not be recorded. Without them their series are not there.
    """

    def __init__(self, service: Service) -> None:
        self.retry_budget: Callable[[], float] | None = None
        self.recorded_lost: Callable[[], int] | None = None
        self.service = service
        self._lock = threading.Lock()  # taken under a router's: so never held while a router is asked
        self._models: tuple[Any, frozenset[str]] = (None, frozenset())
        self._requests: dict[tuple[str, str, str, int], _Requests] = {}
        self._durations: dict[Labels, _Histogram] = {}  # group, backend, code_class
        self._first_bytes: dict[Labels, _Histogram] = {}  # group, backend
        self._overheads: dict[str, _Histogram] = {}
        self._attempts: dict[str, int] = {}
        self._decisions = _Histogram(DECISIONS)
        self._samples: dict[tuple[str, str, str], int] = {}  # group, backend, outcome
        self._retries: dict[str, int] = {}
        self._shed: dict[tuple[str, str], int] = {}
        self._reloads = {"success": 0, "failure": 0}
        self._save_failures = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    # --- what happens -------------------------------------------------------------------------------------------------

    def request(
        self,
        group: str | None,
        backend: str | None,
        model: str | None,
        code: int,
        duration: float,
        first_byte: float | None = None,
        overhead: float | None = None,
        attempts: int = 1,
    ) -> None:
        """A request is over. group, backend : None where it went to none · model : as the client named it · code : HTTP status
        that it got, 499 where it left before that · duration, first_byte : seconds from its head to the end and to the first
        byte of its answer's body · overhead : seconds to the head of its answer that were no backend's · attempts : backends
        that it was sent to, one after the other."""
        one = self.service.groups.get(group) if group is not None else None
        if one is None:
            group, backend = "", None
        if model is None:
            model = ""
        elif model not in self._configured():
            model = "other"
        assert group is not None
        key = (group, backend or "", model, code // 100)
        with self._lock:
            found = self._requests.get(key)
            if found is None:
                found = self._new(key)
            found.count += 1
            found.duration.add(duration)
            if first_byte is not None:
                found.first_byte.add(first_byte)
            if overhead is not None:
                histogram = self._overheads.get(group)
                if histogram is None:
                    histogram = self._overheads[group] = _Histogram(OVERHEADS)
                histogram.add(overhead)
            self._attempts[group] = self._attempts.get(group, 0) + attempts

    def ended(self, group: str, ended: Ended) -> None:
        """Hears of every decision that is over; see :class:`.service.Service`."""
        key = (group, ended.server, ended.end)
        with self._lock:
            found = self._samples.get(key)
            if found is None:
                self._prune()
                found = 0
            self._samples[key] = found + 1

    def decision(self, seconds: float) -> None:
        """A backend was chosen, in so many seconds."""
        with self._lock:
            self._decisions.add(seconds)

    def retry(self, reason: str) -> None:
        """A request is sent to another backend. reason : what was wrong with the one before; few different ones."""
        with self._lock:
            _count(self._retries, reason)

    def shed(self, group: str, reason: str) -> None:
        """A request was turned away; see :meth:`.groups.Group.overload`."""
        with self._lock:
            self._shed[group, reason] = self._shed.get((group, reason), 0) + 1

    def reload(self, ok: bool) -> None:
        """The settings were read again, and taken over or refused."""
        with self._lock:
            self._reloads["success" if ok else "failure"] += 1

    def save_failed(self) -> None:
        """What was learned could not be saved."""
        with self._lock:
            self._save_failures += 1

    # --- inside -------------------------------------------------------------------------------------------------------

    def _configured(self) -> frozenset[str]:
        """All models that a group names."""
        config, models = self._models
        if config is not self.service.config:
            config = self.service.config
            models = frozenset(model for group in config.groups.values() for model in group.models)
            self._models = config, models
        return models

    def _new(self, key: tuple[str, str, str, int]) -> _Requests:
        """A place for labels that are seen for the first time; the lock is held."""
        self._prune()
        group, backend, _, code = key
        duration = self._durations.setdefault((group, backend, f"{code}xx"), _Histogram(DURATIONS))
        first_byte = self._first_bytes.setdefault((group, backend), _Histogram(DURATIONS))
        found = self._requests[key] = _Requests(duration, first_byte)
        return found

    def _prune(self) -> None:
        """Forget backends and models that are gone; the lock is held. What comes back of them later is forgotten next time."""
        groups = {"": frozenset[str]()} | {
            name: frozenset(group.backends) for name, group in tuple(self.service.groups.items())
        }
        models = self._configured() | {"", "other"}

        def gone(group: str, backend: str = "") -> bool:
            return group not in groups or (backend != "" and backend not in groups[group])

        for key in [key for key in self._requests if gone(*key[:2]) or key[2] not in models]:
            del self._requests[key]
        stores: tuple[tuple[dict[Any, Any], Callable[[Any], bool]], ...] = (
            (self._durations, lambda key: gone(*key[:2])),
            (self._first_bytes, lambda key: gone(*key)),
            (self._samples, lambda key: gone(*key[:2])),
            (self._shed, lambda key: gone(key[0])),
            (self._overheads, gone),
            (self._attempts, gone),
        )
        for store, left in stores:
            for key in [key for key in store if left(key)]:
                del store[key]

    # --- what there is to read ----------------------------------------------------------------------------------------

    def describe(self) -> Iterable[Metric]:
        """None by name beforehand: a registry would else ask for everything when it is made."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families, with the routers' numbers as they are now."""
        seen = [
            (name, group, group.router.estimates(), group.router.report())
            for name, group in tuple(self.service.groups.items())
        ]
        with self._lock:
            self._prune()
            found = [*self._of_requests(), *self._of_the_service([name for name, *_ in seen])]
            samples = dict(self._samples)
        yield from found
        yield from _of_routers(seen, samples)
        yield _info("queuewise_build", "Which Queuewise this is", {"version": VERSION})

    def _of_requests(self) -> Iterator[Metric]:
        counts: dict[Labels, int] = {
            (*key[:3], f"{key[3]}xx"): requests.count for key, requests in self._requests.items()
        }
        yield _counter(
            "queuewise_requests_total",
            "Requests that were answered",
            ("group", "backend", "model", "code_class"),
            counts,
        )
        yield _counter(
            "queuewise_attempts_total", "Backends that requests were sent to", ("group",), _as_labels(self._attempts)
        )
        yield _histogram(
            "queuewise_request_duration_seconds",
            "From the head of a request to the end of its answer",
            ("group", "backend", "code_class"),
            self._durations,
        )
        yield _histogram(
            "queuewise_time_to_first_byte_seconds",
            "From the head of a request to the first byte of its answer's body",
            ("group", "backend"),
            self._first_bytes,
        )
        yield _histogram(
            "queuewise_router_overhead_seconds",
            "From the head of a request to that of its answer, without the time at backends",
            ("group",),
            _as_labels(self._overheads),
        )

    def _of_the_service(self, groups: list[str]) -> Iterator[Metric]:
        yield _histogram("queuewise_decision_duration_seconds", "Choosing a backend", (), {(): self._decisions})
        yield _counter(
            "queuewise_retries_total",
            "Requests that were sent to another backend",
            ("reason",),
            _as_labels(self._retries),
        )
        if self.retry_budget is not None:
            yield _gauge(
                "queuewise_retry_budget_remaining", "Retries that may be made now", (), {(): self.retry_budget()}
            )
        shed = {(name, reason): 0 for name in groups for reason in ("in_flight", "wait", "resting")}
        yield _counter(
            "queuewise_shed_total", "Requests that were turned away", ("group", "reason"), {**shed, **self._shed}
        )
        yield _counter(
            "queuewise_config_reloads_total",
            "Times that the settings were read again",
            ("result",),
            _as_labels(self._reloads),
        )
        yield _counter(
            "queuewise_state_save_failures_total",
            "Times that what was learned could not be saved",
            (),
            {(): self._save_failures},
        )
        if self.recorded_lost is not None:
            yield _counter(
                "queuewise_recorded_lost_total", "Decisions that were not recorded", (), {(): self.recorded_lost()}
            )


def _of_routers(seen: list[tuple[str, Any, Any, Any]], samples: Mapping[tuple[str, str, str], int]) -> Iterator[Metric]:
    """seen : name, group, and its router's estimates and report."""
    one, of_class = ("group", "backend"), ("group", "backend", "class")
    rates: dict[str, dict[Labels, float]] = {"rate": {}, "low": {}, "high": {}}
    in_flight: dict[Labels, float] = {}
    slots: dict[Labels, float] = {}
    explored: dict[Labels, float] = {}
    circuits: dict[Labels, float] = {}
    states: dict[Labels, float] = {}
    outcomes: dict[Labels, float] = {}
    decisions: dict[Labels, float] = {}
    depths: dict[Labels, float] = {}
    panic: dict[Labels, float] = {}
    override: dict[Labels, float] = {}
    for name, group, estimates, report in seen:
        for backend, known in estimates.items():
            at = (name, backend)
            for label, rate in known.get("classes", {"": known}).items():
                if rate["rate"] is not None:
                    rates["rate"][*at, label] = rate["rate"]
                rates["low"][*at, label] = rate["low"]
                rates["high"][*at, label] = math.inf if rate["high"] is None else rate["high"]
            in_flight[at], slots[at] = known["in_flight"], known["slots"]
            explored[at] = known["explorations"]
            if known["circuit"] is not None:
                circuits[at] = CIRCUITS[known["circuit"]]
            for state in STATES:
                states[*at, state] = float(known["state"] == state)
            for end in ENDS:
                outcomes[*at, end] = samples.get((*at, end), 0)
        for word in WORDS.values():
            decisions[name, word] = report["why"][word]
        depths[(name,)] = group.queue_depth(estimates)
        panic[(name,)] = float(report["panic"])
        override[(name,)] = float(report["override"] is not None)
    yield _gauge(
        "queuewise_backend_service_rate",
        "Estimated work per second of one busy slot",
        of_class,
        rates["rate"],
    )
    yield _gauge(
        "queuewise_backend_service_rate_lower", "Lower end of the rate's 95 % interval", of_class, rates["low"]
    )
    yield _gauge(
        "queuewise_backend_service_rate_upper", "Upper end of the rate's 95 % interval", of_class, rates["high"]
    )
    yield _gauge("queuewise_backend_inflight", "Requests that are at a backend", one, in_flight)
    yield _gauge("queuewise_backend_slots", "Requests that a backend serves at a time", one, slots)
    yield _counter("queuewise_backend_samples_total", "Requests that ended at a backend", (*one, "outcome"), outcomes)
    yield _counter("queuewise_backend_explorations_total", "Requests that were sent to learn from them", one, explored)
    yield _gauge("queuewise_backend_circuit_state", "0 where it is closed, 1 half open, 2 open", one, circuits)
    yield _gauge("queuewise_backend_state", "1 for the state that a backend is in", (*one, "state"), states)
    yield _counter("queuewise_decisions_total", "Decisions by their reason", ("group", "why"), decisions)
    yield _gauge("queuewise_queue_depth", "Requests beyond the slots of their backends", ("group",), depths)
    yield _gauge("queuewise_panic", "1 where circuits are ignored", ("group",), panic)
    yield _gauge("queuewise_override", "1 where a plain rule stands in for the policy", ("group",), override)


def _count(counts: dict[str, int], reason: str) -> None:
    if reason not in counts and len(counts) >= REASONS:
        reason = "other"
    counts[reason] = counts.get(reason, 0) + 1


def _as_labels(values: Mapping[str, Any]) -> dict[Labels, Any]:
    return {(label,): value for label, value in values.items()}


def _counter(name: str, help_: str, labels: Labels, values: Mapping[Any, float]) -> Metric:
    family = CounterMetricFamily(name, help_, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, help_: str, labels: Labels, values: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(name, help_, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _histogram(name: str, help_: str, labels: Labels, values: Mapping[Any, _Histogram]) -> Metric:
    family = HistogramMetricFamily(name, help_, labels=labels, unit="seconds")
    for key, one in values.items():
        family.add_metric(key, one.buckets(), one.sum)
    return family


def _info(name: str, help_: str, values: dict[str, str]) -> Metric:
    family = InfoMetricFamily(name, help_, labels=())
    family.add_metric((), values)
    return family


class _OneFamily:
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> list[Metric]:
        return [self._family]


_END = b"# EOF\n"  # of OpenMetrics


async def exposition(metrics: Metrics, accept: str) -> tuple[bytes, str]:
    """(text, content type) of all families, in the format that an Accept header asks for. Other tasks have their turn after
    each family: with many backends all of them take milliseconds."""
    try:
        encode, kind = choose_encoder(accept)
    except (ValueError, TypeError):  # a version that is no version
        encode, kind = choose_encoder("")
    pieces = []
    end = b""
    for family in list(metrics.registry.collect()):
        piece = encode(_OneFamily(family))
        if piece.endswith(_END):
            piece, end = piece.removesuffix(_END), _END
        pieces.append(piece)
        await asyncio.sleep(0)
    return b"".join(pieces) + end, kind


def route(metrics: Metrics, path: str = "/metrics", *, guarded: bool = False) -> Route:
    """Where Prometheus reads, as OpenMetrics if it asks for that. guarded : whether that takes the settings' `token`, where
    there is one; it shows groups and backends by name."""

    async def read(request: Request) -> Response:
        token = metrics.service.config.token if guarded else None
        if token is not None and not authorized(request.headers, token.get_secret_value()):
            return unauthorized(request.headers)
        text, kind = await exposition(metrics, ",".join(request.headers.getlist("accept")))
        return Response(text, headers={"content-type": kind})

    return Route(path, read, methods=["GET"])
