"""Estimate how much more a writer will write for a checkpoint, if it does not say so itself. Pure.

The estimate is the size of the last checkpoint of the same host and root. Writes without a pause of more than
`checkpoint_pause_s` between them are one checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

checkpoint_pause_s: Final = 5.0
checkpoint_roots_remembered_max: Final = 4096


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """The writer's host, and the root of the checkpoint that the file belongs to."""

    host: str
    root: str


@dataclass(slots=True)
class CheckpointEstimate:
    """The checkpoint under way: its start, the bytes granted so far, and the size of the one before."""

    began_s: float
    touched_s: float
    granted_bytes: int = 0
    last_bytes: int = 0

    @property
    def to_come_bytes(self) -> int:
        """The bytes expected in addition to those granted already."""
        return max(0, self.last_bytes - self.granted_bytes)


class CheckpointEstimates:
    """The latest checkpoint of each source, up to a maximum; the least recently active is forgotten first."""

    def __init__(self) -> None:
        self._checkpoints: dict[CheckpointSource, CheckpointEstimate] = {}

    def under_way(self, source: CheckpointSource, now_s: float) -> CheckpointEstimate:
        """Return the checkpoint that a request at `now_s` belongs to."""
        known = self._checkpoints.pop(source, None)
        if known is None:
            known = CheckpointEstimate(now_s, now_s)
        elif now_s - known.touched_s > checkpoint_pause_s:
            known = CheckpointEstimate(now_s, now_s, last_bytes=known.granted_bytes)
        known.touched_s = now_s
        self._checkpoints[source] = known
        while len(self._checkpoints) > checkpoint_roots_remembered_max:
            del self._checkpoints[next(iter(self._checkpoints))]
        return known

    def granted(self, source: CheckpointSource, chunk_bytes: int, now_s: float) -> None:
        """Count a granted chunk."""
        self.under_way(source, now_s).granted_bytes += chunk_bytes

    def ended(self, source: CheckpointSource, granted_bytes: int, written_bytes: int, now_s: float) -> None:
        """Replace the granted bytes of a chunk that has ended by the bytes that were written."""
        checkpoint = self.under_way(source, now_s)
        checkpoint.granted_bytes = max(0, checkpoint.granted_bytes - granted_bytes + written_bytes)
