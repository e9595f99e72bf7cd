"""Small files in one call: if a chunk was preallocated, only the publication asks the coordinator.

    asked = yield from writes.publish_at_once(file, data)           # None: it is done
    if asked is not None:
        created = ...                                               # send `asked` as CREATE
        yield from writes.publish_created(asked, created, data)

The data is on datanodes before the coordinator learns of the file. If it refuses the file for good, it deletes the
chunk. After Ctrl-C or a temporary error, the client has the chunk deleted: it sends a CREATE under the same id,
and writes nothing for it. If a chunk cannot be written, the file is written in the ordinary way, with a CREATE,
which checks everything, and other pipelines.
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
from peacefs.protocol.messages import Allocated, Completed, Created, CreateFile, PublishFile, WrittenChunk
from peacefs.protocol.new_file import NewFile
from peacefs.runtime import effects as fx

from .byte_stream import ByteStream
from .chunk_buffer import OutgoingPacket
from .chunk_writer import send_chunk
from .file_writer import write_file
from .write_grants import GrantClient

# Time within which a preallocated chunk must be used, and maximum number of them per client.
preallocated_chunk_kept_s: Final = 5.0
preallocated_chunks_max: Final = 64

#: Makes one attempt to write a small chunk, like `send_chunk`.
SendSmallChunk = Callable[[Allocated, bytes], fx.Steps[WrittenChunk]]


def is_small(data: object) -> bool:
    """Return whether a file of these bytes can be written here: it has one chunk and needs no grant."""
    return isinstance(data, bytes) and 0 < len(data) <= fast_lane_bytes_max


class SmallWrites:
    """The small writes of one client. Thread-safe. `NewFile`s have no request id yet, and fit in one block."""

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

    def publish(self, wanted: NewFile, data: bytes, send: SendSmallChunk | None = None) -> fx.Steps[None]:
        """Write and publish a file. Needs one call to the coordinator if a chunk is preallocated, else two.

        `send` is used in place of `send_chunk`, if given. Raises the errors of CREATE and of a completion.
        """
        asked = yield from self.publish_at_once(wanted, data, send)
        if asked is not None:
            yield from self.publish_created(asked, (yield from fx.call(asked, Created)), data)

    def publish_at_once(
        self, wanted: NewFile, data: bytes, send: SendSmallChunk | None = None
    ) -> fx.Steps[CreateFile | None]:
        """Write and publish a file with a preallocated chunk. Return None if that succeeded.

        Otherwise return the request to send as CREATE; the coordinator was not asked yet. Raises the errors of
        CREATE and of a completion.
        """
        now_s = yield from fx.now()
        placed = self._preallocated.take(now_s, wanted.replication)
        if placed is None:
            return CreateFile(replace(wanted, request_id=self._new_id()))
        file, allocated = replace(wanted, request_id=placed.request_id), placed.allocated
        try:
            try:
                if send is not None:
                    written = yield from send(allocated, data)
                else:
                    written = yield from send_chunk(allocated, _Packets(data), hop_timeout_s=self._hop_timeout_s)
            except PeacefsError as fault:
                self._preallocated.clear()
                failed = [] if fault.culprit is None else [fault.culprit]
                return CreateFile(file, allocated.chunk, failed)
            ahead = self._preallocated.next_request_id(now_s, wanted.replication)
            completed = yield from fx.call(PublishFile(file, written, allocated.token, ahead), Completed)
        except (PeacefsError, KeyboardInterrupt) as error:
            # If the coordinator refuses a publication for good, it deletes the chunk itself.
            if not isinstance(error, PeacefsError) or error.retriable:
                yield from _abandon(CreateFile(file, allocated.chunk))
            raise
        self._preallocated.put(now_s, wanted.replication, ahead, completed.ahead)
        return None

    def publish_created(self, asked: CreateFile, created: Created, data: bytes) -> fx.Steps[None]:
        """Write and publish a file in the ordinary way, after a CREATE."""
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
    """Tell the coordinator to delete the chunk that `asked` abandons. Raises nothing."""
    with contextlib.suppress(PeacefsError):
        yield from fx.call(asked, Created, timeout_s=last_word_timeout_s)


class _Packets:
    """The packets of a chunk whose data is complete; see `chunk_buffer.PacketSource`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        yield from ()
        begin, end = index * packet_bytes, (index + 1) * packet_bytes
        is_last = end >= len(self._data)
        piece = self._data if is_last and not begin else memoryview(self._data)[begin:end]
        return OutgoingPacket(begin, block_checksums(piece), piece, is_last)


class PreallocatedChunk(NamedTuple):
    """A chunk, and the id of the only request that may publish it."""

    request_id: str
    allocated: Allocated
    since_s: float


class PreallocatedChunks:
    """Preallocated chunks, by replication. Thread-safe; `now_s` is monotonic.

    Each chunk is for one future file, under the request id that it was placed for. It is usable only for a short
    time, because its datanodes may fail meanwhile. An unused chunk was never written and needs no cleanup.
    """

    def __init__(self, new_id: Callable[[], str] = new_request_id) -> None:
        self._new_id = new_id
        self._lock = threading.Lock()
        #: The most recent ones are last.
        self._placed: dict[int, deque[PreallocatedChunk]] = {}
        self._written_s: dict[int, float] = {}

    def take(self, now_s: float, replication: int) -> PreallocatedChunk | None:
        """Remove and return the most recent chunk, or None."""
        with self._lock:
            placed = self._placed.get(replication)
            while placed:
                if now_s - placed[0].since_s < preallocated_chunk_kept_s:
                    return placed.pop()
                placed.popleft()
        return None

    def next_request_id(self, now_s: float, replication: int) -> str:
        """Return the id for the next file's request, under which a chunk is preallocated.

        Empty if the previous file is so long ago that another one is not expected in time.
        """
        with self._lock:
            before_s = self._written_s.get(replication)
            self._written_s[replication] = now_s
        if before_s is None or now_s - before_s >= preallocated_chunk_kept_s:
            return ""
        return self._new_id()

    def put(self, now_s: float, replication: int, request_id: str, allocated: Allocated | None) -> None:
        """Keep a chunk that was preallocated at `now_s`; beyond the maximum, drop the oldest."""
        if allocated is None:
            return
        with self._lock:
            placed = self._placed.setdefault(replication, deque(maxlen=preallocated_chunks_max))
            placed.append(PreallocatedChunk(request_id, allocated, now_s))

    def clear(self) -> None:
        """Drop all chunks after a pipeline broke: they may use the same datanodes."""
        with self._lock:
            self._placed.clear()
