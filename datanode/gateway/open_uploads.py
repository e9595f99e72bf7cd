"""Finds running uploads by the names that the coordinator uses, which it may ask for before the body arrives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final, Protocol

from peacefs.protocol.messages import FlushUploads, UploadsFlushed

ended_uploads_remembered_max: Final = 10_000


class OpenUpload(Protocol):
    async def show(self) -> bool:
        """Publish what has arrived. Return whether the file is visible."""


class OpenUploads:
    """Finds uploads by name, to flush them for the coordinator. Belongs to one event loop."""

    def __init__(self, *, remembered_max: int = ended_uploads_remembered_max) -> None:
        self._remembered_max = remembered_max
        self._open: dict[str, list[OpenUpload]] = {}
        self._awaited: dict[str, list[asyncio.Future[None]]] = {}
        #: Names of ended uploads, oldest first. A request to flush one returns at once.
        self._ended: dict[str, None] = {}

    @contextlib.contextmanager
    def entered(self, upload: OpenUpload, *names: str) -> Iterator[None]:
        """Make an upload available under its names during the block."""
        for name in names:
            self._open.setdefault(name, []).append(upload)
            for waiting in self._awaited.pop(name, ()):
                if not waiting.done():
                    waiting.set_result(None)
        try:
            yield
        finally:
            for name in names:
                self._leave(upload, name)

    def _leave(self, upload: OpenUpload, name: str) -> None:
        there = self._open[name]
        there.remove(upload)
        if there:
            return
        del self._open[name]
        self._ended[name] = None
        if len(self._ended) > self._remembered_max:
            del self._ended[next(iter(self._ended))]

    async def flush(self, wanted: FlushUploads) -> UploadsFlushed:
        """Publish these uploads concurrently; return those that are not visible."""
        shown = await asyncio.gather(*(self._show(name, wanted.wait_s) for name in wanted.uploads))
        return UploadsFlushed([name for name, is_shown in zip(wanted.uploads, shown, strict=True) if not is_shown])

    async def _show(self, name: str, wait_s: float) -> bool:
        if name not in self._open and name not in self._ended and wait_s > 0:
            await self._wait(name, wait_s)
        results = [await upload.show() for upload in list(self._open.get(name, ()))]
        return any(results)

    async def _wait(self, name: str, wait_s: float) -> None:
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(name, []).append(come)
        try:
            async with asyncio.timeout(wait_s):
                await come
        except TimeoutError:
            waiting = self._awaited.get(name, [])
            if come in waiting:
                waiting.remove(come)
                if not waiting:
                    del self._awaited[name]
