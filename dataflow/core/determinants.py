"""Determinants: the events of a unit in the order in which they happened, so that another can repeat them (HA 6).

Given the same state, a unit's output depends on the sequence of its events alone: up to which row it took an
input, that an input ended, what time it was told, and the seed of what its functions drew. A log of events with
that is all that a replay needs, whoever holds it: a standby, a neighbour, or a stream log. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from itertools import islice
from typing import NamedTuple


class EventKind(IntEnum):
    #: Rows of an input were processed, from those before up to a number, at once.
    ROWS = 1
    #: An input has ended.
    END = 2
    #: Operators were told the time, in microseconds.
    TIME = 3


class UnitEvent(NamedTuple):
    kind: EventKind
    #: The input; empty for the time.
    stream: str
    #: The number of the last row, or the time.
    number: int
    #: Seeds what functions draw during the event; 0 for units without such functions.
    seed: int = 0


class EventLog:
    """Events numbered from 1, of which the first are forgotten once nobody needs them."""

    def __init__(self, after: int = 0) -> None:
        """`after`: the number of the last event that needs no replay."""
        self._after = after
        self._events: deque[UnitEvent] = deque()

    @property
    def first(self) -> int:
        """The number of the first event that is here, or would be."""
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
        """Append events that begin with number `first`, but for those that are here. False: some are missing."""
        if first > self.last + 1:
            return False
        self._events.extend(islice(events, self.last + 1 - first, None))
        return True

    def at(self, number: int) -> UnitEvent | None:
        """Return an event; None if it did not happen yet. Those that were dropped must not be asked for."""
        assert number > self._after, f"event {number} was dropped"
        return self._events[number - self._after - 1] if number <= self.last else None

    def since(self, number: int) -> tuple[UnitEvent, ...]:
        """Return the events after number `number`."""
        assert number >= self._after, f"events after {number} were dropped"
        return tuple(islice(self._events, number - self._after, None))

    def drop(self, upto: int) -> None:
        """Forget the events up to a number; with a number above the last, go on behind it."""
        while self._events and self._after < upto:
            self._events.popleft()
            self._after += 1
        self._after = max(self._after, upto)
