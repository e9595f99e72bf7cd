"""Counts the rows that each node sends on each stream, also to itself, for measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from .named_counts import NamedCounts, read_counts


class RowCounts:
    """The row counts of all processes of a query, in a directory. Can be pickled and sent to nodes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def counter(self, node: str) -> Callable[[str, int], None]:
        """Return a function to call with the rows of each stream that this process sends."""
        return NamedCounts(self._directory, node).add

    def total(self) -> Counter[tuple[str, str]]:
        """Return the rows sent so far, by node (over all its processes) and by stream."""
        found: Counter[tuple[str, str]] = Counter()
        for node, stream, rows in read_counts(self._directory):
            found[node, stream] += rows
        return found
