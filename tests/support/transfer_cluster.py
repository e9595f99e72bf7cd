"""A cluster seen by a client of its datanodes' HDFS ports, and tokens for its blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oracles.hdfs_transfer import Block, TransferClient

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import Leased
from peacefs.protocol.tokens import BlockWrite, Signer
from peacefs.runtime.secret import read_secrets


class TransferCluster:
    """The shared cluster, seen by a client of its datanodes' HDFS ports."""

    def __init__(self, cluster: LocalCluster, files: PeaceFileSystem, home: str) -> None:
        self._signer = Signer(*read_secrets(cluster.secret_file))
        self.cluster = cluster
        self.files = files
        self.home = home
        self._ports = {
            each.readiness.node: each.readiness.hdfs_port for each in cluster.members if each.readiness.node
        }

    @property
    def any_port(self) -> int:
        """The HDFS port of one of the datanodes."""
        return min(self._ports.values())

    def leased(self, path: str, holder: str = "DFSClient_1", block_bytes: int = 64 * MIB) -> Leased:
        """Make an empty file, or extend one, and take its lease."""
        if not self.files.exists(path):
            self.files.write(path, b"", block_bytes=block_bytes)
        return self.files.extend(path, holder)

    def token(self, leased: Leased, published: int = 0, unpublished: Sequence[int] = ()) -> str:
        """Return the token to write a block that begins at the end of the file, as a coordinator makes it."""
        first = leased.allocated
        token = BlockWrite(
            time.time() + 60,
            leased.token,
            first.chunk,
            first.version,
            leased.block_bytes,
            first,
            published,
            list(unpublished),
        )
        return self._signer.sign(token)

    @contextmanager
    def writing(
        self,
        leased: Leased,
        published: int = 0,
        at: int = 0,
        *,
        node: str | None = None,
        unpublished: Sequence[int] = (),
    ) -> Iterator[tuple[TransferClient, Block]]:
        """Connect to a datanode, or that at this place of the pipeline, with the block that it may write."""
        first = leased.allocated
        block = Block(first.chunk, first.version, self.token(leased, published, unpublished), published)
        with TransferClient(self._ports[node or first.pipeline[at].node]) as client:
            yield client, block

    @contextmanager
    def reading(self, path: str, number: int = 0) -> Iterator[tuple[TransferClient, Block, int]]:
        """Connect to a datanode that holds a chunk of the file, with its block and its length."""
        chunk = self.files._calls.open(path, self.files.user).layout.chunks[number]
        with TransferClient(self._ports[chunk.replicas[0].node]) as client:
            yield client, Block(chunk.chunk, chunk.version, chunk.token, chunk.length), chunk.length
