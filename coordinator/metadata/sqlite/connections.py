"""Connections to stores that compare each page they read with its checksum.

SQLite opens its files through `_SummedFiles`. If a page of the database, or of its log, does not match, the
statement that reads it raises DamagedPage.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import apsw
from xxhash import xxh3_64_digest

from peacefs.protocol.errors import ServiceUnready
from peacefs.runtime import private_files

from .page_sums import PAGE_BYTES, PageScrub, PageSums, path_of

_VFS = "peacefs-page-sums"
_STATEMENTS = 256
_BUSY_TIMEOUT_MS = 5000
_LOG_HEAD_BYTES, _FRAME_HEAD_BYTES = 32, 24
_FRAME_BYTES = _FRAME_HEAD_BYTES + PAGE_BYTES


class Rows(Protocol):
    """The result of a statement. A row is a tuple of the columns' values."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class DamagedPage(ServiceUnready):
    """A page that was read differs from the page that was written. The coordinator then stops."""


class StoresDiffer(DamagedPage):
    """The rows of this store differ from the leader's."""


#: For each store with damaged pages that this process has read: a description of the first one.
damage_met: dict[Path, str] = {}


def connect(target: Path) -> apsw.Connection:
    """Open a store that has page sums, for reading and writing. Raises apsw.Error."""
    return _prepared(apsw.Connection(str(target.absolute()), vfs=_VFS, statementcachesize=_STATEMENTS))


def connect_plain(target: Path | str) -> apsw.Connection:
    """Open a database without page sums: in memory, or a copy. Raises apsw.Error."""
    return _prepared(apsw.Connection(str(target), statementcachesize=_STATEMENTS))


def connect_read_only(path: Path) -> apsw.Connection:
    """Open a store or a copy for reading. The connection never writes, not even a checkpoint at its close.

    Raises apsw.Error.
    """
    vfs = _VFS if path_of(path).exists() else None
    uri = f"{path.absolute().as_uri()}?mode=ro"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return _prepared(_ReadOnly(uri, flags=flags, vfs=vfs))


def connect_past_sums(path: Path) -> apsw.Connection:
    """Open a store for reading without verifying page sums. Raises apsw.Error."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return _prepared(apsw.Connection(f"{path.absolute().as_uri()}?mode=ro", flags=flags))


def is_fault_of_the_store(error: BaseException) -> bool:
    """Return whether the store itself failed, as opposed to an invalid request."""
    of_request = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)
    return isinstance(error, apsw.Error | DamagedPage | OSError) and not isinstance(error, of_request)


def is_want_of_room(error: BaseException) -> bool:
    """Return whether the disk was full, including quotas and failed syncs, for which SQLite has other codes."""
    return isinstance(error, apsw.FullError)


def damage_of(store: Path) -> DamagedPage | None:
    """Return an error for the first damaged page that this process has read from a store; None if none."""
    what = damage_met.get(store.absolute())
    return None if what is None else DamagedPage(f"the metadata is damaged: {what}")


def damage_found(scrub: PageScrub, pages: int, *, is_log_copied: bool) -> Exception | None:
    """Verify the checksums of the next `pages`. Return an error if one is damaged or unreadable."""
    try:
        found = scrub.look(pages, is_log_copied=is_log_copied)
    except OSError as error:
        return error
    if found is None:
        return None
    return DamagedPage(f"the metadata is damaged: page {found} is not what was written")


class _ReadOnly(apsw.Connection):
    """A read-only connection whose close ignores an expected error."""

    def close(self, force: bool = False) -> None:
        # At the close, SQLite tries to lock the file for a last checkpoint. On a read-only file this fails, and
        # SQLite continues. But with a VFS in Python, the failure is also raised as an exception here.
        with contextlib.suppress(apsw.IOError):
            super().close(force)


def _met(path: Path, what: str) -> DamagedPage:
    damage_met.setdefault(path, what)
    return DamagedPage(f"the metadata is damaged: {what}")


def _prepared(connection: apsw.Connection) -> apsw.Connection:
    connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
    # Otherwise SQLite compiles a statement again for each new set of values, to plan by them.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


class _SummedFiles(apsw.VFS):
    """A VFS like the system's, which verifies the pages it reads."""

    def __init__(self) -> None:
        super().__init__(_VFS, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is not None and flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return _Database(Path(path), name, flags)
        if path is not None and flags[0] & apsw.SQLITE_OPEN_WAL:
            return _Log(Path(path.removesuffix("-wal")), name, flags)
        return apsw.VFSFile("", name, flags)


class _Database(apsw.VFSFile):
    """The database file."""

    def __init__(self, path: Path, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._path = path
        self._sums = PageSums.open(path)
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        data = super().xRead(amount, offset)
        if amount == PAGE_BYTES:
            page = offset // PAGE_BYTES + 1
            if not self._sums.matches(page, data) and (data or page <= self._sums.pages):
                raise _met(self._path, f"page {page} is not what was written")
        return data

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        assert (len(data), offset % PAGE_BYTES) == (PAGE_BYTES, 0), "SQLite writes whole pages"
        with _as_error_of_sqlite():
            self._sums.note(offset // PAGE_BYTES + 1, data)

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        with _as_error_of_sqlite():
            self._sums.cut(newsize // PAGE_BYTES)

    def xSync(self, flags: int) -> None:
        with _as_error_of_sqlite():
            self._sums.sync()
        super().xSync(flags)

    def xClose(self) -> None:
        self._sums.close()
        super().xClose()


class _Log(apsw.VFSFile):
    """SQLite's log file.

    SQLite verifies frames of the log only when it recovers the log. Therefore the checksum of each page written to
    the log is also kept in a second file, which all processes that read the log share. That file need not survive
    these processes.
    """

    def __init__(self, path: Path, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._path = path
        self._sums = os.open(log_sums_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, private_files.FILE_MODE)
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        data = super().xRead(amount, offset)
        if amount == PAGE_BYTES:
            known = os.pread(self._sums, 8, _place_of(offset))
            if len(known) == 8 and known != bytes(8) and known != xxh3_64_digest(data):
                raise _met(self._path, f"the page at {offset} of its log is not what was written")
        elif amount == _FRAME_BYTES:
            # SQLite is recovering the log, and verifies these frames itself.
            os.pwrite(self._sums, xxh3_64_digest(data[_FRAME_HEAD_BYTES:]), _place_of(offset + _FRAME_HEAD_BYTES))
        return data

    def xWrite(self, data: bytes, offset: int) -> None:
        if len(data) == PAGE_BYTES:
            os.pwrite(self._sums, xxh3_64_digest(data), _place_of(offset))
        elif len(data) not in (_LOG_HEAD_BYTES, _FRAME_HEAD_BYTES):
            os.ftruncate(self._sums, 0)
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        os.ftruncate(self._sums, 0)
        super().xTruncate(newsize)

    def xClose(self) -> None:
        os.close(self._sums)
        super().xClose()


def log_sums_of(store: Path) -> Path:
    """Return the path of the checksums for the pages in SQLite's log of a store."""
    return store.with_name(store.name + "-wal.sums")


def _place_of(offset: int) -> int:
    return (offset - _LOG_HEAD_BYTES) // _FRAME_BYTES * 8


@contextlib.contextmanager
def _as_error_of_sqlite() -> Iterator[None]:
    """Translate OSError for SQLite: FullError if the disk is full, IOError otherwise."""
    try:
        yield
    except OSError as error:
        kind = apsw.FullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else apsw.IOError
        raise kind(f"page sums: {error}") from error


_FILES = _SummedFiles()
