"""Findings of fsck, the inspection of the namespace: the answers of `GET /v1/fsck`, as JSON."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from peacefs.protocol.ids import NodeId


class Finding(StrEnum):
    """A problem of a chunk, possibly temporary. Ordered from harmless to worst."""

    #: More good replicas than wanted.
    OVER_REPLICATED = "over-replicated"
    #: All good replicas are on one rack, although the cluster has several.
    MISPLACED = "misplaced"
    #: Fewer good replicas than wanted.
    UNDER_REPLICATED = "under-replicated"
    #: A replica of it does not match its checksums.
    CORRUPT = "corrupt"
    #: No good replica is on any live datanode.
    MISSING = "missing"


class ChunkFindings(msgspec.Struct, frozen=True):
    """A chunk with findings; `chunk` is its id as shown to people."""

    chunk: str
    length: int
    replication: int
    findings: list[Finding]
    #: Datanodes with a good replica, and with a corrupt one.
    good: list[NodeId]
    corrupt: list[NodeId]


class FileFindings(msgspec.Struct, frozen=True):
    """A file and its findings. It is healthy if there are none and it is not open."""

    path: str
    length: int
    replication: int
    chunks: int
    #: The distinct findings of all its chunks.
    findings: list[Finding] = []
    #: Its unhealthy chunks, at most `fsck_chunks_shown_max`.
    unhealthy: list[ChunkFindings] = []
    #: True if it is being extended, or was completed just now.
    is_open: bool = False

    @property
    def is_healthy(self) -> bool:
        return not self.findings and not self.is_open


class Tally(msgspec.Struct):
    """Counts for a tree or a part of it. A file or chunk may count for several findings."""

    directories: int = 0
    files: int = 0
    open_files: int = 0
    length: int = 0
    chunks: int = 0
    #: Good, corrupt and missing replicas.
    replicas: int = 0
    corrupt_replicas: int = 0
    lacking_replicas: int = 0
    files_with: dict[Finding, int] = {}
    chunks_with: dict[Finding, int] = {}

    def add(self, other: Tally) -> None:
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                for finding, count in theirs.items():
                    mine[finding] = mine.get(finding, 0) + count
            else:
                setattr(self, name, mine + theirs)

    @property
    def worst(self) -> Finding | None:
        return max(self.chunks_with, key=list(Finding).index, default=None)


class ClusterFindings(msgspec.Struct, frozen=True):
    """Numbers that belong to no path: live datanodes, chunks being written, replicas that no file refers to."""

    datanodes: int
    racks: int
    chunks_being_written: int
    orphaned_replicas: int
    orphaned_bytes: int


class FsckPage(msgspec.Struct, frozen=True):
    """A part of an inspection. Pass `after` to get the next page; it is None on the last page, which has
    `cluster`.
    """

    files: list[FileFindings]
    tally: Tally
    after: str | None = None
    cluster: ClusterFindings | None = None
