"""REST for `peacefs balance --disks`: what a datanode is asked about the balance of its own disks, handed on.

The coordinator keeps nothing of it: a run is the datanode's, for as long as whoever started it asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import Field

from peacefs.protocol.errors import ProtocolViolation
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import (
    balance_bytes_per_second_default,
    balance_bytes_per_second_min,
    balance_threshold_percent_default,
)
from peacefs.protocol.messages import BalanceDisks, DiskBalance, Message
from peacefs.protocol.values.balance_status import DiskBalanceStatus

from .common import Body


class DiskBalanceBody(Body):
    """A run to be started on a datanode, or to go on. Who starts it names it, and asks until it has ended."""

    run: Annotated[str, Field(min_length=1, max_length=64)]
    threshold_percent: Annotated[float, Field(gt=0, le=100)] = balance_threshold_percent_default
    #: Read from one disk and written to another.
    bytes_per_second: Annotated[float, Field(ge=balance_bytes_per_second_min, allow_inf_nan=False)] = (
        balance_bytes_per_second_default
    )
    cancel: bool = False


def add_disk_balance_route(
    app: FastAPI, ask: Callable[[NodeId, Message], Awaitable[Message]], for_superusers: Any
) -> None:
    """Adds `/v1/datanodes/<node>/disks/balance` to the application."""

    @app.post("/v1/datanodes/{node}/disks/balance", dependencies=[for_superusers])
    async def balance(node: str, body: DiskBalanceBody) -> DiskBalanceStatus:
        """Starts a run, or says that it is still wanted. The answer is about another one if that is under way."""
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
