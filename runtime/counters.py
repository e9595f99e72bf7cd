"""Counters of the data path. The service publishes them (`service/metrics.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

#: One registry per process, since a process is one service.
registry = CollectorRegistry()

# All counters of a process are created when it starts, so their creation times say nothing.
disable_created_metrics()  # type: ignore[no-untyped-call]


class CountElsewhere(Collector):
    """A metric whose value is read from a function. Publish each name once per process."""

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
    """A counter without labels for hot paths. `inc` is one call; the library's counter needs four. Thread-safe.

    Create each name once per process.
    """

    def __init__(self, name: str, meaning: str) -> None:
        super().__init__(name, meaning, lambda: self._count)
        self._lock = Lock()
        self._count = 0
        self.publish()

    def inc(self, amount: int = 1) -> None:
        with self._lock:
            self._count += amount


frames_sent = QuickCounter("peacefs_frames_sent", "Frames sent to other services and to clients")

tls_days_left = Gauge(
    "peacefs_tls_certificate_days_left",
    "Days until the TLS certificate expires; +Inf without TLS",
    registry=registry,
)
tls_days_left.set(inf)

# Registered only by datanodes: the coordinator's fsyncs are made by SQLite and not counted here.
fsyncs = Counter("peacefs_fsyncs", "fsyncs of files and directories", ["of"], registry=None)
fsyncs_of_files, fsyncs_of_directories = fsyncs.labels("file"), fsyncs.labels("directory")
