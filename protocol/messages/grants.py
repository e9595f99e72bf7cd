"""Scheduling: writers state what they have to write, the coordinator grants it chunk by chunk. See decision 14."""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import ChunkId, NodeId, Version

from .base import Message, TracedMessage
from .files import Allocated


class StreamUnderWay(msgspec.Struct, frozen=True, array_like=True):
    """A granted chunk that is being written through these nodes; told by the first of them."""

    chunk: ChunkId
    version: Version
    nodes: list[NodeId]


class StateWriteSet(TracedMessage, frozen=True):
    """The chunks that the writer of `token` still wants to write, by (its own number, bytes). Answered at once by
    Scheduled, or, with `wait_s`, as soon as there is a grant within that time.

    Said again now and then while it waits, and after a reconnection: nothing is granted twice, and what was
    granted and not received comes again. A list without some of the chunks takes those back, an empty one all.
    `write_set` is the writer's name for the set, never used for another; `waited_s` how long it has waited.
    `written_bytes` is what the file of `token` has already, for its quota.
    `holding` are the grants that it has, `abandoned` those that it abandoned, `exclude` the nodes that failed.
    `to_come_bytes` is what it will ask for after these chunks; negative when the writer does not know, so that it
    is estimated.
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
    """The permit to write the chunk that the writer calls `index` now. Grants are numbered by (epoch, number)."""

    index: int
    epoch: int
    number: int
    allocated: Allocated


class Scheduled(Message, frozen=True):
    """The grants that a write set has and has not used, how many chunks wait, and in how many seconds the next
    of them may expect its turn."""

    grants: list[GrantedChunk]
    waiting: int
    expected_start_s: float = 0.0


class Granted(Message, frozen=True):
    """The coordinator grants a chunk of a set that was waiting."""

    write_set: str
    grant: GrantedChunk


class GrantRefused(Message, frozen=True):
    """A set waits for something that can never be granted; `code` names a class of `errors`."""

    write_set: str
    code: str
    message: str


class StreamEnded(TracedMessage, frozen=True):
    """The head of a pipeline says that a granted chunk is on all its nodes, or that it was abandoned."""

    chunk: ChunkId
    version: Version
    completed: bool
    length: int = 0


class AskStreams(Message, frozen=True):
    """Are these chunks being received there?"""

    chunks: list[ChunkId]
    epoch: int = 0


class StreamProgress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a stream: bytes received, and for how many seconds since its beginning its writer was waited
    for. By the clock of the datanode it began at `begun_s` and was observed at `seen_s`.
    """

    chunk: ChunkId
    received: int
    waited_s: float
    begun_s: float
    seen_s: float


class StreamsFound(Message, frozen=True):
    """The chunks in question that are being received."""

    asked: list[ChunkId]
    found: list[StreamProgress]
