"""Sources and sinks as participants of the exchange: producers and consumers without operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.query.network import SinkNode, SourceNode, sink_unit, source_unit
from peacefs.protocol.limits import MIB

from .effects import CommitRows, Deliver, Effect, SinkEnded, StopQuery
from .ha_input import HAInput
from .ha_output import HAOutput
from .messages import Ack
from .query_recovery import QueryRecovery
from .unit_output import make_output

# Maximum number of bytes that wait for a sink to commit them. Above that, the sink takes no more rows.
dataflow_uncommitted_bytes_max: Final = 64 * MIB


class SourceUnit:
    """A producer of external rows. Like every producer, it keeps rows as long as the technique wants."""

    def __init__(
        self, source: SourceNode, recovery: QueryRecovery, *, buffer_bytes_max: int, after: int = 0
    ) -> None:
        """`after`: the number of the last row that no consumer needs any more. The first row comes after it."""
        self.name = source_unit(source.name)
        self.incarnation, self.slot = 1, 0
        self._buffer_bytes_max = buffer_bytes_max
        self._output = make_output(source.name, recovery)
        if after:
            self._output.begin_after(after)
        self.inputs: dict[str, HAInput] = {}
        self.outputs = {source.name: self._output}

    @property
    def has_room(self) -> bool:
        """True if the source accepts rows now. If not, its consumers are slow or away."""
        return self._output.has_room(self._buffer_bytes_max)

    @property
    def held_bytes(self) -> int:
        """Bytes of the rows that a consumer may still request."""
        return self._output.buffer.held_bytes

    @property
    def released(self) -> int:
        """The number of the last row that no consumer needs any more, whatever fails."""
        return self._output.buffer.first_held - 1

    def offer(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._output.emit(rows)

    def end(self) -> None:
        self._output.end()


class SinkUnit:
    """A consumer whose rows leave the query.

    Rows are safe once they are delivered. If the sink commits, they are safe once it has committed them.
    """

    def __init__(self, sink: SinkNode, *, credit_bytes: int, delivered: int = 0, commits: bool = False) -> None:
        self.name = sink_unit(sink.name)
        self.incarnation, self.slot = 1, 0
        self._sink = sink.name
        self._input = HAInput(sink.input, self.name, 1, Position(0, delivered), credit_bytes=credit_bytes)
        self.inputs = {sink.input: self._input}
        self.outputs: dict[str, HAOutput] = {}
        self._commits = commits
        self._committed = delivered
        # Of delivered batches that are not committed: the last number and the bytes.
        self._uncommitted: deque[tuple[int, int]] = deque()
        self._uncommitted_bytes = 0
        self._asked_to_commit = False

    @property
    def ended(self) -> bool:
        return self._input.ended

    def deliver(self) -> Iterator[Effect]:
        """Yield rows to deliver, and the end."""
        while self._uncommitted_bytes < dataflow_uncommitted_bytes_max and self._input.next() is not None:
            batch = self._input.take()
            if self._commits:
                self._uncommitted.append((batch.last, batch.bytes))
                self._uncommitted_bytes += batch.bytes
                if self._input.processed.lineage:
                    yield StopQuery(
                        f"the rows of sink {self._sink!r} have new numbers after a failure, so a commit cannot "
                        "tell them from earlier rows: use a precise technique, as SGuard(interval_s=1)"
                    )
                    return
            yield Deliver(self._sink, self._input.processed.lineage, batch)
        if not self._input.at_end():
            return
        if self._uncommitted:
            if not self._asked_to_commit:
                self._asked_to_commit = True
                yield CommitRows(self._sink)
            return
        self._input.ended = True
        yield SinkEnded(self._sink)

    def committed(self, number: int) -> None:
        """Note that the sink has committed the rows up to a number."""
        self._committed = max(self._committed, number)
        while self._uncommitted and self._uncommitted[0][0] <= number:
            self._uncommitted_bytes -= self._uncommitted.popleft()[1]

    def acknowledge(self) -> Ack:
        """Acknowledge the rows that are safe."""
        lineage, number = self._input.processed
        return self._input.acknowledge(
            RowStage.SAFE, Position(lineage, self._committed if self._commits else number)
        )
