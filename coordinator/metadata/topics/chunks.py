"""Chunks, the references of files to them, and what of them is garbage."""

from __future__ import annotations

from abc import ABC, abstractmethod

from peacefs.coordinator.metadata.model import ChunkRecord, FileChunk, InodeId
from peacefs.protocol.ids import ChunkId


class ChunkRecordReader(ABC):
    """Reads committed state."""

    @abstractmethod
    def references(self, inode: InodeId) -> list[FileChunk]:
        """The chunks of a file, in order."""

    @abstractmethod
    def references_after(self, inode: InodeId, position: int, limit: int) -> list[tuple[int, FileChunk]]:
        """Up to `limit` chunks of a file with their positions, those after `position` (-1 for all), in order."""

    @abstractmethod
    def reference_count(self, chunk: ChunkId) -> int:
        """Return how many references there are to a chunk, those that only snapshots show included."""

    @abstractmethod
    def referrers(
        self, chunk: ChunkId, after: tuple[int, ...], limit: int
    ) -> tuple[list[InodeId], tuple[int, ...]]:
        """Return the files that refer to a chunk, among the `limit` references that follow `after` (() for all).

        And where to go on; () when that was the last. Reads them through, for no index leads back from a chunk.
        """

    @abstractmethod
    def chunk(self, chunk: ChunkId) -> ChunkRecord | None: ...

    @abstractmethod
    def chunks(self, after: ChunkId, limit: int) -> list[ChunkRecord]:
        """Chunks in order of their ids, those after `after` (0 for all)."""

    @abstractmethod
    def floor(self) -> ChunkId:
        """Datanodes may delete chunks below this number that the metadata does not know and nobody keeps."""

    @abstractmethod
    def is_kept(self, chunk: ChunkId) -> bool:
        """Return whether somebody still needs a chunk that no file refers to: see `Transaction.keep_chunk`."""

    @abstractmethod
    def gc_floor_held(self) -> bool:
        """Return whether the floor stays where it is until it is released: see `Metadata.hold_gc_floor`."""


class ChunkChanges(ABC):
    """Part of a transaction."""

    @abstractmethod
    def add_chunk(self, inode: InodeId, position: int, record: ChunkRecord, checksum: int) -> bool:
        """Stores a chunk that is all a file's, at a position; False, and nothing done, if its id is known."""

    @abstractmethod
    def set_chunk_replication(self, chunk: ChunkId, replication: int) -> bool:
        """Return whether that changed it: none of several references to a chunk can lower its replication."""

    @abstractmethod
    def add_reference(self, inode: InodeId, position: int, chunk: ChunkId, length: int) -> None:
        """To a chunk that a file has already."""

    @abstractmethod
    def drop_references(
        self, inode: InodeId, limit: int, at_tx: int | None = None
    ) -> tuple[int, list[ChunkRecord]]:
        """Drops up to `limit` references of a file. How many, and the chunks that nothing refers to any more."""

    @abstractmethod
    def next_position(self, inode: InodeId) -> int:
        """The position after a file's last reference."""

    @abstractmethod
    def cut_references(self, inode: InodeId, position: int) -> list[ChunkRecord]:
        """Drops the references from a position on. The chunks that nothing refers to any more."""

    @abstractmethod
    def shorten_reference(self, inode: InodeId, position: int, length: int) -> None:
        """Leaves the file the first `length` bytes of the chunk at a position."""

    @abstractmethod
    def raise_gc_floor(self, floor: ChunkId) -> None:
        """Raises the floor unless it is held; never lowers it."""

    @abstractmethod
    def keep_chunk(self, chunk: ChunkId, for_ms: int) -> None:
        """Keep a chunk that no file refers to from being garbage for so much served time from now on."""

    @abstractmethod
    def advance_gc_floor(self, drawn: ChunkId, elapsed_ms: int, settled_after_ms: int) -> None:
        """Count time in which a coordinator served; all numbers up to `drawn` have been drawn by now.

        Raises the floor, unless it is held, to what had been drawn `settled_after_ms` of such time ago, and lets
        go of chunks that have been kept for long enough.
        """

    @abstractmethod
    def release_gc_floor(self) -> bool:
        """Let the floor rise again, by what is drawn from now on; return whether it was held."""
