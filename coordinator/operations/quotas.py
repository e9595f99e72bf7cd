"""Operations on quotas, as the fronts call them."""

from __future__ import annotations

from peacefs.coordinator.metadata.model import NamespaceUsage, Quota
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import access_checks as checks
from peacefs.coordinator.namespace import quotas
from peacefs.coordinator.namespace.paths import NamespacePath, parse_path
from peacefs.coordinator.namespace.permissions import Access, Principal
from peacefs.coordinator.namespace.resolution import find_existing
from peacefs.coordinator.namespace.snapshots import snapshotted_directory

from .context import OperationContext
from .names import Names


class QuotaOperations:
    """Superusers set quotas; whoever may list a directory sees how much of them is used. Paths are texts."""

    def __init__(self, context: OperationContext, names: Names) -> None:
        self._ctx = context
        self._names = names

    async def set_quota(
        self, path: str, user: str, names: int | None, space: int | None, request_id: str = ""
    ) -> None:
        """See `quotas.set_quota`. Done once under a request id."""
        self._ctx.callers.need_superuser(user)

        def change(tx: Transaction, at: NamespacePath, _caller: Principal) -> None:
            quotas.set_quota(tx, at, names, space)

        what = ("quota", names, space)
        await self._names.trees.commit(lambda: self._ctx.change(path, user, what, request_id, change))

    async def usage(self, path: str, user: str) -> Quota:
        """Return the usage of a path: at once for a directory with a quota, else counted. Raises FileNotFound."""
        parsed, caller = parse_path(path), self._ctx.caller(user)
        if snapshotted_directory(parsed) is None:
            kept = self._ctx.reader.quota(find_existing(self._ctx.reader, parsed).inode)
            if kept is not None:
                checks.check_access(self._ctx.reader, parsed, caller, Access.READ | Access.EXECUTE)
                return kept
        counted = await self._names.content_summary(path, user)
        return Quota(None, None, NamespaceUsage(counted.directories + counted.files, counted.space_consumed))
