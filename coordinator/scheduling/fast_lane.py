"""What went through the fast lane: chunks so small that they wait for no grant. They are only counted. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peacefs.protocol.limits import fast_lane_bytes_max


@dataclass
class FastLane:
    """Since the start, counted when their file is published; bytes as their writers sent them, once."""

    chunks_total: int = 0
    bytes_total: int = 0

    def published(self, lengths: Iterable[int]) -> None:
        """Chunks of these lengths belong to a file now; larger ones were granted."""
        for length in lengths:
            if length <= fast_lane_bytes_max:
                self.chunks_total += 1
                self.bytes_total += length
