"""The state of an interval for several keyed functions: one table each, checkpointed and split together.

Keys of all functions share the ring, so an interval has the keys of each function whose places are in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .keyed_table import Entries, KeyedTable
from .tokens import Interval


class StageTables(KeyedTable):
    """One table per function. The first byte of each entry says which table it belongs to."""

    def __init__(self, tables: Sequence[KeyedTable]) -> None:
        self._tables = tuple(tables)

    def of(self, stage: int) -> KeyedTable:
        return self._tables[stage]

    @property
    def changed_keys(self) -> int:
        return sum(table.changed_keys for table in self._tables)

    @property
    def known_keys(self) -> int:
        return sum(table.known_keys for table in self._tables)

    def cut(self) -> None:
        for table in self._tables:
            table.cut()

    def changes(self) -> Entries:
        return tuple(bytes([at]) + entry for at, table in enumerate(self._tables) for entry in table.changes())

    def everything(self) -> Entries:
        return tuple(bytes([at]) + entry for at, table in enumerate(self._tables) for entry in table.everything())

    def merge(self) -> None:
        for table in self._tables:
            table.merge()

    def undo_cut(self) -> None:
        for table in self._tables:
            table.undo_cut()

    def take(self, entries: Entries, interval: Interval, *, anew: bool) -> None:
        for at, table in enumerate(self._tables):
            table.take(tuple(entry[1:] for entry in entries if entry[0] == at), interval, anew=anew)

    def split(self, at: int) -> tuple[StageTables, StageTables]:
        halves = [table.split(at) for table in self._tables]
        return StageTables([low for low, _ in halves]), StageTables([high for _, high in halves])

    def empty(self) -> StageTables:
        return StageTables([table.empty() for table in self._tables])
