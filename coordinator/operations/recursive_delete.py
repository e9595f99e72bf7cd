"""Check whether a caller may remove everything below a path.

The check runs in steps, because a tree may be large. The transaction that removes the tree checks the changes that
were made since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import access_checks
from peacefs.coordinator.namespace.paths import NamespacePath
from peacefs.coordinator.namespace.permissions import Principal
from peacefs.protocol.errors import ServiceUnready

from .context import OperationContext

rights_walks_max: Final = 5

T = TypeVar("T")


class _LookAgain(Exception):
    """Too much of the tree has changed since it was checked."""


class RemovalRights:
    """The check of one caller for one path: call `look`, then `commit` a change that calls `check`."""

    def __init__(self, context: OperationContext, path: NamespacePath, caller: Principal) -> None:
        self._ctx = context
        self._path = path
        self._caller = caller
        self._looked_at_tx: int | None = None

    async def look(self) -> None:
        """Check the whole tree, in steps. Raises AccessDenied."""
        self._looked_at_tx = self._ctx.reader.last_tx()
        await self._ctx.in_turns(access_checks.check_below(self._ctx.reader, self._path, self._caller))

    def check(self, tx: Transaction) -> None:
        """Check what changed since `look`. The change must call it before it removes anything. Raises
        AccessDenied.
        """
        since_tx = self._looked_at_tx
        if since_tx is None or not access_checks.check_below_again(tx, self._path, self._caller, since_tx):
            raise _LookAgain

    async def commit(self, change: Callable[[Transaction], T]) -> T:
        """Commit a change. Look again if `check` finds too many new changes.

        Raises ServiceUnready if that happens too often.
        """
        for walk in range(rights_walks_max):
            if walk:
                await self.look()
            try:
                return await self._ctx.commit(change)
            except _LookAgain:
                continue
        raise ServiceUnready(
            f"{self._path} changes faster than it can be seen whether what it holds may be removed; try again"
        )
