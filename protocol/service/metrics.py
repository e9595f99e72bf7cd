"""The metrics that both services have, in Prometheus's form, and the text of `/metrics`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import inf
from threading import Lock

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

import peacefs
from peacefs.protocol.messages import PROTOCOL_VERSION

#: One registry a process: a process is one service.
registry = CollectorRegistry()

# When a counter was made is when its process was started, for all of them.
disable_created_metrics()  # type: ignore[no-untyped-call]

# Memory, CPU seconds and open files, under the names that all exporters use.
ProcessCollector(registry=registry)


class CountElsewhere(Collector):
    """A counter that somebody else keeps, looked at whenever it is asked for. Once a process for each name."""

    def __init__(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        self._name = name
        self._meaning = meaning
        self._value = value

    def publish(self) -> None:
        registry.register(self)

    def describe(self) -> list[Metric]:
        return [CounterMetricFamily(self._name, self._meaning)]

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(self._name, self._meaning, value=self._value())


class QuickCounter(CountElsewhere):
    """A counter without labels for what every small chunk does: one call, where the library's own takes four.

    Thread-safe. Once a process for each name.
    """

    def __init__(self, name: str, meaning: str) -> None:
        super().__init__(name, meaning, lambda: self._count)
        self._lock = Lock()
        self._count = 0
        self.publish()

    def inc(self, amount: int = 1) -> None:
        with self._lock:
            self._count += amount


http_requests = Counter("peacefs_http_requests", "HTTP requests whose head has arrived", registry=registry)
frames_sent = QuickCounter("peacefs_frames_sent", "Frames sent to other services and to clients")

tls_days_left = Gauge(
    "peacefs_tls_certificate_days_left",
    "Days until the TLS certificate expires; +Inf without TLS",
    registry=registry,
)
tls_days_left.set(inf)

build_info = Gauge(
    "peacefs_build_info",
    "1, with the version of the service and of the protocol that it speaks",
    ["version", "protocol"],
    registry=registry,
)
build_info.labels(peacefs.__version__, str(PROTOCOL_VERSION)).set(1)
wall_clock = Gauge("peacefs_time_seconds", "The wall clock of the service when it was asked", registry=registry)
wall_clock.set_function(time.time)

# Registered by the service that writes through effects: the coordinator's are SQLite's, and are not seen here.
fsyncs = Counter("peacefs_fsyncs", "fsyncs of files and directories", ["of"], registry=None)
fsyncs_of_files, fsyncs_of_directories = fsyncs.labels("file"), fsyncs.labels("directory")

CONTENT_TYPE = CONTENT_TYPE_LATEST


class DeprecatedName(Collector):
    """Show a counter under its old name, too, for one release. Once a process for each name."""

    def __init__(self, name: str, counter: Counter) -> None:
        self._name = name
        self._counter = counter

    def publish(self) -> None:
        registry.register(self)

    def describe(self) -> list[Metric]:
        return list(self.collect())

    def collect(self) -> Iterator[Metric]:
        for family in self._counter.collect():
            shown = CounterMetricFamily(self._name, f"Deprecated: {family.name}_total")
            for sample in family.samples:
                shown.add_sample(f"{self._name}_total", sample.labels, sample.value)
            yield shown


def exposition() -> bytes:
    """The current values, to be served under `/metrics`."""
    return generate_latest(registry)
