"""Place chunks: check the quota, draw numbers, choose a pipeline, and sign a token to write through it."""

from __future__ import annotations

from typing import Final

from peacefs.coordinator.cluster.membership import Node
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import pipeline_hops_max, write_token_lifetime_s
from peacefs.protocol.messages import Allocated
from peacefs.protocol.tokens import ChunkWrite, FileLease, FileWrite, OneTimeChunk

from .context import OperationContext

# A chunk that was placed is begun within this time, or another is placed.
chunk_begin_s: Final = 45.0


class ChunkPlacer:
    """For new files, files that are extended, and copies."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context

    def place(
        self,
        replication: int,
        writer_host: str | None,
        exclude: frozenset[NodeId],
        writer: str,
        *,
        is_shown: bool = False,
    ) -> tuple[Allocated, Node]:
        """A chunk with a number of its own, given to `writer` alone, and its pipeline's head. Raises NoDatanodes.

        With `is_shown` others than the writer may come to have the token: it is good for the head's gateway only.
        """
        chunk, version = self._ctx.numbering.next(), self._ctx.numbering.next()
        nodes = self._ctx.cluster.place(
            self._ctx.monotonic(),
            chunk,
            writer_host,
            min(replication, pipeline_hops_max),
            exclude,
            write_token_lifetime_s,
        )
        self._ctx.cluster.assignments.assign(chunk, writer)
        # A later writer is given another chunk: this one may be garbage before its writer can report that it is
        # kept.
        begin_by_s = self._ctx.wall_clock() + chunk_begin_s
        hops, head = [node.hop for node in nodes], nodes[0]
        if is_shown:
            token = self._ctx.signer.sign(
                OneTimeChunk(begin_by_s, chunk, version, hops, head.registration.process)
            )
        else:
            token = self._ctx.signer.sign(ChunkWrite(begin_by_s, chunk, version, hops))
        return Allocated(chunk, version, hops, token), head

    def preallocate(self, replication: int, writer_host: str | None, writer: str) -> Allocated | None:
        """Preallocate a chunk for a file that `writer` may come with soon; None where that cannot be now."""
        if not self._ctx.cluster.ready(self._ctx.monotonic()):
            return None
        try:
            return self.place(replication, writer_host, frozenset(), writer)[0]
        except NoDatanodes:
            return None

    def nodes_by_http_name(self, names: frozenset[str]) -> frozenset[NodeId]:
        """The datanodes that a client calls `host:port`."""
        if not names:
            return names
        return frozenset(node.id for node in self._ctx.cluster.members.all() if node.http_name in names)


def check_room(reader: Reader, token: FileWrite | FileLease, written_bytes: int) -> None:
    """Check that the quota above a file leaves room for another chunk, before one is placed or granted.

    `written_bytes` is what has been written with this token already. Raises QuotaExceeded and its like.
    """
    if isinstance(token, FileLease):
        namespace.check_extension(reader, token.inode, written_bytes)
    else:
        namespace.check_allocation(reader, parse_path(token.path), written_bytes, token.replication)
