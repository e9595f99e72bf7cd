"""Index of nodes and racks by load, which finds free slots in a few steps even in large racks.

The nodes of a rack with a free slot are in buckets, one per number of received streams. A node leaves its bucket
in constant time, since the bucket's last node takes its place.
"""

from __future__ import annotations

from random import Random

#: Number of nodes in a bucket whose assigned bytes are compared.
_LOOKS = 8


class NodeLoad:
    """The load of one node.

    `receiving` and `sending` are numbers of streams. `assigned_s` is the time that its disk needs for all bytes
    ever assigned to it; it decides between nodes with equally many streams. `bulk` of the received streams are
    bulk writes.
    """

    __slots__ = ("assigned_s", "bulk", "bytes_s", "name", "place", "rack", "receiving", "sending", "slots")

    def __init__(self, name: str, rack: RackLoad, slots: int, bytes_s: float) -> None:
        self.name = name
        self.rack = rack
        self.slots = slots
        self.bytes_s = bytes_s
        self.receiving = 0
        self.bulk = 0
        self.sending = 0
        self.assigned_s = 0.0
        self.place = -1


class RackLoad:
    """The nodes of one rack that have slots, indexed by load for ChainPlacement and FlowScheduler.

    Invariant: a node with a free slot is in bucket `receiving`, at index `place`; a node with several slots that
    are exactly used is in `full`; other nodes are in no list. `share` is the free share of all slots.
    `free_senders` of the `free_nodes` send less than `sends_max` streams.
    """

    __slots__ = (
        "buckets",
        "free_nodes",
        "free_senders",
        "free_slots",
        "full",
        "index",
        "name",
        "nodes",
        "sends_max",
        "share",
        "slots",
    )

    def __init__(self, name: str, index: int, sends_max: int = 1 << 30) -> None:
        self.name = name
        self.index = index
        self.sends_max = sends_max
        self.nodes: list[NodeLoad] = []
        self.buckets: list[list[NodeLoad]] = []
        self.full: list[NodeLoad] = []
        self.slots = 0
        self.free_slots = 0
        self.free_nodes = 0
        self.free_senders = 0
        self.share = 0.0

    def add(self, node: NodeLoad) -> None:
        """Add a node, which must have slots; all of them may be in use."""
        assert node.slots > 0
        self.nodes.append(node)
        self.slots += node.slots
        while len(self.buckets) < node.slots:
            self.buckets.append([])
        self._count_free(max(0, node.slots - node.receiving))
        self._enter(node)

    def take(self, node: NodeLoad) -> None:
        """Count one more stream to the node.

        It may exceed the slots if a small set passed, or if the node had more slots before.
        """
        self._leave(node)
        if node.receiving < node.slots:
            self._count_free(-1)
        node.receiving += 1
        self._enter(node)

    def give_back(self, node: NodeLoad) -> None:
        assert node.receiving > 0
        self._leave(node)
        node.receiving -= 1
        if node.receiving < node.slots:
            self._count_free(1)
        self._enter(node)

    def sends(self, node: NodeLoad, more: int) -> None:
        """Add `more` to the number of sent streams; it is 1 or -1."""
        was_free = node.sending < self.sends_max
        node.sending += more
        assert node.sending >= 0
        if node.receiving < node.slots:
            self.free_senders += (node.sending < self.sends_max) - was_free

    def _count_free(self, more: int) -> None:
        self.free_slots += more
        self.share = self.free_slots / self.slots

    def _enter(self, node: NodeLoad) -> None:
        if node.receiving > node.slots or not node.slots:
            return
        if node.receiving == node.slots:
            if node.slots == 1:
                return
            node.place = len(self.full)
            self.full.append(node)
            return
        bucket = self.buckets[node.receiving]
        node.place = len(bucket)
        bucket.append(node)
        self.free_nodes += 1
        self.free_senders += node.sending < self.sends_max

    def _leave(self, node: NodeLoad) -> None:
        if node.receiving > node.slots or not node.slots:
            return
        if node.receiving == node.slots:
            if node.slots == 1:
                return
            _take_out(self.full, node)
            return
        _take_out(self.buckets[node.receiving], node)
        self.free_nodes -= 1
        self.free_senders -= node.sending < self.sends_max

    def least_loaded(
        self, rng: Random, barred: set[str], sends_below: int, *, one_more: bool = False
    ) -> NodeLoad | None:
        """Return the allowed node with the fewest received streams; None if there is none.

        A node is allowed if it has a free slot, is not barred and sends less than `sends_below` streams. Of up to
        `_LOOKS` such nodes, the one with the smallest `assigned_s` is returned. With `one_more`, nodes whose slots
        are exactly used are allowed if there are no others.
        """
        for bucket in [*self.buckets, self.full] if one_more else self.buckets:
            n = len(bucket)
            if not n:
                continue
            best: NodeLoad | None = None
            looks = _LOOKS
            start = int(rng.random() * n)
            for at in range(start - n, start):
                node = bucket[at]
                if node.sending < sends_below and node.name not in barred:
                    if best is None or node.assigned_s < best.assigned_s:
                        best = node
                    looks -= 1
                    if not looks:
                        break
            if best is not None:
                return best
        return None


def _take_out(nodes: list[NodeLoad], node: NodeLoad) -> None:
    """Remove a node from the list it is in. The last node of the list takes its place."""
    last = nodes.pop()
    if last is not node:
        nodes[node.place] = last
        last.place = node.place
