"""Operations on ACLs, as the fronts call them."""

from __future__ import annotations

from collections.abc import Callable

from peacefs.coordinator.metadata.store import Transaction
from peacefs.coordinator.namespace import access_checks as checks
from peacefs.coordinator.namespace import acls
from peacefs.coordinator.namespace.acl_rules import Acl
from peacefs.coordinator.namespace.paths import NamespacePath
from peacefs.coordinator.namespace.retry_cache import Applied, RequestKey
from peacefs.coordinator.namespace.snapshots import changeable_path
from peacefs.protocol.values.acl_entries import acl_text

from .context import OperationContext


class AclOperations:
    """Owners and superusers change them; a change is done once under a request id. Paths are texts."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context

    async def modify_entries(self, path: str, user: str, spec: Acl, request_id: str = "") -> None:
        """See `acls.modify_entries`."""
        await self._change(
            "modify ACL", path, user, spec, request_id, lambda tx, parsed: acls.modify_entries(tx, parsed, spec)
        )

    async def remove_entries(self, path: str, user: str, spec: Acl, request_id: str = "") -> None:
        """See `acls.remove_entries`."""
        await self._change(
            "remove ACL entries", path, user, spec, request_id, lambda tx, at: acls.remove_entries(tx, at, spec)
        )

    async def remove_default(self, path: str, user: str, request_id: str = "") -> None:
        """See `acls.remove_default`."""
        await self._change("remove default ACL", path, user, (), request_id, acls.remove_default)

    async def remove_acl(self, path: str, user: str, request_id: str = "") -> None:
        """See `acls.remove_acl`."""
        await self._change("remove ACL", path, user, (), request_id, acls.remove_acl)

    async def set_acl(self, path: str, user: str, spec: Acl, request_id: str = "") -> None:
        """See `acls.set_acl`."""
        await self._change("set ACL", path, user, spec, request_id, lambda tx, at: acls.set_acl(tx, at, spec))

    async def _change(
        self,
        what: str,
        path: str,
        user: str,
        spec: Acl,
        request_id: str,
        change: Callable[[Transaction, NamespacePath], None],
    ) -> None:
        parsed, caller = changeable_path(path), self._ctx.caller(user)
        await self._ctx.under_construction.settle(parsed)

        def checked(tx: Transaction) -> Applied[None]:
            checks.check_owner(tx, parsed, caller)
            change(tx, parsed)
            return Applied(None)

        await self._ctx.run_once(RequestKey(request_id, (what, str(parsed), user, acl_text(spec))), checked)
