"""Write sets, cancelled write sets, grants in flight, and the effects of scheduling. Pure.

A cancelled write set keeps its age for a while, in case its writer returns with a different number of chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from peacefs.coordinator.limits import write_set_chunks_max
from peacefs.peace.policies.ledger import WriteSet
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.ids import ChunkId, NodeId, Version
from peacefs.protocol.limits import chunk_bytes_max, pipeline_hops_max
from peacefs.protocol.messages import StreamProgress, StreamUnderWay
from peacefs.protocol.values.write_classes import WriteClass

from .checkpoint_estimates import CheckpointSource

write_set_silence_s: Final = 30.0
# How long cancelled sets are remembered, and the maximum number of them.
write_set_memory_s: Final = 600.0
write_set_memory_max: Final = 4096


#: The name of the write set for grants that an earlier coordinator gave.
TAKEN_OVER = "taken over"


@dataclass(frozen=True, slots=True)
class WriteSetRequest:
    """A writer's request. `chunks` maps the writer's own chunk numbers to bytes.

    `link` is the datanode whose gateway asks, None for a client that asks by HTTP. `writer` is the datanode that
    the data comes from, if any. `source` is set if the rest of the checkpoint must be estimated, and
    `to_come_bytes` if the rest is known. Only `owner` may abandon granted chunks. `user` is the writing user, or
    empty for a lease, which names no user. `due_s` is the expected time of the next occurrence of the write.
    """

    name: str
    link: NodeId | None
    writer: NodeId | None
    replication: int
    chunks: dict[int, int]
    exclude: frozenset[NodeId] = frozenset()
    abandoned: tuple[ChunkId, ...] = ()
    holding: tuple[StreamUnderWay, ...] = ()
    waited_s: float = 0.0
    source: CheckpointSource | None = None
    to_come_bytes: int = 0
    owner: str = ""
    user: str = ""
    write_class: WriteClass = WriteClass.BLOCKING
    due_s: float | None = None

    def check(self) -> None:
        """Check the numbers. Raises BadRequest if one is out of range."""
        if len(self.chunks) > write_set_chunks_max:
            raise BadRequest(
                f"{len(self.chunks)} chunks are over the limit of {write_set_chunks_max} for one write set; "
                "state them in parts"
            )
        if not 1 <= self.replication <= pipeline_hops_max:
            raise BadRequest(f"replication {self.replication} is not from 1 to {pipeline_hops_max}")
        wrong = next((size for size in self.chunks.values() if not 1 <= size <= chunk_bytes_max), None)
        if wrong is not None:
            raise BadRequest(f"a chunk of {wrong} bytes is out of range: from 1 to {chunk_bytes_max}")


@dataclass(slots=True, eq=False)
class ScheduledSet:
    """A write set.

    `waiting` maps its chunks without a grant to bytes. `numbered` maps the policy's chunk numbers to the writer's.
    Its age counts from `asked_s`, which may be before `stated_s`, its first statement here.
    """

    request: WriteSetRequest
    asked_s: float
    stated_s: float
    heard_s: float
    begun: bool = False
    waiting: dict[int, int] = field(default_factory=dict)
    numbered: list[int] = field(default_factory=list)
    in_flight: set[ChunkId] = field(default_factory=set)

    def is_silent(self, now_s: float) -> bool:
        """Return whether chunks wait although the writer has been silent for too long."""
        return bool(self.waiting) and now_s - self.heard_s > write_set_silence_s

    def for_policy(self, more_bytes: int, *, begun: bool) -> WriteSet:
        """Return the waiting chunks in the policy's form, and renumber them in `numbered`."""
        self.numbered = list(self.waiting)
        request = self.request
        return WriteSet(
            request.name,
            request.writer,
            request.replication,
            tuple(self.waiting.values()),
            request.exclude,
            asked_s=self.asked_s,
            more_bytes=more_bytes,
            begun=begun,
            write_class=request.write_class,
            due_s=request.due_s,
        )


@dataclass(slots=True, eq=False)
class InFlight:
    """A grant that still holds its capacity.

    `number` counts the grants of the epoch. `in_policy` is the policy's number, which changes with the policy.
    `waited_s` is how long its set waited for it. `asked_s` is when its nodes were last asked about it, `denied`
    are the nodes that deny receiving the stream, and `begun` is True once a node has confirmed it.
    """

    chunk: ChunkId
    version: Version
    number: int
    in_policy: int
    write_set: str
    index: int
    chunk_bytes: int
    writer: NodeId | None
    nodes: tuple[NodeId, ...]
    granted_s: float
    asked_s: float
    waited_s: float = 0.0
    source: CheckpointSource | None = None
    user: str = ""
    write_class: WriteClass = WriteClass.BLOCKING
    denied: set[NodeId] = field(default_factory=set)
    begun: bool = False
    #: True if, by the head's last report, the writer hardly uses the grant. Its capacity is then lent to others.
    is_idle: bool = False
    looked_s: float = 0.0
    progress: StreamProgress | None = None

    def found(self, node: NodeId) -> None:
        """Record that a node receives the stream. Forget denials, except the head's if the stream had begun."""
        head = self.nodes[0]
        self.denied &= {head} if self.begun and node != head else set()
        self.begun = True


def taken_over(stream: StreamUnderWay, now_s: float) -> InFlight:
    """Return a grant for a chunk that is being written under a grant of an earlier coordinator."""
    return InFlight(
        chunk=stream.chunk,
        version=stream.version,
        number=0,
        in_policy=0,
        write_set=TAKEN_OVER,
        index=0,
        chunk_bytes=chunk_bytes_max,
        writer=None,
        nodes=tuple(stream.nodes),
        granted_s=now_s,
        asked_s=now_s,
    )


@dataclass(frozen=True, slots=True)
class Push:
    """Effect: send a writer its grant; with `is_reply`, as the reply to its own statement."""

    grant: InFlight
    link: NodeId | None
    owner: str
    is_reply: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """Effect: tell a writer that its set can never be granted and was removed."""

    write_set: str
    link: NodeId | None
    reason: str
    is_reply: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """Effect: ask a datanode whether it is receiving these chunks. Pass the answer to `Scheduling.answered`."""

    node: NodeId
    chunks: tuple[ChunkId, ...]


Effect = Push | Refuse | Ask


class CancelledSets:
    """Cancelled sets by name, oldest first: when they began to wait, and when they were cancelled. Bounded."""

    def __init__(self) -> None:
        self._sets: dict[str, tuple[float, float]] = {}

    def remember(self, now_s: float, name: str, asked_s: float) -> None:
        """Remember a cancelled set that has waited since `asked_s`."""
        self._sets[name] = asked_s, now_s
        while len(self._sets) > write_set_memory_max:
            del self._sets[next(iter(self._sets))]

    def take(self, name: str, now_s: float) -> float:
        """Remove a set that returns. Return when it began to wait; `now_s` if it is not remembered."""
        asked_s, _ = self._sets.pop(name, (now_s, 0.0))
        return asked_s

    def forget_old(self, now_s: float) -> None:
        """Forget sets that have not come back within `write_set_memory_s`."""
        for name, (_asked_s, cancelled_s) in list(self._sets.items()):
            if now_s - cancelled_s < write_set_memory_s:
                break
            del self._sets[name]
