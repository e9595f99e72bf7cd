"""Finds directories that others may write to here, but not in HDFS.

Before decision 65, a new cluster had such a root, and a cluster with a trash had such a /user. They stay as they
are until an administrator changes them. The log warns about them at each start, and so does `peacefs doctor`.
"""

from __future__ import annotations

import logging

from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import symbolic
from peacefs.coordinator.namespace.resolution import follow
from peacefs.protocol.values.guarded_directories import GUARDED, is_open

log = logging.getLogger("peacefs.coordinator")


def warn_of_open_directories(reader: Reader) -> None:
    """Log one line per open directory."""
    found = [(path, follow(reader, path)) for path in map(parse_path, GUARDED)]
    for path, way in found:
        if way.is_whole and is_open(way.deepest.permission):
            log.warning(
                "%s is open to all (%s): every user can create names there. `peacefs chmod 755 %s` restricts "
                "it to superusers, and `peacefs prepare USER...` makes the directories that users need",
                path,
                symbolic(way.deepest.permission),
                path,
            )
