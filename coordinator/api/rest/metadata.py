"""REST for operators of the metadata: make a backup, release a held GC floor, accept lost commits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from peacefs.coordinator.background.epoch_floor import EpochService

#: Makes a copy of the metadata. Returns its size in bytes and an iterator over its contents.
MakeBackup = Callable[[], Awaitable[tuple[int, AsyncIterator[bytes]]]]


class ReleasedGcFloor(BaseModel):
    """Whether the GC floor was held, and how much may be deleted after its release."""

    released: bool
    chunks: int
    bytes: int


class AcceptedLoss(BaseModel):
    """Whether commits were missing. Their loss is accepted now."""

    accepted: bool


def add_metadata_routes(app: FastAPI, make_copy: MakeBackup, epochs: EpochService, for_superusers: Any) -> None:
    @app.post("/v1/metadata/backup", response_class=StreamingResponse, dependencies=[for_superusers])
    async def make_backup() -> StreamingResponse:
        """Return a copy of the current metadata, as a complete SQLite store."""
        size, blocks = await make_copy()
        return StreamingResponse(
            blocks, media_type="application/vnd.sqlite3", headers={"content-length": str(size)}
        )

    @app.post("/v1/metadata/release-floor", dependencies=[for_superusers])
    async def release() -> ReleasedGcFloor:
        """After a restore, let the chunks be deleted that were written after the backup was made."""
        counts = await epochs.release_gc_floor()
        if counts is None:
            return ReleasedGcFloor(released=False, chunks=0, bytes=0)
        return ReleasedGcFloor(
            released=True, chunks=counts.chunks_of_earlier_epochs, bytes=counts.bytes_of_earlier_epochs
        )

    @app.post("/v1/metadata/accept-loss", dependencies=[for_superusers])
    async def accept_loss() -> AcceptedLoss:
        """Go on without the missing commits, of which datanodes have heard. The GC floor stays held."""
        return AcceptedLoss(accepted=await epochs.accept_loss())
