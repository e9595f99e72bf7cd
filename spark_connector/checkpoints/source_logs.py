"""Judge the logs of file sources, by the batches that need their entries.

At a start Spark reads the log of a file source from its last compaction on, and again the entries of the repeated
or last committed batch. A rollback to a batch removes later entries, so the batch needs none of them.
"""

from __future__ import annotations

from peacefs.protocol.errors import CheckpointDamaged

from .findings import CheckpointFinding, Fault, damage
from .formats.logs import Offsets
from .inspection import Inspection
from .layout import LOG_GAP_MAX, OFFSETS, SOURCES, LogFiles
from .needs import Needs
from .tree import TreeEntry

_NO_END = -1


class SourceLogs:
    """Judge the logs of file sources, and the notes of other sources, for `BatchVerifier` and `cut`."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._layout = inspection.layout

    def whole(self) -> Needs:
        """Check what a start reads of every source, whichever batch comes next."""
        needs = Needs()
        for source, log in self._layout.sources.items():
            needs.add(self._log(source, log) if self.is_file_source(source) else self._note(source, log))
        return needs

    def entries(self, batch: int, offsets: Offsets, before: Offsets | None) -> Needs:
        """Check the entries that a batch read: a start reads them again."""
        needs = Needs()
        for source in range(len(offsets.sources)):
            end = offsets.file_log_end(source)
            if end is None:
                continue
            start = before.file_log_end(source) if before is not None else None
            if start is not None and start > end:
                reason = (
                    f"it ends with entry {end} of {SOURCES}/{source}, and the batch before it with {start}: a "
                    "repartition skipped that one, and Spark's file source does not go back"
                )
                needs.findings.append(CheckpointFinding(f"{OFFSETS}/{batch}", Fault.INCONSISTENT, reason))
            log = self._layout.sources.get(source, LogFiles())
            latest = _NO_END if log.latest is None else log.latest
            if end > latest:
                there = f"ends with {latest}" if latest >= 0 else "is empty"
                reason = f"it names entry {end} of {SOURCES}/{source}, which {there}"
                needs.findings.append(CheckpointFinding(f"{OFFSETS}/{batch}", Fault.INCONSISTENT, reason))
                end = latest
            missing = 0
            for number in range((_NO_END if start is None else start) + 1, end + 1):
                needs.add(self._entry(source, log, number, batch))
                missing += log.find(number) is None
                if missing > LOG_GAP_MAX:
                    break
        return needs

    def up_to(self, offsets: Offsets) -> Needs:
        """Check the logs as they would be without the entries after `offsets`."""
        needs = Needs()
        for source in range(len(offsets.sources)):
            end = offsets.file_log_end(source)
            if end is not None and end >= 0:
                log = self._layout.sources.get(source, LogFiles()).up_to(end)
                if log.latest == end:
                    needs.add(self._log(source, log))
        for source, log in self._layout.sources.items():
            if not self.is_file_source(source):
                needs.add(self._note(source, log))
        return needs

    def beyond(self, offsets: Offsets) -> list[TreeEntry]:
        """Return the entries of file sources that were made after `offsets`."""
        found: list[TreeEntry] = []
        for source, log in self._layout.sources.items():
            end = offsets.file_log_end(source)
            if end is not None:
                kept = {entry.path for files in _both(log.up_to(end)) for entry in files.values()}
                found += [entry for files in _both(log) for entry in files.values() if entry.path not in kept]
        return found

    def is_file_source(self, source: int) -> bool:
        """Return whether the newest readable offsets show a file source; without any, judge by the log's files."""
        for batch in sorted(self._layout.offsets, reverse=True):
            try:
                return self._inspection.offsets(self._layout.offsets[batch]).file_log_end(source) is not None
            except CheckpointDamaged:
                continue
        log = self._layout.sources.get(source, LogFiles())
        return bool(log.compacts) or (log.latest or 0) > 0

    def _log(self, source: int, log: LogFiles) -> Needs:
        needs = Needs()
        for number, entry in log.needed():
            if entry is None:
                reason = "Spark reads the source's log from its last compaction on"
                needs.findings.append(
                    CheckpointFinding(f"{SOURCES}/{source}/{log.name(number)}", Fault.MISSING, reason)
                )
            else:
                self._read(needs, entry)
        return needs

    def _note(self, source: int, log: LogFiles) -> Needs:
        """Check entry 0 of another kind of source, which keeps a note of its own there."""
        needs = Needs()
        for entry in [log.deltas[0]] if 0 in log.deltas else []:
            needs.files.append(entry)
            try:
                self._inspection.source_note(entry)
            except CheckpointDamaged as error:
                needs.findings.append(damage(self._layout.relative(entry), error))
        return needs

    def _entry(self, source: int, log: LogFiles, number: int, batch: int) -> Needs:
        """Check one entry, in its own file or else in the last compaction."""
        needs = Needs()
        entry = log.find(number)
        if entry is None:
            path = f"{SOURCES}/{source}/{log.name(number)}"
            compacted = log.find(log.compacted) if log.compacted is not None else None
            if compacted is None or not self._holds(compacted, number):
                reason = f"batch {batch} reads it, and no compaction since holds it"
                needs.findings.append(CheckpointFinding(path, Fault.MISSING, reason))
            return needs
        self._read(needs, entry)
        return needs

    def _holds(self, entry: TreeEntry, number: int) -> bool:
        try:
            return any(found.batch_id == number for found in self._inspection.file_log(entry))
        except CheckpointDamaged:
            return False

    def _read(self, needs: Needs, entry: TreeEntry) -> None:
        needs.files.append(entry)
        try:
            self._inspection.file_log(entry)
        except CheckpointDamaged as error:
            needs.findings.append(damage(self._layout.relative(entry), error))


def _both(log: LogFiles) -> tuple[dict[int, TreeEntry], dict[int, TreeEntry]]:
    return log.deltas, log.compacts
