"""A mapper: it numbers its batches, and sends each tuple to the owner of its key and to r neighbours (SMR V-B).

It keeps a batch until all of them have it. When nodes are replaced, it sends the batch to the new ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from peacefs.dataflow.recovery.ring_settings import RingSettings

from .hashed_rows import NO_ROWS, HashedRows
from .messages import Tuples
from .tokens import Interval
from .view import RingView


@dataclass(frozen=True, slots=True)
class _Sent:
    number: int
    stamp_us: int
    rows: HashedRows


@dataclass(slots=True)
class _Feed:
    """The part of the ring between two neighbouring places, as sent to one node."""

    node: str
    interval: Interval
    #: The number up to which everything was sent to the node, and up to which the node has acknowledged.
    told: int
    held: int
    #: True once the node was told where its feed begins, even if there were no rows. Then whether the node knows
    #: it.
    begun: bool = False
    knows: bool = False


@dataclass(slots=True)
class _Unheld:
    """A message that a node has not acknowledged, and the feeds that it belongs to."""

    serial: int
    number: int
    rows: int
    feeds: list[_Feed]


class MapperCore:
    """One mapper: the batches of a source, or of results, that some node may still need.

    A batch is dropped once all nodes that the ring names as holders have everything up to it. A node receives only
    the rows of its own intervals, in the order of batches. After its connection broke, it receives again what it
    has not acknowledged. `EdgeOfRing` calls it, and sends the messages that it yields.
    """

    def __init__(self, name: str, view: RingView, settings: RingSettings) -> None:
        self.name = name
        self._view = view
        self._settings = settings
        self._batches: deque[_Sent] = deque()
        self.held_bytes = 0
        #: The number of the last batch.
        self.number = 0
        self.ended = False
        self._stamp_us = 0
        self._feeds: dict[str, list[_Feed]] = {}
        self._serials: dict[str, int] = {}
        # For each node, the messages that it has not acknowledged, and their number of rows.
        self._sent: dict[str, deque[_Unheld]] = {}
        self._unheld_rows: dict[str, int] = {}
        #: Bytes of tuples sent, over all nodes.
        self.sent_bytes = 0
        self.assign()

    @property
    def has_room(self) -> bool:
        return self.held_bytes < self._settings.mapper_bytes_max

    def offer(self, now_us: int, rows: HashedRows) -> Iterator[tuple[str, Tuples]]:
        """Add a batch, and yield the messages to send, each with its node."""
        assert not self.ended
        self.number += 1
        self._stamp_us = max(self._stamp_us, now_us)
        self._batches.append(_Sent(self.number, self._stamp_us, rows))
        self.held_bytes += rows.bytes
        for node in self._feeds:
            yield from self._due(node)

    def end(self) -> Iterator[tuple[str, Tuples]]:
        self.ended = True
        return self.progress()

    def progress(self) -> Iterator[tuple[str, Tuples]]:
        """Tell nodes about batches without rows for them, repeat what is due, and drop what all nodes have."""
        self._release()
        for node, feeds in self._feeds.items():
            yield from self._due(node)
            behind = [feed for feed in feeds if feed.told < self.number or not feed.begun]
            for told in sorted({feed.told for feed in behind}):
                yield node, self._message(node, [feed for feed in behind if feed.told == told], self.number, None)

    def held(self, node: str, serial: int) -> None:
        """Note that a node has the messages up to this one."""
        sent = self._sent.get(node, deque())
        while sent and sent[0].serial <= serial:
            message = sent.popleft()
            self._unheld_rows[node] -= message.rows
            for feed in message.feeds:
                feed.held, feed.knows = max(feed.held, message.number), True

    def disconnected(self, node: str) -> None:
        """Note that everything in transit to a node is lost."""
        self._forget(node)
        for feed in self._feeds.get(node, ()):
            feed.told, feed.begun = feed.held, feed.knows

    def assign(self) -> None:
        """Feed the nodes that the ring names now. A new node receives the batches that are still here."""
        before, self._feeds = self._feeds, {}
        first = self._batches[0].number - 1 if self._batches else self.number
        for arc in self._view.arcs:
            for node in arc.holders:
                old = [feed for feed in before.get(node, ()) if feed.interval.overlaps(arc.interval)]
                covers = sum(
                    min(feed.interval.high, arc.interval.high) - max(feed.interval.low, arc.interval.low)
                    for feed in old
                )
                if covers == arc.interval.high - arc.interval.low:
                    told, held = min(feed.told for feed in old), min(feed.held for feed in old)
                    begun, knows = all(feed.begun for feed in old), all(feed.knows for feed in old)
                else:
                    told = held = first
                    # Nodes that begin with the query know that nothing came before.
                    begun = knows = not before
                self._feeds.setdefault(node, []).append(_Feed(node, arc.interval, told, held, begun, knows))
        self._carry_over(before)
        self._send_again()
        self._release()

    def _carry_over(self, before: dict[str, list[_Feed]]) -> None:
        """Let acknowledgements of earlier messages count for the present feeds."""
        for node, sent in list(self._sent.items()):
            now = self._feeds.get(node, [])
            if node not in self._feeds:
                self._forget(node)
                continue
            for message in sent:
                intervals = [old.interval for old in message.feeds]
                message.feeds = [
                    feed
                    for feed in now
                    if any(old.contains(feed.interval) for old in intervals) or _covered(feed.interval, intervals)
                ]

    def _send_again(self) -> None:
        """Repeat to feeds their last batches if no message in transit would acknowledge them.

        This concerns a feed that was merged from two: both were sent everything, but no single message covers
        both.
        """
        for node, feeds in self._feeds.items():
            on_way = self._sent.get(node, ())
            for feed in feeds:
                last = max((sent.number for sent in on_way if any(feed is each for each in sent.feeds)), default=0)
                if max(feed.held, last) < feed.told:
                    feed.told, feed.begun = feed.held, feed.knows

    # -- inside ------------------------------------------------------------------------------------------

    def _due(self, node: str) -> Iterator[tuple[str, Tuples]]:
        """Yield messages for the batches that a node was not sent and that contain rows for it."""
        feeds = self._feeds[node]
        for told in sorted({feed.told for feed in feeds}):
            group = [feed for feed in feeds if feed.told == told]
            begin = told + 1 - self._batches[0].number if self._batches else 0
            for at in range(max(begin, 0), len(self._batches)):
                batch = self._batches[at]
                rows = HashedRows.join([batch.rows.between(span) for span in _spans(group)])
                if len(rows):
                    yield node, self._message(node, group, batch.number, batch, rows)

    def _message(
        self, node: str, feeds: list[_Feed], number: int, batch: _Sent | None, rows: HashedRows | None = None
    ) -> Tuples:
        after = feeds[0].told
        if rows is None:
            rows = NO_ROWS
        serial = self._serials[node] = self._serials.get(node, 0) + 1
        for feed in feeds:
            feed.told, feed.begun = number, True
        unheld_rows = self._unheld_rows.get(node, 0)
        self._sent.setdefault(node, deque()).append(_Unheld(serial, number, len(rows), feeds))
        self._unheld_rows[node] = unheld_rows + len(rows)
        self.sent_bytes += rows.bytes
        stamp_us = self._stamp_us if batch is None else batch.stamp_us
        return Tuples(self.name, serial, after, number, stamp_us, tuple(_spans(feeds)), rows, unheld_rows)

    def _forget(self, node: str) -> None:
        self._sent.pop(node, None)
        self._unheld_rows.pop(node, None)

    def _release(self) -> None:
        """Drop the batches that all nodes have."""
        held = min((feed.held for feeds in self._feeds.values() for feed in feeds), default=0)
        while self._batches and self._batches[0].number <= held:
            self.held_bytes -= self._batches.popleft().rows.bytes


def _spans(feeds: list[_Feed]) -> list[Interval]:
    """Return the intervals of feeds in order, with adjacent ones merged."""
    spans: list[Interval] = []
    for feed in sorted(feeds, key=lambda each: each.interval.low):
        if spans and spans[-1].high == feed.interval.low:
            spans[-1] = Interval(spans[-1].low, feed.interval.high)
        else:
            spans.append(feed.interval)
    return spans


def _covered(interval: Interval, parts: list[Interval]) -> bool:
    inside = sum(max(0, min(part.high, interval.high) - max(part.low, interval.low)) for part in parts)
    return inside == interval.high - interval.low
