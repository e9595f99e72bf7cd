"""One disk of a datanode: its store, and what state it is in.

    WORKING --a fault, and the probe fails with EROFS--> READ_ONLY --any other fault of the disk--> FAILED
       ^---------- a later probe succeeds --------------'
    WORKING --a fault, and the probe fails otherwise--> FAILED, until the next start

A read-only disk, such as one that the kernel has mounted anew after a fault of its file system, takes nothing more
in. What it holds counts and is read: to copy it all elsewhere at once is for the operator to decide, who is told.
"""

from __future__ import annotations

import itertools
from enum import Enum

from peacefs.protocol import effects as fx
from peacefs.protocol.messages import DiskReport, Usage

from .chunk_store import ChunkStore
from .disk_faults import is_no_room, is_read_only
from .disk_probe import probe


class DiskState(Enum):
    """What a disk is good for."""

    WORKING = "working"
    READ_ONLY = "read-only"
    FAILED = "failed"


class Disk:
    """A directory that is a disk's, and the store in it. `fault` says why it does not work, when it does not."""

    def __init__(self, directory: str, store: ChunkStore) -> None:
        self.directory = directory
        self.store = store
        self.state = DiskState.WORKING
        self.fault: str | None = None
        self._probes = itertools.count(1)

    @property
    def is_readable(self) -> bool:
        return self.state is not DiskState.FAILED

    def examine(self) -> fx.Steps[tuple[DiskState, str | None]]:
        """What state it is in, as far as can be found out now, and why. Changes nothing."""
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
        """Of a disk that has not failed. What cannot be written to has no room."""
        usage = self.store.usage()
        if self.state is DiskState.WORKING:
            return usage
        return Usage(usage.used_bytes, usage.used_bytes, 0, live_bytes=usage.live_bytes)

    def report(self) -> DiskReport:
        """What the coordinator is told of it."""
        if not self.is_readable:
            return DiskReport(self.directory, self.state.value, self.fault or "", 0, 0, 0)
        usage, fault = self.usage(), self.fault or ""
        return DiskReport(
            self.directory, self.state.value, fault, usage.capacity_bytes, usage.used_bytes, self.store.count()
        )
