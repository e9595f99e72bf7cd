"""Grants reads of checkpoint chunks, each at one datanode, and limits the readers per datanode. Pure.

SGuard, section 6.2: with the disks of Table 8, a third reader reduces the total throughput to a third. Writes have
priority: if they take all slots of a datanode, only one reader may read there. Readers are served in the order of
their requests. If there is no room for the first reader, later readers may be served if that does not delay the
first one.

Grants are soft: a reader that is silent for `read_grant_silence_s` loses its grants. If it later states that it
still reads, it is counted again, even if there is no room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from peacefs.protocol.errors import BadRequest, Overloaded
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import checkpoint_workers_max, readers_per_datanode_max, reads_stated_max

read_grant_silence_s: Final = 10.0
readers_waiting_max: Final = 500


#: The node of a grant if no live datanode has the chunk. The grant counts against no node, and its read will fail.
NOWHERE: NodeId = ""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A reader's request, with chunks by the reader's own numbers.

    `wanted` are the chunks to read next, with the datanodes that have them, nearest first. `holding` are the
    granted chunks. `at_once` is how many chunks the reader reads at a time.
    """

    reader: str
    #: The number of the reader's statement, which increases.
    number: int
    wanted: Mapping[int, Sequence[NodeId]]
    holding: Mapping[int, NodeId]
    at_once: int
    waited_s: float = 0.0

    def check(self) -> None:
        """Check the numbers. Raises BadRequest if one is out of range."""
        if not 1 <= self.at_once <= checkpoint_workers_max:
            raise BadRequest(f"{self.at_once} reads at once are out of range: 1 to {checkpoint_workers_max}")
        if len(self.wanted) + len(self.holding) > reads_stated_max:
            raise BadRequest(
                f"{len(self.wanted) + len(self.holding)} chunks are over the limit of {reads_stated_max} for one "
                "statement of reads; state the next ones when some are done"
            )


@dataclass(slots=True, eq=False)
class WaitingReader:
    """A reader that reads or waits. `grants` maps its chunks to the datanodes where it may read them."""

    request: ReadRequest
    asked_s: float
    heard_s: float
    grants: dict[int, NodeId] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """The number of wanted chunks that are not granted yet."""
        return sum(number not in self.grants for number in self.request.wanted)


class RecoveryReads:
    """All readers of one coordinator. `CoordinatorCore` calls it with their statements and at each tick.

    `has_room` returns whether writes leave a slot of a datanode. Except for readers that were counted again after
    a silence, each datanode has at most `readers_per_datanode_max` readers.
    """

    def __init__(self, has_room: Callable[[NodeId], bool]) -> None:
        self._has_room = has_room
        self._readers: dict[str, WaitingReader] = {}
        self._at_node: Counter[NodeId] = Counter()
        self.grants_total = 0

    # -- events ------------------------------------------------------------------------------------

    def state(self, now_s: float, request: ReadRequest) -> list[str]:
        """Record what a reader reads and wants to read. A reader with neither is done and forgotten.

        Return the names of readers with new grants. Raises BadRequest if a number is out of range, and Overloaded
        if there are too many readers.
        """
        request.check()
        known = self._readers.get(request.reader)
        if known is None:
            if not request.wanted and not request.holding:
                return []
            if len(self._readers) >= readers_waiting_max:
                raise Overloaded(f"{len(self._readers)} readers of checkpoints wait already; try again in a while")
            known = self._readers[request.reader] = WaitingReader(request, now_s - request.waited_s, now_s)
        known.heard_s = now_s
        if request.number < known.request.number:
            # A later statement arrived before this one.
            return []
        known.request = request
        # Send a grant that the reader has not received yet again, as long as the reader wants the chunk.
        unheard = {number: node for number, node in known.grants.items() if number in request.wanted}
        self._set_grants(known, {**unheard, **request.holding})
        if not request.wanted and not request.holding:
            del self._readers[request.reader]
        return self._serve()

    def tick(self, now_s: float) -> list[str]:
        """Forget silent readers and serve the others. Return the names of readers with new grants."""
        for name, reader in list(self._readers.items()):
            if now_s - reader.heard_s > read_grant_silence_s:
                self._set_grants(reader, {})
                del self._readers[name]
        return self._serve()

    def _set_grants(self, reader: WaitingReader, grants: dict[int, NodeId]) -> None:
        self._at_node.subtract(reader.grants.values())
        reader.grants = grants
        self._at_node.update(grants.values())

    # -- decisions ---------------------------------------------------------------------------------

    def _serve(self) -> list[str]:
        full: set[NodeId] = set()
        served = []
        for reader in sorted(self._readers.values(), key=lambda each: each.asked_s):
            before = len(reader.grants)
            for number, nodes in reader.request.wanted.items():
                if len(reader.grants) >= reader.request.at_once:
                    break
                if number in reader.grants or (nodes and full.issuperset(nodes)):
                    continue
                node = self._choose(nodes, full)
                if node is not None:
                    reader.grants[number] = node
                    self._at_node[node] += 1
            if len(reader.grants) > before:
                self.grants_total += len(reader.grants) - before
                served.append(reader.request.reader)
        return served

    def _choose(self, nodes: Sequence[NodeId], full: set[NodeId]) -> NodeId | None:
        """Choose the node with the fewest readers, the nearest among equals; None if all are full."""
        if not nodes:
            return NOWHERE
        free = [node for node in nodes if node not in full and self._at_node[node] < self._most(node)]
        full.update(node for node in nodes if node not in free)
        return min(free, key=lambda node: self._at_node[node], default=None)

    def _most(self, node: NodeId) -> int:
        return readers_per_datanode_max if self._has_room(node) else 1

    # -- the current state -------------------------------------------------------------------------

    def grants(self, reader: str) -> dict[int, NodeId]:
        """Return the datanode at which a reader may read each granted chunk."""
        known = self._readers.get(reader)
        return dict(known.grants) if known else {}

    @property
    def readers(self) -> list[WaitingReader]:
        """The readers in the order of their requests."""
        return sorted(self._readers.values(), key=lambda each: each.asked_s)

    @property
    def at_node(self) -> dict[NodeId, int]:
        """The number of readers at each datanode that has any."""
        return {node: count for node, count in self._at_node.items() if count and node != NOWHERE}
