"""Find files of a checkpoint that contain the checkpoint's own path, and rewrite them when it is moved.

In Spark 4.3 only operator metadata of version 2 (`state/O/_metadata/v2/N`, of `transformWithState`) does: it names
schema files by absolute URIs. A restart, the reader of state and a repartition read the schemas there. Snapshots
name their SST files without a directory. Logs of file sources and of a file sink name data, which does not move.
"""

from __future__ import annotations

import json
import re

from peacefs.protocol.errors import CheckpointDamaged, FileNotFound

from .formats.operators import location_of
from .layout import STATE
from .tree import FileTree, TreeEntry

_PATHS = "stateSchemaFilePaths"
_BELOW_ROOT = re.compile(r".*/(state/(?:0|[1-9][0-9]*)/_stateSchema/.+)", re.DOTALL)


def files_that_name_their_place(tree: FileTree, root: str) -> list[str]:
    """Return the files to rewrite when the checkpoint is moved. Lists only the directories where they can be."""
    found = []
    for operator in _entries(tree, f"{root}/{STATE}"):
        if operator.is_directory:
            made = _entries(tree, f"{operator.path}/_metadata/v2")
            found += [entry.path for entry in made if entry.name.isdecimal()]
    return found


def _entries(tree: FileTree, directory: str) -> list[TreeEntry]:
    try:
        return tree.entries(directory)
    except FileNotFound:
        return []


def moved(data: bytes, target: str, source: str | None = None) -> bytes:
    """Return operator metadata with its schema paths moved below `target`. Raises CheckpointDamaged.

    `target` and `source` (the original checkpoint) are URIs as the tree names them. Spark opens a schema in the
    file system that its URI names. So a copy in the same file system keeps the name that Spark used, which may
    differ from the name that this program uses.
    """
    head, _, rest = data.partition(b"\n")
    try:
        operator = json.loads(rest)
        for store in operator["stateStoreInfo"]:
            store[_PATHS] = [_moved(uri, target, source) for uri in store.get(_PATHS, [])]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointDamaged(f"cannot be read: {error}") from None
    return head + b"\n" + json.dumps(operator, separators=(",", ":")).encode()


def _moved(uri: str, target: str, source: str | None) -> str:
    named, new = location_of(uri), location_of(target)
    found = _BELOW_ROOT.fullmatch(named.path)
    if found is None:
        raise CheckpointDamaged(f"it names {uri}, which is no schema file of a checkpoint")
    file_system = new.file_system
    if source is not None:
        old = location_of(source)
        if named.kind == old.kind and named.path == f"{old.path.rstrip('/')}/{found[1]}":
            file_system = named.file_system
    return f"{file_system}{new.path.rstrip('/')}/{found[1]}"
