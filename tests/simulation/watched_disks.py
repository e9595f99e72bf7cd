"""The disks of a simulated datanode. Each sealed replica is checked: is it really on the medium?"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from store.simulated_disk import SimulatedDisk

from peacefs.datanode.disks.disk import Disk
from peacefs.datanode.disks.disk_set import DiskSet
from peacefs.datanode.store.chunk_store import Sealed, Staged
from peacefs.datanode.store.layout import chunk_file_bytes, record_bytes
from peacefs.datanode.store.replica_changes import ChangeSink
from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import ChunkError
from peacefs.protocol.ids import ChunkId
from peacefs.runtime import effects as fx


def find_bytes(disk: Disk, chunk: ChunkId) -> tuple[str, str, int, int] | None:
    """Return the place of a replica: directory, beginning of the file's name, offset, and length."""
    place = disk.store._index.find(chunk)
    if place is None:
        return None
    if place.has_own_file:
        path = disk.store._large._paths.chunk_file(chunk, place.version, place.length)
        directory, _, name = path.rpartition("/")
        return directory, name, 0, chunk_file_bytes(place.length)
    return f"{disk.directory}/segments", f"{place.segment:08x}-", place.offset, record_bytes(place.length)


class WatchedDisks(DiskSet):
    """Checks that each sealed replica matches the index and would survive a crash, unless it was lost by then."""

    def __init__(self, disks: Sequence[Disk], medium: SimulatedDisk, rng: Random, changes: ChangeSink) -> None:
        super().__init__(disks, rng=rng, on_lost=changes.removed)
        self._medium = medium

    def seal(self, staged: Staged, sums: Bytes = b"", data: Bytes = b"") -> fx.Steps[Sealed]:
        sealed = yield from super().seal(staged, sums, data)
        self._look(staged)
        return sealed

    def seal_many(self, chunks: Sequence[Staged]) -> fx.Steps[list[Sealed | ChunkError]]:
        outcomes = yield from super().seal_many(chunks)
        for staged, outcome in zip(chunks, outcomes, strict=True):
            if isinstance(outcome, Sealed):
                self._look(staged)
        return outcomes

    def _look(self, staged: Staged) -> None:
        found = self.find(staged.chunk)
        assert found is None or found.version == staged.version, f"{staged} was sealed beside {found}"
        for disk in self.working:
            if (place := find_bytes(disk, staged.chunk)) is not None:
                assert self._medium.is_on_medium(*place), (
                    f"{staged} was acknowledged and is not on {disk.directory}"
                )
