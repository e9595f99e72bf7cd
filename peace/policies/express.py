"""The default policy: Peace without timesteps. A chunk may start as soon as its whole pipeline has room.

Whenever a set arrives or a chunk ends, sets are served in the order of their remaining bytes, smallest first, with
three corrections:

- Each second of waiting counts as `AGE_BYTES_S` bytes less.
- Each second that the links out of the writer's rack need for all unfinished bytes of its writers counts the same.
  So if racks compete for disks, the rack that will need longest goes first.
- A set that has begun counts as having waited `BEGUN_S` seconds longer.

If there is no room for a set, later sets may go first, which keeps disks and links busy.

Waiting is bounded. If the first set without room has been refused for `patience_s`, no later set is served. All
chunks in flight end within some time D, and then there is room. So the first set gets a chunk at least every
`patience_s + D`. A later set can be ordered before an earlier one only if it was requested at most (unfinished
bytes of the earlier set / `AGE_BYTES_S` + longest backlog of a rack's links + `BEGUN_S`) seconds after it.
"""

from __future__ import annotations

from random import Random

from peacefs.protocol.limits import small_chunk_bytes_max
from peacefs.protocol.values.write_classes import WriteClass
from peacefs.topology.calibration import calibrate
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import MB

from .chain_placement import ChainPlacement, Loads, PlacedChain
from .interface import Event, Policy, Submitted, Withdrawn
from .ledger import Grant, PendingSet
from .small_lane import SmallLane
from .waiting_order import WaitingKind, WaitingOrder

#: Ageing: a second of waiting counts as this many bytes less to write.
AGE_BYTES_S = 20 * MB

#: A set with chunks written or in flight counts as having waited this much longer.
BEGUN_S = 1.5

#: Maximum chunks in flight per writer, if disks are the bottleneck and if network cards are.
CHUNKS_PER_WRITER = 4
CHUNKS_PER_WRITER_NETWORK_BOUND = 2

#: Maximum number of outgoing streams of a node that forwards chunks.
SENDS_MAX = 4


class ExpressPolicy(Policy):
    """Event-driven admission; the module's docstring describes the order of sets and the bound on waiting.

    `writer_holds_replica` puts the first replica on the writer's node, as HDFS does, if that has a free slot; the
    paper's measurements do not (footnote 6). `chunks_per_writer` None means the default for the bottleneck.
    `with_slots`: if nodes have more slots than the defaults allow for, raise the limits on chunks in flight per
    writer and on outgoing streams per node to the number of slots.
    """

    def __init__(
        self,
        topology: Topology,
        rng: Random,
        *,
        writer_holds_replica: bool = False,
        patience_s: float = 30.0,
        chunks_per_writer: int | None = None,
        sends_max: int = SENDS_MAX,
        with_slots: bool = False,
    ) -> None:
        super().__init__()
        self._rng = rng
        self._writer_holds_replica = writer_holds_replica
        self._patience_s = patience_s
        self._chunks_per_writer_wanted = chunks_per_writer
        self._sends_max = sends_max
        self._with_slots = with_slots
        self._chains: dict[int, PlacedChain] = {}
        self._in_flight: dict[tuple[str, bool], int] = {}
        self._lane = SmallLane(topology, rng, writer_holds_replica=writer_holds_replica)
        self._placement = self._placement_for(topology)
        self._order = WaitingOrder()
        #: Sets that have changed since the order was last updated, and sets with waiting small chunks.
        self._changed: dict[str, None] = {}
        self._small: set[str] = set()

    def _placement_for(self, topology: Topology) -> ChainPlacement:
        calibration = calibrate(topology)
        bound = calibration.network_bound
        usual = CHUNKS_PER_WRITER_NETWORK_BOUND if bound else CHUNKS_PER_WRITER
        self._chunks_per_writer = self._chunks_per_writer_wanted or usual
        sends_max = self._sends_max
        if self._with_slots:
            slots = max(calibration.slots.values(), default=0)
            sends_max = max(sends_max, slots)
            if slots > CHUNKS_PER_WRITER:
                self._chunks_per_writer = max(self._chunks_per_writer, slots)
        self._bytes_s_out_of_rack: dict[str | None, float] = {}
        for link in topology.switch_links():
            for end in link.ends & topology.racks.keys():
                self._bytes_s_out_of_rack[end] = self._bytes_s_out_of_rack.get(end, 0.0) + link.bytes_s
        return ChainPlacement(
            topology,
            calibration,
            self._rng,
            sends_max=sends_max,
            writer_holds_replica=self._writer_holds_replica,
        )

    def loads(self) -> Loads:
        return self._placement.loads()

    # -- events ------------------------------------------------------------------------------------

    def _hear(self, event: Event, now_s: float) -> None:
        super()._hear(event, now_s)
        match event:
            case Submitted(write_set):
                self._changed[write_set.name] = None
            case Withdrawn(name):
                self._changed[name] = None

    def _use(self, topology: Topology) -> None:
        self._changed |= dict.fromkeys(pending.write_set.name for pending in self._ledger.pending())
        earlier, self._placement = self._placement, self._placement_for(topology)
        self._placement.inherit(earlier)
        self._lane.use(topology)
        for grant in self.grants_in_flight:
            if grant.number in self._chains:
                bulk = self._chains[grant.number].bulk
                self._chains[grant.number] = self._placement.adopt(grant.writer, grant.chain, bulk=bulk)

    def _take_over(self, grant: Grant) -> None:
        self._hold(grant, self._placement.adopt(grant.writer, grant.chain))

    def has_room(self, node: str) -> bool:
        load = self._placement.nodes.get(node)
        return load is not None and load.receiving < load.slots

    def _release(self, grant: Grant) -> None:
        self._changed[grant.write_set] = None
        chain = self._chains.pop(grant.number, None)
        if chain is None:
            self._lane.give_back(grant)
            return
        self._placement.give_back(chain)
        writer = grant.writer or grant.write_set, chain.bulk
        self._in_flight[writer] -= 1
        if not self._in_flight[writer]:
            del self._in_flight[writer]

    # -- decisions ---------------------------------------------------------------------------------

    def _admit(self, now_s: float) -> list[Grant]:
        self._take_in_changes()
        grants = self._admit_small()
        self._take_in_changes()
        if not self._serve_overdue(now_s, grants):
            return grants
        self._take_in_changes()
        walk = self._order.walk(self._ahead_bytes())
        refused, recruited = set[WriteClass](), self._placement.recruited
        for kind, pending in walk:
            while self._wants_more(pending) and (chain := self._place(pending)) is not None:
                grants.append(self._reserve(pending, chain))
            if not self._wants_more(pending):
                continue
            if kind.write_class not in refused:
                refused.add(kind.write_class)
                if pending.refused_since_s is None:
                    pending.refused_since_s = now_s
                self._note_refused(kind, pending)
                if self._is_overdue(pending, now_s):
                    break
            if self._placement.recruited != recruited:
                recruited = self._placement.recruited
                walk.take_up_again()
            elif kind.plain and self._is_hopeless(kind, pending):
                walk.drop()
        return grants

    def _is_overdue(self, pending: PendingSet, now_s: float) -> bool:
        """Return whether a set has been refused for so long that no later set may be served."""
        since_s = pending.refused_since_s
        return bool(self._chains) and since_s is not None and now_s - since_s >= self._patience_s

    def _serve_overdue(self, now_s: float, grants: list[Grant]) -> bool:
        """Grant a chunk of an overdue, less urgent set. Return False if no other set may be served."""
        return True

    def _note_refused(self, kind: WaitingKind, pending: PendingSet) -> None:
        """Record the first set of a class that is refused in a walk."""

    def _take_in_changes(self) -> None:
        """Update the order with the sets that have changed since the last update."""
        for name in self._changed:
            pending = self._ledger.find(name)
            if pending is None:
                self._order.remove(name)
                self._small.discard(name)
                continue
            self._order.put(pending, self._kind(pending), self._value(pending))
            if pending.waiting and pending.next_bytes <= small_chunk_bytes_max:
                self._small.add(name)
            else:
                self._small.discard(name)
        self._changed.clear()

    def _value(self, pending: PendingSet) -> int:
        """Return the rank of a set; the smallest is served first.

        Omits terms that are equal for all sets, or for all sets of a rack.
        """
        asked_s = pending.asked_s - (BEGUN_S if pending.started else 0.0)
        return pending.unfinished_bytes + round(AGE_BYTES_S * asked_s)

    def _kind(self, pending: PendingSet) -> WaitingKind:
        return WaitingKind(self._rack_of(pending), pending.write_set.replication, not pending.exclude)

    def _ahead_bytes(self) -> dict[tuple[WriteClass, str | None], int]:
        """Return the head start of each rack's sets in bytes.

        It is the time that the links out of the rack need for all unfinished bytes of its writers, counted like
        waiting time.
        """
        leaves = self._bytes_s_out_of_rack
        return {
            (write_class, rack): round(AGE_BYTES_S * total / leaves[rack])
            for (write_class, rack), total in self._order.unfinished().items()
            if rack in leaves
        }

    def _rack_of(self, pending: PendingSet) -> str | None:
        node = self._placement.nodes.get(pending.write_set.writer or "")
        return node.rack.name if node is not None else None

    def _wants_more(self, pending: PendingSet) -> bool:
        """Return whether the set has a chunk that could be granted if there were room."""
        return (
            bool(pending.waiting)
            and self._in_flight.get((_writer_of(pending), self._is_bulk(pending)), 0) < self._chunks_per_writer
            and self._placement.can_place(pending.exclude)
        )

    def _is_bulk(self, pending: PendingSet) -> bool:
        """Return whether the set's chunks count against the bulk share."""
        return False

    def _place(self, pending: PendingSet) -> PlacedChain | None:
        write_set = pending.write_set
        return self._placement.place(write_set.writer, write_set.replication, pending.exclude)

    def _is_hopeless(self, kind: WaitingKind, pending: PendingSet) -> bool:
        """Return whether there is no room for any set of this kind."""
        write_set = pending.write_set
        return self._placement.is_hopeless(write_set.writer, write_set.replication)

    def _reserve(self, pending: PendingSet, chain: PlacedChain) -> Grant:
        chain.bulk = self._is_bulk(pending)
        grant = self._ledger.grant(pending, [node.name for node in chain.nodes])
        self._changed[grant.write_set] = None
        self._placement.reserve(chain, grant.chunk_bytes)
        self._hold(grant, chain)
        return grant

    def _hold(self, grant: Grant, chain: PlacedChain) -> None:
        self._chains[grant.number] = chain
        writer = grant.writer or grant.write_set, chain.bulk
        self._in_flight[writer] = self._in_flight.get(writer, 0) + 1

    def _admit_small(self) -> list[Grant]:
        """Grant all small chunks: they never wait for a slot. A set has its small chunks first."""
        grants: list[Grant] = []
        if not self._small:
            return grants
        for pending in [each for each in self._ledger.pending() if each.write_set.name in self._small]:
            while pending.waiting and pending.next_bytes <= small_chunk_bytes_max:
                nodes = self._lane.place(pending.write_set, pending.exclude)
                if not nodes:
                    break
                grant = self._ledger.grant(pending, nodes)
                self._changed[grant.write_set] = None
                self._lane.reserve(grant)
                grants.append(grant)
        return grants


def _writer_of(pending: PendingSet) -> str:
    """Return the name under which chunks in flight are counted: the writer's server, or the set if it has none."""
    return pending.write_set.writer or pending.write_set.name
