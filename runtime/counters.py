"""Counters of the data path. The service publishes them (`service/metrics.py`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import inf
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

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


class Distribution:
    """The values observed for one combination of a histogram's labels. Thread-safe."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._lock = Lock()
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value

    def observed(self) -> tuple[list[int], float]:
        """Return the number of values up to each bound, and up to infinity, and the sum of all values."""
        with self._lock:
            return list(accumulate(self._counts)), self._sum


class QuickHistogram(Collector):
    """A histogram for hot paths: observing takes one lock. Thread-safe. Create each name once per process."""

    def __init__(self, name: str, meaning: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> None:
        """`buckets` are the upper bounds, in order, without infinity."""
        self._name = name
        self._meaning = meaning
        self._bounds = list(buckets)
        self._labels = labels
        self._of: dict[tuple[str, ...], Distribution] = {}
        if not labels:
            self.of()
        registry.register(self)

    def observe(self, value: float) -> None:
        """Observe a value of a histogram without labels."""
        self._of[()].observe(value)

    def of(self, *labels: str) -> Distribution:
        """Return the distribution for these values of the labels."""
        return self._of.get(labels) or self._of.setdefault(labels, Distribution(self._bounds))

    def describe(self) -> list[Metric]:
        return [HistogramMetricFamily(self._name, self._meaning, labels=self._labels)]

    def collect(self) -> Iterator[Metric]:
        bounds = [floatToGoString(bound) for bound in (*self._bounds, inf)]  # type: ignore[no-untyped-call]
        family = HistogramMetricFamily(self._name, self._meaning, labels=self._labels)
        for labels, distribution in list(self._of.items()):
            counts, total = distribution.observed()
            family.add_metric(labels, list(zip(bounds, counts, strict=True)), total)
        yield family


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
