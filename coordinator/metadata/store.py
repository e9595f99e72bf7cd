"""The open metadata. Changes are made in memory; the log makes them durable; the image gets them later.

Owned by one thread, that of the event loop. `attempt` carries a request out at once. `seal` closes the entry of
all changes so far. `write` makes the entry durable, in any thread. Then the owner calls `written`; or, if there
was no room, `refused`, which undoes the entry and all later changes. An answer waits until its changes, and all
that it has read, are durable.
"""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from peacefs.coordinator.journal.port import Entry, JournalFull
from peacefs.coordinator.journal.writer import JournalWriter, content_of
from peacefs.coordinator.limits import names_memory_bytes_default
from peacefs.protocol.ids import Numbering, first_of_epoch
from peacefs.protocol.limits import MIB

from .image_port import Image, ImageKeeper
from .journal_chain import PREVIOUS, JournalChain, JournalPlace, Touched
from .log.entry import FORMAT, Content, LogEntry, decode_content, encode_content
from .log.port import Log, Sealed, Witness
from .log.segments import LogFull
from .reader import GC_FLOOR_HELD, GC_FLOOR_HELD_FOR_LOST_COMMITS, Reader
from .row_store import BYTES_PER_NAME, Rows
from .tables import CHUNK, META, TABLES
from .transaction import Transaction

# Size of the log that is kept although the image has its entries: with it a recent backup can be brought up to
# date.
log_kept_bytes: Final = 64 * MIB
# With less room on its disk a leader refuses changes before it appends them to the journal. Afterwards it cannot.
journal_disk_room_bytes_min: Final = 32 * MIB

log = logging.getLogger("peacefs.coordinator")
T = TypeVar("T")


class MetadataFault(Exception):
    """The store can no longer be written or trusted; the coordinator stops rather than guess."""


class MetadataFull(Exception):
    """There was no room on the disk for a commit. Nothing was changed; a later commit may succeed.

    `in_journal` is True if the journal had no room.
    """

    def __init__(self, message: str, *, in_journal: bool = False) -> None:
        super().__init__(message)
        self.in_journal = in_journal


class RequestOutcome(msgspec.Struct, frozen=True):
    """The outcome of one request: its answer, or the error with which it changed nothing."""

    answer: Any
    error: Exception | None


class Metadata:
    """An open store. `sqlite.store` makes it, on files or in memory.

    Entries become durable in the order of their numbers. After a fault every call raises MetadataFault, and the
    process must end. Used by `GroupCommit`, by failover, and by commands.
    """

    def __init__(
        self,
        image: Image,
        log: Log,
        keeper: ImageKeeper,
        *,
        number: int,
        journal: JournalWriter | None = None,
        directory: Path | None = None,
        names_memory_bytes: int = names_memory_bytes_default,
    ) -> None:
        """Begin after entry `number`, the last that the image has."""
        self.rows = Rows(image, number, names_max=names_memory_bytes // BYTES_PER_NAME)
        self._log = log
        self._keeper = keeper
        self._journal = journal
        #: None for a store in memory.
        self.witness: Witness | None = None
        self._directory = directory
        self._transaction = Transaction(self.rows)
        self._reader = Reader(self.rows)
        self._sealed: deque[Sealed] = deque()
        self._writing = threading.Lock()
        self._fault: BaseException | None = None
        #: `on_durable` is called with the number of each entry that becomes durable; `on_refused` with the error
        #: when entries are undone for lack of room.
        self.on_durable: Callable[[int], None] = lambda number: None
        self.on_refused: Callable[[MetadataFull], None] = lambda full: None
        # Length of the longest entry that found no room on the disk; 0 while there is room.
        self._refused_bytes = 0
        self._is_following = self._is_closed = False
        self._chain = JournalChain()
        #: The last entry of the log when the store was opened, which synced it.
        self._opened = number
        self._told_digest = b""
        keeper.begin(self._imaged)
        self.cluster_id: str = self._reader.meta("cluster_id")
        self._journal_place = self._read_place()
        #: What entries of the journal changed since `apply` last returned it.
        self._touched = Touched(set(), set())
        #: The last durable transaction, and the last epoch that was begun.
        self.tx_durable = self._transaction.tx
        self.epoch: int = self._reader.meta("epoch")

    def replay(self, entries: Iterable[LogEntry]) -> None:
        """Apply entries of the log that the image lacks, at a start."""
        for number, chain, content in entries:
            change = decode_content(content)
            self._take_in(change, None)
            assert number == self.rows.number, (
                f"entry {number} of the log came where {self.rows.number} was to come"
            )
            self.rows.seal()
            self.rows.durable = number
            self._keeper.durable(number, chain, change)
        self._opened = self.rows.durable
        self._found_changed()

    def _take_in(self, change: Content, touched: Touched | None) -> None:
        rows = self.rows
        for number, row in change.changes:
            table = number if number >= 0 else ~number
            first, second = row[0], None
            keys = len(TABLES[table].keys)
            if keys > 1:
                second = row[1] if keys == 2 else row[1:3]
            rows.take_in(table, tuple(row) if number >= 0 else None, first, second)
            if touched is not None:
                if table == CHUNK:
                    touched.chunks.add(first)
                else:
                    touched.tables.add(TABLES[table].name)

    def _found_changed(self) -> None:
        """Read again what is kept here of the rows, because they were changed from the log or the journal."""
        self._transaction.reload()
        self.tx_durable = self._transaction.tx
        self.epoch = self._reader.meta("epoch")
        self._journal_place = self._read_place()

    def _read_place(self) -> JournalPlace:
        return JournalPlace(self._reader.meta("journal"), self._reader.meta("journal_number"))

    # -- requests ------------------------------------------------------------------------------------

    def attempt(self, request: Callable[[Transaction], Any]) -> RequestOutcome:
        """Carry a request out in memory. If it raises, undo its changes. Raises MetadataFault.

        Its answer or error may be sent when entry `rows.ahead` is durable.
        """
        if self._fault is not None:
            self._refuse_after_fault()
        transaction, rows = self._transaction, self.rows
        transaction.begin()
        mark = rows.mark()
        rows.is_watched = False
        try:
            return RequestOutcome(request(transaction), None)
        except MetadataFault:
            raise
        except Exception as error:
            if self._keeper.is_fault(error):
                self._fail(error)
            if mark != rows.mark():
                rows.take_back(mark)
                transaction.forget_request()
            return RequestOutcome(None, error)
        finally:
            rows.is_watched = True
            rows.ahead = rows.last

    def seal(self) -> Sealed | None:
        """Close the entry under construction and return it, None if it has no changes."""
        rows = self.rows
        if not rows.ops:
            return None
        transaction = self._transaction
        rows.put(META, ("last_tx", transaction.tx))
        is_journaled = self._journal is None or self._is_following
        if not is_journaled:
            self._journal_place = self._journal_place._replace(number=self._journal_place.number + 1)
            rows.put(META, ("journal_number", self._journal_place.number))
            rows.put(META, (PREVIOUS, self._chain.sum))
        number = rows.number
        changes = rows.seal()
        content = encode_content(transaction.tx, self.epoch, changes)
        sealed = Sealed(number, transaction.tx, self.epoch, changes, content, is_journaled)
        if not is_journaled:
            sealed.previous = self._chain.append(content)
        self._sealed.append(sealed)
        return sealed

    def write(self, sealed: Sealed) -> None:
        """Make an entry durable. Call it from any thread, in the order of the entries' numbers.

        Raises MetadataFull, MetadataFault.
        """
        with self._writing:
            if sealed.is_written:
                return
            if sealed.refusal is not None:
                raise sealed.refusal
            if self._fault is not None:
                # Do not retry a failed sync: the next one would succeed although pages were lost.
                self._refuse_after_fault()
            try:
                self._write(sealed)
            except (LogFull, JournalFull) as full:
                if sealed.is_journaled and self._journal is not None and not self._is_following:
                    # The journal has the entry, so it cannot be undone although there is no room here.
                    self._fault = full
                    raise MetadataFault(f"the metadata cannot be written: {full!r}") from full
                where = (
                    full if isinstance(full, JournalFull) else f"{self._directory}: there is no room on its disk"
                )
                raise MetadataFull(str(where), in_journal=isinstance(full, JournalFull)) from full
            except Exception as error:
                self._fault = error
                raise MetadataFault(f"the metadata cannot be written: {error!r}") from error
            sealed.is_written = True

    def _write(self, sealed: Sealed) -> None:
        if not sealed.is_journaled:
            assert self._journal is not None
            if self._free_bytes() < journal_disk_room_bytes_min:
                raise JournalFull(f"{self._directory}: there is no room on its disk")
            if sealed.epoch > self._journal.epoch:
                self._journal.advance(sealed.epoch)
            number = next(row[1] for table, row in sealed.changes if table == META and row[0] == "journal_number")
            self._journal.append(number, sealed.content)
            sealed.is_journaled = True
        sealed.chain = self._log.append(sealed.number, sealed.content)
        if self.witness is not None:
            self.witness.check()
            self.witness.note(sealed.tx, sealed.epoch)

    def _free_bytes(self) -> float:
        return math.inf if self._directory is None else shutil.disk_usage(self._directory).free

    @property
    def has_room(self) -> bool:
        """False from when an entry finds no room on the disk until one of its length can be written."""
        return not self._refused_bytes

    def written(self, sealed: Sealed) -> None:
        """Record that an entry is durable, and pass it to the image. Raises MetadataFault."""
        if sealed.number <= self.rows.durable:
            return
        assert self._sealed[0] is sealed, f"entry {sealed.number} is durable before {self._sealed[0].number}"
        self._sealed.popleft()
        self.rows.durable = sealed.number
        self.tx_durable = sealed.tx
        # On a full disk, a short entry may still fit after a long one was refused.
        if not self.has_room and max(len(sealed.content), self._free_bytes()) >= self._refused_bytes:
            self._refused_bytes = 0
        self.on_durable(sealed.number)
        try:
            self._keeper.durable(
                sealed.number, sealed.chain, Content(FORMAT, 0, sealed.tx, sealed.epoch, sealed.changes)
            )
        except Exception as error:
            self._fault = error
            raise MetadataFault(f"the metadata cannot be kept: {error!r}") from error

    def refused(self, sealed: Sealed, full: MetadataFull) -> None:
        """Undo an entry for which there was no room, and all later changes."""
        if sealed.number <= self.rows.durable or sealed.refusal is not None:
            return
        self._chain.sum = sealed.previous
        for undone in self._sealed:
            undone.refusal = full
        self._sealed.clear()
        self.rows.unseal(sealed.number)
        self._transaction.forget_all()
        self._journal_place = self._read_place()
        self.epoch = self._reader.meta("epoch")
        self._refused_bytes = max(self._refused_bytes, len(sealed.content))
        self.on_refused(full)

    def flush(self) -> None:
        """Make all changes durable before returning. Raises MetadataFull, MetadataFault."""
        self.seal()
        while self._sealed:
            sealed = self._sealed[0]
            try:
                self.write(sealed)
            except MetadataFull as full:
                self.refused(sealed, full)
                raise
            self.written(sealed)

    def commit(self, requests: Sequence[Callable[[Transaction], Any]]) -> list[RequestOutcome]:
        """Execute requests one after the other, and make their changes durable in one entry.

        Raises MetadataFull if the disk has no room; then all of them are undone. Raises MetadataFault if the store
        failed otherwise; then their changes may be durable.
        """
        self._refuse_after_fault()
        outcomes = [self.attempt(request) for request in requests]
        self.flush()
        return outcomes

    def _change(self, change: Callable[[Transaction], T]) -> T:
        outcome = self.commit([change])[0]
        if outcome.error is not None:
            raise outcome.error
        answer: T = outcome.answer
        return answer

    def _refuse_after_fault(self) -> None:
        fault = self._fault or self._keeper.fault
        if fault is not None:
            raise MetadataFault(f"the metadata failed before: {fault!r}")

    def _fail(self, error: BaseException) -> None:
        self._fault = error
        raise MetadataFault(f"the metadata cannot be read: {error!r}") from error

    # -- epochs --------------------------------------------------------------------------------------

    def begin_epoch(self, above: int = 0) -> int:
        """Commit an epoch above the last one and above `above`, and return it. Inode numbers begin with it.

        If it skips epochs, other coordinators had those, and numbers of transactions move above theirs. Every
        coordinator begins an epoch before its first change. Raises MetadataFault, MetadataFull.
        """
        last = self.epoch
        epoch = max(last, above) + 1

        def change(tx: Transaction) -> None:
            if epoch > last + 1:
                tx.move_above(first_of_epoch(epoch))
            tx.set_meta("epoch", epoch)
            if tx.numbering is None:
                tx.discard_unfinished()
            self.epoch = epoch

        self.flush()
        was_following, self._is_following = self._is_following, False
        if self._journal is not None and self._chain.sum is None:
            self.compare_place(self._journal.last)
        try:
            self._change(change)
        except MetadataFull:
            self._is_following = was_following
            raise
        self._transaction.numbering = Numbering(epoch)
        return epoch

    def hold_gc_floor(self, *, commits_are_missing: bool = False) -> None:
        """Commit that the GC floor is held, across restarts, since unknown chunks may belong to lost names.

        `commits_are_missing` is recorded, too, until an operator accepts the loss. Raises MetadataFault,
        MetadataFull.
        """
        if commits_are_missing or not self._reader.gc_floor_held():
            value = GC_FLOOR_HELD_FOR_LOST_COMMITS if commits_are_missing else GC_FLOOR_HELD
            self._change(lambda tx: tx.set_meta("floor_held", value))

    # -- a journal -----------------------------------------------------------------------------------

    def journal_place(self) -> JournalPlace:
        """Return which journal the store follows, and how far."""
        return self._journal_place

    @property
    def entry_synced(self) -> int:
        """The last entry of the journal that this store has durably."""
        return self._journal_place.number - (self.rows.number - 1 - max(self._opened, self._log.synced))

    def follow(self, journal: str) -> None:
        """Have a store follow a journal that has no entries yet. Raises MetadataFault, MetadataFull."""
        self._is_following = True
        self._journal_place = JournalPlace(journal, 0)

        def change(tx: Transaction) -> None:
            tx.set_meta("journal", journal)
            tx.set_meta("journal_number", 0)

        self._change(change)
        # The image must record the journal, too: if the log is lost, a start must know to read it from the
        # journal.
        self._keeper.catch_up()

    @property
    def read_after(self) -> int:
        """The entry of the journal after which to read.

        Until the store's last entry was compared with the journal's, that entry is read again.
        """
        return self._journal_place.number - (self._chain.sum is None)

    def compare_place(self, last: Entry | None) -> None:
        """Check that the store has the last entry of the journal, if there is one. Raises JournalDiffers."""
        self._chain.compare(last, self._journal_place.number, self.epoch, self.rows)

    def apply(self, entries: Sequence[Entry]) -> Touched:
        """Apply entries after `read_after` that another coordinator committed. Return what they changed.

        Append them unchanged to the log. Raises StartupError for entries of a newer peacefs, JournalDiffers,
        MetadataFault, MetadataFull.
        """
        self._refuse_after_fault()
        self._is_following = True
        rows, touched = self.rows, self._touched
        try:
            for entry, content, change in self._chain.read(entries, self._journal_place.number, self.epoch, rows):
                if change is None:
                    self._apply_statements(entry)
                    self._chain.append(content)
                    continue
                self._take_in(change, touched)
                self.epoch = change.epoch
                self._journal_place = self._journal_place._replace(number=entry.number)
                self._sealed.append(Sealed(rows.number, change.tx, change.epoch, change.changes, content, True))
                self._sealed[-1].previous = self._chain.append(content)
                rows.seal()
            self.flush()
        finally:
            # If there is no room, the entries before stay, and the next call returns what they changed.
            self._found_changed()
        self._touched = Touched(set(), set())
        return touched

    def _apply_statements(self, entry: Entry) -> None:
        """Apply an entry of the previous release, which consists of SQL statements."""
        self.flush()
        self._keeper.apply_statements(content_of(entry), entry.number, self._touched.chunks, self._touched.tables)
        self.rows.load()
        self._found_changed()

    # -- beside the commits --------------------------------------------------------------------------

    def reader(self) -> Reader:
        """Return the reader of the rows, for the thread that owns this object."""
        return self._reader

    def _imaged(self, number: int) -> None:
        """Drop changed rows that the image has."""
        self.rows.imaged(number)

    def tend(self, *, idle: bool) -> None:
        """Do periodic work: check paths, publish a digest, delete old segments. Raises MetadataFault."""
        self._refuse_after_fault()
        try:
            if self.witness is not None and idle:
                self.witness.check()
            self._tell_digest()
            synced = self._keeper.tend(idle=idle)
            if synced is not None:
                # A power cut cannot take these entries from the image any more.
                self._log.drop_before(synced + 1, log_kept_bytes)
        except Exception as error:
            self._fault = error
            raise MetadataFault(f"the metadata cannot be kept: {error}") from error

    def _tell_digest(self) -> None:
        """Publish the latest remembered digest with the next entry of the journal, for standbys to compare."""
        if self._journal is None or self._is_following or not self._journal.epoch:
            return
        found = self.rows.image.query("SELECT substr(value, 1, 24) FROM meta WHERE key = 'digests_at'")
        if found and found[0][0] != self._told_digest:
            self._told_digest = found[0][0]
            digest = self._told_digest
            self.attempt(lambda tx: tx.set_meta("leader_digest", digest))

    def catch_up(self) -> None:
        """Wait until the image has all durable entries."""
        self._keeper.catch_up()

    def imaged(self) -> Any:
        """Bring the image up to date and return a connection to it, for tests and checks."""
        return self._keeper.imaged()

    def sync_record(self) -> None:
        """Sync the record of the last commit and, with a journal, the log. No commit waits for this.

        Any thread may call it. Raises MetadataFault.
        """
        try:
            with self._writing:
                sync = self._log.begin_sync()
            sync()
            if self.witness is not None:
                self.witness.sync()
        except OSError as error:
            self._fault = error
            raise MetadataFault(f"the log and the commit record cannot be synced: {error}") from error

    def scrub(self, pages: int) -> None:
        """Compare the next `pages` of the image with their checksums. Raises MetadataFault for a damaged one."""
        fault = self._keeper.scrub(pages)
        if fault is not None:
            self._fault = fault
            raise MetadataFault(str(fault)) from fault

    def close(self) -> None:
        """Bring the image up to date, and close all files. Calling it again does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(MetadataFault, MetadataFull):
            if self._fault is None:
                self.flush()
        self._keeper.finish()
        # Close the reader first: the last connection deletes SQLite's log, and only the writer may do that.
        self.rows.image.close()
        self._keeper.close()
        self._log.close()
        if self.witness is not None:
            self.witness.close()
