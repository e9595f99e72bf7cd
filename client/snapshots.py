"""Snapshots of directories, as `PeaceFileSystem.snapshots`."""

from __future__ import annotations

from collections.abc import Callable

from peacefs.protocol.ids import new_request_id
from peacefs.protocol.messages import (
    DropSnapshot,
    RenameTakenSnapshot,
    ReturnToSnapshot,
    SnapshotTaken,
    SwitchSnapshots,
    TakeSnapshot,
)

from .control.names import NameApi
from .control.values import SnapshotDifference


class Snapshots:
    """Snapshots of directories, as in HDFS. All methods raise classes of `peacefs.protocol.errors`."""

    def __init__(self, names: NameApi, compare: Callable[[str, str, str], list[SnapshotDifference]]) -> None:
        self._names = names
        self._compare = compare

    def allow(self, path: str) -> None:
        """Allow snapshots of a directory; for superusers. Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._names.change(SwitchSnapshots(path, self._names.user, allowed=True, request_id=new_request_id()))

    def disallow(self, path: str) -> None:
        """Forbid snapshots of a directory. Raises SnapshotRefused if it has snapshots."""
        self._names.change(SwitchSnapshots(path, self._names.user, allowed=False, request_id=new_request_id()))

    def create(self, path: str, name: str | None = None) -> str:
        """Take a snapshot, in constant time; return its path below `.snapshot`.

        The default name is the current time. Raises SnapshotRefused, AccessDenied, FileNotFound.
        """
        asked = TakeSnapshot(path, self._names.user, name=name or "", request_id=new_request_id())
        return self._names.ask(asked, SnapshotTaken).path

    def rename(self, path: str, name: str, new_name: str) -> None:
        """Rename a snapshot. Raises SnapshotRefused, AccessDenied, FileNotFound."""
        user = self._names.user
        self._names.change(
            RenameTakenSnapshot(path, user, name=name, new_name=new_name, request_id=new_request_id())
        )

    def delete(self, path: str, name: str) -> None:
        """Delete a snapshot. Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._names.change(DropSnapshot(path, self._names.user, name=name, request_id=new_request_id()))

    def diff(self, path: str, older: str, newer: str = "") -> list[SnapshotDifference]:
        """Compare two snapshots; an empty name means the directory as it is now. Raises SnapshotRefused."""
        return self._compare(path, older, newer)

    def restore(self, path: str, name: str) -> None:
        """Replace a directory's contents by a snapshot's, atomically and without copying data.

        Raises SnapshotRefused, AccessDenied, FileNotFound.
        """
        self._names.change(ReturnToSnapshot(path, self._names.user, name=name, request_id=new_request_id()))
