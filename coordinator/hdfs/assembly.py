"""Assembles the server for HDFS clients."""

from __future__ import annotations

from peacefs.coordinator.assembly import Assembly
from peacefs.coordinator.audit_log import AuditLog
from peacefs.coordinator.authentication.delegation import DelegationTokens
from peacefs.coordinator.authentication.proxy_users import ProxyUsers
from peacefs.coordinator.failover.door import Door
from peacefs.coordinator.failover.leadership import Leadership

from .addresses import Addresses
from .block_messages import BlockMessages
from .connections import Connections
from .method import Served
from .server import HdfsServer


def build_hdfs_server(
    parts: Assembly,
    cluster_id: str,
    leadership: Leadership,
    proxy_users: ProxyUsers,
    *,
    delegation: DelegationTokens | None,
    door: Door | None,
    audit: AuditLog | None,
) -> HdfsServer:
    """Return the server for a coordinator's parts. Without `delegation`, clients may claim any user name."""
    cluster, context, addresses = parts.core.cluster, parts.context, Addresses()
    served = Served(
        parts.files,
        cluster,
        BlockMessages(cluster, f"BP-{cluster_id}", addresses),
        cluster_id,
        leadership,
        is_in_safe_mode=lambda: not context.is_ready,
        now_ms=lambda moment_s: int((context.wall_clock() - (context.monotonic() - moment_s)) * 1000),
        delegation=delegation,
    )
    return HdfsServer(Connections(served, proxy_users, door, audit), addresses)
