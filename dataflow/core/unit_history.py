"""A unit's history in the controller: enough for any node to restore the state that the unit had (HA 6).

It consists of the events since the point or the checkpoint at which the unit begins, and the phases of its
operators at that point. The controller runs beside the sources, which every unit needs to begin, and it survives
even if neighbouring nodes die together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peacefs.dataflow.limits import dataflow_determinants_per_message_max
from peacefs.dataflow.model.phases import Phases, pack, unpack

from .determinants import EventLog
from .messages import CheckpointId, EventsHappened, HistoryPart

_PER_PART = dataflow_determinants_per_message_max
#: Changes of phases are frequent, so they are merged when there are more than this.
_CHANGES = 64


class UnitHistory:
    def __init__(self) -> None:
        self._log = EventLog()
        self._phases: dict[str, list[Phases]] = {}
        # The last event of each checkpoint that is being recorded.
        self._events: dict[CheckpointId, int] = {}

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._log.last

    def __len__(self) -> int:
        return len(self._log)

    def add(self, message: EventsHappened) -> bool:
        """Append events. Return False if there is a gap before them."""
        return self._log.add(message.first, message.events)

    def begin_after(self, event: int, phases: bytes = b"") -> None:
        """Let the unit begin after an event, and add the phases that changed since the last beginning."""
        self._log.drop(event)
        for name, changed in unpack(phases).items():
            changes = self._phases.setdefault(name, [])
            changes.append(changed)
            if len(changes) > _CHANGES:
                self._phases[name] = [_together(changes)]

    def captured(self, checkpoint: CheckpointId, event: int) -> None:
        """Note the last event of a checkpoint that may be recorded."""
        self._events[checkpoint] = event

    def recorded(self, checkpoint: CheckpointId) -> None:
        """Let the unit begin with a checkpoint from now on."""
        event = self._events.get(checkpoint)
        self._events = {other: each for other, each in self._events.items() if other > checkpoint}
        if event is not None:
            self.begin_after(event)

    def part(self, unit: str, incarnation: int, number: int) -> HistoryPart | None:
        """Return part `number` of what a start of the unit needs; None if there are fewer parts."""
        events = self._log.since(self._log.first - 1)
        parts = max(-(-len(events) // _PER_PART), 1)
        if number >= parts:
            return None
        first = number * _PER_PART
        return HistoryPart(
            unit,
            incarnation,
            number,
            parts,
            self._log.first + first,
            events[first : first + _PER_PART],
            pack(dict(self._all_phases())) if number == 0 else b"",
        )

    def _all_phases(self) -> Iterator[tuple[str, Phases]]:
        for name, changes in self._phases.items():
            self._phases[name] = [_together(changes)]
            yield name, self._phases[name][0]


def _together(changes: list[Phases]) -> Phases:
    whole = changes[0]
    for each in changes[1:]:
        whole = whole.then(each)
    return whole


class HistoryReader:
    """Assembles a history from its parts, which arrive one after the other."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.log = EventLog()
        self.phases: Mapping[str, Phases] = {}
        #: The number of the next part.
        self.part = 0
        self.asked_s: float | None = None

    def add(self, message: HistoryPart) -> bool:
        """Add a part if it is the next one. Return True if it is the last."""
        if message.incarnation != self.incarnation or message.part != self.part:
            return False
        if message.part == 0:
            self.log, self.phases = EventLog(message.first - 1), unpack(message.data)
        whole = self.log.add(message.first, message.events)
        assert whole, "parts of a history follow each other"
        self.part, self.asked_s = self.part + 1, None
        return self.part == message.parts
