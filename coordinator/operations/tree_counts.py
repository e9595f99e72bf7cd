"""Counts large trees in steps, for changes that need to know what a tree holds: see decision 71."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from peacefs.coordinator.metadata.model import InodeId, NamespaceUsage
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace.operations import count_tree
from peacefs.coordinator.namespace.paths import NamespacePath
from peacefs.coordinator.namespace.quotas import CountUnderWay, TreeIsLarge, begin_count
from peacefs.protocol.errors import PeacefsError, ServiceUnready

from .context import OperationContext

# Maximum number of trees that are counted for one change. It needs more than one if its path leads to another tree
# by the time the first has been counted.
trees_counted_max: Final = 5
# Maximum time for which a change waits until a tree has been counted for another one.
tree_count_wait_s_max: Final = 60.0
_POLL_S = 0.02

T = TypeVar("T")


class _Count:
    """The count of one tree. `at_tx` is None until it has begun, and if there is no need to count."""

    def __init__(self, directory: InodeId) -> None:
        self.directory = directory
        self.at_tx: int | None = None

    def begin(self, tx: Transaction) -> None:
        """Begin the count. Raises CountUnderWay."""
        self.at_tx = begin_count(tx, self.directory)

    def end(self, tx: Transaction) -> None:
        """Do nothing if the count has not begun, or has ended."""
        if self.at_tx is not None:
            tx.end_count(self.directory, self.at_tx)


class TreeCounts:
    """Attempts changes, and again those that raise TreeIsLarge, when the tree has been counted.

    A transaction pins the tree and begins to sum up the changes below it. The pinned state, which does not change,
    is counted in turns. The count and the sum together are exact at every later transaction, until the count ends.
    One change at a time counts a tree. Used by operations on names, quotas, snapshots and the trash.
    """

    def __init__(
        self,
        context: OperationContext,
        give_up: Callable[[Callable[[Transaction], None]], None],
        reclaim_soon: Callable[[], None],
    ) -> None:
        """`give_up` gets a change that could not be committed, and repeats it until it is."""
        self._ctx = context
        self._give_up = give_up
        self._reclaim_soon = reclaim_soon
        #: The trees of changes under way that are being or have been counted.
        self._counting: set[InodeId] = set()

    async def commit(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Attempt a change. If a tree is too large, count it, attempt the change again, and end the count.

        Raises what the change raises, ServiceUnready.
        """
        try:
            return await attempt()
        except TreeIsLarge as found:
            large = found
        for _ in range(trees_counted_max):
            count = _Count(large.directory)
            give_up_s = self._ctx.monotonic() + tree_count_wait_s_max
            while count.directory in self._counting:
                await self._pause(give_up_s)
            self._counting.add(count.directory)
            try:
                await self._begin(count)
                if count.at_tx is not None:
                    await self._count(count.directory, count.at_tx)
                return await attempt()
            except TreeIsLarge as another:
                large = another
            finally:
                await self._end(count)
        raise ServiceUnready("the tree changes faster than it can be counted; try again")

    async def _pause(self, give_up_s: float) -> None:
        if self._ctx.monotonic() >= give_up_s:
            raise ServiceUnready("the tree is still being counted for another change; try again")
        await self._ctx.sleep(_POLL_S)

    async def _begin(self, count: _Count) -> None:
        give_up_s = self._ctx.monotonic() + tree_count_wait_s_max
        while True:
            try:
                return await self._ctx.commit(count.begin)
            except CountUnderWay:
                # The end of an earlier count could not be committed yet.
                await self._pause(give_up_s)

    async def _count(self, directory: InodeId, at_tx: int) -> None:
        past = self._ctx.reader.at(at_tx, directory)
        found = await self._ctx.in_turns(count_tree(past, NamespacePath(())))
        usage = NamespaceUsage(found.directories + found.files, found.space_consumed)
        self._ctx.commit.now(lambda tx: tx.note_count(directory, usage))

    async def _end(self, count: _Count) -> None:
        try:
            if count.at_tx is not None:
                await self._ctx.commit(count.end, in_any_case=True)
        except PeacefsError:
            self._give_up(count.end)
        except BaseException:
            self._give_up(count.end)
            raise
        finally:
            self._counting.discard(count.directory)
            self._reclaim_soon()
