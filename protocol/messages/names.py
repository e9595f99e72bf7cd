"""Requests of our client about paths: queries and changes of names. See decision 39.

Terms are those of HDFS's ClientProtocol where possible. Each call runs the same operation as the corresponding
WebHDFS request. Changes have a request id, which makes them idempotent.
"""

from __future__ import annotations

import msgspec

from .base import Message, TracedMessage


class NameCall(TracedMessage, frozen=True):
    """Base of requests about a path, by `user`. Only an administrator may name a user other than itself."""

    path: str
    user: str


class NameChange(NameCall, frozen=True, kw_only=True):
    """Base of changes; idempotent by `request_id`."""

    request_id: str


# -- looking -----------------------------------------------------------------------------------------


class NameStatus(msgspec.Struct, frozen=True, array_like=True):
    """A file or directory; `name` is empty for the requested path itself. Milliseconds since 1970, and bytes.

    `file_id` is HDFS's fileId. A rename keeps it; a copy has a new one. A coordinator of 0.1.0 does not send it.
    """

    name: str
    is_directory: bool
    length: int
    owner: str
    group: str
    permission: int
    modified_ms: int
    accessed_ms: int
    block_bytes: int
    replication: int
    file_id: int = 0


class GetFileInfo(NameCall, frozen=True):
    """Request the status of a path."""


class FileInfo(Message, frozen=True):
    status: NameStatus


class GetListing(NameCall, frozen=True):
    """Request a page of a directory, after a name. Listing a file returns the file."""

    start_after: str = ""


class Listing(Message, frozen=True):
    """Entries in byte order of their names, and the number of entries after them, counted up to a limit."""

    entries: list[NameStatus]
    remaining: int


class GetTreeSums(NameCall, frozen=True):
    """Request the sums over a tree, like HDFS's content summary."""


class GetQuotaSums(NameCall, frozen=True):
    """Request the quotas of a directory and their use."""


class TreeSums(Message, frozen=True):
    """The sums over a tree; `space` counts every replica. A quota of -1 means none."""

    directories: int
    files: int
    length: int
    space: int
    names_quota: int = -1
    space_quota: int = -1


class QuotaSums(Message, frozen=True):
    """The quotas of a directory (-1: none) and their use: `names` includes its own, `space` counts every
    replica.
    """

    names: int
    names_quota: int
    space: int
    space_quota: int


class GetXAttrs(NameCall, frozen=True):
    """Request all extended attributes that the user may see."""


class XAttrs(Message, frozen=True):
    values: dict[str, bytes]


class GetAclEntries(NameCall, frozen=True):
    """Request the access control list of a path."""


class AclEntries(Message, frozen=True):
    """The permission, and the ACL entries that are not part of it, in Hadoop's text form."""

    permission: int
    entries: str


class GetServerSettings(NameCall, frozen=True):
    """Request the cluster's settings for clients."""


class ServerSettings(Message, frozen=True):
    """`trash_minutes` is how long deleted files stay in the trash; 0 means that there is no trash."""

    trash_minutes: int


# -- changing ----------------------------------------------------------------------------------------


class NameChanged(Message, frozen=True):
    """The change is durable. `done` is False if there was nothing to change, as in HDFS."""

    done: bool = True


class Mkdirs(NameChange, frozen=True):
    """Make a directory and its missing parents.

    `unmasked` is the permission before the client's umask, from WebHDFS. It replaces `permission` if the parent
    has a default ACL.
    """

    permission: int
    unmasked: int | None = None


class RenamePath(NameChange, frozen=True):
    """Rename a path to exactly `target`, even if that is an existing directory.

    With `is_legacy`, for WebHDFS, rename as HDFS's older call does: move the path into an existing directory.
    """

    target: str
    overwrite: bool
    is_legacy: bool = False


class ExchangePaths(NameChange, frozen=True):
    """Swap the two names of each pair. `path` is the first name."""

    pairs: list[tuple[str, str]]


class DeletePath(NameChange, frozen=True):
    """Delete a path; a non-empty directory only with `recursive`."""

    recursive: bool


class CopyPath(NameChange, frozen=True):
    """Copy a file or tree to exactly `target`, sharing the chunks; answered by TreeSums."""

    target: str
    preserve: bool


class ChangePermission(NameChange, frozen=True):
    permission: int


class ChangeOwner(NameChange, frozen=True):
    """Set owner and group; None means unchanged."""

    owner: str | None
    group: str | None


class ChangeReplication(NameChange, frozen=True):
    """Set how many replicas a file needs."""

    replication: int


class ChangeTimes(NameChange, frozen=True):
    """Set times, in milliseconds since 1970; None means unchanged."""

    modified_ms: int | None
    accessed_ms: int | None


class ChangeQuota(NameChange, frozen=True):
    """Set the quotas of a directory for names and bytes; None means unchanged, -1 removes a quota."""

    names: int | None
    space: int | None


class SetXAttr(NameChange, frozen=True):
    """Set an extended attribute; `flags` are CREATE, REPLACE or both."""

    name: str
    value: bytes
    flags: list[str]


class RemoveXAttr(NameChange, frozen=True):
    name: str


class ChangeAcl(NameChange, frozen=True):
    """Change an access control list; `operation` is WebHDFS's name, `spec` the entries in Hadoop's text form."""

    operation: str
    spec: str = ""


class TruncatePath(NameChange, frozen=True):
    """Truncate a file to `length` bytes."""

    length: int


class ConcatFiles(NameChange, frozen=True):
    """Move the contents of `sources` to the end of a file."""

    sources: list[str]


class OpenForAppend(NameCall, frozen=True):
    """Take the lease of a file for `holder`, which is also the key for retries; answered by Leased."""

    holder: str


class RecoverLease(NameCall, frozen=True):
    """End the lease of a file whose writer is dead. Repeating it is harmless."""


class SwitchSnapshots(NameChange, frozen=True):
    """Allow or disallow snapshots of a directory."""

    allowed: bool


class TakeSnapshot(NameChange, frozen=True):
    """Take a snapshot; an empty name is replaced by one made from the current time."""

    name: str = ""


class SnapshotTaken(Message, frozen=True):
    """The path of a new snapshot."""

    path: str


class RenameTakenSnapshot(NameChange, frozen=True):
    name: str
    new_name: str


class DropSnapshot(NameChange, frozen=True):
    name: str


class ReturnToSnapshot(NameChange, frozen=True):
    """Restore the contents of a directory from a snapshot."""

    name: str
