"""The part of a file system that is about snapshots of directories."""

from __future__ import annotations

from .control.api import CoordinatorApi
from .control.names import NameApi
from .control.values import SnapshotDifference


class DirectorySnapshots:
    """Snapshots, as HDFS has them. All methods raise classes of `peacefs.protocol.errors`."""

    _names: NameApi
    _api: CoordinatorApi

    def allow_snapshots(self, path: str) -> None:
        """Lets snapshots of a directory be taken; for superusers. Raises SnapshotRefused, AccessDenied, ..."""
        self._names.allow_snapshots(path)

    def disallow_snapshots(self, path: str) -> None:
        """Raises SnapshotRefused while there are snapshots."""
        self._names.disallow_snapshots(path)

    def create_snapshot(self, path: str, name: str | None = None) -> str:
        """Takes a snapshot, at once, whatever the directory holds; the path, below `.snapshot`, where it is seen.

        Without a name it gets one from the clock. Raises SnapshotRefused, AccessDenied, FileNotFound.
        """
        return self._names.create_snapshot(path, name)

    def rename_snapshot(self, path: str, name: str, new_name: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._names.rename_snapshot(path, name, new_name)

    def delete_snapshot(self, path: str, name: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._names.delete_snapshot(path, name)

    def snapshot_diff(self, path: str, older: str, newer: str = "") -> list[SnapshotDifference]:
        """Return what differs between two snapshots; no name is the present directory. Raises SnapshotRefused."""
        return self._api.snapshot_diff(path, older, newer)

    def restore_snapshot(self, path: str, name: str) -> None:
        """Gives a directory what a snapshot shows, all at once, without copying data; what it holds is deleted.

        Raises SnapshotRefused, AccessDenied, FileNotFound.
        """
        self._names.restore_snapshot(path, name)
