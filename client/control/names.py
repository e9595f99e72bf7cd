"""A client's requests about names (files and directories), over frames, one call each.

File data does not pass here. Each change carries its own request id, so that a retry is not applied twice.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from peacefs.client.limits import client_answer_timeout_s
from peacefs.protocol.ids import new_request_id
from peacefs.protocol.messages import (
    AclEntries,
    ChangeAcl,
    ChangeOwner,
    ChangePermission,
    ChangeQuota,
    ChangeReplication,
    ChangeTimes,
    ConcatFiles,
    CopyPath,
    DeletePath,
    DropSnapshot,
    ExchangePaths,
    FileInfo,
    GetAclEntries,
    GetFileInfo,
    GetListing,
    GetQuotaSums,
    GetServerSettings,
    GetTreeSums,
    GetXAttrs,
    Leased,
    Listing,
    Mkdirs,
    NameChange,
    NameChanged,
    NameStatus,
    OpenForAppend,
    QuotaSums,
    RecoverLease,
    RemoveXAttr,
    RenamePath,
    RenameTakenSnapshot,
    ReturnToSnapshot,
    ServerSettings,
    SetXAttr,
    SnapshotTaken,
    SwitchSnapshots,
    TakeSnapshot,
    TreeSums,
    TruncatePath,
    XAttrs,
)
from peacefs.protocol.values.acl_entries import AclEntry, acl_text, parse_acl, whole_acl
from peacefs.protocol.values.copied_tree import CopiedTree

from .rpc import ControlRpc
from .values import ContentSummary, FileStatus, QuotaUsage

# Time limit for the copy of a tree. Enough for ten million files on a slow machine.
copy_timeout_s: Final = 3600.0


#: Allow the attribute to be new, and to exist already.
ATTRIBUTE_FLAGS: Final = ("CREATE", "REPLACE")


class ListingPage(msgspec.Struct, frozen=True):
    """Entries in byte order of their names, and the number of entries that follow."""

    entries: list[FileStatus]
    remaining: int


class NameApi:
    """Requests about names, on behalf of `user`; `PeaceFileSystem` describes them. Thread-safe.

    Every method may raise classes of `errors` in addition to those it lists.
    """

    def __init__(self, calls: ControlRpc, user: str) -> None:
        self._calls = calls
        self.user = user

    # -- looking -----------------------------------------------------------------------------------

    def status(self, path: str) -> FileStatus:
        """Return the metadata of a path. Raises FileNotFound."""
        return _status(path, self._calls.ask(GetFileInfo(path, self.user), FileInfo).status)

    def pages(self, path: str) -> Iterator[ListingPage]:
        """List a directory page by page. A file lists itself. Raises FileNotFound."""
        start_after, above = "", path.rstrip("/") + "/"
        while True:
            page = self._calls.ask(GetListing(path, self.user, start_after), Listing)
            yield ListingPage(
                [_status(above + row.name if row.name else path, row) for row in page.entries], page.remaining
            )
            if page.remaining == 0 or not page.entries:
                return
            start_after = page.entries[-1].name

    def content_summary(self, path: str) -> ContentSummary:
        """Count the files, directories and bytes of a tree. Raises FileNotFound."""
        sums = self._calls.ask(GetTreeSums(path, self.user), TreeSums)
        return ContentSummary(
            sums.directories, sums.files, sums.length, sums.space, sums.names_quota, sums.space_quota
        )

    def quota_usage(self, path: str) -> QuotaUsage:
        """Raises FileNotFound, AccessDenied."""
        sums = self._calls.ask(GetQuotaSums(path, self.user), QuotaSums)
        return QuotaUsage(sums.names, sums.names_quota, sums.space, sums.space_quota)

    def attributes(self, path: str) -> dict[str, bytes]:
        """Return the extended attributes that the user may see. Raises FileNotFound, AccessDenied."""
        return self._calls.ask(GetXAttrs(path, self.user), XAttrs).values

    def acl(self, path: str) -> list[AclEntry]:
        """Return all entries of an ACL. Raises FileNotFound, AccessDenied."""
        found = self._calls.ask(GetAclEntries(path, self.user), AclEntries)
        return whole_acl(found.permission, parse_acl(found.entries))

    def trash_minutes(self) -> int:
        """Return how many minutes the cluster keeps files in the trash; 0 if it has no trash."""
        return self._calls.ask(GetServerSettings("/", self.user), ServerSettings).trash_minutes

    # -- changing ----------------------------------------------------------------------------------

    def mkdirs(self, path: str, permission: int = 0o755) -> None:
        """Create a directory and its parents; succeed if it exists already. Raises FileAlreadyExists, ..."""
        self._change(Mkdirs(path, self.user, permission=permission, request_id=new_request_id()))

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Move atomically to exactly `target`. With `overwrite`, a file or empty directory there is replaced.

        Raises FileNotFound, FileAlreadyExists, ParentNotDirectory, RenameRefused, ...
        """
        self._change(
            RenamePath(source, self.user, target=target, overwrite=overwrite, request_id=new_request_id())
        )

    def exchange(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Exchange the contents of each pair of names, in one commit. Raises FileNotFound, IllegalChange, ..."""
        first = pairs[0][0] if pairs else "/"
        self._change(ExchangePaths(first, self.user, pairs=list(pairs), request_id=new_request_id()))

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        """Delete a path; return whether it existed. Raises PathIsNotEmptyDirectory."""
        return self._change(DeletePath(path, self.user, recursive=recursive, request_id=new_request_id()))

    def copy(self, source: str, target: str, *, preserve: bool = False) -> CopiedTree:
        """Raises FileNotFound, FileAlreadyExists, IllegalChange, AccessDenied, SnapshotRefused, ..."""
        message = CopyPath(source, self.user, target=target, preserve=preserve, request_id=new_request_id())
        copied = self._calls.ask(message, TreeSums, answer_timeout_s=copy_timeout_s)
        return CopiedTree(copied.directories, copied.files, copied.length, copied.space)

    def set_permission(self, path: str, permission: int) -> None:
        """Raises FileNotFound, AccessDenied."""
        self._change(ChangePermission(path, self.user, permission=permission, request_id=new_request_id()))

    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        """Change owner and group; None keeps the current one. Raises FileNotFound, AccessDenied."""
        self._change(ChangeOwner(path, self.user, owner=owner, group=group, request_id=new_request_id()))

    def set_times(self, path: str, modified_ms: int | None, accessed_ms: int | None) -> None:
        """Set times; None keeps the current one. Raises FileNotFound, AccessDenied."""
        self._change(
            ChangeTimes(
                path, self.user, modified_ms=modified_ms, accessed_ms=accessed_ms, request_id=new_request_id()
            )
        )

    def set_replication(self, path: str, replication: int) -> bool:
        """Return False, without a change, for a directory. Raises FileNotFound, AccessDenied, BadRequest."""
        return self._change(
            ChangeReplication(path, self.user, replication=replication, request_id=new_request_id())
        )

    def set_quota(self, path: str, names: int | None, space: int | None) -> None:
        """Set limits; None keeps a limit, -1 removes it. Raises FileNotFound, AccessDenied, BadRequest."""
        self._change(ChangeQuota(path, self.user, names=names, space=space, request_id=new_request_id()))

    def set_attribute(self, path: str, name: str, value: bytes, flags: Collection[str] = ATTRIBUTE_FLAGS) -> None:
        """Set an extended attribute, such as `user.colour`.

        Raises PathError if it exists and `flags` lack REPLACE, or is new and they lack CREATE.
        """
        self._change(
            SetXAttr(path, self.user, name=name, value=value, flags=list(flags), request_id=new_request_id())
        )

    def remove_attribute(self, path: str, name: str) -> None:
        """Raises FileNotFound, AccessDenied, and PathError if the attribute does not exist."""
        self._change(RemoveXAttr(path, self.user, name=name, request_id=new_request_id()))

    def change_acl(self, path: str, operation: str, entries: Sequence[AclEntry] = ()) -> None:
        """Raises FileNotFound, AccessDenied, InvalidAcl."""
        if operation == "REMOVEACLENTRIES":
            spec = ",".join(str(entry).rpartition(":")[0] + ":" for entry in entries)
        else:
            spec = acl_text(entries)
        self._change(ChangeAcl(path, self.user, operation=operation, spec=spec, request_id=new_request_id()))

    # -- files that are there ----------------------------------------------------------------------

    def extend(self, path: str, holder: str) -> Leased:
        """Take the lease of a file for `holder` (see `new_holder`).

        Raises FileNotFound, FileAlreadyExists, AlreadyBeingCreated, ...
        """
        return self._calls.ask(OpenForAppend(path, self.user, holder), Leased)

    def truncate(self, path: str, length: int) -> bool:
        """Raises FileNotFound, PathIsDirectory, IllegalChange, AlreadyBeingCreated."""
        return self._change(TruncatePath(path, self.user, length=length, request_id=new_request_id()))

    def concat(self, target: str, sources: Sequence[str]) -> None:
        """Raises FileNotFound, PathIsDirectory, IllegalChange, AlreadyBeingCreated."""
        self._change(ConcatFiles(target, self.user, sources=list(sources), request_id=new_request_id()))

    def recover_lease(self, path: str) -> bool:
        """Raises FileNotFound, FileAlreadyExists for a directory, AccessDenied."""
        return self._calls.ask(RecoverLease(path, self.user), NameChanged).done

    def new_holder(self) -> str:
        """Return a unique name for a writer, as the holder of a lease."""
        return f"{self.user}@{socket.gethostname()} {uuid.uuid4().hex}"

    # -- snapshots ---------------------------------------------------------------------------------

    def allow_snapshots(self, path: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._change(SwitchSnapshots(path, self.user, allowed=True, request_id=new_request_id()))

    def disallow_snapshots(self, path: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._change(SwitchSnapshots(path, self.user, allowed=False, request_id=new_request_id()))

    def create_snapshot(self, path: str, name: str | None) -> str:
        """Return the snapshot's path. Raises SnapshotRefused, AccessDenied, FileNotFound."""
        message = TakeSnapshot(path, self.user, name=name or "", request_id=new_request_id())
        return self._calls.ask(message, SnapshotTaken).path

    def rename_snapshot(self, path: str, name: str, new_name: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._change(
            RenameTakenSnapshot(path, self.user, name=name, new_name=new_name, request_id=new_request_id())
        )

    def delete_snapshot(self, path: str, name: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._change(DropSnapshot(path, self.user, name=name, request_id=new_request_id()))

    def restore_snapshot(self, path: str, name: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._change(ReturnToSnapshot(path, self.user, name=name, request_id=new_request_id()))

    def _change(self, change: NameChange) -> bool:
        return self._calls.ask(change, NameChanged, answer_timeout_s=client_answer_timeout_s).done


def _status(path: str, row: NameStatus) -> FileStatus:
    return FileStatus(
        path,
        row.is_directory,
        row.length,
        row.owner,
        row.group,
        row.permission,
        row.modified_ms,
        row.accessed_ms,
        row.block_bytes,
        row.replication,
        row.file_id,
    )
