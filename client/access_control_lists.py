"""The methods of a file system for access control lists."""

from __future__ import annotations

from collections.abc import Sequence

from peacefs.protocol.values.acl_entries import AclEntry

from .control.names import NameApi


class AccessControlLists:
    """ACLs of files and directories, as in HDFS. All methods raise classes of `peacefs.protocol.errors`."""

    _names: NameApi

    def acl(self, path: str) -> list[AclEntry]:
        """Return all entries: those of the permission bits, then those of a directory's default ACL.

        Raises FileNotFound, AccessDenied.
        """
        return self._names.acl(path)

    def modify_acl(self, path: str, entries: Sequence[AclEntry]) -> None:
        """Add entries, or replace existing ones. Raises FileNotFound, AccessDenied, InvalidAcl."""
        self._names.change_acl(path, "MODIFYACLENTRIES", entries)

    def remove_acl_entries(self, path: str, entries: Sequence[AclEntry]) -> None:
        """Remove entries, whatever their permissions are. Raises FileNotFound, AccessDenied, InvalidAcl."""
        self._names.change_acl(path, "REMOVEACLENTRIES", entries)

    def set_acl(self, path: str, entries: Sequence[AclEntry]) -> None:
        """Replace the whole ACL. Raises FileNotFound, AccessDenied, InvalidAcl."""
        self._names.change_acl(path, "SETACL", entries)

    def remove_default_acl(self, path: str) -> None:
        """Remove a directory's default ACL. Raises FileNotFound, AccessDenied."""
        self._names.change_acl(path, "REMOVEDEFAULTACL")

    def remove_acl(self, path: str) -> None:
        """Remove all entries except the permission bits. Raises FileNotFound, AccessDenied."""
        self._names.change_acl(path, "REMOVEACL")
