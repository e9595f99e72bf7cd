"""Extended attributes: named values of files and directories, with HDFS's namespaces, rights and limits.

    namespace   for whom ---------   ------------------------------------------------------------------------ user
    callers who may read, or write, the file; in a sticky directory its owner trusted     superusers, who alone see
    them security    HDFS's own: none are kept here system      HDFS's own: none are kept here raw         below
    /.reserved/raw, which there is not

Names are kept with their namespace, in small letters, before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from peacefs.coordinator.metadata.model import InodeKind
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import AccessDenied, IllegalChange, PathError
from peacefs.protocol.limits import KIB

from . import access_checks
from .paths import NamespacePath
from .permissions import Access, Principal
from .resolution import find_existing

# HDFS's limits: attributes per file or directory, bytes of name and value, entries of an ACL, and of a default
# ACL.
attributes_per_inode_max: Final = 32
attribute_bytes_max: Final = 16 * KIB

_PREFIX_WANTED = "An XAttr name must be prefixed with user/trusted/security/system/raw, followed by a '.'"
_STICKY = 0o1000


class Namespace(Enum):
    """The part of a name before its first dot."""

    USER = "user"
    TRUSTED = "trusted"
    SECURITY = "security"
    SYSTEM = "system"
    RAW = "raw"


class SetFlag(Enum):
    """Conditions of setting an attribute: that it is new, or that it exists."""

    CREATE = "CREATE"
    REPLACE = "REPLACE"


@dataclass(frozen=True, slots=True)
class AttributeName:
    """A name and its namespace. As text: `user.colour`."""

    namespace: Namespace
    name: str

    def __str__(self) -> str:
        return f"{self.namespace.value}.{self.name}"


def parse_name(text: str) -> AttributeName:
    """Parse a name. Raises IllegalChange, with HDFS's message, if the namespace is missing."""
    prefix, dot, name = text.partition(".")
    if not dot or prefix.lower() not in {each.value for each in Namespace}:
        raise IllegalChange(_PREFIX_WANTED)
    if not name:
        raise IllegalChange("XAttr name cannot be empty.")
    return AttributeName(Namespace(prefix.lower()), name)


def set_attribute(
    tx: Transaction,
    path: NamespacePath,
    caller: Principal,
    name: AttributeName,
    value: bytes,
    flags: frozenset[SetFlag],
) -> None:
    """Set an attribute.

    Raises AccessDenied, IllegalChange if it is too long, PathError if there are too many or the flags forbid it.
    """
    size = len(name.name.encode()) + len(value)
    if size > attribute_bytes_max:
        raise IllegalChange(
            "The XAttr is too big. The maximum combined size of the name and value is "
            f"{attribute_bytes_max}, but the total size is {size}"
        )
    check_name(caller, name)
    _check_change(tx, path, caller, name)
    inode = find_existing(tx, path)
    there = tx.attributes(inode.inode) if inode.attributes_tx else {}
    if not flags:
        raise IllegalChange("A flag must be specified.")
    if str(name) in there and SetFlag.REPLACE not in flags:
        raise PathError(f"XAttr: {name.name} already exists. The REPLACE flag must be specified.")
    if str(name) not in there:
        if SetFlag.CREATE not in flags:
            raise PathError(f"XAttr: {name.name} does not exist. The CREATE flag must be specified.")
        if len(there) >= attributes_per_inode_max:
            raise PathError(
                f"Cannot add additional XAttr to inode, would exceed limit of {attributes_per_inode_max}"
            )
    tx.set_attribute(inode.inode, str(name), value)


def remove_attribute(tx: Transaction, path: NamespacePath, caller: Principal, name: AttributeName) -> None:
    """Remove an attribute. Raises AccessDenied, FileNotFound, PathError if it does not exist."""
    check_name(caller, name)
    _check_change(tx, path, caller, name)
    inode = find_existing(tx, path)
    if not inode.attributes_tx or str(name) not in tx.attributes(inode.inode):
        raise PathError("No matching attributes found for remove operation")
    tx.drop_attribute(inode.inode, str(name))


def attributes(
    reader: Reader, path: NamespacePath, caller: Principal, names: Sequence[AttributeName] = ()
) -> dict[str, bytes]:
    """Return the named attributes, or all visible ones. Raises AccessDenied, FileNotFound, PathError."""
    for name in names:
        check_name(caller, name)
    access_checks.check_access(reader, path, caller, Access.READ)
    inode = find_existing(reader, path)
    found = reader.attributes(inode.inode) if inode.attributes_tx else {}
    if not names:
        return {name: value for name, value in found.items() if _is_shown(caller, parse_name(name))}
    if any(str(name) not in found for name in names):
        raise PathError("At least one of the attributes provided was not found.")
    return {str(name): found[str(name)] for name in names}


def check_name(caller: Principal, name: AttributeName) -> None:
    """Raise AccessDenied if the caller may not use the namespace."""
    if not _is_shown(caller, name):
        raise AccessDenied(f"User doesn't have permission for xattr: {name}")


def _is_shown(caller: Principal, name: AttributeName) -> bool:
    return name.namespace is Namespace.USER or (name.namespace is Namespace.TRUSTED and caller.is_superuser)


def _check_change(tx: Transaction, path: NamespacePath, caller: Principal, name: AttributeName) -> None:
    access_checks.check_pass(tx, path, caller)
    if name.namespace is not Namespace.USER:
        return
    inode = find_existing(tx, path)
    if inode.kind is InodeKind.DIRECTORY and inode.permission & _STICKY:
        access_checks.check_owner(tx, path, caller)
    else:
        access_checks.check_access(tx, path, caller, Access.WRITE)
