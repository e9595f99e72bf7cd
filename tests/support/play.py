"""A coordinator's soft state, with simulated datanodes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from support.new_core import new_core
from support.replica_watch import ReplicaWatch

from peacefs.coordinator.cluster.core import Ticked
from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.coordinator.metadata.garbage import Garbage
from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.coordinator.metadata.store import Metadata
from peacefs.protocol.ids import Numbering
from peacefs.protocol.messages import (
    Heartbeat,
    Register,
    Replica,
    ReplicaChallenge,
    ReplicaProof,
    ReplicasProven,
    ReportChunks,
    Usage,
)

USAGE = Usage(capacity_bytes=1 << 40, used_bytes=0, available_bytes=1 << 39)


def registration(node: str, rack: str = "/rack-1", host: str | None = None) -> Register:
    return Register(
        node=node,
        data_host=host or f"{node}.example",
        data_port=9866,
        http_host=host or f"{node}.example",
        http_port=9864,
        rack=rack,
        usage=USAGE,
    )


def record(chunk: int, replication: int = 3, hint: tuple[str, ...] = (), version: int = 1) -> ChunkRecord:
    return ChunkRecord(chunk, version, 1000, replication, hint)


def proof(challenge: ReplicaChallenge, content: str = "the content") -> ReplicaProof:
    """Return the proof of a datanode that holds `content`; "" means a replica that fails its checksum."""
    digests = [hashlib.sha256(challenge.nonce + text.encode()).digest() for text in (content, "its checksums")]
    return ReplicaProof(challenge.chunk, challenge.version, digests[0] if content else b"", digests[1])


class Play:
    """A cluster and a clock that the test moves. Datanodes in `beating` send heartbeats meanwhile.

    Datanodes hold what they report, except in `contents`: by datanode, the content held instead, or None for
    nothing.
    """

    contents: Mapping[str, str | None] = MappingProxyType({})

    def __init__(self, **options: Any) -> None:
        """`options` are those of the core."""
        self.now_s = 100.0
        self.replicas = ReplicaWatch(lambda: self.cluster)
        self.core = new_core(self.now_s, history=self.replicas, **options)
        self.cluster = self.core.cluster
        self.beating: set[str] = set()
        self.floor = 0

    def begin_epoch(self, metadata: Metadata) -> Numbering:
        """Make the core use another epoch of `metadata`."""
        self.core.numbering.epoch, self.core.numbering.drawn = metadata.begin_epoch(), 0
        return self.core.numbering

    def join(self, *nodes: str, rack: str = "/rack-1", holding: tuple[Replica, ...] = ()) -> None:
        for node in nodes:
            self.cluster.register(self.now_s, registration(node, rack))
            self.cluster.report(self.now_s, node, ReportChunks(list(holding), last=True))
            self.beating.add(node)

    def open_for_business(self) -> None:
        self.cluster.loaded()
        assert self.cluster.ready(self.now_s)

    def publish(self, records: Sequence[ChunkRecord]) -> None:
        """Complete a file. The datanodes with receipts report the chunk in their next heartbeat."""
        self.cluster.published(records)
        for node in sorted({node for known in records for node in known.hint} & self.beating):
            added = [Replica(each.chunk, each.version, each.length) for each in records if node in each.hint]
            self.cluster.heartbeat(self.now_s, node, Heartbeat(USAGE, added=added))

    def copied(self, copy: ReplicaCopy) -> None:
        """Report a finished copy, by its source and its target."""
        self.cluster.copy_finished(copy.chunk, copied=True)
        state = self.cluster.chunks.get(copy.chunk)
        if state is not None and copy.target in self.beating:
            held = Replica(copy.chunk, copy.version, state.length)
            self.cluster.heartbeat(self.now_s, copy.target, Heartbeat(USAGE, added=[held]))

    def ticks(self, seconds: float) -> Iterator[Ticked]:
        for _ in range(round(seconds * 2)):
            self.now_s += 0.5
            self.beat()
            self.core.see_datanodes(self.now_s)
            ticked = self.cluster.tick(self.now_s, Garbage(self.floor))
            self.replicas.compare()
            self.prove(ticked)
            yield ticked

    def beat(self) -> None:
        """Send a heartbeat from each datanode in `beating`."""
        for node in self.beating:
            self.cluster.heartbeat(self.now_s, node, Heartbeat(USAGE))

    def prove(self, ticked: Ticked) -> None:
        """Answer for every datanode that is asked for a proof."""
        for question in ticked.questions:
            proofs = [self._proof(question.node, challenge) for challenge in question.message.challenges]
            self.cluster.proven(question, ReplicasProven([proof for proof in proofs if proof is not None]))

    def _proof(self, node: str, challenge: ReplicaChallenge) -> ReplicaProof | None:
        state = self.cluster.chunks.get(challenge.chunk)
        content = self.contents.get(node, "the content")
        if state is None or content is None:
            return None
        return proof(challenge, "" if node in state.corrupt else content)

    def let_pass(self, seconds: float) -> list[Ticked]:
        return list(self.ticks(seconds))
