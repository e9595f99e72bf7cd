"""The Python client for asyncio programs: the same file system, with awaitable methods.

The blocking client does the work on a bounded number of threads. A cancelled call continues on its thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from peacefs.client.limits import async_calls_at_once_max
from peacefs.protocol.errors import PeacefsError

from .control.addresses import DEFAULT_ADDRESS
from .control.names import ListingPage
from .control.values import ContentSummary, FileStatus
from .file_objects import FileSource
from .filesystem import PeaceFileSystem

P = ParamSpec("P")
T = TypeVar("T")
# Inside the class, the name `list` means its method.
_Entries = list[FileStatus]
_Pieces = list[bytes]


class AsyncPeaceFileSystem:
    """The files of a cluster, for one event loop; `async with` closes it. Otherwise as `PeaceFileSystem`.

    For other methods, call `files` on a thread: `await fs.call(fs.files.create_snapshot, "/dir")`.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS.http,
        user: str | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        local_sockets: bool = True,
        ca_file: str | os.PathLike[str] | None = None,
        calls_at_once: int = async_calls_at_once_max,
    ) -> None:
        self.files = PeaceFileSystem(
            address, user, token=token, token_file=token_file, local_sockets=local_sockets, ca_file=ca_file
        )
        self._threads = ThreadPoolExecutor(calls_at_once, thread_name_prefix="peacefs-async")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function on one of the threads."""
        work = partial(copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.files.close()
        self._threads.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- data --------------------------------------------------------------------------------------

    async def read(self, path: str) -> bytes:
        """Read a whole file."""
        return await self.call(self.files.read, path)

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> _Pieces:
        """Read several (offset, length) ranges of one version of a file concurrently."""
        source = await self.call(self.files.open, path)
        try:
            return list(await asyncio.gather(*(self.call(source.read_at, *each) for each in ranges)))
        finally:
            await self.call(source.close)

    async def open(self, path: str) -> AsyncFileSource:
        """Open the current version of a file for reading. Raises FileNotFound, PathIsDirectory."""
        return AsyncFileSource(self, await self.call(self.files.open, path))

    async def write(
        self, path: str, data: bytes, *, overwrite: bool = False, replication: int | None = None
    ) -> None:
        """Write a whole file in one call."""
        await self.call(self.files.write, path, data, overwrite=overwrite, replication=replication)

    async def write_many(
        self, files: Mapping[str, bytes], *, overwrite: bool = False, replication: int | None = None
    ) -> dict[str, PeacefsError]:
        """Write whole files, small ones together; return the errors of those that failed, by path."""
        return await self.call(self.files.write_many, files, overwrite=overwrite, replication=replication)

    # -- names -------------------------------------------------------------------------------------

    async def status(self, path: str) -> FileStatus:
        """Return the metadata of a path. Raises FileNotFound."""
        return await self.call(self.files.status, path)

    async def exists(self, path: str) -> bool:
        """Return whether a path exists. Raises AccessDenied if the user may not enter a parent directory."""
        return await self.call(self.files.exists, path)

    async def list(self, path: str) -> _Entries:
        """List a directory, in byte order of the names. A file lists itself. Raises FileNotFound."""
        return await self.call(self.files.list, path)

    async def pages(self, path: str) -> AsyncIterator[ListingPage]:
        """List a directory of any size page by page. Entries may appear and disappear meanwhile."""
        pages = self.files.pages(path)
        while (page := await self.call(next, pages, None)) is not None:
            yield page

    async def mkdirs(self, path: str, permission: int = 0o755) -> None:
        """Create a directory and its parents; succeed if it exists already. Raises FileAlreadyExists, ..."""
        await self.call(self.files.mkdirs, path, permission)

    async def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Move a file or directory atomically to exactly `target`."""
        await self.call(self.files.rename, source, target, overwrite=overwrite)

    async def delete(self, path: str, *, recursive: bool = False) -> bool:
        """Delete a path; return whether it existed. Raises PathIsNotEmptyDirectory unless `recursive`."""
        return await self.call(self.files.delete, path, recursive=recursive)

    async def content_summary(self, path: str) -> ContentSummary:
        """Count the files, directories and bytes of a tree. Raises FileNotFound."""
        return await self.call(self.files.content_summary, path)


class AsyncFileSource:
    """A file open for reading. It keeps the version that it was opened with; `async with` closes it."""

    def __init__(self, fs: AsyncPeaceFileSystem, source: FileSource) -> None:
        self._fs = fs
        self._source = source

    @property
    def length(self) -> int:
        """Return the length of the file in bytes."""
        return self._source.length

    async def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`. Tasks may call this concurrently."""
        return await self._fs.call(self._source.read_at, offset, length)

    async def close(self) -> None:
        await self._fs.call(self._source.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
