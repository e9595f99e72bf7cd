"""REST operations on whole trees that WebHDFS lacks: copies, exchanges, and restoring a directory from a snapshot.

Each operation is atomic, however large the tree is, and copies no data.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field, Strict

from peacefs.coordinator.limits import exchange_pairs_max
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.values.copied_tree import CopiedTree

from .common import Body, named_user


class RestoreBody(Body):
    """A directory to restore to the state of one of its snapshots."""

    path: str
    user: str
    snapshot: str
    request_id: str = ""


class CopyBody(Body):
    """A file or tree to copy to exactly `target`, without copying data. The source may be in a snapshot.

    Copies belong to the user, with new times. With `preserve` they keep their times and, if a superuser copies,
    owners and groups. A request that is repeated with the same request id copies once.
    """

    source: str
    target: str
    user: str
    preserve: bool = False
    request_id: str = ""


class ExchangeBody(Body):
    """Pairs of names to exchange, each pair in one directory. With a request id, a retry exchanges nothing."""

    #: Each pair is a JSON list of two names.
    pairs: Annotated[
        list[Annotated[tuple[str, str], Strict(False)]],
        Field(min_length=1, max_length=exchange_pairs_max, fail_fast=True),
    ]
    user: str
    request_id: str = ""


def tree_routes(files: Files) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.post("/copies")
    async def copy(body: CopyBody, request: Request) -> CopiedTree:
        """Copy a tree atomically, as it was at one moment."""
        copied = await files.copying.copy(
            body.source,
            body.target,
            named_user(request, body.user),
            preserve=body.preserve,
            request_id=body.request_id,
        )
        return CopiedTree(copied.directories, copied.files, copied.length, copied.space_consumed)

    @router.post("/snapshots/restore")
    async def restore(body: RestoreBody, request: Request) -> dict[str, str]:
        """Make a directory as it was at a snapshot."""
        await files.snapshots.restore(body.path, named_user(request, body.user), body.snapshot, body.request_id)
        return {}

    @router.post("/exchanges")
    async def exchange(body: ExchangeBody, request: Request) -> dict[str, str]:
        """Exchange the files or trees that the two names of each pair refer to, all in one commit."""
        await files.names.exchange(body.pairs, named_user(request, body.user), body.request_id)
        return {}

    return router
