"""REST that looks into checkpoints: `GET /v1/checkpoints`, `GET /v1/checkpoints/show`."""

from __future__ import annotations

import asyncio

import msgspec
from fastapi import FastAPI, Response

from peacefs.coordinator.side_process.checkpoint_inspector import CheckpointInspector

from .rest_access import User


def add_checkpoint_look_routes(app: FastAPI, looks: CheckpointInspector) -> None:
    """Adds both to the application."""

    @app.get("/v1/checkpoints", responses={200: {"description": "A summary of each, with its latest run."}})
    async def all_below(user: User, path: str = "/") -> Response:
        """Every checkpoint at and below a path, as `peacefs checkpoint ls --json` has it, for who may list it."""
        return await _json({"checkpoints": await looks.all_below(path, user)})

    @app.get("/v1/checkpoints/show", responses={200: {"description": "A checkpoint, with its latest run."}})
    async def show(path: str, user: User) -> Response:
        """One checkpoint with all stores of all partitions, as `peacefs checkpoint show --json` has it."""
        return await _json(await looks.one(path, user))


async def _json(content: object) -> Response:
    """May be large: not on the event loop."""
    return Response(await asyncio.to_thread(msgspec.json.encode, content), media_type="application/json")
