"""Truncate and concatenate files: in one commit, refused while a writer extends one of them."""

from __future__ import annotations

from collections.abc import Sequence

from peacefs.coordinator.metadata.model import InodeId
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import access_checks
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import NamespacePath
from peacefs.coordinator.namespace.permissions import Access
from peacefs.coordinator.namespace.retry_cache import Applied, RequestKey, cached_reply
from peacefs.coordinator.namespace.snapshots import changeable_path

from .context import OperationContext
from .leases import Leases


class TruncateConcat:
    """Truncates and concatenates files. The commit fences off a writer that lost its lease unknowingly."""

    def __init__(self, context: OperationContext, leases: Leases) -> None:
        self._ctx = context
        self._leases = leases

    async def truncate(self, path: str, length: int, user: str, request_id: str = "") -> bool:
        """Truncate a file at once, and return True. Raises IllegalChange, AlreadyBeingCreated."""
        parsed, caller = changeable_path(path), self._ctx.caller(user)
        key = RequestKey(request_id, ("truncate", str(parsed), length, user))
        await self._ctx.under_construction.settle(parsed)
        if cached_reply(self._ctx.reader, key) is not None:
            return True
        access_checks.check_access(self._ctx.reader, parsed, caller, Access.WRITE)
        self._check_not_extended([parsed], f"TRUNCATE_FILE {parsed} for {user}")

        def change(tx: Transaction) -> Applied[bool]:
            access_checks.check_access(tx, parsed, caller, Access.WRITE)
            return Applied(True, namespace.truncate(tx, parsed, length, self._ctx.now_ms()))

        truncated = self._ctx.once(key, change)
        self._ctx.free(truncated.chunks)
        return truncated.answer

    async def concat(self, target: str, sources: Sequence[str], user: str, request_id: str = "") -> None:
        """Move the contents of `sources` to the end of `target`. Raises as `truncate` does."""
        onto, parsed = changeable_path(target), [changeable_path(source) for source in sources]
        caller = self._ctx.caller(user)
        key = RequestKey(request_id, ("concat", str(onto), [str(path) for path in parsed], user))
        await self._ctx.under_construction.settle(onto, *parsed)
        if cached_reply(self._ctx.reader, key) is not None:
            return
        access_checks.check_concat(self._ctx.reader, onto, parsed, caller)
        if namespace.is_repeated_concat(self._ctx.reader, onto, parsed, self._ctx.now_ms()):
            return
        self._check_not_extended([onto, *parsed], f"CONCAT {onto} for {user}")

        def change(tx: Transaction) -> Applied[None]:
            access_checks.check_concat(tx, onto, parsed, caller)
            return Applied(None, namespace.concat(tx, onto, parsed, self._ctx.now_ms()))

        joined = self._ctx.once(key, change)
        self._ctx.commit.after(lambda: self._ctx.cluster.load(joined.chunks))

    def _check_not_extended(self, paths: Sequence[NamespacePath], what: str) -> None:
        for path in paths:
            inode: InodeId = namespace.existing_file(self._ctx.reader, path).inode
            recorded = self._ctx.reader.lease(inode)
            self._leases.check_free(self._ctx.monotonic(), inode, recorded, "", what)
