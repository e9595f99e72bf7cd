"""Names: what our client asks of the coordinator about paths, and the changes that it wants. See decision 39.

The words are those of HDFS's ClientProtocol where it has them. Each call is carried out by the operation that
WebHDFS's of the same meaning is; a change bears the id under which it is done once.
"""

from __future__ import annotations

import msgspec

from .base import Message, TracedMessage


class NameCall(TracedMessage, frozen=True):
    """Base of what is asked about a path, by whom; where callers are authenticated, by whom they are."""

    path: str
    user: str


class NameChange(NameCall, frozen=True, kw_only=True):
    """Base of what changes something; asked again under the same id it is done once."""

    request_id: str


# -- looking -----------------------------------------------------------------------------------------


class NameStatus(msgspec.Struct, frozen=True, array_like=True):
    """A file or directory; `name` is empty for the path that was asked for. Milliseconds since 1970, and bytes.

    `file_id` is HDFS's fileId, which a rename leaves and a copy does not; a coordinator of 0.1.0 sends none.
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
    """The status of a path."""


class FileInfo(Message, frozen=True):
    """The status that was asked for."""

    status: NameStatus


class GetListing(NameCall, frozen=True):
    """A page of a directory after a name; a file lists itself."""

    start_after: str = ""


class Listing(Message, frozen=True):
    """Entries in byte order of their names, and how many follow, counted up to a limit."""

    entries: list[NameStatus]
    remaining: int


class GetTreeSums(NameCall, frozen=True):
    """The sums over a tree, as HDFS's content summary."""


class GetQuotaSums(NameCall, frozen=True):
    """The quotas of a directory, and what it takes of them."""


class TreeSums(Message, frozen=True):
    """The contents of a tree; `space` counts every replica. A quota of -1 is none."""

    directories: int
    files: int
    length: int
    space: int
    names_quota: int = -1
    space_quota: int = -1


class QuotaSums(Message, frozen=True):
    """The quotas of a directory, -1 for none; names with its own, bytes of all replicas."""

    names: int
    names_quota: int
    space: int
    space_quota: int


class GetXAttrs(NameCall, frozen=True):
    """All extended attributes that the user may see."""


class XAttrs(Message, frozen=True):
    """Extended attributes by name."""

    values: dict[str, bytes]


class GetAclEntries(NameCall, frozen=True):
    """The access control list of a path."""


class AclEntries(Message, frozen=True):
    """The permission, and the entries that it does not say, in Hadoop's text form."""

    permission: int
    entries: str


class GetServerSettings(NameCall, frozen=True):
    """The settings of the cluster that clients go by."""


class ServerSettings(Message, frozen=True):
    """`trash_minutes` is how long the trash keeps what is moved there; 0 for no trash."""

    trash_minutes: int


# -- changing ----------------------------------------------------------------------------------------


class NameChanged(Message, frozen=True):
    """The change is durable. `done` is False where there was nothing to do, as HDFS says it."""

    done: bool = True


class Mkdirs(NameChange, frozen=True):
    """A directory, with its parents."""

    permission: int


class RenamePath(NameChange, frozen=True):
    """Move to exactly `target`."""

    target: str
    overwrite: bool


class ExchangePaths(NameChange, frozen=True):
    """The names of each pair trade what they name. `path` is the first of them."""

    pairs: list[tuple[str, str]]


class DeletePath(NameChange, frozen=True):
    """Delete a path, a tree with `recursive`."""

    recursive: bool


class CopyPath(NameChange, frozen=True):
    """Copy a file or tree, names alone, to exactly `target`; answered by TreeSums."""

    target: str
    preserve: bool


class ChangePermission(NameChange, frozen=True):
    """Set the bits of a path."""

    permission: int


class ChangeOwner(NameChange, frozen=True):
    """Set owner and group; None leaves one as it is."""

    owner: str | None
    group: str | None


class ChangeReplication(NameChange, frozen=True):
    """Set how many replicas a file needs."""

    replication: int


class ChangeTimes(NameChange, frozen=True):
    """Set times, in milliseconds since 1970; None leaves one as it is."""

    modified_ms: int | None
    accessed_ms: int | None


class ChangeQuota(NameChange, frozen=True):
    """Limit names and bytes of a directory; None leaves a limit as it is, -1 takes it away."""

    names: int | None
    space: int | None


class SetXAttr(NameChange, frozen=True):
    """Set an extended attribute; `flags` are CREATE and REPLACE, or one of them."""

    name: str
    value: bytes
    flags: list[str]


class RemoveXAttr(NameChange, frozen=True):
    """Remove an extended attribute."""

    name: str


class ChangeAcl(NameChange, frozen=True):
    """Change an access control list; `operation` is one of WebHDFS's, `spec` its entries in Hadoop's text form."""

    operation: str
    spec: str = ""


class TruncatePath(NameChange, frozen=True):
    """Leave a file its first `length` bytes."""

    length: int


class ConcatFiles(NameChange, frozen=True):
    """Move the contents of `sources` to the end of a file."""

    sources: list[str]


class OpenForAppend(NameCall, frozen=True):
    """Take the lease of a file, for `holder`, who asks again under the same name; answered by Leased."""

    holder: str


class RecoverLease(NameCall, frozen=True):
    """End the lease of a file whose writer is dead; to be repeated without harm."""


class SwitchSnapshots(NameChange, frozen=True):
    """Allow snapshots of a directory, or allow them no more."""

    allowed: bool


class TakeSnapshot(NameChange, frozen=True):
    """Take a snapshot; without a name it gets one from the clock."""

    name: str = ""


class SnapshotTaken(Message, frozen=True):
    """The path of a new snapshot."""

    path: str


class RenameTakenSnapshot(NameChange, frozen=True):
    """Give a snapshot another name."""

    name: str
    new_name: str


class DropSnapshot(NameChange, frozen=True):
    """Delete a snapshot."""

    name: str


class ReturnToSnapshot(NameChange, frozen=True):
    """Give a directory the contents that a snapshot shows."""

    name: str
