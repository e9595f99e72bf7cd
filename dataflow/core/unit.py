"""An HA unit: operators between HAInputs and HAOutputs, which are run, checkpointed and recovered together.

Given the same state, its output depends on the sequence of its events alone: rows of an input, the end of an
input, the time. It takes no rows while an output has no room: so a slow consumer slows its producers down. Where
these events matter they are recorded, and a standby repeats them in their order (`determinants.py`).
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa

from peacefs.dataflow.limits import dataflow_copy_number_bits as copy_number_bits
from peacefs.dataflow.model.batches import OLDEST, START, Position
from peacefs.dataflow.query.network import UnitPlan
from peacefs.dataflow.recovery.technique import Replicas, Technique
from peacefs.dataflow.unit_state.interface import StateCapture, UnitState
from peacefs.protocol.errors import OperatorFailed

from .bounds import BufferBounds
from .determinants import EventKind, EventLog, UnitEvent
from .ha_input import HAInput
from .ha_output import too_much_retained
from .messages import sequence_of
from .output_hold import OutputHold
from .query_recovery import QueryRecovery
from .replicas import replica
from .restart_point import InputPoint, RestartPoint
from .restart_points import RestartPoints
from .unit_edges import describe, read
from .unit_operators import UnitOperators
from .unit_output import make_output
from .unit_start import UnitStart
from .watermarks import TrimmedOutputs


class HAUnit:
    """One start of a unit: its inputs, its operators and its outputs.

    It lets one event happen at a time: rows of an input, the end of an input, or the time. Of an event that fails
    nothing is published. While the unit is `silent` it processes again what an earlier start has processed, and
    publishes nothing. `NodeCore` makes it, has it process, and captures it for checkpoints and copies.
    """

    def __init__(
        self,
        plan: UnitPlan,
        recovery: QueryRecovery,
        state: UnitState,
        start: UnitStart,
        bounds: BufferBounds,
    ) -> None:
        self.name = plan.name
        incarnation, restart = start.incarnation, start.restart
        own = recovery.of(plan.name)
        technique = own.technique
        self.incarnation, self.slot = incarnation, start.slot
        self._plan = plan
        self._state = state
        self._bounds = bounds
        # Functions draw from `drawn`, which is seeded for each event.
        self._seeds, self._drawn = start.chance, random.Random(0)
        self._seeded = any(node.specification.wants_chance for node in plan.operators)
        self._journal = state.journal
        # Bytes of each input that the last checkpoint covers.
        self._captured_bytes: dict[str, int] = {}
        # Input that is processed in silence: an earlier start has sent what comes of it.
        self._replayed: dict[str, InputPoint] = dict(restart.inputs) if restart is not None else {}
        # The last event that is repeated in silence.
        self._silent_until = 0
        described = state.edges()
        #: The number of the last event.
        self.event: int = 0 if described is None else described.get("event", 0)
        records = own.keeps_events
        if restart is not None and records:
            # Events say where it is, which positions do not where the time matters.
            self._replayed = {}
            self.event, self._silent_until = restart.begin_event, restart.event
        #: The event up to which the checkpoint goes that was captured last.
        self.captured_event = self.event
        # The events that are recorded, and those that are to be repeated.
        self._record: EventLog | None = None
        self._script: EventLog | None = None
        #: Copies for a standby that were captured, and whether one is being made.
        self.copies, self.copying = 0, False
        #: True for a standby that does what its primary has done, and nothing else.
        self.follows = False
        edges = None if described is None else read(described)
        #: True if it begins with a checkpoint.
        self.loaded = edges is not None
        self.inputs = {
            stream: HAInput(
                stream,
                replica(plan.name, start.slot),
                incarnation,
                edges.inputs[stream].processed if edges else _beginning(technique, restart, stream),
                credit_bytes=bounds.credit_bytes,
                attempts=start.attempts,
            )
            for stream in plan.inputs
        }
        self.outputs = {
            stream: make_output(stream, recovery, plan=plan, incarnation=incarnation, state=state)
            for stream in plan.outputs
        }
        self._hold = OutputHold(self.outputs)
        #: Rows that consumers have from another replica go from here.
        self.trimmed = TrimmedOutputs(
            self.outputs,
            numbered_differently=technique.replicas is Replicas.FOLLOWER and own.lineage(incarnation) > 0,
        )
        if edges:
            for stream, each in self.inputs.items():
                each.ended = edges.inputs[stream].ended
            for stream, output in self.outputs.items():
                output.load(edges.outputs[stream])
            self.trimmed.note(self.positions)
        if restart is not None:
            for stream, number in restart.outputs.items():
                self.outputs[stream].begin_after(number)
        self._operators = UnitOperators(
            plan,
            state,
            self.inputs,
            self.outputs,
            keeps_stamps=technique.causes is not None,
            chance=self._drawn,
            phases=start.phases,
        )
        for stream, point in restart.inputs.items() if restart is not None else ():
            if point.began_ended:
                self._begin_ended(stream)
        if self._journal is not None:
            for stream, source in self.inputs.items():
                source.cuts = self._journal.cuts(stream)
        #: The points at which it could begin again, where rows are kept by causes.
        self.points: RestartPoints | None = None
        if technique.causes is not None:
            causes = self._operators.track_causes(event=self.event, records=records)
            self.points = RestartPoints(causes, self.inputs, self.outputs)
        self._go_on()

    @property
    def wants_time(self) -> bool:
        return self._plan.wants_time

    @property
    def positions(self) -> dict[str, Position]:
        return {stream: each.processed for stream, each in self.inputs.items()}

    @property
    def progress(self) -> dict[str, tuple[Position, bool]]:
        """Return the position of each input, and whether it has ended."""
        return {stream: (each.processed, each.ended) for stream, each in self.inputs.items()}

    def step(self) -> bool:
        """Process the next rows of one input. Return False if there are none, or no room for what they give."""
        if not self.silent and not self._has_room():
            return False
        if self._script is not None:
            event = self._script.at(self.event + 1)
            if event is not None:
                return self._repeat(event)
        if self.follows:
            return False
        self._script = None
        for stream, source in self.inputs.items():
            point = self._replayed.get(stream)
            upto = None if point is None else point.upto.number
            batch = source.next(upto)
            if batch is not None:
                if self._journal is not None and self._journal.holds(stream, batch.first):
                    continue
                self._happen(UnitEvent(EventKind.ROWS, stream, batch.last, self._seed()))
                return True
            if source.at_end() and (point is None or point.ended):
                if self._journal is not None and self._journal.holds_end(stream):
                    continue
                self._happen(UnitEvent(EventKind.END, stream, 0))
                return True
        return False

    @property
    def silent(self) -> bool:
        """True while it processes again what an earlier start has processed, whose output consumers have."""
        return bool(self._replayed) or self.event < self._silent_until

    def process_all(self, events_max: int = sys.maxsize) -> bool:
        """Process the rows that are there, as long as there is room for what they give.

        Return True if it has stopped at `events_max`, so that there may be more.
        """
        return all(self.step() for _ in range(events_max))

    def on_time(self, now_us: int) -> None:
        """Tell the operators the time, unless there is no room for what they give, or a standby is told later."""
        if self._has_room() and not self.follows and not self.repeats:
            self._happen(UnitEvent(EventKind.TIME, "", now_us, self._seed()))

    # -- events, and how others repeat them --------------------------------------------------------------------

    def begin_after_event(self, event: int, *, resumed: bool) -> None:
        """Count events from here on. A program that resumes a query has none of those before."""
        assert resumed or self.event == event, "events are missing"
        self.event = self.captured_event = event

    def record(self, log: EventLog | None) -> None:
        """Record events from now on in `log`, which ends where the unit is; None: record them no longer."""
        assert log is None or log.last == self.event
        self._record = log

    def repeat(self, script: EventLog) -> None:
        """Do what was recorded elsewhere, before anything else; `script` may get longer meanwhile."""
        self._script = script

    @property
    def repeats(self) -> bool:
        """True while there are recorded events that it has not repeated."""
        return self._script is not None and self.event < self._script.last

    def hold(self) -> None:
        """Hold output back from now on until the events that it depends on are released."""
        self._hold.begin()

    def release(self, event: int) -> None:
        """Let the output of events up to this one leave."""
        self._hold.release(event)

    def release_all(self) -> None:
        self._hold.end()

    def _seed(self) -> int:
        return self._seeds.getrandbits(32) if self._seeded and self._seeds is not None else 0

    def _repeat(self, event: UnitEvent) -> bool:
        """Let an event happen that was recorded; False: the rows that it took are not all here."""
        source = self.inputs.get(event.stream)
        if source is not None:
            ready = source.next_upto(event.number) is not None if event.kind is EventKind.ROWS else source.at_end()
            if not ready:
                return False
        self._happen(event)
        return True

    def _happen(self, event: UnitEvent) -> None:
        if self._seeded:
            self._drawn.seed(event.seed)
        match event.kind:
            case EventKind.ROWS:
                self._process(event.stream, event.number)
            case EventKind.END:
                self._finish(event.stream)
            case EventKind.TIME:
                self._publish(self._operators.tell_time(event.number))
        self.event += 1
        if self._record is not None:
            self._record.append(event)
        self.trimmed.note(self.positions)
        self._hold.note(self.event)

    def _process(self, stream: str, upto: int) -> None:
        source = self.inputs[stream]
        batch = source.next(upto)
        assert batch is not None
        if self._journal is not None:
            self._journal.enter(stream, batch.last)
        which = f"rows {batch.first} to {batch.last} of {stream!r}"
        self._publish(self._operators.push(stream, batch.rows, which))
        source.take(upto)
        self._go_on()

    def _finish(self, stream: str) -> None:
        if self._journal is not None:
            self._journal.enter(stream, self.inputs[stream].processed.number, ended=True)
        ended = self._operators.ended()
        self._publish(self._operators.end(stream, ended))
        self.inputs[stream].ended = True
        for name in ended & self.outputs.keys():
            self.outputs[name].end()
        self._go_on()

    def _begin_ended(self, stream: str) -> None:
        """Begin after the end of an input, of which operators were told before their state began."""
        ended = self._operators.ended()
        for _ in self._operators.end(stream, ended):
            raise AssertionError("an operator without state has put out rows")
        self.inputs[stream].ended = True
        for name in ended & self.outputs.keys():
            self.outputs[name].end()

    @property
    def covered(self) -> Mapping[str, Position]:
        """Return the position of each input in what is durable: rows up to there are not needed again."""
        return self.positions if self._journal is None else self._journal.covered

    @property
    def operator_rows(self) -> Counter[str]:
        """Return the rows that each operator was given since the unit began."""
        return self._operators.rows

    @property
    def late_rows(self) -> dict[str, int]:
        """Return how many rows each operator has left out as late, of those that have left out any."""
        return self._operators.late_rows

    @property
    def state_bytes(self) -> int:
        return self._state.memory_bytes

    @property
    def caught_up(self) -> bool:
        """Return whether it has processed all rows that there were when it asked for them."""
        return all(each.caught_up for each in self.inputs.values())

    def capture(self, number: int) -> StateCapture:
        """Return the unit as it is now: a checkpoint to be written while it goes on."""
        self._captured_bytes = {stream: each.processed_bytes for stream, each in self.inputs.items()}
        self.captured_event = self.event
        return self._capture(sequence_of((self.incarnation, number)))

    @property
    def uncaptured_bytes(self) -> int:
        """Bytes of the rows that the last checkpoint lacks, of the input that has most of them."""
        captured = self._captured_bytes
        since = max(each.processed_bytes - captured.get(name, 0) for name, each in self.inputs.items())
        uncovered = self._state.uncovered_rows
        if not uncovered:
            return since
        processed = sum(each.processed_bytes for each in self.inputs.values())
        return since + processed * uncovered // max(1, self._processed_rows())

    def hurry(self) -> None:
        """Have the next capture cover what it can."""
        self._state.hurry()

    def _processed_rows(self) -> int:
        return sum(position.number for position in self.positions.values())

    def copy(self, *, full: bool, with_rows: bool) -> tuple[int, StateCapture]:
        """Return the unit as it is now, for its standby, with the number of the copy.

        Pages that did not change since the last one are in it only with `full`. `with_rows` puts the rows of
        outputs into it, for a unit that does not have them in its state.
        """
        self.copies, self.copying = self.copies + 1, True
        for output in self.outputs.values() if with_rows else ():
            output.keep_rows()
        capture = self._capture((self.incarnation << copy_number_bits) + self.copies, full=full)
        for output in self.outputs.values() if with_rows else ():
            output.drop_rows()
        return self.copies, capture

    def _capture(self, sequence: int, *, full: bool = False) -> StateCapture:
        edges = describe(self.inputs, self.outputs)
        return self._state.capture(sequence, {**edges, "event": self.event}, full=full)

    # -- what leaves -----------------------------------------------------------------------------------------

    def _publish(self, made: Iterable[tuple[str, pa.RecordBatch]]) -> None:
        """Put rows into the outputs once all of them are there: of an event that fails nothing is published."""
        ready = list(made)
        if self.silent or (self._journal is not None and self._journal.replaying):
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

    def _has_room(self) -> bool:
        for stream, output in self.outputs.items():
            if output.buffer.held_bytes > self._bounds.retained_bytes_max:
                raise OperatorFailed(too_much_retained(stream, self._bounds.retained_bytes_max))
        return all(output.has_room(self._bounds.buffer_bytes_max) for output in self.outputs.values())


def _beginning(technique: Technique, restart: RestartPoint | None, stream: str) -> Position:
    if restart is not None:
        return restart.inputs[stream].begin
    causes = technique.causes
    return OLDEST if causes is not None and not causes.recorded else START
