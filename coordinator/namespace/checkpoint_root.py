"""Derives the checkpoint of a file from the file's path.

Spark Structured Streaming writes below the directory that it is given as `checkpointLocation`:

    <root>/metadata                                 (or a hidden temporary name beside it)
    <root>/offsets/<batch>    <root>/commits/<batch>
    <root>/sources/<number>/...
    <root>/state/<operator>/<partition>/...

The root of any other file is its directory.
"""

from __future__ import annotations

import posixpath

from peacefs.protocol.values.query_runs import without_run


def checkpoint_root(path: str) -> str:
    """Return the root of an absolute path: the outermost directory below which the rest has Spark's layout.

    It is the same for all runs of the root.
    """
    path = without_run(path)
    parts = path.strip("/").split("/")
    for at in range(len(parts)):
        if _is_checkpoint(parts[at:]):
            return "/" + "/".join(parts[:at])
    return posixpath.dirname(path.rstrip("/")) or "/"


def _is_checkpoint(below: list[str]) -> bool:
    match below:
        case [name]:
            return name == "metadata" or (name.startswith(".metadata.") and name.endswith(".tmp"))
        case ["offsets" | "commits", _]:
            return True
        case ["sources", number, _, *_]:
            return number.isdecimal()
        case ["state", operator, partition, _, *_]:
            return operator.isdecimal() and partition.isdecimal()
        case _:
            return False
