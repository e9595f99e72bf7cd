"""Checksums of the database's pages, in a separate file.

A checksum inside a page detects a flipped bit. It does not detect an old version of a page, two exchanged pages,
or a page of zeros with a checksum of zero. So the checksums are in a separate file, one per page, over the page's
number and its bytes. Entry N of the file is the checksum of page N, and entry 0 names the format.

SQLite writes database pages only when it copies its log (or while a database is created), and reuses the log only
after the database was synced. `PageSums.sync` is a part of that sync. So after a crash, a checksum can differ from
its page only if the log still has the page, and then SQLite reads the page from the log.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from xxhash import xxh3_64_intdigest

from peacefs.protocol.errors import StartupError
from peacefs.runtime import private_files
from peacefs.runtime.disk_files import sync_directory

from .log_scan import pages_of

PAGE_BYTES = 4096

_SUM = struct.Struct(">Q")
_MAGIC = b"pfspsum1"
_PAGES_AT_ONCE = 1024


def path_of(store: Path) -> Path:
    """Return the path of a store's page sums."""
    return store.with_name(store.name + ".sums")


def sum_of(page: int, data: bytes | memoryview) -> int:
    """Return the checksum of a page. Pages are counted from 1."""
    return xxh3_64_intdigest(data, page)


class PageSums:
    """The open page sums of one database. Any number of processes may read the file; only one may write."""

    def __init__(self, store: Path, descriptor: int) -> None:
        self._store = store
        self._descriptor = descriptor
        self._is_synced = True

    @classmethod
    def open(cls, store: Path) -> PageSums:
        """Open the page sums of a store. Raises OSError, and ValueError if the file is not ours."""
        descriptor = os.open(path_of(store), os.O_RDWR | os.O_CLOEXEC)
        if os.pread(descriptor, len(_MAGIC), 0) != _MAGIC:
            os.close(descriptor)
            raise ValueError(f"{path_of(store)} does not begin as a file of page sums does")
        return cls(store, descriptor)

    @classmethod
    def create(cls, store: Path) -> PageSums:
        """Create the file for a database without pages. Raises OSError."""
        private_files.create_file(path_of(store))
        descriptor = os.open(path_of(store), os.O_RDWR | os.O_CLOEXEC)
        os.pwrite(descriptor, _MAGIC, 0)
        return cls(store, descriptor)

    def matches(self, page: int, data: bytes | memoryview) -> bool:
        """Return whether a page matches its checksum."""
        return os.pread(self._descriptor, _SUM.size, page * _SUM.size) == _SUM.pack(sum_of(page, data))

    def note(self, page: int, data: bytes) -> None:
        """Write the checksum of a written page. Raises OSError."""
        self._is_synced = False
        packed = _SUM.pack(sum_of(page, data))
        if os.pwrite(self._descriptor, packed, page * _SUM.size) != _SUM.size:
            raise OSError(f"{path_of(self._store)} was not written in full")

    def cut(self, pages: int) -> None:
        """Remove the checksums after the first `pages`. Raises OSError."""
        self._is_synced = False
        os.ftruncate(self._descriptor, (pages + 1) * _SUM.size)

    def sync(self) -> None:
        """Sync the checksums. Raises OSError."""
        if not self._is_synced:
            os.fdatasync(self._descriptor)
            self._is_synced = True

    def differing(self, database: int, first: int, count: int) -> list[int]:
        """Return the pages that do not match, among `count` pages of an open database from `first` on.

        A page that only one of the two files has does not match. Beyond the end of both, returns nothing. Raises
        OSError.
        """
        data = memoryview(os.pread(database, count * PAGE_BYTES, (first - 1) * PAGE_BYTES))
        sums = os.pread(self._descriptor, count * _SUM.size, first * _SUM.size)
        there = max(-(-len(data) // PAGE_BYTES), -(-len(sums) // _SUM.size))
        return [
            first + at
            for at in range(there)
            if sums[at * _SUM.size : (at + 1) * _SUM.size]
            != _SUM.pack(sum_of(first + at, data[at * PAGE_BYTES : (at + 1) * PAGE_BYTES]))
        ]

    @property
    def pages(self) -> int:
        """The number of pages with a checksum."""
        return os.fstat(self._descriptor).st_size // _SUM.size - 1

    def close(self) -> None:
        os.close(self._descriptor)


class PageScrub:
    """Verifies the pages of an open database again and again, some at a time."""

    def __init__(self, store: Path, database: int) -> None:
        """`database` is a descriptor of the database file, which must stay open. Raises OSError, ValueError."""
        self._store = store
        self._database = database
        self._sums = PageSums.open(store)
        self._next = 1

    def look(self, pages: int, *, is_log_copied: bool) -> int | None:
        """Verify the next `pages`; return the first damaged one. Nothing may write meanwhile. Raises OSError.

        Unless `is_log_copied`, pages in SQLite's log are ignored: a crash may have torn them in the database.
        """
        found = self._sums.differing(self._database, self._next, pages)
        self._next += pages
        if self._next > self._sums.pages:
            self._next = 1
        if found and not is_log_copied:
            in_log = pages_of(sqlite_log_of(self._store))
            found = [page for page in found if page not in in_log]
        return found[0] if found else None

    def close(self) -> None:
        self._sums.close()


def build(store: Path) -> None:
    """Create durable page sums for an intact database that is not open. Raises OSError."""
    staged = store.with_name(store.name + ".summing")
    sums = PageSums.create(staged)
    try:
        for page, data in enumerate(_pages(store), start=1):
            sums.note(page, data)
        sums.sync()
    finally:
        sums.close()
    path_of(staged).rename(path_of(store))
    sync_directory(str(store.absolute().parent))


def damaged_pages(store: Path) -> list[int]:
    """Return the damaged pages of a database that is not open.

    Ignores pages in the log, because SQLite reads them from there. Raises StartupError.
    """
    try:
        sums = PageSums.open(store)
    except (OSError, ValueError) as error:
        raise StartupError(f"cannot read {path_of(store)}: {error}") from None
    descriptor = os.open(store, os.O_RDONLY | os.O_CLOEXEC)
    try:
        in_log = pages_of(sqlite_log_of(store))
        pages = max(sums.pages, -(-os.fstat(descriptor).st_size // PAGE_BYTES))
        found: list[int] = []
        for first in range(1, pages + 1, _PAGES_AT_ONCE):
            found += sums.differing(descriptor, first, _PAGES_AT_ONCE)
        return [page for page in found if page not in in_log]
    except OSError as error:
        raise StartupError(f"cannot read {store}: {error.strerror}") from None
    finally:
        os.close(descriptor)
        sums.close()


def sqlite_log_of(store: Path) -> Path:
    """Return the path of SQLite's log of a store."""
    return store.with_name(store.name + "-wal")


def _pages(store: Path) -> Iterator[bytes]:
    with store.open("rb") as file:
        while data := file.read(PAGE_BYTES):
            yield data
