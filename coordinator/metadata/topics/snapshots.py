"""Snapshots, and pins: directories as they were."""

from __future__ import annotations

from abc import ABC, abstractmethod

from peacefs.coordinator.metadata.model import ChunkRecord, InodeId, Snapshot


class SnapshotReader(ABC):
    """Reads committed state."""

    @abstractmethod
    def allows_snapshots(self, directory: InodeId) -> bool: ...

    @abstractmethod
    def snapshot_directories(self) -> list[InodeId]:
        """All that allow snapshots."""

    @abstractmethod
    def snapshots(self, directory: InodeId) -> list[Snapshot]:
        """In order of their names."""

    @abstractmethod
    def snapshot(self, directory: InodeId, name: str) -> Snapshot | None: ...


class SnapshotChanges(ABC):
    """Part of a transaction."""

    @abstractmethod
    def set_allows_snapshots(self, directory: InodeId, allows: bool) -> None: ...

    @abstractmethod
    def add_snapshot(self, directory: InodeId, name: str, now_ms: int) -> None:
        """Add a snapshot of the directory as it is after this transaction. The name must be free."""

    @abstractmethod
    def rename_snapshot(self, directory: InodeId, name: str, new_name: str) -> None: ...

    @abstractmethod
    def remove_snapshot(self, directory: InodeId, name: str) -> None:
        """Remove a snapshot; what only it shows is purged later."""

    @abstractmethod
    def purge_retired(self, limit: int) -> tuple[list[ChunkRecord], bool]:
        """Purges up to `limit` rows that no snapshot shows any more. What was freed, and whether there is more."""

    @abstractmethod
    def snapshotted_within(self, inode: InodeId) -> InodeId | None:
        """A directory with snapshots that is, or lies below, an inode."""

    @abstractmethod
    def pin(self, directory: InodeId) -> int:
        """Keeps a directory readable as it is after this transaction, whose number is returned: see `at`.

        A snapshot that nobody sees, which ends with `unpin` or at the next start.
        """

    @abstractmethod
    def unpin(self, at_tx: int) -> None:
        """Remove a pin; what only it showed is purged later."""
