"""The commit record: a file beside the store with the number of the last acknowledged commit.

It is written after each commit and before the answer, so it never names a commit that is not durable. This write
is not synced, but it survives a killed process. `sync` makes it durable, once a second. After a power cut the
record may therefore be up to a second old, but never too new. Two slots in separate blocks are written in turn, so
that a torn or damaged slot leaves the previous one.
"""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from peacefs.coordinator.metadata.log.segments import identity_of
from peacefs.protocol.errors import StartupError
from peacefs.runtime import private_files
from peacefs.runtime.disk_files import sync_directory

_MAGIC = b"pfscommt"
_BODY = struct.Struct(">8s16sQQQQ")
_CRC = struct.Struct(">I")
_RECORD_BYTES = _BODY.size + _CRC.size
_SLOT_BYTES = 4096
_SLOTS = 2


class Acknowledged(NamedTuple):
    """The last acknowledged commit: its number, its epoch, and its wall clock time."""

    tx: int
    epoch: int
    at_ms: int


def path_of(store: Path) -> Path:
    """Return the path of a store's commit record."""
    return store.with_name(store.name + ".commits")


def read(store: Path, cluster_id: str) -> Acknowledged | None:
    """Return the record; None if it does not exist, or belongs to another cluster.

    Raises RecordDamaged, StartupError.
    """
    found = _newest(_read_slots(store))
    return None if found is None or found[1] != identity_of(cluster_id) else found[2]


class CommitRecord:
    """The record of an open store. One thread may call `note` while another calls `sync`."""

    def __init__(self, descriptor: int, cluster_id: str, written: int) -> None:
        self._descriptor = descriptor
        self._identity = identity_of(cluster_id)
        self._written = written
        self._synced = -1
        self._closing = threading.Lock()
        self._is_open = True

    @classmethod
    def open(cls, store: Path, cluster_id: str, now: Acknowledged) -> CommitRecord:
        """Open the record and write `now` to it. Create the record if it is missing or another cluster's.

        Raises StartupError.
        """
        path = path_of(store)
        try:
            found = _newest(_read_slots(store))
            if found is None or found[1] != identity_of(cluster_id):
                _create(path, cluster_id, now)
                found = _newest(_read_slots(store))
                assert found is not None
            record = cls(os.open(path, os.O_RDWR | os.O_CLOEXEC), cluster_id, found[0])
            record.note(now)
        except OSError as error:
            raise StartupError(f"cannot write {path}: {error.strerror or error}") from None
        return record

    def note(self, commit: Acknowledged) -> None:
        """Record a durable commit. Raises OSError."""
        self._written += 1
        data = _pack(self._identity, self._written, commit)
        if os.pwrite(self._descriptor, data, self._written % _SLOTS * _SLOT_BYTES) != len(data):
            raise OSError("the commit record was not written in full")

    def sync(self) -> None:
        """Sync the recorded commits. Does nothing after `close`. Raises OSError."""
        with self._closing:
            written = self._written
            if self._is_open and written != self._synced:
                os.fdatasync(self._descriptor)
                self._synced = written

    def close(self) -> None:
        """Sync and close the record. Raises OSError."""
        try:
            self.sync()
        finally:
            with self._closing:
                self._is_open = False
                os.close(self._descriptor)


def _create(path: Path, cluster_id: str, now: Acknowledged) -> None:
    """Create a record atomically and in its full size, so that later writes need no disk space."""
    staged = path.with_name(path.name + ".new")
    private_files.create_file(staged)
    with staged.open("r+b") as file:
        for written in range(_SLOTS):
            file.write(_pack(identity_of(cluster_id), written, now).ljust(_SLOT_BYTES, b"\0"))
        file.flush()
        os.fsync(file.fileno())
    staged.rename(path)
    sync_directory(str(path.absolute().parent))


def _pack(identity: bytes, written: int, commit: Acknowledged) -> bytes:
    body = _BODY.pack(_MAGIC, identity, written, *commit)
    return body + _CRC.pack(crc32c(body))


def _read_slots(store: Path) -> list[bytes] | None:
    path = path_of(store)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    return [content[at : at + _RECORD_BYTES] for at in range(0, _SLOTS * _SLOT_BYTES, _SLOT_BYTES)]


def _newest(slots: list[bytes] | None) -> tuple[int, bytes, Acknowledged] | None:
    """Return the newest slot: its serial number, its owner, and its content."""
    if slots is None:
        return None
    found = []
    for slot in slots:
        if len(slot) != _RECORD_BYTES or _CRC.unpack(slot[_BODY.size :])[0] != crc32c(slot[: _BODY.size]):
            continue
        magic, identity, written, *commit = _BODY.unpack(slot[: _BODY.size])
        if magic == _MAGIC:
            found.append((written, identity, Acknowledged(*commit)))
    if not found:
        raise RecordDamaged
    return max(found)


class RecordDamaged(Exception):
    """Neither slot of the record is readable, so the last acknowledged commit is unknown."""
