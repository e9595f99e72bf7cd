"""What a program gives to a host: sources, sinks, and meters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import pyarrow as pa

from peacefs.dataflow.core.messages import Message

#: Rows of a source, in order. They are read as fast as the query processes them.
Source = Iterable[pa.RecordBatch]
#: A function that is called with the rows of a sink, in order, from a thread of the host. It must return quickly.
Sink = Callable[[pa.RecordBatch], None]


class LinkMeter(Protocol):
    """Counts the bytes that the processes of a query send. It is sent to nodes as a value."""

    def counter(self, node: str) -> Callable[[Message, int], None]:
        """Return a function to be called with each message that a process has sent, and its number of bytes."""
        ...


class RowMeter(Protocol):
    """Counts the rows that the processes of a query send, even to themselves. It is sent to nodes as a value."""

    def counter(self, node: str) -> Callable[[str, int], None]:
        """Return a function to be called with a stream and the number of rows that a process sends of it."""
        ...
