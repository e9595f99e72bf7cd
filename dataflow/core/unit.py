"""An HA unit: operators between HAInputs and HAOutputs, which are run, checkpointed and recovered together.

Given the same state, its output depends on the sequence of its events alone: rows of an input, the end of an
input, the time. It takes no rows while an output has no room: so a slow consumer slows its producers down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from peacefs.dataflow.model.batches import START, Position
from peacefs.dataflow.operators.interface import Operator
from peacefs.dataflow.query.network import Network, UnitPlan
from peacefs.dataflow.techniques.interface import Technique
from peacefs.dataflow.unit_state.interface import StateCapture, UnitState
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import OperatorFailed

from .ha_input import HAInput
from .ha_output import HAOutput
from .messages import sequence_of
from .unit_edges import describe, read


class HAUnit:
    def __init__(
        self,
        plan: UnitPlan,
        network: Network,
        technique: Technique,
        state: UnitState,
        incarnation: int,
        *,
        credit_bytes: int,
        buffer_bytes_max: int,
    ) -> None:
        self.name = plan.name
        self.incarnation = incarnation
        self._plan = plan
        self._state = state
        self._buffer_bytes_max = buffer_bytes_max
        self._journal = state.journal
        described = state.edges()
        edges = None if described is None else read(described)
        #: True if it begins with a checkpoint.
        self.loaded = edges is not None
        self.inputs = {
            stream: HAInput(
                stream,
                plan.name,
                incarnation,
                edges.inputs[stream].processed if edges else START,
                credit_bytes=credit_bytes,
            )
            for stream in plan.inputs
        }
        self.outputs = {
            stream: HAOutput(
                stream,
                network.consumers[stream],
                technique.retention(network.consumers[stream]),
                lineage=technique.lineage(incarnation),
                drops_for_absent=technique.drops_for_absent,
                log=state.numbered_rows(f"rows of {stream}", network.types[stream].schema)
                if technique.takes_checkpoints
                else None,
            )
            for stream in plan.outputs
        }
        if edges:
            for stream, each in self.inputs.items():
                each.ended = edges.inputs[stream].ended
            for stream, output in self.outputs.items():
                output.load(edges.outputs[stream])
        self._operators: dict[str, Operator] = {
            node.name: self._watched(
                node.name, node.specification.start(node.input_types, OperatorState(state, node.name))
            )
            for node in plan.operators
        }
        if self._journal is not None:
            for stream, each in self.inputs.items():
                each.cuts = self._journal.cuts(stream)

    @property
    def wants_time(self) -> bool:
        return self._plan.wants_time

    @property
    def positions(self) -> dict[str, Position]:
        return {stream: each.processed for stream, each in self.inputs.items()}

    def step(self) -> bool:
        """Process the next rows of one input. Return False if there are none, or no room for what they give."""
        if not self._has_room():
            return False
        for stream, source in self.inputs.items():
            batch = source.next()
            if batch is not None:
                if self._journal is not None:
                    if self._journal.holds(stream, batch.first):
                        continue
                    self._journal.enter(stream, batch.last)
                self._publish(self._push(stream, batch.rows, f"rows {batch.first} to {batch.last} of {stream!r}"))
                source.take()
                return True
            if source.at_end():
                if self._journal is not None:
                    if self._journal.holds_end(stream):
                        continue
                    self._journal.enter(stream, source.processed.number, ended=True)
                ended = self._ended()
                self._publish(self._end(stream, ended))
                source.ended = True
                for name in ended & self.outputs.keys():
                    self.outputs[name].end()
                return True
        return False

    def process_all(self) -> None:
        """Process all rows that are there, as long as there is room for what they give."""
        while self.step():
            pass

    def on_time(self, now_us: int) -> None:
        """Tell the operators the time, unless there is no room for what they give."""
        if not self._has_room():
            return
        made = [
            made
            for node in self._plan.operators
            if node.specification.wants_time
            for rows in self._call(
                node.name, "the time", lambda name=node.name: self._operators[name].on_time(now_us)
            )
            for made in self._made(node.name, rows)
        ]
        self._publish(made)

    @property
    def covered(self) -> Mapping[str, Position]:
        """How far its inputs are in what is durable: the rows up to there are not needed again."""
        return self.positions if self._journal is None else self._journal.covered

    @property
    def state_bytes(self) -> int:
        return self._state.memory_bytes

    @property
    def caught_up(self) -> bool:
        """Return whether it has processed all rows that there were when it asked for them."""
        return all(each.caught_up for each in self.inputs.values())

    def capture(self, number: int) -> StateCapture:
        """Return the unit as it is now: a checkpoint to be written while it goes on."""
        return self._state.capture(sequence_of((self.incarnation, number)), describe(self.inputs, self.outputs))

    # -- rows on their way through the operators ------------------------------------------------------------

    def _push(self, stream: str, rows: pa.RecordBatch, which: str) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Give rows of a stream to those that read it, and yield what leaves the unit."""
        for node, port in self._plan.readers.get(stream, ()):
            operator = self._operators[node.name]
            for made in self._call(node.name, which, lambda o=operator, p=port: o.process(p, rows)):
                yield from self._made(node.name, made, which)

    def _made(
        self, operator: str, rows: pa.RecordBatch, which: str = "the time"
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not rows.num_rows:
            return
        if operator in self.outputs:
            yield operator, rows
        yield from self._push(operator, rows, which)

    def _end(self, stream: str, ended: set[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Tell those that read a stream that it has ended, and so on for those whose last input it was."""
        ended.add(stream)
        readers = self._plan.readers.get(stream, ())
        which = f"the end of {stream!r}"
        for node, port in readers:
            operator = self._operators[node.name]
            for made in self._call(node.name, which, lambda o=operator, p=port: o.end(p)):
                yield from self._made(node.name, made, which)
        for name in dict.fromkeys(node.name for node, _ in readers if ended.issuperset(node.inputs)):
            yield from self._end(name, ended)

    def _ended(self) -> set[str]:
        """Return the streams that have ended: inputs, and operators all of whose inputs have."""
        ended = {stream for stream, source in self.inputs.items() if source.ended}
        for node in self._plan.operators:
            if ended.issuperset(node.inputs):
                ended.add(node.name)
        return ended

    def _call(self, operator: str, which: str, call: object) -> list[pa.RecordBatch]:
        assert callable(call)
        try:
            return list(call())
        except Exception as error:  # whatever a user's function raises
            raise OperatorFailed(
                f"operator {operator!r} failed on {which}: {type(error).__name__}: {error}"
            ) from error

    def _publish(self, made: Iterable[tuple[str, pa.RecordBatch]]) -> None:
        """Put rows into the outputs once all of them are there: of an event that fails nothing is published."""
        ready = list(made)
        if self._journal is not None and self._journal.replaying:
            return
        for stream, rows in ready:
            self.outputs[stream].emit(rows)

    def _watched(self, name: str, operator: Operator) -> Operator:
        return operator if self._journal is None else self._journal.watch(name, operator)

    def _has_room(self) -> bool:
        return all(output.buffer.held_bytes < self._buffer_bytes_max for output in self.outputs.values())
