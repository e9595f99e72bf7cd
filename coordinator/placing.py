"""Placing chunks: numbers, a pipeline of datanodes, and sealed leave to write through it."""

from __future__ import annotations

from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import write_token_lifetime_s
from peacefs.protocol.messages import Allocated
from peacefs.protocol.tokens import ChunkWrite

from .membership import Node
from .workplace import Workplace


class Placing:
    """For new files, files that are extended, and copies."""

    def __init__(self, workplace: Workplace) -> None:
        self._at = workplace

    def place(
        self, replication: int, writer_host: str | None, exclude: frozenset[NodeId]
    ) -> tuple[Allocated, Node]:
        """A chunk with a number of its own, and the head of its pipeline. Raises NoDatanodes."""
        chunk, version = self._at.numbering.next(), self._at.numbering.next()
        nodes = self._at.cluster.place(
            self._at.monotonic(), chunk, writer_host, replication, exclude, write_token_lifetime_s
        )
        return Allocated(
            chunk=chunk,
            version=version,
            pipeline=[node.hop for node in nodes],
            token=self.write_token(chunk, version, [node.id for node in nodes]),
        ), nodes[0]

    def write_token(self, chunk: ChunkId, version: int, nodes: list[NodeId]) -> str:
        """Leave to write a version of a chunk through these nodes."""
        expires_s = self._at.wall_clock() + write_token_lifetime_s
        return self._at.seal.seal(ChunkWrite(expires_s=expires_s, chunk=chunk, version=version, nodes=nodes))

    def nodes_by_http_name(self, names: frozenset[str]) -> frozenset[NodeId]:
        """The datanodes that a client calls `host:port`."""
        return frozenset(node.id for node in self._at.cluster.members.all() if node.http_name in names)
