"""The connectors of a query in its driver: sources that are read again, and sinks that commit."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from peacefs.dataflow.connectors.interface import (
    CommitsRows,
    Journal,
    RepeatableSource,
    SinkContext,
    SinkOpening,
)
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.protocol.errors import CheckpointDamaged, InvalidQuery

from .checkpoint_store import name_of
from .interface import Sink, Source
from .run_records import RunRecords


class _SinkRecord(msgspec.Struct, frozen=True):
    """What a driver stores about a committing sink: the query's identity there, and whether the sink has begun."""

    instance: str
    begun: bool


class Outcomes(Protocol):
    """Where a sink reports, from its thread."""

    def committed(self, sink: str, number: int) -> None: ...

    def sink_failed(self, sink: str, error: BaseException) -> None: ...


class EdgeConnectors:
    """Begins connectors, tells them what the core decides, and ends them. `EdgeRun` has one."""

    def __init__(
        self,
        recovery: QueryRecovery,
        records: RunRecords,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        outcomes: Outcomes,
    ) -> None:
        """Check the connectors. Raises InvalidQuery if a sink would commit rows that a resumed query changes."""
        self._network, self._records, self._outcomes = recovery.network, records, outcomes
        self._sources = {name: each for name, each in sources.items() if isinstance(each, RepeatableSource)}
        every: Mapping[str, object] = sinks
        self._sinks = {name: each for name, each in every.items() if isinstance(each, CommitsRows)}
        #: For each of these sources, the number of the row before its first one.
        self.after: dict[str, int] = {}
        #: For each of these sinks, the number of the last row that it has committed.
        self.committed: dict[str, int] = {}
        if self._sinks and self._network.operator_class is OperatorClass.ARBITRARY:
            raise InvalidQuery(
                f"query {self._network.name!r} is arbitrary: run again it puts out other rows, which sink "
                f"{min(self._sinks)!r} cannot tell from those that it has; put sort() behind a union, or leave "
                "timeouts out"
            )

    def begin(self) -> None:
        """Connect all, after older drivers have stopped. Raises StartupError and others; then all are closed."""
        try:
            for name, source in self._sources.items():
                self.after[name] = source.begin(self._records.journal(f"source-{name_of(name)}"))
                self._released(name, self.after[name])
            kinds = {sink.name: self._network.types[sink.input] for sink in self._network.sinks}
            for name, sink in self._sinks.items():
                journal = self._records.journal(f"sink-{name_of(name)}")
                known = _read(journal)
                opening = SinkOpening(
                    self._network.name, name, kinds[name], instance=known.instance, fresh=not known.begun
                )
                self.committed[name] = sink.begin(self._context(name, opening))
                if journal is not None and not known.begun:
                    journal.write(msgspec.json.encode(_SinkRecord(known.instance, True)))
        except BaseException:
            self.close()
            raise

    @property
    def complete(self) -> list[str]:
        """Sources that can give every row again that is not released."""
        return [name for name, source in self._sources.items() if source.complete]

    def put(self, name: str, batch: Batch) -> bool:
        """Give rows to a sink that commits. Returns False for a plain function, which gets none."""
        sink = self._sinks.get(name)
        if sink is None:
            return False
        sink.put(batch.first, batch.rows)
        return True

    def flush(self, name: str) -> None:
        """Tell a committing sink that no more rows follow."""
        self._sinks[name].flush()

    def released(self, number: Callable[[str], int]) -> None:
        """Tell sources which rows are not needed any more. `number`: of the last one, by source."""
        for name in self._sources:
            self._released(name, number(name))

    def _released(self, name: str, number: int) -> None:
        self._sources[name].released(number)

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()

    async def closed(self) -> None:
        """Close sinks, which may take as long as one request."""
        await asyncio.to_thread(self.close)

    def _context(self, name: str, opening: SinkOpening) -> SinkContext:
        def fenced(action: Callable[[], None]) -> None:
            with self._records.fence.delivery():
                action()

        return SinkContext(
            opening,
            fenced=fenced,
            committed=lambda number: self._outcomes.committed(name, number),
            failed=lambda error: self._outcomes.sink_failed(name, error),
        )


def _read(journal: Journal | None) -> _SinkRecord:
    """Return the record of a sink. For a new sink, choose an identity and write it durably."""
    stored = None if journal is None else journal.read()
    if stored is not None:
        try:
            return msgspec.json.decode(stored, type=_SinkRecord)
        except msgspec.DecodeError as error:
            raise CheckpointDamaged(f"what a sink has recorded cannot be read: {error}") from None
    made = _SinkRecord(secrets.token_hex(8), False)
    if journal is not None:
        journal.write(msgspec.json.encode(made))
    return made
