"""The power fails before any effect: what was acknowledged is there, what was not is there whole or not at all.

Every test says its seed; the same seed replays the same run.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from store.machine import SimulatedMachine, read_chunk, write_chunk
from store.seeded_driver import PowerLoss, SeededDriver

from peacefs.datanode.chunk_store import ChunkStore
from peacefs.protocol import effects as fx
from peacefs.protocol.errors import ChunkError, ChunkNotFound, StaleVersion
from peacefs.protocol.limits import KIB, small_chunk_bytes_max

CHUNK = 0x10000000001
SMALL = Random(1).randbytes(3000)
LARGE = Random(2).randbytes(small_chunk_bytes_max + 1)
SEGMENT_BYTES = 30_000


@dataclass
class Acknowledged:
    """What writers and deleters were told, to hold the store to after a crash."""

    #: Everything that anybody tried to write, by chunk and version.
    attempts: dict[tuple[int, int], bytes] = field(default_factory=dict)
    sealed: dict[int, int] = field(default_factory=dict)
    #: The highest version up to which somebody asked to delete.
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
        """Nothing acknowledged is missing, nothing wrong is served, nothing is there in part."""
        for chunk, version in self.sealed.items():
            if version > self.deleted.get(chunk, 0):
                replica = machine.store.find(chunk)
                assert replica is not None and replica.version >= version, (chunk, version)
        for replica in machine.store.replicas():
            data = machine.get(replica.chunk, replica.version)
            assert data == self.attempts[replica.chunk, replica.version]
            assert len(data) == replica.length


def crash_everywhere(scenario: Callable[[SimulatedMachine, Acknowledged], None], seeds: int) -> None:
    """Runs a scenario with the power failing before its first effect, its second, ... until it comes through."""
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
        # Tombstones go out with the next record and share its fsync.
        machine.run(model.write(store, CHUNK + 15, 5, SMALL))
        while machine.run(store.compact()).removed_segments:
            pass
        machine.disk.crash()
        machine.start(segment_bytes=SEGMENT_BYTES)
        assert {replica.chunk for replica in machine.store.replicas()} == set(range(CHUNK + 4, CHUNK + 16))


def test_what_a_recovery_accepts_survives_the_next_crash() -> None:
    """A process dies with everything in the kernel's memory; its successor counts on it; then the power fails."""
    for seed in range(30):
        machine = SimulatedMachine(seed)
        store = machine.start()
        for number in range(4):
            staged = machine.run(store.stage(CHUNK + number, 5))
            del staged
            steps = write_chunk(store, CHUNK + number, 5, (SMALL, LARGE)[number % 2])
            effect = next(steps)
            while not isinstance(effect, fx.SyncDirectory) or "chunks/" not in effect.path:
                if isinstance(effect, fx.Sync) and number == 2:
                    break
                try:
                    effect = steps.send(machine.disk.perform(effect))
                except StopIteration:
                    break
            steps.close()
        accepted = {
            replica.chunk: machine.get(replica.chunk)
            for replica in machine.start().replicas()
        }
        assert len(accepted) >= 3
        machine.disk.crash()
        machine.start()
        assert {chunk: machine.get(chunk) for chunk in accepted} == accepted


class Life:
    """A random history of one store: writers, readers, deleters and a compactor at once, faults, crashes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = SimulatedMachine(seed)
        self.model = Acknowledged()
        self.version = 1

    def boot(self) -> None:
        """Recovery may itself be cut short, again and again."""
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
                outcomes = self.machine.driver.run_all([self.operation() for _ in range(self.random.randrange(1, 12))])
            except PowerLoss:
                self.machine.disk.crash()
                self.boot()
            else:
                assert all(outcome is None or isinstance(outcome, (tuple, StaleVersion)) for outcome in outcomes)


@pytest.mark.parametrize("seed", range(60))
def test_a_life_of_work_and_crashes(seed: int) -> None:
    life = Life(seed)
    life.live(rounds=12)
    assert life.machine.lost == []


@pytest.mark.parametrize("seed", range(40))
def test_a_life_on_a_failing_disk(seed: int) -> None:
    """A disk that fails writes, fsyncs, reads and directory operations now and then, and is full at times."""
    life = Life(seed)
    life.boot()
    store = life.machine.store
    for _round in range(15):
        if life.random.random() < 0.5:
            kind = life.random.choice([fx.Append, fx.Sync, fx.Truncate, fx.SyncDirectory, fx.OpenFile, fx.Rename])
            life.machine.disk.fail(kind, errno.EIO, skip=life.random.randrange(5))
        if life.random.random() < 0.2:
            life.machine.disk.capacity_bytes = life.machine.disk.available_bytes() and 400 * KIB
        outcomes = life.machine.driver.run_all([life.operation() for _ in range(life.random.randrange(1, 12))])
        assert not [outcome for outcome in outcomes if isinstance(outcome, Exception) and not isinstance(outcome, ChunkError)]
        life.machine.disk.heal()
        life.machine.disk.capacity_bytes = 1 << 40
        hold_except_lost(life)
    assert store is life.machine.store
    life.machine.disk.crash()
    life.machine.start(segment_bytes=SEGMENT_BYTES)
    hold_except_lost(life)


def hold_except_lost(life: Life) -> None:
    """What the store reported as lost is excused; the coordinator repairs it."""
    for replica in life.machine.lost:
        if life.model.sealed.get(replica.chunk, 0) <= replica.version:
            life.model.sealed.pop(replica.chunk, None)
    life.machine.lost.clear()
    life.model.hold(life.machine)
