"""REST on the cluster: `GET /v1/status`, and `/v1/datanodes/...` to take datanodes out of service and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query

from peacefs.coordinator.api.views.visible import visible_status
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.cluster.membership import AdminState, Node
from peacefs.coordinator.cluster.slow_peers import SlowPart
from peacefs.coordinator.cluster.slow_reasons import slow_reasons
from peacefs.coordinator.limits import heartbeat_late_s
from peacefs.coordinator.metadata.model import Mode
from peacefs.coordinator.operations.datanode_admin import DatanodeAdmin
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.protocol.limits import maintenance_hours_max
from peacefs.protocol.values.cluster_status import (
    ChunkCounts,
    ClusterStatus,
    DatanodeStatus,
    DiskStatus,
    FailoverStatus,
    UnreferencedStatus,
)


@dataclass(frozen=True, kw_only=True)
class StatusSources:
    """The sources of the status. `gc_floor_held` returns whether garbage is kept since a restore."""

    cluster: Cluster
    cluster_id: str
    epoch: Callable[[], int]
    address: Callable[[], str]
    gc_floor_held: Callable[[], bool]
    lacks_commits: Callable[[], bool]
    metadata_room: Callable[[], int]
    clock: Callable[[], float]
    failover: Callable[[], FailoverStatus | None]

    def status(self) -> ClusterStatus:
        cluster = self.cluster
        counts = cluster.chunks.unreferenced.counts(self.epoch())
        unreferenced = UnreferencedStatus(**counts._asdict(), floor_held=self.gc_floor_held())
        return ClusterStatus(
            cluster=self.cluster_id,
            epoch=self.epoch(),
            ready=cluster.ready(self.clock()),
            address=self.address(),
            datanodes=[_datanode(cluster, node, self.clock()) for node in cluster.members.all()],
            chunks=ChunkCounts(
                total=len(cluster.chunks),
                under_replicated=len(cluster.chunks.under),
                missing=len(cluster.chunks.missing),
                being_repaired=cluster.repair.under_way,
            ),
            unreferenced=unreferenced,
            unclaimed=unreferenced,
            repaired_total=cluster.repair.repaired_total,
            replicas_lost_total=cluster.replicas_lost_total,
            metadata_room_bytes=self.metadata_room(),
            commits_missing=self.lacks_commits(),
            failover=self.failover(),
        )


def status_routes(sources: StatusSources, viewing: Any) -> APIRouter:
    """Return the route; `viewing` is the dependency for the viewer."""
    router = APIRouter(prefix="/v1")

    @router.get("/status")
    async def status(viewer: Viewer = viewing) -> ClusterStatus:
        """Return the status of the cluster. Only superusers see hosts, ports and disks of datanodes."""
        return visible_status(sources.status(), viewer)

    return router


def datanode_routes(
    cluster: Cluster, administration: DatanodeAdmin, clock: Callable[[], float], for_superusers: Any
) -> APIRouter:
    """Return the routes for operators' decisions about a datanode."""
    router = APIRouter(prefix="/v1/datanodes/{node}", dependencies=[for_superusers])

    @router.post("/decommission")
    async def decommission(node: str) -> DatanodeStatus:
        """Write no new chunks to a datanode, and copy its replicas elsewhere. Answers at once; see the status."""
        return _datanode(cluster, await administration.decide(node, Mode.DECOMMISSION), clock())

    @router.post("/maintenance")
    async def maintenance(
        node: str, hours: Annotated[float, Query(gt=0, le=maintenance_hours_max)]
    ) -> DatanodeStatus:
        """For some hours, write no new chunks to a datanode, and do not copy its replicas while it is away.

        Switch it off when the status says that it is in maintenance.
        """
        return _datanode(cluster, await administration.decide(node, Mode.MAINTENANCE, hours * 3600.0), clock())

    @router.post("/recommission")
    async def recommission(node: str) -> DatanodeStatus:
        """Let a datanode serve again, after it was drained or in maintenance."""
        return _datanode(cluster, await administration.decide(node, Mode.IN_SERVICE), clock())

    return router


def _datanode(cluster: Cluster, node: Node, now_s: float) -> DatanodeStatus:
    admin_state = cluster.admin_state_of(node)
    return DatanodeStatus(
        node=node.id,
        host=node.registration.data_host,
        http_port=node.registration.http_port,
        data_port=node.registration.data_port,
        rack=node.rack,
        state=node.state.value,
        capacity_bytes=node.usage.capacity_bytes,
        used_bytes=node.usage.used_bytes,
        available_bytes=node.usage.available_bytes,
        replicas=cluster.chunks.held_by(node.id),
        service=admin_state.value,
        to_drain=0 if admin_state is AdminState.IN_SERVICE else cluster.chunks.to_drain(node.id),
        without_a_place=cluster.without_a_place(node),
        slow=[part.value for part in cluster.slow_peers.slow_parts(node.id)],
        hop_seconds=cluster.slow_peers.measured[SlowPart.HOP].get(node.id),
        disk_seconds=cluster.slow_peers.measured[SlowPart.DISK].get(node.id),
        disks=[DiskStatus(**msgspec.structs.asdict(disk)) for disk in node.disks],
        slow_reasons=slow_reasons(cluster, node, now_s),
        silent_s=round(now_s - node.heard_s, 1) if now_s - node.heard_s > heartbeat_late_s else 0.0,
    )
