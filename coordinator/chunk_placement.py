"""Where new replicas go, and from where existing ones are best read, as HDFS has it. Pure.

Large chunks are placed by the scheduling service; this is for the others, and for copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from peacefs.peace.random_placement import Candidate, PlacementRequest, place_randomly
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import chunk_bytes_max, min_replication

from .membership import Membership, Node, State
from .placed_lately import PlacedLately
from .records import Mode
from .repair import ChooseTarget
from .slow_hops import SlowHops, avoidable


class ChunkPlacement:
    """Chooses datanodes. Changes nothing: what is placed is told to `placed` by who asks."""

    def __init__(self, members: Membership, slow_hops: SlowHops, placed: PlacedLately, rng: Random) -> None:
        self._members = members
        self._slow_hops = slow_hops
        self._placed = placed
        self._rng = rng

    def place(self, writer_host: str | None, replication: int, exclude: frozenset[NodeId]) -> list[NodeId]:
        """Nodes for a new chunk, the head of the pipeline first. Raises NoDatanodes.

        Fewer than `replication` when fewer are alive. Slow hops are avoided where that costs no replica.
        """
        candidates = self._candidates()
        racks = {each.node: each.rack for each in candidates if each.node not in exclude}
        avoided = avoidable(self._slow_hops.slow(), racks, replication)
        request = PlacementRequest(writer_host, replication, exclude | avoided, chunk_bytes=chunk_bytes_max)
        chosen = place_randomly(request, candidates, self._rng)
        if avoided and len(chosen) < replication:
            request = PlacementRequest(writer_host, replication, exclude, chunk_bytes=chunk_bytes_max)
            chosen = place_randomly(request, candidates, self._rng)
        if len(chosen) < min_replication:
            alive = len(self._members.alive())
            raise NoDatanodes(
                f"no datanode can take a chunk: {alive} alive, {len(exclude)} excluded, "
                f"{alive - len(self._members.in_service())} to leave, {chunk_bytes_max} bytes of room wanted"
            )
        return chosen

    def target_chooser(self) -> ChooseTarget:
        """For the copies of one plan, during which the datanodes stay as they are."""
        candidates: list[Candidate] = []

        def choose(staying: Sequence[NodeId], excluded: frozenset[NodeId]) -> NodeId | None:
            if not candidates:
                candidates.extend(self._candidates())
            request = PlacementRequest(
                None, len(staying) + 1, excluded, already=tuple(staying), chunk_bytes=chunk_bytes_max
            )
            chosen = place_randomly(request, candidates, self._rng)
            return chosen[0] if chosen else None

        return choose

    def nearest_first(self, holders: Iterable[NodeId], near_host: str | None) -> list[Node]:
        """Those that are not dead: alive ones first, on the reader's host, then on its rack, then others.

        Those that are to leave come after those that stay.
        """
        members = self._members
        nodes = [
            node
            for holder in holders
            if (node := members.get(holder)) is not None and node.state is not State.DEAD
        ]
        near_racks = {node.rack for node in members.all() if node.registration.data_host == near_host}
        self._rng.shuffle(nodes)

        def distance(node: Node) -> tuple[bool, bool, bool, bool]:
            return (
                node.state is not State.ALIVE,
                members.mode(node.id) is not Mode.IN_SERVICE,
                node.registration.data_host != near_host,
                node.rack not in near_racks,
            )

        return sorted(nodes, key=distance)

    def _candidates(self) -> list[Candidate]:
        return [
            Candidate(
                node=node.id,
                host=node.registration.data_host,
                rack=node.rack,
                available_bytes=node.usage.available_bytes,
                streams=node.usage.streams + self._placed.through(node.id),
            )
            for node in self._members.in_service()
        ]
