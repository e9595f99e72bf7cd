"""Executes `peacefs snapshot ...`."""

from __future__ import annotations

import posixpath

from peacefs.client.control.values import SnapshotDifference
from peacefs.protocol.errors import FileNotFound, SnapshotRefused

from .listing import print_line
from .session import Session

_SIGNS = {"CREATE": "+", "DELETE": "-", "MODIFY": "M", "RENAME": "R"}


def create(session: Session, text: str, name: str | None) -> None:
    """Take a snapshot and print its path."""
    with session.errors.about(text):
        place = session.place(text)
        print_line(f"Created snapshot {place.files.snapshots.create(place.path, name)}")


def show_names(session: Session, text: str) -> None:
    with session.errors.about(text):
        place = session.place(text)
        try:
            snapshots = place.files.list(posixpath.join(place.path, ".snapshot"))
        except FileNotFound:
            place.files.status(place.path)
            raise SnapshotRefused(f"Directory is not a snapshottable directory: {place.path}") from None
        for snapshot in snapshots:
            print_line(snapshot.name)


def show_differences(session: Session, text: str, older: str, newer: str) -> None:
    """Print differences in the format of `hdfs snapshotDiff`; `.` is the directory as it is now."""
    with session.errors.about(text):
        place = session.place(text)
        for difference in place.files.snapshots.diff(place.path, _name(older), _name(newer)):
            print_line(_SIGNS[difference.type], _shown(difference))


def _name(text: str) -> str:
    return "" if text == "." else text


def _shown(difference: SnapshotDifference) -> str:
    target = "" if difference.target_path is None else f" -> ./{difference.target_path}"
    path = f"./{difference.source_path}" if difference.source_path else "."
    return f"{path}{target}"
