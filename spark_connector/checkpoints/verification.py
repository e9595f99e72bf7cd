"""Judges a checkpoint: whether a query could go on from it, and from which batch at the latest.

To go on from batch N Spark reads `metadata`, `offsets/N` and `offsets/N-1`, `commits/N`, the logs of its file
sources from the last compaction on, what the stateful operators say of themselves, and state version N+1 of every
store of every partition. A batch that was planned after N is repeated: then its offsets are needed as well.

What names cannot tell: whether a query of format 1 had state whose directory is gone altogether.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from peacefs.protocol.errors import BadRequest, CheckpointDamaged
from peacefs.protocol.limits import checkpoint_partitions_max

from .findings import CheckpointFinding, Fault, Note, Verdict, damage
from .formats.logs import BatchCommit, Offsets
from .formats.operators import Operator, StoreInfo, path_of
from .inspection import Inspection
from .layout import (
    COMMITS,
    FIRST_FORM,
    METADATA,
    OFFSETS,
    SOURCES,
    STATE,
    StateVersion,
    StoreFiles,
    StoreKey,
)
from .state_chain import ChainFinder
from .tree import Entry

_NO_STATE = "there is none: good for a query without state; of one with state it cannot be told that all is lost"
_NOT_DESCRIBED = (
    "a Spark before 4.0 wrote it, which keeps no metadata of operators: its stores and partitions were taken from "
    "what there is and from the offsets"
)


@dataclass(slots=True)
class Needs:
    """The files that resuming from a batch needs, the faults in them, and those that could not be verified.

    `partial`: there may be more that it takes.
    """

    files: list[Entry] = field(default_factory=list)
    findings: list[CheckpointFinding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    partial: bool = False

    @property
    def stops(self) -> bool:
        return any(finding.stops for finding in self.findings)

    def add(self, other: Needs) -> None:
        self.files += other.files
        self.findings += other.findings
        self.notes += other.notes
        self.partial |= other.partial


def verify(inspection: Inspection, batch: int | None = None) -> Verdict:
    """Judges `batch`, or the latest that was done. Raises BadRequest for what is no checkpoint."""
    layout = inspection.layout
    if not layout.is_checkpoint:
        raise BadRequest(f"{layout.root} is no checkpoint of Spark's: it lacks {OFFSETS} and {METADATA}")
    judge = BatchVerifier(inspection)
    committed = max(layout.commits, default=None)
    judged = committed if batch is None else batch
    always = judge.always()
    needs = judge.batch(judged) if judged is not None else Needs()
    findings = _distinct(always.findings + needs.findings + judge.sequence(judged))
    last_good = None if always.stops else _last_good(judge, judged)
    return Verdict(
        root=layout.root,
        query=judge.query(),
        planned=max(layout.offsets, default=None),
        committed=committed,
        batch=judged,
        last_good=last_good,
        restarts=not any(finding.stops for finding in findings) and judged == committed,
        files_read=inspection.files_read,
        bytes_read=inspection.bytes_read,
        findings=sorted(findings, key=lambda finding: (not finding.stops, finding.path)),
        notes=sorted(set(needs.notes), key=lambda note: note.path),
    )


def _distinct(findings: list[CheckpointFinding]) -> list[CheckpointFinding]:
    """Without what is said of a file twice, in one place more gravely than in the other."""
    by_file: dict[tuple[str, Fault], CheckpointFinding] = {}
    for finding in sorted(findings, key=lambda each: not each.stops):
        by_file.setdefault((finding.path, finding.fault), finding)
    return list(by_file.values())


def _last_good(judge: BatchVerifier, judged: int | None) -> int | None:
    if judged is None:
        return None
    for batch in sorted((done for done in judge.layout.commits if done <= judged), reverse=True):
        if not judge.batch(batch).stops:
            return batch
    return None


class BatchVerifier:
    """Judges the batches of one checkpoint. Files are read once, however many batches are judged."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self.layout = inspection.layout
        self._batches: dict[int, Needs] = {}

    def query(self) -> str | None:
        """The query's id, if it can be read."""
        try:
            return self._inspection.query_metadata(self.layout.metadata).id if self.layout.metadata else None
        except CheckpointDamaged:
            return None

    def always(self) -> Needs:
        """Check what a restart needs, from whichever batch."""
        needs = Needs()
        if self.layout.metadata is None:
            needs.findings.append(CheckpointFinding(METADATA, Fault.MISSING, "it holds the query's id"))
        else:
            needs.files.append(self.layout.metadata)
            try:
                self._inspection.query_metadata(self.layout.metadata)
            except CheckpointDamaged as error:
                needs.findings.append(damage(METADATA, error))
        for source in self.layout.sources:
            needs.add(self._source(source))
        return needs

    def batch(self, batch: int) -> Needs:
        """Check what resuming from a completed batch needs besides."""
        if batch not in self._batches:
            self._batches[batch] = self._judge(batch)
        return self._batches[batch]

    def sequence(self, judged: int | None) -> list[CheckpointFinding]:
        """Check that offsets and commits follow each other, and judge the batch that would be repeated."""
        offsets, commits = self.layout.offsets, self.layout.commits
        findings = [*_gaps(OFFSETS, offsets), *_gaps(COMMITS, commits)]
        planned, committed = max(offsets, default=None), max(commits, default=None)
        if judged != committed or planned is None:
            return findings
        first_open = 0 if committed is None else committed + 1
        if planned > first_open:
            done = "no batch is said to be done" if committed is None else f"the last one done is {committed}"
            reason = f"batch {planned} is planned, and {done}: Spark expects {first_open}"
            findings.append(
                CheckpointFinding(f"{OFFSETS}/{planned}", Fault.INCONSISTENT, reason, bool(self.layout.stores))
            )
        if planned >= first_open:
            findings += self._offsets(planned).findings
            if planned > 0:
                findings += self._offsets(planned - 1).findings
        return findings

    def _judge(self, batch: int) -> Needs:
        needs = Needs()
        needs.add(self._offsets(batch))
        if batch > 0:
            needs.add(self._offsets(batch - 1))
        entry = self.layout.commits.get(batch)
        path = f"{COMMITS}/{batch}"
        if entry is None:
            needs.findings.append(CheckpointFinding(path, Fault.MISSING, f"it says that batch {batch} was done"))
            return needs
        needs.files.append(entry)
        try:
            commit = self._inspection.commit(entry)
        except CheckpointDamaged as error:
            needs.findings.append(damage(path, error))
            return needs
        if not self.layout.operators and not self.layout.stores and commit.state_unique_ids is None:
            needs.notes.append(Note(STATE, _NO_STATE))
        for operator in self._operators(commit):
            needs.add(self._operator(operator, batch, commit))
        return needs

    def _offsets(self, batch: int) -> Needs:
        path = f"{OFFSETS}/{batch}"
        entry = self.layout.offsets.get(batch)
        if entry is None:
            return Needs(findings=[CheckpointFinding(path, Fault.MISSING, f"it says where batch {batch} ends")])
        try:
            offsets = self._inspection.offsets(entry)
        except CheckpointDamaged as error:
            return Needs([entry], [damage(path, error)])
        return Needs([entry], self._source_ends(path, offsets))

    def _source_ends(self, path: str, offsets: Offsets) -> list[CheckpointFinding]:
        """File sources whose logs end before what the batch has read."""
        found = []
        for source in range(len(offsets.sources)):
            end = offsets.file_log_end(source)
            log = self.layout.sources.get(source)
            latest = log.latest if log is not None else None
            if end is not None and end >= 0 and (latest is None or latest < end):
                there = "is empty" if latest is None else f"ends with {latest}"
                reason = f"it names entry {end} of {SOURCES}/{source}, which {there}"
                found.append(CheckpointFinding(path, Fault.INCONSISTENT, reason))
        return found

    def _source(self, source: int) -> Needs:
        """The log of a file source, or the note of another source."""
        needs = Needs()
        is_file_source = self._is_file_source(source)
        for number, entry in self.layout.sources[source].needed():
            if entry is None:
                path = f"{SOURCES}/{source}/{number}"
                if is_file_source:
                    reason = "the source's log has a gap: Spark reads it from the last compaction on"
                    needs.findings.append(CheckpointFinding(path, Fault.MISSING, reason))
                continue
            needs.files.append(entry)
            try:
                if is_file_source:
                    self._inspection.file_log(entry)
                else:
                    self._inspection.source_note(entry)
            except CheckpointDamaged as error:
                needs.findings.append(damage(self.layout.relative(entry), error))
        return needs

    def _is_file_source(self, source: int) -> bool:
        for batch in sorted(self.layout.offsets, reverse=True):
            try:
                return self._inspection.offsets(self.layout.offsets[batch]).file_log_end(source) is not None
            except CheckpointDamaged:
                continue
        return False

    # -- state -------------------------------------------------------------------------------------

    def _operators(self, commit: BatchCommit) -> list[int]:
        """Those that there are, those that the commit names, and the first that is skipped."""
        known = {*self.layout.operators, *(commit.state_unique_ids or ())}
        skipped = next((number for number in range(len(known)) if number not in known), None)
        return sorted(known if skipped is None else {*known, skipped})

    def _operator(self, number: int, batch: int, commit: BatchCommit) -> Needs:
        needs = Needs()
        operator = self._described(number, batch, needs)
        if operator is not None:
            self._schemas(number, operator, needs)
        for key in self._stores(number, operator, batch):
            ids = self._unique_ids(commit, key)
            needs.add(self._state(key, batch + 1, ids))
        return needs

    def _described(self, number: int, batch: int, needs: Needs) -> Operator | None:
        files = self.layout.operators.get(number)
        of_batch = max((made for made in files.metadata if made <= batch), default=None) if files else None
        directory = f"{STATE}/{number}/_metadata"
        if of_batch is None and files is not None and self._describes_none(batch):
            needs.notes.append(Note(f"{STATE}/{number}", _NOT_DESCRIBED))
            return None
        if files is None or of_batch is None:
            reason = "it says which stores and partitions the operator has"
            needs.findings.append(CheckpointFinding(f"{directory}/metadata", Fault.MISSING, reason, files is None))
            return None
        entry = files.metadata[of_batch]
        needs.files.append(entry)
        try:
            return self._inspection.operator(entry)
        except CheckpointDamaged as error:
            # In version 1 only readers of state need it, not a restart.
            needs.findings.append(damage(self.layout.relative(entry), error, stops=of_batch != FIRST_FORM))
            return None

    def _describes_none(self, batch: int) -> bool:
        """Return whether the batch was planned by a Spark that knows no metadata of operators."""
        offsets = self._readable_offsets(batch)
        return offsets is not None and offsets.before_operator_metadata

    def _readable_offsets(self, batch: int) -> Offsets | None:
        entry = self.layout.offsets.get(batch)
        try:
            return self._inspection.offsets(entry) if entry is not None else None
        except CheckpointDamaged:
            return None

    def _schemas(self, number: int, operator: Operator, needs: Needs) -> None:
        for store in operator.state_store_info:
            for path, entry, elsewhere in self._schema_files(number, store):
                if elsewhere:
                    reason = f"the operator's metadata names {elsewhere}, which is not below this root"
                    needs.findings.append(CheckpointFinding(path, Fault.INCONSISTENT, reason))
                elif entry is None:
                    # Spark rewrites the older versions, and then no longer notices a query that does not fit.
                    reason = "it holds the schema of the state"
                    stops = bool(store.state_schema_file_paths)
                    needs.findings.append(CheckpointFinding(path, Fault.MISSING, reason, stops))
                if entry is not None:
                    needs.files.append(entry)
                    try:
                        self._inspection.schema(entry)
                    except CheckpointDamaged as error:
                        needs.findings.append(damage(path, error))

    def _schema_files(self, number: int, store: StoreInfo) -> list[tuple[str, Entry | None, str | None]]:
        """Path, file, and the URI by which it is named if that leads elsewhere."""
        if not store.state_schema_file_paths:
            key = StoreKey(number, 0, store.store_name)
            files = self.layout.stores.get(key, StoreFiles())
            return [(f"{key.directory}/_metadata/schema", files.schema, None)]
        found = []
        directory = f"{STATE}/{number}/_stateSchema/{store.store_name}"
        for uri in store.state_schema_file_paths:
            named = path_of(uri)
            path = f"{directory}/{named.rpartition('/')[2]}"
            elsewhere = None if named == f"{self.layout.named}/{path}" else uri
            found.append((path, self.layout.by_path.get(path), elsewhere))
        return found

    def _stores(self, number: int, operator: Operator | None, batch: int) -> list[StoreKey]:
        """The operator's stores in every partition.

        Where no metadata of the operator can be read, the stores that there are, in as many partitions as the
        batch was shuffled into; an operator that has state in partition 0 alone may have no other.
        """
        there = [key for key in self.layout.stores if key.operator == number]
        if operator is None:
            offsets = self._readable_offsets(batch)
            shuffled = (offsets.shuffle_partitions if offsets is not None else None) or 0
            if not 0 < shuffled <= checkpoint_partitions_max or {key.partition for key in there} <= {0}:
                return there
            expected = {StoreKey(number, part, key.store) for key in there for part in range(shuffled)}
            return sorted({*there, *expected})
        return [
            StoreKey(number, partition, store.store_name)
            for store in operator.state_store_info
            for partition in range(store.num_partitions)
        ]

    @staticmethod
    def _unique_ids(commit: BatchCommit, key: StoreKey) -> list[str] | None:
        """The ids of the operator's stores in this partition; None in format 1."""
        of_operator = (commit.state_unique_ids or {}).get(key.operator)
        if not of_operator:
            return None
        return of_operator[key.partition] if key.partition < len(of_operator) else []

    def _state(self, key: StoreKey, number: int, ids: list[str] | None) -> Needs:
        files = self.layout.stores.get(key)
        if files is None:
            reason = f"there is no state of partition {key.partition}"
            return Needs(findings=[CheckpointFinding(key.directory, Fault.MISSING, reason)])
        version = StateVersion(number, None)
        if ids is not None:
            candidates = [StateVersion(number, uid) for uid in ids]
            present = [found for found in candidates if found in files.changes or found in files.snapshots]
            if not present:
                reason = f"{COMMITS}/{number - 1} names unique ids of which none is that of a file here"
                return Needs(findings=[CheckpointFinding(f"{key.directory}/{number}_*", Fault.MISSING, reason)])
            version = present[0]
        chain = ChainFinder(self._inspection, key, files).find(version)
        return Needs(chain.files, chain.findings, chain.notes, chain.partial)


def _gaps(log: str, entries: dict[int, Entry]) -> list[CheckpointFinding]:
    """Batches that are missing between others. A restart does not look at them."""
    return [
        CheckpointFinding(f"{log}/{before + 1}", Fault.MISSING, f"the next one there is {after}", stops=False)
        for before, after in pairwise(sorted(entries))
        if after > before + 1
    ]
