"""The power fails before any effect: acknowledged chunks survive, others are there whole or not at all.

Every test prints its seed; the same seed replays the same run.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from store.machine import SimulatedMachine, read_chunk, write_chunk
from store.seeded_driver import PowerLoss, SeededDriver

from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.datanode.store.layout import record_bytes
from peacefs.protocol.errors import ChunkError, ChunkNotFound, StaleVersion
from peacefs.protocol.limits import KIB, small_chunk_bytes_max
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx

CHUNK = 0x10000000001
SMALL = Random(1).randbytes(3000)
LARGE = Random(2).randbytes(small_chunk_bytes_max + 1)
SEGMENT_BYTES = 30_000


@dataclass
class Acknowledged:
    """The acknowledgements to writers and deleters, which the store must honour after a crash."""

    #: All attempted writes, by chunk and version.
    attempts: dict[tuple[int, int], bytes] = field(default_factory=dict)
    sealed: dict[int, int] = field(default_factory=dict)
    #: The highest version that somebody asked to delete.
    deleted: dict[int, int] = field(default_factory=dict)

    def write(self, store: ChunkStore, chunk: int, version: int, data: bytes) -> fx.Steps[None]:
        self.attempts[chunk, version] = data
        yield from write_chunk(store, chunk, version, data)
        self.sealed[chunk] = max(version, self.sealed.get(chunk, 0))

    def delete(self, store: ChunkStore, chunk: int, version: int) -> fx.Steps[None]:
        self.deleted[chunk] = max(version, self.deleted.get(chunk, 0))
        yield from store.delete(chunk, version)

    def read(self, store: ChunkStore, chunk: int) -> fx.Steps[None]:
        try:
            version, data = yield from read_chunk(store, chunk)
        except ChunkNotFound:
            return
        assert data == self.attempts[chunk, version]

    def hold(self, machine: SimulatedMachine) -> None:
        """Check that nothing acknowledged is missing, and nothing wrong or partial is served."""
        for chunk, version in self.sealed.items():
            if version > self.deleted.get(chunk, 0):
                replica = machine.store.find(chunk)
                assert replica is not None and replica.version >= version, (chunk, version)
        for replica in machine.store.replicas():
            data = machine.get(replica.chunk, replica.version)
            assert data == self.attempts[replica.chunk, replica.version]
            assert len(data) == replica.length


def crash_everywhere(scenario: Callable[[SimulatedMachine, Acknowledged], None], seeds: int) -> None:
    """Run a scenario with a power failure before its first effect, its second, ... until it completes."""
    for seed in range(seeds):
        lives = 0
        while True:
            machine, model = SimulatedMachine(seed), Acknowledged()
            machine.driver.lives = lives
            try:
                scenario(machine, model)
            except PowerLoss:
                came_through = False
            else:
                came_through = True
            machine.disk.crash()
            machine.driver.lives = None
            machine.start(segment_bytes=SEGMENT_BYTES)
            try:
                model.hold(machine)
            except (AssertionError, ChunkError) as fault:
                raise AssertionError(f"seed {seed}, power lost after {lives} effects: {fault!r}") from fault
            if came_through:
                break
            lives += 1
        assert lives > 5


@pytest.mark.parametrize("first", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("second", [SMALL + b".", LARGE + b"."], ids=["small", "large"])
def test_a_newer_version_takes_over_between_two_effects(first: bytes, second: bytes) -> None:
    def scenario(machine: SimulatedMachine, model: Acknowledged) -> None:
        store = machine.start(segment_bytes=SEGMENT_BYTES)
        machine.run(model.write(store, CHUNK, 5, first))
        machine.run(model.write(store, CHUNK, 6, second))
        machine.run(model.delete(store, CHUNK, 5))

    crash_everywhere(scenario, seeds=6)


def test_compaction_can_be_cut_short_anywhere() -> None:
    def scenario(machine: SimulatedMachine, model: Acknowledged) -> None:
        store = machine.start(segment_bytes=SEGMENT_BYTES)
        for number in range(30):
            machine.run(model.write(store, CHUNK + number, 5, SMALL))
        for number in range(0, 30, 3):
            machine.run(model.delete(store, CHUNK + number, 5))
            machine.run(model.delete(store, CHUNK + number + 1, 5))
        while machine.run(store.compact()).removed_segments:
            pass

    crash_everywhere(scenario, seeds=2)


def test_a_deleted_chunk_stays_deleted_once_its_tombstone_was_synced() -> None:
    for seed in range(20):
        machine, model = SimulatedMachine(seed), Acknowledged()
        store = machine.start(segment_bytes=SEGMENT_BYTES)
        for number in range(15):
            machine.run(model.write(store, CHUNK + number, 5, SMALL))
        for number in range(4):
            machine.run(model.delete(store, CHUNK + number, 5))
        # Tombstones are written with the next record and share its fsync.
        machine.run(model.write(store, CHUNK + 15, 5, SMALL))
        while machine.run(store.compact()).removed_segments:
            pass
        machine.disk.crash()
        machine.start(segment_bytes=SEGMENT_BYTES)
        assert {replica.chunk for replica in machine.store.replicas()} == set(range(CHUNK + 4, CHUNK + 16))


def test_a_segment_that_compaction_removed_does_not_come_back() -> None:
    for seed in range(10):
        machine = SimulatedMachine(seed)
        store = machine.start(segment_bytes=SEGMENT_BYTES)
        for number in range(11):
            machine.put(CHUNK + number, 5, SMALL)
        for number in range(10):
            machine.run(store.delete(CHUNK + number, 5))
        assert machine.run(store.compact()).removed_segments == 1
        machine.disk.crash()
        assert [replica.chunk for replica in machine.start().replicas()] == [CHUNK + 10]


def test_a_crash_alone_never_damages_a_segment_that_was_ended() -> None:
    """Its end has unsynced tombstones; the seal after them is not durable without them."""
    for seed in range(20):
        machine = SimulatedMachine(seed)
        store = machine.start(segment_bytes=SEGMENT_BYTES)
        for number in range(9):
            machine.put(CHUNK + number, 5, SMALL)
        for number in range(100, 140):
            machine.put(CHUNK + number, 5, b"")
        for number in range(100, 140):
            machine.run(store.delete(CHUNK + number, 5))
        machine.run(store.compact())
        assert len(machine.segment_files()) == 1
        machine.put(CHUNK + 10, 5, SMALL)
        assert len(machine.segment_files()) == 2
        machine.disk.crash()
        machine.start(segment_bytes=SEGMENT_BYTES)
        assert machine.recovery.damaged_bytes == machine.recovery.torn_bytes == 0


def test_delete_kills_both_copies_that_a_crash_in_compaction_leaves() -> None:
    for seed in range(20):
        machine = SimulatedMachine(seed)
        store = machine.start(segment_bytes=SEGMENT_BYTES)
        for number in range(12):
            machine.put(CHUNK + number, 5, SMALL)
        for number in range(8):
            machine.run(store.delete(CHUNK + number, 5))
        compacting = store.compact()
        effect = next(compacting)
        while not isinstance(effect, fx.Remove):
            effect = compacting.send(machine.disk.perform(effect))
        machine.run(store.delete(CHUNK + 8, 5))
        machine.put(CHUNK + 20, 5, SMALL)
        compacting.close()
        machine.disk.crash()
        machine.start(segment_bytes=SEGMENT_BYTES)
        assert {replica.chunk - CHUNK for replica in machine.store.replicas()} == {9, 10, 11, 20}


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
def test_replica_that_a_start_accepts_survives_the_next_crash(content: bytes) -> None:
    """A process is killed, but the kernel keeps its writes, and its successor relies on them. Then the power
    fails.
    """
    accepted_unacknowledged = 0
    for seed in range(8):
        for lives in range(20):
            machine = SimulatedMachine(seed)
            machine.driver.lives = lives
            with contextlib.suppress(PowerLoss):
                machine.start()
                machine.put(CHUNK, 5, content)
                continue
            machine.driver.lives = None
            accepted = machine.start().replicas()
            accepted_unacknowledged += len(accepted)
            # The successor continues in the same segment or directory.
            machine.put(CHUNK + 256, 5, content)
            machine.disk.crash()
            assert machine.start().replicas() == [*accepted, Replica(CHUNK + 256, 5, len(content))]
            assert all(machine.get(replica.chunk) == content for replica in machine.store.replicas())
    assert accepted_unacknowledged > 0


class Life:
    """A random history of a store: concurrent writers, readers, deleters and a compactor, faults, crashes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = SimulatedMachine(seed)
        self.model = Acknowledged()
        self.version = 1

    def boot(self) -> None:
        """Recover, which may itself be interrupted repeatedly."""
        while True:
            self.machine.driver = self.driver(self.random.choice([5, 20, None]))
            try:
                self.machine.start(segment_bytes=SEGMENT_BYTES)
                break
            except PowerLoss:
                self.machine.disk.crash()
        self.machine.driver = self.driver(None)
        self.model.hold(self.machine)

    def driver(self, lives: int | None) -> SeededDriver:
        return SeededDriver(self.machine.disk, self.random, lives)

    def operations(self) -> list[fx.Steps[Any]]:
        return [self.operation() for _ in range(self.random.randrange(1, 12))]

    def operation(self) -> fx.Steps[Any]:
        store, random = self.machine.store, self.random
        chunk = CHUNK + random.randrange(12)
        match random.randrange(10):
            case 0:
                return self.model.delete(store, chunk, self.version - random.randrange(3))
            case 1:
                return store.compact()
            case 2 | 3:
                return self.model.read(store, chunk)
            case _:
                self.version += 1
                longest = random.choice([100, 5000, 5000, 70 * KIB, 300 * KIB])
                return self.model.write(store, chunk, self.version, random.randbytes(random.randrange(longest)))

    def live(self, rounds: int) -> None:
        self.boot()
        for _round in range(rounds):
            self.machine.driver = self.driver(self.random.choice([None, self.random.randrange(60)]))
            try:
                outcomes = self.machine.driver.run_all(self.operations())
            except PowerLoss:
                self.machine.disk.crash()
                self.boot()
            else:
                faults = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
                assert all(isinstance(fault, StaleVersion) for fault in faults), faults
                assert_counts_are_right(self.machine.store)

    def excuse_lost(self) -> None:
        """Remove the replicas that the store has reported as lost, which are repaired from elsewhere."""
        for replica in self.machine.lost:
            if self.model.sealed.get(replica.chunk, 0) <= replica.version:
                self.model.sealed.pop(replica.chunk, None)
        self.machine.lost.clear()


def assert_counts_are_right(store: ChunkStore) -> None:
    """Check that each segment's count of live bytes equals the index."""
    for number, segment in store._segments._segments.items():
        in_index = [record_bytes(place.length) for _chunk, place in store._index.in_segment(number)]
        assert segment.live_bytes == sum(in_index)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.evidence("acknowledged-is-durable")
def test_a_life_of_work_and_crashes(seed: int) -> None:
    life = Life(seed)
    life.live(rounds=12)
    assert life.machine.lost == []


@pytest.mark.parametrize("seed", range(40))
def test_a_life_on_a_failing_disk(seed: int) -> None:
    """Writes, fsyncs and directory operations fail at random, and sometimes the disk is full."""
    life = Life(seed)
    life.boot()
    disk, random = life.machine.disk, life.random
    for _round in range(15):
        if random.random() < 0.5:
            kinds = [
                fx.AppendToFile,
                fx.Sync,
                fx.TruncateFile,
                fx.SyncDirectory,
                fx.OpenLocalFile,
                fx.RenameFile,
                fx.Remove,
            ]
            disk.fail(random.choice(kinds), errno.EIO, skip=random.randrange(5))
        if random.random() < 0.2:
            disk.capacity_bytes = sum(life.machine.files().values()) + random.randrange(20_000)
        for outcome in life.machine.driver.run_all(life.operations()):
            assert not isinstance(outcome, Exception) or isinstance(outcome, ChunkError)
        disk.heal()
        disk.capacity_bytes = sys.maxsize
        life.excuse_lost()
        life.model.hold(life.machine)
    disk.crash()
    life.machine.start(segment_bytes=SEGMENT_BYTES)
    life.model.hold(life.machine)
