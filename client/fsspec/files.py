"""Files of the cluster as fsspec's file objects."""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
import uuid
import weakref
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from fsspec.spec import AbstractBufferedFile

from peacefs.client.file_objects import FileSink
from peacefs.client.os_errors import os_errors
from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.limits import packet_bytes

from .collector import is_collecting

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from peacefs.client.file_objects import FileSource
    from peacefs.client.filesystem import PeaceFileSystem


_NO_CACHE: Final = "none"


class OpenFileSystem(Protocol):
    """The parts of the fsspec file system that its open files use."""

    @property
    def files(self) -> PeaceFileSystem: ...

    @property
    def unclosed(self) -> UnclosedFiles: ...

    def parent_of(self, path: str) -> str: ...


class FsspecSource(AbstractBufferedFile):  # type: ignore[misc]
    """Reads the version that was current at the open, through the fsspec cache that the caller chose, if any.

    There is no cache by default: fsspec's default would read 5 MiB more than requested each time, and our client
    reads ahead.
    """

    def __init__(self, fs: OpenFileSystem, path: str, block_size: int | None, **options: Any) -> None:
        with os_errors():
            self._source = fs.files.open(path)
        # A pickled file contains its former length. Use the present length.
        options.pop("size", None)
        cache = options.pop("cache_type", _NO_CACHE)
        self._is_cached = cache != _NO_CACHE
        super().__init__(fs, path, "rb", block_size, size=self._source.length, cache_type=cache, **options)

    def read(self, length: int | None = -1) -> bytes:
        """Read `length` bytes. A large read at a new position fetches exactly the requested bytes."""
        if self._is_cached or self.closed:
            return super().read(length)  # type: ignore[no-any-return]
        left = max(self.size - self.loc, 0)
        wanted = left if length is None or length < 0 else min(length, left)
        with os_errors():
            if wanted >= packet_bytes and self._source.tell() != self.loc:
                data = self._source.read_at(self.loc, wanted)
            else:
                data = self._from_here().read(wanted)
        self.loc += len(data)
        return data

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        if self._is_cached or self.closed or char != b"\n":
            return super().readuntil(char, blocks)  # type: ignore[no-any-return]
        with os_errors():
            line = self._from_here().readline()
        self.loc += len(line)
        return line

    def _from_here(self) -> FileSource:
        if self._source.tell() != self.loc:
            self._source.seek(self.loc)
        return self._source

    def _fetch_range(self, start: int, end: int) -> bytes:
        with os_errors():
            return self._source.read_at(start, end - start)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class FsspecSink(AbstractBufferedFile):  # type: ignore[misc]
    """A file open for writing. It becomes visible as a whole when closed. `xb` refuses an existing file.

    A file dropped without `close` is closed by its finalizer, at the latest when the process ends, like Python's
    files. A `with` block that ends with an exception discards it. `flush` does nothing; `hflush` publishes what
    was written. In a transaction (`autocommit` false), the data is in a hidden file until `commit` renames it.
    """

    #: The process id; set once the file is open.
    _process = 0

    def __init__(
        self,
        fs: OpenFileSystem,
        path: str,
        mode: str,
        block_size: int | None,
        *,
        autocommit: bool,
        replication: int | None,
        **options: Any,
    ) -> None:
        self.closed: bool
        if mode not in ("wb", "xb", "ab"):
            raise NotImplementedError(f"a file cannot be opened in mode {mode!r}: use rb, wb, xb or ab")
        self._written_path = path
        self._is_given_up = False
        if not autocommit:
            if mode == "ab":
                raise NotImplementedError("a file cannot be extended within a transaction")
            self._written_path = f"{fs.parent_of(path).rstrip('/')}/.{uuid.uuid4().hex}.transaction"
        with os_errors():
            if mode == "xb" and not autocommit and fs.files.exists(path):
                raise FileExistsError(path)
            self._sink = self._begin(fs, mode, replication)
        super().__init__(fs, path, mode, block_size, autocommit=autocommit, **options)
        self.loc = self._sink.tell()
        self._process = os.getpid()
        self._unclosed = fs.unclosed
        if autocommit:
            self._unclosed[self._sink] = weakref.ref(self)

    def _begin(self, fs: OpenFileSystem, mode: str, replication: int | None) -> FileSink:
        if mode == "ab":
            try:
                return fs.files.open_for_appending(self._written_path)
            except FileNotFound:
                return fs.files.open_for_writing(self._written_path, replication=replication)
        return fs.files.open_for_writing(self._written_path, overwrite=mode == "wb", replication=replication)

    def write(self, data: Buffer) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        self._check_process()
        with os_errors():
            count = self._sink.write(data)
        self.loc += count
        return count

    def flush(self, force: bool = False) -> None:
        """Do nothing; with `force`, call `hflush`."""
        if self.closed:
            raise ValueError("Flush on closed file")
        if force:
            self.hflush()

    def hflush(self) -> None:
        """Write everything to the datanodes' disks and publish it: readers that open the file now see it."""
        self._check_process()
        with os_errors():
            self._sink.hflush()

    def close(self) -> None:
        """Publish the file, or complete the file that a transaction will rename. Raises any error of the write."""
        if self.closed:
            return
        self._check_process()
        self.closed = True
        self._unclosed.pop(self._sink, None)
        with os_errors():
            self._sink.close()

    def _check_process(self) -> None:
        """Raise ValueError in a forked process, even if it only drops a text file that wraps this one."""
        if self._process != os.getpid():
            raise ValueError(f"{self.path} can only be written by the process that opened it")

    def commit(self) -> None:
        """End a transaction that succeeded."""
        if self._is_given_up:
            return
        self.close()
        with os_errors():
            self.fs.files.rename(self._written_path, self.path, overwrite=self.mode == "wb")

    def discard(self) -> None:
        """Discard the file. An older file of the same name remains."""
        self._give_up()
        if not self.autocommit:
            with os_errors():
                self.fs.files.delete(self._written_path)

    def _give_up(self) -> None:
        if not self.closed and self._process == os.getpid():
            self.closed = True
            self._is_given_up = True
            self._unclosed.pop(self._sink, None)
            self._sink.discard()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._give_up()

    def __del__(self) -> None:
        if self.closed or self._process != os.getpid() or sys.is_finalizing():
            # A forked process inherits its parent's files and must not publish them. At the end of the process,
            # the file system has already published its files, and no thread can be started.
            return
        end = self.close if self.autocommit else self._give_up
        if is_collecting():
            # The client may be in use on this thread. The process does not end before the new thread does.
            threading.Thread(target=end, name="peacefs-dropped-file").start()
        else:
            end()


#: Files to publish before the client of a file system is closed.
UnclosedFiles = dict[FileSink, weakref.ref[FsspecSink]]


def publish_all(unclosed: UnclosedFiles) -> None:
    """Close all files when the process ends. Tries all of them; raises the error of the last one that fails."""
    with ExitStack() as each:
        for sink, reference in list(unclosed.items()):
            each.callback(sink.close)
            opened = reference()
            if opened is not None:
                each.callback(_close_outermost_first, opened, set())


def _close_outermost_first(opened: io.IOBase, seen: set[int]) -> None:
    """Close a file after the objects that wrap it: text and compression layers buffer data of their own.

    Only the code that opened the wrappers and the garbage collector know them.
    """
    seen.add(id(opened))
    holders = gc.get_referrers(opened)
    # A file class written in Python refers to the wrapped file in its `__dict__`.
    holders += gc.get_referrers(*(holder for holder in holders if type(holder) is dict))
    for holder in holders:
        if isinstance(holder, io.IOBase) and id(holder) not in seen:
            _close_outermost_first(holder, seen)
    opened.close()
