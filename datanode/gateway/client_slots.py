"""Slots for what a gateway does at once: so many over all clients, fewer for each, and a bound on waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from peacefs.protocol.errors import Overloaded


class ClientSlots:
    """Belongs to one event loop. One client that takes all it gets leaves slots to others."""

    def __init__(self, all_max: int, each_max: int, queue_timeout_s: float) -> None:
        self._all = asyncio.Semaphore(all_max)
        self._each_max = each_max
        self._queue_timeout_s = queue_timeout_s
        #: Each client's own slots, as long as it has a request, and how many requests that is.
        self._of_client: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def slot(self, client: str, trouble: str) -> AsyncIterator[None]:
        """Hold a slot. Raises Overloaded with `trouble` when the client, or everybody, lacks one for too long."""
        own, requests = self._of_client.get(client) or (asyncio.Semaphore(self._each_max), 0)
        self._of_client[client] = own, requests + 1
        try:
            await self._acquire(own, trouble)
            try:
                await self._acquire(self._all, trouble)
                try:
                    yield
                finally:
                    self._all.release()
            finally:
                own.release()
        finally:
            own, requests = self._of_client[client]
            if requests == 1:
                del self._of_client[client]
            else:
                self._of_client[client] = own, requests - 1

    async def _acquire(self, slots: asyncio.Semaphore, trouble: str) -> None:
        if not slots.locked():
            # There is one: no timer need be set.
            await slots.acquire()
            return
        try:
            async with asyncio.timeout(self._queue_timeout_s):
                await slots.acquire()
        except TimeoutError:
            raise Overloaded(f"{trouble}; try again later") from None
