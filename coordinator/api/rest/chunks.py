"""REST on chunks: `GET /v1/chunks/<id>` says what the cluster knows of one, and why."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Response

from peacefs.coordinator.operations.chunk_explanation import ChunkExplanations

from .openapi import documented_answer


def chunk_routes(explanations: ChunkExplanations, for_superusers: Any) -> APIRouter:
    """For superusers: it gives away what files are called."""
    router = APIRouter(prefix="/v1/chunks", dependencies=[for_superusers])
    explaining = asyncio.Lock()

    @router.get("/{chunk}", responses={200: documented_answer("ChunkExplanation", "A ChunkExplanation.")})
    async def explain(chunk: str) -> Response:
        """Explain a chunk: files that refer to it, the state of each replica, what is pending, what happened."""
        # One at a time: the references of all files may have to be read through.
        async with explaining:
            explained = await explanations.explain(chunk)
        return Response(msgspec.json.encode(explained), media_type="application/json")

    return router
