"""Commits changes of the metadata for coroutines, either at once or when they are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from peacefs.coordinator.metadata.group_commit import Settled
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import ServiceUnready

T = TypeVar("T")
#: Waits until the callback that it passes to its argument is called. Raises the error that the callback gets.
UntilSettled = Callable[[Callable[[Settled], None]], Awaitable[None]]


class Group(Protocol):
    """Makes changes and tells when they are durable, as `GroupCommit` does."""

    @property
    def last(self) -> int:
        """The last entry that has changes."""

    def submit(self, change: Callable[[Transaction], T], /, *, in_any_case: bool = False) -> T: ...

    def wait_for(self, number: int, settled: Settled, /) -> None: ...


async def settled_on_loop(register: Callable[[Settled], None]) -> None:
    """Wait on asyncio's event loop: an `UntilSettled`."""
    outcome = asyncio.get_running_loop().create_future()

    def settled(error: ServiceUnready | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)

    register(settled)
    await outcome


class Commits:
    """The commits of one coordinator. Used from one event loop only.

    All methods that change something raise what the change raises; Overloaded if too many changes wait, unless
    `in_any_case`, which is for background tasks; ServiceUnready if no commit is possible, or there was no room.
    """

    def __init__(
        self,
        group: Group,
        until_settled: UntilSettled = settled_on_loop,
        refuse: Callable[[], object] = lambda: None,
    ) -> None:
        """`refuse` is called before each change and may raise."""
        self._group = group
        self._until_settled = until_settled
        self._refuse = refuse

    def unless(self, refuse: Callable[[], object]) -> Commits:
        """Return the same commits, but `refuse` is called before each change, too, and may raise."""

        def both() -> None:
            self._refuse()
            refuse()

        return Commits(self._group, self._until_settled, both)

    def now(self, change: Callable[[Transaction], T], *, in_any_case: bool = False) -> T:
        """Make a change and return its answer, which `DurableAnswers` delays until the change is durable.

        Use `after` for anything else that follows from the change and can be seen outside this process.
        """
        self._refuse()
        return self._group.submit(change, in_any_case=in_any_case)

    async def __call__(self, change: Callable[[Transaction], T], *, in_any_case: bool = False) -> T:
        """Make a change and return its answer when the change is durable."""
        answer = self.now(change, in_any_case=in_any_case)
        await self.until_durable(self._group.last)
        return answer

    def after(self, action: Callable[[], object]) -> None:
        """Call `action` when all changes made so far are durable. Do not call it if some of them are undone."""

        def settled(error: ServiceUnready | None) -> None:
            if error is None:
                action()

        self.when_settled(settled)

    def when_settled(self, settled: Settled) -> None:
        """Call `settled` when all changes made so far are durable, or with the reason why the last was undone."""
        self.when_durable(self._group.last, settled)

    def when_durable(self, number: int, settled: Settled) -> None:
        """Call `settled` when an entry is durable, or with the reason why it was undone."""
        self._group.wait_for(number, settled)

    async def until_durable(self, number: int) -> None:
        """Return when an entry is durable. Raises ServiceUnready if it was undone."""
        await self._until_settled(partial(self.when_durable, number))
