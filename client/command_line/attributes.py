"""Executes `peacefs chmod`, `chown`, `chgrp` and `setrep`: owners, permissions and number of replicas."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from peacefs.client.control.values import FileStatus
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.values.fsck_findings import Finding

from .listing import print_line
from .modes import changed_mode
from .presentation import printable
from .session import Session

# How often `setrep --wait` checks the replicas of a file.
_LOOK_S: Final = 0.5
#: A chunk without any of these states has as many good replicas as its file requires.
_WRONG_COUNTS: Final = {Finding.OVER_REPLICATED, Finding.UNDER_REPLICATED, Finding.MISSING}

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


def change_replication(session: Session, replication: int, texts: Sequence[str], *, wait: bool) -> None:
    """Set the replication of files, and of all files below directories; print each.

    With `wait`, return when each of them has that many replicas.
    """
    changed: list[tuple[PeaceFileSystem, str]] = []

    def change(files: PeaceFileSystem, status: FileStatus) -> None:
        if not status.is_directory:
            files.set_replication(status.path, replication)
            print_line(f"Replication {replication} set: {status.path}")
            changed.append((files, status.path))

    _change_each(session, texts, change, recursive=True)
    for files, path in changed if wait else ():
        with session.errors.about(path):
            sys.stdout.write(f"Waiting for {printable(path)} ...")
            sys.stdout.flush()
            while _has_wrong_count(files, path):
                time.sleep(_LOOK_S)
            sys.stdout.write(" done\n")


def _has_wrong_count(files: PeaceFileSystem, path: str) -> bool:
    return any(not _WRONG_COUNTS.isdisjoint(file.findings) for page in files.inspect(path) for file in page.files)


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
    """Call `step` for each path, and with `recursive` for everything below it.

    The last argument of `step` is True for entries below a path. They come first, because a change may revoke
    access to them. `top_first`, for steps that only read, reverses the order.
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
