"""Entries of access control lists, with Hadoop's terms and text form: `default:user:ann:rw-`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from peacefs.protocol.errors import BadRequest, IllegalChange

from .account_names import check_account_name

_ACTIONS: Final = ("---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx")
_DEFAULT: Final = "default"


class Scope(IntEnum):
    """The scope of an entry: the file or directory itself, or new children of a directory. In sort order."""

    ACCESS = 0
    DEFAULT = 1


class EntryType(IntEnum):
    """The kind of caller that an entry is for. In sort order."""

    USER = 0
    GROUP = 1
    MASK = 2
    OTHER = 3


class AclEntry(NamedTuple):
    """An entry, ordered as in Hadoop. `name` is empty for the owner, the owning group, the mask and others.

    `permission` has the bits of rwx.
    """

    scope: Scope
    type: EntryType
    name: str
    permission: int

    @property
    def key(self) -> tuple[Scope, EntryType, str]:
        """The entry without its permission; unique in an ACL."""
        return self[:3]

    def __str__(self) -> str:
        prefix = f"{_DEFAULT}:" if self.scope is Scope.DEFAULT else ""
        return f"{prefix}{self.type.name.lower()}:{self.name}:{_ACTIONS[self.permission]}"


def acl_text(entries: Iterable[AclEntry]) -> str:
    """Format entries, as `parse_acl` reads them."""
    return ",".join(map(str, entries))


def whole_acl(permission: int, entries: Iterable[AclEntry]) -> list[AclEntry]:
    """Return all entries of an ACL, sorted, from the file's permission and the additional entries stored with it.

    If there are additional access entries, the group bits of the permission are the mask.
    """
    kept = list(entries)
    has_mask = any(entry.scope is Scope.ACCESS for entry in kept)
    group = EntryType.MASK if has_mask else EntryType.GROUP
    said = ((EntryType.USER, permission >> 6 & 7), (group, permission >> 3 & 7), (EntryType.OTHER, permission & 7))
    return sorted([*(AclEntry(Scope.ACCESS, kind, "", bits) for kind, bits in said), *kept])


def effective(entry: AclEntry, acl: Iterable[AclEntry]) -> int:
    """Return the permission of an entry after applying the mask of its ACL."""
    if not entry.name and entry.type is not EntryType.GROUP:
        return entry.permission
    masks = (each.permission for each in acl if each.scope is entry.scope and each.type is EntryType.MASK)
    return entry.permission & next(masks, 7)


def action(permission: int) -> str:
    """Format the bits of a permission: r-x."""
    return _ACTIONS[permission]


def parse_acl(text: str, *, with_permissions: bool = True) -> list[AclEntry]:
    """Parse entries as Hadoop does; entries to remove have no permissions. Raises IllegalChange, BadRequest."""
    return [_parse_entry(each, with_permissions) for each in text.split(",")] if text else []


def _parse_entry(text: str, with_permission: bool) -> AclEntry:
    fields = text.split(":")
    while fields and not fields[-1]:
        fields.pop()
    scope = Scope.ACCESS
    if fields and fields[0] == _DEFAULT:
        scope = Scope.DEFAULT
        del fields[0]
    if not fields:
        raise IllegalChange(f"Invalid <aclSpec> : {text}")
    kind = fields[0].upper()
    if kind not in EntryType.__members__:
        raise IllegalChange(f"Invalid type of acl in <aclSpec> :{text}")
    name = fields[1] if len(fields) > 1 else ""
    if name:
        _check_name(name)
    if len(fields) != 3 if with_permission else len(fields) > 2:
        raise IllegalChange(f"Invalid <aclSpec> : {text}")
    permission = 0
    if with_permission:
        if fields[2] not in _ACTIONS:
            raise IllegalChange(f"Invalid permission in <aclSpec> : {text}")
        permission = _ACTIONS.index(fields[2])
    return AclEntry(scope, EntryType[kind], name, permission)


def _check_name(name: str) -> None:
    try:
        check_account_name("name of an ACL entry", name)
    except BadRequest as error:
        raise IllegalChange(f"Invalid <aclSpec> : {error.message}") from None
