"""The ways to start a query, and which batches each of them reads.

An ordinary start continues from the latest offsets and needs the offsets of the batch before. Asynchronous
progress tracking writes offsets and commits of some batches only, so a start uses the nearest earlier offsets.
Real-time Mode does not plan a batch: offsets are written at its end, and a start removes offsets without a commit.
"""

from __future__ import annotations

from enum import StrEnum

from .findings import CheckpointFinding, Fault
from .formats.logs import BatchCommit, Offsets
from .layout import COMMITS, OFFSETS, STATE, CheckpointLayout

#: The oldest format of commits that Real-time Mode accepts.
_REAL_TIME_FORMAT = 2


class StartMode(StrEnum):
    """A way to start a query: a value of `peacefs checkpoint verify --json`."""

    ORDINARY = "ordinary"
    ASYNC_PROGRESS = "async progress"
    REAL_TIME = "real-time"


def is_stateful(layout: CheckpointLayout) -> bool:
    return bool(layout.operators or layout.stores)


def was_skipped(layout: CheckpointLayout, batch: int) -> bool:
    """Return whether a batch has neither offsets nor commit, as for most batches with async progress tracking."""
    return not is_stateful(layout) and batch not in layout.offsets and batch not in layout.commits


def own_mode(layout: CheckpointLayout, batch: int) -> StartMode:
    """Return the mode of the query that wrote `batch`, as far as file names tell."""
    before = max((planned for planned in layout.offsets if planned < batch), default=None)
    if before is None or before == batch - 1:
        return StartMode.ORDINARY
    between = range(before + 1, batch)
    skipped = was_skipped(layout, batch - 1) and not any(done in between for done in layout.commits)
    return StartMode.ASYNC_PROGRESS if skipped else StartMode.ORDINARY


def batch_before(layout: CheckpointLayout, batch: int, mode: StartMode) -> int | None:
    """Return the batch whose offsets are the start of `batch`; None if a start needs none."""
    if mode is StartMode.ORDINARY or is_stateful(layout):
        return batch - 1 if batch > 0 else None
    return max((planned for planned in layout.offsets if planned < batch), default=None)


def async_refusals(
    layout: CheckpointLayout, planned: int | None, committed: int | None
) -> list[CheckpointFinding]:
    """Find what prevents a start with async progress tracking, or makes the start repeat rows."""
    if is_stateful(layout):
        reason = "Spark refuses asynchronous progress tracking for a query with state"
        return [CheckpointFinding(STATE, Fault.INCONSISTENT, reason)]
    if not planned or committed == planned:
        return []
    before = batch_before(layout, planned, StartMode.ASYNC_PROGRESS)
    if before is None:
        reason = f"Spark would begin batch {planned} at the beginning of its sources, and give out rows again"
        return [CheckpointFinding(f"{OFFSETS}/{planned - 1}", Fault.MISSING, reason, noticed=False)]
    done = max((batch for batch in layout.commits if before < batch < planned), default=None)
    if done is None:
        return []
    reason = f"batch {done} was done, and Spark would give out its rows again, in batch {planned}"
    return [CheckpointFinding(f"{OFFSETS}/{done}", Fault.MISSING, reason, noticed=False)]


def real_time_refusals(commit: BatchCommit | None, committed: int | None) -> list[CheckpointFinding]:
    """Find what in the latest commit prevents a start in Real-time Mode."""
    if commit is None or commit.version >= _REAL_TIME_FORMAT:
        return []
    reason = "it is of format 1, with which Spark refuses Real-time Mode: that needs a new checkpoint"
    return [CheckpointFinding(f"{COMMITS}/{committed}", Fault.INCONSISTENT, reason)]


def real_time_sources(batch: int, offsets: Offsets) -> list[CheckpointFinding]:
    """Find sources that Real-time Mode cannot read: files, as far as offsets tell."""
    return [
        CheckpointFinding(
            f"{OFFSETS}/{batch}",
            Fault.INCONSISTENT,
            f"source {source} reads files, which Spark refuses in Real-time Mode",
        )
        for source in range(len(offsets.sources))
        if offsets.file_log_end(source) is not None
    ]
