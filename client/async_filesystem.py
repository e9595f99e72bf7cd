"""The Python client for asyncio programs: the same file system, with awaitable methods.

The blocking client does the work on a bounded number of threads. A cancelled call continues on its thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from peacefs.client.limits import async_calls_at_once_max
from peacefs.protocol.errors import PeacefsError

from .control.addresses import DEFAULT_ADDRESS
from .control.names import ListingPage
from .control.values import FileStatus
from .file_objects import FileSource
from .filesystem import PeaceFileSystem

P = ParamSpec("P")
T = TypeVar("T")
# Inside the class, the name `list` means its method.
_Entries = list[FileStatus]
_Pieces = list[bytes]


def _on_a_thread(
    method: Callable[Concatenate[PeaceFileSystem, P], T],
) -> Callable[Concatenate[AsyncPeaceFileSystem, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that runs `method` on a thread."""

    @wraps(method)
    async def call(fs: AsyncPeaceFileSystem, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await fs.call(partial(method, fs.files), *args, **kwargs)

    return call


class AsyncPeaceFileSystem:
    """The files of a cluster, for one event loop. `async with` closes it. Otherwise like `PeaceFileSystem`.

    To use other methods, pass them to `call`: `await fs.call(fs.files.snapshots.create, "/dir")`.
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

    read = _on_a_thread(PeaceFileSystem.read)
    read_many = _on_a_thread(PeaceFileSystem.read_many)
    write = _on_a_thread(PeaceFileSystem.write)

    async def write_many(
        self, files: Mapping[str, bytes], *, overwrite: bool = False, replication: int | None = None
    ) -> dict[str, PeacefsError]:
        """Write whole files, several small ones at a time. Return the errors of the files that failed, by path."""
        return await self.call(self.files.write_many, files, overwrite=overwrite, replication=replication)

    # -- names -------------------------------------------------------------------------------------

    async def pages(self, path: str) -> AsyncIterator[ListingPage]:
        """List a directory of any size page by page. Entries may appear and disappear meanwhile."""
        pages = self.files.pages(path)
        while (page := await self.call(next, pages, None)) is not None:
            yield page

    status = _on_a_thread(PeaceFileSystem.status)
    exists = _on_a_thread(PeaceFileSystem.exists)
    list = _on_a_thread(PeaceFileSystem.list)
    content_summary = _on_a_thread(PeaceFileSystem.content_summary)
    mkdirs = _on_a_thread(PeaceFileSystem.mkdirs)
    rename = _on_a_thread(PeaceFileSystem.rename)
    exchange = _on_a_thread(PeaceFileSystem.exchange)
    copy = _on_a_thread(PeaceFileSystem.copy)
    delete = _on_a_thread(PeaceFileSystem.delete)
    move_to_trash = _on_a_thread(PeaceFileSystem.move_to_trash)
    set_permission = _on_a_thread(PeaceFileSystem.set_permission)
    set_owner = _on_a_thread(PeaceFileSystem.set_owner)
    set_times = _on_a_thread(PeaceFileSystem.set_times)
    set_replication = _on_a_thread(PeaceFileSystem.set_replication)
    truncate = _on_a_thread(PeaceFileSystem.truncate)
    concat = _on_a_thread(PeaceFileSystem.concat)
    recover_lease = _on_a_thread(PeaceFileSystem.recover_lease)


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
