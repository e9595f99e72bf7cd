"""Questions of HTTP clients that are held until there is something to answer, or their patience ends."""

from __future__ import annotations

import asyncio


class Waiters:
    """Who waits, by name. Belongs to the event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def wait(self, name: str, patience_s: float) -> None:
        """Return when `name` is woken, or when `patience_s` is over."""
        event = asyncio.Event()
        self._waiting.setdefault(name, set()).add(event)
        try:
            async with asyncio.timeout(patience_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting[name].discard(event)
            if not self._waiting[name]:
                del self._waiting[name]

    def wake(self, name: str) -> None:
        """There is something for `name`; nothing happens where nobody waits."""
        for event in self._waiting.get(name, ()):
            event.set()
