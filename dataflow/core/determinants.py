"""Determinants: the events of a unit in order, so that another node can repeat them (HA 6).

Given the same state, a unit's output depends only on the sequence of its events: up to which row it took an input,
that an input ended, the time it was told, and the random seed of its functions. A replay needs only a log of these
events. A standby, a neighbour or a stream log can hold it. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from itertools import islice
from typing import NamedTuple


class EventKind(IntEnum):
    #: Rows of an input were processed at once, up to this number.
    ROWS = 1
    #: An input has ended.
    END = 2
    #: Operators were told the time, in microseconds.
    TIME = 3


class UnitEvent(NamedTuple):
    kind: EventKind
    #: The input; empty for a time event.
    stream: str
    #: The number of the last row, or the time.
    number: int
    #: The random seed of functions during the event; 0 for units whose functions draw no numbers.
    seed: int = 0


class EventLog:
    """Events numbered from 1. The first ones are dropped once nobody needs them."""

    def __init__(self, after: int = 0) -> None:
        """`after`: the number of the last event that needs no replay."""
        self._after = after
        self._events: deque[UnitEvent] = deque()

    @property
    def first(self) -> int:
        """The number of the first event that is kept, or of the next one if none is kept."""
        return self._after + 1

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._after + len(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def append(self, event: UnitEvent) -> None:
        self._events.append(event)

    def add(self, first: int, events: Iterable[UnitEvent]) -> bool:
        """Append events that begin with number `first`, and skip known ones. Return False if there is a gap."""
        if first > self.last + 1:
            return False
        self._events.extend(islice(events, self.last + 1 - first, None))
        return True

    def at(self, number: int) -> UnitEvent | None:
        """Return an event; None if it has not happened yet. It must not have been dropped."""
        assert number > self._after, f"event {number} was dropped"
        return self._events[number - self._after - 1] if number <= self.last else None

    def since(self, number: int) -> tuple[UnitEvent, ...]:
        """Return the events after number `number`."""
        assert number >= self._after, f"events after {number} were dropped"
        return tuple(islice(self._events, number - self._after, None))

    def drop(self, upto: int) -> None:
        """Drop the events up to a number. If that is above the last, the next event has the number after it."""
        while self._events and self._after < upto:
            self._events.popleft()
            self._after += 1
        self._after = max(self._after, upto)
