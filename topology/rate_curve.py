"""The rate of a disk or a client as a function of the number of concurrent streams."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class RateCurve:
    """The total rate of all concurrent streams, in bytes per second.

    `points` are (streams, bytes per second), in ascending order. Rates between two points are interpolated
    linearly; outside, the curve is flat.
    """

    points: tuple[tuple[int, float], ...]

    def rate(self, streams: int) -> float:
        at = bisect_right(self.points, streams, key=lambda point: point[0])
        if at == 0:
            return self.points[0][1]
        if at == len(self.points):
            return self.points[-1][1]
        (below, slower), (above, faster) = self.points[at - 1], self.points[at]
        return slower + (faster - slower) * (streams - below) / (above - below)

    @property
    def best_streams(self) -> int:
        """The smallest number of streams with the highest rate."""
        best_rate = self.best_rate
        return next(streams for streams, rate in self.points if rate == best_rate)

    @property
    def best_rate(self) -> float:
        """The highest rate, in bytes per second."""
        return max(rate for _, rate in self.points)

    def scaled(self, factor: float) -> RateCurve:
        return RateCurve(tuple((streams, rate * factor) for streams, rate in self.points))


#: A datanode's disk in the SGuard paper: the write column of its Table 8, smoothed.
PAPER_DISK = RateCurve(((1, 30.0 * MB), (2, 45.0 * MB), (4, 41.0 * MB), (8, 41.0 * MB), (16, 41.0 * MB)))

#: The rate of one HDFS client by number of threads, which share the work of computing checksums (Table 8).
PAPER_CLIENT = RateCurve(((1, 64.0 * MB), (2, 91.0 * MB), (4, 105.0 * MB)))
