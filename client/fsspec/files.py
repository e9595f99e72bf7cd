"""Files of the cluster as fsspec's file objects."""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile

from peacefs.client.os_errors import os_errors
from peacefs.protocol.errors import FileNotFound

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from peacefs.client.file_objects import FileSink

    from .filesystem import PeaceFsspecFileSystem


class FsspecSource(AbstractBufferedFile):  # type: ignore[misc]
    """Reads what the file was when it was opened, through the cache of fsspec that the caller chose."""

    def __init__(self, fs: PeaceFsspecFileSystem, path: str, block_size: int | None, **options: Any) -> None:
        with os_errors():
            self._source = fs.files.open(path)
        # Whoever opens a pickled file again brings the length that it had; what counts is what it has.
        options.pop("size", None)
        super().__init__(fs, path, "rb", block_size, size=self._source.length, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        with os_errors():
            return self._source.read_at(start, end - start)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class FsspecSink(AbstractBufferedFile):  # type: ignore[misc]
    """Writes a file that appears, whole, when it is closed; `xb` refuses one that is there, now and then.

    A `with` block that is left by an exception discards it, and so does forgetting to close it. `flush` promises
    nothing; `hflush` publishes what was written so far, on disks.
    Within a transaction (`autocommit` false) the data goes to a hidden file beside it, which `commit` renames.
    """

    def __init__(
        self,
        fs: PeaceFsspecFileSystem,
        path: str,
        mode: str,
        block_size: int | None,
        *,
        autocommit: bool,
        replication: int | None,
        **options: Any,
    ) -> None:
        self.closed: bool
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

    def _begin(self, fs: PeaceFsspecFileSystem, mode: str, replication: int | None) -> FileSink:
        if mode == "ab":
            try:
                return fs.files.open_for_appending(self._written_path)
            except FileNotFound:
                return fs.files.open_for_writing(self._written_path, replication=replication)
        return fs.files.open_for_writing(self._written_path, overwrite=mode == "wb", replication=replication)

    def write(self, data: Buffer) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        with os_errors():
            count = self._sink.write(data)
        self.loc += count
        return count

    def flush(self, force: bool = False) -> None:
        """Promises nothing, but with `force` it is `hflush`."""
        if self.closed:
            raise ValueError("Flush on closed file")
        if force:
            self.hflush()

    def hflush(self) -> None:
        """Makes what was written part of the file, on the disks of datanodes, for whoever opens it from now on."""
        with os_errors():
            self._sink.hflush()

    def close(self) -> None:
        """Publishes the file, or what a transaction will rename. Raises what went wrong."""
        if self.closed:
            return
        self.closed = True
        with os_errors():
            self._sink.close()

    def commit(self) -> None:
        """The end of a transaction that went well."""
        if self._is_given_up:
            return
        self.close()
        with os_errors():
            self.fs.files.rename(self._written_path, self.path, overwrite=self.mode == "wb")

    def discard(self) -> None:
        """Gives the file up: what was there under its name stays."""
        self._give_up()
        if not self.autocommit:
            with os_errors():
                self.fs.files.delete(self._written_path)

    def _give_up(self) -> None:
        if not self.closed:
            self.closed = True
            self._is_given_up = True
            self._sink.discard()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._give_up()

    def __del__(self) -> None:
        # The inherited one closes, which would publish half a file. The sink beneath gives up what was not closed.
        self.closed = True
