"""REST for who looks after the metadata: a backup of it, what to do about lost commits and a held floor."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from peacefs.coordinator.background.epoch_floor import EpochService
from peacefs.coordinator.metadata.backup import BackupMaker


class ReleasedGcFloor(BaseModel):
    """The answer: whether the GC floor was held, and how much may be deleted now that it is not."""

    released: bool
    chunks: int
    bytes: int


class AcceptedLoss(BaseModel):
    """The answer: whether commits were missing; their loss is accepted now."""

    accepted: bool


def add_metadata_routes(app: FastAPI, backup: BackupMaker, epochs: EpochService, for_superusers: Any) -> None:
    """Adds `/v1/metadata/...` to the application."""

    @app.post("/v1/metadata/backup", response_class=StreamingResponse, dependencies=[for_superusers])
    async def make_backup() -> StreamingResponse:
        """The metadata as it is now, to be kept in a file: an SQLite store that stands by itself."""
        copied = await backup.make()
        return StreamingResponse(
            copied.blocks(), media_type="application/vnd.sqlite3", headers={"content-length": str(copied.size)}
        )

    @app.post("/v1/metadata/release-floor", dependencies=[for_superusers])
    async def release() -> ReleasedGcFloor:
        """Gives up what datanodes hold from the time after the backup that this metadata was restored from."""
        counts = await epochs.release_gc_floor()
        if counts is None:
            return ReleasedGcFloor(released=False, chunks=0, bytes=0)
        return ReleasedGcFloor(
            released=True, chunks=counts.chunks_of_earlier_epochs, bytes=counts.bytes_of_earlier_epochs
        )

    @app.post("/v1/metadata/accept-loss", dependencies=[for_superusers])
    async def accept_loss() -> AcceptedLoss:
        """Goes on without commits that datanodes have heard of and the metadata lacks; the floor stays held."""
        return AcceptedLoss(accepted=await epochs.accept_loss())
