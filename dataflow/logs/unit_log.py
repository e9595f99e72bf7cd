"""The log of a unit: its outputs, and the control tuples of its windows, each as a stream log.

Rows of the output are durable before the tuples that refer to them. Each start of a unit, and each attempt after a
failure, writes a separate log with a higher number. Its first commit contains all windows; once that is durable,
the older logs are deleted. So a writer that was wrongly considered dead does no harm, and no writer waits for
another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.core.messages import CheckpointId, sequence_of
from peacefs.dataflow.limits import dataflow_state_bytes_max
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.unit_state.interface import Groups
from peacefs.dataflow.unit_state.paged_state import PagedState
from peacefs.dataflow.window_checkpoints.commits import LoadedLog, WindowCommit
from peacefs.dataflow.window_checkpoints.control_tuples import (
    BUCKET,
    COMMIT,
    HEAD,
    KIND,
    OPEN,
    STATE,
    CommitDetail,
    TupleKind,
    detail_of,
)
from peacefs.dataflow.window_checkpoints.footprints import COMMIT_OF_WINDOW, NEWEST, by_bucket
from peacefs.dataflow.window_checkpoints.replay import newest_rows
from peacefs.protocol.errors import LogDamaged, PeacefsError
from peacefs.protocol.limits import MIB
from peacefs.state.checkpoints.checkpointer import Checkpointer
from peacefs.state.checkpoints.memory_store import MemoryStore
from peacefs.state.checkpoints.outcome import PublishedPages, RunningCheckpoint
from peacefs.state.pages.manager import PageManager

from .log_reader import LogReader
from .segments import SegmentStore
from .stream_log import StreamLog, StreamLogs

cec_segment_bytes: Final = 8 * MIB


_RESULTS = "results"
_WINDOWS = "windows"


class UnitLogWriter:
    """Writes the commits of one start of a unit, one at a time."""

    def __init__(
        self,
        store: SegmentStore,
        unit: str,
        incarnation: int,
        threads: Executor | None = None,
        *,
        segment_bytes: int = cec_segment_bytes,
    ) -> None:
        """`threads`: where it writes. Without it, the thread that appends writes."""
        self._store, self._unit, self._incarnation = store, unit, incarnation
        self._threads, self._segment_bytes = threads, segment_bytes
        # Number of logs that this start has begun.
        self._begun = 0
        self._logs: StreamLogs | None = None
        self._results: dict[str, StreamLog] = {}
        self._windows: StreamLog

    def append(self, commit: WindowCommit, running: RunningCheckpoint) -> None:
        if self._threads is None:
            self._append(commit, running)
        else:
            self._threads.submit(self._append, commit, running)

    def _append(self, commit: WindowCommit, running: RunningCheckpoint) -> None:
        try:
            written = self._write(commit)
        except (PeacefsError, OSError) as fault:
            self._logs = None
            running.fail(fault)
        except BaseException as error:
            running.fail(error)
            raise
        else:
            commit.bytes_written = written
            running.succeed(PublishedPages(running.sequence, 0, 0, written, running.pause_s, ()))

    def _write(self, commit: WindowCommit) -> int:
        if commit.begins:
            self._begin(commit)
        assert self._logs is not None, "the first commit begins the log"
        results = [(stream, batch) for stream, batches in commit.results.items() for batch in batches]
        for stream, batch in results:
            self._results[stream].append(batch)
        if results:
            self._logs.commit()
        self._windows.append(Batch(self._windows.last + 1, commit.tuples))
        self._logs.commit()
        if commit.begins:
            self._delete_earlier()
        else:
            for stream, floor in commit.floors.items():
                self._results[stream].trim(floor)
            self._windows.trim(commit.first_tuple - 1)
        return int(sum(batch.bytes for _, batch in results) + commit.tuples.nbytes)

    def _begin(self, commit: WindowCommit) -> None:
        self._begun += 1
        sequence = sequence_of((self._incarnation, self._begun))
        self._logs = StreamLogs(self._store, segment_bytes=self._segment_bytes)
        self._results = {
            stream: self._logs.open(_stream(self._unit, sequence, _results_part(at)), kind)
            for at, (stream, kind) in enumerate(commit.results_types.items())
        }
        self._windows = self._logs.open(_stream(self._unit, sequence, _WINDOWS), commit.tuples_type)

    def _delete_earlier(self) -> None:
        current = sequence_of((self._incarnation, self._begun))
        for stream in self._store.streams():
            sequence = _sequence(self._unit, stream)
            if sequence is not None and sequence < current:
                for segment, _ in self._store.segments(stream):
                    self._store.delete(stream, segment)


def read_unit_log(store: SegmentStore, unit: str, before: CheckpointId) -> LoadedLog | None:
    """Load the newest log of a unit's starts before `before`; None if there is none.

    Raises LogDamaged if a record is corrupt, and FileNotFound if a live writer trims the log meanwhile.
    """
    limit = sequence_of((before[0], 1))
    found = {_sequence(unit, stream) for stream in store.streams()}
    for sequence in sorted((each for each in found if each is not None and each < limit), reverse=True):
        loaded = _read(store, unit, sequence)
        if loaded is not None:
            return loaded
    return None


def _read(store: SegmentStore, unit: str, sequence: int) -> LoadedLog | None:
    """Read one log backwards, until every open window was found."""
    detail: CommitDetail | None = None
    windows = 0
    found: list[pa.Table] = []
    tuples = 0
    commits: dict[int, Mapping[str, Sequence[Any]]] = {}
    name = _stream(unit, sequence, _WINDOWS)
    search = _Search()
    for batch in LogReader(store, name).backwards():
        rows = batch.rows
        tuples += rows.num_rows
        ends = np.flatnonzero(rows.column(KIND).to_numpy() == TupleKind.RESULT)
        for at in reversed(ends.tolist()):
            each = detail_of(rows, at)
            commits[each.place.commit] = each.place.inputs
            if detail is None:
                detail, windows = each, rows.column(OPEN)[at].as_py()
        assert detail is not None, "a record of tuples ends with a result"
        if BUCKET in rows.schema.names:
            found.append(search.take(rows, detail.closed_before))
        if search.open_windows >= windows:
            break
    if detail is None:
        return None
    if search.open_windows != windows or (windows and search.oldest != detail.since.commit):
        raise LogDamaged(
            f"the log of unit {unit!r} ends with {windows} open windows, and {search.open_windows} were found "
            f"back to commit {search.oldest} of {detail.since.commit}"
        )
    return LoadedLog(
        detail,
        [(number, commits[number]) for number in sorted(commits) if number > detail.since.commit]
        if windows
        else [(detail.place.commit, detail.place.inputs)],
        pa.concat_tables(found) if found else None,
        search.seen(),
        _results(store, unit, sequence, detail),
        tuples,
    )


def _results(store: SegmentStore, unit: str, sequence: int, detail: CommitDetail) -> dict[str, list[Batch]]:
    """Read the rows of each output that consumers may request. Outputs are in the order of their logs."""
    found: dict[str, list[Batch]] = {}
    for at, (stream, last) in enumerate(detail.results.items()):
        if last > detail.floors[stream]:
            reader = LogReader(store, _stream(unit, sequence, _results_part(at)))
            found[stream] = list(reader.read(detail.floors[stream], upto=last))
    return found


class _Search:
    """The search for the newest tuple of each window, from the end of a log backwards."""

    def __init__(self) -> None:
        self.open_windows = 0
        self.oldest: int | None = None
        self._seen: list[pa.Table] = []
        self._known: Groups | None = None

    def take(self, rows: pa.RecordBatch, closed_before: int) -> pa.Table:
        """Return the footprints of open windows that were not found before."""
        table = pa.Table.from_batches([rows])
        ids = [name for name in table.column_names[len(HEAD) :] if not name.startswith(STATE)]
        if self._known is None:
            keys = pa.schema([table.schema.field(name) for name in ids if name != BUCKET])
            pages = PageManager(memory_bytes_max=dataflow_state_bytes_max)
            checkpointer = Checkpointer(pages, MemoryStore(), "search", keep=None)
            self._known = PagedState(pages, checkpointer).groups("known", keys, [COMMIT_OF_WINDOW])
        wanted = compute.and_(
            compute.not_equal(table.column(KIND), int(TupleKind.RESULT)),
            compute.fill_null(compute.greater_equal(table.column(BUCKET), closed_before), False),
        )
        table = newest_rows(table.filter(wanted), ids, COMMIT)
        new = [
            part.filter(compute.is_null(self._known.find(bucket, part).column(NEWEST)))
            for bucket, part in by_bucket(table)
        ]
        table = pa.concat_tables([table.slice(0, 0), *new])
        if not table.num_rows:
            return table
        once = table.group_by([*ids, COMMIT, KIND], use_threads=False).aggregate([])
        marked = once.select([*ids, COMMIT]).rename_columns([*ids, NEWEST])
        self._seen.append(marked)
        for bucket, part in by_bucket(marked):
            for batch in part.combine_chunks().to_batches():
                self._known.put(bucket, batch)
        opened = compute.not_equal(once.column(KIND), int(TupleKind.CLOSE))
        commits = once.column(COMMIT).filter(opened)
        if len(commits):
            self.open_windows += len(commits)
            oldest = compute.min(commits).as_py()
            self.oldest = oldest if self.oldest is None else min(self.oldest, oldest)
        return table.filter(compute.not_equal(table.column(KIND), int(TupleKind.CLOSE)))

    def seen(self) -> pa.Table | None:
        return pa.concat_tables(self._seen) if self._seen else None


def _results_part(at: int) -> str:
    """Return the name of the log of an output, given the output's index in the unit's plan."""
    return _RESULTS if at == 0 else f"{_RESULTS}-{at + 1}"


def _stream(unit: str, sequence: int, part: str) -> str:
    return f"{unit} {sequence:012} {part}"


def _sequence(unit: str, stream: str) -> int | None:
    """Return the number of a unit's log, given the name of one of its streams."""
    name, _, rest = stream.rpartition(" ")
    owner, _, number = name.rpartition(" ")
    if rest.partition("-")[0] not in (_RESULTS, _WINDOWS) or owner != unit or not number.isdigit():
        return None
    return int(number)
