"""Detects acknowledged commits that a store has lost, before it is opened. Only an operator accepts a loss.

There are two signs. The commit record names a later commit than the last one in the store. Or the log itself has
intact commits after a damaged frame.
"""

from __future__ import annotations

import contextlib
import datetime
import shutil
from pathlib import Path
from random import Random
from typing import NamedTuple

import apsw

from peacefs.coordinator.limits import restore_epoch_jump_max
from peacefs.coordinator.metadata.log.segments import list_segments
from peacefs.coordinator.metadata.reader import GC_FLOOR_HELD
from peacefs.protocol.errors import StartupError
from peacefs.protocol.ids import EPOCH_MAX, first_of_epoch
from peacefs.runtime import private_files

from . import commit_record
from . import file as metadata_file
from .commit_record import RecordDamaged
from .connections import DamagedPage, connect, connect_read_only
from .log_scan import find_lost_tail
from .log_state import apply_log, numbers_of
from .page_sums import sqlite_log_of
from .schema import IMAGE_SCHEMA, schema_version
from .store_place import StorePlace


class Accepted(NamedTuple):
    """A description of the loss, the store's new epoch, and the path of the saved log, if it was damaged."""

    loss: str
    epoch: int
    log: Path | None


def refuse(store: Path) -> None:
    """Raise StartupError if the store, which must not be open, has lost commits.

    Also raises it if the store follows a journal, because without the journal acknowledged commits may be missing.
    """
    loss = find(store)
    if loss is not None:
        raise StartupError(
            f"{store} has lost changes that were acknowledged: {loss}. Nothing was changed. Restore a backup "
            "(`peacefs metadata restore`); or go on without them "
            f"(`peacefs metadata accept-loss --dir {store.parent}`), which deletes nothing that datanodes hold"
        )
    if numbers_of(store).journal:
        raise StartupError(
            f"{store} follows a journal: start with the same --journal. To go on without it, once no other "
            "coordinator of its cluster runs and this one has led: "
            f"`peacefs metadata leave-journal --dir {store.parent}`"
        )


def find(store: Path) -> str | None:
    """Return a description of the commits that the store has lost; None if none. The store must not be open.

    Raises StartupError.
    """
    behind = find_behind_record(store)
    if behind is not None:
        return behind
    try:
        # Only stores of earlier releases have their last commits only in SQLite's log.
        tail = find_lost_tail(sqlite_log_of(store)) if _schema_of(store) < IMAGE_SCHEMA else None
    except OSError as error:
        raise StartupError(f"cannot read {sqlite_log_of(store)}: {error.strerror}") from None
    if tail is None:
        return None
    return (
        f"its log is damaged at frame {tail.damaged}, where it is taken to end, and frame {tail.proof} shows that "
        "changes behind the damage were committed"
    )


def find_behind_record(store: Path) -> str | None:
    """Return a description of what the store lacks according to its commit record. The store may be open."""
    try:
        # Read the record before the store's numbers, because an open store makes commits meanwhile.
        found = commit_record.read(store, numbers_of(store).cluster_id)
        numbers = numbers_of(store)
    except RecordDamaged:
        return (
            f"{commit_record.path_of(store)}, which says what was acknowledged, is damaged: nobody knows whether "
            "all of it is there"
        )
    except (apsw.Error, DamagedPage) as error:
        raise StartupError(f"{store} cannot be read ({error})") from None
    if numbers.damage is not None:
        return f"its log is damaged: {numbers.damage}"
    if found is None or found.tx <= numbers.tx:
        return None
    when = datetime.datetime.fromtimestamp(found.at_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"it ends with change {numbers.tx}, and change {found.tx} was acknowledged on {when}"


def accept(store: Path, rng: Random) -> Accepted | None:
    """Make a store with lost commits usable without them. Return None if nothing is lost.

    The floor is held, so that no chunk of a lost file is deleted. The epoch and the transaction numbers move above
    all that were ever assigned. A damaged log is copied first. Raises StartupError.
    """
    place = StorePlace.claim(store)
    try:
        if not store.exists():
            raise StartupError(f"{store} is not there: restore a backup (`peacefs metadata restore`)")
        metadata_file.verify(store)
        metadata_file.provide_sums(store)
        loss = find(store)
        if loss is None:
            return None
        kept = _keep_log(store)
        epoch = _go_on_without(store, rng)
        for _, segment in list_segments(store):
            segment.unlink()
        commit_record.path_of(store).unlink(missing_ok=True)
        return Accepted(loss, epoch, kept)
    except (OSError, apsw.Error) as error:
        raise StartupError(f"cannot write {store}: {error}") from None
    finally:
        place.close()


def _go_on_without(store: Path, rng: Random) -> int:
    numbers = numbers_of(store)
    try:
        recorded = commit_record.read(store, numbers.cluster_id)
    except RecordDamaged:
        recorded = None
    drawn = max(numbers.epoch, recorded.epoch if recorded else 0)
    epoch = min(drawn + rng.randint(1, restore_epoch_jump_max), EPOCH_MAX - 1)
    values = {"floor_held": GC_FLOOR_HELD, "epoch": epoch, "last_tx": max(numbers.tx, first_of_epoch(epoch))}
    with contextlib.closing(connect(store)) as connection:
        apply_log(store, connection, to_damage=True)
    changes = [("UPDATE meta SET value = ? WHERE key = ?", (value, key)) for key, value in values.items()]
    # The store no longer matches its journal.
    metadata_file.change_rows(store, [*changes, ("UPDATE meta SET value = '' WHERE key = 'journal'", ())])
    return epoch


def _keep_log(store: Path) -> Path | None:
    """Copy the segments of the log, or SQLite's log in a store of an earlier release, into one file."""
    parts = [path for _, path in list_segments(store)] or [sqlite_log_of(store)]
    parts = [path for path in parts if path.exists() and path.stat().st_size]
    if not parts:
        return None
    kept = store.with_name(store.name + ".lost-log")
    private_files.create_file(kept)
    with kept.open("wb") as copied:
        for path in parts:
            with path.open("rb") as part:
                shutil.copyfileobj(part, copied)
    return kept


def _schema_of(store: Path) -> int:
    with contextlib.closing(connect_read_only(store)) as connection:
        return schema_version(connection)
