"""Findings of an inspection of the namespace: the values of `GET /v1/fsck`, which travel as JSON."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from peacefs.protocol.ids import NodeId


class Finding(StrEnum):
    """Something about a chunk that is not as it should be, or not yet. The last is the worst."""

    #: More good replicas than wanted.
    OVER_REPLICATED = "over-replicated"
    #: All good replicas are on one rack, although there are others.
    MISPLACED = "misplaced"
    #: Fewer good replicas than wanted.
    UNDER_REPLICATED = "under-replicated"
    #: A replica of it does not match its checksums.
    CORRUPT = "corrupt"
    #: No good replica is on any live datanode.
    MISSING = "missing"


class ChunkFindings(msgspec.Struct, frozen=True):
    """A chunk about which there is something to say; `chunk` as people read it."""

    chunk: str
    length: int
    replication: int
    findings: list[Finding]
    #: Datanodes with a good replica, and with a corrupt one.
    good: list[NodeId]
    corrupt: list[NodeId]


class FileFindings(msgspec.Struct, frozen=True):
    """A file. It is healthy when there are no findings and it is not being completed."""

    path: str
    length: int
    replication: int
    chunks: int
    #: Findings of all its chunks, each once.
    findings: list[Finding] = []
    #: Its unhealthy chunks, `fsck_chunks_shown_max` at most.
    unhealthy: list[ChunkFindings] = []
    #: It is being extended, or was completed this very moment.
    is_open: bool = False

    @property
    def is_healthy(self) -> bool:
        return not self.findings and not self.is_open


class Tally(msgspec.Struct):
    """Counts of a tree, or of a part of it. Files and chunks may count under several findings."""

    directories: int = 0
    files: int = 0
    open_files: int = 0
    length: int = 0
    chunks: int = 0
    #: Good replicas that there are, corrupt ones, and those that are lacking.
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
        """The worst finding of all."""
        return max(self.chunks_with, key=list(Finding).index, default=None)


class ClusterFindings(msgspec.Struct, frozen=True):
    """Findings that belong to no path: live datanodes, chunks under way, replicas that no file claims."""

    datanodes: int
    racks: int
    chunks_being_written: int
    orphaned_replicas: int
    orphaned_bytes: int


class FsckPage(msgspec.Struct, frozen=True):
    """A part of an inspection. `after` is where the next page goes on, None on the last, which has `cluster`."""

    files: list[FileFindings]
    tally: Tally
    after: str | None = None
    cluster: ClusterFindings | None = None
