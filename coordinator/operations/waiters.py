"""HTTP requests that are held until there is an answer, or their time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from peacefs.runtime.effects import Ticket

#: Waits until a ticket is fired, or this many seconds have passed.
Wait = Callable[[Ticket, float], Awaitable[None]]


class _Nothing:
    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return iter(())  # type: ignore[return-value]


#: Awaiting this returns None at once. For functions that rarely have to wait, to save a coroutine.
NOTHING_TO_WAIT_FOR: Final[Awaitable[None]] = _Nothing()


async def wait_on_loop(ticket: Ticket, wait_s: float) -> None:
    """Wait on asyncio's event loop, on which the ticket is fired."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    # Not asyncio.timeout, which needs a task: the first step of a call has none (see `Watched.step`).
    timer = loop.call_later(wait_s, end)
    try:
        ticket.when_fired(end)
        await over
    finally:
        timer.cancel()


class Waiters:
    """Holds requests by name. Used from one event loop only."""

    def __init__(self, wait: Wait) -> None:
        self._wait = wait
        self._waiting: dict[str, list[Ticket]] = {}

    async def wait(self, name: str, wait_s: float) -> None:
        """Return when `name` is woken, or after `wait_s`."""
        ticket = Ticket()
        waiting = self._waiting.setdefault(name, [])
        waiting.append(ticket)
        try:
            await self._wait(ticket, wait_s)
        finally:
            waiting[:] = [each for each in waiting if each is not ticket]
            if not waiting and self._waiting.get(name) is waiting:
                del self._waiting[name]

    def wake(self, name: str) -> None:
        """Wake the requests for `name`, if there are any."""
        for ticket in self._waiting.get(name, ()):
            ticket.fire()
