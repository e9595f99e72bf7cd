"""Recognizes the temporary names of files that their writer renames when they are complete. Pure.

A writer that dies, or whose rename is refused, leaves such a file behind. No program reads it by that name.

    .NAME.<uuid>.tmp         Spark: CheckpointFileManager.generateTempPath, on the driver
    .NAME.<uuid>.TID<n>.tmp  the same, in a task
    NAME._COPYING_           Hadoop: `hdfs dfs -put`, `-cp`, `-get`, ...
"""

from __future__ import annotations

import re
from typing import Final

#: java.util.UUID.randomUUID: version 4, in lower case.
_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_SPARK: Final = re.compile(rf"\.(?P<name>.+)\.{_UUID}(\.TID[0-9]+)?\.tmp", re.DOTALL | re.ASCII)
_HADOOP: Final = re.compile(r"(?P<name>.+)\._COPYING_", re.DOTALL)


def wanted_name(name: str) -> str | None:
    """Return the final name for a temporary name; None if the name is not temporary."""
    if not name.endswith((".tmp", "._COPYING_")):
        return None
    found = _SPARK.fullmatch(name) or _HADOOP.fullmatch(name)
    return found["name"] if found else None
