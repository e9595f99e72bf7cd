"""Keeps the received part of a large chunk for a moment if the predecessor in the pipeline died.

An HDFS client then continues with a later hop, and does not resend acknowledged bytes (decision 82).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from peacefs.datanode.store.chunk_store import Staged
from peacefs.datanode.store.interface import ReplicaStore
from peacefs.datanode.store.layout import describe
from peacefs.protocol.checksums import sums_between, verify_blocks
from peacefs.protocol.errors import PeacefsError, PeerTimeout, PeerUnreachable
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import MIB
from peacefs.protocol.tokens import ChunkWrite
from peacefs.runtime import effects as fx

orphans_kept_s: Final = 60.0
orphans_kept_max: Final = 16
# Shorter chunks are not kept. HDFS clients get no acknowledgement for them before they are complete.
orphan_bytes_min: Final = 1 * MIB
# The number of bytes read at once from such a chunk: a multiple of the checksum block size.
orphan_piece_bytes: Final = 1 * MIB


class OrphanedChunks:
    """The unfinished chunks of one datanode whose writer may return. Thread-safe.

    This object owns each chunk until it is taken or discarded. `clock` returns monotonic seconds.
    """

    def __init__(self, store: ReplicaStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._kept: dict[ChunkId, tuple[Staged, float]] = {}
        self._changed = threading.Condition()

    def give_up(self, staged: Staged, token: ChunkWrite, fault: PeacefsError) -> fx.Steps[None]:
        """End a chunk that cannot be received completely: keep it if the predecessor died, otherwise discard it.

        Only chunks without grants are kept: those of HDFS clients, and copies.
        """
        is_upstream = isinstance(fault, PeerUnreachable | PeerTimeout) and fault.culprit is None
        if not is_upstream or token.grant or staged.length < orphan_bytes_min:
            yield from self._store.discard(staged)
            return
        with self._changed:
            earlier = self._kept.pop(staged.chunk, None)
            self._kept[staged.chunk] = staged, self._clock()
            oldest = self._kept.pop(next(iter(self._kept))) if len(self._kept) > orphans_kept_max else None
            self._changed.notify_all()
        for each in (earlier, oldest):
            if each is not None:
                yield from self._store.discard(each[0])

    def discard_old(self) -> fx.Steps[None]:
        """Discard chunks that nobody took in time. Call this regularly."""
        with self._changed:
            old_s = self._clock() - orphans_kept_s
            old = [staged for staged, since_s in self._kept.values() if since_s < old_s]
            for staged in old:
                del self._kept[staged.chunk]
        for staged in old:
            yield from self._store.discard(staged)

    def read(self, staged: Staged, offset: int) -> fx.Steps[bytes]:
        """Return the next verified bytes of a taken chunk; empty at its end.

        Raises ChecksumMismatch or DiskFault.
        """
        end = min(offset + orphan_piece_bytes, staged.length)
        if offset == end:
            return b""
        data = yield from self._store.read_staged(staged, offset, end - offset)
        verify_blocks(
            data, sums_between(bytes(staged.sums), offset, end), lambda: describe(staged.chunk, staged.version)
        )
        return data

    def discard(self, staged: Staged) -> fx.Steps[None]:
        """Discard a taken chunk."""
        return self._store.discard(staged)

    def take(self, chunks: Collection[ChunkId], length: int, timeout_s: float) -> Staged | None:
        """Return one of these chunks with at least `length` bytes; None if none appears in time.

        The hop may not have noticed yet that its predecessor died. The caller must discard the chunk.
        """
        deadline_s = self._clock() + timeout_s
        with self._changed:
            while True:
                for chunk in chunks:
                    staged, _since_s = self._kept.get(chunk, (None, 0.0))
                    if staged is not None and staged.length >= length:
                        del self._kept[chunk]
                        return staged
                if not self._changed.wait(max(0.0, deadline_s - self._clock())):
                    return None
