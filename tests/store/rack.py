"""A datanode with several disks in memory."""

from __future__ import annotations

from random import Random

import pytest
from store.machine import read_chunk, write_chunk
from store.seeded_driver import SeededDriver
from store.simulated_disk import SimulatedDisk

from peacefs.datanode.disks.disk import Disk, DiskState
from peacefs.datanode.disks.disk_set import DiskSet
from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.datanode.store.recovery_report import StoreRecovery
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx

CHUNK = 0x10000000001
SMALL = Random(1).randbytes(3000)
LARGE = Random(2).randbytes(MIB)
CONTENTS = pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])


class Rack:
    """Three disks, /disk-0 to /disk-2, and the reports to the datanode about them."""

    def __init__(self) -> None:
        self.medium = SimulatedDisk(Random(1))
        self.driver = SeededDriver(self.medium, Random(1))
        self.rooms = [100 * MIB] * 3
        #: Disks that could not be claimed, and the reasons.
        self.broken: dict[int, str] = {}
        for number in range(3):
            self.medium.perform(fx.MakeDirectory(f"/disk-{number}"))
        self.medium.perform(fx.SyncDirectory("/"))
        self.start()

    def start(self) -> StoreRecovery:
        self.lost: list[Replica] = []
        self.failed: list[tuple[str, int]] = []
        self.disks = [
            Disk(
                f"/disk-{number}",
                ChunkStore(
                    f"/disk-{number}",
                    reserved_bytes=1000,
                    available_bytes=lambda number=number: self.rooms[number],
                    rng=Random(number),
                    on_lost=self.lost.append,
                ),
                self.broken.get(number),
            )
            for number in range(3)
        ]
        self.set = DiskSet(
            self.disks,
            rng=Random(7),
            on_lost=self.lost.append,
            on_changed=self.changed,
        )
        return self.driver.run(self.set.recover())

    def changed(self, disk: Disk, replicas: int) -> None:
        if disk.state is DiskState.FAILED:
            self.failed.append((disk.directory, replicas))

    def put(self, chunk: int, version: int = 5, data: bytes = SMALL) -> None:
        self.driver.run(write_chunk(self.set, chunk, version, data))

    def get(self, chunk: int) -> bytes:
        return self.driver.run(read_chunk(self.set, chunk))[1]

    def holders(self, chunk: int) -> list[int]:
        return [number for number, disk in enumerate(self.disks) if disk.store.find(chunk) is not None]

    def fill(self, chunks: int, data: bytes = SMALL) -> None:
        for number in range(chunks):
            self.put(CHUNK + number, data=data)

    def chunk_on(self, disk: int) -> int:
        return next(iter(self.disks[disk].store.replicas())).chunk


def by_chunk(replicas: list[Replica]) -> list[Replica]:
    return sorted(replicas, key=lambda replica: replica.chunk)
