"""Changes of the ACLs of files and directories in a transaction; `acl_rules` has their meaning."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from peacefs.coordinator.metadata.model import InodeKind
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import InvalidAcl
from peacefs.protocol.values.acl_entries import AclEntry

from . import acl_rules
from .acl_rules import Acl
from .paths import NamespacePath
from .resolution import find_existing


def modify_entries(tx: Transaction, path: NamespacePath, spec: Acl) -> None:
    """Add entries, or replace existing ones. Raises FileNotFound, InvalidAcl."""
    _change(tx, path, lambda existing: acl_rules.modify(existing, spec))


def remove_entries(tx: Transaction, path: NamespacePath, spec: Acl) -> None:
    """Remove entries. Raises FileNotFound, InvalidAcl."""
    _change(tx, path, lambda existing: acl_rules.remove(existing, spec))


def remove_default(tx: Transaction, path: NamespacePath) -> None:
    """Remove the default ACL. Raises FileNotFound."""
    _change(tx, path, acl_rules.remove_default)


def set_acl(tx: Transaction, path: NamespacePath, spec: Acl) -> None:
    """Replace the ACL; an empty one removes it. Raises FileNotFound, InvalidAcl."""
    if spec:
        _change(tx, path, lambda existing: acl_rules.replace(existing, spec))
    else:
        remove_acl(tx, path)


def remove_acl(tx: Transaction, path: NamespacePath) -> None:
    """Remove the ACL. The permission stays, without a mask. Raises FileNotFound."""
    inode = find_existing(tx, path)
    left = acl_rules.removed(inode.permission, inode.acl)
    tx.change_inode(structs.replace(inode, permission=left.permission, acl=left.acl))


def _change(tx: Transaction, path: NamespacePath, change: Callable[[Acl], list[AclEntry]]) -> None:
    inode = find_existing(tx, path)
    try:
        entries = change(acl_rules.logical(inode.permission, inode.acl))
        kept = acl_rules.stored(entries, inode.permission, is_directory=inode.kind is InodeKind.DIRECTORY)
    except InvalidAcl as fault:
        raise InvalidAcl(f"{fault.message} Path: {path}") from None
    tx.change_inode(structs.replace(inode, permission=kept.permission, acl=kept.acl))
