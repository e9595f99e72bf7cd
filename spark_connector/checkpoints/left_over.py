"""Copies out of sight: made beside what they are to become, or come from, and deleted when that is done.

A command that is killed leaves its own behind. The next one with the same checkpoint finds it there by its name,
and deletes it if nothing of it has changed for `checkpoint_left_over_age_s`. Should it belong to a command
after all, that one fails, and publishes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
import time
import uuid
from collections.abc import Iterator
from typing import Final

from peacefs.protocol.errors import FileNotFound, PeacefsError
from peacefs.protocol.values.temporary_names import wanted_name

from .tree import TreeEntry, Workspace

# A copy out of sight in which nothing has changed for so long was left by a command that was killed.
checkpoint_left_over_age_s: Final = 24 * 3600.0


_log = logging.getLogger("peacefs.checkpoints")


@contextlib.contextmanager
def staged(tree: Workspace, path: str) -> Iterator[str]:
    """A hidden place beside `path`, which is empty again afterwards."""
    _collect(tree, path)
    staging = staging_name(path)
    try:
        yield staging
    finally:
        _remove(tree, staging)


def staging_name(path: str) -> str:
    """Name a hidden place beside `path`, where nothing is; `temporary_names` knows its form."""
    directory, name = posixpath.split(path)
    return posixpath.join(directory, f".{name}.{uuid.uuid4()}.tmp")


def _collect(tree: Workspace, path: str) -> None:
    """Deletes what killed commands staged beside `path`, and says so. Raises nothing: it is no one's errand."""
    directory, name = posixpath.split(path)
    before_ms = int((time.time() - checkpoint_left_over_age_s) * 1000)
    with contextlib.suppress(PeacefsError, OSError):
        for entry in tree.entries(directory):
            is_staged = entry.is_directory and wanted_name(entry.name) == name
            if is_staged and _last_change_ms(tree, entry) < before_ms and _remove(tree, entry.path):
                _log.warning("deleted %s, which a command that was killed had left", entry.path)


def _remove(tree: Workspace, staging: str) -> bool:
    try:
        tree.remove(staging)
    except PeacefsError as fault:
        _log.warning("%s is left over and can be deleted: %s", staging, fault.message)
        return False
    return True


def _last_change_ms(tree: Workspace, root: TreeEntry) -> int:
    """The time of the latest change of anything in a tree, by the clock of its file system."""
    latest, pending = root.modified_ms, [root.path]
    while pending:
        with contextlib.suppress(FileNotFound):
            for entry in tree.entries(pending.pop()):
                latest = max(latest, entry.modified_ms)
                if entry.is_directory:
                    pending.append(entry.path)
    return latest
