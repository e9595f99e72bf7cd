"""Estimate how much a writer that states nothing will still write for a checkpoint: as much as for the last one.
Pure.

A writer is known by its host and checkpoint root. What it writes without a longer pause is one checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Writes below a checkpoint root without such a pause belong to one checkpoint.
checkpoint_pause_s: Final = 5.0
checkpoint_roots_remembered_max: Final = 4096


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """The writer's host, and the root of the checkpoint that the file belongs to."""

    host: str
    root: str


@dataclass(slots=True)
class CheckpointEstimate:
    """The one under way: since when, what of it is granted, and how much the one before it was."""

    began_s: float
    touched_s: float
    granted_bytes: int = 0
    last_bytes: int = 0

    @property
    def to_come_bytes(self) -> int:
        """Return the bytes expected beyond those granted already."""
        return max(0, self.last_bytes - self.granted_bytes)


class CheckpointEstimates:
    """The latest checkpoints of so many sources; the one that was quiet longest is forgotten first."""

    def __init__(self) -> None:
        self._checkpoints: dict[CheckpointSource, CheckpointEstimate] = {}

    def under_way(self, source: CheckpointSource, now_s: float) -> CheckpointEstimate:
        """The checkpoint that a request of this moment belongs to."""
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
        """A chunk may be written."""
        self.under_way(source, now_s).granted_bytes += chunk_bytes

    def ended(self, source: CheckpointSource, granted_bytes: int, written_bytes: int, now_s: float) -> None:
        """A chunk has ended, and turned out to be so long."""
        checkpoint = self.under_way(source, now_s)
        checkpoint.granted_bytes = max(0, checkpoint.granted_bytes - granted_bytes + written_bytes)
