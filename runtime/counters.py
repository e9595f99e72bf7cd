"""Count what the data path does. The service that owns the process publishes the counts (`service/metrics.py`)."""

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


frames_sent = QuickCounter("peacefs_frames_sent", "Frames sent to other services and to clients")

tls_days_left = Gauge(
    "peacefs_tls_certificate_days_left",
    "Days until the TLS certificate expires; +Inf without TLS",
    registry=registry,
)
tls_days_left.set(inf)

# Registered by the service that writes through effects: the coordinator's are SQLite's, and are not seen here.
fsyncs = Counter("peacefs_fsyncs", "fsyncs of files and directories", ["of"], registry=None)
fsyncs_of_files, fsyncs_of_directories = fsyncs.labels("file"), fsyncs.labels("directory")
