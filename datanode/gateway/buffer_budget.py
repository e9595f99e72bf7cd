"""Limits the memory that all uploads through a datanode use together.

A writer keeps its chunk until the pipeline has acknowledged it. If several uploads grew together, they could use
up the budget before any of them can finish. So one upload at a time may exceed the budget until it returns some
bytes: it finishes its chunk, and the others follow. The excess is at most one chunk.

The uploads of one client may use only a part of the budget, so that others find room. Again, one of them may
exceed this part, as long as the whole budget has room.
"""

from __future__ import annotations

import asyncio
from collections import deque

from peacefs.protocol.errors import Overloaded


class BufferBudget:
    """The memory of all uploads of one gateway. Belongs to one event loop."""

    def __init__(self, bytes_max: int, queue_timeout_s: float, *, per_client_max: int | None = None) -> None:
        self._free_bytes = bytes_max
        self._queue_timeout_s = queue_timeout_s
        self._overdrawing: BufferShare | None = None
        self._per_client_max = bytes_max if per_client_max is None else per_client_max
        self._of_client: dict[str, int] = {}
        self._overdrawing_share: dict[str, BufferShare] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, share: BufferShare, count: int) -> None:
        """Wait until `count` bytes are free. Raises Overloaded if that takes too long."""
        try:
            async with asyncio.timeout(self._queue_timeout_s):
                while not self._grant(share, count):
                    turn = asyncio.get_running_loop().create_future()
                    self._waiting.append(turn)
                    await turn
        except TimeoutError:
            raise Overloaded("the datanode's memory is full of other uploads; try again later") from None

    def _grant(self, share: BufferShare, count: int) -> bool:
        client = share.client
        taken = self._of_client.get(client, 0) + count
        # The upload that exceeds the budget may continue. Otherwise it could wait for an upload that waits for it.
        overdraws_share = taken > self._per_client_max and self._overdrawing is not share
        if overdraws_share and self._overdrawing_share.get(client, share) is not share:
            return False
        if count > self._free_bytes:
            if self._overdrawing not in (None, share):
                return False
            self._overdrawing = share
        if overdraws_share:
            self._overdrawing_share[client] = share
        self._of_client[client] = taken
        self._free_bytes -= count
        return True

    def give_back(self, share: BufferShare, count: int) -> None:
        self._free_bytes += count
        if self._overdrawing is share:
            self._overdrawing = None
        if self._overdrawing_share.get(share.client) is share:
            del self._overdrawing_share[share.client]
        if left := self._of_client.get(share.client, 0) - count:
            self._of_client[share.client] = left
        else:
            self._of_client.pop(share.client, None)
        # All waiting uploads check again, in the order in which they came.
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)


class BufferShare:
    def __init__(self, budget: BufferBudget, client: str = "") -> None:
        self._budget = budget
        self._held_bytes = 0
        self.client = client

    async def take(self, count: int) -> None:
        await self._budget.take(self, count)
        self._held_bytes += count

    def give_back(self, count: int) -> None:
        self._held_bytes -= count
        self._budget.give_back(self, count)

    def close(self) -> None:
        """Return the remaining bytes."""
        self.give_back(self._held_bytes)
