"""Hosts: what a query is given to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import pyarrow as pa

from peacefs.dataflow.core.messages import Message
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique

#: Rows of a source, in order. They are taken as fast as the query processes them.
Source = Iterable[pa.RecordBatch]
#: Called with rows of a sink, in order, from a thread of the host. It must not take long.
Sink = Callable[[pa.RecordBatch], None]


class LinkMeter(Protocol):
    """Counts the bytes that the processes of a query send. A value that is sent to nodes."""

    def counter(self, node: str) -> Callable[[Message, int], None]:
        """Return a function that is told of each message that a process has sent, and of its bytes."""
        ...


class RowMeter(Protocol):
    """Counts the rows that the processes of a query send, to themselves as well. A value that is sent to nodes."""

    def counter(self, node: str) -> Callable[[str, int], None]:
        """Return a function that is told of a stream and the number of its rows that a process sends."""
        ...


class RunningQuery(Protocol):
    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until every sink has had its last row.

        Raises QueryFailed if the query stopped, and TimeoutError if it has not ended by then.
        """
        ...

    def close(self) -> None:
        """Stop whatever still runs."""
        ...


class Host(Protocol):
    def start(
        self, network: Network, technique: Technique, sources: Mapping[str, Source], sinks: Mapping[str, Sink]
    ) -> RunningQuery: ...
