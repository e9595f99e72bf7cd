"""Counts the bytes on the links of a query, by kind and subject, for measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from peacefs.dataflow.core.messages import CopyPiece, Message

from .costs import Costs, Traffic
from .named_counts import NamedCounts, read_counts

_BETWEEN = "\t"
#: Used only to find the kind of a message. The sizes counted here are those of our encoding.
_KINDS = Costs()


class LinkTraffic:
    """Counts of all processes of a query, in a directory. A value that is sent to nodes.

    traffic = LinkTraffic(directory)
    host.start(network, technique, sources, sinks, RunOptions(traffic=traffic))
    traffic.total()
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def counter(self, node: str) -> Callable[[Message, int], None]:
        """Return a function to call with each message that this process sends, and its size in bytes."""
        counts = NamedCounts(self._directory, node)

        def count(message: Message, size: int) -> None:
            if isinstance(message, CopyPiece):
                kind, subject = Traffic.REPLICATION, message.unit
            else:
                kind, subject, _ = _KINDS.size(message)
            counts.add(f"{kind.value}{_BETWEEN}{subject}", size)

        return count

    def total(self) -> Counter[tuple[Traffic, str]]:
        """Return the bytes sent so far, by kind and by the stream or unit that they are about."""
        found: Counter[tuple[Traffic, str]] = Counter()
        for _, name, size in read_counts(self._directory):
            kind, _, subject = name.partition(_BETWEEN)
            found[Traffic(kind), subject] += size
        return found
