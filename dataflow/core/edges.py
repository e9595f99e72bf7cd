"""Sources and sinks as participants of the exchange: producers and consumers without operators."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.query.network import SinkNode, SourceNode, sink_unit, source_unit

from .effects import Deliver, Effect, SinkEnded
from .ha_input import HAInput
from .ha_output import HAOutput
from .messages import Ack
from .query_recovery import QueryRecovery
from .unit_output import make_output


class SourceUnit:
    """A producer of external rows. Like every producer, it keeps rows as long as the technique wants."""

    def __init__(self, source: SourceNode, recovery: QueryRecovery, *, buffer_bytes_max: int) -> None:
        self.name = source_unit(source.name)
        self.incarnation, self.slot = 1, 0
        self._buffer_bytes_max = buffer_bytes_max
        self._output = make_output(source.name, recovery)
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

    def offer(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._output.emit(rows)

    def end(self) -> None:
        self._output.end()


class SinkUnit:
    """A consumer whose rows leave the query. Rows are safe once they are delivered."""

    def __init__(self, sink: SinkNode, *, credit_bytes: int, delivered: int = 0) -> None:
        self.name = sink_unit(sink.name)
        self.incarnation, self.slot = 1, 0
        self._sink = sink.name
        self._input = HAInput(sink.input, self.name, 1, Position(0, delivered), credit_bytes=credit_bytes)
        self.inputs = {sink.input: self._input}
        self.outputs: dict[str, HAOutput] = {}

    @property
    def ended(self) -> bool:
        return self._input.ended

    def deliver(self) -> Iterator[Effect]:
        while self._input.next() is not None:
            batch = self._input.take()
            yield Deliver(self._sink, self._input.processed.lineage, batch)
        if self._input.at_end():
            self._input.ended = True
            yield SinkEnded(self._sink)

    def acknowledge(self) -> Ack:
        return self._input.acknowledge(RowStage.SAFE, self._input.processed)
