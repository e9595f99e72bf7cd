"""The course of a run: when rows were offered, and when their output reached the sink."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .queries import Row, SideQuery

#: A recovery is over when no row has been late for this long.
_QUIET_S = 0.25
#: A row is late if it takes this much longer than 99 of 100 rows before the failure, and at least twice as long.
_LATE_S = 0.05

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Latency:
    """Latencies in milliseconds; nan if there were no rows."""

    p50_ms: float
    p99_ms: float
    worst_ms: float

    @classmethod
    def of(cls, seconds: Times) -> Latency:
        if not len(seconds):
            return cls(float("nan"), float("nan"), float("nan"))
        p50, p99 = np.percentile(seconds, [50, 99])
        return cls(1000 * p50, 1000 * p99, 1000 * float(seconds.max()))


@dataclass(frozen=True)
class Timeline:
    """Rows in the order in which they were offered. `arrived_s` is infinite for rows that never arrived.

    Rows offered before `from_s` are the warm-up. `kills_s` is in order, and `until_s` is the end.
    """

    offered_s: Times
    arrived_s: Times
    from_s: float
    kills_s: Sequence[float]
    until_s: float

    @property
    def late_s(self) -> float:
        """Return the latency above which a row is late."""
        p99_s = self.before.p99_ms / 1000
        return max(2 * p99_s, p99_s + _LATE_S)

    @property
    def before(self) -> Latency:
        return self._latency([(self.from_s, self.kills_s[0])])

    @property
    def during(self) -> Latency:
        return self._latency(zip(self.kills_s, self._recovered(), strict=True))

    @property
    def after(self) -> Latency:
        return self._latency(zip(self._recovered(), (*self.kills_s[1:], self.until_s), strict=True))

    def recoveries_s(self) -> list[float]:
        """Return for each failure the time until rows arrived again and none was late; infinity if that never
        happened.
        """
        return [end - kill for kill, end in zip(self.kills_s, self._recovered(), strict=True)]

    def _recovered(self) -> list[float]:
        return [self._recovered_at(kill, upto) for kill, upto in itertools.pairwise((*self.kills_s, self.until_s))]

    def _recovered_at(self, kill_s: float, upto_s: float) -> float:
        """Return when the late and lost rows after a failure ended."""
        late_s = self.late_s
        took_s = self.arrived_s - self.offered_s
        mine = (self.offered_s >= kill_s - late_s) & (self.offered_s < upto_s)
        late = mine & (took_s > late_s)
        good_from_s = kill_s
        for offered in self.offered_s[late]:
            if offered > good_from_s + _QUIET_S:
                break
            good_from_s = max(good_from_s, float(np.nextafter(offered, np.inf)))
        good = self.arrived_s[mine & ~late & (self.offered_s >= good_from_s)]
        if not len(good):
            return float("inf")
        stretch = self.arrived_s[late & (self.offered_s < good_from_s) & np.isfinite(self.arrived_s)]
        return float(max(good.min(), stretch.max(initial=kill_s)))

    def _latency(self, spans: Iterable[tuple[float, float]]) -> Latency:
        inside = np.zeros(len(self.arrived_s), np.bool_)
        for first, last in spans:
            inside |= (self.arrived_s > first) & (self.arrived_s <= last)
        inside &= (self.offered_s >= self.from_s) & np.isfinite(self.arrived_s)
        return Latency.of((self.arrived_s - self.offered_s)[inside])


def arrivals(
    query: SideQuery,
    expected: Sequence[Row],
    first_s: Mapping[Hashable, float],
    given_s: Sequence[float],
    *,
    latest: bool = False,
) -> tuple[Times, Times]:
    """Return for each expected row when it was offered and first arrived, in the order of offers.

    `first_s` is when each subject first arrived. With `latest`, a row also stands for earlier rows of its key.
    """
    arrived = np.array([first_s.get(query.subject(row), float("inf")) for row in expected])
    if latest:
        for at in range(len(expected) - 2, -1, -1):
            if expected[at][0] == expected[at + 1][0]:
                arrived[at] = min(arrived[at], arrived[at + 1])
    offered = query.offered_s(expected, given_s)
    # At the end of the stream, windows are output before they are complete.
    inside = (offered <= given_s[-1]) & (arrived >= offered)
    order = np.argsort(offered[inside], kind="stable")
    return offered[inside][order], arrived[inside][order]
