"""The metrics that coordinator and datanodes have in common, and the text of `/metrics`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import Counter, Gauge, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

import peacefs
from peacefs.protocol.messages import PROTOCOL_VERSION
from peacefs.runtime.counters import registry

# Memory, CPU seconds and open files, with Prometheus's standard names.
ProcessCollector(registry=registry)


http_requests = Counter("peacefs_http_requests", "HTTP requests whose head has arrived", registry=registry)
build_info = Gauge(
    "peacefs_build_info",
    "1, with the version of the service and of the protocol that it speaks",
    ["version", "protocol"],
    registry=registry,
)
build_info.labels(peacefs.__version__, str(PROTOCOL_VERSION)).set(1)
wall_clock = Gauge("peacefs_time_seconds", "The wall clock of the service when it was asked", registry=registry)
wall_clock.set_function(time.time)

CONTENT_TYPE = CONTENT_TYPE_LATEST


class DeprecatedName(Collector):
    """Exports a counter under its old name, too, for one release. Publish each name once per process."""

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
    """Return the current values in Prometheus's format, for `/metrics`."""
    return generate_latest(registry)
