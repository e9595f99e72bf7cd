"""Arrow batches, first in, first out, in a queue of pages.

A batch is an IPC message in words: its label, its length in bytes, and its bytes, padded to a word. It is written
once, when it arrives. Full pages never change, so that checkpoints can refer to them. The batches are also in
memory, since operators compute with them as Arrow batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from peacefs.state.pages.page_set import PageSet
from peacefs.state.structures.sequences import Queue

_WORDS = pa.schema([("word", pa.int64())])


class BatchLog:
    def __init__(self, page_set: PageSet, schema: pa.Schema) -> None:
        self._schema = schema
        self._queue = Queue.create(page_set, _WORDS)
        self._batches: deque[tuple[int, pa.RecordBatch, int]] = deque()
        self._recover()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (label, batch) in the order of arrival."""
        for label, batch, _ in self._batches:
            yield label, batch

    def append(self, label: int, rows: pa.RecordBatch) -> None:
        message = np.frombuffer(rows.serialize(), np.uint8)
        words = np.zeros(2 + -(-len(message) // 8), np.int64)
        words[0], words[1] = label, len(message)
        words[2:].view(np.uint8)[: len(message)] = message
        self._queue.push_batch(words)
        self._batches.append((label, rows, len(words)))

    def pop(self) -> None:
        """Remove the first batch."""
        _, _, words = self._batches.popleft()
        self._queue.pop_batch(words)

    def clear(self) -> None:
        self._queue.clear()
        self._batches.clear()

    def _recover(self) -> None:
        if not len(self._queue):
            return
        words = self._queue.peek_batch(len(self._queue)).column(0).to_numpy()
        at = 0
        while at < len(words):
            label, length = int(words[at]), int(words[at + 1])
            end = at + 2 + -(-length // 8)
            message = words[at + 2 : end].view(np.uint8)[:length]
            rows = pa.ipc.read_record_batch(pa.py_buffer(message), self._schema)
            self._batches.append((label, rows, end - at))
            at = end


class LoggedRows:
    """A queue of rows on top of a log of batches. The first batch may be partly consumed."""

    def __init__(self, log: BatchLog, schema: pa.Schema, dropped: int) -> None:
        self._log = log
        self._schema = schema
        #: The number of rows of the first batch that were dropped.
        self.dropped = dropped

    def append(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._log.append(rows.num_rows, rows)

    def table(self) -> pa.Table:
        table = pa.Table.from_batches([rows for _, rows in self._log], self._schema)
        return table.slice(self.dropped)

    def drop(self, count: int) -> None:
        self.dropped += count
        while len(self._log) and self.dropped >= (first := next(iter(self._log))[0]):
            self._log.pop()
            self.dropped -= first

    def replace(self, rows: pa.Table) -> None:
        self._log.clear()
        self.dropped = 0
        for batch in rows.combine_chunks().to_batches():
            self.append(batch)


class LoggedOutput:
    """Rows of an output by their numbers, on top of a log of batches."""

    def __init__(self, log: BatchLog) -> None:
        self._log = log

    def append(self, first: int, rows: pa.RecordBatch) -> None:
        self._log.append(first, rows)

    def drop_before(self, number: int) -> None:
        while len(self._log):
            first, rows = next(iter(self._log))
            if first + rows.num_rows > number:
                return
            self._log.pop()

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        return iter(self._log)
