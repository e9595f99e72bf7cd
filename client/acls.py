"""Access control lists, as `PeaceFileSystem.acls`."""

from __future__ import annotations

from collections.abc import Sequence

from peacefs.protocol.ids import new_request_id
from peacefs.protocol.messages import AclEntries, ChangeAcl, GetAclEntries
from peacefs.protocol.values.acl_entries import AclEntry, acl_text, parse_acl, whole_acl

from .control.names import NameApi


class Acls:
    """ACLs of files and directories, as in HDFS. All methods raise classes of `peacefs.protocol.errors`."""

    def __init__(self, names: NameApi) -> None:
        self._names = names

    def get(self, path: str) -> list[AclEntry]:
        """Return all entries: those of the permission bits, then those of a directory's default ACL.

        Raises FileNotFound, AccessDenied.
        """
        found = self._names.ask(GetAclEntries(path, self._names.user), AclEntries)
        return whole_acl(found.permission, parse_acl(found.entries))

    def modify(self, path: str, entries: Sequence[AclEntry]) -> None:
        """Add entries, or replace existing ones. Raises FileNotFound, AccessDenied, InvalidAcl."""
        self._change(path, "MODIFYACLENTRIES", acl_text(entries))

    def remove_entries(self, path: str, entries: Sequence[AclEntry]) -> None:
        """Remove entries, whatever their permissions are. Raises FileNotFound, AccessDenied, InvalidAcl."""
        spec = ",".join(str(entry).rpartition(":")[0] + ":" for entry in entries)
        self._change(path, "REMOVEACLENTRIES", spec)

    def set(self, path: str, entries: Sequence[AclEntry]) -> None:
        """Replace the whole ACL. Raises FileNotFound, AccessDenied, InvalidAcl."""
        self._change(path, "SETACL", acl_text(entries))

    def remove_default(self, path: str) -> None:
        """Remove a directory's default ACL. Raises FileNotFound, AccessDenied."""
        self._change(path, "REMOVEDEFAULTACL")

    def remove(self, path: str) -> None:
        """Remove all entries except the permission bits. Raises FileNotFound, AccessDenied."""
        self._change(path, "REMOVEACL")

    def _change(self, path: str, operation: str, spec: str = "") -> None:
        self._names.change(
            ChangeAcl(path, self._names.user, operation=operation, spec=spec, request_id=new_request_id())
        )
