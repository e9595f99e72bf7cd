"""Segments as files of a local directory, with one subdirectory per stream."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from peacefs.protocol.errors import AlreadyBeingCreated, FileNotFound
from peacefs.runtime.disk_files import sync_directory

from .segments import SegmentAppend, SegmentFile, directory_name, stream_name

_SUFFIX = ".log"
_LOCK = ".writer"


class DirectorySegments:
    """A store in a directory. A claimed stream is locked until `close`, or until the process ends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._locks: dict[str, int] = {}

    def claim(self, stream: str) -> None:
        if stream in self._locks:
            return
        directory = self._root / directory_name(stream)
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise AlreadyBeingCreated(
                f"stream {stream!r} is being written by another process: end that one first"
            ) from None
        self._locks[stream] = lock

    def close(self) -> None:
        for lock in self._locks.values():
            os.close(lock)
        self._locks.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append_all(self, appends: Sequence[SegmentAppend]) -> None:
        """Write everything first and then sync, so that the disk can combine the writes."""
        opened: list[int] = []
        created: set[Path] = set()
        try:
            for append in appends:
                path = self._path(append.stream, append.segment)
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    created |= {path.parent, self._root}
                descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                opened.append(descriptor)
                left = memoryview(append.data)
                while left:
                    left = left[os.write(descriptor, left) :]
            for descriptor in opened:
                os.fdatasync(descriptor)
            for directory in created:
                sync_directory(str(directory))
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def segments(self, stream: str) -> Sequence[tuple[int, int]]:
        directory = self._root / directory_name(stream)
        if not directory.is_dir():
            return []
        return sorted((int(path.stem), path.stat().st_size) for path in directory.glob(f"*{_SUFFIX}"))

    def streams(self) -> Sequence[str]:
        if not self._root.is_dir():
            return []
        return sorted(stream_name(path.name) for path in self._root.iterdir() if any(path.glob(f"*{_SUFFIX}")))

    def read(self, stream: str, segment: int, offset: int, length: int) -> bytes:
        try:
            with self._path(stream, segment).open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except FileNotFoundError:
            raise _gone(stream, segment) from None

    def open(self, stream: str, segment: int) -> SegmentFile:
        try:
            return _LocalFile(os.open(self._path(stream, segment), os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            raise _gone(stream, segment) from None

    def truncate(self, stream: str, segment: int, length: int) -> None:
        descriptor = os.open(self._path(stream, segment), os.O_WRONLY)
        try:
            os.ftruncate(descriptor, length)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def delete(self, stream: str, segment: int) -> None:
        path = self._path(stream, segment)
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_directory(str(path.parent))

    def _path(self, stream: str, segment: int) -> Path:
        return self._root / directory_name(stream) / f"{segment:020}{_SUFFIX}"


class _LocalFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read_into(self, offset: int, target: memoryview) -> int:
        filled = 0
        while filled < len(target):
            count = os.preadv(self._descriptor, [target[filled:]], offset + filled)
            if not count:
                break
            filled += count
        return filled

    def close(self) -> None:
        os.close(self._descriptor)


def _gone(stream: str, segment: int) -> FileNotFound:
    return FileNotFound(f"segment {segment} of stream {stream!r} is gone: it was trimmed")
