"""The interface between a datanode's parts and its replicas: a `ChunkStore`, or a `DiskSet` of several.

`ChunkStore` documents the methods and their errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import ChunkError
from peacefs.protocol.ids import ChunkId, Version
from peacefs.protocol.limits import packet_bytes
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx

from .chunk_store import Blocks, ReadPlan, Sealed, Staged, WantedRange


class ChunkIntake(Protocol):
    """The destination of a pipeline's chunks."""

    def stage(self, chunk: ChunkId, version: Version) -> Staged: ...

    def write(self, staged: Staged, sums: Bytes, data: Bytes) -> fx.Steps[None]: ...

    def seal(self, staged: Staged, sums: Bytes = b"", data: Bytes = b"") -> fx.Steps[Sealed]: ...

    def take(self, chunk: ChunkId, version: Version, sums: Bytes, data: Bytes) -> Staged: ...

    def seal_many(self, chunks: Sequence[Staged]) -> fx.Steps[list[Sealed | ChunkError]]: ...

    def discard(self, staged: Staged) -> fx.Steps[None]: ...

    def find(self, chunk: ChunkId) -> Replica | None: ...


class ReplicaStore(ChunkIntake, Protocol):
    """Sealed, checksummed, immutable replicas, on one disk (`ChunkStore`) or on several (`DiskSet`)."""

    def read_staged(self, staged: Staged, offset: int, length: int) -> fx.Steps[bytes]: ...

    def open_read(self, chunk: ChunkId, version: Version, offset: int, length: int) -> fx.Steps[ReadPlan]: ...

    def read_blocks(self, plan: ReadPlan, bytes_max: int = packet_bytes) -> fx.Steps[Blocks | None]: ...

    def send_blocks(self, plan: ReadPlan, reader: fx.Connection, *, timeout_s: float) -> fx.Steps[int | None]: ...

    def drop_cached(self, plan: ReadPlan) -> fx.Steps[None]: ...

    def read_small(self, wanted: Sequence[WantedRange]) -> fx.Steps[list[Blocks | None]]: ...

    def close_read(self, plan: ReadPlan) -> fx.Steps[None]: ...

    def delete(self, chunk: ChunkId, version: Version) -> fx.Steps[bool]: ...

    def chunks_after(self, chunk: ChunkId, limit: int) -> list[ChunkId]: ...
