"""Opens stores: the image in an SQLite file, the log, and the record of the last commit."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.limits import names_memory_bytes_default
from peacefs.coordinator.metadata.log.entry import LogEntry
from peacefs.coordinator.metadata.log.memory import MemoryLog
from peacefs.coordinator.metadata.log.segments import (
    LogDamaged,
    Position,
    SegmentLog,
    list_segments,
    read_entries,
    sync_entries,
)
from peacefs.coordinator.metadata.store import Metadata
from peacefs.protocol.errors import PeacefsError, StartupError

from . import backup, connections, lost_commits, row_digest
from . import file as metadata_file
from .commit_record import Acknowledged, CommitRecord
from .connections import connect_plain, connect_read_only
from .file_image import FileImage
from .image import ImageReader, ImageWriter, connect_writer, differs_text
from .log_state import apply_log
from .memory_image import MemoryImage
from .schema import IMAGE_SCHEMA, fill, migrate, schema_version
from .store_place import StorePlace

log = logging.getLogger("peacefs.coordinator")


class FileWitness:
    """The `Witness` of an open store: checks that its files are at their paths, and records the last commit."""

    def __init__(self, place: StorePlace, record: CommitRecord, log: SegmentLog) -> None:
        self._place = place
        self._log = log
        self._record = record

    def check(self) -> None:
        self._place.check()
        self._log.check()

    def note(self, tx: int, epoch: int) -> None:
        self._record.note(Acknowledged(tx, epoch, int(time.time() * 1000)))

    def sync(self) -> None:
        self._record.sync()

    def close(self) -> None:
        self._record.close()
        self._place.close()


def open_store(
    path: Path,
    *,
    owner: str,
    journal: JournalWriter | None = None,
    names_memory_bytes: int = names_memory_bytes_default,
) -> Metadata:
    """Open the store at `path`, or create one with an empty root directory that belongs to `owner`.

    A second process applies the log to the image. With a journal, the store may lack acknowledged commits, because
    the journal has them.

    Raises StartupError, and changes nothing, if another coordinator has the store open, or if the file is not
    ours, is damaged, is of a newer peacefs, or lacks acknowledged commits.
    """
    with contextlib.ExitStack() as undo:
        place = StorePlace.claim(path)
        undo.callback(place.close)
        if not path.exists():
            metadata_file.create(path, owner)
        metadata_file.verify(path)
        metadata_file.provide_sums(path)
        if journal is None:
            lost_commits.refuse(path)
        connections.damage_met.pop(path.absolute(), None)
        place.hold_database()
        _bring_up_to_date(path)
        reader = ImageReader.open(path)
        undo.callback(reader.close)
        cluster_id = reader.query("SELECT value FROM meta WHERE key = 'cluster_id'")[0][0]
        differs = reader.query("SELECT value FROM meta WHERE key = ?", row_digest.DIFFERS_KEY)
        if differs:
            raise StartupError(f"{path}: {differs_text(differs[0][0])}")
        position = reader.position()
        behind: list[LogEntry] = []
        damage: LogDamaged | None = None
        try:
            for entry in read_entries(path, cluster_id, position):
                behind.append(entry)
            sync_entries(path)
        except LogDamaged as found:
            if journal is None:
                raise StartupError(f"{path}: {found}") from None
            damage = found
        except OSError as error:
            raise StartupError(f"cannot read {path}: {error.strerror or error}") from None
        if damage is not None:
            log.warning("%s: %s. What is missing is read from the journal", path, damage)
            position = _leave_log(path)
            behind = []
        last = Position(behind[-1].number, behind[-1].chain) if behind else position
        segments = SegmentLog(path, cluster_id, last, syncs_each=journal is None)
        metadata = Metadata(
            reader,
            segments,
            FileImage(path, place.database, position.number),
            number=position.number,
            journal=journal,
            directory=path.parent,
            names_memory_bytes=names_memory_bytes,
        )
        metadata.replay(behind)
        now = Acknowledged(metadata.tx_durable, metadata.epoch, int(time.time() * 1000))
        metadata.witness = FileWitness(place, CommitRecord.open(path, cluster_id, now), segments)
        undo.pop_all()
        return metadata


def _leave_log(path: Path) -> Position:
    """Apply the intact part of a damaged log to the image, sync it, and delete the log. Raises StartupError."""
    try:
        with contextlib.closing(connect_writer(path)) as connection:
            apply_log(path, connection, to_damage=True)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for _, segment in list_segments(path):
                segment.unlink()
            return ImageReader(connection).position()
    except (apsw.Error, OSError) as error:
        raise StartupError(f"cannot write {path}: {error}") from None


def _bring_up_to_date(path: Path) -> None:
    """Migrate a store to the present schema, and copy SQLite's log. Raises StartupError."""
    try:
        _keep_before_conversion(path)
        with contextlib.closing(connect_writer(path)) as connection:
            # After a crash between the migrations and this, a store has no digest.
            if migrate(connection) or row_digest.stored(connection) is None:
                connection.execute("BEGIN IMMEDIATE")
                row_digest.store_computed(connection)
                connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except apsw.Error as error:
        raise StartupError(f"cannot write {path}: {error}") from None


def _keep_before_conversion(path: Path) -> None:
    """Copy a store of an earlier release before its conversion. Replaces the copy of a crashed start.

    Raises StartupError.
    """
    with contextlib.closing(connect_read_only(path)) as source:
        version = schema_version(source)
        if (
            version >= IMAGE_SCHEMA
            or source.execute("SELECT 1 FROM meta WHERE key = 'epoch' AND value > 0").get is None
        ):
            return
        for _, segment in list_segments(path):
            # Stores of earlier releases have no such log. It remained when such a store was put back from its
            # copy.
            raise StartupError(
                f"{segment} does not belong to {path}, which is of an earlier release. Nothing was changed; move "
                "it away, and all others of that name"
            )
    kept = path.with_name(f"{path.name}.schema-{version}")
    try:
        with backup.staged(kept, replace=True) as copying:
            backup.copy(path, copying, lambda done, total: None, is_exact=True)
    except PeacefsError as error:
        raise StartupError(error.message) from None
    log.warning("converting %s from an earlier release; a copy is kept as %s", path, kept)


class MetadataInMemory(Metadata):
    """A store in memory. Pass its image and its log to another one to simulate a restart."""

    def __init__(
        self,
        image: apsw.Connection,
        log: MemoryLog | None = None,
        journal: JournalWriter | None = None,
        keeper: Callable[[ImageWriter], MemoryImage] = MemoryImage,
    ) -> None:
        self.log = log or MemoryLog()
        self.image = image
        reader = ImageReader(image)
        number = reader.position().number
        self.keeper = keeper(ImageWriter(image))
        super().__init__(reader, self.log, self.keeper, number=number, journal=journal)
        self.replay([entry for entry in self.log.entries if entry.number > number])


def store_in_memory(
    *, cluster_id: str = "in-memory", owner: str = "peacefs", journal: JournalWriter | None = None
) -> MetadataInMemory:
    """Create an empty store in memory."""
    image = connect_plain(":memory:")
    with image.backup("main", _empty_store(), "main") as copying:
        copying.step()
    fill(image, cluster_id, owner)
    return MetadataInMemory(image, journal=journal)


@functools.cache
def _empty_store() -> apsw.Connection:
    """Create the tables only once for all stores in memory, because a simulation creates hundreds of stores."""
    template = connect_plain(":memory:")
    migrate(template)
    return template
