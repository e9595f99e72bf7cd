"""A node's place on the ring: its view, its fragments, and its pending messages. Shared by the node's parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from peacefs.dataflow.recovery.ring_settings import RingSettings

from .effects import RingEffect, SendTo
from .fragment import Fragment
from .keyed_table import KeyedTable
from .messages import EDGE, News, Observed, RingMessage
from .tokens import Interval
from .view import RingMember, RingView


class NodeContext:
    def __init__(
        self,
        name: str,
        members: Iterable[RingMember],
        mappers: Iterable[str],
        settings: RingSettings,
        new_table: Callable[[], KeyedTable],
    ) -> None:
        self.name = name
        self.view = RingView(settings.r, members)
        self.mappers = tuple(mappers)
        self.settings = settings
        self.new_table = new_table
        self.fragments = Fragments()
        self.effects: list[RingEffect] = []
        # Everyone already knows the members with which this node begins.
        self._begins_at = self.view.revision
        self._told: dict[str, int] = {}

    @property
    def me(self) -> RingMember:
        return self.view.members[self.name]

    def take_effects(self) -> list[RingEffect]:
        effects, self.effects = self.effects, []
        return effects

    def send(self, to: str, message: RingMessage) -> None:
        """Send a message, preceded by any news of the ring that the receiver may lack."""
        self.tell(to)
        self.effects.append(SendTo(to, message))

    def tell(self, to: str) -> None:
        told = self._told.get(to, self._begins_at)
        if told < self.view.revision:
            self._told[to] = self.view.revision
            news = self.view.since(told, to)
            if news:
                self.effects.append(SendTo(to, News(news)))

    def tell_all(self) -> None:
        """Tell everyone what has changed."""
        for name, member in self.view.members.items():
            if name != self.name and not member.gone:
                self.tell(name)
        self.tell(EDGE)

    def forget_told(self, peer: str) -> None:
        """Note that the connection broke, so news that was sent to the peer may be lost."""
        self._told.pop(peer, None)

    def say(self, text: str) -> None:
        """Show a message to the user who runs the query."""
        self.send(EDGE, Observed(text))

    def holders(self, interval: Interval) -> tuple[str, ...]:
        return self.view.arc_at(interval.low).holders


class Fragments:
    """The fragments of a node, by where they begin. They never overlap."""

    def __init__(self) -> None:
        self._by_low: dict[int, Fragment] = {}

    def __iter__(self) -> Iterator[Fragment]:
        return iter(sorted(self._by_low.values(), key=lambda each: each.interval.low))

    def __len__(self) -> int:
        return len(self._by_low)

    def at(self, interval: Interval) -> Fragment | None:
        """Return the fragment of exactly this interval."""
        found = self._by_low.get(interval.low)
        return found if found is not None and found.interval == interval else None

    def within(self, interval: Interval) -> list[Fragment]:
        return sorted(
            (each for each in self._by_low.values() if interval.contains(each.interval)),
            key=lambda each: each.interval.low,
        )

    def add(self, fragment: Fragment) -> None:
        assert fragment.interval.low not in self._by_low
        self._by_low[fragment.interval.low] = fragment

    def remove(self, fragment: Fragment) -> None:
        del self._by_low[fragment.interval.low]

    def cut_at(self, place: int) -> None:
        """Split the fragment that contains a place, so that no fragment spans it."""
        for each in list(self._by_low.values()):
            if each.interval.low < place < each.interval.high:
                self.remove(each)
                for half in each.split(place):
                    self.add(half)

    def cut_around(self, interval: Interval) -> list[Fragment]:
        """Split fragments at both ends of an interval, and return the fragments in it."""
        self.cut_at(interval.low)
        self.cut_at(interval.high)
        return self.within(interval)

    def gaps(self, interval: Interval) -> list[Interval]:
        """Return the parts of an interval that are in no fragment."""
        found, low = [], interval.low
        for each in self:
            if each.interval.overlaps(interval):
                if low < each.interval.low:
                    found.append(Interval(low, each.interval.low))
                low = max(low, each.interval.high)
        if low < interval.high:
            found.append(Interval(low, interval.high))
        return found
