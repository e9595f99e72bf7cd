"""A unit's history, as the controller keeps it: enough for any node to come to the state that the unit had (HA 6).

The events since the point or the checkpoint at which the unit begins, and the phases that its operators had there.
The controller is with the sources, without which no unit can begin, and outlives neighbours that die together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peacefs.dataflow.limits import dataflow_determinants_per_message_max
from peacefs.dataflow.model.phases import Phases, pack, unpack

from .determinants import EventLog
from .messages import CheckpointId, EventsHappened, HistoryPart

_PER_PART = dataflow_determinants_per_message_max
#: Changes of phases are put together when there are more of them than this, as they come so often.
_CHANGES = 64


class UnitHistory:
    def __init__(self) -> None:
        self._log = EventLog()
        self._phases: dict[str, list[Phases]] = {}
        # The last event of checkpoints that are being recorded.
        self._events: dict[CheckpointId, int] = {}

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._log.last

    def __len__(self) -> int:
        return len(self._log)

    def add(self, message: EventsHappened) -> bool:
        """Keep events. False: some before them are missing."""
        return self._log.add(message.first, message.events)

    def begin_after(self, event: int, phases: bytes = b"") -> None:
        """Let the unit begin after an event, with changes of phases since it began elsewhere."""
        self._log.drop(event)
        for name, changed in unpack(phases).items():
            changes = self._phases.setdefault(name, [])
            changes.append(changed)
            if len(changes) > _CHANGES:
                self._phases[name] = [_together(changes)]

    def captured(self, checkpoint: CheckpointId, event: int) -> None:
        """Learn the last event of a checkpoint that may be recorded."""
        self._events[checkpoint] = event

    def recorded(self, checkpoint: CheckpointId) -> None:
        """Let the unit begin with a checkpoint."""
        event = self._events.get(checkpoint)
        self._events = {other: each for other, each in self._events.items() if other > checkpoint}
        if event is not None:
            self.begin_after(event)

    def part(self, unit: str, incarnation: int, number: int) -> HistoryPart | None:
        """Return a part of what a start of the unit needs; None if there are fewer."""
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
    """Parts of a history as a node gets them, one after the other."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.log = EventLog()
        self.phases: Mapping[str, Phases] = {}
        #: The part that is to come next.
        self.part = 0
        self.asked_s: float | None = None

    def add(self, message: HistoryPart) -> bool:
        """Take a part if it is the next. Return True if it is the last."""
        if message.incarnation != self.incarnation or message.part != self.part:
            return False
        if message.part == 0:
            self.log, self.phases = EventLog(message.first - 1), unpack(message.data)
        whole = self.log.add(message.first, message.events)
        assert whole, "parts of a history follow each other"
        self.part, self.asked_s = self.part + 1, None
        return self.part == message.parts
