"""Judge the health of chunks and files from the holders of their replicas, for `fsck`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from peacefs.protocol.ids import ChunkId, NodeId, show
from peacefs.protocol.values.fsck_findings import ChunkFindings, ClusterFindings, FileFindings, Finding, Tally

from .chunk_map import ChunkState
from .core import Cluster

fsck_chunks_shown_max: Final = 100


RackOf = Callable[[NodeId], str | None]


def judge_chunk(state: ChunkState, lasting: Sequence[NodeId], rack_of: RackOf, racks: int) -> list[Finding]:
    """Return the faults of a chunk, the worst last.

    `lasting` are the nodes that count towards the replication, `racks` is the number of racks in service.
    """
    good = len(lasting)
    findings = []
    if good > state.replication:
        findings.append(Finding.OVER_REPLICATED)
    if good > 1 and racks > 1 and len({rack_of(node) for node in lasting}) == 1:
        findings.append(Finding.MISPLACED)
    if state.holders and good < state.replication:
        findings.append(Finding.UNDER_REPLICATED)
    if state.corrupt:
        findings.append(Finding.CORRUPT)
    if not state.holders:
        findings.append(Finding.MISSING)
    return findings


class HealthCheck:
    """Judges chunks and files by the current state of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._racks = len({node.rack for node in cluster.members.in_service()})

    def _rack_of(self, node_id: NodeId) -> str | None:
        node = self._cluster.members.get(node_id)
        return None if node is None else node.rack

    def file(self, path: str, length: int, replication: int) -> FileJudgement:
        """Return an empty judgement of a file. Add its chunks with `add`."""
        return FileJudgement(path, length, replication)

    def add(self, judgement: FileJudgement, chunks: Iterable[ChunkId]) -> None:
        """Judge more chunks of a file."""
        for chunk in chunks:
            state = self._cluster.chunks.get(chunk)
            if state is None:
                judgement.add_unknown()
                continue
            lasting = self._cluster.chunks.lasting(state)
            findings = judge_chunk(state, lasting, self._rack_of, self._racks)
            judgement.add(chunk, state, len(lasting), findings)


class FileJudgement:
    """Findings about a file, collected while its chunks are checked."""

    def __init__(self, path: str, length: int, replication: int) -> None:
        self._path = path
        self._length = length
        self._replication = replication
        self._tally = Tally(files=1, length=length)
        self._unhealthy: list[ChunkFindings] = []

    def mark_open(self) -> None:
        """Count the file as open for writing."""
        self._tally.open_files = 1

    def add_unknown(self) -> None:
        """Add a chunk that the chunk map does not have yet, although its completion is committed."""
        self._tally.chunks += 1
        self.mark_open()

    def add(self, chunk: ChunkId, state: ChunkState, lasting: int, findings: list[Finding]) -> None:
        """Add a judged chunk; `lasting` of its replicas count towards the replication."""
        tally = self._tally
        tally.chunks += 1
        tally.replicas += len(state.holders)
        tally.corrupt_replicas += len(state.corrupt)
        tally.lacking_replicas += max(0, state.replication - lasting)
        for finding in findings:
            tally.chunks_with[finding] = tally.chunks_with.get(finding, 0) + 1
            tally.files_with[finding] = 1
        if findings and len(self._unhealthy) < fsck_chunks_shown_max:
            self._unhealthy.append(
                ChunkFindings(
                    show(chunk),
                    state.length,
                    state.replication,
                    findings,
                    sorted(state.holders),
                    sorted(state.corrupt),
                )
            )

    @property
    def tally(self) -> Tally:
        return self._tally

    @property
    def findings(self) -> FileFindings:
        return FileFindings(
            self._path,
            self._length,
            self._replication,
            self._tally.chunks,
            [finding for finding in Finding if finding in self._tally.files_with],
            self._unhealthy,
            is_open=self._tally.open_files > 0,
        )


def judge_cluster(cluster: Cluster) -> ClusterFindings:
    """Return the findings about the cluster as a whole, such as orphaned replicas."""
    alive = cluster.members.alive()
    unreferenced, being_written = list(cluster.chunks.unreferenced.replicas()), cluster.chunks_being_written
    orphans = [replica for _node, replica in unreferenced if replica.chunk not in being_written]
    # A chunk that was only placed does not count as being written: its client may never have sent the body.
    under_way = cluster.granted_pipelines().keys() | {
        r.chunk for _node, r in unreferenced if r.chunk in being_written
    }
    return ClusterFindings(
        datanodes=len(alive),
        racks=len({node.rack for node in alive}),
        chunks_being_written=len(under_way),
        orphaned_replicas=len(orphans),
        orphaned_bytes=sum(replica.length for replica in orphans),
    )
