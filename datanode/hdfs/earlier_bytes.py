"""Bytes of a block that a datanode acknowledged but did not publish before it died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from peacefs.datanode.pipeline.orphaned_chunks import OrphanedChunks
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import hop_timeout_s
from peacefs.runtime.thread_driver import ThreadDriver

# A hop gives up after `hop_timeout_s` if its predecessor is silent but the connection stays open.
takeover_wait_s: Final = hop_timeout_s + 5.0


class EarlierBytes:
    """Reads chunks that this datanode received in part, as a later hop. Serves all connections."""

    def __init__(self, orphans: OrphanedChunks, driver: ThreadDriver) -> None:
        self._orphans = orphans
        self._driver = driver

    def of(self, chunks: Sequence[ChunkId], length: int) -> Iterator[bytes]:
        """Yield the bytes of one of these chunks; nothing if none has at least `length` bytes here.

        Waits until the hop has noticed that its predecessor died. Raises ChecksumMismatch or DiskFault.
        """
        staged = self._orphans.take(chunks, length, takeover_wait_s) if chunks else None
        if staged is None:
            return
        offset = 0
        try:
            while piece := self._driver.run(self._orphans.read(staged, offset)):
                yield piece
                offset += len(piece)
        finally:
            self._driver.run(self._orphans.discard(staged))
