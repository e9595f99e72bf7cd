"""Histories of a node's units: requested from the controller at the start, and extended while a unit runs (HA 6).

A unit's output is sent once the controller has the events that it depends on. This takes one round trip, like that
to a standby (`pairs.py`), but the controller survives the loss of all nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peacefs.dataflow.limits import dataflow_determinants_per_message_max
from peacefs.dataflow.model.phases import Phases

from .determinants import EventLog
from .effects import Effect, SendMessage
from .messages import CONTROLLER, EventsHappened, EventsKept, HistoryPart, HistoryWanted
from .query_recovery import QueryRecovery
from .unit_history import HistoryReader
from .units.unit import HAUnit


class Histories:
    def __init__(self, recovery: QueryRecovery, *, retry_s: float) -> None:
        units = [plan.name for plan in recovery.network.units]
        self._with_history = {unit for unit in units if recovery.of(unit).keeps_history}
        self._with_events = {unit for unit in units if recovery.of(unit).keeps_events}
        self._retry_s = retry_s
        self._readers: dict[str, HistoryReader] = {}
        # Units that are about to begin, with the parts of their history that have arrived.
        self._read: dict[str, HistoryReader] = {}
        self._reports: dict[str, _EventReport] = {}

    # -- before a unit begins --------------------------------------------------------------------------------

    def wants(self, unit: str, incarnation: int) -> bool:
        """Return True if a start of a unit must wait for its history, and request the history."""
        if unit not in self._with_history:
            return False
        read = self._read.get(unit)
        if read is not None and read.incarnation == incarnation:
            return False
        reader = self._readers.get(unit)
        if reader is None or reader.incarnation != incarnation:
            self._readers[unit] = HistoryReader(incarnation)
        return True

    def ask(self, now_s: float) -> Iterator[Effect]:
        """Request the missing histories, again if there was no answer for long."""
        for unit, reader in self._readers.items():
            if reader.asked_s is None or now_s - reader.asked_s >= self._retry_s:
                reader.asked_s = now_s
                yield SendMessage(CONTROLLER, HistoryWanted(unit, reader.incarnation, reader.part))

    def received(self, message: HistoryPart | EventsKept) -> bool:
        """Return True if a unit may begin now."""
        if isinstance(message, EventsKept):
            report = self._reports.get(message.unit)
            if report is not None and report.incarnation == message.incarnation:
                report.kept(message.upto)
            return False
        reader = self._readers.get(message.unit)
        if reader is None or not reader.add(message):
            return False
        self._read[message.unit] = self._readers.pop(message.unit)
        return True

    def phases(self, unit: str) -> Mapping[str, Phases]:
        """Return the phases with which a unit begins."""
        read = self._read.get(unit)
        return {} if read is None else read.phases

    # -- a unit that runs ---------------------------------------------------------------------------------------

    def begun(self, unit: HAUnit) -> None:
        """Let a unit repeat the events of its history, and send the controller all later ones."""
        read = self._read.pop(unit.name, None)
        if unit.name in self._with_events:
            assert read is not None, "a unit has begun without its history"
            unit.begin_after_event(read.log.first - 1, resumed=read.log.last == 0)
            unit.repeat(read.log)
            self._reports[unit.name] = _EventReport(unit, read.log.last)

    def report(self) -> Iterator[Effect]:
        """Send new events to the controller. Output that depends on them is sent once the controller has them."""
        for report in self._reports.values():
            yield from report.send()

    def forget(self, unit: str) -> None:
        """Note that a unit no longer runs here, or will not begin here."""
        for known in (self._readers, self._read, self._reports):
            known.pop(unit, None)

    def keep_only(self, valid: Mapping[str, int]) -> None:
        """Cancel the requests for units that begin elsewhere."""
        for waiting in (self._readers, self._read):
            for unit in [unit for unit, each in waiting.items() if valid.get(unit) != each.incarnation]:
                del waiting[unit]

    def disconnected(self) -> None:
        """Note that messages to the controller may be lost."""
        for report in self._reports.values():
            report.disconnected()
        for reader in self._readers.values():
            reader.asked_s = None


class _EventReport:
    def __init__(self, unit: HAUnit, kept: int) -> None:
        """`kept`: the last event that the controller has."""
        self._unit, self.incarnation = unit, unit.incarnation
        self._log = EventLog(unit.event)
        unit.record(self._log)
        unit.hold.begin()
        self._sent = self._kept = kept

    def send(self) -> Iterator[Effect]:
        self._unit.hold.release(self._kept)
        while self._sent < self._log.last:
            events = self._log.since(self._sent)[:dataflow_determinants_per_message_max]
            yield SendMessage(
                CONTROLLER, EventsHappened(self._unit.name, self.incarnation, self._sent + 1, events)
            )
            self._sent += len(events)

    def kept(self, upto: int) -> None:
        self._kept = max(self._kept, upto)
        self._log.drop(self._kept)
        self._unit.hold.release(self._kept)

    def disconnected(self) -> None:
        self._sent = self._kept
