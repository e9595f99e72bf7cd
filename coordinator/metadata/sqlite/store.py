"""The metadata in an SQLite file next to the coordinator. SQL is here and in the modules `metadata_*` alone.

One connection writes (WAL, synchronous=FULL: a commit is on the disk when it returns), readers have connections
of their own. Statements are compiled once, by Python's statement cache.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from peacefs.coordinator.journal.port import Entry, JournalFull
from peacefs.coordinator.journal.writer import JournalWriter, content_of
from peacefs.coordinator.metadata.store import (
    JournalPlace,
    Metadata,
    MetadataFault,
    MetadataFull,
    RequestOutcome,
    Touched,
    Transaction,
)
from peacefs.protocol.errors import StartupError
from peacefs.protocol.ids import Numbering, first_of_epoch
from peacefs.protocol.limits import MIB

from . import connections, lost_commits, row_digest
from . import file as metadata_file
from .changes import Changes, NewerEntry, Recorder, TouchedRows, read_changes
from .changes import apply as apply_changes
from .commit_record import Acknowledged, CommitRecord
from .connections import DamagedPage, connect, connect_plain, is_fault_of_the_store, is_want_of_room
from .page_sums import PageScrub
from .reader import SqliteReader
from .row_digest import DIGEST_KEY, RowDigest
from .schema import GC_FLOOR_HELD, GC_FLOOR_HELD_FOR_LOST_COMMITS, fill, migrate
from .store_place import Moved, StorePlace
from .transaction import SqliteTransaction

metadata_log_age_max_s: Final = 5.0
# With less room on its disk a leader refuses changes before it appends them, for afterwards it could not.
journal_disk_room_bytes_min: Final = 32 * MIB


_CACHE_KIB = 64 * 1024
# 16 MiB of log. A checkpoint holds one commit up; the rarer they are, the more writes of one page become one.
# No connection but the one that commits may make them (decision 24).
_CHECKPOINT_PAGES = 4096


class MetadataDamaged(Exception):
    """A page of the store is not what was written."""


class StoresDiffer(Exception):
    """The digest of this store is not the leader's."""


class SqliteMetadata(Metadata):
    """The store; made by `open` or, as the twin for simulations, by `in_memory`."""

    def __init__(
        self,
        writer: apsw.Connection,
        path: Path | None = None,
        place: StorePlace | None = None,
        *,
        journal: JournalWriter | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._writer = writer
        self._path = path
        self._place = place
        self._clock = clock
        self._wall_clock = wall_clock
        self._transaction = SqliteTransaction(writer)
        self._digest = RowDigest(writer)
        #: Each commit is an entry of the journal before it is one here; None where there is no journal.
        self._journal = journal
        self._recorder = None if journal is None else Recorder(writer)
        if self._recorder is not None:
            self._transaction.record(self._recorder.execute)
        self._guard = threading.Lock()
        self._fault: BaseException | None = None
        self._readers: list[SqliteReader] = []
        #: When the oldest commit that may still be in the log alone was made; None when there is none.
        self._logged_since_s: float | None = clock()
        self._followed: str = self._transaction.meta("journal")
        #: The last entry of the journal that is in the store; its commit may be under way.
        self._entry: int = self._transaction.meta("journal_number")
        self._scrub = None if path is None or place is None else PageScrub(path, place.database)
        self.cluster_id = self._transaction.meta("cluster_id")
        self.tx_durable = self._transaction.tx
        self.epoch: int = self._transaction.meta("epoch")
        self.entry_synced: int = 0 if path is not None else self.journal_place().number
        self._record = None if path is None else CommitRecord.open(path, self.cluster_id, self._acknowledged())

    @classmethod
    def open(cls, path: Path, *, owner: str, journal: JournalWriter | None = None) -> SqliteMetadata:
        """Opens the store at `path`, or makes one there with an empty root directory that belongs to `owner`.

        With a journal it may lack commits that were acknowledged: they are in the journal.

        Raises StartupError, and has changed nothing, when another coordinator has it open, or when the file is
        foreign, damaged, of a newer peacefs, or lacks commits that were acknowledged.
        """
        place = StorePlace.claim(path)
        try:
            if not path.exists():
                metadata_file.create(path, owner)
            metadata_file.verify(path)
            metadata_file.provide_sums(path)
            if journal is None:
                lost_commits.refuse(path)
                metadata_file.refuse_follower(path)
            connections.damage_met.pop(path.absolute(), None)
            place.hold_database()
            writer = _connect_writer(path, is_journaled=journal is not None)
            try:
                return cls(writer, path, place, journal=journal)
            except BaseException:
                writer.close()
                raise
        except BaseException:
            place.close()
            raise

    @classmethod
    def in_memory(
        cls, *, cluster_id: str = "in-memory", owner: str = "peacefs", journal: JournalWriter | None = None
    ) -> SqliteMetadata:
        """A store that lasts as long as this object. Its readers share the writing connection."""
        writer = connect_plain(":memory:")
        with writer.backup("main", _empty_store(), "main") as copying:
            copying.step()
        fill(writer, cluster_id, owner)
        return cls(writer, journal=journal)

    def begin_epoch(self, above: int = 0) -> int:
        with self._guard:
            with self._commit():
                self._transaction.begin()
                last: int = self._transaction.meta("epoch")
                epoch = max(last, above) + 1
                if self._journal is not None and epoch != self._journal.epoch:
                    self._journal.advance(epoch)
                if epoch > last + 1:
                    self._transaction.move_above(first_of_epoch(epoch))
                self._transaction.set_meta("epoch", epoch)
                if self._transaction.numbering is None:
                    self._transaction.discard_unfinished()
                self.epoch = epoch
            self._transaction.numbering = Numbering(epoch)
        return epoch

    def hold_gc_floor(self, *, commits_are_missing: bool = False) -> None:
        with self._guard, self._commit():
            if commits_are_missing or not self._transaction.gc_floor_held():
                self._transaction.begin()
                value = GC_FLOOR_HELD_FOR_LOST_COMMITS if commits_are_missing else GC_FLOOR_HELD
                self._transaction.set_meta("floor_held", value)

    def commit(self, requests: Sequence[Callable[[Transaction], Any]]) -> list[RequestOutcome]:
        with self._guard, self._commit():
            return [self._attempt(request) for request in requests]

    @contextlib.contextmanager
    def _commit(self) -> Iterator[None]:
        self._refuse_after_fault()
        has_appended = False
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            changes_before = self._writer.total_changes()
            yield
            if self._writer.total_changes() == changes_before:
                self._writer.execute("ROLLBACK")
                if self._recorder is not None:
                    self._recorder.cut(0)
                return
            self._transaction.set_meta("last_tx", self._transaction.tx)
            self._transaction.set_meta(DIGEST_KEY, self._digest.packed())
            has_appended = self._append()
            self._writer.execute("COMMIT")
            self._committed()
            self.has_room = True
        except BaseException as error:
            is_full = is_want_of_room(error) or isinstance(error, JournalFull)
            # An entry of the journal is done, whether or not there is room for it here.
            if is_full and not has_appended and self._take_back():
                self.has_room = False
                where = error if isinstance(error, JournalFull) else f"{self._path}: there is no room on its disk"
                raise MetadataFull(str(where), in_journal=isinstance(error, JournalFull)) from error
            # Nothing is known of what was under way; no later commit may build upon it.
            self._fault = error
            self._take_back()
            raise MetadataFault(f"the metadata cannot be written: {error!r}") from error

    def _append(self) -> bool:
        """Have the journal take what was recorded, if there is a journal, and note that in the same commit."""
        if self._journal is None or self._recorder is None:
            return False
        if self._path is not None and shutil.disk_usage(self._path.parent).free < journal_disk_room_bytes_min:
            raise JournalFull(f"{self._path}: there is no room on its disk")
        number = self.journal_place().number + 1
        self._journal.append(number, self._recorder.take(self._transaction.tx, self.epoch))
        self._note_entry(number)
        return True

    def _note_entry(self, number: int) -> None:
        self._writer.execute("UPDATE meta SET value = ? WHERE key = 'journal_number'", (number,))
        self._entry = number

    def journal_place(self) -> JournalPlace:
        return JournalPlace(self._followed, self._entry)

    def follow(self, journal: str) -> None:
        with self._guard, self._applying():
            self._writer.execute("UPDATE meta SET value = ? WHERE key = 'journal'", (journal,))
            self._followed = journal
            self._note_entry(0)

    def apply(self, entries: Sequence[Entry]) -> Touched:
        touched = TouchedRows()
        try:
            changes = [(entry.number, read_changes(content_of(entry))) for entry in entries]
        except NewerEntry as newer:
            raise StartupError(str(newer)) from None
        with self._guard, self._applying():
            for number, change in changes:
                expected = self.journal_place().number + 1
                assert number == expected, f"entry {number} of the journal came where {expected} was to come"
                apply_changes(self._writer, change, touched)
                self._compare_digest(number, change)
                self._entry = number
            self._note_entry(self._entry)
        return Touched(touched.chunks, touched.tables)

    def _compare_digest(self, number: int, change: Changes) -> None:
        """Refuse to follow a leader whose rows are not ours; an older one says nothing of its own."""
        if not change.sets_digest:
            self._writer.execute("UPDATE meta SET value = ? WHERE key = ?", (self._digest.packed(), DIGEST_KEY))
        elif row_digest.stored(self._writer) != self._digest.value:
            raise StoresDiffer(
                f"after entry {number} of the journal the metadata here is not what the leader has. Run "
                "`peacefs metadata check` on both. If this store is the damaged one, move its directory away and "
                "start: it is copied from the leader. If the leader's is, stop the leader first"
            )

    @contextlib.contextmanager
    def _applying(self) -> Iterator[None]:
        """A commit of changes that are in the journal already, or are about it."""
        self._refuse_after_fault()
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            yield
            self._writer.execute("COMMIT")
            self._transaction.reload()
            self.epoch = self._transaction.meta("epoch")
            self._committed()
            self.has_room = True
        except BaseException as error:
            if is_want_of_room(error) and self._take_back():
                self.has_room = False
                raise MetadataFull(f"{self._path}: there is no room on its disk") from error
            self._fault = error
            self._take_back()
            what = str(error) if isinstance(error, StoresDiffer) else repr(error)
            raise MetadataFault(f"the journal cannot be followed: {what}") from error

    def _committed(self) -> None:
        """Before anybody hears of a commit: it lies where the path leads, and the record names it."""
        if self._logged_since_s is None:
            self._logged_since_s = self._clock()
        if self._path is None:
            self.entry_synced = self._entry
        self._check_place()
        self.tx_durable = self._transaction.tx
        if self._record is not None:
            self._record.note(self._acknowledged())

    def _check_place(self) -> None:
        if self._place is None:
            return
        try:
            self._place.check()
        except Moved:
            # Our descriptors still lead to the store, and a log that was deleted would take its commits with it.
            with contextlib.suppress(apsw.Error, DamagedPage):
                self._copy_log()
            raise

    def _acknowledged(self) -> Acknowledged:
        return Acknowledged(self.tx_durable, self.epoch, int(self._wall_clock() * 1000))

    def tend(self, *, idle: bool) -> None:
        if self._place is None:
            return
        with self._guard:
            self._refuse_after_fault()
            self._refuse_damage()
            try:
                if idle:
                    self._check_place()
                since_s = self._logged_since_s
                if since_s is not None and (idle or self._clock() - since_s >= metadata_log_age_max_s):
                    self._copy_log()
            except (OSError, apsw.Error, DamagedPage, Moved) as error:
                # Pages for which the store has no room stay in the log.
                if not is_want_of_room(error):
                    self._fault = error
                    raise MetadataFault(f"the metadata cannot be kept: {error}") from error

    def _copy_log(self) -> None:
        """Copies the log into the store, and syncs that; all but what a reader's view still needs from the log."""
        _is_busy, logged, copied = self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").get
        self._logged_since_s = None if copied == logged else self._clock()
        if copied == logged:
            self.entry_synced = self._entry

    def sync_record(self) -> None:
        if self._record is not None:
            try:
                self._record.sync()
            except OSError as error:
                raise MetadataFault(f"the commit record cannot be written: {error}") from error

    def _refuse_damage(self) -> None:
        """Fail if any connection has met a damaged page, or the scrub."""
        assert self._path is not None
        what = connections.damage_met.get(self._path.absolute())
        if what is not None:
            self._fault = MetadataDamaged(what)
            raise MetadataFault(
                f"{self._path} is damaged: {what}. Nothing more is served from it. `peacefs metadata check` says "
                "what is affected"
            )

    def scrub(self, pages: int) -> None:
        with self._guard:
            if self._path is None or self._scrub is None:
                return
            self._refuse_damage()
            try:
                found = self._scrub.look(pages, is_log_copied=self._logged_since_s is None)
            except OSError as error:
                raise MetadataFault(f"{self._path} cannot be read: {error}") from error
            if found is not None:
                connections.damage_met.setdefault(self._path.absolute(), f"page {found} is not what was written")
                self._refuse_damage()

    def _refuse_after_fault(self) -> None:
        if self._fault is not None:
            raise MetadataFault(f"the metadata failed before: {self._fault!r}")

    def _take_back(self) -> bool:
        """Undoes what was under way, no commit of which is in the log yet. Whether that could be done."""
        self._transaction.forget_all()
        if self._recorder is not None:
            self._recorder.cut(0)
        try:
            # Most faults make SQLite do it by itself.
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            self._digest.value = row_digest.stored(self._writer) or 0
            self._entry = self._transaction.meta("journal_number")
        except (apsw.Error, DamagedPage):
            return False
        return True

    def _attempt(self, request: Callable[[Transaction], Any]) -> RequestOutcome:
        execute = self._writer.execute
        self._transaction.begin()
        execute("SAVEPOINT request")
        mark = 0 if self._recorder is None else self._recorder.mark()
        digest = self._digest.value
        try:
            outcome = RequestOutcome(request(self._transaction), None)
        except Exception as error:
            if is_fault_of_the_store(error):
                raise
            execute("ROLLBACK TO request")
            self._digest.value = digest
            if self._recorder is not None:
                self._recorder.cut(mark)
            self._transaction.forget_request()
            outcome = RequestOutcome(None, error)
        execute("RELEASE request")
        return outcome

    def reader(self) -> SqliteReader:
        if self._path is None:
            return SqliteReader(self._writer)
        connection = connect(self._path)
        connection.execute("PRAGMA query_only = ON")
        reader = SqliteReader(connection)
        self._readers.append(reader)
        return reader

    def close(self) -> None:
        with self._guard:
            for reader in self._readers:
                reader.close()
            self._readers.clear()
            with contextlib.suppress(DamagedPage):
                # SQLite copies the log into the file now; it copies nothing that is damaged.
                self._writer.close()
            if self._scrub is not None:
                self._scrub.close()
                self._scrub = None
            if self._record is not None:
                self._record.close()
                self._record = None
            if self._place is not None:
                self._place.close()
                self._place = None


def _connect_writer(path: Path, *, is_journaled: bool = False) -> apsw.Connection:
    writer = connect(path)
    try:
        writer.execute("PRAGMA journal_mode = WAL")
        # The journal has the commits that a power cut takes from the log; NORMAL keeps the file whole.
        writer.execute(f"PRAGMA synchronous = {'NORMAL' if is_journaled else 'FULL'}")
        writer.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        writer.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        # A crash after the migrations leaves a store without a digest.
        if migrate(writer) or row_digest.stored(writer) is None:
            writer.execute("BEGIN IMMEDIATE")
            row_digest.store_computed(writer)
            writer.execute("COMMIT")
    except apsw.Error as error:
        writer.close()
        raise StartupError(f"cannot write {path}: {error}") from None
    return writer


@functools.cache
def _empty_store() -> apsw.Connection:
    """Make the tables once for all stores in memory: a simulation makes stores by the hundred."""
    template = connect_plain(":memory:")
    migrate(template)
    return template
