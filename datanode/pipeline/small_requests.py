"""Collects the small requests of all connections, and serves those that came together as one batch.

A request is small if it is one frame with a small payload, and so is its answer: a whole small chunk to write, or
a small replica to read. All others are served one after the other by `DataRequests`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final

from peacefs.protocol.frames import Frame
from peacefs.protocol.limits import KIB, frame_ahead_bytes
from peacefs.protocol.messages import ReadChunk, WriteChunk
from peacefs.runtime import effects as fx

from .batch_hop import BatchHop, SmallWrite
from .chunk_server import ChunkServer, SmallRead
from .requester import Requester, guarded, hang_up_on

# The largest chunk that is part of a batch. Its frame arrives whole in one call.
batched_chunk_bytes_max: Final = frame_ahead_bytes - KIB
# A batch holds up the other connections of its datanode for a while.
batch_bytes_max: Final = 512 * KIB
batch_requests_max: Final = 256


class SmallRequests:
    """The small requests that wait for the next batch. Thread-safe.

    Whoever adds the first one of a batch spawns `serve`, which runs when the other connections that are ready have
    added theirs.
    """

    def __init__(
        self,
        hop: BatchHop,
        server: ChunkServer,
        one_by_one: Callable[[], bool],
    ) -> None:
        """With `one_by_one`, no request is small: each is then observed by itself."""
        self._hop = hop
        self._server = server
        self._one_by_one = one_by_one
        self._lock = Lock()
        #: The batches that are not served yet; further requests join the last one.
        self._batches: deque[list[SmallWrite | SmallRead]] = deque()
        self._last_bytes = 0

    def takes(self, frame: Frame) -> bool:
        request = frame.message
        if self._one_by_one():
            return False
        if isinstance(request, WriteChunk):
            return request.last and len(frame.payload) <= batched_chunk_bytes_max
        if isinstance(request, ReadChunk):
            return self._server.is_small(request.chunk, batched_chunk_bytes_max)
        return False

    def add(self, requester: Requester, frame: Frame) -> bool:
        """Add a request that is small; return True if the caller must spawn `serve`."""
        request = frame.message
        small: SmallWrite | SmallRead
        if isinstance(request, WriteChunk):
            small = SmallWrite(requester, frame.tag, request, bytes(frame.payload))
        else:
            assert isinstance(request, ReadChunk)
            small = SmallRead(requester, frame.tag, request)
        requester.begun()
        with self._lock:
            is_first = not self._batches or self._is_full()
            if is_first:
                self._batches.append([])
                self._last_bytes = 0
            self._batches[-1].append(small)
            self._last_bytes += len(frame.payload)
        return is_first

    def _is_full(self) -> bool:
        return len(self._batches[-1]) >= batch_requests_max or self._last_bytes >= batch_bytes_max

    def serve(self) -> fx.Steps[None]:
        """Serve the oldest batch, with what has come so far."""
        with self._lock:
            batch = self._batches.popleft()
        try:
            writes = [each for each in batch if isinstance(each, SmallWrite)]
            if len(writes) < len(batch):
                yield from self._server.send_small([each for each in batch if isinstance(each, SmallRead)])
            if writes:
                groups, refused = self._hop.admit(writes)
                yield from self._hop.fail(refused)
                for group in groups[1:]:
                    yield from fx.spawn(guarded(self._hop.receive(group), group))
                if groups:
                    yield from self._hop.receive(groups[0])
        except Exception:
            yield from hang_up_on(batch)
            raise
