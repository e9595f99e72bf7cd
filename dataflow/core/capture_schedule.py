"""When a unit is captured for a checkpoint or a log commit: one capture at a time, as soon as one is due."""

from __future__ import annotations

from collections.abc import Mapping

from peacefs.dataflow.limits import dataflow_checkpoint_retry_s, dataflow_checkpoints_per_start_max
from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.recovery.technique import Storage, Technique

Positions = Mapping[str, Position]


class CaptureSchedule:
    """Numbers the captures of a unit, and decides when the next one is due.

    The positions of a capture count as covered once the capture is recorded, not before.
    """

    def __init__(self, technique: Technique, now_s: float) -> None:
        self._interval_s = technique.interval_s
        # A log is first committed immediately. The first checkpoint is due after one interval.
        self._logs = technique.stores is Storage.WINDOW_LOG
        self._due_s = now_s if self._logs else now_s + self._interval_s
        # True if the next capture should be taken early, but not before `_earliest_s`.
        self._hurries = False
        self._earliest_s = now_s
        self._number = 0
        self._covered: Positions | None = None
        # The positions covered by the capture that is being stored.
        self._storing: Positions | None = None
        # True if the last capture was not stored. The next one then follows after a short delay instead of an
        # interval.
        self._failed = False

    def due(self, now_s: float, positions: Positions) -> int | None:
        """Return the number of a capture to take now; None if none is due."""
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
        """Take the next capture early, because producers run out of room for rows or the query is to stop."""
        self._hurries = True
        if self._logs:
            # Another commit can check more windows, even if no rows have arrived.
            self._covered = None

    def recorded(self, number: int) -> Positions | None:
        """Note that a capture is stored, and return its positions. None if another capture is awaited."""
        if self._storing is None or number != self._number:
            return None
        self._covered, self._storing = self._storing, None
        return self._covered

    def failed(self, number: int) -> None:
        """Note that a capture was not stored, because its turn was too far away or because of an error."""
        if number == self._number:
            self._storing, self._failed = None, True
