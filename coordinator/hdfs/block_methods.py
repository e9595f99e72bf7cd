"""Methods of ClientNamenodeProtocol about file data: locate it, and write it block by block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from peacefs.coordinator.metadata.model import InodeKind, InodeStatus
from peacefs.coordinator.operations.read import LocatedFile
from peacefs.protocol import messages as m
from peacefs.protocol.errors import BadRequest, FileNotFound, IllegalChange
from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import DatanodeInfoProto, HdfsFileStatusProto
from peacefs.protocol.ids import NodeId
from peacefs.protocol.new_file import NewFile

from .method import Method, MethodCall
from .statuses import signed, status_proto

# The maximum number of bad blocks in one report, and of datanodes that one call adds to a pipeline.
bad_blocks_per_call: Final = 100
added_datanodes_max: Final = 3

_OVERWRITE: Final = pb.OVERWRITE
_CREATE: Final = pb.CREATE
#: An offset beyond the end of every file.
_END: Final = 1 << 62
#: In metadata and tokens, the client's name is the lease holder.
_CLIENT_NAME_CHARACTERS_MAX: Final = 512


def _holder(name: str) -> str:
    if not name or len(name) > _CLIENT_NAME_CHARACTERS_MAX:
        raise BadRequest(
            f"a client's name has 1 to {_CLIENT_NAME_CHARACTERS_MAX} characters, not {len(name)}: see clientName"
        )
    return name


async def _located(call: MethodCall, path: str, offset: int, length: int) -> LocatedFile:
    return await call.files.reading.located(path, call.user, call.host, offset, length)


async def located_status(call: MethodCall, path: str, status: InodeStatus) -> HdfsFileStatusProto:
    """Return a status with the locations of all blocks that can be read."""
    if status.kind is InodeKind.DIRECTORY:
        return status_proto(status)
    found = await _located(call, path, 0, _END)
    return status_proto(status, call.served.blocks.blocks(found))


async def _get_block_locations(
    call: MethodCall, asked: pb.GetBlockLocationsRequestProto
) -> pb.GetBlockLocationsResponseProto:
    offset, length = signed(asked.offset), signed(asked.length)
    if offset < 0 or length < 0:
        raise IllegalChange(f"Negative {'offset' if offset < 0 else 'length'} is not supported. File: {asked.src}")
    found = await _located(call, call.path(asked.src), offset, length)
    return pb.GetBlockLocationsResponseProto(locations=call.served.blocks.blocks(found))


async def _create(call: MethodCall, asked: pb.CreateRequestProto) -> pb.CreateResponseProto:
    if not asked.createFlag & _CREATE:
        await _check_overwritable(call, asked.src)
    if asked.ecPolicyName:
        raise BadRequest("erasure coding is not supported: all files are replicated")
    file = NewFile(
        path=asked.src,
        user=call.user,
        overwrite=bool(asked.createFlag & _OVERWRITE),
        permission=asked.masked.perm,
        replication=asked.replication,
        block_bytes=signed(asked.blockSize),
        create_parent=asked.createParent,
        request_id=call.request_id,
        unmasked=asked.unmasked.perm if asked.HasField("unmasked") else None,
    )
    status = await call.files.open_files.create(file, _holder(asked.clientName))
    return pb.CreateResponseProto(fs=status_proto(status))


async def _check_overwritable(call: MethodCall, path: str) -> None:
    try:
        await call.files.names.status(path, call.user)
    except FileNotFound:
        raise FileNotFound(f"Can't overwrite non-existent {path}") from None


async def _append(call: MethodCall, asked: pb.AppendRequestProto) -> pb.AppendResponseProto:
    """Open a file for append. Appended data starts a new block, so the answer contains no last block."""
    status = await call.files.open_files.append(asked.src, call.user, _holder(asked.clientName), call.request_id)
    return pb.AppendResponseProto(stat=status_proto(status))


async def _add_block(call: MethodCall, asked: pb.AddBlockRequestProto) -> pb.AddBlockResponseProto:
    new = await call.files.open_files.add_block(
        asked.src,
        signed(asked.fileId),
        call.user,
        _holder(asked.clientName),
        call.host,
        _ids(asked.excludeNodes),
    )
    return pb.AddBlockResponseProto(block=call.served.blocks.new_block(new, new.allocated.chunk))


async def _abandon_block(call: MethodCall, asked: pb.AbandonBlockRequestProto) -> pb.AbandonBlockResponseProto:
    await call.files.open_files.abandon_block(asked.b.blockId, call.user, _holder(asked.holder))
    return pb.AbandonBlockResponseProto()


async def _complete(call: MethodCall, asked: pb.CompleteRequestProto) -> pb.CompleteResponseProto:
    done = await call.files.open_files.complete(
        asked.src, signed(asked.fileId), call.user, _holder(asked.clientName), call.request_id
    )
    return pb.CompleteResponseProto(result=done)


async def _fsync(call: MethodCall, asked: pb.FsyncRequestProto) -> pb.FsyncResponseProto:
    await call.files.open_files.sync(asked.src, signed(asked.fileId), call.user, _holder(asked.client))
    return pb.FsyncResponseProto()


async def _renew_lease(call: MethodCall, asked: pb.RenewLeaseRequestProto) -> pb.RenewLeaseResponseProto:
    await call.files.open_files.renew(_holder(asked.clientName))
    return pb.RenewLeaseResponseProto()


async def _recover_lease(call: MethodCall, asked: pb.RecoverLeaseRequestProto) -> pb.RecoverLeaseResponseProto:
    return pb.RecoverLeaseResponseProto(result=await call.name(m.RecoverLease(asked.src, call.user)))


async def _truncate(call: MethodCall, asked: pb.TruncateRequestProto) -> pb.TruncateResponseProto:
    cut = m.TruncatePath(asked.src, call.user, request_id=call.request_id, length=signed(asked.newLength))
    return pb.TruncateResponseProto(result=await call.name(cut))


async def _is_file_closed(call: MethodCall, asked: pb.IsFileClosedRequestProto) -> pb.IsFileClosedResponseProto:
    status: InodeStatus = await call.name(m.GetFileInfo(asked.src, call.user))
    if status.kind is InodeKind.DIRECTORY:
        raise FileNotFound(f"Path is not a file: {asked.src}")
    return pb.IsFileClosedResponseProto(result=call.files.open_files.is_closed(status.inode))


async def _update_block(
    call: MethodCall, asked: pb.UpdateBlockForPipelineRequestProto
) -> pb.UpdateBlockForPipelineResponseProto:
    block = asked.block.blockId
    new = await call.files.open_files.recover_block(block, call.user, _holder(asked.clientName), call.host)
    return pb.UpdateBlockForPipelineResponseProto(block=call.served.blocks.new_block(new, block))


async def _update_pipeline(
    call: MethodCall, asked: pb.UpdatePipelineRequestProto
) -> pb.UpdatePipelineResponseProto:
    """Do nothing: the datanode publishes the data itself, so the coordinator need not know the new pipeline."""
    return pb.UpdatePipelineResponseProto()


async def _get_additional_datanode(
    call: MethodCall, asked: pb.GetAdditionalDatanodeRequestProto
) -> pb.GetAdditionalDatanodeResponseProto:
    present = _ids(asked.existings)
    count = min(asked.numAdditionalNodes, added_datanodes_max)
    more = call.files.open_files.more_datanodes(present | _ids(asked.excludes), count)
    token = call.files.reading.chunk_token(asked.blk.blockId)
    datanodes = [*asked.existings, *call.served.blocks.datanodes(more)]
    return pb.GetAdditionalDatanodeResponseProto(block=call.served.blocks.block(asked.blk, 0, datanodes, token))


async def _report_bad_blocks(
    call: MethodCall, asked: pb.ReportBadBlocksRequestProto
) -> pb.ReportBadBlocksResponseProto:
    for block in asked.blocks[:bad_blocks_per_call]:
        for node in _ids(block.locs):
            found = m.ReportCorrupt(block.b.blockId, block.b.generationStamp, node)
            await call.files.reading.report_corrupt(found)
    return pb.ReportBadBlocksResponseProto()


def _ids(datanodes: Iterable[DatanodeInfoProto]) -> frozenset[NodeId]:
    return frozenset(datanode.id.datanodeUuid for datanode in datanodes)


BLOCK_METHODS: Final[Mapping[str, Method]] = {
    "getBlockLocations": Method(pb.GetBlockLocationsRequestProto, _get_block_locations, is_read=True),
    "create": Method(pb.CreateRequestProto, _create),
    "append": Method(pb.AppendRequestProto, _append),
    "addBlock": Method(pb.AddBlockRequestProto, _add_block),
    "abandonBlock": Method(pb.AbandonBlockRequestProto, _abandon_block),
    "complete": Method(pb.CompleteRequestProto, _complete),
    "fsync": Method(pb.FsyncRequestProto, _fsync),
    "renewLease": Method(pb.RenewLeaseRequestProto, _renew_lease, is_silent=True),
    "recoverLease": Method(pb.RecoverLeaseRequestProto, _recover_lease),
    "truncate": Method(pb.TruncateRequestProto, _truncate),
    "isFileClosed": Method(pb.IsFileClosedRequestProto, _is_file_closed, is_read=True),
    "updateBlockForPipeline": Method(pb.UpdateBlockForPipelineRequestProto, _update_block),
    "updatePipeline": Method(pb.UpdatePipelineRequestProto, _update_pipeline),
    "getAdditionalDatanode": Method(pb.GetAdditionalDatanodeRequestProto, _get_additional_datanode),
    "reportBadBlocks": Method(pb.ReportBadBlocksRequestProto, _report_bad_blocks),
}
