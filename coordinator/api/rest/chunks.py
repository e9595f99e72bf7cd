"""REST on chunks: `GET /v1/chunks/<id>` explains the state of a chunk."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Response

from peacefs.coordinator.operations.chunk_explanation import ChunkExplanations

from .openapi import documented_answer


def chunk_routes(explanations: ChunkExplanations, for_superusers: Any) -> APIRouter:
    """Return the route. It is for superusers, because it reveals the names of files."""
    router = APIRouter(prefix="/v1/chunks", dependencies=[for_superusers])
    explaining = asyncio.Lock()

    @router.get("/{chunk}", responses={200: documented_answer("ChunkExplanation", "A ChunkExplanation.")})
    async def explain(chunk: str) -> Response:
        """Explain a chunk: files that refer to it, states of its replicas, pending work, and recent events."""
        # One at a time, because a request may have to read the references of all files.
        async with explaining:
            explained = await explanations.explain(chunk)
        return Response(msgspec.json.encode(explained), media_type="application/json")

    return router
