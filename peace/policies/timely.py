"""The policy that knows how urgent writes are. It is `express` with two changes, for clusters with periodic load.

**Bulk last.** Sets are served by class: blocking, due, bulk. Bulk writes use at most half of the slots of a node
and of the streams of a link, but at least one (one of two, on the paper's disks). So an urgent chunk finds room
where there are several. This holds until no urgent set has been seen for `QUIET_S`. Then bulk may use all of them.

**Small sets pass.** A set of at most `SMALL_SET_BYTES` may use one more slot of a node with several, and one more
stream of a link, than `express` gives. If the cluster cannot keep up with its load, this would slow down
everybody. So the limit falls as soon as urgent sets have waited in more than `BUSY` of the last minute, and
reaches zero when they have always waited.

Waiting stays bounded:

- A due set counts as blocking once half of the time until its next occurrence has passed, or after `DUE_S` if that
  time is unknown. From then on the bound of `express` holds for it.
- If the first bulk set has been refused for `patience_s`, it is served before all others until it has a chunk. So
  bulk gets at least one chunk in every `patience_s + D`, where D is the longest time of a chunk in flight.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from typing import Any

from peacefs.protocol.limits import MIB
from peacefs.protocol.values.write_classes import WriteClass
from peacefs.topology.model import Topology

from .chain_placement import PlacedChain, Share
from .express import ExpressPolicy
from .interface import Event, Submitted
from .ledger import Grant, PendingSet
from .saturation import Saturation
from .waiting_order import WaitingKind

#: If no urgent set was seen for this time, bulk writes may use all slots.
QUIET_S = 60.0

#: A due set counts as blocking after this time, if its next occurrence is unknown.
DUE_S = 10.0

#: The maximum size of a set that may pass others. In simulations with eight seeds, 8 MiB gives longer tails, and
#: 16 MiB delays large sets more when the cluster is saturated.
SMALL_SET_BYTES = 12 * MIB

#: If urgent sets waited for more than this share of the last minute, only smaller sets may pass.
BUSY = 0.8


class TimelyPolicy(ExpressPolicy):
    """`express` with bulk last and small sets passing. The module's docstring describes both.

    `small_sets_pass` can be turned off for comparisons.
    """

    def __init__(
        self,
        topology: Topology,
        rng: Random,
        *,
        small_sets_pass: bool = True,
        **express: Any,
    ) -> None:
        super().__init__(topology, rng, **express)
        self._small_sets_pass = small_sets_pass
        self._saturation = Saturation()
        self._urgent_s: float | None = None
        #: Due sets, ordered by the time at which they begin to count as blocking; and sets that count so already.
        self._promotions: list[tuple[float, str]] = []
        self._awaiting: set[str] = set()
        self._promoted: set[str] = set()
        self._first_bulk: PendingSet | None = None
        self._now_s = 0.0

    @property
    def waiting_share(self) -> float:
        """The share of the last minute in which urgent sets waited."""
        return self._saturation.share

    def _hear(self, event: Event, now_s: float) -> None:
        super()._hear(event, now_s)
        if not isinstance(event, Submitted) or not event.write_set.chunks:
            return
        write_set, name = event.write_set, event.write_set.name
        if write_set.write_class is not WriteClass.BULK:
            self._urgent_s = now_s
        pending = self._ledger.find(name)
        if write_set.write_class is WriteClass.DUE and pending is not None and name not in self._awaiting:
            due_s = write_set.due_s
            wait_s = DUE_S if due_s is None else max(0.0, due_s - pending.asked_s) / 2
            heappush(self._promotions, (pending.asked_s + wait_s, name))
            self._awaiting.add(name)

    def _admit(self, now_s: float) -> list[Grant]:
        self._now_s = now_s
        while self._promotions and self._promotions[0][0] <= now_s:
            _, name = heappop(self._promotions)
            self._awaiting.discard(name)
            if self._ledger.find(name) is not None:
                self._promoted.add(name)
                self._changed[name] = None
        if self._first_bulk is not None and self._first_bulk.refused_since_s is None:
            self._first_bulk = None
        grants = super()._admit(now_s)
        self._take_in_changes()
        self._saturation.see(now_s, waits=self._order.waits(WriteClass.DUE))
        return grants

    def _take_in_changes(self) -> None:
        self._promoted -= {name for name in self._changed if self._ledger.find(name) is None}
        super()._take_in_changes()

    def _kind(self, pending: PendingSet) -> WaitingKind:
        kind = super()._kind(pending)
        write_class = pending.write_set.write_class
        if write_class is WriteClass.DUE and pending.write_set.name in self._promoted:
            write_class = WriteClass.BLOCKING
        small = write_class is not WriteClass.BULK and pending.unfinished_bytes <= SMALL_SET_BYTES
        return WaitingKind(kind.rack, kind.replication, kind.plain, write_class, small)

    def _is_bulk(self, pending: PendingSet) -> bool:
        return pending.write_set.write_class is WriteClass.BULK

    @property
    def _bulk_is_bounded(self) -> bool:
        return self._urgent_s is not None and self._now_s - self._urgent_s < QUIET_S

    @property
    def _passing_bytes(self) -> float:
        """The size of the largest set that may pass others now."""
        if not self._small_sets_pass:
            return 0.0
        return SMALL_SET_BYTES * min(1.0, (1.0 - self._saturation.share) / (1.0 - BUSY))

    def _place(self, pending: PendingSet) -> PlacedChain | None:
        if self._is_bulk(pending):
            return self._place_in(pending, Share.HALF if self._bulk_is_bounded else Share.ALL)
        chain = self._place_in(pending, Share.ALL)
        if chain is None and pending.unfinished_bytes <= self._passing_bytes:
            chain = self._place_in(pending, Share.ONE_MORE)
        return chain

    def _place_in(self, pending: PendingSet, share: Share) -> PlacedChain | None:
        write_set = pending.write_set
        return self._placement.place(write_set.writer, write_set.replication, pending.exclude, share)

    def _is_hopeless(self, kind: WaitingKind, pending: PendingSet) -> bool:
        if kind.write_class is WriteClass.BULK and self._bulk_is_bounded:
            if self._placement.is_full_of_bulk(kind.replication):
                return True
        elif kind.small and self._passing_bytes > 0:
            return False
        return super()._is_hopeless(kind, pending)

    # -- overdue bulk sets -------------------------------------------------------------------------

    def _note_refused(self, kind: WaitingKind, pending: PendingSet) -> None:
        if kind.write_class is WriteClass.BULK:
            self._first_bulk = pending

    def _serve_overdue(self, now_s: float, grants: list[Grant]) -> bool:
        first = self._first_bulk
        if first is None or not self._is_overdue(first, now_s) or not self._wants_more(first):
            return True
        chain = self._place_in(first, Share.ALL)
        if chain is None:
            return False
        grants.append(self._reserve(first, chain))
        return True
