"""`peacefs chmod`, `chown`, `chgrp` and `setrep`: owner, rights and number of replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peacefs.client.control.values import FileStatus
from peacefs.client.filesystem import PeaceFileSystem

from .listing import print_line
from .modes import changed_mode
from .session import Session

Change = Callable[[PeaceFileSystem, FileStatus], None]


def change_mode(session: Session, mode: str, texts: Sequence[str], *, recursive: bool) -> None:
    """Raises BadRequest for a mode that is none, before anything is changed."""
    changed_mode(mode, 0, is_directory=False)

    def change(files: PeaceFileSystem, status: FileStatus) -> None:
        files.set_permission(status.path, changed_mode(mode, status.permission, status.is_directory))

    _change_each(session, texts, change, recursive=recursive)


def change_owner(
    session: Session, owner: str | None, group: str | None, texts: Sequence[str], *, recursive: bool
) -> None:
    """None leaves one as it is."""
    _change_each(
        session, texts, lambda files, status: files.set_owner(status.path, owner, group), recursive=recursive
    )


def change_replication(session: Session, replication: int, texts: Sequence[str]) -> None:
    """Set it for files, and for all files below directories; print which."""

    def change(files: PeaceFileSystem, status: FileStatus) -> None:
        if not status.is_directory:
            files.set_replication(status.path, replication)
            print_line(f"Replication {replication} set: {status.path}")

    _change_each(session, texts, change, recursive=True)


def _change_each(session: Session, texts: Sequence[str], change: Change, *, recursive: bool) -> None:
    for place in session.each(texts):
        with session.errors.about(place.text):
            top = place.files.status(place.path)
            if not recursive or not top.is_directory:
                change(place.files, top)
                continue
            entries = [
                entry for _, directories, files in place.files.walk(place.path) for entry in (*directories, *files)
            ]
            # Entries below come first: the change may take away the right to get there.
            for entry in (*reversed(entries), top):
                with session.errors.about(entry.path):
                    change(place.files, entry)
