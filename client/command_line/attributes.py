"""Executes `peacefs chmod`, `chown`, `chgrp` and `setrep`: owners, permissions and number of replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peacefs.client.control.values import FileStatus
from peacefs.client.filesystem import PeaceFileSystem

from .listing import print_line
from .modes import changed_mode
from .session import Session

Change = Callable[[PeaceFileSystem, FileStatus], None]


def change_mode(session: Session, mode: str, texts: Sequence[str], *, recursive: bool) -> None:
    """Change the mode of each path. Raises BadRequest for an invalid mode, before any change."""
    changed_mode(mode, 0, is_directory=False)

    def change(files: PeaceFileSystem, status: FileStatus) -> None:
        files.set_permission(status.path, changed_mode(mode, status.permission, status.is_directory))

    _change_each(session, texts, change, recursive=recursive)


def change_owner(
    session: Session, owner: str | None, group: str | None, texts: Sequence[str], *, recursive: bool
) -> None:
    """Change owner and group of each path; None keeps the current one."""
    _change_each(
        session, texts, lambda files, status: files.set_owner(status.path, owner, group), recursive=recursive
    )


def change_replication(session: Session, replication: int, texts: Sequence[str]) -> None:
    """Set the replication of files, and of all files below directories; print each."""

    def change(files: PeaceFileSystem, status: FileStatus) -> None:
        if not status.is_directory:
            files.set_replication(status.path, replication)
            print_line(f"Replication {replication} set: {status.path}")

    _change_each(session, texts, change, recursive=True)


def _change_each(session: Session, texts: Sequence[str], change: Change, *, recursive: bool) -> None:
    for_each(session, texts, lambda files, status, _is_below: change(files, status), recursive=recursive)


def for_each(
    session: Session,
    texts: Sequence[str],
    step: Callable[[PeaceFileSystem, FileStatus, bool], None],
    *,
    recursive: bool,
    top_first: bool = False,
) -> None:
    """Call `step` for each path, and with `recursive` for everything below; its last argument is True for these.

    Entries below a directory come first, because a change may revoke access to them. `top_first`, for steps that
    only read, reverses this.
    """
    for place in session.each(texts):
        with session.errors.about(place.text):
            top = place.files.status(place.path)
            if not recursive or not top.is_directory:
                step(place.files, top, False)
                continue
            below = [
                entry for _, directories, files in place.files.walk(place.path) for entry in (*directories, *files)
            ]
            steps = [(entry, True) for entry in below]
            for entry, is_below in [(top, False), *steps] if top_first else [*reversed(steps), (top, False)]:
                with session.errors.about(entry.path):
                    step(place.files, entry, is_below)
