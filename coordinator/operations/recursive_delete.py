"""Check whether a caller may remove everything below a path: step by step, as a tree may be large, and again by
the transaction that removes it, for changes made since.
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
    """The tree has changed too much since it was checked."""


class RemovalRights:
    """The check of one caller for one path: `look`, then `commit` a change that calls `check`."""

    def __init__(self, context: OperationContext, path: NamespacePath, caller: Principal) -> None:
        self._ctx = context
        self._path = path
        self._caller = caller
        self._looked_at_tx: int | None = None

    async def look(self) -> None:
        """Raises AccessDenied."""
        self._looked_at_tx = self._ctx.reader.last_tx()
        await self._ctx.in_turns(access_checks.check_below(self._ctx.reader, self._path, self._caller))

    def check(self, tx: Transaction) -> None:
        """To be called by the change before it removes anything. Raises AccessDenied."""
        since_tx = self._looked_at_tx
        if since_tx is None or not access_checks.check_below_again(tx, self._path, self._caller, since_tx):
            raise _LookAgain

    async def commit(self, change: Callable[[Transaction], T]) -> T:
        """Commits a change, looking again when its check has found too much that is new.

        Raises ServiceUnready when that comes to no end.
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
