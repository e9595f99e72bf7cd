"""The requests about ACLs; see `requests`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from peacefs.protocol.values.acl_entries import AclEntry, parse_acl

from .query import RequestQuery
from .request import Reader, Request, plain


@dataclass(frozen=True, slots=True)
class GetAcl(Request):
    """GETACLSTATUS"""


@dataclass(frozen=True, slots=True)
class ModifyAclEntries(Request):
    entries: tuple[AclEntry, ...]

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> ModifyAclEntries:
        return cls(path, user, tuple(parse_acl(query.required("aclspec"))))


@dataclass(frozen=True, slots=True)
class RemoveAclEntries(Request):
    """REMOVEACLENTRIES; the entries have no permissions."""

    entries: tuple[AclEntry, ...]

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> RemoveAclEntries:
        return cls(path, user, tuple(parse_acl(query.required("aclspec"), with_permissions=False)))


@dataclass(frozen=True, slots=True)
class RemoveDefaultAcl(Request):
    """REMOVEDEFAULTACL"""


@dataclass(frozen=True, slots=True)
class RemoveAcl(Request):
    """REMOVEACL"""


@dataclass(frozen=True, slots=True)
class SetAcl(Request):
    entries: tuple[AclEntry, ...]

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> SetAcl:
        return cls(path, user, tuple(parse_acl(query.text("aclspec") or "")))


ACL_OPERATIONS: Final[Mapping[str, Mapping[str, Reader]]] = {
    "GET": {"GETACLSTATUS": plain(GetAcl)},
    "PUT": {
        "MODIFYACLENTRIES": ModifyAclEntries.read,
        "REMOVEACLENTRIES": RemoveAclEntries.read,
        "REMOVEDEFAULTACL": plain(RemoveDefaultAcl),
        "REMOVEACL": plain(RemoveAcl),
        "SETACL": SetAcl.read,
    },
}
