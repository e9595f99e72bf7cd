"""Chunks that are written to measure the network: through given datanodes, for no file, for a short time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.cluster.membership import State
from peacefs.coordinator.limits import probes_max
from peacefs.protocol.errors import BadRequest, NoDatanodes, Overloaded
from peacefs.protocol.ids import ChunkId, NodeId, Version
from peacefs.protocol.messages import Allocated, DeleteChunks, Replica

from .context import OperationContext

# Seconds after which a probe that was not deleted is left to the reclaim of unreferenced chunks.
probe_memory_s: Final = 600.0


class _Probe(NamedTuple):
    version: Version
    nodes: tuple[NodeId, ...]
    forgotten_s: float


class ProbeOperations:
    """Remembers its probes, so that only probes can be deleted as such."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context
        self._probes: dict[ChunkId, _Probe] = {}

    def allocate(self, pipeline: Sequence[NodeId]) -> Allocated:
        """Sign a token to write one chunk through exactly these datanodes.

        Raises BadRequest, NoDatanodes, Overloaded.
        """
        now_s = self._ctx.monotonic()
        self._probes = {chunk: probe for chunk, probe in self._probes.items() if probe.forgotten_s > now_s}
        if len(self._probes) >= probes_max:
            raise Overloaded(f"{probes_max} chunks that measure the network are under way; try again in a while")
        if len(set(pipeline)) < len(pipeline):
            raise BadRequest("a datanode is in the pipeline twice")
        hops = [hop for node in pipeline if self._is_alive(node) and (hop := self._ctx.cluster.hop(node))]
        if len(hops) < len(pipeline):
            dead = next(node for node in pipeline if not self._is_alive(node))
            raise NoDatanodes(f"no datanode {dead} is alive")
        chunk, version = self._ctx.numbering.next(), self._ctx.numbering.next()
        self._probes[chunk] = _Probe(version, tuple(pipeline), now_s + probe_memory_s)
        return Allocated(
            chunk=chunk,
            version=version,
            pipeline=hops,
            token=self._ctx.permits.to_copy(chunk, version, hops),
        )

    def _is_alive(self, node_id: NodeId) -> bool:
        node = self._ctx.cluster.members.get(node_id)
        return node is not None and node.state is State.ALIVE

    def forget(self, chunks: Collection[ChunkId]) -> None:
        """Delete the replicas of these probes. Ignore other chunks."""
        for chunk in chunks:
            probe = self._probes.pop(chunk, None)
            if probe is not None:
                replica = Replica(chunk, probe.version, 0)
                self._ctx.perform([Order(node, DeleteChunks([replica])) for node in probe.nodes])
