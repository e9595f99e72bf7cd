"""Small files whose bytes are all known: one call to the coordinator for each, where a chunk was preallocated.

    asked = yield from writes.publish_at_once(file, data)           # None: it is done
    if asked is not None:
        created = ...                                               # CREATE, sent in whatever way
        yield from writes.publish_created(asked, created, data)

What is published at once is on datanodes before the coordinator hears of it: that it may not be is found out
then, and what was written goes. So it does when the coordinator does not come round to it, and on Ctrl-C: the
client says so, in a CREATE under the same id that it does not follow up. A chunk that cannot be written is mended
by the ordinary way: a CREATE, for which everything is checked, and other pipelines.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.ids import new_request_id
from peacefs.protocol.limits import fast_lane_bytes_max, last_word_timeout_s, packet_bytes
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import Allocated, Completed, Created, CreateFile, PublishFile
from peacefs.protocol.new_file import NewFile
from peacefs.runtime import effects as fx

from .byte_stream import ByteStream
from .chunk_buffer import OutgoingPacket
from .chunk_writer import send_chunk
from .file_writer import write_file
from .write_grants import GrantClient

# A chunk that was preallocated for a small file to come is used within this time, or not at all; how many a client
# has in hand.
preallocated_chunk_kept_s: Final = 5.0
preallocated_chunks_max: Final = 64


def is_small(data: object) -> bool:
    """Return whether a file of these bytes can be written here: they are one chunk, and wait for no grant."""
    return isinstance(data, bytes) and 0 < len(data) <= fast_lane_bytes_max


class SmallWrites:
    """One client's small writes. Thread-safe. A new file has no id, and chunks no smaller than its data."""

    def __init__(
        self,
        grant_client: GrantClient,
        *,
        hop_timeout_s: float = default_hop_timeout_s,
        new_id: Callable[[], str] = new_request_id,
    ) -> None:
        self._grant_client = grant_client
        self._hop_timeout_s = hop_timeout_s
        self._new_id = new_id
        self._preallocated = PreallocatedChunks(new_id)

    def publish_at_once(self, wanted: NewFile, data: bytes) -> fx.Steps[CreateFile | None]:
        """Writes and publishes a file of a preallocated chunk. None when that is done; else the request to
        send with CREATE, and nothing has been asked of the coordinator.

        Raises what CREATE would be refused with, and what a completion may be.
        """
        now_s = yield from fx.now()
        placed = self._preallocated.take(now_s, wanted.replication)
        if placed is None:
            return CreateFile(replace(wanted, request_id=self._new_id()))
        file, allocated = replace(wanted, request_id=placed.request_id), placed.allocated
        try:
            try:
                written = yield from send_chunk(allocated, _Packets(data), hop_timeout_s=self._hop_timeout_s)
            except PeacefsError as fault:
                self._preallocated.clear()
                failed = [] if fault.culprit is None else [fault.culprit]
                return CreateFile(file, allocated.chunk, failed)
            ahead = self._preallocated.next_request_id(now_s, wanted.replication)
            completed = yield from fx.call(PublishFile(file, written, allocated.token, ahead), Completed)
        except (PeacefsError, KeyboardInterrupt) as error:
            # The coordinator knows how to treat publications that are refused for good.
            if not isinstance(error, PeacefsError) or error.retriable:
                yield from _abandon(CreateFile(file, allocated.chunk))
            raise
        self._preallocated.put(now_s, wanted.replication, ahead, completed.ahead)
        return None

    def publish_created(self, asked: CreateFile, created: Created, data: bytes) -> fx.Steps[None]:
        """Write and publish the ordinary way, after a CREATE."""
        now_s = yield from fx.now()
        ahead = self._preallocated.next_request_id(now_s, asked.file.replication)
        completed, _stats = yield from write_file(
            created.token,
            created.allocated,
            ByteStream.of(data),
            chunk_bytes=asked.file.block_bytes,
            grant_client=self._grant_client,
            hop_timeout_s=self._hop_timeout_s,
            ahead=ahead,
        )
        self._preallocated.put(now_s, asked.file.replication, ahead, completed.ahead)


def _abandon(asked: CreateFile) -> fx.Steps[None]:
    """The chunk that `asked` abandons will be part of no file. Raises nothing, as `GrantClient.abandon`."""
    with contextlib.suppress(PeacefsError):
        yield from fx.call(asked, Created, timeout_s=last_word_timeout_s)


class _Packets:
    """A chunk that is all there; see `chunk_buffer.PacketSource`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        yield from ()
        begin, end = index * packet_bytes, (index + 1) * packet_bytes
        is_last = end >= len(self._data)
        piece = self._data if is_last and not begin else memoryview(self._data)[begin:end]
        return OutgoingPacket(begin, block_checksums(piece), piece, is_last)


class PreallocatedChunk(NamedTuple):
    """A chunk, and the id of the one request that it may be published with."""

    request_id: str
    allocated: Allocated
    since_s: float


class PreallocatedChunks:
    """Preallocated chunks, by replication. Thread-safe; `now_s` is monotonic.

    Each is for one file to come, under the request id that it was placed for, and usable for a moment only: what
    was placed longer ago may lead through datanodes that are gone by now. One that is not taken was never
    written, and nobody has to be told of it.
    """

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
        """Keep what was preallocated at `now_s` for a request, if anything; over the limit, drop the oldest."""
        if allocated is None:
            return
        with self._lock:
            placed = self._placed.setdefault(replication, deque(maxlen=preallocated_chunks_max))
            placed.append(PreallocatedChunk(request_id, allocated, now_s))

    def clear(self) -> None:
        """A pipeline broke: what was placed with it may lead the same way."""
        with self._lock:
            self._placed.clear()
