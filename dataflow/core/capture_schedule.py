"""When a unit is captured for a checkpoint, or for a commit of its log: one at a time, as soon as one is due."""

from __future__ import annotations

from collections.abc import Mapping

from peacefs.dataflow.limits import dataflow_checkpoint_retry_s, dataflow_checkpoints_per_start_max
from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.recovery.technique import Storage, Technique

Positions = Mapping[str, Position]


class CaptureSchedule:
    """Gives the number of the capture that is due. What it covers counts when it is recorded, not before."""

    def __init__(self, technique: Technique, now_s: float) -> None:
        self._interval_s = technique.interval_s
        #: A log has its first commit at once; a checkpoint is of use once rows have come.
        self._logs = technique.stores is Storage.WINDOW_LOG
        self._due_s = now_s if self._logs else now_s + self._interval_s
        # True if the next is wanted before it is due, but not before this.
        self._hurries = False
        self._earliest_s = now_s
        self._number = 0
        self._covered: Positions | None = None if self._logs else {}
        # The positions that the capture covers which is being stored.
        self._storing: Positions | None = None
        # True when the last one was not stored: another is taken a while later, and not an interval.
        self._failed = False

    def due(self, now_s: float, positions: Positions) -> int | None:
        """Return the number of a capture that is to be taken now."""
        if self._failed:
            self._failed = False
            retry_s = dataflow_checkpoint_retry_s
            self._due_s = self._earliest_s = now_s + (retry_s if self._logs else min(self._interval_s, retry_s))
        due_s = self._earliest_s if self._hurries and not self._logs else self._due_s
        if self._storing is not None or now_s < due_s or positions == self._covered:
            return None
        self._number = self._number % (dataflow_checkpoints_per_start_max - 1) + 1
        self._hurries = False
        self._due_s = now_s + self._interval_s
        self._storing = positions
        return self._number

    def hurry(self) -> None:
        """Producers that keep all rows since the last capture will soon have no room for more."""
        self._hurries = True
        if self._logs:
            # Another commit checks more windows, though no rows have come.
            self._covered = None

    def recorded(self, number: int) -> Positions | None:
        """Learn that a capture is stored, and return what it covers; None if it is not the one that is awaited."""
        if self._storing is None or number != self._number:
            return None
        self._covered, self._storing = self._storing, None
        return self._covered

    def failed(self, number: int) -> None:
        """Learn that a capture was not stored: its turn was too far away, or something failed."""
        if number == self._number:
            self._storing, self._failed = None, True
