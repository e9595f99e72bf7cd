"""REST for `peacefs balance`: a run of the balancer is started, renewed, looked at and cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import Field

from peacefs.coordinator.cluster.core import Cluster
from peacefs.protocol.errors import SafeMode
from peacefs.protocol.limits import (
    balance_bytes_per_second_default,
    balance_bytes_per_second_min,
    balance_threshold_percent_default,
)
from peacefs.protocol.values.balance_status import BalanceStatus

from .common import Body


class BalanceBody(Body):
    """A run to be started. Who starts it chooses its name, and renews it until it has ended."""

    run: Annotated[str, Field(min_length=1, max_length=64)]
    threshold_percent: Annotated[float, Field(gt=0, le=100)] = balance_threshold_percent_default
    #: Of each datanode, sent and received.
    bytes_per_second: Annotated[float, Field(ge=balance_bytes_per_second_min, allow_inf_nan=False)] = (
        balance_bytes_per_second_default
    )


def add_balancer_routes(
    app: FastAPI, cluster: Cluster, for_superusers: Any, clock: Callable[[], float] = time.monotonic
) -> None:
    """Adds `/v1/balancer` to the application."""
    balancer = cluster.balancer

    @app.get("/v1/balancer")
    async def status() -> BalanceStatus:
        return _status(cluster)

    @app.post("/v1/balancer", dependencies=[for_superusers])
    async def start(body: BalanceBody) -> BalanceStatus:
        """Starts a run, unless one is under way: then that is what the answer is about, by another name."""
        if not cluster.ready(clock()):
            raise SafeMode("the coordinator has just started and still waits for its datanodes; try again")
        balancer.start(clock(), body.run, cluster.members, body.threshold_percent / 100, body.bytes_per_second)
        return _status(cluster)

    @app.post("/v1/balancer/{run}/renew", dependencies=[for_superusers])
    async def renew(run: str) -> BalanceStatus:
        """Says that the run is still wanted. The answer is about another run, or none, if it is forgotten."""
        balancer.renew(clock(), run)
        return _status(cluster)

    @app.post("/v1/balancer/{run}/cancel", dependencies=[for_superusers])
    async def cancel(run: str) -> BalanceStatus:
        """No more is begun; what is under way is carried through."""
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
