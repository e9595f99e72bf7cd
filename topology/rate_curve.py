"""The rate of a disk or a client, as a function of how many streams use it at once."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class RateCurve:
    """The rate of all concurrent streams together, in bytes a second, at so many of them.

    `points` are (streams, bytes a second) with rising streams; between them the rate is linear, outside flat.
    """

    points: tuple[tuple[int, float], ...]

    def rate(self, streams: int) -> float:
        """Bytes a second of `streams` together."""
        at = bisect_right(self.points, streams, key=lambda point: point[0])
        if at == 0:
            return self.points[0][1]
        if at == len(self.points):
            return self.points[-1][1]
        (below, slower), (above, faster) = self.points[at - 1], self.points[at]
        return slower + (faster - slower) * (streams - below) / (above - below)

    @property
    def best_streams(self) -> int:
        """The fewest streams at which the rate is highest."""
        best_rate = self.best_rate
        return next(streams for streams, rate in self.points if rate == best_rate)

    @property
    def best_rate(self) -> float:
        """Bytes a second at `best_streams`."""
        return max(rate for _, rate in self.points)

    def scaled(self, factor: float) -> RateCurve:
        """A curve of the same shape, `factor` times as high."""
        return RateCurve(tuple((streams, rate * factor) for streams, rate in self.points))


#: A datanode's disk in the SGuard paper: the write column of its Table 8, smoothed.
PAPER_DISK = RateCurve(((1, 30.0 * MB), (2, 45.0 * MB), (4, 41.0 * MB), (8, 41.0 * MB), (16, 41.0 * MB)))

#: The rate of one HDFS client with so many threads: they share the work of computing checksums (Table 8).
PAPER_CLIENT = RateCurve(((1, 64.0 * MB), (2, 91.0 * MB), (4, 105.0 * MB)))
