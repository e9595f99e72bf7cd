"""The port behind which the metadata lies: the words in which the namespace reads and writes it.

Words of the schema:

    inode       a file or directory, by number; the name is not part of it
    entry       (parent, name) -> inode
    reference   (inode, position) -> chunk and how many bytes of it belong to the file
    chunk       what datanodes hold replicas of; counted by the references to it
    discarded   an inode that has lost its name and whose contents wait to be reclaimed
    request     an answer that was given, for whoever asks again
    datanode    one that an operator is taking out of service
    lease       the right to extend a file, by number: a higher one takes it from whoever had it
    snapshot    a directory as it was when a transaction had taken effect
    pin         the same for a short while, and for nobody to see
    quota       what a directory may hold, and what it holds: kept with every change
    attribute   (inode, name) -> value: an extended attribute
    run         the latest run of a query whose checkpoint root a directory is
    credential  keys, tokens and OAuth2 clients: see `credentials`

Inodes, entries, references and attributes are valid from one transaction to another. What is superseded goes at
once, unless a snapshot shows it: then it is retired, until the last that does has gone. That is the store's
business alone; the namespace sees what is valid now, or, through a reader of the past, what was valid then.

Knows no path, no HDFS, no SQL. Implementations: `metadata_sqlite`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from peacefs.protocol.ids import ChunkId, NodeId

from .model import (
    AdminDecision,
    ChunkRecord,
    Discarded,
    Enrolment,
    FileChunk,
    Inode,
    InodeId,
    Lease,
    NamespaceUsage,
    Origin,
    QueryRecord,
    Quota,
    RecordedRun,
    RightsChange,
    Snapshot,
)
from .token_records import TokenRecord, TokenRecords

#: The root directory: it has an inode and no entry. All other inodes are numbers of an epoch from 1 on.
ROOT: InodeId = 1
ROOT_GROUP = "supergroup"
#: Like /tmp: everyone may make something there, and nobody remove what is another's.
ROOT_PERMISSION = 0o1777


class MetadataFault(Exception):
    """The store can no longer be written or trusted; the coordinator stops rather than guess."""


class MetadataFull(Exception):
    """There was no room on the disk for a commit: nothing of it was done, and a later one may be."""


class Outcome(NamedTuple):
    """What became of one request of a commit: its answer, or why it changed nothing."""

    answer: Any
    error: Exception | None


class Reader(ABC):
    """Reads committed state. For one thread at a time."""

    #: Where paths begin.
    root: InodeId = ROOT

    @abstractmethod
    def view(self) -> AbstractContextManager[None]:
        """Within it all reads see one state, that of the outermost of nested views. To be left soon."""

    @abstractmethod
    def follow(self, names: Sequence[str]) -> tuple[list[InodeId], Inode]:
        """Where names lead from the root, as far as they exist: the inodes passed, the root's first, and the last.

        In one look-up, unless there are very many.
        """

    @abstractmethod
    def pass_through(self, names: Sequence[str]) -> list[Inode]:
        """The same inodes, with all that is to be known of each."""

    @abstractmethod
    def child(self, parent: InodeId, name: str) -> InodeId | None:
        """The inode of an entry."""

    @abstractmethod
    def child_inode(self, parent: InodeId, name: str) -> Inode | None:
        """What an entry names, in one look-up."""

    @abstractmethod
    def origin(self, parent: InodeId, name: str) -> Origin | None:
        """Where an entry came from, if a rename put it there."""

    @abstractmethod
    def inode(self, inode: InodeId) -> Inode | None: ...

    @abstractmethod
    def has_children(self, directory: InodeId) -> bool: ...

    @abstractmethod
    def children(self, directory: InodeId, after: str, limit: int) -> list[tuple[str, Inode]]:
        """Entries in byte order of their names, those after the name `after` ("" for all)."""

    @abstractmethod
    def entries(self, parent: InodeId, name: str, limit: int) -> list[tuple[InodeId, str, InodeId]]:
        """The next names in any directory after (parent, name), as (parent, name, inode): begin after (0, "")."""

    @abstractmethod
    def count_children(self, directory: InodeId, after: str, limit: int) -> int:
        """How many entries follow the name `after`; counts no further than `limit`."""

    @abstractmethod
    def references(self, inode: InodeId) -> list[FileChunk]:
        """The chunks of a file, in order."""

    @abstractmethod
    def references_after(self, inode: InodeId, position: int, limit: int) -> list[tuple[int, FileChunk]]:
        """Up to `limit` chunks of a file with their positions, those after `position` (-1 for all), in order."""

    @abstractmethod
    def attributes(self, inode: InodeId) -> dict[str, bytes]:
        """The extended attributes of an inode by name, in order; its `attributes_tx` says if there are any."""

    @abstractmethod
    def chunk(self, chunk: ChunkId) -> ChunkRecord | None: ...

    @abstractmethod
    def chunks(self, after: ChunkId, limit: int) -> list[ChunkRecord]:
        """Chunks in order of their ids, those after `after` (0 for all)."""

    @abstractmethod
    def answer(self, request: str) -> bytes | None:
        """What `remember` was given for a request id."""

    @abstractmethod
    def lease(self, inode: InodeId) -> Lease | None:
        """The last lease of a file, if what was begun with it has neither ended nor been overtaken."""

    @abstractmethod
    def next_discarded(self) -> Discarded | None: ...

    @abstractmethod
    def decisions(self) -> dict[NodeId, AdminDecision]:
        """About the datanodes that are not in service, over ones included."""

    @abstractmethod
    def enrolments(self) -> dict[NodeId, Enrolment]:
        """The credentials of datanodes, revoked ones included."""

    @abstractmethod
    def supervised_queries(self) -> list[QueryRecord]:
        """In order of their names."""

    @abstractmethod
    def token_records(self) -> TokenRecords:
        """All keys, tokens and OAuth2 clients."""

    @abstractmethod
    def at(self, at_tx: int, root: InodeId) -> Reader:
        """A reader of what a snapshot shows below its directory, in which paths begin at `root`; shares views."""

    @abstractmethod
    def allows_snapshots(self, directory: InodeId) -> bool: ...

    @abstractmethod
    def snapshot_directories(self) -> list[InodeId]:
        """All that allow snapshots."""

    @abstractmethod
    def snapshots(self, directory: InodeId) -> list[Snapshot]:
        """In order of their names."""

    @abstractmethod
    def snapshot(self, directory: InodeId, name: str) -> Snapshot | None: ...

    @abstractmethod
    def ancestors(self, inode: InodeId) -> list[tuple[InodeId, str]]:
        """The entries that lead down to an inode, the root's first, as (parent, name)."""

    @abstractmethod
    def is_in_tree(self, inode: InodeId) -> bool:
        """Whether a path leads to an inode: not to one in a deleted tree, nor to one that is to be named yet."""

    @abstractmethod
    def quota(self, directory: InodeId) -> Quota | None: ...

    @abstractmethod
    def quota_directories(self) -> frozenset[InodeId]:
        """All that have a quota."""

    @abstractmethod
    def run(self, directory: InodeId) -> RecordedRun | None:
        """The latest run of a directory, if it ever had one."""

    @abstractmethod
    def runs(self, after: InodeId, limit: int) -> list[tuple[InodeId, RecordedRun]]:
        """Directories with a run in order of their inodes, those after `after` (0 for all)."""

    @abstractmethod
    def tree_usage(self, top: InodeId) -> NamespaceUsage:
        """What a tree holds now, its top included. Looks at all of it, in about 2 us an entry."""

    @abstractmethod
    def last_tx(self) -> int:
        """The number of the last transaction that has changed something."""

    @abstractmethod
    def floor(self) -> ChunkId:
        """Datanodes may delete chunks below this number that the metadata does not know and nobody keeps."""

    @abstractmethod
    def is_kept(self, chunk: ChunkId) -> bool:
        """Return whether somebody still needs a chunk that no file refers to: see `Transaction.keep_chunk`."""

    @abstractmethod
    def gc_floor_held(self) -> bool:
        """Whether the floor stays where it is until it is released: see `Metadata.hold_gc_floor`."""

    @abstractmethod
    def lacks_commits(self) -> bool:
        """Return whether commits are known to be missing, which nobody has accepted yet."""

    @abstractmethod
    def close(self) -> None: ...


class Transaction(Reader):
    """What one request reads and writes. It takes effect with all its changes or not at all.

    `at_tx`, where a method takes it, is the transaction in which the thing was discarded, if that was not now.
    """

    @abstractmethod
    def add_inode(self, inode: Inode) -> InodeId:
        """Stores a new inode under a number of its own, which is returned; `inode.inode` does not count."""

    @abstractmethod
    def change_inode(self, inode: Inode) -> None:
        """Replaces all but the kind of an inode that exists."""

    @abstractmethod
    def touch(self, directory: InodeId, now_ms: int) -> None:
        """Raises a modification time to `now_ms`; never lowers it."""

    @abstractmethod
    def remove_inode(self, inode: InodeId, at_tx: int | None = None) -> None: ...

    @abstractmethod
    def rights_changes(self, since_tx: int) -> list[RightsChange] | None:
        """All since a transaction; None if that is longer ago, or more, than is remembered."""

    @abstractmethod
    def entry_count(self, directory: InodeId) -> int:
        """How many entries a directory has: counted once, then remembered for a while."""

    @abstractmethod
    def add_entry(self, parent: InodeId, name: str, inode: InodeId, origin: Origin | None = None) -> None:
        """The name must be free."""

    @abstractmethod
    def remove_entry(self, parent: InodeId, name: str, at_tx: int | None = None) -> None: ...

    @abstractmethod
    def add_chunk(self, inode: InodeId, position: int, record: ChunkRecord, checksum: int) -> bool:
        """Stores a chunk that is all a file's, at a position; False, and nothing done, if its id is known."""

    @abstractmethod
    def set_chunk_replication(self, chunk: ChunkId, replication: int) -> bool:
        """Whether that changed it: of several references to a chunk none can lower what it is to have."""

    @abstractmethod
    def add_reference(self, inode: InodeId, position: int, chunk: ChunkId, length: int) -> None:
        """To a chunk that a file has already."""

    @abstractmethod
    def drop_references(
        self, inode: InodeId, limit: int, at_tx: int | None = None
    ) -> tuple[int, list[ChunkRecord]]:
        """Drops up to `limit` references of a file. How many, and the chunks that nothing refers to any more."""

    @abstractmethod
    def next_position(self, inode: InodeId) -> int:
        """The position after a file's last reference."""

    @abstractmethod
    def cut_references(self, inode: InodeId, position: int) -> list[ChunkRecord]:
        """Drops the references from a position on. The chunks that nothing refers to any more."""

    @abstractmethod
    def shorten_reference(self, inode: InodeId, position: int, length: int) -> None:
        """Leaves the file the first `length` bytes of the chunk at a position."""

    @abstractmethod
    def set_attribute(self, inode: InodeId, name: str, value: bytes) -> None:
        """Give an inode an extended attribute, in place of the one it had; it goes with the inode."""

    @abstractmethod
    def drop_attribute(self, inode: InodeId, name: str) -> None:
        """Drop an extended attribute that an inode has."""

    @abstractmethod
    def set_lease(self, inode: InodeId, lease: Lease) -> None:
        """Gives a file a lease, in place of the one it had."""

    @abstractmethod
    def drop_lease(self, inode: InodeId) -> None:
        """The file has no lease, whether it had one or not."""

    @abstractmethod
    def discard(self, inode: InodeId, at_tx: int | None = None) -> None:
        """Queues an inode to be reclaimed."""

    @abstractmethod
    def undiscard(self, inode: InodeId) -> None:
        """Takes an inode out of the reclaim queue."""

    @abstractmethod
    def set_allows_snapshots(self, directory: InodeId, allows: bool) -> None: ...

    @abstractmethod
    def add_snapshot(self, directory: InodeId, name: str, now_ms: int) -> None:
        """Of the directory as it is after this transaction. The name must be free."""

    @abstractmethod
    def rename_snapshot(self, directory: InodeId, name: str, new_name: str) -> None: ...

    @abstractmethod
    def remove_snapshot(self, directory: InodeId, name: str) -> None:
        """What only it shows is purged later."""

    @abstractmethod
    def purge_retired(self, limit: int) -> tuple[list[ChunkRecord], bool]:
        """Purges up to `limit` rows that no snapshot shows any more. What was freed, and whether there is more."""

    @abstractmethod
    def snapshotted_within(self, inode: InodeId) -> InodeId | None:
        """A directory with snapshots that is, or lies below, an inode."""

    @abstractmethod
    def set_quota(self, directory: InodeId, quota: Quota) -> None: ...

    @abstractmethod
    def drop_quota(self, directory: InodeId) -> None: ...

    @abstractmethod
    def charge_quota(self, directory: InodeId, change: NamespaceUsage) -> None:
        """Changes what a directory that has a quota is said to hold."""

    @abstractmethod
    def set_run(self, directory: InodeId, run: RecordedRun) -> None:
        """Gives a directory a run, in place of the one it had; it goes with the directory."""

    @abstractmethod
    def stage(self, inode: InodeId) -> None:
        """Notes an inode without a name that a later request is to name: at the next start it is discarded."""

    @abstractmethod
    def unstage(self, inode: InodeId) -> bool:
        """Whether it was staged."""

    @abstractmethod
    def pin(self, directory: InodeId) -> int:
        """Keeps a directory readable as it is after this transaction, whose number is returned: see `at`.

        A snapshot that nobody sees, which ends with `unpin` or at the next start.
        """

    @abstractmethod
    def unpin(self, at_tx: int) -> None:
        """What only the pin showed is purged later."""

    @abstractmethod
    def remember(self, request: str, answer: bytes, now_ms: int) -> bool:
        """Keeps an answer for a request id; False, and nothing done, if it has one already."""

    @abstractmethod
    def forget_answers(self, before_ms: int, limit: int, keep: int = 0) -> int:
        """Drops up to `limit` answers given before `before_ms`, oldest first, never the last `keep`. How many."""

    @abstractmethod
    def decide(self, node: NodeId, decision: AdminDecision) -> None:
        """Replaces what was decided about a datanode."""

    @abstractmethod
    def enrol(self, node: NodeId, enrolment: Enrolment) -> None:
        """Records the credential of a datanode, unless it has one."""

    @abstractmethod
    def replace_enrolment(self, node: NodeId, enrolment: Enrolment) -> None:
        """Replaces the credential of a datanode that has one, or what is said of it."""

    @abstractmethod
    def forget_enrolment(self, node: NodeId) -> None:
        """The datanode has no credential any more."""

    @abstractmethod
    def record_query(self, record: QueryRecord) -> None:
        """Replaces what was recorded of the supervised query of this name."""

    @abstractmethod
    def forget_query(self, name: str) -> None: ...

    @abstractmethod
    def record_token(self, record: TokenRecord) -> None:
        """Replaces what was recorded under its key."""

    @abstractmethod
    def forget_token(self, record: TokenRecord) -> None: ...

    @abstractmethod
    def raise_gc_floor(self, floor: ChunkId) -> None:
        """Raises the floor unless it is held; never lowers it."""

    @abstractmethod
    def keep_chunk(self, chunk: ChunkId, for_ms: int) -> None:
        """Keep a chunk that no file refers to from being garbage for so much served time from now on."""

    @abstractmethod
    def advance_gc_floor(self, drawn: ChunkId, elapsed_ms: int, settled_after_ms: int) -> None:
        """Count time in which a coordinator served; all numbers up to `drawn` have been drawn by now.

        Raises the floor, unless it is held, to what had been drawn `settled_after_ms` of such time ago, and lets
        go of chunks that have been kept for long enough.
        """

    @abstractmethod
    def accept_lost_commits(self) -> bool:
        """Gives up the commits that are missing; the floor stays held. Whether there were any."""

    @abstractmethod
    def release_gc_floor(self) -> bool:
        """Let the floor rise again, by what is drawn from now on; return whether it was held."""


class Metadata(ABC):
    """A store of metadata that is open. Thread-safe."""

    #: Drawn at random when the store was made; every service of the cluster knows it.
    cluster_id: str
    #: Whether the last commit that had something to write found room on the disk.
    has_room: bool = True
    #: The number of the last commit that is durable.
    tx_durable: int

    @abstractmethod
    def begin_epoch(self, above: int = 0) -> int:
        """Commits an epoch above the last one and above `above`; returns it. Inode numbers begin with it.

        If it is not the next one, somebody else has had those between, and numbers of commits move above theirs.
        Every coordinator begins one before its first `commit`. Raises MetadataFault, MetadataFull.
        """

    @abstractmethod
    def hold_gc_floor(self, *, commits_are_missing: bool = False) -> None:
        """Commits that the floor stays where it is, now and after restarts: unknown chunks may be precious.

        If commits are missing, that is kept as well until somebody accepts it. Raises MetadataFault, MetadataFull.
        """

    @abstractmethod
    def tend(self, *, idle: bool) -> None:
        """Do what is due beside the commits, to be called often by the thread that commits.

        The log is copied into the store when it has been waiting for that for long, or at once when the thread is
        idle. Raises MetadataFault when that fails, or when the store is no longer where it was.
        """

    @abstractmethod
    def sync_record(self) -> None:
        """Make durable what is known of the last commit beside the store. Raises MetadataFault."""

    @abstractmethod
    def commit(self, requests: Sequence[Callable[[Transaction], Any]]) -> list[Outcome]:
        """Runs the requests one after the other and makes durable what they did, in one commit.

        A request that raises leaves no trace. When this returns, the rest will stay. Raises MetadataFull when the
        disk has no room for it; then none of them has left a trace. Raises MetadataFault when the store failed
        otherwise; then nothing is known of any of them.
        """

    @abstractmethod
    def reader(self) -> Reader:
        """A reader of its own for whoever asks; closed with the store if not before."""

    @abstractmethod
    def close(self) -> None: ...
