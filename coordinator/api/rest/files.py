"""REST on files, `/v1/files/...`: the control calls of clients that use HTTP. Data does not pass here.

Bodies are JSON. Most of them are messages of the framed protocol.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec.structs import replace
from pydantic import Field

from peacefs.coordinator.authentication.token_bearer import check_bearer_of
from peacefs.coordinator.limits import concat_sources_max
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.callers.caller import caller_of
from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.messages import (
    AbandonLease,
    AllocateChunk,
    CompleteFile,
    FlushFile,
    GetLayout,
    KeepChunks,
    Message,
    RenewLease,
    ReportCorrupt,
    StateWriteSet,
)
from peacefs.protocol.new_file import NewFile

from .common import Body, User, named_user
from .openapi import documented_answer

M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=msgspec.Struct)


class ExtendBody(Body):
    """A file to extend. A repeated request of the same `holder` takes the lease again."""

    path: str
    user: str
    holder: str = Field(min_length=1)


class TruncateBody(Body):
    """A file to truncate to its first `length` bytes."""

    path: str
    user: str
    length: int
    request_id: str = ""


class ConcatBody(Body):
    """Files to append to the target, which removes them."""

    target: str
    sources: list[str] = Field(max_length=concat_sources_max, fail_fast=True)
    user: str
    request_id: str = ""


class OpenBody(Body):
    path: str
    user: str


def file_routes(files: Files) -> APIRouter:
    router = APIRouter(prefix="/v1/files")

    @router.post("/create", openapi_extra=_documented(NewFile))
    async def create(request: Request) -> Response:
        """Check a new file, place its first chunk, and sign a token to write it."""
        file = await _body(request, NewFile)
        if not 0 <= file.permission <= 0o1777:
            raise BadRequest(f"permission {file.permission:o} is out of range: 0 to 1777")
        file = replace(file, user=named_user(request, file.user))
        ticket = await files.writing.create(file, _client_host(request))
        return _json({"token": ticket.token, "allocated": ticket.allocated})

    @router.post("/extend")
    async def extend(body: ExtendBody, request: Request) -> Response:
        """Take the lease of a file for appending, and return a token to write with."""
        user = named_user(request, body.user)
        return _json(await files.appending.extend(body.path, user, body.holder, _client_host(request)))

    @router.post("/truncate")
    async def truncate(body: TruncateBody, request: Request) -> Response:
        """Shorten a file, like WebHDFS's TRUNCATE."""
        user = named_user(request, body.user)
        done = await files.reshaping.truncate(body.path, body.length, user, body.request_id)
        return _json({"boolean": done})

    @router.post("/concat")
    async def concat(body: ConcatBody, request: Request) -> Response:
        """Append the chunks of the source files to the target, and delete the sources."""
        user = named_user(request, body.user)
        await files.reshaping.concat(body.target, body.sources, user, body.request_id)
        return _json({})

    @router.get("/chunks", responses={200: documented_answer("FileChunks", "A FileChunks, up to 500 of them.")})
    async def chunks(path: str, user: User, first: int = 0) -> Response:
        """Return the chunks of a file from number `first` on, each with the state of its replicas."""
        return _json(await files.file_chunks.shown(path, user, first))

    @router.post("/renew", openapi_extra=_documented(RenewLease))
    async def renew(request: Request) -> Response:
        """Renew a writer's lease."""
        return _json(await files.appending.renew(await _message(request, RenewLease)))

    @router.post("/keep", openapi_extra=_documented(KeepChunks))
    async def keep(request: Request) -> Response:
        """Keep chunks of a writer that are not part of a file yet."""
        return _json(await files.writing.keep(await _message(request, KeepChunks)))

    @router.post("/abandon", openapi_extra=_documented(AbandonLease))
    async def abandon(request: Request) -> Response:
        """Give up a lease and the chunks that were not published."""
        return _json(await files.appending.abandon(await _message(request, AbandonLease)))

    @router.post("/open")
    async def open_file(body: OpenBody, request: Request) -> Response:
        """Return a token to read a file, its layout and its status."""
        user = named_user(request, body.user)
        token, layout, found = await files.reading.open_direct(body.path, user, _client_host(request))
        status = {"length": found.length, "modified_ms": found.modified_ms, "replication": found.replication}
        return _json({"token": token, "layout": layout, "status": status})

    @router.post("/allocate", openapi_extra=_documented(AllocateChunk))
    async def allocate(request: Request) -> Response:
        """Place a chunk without waiting for a grant."""
        return _json(await files.writing.allocate(await _message(request, AllocateChunk), _client_host(request)))

    @router.post("/complete", openapi_extra=_documented(CompleteFile))
    async def complete(request: Request) -> Response:
        """Publish the written chunks as a file."""
        wanted = await _message(request, CompleteFile)
        return _json(await files.writing.complete(wanted, _client_host(request)))

    @router.post("/flush", openapi_extra=_documented(FlushFile))
    async def flush(request: Request) -> Response:
        """Publish the written chunks, and keep the lease."""
        return _json(await files.writing.flush(await _message(request, FlushFile), _client_host(request)))

    @router.post("/recover-lease")
    async def recover_lease(body: OpenBody, request: Request) -> Response:
        """End the lease of a dead writer, like HDFS's recoverLease. A writer that lives cannot write any more."""
        return _json({"boolean": await files.appending.recover_lease(body.path, named_user(request, body.user))})

    @router.post("/layout", openapi_extra=_documented(GetLayout))
    async def layout(request: Request) -> Response:
        """Return the datanodes of the chunks of a file."""
        return _json(await files.reading.layout(await _message(request, GetLayout), _client_host(request)))

    @router.post("/corrupt", openapi_extra=_documented(ReportCorrupt))
    async def corrupt(request: Request) -> Response:
        """Report a corrupt replica."""
        return _json(await files.reading.report_corrupt(await _message(request, ReportCorrupt)))

    @router.post("/schedule", openapi_extra=_documented(StateWriteSet))
    async def schedule(request: Request) -> Response:
        """State a writer's chunks, and return its grants."""
        wanted = await _message(request, StateWriteSet)
        return _json(await files.schedule.state(wanted, None, _client_host(request)))

    return router


def _client_host(request: Request) -> str | None:
    return request.client.host if request.client else None


async def _message(request: Request, kind: type[M]) -> M:
    message = await _body(request, kind)
    check_bearer_of(message, caller_of(request.scope))
    return message


async def _body(request: Request, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except UNREADABLE as error:
        raise BadRequest(f"the body is no {kind.__name__}: {error}") from None


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def _documented(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the OpenAPI description of a body that is a msgspec structure."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
    inline = components.get(kind.__name__, schema)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": inline}}}}
