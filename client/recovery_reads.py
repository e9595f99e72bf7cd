"""Which chunk is read next, and from where: few readers at a datanode, for more of them get less in all. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import Opened


@dataclass(frozen=True, slots=True)
class ChunkToRead:
    """The chunk with this number of an opened file; `offset` is where its first byte belongs in the checkpoint."""

    opened: Opened
    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class ChosenRead:
    """`node` is to be asked first; None where no replica is known, which the reader will say."""

    chunk: ChunkToRead
    node: NodeId | None


class RecoveryReads:
    """SGuard, section 6.2: with Table 8's disks the aggregate falls to a third with the third reader.

    A replica that fails in the middle of a read is replaced by another at once, whoever reads there.
    """

    def __init__(self, chunks: Iterable[ChunkToRead], per_datanode_max: int) -> None:
        self._waiting = list(chunks)
        self._per_datanode_max = per_datanode_max
        self._readers: Counter[NodeId] = Counter()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def choose(self) -> ChosenRead | None:
        """The first chunk with a replica that has room, where it has most; None while there is none."""
        for at, chunk in enumerate(self._waiting):
            nodes = [hop.node for hop in chunk.opened.layout.chunks[chunk.number].replicas]
            free = [node for node in nodes if self._readers[node] < self._per_datanode_max]
            if free or not nodes:
                node = min(free, key=lambda each: self._readers[each], default=None)
                del self._waiting[at]
                if node is not None:
                    self._readers[node] += 1
                return ChosenRead(chunk, node)
        return None

    def ended(self, read: ChosenRead) -> None:
        if read.node is not None:
            self._readers[read.node] -= 1

    def give_up(self) -> None:
        """Nothing more is chosen."""
        self._waiting.clear()
