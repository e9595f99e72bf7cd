"""Operations on quotas for WebHDFS, REST and frames."""

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
    """Superusers set quotas. Whoever may list a directory sees its usage. Paths are texts."""

    def __init__(self, context: OperationContext, names: Names) -> None:
        self._ctx = context
        self._names = names

    async def set_quota(
        self, path: str, user: str, names: int | None, space: int | None, request_id: str = ""
    ) -> None:
        """Set a quota; see `quotas.set_quota`. A repeated request id changes nothing."""
        self._ctx.callers.need_superuser(user)

        def change(tx: Transaction, at: NamespacePath, _caller: Principal) -> None:
            quotas.set_quota(tx, at, names, space)

        what = ("quota", names, space)
        await self._names.trees.commit(lambda: self._ctx.change(path, user, what, request_id, change))

    async def usage(self, path: str, user: str) -> Quota:
        """Return the usage of a path: at once if it has a quota, otherwise by counting. Raises FileNotFound."""
        parsed, caller = parse_path(path), self._ctx.caller(user)
        if snapshotted_directory(parsed) is None:
            kept = self._ctx.reader.quota(find_existing(self._ctx.reader, parsed).inode)
            if kept is not None:
                checks.check_access(self._ctx.reader, parsed, caller, Access.READ | Access.EXECUTE)
                return kept
        counted = await self._names.content_summary(path, user)
        return Quota(None, None, NamespaceUsage(counted.directories + counted.files, counted.space_consumed))
