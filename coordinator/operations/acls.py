"""Operations on ACLs for WebHDFS, REST and frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import access_checks as checks
from peacefs.coordinator.namespace import acls
from peacefs.coordinator.namespace.paths import NamespacePath
from peacefs.coordinator.namespace.permissions import Principal
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.values.acl_entries import acl_text, parse_acl

from .context import OperationContext

#: By WebHDFS name of a change: its name in the retry cache, and the function that makes it.
_CHANGES: Final[Mapping[str, tuple[str, Callable[[Transaction, NamespacePath, Any], None]]]] = {
    "MODIFYACLENTRIES": ("modify ACL", acls.modify_entries),
    "REMOVEACLENTRIES": ("remove ACL entries", acls.remove_entries),
    "SETACL": ("set ACL", acls.set_acl),
    "REMOVEDEFAULTACL": ("remove default ACL", lambda tx, at, _spec: acls.remove_default(tx, at)),
    "REMOVEACL": ("remove ACL", lambda tx, at, _spec: acls.remove_acl(tx, at)),
}


class AclOperations:
    """Changes ACLs on behalf of owners and superusers. A repeated request id changes nothing."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context

    async def change(self, path: str, user: str, operation: str, entries: str, request_id: str = "") -> None:
        """Make the change that WebHDFS calls `operation`. Raises BadRequest and the errors of `namespace.acls`."""
        if operation not in _CHANGES:
            raise BadRequest(f"{operation!r} is no operation on ACLs")
        spec = tuple(parse_acl(entries, with_permissions=operation != "REMOVEACLENTRIES"))
        if not spec and operation in ("MODIFYACLENTRIES", "REMOVEACLENTRIES"):
            raise BadRequest(f"{operation} names no entries")
        name, make = _CHANGES[operation]

        def change(tx: Transaction, at: NamespacePath, caller: Principal) -> None:
            checks.check_owner(tx, at, caller)
            make(tx, at, spec)

        await self._ctx.change(path, user, (name, acl_text(spec)), request_id, change)
