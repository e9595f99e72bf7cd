"""Methods about the cluster: its settings, space, datanodes and leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf.message import Message

from peacefs import __version__
from peacefs.coordinator.cluster.membership import AdminState, Node, State
from peacefs.protocol import messages as m
from peacefs.protocol.errors import Unsupported
from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import (
    ChecksumTypeProto,
    CorruptFileBlocksProto,
    DatanodeStorageProto,
    FsServerDefaultsProto,
    StorageReportProto,
)
from peacefs.protocol.limits import chunk_bytes_max, replication_default

from .method import Method, MethodCall

#: HDFS's defaults for writers, including the number of bytes per checksum.
_BYTES_PER_CHECKSUM: Final = 512
_WRITE_PACKET_BYTES: Final = 64 * 1024
_FILE_BUFFER_BYTES: Final = 4096
#: The layout version of HDFS 3.5. Tools only show it.
_LAYOUT: Final = (1 << 32) - 67
_ADMIN_REPORTS: Final[Mapping[int, AdminState]] = {
    pb.DECOMMISSIONING: AdminState.DECOMMISSIONING,
    pb.ENTERING_MAINTENANCE: AdminState.ENTERING_MAINTENANCE,
    pb.IN_MAINTENANCE: AdminState.IN_MAINTENANCE,
}


async def _server_defaults(
    call: MethodCall, asked: pb.GetServerDefaultsRequestProto
) -> pb.GetServerDefaultsResponseProto:
    trash_minutes: int = await call.name(m.GetServerSettings("/", call.user))
    defaults = FsServerDefaultsProto(
        blockSize=chunk_bytes_max,
        bytesPerChecksum=_BYTES_PER_CHECKSUM,
        writePacketSize=_WRITE_PACKET_BYTES,
        replication=replication_default,
        fileBufferSize=_FILE_BUFFER_BYTES,
        encryptDataTransfer=False,
        trashInterval=trash_minutes,
        checksumType=ChecksumTypeProto.CHECKSUM_CRC32C,
    )
    return pb.GetServerDefaultsResponseProto(serverDefaults=defaults)


async def _stats(call: MethodCall, asked: pb.GetFsStatusRequestProto) -> pb.GetFsStatsResponseProto:
    space, chunks = call.files.reading.space(), call.served.cluster.chunks
    return pb.GetFsStatsResponseProto(
        capacity=space.capacity_bytes,
        used=space.used_bytes,
        remaining=space.available_bytes,
        under_replicated=len(chunks.under),
        corrupt_blocks=0,
        missing_blocks=len(chunks.missing),
        missing_repl_one_blocks=0,
        blocks_in_future=0,
        pending_deletion_blocks=0,
    )


async def _block_stats(
    call: MethodCall, asked: pb.GetFsReplicatedBlockStatsRequestProto
) -> pb.GetFsReplicatedBlockStatsResponseProto:
    chunks = call.served.cluster.chunks
    return pb.GetFsReplicatedBlockStatsResponseProto(
        low_redundancy=len(chunks.under),
        corrupt_blocks=0,
        missing_blocks=len(chunks.missing),
        missing_repl_one_blocks=0,
        blocks_in_future=0,
        pending_deletion_blocks=0,
    )


async def _group_stats(
    call: MethodCall, asked: pb.GetFsECBlockGroupStatsRequestProto
) -> pb.GetFsECBlockGroupStatsResponseProto:
    return pb.GetFsECBlockGroupStatsResponseProto(
        low_redundancy=0, corrupt_blocks=0, missing_blocks=0, blocks_in_future=0, pending_deletion_blocks=0
    )


def _reported(call: MethodCall, wanted: int) -> Iterable[Node]:
    cluster = call.served.cluster
    for node in cluster.members.all():
        if (
            wanted == pb.ALL
            or (wanted == pb.LIVE and node.state is not State.DEAD)
            or (wanted == pb.DEAD and node.state is State.DEAD)
            or _ADMIN_REPORTS.get(wanted) is cluster.admin_state_of(node)
        ):
            yield node


async def _datanodes(
    call: MethodCall, asked: pb.GetDatanodeReportRequestProto
) -> pb.GetDatanodeReportResponseProto:
    """Report the datanodes. As in HDFS, only superusers may call this."""
    call.files.callers.need_superuser(call.user)
    blocks, now_ms = call.served.blocks, call.served.now_ms
    return pb.GetDatanodeReportResponseProto(
        di=[blocks.datanode(node, now_ms(node.heard_s)) for node in _reported(call, asked.type)]
    )


async def _slow_datanodes(
    call: MethodCall, asked: pb.GetSlowDatanodeReportRequestProto
) -> pb.GetSlowDatanodeReportResponseProto:
    call.files.callers.need_superuser(call.user)
    blocks, cluster = call.served.blocks, call.served.cluster
    slow = [node for node in cluster.members.all() if cluster.slow_peers.slow_parts(node.id)]
    return pb.GetSlowDatanodeReportResponseProto(datanodeInfoProto=[blocks.datanode(node) for node in slow])


async def _storages(
    call: MethodCall, asked: pb.GetDatanodeStorageReportRequestProto
) -> pb.GetDatanodeStorageReportResponseProto:
    call.files.callers.need_superuser(call.user)
    blocks, now_ms = call.served.blocks, call.served.now_ms
    reports = [
        pb.DatanodeStorageReportProto(
            datanodeInfo=blocks.datanode(node, now_ms(node.heard_s)),
            storageReports=[
                StorageReportProto(
                    storageUuid=node.id,
                    capacity=node.usage.capacity_bytes,
                    dfsUsed=node.usage.used_bytes,
                    remaining=node.usage.available_bytes,
                    blockPoolUsed=node.usage.used_bytes,
                    storage=DatanodeStorageProto(storageUuid=node.id),
                )
            ],
        )
        for node in _reported(call, asked.type)
    ]
    return pb.GetDatanodeStorageReportResponseProto(datanodeStorageReports=reports)


async def _corrupt_files(
    call: MethodCall, asked: pb.ListCorruptFileBlocksRequestProto
) -> pb.ListCorruptFileBlocksResponseProto:
    """Report that no file is corrupt. Raises Unsupported if chunks are missing: no index maps them to files."""
    await call.files.names.status(asked.path, call.user)
    missing = len(call.served.cluster.chunks.missing)
    if missing:
        raise Unsupported(f"{missing} chunks have no good replica: `peacefs fsck` names their files")
    return pb.ListCorruptFileBlocksResponseProto(corrupt=CorruptFileBlocksProto(cookie=asked.cookie))


async def _safe_mode(call: MethodCall, asked: pb.SetSafeModeRequestProto) -> pb.SetSafeModeResponseProto:
    if asked.action == pb.SAFEMODE_ENTER:
        raise Unsupported("safe mode cannot be entered by command: a coordinator is in it after its start alone")
    if asked.action != pb.SAFEMODE_GET:
        call.files.callers.need_superuser(call.user)
    return pb.SetSafeModeResponseProto(result=call.served.is_in_safe_mode())


async def _state(call: MethodCall, asked: pb.HAServiceStateRequestProto) -> pb.HAServiceStateResponseProto:
    return pb.HAServiceStateResponseProto(state=pb.ACTIVE if call.served.leadership.leads else pb.STANDBY)


async def _msync(call: MethodCall, asked: pb.MsyncRequestProto) -> pb.MsyncResponseProto:
    """Do nothing: only the leading coordinator answers reads."""
    return pb.MsyncResponseProto()


async def _no_encryption_key(
    call: MethodCall, asked: pb.GetDataEncryptionKeyRequestProto
) -> pb.GetDataEncryptionKeyResponseProto:
    return pb.GetDataEncryptionKeyResponseProto()


async def _rolling_upgrade(
    call: MethodCall, asked: pb.RollingUpgradeRequestProto
) -> pb.RollingUpgradeResponseProto:
    if asked.action != pb.QUERY:
        raise Unsupported("upgrades need no command: restart standbys first, then `peacefs coordinator hand-over`")
    return pb.RollingUpgradeResponseProto()


async def _version(call: MethodCall, asked: pb.VersionRequestProto) -> pb.VersionResponseProto:
    """Answer versionRequest of NamenodeProtocol, which HDFS's namespace benchmark calls."""
    storage = pb.StorageInfoProto(layoutVersion=_LAYOUT, namespceID=1, clusterID=call.served.cluster_id, cTime=0)
    return pb.VersionResponseProto(
        info=pb.NamespaceInfoProto(
            buildVersion=__version__,
            unused=0,
            blockPoolID=call.served.blocks.pool,
            storageInfo=storage,
            softwareVersion=__version__,
            state=pb.NNHAStatusHeartbeatProto.ACTIVE
            if call.served.leadership.leads
            else pb.NNHAStatusHeartbeatProto.STANDBY,
        )
    )


async def _nothing(call: MethodCall, asked: Any) -> Message:
    """Answer with an empty message: there are no encryption zones or erasure coding, and nothing to reload."""
    return pb.MsyncResponseProto()


CLUSTER_METHODS: Final[Mapping[str, Method]] = {
    "getServerDefaults": Method(pb.GetServerDefaultsRequestProto, _server_defaults, is_read=True),
    "getFsStats": Method(pb.GetFsStatusRequestProto, _stats, is_read=True),
    "getFsReplicatedBlockStats": Method(pb.GetFsReplicatedBlockStatsRequestProto, _block_stats, is_read=True),
    "getFsECBlockGroupStats": Method(pb.GetFsECBlockGroupStatsRequestProto, _group_stats, is_read=True),
    "getDatanodeReport": Method(pb.GetDatanodeReportRequestProto, _datanodes, is_read=True),
    "getDatanodeStorageReport": Method(pb.GetDatanodeStorageReportRequestProto, _storages, is_read=True),
    "getSlowDatanodeReport": Method(pb.GetSlowDatanodeReportRequestProto, _slow_datanodes, is_read=True),
    "listCorruptFileBlocks": Method(
        pb.ListCorruptFileBlocksRequestProto, _corrupt_files, is_read=True, path=lambda asked: asked.path
    ),
    "setSafeMode": Method(pb.SetSafeModeRequestProto, _safe_mode, is_read=True),
    "getHAServiceState": Method(pb.HAServiceStateRequestProto, _state, is_read=True, is_of_any=True),
    "msync": Method(pb.MsyncRequestProto, _msync, is_read=True),
    "getDataEncryptionKey": Method(pb.GetDataEncryptionKeyRequestProto, _no_encryption_key, is_read=True),
    "rollingUpgrade": Method(pb.RollingUpgradeRequestProto, _rolling_upgrade, is_read=True),
    "getEZForPath": Method(pb.MsyncRequestProto, _nothing, is_read=True),
    "getErasureCodingPolicy": Method(pb.MsyncRequestProto, _nothing, is_read=True),
    "getErasureCodingPolicies": Method(pb.MsyncRequestProto, _nothing, is_read=True),
    "getErasureCodingCodecs": Method(pb.MsyncRequestProto, _nothing, is_read=True),
}
#: NamenodeProtocol
VERSION_METHODS: Final[Mapping[str, Method]] = {
    "versionRequest": Method(pb.VersionRequestProto, _version, is_read=True),
}
#: RefreshUserMappingsProtocol: groups and proxy users are options of the coordinator, reloaded on SIGHUP.
REFRESH_METHODS: Final[Mapping[str, Method]] = {
    "refreshUserToGroupsMappings": Method(pb.MsyncRequestProto, _nothing, is_read=True),
    "refreshSuperUserGroupsConfiguration": Method(pb.MsyncRequestProto, _nothing, is_read=True),
}
