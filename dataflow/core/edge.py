"""The edge of a query: its sources and sinks, which run in the program that started the query.

It is a node without operators. It does not fail alone, since it is the user's own program. (Flux calls the two
ends proxies, and assumes that they do not fail.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from peacefs.dataflow.query.network import Network, sink_unit, source_unit

from .bounds import Bounds
from .edges import SinkUnit, SourceUnit
from .effects import Effect, StopQuery
from .exchange import Exchange, ExchangeMessage
from .ha_output import too_much_retained
from .messages import Message, Placement, UnitPlacement
from .query_recovery import QueryRecovery


class EdgeCore:
    """The sources and sinks of a query. Like a node's core: events and `now` in, effects out."""

    def __init__(
        self,
        recovery: QueryRecovery,
        bounds: Bounds | None = None,
        *,
        delivered: Mapping[str, int] | None = None,
    ) -> None:
        """`delivered`: for each sink of a resumed query, the number of the last row that it has."""
        bounds, network = bounds or Bounds(), recovery.network
        self._retained_bytes_max = bounds.retained_bytes_max
        self._sources = {
            source.name: SourceUnit(source, recovery, buffer_bytes_max=bounds.buffer_bytes_max)
            for source in network.sources
        }
        self._sinks = {
            sink.name: SinkUnit(
                sink, credit_bytes=bounds.credit_bytes, delivered=(delivered or {}).get(sink.name, 0)
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
            case _:
                raise AssertionError(f"{type(message).__name__} is not for the edge")
        return effects + list(self._run(now_s))

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
