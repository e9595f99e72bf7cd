"""Access times: note which files are read, and commit that now and then.

As in HDFS (`dfs.namenode.accesstime.precision`) a read moves the access time only when that is older than the
precision; without one, reads leave it alone. Reads wait for no commit: what was noted is written in batches, and a
crash loses the last moments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from peacefs.coordinator.metadata.group_commit import Commit
from peacefs.coordinator.metadata.model import InodeId, InodeStatus
from peacefs.coordinator.metadata.transaction import Transaction

# Reads whose access times wait to be committed, how many go into one commit, and how often that is done.
access_times_noted_max: Final = 100_000
access_times_per_commit: Final = 500


class AccessTimes:
    """The reads whose times are not committed yet. Used from one event loop only."""

    def __init__(self, commit: Commit, now_ms: Callable[[], int], precision_s: float) -> None:
        """`precision_s` 0 leaves access times to SETTIMES."""
        self._commit = commit
        self._now_ms = now_ms
        self._precision_ms = int(precision_s * 1000)
        self._noted: dict[InodeId, int] = {}

    @property
    def are_kept(self) -> bool:
        """Return whether reads move access times."""
        return self._precision_ms > 0

    def note(self, file: InodeStatus) -> None:
        """A file has been opened. Over the limit a read is not noted; the next one of that file is."""
        now_ms = self._now_ms()
        is_old = self.are_kept and now_ms >= file.accessed_ms + self._precision_ms
        if is_old and (file.inode in self._noted or len(self._noted) < access_times_noted_max):
            self._noted[file.inode] = now_ms

    async def write(self) -> None:
        """Commit what was noted, in steps. Raises ServiceUnready while the disk is full; it stays noted then."""
        while batch := list(self._noted.items())[:access_times_per_commit]:
            await self._commit(partial(_move, read=batch))
            for inode, at_ms in batch:
                if self._noted.get(inode) == at_ms:
                    del self._noted[inode]


def _move(tx: Transaction, read: Sequence[tuple[InodeId, int]]) -> None:
    for number, at_ms in read:
        inode = tx.inode(number)
        if inode is not None and inode.accessed_ms < at_ms:
            tx.change_inode(structs.replace(inode, accessed_ms=at_ms))
