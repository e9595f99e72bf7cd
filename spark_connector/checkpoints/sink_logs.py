"""Judge the log of a file sink together with the checkpoint of the query that writes to the sink.

The sink keeps an entry per batch in `_spark_metadata`, outside the root. Spark skips a batch that the log lists,
or that is older than its last entry. Both compaction and readers of the sink read the log from its last compaction
on, and fail if an entry is missing. A repartition of the state is a batch of the checkpoint, but leaves no entry.
"""

from __future__ import annotations

import posixpath

from peacefs.protocol.errors import BadRequest, CheckpointDamaged, FileNotFound

from .findings import CheckpointFinding, Fault, damage
from .inspection import Inspection
from .layout import LOG_GAP_MAX, SINK_LOG, LogFiles, arrange, place_in_log
from .needs import Needs
from .repartitions import is_passed_over, repartition_of
from .tree import FileTree, files_below

_NEXT_COMPACTION = "once more batches are written, Spark fails when it next compacts the log, and so do readers"


class SinkLog:
    """The log of the file sink whose directory is `sink`. Raises BadRequest if there is none."""

    def __init__(self, tree: FileTree, sink: str) -> None:
        self._directory = posixpath.join(sink, SINK_LOG)
        try:
            entries = list(files_below(tree, self._directory))
        except FileNotFound:
            raise BadRequest(f"{self._directory} is not there: is {sink} a file sink's?") from None
        self._inspection = Inspection(tree, arrange(self._directory, entries))
        self._log = LogFiles()
        for entry in entries:
            place_in_log(self._log, entry)

    def restart(self, checkpoint: Inspection, first: int) -> Needs:
        """Check the log for a start that begins with batch `first`."""
        needs = self._entries(self._log, first)
        latest = -1 if self._log.latest is None else self._log.latest
        planned, committed = (
            max(log, default=-1) for log in (checkpoint.layout.offsets, checkpoint.layout.commits)
        )
        if latest > first or (latest == first and planned != first):
            skipped = f"batch {first}" if latest == first else f"batches {first} to {latest}"
            reason = f"the sink has {skipped}: Spark skips what comes under these numbers; roll back --with-sink"
            self._find(needs, latest, Fault.INCONSISTENT, reason, noticed=False)
        elif latest == first and self._has_unique_ids(checkpoint, committed):
            reason = f"the sink has batch {first}, which Spark skips, and then has no unique ids of its state"
            self._find(needs, latest, Fault.INCONSISTENT, reason)
        for batch in [made for made in sorted(checkpoint.layout.commits) if made > latest][:LOG_GAP_MAX]:
            if repartition_of(checkpoint, batch) is not None:
                reason = f"batch {batch} repartitioned the state, and left no entry: {_NEXT_COMPACTION}"
                self._find(needs, batch, Fault.MISSING, reason, stops=False)
            elif not is_passed_over(checkpoint, batch):
                reason = f"batch {batch} was done, and the sink's log has no entry of it: its rows are not read"
                self._find(needs, batch, Fault.MISSING, reason, noticed=False)
        return needs

    def batch(self, batch: int) -> Needs:
        """Check the log as a rollback to `batch` would leave it."""
        needs = self._entries(self._log.up_to(batch))
        if self._log.up_to(batch).latest != batch:
            reason = f"the sink's log has no entry of batch {batch}, and would miss it when it is compacted"
            self._find(needs, batch, Fault.MISSING, reason)
        return needs

    def _entries(self, log: LogFiles, first: int | None = None) -> Needs:
        """Check the entries that are read. If one is missing, a start at `first` fails at the next compaction."""
        needs = Needs()
        for number, entry in log.needed():
            if entry is None:
                at = None if first is None else ((first + log.interval) // log.interval) * log.interval - 1
                compacts = "" if at is None else f", and Spark does at batch {at}, which compacts the log"
                reason = f"readers of the sink fail without it{compacts}"
                self._find(needs, number, Fault.MISSING, reason, stops=at == first)
                continue
            needs.files.append(entry)
            try:
                self._inspection.file_log(entry)
            except CheckpointDamaged as error:
                needs.findings.append(damage(entry.path, error))
        return needs

    def _find(
        self, needs: Needs, number: int, fault: Fault, reason: str, *, stops: bool = True, noticed: bool = True
    ) -> None:
        path = posixpath.join(self._directory, self._log.name(number))
        needs.findings.append(CheckpointFinding(path, fault, reason, stops, noticed))

    @staticmethod
    def _has_unique_ids(checkpoint: Inspection, committed: int) -> bool:
        entry = checkpoint.layout.commits.get(committed)
        try:
            return entry is not None and bool(checkpoint.commit(entry).state_unique_ids)
        except CheckpointDamaged:
            return False
