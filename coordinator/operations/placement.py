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

# Seconds within which a placed chunk must be begun. After that another one is placed.
chunk_begin_s: Final = 45.0


class ChunkPlacer:
    """Places chunks of new files, extended files, and copies."""

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
        """Place a chunk with a new number, for `writer` alone. Return it with its pipeline's head. Raises
        NoDatanodes.

        With `is_shown`, others than the writer may see the token: then it is valid for the head's gateway only.
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
        # A later writer gets another chunk, because this one may be garbage before its writer reports that it
        # keeps it.
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
        """Preallocate a chunk for the next file of `writer`; None if that is not possible now."""
        if not self._ctx.cluster.ready(self._ctx.monotonic()):
            return None
        try:
            return self.place(replication, writer_host, frozenset(), writer)[0]
        except NoDatanodes:
            return None

    def nodes_by_http_name(self, names: frozenset[str]) -> frozenset[NodeId]:
        """Return the datanodes that a client names as `host:port`."""
        if not names:
            return names
        return frozenset(node.id for node in self._ctx.cluster.members.all() if node.http_name in names)


def check_room(reader: Reader, token: FileWrite | FileLease, written_bytes: int) -> None:
    """Check that the quotas above a file leave room for another chunk, before placing or granting it.

    `written_bytes` is what has been written with this token already. Raises QuotaExceeded and similar errors.
    """
    if isinstance(token, FileLease):
        namespace.check_extension(reader, token.inode, written_bytes)
    else:
        namespace.check_allocation(reader, parse_path(token.path), written_bytes, token.replication)
