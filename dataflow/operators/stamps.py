"""Stamps of the rows that an operator keeps, to find the oldest rows that its state depends on.

They are not part of its state: a unit that begins with a checkpoint does not need them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable


def earliest(*stamps: int | None) -> int | None:
    """Return the lowest stamp. None stands for no rows."""
    return min((stamp for stamp in stamps if stamp is not None), default=None)


class TimedStamps:
    """Stamps of rows that matter until some time has passed."""

    def __init__(self) -> None:
        # [stamp, latest time of the rows with it], in the order of stamps.
        self._rows: deque[list[int]] = deque()

    def add(self, stamp: int | None, time: int) -> None:
        if stamp is None:
            return
        if self._rows and self._rows[-1][0] == stamp:
            self._rows[-1][1] = max(self._rows[-1][1], time)
        else:
            self._rows.append([stamp, time])

    def drop_until(self, time: int) -> None:
        while self._rows and self._rows[0][1] <= time:
            self._rows.popleft()

    @property
    def oldest(self) -> int | None:
        return min((stamp for stamp, _ in self._rows), default=None)


class CountedStamps:
    """Stamps of rows that leave in the order of arrival."""

    def __init__(self) -> None:
        self._rows: deque[list[int]] = deque()

    def add(self, stamp: int | None, count: int) -> None:
        if stamp is None or not count:
            return
        if self._rows and self._rows[-1][0] == stamp:
            self._rows[-1][1] += count
        else:
            self._rows.append([stamp, count])

    def drop(self, count: int) -> None:
        while count and self._rows:
            gone = min(count, self._rows[0][1])
            self._rows[0][1] -= gone
            count -= gone
            if not self._rows[0][1]:
                self._rows.popleft()

    @property
    def oldest(self) -> int | None:
        return min((stamp for stamp, _ in self._rows), default=None)


class KeyedStamps:
    """Stamps of the last row of each key. A later row replaces it."""

    def __init__(self) -> None:
        self._of: dict[Hashable, int] = {}
        # The number of keys with each stamp.
        self._counts: dict[int, int] = {}

    def replace(self, stamp: int | None, key: Hashable) -> None:
        if stamp is None:
            return
        before = self._of.get(key)
        if before == stamp:
            return
        self._of[key] = stamp
        self._counts[stamp] = self._counts.get(stamp, 0) + 1
        if before is not None:
            self._counts[before] -= 1
            if not self._counts[before]:
                del self._counts[before]

    @property
    def oldest(self) -> int | None:
        return min(self._counts, default=None)


class LatestStamp:
    """The stamp of the row with the latest time, which decides which rows are late."""

    def __init__(self) -> None:
        self._time: int | None = None
        self.stamp: int | None = None

    def reach(self, stamp: int | None, time: int) -> None:
        if stamp is not None and (
            self._time is None or self.stamp is None or (time, stamp) > (self._time, self.stamp)
        ):
            self._time, self.stamp = time, stamp
