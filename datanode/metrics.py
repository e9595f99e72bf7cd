"""What a datanode tells Prometheus, beyond what all services count."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from peacefs.protocol.messages import DiskReport, Pace, Usage
from peacefs.protocol.metrics import registry

chunks_written = Counter("peacefs_chunks_written", "Chunks sealed", registry=registry)
bytes_written = Counter("peacefs_written_bytes", "Bytes of sealed chunks", registry=registry)
chunks_forwarded = Counter("peacefs_chunks_forwarded", "Chunks that a successor acknowledged", registry=registry)
bytes_forwarded = Counter("peacefs_forwarded_bytes", "Bytes of these", registry=registry)
reads_served = Counter("peacefs_chunk_reads", "Requests to read a chunk that were begun", registry=registry)
bytes_read = Counter("peacefs_read_bytes", "Bytes sent to readers of chunks", registry=registry)
pipeline_failures = Counter(
    "peacefs_pipeline_failures",
    "Chunks that were not acknowledged, by what went wrong",
    ["reason"],
    registry=registry,
)
seal_seconds = Histogram(
    "peacefs_seal_seconds",
    "What it took to make a chunk durable",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    registry=registry,
)


class StoreMetrics(Collector):
    """Looks at the store whenever it is asked. Once a process."""

    def __init__(
        self,
        usage: Callable[[], Usage],
        disks: Callable[[], list[DiskReport]],
        paces: Callable[[], list[Pace]],
        scrub_rounds: Callable[[], tuple[int, int]],
    ) -> None:
        """`scrub_rounds` gives the rounds that are done and the corrupt replicas that are known."""
        self._usage = usage
        self._disks = disks
        self._paces = paces
        self._scrub_rounds = scrub_rounds

    def publish(self) -> None:
        registry.register(self)

    def describe(self) -> list[Metric]:
        """Nothing: to be asked for its values before they are there would be too early."""
        return []

    def collect(self) -> Iterator[Metric]:
        usage, disks = self._usage(), self._disks()
        yield _gauge("peacefs_store_used_bytes", "What the store takes on its disks", usage.used_bytes)
        yield _gauge("peacefs_store_live_bytes", "Of it, what replicas need", usage.live_bytes)
        yield _gauge("peacefs_store_available_bytes", "What may still be stored", usage.available_bytes)
        yield _gauge("peacefs_store_replicas", "Replicas that are held", sum(disk.replicas for disk in disks))
        states = GaugeMetricFamily("peacefs_disks", "Disks by their state", labels=["state"])
        for state, count in sorted(Tally(disk.state for disk in disks).items()):
            states.add_metric([state], count)
        yield states
        paces = GaugeMetricFamily(
            "peacefs_hop_seconds_per_mebibyte",
            "What successors, and the own disk, took lately",
            labels=["datanode"],
        )
        for pace in self._paces():
            paces.add_metric([pace.node], pace.seconds)
        yield paces
        rounds, corrupt = self._scrub_rounds()
        yield CounterMetricFamily(
            "peacefs_scrub_rounds_done", "Rounds in which every replica was read", value=rounds
        )
        yield _gauge("peacefs_scrub_corrupt_replicas", "Replicas that scrubbing last found corrupt", corrupt)


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, value=value)
