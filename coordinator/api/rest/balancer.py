"""REST for `peacefs balance`: start, renew, show and cancel runs, between datanodes or, with `--disks`, disks.

The coordinator keeps no state of a run between disks. It passes requests on to the datanode, which performs the
run as long as the client repeats its request.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import Field

from peacefs.coordinator.cluster.core import Cluster
from peacefs.protocol.errors import ProtocolViolation, SafeMode
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import (
    balance_bytes_per_second_default,
    balance_bytes_per_second_min,
    balance_threshold_percent_default,
)
from peacefs.protocol.messages import BalanceDisks, DiskBalance, Message
from peacefs.protocol.values.balance_status import BalanceStatus, DiskBalanceStatus

from .common import Body


class BalanceBody(Body):
    """A run to start. The client chooses its name, and renews the run until it has ended."""

    run: Annotated[str, Field(min_length=1, max_length=64)]
    threshold_percent: Annotated[float, Field(gt=0, le=100)] = balance_threshold_percent_default
    #: The maximum rate of each datanode, sending and receiving together.
    bytes_per_second: Annotated[float, Field(ge=balance_bytes_per_second_min, allow_inf_nan=False)] = (
        balance_bytes_per_second_default
    )


def add_balancer_routes(
    app: FastAPI, cluster: Cluster, for_superusers: Any, clock: Callable[[], float] = time.monotonic
) -> None:
    balancer = cluster.balancer

    @app.get("/v1/balancer")
    async def status() -> BalanceStatus:
        """Return the run under way, or the last one."""
        return _status(cluster)

    @app.post("/v1/balancer", dependencies=[for_superusers])
    async def start(body: BalanceBody) -> BalanceStatus:
        """Start a run. If another run is under way, the answer describes that run, under its own name."""
        if not cluster.ready(clock()):
            raise SafeMode("the coordinator has just started and still waits for its datanodes; try again")
        balancer.start(clock(), body.run, cluster.members, body.threshold_percent / 100, body.bytes_per_second)
        return _status(cluster)

    @app.post("/v1/balancer/{run}/renew", dependencies=[for_superusers])
    async def renew(run: str) -> BalanceStatus:
        """Renew a run. If the coordinator no longer knows it, the answer describes another run, or none."""
        balancer.renew(clock(), run)
        return _status(cluster)

    @app.post("/v1/balancer/{run}/cancel", dependencies=[for_superusers])
    async def cancel(run: str) -> BalanceStatus:
        """Begin no more moves. Moves under way are completed."""
        balancer.cancel(run)
        return _status(cluster)


def _status(cluster: Cluster) -> BalanceStatus:
    run = cluster.balancer.run
    return BalanceStatus(
        run=run.name if run else "",
        phase=run.phase.value if run else "",
        threshold_percent=run.threshold * 100 if run else 0.0,
        bytes_per_second=run.bytes_per_second if run else 0.0,
        bytes_moved=run.bytes_moved if run else 0,
        bytes_left=run.plan.left_bytes() if run else 0,
        replicas_moved=run.moved if run else 0,
        moves_failed=run.failed if run else 0,
        moves_under_way=cluster.balancer.under_way,
    )


class DiskBalanceBody(Body):
    """A run to start or continue on a datanode. The client names it, and repeats the request until it ends."""

    run: Annotated[str, Field(min_length=1, max_length=64)]
    threshold_percent: Annotated[float, Field(gt=0, le=100)] = balance_threshold_percent_default
    #: The maximum rate at which one disk is read and another one written.
    bytes_per_second: Annotated[float, Field(ge=balance_bytes_per_second_min, allow_inf_nan=False)] = (
        balance_bytes_per_second_default
    )
    cancel: bool = False


def add_disk_balance_route(
    app: FastAPI, ask: Callable[[NodeId, Message], Awaitable[Message]], for_superusers: Any
) -> None:
    @app.post("/v1/datanodes/{node}/disks/balance", dependencies=[for_superusers])
    async def balance(node: str, body: DiskBalanceBody) -> DiskBalanceStatus:
        """Start a run or keep it going. If another run is under way, the answer describes that run."""
        reply = await ask(
            node, BalanceDisks(body.run, body.threshold_percent / 100, body.bytes_per_second, body.cancel)
        )
        if not isinstance(reply, DiskBalance):
            raise ProtocolViolation(f"datanode {node} answered with {type(reply).__name__}")
        return DiskBalanceStatus(
            node=node,
            run=reply.run,
            phase=reply.phase,
            bytes_moved=reply.bytes_moved,
            bytes_left=reply.bytes_left,
            replicas_moved=reply.moved,
            moves_failed=reply.failed,
        )
