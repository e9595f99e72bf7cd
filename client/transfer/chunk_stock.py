"""Chunks that were placed ahead: what a client that writes small files one after the other has in hand. Pure.

Each is for one wish to come, under the request id that it was placed for, and of use for a moment only: what was
placed longer ago may lead through datanodes that are gone by now. One that is not taken was never written, and
nobody has to be told of it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from peacefs.protocol.limits import preallocated_chunk_kept_s, preallocated_chunks_max
from peacefs.protocol.messages import Allocated
from peacefs.protocol.request_ids import new_request_id


class PreallocatedChunk(NamedTuple):
    """A chunk, and the id of the one wish that it may be published under."""

    request_id: str
    allocated: Allocated
    since_s: float


class PreallocatedChunks:
    """By replication, as it is asked for. Thread-safe; `now_s` is monotonic."""

    def __init__(self, new_id: Callable[[], str] = new_request_id) -> None:
        self._new_id = new_id
        self._lock = threading.Lock()
        #: The latest last.
        self._placed: dict[int, deque[PreallocatedChunk]] = {}
        self._written_s: dict[int, float] = {}

    def take(self, now_s: float, replication: int) -> PreallocatedChunk | None:
        """The latest, for its one use."""
        with self._lock:
            placed = self._placed.get(replication)
            while placed:
                if now_s - placed[0].since_s < preallocated_chunk_kept_s:
                    return placed.pop()
                placed.popleft()
        return None

    def next_request_id(self, now_s: float, replication: int) -> str:
        """For whoever writes a file: the id of one to come, to have a chunk placed for.

        Empty where the file before was written too long ago for another to be expected in time.
        """
        with self._lock:
            before_s = self._written_s.get(replication)
            self._written_s[replication] = now_s
        if before_s is None or now_s - before_s >= preallocated_chunk_kept_s:
            return ""
        return self._new_id()

    def put(self, now_s: float, replication: int, request_id: str, allocated: Allocated | None) -> None:
        """What was placed for a wish, if anything was, asked for at `now_s`; of too many the oldest goes."""
        if allocated is None:
            return
        with self._lock:
            placed = self._placed.setdefault(replication, deque(maxlen=preallocated_chunks_max))
            placed.append(PreallocatedChunk(request_id, allocated, now_s))

    def clear(self) -> None:
        """A pipeline broke: what was placed with it may lead the same way."""
        with self._lock:
            self._placed.clear()
