"""Run a coroutine up to its first wait without a task. Make a task only if it waits.

A coordinator answers most calls from memory, and making a task for a call would take longer than answering it.
Python 3.12 has eager tasks for this; this module also works on 3.11.

The first step runs outside any task, so it must not use functions that need the current task, such as
`asyncio.timeout`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


class _Nothing:
    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return iter(())  # type: ignore[return-value]


#: Awaiting this returns None at once. For functions that rarely have to wait, to save a coroutine.
NOTHING_TO_WAIT_FOR: Final[Awaitable[None]] = _Nothing()


def begin(work: Coroutine[Any, Any, T]) -> T | asyncio.Task[T]:
    """Run `work` up to its first wait, in a copy of the current context.

    Return its result if it never waited, else a task that continues it. Raises what `work` raises before its first
    wait.
    """
    context = copy_context()
    try:
        awaited = context.run(work.send, None)
    except StopIteration as done:
        result: T = done.value
        return result
    return asyncio.get_running_loop().create_task(_continued(work, awaited), context=context)


async def _continued(work: Coroutine[Any, Any, T], awaited: object) -> T:
    return await _rest(work, awaited)


@coroutine
def _rest(work: Coroutine[Any, Any, T], awaited: object) -> Generator[Any, None, T]:
    """Wait for what the first step waits for, then run the rest. Throw a cancellation or other error into it."""
    try:
        while True:
            try:
                yield awaited
            except BaseException as error:
                awaited = work.throw(error)
            else:
                break
    except StopIteration as done:
        result: T = done.value
        return result
    result = yield from work
    return result
