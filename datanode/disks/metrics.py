"""Prometheus metrics of a datanode's disks, computed when they are scraped."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from peacefs.protocol.messages import LatencySample
from peacefs.runtime.counters import registry
from peacefs.runtime.write_ways import Chosen

from .disk_balancer import DiskBalancer
from .disk_set import DiskSet
from .scrubber import ScrubProgress


class StoreMetrics(Collector):
    """Reads the store at each scrape. One instance per process."""

    def __init__(
        self,
        disks: DiskSet,
        samples: Callable[[], list[LatencySample]],
        scrub_progress: Callable[[], ScrubProgress | None],
        disk_balancer: DiskBalancer,
        idle_connections: Callable[[], int],
        write_ways: Callable[[], list[Chosen]],
    ) -> None:
        self._disks = disks
        self._samples = samples
        self._scrub_progress = scrub_progress
        self._disk_balancer = disk_balancer
        self._idle_connections = idle_connections
        self._write_ways = write_ways

    def publish(self) -> None:
        registry.register(self)

    def describe(self) -> list[Metric]:
        """Return nothing: at registration, the values are not available yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        usage, disks = self._disks.usage(), self._disks.reports()
        yield _gauge(
            "peacefs_store_used_bytes", "Bytes that the chunk store occupies on its disks", usage.used_bytes
        )
        yield _gauge("peacefs_store_live_bytes", "Bytes of the chunk store that replicas need", usage.live_bytes)
        yield _gauge(
            "peacefs_store_dead_bytes",
            "Bytes of the chunk store that no replica needs",
            usage.used_bytes - usage.live_bytes,
        )
        yield _gauge("peacefs_store_available_bytes", "Free bytes for further chunks", usage.available_bytes)
        segments = sum(disk.store.segments for disk in self._disks.working)
        yield _gauge("peacefs_store_segments", "Segment files for small chunks", segments)
        yield _gauge("peacefs_store_replicas", "Replicas on this datanode", sum(disk.replicas for disk in disks))
        states = GaugeMetricFamily("peacefs_disks", "Disks by their state", labels=["state"])
        for state, count in sorted(Tally(disk.state for disk in disks).items()):
            states.add_metric([state], count)
        yield states
        used = GaugeMetricFamily(
            "peacefs_disk_used_bytes", "Bytes of a disk that chunks occupy", labels=["directory"]
        )
        size = GaugeMetricFamily(
            "peacefs_disk_capacity_bytes", "Bytes of a disk for chunks, used and free", labels=["directory"]
        )
        for disk in disks:
            used.add_metric([disk.directory], disk.used_bytes)
            size.add_metric([disk.directory], disk.capacity_bytes)
        yield used
        yield size
        yield from self._large_writes([disk.directory for disk in disks])
        yield _counter(
            "peacefs_disk_balance_moves",
            "Replicas moved between the own disks",
            self._disk_balancer.moved_total,
        )
        yield _counter(
            "peacefs_disk_balance_moved_bytes",
            "Bytes of replicas moved between the own disks",
            self._disk_balancer.bytes_moved_total,
        )
        yield _gauge("peacefs_connections_idle", "Connections kept for later", self._idle_connections())
        samples = GaugeMetricFamily(
            "peacefs_hop_seconds_per_mebibyte",
            "Recent time per MiB of each successor, and of the own disk",
            labels=["datanode"],
        )
        for sample in self._samples():
            samples.add_metric([sample.node], sample.seconds)
        yield samples
        progress = self._scrub_progress()
        rounds, corrupt, begins_s = (
            (0, 0, 0.0) if progress is None else (progress.rounds_done, len(progress.corrupt), progress.begins_s)
        )
        yield _counter("peacefs_scrub_rounds_done", "Rounds in which every replica was read", rounds)
        yield _gauge("peacefs_scrub_round_begins_seconds", "When this round began, or the next will", begins_s)
        yield _gauge("peacefs_scrub_corrupt_replicas", "Replicas that scrubbing last found corrupt", corrupt)

    def _large_writes(self, directories: Sequence[str]) -> Iterator[Metric]:
        """Yield how large chunks are written to each disk that has chosen, and the times that decided it."""
        around = GaugeMetricFamily(
            "peacefs_disk_writes_around_cache",
            "1 if large chunks go around the page cache, 0 if through it; absent if the way is forced",
            labels=["directory"],
        )
        seconds = GaugeMetricFamily(
            "peacefs_disk_write_seconds_per_mebibyte",
            "Recent time to write a MiB of large chunks through the page cache and around it",
            labels=["directory", "way"],
        )
        for state in self._write_ways():
            for directory in directories:
                if Path(state.directory).is_relative_to(directory):
                    around.add_metric([directory], int(state.is_around))
                    seconds.add_metric([directory, "through"], state.through_s)
                    seconds.add_metric([directory, "around"], state.around_s)
        yield around
        yield seconds


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, value=value)


def _counter(name: str, meaning: str, value: float) -> CounterMetricFamily:
    """Return a counter, which is shown as `name`_total."""
    return CounterMetricFamily(name, meaning, value=value)
