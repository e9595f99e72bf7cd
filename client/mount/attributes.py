"""The attributes that `stat` shows for a path: the cluster's, overlaid with local changes."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace

from peacefs.client.control.values import FileStatus

from .identities import Identities
from .open_file import OpenFile


@dataclass(frozen=True)
class Attributes:
    """The attributes of a path. Times are milliseconds since 1970."""

    mode: int
    uid: int
    gid: int
    length: int
    modified_ms: int
    accessed_ms: int


def attributes_of(status: FileStatus, identities: Identities) -> Attributes:
    kind = stat.S_IFDIR if status.is_directory else stat.S_IFREG
    uid, gid = identities.uid(status.owner), identities.gid(status.group, status.owner)
    # As in HDFS, directories have no access time.
    accessed_ms = status.accessed_ms or status.modified_ms
    return Attributes(kind | status.permission, uid, gid, status.length, status.modified_ms, accessed_ms)


def attributes_of_open(file: OpenFile, status: FileStatus, identities: Identities) -> Attributes:
    """Return the attributes of an open file that has a name in the cluster."""
    shown, length = attributes_of(status, identities), file.local_length
    if length is None:
        return shown
    return replace(shown, length=length, modified_ms=file.pending.modified_ms or file.modified_ms)


def attributes_of_local(file: OpenFile, user: str, identities: Identities) -> Attributes:
    """Return the attributes of a file that is not in the cluster yet."""
    pending = file.pending
    owner = user if pending.owner is None else pending.owner
    return Attributes(
        stat.S_IFREG | pending.mode,
        identities.uid(owner),
        os.getgid() if pending.group is None else identities.gid(pending.group, owner),
        file.local_length or 0,
        pending.modified_ms or file.modified_ms,
        pending.accessed_ms or file.modified_ms,
    )
