"""One disk of a datanode: its store and its state.

    WORKING --a fault, and the probe fails with EROFS--> READ_ONLY --any other fault of the disk--> FAILED
       ^---------- a later probe succeeds --------------'
    WORKING --a fault, and the probe fails otherwise--> FAILED, until the next start

A disk is read-only if, for example, the kernel remounted it after a file system error. It accepts no new chunks.
Its replicas still count and are read. Only the operator, who is told, can decide to copy them all.

`probe` writes a few bytes to a disk and reads them back from the medium.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from enum import Enum
from typing import Final

from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.datanode.store.disk_faults import close_quietly, is_no_room, is_read_only
from peacefs.protocol.limits import chunk_bytes_max
from peacefs.protocol.messages import DiskReport, Usage
from peacefs.runtime import effects as fx

#: The state to report for a working disk without free space.
FULL: Final = "full"


class DiskState(Enum):
    WORKING = "working"
    READ_ONLY = "read-only"
    FAILED = "failed"


class Disk:
    """A directory on its own disk, and the store in it. `fault` is the reason if the disk does not work.

    A disk created with a fault counts as failed and is never accessed.
    """

    def __init__(self, directory: str, store: ChunkStore, fault: str | None = None) -> None:
        self.directory = directory
        self.store = store
        self.state = DiskState.WORKING if fault is None else DiskState.FAILED
        self.fault = fault
        #: True from when the disk has no room until it has room for a chunk of the maximum size.
        self.is_full = False
        self._probes = itertools.count(1)

    @property
    def is_readable(self) -> bool:
        return self.state is not DiskState.FAILED

    def examine(self) -> fx.Steps[tuple[DiskState, str | None]]:
        """Return the disk's present state and the reason, without changing anything."""
        try:
            yield from probe(f"{self.directory}/probe.{next(self._probes)}")
        except OSError as error:
            why = error.strerror or str(error)
            if is_no_room(error):
                return self.state, self.fault
            if not is_read_only(error):
                return DiskState.FAILED, why
        else:
            return DiskState.WORKING, None
        try:
            yield from fx.list_directory(self.directory)
        except OSError as error:
            return DiskState.FAILED, error.strerror or str(error)
        return DiskState.READ_ONLY, why

    def usage(self) -> Usage:
        """Return the usage of a disk that has not failed. A disk that cannot be written to has no room."""
        usage = self.store.usage()
        if self.state is DiskState.WORKING:
            return usage
        return Usage(usage.used_bytes, usage.used_bytes, 0, live_bytes=usage.live_bytes)

    def report(self) -> DiskReport:
        """Return the state for the coordinator."""
        if not self.is_readable:
            return DiskReport(self.directory, self.state.value, self.fault or "", 0, 0, 0)
        usage, state, fault = self.usage(), self.state.value, self.fault or ""
        if self.is_full and self.state is DiskState.WORKING:
            state, fault = FULL, f"{usage.available_bytes} bytes are left beside the reserve"
        return DiskReport(self.directory, state, fault, usage.capacity_bytes, usage.used_bytes, self.store.count())

    def look_for_room(self) -> bool:
        """Return whether the disk has become full, or has room again, since the last call."""
        if self.state is not DiskState.WORKING:
            return False
        available_bytes = self.store.usage().available_bytes
        was_full, self.is_full = self.is_full, available_bytes < (chunk_bytes_max if self.is_full else 1)
        return self.is_full is not was_full


_PATTERN = bytes(range(256)) * 16


def probe(path: str) -> fx.Steps[None]:
    """Create, read and remove a file at `path`. Raises OSError."""
    file = yield from fx.open_file(path, create=True)
    try:
        yield from fx.append(file, _PATTERN)
        yield from fx.sync(file)
        yield from fx.drop_cached(file)
        found = yield from fx.read_at(file, 0, len(_PATTERN))
    except OSError:
        yield from _clear_away(file, path)
        raise
    yield from _clear_away(file, path)
    if found != _PATTERN:
        raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: it returned other bytes than were written", path)


def _clear_away(file: fx.File, path: str) -> fx.Steps[None]:
    yield from close_quietly(file)
    with contextlib.suppress(OSError):
        yield from fx.remove(path)
