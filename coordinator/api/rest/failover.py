"""REST for a coordinator with standbys: hand leadership over to one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from peacefs.protocol.errors import BadRequest


class HandedOver(BaseModel):
    """The answer: the address of the coordinator that leads now."""

    leader: str


def add_failover_routes(app: FastAPI, hand_over: Callable[[], Awaitable[str]] | None, superusers: Any) -> None:
    """Add the route. `hand_over` is None for a coordinator without a journal."""

    @app.post("/v1/coordinator/hand-over", dependencies=[superusers])
    async def hand_over_leadership() -> HandedOver:
        """Let a standby lead. This coordinator then ends; start it again as a standby."""
        if hand_over is None:
            raise BadRequest("this coordinator has no journal, and nobody to hand over to")
        return HandedOver(leader=await hand_over())
