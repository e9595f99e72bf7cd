"""A datanode's metrics of its store: segments, fsyncs, compaction, faults, scrubbing, moves."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest
from store.machine import SimulatedMachine, data_of
from store.test_disk_balancing import LopsidedRack
from store.test_disk_set import CHUNK, SMALL

from peacefs.datanode.disks.metrics import StoreMetrics
from peacefs.datanode.disks.scrubber import Scrubber
from peacefs.datanode.store.layout import record_bytes
from peacefs.protocol.errors import DiskFault
from peacefs.runtime import effects as fx
from peacefs.runtime.counters import registry
from peacefs.runtime.write_ways import Chosen


def counted(name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


class Watched(LopsidedRack):
    ways: Sequence[Chosen] = ()

    def shown(self) -> dict[str, float]:
        """Return the gauges and counters of the collector; those with a label by its value."""
        metrics = StoreMetrics(self.set, list, lambda: None, self.balancer, lambda: 3, lambda: list(self.ways))
        return {
            sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
            for metric in metrics.collect()
            for sample in metric.samples
        }


@pytest.fixture
def rack() -> Watched:
    return Watched()


class Growth:
    """The growth of counters since its creation."""

    def __init__(self, *names: str) -> None:
        self._before = {name: counted(name) for name in names}

    def __getitem__(self, name: str) -> float:
        return counted(name) - self._before[name]


def test_live_and_dead_bytes_are_seen_for_each_disk(rack: Watched) -> None:
    grown = Growth("peacefs_segment_batch_records_count", "peacefs_segment_batch_records_sum")
    rack.pile_up(10, SMALL)
    assert grown["peacefs_segment_batch_records_sum"] == 10
    assert 1 <= grown["peacefs_segment_batch_records_count"] <= 10
    shown = rack.shown()
    assert shown["peacefs_store_segments"] == 1 and shown["peacefs_store_replicas"] == 10
    assert shown["peacefs_disks working"] == 3 and shown["peacefs_connections_idle"] == 3
    assert shown["peacefs_disk_used_bytes /disk-0"] == shown["peacefs_store_used_bytes"] >= 10 * len(SMALL)
    assert shown["peacefs_disk_used_bytes /disk-1"] == 0
    alive = shown["peacefs_store_live_bytes"]
    for number in range(10):
        rack.driver.run(rack.set.delete(CHUNK + number, 5))
    shown = rack.shown()
    assert shown["peacefs_store_live_bytes"] == 0 and shown["peacefs_store_dead_bytes"] >= alive


def test_the_way_of_large_writes_is_shown_for_each_disk_that_has_chosen(rack: Watched) -> None:
    assert not any("cache" in name for name in rack.shown())
    rack.ways = [Chosen("/disk-0/staging", True, 0.02, 0.01), Chosen("/disk-1/staging", False, 0.001, 0.003)]
    shown = rack.shown()
    assert {name: value for name, value in shown.items() if "cache" in name or "write_seconds" in name} == {
        "peacefs_disk_writes_around_cache /disk-0": 1,
        "peacefs_disk_writes_around_cache /disk-1": 0,
        "peacefs_disk_write_seconds_per_mebibyte /disk-0 through": 0.02,
        "peacefs_disk_write_seconds_per_mebibyte /disk-0 around": 0.01,
        "peacefs_disk_write_seconds_per_mebibyte /disk-1 through": 0.001,
        "peacefs_disk_write_seconds_per_mebibyte /disk-1 around": 0.003,
    }


def test_compaction_is_counted() -> None:
    machine = SimulatedMachine()
    machine.start(segment_bytes=20_000)
    for number in range(100):
        machine.put(CHUNK + number, 5, data_of(1000, number))
    grown = Growth(
        "peacefs_compactions_total",
        "peacefs_compaction_rewritten_bytes_total",
        "peacefs_segments_removed_total",
        "peacefs_segment_removed_bytes_total",
    )
    for number in range(100):
        if number % 4:
            machine.run(machine.store.delete(CHUNK + number, 5))
    rounds = removed = removed_bytes = moved = 0
    while (compaction := machine.run(machine.store.compact())).removed_segments:
        rounds += compaction.moved_chunks > 0
        removed += compaction.removed_segments
        removed_bytes += compaction.removed_bytes
        moved += compaction.moved_chunks
    assert rounds > 1
    assert grown["peacefs_compactions_total"] == rounds
    assert grown["peacefs_segments_removed_total"] == removed
    assert grown["peacefs_segment_removed_bytes_total"] == removed_bytes
    assert grown["peacefs_compaction_rewritten_bytes_total"] == moved * record_bytes(1000)


def test_a_disk_s_faults_are_counted_by_disk(rack: Watched) -> None:
    rack.pile_up(1, SMALL)
    before = [counted("peacefs_disk_faults_total", directory=f"/disk-{number}") for number in (0, 1)]
    rack.medium.fail(fx.ReadAt, errno.EIO, path="segments")
    with pytest.raises(DiskFault):
        rack.get(CHUNK)
    after = [counted("peacefs_disk_faults_total", directory=f"/disk-{number}") for number in (0, 1)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 0]


def test_moves_between_disks_and_scrubbing_are_counted(rack: Watched) -> None:
    rack.pile_up(20, SMALL)
    rack.balance(threshold=1e-6)
    moved = sum(rack.counts()[1:])
    shown = rack.shown()
    assert moved > 5
    assert shown["peacefs_disk_balance_moves_total"] == moved
    assert shown["peacefs_disk_balance_moved_bytes_total"] == moved * len(SMALL)
    looked, read = counted("peacefs_scrubbed_replicas_total"), counted("peacefs_scrub_read_bytes_total")
    scrubber = Scrubber(rack.set, "/disk-0", lambda replica: None, period_s=1000.0)
    while scrubber.progress is None or not scrubber.progress.rounds_done:
        rack.driver.run(scrubber.advance())
    assert counted("peacefs_scrubbed_replicas_total") - looked == 20
    assert counted("peacefs_scrub_read_bytes_total") - read == 20 * len(SMALL)
