"""The values that the namespace consists of: no SQL, no wire format, no decisions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

from peacefs.protocol.ids import ChunkId, NodeId, Version
from peacefs.protocol.values.supervised_queries import QueryPhase

InodeId = int

#: The inode of the root directory, which has no entry. All other inode numbers contain an epoch of 1 or more.
ROOT: InodeId = 1
ROOT_GROUP = "supergroup"
#: As in HDFS, only superusers may create names in the root.
ROOT_PERMISSION = 0o755


class InodeKind(Enum):
    """The two kinds of inode."""

    FILE = "FILE"
    DIRECTORY = "DIRECTORY"


class Mode(Enum):
    """An operator's decision about a datanode."""

    IN_SERVICE = "in service"
    #: It gets no new chunks, and its chunks are copied to other datanodes. Then it can be switched off for good.
    DECOMMISSION = "decommission"
    #: It gets no new chunks and may be away for a while; its chunks are not copied meanwhile.
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class AdminDecision:
    """A mode and until when it stands, in milliseconds since 1970; None for good."""

    mode: Mode
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The key that a datanode id belongs to; times in milliseconds since 1970."""

    public_key: bytes
    enrolled_ms: int
    #: When an administrator revoked it, if that stands.
    revoked_ms: int | None = None


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A supervised query. The first word of `command` is a name in the lists of agents; the rest are arguments.

    `checkpoint` is empty if the query has none, `nodes` if any node may run it. `agent` and its `process` are set
    while the query should run there. `run` is the number of the last run, as shown to people (empty before the
    first); `location` is the checkpoint's path for that run. With `has_standby` a second driver waits to take
    over.
    """

    name: str
    user: str
    is_superuser: bool
    command: tuple[str, ...]
    checkpoint: str
    nodes: tuple[str, ...]
    restarts_max: int
    phase: QueryPhase = QueryPhase.WAITING
    agent: str = ""
    process: str = ""
    run: str = ""
    location: str = ""
    restarts: int = 0
    reason: str = ""
    changed_ms: int = 0
    has_standby: bool = False


class InodeStatus(msgspec.Struct, frozen=True):
    """The attributes that a listing or a stat shows. Times are milliseconds since 1970, lengths bytes.

    `name` is the last component of the path, or empty for the requested path itself. A listing creates a thousand
    of these at once, and a dataclass would take much longer to create.
    """

    name: str
    kind: InodeKind
    length: int
    owner: str
    group: str
    permission: int
    modified_ms: int
    accessed_ms: int
    block_bytes: int
    replication: int
    inode: int
    acl: str = ""


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a directory, in byte order of the names.

    `remaining` is how many entries follow it, counted no further than `list_remaining_max`.
    """

    entries: list[InodeStatus]
    remaining: int


@dataclass(frozen=True, slots=True)
class FileChunk:
    """A reference of a file to a chunk: the first `length` bytes of it belong to the file."""

    chunk: ChunkId
    version: Version
    length: int


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """A chunk that at least one file refers to. `hint` are the nodes that its completion named."""

    chunk: ChunkId
    version: Version
    length: int
    replication: int
    hint: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class TreeSummary:
    """The totals that `du` and `count` show for a tree, with its top's own quota; None for no quota."""

    directories: int
    files: int
    length: int
    space_consumed: int
    names_max: int | None = None
    bytes_max: int | None = None


class RenameMode(Enum):
    """The renames that WebHDFS knows."""

    #: Without `renameoptions`: answers true or false, and moves into a target that is a directory.
    LEGACY = "LEGACY"
    #: `renameoptions=NONE`: raises where it cannot, never replaces.
    STRICT = "NONE"
    #: `renameoptions=OVERWRITE`: replaces a file or an empty directory.
    OVERWRITE = "OVERWRITE"


class Inode(msgspec.Struct, frozen=True, gc=False):
    """A file or directory. Directories have zeros for length, block_bytes, replication and accessed_ms.

    `acl` has the ACL entries beyond the permission, empty for none: see `namespace.acl_rules`. `attributes_tx` is
    the last transaction that changed the extended attributes; 0 if there are none. `from_tx` is the transaction
    from which this row is valid, as far as snapshots need it. A million inodes may be in memory, so the garbage
    collector does not track them (`gc=False`): all fields are numbers, texts and an enumeration.
    """

    inode: InodeId
    kind: InodeKind
    permission: int
    owner: str
    group: str
    modified_ms: int
    accessed_ms: int
    length: int
    block_bytes: int
    replication: int
    acl: str = ""
    attributes_tx: int = 0
    from_tx: int = 0


class Origin(NamedTuple):
    """The place that an entry was renamed from, and when."""

    path: str
    renamed_ms: int


class Snapshot(NamedTuple):
    """A snapshot of a directory: its name and the transaction that it shows."""

    name: str
    at_tx: int
    created_ms: int


class NamespaceUsage(NamedTuple):
    """Files and directories, and the bytes of all their replicas; also a change of either."""

    names: int
    bytes: int


class Quota(NamedTuple):
    """A directory's limits, None for no limit, and its usage, itself included."""

    names_max: int | None
    bytes_max: int | None
    used: NamespaceUsage


class RightsChange(NamedTuple):
    """A change that may alter the rights to remove: a directory gained `child`, or `inode` itself changed.

    `moved` is True if the child existed before, perhaps with a tree below it.
    """

    tx: int
    inode: InodeId
    child: InodeId | None
    moved: bool


class Discarded(NamedTuple):
    """An inode of the reclaim queue and the transaction that discarded it."""

    inode: InodeId
    at_tx: int


class Lease(NamedTuple):
    """The right to extend a file. The number begins with the epoch and is never drawn twice."""

    number: int
    holder: str


class RecordedRun(NamedTuple):
    """The run that may write to a checkpoint root, by its number, and the process that began it.

    `pid` is 0 if the process did not state it; `ended_ms` is None until the run states its end.
    """

    number: int
    user: str
    host: str
    pid: int
    since_ms: int
    ended_ms: int | None


def status_as(name: str, inode: Inode) -> InodeStatus:
    """Return the status of an inode under a name; the name is empty for the requested path itself."""
    return InodeStatus(
        name,
        inode.kind,
        inode.length,
        inode.owner,
        inode.group,
        inode.permission,
        inode.modified_ms,
        inode.accessed_ms,
        inode.block_bytes,
        inode.replication,
        inode.inode,
        inode.acl,
    )
