"""Hidden working copies of checkpoints: made beside their source or target, and deleted afterwards.

A killed command leaves its working copy behind. The next command on the same checkpoint finds the copy by its
name, and deletes it if nothing in it has changed for `checkpoint_left_over_age_s`. If the copy does belong to a
running command, that command fails and publishes nothing.
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

# A working copy that was not changed for this long was left by a killed command.
checkpoint_left_over_age_s: Final = 24 * 3600.0


_log = logging.getLogger("peacefs.checkpoints")


@contextlib.contextmanager
def staged(tree: Workspace, path: str) -> Iterator[str]:
    """Yield a hidden path beside `path`. Remove what is at the hidden path afterwards."""
    _collect(tree, path)
    staging = staging_name(path)
    try:
        yield staging
    finally:
        _remove(tree, staging)


def staging_name(path: str) -> str:
    """Return a new hidden name beside `path`, in the form that `temporary_names` knows."""
    directory, name = posixpath.split(path)
    return posixpath.join(directory, f".{name}.{uuid.uuid4()}.tmp")


def _collect(tree: Workspace, path: str) -> None:
    """Delete what killed commands left beside `path`, and log it. Raises nothing."""
    directory, name = posixpath.split(path)
    before_ms = int((time.time() - checkpoint_left_over_age_s) * 1000)
    with contextlib.suppress(PeacefsError, OSError):
        for entry in tree.entries(directory):
            is_staged = entry.is_directory and wanted_name(entry.name) == name
            if is_staged and _last_change_ms(tree, entry) < before_ms and _remove(tree, entry.path):
                _log.warning("deleted %s, left behind by a killed command", entry.path)


def _remove(tree: Workspace, staging: str) -> bool:
    try:
        tree.remove(staging)
    except PeacefsError as fault:
        _log.warning("%s is left over and can be deleted: %s", staging, fault.message)
        return False
    return True


def _last_change_ms(tree: Workspace, root: TreeEntry) -> int:
    """Return the latest change of anything in a tree, by the clock of its file system."""
    latest, pending = root.modified_ms, [root.path]
    while pending:
        with contextlib.suppress(FileNotFound):
            for entry in tree.entries(pending.pop()):
                latest = max(latest, entry.modified_ms)
                if entry.is_directory:
                    pending.append(entry.path)
    return latest
