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

Knows no path, no HDFS, no SQL. The methods are in `topics`; what an engine is besides is in `engine`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from peacefs.coordinator.journal.port import Entry
from peacefs.protocol.ids import ChunkId

from .model import InodeId
from .topics.answers import AnswerChanges, AnswerReader
from .topics.chunks import ChunkChanges, ChunkRecordReader
from .topics.credentials import CredentialChanges, CredentialReader
from .topics.leases import LeaseChanges, LeaseReader
from .topics.names import NameChanges, NameReader
from .topics.queries import QueryChanges, QueryReader
from .topics.quotas import QuotaChanges, QuotaReader
from .topics.snapshots import SnapshotChanges, SnapshotReader

#: The root directory: it has an inode and no entry. All other inodes are numbers of an epoch from 1 on.
ROOT: InodeId = 1
ROOT_GROUP = "supergroup"
#: As in HDFS: only superusers make something in the root.
ROOT_PERMISSION = 0o755


class MetadataFault(Exception):
    """The store can no longer be written or trusted; the coordinator stops rather than guess."""


class MetadataFull(Exception):
    """There was no room on the disk for a commit: nothing of it was done, and a later one may be.

    `in_journal` says that the room was wanting in the journal.
    """

    def __init__(self, message: str, *, in_journal: bool = False) -> None:
        super().__init__(message)
        self.in_journal = in_journal


class RequestOutcome(NamedTuple):
    """The outcome of one request of a commit: its answer, or the reason why it changed nothing."""

    answer: Any
    error: Exception | None


class JournalPlace(NamedTuple):
    """The journal that a store follows, empty for none, and the last of its entries that is in the store."""

    journal: str
    number: int


class Touched(NamedTuple):
    """The things that entries of the journal changed and of which somebody may keep a picture in memory."""

    #: Chunks that came, went, or have another replication.
    chunks: Set[ChunkId]
    #: Other tables, by name.
    tables: Set[str]


class Reader(
    NameReader,
    ChunkRecordReader,
    LeaseReader,
    SnapshotReader,
    QuotaReader,
    QueryReader,
    AnswerReader,
    CredentialReader,
    ABC,
):
    """Reads committed state. For one thread at a time. What can be read is said by topic in `topics`."""

    #: The inode at which paths begin.
    root: InodeId = ROOT

    @abstractmethod
    def view(self) -> AbstractContextManager[None]:
        """Within it all reads see one state, that of the outermost of nested views. To be left soon."""

    @abstractmethod
    def at(self, at_tx: int, root: InodeId) -> Reader:
        """A reader of what a snapshot shows below its directory, in which paths begin at `root`; shares views."""

    @abstractmethod
    def last_tx(self) -> int:
        """The number of the last transaction that has changed something."""

    @abstractmethod
    def lacks_commits(self) -> bool:
        """Return whether commits are known to be missing, which nobody has accepted yet."""

    @abstractmethod
    def close(self) -> None: ...


class Transaction(
    Reader,
    NameChanges,
    ChunkChanges,
    LeaseChanges,
    SnapshotChanges,
    QuotaChanges,
    QueryChanges,
    AnswerChanges,
    CredentialChanges,
):
    """The reads and writes of one request. They take effect all together or not at all.

    `at_tx`, where a method takes it, is the transaction in which the thing was discarded, if that was not now.
    """

    @abstractmethod
    def accept_lost_commits(self) -> bool:
        """Gives up the commits that are missing; the floor stays held. Whether there were any."""


class Metadata(ABC):
    """A store of metadata that is open. Thread-safe."""

    #: Drawn at random when the store was made; every service of the cluster knows it.
    cluster_id: str
    #: True if the last commit that had something to write found room on the disk.
    has_room: bool = True
    #: The number of the last commit that is durable.
    tx_durable: int
    #: The last epoch that was begun, here or by the leader whose journal is followed.
    epoch: int
    #: The last entry of the journal that a power cut cannot take from this store.
    entry_synced: int = 0

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
    def journal_place(self) -> JournalPlace:
        """Return which journal the store follows, and how far."""

    @abstractmethod
    def follow(self, journal: str) -> None:
        """Have a store follow a journal that has no entries yet. Raises MetadataFault, MetadataFull."""

    @abstractmethod
    def apply(self, entries: Sequence[Entry]) -> Touched:
        """Make the changes of entries that another coordinator has committed, all or none of them.

        They follow the last one that is in the store. Raises StartupError for those of a newer peacefs,
        MetadataFault, MetadataFull.
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
    def scrub(self, pages: int) -> None:
        """Verify the next so many pages of the store, again and again, from any thread.

        Raises MetadataFault if one of them is damaged, or one that was read since.
        """

    @abstractmethod
    def commit(self, requests: Sequence[Callable[[Transaction], Any]]) -> list[RequestOutcome]:
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
