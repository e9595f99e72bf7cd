"""A source that reads parts, remembers their order in a journal, and gives the same rows again after a failure."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from peacefs.dataflow.limits import dataflow_checkpoint_retry_s
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.protocol.errors import PeacefsError, QueryFailed, RunSuperseded

from .interface import Journal, PartReader, Slice, Taken
from .source_history import SourceHistory

# How long a source waits until it can write its journal. After that the query stops, and can be resumed.
dataflow_journal_s_max: Final = 600.0

log = logging.getLogger("peacefs.dataflow")


class PartedSource:
    """The rows of a source in parts. Subclasses choose the reader and the type.

    The order of rows is written to the journal before the query gets them, and then never changes. Rows that a
    consumer may ask for again are read again from their parts. The driver calls `begin`, then iterates, and calls
    `released` from another thread.
    """

    complete = True

    def __init__(self, name: str, kind: StreamType, reader: PartReader) -> None:
        """`name`: the source in messages."""
        self.name = name
        #: The type of the rows, for `query.source(name, source.type)`.
        self.type = kind
        self._reader = reader
        self._journal: Journal | None = None
        self._history: SourceHistory | None = None
        self._released = 0
        self._lock = threading.Lock()

    def begin(self, journal: Journal | None) -> int:
        """Connect, and return the number of the row before the first one. Raises StartupError."""
        stored = None if journal is None else journal.read()
        history = SourceHistory() if stored is None else SourceHistory.decode(stored)
        history.identity = self._reader.open(history.identity, history.starts)
        self._journal, self._history = journal, history
        return history.before

    def released(self, number: int) -> None:
        with self._lock:
            self._released = max(self._released, number)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield rows. While there are none, yield empty batches, so that the consumer can stop."""
        history = self._history
        if history is None:
            self.begin(None)
            history = self._history
            assert history is not None
        try:
            for each in history.slices:
                yield self._again(each)
            empty = self.type.empty()
            while True:
                taken = self._reader.take(history.places)
                self._note(history, taken)
                for _, rows in taken.slices:
                    yield rows
                if taken.ended:
                    return
                if not taken.slices:
                    yield empty
        finally:
            self._reader.close()

    def _again(self, wanted: Slice) -> pa.RecordBatch:
        rows = self._reader.again(wanted)
        if rows.num_rows != wanted.rows:
            raise QueryFailed(
                f"{self.name} has {rows.num_rows} rows in {wanted.part} from {wanted.begin} to {wanted.end}, and "
                f"had {wanted.rows}: rows that a resumed query needs were changed or removed; begin it anew in "
                "another directory"
            )
        return rows

    def _note(self, history: SourceHistory, taken: Taken) -> None:
        """Journal in which order new rows come. Call it before the query gets them."""
        if not taken.slices and not taken.gone:
            return
        history.add(each for each, _ in taken.slices)
        history.forget(taken.gone)
        with self._lock:
            history.release(self._released)
        if self._journal is not None:
            self._write(self._journal, history.encode())

    def _write(self, journal: Journal, data: bytes) -> None:
        began_s = time.monotonic()
        while True:
            try:
                journal.write(data)
                return
            except RunSuperseded:
                raise
            except (PeacefsError, OSError) as fault:
                if time.monotonic() - began_s > dataflow_journal_s_max:
                    raise QueryFailed(
                        f"what {self.name} has read cannot be written for {dataflow_journal_s_max:g} s: {fault}; "
                        "resume the query when its checkpoints can be written again"
                    ) from fault
                log.warning("rows of %s wait until their order can be written: %s", self.name, fault)
                time.sleep(dataflow_checkpoint_retry_s)
