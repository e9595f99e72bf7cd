"""A store whose commits go to a journal, and a standby's store that follows it: the rows of both are equal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from peacefs.coordinator.journal.memory import JournalInMemory, JournalServer
from peacefs.coordinator.journal.port import Journal
from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory


def rows_of(metadata: MetadataInMemory) -> dict[str, list[Any]]:
    """Return all rows of all tables, except those that tell from which log or journal they came."""
    execute = metadata.imaged().execute
    tables = [name for (name,) in execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    rows = {table: sorted(map(repr, execute(f"SELECT * FROM {table}"))) for table in tables}
    rows["meta"] = [row for row in rows["meta"] if "'log_" not in row]
    return rows


class Replica:
    """A leader's store in memory, the journal, and a standby's store, which is brought up to date by `follow`."""

    def __init__(
        self,
        journal: Journal | None = None,
        *,
        owner: str = "root",
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`pause` is called before a leader asks again for a lost answer."""
        self.server = JournalServer(time.monotonic)
        self.journal = journal or JournalInMemory(self.server)
        self.writer = JournalWriter(self.journal, pause=pause)
        self.leader = store_in_memory(owner=owner, journal=self.writer)
        self.standby = store_in_memory(owner=owner, journal=JournalWriter(self.journal))
        self.writer.take(0, 1)
        self.leader.begin_epoch()

    def follow(self) -> None:
        while entries := self.journal.read(self.standby.journal_place().number, 100):
            self.standby.apply(entries)

    def check_equal(self) -> None:
        self.follow()
        ours, theirs = rows_of(self.leader), rows_of(self.standby)
        for table in ours:
            assert ours[table] == theirs[table], table
