"""The asynchronous half of the fsspec file system: each fsspec coroutine runs a blocking method on a thread.

fsspec splits batches (`cat`, `get`, `put`, `rm` of many paths) into such coroutines and runs them concurrently.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.spec import AbstractFileSystem

from peacefs.client.limits import async_calls_at_once_max


class AwaitedFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """fsspec's coroutines, each of which runs the subclass's method of the same name without underscore.

    fsspec would generate missing methods from coroutines. Walks and listings are defined here instead: they run on
    the caller's thread, so that no thread waits for another.
    """

    _pid: int
    _threads: ThreadPoolExecutor | None = None
    _threads_of: int = 0

    @property
    def loop(self) -> Any:
        """The event loop. A forked process gets a new one from fsspec."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
        return self._loop

    async def _on_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._threads is None or self._threads_of != os.getpid():
            self._threads = ThreadPoolExecutor(async_calls_at_once_max, thread_name_prefix="peacefs-fsspec")
            self._threads_of = os.getpid()
        work = partial(copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # -- coroutines --------------------------------------------------------------------------------

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        return await self._on_thread(self.ls, path, detail, **kwargs)

    async def _info(self, path: str, **kwargs: Any) -> Any:
        return await self._on_thread(self.info, path, **kwargs)

    async def _exists(self, path: str, **kwargs: Any) -> bool:
        found: bool = await self._on_thread(self.exists, path, **kwargs)
        return found

    async def _isdir(self, path: str) -> bool:
        found: bool = await self._on_thread(self.isdir, path)
        return found

    async def _isfile(self, path: str) -> bool:
        found: bool = await self._on_thread(self.isfile, path)
        return found

    async def _du(self, path: str, *args: Any, **kwargs: Any) -> Any:
        return await self._on_thread(self.du, path, *args, **kwargs)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> Any:
        return await self._on_thread(self.cat_file, path, start, end, **kwargs)

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        await self._on_thread(self.pipe_file, path, value, mode, **kwargs)

    async def _get_file(self, rpath: str, lpath: Any, **kwargs: Any) -> None:
        await self._on_thread(self.get_file, rpath, lpath, **kwargs)

    async def _put_file(self, lpath: Any, rpath: str, mode: str = "overwrite", **kwargs: Any) -> None:
        await self._on_thread(self.put_file, lpath, rpath, mode=mode, **kwargs)

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        await self._on_thread(self.mkdir, path, create_parents, **kwargs)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        await self._on_thread(self.makedirs, path, exist_ok)

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        await self._on_thread(self.rm_file, path, **kwargs)

    async def _rm(
        self, path: Any, recursive: bool = False, batch_size: int | None = None, maxdepth: int | None = None
    ) -> None:
        await self._on_thread(self.rm, path, recursive, maxdepth)

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        await self._on_thread(self.cp_file, path1, path2, **kwargs)

    async def _copy(self, path1: Any, path2: Any, batch_size: int | None = None, **kwargs: Any) -> None:
        await self._on_thread(self.copy, path1, path2, **kwargs)

    # -- methods that fsspec would generate from coroutines, here without the event loop ------------

    def walk(self, path: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
        yield from AbstractFileSystem.walk(self, path, *args, **kwargs)

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        return AbstractFileSystem.find(self, path, *args, **kwargs)

    def glob(self, path: str, *args: Any, **kwargs: Any) -> Any:
        return AbstractFileSystem.glob(self, path, *args, **kwargs)

    def expand_path(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        return AbstractFileSystem.expand_path(self, path, *args, **kwargs)
