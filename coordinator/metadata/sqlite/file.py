"""The SQLite file of the store: created atomically, and verified before anything is changed.

Anything that could overwrite a file happens only after the file was found to be ours, intact, and of a known
version. All refusals are StartupError, and say what to do.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from peacefs.coordinator.metadata.log.segments import list_segments
from peacefs.coordinator.metadata.model import ROOT
from peacefs.coordinator.metadata.tables import LIVE
from peacefs.protocol.errors import StartupError
from peacefs.runtime import private_files
from peacefs.runtime.disk_files import sync_directory

from . import commit_record, page_sums, row_digest
from .connections import connect, connect_past_sums, connect_plain
from .schema import APPLICATION_ID, META_KEYS, OLDEST_SCHEMA, SCHEMA, fill, migrate, schema_version

log = logging.getLogger("peacefs.coordinator")

#: The store's name in a coordinator's directory.
STORE_NAME = "metadata.sqlite"

_MAGIC = b"SQLite format 3\0"
_ADVICE = (
    "Nothing was changed. Restore the file from a backup; or, to give up everything in this cluster and begin "
    "an empty one, move it away together with the files next to it whose names begin as its own does"
)
_ADVICE_ON_BACKUP = "Nothing was changed. A backup is a file that `peacefs metadata backup` has made"


def create(path: Path, owner: str) -> None:
    """Create a new store with an empty root directory, atomically. Raises StartupError."""
    segments = [segment for _, segment in list_segments(path)]
    for left in (*segments, page_sums.sqlite_log_of(path), commit_record.path_of(path), page_sums.path_of(path)):
        if left.exists():
            raise StartupError(f"{left} is there but {path} is not: the metadata was lost. {_ADVICE}")
    if restoring(path).exists():
        raise StartupError(
            f"a restore of {path} was cut short. Nothing was changed. Run `peacefs metadata restore` again"
        )
    unfinished = path.with_name(path.name + ".new")
    try:
        private_files.create_file(unfinished)
        with contextlib.closing(connect_plain(unfinished)) as connection:
            # No journal and no syncs are needed before the end: after a crash, the unfinished file is discarded.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            migrate(connection)
            fill(connection, uuid.uuid4().hex, owner)
        sync(unfinished)
        unfinished.rename(path)
        sync_directory(str(path.parent))
    except (OSError, apsw.Error) as error:
        raise StartupError(f"cannot make {path}: {error}") from None


def restoring(path: Path) -> Path:
    """Return the path of a new store during a restore. If the file exists, a restore was interrupted."""
    return path.with_name(path.name + ".restoring")


def room_bytes(directory: Path) -> int:
    """Return the free bytes of a directory's file system."""
    return shutil.disk_usage(directory).free


def size_bytes(path: Path) -> int:
    """Return the size of a store, including its logs."""
    found = 0
    for file in (path, page_sums.sqlite_log_of(path), *(segment for _, segment in list_segments(path))):
        # Segments and SQLite's log may be created and deleted meanwhile.
        with contextlib.suppress(FileNotFoundError):
            found += file.stat().st_size
    return found


def sync(path: Path) -> None:
    """Sync a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def verify_backup(path: Path) -> None:
    """Raise StartupError unless the file is an intact backup that this version can read."""
    if path.is_dir():
        raise StartupError(f"{path} is a directory and no backup. {_ADVICE_ON_BACKUP}")
    verify(path, _ADVICE_ON_BACKUP)


def verify(path: Path, advice: str = _ADVICE) -> None:
    """Raise StartupError, with `advice`, unless the file is an intact store of ours that this version can read.

    The store must not be open. Every page is compared with its checksum. If pages differ but all rows and indexes
    are what was committed, the damage is in unused space and is accepted. A store or copy without page sums is
    verified by its rows and indexes, too.
    """
    verify_identity(path, advice)
    damaged = page_sums.damaged_pages(path) if page_sums.path_of(path).exists() else None
    if damaged is None or damaged:
        fault = fault_of_rows(path)
        if fault is not None:
            where = f"page {damaged[0]} is not what was written, and {fault}" if damaged else fault
            raise StartupError(f"{path} is damaged ({where}). {advice}")
    _read(path, _verify_contents, advice)


def provide_sums(path: Path) -> None:
    """Create the page sums of a verified store if they are missing, or if damaged pages were accepted.

    The store must not be open. Raises StartupError.
    """
    there = page_sums.path_of(path).exists()
    damaged = page_sums.damaged_pages(path) if there else []
    if there and not damaged:
        return
    if damaged:
        log.warning(
            "%s: page %d was damaged where it contains no row; all rows are as committed", path, damaged[0]
        )
    try:
        page_sums.build(path)
    except OSError as error:
        raise StartupError(f"cannot write {page_sums.path_of(path)}: {error.strerror or error}") from None


def fault_of_rows(path: Path) -> str | None:
    """Return a description of what is wrong with the tables and indexes of a store or copy; None if nothing.

    Checks the structure of every page and the digest of all rows, but no page sums.
    """
    try:
        with contextlib.closing(connect_past_sums(path)) as connection:
            verdict = str(connection.execute("PRAGMA integrity_check(1)").get)
            if verdict != "ok":
                return verdict.splitlines()[-1]
            return row_digest.difference(connection)
    except (apsw.Error, UnicodeDecodeError) as error:
        return str(error)


def change_rows(path: Path, statements: Sequence[tuple[str, tuple[int | str, ...]]]) -> None:
    """Change a copy, or a store that is not open, and its digest, in one commit. Raises apsw.Error."""
    has_sums = page_sums.path_of(path).exists()
    with contextlib.closing(connect(path) if has_sums else connect_plain(path)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        digest = row_digest.RowDigest(connection)
        for statement, values in statements:
            connection.execute(statement, values)
        if row_digest.stored(connection) is not None:
            connection.execute("UPDATE meta SET value = ? WHERE key = ?", (digest.packed(), row_digest.DIGEST_KEY))
        connection.execute("COMMIT")
        # Remove all content of a log that may be damaged.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def verify_identity(path: Path, advice: str = _ADVICE) -> None:
    """Raise StartupError, with `advice`, unless the file is a store that this version can read."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    if magic != _MAGIC:
        raise StartupError(f"{path} is not peacefs metadata: it does not begin as an SQLite file does. {advice}")
    _read(path, _verify_identity, advice)


def _read(path: Path, verify: Callable[[Path, apsw.Connection, str], None], advice: str) -> None:
    try:
        with contextlib.closing(connect_past_sums(path)) as connection:
            verify(path, connection, advice)
    except apsw.Error as error:
        raise StartupError(f"{path} is damaged ({error}). {advice}") from None


def _verify_identity(path: Path, connection: apsw.Connection, advice: str) -> None:
    if connection.execute("PRAGMA application_id").get != APPLICATION_ID:
        raise StartupError(f"{path} is an SQLite file, but not peacefs metadata. {advice}")
    version = schema_version(connection)
    if version > SCHEMA:
        raise StartupError(
            f"{path} was written by a newer peacefs: its schema is {version}, this one knows {SCHEMA}. "
            "Nothing was changed. Start the newer peacefs, or restore a backup that was made before the upgrade"
        )
    if 0 < version < OLDEST_SCHEMA:
        raise StartupError(
            f"{path} was written before peacefs 0.1.0: its schema is {version}, the oldest that is read is "
            f"{OLDEST_SCHEMA}. Nothing was changed. Start peacefs 0.1.0 with it first, or restore a later backup"
        )
    if version == 0:
        raise StartupError(f"{path} is damaged (it has no schema). {advice}")


def _verify_contents(path: Path, connection: apsw.Connection, advice: str) -> None:
    keys = {key for (key,) in connection.execute("SELECT key FROM meta")}
    root = connection.execute("SELECT 1 FROM inode WHERE inode = ? AND to_tx = ?", (ROOT, LIVE)).fetchone()
    if root is None or not keys >= set(META_KEYS):
        raise StartupError(f"{path} is damaged (its root or its identity is missing). {advice}")
