"""An HA unit: operators between HAInputs and HAOutputs, which are run, checkpointed and recovered together.

Given the same state, its output depends only on the sequence of its events: rows of an input, the end of an input,
the time. It takes no rows while an output has no room, so a slow consumer slows down its producers. If the output
depends on the order of these events, they are recorded, and a standby repeats them in order (`determinants.py`).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping

import pyarrow as pa

from peacefs.dataflow.core.bounds import BufferBounds
from peacefs.dataflow.core.determinants import EventKind, EventLog, UnitEvent
from peacefs.dataflow.core.ha_input import HAInput
from peacefs.dataflow.core.ha_output import too_much_retained
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.core.replicas import replica
from peacefs.dataflow.core.restart_point import RestartPoint
from peacefs.dataflow.core.unit_output import make_output
from peacefs.dataflow.model.batches import OLDEST, START, Position
from peacefs.dataflow.query.network import UnitPlan
from peacefs.dataflow.recovery.technique import Replicas, Technique
from peacefs.dataflow.unit_state.interface import StateCapture, UnitState
from peacefs.protocol.errors import OperatorFailed

from .captures import UnitCaptures
from .operators import UnitOperators
from .output_hold import OutputHold
from .restart_points import RestartPoints
from .silent_replay import SilentReplay
from .start import UnitStart
from .stored_edges import UnitEdges, read
from .watermarks import TrimmedOutputs


class HAUnit:
    """One start of a unit: its inputs, its operators and its outputs.

    It processes one event at a time: rows of an input, the end of an input, or the time. If an event fails, none
    of its output is published. While the unit is `silent`, it repeats what an earlier start has processed, and
    publishes nothing. `NodeCore` makes it, lets it process, and captures it for checkpoints and copies.
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
        self.wants_time = plan.wants_time
        self._state = state
        self._bounds = bounds
        # Functions draw random numbers from `_drawn`, which is seeded for each event.
        self._seeds, self._drawn = start.chance, random.Random(0)
        self._seeded = any(node.specification.wants_chance for node in plan.operators)
        self._journal = state.journal
        records = own.keeps_events
        # An earlier start has sent the output of this input.
        self._silence = SilentReplay(restart, by_events=records)
        described = state.edges()
        #: The number of the last event.
        self.event: int = 0 if described is None else described.get("event", 0)
        if restart is not None and records:
            self.event = restart.begin_event
        # The events that are recorded, and those that are still to be repeated.
        self._record: EventLog | None = None
        self._script: EventLog | None = None
        #: True for a standby that only repeats what its primary has done.
        self.follows = False
        edges = None if described is None else read(described)
        #: True if it begins with a checkpoint.
        self.loaded = edges is not None
        self.inputs = _inputs(plan, technique, start, edges, bounds.credit_bytes)
        self.outputs = {
            stream: make_output(stream, recovery, plan=plan, incarnation=incarnation, state=state)
            for stream in plan.outputs
        }
        self.captures = UnitCaptures(incarnation, state, self.inputs, self.outputs, self.event)
        #: Holds output back until the events that it depends on are released.
        self.hold = OutputHold(self.outputs)
        #: Drops rows that consumers have received from another replica.
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
        self.operators = UnitOperators(
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
        #: The points at which the unit could begin again, if rows are kept by their causes.
        self.points: RestartPoints | None = None
        if technique.causes is not None:
            causes = self.operators.track_causes(event=self.event, records=records)
            self.points = RestartPoints(causes, self.inputs, self.outputs)
        self._silence.look(self.inputs)

    @property
    def positions(self) -> dict[str, Position]:
        return {stream: each.processed for stream, each in self.inputs.items()}

    def step(self) -> bool:
        """Process the next rows of one input. Return False if there are none, or no room for the output."""
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
            batch = source.next(self._silence.upto(stream))
            if batch is not None:
                if self._journal is not None and self._journal.holds(stream, batch.first):
                    continue
                self._happen(UnitEvent(EventKind.ROWS, stream, batch.last, self._seed()))
                return True
            if source.at_end() and self._silence.lets_end(stream):
                if self._journal is not None and self._journal.holds_end(stream):
                    continue
                self._happen(UnitEvent(EventKind.END, stream, 0))
                return True
        return False

    @property
    def silent(self) -> bool:
        """True while the unit repeats what an earlier start has processed, whose output consumers have."""
        return self._silence.goes_on(self.event)

    def process_all(self, events_max: int = sys.maxsize) -> bool:
        """Process the available rows, as long as there is room for the output.

        Return True if it stopped at `events_max`, so that there may be more rows.
        """
        return all(self.step() for _ in range(events_max))

    def on_time(self, now_us: int) -> None:
        """Tell the operators the time. Skipped if there is no room for output, or if a standby is told later."""
        if self._has_room() and not self.follows and not self.repeats:
            self._happen(UnitEvent(EventKind.TIME, "", now_us, self._seed()))

    # -- events, and how other nodes repeat them ------------------------------------------------------------------

    def begin_after_event(self, event: int, *, resumed: bool) -> None:
        """Count events from this number. A program that resumes a query has no earlier events."""
        assert resumed or self.event == event, "events are missing"
        self.event = self.captures.event = event

    def record(self, log: EventLog | None) -> None:
        """Record events from now on in `log`, which ends at the present. None stops the recording."""
        assert log is None or log.last == self.event
        self._record = log

    def repeat(self, script: EventLog) -> None:
        """Repeat events that were recorded elsewhere, before anything else. `script` may grow meanwhile."""
        self._script = script

    @property
    def repeats(self) -> bool:
        """True while there are recorded events that the unit has not repeated."""
        return self._script is not None and self.event < self._script.last

    def _seed(self) -> int:
        return self._seeds.getrandbits(32) if self._seeded and self._seeds is not None else 0

    def _repeat(self, event: UnitEvent) -> bool:
        """Repeat a recorded event. Return False if some rows of that event have not arrived."""
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
                self._publish(self.operators.tell_time(event.number))
        self.event += 1
        if self._record is not None:
            self._record.append(event)
        self.trimmed.note(self.positions)
        self.hold.note(self.event)

    def _process(self, stream: str, upto: int) -> None:
        source = self.inputs[stream]
        batch = source.next(upto)
        assert batch is not None
        if self._journal is not None:
            self._journal.enter(stream, batch.last)
        which = f"rows {batch.first} to {batch.last} of {stream!r}"
        self._publish(self.operators.push(stream, batch.rows, which))
        source.take(upto)
        self._silence.look(self.inputs)

    def _finish(self, stream: str) -> None:
        if self._journal is not None:
            self._journal.enter(stream, self.inputs[stream].processed.number, ended=True)
        ended = self.operators.ended()
        self._publish(self.operators.end(stream, ended))
        self.inputs[stream].ended = True
        for name in ended & self.outputs.keys():
            self.outputs[name].end()
        self._silence.look(self.inputs)

    def _begin_ended(self, stream: str) -> None:
        """Begin after the end of an input. The operators were told about the end before their state began."""
        ended = self.operators.ended()
        for _ in self.operators.end(stream, ended):
            raise AssertionError("an operator without state has put out rows")
        self.inputs[stream].ended = True
        for name in ended & self.outputs.keys():
            self.outputs[name].end()

    @property
    def covered(self) -> Mapping[str, Position]:
        """Return the durable position of each input: producers need not keep the rows up to it."""
        return self.positions if self._journal is None else self._journal.covered

    @property
    def state_bytes(self) -> int:
        return self._state.memory_bytes

    @property
    def caught_up(self) -> bool:
        """Return True if the unit has processed all rows that existed when it first requested them."""
        return all(each.caught_up for each in self.inputs.values())

    def capture(self, number: int) -> StateCapture:
        """Capture the unit as it is now, for a checkpoint to be written while the unit continues."""
        return self.captures.checkpoint(number, self.event)

    # -- what leaves -----------------------------------------------------------------------------------------

    def _publish(self, made: Iterable[tuple[str, pa.RecordBatch]]) -> None:
        """Put all rows of an event into the outputs at once, so that a failed event publishes nothing."""
        ready = list(made)
        if self.silent or (self._journal is not None and self._journal.replaying):
            return
        for stream, rows in ready:
            self.outputs[stream].emit(rows)

    def _has_room(self) -> bool:
        for stream, output in self.outputs.items():
            if output.buffer.held_bytes > self._bounds.retained_bytes_max:
                raise OperatorFailed(too_much_retained(stream, self._bounds.retained_bytes_max))
        return all(output.has_room(self._bounds.buffer_bytes_max) for output in self.outputs.values())


def _inputs(
    plan: UnitPlan, technique: Technique, start: UnitStart, edges: UnitEdges | None, credit_bytes: int
) -> dict[str, HAInput]:
    """Make the inputs of a unit, each at the position where the unit begins to read."""
    return {
        stream: HAInput(
            stream,
            replica(plan.name, start.slot),
            start.incarnation,
            edges.inputs[stream].processed if edges else _beginning(technique, start.restart, stream),
            credit_bytes=credit_bytes,
            attempts=start.attempts,
        )
        for stream in plan.inputs
    }


def _beginning(technique: Technique, restart: RestartPoint | None, stream: str) -> Position:
    if restart is not None:
        return restart.inputs[stream].begin
    causes = technique.causes
    return OLDEST if causes is not None and not causes.recorded else START
