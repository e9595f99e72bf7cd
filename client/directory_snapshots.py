"""The methods of a file system for snapshots of directories."""

from __future__ import annotations

from .control.api import CoordinatorApi
from .control.names import NameApi
from .control.values import SnapshotDifference


class DirectorySnapshots:
    """Snapshots of directories, as in HDFS. All methods raise classes of `peacefs.protocol.errors`."""

    _names: NameApi
    _api: CoordinatorApi

    def allow_snapshots(self, path: str) -> None:
        """Allow snapshots of a directory; for superusers. Raises SnapshotRefused, AccessDenied, ..."""
        self._names.allow_snapshots(path)

    def disallow_snapshots(self, path: str) -> None:
        """Forbid snapshots of a directory. Raises SnapshotRefused if it has snapshots."""
        self._names.disallow_snapshots(path)

    def create_snapshot(self, path: str, name: str | None = None) -> str:
        """Take a snapshot, in constant time; return its path below `.snapshot`.

        The default name is the current time. Raises SnapshotRefused, AccessDenied, FileNotFound.
        """
        return self._names.create_snapshot(path, name)

    def rename_snapshot(self, path: str, name: str, new_name: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._names.rename_snapshot(path, name, new_name)

    def delete_snapshot(self, path: str, name: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._names.delete_snapshot(path, name)

    def snapshot_diff(self, path: str, older: str, newer: str = "") -> list[SnapshotDifference]:
        """Compare two snapshots; an empty name means the directory as it is now. Raises SnapshotRefused."""
        return self._api.snapshot_diff(path, older, newer)

    def restore_snapshot(self, path: str, name: str) -> None:
        """Replace a directory's contents by a snapshot's, atomically and without copying data.

        Raises SnapshotRefused, AccessDenied, FileNotFound.
        """
        self._names.restore_snapshot(path, name)
