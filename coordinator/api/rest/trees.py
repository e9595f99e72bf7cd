"""REST on whole trees, for what WebHDFS has no word for: copies, exchanges, directories put back to a snapshot.

Each is atomic, however large the tree is, and copies names alone.
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
    """A directory that is to hold what one of its snapshots shows."""

    path: str
    user: str
    snapshot: str
    request_id: str = ""


class CopyBody(Body):
    """A file or tree to be copied to exactly `target`; the source may lie in a snapshot. No data is copied.

    Copies belong to the user and are of now. With `preserve` they keep their times and, for a superuser, owners
    and groups. With a request id it is done once.
    """

    source: str
    target: str
    user: str
    preserve: bool = False
    request_id: str = ""


class ExchangeBody(Body):
    """Pairs of names, each of one directory. With a request id it is done once."""

    #: Lists, of two: JSON has no tuples.
    pairs: Annotated[
        list[Annotated[tuple[str, str], Strict(False)]],
        Field(min_length=1, max_length=exchange_pairs_max, fail_fast=True),
    ]
    user: str
    request_id: str = ""


def tree_routes(files: Files) -> APIRouter:
    """`/v1/copies`, `/v1/exchanges` and `/v1/snapshots/restore`."""
    router = APIRouter(prefix="/v1")

    @router.post("/copies")
    async def copy(body: CopyBody, request: Request) -> CopiedTree:
        """Atomic, and of one moment, however long it takes: about a second for 10,000 files."""
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
        await files.snapshots.restore(body.path, named_user(request, body.user), body.snapshot, body.request_id)
        return {}

    @router.post("/exchanges")
    async def exchange(body: ExchangeBody, request: Request) -> dict[str, str]:
        """Each name then names what the other of its pair did, files or trees; one commit."""
        await files.names.exchange(body.pairs, named_user(request, body.user), body.request_id)
        return {}

    return router
