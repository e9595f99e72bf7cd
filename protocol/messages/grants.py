"""Scheduling of writes: writers state their chunks, and the coordinator grants them one by one. See decision
14.
"""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import ChunkId, NodeId, Version

from .base import Message, TracedMessage
from .files import Allocated


class StreamUnderWay(msgspec.Struct, frozen=True, array_like=True):
    """A granted chunk that is being written through these nodes; reported by the first one."""

    chunk: ChunkId
    version: Version
    nodes: list[NodeId]


class StateWriteSet(TracedMessage, frozen=True):
    """State the chunks that the writer of `token` still wants to write, as (its own number, bytes). Answered by
    Scheduled: at once, or, with `wait_s`, as soon as there is a grant, at the latest after that time.

    Repeated from time to time while the writer waits, and after a reconnection. No chunk is granted twice, and
    lost grants are sent again. Chunks that are missing from a repeated list are withdrawn; an empty list withdraws
    all. `write_set` is the writer's unique name for the set; `waited_s` is how long it has waited. `written_bytes`
    is the current size of the file of `token`, for its quota. `holding` are the writer's grants, `abandoned` are
    chunks that it abandoned, `exclude` are failed nodes. `to_come_bytes` is the size of further chunks after
    these; if negative, it is unknown and will be estimated.
    """

    token: str
    write_set: str
    chunks: list[tuple[int, int]]
    exclude: list[NodeId] = []
    abandoned: list[ChunkId] = []
    holding: list[StreamUnderWay] = []
    waited_s: float = 0.0
    wait_s: float = msgspec.field(default=0.0, name="patience_s")
    written_bytes: int = 0
    to_come_bytes: int = -1


class GrantedChunk(msgspec.Struct, frozen=True, array_like=True):
    """The permit to write chunk `index` of the write set now. A grant is identified by (epoch, number)."""

    index: int
    epoch: int
    number: int
    allocated: Allocated


class Scheduled(Message, frozen=True):
    """The unused grants of a write set, the number of waiting chunks, and the expected time in seconds until the
    next grant.
    """

    grants: list[GrantedChunk]
    waiting: int
    expected_start_s: float = 0.0


class Granted(Message, frozen=True):
    """Sent unasked: a grant for a waiting chunk of a write set."""

    write_set: str
    grant: GrantedChunk


class GrantRefused(Message, frozen=True):
    """A write set can never be granted; `code` names a class of `errors`."""

    write_set: str
    code: str
    message: str


class StreamEnded(TracedMessage, frozen=True):
    """Report of a pipeline's head: a granted chunk is on all its nodes (`completed`), or was abandoned."""

    chunk: ChunkId
    version: Version
    completed: bool
    length: int = 0


class AskStreams(Message, frozen=True):
    """Ask a datanode which of these chunks it is receiving."""

    chunks: list[ChunkId]
    epoch: int = 0


class StreamProgress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a stream: bytes received, and seconds spent waiting for its writer. It began at `begun_s`
    and was observed at `seen_s`, by the datanode's clock.
    """

    chunk: ChunkId
    received: int
    waited_s: float
    begun_s: float
    seen_s: float


class StreamsFound(Message, frozen=True):
    """The answer to AskStreams: those of the `asked` chunks that are being received."""

    asked: list[ChunkId]
    found: list[StreamProgress]
