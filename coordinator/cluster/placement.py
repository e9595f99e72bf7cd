"""Place new replicas, and order existing ones for a reader, as in HDFS. Pure.

The scheduling service places large chunks. This module places small chunks and copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from peacefs.coordinator.limits import min_replication
from peacefs.coordinator.metadata.model import Mode
from peacefs.peace.policies.hdfs_placement import CandidateIndex, PlacementRequest, choose_randomly
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import chunk_bytes_max

from .membership import Membership, Node, State
from .pending_load import PendingLoad
from .repair import ChooseTarget
from .slow_peers import SlowPeers, avoidable


class _Candidate:
    """A datanode as the placement sees it. Free space and load are read when they are needed."""

    __slots__ = ("_member", "_pending", "host", "node", "rack")

    def __init__(self, member: Node, pending: PendingLoad) -> None:
        self._member = member
        self._pending = pending
        self.node = member.id
        self.host = member.registration.data_host
        self.rack = member.rack

    @property
    def available_bytes(self) -> int:
        return self._member.usage.available_bytes

    @property
    def streams(self) -> int:
        return self._member.usage.streams + self._pending.through(self.node)


class ChunkPlacement:
    """Chooses datanodes for `Cluster`, and changes nothing: the caller adds placed chunks to `PendingLoad`."""

    def __init__(self, members: Membership, slow_peers: SlowPeers, pending: PendingLoad, rng: Random) -> None:
        self._members = members
        self._slow_peers = slow_peers
        self._pending = pending
        self._rng = rng
        #: The candidates, and the members from which they were made.
        self._index = CandidateIndex(())
        self._indexed: Sequence[Node] = ()

    def place(self, writer_host: str | None, replication: int, exclude: frozenset[NodeId]) -> list[NodeId]:
        """Choose nodes for a new chunk, the head of the pipeline first. Slow peers are avoided if others suffice.

        Returns fewer than `replication` if fewer are alive. Raises NoDatanodes.
        """
        index = self._candidates()
        avoided = self._avoided(index, replication, exclude)
        request = PlacementRequest(writer_host, replication, exclude | avoided, chunk_bytes=chunk_bytes_max)
        chosen = choose_randomly(request, index, self._rng)
        if avoided and len(chosen) < replication:
            request = PlacementRequest(writer_host, replication, exclude, chunk_bytes=chunk_bytes_max)
            chosen = choose_randomly(request, index, self._rng)
        if len(chosen) < min_replication:
            alive = len(self._members.alive())
            raise NoDatanodes(
                f"no datanode can take a chunk: {alive} alive, {len(exclude)} excluded, "
                f"{alive - len(self._members.in_service())} to leave, {chunk_bytes_max} bytes of room wanted"
            )
        return chosen

    def _avoided(self, index: CandidateIndex, replication: int, exclude: frozenset[NodeId]) -> frozenset[NodeId]:
        slow = self._slow_peers.slow()
        if not slow:
            return frozenset()
        racks = {each.node: each.rack for each in index.all if each.node not in exclude}
        return avoidable(slow, racks, replication)

    def target_chooser(self) -> ChooseTarget:
        """Return a function that chooses targets for the copies of one plan."""

        def choose(staying: Sequence[NodeId], excluded: frozenset[NodeId]) -> NodeId | None:
            request = PlacementRequest(
                None, len(staying) + 1, excluded, already=tuple(staying), chunk_bytes=chunk_bytes_max
            )
            candidates, barred = self._candidates(), excluded.union(staying)
            if all(each.node in barred for each in candidates.all):
                # Avoid a slow draw that must fail: many chunks ask again and again while no datanode is left.
                return None
            chosen = choose_randomly(request, candidates, self._rng)
            return chosen[0] if chosen else None

        return choose

    def nearest_first(self, holders: Iterable[NodeId], near_host: str | None) -> list[Node]:
        """Return the holders that are not dead, the best to read from first.

        Alive ones come before suspect ones, then those in service before others, then by distance from the reader.
        """
        members = self._members
        nodes = [
            node
            for holder in holders
            if (node := members.get(holder)) is not None and node.state is not State.DEAD
        ]
        near_racks = {node.rack for node in members.on_host(near_host)} if near_host is not None else set()
        self._rng.shuffle(nodes)

        def distance(node: Node) -> tuple[bool, bool, bool, bool]:
            return (
                node.state is not State.ALIVE,
                members.mode(node.id) is not Mode.IN_SERVICE,
                node.registration.data_host != near_host,
                node.rack not in near_racks,
            )

        return sorted(nodes, key=distance)

    def _candidates(self) -> CandidateIndex:
        members = self._members.in_service()
        if members is not self._indexed:
            names = [member.id for member in members]
            self._index = CandidateIndex(
                [_Candidate(member, self._pending) for member in members],
                lambda: sum(member.usage.streams for member in members) + self._pending.through_all(names),
            )
            self._indexed = members
        return self._index
