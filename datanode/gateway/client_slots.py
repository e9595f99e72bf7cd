"""Limits concurrent work of a gateway: a maximum for all clients, a lower one per client, and a wait limit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from peacefs.protocol.errors import Overloaded


class ClientSlots:
    """Slots for one kind of work. No client can use all of them. Belongs to one event loop."""

    def __init__(self, all_max: int, each_max: int, queue_timeout_s: float) -> None:
        self._all = asyncio.Semaphore(all_max)
        self._each_max = each_max
        self._queue_timeout_s = queue_timeout_s
        #: For each client with requests: its own slots, and its number of requests.
        self._of_client: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def slot(self, client: str, trouble: str) -> AsyncIterator[None]:
        """Hold a slot during the block. Raises Overloaded with `trouble` if none becomes free in time."""
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
            # A slot is free, so no timer is necessary.
            await slots.acquire()
            return
        try:
            async with asyncio.timeout(self._queue_timeout_s):
                await slots.acquire()
        except TimeoutError:
            raise Overloaded(f"{trouble}; try again later") from None
