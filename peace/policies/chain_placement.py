"""Places the replicas of one chunk and reserves the resources of their pipeline, all or nothing.

A chain goes from the writer through nodes of its own rack to nodes of one other rack. So every chunk is in two
racks and crosses between them once. A chain reserves a slot on each node, a stream on each switch link that it
crosses, and a sending stream on each node that forwards the chunk.

If the cluster is too small, rules are dropped in this order: all replicas outside the writer's rack are in one
rack; there are two racks; slow nodes get no replica; the writer's node gets none; all requested replicas are
placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from random import Random
from statistics import fmean

from peacefs.topology.calibration import Calibration
from peacefs.topology.model import Topology
from peacefs.topology.routes import Hop, Routes

from .rack_load import NodeLoad, RackLoad
from .reach import Reach, Reaches

_NO_LIMIT = 1 << 30


class Share(Enum):
    """The share of the slots of nodes and the streams of links that a chunk may use."""

    #: Bulk writes: half of the slots and streams, at least one. The rest is left to others.
    HALF = "half"
    ALL = "all"
    #: Small sets, while the cluster keeps up: one more stream on each link, one more slot on nodes that have
    #: several.
    ONE_MORE = "one more"


@dataclass(slots=True)
class PlacedChain:
    """A pipeline for one chunk: the nodes that store it, the nodes that send it, and the switch links it crosses.

    `links` are numbers of switch links. `bulk` chains count against the half for bulk writes.
    """

    nodes: list[NodeLoad]
    senders: list[NodeLoad]
    links: list[int]
    bulk: bool = False


@dataclass(frozen=True, slots=True)
class Loads:
    """The load of the chunks in flight: slots of nodes and streams of switch links, as (used, capacity)."""

    slots: dict[str, tuple[int, int]]
    links: dict[Hop, tuple[int, int]]


class ChainPlacement:
    """Finds chains in one topology and counts the load of the reserved chains, for ExpressPolicy.

    Invariant: the loads of nodes and links are exactly those of the chains that were reserved or adopted, and not
    given back. `place` does not change them.
    """

    def __init__(
        self,
        topology: Topology,
        calibration: Calibration,
        rng: Random,
        *,
        sends_max: int,
        writer_holds_replica: bool,
    ) -> None:
        self._rng = rng
        self._sends_max = sends_max
        self._writer_holds_replica = writer_holds_replica
        self.racks = [RackLoad(rack, index, sends_max) for index, rack in enumerate(topology.racks)]
        by_name = {rack.name: rack for rack in self.racks}
        self.nodes = {
            name: NodeLoad(name, by_name[server.rack], calibration.slots[name], calibration.bytes_s[name])
            for name, server in sorted(topology.servers.items())
        }
        for node in self.nodes.values():
            if node.slots:
                node.rack.add(node)
        self._link_streams = calibration.link_streams
        number = {hop: number for number, hop in enumerate(self._link_streams)}
        self._link_free = list(self._link_streams.values())
        #: The number of streams that bulk writes may still begin on each link.
        self._link_free_for_bulk = [_half(streams) for streams in self._link_streams.values()]
        #: The nodes on which bulk writes use their half.
        self._full_of_bulk: set[str] = set()
        #: The share of the chunk that `place` is placing.
        self._share = Share.ALL
        routes = Routes(topology)
        #: The cheapest routes by source and target rack, as numbers of links.
        self._ways = [
            [[[number[hop] for hop in way] for way in routes.between_racks(a, b)] for b in topology.racks]
            for a in topology.racks
        ]
        self._reaches = Reaches(self.racks, self.nodes, self._recruit_slow_nodes)
        #: The number of times that slow nodes were given slots because the cluster needed them.
        self.recruited = 0

    def _recruit_slow_nodes(self) -> bool:
        slow = [node for node in self.nodes.values() if not node.slots]
        for node in slow:
            node.slots = 1
            node.rack.add(node)
        self._reaches.forget()
        self.recruited += bool(slow)
        return bool(slow)

    # -- finding ---------------------------------------------------------------------------------

    def can_place(self, exclude: frozenset[str]) -> bool:
        """Return whether an idle cluster would have any node for a chunk that avoids these nodes."""
        return not self.nodes.keys() <= exclude

    def is_hopeless(self, writer: str | None, replicas: int) -> bool:
        """Return True if there is certainly no room now for any chunk from this rack that excludes no node.

        Checks only totals per rack, so False does not mean that there is room. If True, `place` would use no
        random numbers.
        """
        self._share = Share.ALL
        free = self._free_nodes()
        if not free:
            return True
        at_writer = self.nodes.get(writer) if writer is not None else None
        enough = sum(len(rack.nodes) for rack in self.racks) > replicas
        if not enough or replicas == 1:
            return False
        if free < replicas:
            return True
        if at_writer is None or len(self.racks) == 1:
            return False
        home = at_writer.rack
        others = [rack for rack in self.racks if rack is not home and rack.nodes]
        if not others or len(home.nodes) < 2:
            return False
        # Each writer of the rack has another node there, so at least one replica stays and one leaves the rack.
        if replicas > len(home.nodes) - 1 + max(len(rack.nodes) for rack in others):
            return not home.free_nodes or self._roomiest_other(home) is None
        most = max(_takes_last(rack) if self._open_way(home, rack) is not None else 0 for rack in others)
        stay = max(1, replicas - most)
        # A replica on the writer's node comes first, and its forwarding is not limited by `sends_max`.
        return not most or home.free_nodes < stay or home.free_senders < stay - self._writer_holds_replica

    def is_full_of_bulk(self, replicas: int) -> bool:
        """Return whether too few nodes have bulk slots left for a chunk."""
        useful = sum(len(rack.nodes) for rack in self.racks)
        return useful - len(self._full_of_bulk) < min(replicas, useful)

    def _free_nodes(self) -> int:
        return sum([rack.free_nodes for rack in self.racks])

    def place(
        self, writer: str | None, replicas: int, exclude: frozenset[str], share: Share = Share.ALL
    ) -> PlacedChain | None:
        """Find a chain for one chunk, without reserving it; None if there is not enough room in its share now."""
        self._share = share
        if share is Share.HALF and self.is_full_of_bulk(replicas):
            return None
        at_writer = self.nodes.get(writer) if writer is not None else None
        home = at_writer.rack if at_writer is not None else self._home_of_a_stranger(exclude)
        if home is None:
            return None
        reach = self._reaches.of(at_writer, home, replicas, exclude)
        one_more = share is Share.ONE_MORE
        if self._free_nodes() < reach.replicas and not one_more:
            return None
        own = at_writer if self._may_hold_replica(at_writer, reach, exclude) else None
        other = self._roomiest_other(home) if reach.elsewhere else None
        if (reach.needs_writer and own is None) or (reach.elsewhere and other is None and replicas > 1):
            return None
        more_here = other is None or home.share > other.share
        for here in reach.splits(own is not None, more_here):
            if at_writer is None and not here:
                continue
            away = reach.replicas - here
            if away and home.free_senders < here - (own is not None) and not one_more:
                continue
            if here and away and reach.one_rack_is_enough and not self._one_rack_takes(away, home, other):
                continue
            barred = {*exclude, at_writer.name} if at_writer is not None else set(exclude)
            if share is Share.HALF:
                barred |= self._full_of_bulk
            chain = PlacedChain([own] if own else [], [], [])
            if not self._pick(chain, home, here - len(chain.nodes), away > 0, barred):
                continue
            if away and not self._leave_rack(chain, home, other, away, reach, barred):
                continue
            chain.senders = chain.nodes[:-1]
            if at_writer is not None and own is None:
                chain.senders.append(at_writer)
            return chain
        return None

    def _one_rack_takes(self, count: int, home: RackLoad, other: RackLoad | None) -> bool:
        """Return whether some reachable rack except `home` can take `count` replicas. `other` is tried first."""
        if other is not None and self._takes_last(other) >= count:
            return True
        return any(
            self._takes_last(rack) >= count and rack is not home and self._open_way(home, rack) is not None
            for rack in self.racks
        )

    def _takes_last(self, rack: RackLoad) -> int:
        return len(rack.nodes) if self._share is Share.ONE_MORE else _takes_last(rack)

    def _home_of_a_stranger(self, exclude: frozenset[str]) -> RackLoad | None:
        """Return the rack with the largest free share, where the chain for a writer outside the cluster begins."""
        racks = [rack for rack in self.racks if any(node.name not in exclude for node in rack.nodes)]
        if not racks and self._recruit_slow_nodes():
            return self._home_of_a_stranger(exclude)
        return max(racks, key=lambda rack: rack.share, default=None)

    def _may_hold_replica(self, at_writer: NodeLoad | None, reach: Reach, exclude: frozenset[str]) -> bool:
        if at_writer is None or not (reach.needs_writer or self._writer_holds_replica):
            return False
        slots = at_writer.slots + (self._share is Share.ONE_MORE and at_writer.slots > 1)
        if self._share is Share.HALF and at_writer.name in self._full_of_bulk:
            return False
        return at_writer.receiving < slots and at_writer.name not in exclude

    def _roomiest_other(self, home: RackLoad) -> RackLoad | None:
        """Return the rack with the largest free share to which a route with free streams leads."""
        best, best_share = None, -1.0 if self._share is Share.ONE_MORE else 0.0
        for rack in self.racks:
            if rack.share > best_share and rack is not home and self._open_way(home, rack) is not None:
                best, best_share = rack, rack.share
        return best

    def _open_way(self, source: RackLoad, target: RackLoad, used: Sequence[int] = ()) -> list[int] | None:
        """Return the route whose fullest link has the most free streams; None if every route has a full link.

        Links in `used` count as having one stream less.
        """
        best, most = None, -1 if self._share is Share.ONE_MORE else 0
        free = self._link_free
        if self._share is Share.HALF:
            free = [min(pair) for pair in zip(free, self._link_free_for_bulk, strict=True)]
        for way in self._ways[source.index][target.index]:
            spare = _NO_LIMIT
            for link in way:
                left = free[link] - (used.count(link) if used else 0)
                if left < spare:
                    spare = left
            if spare > most:
                best, most = way, spare
        return best

    def _leave_rack(
        self, chain: PlacedChain, home: RackLoad, other: RackLoad | None, away: int, reach: Reach, barred: set[str]
    ) -> bool:
        """Add `away` nodes outside `home`, in `other` if possible, or else in another rack or several racks."""
        none_stays = not chain.nodes and away > 1 and reach.racks_elsewhere > 1
        if none_stays or not reach.one_rack_is_enough:
            return self._pick_around(chain, home, away, away - none_stays, barred)
        if other is not None and self._cross(chain, home, other, away, barred):
            return True
        rest = [rack for rack in self.racks if rack is not home and rack is not other]
        rest.sort(key=lambda rack: -rack.share)
        return any(self._cross(chain, home, rack, away, barred) for rack in rest)

    def _cross(self, chain: PlacedChain, home: RackLoad, rack: RackLoad, count: int, barred: set[str]) -> bool:
        """Add the last nodes of the chain, all in this rack; if impossible, leave the chain unchanged."""
        if rack.free_nodes < count and self._share is not Share.ONE_MORE:
            return False
        way, at_home = self._open_way(home, rack), len(chain.nodes)
        if way is None or not self._pick(chain, rack, count, False, barred):
            del chain.nodes[at_home:]
            return False
        chain.links.extend(way)
        return True

    def _pick(self, chain: PlacedChain, rack: RackLoad, count: int, sends_on: bool, barred: set[str]) -> bool:
        """Add nodes of one rack. All must be able to send, except the last one if the chain ends with it."""
        if rack.free_nodes < count and self._share is not Share.ONE_MORE:
            return False
        for left in range(count, 0, -1):
            limit = self._sends_max if sends_on or left > 1 else _NO_LIMIT
            node = rack.least_loaded(self._rng, barred, limit, one_more=self._share is Share.ONE_MORE)
            if node is None:
                return False
            barred.add(node.name)
            chain.nodes.append(node)
        return True

    def _pick_around(
        self, chain: PlacedChain, home: RackLoad, away: int, in_one_max: int, barred: set[str]
    ) -> bool:
        """Pick nodes of several racks, at most `in_one_max` per rack.

        The next rack is always the nearest one, so that no link is crossed twice.
        """
        at, unvisited = home, [rack for rack in self.racks if rack is not home]
        while away and unvisited:
            ways = self._ways[at.index]
            rack = min(unvisited, key=lambda rack: (len(ways[rack.index][0]), -rack.share, rack.index))
            unvisited.remove(rack)
            way, count = self._open_way(at, rack, chain.links), 0
            while way and count < min(away, in_one_max) and self._pick(chain, rack, 1, away - count > 1, barred):
                count += 1
            if way and count:
                chain.links.extend(way)
                at, away = rack, away - count
        return not away

    # -- reserving -------------------------------------------------------------------------------

    def reserve(self, chain: PlacedChain, chunk_bytes: int) -> None:
        """Reserve the chain's slots and streams."""
        for node in chain.nodes:
            node.rack.take(node)
            node.assigned_s += chunk_bytes / node.bytes_s
        if chain.bulk:
            self._count_bulk(chain, 1)
        for sender in chain.senders:
            sender.rack.sends(sender, 1)
        for link in chain.links:
            self._link_free[link] -= 1

    def give_back(self, chain: PlacedChain) -> None:
        """Release the chain's slots and streams. Its bytes still count in `assigned_s`: they stay on the disks."""
        for node in chain.nodes:
            node.rack.give_back(node)
        if chain.bulk:
            self._count_bulk(chain, -1)
        for sender in chain.senders:
            sender.rack.sends(sender, -1)
        for link in chain.links:
            self._link_free[link] += 1

    def _count_bulk(self, chain: PlacedChain, more: int) -> None:
        for node in chain.nodes:
            node.bulk += more
            if node.slots and node.bulk >= _half(node.slots):
                self._full_of_bulk.add(node.name)
            else:
                self._full_of_bulk.discard(node.name)
        for link in chain.links:
            self._link_free_for_bulk[link] -= more

    def loads(self) -> Loads:
        streams = zip(self._link_streams.items(), self._link_free, strict=True)
        return Loads(
            slots={name: (node.receiving, node.slots) for name, node in self.nodes.items()},
            links={hop: (total - free, total) for (hop, total), free in streams},
        )

    # -- taking over -----------------------------------------------------------------------------

    def adopt(self, writer: str | None, names: Sequence[str], *, bulk: bool = False) -> PlacedChain:
        """Reserve a chain for a chunk that is already being written, even without room. Ignores unknown nodes."""
        nodes = [self.nodes[name] for name in names if name in self.nodes]
        at_writer = self.nodes.get(writer) if writer is not None else None
        route = [at_writer, *nodes] if at_writer is not None and at_writer not in nodes else nodes
        links = [link for a, b in pairwise(route) for link in self._ways[a.rack.index][b.rack.index][0]]
        chain = PlacedChain(nodes, route[:-1], links, bulk)
        self.reserve(chain, 0)
        return chain

    def inherit(self, earlier: ChainPlacement) -> None:
        """Copy `assigned_s` of the nodes from an earlier placement; new nodes get the mean."""
        given = {name: node.assigned_s for name, node in earlier.nodes.items()}
        level = fmean(given.values()) if given else 0.0
        for name, node in self.nodes.items():
            node.assigned_s = given.get(name, level)


def _half(number: int) -> int:
    return max(1, number // 2)


def _takes_last(rack: RackLoad) -> int:
    """Return how many of the rack's nodes can end a chain. All except the last one must be able to send."""
    return min(rack.free_nodes, rack.free_senders + 1)
