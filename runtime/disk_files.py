"""Operations on files and directories for drivers of participants. Knows nothing about chunks."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import Final

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.limits import KIB

from . import effects as fx
from .write_ways import Trial

# Size of a write with O_DIRECT.
direct_write_bytes: Final = 512 * KIB


# Linux-only system calls that Python does not wrap.
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
if _renameat2 is not None:
    _renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_HERE = -100
_RENAME_EXCHANGE = 2
_sync_file_range = getattr(ctypes.CDLL(None), "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_SYNC_FILE_RANGE_WRITE = 2
# Maximum number of buffers per call of pwritev.
_PIECES_MAX = os.sysconf("SC_IOV_MAX")
_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)


class DiskFile(fx.File):
    """A file descriptor and the offset where the next append goes."""

    __slots__ = ("descriptor", "end", "trial")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        #: Measures how fast the file is written; None if the driver does not choose the way by measuring.
        self.trial: Trial | None = None
        self.end = os.fstat(descriptor).st_size

    def append(self, buffers: Sequence[Bytes]) -> None:
        """Write all buffers to the end of the file. Raises OSError."""
        pending = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while pending:
            written = os.pwritev(self.descriptor, pending[:_PIECES_MAX], self.end)
            self.end += written
            while pending and written >= len(pending[0]):
                written -= len(pending.pop(0))
            if written:
                pending[0] = pending[0][written:]

    def begin_writeback(self) -> None:
        """Start writing the file to disk without waiting. Errors are reported by `sync`."""
        if _sync_file_range is not None:
            _sync_file_range(self.descriptor, 0, 0, _SYNC_FILE_RANGE_WRITE)

    def sync(self) -> None:
        """Make what was appended durable. Raises OSError."""
        os.fdatasync(self.descriptor)


class DirectFile(DiskFile):
    """A new file that is written with O_DIRECT, bypassing the page cache.

    Data is collected in an aligned buffer and written in pieces of `direct_write_bytes`. `sync` writes the
    remainder; only the file's last page goes through the page cache.
    """

    __slots__ = ("_direct", "_filled", "_piece", "_written", "was_refused")

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._direct = True
        #: True if the file system accepted O_DIRECT when the file was opened, but not when it was written.
        self.was_refused = False
        self._piece = memoryview(mmap.mmap(-1, direct_write_bytes))
        #: Bytes in the buffer that are not written yet, and the bytes written to the file.
        self._filled = 0
        self._written = self.end

    def append(self, buffers: Sequence[Bytes]) -> None:
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            while view:
                count = min(len(view), len(self._piece) - self._filled)
                self._piece[self._filled : self._filled + count] = view[:count]
                view = view[count:]
                self._filled += count
                self.end += count
                if self._filled == len(self._piece):
                    self._write(self._piece)
                    self._filled = 0

    def begin_writeback(self) -> None:
        """Do nothing, because direct writes need no writeback."""

    def sync(self) -> None:
        whole = self._filled // mmap.PAGESIZE * mmap.PAGESIZE
        self._write(self._piece[:whole])
        if whole < self._filled:
            self._use_cache()
            self._write(self._piece[whole : self._filled])
        self._filled = 0
        super().sync()

    def _write(self, data: memoryview) -> None:
        while data:
            try:
                written = os.pwrite(self.descriptor, data, self._written)
            except OSError as error:
                # Some file systems accept O_DIRECT at open but not this write, or need a larger alignment.
                if error.errno != errno.EINVAL or not self._direct:
                    raise
                # The last pages may be refused because they need a larger alignment. That costs little.
                self.was_refused |= len(data) == len(self._piece)
                self._use_cache()
                continue
            data = data[written:]
            self._written += written

    def _use_cache(self) -> None:
        flags = fcntl.fcntl(self.descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        self._direct = False


def read_from_memory(file: DiskFile, target: bytearray | memoryview, offset: int) -> int:
    """Fill `target` from `offset` as far as the data is in the page cache; return the number of bytes.

    Never waits for the disk, and returns 0 on errors: a later blocking read will report them.
    """
    if not _NO_WAIT:
        return 0
    try:
        return os.preadv(file.descriptor, [target], offset, _NO_WAIT)
    except OSError:
        return 0


def read_whole_from_memory(file: DiskFile, offset: int, length: int) -> bytes | None:
    """Read a part of a file from the page cache; None if not all of it is there."""
    data = bytearray(length)
    return bytes(data) if read_from_memory(file, data, offset) == length else None


def sync_directory(path: str) -> None:
    """Make the names in a directory durable, with fsync. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange_names(first: str, second: str) -> None:
    """Swap the names of two files or directories atomically. Raises OSError, also if the kernel or the file system
    does not support it.
    """
    if _renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), first)
    if _renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), first, None, second)


def list_directory(path: str) -> list[tuple[str, int]]:
    """Return the sorted names and sizes in bytes of the entries; size -1 for a directory. Raises OSError."""
    with os.scandir(path) as entries:
        return sorted(
            (
                entry.name,
                -1 if entry.is_dir(follow_symlinks=False) else entry.stat(follow_symlinks=False).st_size,
            )
            for entry in entries
        )
