"""Reads the image and the log of a store that this process has not opened. Another process may write it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from peacefs.coordinator.metadata.log.segments import LogDamaged
from peacefs.coordinator.metadata.tables import META

from .connections import connect_read_only
from .image import Entry, ImageWriter, entries_behind
from .schema import IMAGE_SCHEMA, schema_version

#: Maximum number of attempts to read a log, because a coordinator may write and delete segments meanwhile.
_LOOKS = 5


class StoreNumbers(NamedTuple):
    """The numbers of a store, including the entries in its log."""

    cluster_id: str
    tx: int
    epoch: int
    #: The journal that the store follows; empty for none.
    journal: str
    #: A description of the log's damage; None if the log is intact.
    damage: str | None
    #: The number of commits that are in the log and not in the image yet.
    behind: int = 0


def numbers_of(store: Path) -> StoreNumbers:
    """Return the numbers of a store. Raises apsw.Error, DamagedPage, StartupError."""
    found = _look(store)
    for _ in range(_LOOKS - 1):
        if found.damage is None:
            break
        found = _look(store)
    return found


def _look(store: Path) -> StoreNumbers:
    with contextlib.closing(connect_read_only(store)) as connection:
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        if schema_version(connection) < IMAGE_SCHEMA:
            return _numbers(meta)
        damage, behind = None, 0
        try:
            for _number, _chain, content in entries_behind(connection, store):
                behind += 1
                meta |= [row for table, row in content.changes if table == META]
        except LogDamaged as found:
            damage = str(found)
    return _numbers(meta, damage, behind)


def _numbers(meta: dict[str, Any], damage: str | None = None, behind: int = 0) -> StoreNumbers:
    return StoreNumbers(meta["cluster_id"], meta["last_tx"], meta["epoch"], meta["journal"], damage, behind)


def apply_log(store: Path, connection: apsw.Connection, *, to_damage: bool = False) -> None:
    """Apply the log of a store to its image, or to a copy of the image.

    If the log is damaged, raises LogDamaged; with `to_damage`, applies the entries before the damage instead. Also
    raises StartupError, apsw.Error.
    """
    if schema_version(connection) < IMAGE_SCHEMA:
        return
    entries: list[Entry] = []
    for looks_left in range(_LOOKS - 1, -1, -1):
        entries = []
        try:
            for entry in entries_behind(connection, store):
                entries.append(entry)
            break
        except LogDamaged:
            if not looks_left and not to_damage:
                raise
    ImageWriter(connection).apply(entries)
