"""A machine with a chunk store: on a real directory with real system calls, or on a simulated disk.

Both kinds do the same, so that one contract holds the store to its promises over either.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from store.seeded_driver import SeededDriver
from store.simulated_disk import SimulatedDisk

from peacefs.datanode.store.chunk_store import ChunkStore, Sealed, StoreRecovery
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import Message, Replica
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

T = TypeVar("T")


def data_of(length: int, seed: int = 0) -> bytes:
    """Return bytes that differ for each seed."""
    return Random(seed).randbytes(length)


class Machine(ABC):
    """A disk, a driver, and the latest store on it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.lost: list[Replica] = []
        self.store: ChunkStore
        self.recovery: StoreRecovery

    @abstractmethod
    def run(self, steps: fx.Steps[T]) -> T: ...

    @abstractmethod
    def files(self) -> dict[str, int]:
        """Return the sizes of all files of the store, by path below its directory."""

    @abstractmethod
    def content(self, name: str) -> bytes: ...

    @abstractmethod
    def overwrite(self, name: str, content: bytes) -> None: ...

    @abstractmethod
    def open_files(self) -> int:
        """Return how many files of the store are open."""

    def start(self, **options: Any) -> ChunkStore:
        """Start a new process, which finds what the last one left on disk, but not its memory."""
        self.store = ChunkStore(
            self.directory, reserved_bytes=0, rng=Random(1), on_lost=self.lost.append, **options
        )
        self.recovery = self.run(self.store.recover())
        return self.store

    def put(self, chunk: int, version: int, data: bytes, packet_bytes: int = MIB) -> Sealed:
        return self.run(write_chunk(self.store, chunk, version, data, packet_bytes))

    def get(self, chunk: int, version: int = 0) -> bytes:
        return self.run(read_chunk(self.store, chunk, version))[1]

    def damage(self, name: str, offset: int) -> None:
        """Flip one bit of a file."""
        content = bytearray(self.content(name))
        content[offset] ^= 4
        self.overwrite(name, bytes(content))

    def segment_files(self) -> list[str]:
        return sorted(name for name in self.files() if name.startswith("segments/"))

    def chunk_files(self) -> list[str]:
        return sorted(name for name in self.files() if name.startswith("chunks/"))


def write_chunk(
    store: ChunkStore, chunk: int, version: int, data: bytes, packet_bytes: int = MIB
) -> fx.Steps[Sealed]:
    """Write a chunk as a hop of a pipeline does."""
    staged = store.stage(chunk, version)
    *before, last = range(0, max(len(data), 1), packet_bytes)
    for at in before:
        packet = data[at : at + packet_bytes]
        try:
            yield from store.write(staged, block_checksums(packet), packet)
        except Exception:
            yield from store.discard(staged)
            raise
    rest = data[last:]
    return (yield from store.seal(staged, block_checksums(rest), rest))


def read_chunk(store: ChunkStore, chunk: int, version: int = 0) -> fx.Steps[tuple[int, bytes]]:
    """Return version and content of a replica."""
    plan = yield from store.open_read(chunk, version, 0, 1 << 40)
    parts = []
    while (blocks := (yield from store.read_blocks(plan))) is not None:
        parts.append(blocks.data)
    return plan.version, b"".join(parts)


def _no_coordinator(message: Message, timeout_s: float) -> Message:
    raise AssertionError("the store calls nobody")


class RealMachine(Machine):
    """System calls on a directory. fsync is skipped unless a test is about it."""

    def __init__(self, directory: Path, *, sync_to_disk: bool = False) -> None:
        super().__init__(str(directory))
        self._path = directory
        pool = ConnectionPool(Identity("", "client", "test", None))
        self._driver = ThreadDriver(pool, _no_coordinator, sync_to_disk=sync_to_disk)

    def run(self, steps: fx.Steps[T]) -> T:
        return self._driver.run(steps)

    def files(self) -> dict[str, int]:
        paths = [path for path in self._path.rglob("*") if path.is_file()]
        return {str(path.relative_to(self._path)): path.stat().st_size for path in paths}

    def content(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def overwrite(self, name: str, content: bytes) -> None:
        (self._path / name).write_bytes(content)

    def open_files(self) -> int:
        count = 0
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # The descriptor of the listing itself.
                count += str(descriptor.readlink()).startswith(self.directory)
        return count


class SimulatedMachine(Machine):
    """A disk in memory."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__("/store")
        self.random = Random(seed)
        self.disk = SimulatedDisk(self.random)
        self.driver = SeededDriver(self.disk, self.random)
        # The claim of the store directory makes it durable.
        self.disk.perform(fx.MakeDirectory(self.directory))
        self.disk.perform(fx.SyncDirectory("/"))

    def run(self, steps: fx.Steps[T]) -> T:
        return self.driver.run(steps)

    def files(self) -> dict[str, int]:
        return {path.removeprefix("/store/"): len(content) for path, content in self.disk.files()}

    def content(self, name: str) -> bytes:
        return dict(self.disk.files())[f"/store/{name}"]

    def overwrite(self, name: str, content: bytes) -> None:
        self.disk.overwrite(f"/store/{name}", content)

    def damage(self, name: str, offset: int) -> None:
        # Change it in place, as on a real disk, since the store may have the file open.
        self.disk.flip_bit(f"/store/{name}", offset)

    def open_files(self) -> int:
        return self.disk.open_files


MACHINES: dict[str, Callable[[Path], Machine]] = {
    "real disk": RealMachine,
    "simulated disk": lambda path: SimulatedMachine(),
}
