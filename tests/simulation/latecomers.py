"""Two writers of different versions of one chunk on the same datanodes; the older writer finishes last.

The real coordinator gives each chunk to only one pipeline. These writers test how datanodes by themselves refuse
the older one.
"""

from __future__ import annotations

import contextlib
from random import Random

from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import CHUNK_BYTES, HOP_TIMEOUT_S, SIGNER

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.chunk_buffer import ChunkBuffer
from peacefs.client.transfer.chunk_writer import write_chunk
from peacefs.protocol.errors import NoDatanodes, PeacefsError
from peacefs.protocol.ids import ChunkId, NodeId, Version
from peacefs.protocol.limits import packet_bytes, write_token_lifetime_s
from peacefs.protocol.messages import Allocated, Hop
from peacefs.protocol.tokens import ChunkWrite
from peacefs.runtime import effects as fx


class Latecomers:
    """Starts such pairs of writers at random times. `WatchedDisks` checks which version remains."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._client = cluster.client("client-latecomer")
        self._is_over = False
        #: The number of acknowledged versions, and of refused ones.
        self.acknowledged = self.refused = 0
        self._come_later()

    def rest(self) -> None:
        self._is_over = True

    def _come_later(self) -> None:
        self._cluster.world.later(self._random.uniform(10.0, 40.0), self._come)

    def _come(self) -> None:
        if self._is_over:
            return
        world, random = self._cluster.world, self._random
        numbers = self._cluster.coordinator.epochs.numbering
        chunk, older, newer = numbers.next(), numbers.next(), numbers.next()
        hops = [Hop(each.node.name, *each.address) for each in random.sample(self._cluster.datanodes, 2)]
        slow, data = ByteStream(), random.randbytes(random.choice((2 * packet_bytes, CHUNK_BYTES)))
        slow.feed(data[: packet_bytes + 1])
        world.spawn(self._client, "the older", self._write(chunk, older, hops, slow))
        quick = ByteStream.of(random.randbytes(random.choice((700, CHUNK_BYTES))))

        def begin() -> None:
            world.spawn(self._client, "the newer", self._write(chunk, newer, hops, quick))

        def end() -> None:
            slow.feed(data[packet_bytes + 1 :])
            slow.finish()

        world.later(random.uniform(0.0, 1.0), begin)
        world.later(random.uniform(0.0, 2.0), end)
        self._come_later()

    def _write(self, chunk: ChunkId, version: Version, hops: list[Hop], source: ByteStream) -> fx.Steps[None]:
        now_s = self._cluster.world.wall_clock_s(self._cluster.coordinator.node)
        permit = ChunkWrite(now_s + write_token_lifetime_s, chunk, version, hops)
        allocated = Allocated(chunk, version, hops, SIGNER.sign(permit))

        with contextlib.suppress(PeacefsError):
            yield from write_chunk(
                allocated, ChunkBuffer(source, CHUNK_BYTES), _never_again, [], hop_timeout_s=HOP_TIMEOUT_S
            )
            self.acknowledged += 1
            return
        self.refused += 1


def _never_again(_failed: list[NodeId], _abandoned: ChunkId | None) -> fx.Steps[Allocated]:
    yield from fx.sleep(0.0)
    raise NoDatanodes("a version is written once")
