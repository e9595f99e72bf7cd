"""An HA unit: operators between HAInputs and HAOutputs, which are run, checkpointed and recovered together.

Given the same state, its output depends on the sequence of its events alone: rows of an input, the end of an
input, the time. It takes no rows while an output has no room: so a slow consumer slows its producers down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from peacefs.dataflow.model.batches import OLDEST, START, Position
from peacefs.dataflow.operators.interface import Operator
from peacefs.dataflow.query.network import Network, UnitPlan
from peacefs.dataflow.techniques.interface import Technique
from peacefs.dataflow.unit_state.interface import StateCapture, UnitState
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import OperatorFailed

from .causes import UnitCauses
from .ha_input import HAInput
from .ha_output import HAOutput
from .messages import sequence_of
from .output_buffer import Level
from .restart_point import InputPoint, RestartPoint
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
        retained_bytes_max: int,
        restart: RestartPoint | None = None,
    ) -> None:
        """`restart`: the point at which it begins, where an earlier start of the unit has noted one."""
        self.name = plan.name
        self.incarnation = incarnation
        self._plan = plan
        self._state = state
        self._buffer_bytes_max = buffer_bytes_max
        self._journal = state.journal
        self._retained_bytes_max = retained_bytes_max
        # What is to be processed before rows leave again; what an earlier start has made of it has left.
        self._replayed: dict[str, InputPoint] = dict(restart.inputs) if restart is not None else {}
        described = state.edges()
        edges = None if described is None else read(described)
        #: True if it begins with a checkpoint.
        self.loaded = edges is not None
        self.inputs = {
            stream: HAInput(
                stream,
                plan.name,
                incarnation,
                edges.inputs[stream].processed if edges else _beginning(technique, restart, stream),
                credit_bytes=credit_bytes,
            )
            for stream in plan.inputs
        }
        self.outputs = {
            stream: HAOutput(
                stream,
                network.consumers[stream],
                technique.retention(network.consumers[stream]),
                lineage=technique.lineage_of(plan.operator_class, incarnation),
                drops_for_absent=technique.drops_for_absent,
                log=state.numbered_rows(f"rows of {stream}", network.types[stream].schema)
                if technique.takes_checkpoints
                else None,
                retains_for_states=technique.tracks_causes,
                forgot_rows=technique.forgets_rows and incarnation > 1,
            )
            for stream in plan.outputs
        }
        if edges:
            for stream, each in self.inputs.items():
                each.ended = edges.inputs[stream].ended
            for stream, output in self.outputs.items():
                output.load(edges.outputs[stream])
        #: Rows that each operator was given since the unit began.
        self.operator_rows: Counter[str] = Counter()
        if restart is not None:
            for stream, number in restart.outputs.items():
                self.outputs[stream].begin_after(number)
        tracks = technique.tracks_causes
        self._operators: dict[str, Operator] = {
            node.name: self._watched(
                node.name,
                node.specification.start(node.input_types, OperatorState(state, node.name, keeps_stamps=tracks)),
            )
            for node in plan.operators
        }
        if self._journal is not None:
            for stream, each in self.inputs.items():
                each.cuts = self._journal.cuts(stream)
        self._causes = UnitCauses(plan, self._operators, self.inputs) if tracks else None
        # Points that the controller was told of, by number.
        self._unrecorded: dict[int, RestartPoint] = {}
        self._points = 0
        self._go_on()

    @property
    def wants_time(self) -> bool:
        return self._plan.wants_time

    @property
    def positions(self) -> dict[str, Position]:
        return {stream: each.processed for stream, each in self.inputs.items()}

    def step(self) -> bool:
        """Process the next rows of one input. Return False if there are none, or no room for what they give."""
        if not self._replayed and not self._has_room():
            return False
        for stream, source in self.inputs.items():
            point = self._replayed.get(stream)
            upto = None if point is None else point.upto.number
            batch = source.next(upto)
            if batch is not None:
                if self._journal is not None:
                    if self._journal.holds(stream, batch.first):
                        continue
                    self._journal.enter(stream, batch.last)
                which = f"rows {batch.first} to {batch.last} of {stream!r}"
                self._publish(self._push(stream, batch.rows, which, self._stamp))
                source.take(upto)
                self._go_on()
                return True
            if source.at_end() and (point is None or point.ended):
                if self._journal is not None:
                    if self._journal.holds_end(stream):
                        continue
                    self._journal.enter(stream, source.processed.number, ended=True)
                ended = self._ended()
                self._publish(self._end(stream, ended))
                source.ended = True
                for name in ended & self.outputs.keys():
                    self.outputs[name].end()
                self._go_on()
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

    def restart_point(self, level: Level) -> tuple[int, RestartPoint] | None:
        """Return the latest point at which it could begin, with its number, if consumers let it have a new one."""
        assert self._causes is not None
        if self._replayed:
            return None
        self._causes.note(self.inputs, self.outputs)
        point = self._causes.reached(self.outputs, level)
        if point is None:
            return None
        self._points += 1
        self._unrecorded[self._points] = point
        return self._points, point

    def recorded(self, number: int) -> Mapping[str, Position]:
        """Learn that it would begin at a point from now on, and return the rows before it, which may go."""
        point = self._unrecorded[number]
        self._unrecorded = {other: each for other, each in self._unrecorded.items() if other > number}
        return point.begins

    # -- rows on their way through the operators ------------------------------------------------------------

    @property
    def _stamp(self) -> int:
        return 0 if self._causes is None else self._causes.stamp

    def _push(
        self, stream: str, rows: pa.RecordBatch, which: str, stamp: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Give rows of a stream to those that read it, and yield what leaves the unit."""
        for node, port in self._plan.readers.get(stream, ()):
            operator = self._operators[node.name]
            self.operator_rows[node.name] += rows.num_rows
            caused = stamp if self._causes is None else self._causes.enter(node.name, stamp)
            for made in self._call(node.name, which, lambda o=operator, p=port: o.process(p, rows)):
                yield from self._made(node.name, made, which, caused)

    def _made(
        self, operator: str, rows: pa.RecordBatch, which: str = "the time", stamp: int | None = None
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not rows.num_rows:
            return
        if operator in self.outputs:
            yield operator, rows
        if stamp is None:
            stamp = 0 if self._causes is None else self._causes.of(operator)
        yield from self._push(operator, rows, which, stamp)

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
        if self._replayed or (self._journal is not None and self._journal.replaying):
            return
        for stream, rows in ready:
            self.outputs[stream].emit(rows)

    def _go_on(self) -> None:
        """Let rows leave again once everything was processed that an earlier start had processed."""
        reached = (
            self.inputs[stream].processed >= point.upto and self.inputs[stream].ended >= point.ended
            for stream, point in self._replayed.items()
        )
        if all(reached):
            self._replayed = {}

    def _watched(self, name: str, operator: Operator) -> Operator:
        return operator if self._journal is None else self._journal.watch(name, operator)

    def _has_room(self) -> bool:
        for stream, output in self.outputs.items():
            if output.buffer.held_bytes > self._retained_bytes_max:
                raise OperatorFailed(
                    f"the rows of {stream!r} that states of its consumers depend on are more than "
                    f"Bounds.retained_bytes_max, {self._retained_bytes_max:,} bytes: raise it, make windows "
                    "smaller, or use SGuard"
                )
        return all(output.has_room(self._buffer_bytes_max) for output in self.outputs.values())


def _beginning(technique: Technique, restart: RestartPoint | None, stream: str) -> Position:
    if restart is not None:
        return restart.inputs[stream].begin
    return OLDEST if technique.begins_with_oldest else START
