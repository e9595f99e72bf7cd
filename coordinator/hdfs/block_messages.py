"""Convert chunks and datanodes to HDFS's messages.

A block is a chunk: the block id is the chunk id, the generation stamp is the version, and the block token contains
the text of our token. Datanodes without a port for HDFS's data transfer are omitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.cluster.membership import AdminState, Node
from peacefs.coordinator.operations.open_files import NewBlock
from peacefs.coordinator.operations.read import LocatedFile
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.hadoop.hdfs_pb2 import (
    DatanodeIDProto,
    DatanodeInfoProto,
    ExtendedBlockProto,
    LocatedBlockProto,
    LocatedBlocksProto,
    StorageTypeProto,
    TokenProto,
)
from peacefs.protocol.messages import ChunkLayout, Hop

from .addresses import Addresses

BLOCK_TOKEN_KIND: Final = "HDFS_BLOCK_TOKEN"
_ADMIN_STATES: Final = {
    AdminState.IN_SERVICE: DatanodeInfoProto.NORMAL,
    AdminState.DECOMMISSIONING: DatanodeInfoProto.DECOMMISSION_INPROGRESS,
    AdminState.DECOMMISSIONED: DatanodeInfoProto.DECOMMISSIONED,
    AdminState.ENTERING_MAINTENANCE: DatanodeInfoProto.ENTERING_MAINTENANCE,
    AdminState.IN_MAINTENANCE: DatanodeInfoProto.IN_MAINTENANCE,
}


class BlockMessages:
    """Builds the messages about blocks of one cluster."""

    def __init__(self, cluster: Cluster, pool: str, addresses: Addresses) -> None:
        self._cluster = cluster
        self.pool = pool
        self._addresses = addresses

    def datanode(self, node: Node, wall_clock_ms: int = 0) -> DatanodeInfoProto:
        """Return HDFS's message for a datanode. `wall_clock_ms` is the time of its last heartbeat."""
        registered, usage = node.registration, node.usage
        return DatanodeInfoProto(
            id=DatanodeIDProto(
                ipAddr=self._addresses.of(registered.data_host),
                hostName=registered.data_host,
                datanodeUuid=node.id,
                xferPort=registered.hdfs_port,
                infoPort=registered.http_port,
                ipcPort=registered.hdfs_port,
            ),
            capacity=usage.capacity_bytes,
            dfsUsed=usage.used_bytes,
            remaining=usage.available_bytes,
            blockPoolUsed=usage.used_bytes,
            lastUpdate=wall_clock_ms,
            xceiverCount=usage.streams,
            location=node.rack,
            nonDfsUsed=max(0, usage.capacity_bytes - usage.used_bytes - usage.available_bytes),
            adminState=_ADMIN_STATES[self._cluster.admin_state_of(node)],
            numBlocks=self._cluster.chunks.held_by(node.id),
        )

    def datanodes(self, hops: Iterable[Hop]) -> list[DatanodeInfoProto]:
        """Return the datanodes that HDFS clients can reach."""
        nodes = (self._cluster.members.get(hop.node) for hop in hops)
        return [self.datanode(node) for node in nodes if node is not None and node.registration.hdfs_port]

    def blocks(self, file: LocatedFile) -> LocatedBlocksProto:
        return LocatedBlocksProto(
            fileLength=file.status.length,
            blocks=[self._located(offset, chunk) for offset, chunk in file.chunks],
            underConstruction=file.is_written,
            lastBlock=None if file.last is None else self._located(*file.last),
            isLastBlockComplete=True,
        )

    def _located(self, offset: int, chunk: ChunkLayout) -> LocatedBlockProto:
        block = ExtendedBlockProto(
            poolId=self.pool, blockId=chunk.chunk, generationStamp=chunk.version, numBytes=chunk.length
        )
        located = self.datanodes(chunk.replicas)
        if chunk.replicas and not located:
            raise _no_door()
        return self.block(block, offset, located, chunk.token, is_corrupt=not chunk.replicas)

    def new_block(self, new: NewBlock, block: int) -> LocatedBlockProto:
        """Return a block to be written, with the id `block` for the client."""
        located = self.datanodes(new.allocated.pipeline)
        if not located:
            raise _no_door()
        # Set the length explicitly, although 0 is the default: some clients require the field.
        named = ExtendedBlockProto(
            poolId=self.pool, blockId=block, generationStamp=new.allocated.version, numBytes=0
        )
        return self.block(named, new.offset, located, new.token)

    def block(
        self,
        block: ExtendedBlockProto,
        offset: int,
        datanodes: Sequence[DatanodeInfoProto],
        token: str,
        *,
        is_corrupt: bool = False,
    ) -> LocatedBlockProto:
        return LocatedBlockProto(
            b=block,
            offset=offset,
            locs=datanodes,
            corrupt=is_corrupt,
            blockToken=TokenProto(identifier=token.encode(), password=b"", kind=BLOCK_TOKEN_KIND, service=""),
            isCached=[False] * len(datanodes),
            storageTypes=[StorageTypeProto.DISK] * len(datanodes),
            storageIDs=[datanode.id.datanodeUuid for datanode in datanodes],
        )


def _no_door() -> NoDatanodes:
    return NoDatanodes(
        "no datanode that has the data serves HDFS's data transfer protocol: start datanodes with --hdfs-port"
    )
