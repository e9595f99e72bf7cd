"""The edge of a ring: mappers and the sink, in the program that started the query.

For each place of the ring, the sink knows up to which batch of each mapper it has results, so that none counts
twice, whoever sends it. Results that go to another keyed function are batches of another mapper, like rows of a
source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from peacefs.dataflow.recovery.ring_settings import RingSettings

from .coverage import RingCoverage
from .effects import AllDelivered, DeliverRows, LossFound, RingEffect, SendTo, TellUser
from .hashed_rows import HashedRows
from .mapper import MapperCore
from .messages import Invite, News, Observed, Results, ResultsTaken, RingMessage, StateLost, Tuples, TuplesHeld
from .tokens import WHOLE
from .view import MembershipPhase, RingMember, RingView


@dataclass(frozen=True)
class RingRelay:
    """A mapper of results. `feeds`: the mappers whose results it receives. `mapping`: sorts rows by key place."""

    feeds: frozenset[str]
    mapping: Callable[[pa.RecordBatch], HashedRows]


class EdgeOfRing:
    """The mappers of a ring and its sink, with their view of the ring.

    With exactly-once, a result is delivered only if its number is above the sink's number for that mapper and
    place. A gap is reported as a loss. It does no I/O: each event returns effects. `RingRun` drives it in the
    program that started the query, and `SeededRing` in seeded simulations.
    """

    def __init__(
        self,
        members: Iterable[RingMember],
        mappers: Iterable[str],
        settings: RingSettings,
        relays: Mapping[str, RingRelay] | None = None,
    ) -> None:
        """`relays`: the mappers of results, in upstream to downstream order."""
        self.view = RingView(settings.r, members)
        self.mappers = {name: MapperCore(name, self.view, settings) for name in mappers}
        self._settings = settings
        self._relays = dict(relays or {})
        self._relay_of = {mapper: name for name, relay in self._relays.items() for mapper in relay.feeds}
        self._covered = RingCoverage()
        self._begins_at = self.view.revision
        self._told: dict[str, int] = {}
        self._done = False
        # The intended number of nodes on the ring, and whether there are too few for r.
        self._nodes, self._small = len(self.view.ring), False
        self._invited_s = float("-inf")
        # Nodes whose connection broke, and that have sent nothing since.
        self._broken: set[str] = set()
        #: Number of duplicate results that were dropped.
        self.repeated = 0

    # -- sources -----------------------------------------------------------------------------------------

    def has_room(self, mapper: str) -> bool:
        """Return True if a mapper and all mappers downstream of it have room."""
        behind: str | None = mapper
        while behind is not None:
            if not self.mappers[behind].has_room:
                return False
            behind = self._relay_of.get(behind)
        return True

    def offer(self, now_us: int, mapper: str, rows: HashedRows) -> list[RingEffect]:
        return list(self._sent(self.mappers[mapper].offer(now_us, rows)))

    def end(self, mapper: str) -> list[RingEffect]:
        return [*self._sent(self.mappers[mapper].end()), *self._look_for_end()]

    def tick(self, now_s: float) -> list[RingEffect]:
        return [*self._progress(), *self._refill(now_s)]

    # -- nodes -------------------------------------------------------------------------------------------

    def received(self, now_us: int, sender: str, message: RingMessage) -> list[RingEffect]:
        self._broken.discard(sender)
        if self.view.is_gone(sender) and not isinstance(message, Results):
            return [SendTo(sender, News((self.view.members[sender],)))]
        match message:
            case News(members):
                if self.view.merge(members, sender):
                    for mapper in self.mappers.values():
                        mapper.assign()
                    return [*self._progress(), *self._look_at_size(), *self._look_who_is_left()]
            case TuplesHeld(mapper, serial):
                self.mappers[mapper].held(sender, serial)
            case Results():
                return [*self._take(now_us, message), *self._reply(sender, message.serial), *self._look_for_end()]
            case StateLost(interval, reason):
                return [LossFound(interval, reason)]
            case Observed(text):
                return [TellUser(text)]
            case _:
                raise AssertionError(f"{type(message).__name__} is not for the edge")
        return []

    def progress(self, mapper: str) -> tuple[int, int]:
        """Return the number of a mapper's last batch, and of the last batch whose results are all here."""
        return self.mappers[mapper].number, self._covered.lowest(mapper)

    def joined(self, member: RingMember) -> list[RingEffect]:
        """Add a spare that has started, and tell the ring about it."""
        self.view.merge([member])
        return [effect for name in self.view.members for effect in self._tell(name)]

    def disconnected(self, node: str) -> list[RingEffect]:
        self._told.pop(node, None)
        self._broken.add(node)
        for mapper in self.mappers.values():
            mapper.disconnected(node)
        return self._look_who_is_left()

    def _look_who_is_left(self) -> list[RingEffect]:
        """If no node of the ring is left to report the loss, report that everything is lost."""
        if self._broken.issuperset(self.view.ring) and not self._done:
            return [
                LossFound(
                    WHOLE, "no node of the ring is left, and nobody has its state: raise r, or start more nodes"
                )
            ]
        return []

    # -- the size of the ring ----------------------------------------------------------------------------

    def invite(self, after: str) -> list[RingEffect]:
        """Let a spare join in the middle of a node's interval, if possible one from another rack."""
        token, spares = self.view.middle_of(after), self.view.spares
        if token is None or not spares:
            return [TellUser(f"no spare can join after {after!r}: start more nodes")]
        near = {self.view.members[name].rack for name in (after, *self.view.neighbours_after(after, 1))}
        chosen = min(spares, key=lambda each: (each.name in self._broken, each.rack in near, each.name))
        return [*self._tell(chosen.name), SendTo(chosen.name, Invite(token))]

    def _refill(self, now_s: float) -> list[RingEffect]:
        """Invite a spare to replace a node that has died. If it refuses or dies, try again later."""
        members = self.view.members.values()
        left = sum(member.gone and member.phase is MembershipPhase.LEAVING for member in members)
        ring = self.view.ring
        if not ring or len(ring) >= self._nodes - left or not self.view.spares:
            return []
        if any(member.in_transition for member in members) or now_s < self._invited_s + self._settings.balance_s:
            return []
        self._invited_s = now_s
        return self.invite(max(ring, key=self.view.share_of))

    def _look_at_size(self) -> list[RingEffect]:
        """Tell the user when the ring has become too small for r."""
        live, r = len(self.view.ring), self._settings.r
        before, self._small = self._small, live <= r
        if not self._small or before or not live:
            return []
        return [
            TellUser(
                f"the ring has {live} of the {r + 1} nodes that r={r} needs until another joins: "
                "start more nodes, or begin with spares"
            )
        ]

    # -- inside ------------------------------------------------------------------------------------------

    def _progress(self) -> list[RingEffect]:
        return [effect for mapper in self.mappers.values() for effect in self._sent(mapper.progress())]

    def _sent(self, messages: Iterator[tuple[str, Tuples]]) -> Iterator[RingEffect]:
        for node, message in messages:
            yield from self._tell(node)
            yield SendTo(node, message)

    def _tell(self, node: str) -> Iterator[RingEffect]:
        told = self._told.get(node, self._begins_at)
        if told < self.view.revision and not self.view.is_gone(node):
            self._told[node] = self.view.revision
            news = self.view.since(told, node)
            if news:
                yield SendTo(node, News(news))

    def _take(self, now_us: int, message: Results) -> Iterator[RingEffect]:
        result = message.result
        lowest, highest = self._covered.span(result.mapper, result.interval)
        if self._settings.exactly_once and result.number <= highest:
            self.repeated += 1
            if result.number > lowest:
                # This happens only after a loss: a new owner of a part first sends results of exactly that part.
                reason = (
                    f"results {lowest + 1} to {result.number} of mapper {result.mapper!r} came for a part alone"
                )
                yield LossFound(result.interval, reason)
            return
        if result.after > lowest and self._settings.exactly_once:
            reason = f"results {lowest + 1} to {result.after} of mapper {result.mapper!r} did not come"
            yield LossFound(result.interval, reason)
        self._covered.raise_to(result.mapper, result.interval, result.number)
        relay = self._relay_of.get(result.mapper)
        for rows in result.rows:
            if relay is None:
                yield DeliverRows(rows)
            elif not self.mappers[relay].ended:
                yield from self._sent(self.mappers[relay].offer(now_us, self._relays[relay].mapping(rows)))

    def _reply(self, sender: str, serial: int) -> Iterator[RingEffect]:
        yield from self._tell(sender)
        yield SendTo(sender, ResultsTaken(serial))

    def _look_for_end(self) -> Iterator[RingEffect]:
        for name, relay in self._relays.items():
            if not self.mappers[name].ended and self._is_over(relay.feeds):
                yield from self._sent(self.mappers[name].end())
        if not self._done and self._is_over(self.mappers):
            self._done = True
            yield AllDelivered()

    def _is_over(self, mappers: Iterable[str]) -> bool:
        """Return True if mappers have ended, and all results of their rows are here."""
        found = {name: self.mappers[name] for name in mappers}
        return all(mapper.ended for mapper in found.values()) and self._covered.complete(
            {name: mapper.number for name, mapper in found.items()}
        )
