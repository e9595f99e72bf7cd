"""Judge whether a query would start from a checkpoint as it is, and to which batches it can be rolled back.

Let P be the latest planned batch and C the latest committed one. An ordinary start reads `metadata`, `offsets/P`
and `offsets/P-1`, `commits/C`, the logs of file sources (`source_logs`), the metadata of stateful operators, and
one state version per store: P+1 if P is C, else P, because batch P is then repeated. It reads no commit before C,
except `commits/P-1` in format 2, for the unique ids. `start_modes` describes the other ways to start a query.

A rollback to batch N removes what later batches wrote; a start then needs the same files of a checkpoint that ends
with N. File names cannot tell whether a query of format 1 had state whose directory is gone altogether.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

from peacefs.protocol.errors import CheckpointDamaged

from .findings import CheckpointFinding, Fault, Note, damage
from .formats.logs import BatchCommit, Offsets
from .inspection import Inspection
from .layout import COMMITS, METADATA, OFFSETS
from .needs import Needs
from .repartitions import is_passed_over, repartition_of
from .source_logs import SourceLogs
from .start_modes import (
    StartMode,
    async_refusals,
    batch_before,
    own_mode,
    real_time_refusals,
    real_time_sources,
    was_skipped,
)
from .state_needs import StateNeeds
from .tree import TreeEntry

T = TypeVar("T")

#: At most this many missing batches are named one by one.
_GAPS_MAX = 100
_UNREAD = "no batch has read this entry of the source's log: the next one does, together with what is new"


class BatchVerifier:
    """Judge the starts that one checkpoint allows, for `verify`, rollback, repair and pruning.

    Each file is read once, however many batches and modes are judged; verdicts are cached.
    """

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._sources = SourceLogs(inspection)
        self._state = StateNeeds(inspection)
        self.layout = inspection.layout
        self._batches: dict[tuple[int, StartMode], Needs] = {}
        self._restarts: dict[StartMode, Needs] = {}

    def query(self) -> str | None:
        """Return the query's id, or None if it cannot be read."""
        try:
            return self._inspection.query_metadata(self.layout.metadata).id if self.layout.metadata else None
        except CheckpointDamaged:
            return None

    def goes_on_with(self, mode: StartMode = StartMode.ORDINARY) -> int:
        """Return the first batch that a start runs: the planned but unfinished one, or the next."""
        planned, committed = max(self.layout.offsets, default=-1), max(self.layout.commits, default=-1)
        if planned > committed:
            return committed + 1 if mode is StartMode.REAL_TIME else planned
        return planned + 1

    def own_mode(self, batch: int | None = None) -> StartMode:
        """Return the mode of the query that wrote `batch`, by default the latest planned batch."""
        return own_mode(self.layout, max(self.layout.offsets, default=0) if batch is None else batch)

    def restart(self, mode: StartMode | None = None) -> Needs:
        """Check what a start needs from the checkpoint as it is. `mode` defaults to the query's own."""
        mode = mode or self.own_mode()
        if mode not in self._restarts:
            self._restarts[mode] = self._judge_restart(mode)
        return self._restarts[mode]

    def batch(self, batch: int, mode: StartMode | None = None) -> Needs:
        """Check what a start needs after a rollback to a committed batch. `mode` defaults to the batch's own."""
        mode = mode or self.own_mode(batch)
        if (batch, mode) not in self._batches:
            self._batches[batch, mode] = self._judge(batch, mode)
        return self._batches[batch, mode]

    def gaps(self) -> list[CheckpointFinding]:
        """Find batches missing between others. A start does not read them; only a rollback to them would."""
        found = []
        for log, entries in ((OFFSETS, self.layout.offsets), (COMMITS, self.layout.commits)):
            for batch in _missing(entries):
                if was_skipped(self.layout, batch):
                    continue
                reason = "there are earlier and later ones; a rollback to it is not possible"
                found.append(CheckpointFinding(f"{log}/{batch}", Fault.MISSING, reason, stops=False))
        return found

    def _judge_restart(self, mode: StartMode) -> Needs:
        needs = self._identity()
        needs.add(self._sources.whole())
        planned, committed = max(self.layout.offsets, default=None), max(self.layout.commits, default=None)
        if mode is StartMode.ASYNC_PROGRESS:
            needs.findings += async_refusals(self.layout, planned, committed)
        if planned is not None:
            needs.findings += self._unfinished_repartition(planned, committed)
        if mode is StartMode.REAL_TIME:
            planned = self._with_commit(planned, committed, needs)
        needs.findings += self._commits_ahead(planned, committed)
        if planned is None:
            return needs
        offsets = self._planned(planned, mode, needs)
        if offsets is not None and mode is not StartMode.REAL_TIME:
            unread = [self.layout.relative(entry) for entry in self._sources.beyond(offsets)]
            needs.notes += [Note(path, _UNREAD) for path in unread]
        commit = self._commit(committed, needs) if committed is not None else BatchCommit()
        if commit is None:
            return needs
        if mode is StartMode.REAL_TIME:
            needs.findings += real_time_refusals(commit, committed)
        left_by = planned if committed is not None and committed >= planned else planned - 1
        if committed is not None and committed < left_by and commit.state_unique_ids:
            for batch in range(committed + 1, min(left_by, committed + _GAPS_MAX) + 1):
                reason = f"it names the unique ids of the state that batch {batch + 1} goes on from"
                needs.findings.append(CheckpointFinding(f"{COMMITS}/{batch}", Fault.MISSING, reason))
            return needs
        if left_by >= 0:
            needs.add(self._state.after(left_by, commit))
        return needs

    def _with_commit(self, planned: int | None, committed: int | None, needs: Needs) -> int | None:
        """Return the latest offsets that a start in Real-time Mode keeps. The start reads later offsets, too."""
        if planned is None or planned <= (-1 if committed is None else committed):
            return planned
        self._offsets(planned, needs)
        done = -1 if committed is None else committed
        forgotten = max((batch for batch in self.layout.offsets if done < batch < planned), default=None)
        if forgotten is not None or (committed is None and planned > 0):
            path = f"{COMMITS}/{planned - 1 if forgotten is None else forgotten}"
            reason = f"Spark would give out the rows of this batch again, in batch {done + 1}"
            needs.findings.append(CheckpointFinding(path, Fault.MISSING, reason, noticed=False))
        return max((batch for batch in self.layout.offsets if batch <= done), default=None)

    def _planned(self, batch: int, mode: StartMode, needs: Needs) -> Offsets | None:
        """Check the offsets of a batch and of the batch before, and the entries of sources' logs between them."""
        offsets, before = self._offsets(batch, needs), None
        number_before = batch_before(self.layout, batch, mode)
        if number_before is not None:
            before = self._offsets(number_before, needs)
        if offsets is not None:
            needs.add(self._sources.entries(batch, offsets, before))
            if mode is StartMode.REAL_TIME:
                needs.findings += real_time_sources(batch, offsets)
        return offsets

    def _unfinished_repartition(self, planned: int, committed: int | None) -> list[CheckpointFinding]:
        """Find an unfinished repartition: Spark refuses to start, whatever the repartition has written."""
        partitions = repartition_of(self._inspection, planned)
        if partitions is None or planned == committed:
            return []
        reason = (
            f"it plans a repartition of the state to {partitions} partitions that was not finished: Spark refuses "
            f"to start before it is given again, with {partitions}"
        )
        return [CheckpointFinding(f"{OFFSETS}/{planned}", Fault.INCONSISTENT, reason)]

    def _commits_ahead(self, planned: int | None, committed: int | None) -> list[CheckpointFinding]:
        """Find commits without offsets, which stop a start, and earlier batches without commits, which do not."""
        found = []
        first = -1 if planned is None else planned
        for batch in range(first + 1, min(committed or -1, first + _GAPS_MAX) + 1):
            reason = f"{COMMITS} says that batch {committed} was done: Spark would repeat one and find it done"
            found.append(CheckpointFinding(f"{OFFSETS}/{batch}", Fault.MISSING, reason))
        done = -1 if committed is None else committed
        for batch in range(done + 1, min(first, done + 1 + _GAPS_MAX)):
            if was_skipped(self.layout, batch):
                continue
            reason = (
                f"batch {first} is planned, so that this one was done; Spark goes on with {first} all the same"
            )
            found.append(CheckpointFinding(f"{COMMITS}/{batch}", Fault.MISSING, reason, stops=False))
        return found

    def _judge(self, batch: int, mode: StartMode) -> Needs:
        needs = self._identity()
        if mode is StartMode.ASYNC_PROGRESS:
            needs.findings += async_refusals(self.layout, batch, batch)
        offsets = self._planned(batch, mode, needs)
        if offsets is not None:
            needs.add(self._sources.up_to(offsets))
        if is_passed_over(self._inspection, batch):
            reason = "it says that a batch was done which a repartition passed over: the sink has not got its rows"
            needs.findings.append(CheckpointFinding(f"{COMMITS}/{batch}", Fault.INCONSISTENT, reason))
            return needs
        commit = self._commit(batch, needs)
        if commit is not None:
            if mode is StartMode.REAL_TIME:
                needs.findings += real_time_refusals(commit, batch)
            needs.add(self._state.after(batch, commit))
        return needs

    def _identity(self) -> Needs:
        if self.layout.metadata is None:
            before_4 = self._of_spark_3()
            reason = "it holds the query's id" + (": Spark 3.5 takes another one" if before_4 else "")
            return Needs(findings=[CheckpointFinding(METADATA, Fault.MISSING, reason, stops=not before_4)])
        needs = Needs([self.layout.metadata])
        try:
            self._inspection.query_metadata(self.layout.metadata)
        except CheckpointDamaged as error:
            needs.findings.append(damage(METADATA, error))
        return needs

    def _of_spark_3(self) -> bool:
        """Return whether a Spark before 4.0 planned the last batch."""
        offsets = self._offsets(max(self.layout.offsets, default=-1), Needs())
        return offsets is not None and offsets.before_operator_metadata

    def _offsets(self, batch: int, needs: Needs) -> Offsets | None:
        absent = f"it says where batch {batch} ends"
        entry = self.layout.offsets.get(batch)
        return self._read(f"{OFFSETS}/{batch}", entry, self._inspection.offsets, absent, needs)

    def _commit(self, batch: int, needs: Needs) -> BatchCommit | None:
        absent = f"it says that batch {batch} was done"
        entry = self.layout.commits.get(batch)
        return self._read(f"{COMMITS}/{batch}", entry, self._inspection.commit, absent, needs)

    @staticmethod
    def _read(
        path: str, entry: TreeEntry | None, read: Callable[[TreeEntry], T], absent: str, needs: Needs
    ) -> T | None:
        """Read an entry and add it to the needed files. If that fails, add a finding and return None."""
        if entry is None:
            needs.findings.append(CheckpointFinding(path, Fault.MISSING, absent))
            return None
        needs.files.append(entry)
        try:
            return read(entry)
        except CheckpointDamaged as error:
            needs.findings.append(damage(path, error))
            return None


def _missing(entries: dict[int, TreeEntry]) -> list[int]:
    """Return the first `_GAPS_MAX` numbers that are missing between the lowest and the highest."""
    missing: list[int] = []
    numbers = sorted(entries)
    for before, after in pairwise(numbers):
        missing += range(before + 1, min(after, before + 1 + _GAPS_MAX))
    return missing[:_GAPS_MAX]
