"""The chain of a journal's entries: each entry contains the checksum of the previous one.

If a store's last entry is not in the journal, the store has rows that no other coordinator has. This happens if
etcd was restored to an old state and another coordinator has led since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from peacefs.coordinator.journal.port import Entry
from peacefs.coordinator.journal.writer import content_of
from peacefs.protocol.errors import StartupError
from peacefs.protocol.ids import ChunkId

from .changed_rows import ChangedRows
from .log.entry import FORMAT, Content, checksum_of, decode_content, format_of
from .tables import META

#: The row of `meta` with the checksum of the entry before the last one.
PREVIOUS: Final = "journal_previous"


class JournalDiffers(Exception):
    """An entry of the journal is not the entry that this store has under the same number."""


class JournalPlace(NamedTuple):
    """The journal that a store follows (empty if none), and the last journal entry that is in the store."""

    journal: str
    number: int


class Touched(NamedTuple):
    """What entries of the journal changed, for caches outside the store."""

    #: Chunks that were added, removed, or got another replication.
    chunks: set[ChunkId]
    #: Other tables, by name.
    tables: set[str]


class Read(NamedTuple):
    """An entry of the journal, and its decoded content, which is None for an entry of the previous release."""

    entry: Entry
    content: bytes
    change: Content | None


class JournalChain:
    """Checks that entries of the journal follow each other.

    `sum` is the checksum of the store's last entry; None until that entry has been compared.
    """

    def __init__(self) -> None:
        self.sum: bytes | None = None

    def append(self, content: bytes) -> bytes | None:
        """Move on to an entry that this coordinator appends. Return the checksum of the one before."""
        before, self.sum = self.sum, checksum_of(content)
        return before

    def compare(self, last: Entry | None, number: int, epoch: int, rows: ChangedRows) -> None:
        """Check that `last` equals entry `number`, the store's last. Raises JournalDiffers.

        Does nothing if `last` has another number. `last` is None if the journal is empty.
        """
        if last is None:
            self.sum = b""
        elif last.number == number:
            read = _read(last)
            if read.change is not None:
                wrote: dict[str, Any] = dict(row for table, row in read.change.changes if table == META)
                if read.change.epoch != epoch or any(
                    rows.small_row(META, key) != (key, value) for key, value in wrote.items()
                ):
                    _differ(number)
            self.sum = checksum_of(read.content)

    def read(self, entries: Sequence[Entry], number: int, epoch: int, rows: ChangedRows) -> list[Read]:
        """Decode entries after entry `number` and check that each follows the one before.

        If the first is entry `number` itself, compare it with the store and leave it out. Does not advance the
        chain. Raises StartupError for entries of a newer peacefs, JournalDiffers.
        """
        if entries and entries[0].number == number:
            self.compare(entries[0], number, epoch, rows)
            entries = entries[1:]
        found = []
        before = self.sum
        for entry in entries:
            number += 1
            assert entry.number == number, f"entry {entry.number} of the journal came where {number} was to come"
            read = _read(entry)
            if read.change is not None and before is not None and _previous(read.change) not in (None, before):
                _differ(number - 1)
            before = checksum_of(read.content)
            found.append(read)
        return found


def _read(entry: Entry) -> Read:
    content = content_of(entry)
    written = format_of(content)
    if written > FORMAT:
        raise StartupError(
            "the journal was written by a newer peacefs: upgrade this coordinator. Standbys are upgraded before "
            "the leader"
        )
    return Read(entry, content, decode_content(content) if written == FORMAT else None)


def _previous(change: Content) -> bytes | None:
    """Return the checksum of the previous entry. It is in one of the last rows of this entry."""
    return next((row[1] for table, row in reversed(change.changes) if table == META and row[0] == PREVIOUS), None)


def _differ(number: int) -> NoReturn:
    raise JournalDiffers(
        f"entry {number} of the journal is not the one that this store has: etcd was put back as it once was, and "
        "another coordinator has led since"
    )
