"""Remember write sets that wait or are being written, cancelled ones, and grants in flight. Pure.

A cancelled write set keeps its age for a while, for a writer that returns with another number of chunks.
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

from .checkpoint_estimates import CheckpointSource

write_set_silence_s: Final = 30.0
# Sets that were cancelled are remembered, with their age, for whoever comes back with another number of chunks.
write_set_memory_s: Final = 600.0
write_set_memory_max: Final = 4096


#: The name of grants that were taken over and whose sets nobody has stated here.
TAKEN_OVER = "taken over"


@dataclass(frozen=True, slots=True)
class WriteSetRequest:
    """A writer's request: chunks as bytes by its own numbers.

    `link` is the datanode whose gateway asks, None for a client that asks by HTTP; `writer` the datanode that
    the data comes from, if it is one of ours; `source` is given where the rest of the checkpoint is estimated, and
    `to_come_bytes` is the rest where it is known. `owner` alone may abandon what is granted. `user` is who writes;
    empty for a lease, which names nobody.
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

    def check(self) -> None:
        """Raises BadRequest for what makes no sense."""
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
    """A write set. `waiting` are its chunks without a grant; `numbered` are the writer's numbers of the chunks
    as the policy counts them. Its age counts from `asked_s`, which may be before it was `stated_s` here."""

    request: WriteSetRequest
    asked_s: float
    stated_s: float
    heard_s: float
    begun: bool = False
    waiting: dict[int, int] = field(default_factory=dict)
    numbered: list[int] = field(default_factory=list)
    in_flight: set[ChunkId] = field(default_factory=set)

    def is_silent(self, now_s: float) -> bool:
        """Return whether it waits and its writer has not been heard of for too long."""
        return bool(self.waiting) and now_s - self.heard_s > write_set_silence_s

    def for_policy(self, more_bytes: int, *, begun: bool) -> WriteSet:
        """Return the waiting requests in the policy's form. Renumbers."""
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
        )


@dataclass(slots=True, eq=False)
class InFlight:
    """A grant whose capacity has not come back.

    `number` counts those of the epoch; `in_policy` is what the policy calls it, which changes with the policy.
    `waited_s` is how long its set had waited for it. `asked_s` is when its nodes were asked about it last,
    `denied` are those that say that they receive no such thing, and `begun` is whether one has said that it does.
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
    denied: set[NodeId] = field(default_factory=set)
    begun: bool = False
    #: True if its writer hardly used it when its head was last asked, so that its capacity is lent to others.
    is_idle: bool = False
    looked_s: float = 0.0
    progress: StreamProgress | None = None

    def found(self, node: NodeId) -> None:
        """One of its nodes receives it. Others may have been asked too early; the head, once it had begun, not."""
        head = self.nodes[0]
        self.denied &= {head} if self.begun and node != head else set()
        self.begun = True


def taken_over(stream: StreamUnderWay, now_s: float) -> InFlight:
    """Return the chunks that an earlier coordinator granted and that are being written."""
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
    """A grant for a set that waits; to be told to whoever asked, unless it is the reply to that very question."""

    grant: InFlight
    link: NodeId | None
    owner: str
    is_reply: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse a set that waits for something that can never be granted; it is forgotten."""

    write_set: str
    link: NodeId | None
    reason: str
    is_reply: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """Is a datanode receiving these chunks? The answer goes to `Scheduling.answered`."""

    node: NodeId
    chunks: tuple[ChunkId, ...]


Effect = Push | Refuse | Ask


class CancelledSets:
    """By name: since when they wait, and when they were cancelled; oldest first, and bounded."""

    def __init__(self) -> None:
        self._sets: dict[str, tuple[float, float]] = {}

    def remember(self, now_s: float, name: str, asked_s: float) -> None:
        """A set that has waited since `asked_s` is cancelled."""
        self._sets[name] = asked_s, now_s
        while len(self._sets) > write_set_memory_max:
            del self._sets[next(iter(self._sets))]

    def take(self, name: str, now_s: float) -> float:
        """Since when a set waits that comes back; `now_s` for any other."""
        asked_s, _ = self._sets.pop(name, (now_s, 0.0))
        return asked_s

    def forget_old(self, now_s: float) -> None:
        """Those that have not come back in `write_set_memory_s`."""
        for name, (_asked_s, cancelled_s) in list(self._sets.items()):
            if now_s - cancelled_s < write_set_memory_s:
                break
            del self._sets[name]
