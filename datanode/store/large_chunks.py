"""Large chunks: one file each, staged in one directory and published by a rename into another."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable

from peacefs.protocol.errors import ChecksumMismatch
from peacefs.protocol.ids import ChunkId, Version
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx

from .chunk_index import ChunkIndex, IndexedPlace
from .disk_faults import close_quietly, is_read_only
from .layout import (
    FOOTER_BYTES,
    StorePaths,
    chunk_file_bytes,
    pack_footer,
    parse_chunk_file_name,
    sums_bytes,
    unpack_tail,
)
from .recovery_report import StoreRecovery


class StagedFile:
    __slots__ = ("file", "path")

    def __init__(self, path: str, file: fx.File) -> None:
        self.path = path
        self.file = file


class LargeChunks:
    """The files of large chunks, for `ChunkStore`. Thread-safe for different chunks.

    The caller must not publish or remove the same chunk concurrently. A file under its final name is complete.
    """

    def __init__(self, paths: StorePaths, index: ChunkIndex, on_lost: Callable[[Replica], None]) -> None:
        self._paths = paths
        self._index = index
        self._on_lost = on_lost
        self._serials = itertools.count(1)
        self._lock = threading.Lock()
        self._used_bytes = 0
        #: Directories whose entry in the parent is durable.
        self._folders: set[str] = set()

    @property
    def used_bytes(self) -> int:
        """The bytes of published files. Staged files count once they are published."""
        return self._used_bytes

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self._used_bytes += size_bytes

    # -- writing -----------------------------------------------------------------------------------

    def stage(self, chunk: ChunkId, version: Version) -> fx.Steps[StagedFile]:
        path = f"{self._paths.staging}/{chunk:016x}-{version:016x}.{next(self._serials)}"
        return StagedFile(path, (yield from fx.open_file(path, create=True, written_once=True)))

    def read_staged(self, staged: StagedFile, offset: int, length: int) -> fx.Steps[bytes]:
        """Return bytes of a file that is being written. Its last bytes may be in memory until it is synced."""
        yield from fx.sync(staged.file)
        file = yield from fx.open_file(staged.path)
        try:
            return (yield from fx.read_at(file, offset, length))
        finally:
            yield from close_quietly(file)

    def publish(self, staged: StagedFile, chunk: ChunkId, place: IndexedPlace, sums: bytes) -> fx.Steps[None]:
        """Make a complete staged file durable under its final name.

        After an OSError nothing of it remains, as far as the disk allows.
        """
        folder = self._paths.folder(chunk)
        if folder not in self._folders:
            yield from self._make_folder(folder)
        target = self._paths.chunk_file(chunk, place.version, place.length)
        yield from fx.append(staged.file, sums, pack_footer(chunk, place.version, place.length, sums))
        yield from fx.sync(staged.file)
        yield from fx.rename(staged.path, target)
        staged.path = target
        yield from fx.sync_directory(folder)
        self._count(chunk_file_bytes(place.length))
        yield from close_quietly(staged.file)

    def _make_folder(self, folder: str) -> fx.Steps[None]:
        yield from fx.make_directory(folder)
        yield from fx.sync_directory(self._paths.chunks)
        self._folders.add(folder)

    def discard(self, staged: StagedFile) -> fx.Steps[None]:
        """Remove a file that will not be published. If that fails, the next start removes it."""
        yield from close_quietly(staged.file)
        with contextlib.suppress(OSError):
            yield from fx.remove(staged.path)

    def remove(self, chunk: ChunkId, place: IndexedPlace) -> fx.Steps[None]:
        """Remove the file of a replica that is no longer in the index.

        If the disk refuses, the replica reappears at the next start, which is harmless. Raises OSError only if the
        disk refuses all changes.
        """
        self._count(-chunk_file_bytes(place.length))
        try:
            yield from fx.remove(self._paths.chunk_file(chunk, place.version, place.length))
        except OSError as error:
            if is_read_only(error):
                raise

    def lose(self, chunk: ChunkId, place: IndexedPlace) -> None:
        """Report a replica whose file is missing, unless it was deleted or replaced by now."""
        if self._index.forget(chunk, place):
            self._count(-chunk_file_bytes(place.length))
            self._on_lost(Replica(chunk, place.version, place.length))

    # -- reading -----------------------------------------------------------------------------------

    def open(self, chunk: ChunkId, place: IndexedPlace) -> fx.Steps[tuple[fx.File, bytes]]:
        """Return the open file and its checksums.

        Raises ChecksumMismatch for a damaged footer, FileNotFoundError if the replica has just been deleted.
        """
        file = yield from fx.open_file(self._paths.chunk_file(chunk, place.version, place.length))
        try:
            tail = yield from fx.read_at(file, place.length, sums_bytes(place.length) + FOOTER_BYTES + 1)
            return file, unpack_tail(tail, chunk, place.version, place.length)
        except (OSError, ChecksumMismatch):
            yield from close_quietly(file)
            raise

    # -- start -------------------------------------------------------------------------------------

    def recover(self, recovery: StoreRecovery) -> fx.Steps[list[tuple[ChunkId, IndexedPlace]]]:
        """Empty the staging directory and add every chunk file to the index.

        A file was complete before it got its name, so checking name and size is enough; readers verify the
        contents. Return the replicas that lost to a newer version of the same chunk; the caller deletes them.
        """
        for name, size in (yield from fx.list_directory(self._paths.staging)):
            if size < 0:
                recovery.foreign.append(f"{self._paths.staging}/{name}")
                continue
            if recovery.read_only:
                continue
            yield from fx.remove(f"{self._paths.staging}/{name}")
            recovery.unfinished += 1
        # The process may have been killed before its own fsync of this directory or of its subdirectories.
        yield from fx.sync_directory(self._paths.chunks)
        losers = []
        for folder_name, folder_size in (yield from fx.list_directory(self._paths.chunks)):
            folder = f"{self._paths.chunks}/{folder_name}"
            if folder_size >= 0:
                recovery.foreign.append(folder)
                continue
            yield from fx.sync_directory(folder)
            self._folders.add(folder)
            for name, size in (yield from fx.list_directory(folder)):
                loser = yield from self._recover_file(folder, name, size, recovery)
                if loser is not None:
                    losers.append(loser)
        recovery.stale += len(losers)
        return losers

    def _recover_file(
        self, folder: str, name: str, size: int, recovery: StoreRecovery
    ) -> fx.Steps[tuple[ChunkId, IndexedPlace] | None]:
        path = f"{folder}/{name}"
        parsed = parse_chunk_file_name(name)
        if parsed is None or size < 0 or self._paths.folder(parsed[0]) != folder:
            recovery.foreign.append(path)
            return None
        chunk, version, length = parsed
        if size != chunk_file_bytes(length):
            if not recovery.read_only:
                yield from fx.rename(path, f"{self._paths.damaged}/{name}")
            recovery.damaged_files.append(path)
            return None
        self._count(size)
        loser = self._index.publish(chunk, IndexedPlace(version, length))
        return None if loser is None else (chunk, loser)
