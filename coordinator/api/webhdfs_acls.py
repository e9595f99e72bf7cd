"""WebHDFS operations on ACLs, and their JSON."""

from __future__ import annotations

from typing import Any

from peacefs.coordinator.metadata.model import InodeStatus
from peacefs.coordinator.operations.acls import AclOperations
from peacefs.coordinator.operations.names import Names
from peacefs.protocol.asgi import Scope
from peacefs.protocol.webhdfs.acl_requests import (
    GetAcl,
    ModifyAclEntries,
    RemoveAcl,
    RemoveAclEntries,
    RemoveDefaultAcl,
    SetAcl,
)
from peacefs.protocol.webhdfs.answers import Answer, empty_answer, json_answer
from peacefs.protocol.webhdfs.request import Request

from .webhdfs_handlers import Handler

_STICKY = 0o1000


class AclHandlers:
    def __init__(self, acls: AclOperations, names: Names) -> None:
        self._acls = acls
        self._names = names
        self.handlers: dict[type[Request], Handler] = {
            GetAcl: self._get_acl,
            ModifyAclEntries: self._modify_entries,
            RemoveAclEntries: self._remove_entries,
            RemoveDefaultAcl: self._remove_default,
            RemoveAcl: self._remove_acl,
            SetAcl: self._set_acl,
        }

    async def _get_acl(self, asked: GetAcl, _scope: Scope) -> Answer:
        return json_answer(acl_json(await self._names.status(asked.path, asked.user)))

    async def _modify_entries(self, asked: ModifyAclEntries, _scope: Scope) -> Answer:
        await self._acls.modify_entries(asked.path, asked.user, asked.entries, asked.request_id)
        return empty_answer()

    async def _remove_entries(self, asked: RemoveAclEntries, _scope: Scope) -> Answer:
        await self._acls.remove_entries(asked.path, asked.user, asked.entries, asked.request_id)
        return empty_answer()

    async def _remove_default(self, asked: RemoveDefaultAcl, _scope: Scope) -> Answer:
        await self._acls.remove_default(asked.path, asked.user, asked.request_id)
        return empty_answer()

    async def _remove_acl(self, asked: RemoveAcl, _scope: Scope) -> Answer:
        await self._acls.remove_acl(asked.path, asked.user, asked.request_id)
        return empty_answer()

    async def _set_acl(self, asked: SetAcl, _scope: Scope) -> Answer:
        await self._acls.set_acl(asked.path, asked.user, asked.entries, asked.request_id)
        return empty_answer()


def acl_json(status: InodeStatus) -> dict[str, Any]:
    """Return the ACL without entries that the permission implies. With an ACL, its group bits are the mask."""
    entries = status.acl.split(",") if status.acl else []
    return {
        "AclStatus": {
            "entries": entries,
            "group": status.group,
            "owner": status.owner,
            "permission": f"{status.permission & 0o777 | status.permission & _STICKY:o}",
            "stickyBit": bool(status.permission & _STICKY),
        }
        | ({"aclBit": True} if entries else {})
    }
