"""The states and timers of all keys of a function.

What a batch touches is read once and written back at its end. Event times decide when a state is gone, so a replay
finds the same states. Timers and times of expiry are found in heaps, which are built again after a restart.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from peacefs.dataflow.unit_state.exact_values import encode_key
from peacefs.dataflow.unit_state.interface import ValueMap
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .keyed_states import Declared, ttl_us
from .keys import plain_key

Key: TypeAlias = tuple[Hashable, ...]
#: Cancelled timers that a heap may hold besides as many as are set.
_CANCELLED_MAX: Final = 1024
#: Timers of event time, and timers of the clock.
EVENT, CLOCK = 0, 1
_ABSENT: Final = (None, None)


class KeyedStates:
    """The named states of each key: a value, and the event time at which it is gone."""

    def __init__(self, state: OperatorState, declared: Mapping[str, Declared]) -> None:
        self._kept: ValueMap = state.mapping("states")
        self._ttl_us = {name: ttl_us(each) for name, each in declared.items()}
        #: What was read or changed since the last flush, and which of that was changed.
        self._seen: dict[tuple[Key, str], tuple[Any, int | None]] = {}
        self._changed: set[tuple[Key, str]] = set()
        # When to look whether a state is gone; at most one entry per state.
        self._expiries: list[tuple[int, bytes, tuple[Key, str]]] = []
        self._watched: set[tuple[Key, str]] = set()
        if any(self._ttl_us.values()):
            for *key, name in self._kept:
                expires_us = self._kept[(*key, name)][1]
                if expires_us is not None:
                    self._watch((plain_key(key), name), expires_us)

    def get(self, key: Key, name: str, watermark_us: int) -> Any:
        """Return the value of a state; None if the key has none, or had it too long."""
        value, expires_us = self._entry((key, name))
        return None if expires_us is not None and expires_us <= watermark_us else value

    def put(self, key: Key, name: str, value: Any, now_us: int) -> None:
        """Set a state at an event time. None removes it."""
        ttl = self._ttl_us[name]
        expires_us = None if ttl is None or value is None else now_us + ttl
        self._seen[key, name] = (value, expires_us)
        self._changed.add((key, name))
        if expires_us is not None:
            self._watch((key, name), expires_us)

    def expire(self, watermark_us: int) -> None:
        """Remove the states that are gone."""
        while self._expiries and self._expiries[0][0] <= watermark_us:
            _, _, place = heapq.heappop(self._expiries)
            self._watched.discard(place)
            _, expires_us = self._entry(place)
            if expires_us is None:
                continue
            if expires_us > watermark_us:
                self._watch(place, expires_us)
            else:
                self._seen[place] = _ABSENT
                self._changed.add(place)

    def flush(self) -> None:
        """Write what has changed."""
        for place in self._changed:
            key, name = place
            value, expires_us = self._seen[place]
            if value is not None:
                self._kept[(*key, name)] = [value, expires_us]
            elif (*key, name) in self._kept:
                del self._kept[(*key, name)]
        self._seen.clear()
        self._changed.clear()

    def keys_now(self) -> list[Key]:
        """Return the keys that have a state, in the order of their bytes."""
        self.flush()
        return list(dict.fromkeys(plain_key(key) for *key, _ in self._kept))

    def _entry(self, place: tuple[Key, str]) -> tuple[Any, int | None]:
        if place not in self._seen:
            key, name = place
            value, expires_us = self._kept.get((*key, name)) or _ABSENT
            self._seen[place] = (value, expires_us)
        return self._seen[place]

    def _watch(self, place: tuple[Key, str], expires_us: int) -> None:
        if place not in self._watched:
            self._watched.add(place)
            heapq.heappush(self._expiries, (expires_us, encode_key((*place[0], place[1])), place))


class Timers:
    """The timers of each key, of event time and of the clock, in microseconds."""

    def __init__(self, state: OperatorState) -> None:
        self._kept: ValueMap = state.mapping("timers")
        self._of: dict[Key, tuple[set[int], set[int]]] = {}
        self._changed: set[Key] = set()
        self._heaps: tuple[list[tuple[int, bytes, Key]], ...] = ([], [])
        # Number of timers that are set.
        self._count = [0, 0]
        for key in self._kept:
            for which, times in enumerate(self._kept[key]):
                for time_us in times:
                    self.set(plain_key(key), which, time_us)
        self._changed.clear()

    def set(self, key: Key, which: int, time_us: int) -> None:
        """Set a timer. Setting it twice has no effect."""
        of_key = self._of.setdefault(key, (set(), set()))[which]
        if time_us not in of_key:
            of_key.add(time_us)
            self._changed.add(key)
            self._count[which] += 1
            heapq.heappush(self._heaps[which], (time_us, encode_key(key), key))

    def cancel(self, key: Key, which: int, time_us: int) -> None:
        if self._has(key, which, time_us):
            self._of[key][which].remove(time_us)
            self._changed.add(key)
            self._count[which] -= 1

    def due(self, which: int, until_us: int) -> Iterator[tuple[int, Key]]:
        """Remove and yield the timers up to a time, in order, with those that are set meanwhile."""
        heap = self._heaps[which]
        while heap and heap[0][0] <= until_us:
            time_us, _, key = heapq.heappop(heap)
            if self.take(key, which, time_us):
                yield time_us, key

    def pending(self, which: int) -> list[tuple[int, Key]]:
        """Return all timers, in order."""
        return [(time_us, key) for time_us, _, key in sorted(self._heaps[which]) if self._has(key, which, time_us)]

    def take(self, key: Key, which: int, time_us: int) -> bool:
        """Remove a timer. Return False if it is not set."""
        had = self._has(key, which, time_us)
        self.cancel(key, which, time_us)
        return had

    def _has(self, key: Key, which: int, time_us: int) -> bool:
        return key in self._of and time_us in self._of[key][which]

    def flush(self) -> None:
        """Write what has changed."""
        for key in self._changed:
            event, clock = self._of[key]
            if event or clock:
                self._kept[key] = [sorted(event), sorted(clock)]
            else:
                del self._of[key]
                if key in self._kept:
                    del self._kept[key]
        self._changed.clear()
        for which, heap in enumerate(self._heaps):
            if len(heap) > 2 * self._count[which] + _CANCELLED_MAX:
                heap[:] = sorted({each for each in heap if self._has(each[2], which, each[0])})
