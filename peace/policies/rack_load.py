"""Index nodes and racks by load, so that free slots are found in a few steps however large the rack is.

The nodes of a rack that have a free slot lie in buckets by the number of streams they receive; a node moves
from one to the next by swapping places with the bucket's last.
"""

from __future__ import annotations

from random import Random

#: Sample size when a large bucket is searched for a node with few bytes.
_LOOKS = 8


class NodeLoad:
    """One node. `receiving` and `sending` are streams; `assigned_s` is how long its disk needs for all bytes
    it was ever given, which evens out what the number of streams leaves open."""

    __slots__ = ("assigned_s", "bytes_s", "name", "place", "rack", "receiving", "sending", "slots")

    def __init__(self, name: str, rack: RackLoad, slots: int, bytes_s: float) -> None:
        self.name = name
        self.rack = rack
        self.slots = slots
        self.bytes_s = bytes_s
        self.receiving = 0
        self.sending = 0
        self.assigned_s = 0.0
        self.place = -1


class RackLoad:
    """The nodes of one rack that have slots at all. Invariant: a node with a free slot is in the bucket of its
    `receiving`, at `place`; any other is in none. `share` is the part of the slots that is free; of the
    `free_nodes` as many as `free_senders` may pass on another chunk, of `sends_max`."""

    __slots__ = (
        "buckets",
        "free_nodes",
        "free_senders",
        "free_slots",
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
        self.slots = 0
        self.free_slots = 0
        self.free_nodes = 0
        self.free_senders = 0
        self.share = 0.0

    def add(self, node: NodeLoad) -> None:
        """A node with slots, all of which may be taken already."""
        assert node.slots > 0
        self.nodes.append(node)
        self.slots += node.slots
        while len(self.buckets) < node.slots:
            self.buckets.append([])
        self._count_free(max(0, node.slots - node.receiving))
        if node.receiving < node.slots:
            self._enter(node)

    def take(self, node: NodeLoad) -> None:
        """One slot of the node; more than it has only for streams that began when it had more."""
        if node.receiving < node.slots:
            self._leave(node)
            self._count_free(-1)
        node.receiving += 1
        if node.receiving < node.slots:
            self._enter(node)

    def give_back(self, node: NodeLoad) -> None:
        """One slot of the node."""
        assert node.receiving > 0
        if node.receiving < node.slots:
            self._leave(node)
        node.receiving -= 1
        if node.receiving < node.slots:
            self._count_free(1)
            self._enter(node)

    def sends(self, node: NodeLoad, more: int) -> None:
        """One stream more or less, which the node passes on."""
        was_free = node.sending < self.sends_max
        node.sending += more
        assert node.sending >= 0
        if node.receiving < node.slots:
            self.free_senders += (node.sending < self.sends_max) - was_free

    def _count_free(self, more: int) -> None:
        self.free_slots += more
        self.share = self.free_slots / self.slots

    def _enter(self, node: NodeLoad) -> None:
        bucket = self.buckets[node.receiving]
        node.place = len(bucket)
        bucket.append(node)
        self.free_nodes += 1
        self.free_senders += node.sending < self.sends_max

    def _leave(self, node: NodeLoad) -> None:
        bucket = self.buckets[node.receiving]
        last = bucket.pop()
        if last is not node:
            bucket[node.place] = last
            last.place = node.place
        self.free_nodes -= 1
        self.free_senders -= node.sending < self.sends_max

    def least_loaded(self, rng: Random, barred: set[str], sends_below: int) -> NodeLoad | None:
        """A node with a free slot, not barred, that may send on: the fewest streams first, then the fewest
        bytes for its speed, then chance. In a large bucket, the best of a few."""
        for bucket in self.buckets:
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
