"""The edge of a query: its sources and sinks, which run in the program that started the query.

It is a node without operators. It does not fail alone, since it is the user's own program. (Flux calls the two
ends proxies, and assumes that they do not fail.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from peacefs.dataflow.query.network import Network, sink_unit, source_unit

from .bounds import Bounds
from .edges import SinkUnit, SourceUnit
from .effects import Effect, SendMessage, StopQuery
from .exchange import Exchange, ExchangeMessage
from .ha_output import too_much_retained
from .messages import Message, Placement, Subscribed, UnitPlacement
from .query_recovery import QueryRecovery


class EdgeCore:
    """The sources and sinks of a query. Like a node's core: events and `now` in, effects out."""

    def __init__(
        self,
        recovery: QueryRecovery,
        bounds: Bounds | None = None,
        *,
        delivered: Mapping[str, int] | None = None,
        after: Mapping[str, int] | None = None,
        commits: Collection[str] = (),
        complete: Collection[str] = (),
    ) -> None:
        """`delivered`: for each sink of a resumed query, the number of the last row that it has.

        `after`: for each source that does not begin with its first row, the number of the row before. `commits`:
        sinks whose rows are safe only once `committed` says so. `complete`: sources of which no row may be lost.
        """
        bounds, network = bounds or Bounds(), recovery.network
        self._retained_bytes_max = bounds.retained_bytes_max
        self._complete = frozenset(complete)
        self._sources = {
            source.name: SourceUnit(
                source, recovery, buffer_bytes_max=bounds.buffer_bytes_max, after=(after or {}).get(source.name, 0)
            )
            for source in network.sources
        }
        self._sinks = {
            sink.name: SinkUnit(
                sink,
                credit_bytes=bounds.credit_bytes,
                delivered=(delivered or {}).get(sink.name, 0),
                commits=sink.name in commits,
            )
            for sink in network.sinks
        }
        self._exchange = Exchange(recovery, retry_s=bounds.subscribe_retry_s)
        self._exchange.participants |= {source.name: source for source in self._sources.values()}
        self._exchange.participants |= {sink.name: sink for sink in self._sinks.values()}
        self._version = 0

    @staticmethod
    def placements(network: Network, node: str) -> dict[str, UnitPlacement]:
        """Return the placements of sources and sinks, as the controller announces them to all nodes."""
        names = [source_unit(source.name) for source in network.sources]
        names += [sink_unit(sink.name) for sink in network.sinks]
        return {name: UnitPlacement(node, 1) for name in names}

    @property
    def ended(self) -> bool:
        """True once every sink has received its last row."""
        return all(sink.ended for sink in self._sinks.values())

    @property
    def held_bytes(self) -> int:
        """Bytes held by the fullest source."""
        return max((source.held_bytes for source in self._sources.values()), default=0)

    def released(self, source: str) -> int:
        """Return the number of the last row of a source that no consumer needs any more."""
        return self._sources[source].released

    def has_room(self, source: str) -> bool:
        return self._sources[source].has_room

    def offer(self, now_s: float, source: str, rows: pa.RecordBatch) -> list[Effect]:
        """Add rows of a source. The caller must wait for `has_room` before it offers more."""
        self._sources[source].offer(rows)
        if self._sources[source].held_bytes > self._retained_bytes_max:
            return [StopQuery(too_much_retained(source, self._retained_bytes_max))]
        return list(self._run(now_s))

    def end(self, now_s: float, source: str) -> list[Effect]:
        """Note that a source has no more rows."""
        self._sources[source].end()
        return list(self._run(now_s))

    def received(self, now_s: float, node: str, message: Message) -> list[Effect]:
        effects: list[Effect] = []
        match message:
            case Placement():
                if message.version > self._version:
                    self._version = message.version
                    self._exchange.placed(message)
            case _ if isinstance(message, ExchangeMessage):
                effects += self._exchange.received(now_s, node, message)
                effects += self._missing_rows(effects)
            case _:
                raise AssertionError(f"{type(message).__name__} is not for the edge")
        return effects + list(self._run(now_s))

    def committed(self, now_s: float, sink: str, number: int) -> list[Effect]:
        """Note that a sink has committed its rows up to a number."""
        unit = self._sinks[sink]
        unit.committed(number)
        return [*self._exchange.acknowledge(unit, unit.acknowledge()), *self._run(now_s)]

    def _missing_rows(self, answers: list[Effect]) -> list[Effect]:
        """Stop the query if a consumer needs rows that were released: its checkpoint is older than it was."""
        return [
            StopQuery(
                f"{answer.message.lost} rows of source {answer.message.stream!r} are needed again that the source "
                "does not remember: a checkpoint was rolled back; begin the query anew in another directory"
            )
            for answer in answers
            if isinstance(answer, SendMessage)
            and isinstance(answer.message, Subscribed)
            and answer.message.lost
            and answer.message.stream in self._complete
        ]

    def disconnected(self, now_s: float, node: str) -> list[Effect]:
        self._exchange.disconnected(now_s, node)
        return list(self._run(now_s))

    def tick(self, now_s: float) -> list[Effect]:
        return list(self._run(now_s))

    def _run(self, now_s: float) -> Iterator[Effect]:
        yield from self._exchange.subscribe(now_s)
        for sink in self._sinks.values():
            delivered = list(sink.deliver())
            yield from delivered
            if delivered:
                yield from self._exchange.acknowledge(sink, sink.acknowledge())
        yield from self._exchange.send_due()
