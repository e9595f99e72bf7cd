"""Find what in a checkpoint names its own place, and rewrite it when the checkpoint is moved.

Of all files of Spark 4.3 only operator metadata of version 2 (`state/O/_metadata/v2/N`, of `transformWithState`)
does: it names the files of schemas by absolute URIs, and a restart, the reader of state and a repartition read
them there. Snapshots name their SST files without a directory. Logs of file sources, and the log that a file sink
keeps outside the root, name data, which does not move with the checkpoint: they stay.
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
    """Each must be rewritten when the checkpoint is moved. Looks where they are, and not at all the rest."""
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
    """Return operator metadata that names its schemas below `target`. Raises CheckpointDamaged.

    `target` and `source`, the checkpoint that it was copied from, are URIs as the tree names them. Spark opens a
    schema in the file system that its URI names. So a copy in the source's file system keeps the name by which
    Spark reached that: this program may know it by another one.
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
