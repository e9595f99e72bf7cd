"""Requests about names (files and directories), over frames, one call each.

File data does not pass here. Each change carries its own request id, so that a retry is not applied twice.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from peacefs.client.limits import client_answer_timeout_s
from peacefs.protocol.errors import FileNotFound, PathThroughFile
from peacefs.protocol.ids import new_request_id
from peacefs.protocol.messages import (
    ChangeOwner,
    ChangePermission,
    ChangeReplication,
    ChangeTimes,
    ConcatFiles,
    CopyPath,
    DeletePath,
    ExchangePaths,
    FileInfo,
    GetFileInfo,
    GetListing,
    GetServerSettings,
    GetTreeSums,
    Leased,
    Listing,
    Message,
    Mkdirs,
    NameCall,
    NameChange,
    NameChanged,
    NameStatus,
    OpenForAppend,
    RecoverLease,
    RenamePath,
    ServerSettings,
    TreeSums,
    TruncatePath,
)
from peacefs.protocol.values.copied_tree import CopiedTree

from .rpc import ControlRpc
from .values import ContentSummary, FileStatus

# Time limit for the copy of a tree. Enough for ten million files on a slow machine.
copy_timeout_s: Final = 3600.0

M = TypeVar("M", bound=Message)
# Inside the class, the name `list` means its method.
_Entries = list[FileStatus]


class ListingPage(msgspec.Struct, frozen=True):
    """Entries in byte order of their names, and the number of entries that follow."""

    entries: list[FileStatus]
    remaining: int


class NameApi:
    """Looks names up and changes them, on behalf of `user`. `PeaceFileSystem` inherits these methods. Thread-safe.

    All methods raise classes of `peacefs.protocol.errors`. Each lists only the most likely ones.
    """

    def __init__(self, calls: ControlRpc, user: str) -> None:
        self._calls = calls
        self._user = user

    @property
    def user(self) -> str:
        """The user on whose behalf requests are made."""
        return self._user

    def ask(self, asked: NameCall, answer: type[M], *, timeout_s: float = client_answer_timeout_s) -> M:
        """Send a message about names, and return its answer. Each attempt waits at most `timeout_s`."""
        return self._calls.ask(asked, answer, answer_timeout_s=timeout_s)

    def change(self, asked: NameChange) -> bool:
        """Send a change; return False if there was nothing to change, as in HDFS."""
        return self.ask(asked, NameChanged).done

    # -- looking up --------------------------------------------------------------------------------

    def status(self, path: str) -> FileStatus:
        """Return the metadata of a path. Raises FileNotFound, also for a path through a file."""
        try:
            return _status(path, self.ask(GetFileInfo(path, self.user), FileInfo).status)
        except PathThroughFile as error:
            raise FileNotFound(f"File does not exist: {path}, since {error.message}") from None

    def exists(self, path: str) -> bool:
        """Return whether a path exists. Raises AccessDenied if the user may not enter a parent directory."""
        try:
            self.status(path)
        except FileNotFound:
            return False
        return True

    def list(self, path: str) -> _Entries:
        """List a directory, in byte order of the names. A file lists itself. Raises FileNotFound."""
        return [entry for page in self.pages(path) for entry in page.entries]

    def pages(self, path: str) -> Iterator[ListingPage]:
        """List a directory of any size page by page. Entries may appear and disappear meanwhile."""
        start_after, above = "", path.rstrip("/") + "/"
        while True:
            page = self.ask(GetListing(path, self.user, start_after), Listing)
            yield ListingPage(
                [_status(above + row.name if row.name else path, row) for row in page.entries], page.remaining
            )
            if page.remaining == 0 or not page.entries:
                return
            start_after = page.entries[-1].name

    def walk(self, path: str) -> Iterator[tuple[str, _Entries, _Entries]]:
        """Walk a tree: yield each directory's path, its subdirectories and its files.

        The caller may remove subdirectories from the list to skip them. Directories deleted meanwhile are skipped.
        Raises FileNotFound if `path` itself does not exist.
        """
        pending = [path]
        while pending:
            directory = pending.pop()
            try:
                entries = self.list(directory)
            except FileNotFound:
                if directory == path:
                    raise
                continue
            directories = [entry for entry in entries if entry.is_directory]
            yield directory, directories, [entry for entry in entries if not entry.is_directory]
            pending += [entry.path for entry in reversed(directories)]

    def content_summary(self, path: str) -> ContentSummary:
        """Count the files, directories and bytes of a tree. Raises FileNotFound."""
        sums = self.ask(GetTreeSums(path, self.user), TreeSums)
        return ContentSummary(
            sums.directories, sums.files, sums.length, sums.space, sums.names_quota, sums.space_quota
        )

    def trash_minutes(self) -> int:
        """Return the minimum number of minutes that the cluster keeps files in the trash; 0 if it has no trash."""
        return self.ask(GetServerSettings("/", self.user), ServerSettings).trash_minutes

    # -- changing ----------------------------------------------------------------------------------

    def mkdirs(self, path: str, permission: int = 0o755) -> None:
        """Create a directory and its parents; succeed if it exists already. Raises FileAlreadyExists, ..."""
        self.change(Mkdirs(path, self.user, permission=permission, request_id=new_request_id()))

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Move a file or directory, atomically. `target` is its new path, never a directory to move it into.

        With `overwrite`, an existing file or empty directory there is replaced. Raises FileNotFound,
        FileAlreadyExists, ParentNotDirectory, RenameRefused, ...
        """
        self.change(RenamePath(source, self.user, target=target, overwrite=overwrite, request_id=new_request_id()))

    def copy(self, source: str, target: str, *, preserve: bool = False) -> CopiedTree:
        """Copy a file or tree to the path `target`. Only names are copied; the copy shares the source's chunks.

        The copy is atomic and shows the source at one moment. `target` must not exist, its parent must. The source
        may be in a snapshot and must be readable throughout. The copies belong to the user and get the current
        time; `preserve` keeps times and, for a superuser, owners and groups. Raises FileNotFound,
        FileAlreadyExists, AccessDenied, IllegalChange if the target is below the source, and SnapshotRefused if
        the snapshot is deleted meanwhile.
        """
        asked = CopyPath(source, self.user, target=target, preserve=preserve, request_id=new_request_id())
        copied = self.ask(asked, TreeSums, timeout_s=copy_timeout_s)
        return CopiedTree(copied.directories, copied.files, copied.length, copied.space)

    def exchange(self, *pairs: tuple[str, str]) -> None:
        """Exchange the contents of two names, files or trees, for each pair; commit all pairs together.

        Both names of a pair must be in one directory. Raises FileNotFound, IllegalChange for names in different
        directories, SnapshotRefused, AccessDenied.
        """
        first = pairs[0][0] if pairs else "/"
        self.change(ExchangePaths(first, self.user, pairs=[*pairs], request_id=new_request_id()))

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        """Delete a path; return whether it existed. Raises PathIsNotEmptyDirectory unless `recursive`."""
        return self.change(DeletePath(path, self.user, recursive=recursive, request_id=new_request_id()))

    def set_permission(self, path: str, permission: int) -> None:
        """Set the bits of owner, group and others, and the sticky bit. Raises FileNotFound, AccessDenied."""
        self.change(ChangePermission(path, self.user, permission=permission, request_id=new_request_id()))

    def set_owner(self, path: str, owner: str | None = None, group: str | None = None) -> None:
        """Change owner and group; None keeps the current one. Raises FileNotFound, AccessDenied."""
        self.change(ChangeOwner(path, self.user, owner=owner, group=group, request_id=new_request_id()))

    def set_times(self, path: str, *, modified_ms: int | None = None, accessed_ms: int | None = None) -> None:
        """Set times, in milliseconds since 1970; None keeps the current one. Raises FileNotFound, AccessDenied."""
        self.change(
            ChangeTimes(
                path, self.user, modified_ms=modified_ms, accessed_ms=accessed_ms, request_id=new_request_id()
            )
        )

    def set_replication(self, path: str, replication: int) -> bool:
        """Set the number of replicas of a file. Replicas are copied or dropped after this returns.

        Return False, without a change, for a directory. Raises FileNotFound, AccessDenied, BadRequest.
        """
        return self.change(
            ChangeReplication(path, self.user, replication=replication, request_id=new_request_id())
        )

    # -- existing files ----------------------------------------------------------------------------

    def extend(self, path: str, holder: str) -> Leased:
        """Take the lease of a file for `holder` (see `new_holder`), as `open_for_appending` does.

        Raises FileNotFound, FileAlreadyExists, AlreadyBeingCreated, ...
        """
        return self.ask(OpenForAppend(path, self.user, holder), Leased)

    def new_holder(self) -> str:
        """Return a unique name for a writer, as the holder of a lease."""
        return f"{self.user}@{socket.gethostname()} {uuid.uuid4().hex}"

    def recover_lease(self, path: str) -> bool:
        """Take the lease from a dead writer before it expires. Return True if the file can be extended at once.

        The file ends after the last acknowledged append or flush. If the writer is alive after all, its further
        writes are refused. Raises FileNotFound, FileAlreadyExists for a directory, AccessDenied.
        """
        return self.ask(RecoverLease(path, self.user), NameChanged).done

    def truncate(self, path: str, length: int) -> bool:
        """Cut a file to its first `length` bytes. Return True if this is done at once.

        Raises FileNotFound, PathIsDirectory, AlreadyBeingCreated, and IllegalChange if the file is shorter.
        """
        return self.change(TruncatePath(path, self.user, length=length, request_id=new_request_id()))

    def concat(self, target: str, sources: Sequence[str]) -> None:
        """Move the contents of `sources`, in order, to the end of `target`, and delete the sources.

        Raises FileNotFound, PathIsDirectory, AlreadyBeingCreated. Like HDFS, raises IllegalChange if a source is
        empty, is named twice, is the target, or has larger blocks.
        """
        self.change(ConcatFiles(target, self.user, sources=[*sources], request_id=new_request_id()))


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
