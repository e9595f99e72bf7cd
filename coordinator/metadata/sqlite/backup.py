"""Backups of the SQLite store: made while a coordinator serves, published atomically, and restored.

A copy shows the store at the time when copying began. It is made in steps, through its own reader, so that commits
can continue; meanwhile their changes stay in the log. In a copy, the garbage collection floor is held: until an
administrator releases it, chunks that the copy does not know are kept on the datanodes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import BinaryIO, Final, NamedTuple

import apsw

from peacefs.coordinator.limits import restore_epoch_jump_max
from peacefs.coordinator.metadata.log.segments import LogDamaged, list_segments
from peacefs.coordinator.metadata.reader import GC_FLOOR_HELD
from peacefs.protocol.errors import FileAlreadyExists, PeacefsError, StartupError
from peacefs.protocol.ids import EPOCH_MAX, first_of_epoch
from peacefs.runtime import private_files
from peacefs.runtime.disk_files import sync_directory

from . import commit_record, lost_commits
from . import file as metadata_file
from .commit_record import RecordDamaged
from .connections import DamagedPage, connect_plain, connect_read_only
from .image import ImageReader
from .log_state import apply_log, numbers_of
from .row_digest import DIFFERS_KEY
from .store_place import StorePlace

# Number of pages copied per step, 1 MiB, with a pause after it. The disk writes that much without delaying a
# commit.
backup_pages_per_step: Final = 256
backup_pause_s: Final = 0.002

#: Called after each step with the bytes copied and the total. An exception ends the copying.
Progress = Callable[[int, int], None]


class Restored(NamedTuple):
    """The result of a restore: the new epoch of the store, and the path of the former store, if any.

    `replayed` is the number of commits after the backup that were taken from the log.
    """

    epoch: int
    replaced: Path | None
    replayed: int


_HELD_FLOOR = (("UPDATE meta SET value = ? WHERE key = 'floor_held'", (GC_FLOOR_HELD,)),)


def back_up(store: Path, target: Path, progress: Progress, *, replace: bool = False) -> None:
    """Copy the store to the file `target`, even while a coordinator uses it."""
    metadata_file.verify_identity(store)
    if loss := lost_commits.find_behind_record(store):
        raise StartupError(f"{store} has lost changes that were acknowledged: {loss}. {target} was not made")
    with staged(target, replace=replace) as copying:
        copy(store, copying, progress)


@contextlib.contextmanager
def staged(target: Path, *, replace: bool) -> Iterator[Path]:
    """Yield a path beside `target` to write a copy to. Then check the copy, sync it and rename it to `target`."""
    if target.exists() and not replace:
        raise FileAlreadyExists(f"{target} is there already; --force replaces it")
    copying = target.with_name(target.name + ".part")
    try:
        yield copying
        if fault := metadata_file.fault_of_rows(copying):
            raise PeacefsError(f"the copy is damaged ({fault}); {target} was not made")
        metadata_file.sync(copying)
        copying.replace(target)
        sync_directory(str(target.absolute().parent))
    except OSError as error:
        raise PeacefsError(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            copying.unlink(missing_ok=True)


def copy(store: Path, target: Path, progress: Progress, *, is_exact: bool = False) -> None:
    """Write a complete copy without syncing it. Raises PeacefsError."""
    try:
        private_files.create_file(target)
        with (
            contextlib.closing(connect_read_only(store)) as source,
            contextlib.closing(connect_plain(target)) as sink,
        ):
            # No sync is needed: after a crash, nobody uses the file under this name.
            sink.execute("PRAGMA synchronous = OFF")
            page_bytes: int = source.execute("PRAGMA page_size").get
            # Use one read transaction for all steps. Otherwise each commit would restart the copying.
            source.execute("BEGIN")
            source.execute("SELECT 1 FROM meta").fetchone()
            with sink.backup("main", source, "main") as copying:
                while not copying.done:
                    copying.step(backup_pages_per_step)
                    pages = copying.page_count
                    progress((pages - copying.remaining) * page_bytes, pages * page_bytes)
                    if copying.remaining:
                        time.sleep(backup_pause_s)
            # While this transaction is open, the image is not synced, so segments that the copy needs are not
            # deleted.
            apply_log(store, sink)
            source.execute("COMMIT")
        _alter(target, [] if is_exact else _HELD_FLOOR)
    except (apsw.Error, DamagedPage, LogDamaged) as error:
        raise PeacefsError(f"cannot copy the metadata to {target}: {error}") from None


def nameless_copy(store: Path, ending: str, progress: Progress, *, is_exact: bool = False) -> BinaryIO:
    """Return an open, unlinked file that contains a copy of a store. Raises PeacefsError."""
    copying = store.with_name(store.name + ending)
    try:
        copy(store, copying, progress, is_exact=is_exact)
        return copying.open("rb")
    except OSError as error:
        raise PeacefsError(f"cannot copy the metadata: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            copying.unlink(missing_ok=True)


def _alter(copied: Path, statements: Sequence[tuple[str, tuple[int, ...]]]) -> None:
    """Apply statements to a copy, and leave it as a single file without SQLite's log."""
    with contextlib.closing(connect_plain(copied)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    metadata_file.change_rows(copied, statements)


# -- restoring --------------------------------------------------------------------------------------


def restore(
    backup: Path, store: Path, progress: Progress, rng: Random, *, replace: bool, with_log: bool = False
) -> Restored:
    """Replace the store by `backup`. The former store is set aside as `<name>.replaced`.

    The new epoch is above those of both stores, by a random number. So if a backup is restored twice, the second
    time reuses no number of the first, even if datanodes were away. Transactions are numbered from the new epoch,
    so that commits after the backup do not count as lost. `with_log` also applies the later changes from the log
    of the former store. Use it if that store is damaged but its log is intact.

    After a crash, call it again to continue. Until then no coordinator starts on the store. Raises StartupError if
    a coordinator has the store open, if `backup` is not an intact backup, or if there is a store and `replace` is
    false.
    """
    metadata_file.verify_backup(backup)
    if backup.resolve() == store.resolve():
        raise StartupError(f"{backup} is the store itself; nothing was changed")
    try:
        private_files.make_directory(store.parent)
        private_files.mend(store.parent, lambda entry: entry.name.startswith(store.name))
    except OSError as error:
        raise StartupError(f"cannot use {store.parent} for the metadata: {error.strerror}") from None
    place = StorePlace.claim(store)
    try:
        if store.exists() and not replace:
            raise StartupError(f"{store} is there already; nothing was changed. --force sets it aside")
        restoring = metadata_file.restoring(store)
        copying = restoring.with_name(restoring.name + ".part")
        copy(backup, copying, progress)
        replayed = _replay(store, copying) if with_log else 0
        epoch = _raise_epoch(copying, max(_epoch_of(store), _epoch_recorded(store, copying)), rng)
        metadata_file.sync(copying)
        # A crash after this leaves a file that prevents coordinators from starting.
        copying.replace(restoring)
        replaced = set_aside(store)
        sync_directory(str(store.absolute().parent))
        restoring.rename(store)
        sync_directory(str(store.absolute().parent))
        metadata_file.provide_sums(store)
    except OSError as error:
        raise StartupError(f"cannot restore {store}: {error.strerror or error}") from None
    finally:
        place.close()
    return Restored(epoch, replaced, replayed)


def _replay(store: Path, copied: Path) -> int:
    """Apply the log of a store to a copy of an earlier state, and return the number of applied entries.

    Raises StartupError if the log does not continue from the copy, or is damaged.
    """
    try:
        with contextlib.closing(connect_plain(copied)) as connection:
            before = ImageReader(connection).position().number
            apply_log(store, connection)
            return ImageReader(connection).position().number - before
    except LogDamaged as damage:
        raise StartupError(
            f"{damage}: the log does not bring the backup up to date. Nothing was changed; restore without it"
        ) from None


def _raise_epoch(copied: Path, epoch_there: int, rng: Random) -> int:
    jump = rng.randint(1, restore_epoch_jump_max)
    epoch = min(max(_epoch_of(copied), epoch_there) + jump, EPOCH_MAX - 1)
    changes: list[tuple[str, tuple[int, ...]]] = [
        ("UPDATE meta SET value = ? WHERE key = 'epoch'", (epoch,)),
        ("UPDATE meta SET value = max(value, ?) WHERE key = 'last_tx'", (first_of_epoch(epoch),)),
        # From here on, the restored store differs from the journal.
        ("UPDATE meta SET value = '' WHERE key = 'journal'", ()),
        ("UPDATE meta SET value = 0 WHERE key = 'journal_number'", ()),
        (f"DELETE FROM meta WHERE key = '{DIFFERS_KEY}'", ()),
    ]
    _alter(copied, changes)
    return epoch


def _epoch_of(store: Path) -> int:
    """Return the last epoch that a store has begun; 0 if the store is unreadable."""
    if not store.exists():
        return 0
    try:
        return numbers_of(store).epoch
    except (apsw.Error, DamagedPage, StartupError, KeyError):
        return 0


def _epoch_recorded(store: Path, copied: Path) -> int:
    """Return the epoch of the last acknowledged commit. The store may have lost this commit."""
    with contextlib.closing(connect_read_only(copied)) as connection:
        cluster_id: str = connection.execute("SELECT value FROM meta WHERE key = 'cluster_id'").get
    try:
        recorded = commit_record.read(store, cluster_id)
    except RecordDamaged:
        return 0
    return 0 if recorded is None else recorded.epoch


def set_aside(store: Path) -> Path | None:
    """Rename a store with its log and commit record, so that they are not used with another store."""
    replaced = store.with_name(store.name + ".replaced")
    found = store.exists()
    if found:
        store.replace(replaced)
    for _, segment in list_segments(replaced):
        segment.unlink()
    for _, segment in list_segments(store):
        segment.replace(replaced.with_name(replaced.name + segment.name.removeprefix(store.name)))
    for ending in ("-wal", "-shm", "-wal.sums", ".commits", ".sums"):
        beside = store.with_name(store.name + ending)
        if beside.exists():
            beside.replace(replaced.with_name(replaced.name + ending))
        elif found:
            replaced.with_name(replaced.name + ending).unlink(missing_ok=True)
    return replaced if found else None
