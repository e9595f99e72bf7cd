"""Collects the small requests of all connections, and serves those that arrive together as one batch.

A request is small if it and its answer are single frames with small payloads: to write a whole small chunk, or to
read a small replica. `DataRequests` serves all other requests one at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

from peacefs.protocol.frames import Frame
from peacefs.protocol.limits import KIB, batched_chunk_bytes_max
from peacefs.protocol.messages import ReadChunk, WriteChunk
from peacefs.runtime import effects as fx

from .batch_hop import BatchHop, SmallWrite
from .chunk_server import ChunkServer, SmallRead
from .requester import Requester, guarded

# Limits of one batch. While it is served, the datanode's other connections wait.
batch_bytes_max: Final = 512 * KIB
batch_requests_max: Final = 256


class SmallRequests:
    """The small requests that wait for the next batch. Thread-safe.

    The caller that adds the first request of a batch spawns `serve`. It runs after the other ready connections,
    which add their requests to the same batch.
    """

    def __init__(self, hop: BatchHop, server: ChunkServer, one_by_one: Callable[[], bool]) -> None:
        """While `one_by_one` returns True, no request is small, so that each is traced and timed alone."""
        self._hop = hop
        self._server = server
        self._one_by_one = one_by_one
        self._lock = Lock()
        #: The batches that are not served yet. New requests join the last one unless it is full.
        self._batches: deque[list[SmallWrite | SmallRead]] = deque()
        self._last_bytes = 0

    def takes(self, frame: Frame) -> bool:
        """Return True if a request is small. Only small requests may be passed to `add`."""
        request = frame.message
        if self._one_by_one():
            return False
        if isinstance(request, WriteChunk):
            return request.last and len(frame.payload) <= batched_chunk_bytes_max
        if isinstance(request, ReadChunk):
            return self._server.is_small(request.chunk, batched_chunk_bytes_max)
        return False

    def add(self, requester: Requester, frame: Frame) -> bool:
        """Add a small request; return True if the caller must spawn `serve`."""
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
        """Serve the oldest batch."""
        with self._lock:
            batch = self._batches.popleft()
        yield from guarded(self._serve(batch), batch)

    def _serve(self, batch: Sequence[SmallWrite | SmallRead]) -> fx.Steps[None]:
        reads = [each for each in batch if isinstance(each, SmallRead)]
        if reads:
            yield from self._server.send_small(reads)
        groups, refused = self._hop.admit([each for each in batch if isinstance(each, SmallWrite)])
        yield from self._hop.fail(refused)
        for group in groups[1:]:
            yield from fx.spawn(guarded(self._hop.receive(group), group))
        if groups:
            yield from self._hop.receive(groups[0])
