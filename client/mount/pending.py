"""Attributes to set on a file once it is published: set by a program earlier, or kept across a rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from peacefs.client.control.values import FileStatus
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.values.acl_entries import AclEntry


@dataclass
class PendingAttributes:
    """The attributes that `apply` sets after publication. The mode is set when the file is created."""

    mode: int
    owner: str | None = None
    group: str | None = None
    modified_ms: int | None = None
    accessed_ms: int | None = None
    xattrs: dict[str, bytes] = field(default_factory=dict)
    acl: Sequence[AclEntry] = ()

    @property
    def is_empty(self) -> bool:
        owner = self.owner or self.group
        times = self.modified_ms is not None or self.accessed_ms is not None
        return not (owner or times or self.xattrs or self.acl)

    def keep_of(self, files: PeaceFileSystem, existing: FileStatus) -> None:
        """Keep the attributes of the existing file: rewriting a whole file creates a new one, as in HDFS."""
        self.mode = existing.permission
        self.owner, self.group = existing.owner, existing.group
        self.xattrs = {**files.xattrs.get(existing.path), **self.xattrs}
        acl = files.acls.get(existing.path)
        # An ACL of three entries only repeats the permission bits.
        self.acl = acl if len(acl) > 3 else ()

    def apply(self, files: PeaceFileSystem, published: FileStatus) -> None:
        """Set the attributes on the new file. Skip the owner and group if this user may not change them."""
        path = published.path
        for name, value in self.xattrs.items():
            files.xattrs.set(path, name, value)
        if self.acl:
            files.acls.set(path, self.acl)
        owner = self.owner if self.owner != published.owner else None
        group = self.group if self.group != published.group else None
        if owner is not None or group is not None:
            # Only superusers may change the owner.
            with suppress(AccessDenied):
                files.set_owner(path, owner, group)
        if self.modified_ms is not None or self.accessed_ms is not None:
            files.set_times(path, modified_ms=self.modified_ms, accessed_ms=self.accessed_ms)
        self.owner = self.group = self.modified_ms = self.accessed_ms = None
        self.xattrs, self.acl = {}, ()
