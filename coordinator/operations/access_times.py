"""Access times: note which files are read, and commit their times in batches.

As in HDFS (`dfs.namenode.accesstime.precision`), a read changes the access time only if that time is older than
the precision. Precision 0 means that reads never change it. Reads wait for no commit, so a crash loses the times
of the last moments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from peacefs.coordinator.metadata.group_commit import Commit
from peacefs.coordinator.metadata.model import InodeId, InodeStatus
from peacefs.coordinator.metadata.transaction import Transaction

# Maximum number of reads whose access times wait to be committed, number of times per commit, and seconds between
# commits.
access_times_noted_max: Final = 100_000
access_times_per_commit: Final = 500


class AccessTimes:
    """Reads whose access times are not committed yet. Used from one event loop only."""

    def __init__(self, commit: Commit, now_ms: Callable[[], int], precision_s: float) -> None:
        """`precision_s` is 0 if reads do not change access times."""
        self._commit = commit
        self._now_ms = now_ms
        self._precision_ms = int(precision_s * 1000)
        self._noted: dict[InodeId, int] = {}

    @property
    def are_kept(self) -> bool:
        """Return whether reads change access times."""
        return self._precision_ms > 0

    def note(self, file: InodeStatus) -> None:
        """Note that a file was opened. Over the limit, do nothing; the next read of the file is noted."""
        now_ms = self._now_ms()
        is_old = self.are_kept and now_ms >= file.accessed_ms + self._precision_ms
        if is_old and (file.inode in self._noted or len(self._noted) < access_times_noted_max):
            self._noted[file.inode] = now_ms

    async def write(self) -> None:
        """Commit the noted times in steps. If the disk is full, raise ServiceUnready and keep them."""
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
