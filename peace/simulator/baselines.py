"""Policies of the literature, for comparisons in the simulator. No service uses them.

- Sinbad (Chowdhury and others, SIGCOMM 2013) places replicas where links and disks are least loaded, and admits
  everything at once.
- Sincronia (Agarwal and others, SIGCOMM 2018) orders sets by their bottlenecks: the set with the most bytes on the
  busiest resource comes last, and so on. Admission and placement are those of `express`.
- Earliest deadline first orders sets by the time of their next occurrence.
- Reservation keeps bulk away shortly before an occurrence that was learned to come, instead of limiting it to half
  of the slots.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from peacefs.peace.policies.chain_placement import PlacedChain, Share
from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.policies.interface import Event, Policy, Submitted
from peacefs.peace.policies.ledger import Grant, PendingSet
from peacefs.peace.policies.timely import TimelyPolicy
from peacefs.peace.policies.waiting_order import WaitingKind
from peacefs.peace.recurrences import RecurrenceKey, Recurrences
from peacefs.protocol.values.write_classes import WriteClass
from peacefs.topology.model import Topology

#: Time before an expected occurrence in which bulk gets no new chunks: about the duration of a chunk.
_RESERVED_S = 3.0


class SinbadPolicy(Policy):
    """Greedy placement by load, without admission control.

    A chain has one node in the writer's rack and the others in the rack whose links carry the fewest streams.
    """

    def __init__(self, topology: Topology, rng: Random, *, chunks_per_writer: int = 4) -> None:
        super().__init__()
        self._rng = rng
        self._chunks_per_writer = chunks_per_writer
        self._at_node: Counter[str] = Counter()
        self._into_rack: Counter[str] = Counter()
        self._use(topology)

    def _use(self, topology: Topology) -> None:
        self._topology = topology

    def _count(self, grant: Grant, more: int) -> None:
        for node in grant.chain:
            self._at_node[node] += more
            server = self._topology.servers.get(node)
            if server is not None:
                self._into_rack[server.rack] += more

    def _release(self, grant: Grant) -> None:
        self._count(grant, -1)

    def _take_over(self, grant: Grant) -> None:
        self._count(grant, 1)

    def _admit(self, now_s: float) -> list[Grant]:
        grants: list[Grant] = []
        for pending in self._ledger.pending():
            while pending.waiting and pending.in_flight < self._chunks_per_writer:
                chain = self._chain(pending)
                if not chain:
                    break
                grants.append(self._ledger.grant(pending, chain))
                self._count(grants[-1], 1)
        return grants

    def _chain(self, pending: PendingSet) -> list[str]:
        racks, writer = self._topology.racks, self._topology.servers.get(pending.write_set.writer or "")
        home = writer.rack if writer is not None else self._rng.choice(sorted(racks))
        barred = {*pending.exclude, *([writer.name] if writer is not None else [])}
        others = [rack for rack in racks if rack != home and any(node not in barred for node in racks[rack])]
        away = min(others, key=lambda rack: (self._into_rack[rack], self._rng.random()), default=home)
        wanted = pending.write_set.replication
        chain = self._least(racks[home], barred, 1 if wanted > 1 or not others else 0)
        chain += self._least(racks[away], barred | set(chain), wanted - len(chain))
        everywhere = [node for nodes in racks.values() for node in nodes]
        return chain + self._least(everywhere, barred | set(chain), wanted - len(chain))

    def _least(self, nodes: Any, barred: set[str], count: int) -> list[str]:
        free = [node for node in nodes if node not in barred]
        return sorted(free, key=lambda node: (self._at_node[node], self._rng.random()))[:count]


class DeadlinePolicy(ExpressPolicy):
    """Earliest deadline first. A set without a deadline comes last."""

    def _value(self, pending: PendingSet) -> int:
        due_s = pending.write_set.due_s
        return round(1e6 * (1e9 if due_s is None else due_s))

    def _ahead_bytes(self) -> dict[tuple[WriteClass, str | None], int]:
        return {}


class SincroniaPolicy(ExpressPolicy):
    """The order of Sincronia's bottleneck-select-scale-iterate with equal weights.

    The resources are the pool of all disks, and the links out of each rack.
    """

    def __init__(self, topology: Topology, rng: Random) -> None:
        self._ranks: dict[str, int] = {}
        super().__init__(topology, rng)

    def _value(self, pending: PendingSet) -> int:
        return self._ranks.get(pending.write_set.name, 0)

    def _ahead_bytes(self) -> dict[tuple[WriteClass, str | None], int]:
        return {}

    def _hear(self, event: Event, now_s: float) -> None:
        super()._hear(event, now_s)
        if isinstance(event, Submitted):
            self._rank_all()

    def _rank_all(self) -> None:
        sets = {pending.write_set.name: pending for pending in self._ledger.pending()}
        loads = {name: self._loads(pending) for name, pending in sets.items()}
        weights = dict.fromkeys(sets, 1.0)
        self._ranks = {}
        for rank in range(len(sets), 0, -1):
            totals: Counter[str] = Counter()
            for name in weights:
                totals.update(loads[name])
            busiest = max(totals, key=lambda resource: totals[resource])
            users = [name for name in weights if loads[name].get(busiest)]
            last = min(users, key=lambda name: weights[name] / loads[name][busiest])
            scale = weights[last] / loads[last][busiest]
            self._ranks[last] = rank
            del weights[last]
            for name in users:
                if name != last:
                    weights[name] -= scale * loads[name][busiest]
        self._changed |= dict.fromkeys(sets)

    def _loads(self, pending: PendingSet) -> dict[str, float]:
        """Return the seconds of work of a set on each resource."""
        rack = self._rack_of(pending)
        disks_s = pending.write_set.replication * pending.unfinished_bytes / self._disks_bytes_s
        leaves = self._bytes_s_out_of_rack.get(rack)
        return {"disks": disks_s} | ({f"out of {rack}": pending.unfinished_bytes / leaves} if leaves else {})

    @property
    def _disks_bytes_s(self) -> float:
        return sum(node.bytes_s for node in self._placement.nodes.values()) or 1.0


class ReservingPolicy(TimelyPolicy):
    """Bulk may use all slots, except shortly before an expected occurrence, as learned from earlier ones."""

    def __init__(self, topology: Topology, rng: Random) -> None:
        super().__init__(topology, rng)
        self._recurrences = Recurrences()
        self._keys: set[RecurrenceKey] = set()
        self._next_s = float("inf")
        self._looked_s = 0.0

    def _hear(self, event: Event, now_s: float) -> None:
        super()._hear(event, now_s)
        if isinstance(event, Submitted) and event.write_set.write_class is not WriteClass.BULK:
            root = event.write_set.name.partition("@")[0]
            key = RecurrenceKey(root, event.write_set.write_class)
            self._recurrences.wrote(now_s, key, sum(event.write_set.chunks))

    def _is_reserved(self) -> bool:
        if self._now_s >= self._looked_s + 1.0:
            self._looked_s = self._now_s
            forecasts = self._recurrences.forecasts(self._now_s)
            self._next_s = min((each.next_s(self._now_s) for each in forecasts), default=float("inf"))
        return 0.0 <= self._next_s - self._now_s <= _RESERVED_S

    def _place(self, pending: PendingSet) -> PlacedChain | None:
        if self._is_bulk(pending):
            return None if self._is_reserved() else self._place_in(pending, Share.ALL)
        return super()._place(pending)

    def _is_hopeless(self, kind: WaitingKind, pending: PendingSet) -> bool:
        if kind.write_class is WriteClass.BULK:
            return self._is_reserved() or ExpressPolicy._is_hopeless(self, kind, pending)
        return super()._is_hopeless(kind, pending)
