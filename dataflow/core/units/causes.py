"""The causes of a unit's output: for each output row the oldest input row that contributed to it (HA, 5.2.2).

Input-tuple indicators travel with batches as *stamps*. A stamp is a rising number that stands for the rows that
arrived between two points in time. An operator gives its output the oldest stamp that its state depends on. A
stamp maps to a position in every input from which the operator is reached. The cost is one comparison per batch.
The position is that of the point before the row, so it can be too old by one trimming interval.

If events are recorded, a unit begins at one moment for all its inputs, and repeats the events from that moment. An
operator that has phases begins with its phases at the moment at which its own input begins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from peacefs.dataflow.core.ha_input import HAInput
from peacefs.dataflow.core.ha_output import HAOutput
from peacefs.dataflow.core.restart_point import InputPoint, RestartPoint
from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.model.phases import Phases
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.query.network import UnitPlan

# Maximum number of remembered points of a unit: where rows arrived, and where the unit could begin.
dataflow_causes_max: Final = 4096


@dataclass
class _CauseMoment:
    """The moment at which a stamp begins."""

    stamp: int
    positions: Mapping[str, Position]
    ended: frozenset[str]
    event: int
    #: Phases that have changed since the previous moment, without those that are stored with points.
    phases: dict[str, Phases] = field(default_factory=dict)


@dataclass
class _Noted:
    """A point, and the phases that changed between the previous point and the beginning of this one."""

    point: RestartPoint
    phases: dict[str, Phases]


class UnitCauses:
    """The points at which a unit could begin again, each with the output that consumers must have by then.

    `note` adds the present as a point. `reached` returns the latest point that consumers allow, each point at most
    once. If there are more than `dataflow_causes_max` points or moments, every second one is dropped.
    `UnitOperators` stamps rows with it; `HAUnit` calls `note` and `reached`.
    """

    def __init__(
        self,
        plan: UnitPlan,
        operators: Mapping[str, Operator],
        inputs: Mapping[str, HAInput],
        *,
        event: int = 0,
        records: bool = False,
    ) -> None:
        """`event`: the number of the last event. `records`: True if the unit's events are recorded."""
        self._operators = operators
        self._records = records
        #: The stamp of rows that arrive now.
        self.stamp = 1
        self._moments = [_moment(1, inputs, event)]
        # The oldest stamp that the next row of an operator may depend on.
        self._oldest: dict[str, int] = {}
        self._points: list[_Noted] = []
        self._given: _Noted | None = None
        # The unit's inputs from which each port of an operator is reached.
        self._sources: dict[str, list[frozenset[str]]] = {}
        for node in plan.operators:
            ports = [
                frozenset[str]().union(*self._sources[name]) if name in self._sources else frozenset({name})
                for name in node.inputs
            ]
            self._sources[node.name] = ports
        # Operators with phases, and the input from which each one is reached.
        self._phased = {
            node.name: min(self._sources[node.name][0])
            for node in plan.operators
            if node.specification.keeps_phases
        }

    def enter(self, operator: str, stamp: int) -> int:
        """Note that an operator receives rows with `stamp`, and return the stamp of its output."""
        running = self._operators[operator]
        running.stamp = stamp
        if not running.keeps_rows:
            return stamp
        self._oldest[operator] = min(self._oldest.get(operator, stamp), stamp)
        return self._oldest[operator]

    def of(self, operator: str) -> int:
        """Return the stamp of rows that an operator emits without input."""
        return self._oldest.get(operator, self.stamp)

    def note(self, inputs: Mapping[str, HAInput], outputs: Mapping[str, HAOutput], event: int = 0) -> None:
        """Add the present as a point at which the unit could begin, if anything has changed since the last point.

        `event`: the number of the last event.
        """
        now = _moment(self.stamp + 1, inputs, event)
        begins = dict.fromkeys(inputs, now.stamp)
        for name, operator in self._operators.items():
            if not operator.keeps_rows:
                continue
            self._oldest.pop(name, None)
            for port, reached in enumerate(self._sources[name]):
                stamp = operator.oldest(port)
                if stamp is None:
                    continue
                self._oldest[name] = min(self._oldest.get(name, stamp), stamp)
                for stream in inputs if self._records else reached:
                    begins[stream] = min(begins[stream], stamp)
        last = self._moments[-1]
        if now.positions != last.positions or now.ended != last.ended or (self._records and event != last.event):
            self.stamp += 1
            for name in self._phased:
                changed = self._operators[name].changed_phases()
                if changed is not None:
                    now.phases[name] = changed
            self._moments.append(now)
        self._add_point(begins, inputs, outputs, event)
        needed = bisect_right(self._moments, min(begins.values(), default=now.stamp), key=_stamp_of) - 1
        self._moments = _thinned(_forgotten(self._moments, needed))

    def reached(
        self, outputs: Mapping[str, HAOutput], level: RowStage
    ) -> tuple[RestartPoint, dict[str, Phases]] | None:
        """Return the latest point whose output all consumers have at `level`; None if there is no new one.

        The phases are those that changed between the beginning of the previously returned point and that of this
        one.
        """
        have = {stream: output.reached(level) for stream, output in outputs.items()}
        at = len(self._points)
        while at and any(self._points[at - 1].point.outputs[stream] > have[stream] for stream in outputs):
            at -= 1
        if not at:
            return None
        # The point stays, to be compared with the next one.
        passed, self._points = self._points[:at], self._points[at - 1 :]
        if self._points[0] is self._given:
            return None
        phases: dict[str, Phases] = {}
        for noted in passed:
            if noted is not self._given:
                _add(phases, noted.phases)
        self._given = self._points[0]
        return self._given.point, phases

    def _add_point(
        self,
        begins: Mapping[str, int],
        inputs: Mapping[str, HAInput],
        outputs: Mapping[str, HAOutput],
        event: int,
    ) -> None:
        moments = {
            stream: self._moments[bisect_right(self._moments, stamp, key=_stamp_of) - 1]
            for stream, stamp in begins.items()
        }
        began = (moment.event for moment in moments.values())
        point = RestartPoint(
            {
                stream: InputPoint(
                    moment.positions[stream],
                    inputs[stream].processed,
                    inputs[stream].ended,
                    self._records and stream in moment.ended,
                )
                for stream, moment in moments.items()
            },
            {stream: output.buffer.produced for stream, output in outputs.items()},
            min(began, default=event) if self._records else 0,
            event if self._records else 0,
        )
        if self._points and point == self._points[-1].point:
            return
        phases: dict[str, Phases] = {}
        for name, stream in self._phased.items():
            for moment in self._moments:
                if moment.stamp > moments[stream].stamp:
                    break
                if (changed := moment.phases.pop(name, None)) is not None:
                    _add(phases, {name: changed})
        self._points.append(_Noted(point, phases))
        if len(self._points) > dataflow_causes_max:
            # Points that are dropped pass their phases on to the next point.
            for left_out, noted in zip(self._points[1:-1:2], self._points[2::2], strict=False):
                noted.phases = added(left_out.phases, noted.phases)
            self._points = [*self._points[:-1:2], self._points[-1]]


def _moment(stamp: int, inputs: Mapping[str, HAInput], event: int) -> _CauseMoment:
    return _CauseMoment(
        stamp,
        {stream: source.processed for stream, source in inputs.items()},
        frozenset(stream for stream, source in inputs.items() if source.ended),
        event,
    )


def _stamp_of(moment: _CauseMoment) -> int:
    return moment.stamp


def _add(phases: dict[str, Phases], later: Mapping[str, Phases]) -> None:
    for name, each in later.items():
        phases[name] = phases[name].then(each) if name in phases else each


def added(earlier: Mapping[str, Phases], later: Mapping[str, Phases]) -> dict[str, Phases]:
    """Combine two sets of changes of operators' phases; later changes win."""
    phases = dict(earlier)
    _add(phases, later)
    return phases


def _forgotten(moments: list[_CauseMoment], count: int) -> list[_CauseMoment]:
    """Drop the first `count` moments, and merge their phases into the next one."""
    for moment in moments[:count]:
        moments[count].phases = added(moment.phases, moments[count].phases)
    return moments[count:]


def _thinned(moments: list[_CauseMoment]) -> list[_CauseMoment]:
    """If there are too many moments, drop every second one, except the first and the last."""
    if len(moments) <= dataflow_causes_max:
        return moments
    for left_out, following in zip(moments[1:-1:2], moments[2::2], strict=False):
        following.phases = added(left_out.phases, following.phases)
    return [*moments[:-1:2], moments[-1]]
